"""Cron expressions are checked before anything is started by them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.formats.cron import Cron, check_cron, numeric_weekday, read_cron


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("* * * * *", "* * * * *"),
        ("  0  9 * *  MON ", "0 9 * * MON"),
        ("*/5 8-17 1,15 JAN-jun mon-fri", "*/5 8-17 1,15 JAN-jun mon-fri"),
        ("30 0 9 * * *", "30 0 9 * * *"),
        ("0 9 ? * SUN", "0 9 * * SUN"),
        ("0 9 1 * ?", "0 9 1 * *"),
        ("0 0 L * *", "0 0 L * *"),
        ("@daily", "0 0 * * *"),
        ("@Weekly", "0 0 * * SUN"),
    ],
)
def test_an_expression_is_made_ready(text: str, expression: str) -> None:
    assert read_cron(text) == Cron(expression)


@pytest.mark.parametrize(
    ("year", "years"),
    [
        ("*", None),
        ("2030", {2030}),
        ("2030-2032", {2030, 2031, 2032}),
        ("2030,2040", {2030, 2040}),
        ("2090/5", {2090, 2095, 2100}),
    ],
)
def test_a_seventh_field_holds_an_expression_to_years(year: str, years: set[int] | None) -> None:
    assert read_cron(f"0 0 9 * * MON {year}") == Cron("0 0 9 * * MON", frozenset(years) if years else None)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("* * * * * * * *", "8 fields"),
        ("60 * * * *", "bad minute"),
        ("*/0 * * * *", "bad minute"),
        ("0 24 * * *", "bad hour"),
        ("0 0 32 * *", "bad day-of-month"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("0 0 * 13 *", "bad month"),
        ("0 0 * * 8", "bad day-of-week"),
        ("0 0 * * FRI-MON", "bad day-of-week"),
        ("61 0 0 * * *", "bad second"),
        ("0 0 9 * * * 1969", "bad year"),
        ("0 0 9 * * * 2101", "bad year"),
        ("0 0 9 * * * 2030/0", "bad year"),
        ("0 0 9 * * * x", "bad year"),
        ("@noon", "'@noon'"),
        ("? * * * *", "bad minute"),
        ("a b c d e", "bad minute"),
        ("0 " * 300, "at most 200"),
    ],
)
def test_a_wrong_expression_says_what_is_wrong(text: str, word: str) -> None:
    assert word in (check_cron(text) or "")


@pytest.mark.parametrize(
    ("text", "numeric"),
    [
        ("0 9 * * 1", True),
        ("0 9 * * MON,3", True),
        ("0 9 * * 1-5", True),
        ("0 9 * * 5L", True),
        ("0 0 9 * * 1", True),
        ("0 0 9 * * 1 2030", True),
        ("0 0 9 * * MON 2030", False),
        ("0 9 * * MON", False),
        ("0 9 * * MON#2", False),
        ("0 9 * * */2", False),
        ("1 1 1 1 *", False),
        ("@weekly", False),
        ("", False),
    ],
)
def test_a_weekday_written_as_a_number_is_noticed(text: str, numeric: bool) -> None:
    assert numeric_weekday(text) is numeric


@given(st.text(st.sampled_from(list("0123456789*/-,?L#W@ ٣²MONJAE")), max_size=40))
def test_any_text_is_answered(text: str) -> None:
    assert isinstance(read_cron(text), Cron | str)
