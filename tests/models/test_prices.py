"""What models cost: the dated table, what the owner says over it, and sums that are never too low."""

import re
from typing import Any

import pytest

from duragent.core.events import Usage
from duragent.errors import NotAllowed
from duragent.models.prices import FREE, PRICES_OF, TABLE, Price, cost, find_price, reserve


def test_the_table_has_a_date_and_prices_that_can_be() -> None:
    assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", PRICES_OF)
    assert {name: price for name, price in TABLE.items() if not 0 <= price.cached <= price.input <= price.output} == {}


@pytest.mark.parametrize(
    ("provider", "name", "listed"),
    [
        ("openai", "gpt-4o", "gpt-4o"),
        ("openai", "gpt-4o-2024-08-06", "gpt-4o"),
        ("openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini"),
        ("openai", "gpt-5-mini", "gpt-5-mini"),
        ("anthropic", "claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("anthropic", "claude-opus-4-20250514", "claude-opus-4"),
        ("openrouter", "anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("openrouter", "openai/gpt-5.4-mini:nitro", "gpt-5.4-mini"),
        ("openrouter", "google/gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
    ],
)
def test_the_longest_name_that_fits_holds(provider: str, name: str, listed: str) -> None:
    assert find_price(provider, name) == TABLE[listed]


@pytest.mark.parametrize("name", ["gpt-4oo", "gpt-40", "my-model", "", "claude", "o33"])
def test_nobody_guesses_a_price(name: str) -> None:
    assert find_price("openai", name) is None


@pytest.mark.parametrize("provider", ["ollama", "local", "scripted"])
def test_what_runs_at_home_costs_nothing(provider: str) -> None:
    assert find_price(provider, "gpt-4o") == FREE
    assert find_price(provider, "gpt-4o", {"gpt-4o": [1, 2]}) == Price(1, 2, 1)


@pytest.mark.parametrize(
    ("said", "price"),
    [
        ({"input": 1, "output": 2.5, "cached": 0}, Price(1.0, 2.5, 0.0)),
        ({"input": 1, "output": 2}, Price(1.0, 2.0, 1.0)),
        ([1, 2], Price(1.0, 2.0, 1.0)),
        ([1, 2, 0.5], Price(1.0, 2.0, 0.5)),
    ],
)
def test_the_owners_price_holds(said: Any, price: Price) -> None:
    assert find_price("openai", "gpt-4o", {"gpt-4o": said}) == price
    assert find_price("openai", "gpt-4o", {"openai/gpt-4o": said, "gpt-4o": [9, 9]}) == price
    assert find_price("openrouter", "acme/m", {"acme/m": said}) == price
    assert find_price("openai", "gpt-4o-mini", {"gpt-4o": said}) == TABLE["gpt-4o-mini"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("cheap", "is no price. Write {input: 2.5, output: 10}, in USD per million tokens"),
        ([1], "is no price. Write {input: 2.5, output: 10}, in USD per million tokens"),
        ({"input": 1}, "lacks output. Write {input: 2.5, output: 10}, in USD per million tokens"),
        ({"input": 1, "output": 2, "x": 3}, "has x, which means nothing. Write input, output and cached"),
        ([1, -2], ": output is -2. Write a number of USD per million tokens, 0 or more"),
        ([True, 2], ": input is True. Write a number of USD per million tokens, 0 or more"),
        (["1", 2], ": input is '1'. Write a number of USD per million tokens, 0 or more"),
        ([float("nan"), 2], ": input is nan. Write a number of USD per million tokens, 0 or more"),
        ([1, float("inf")], ": output is inf. Write a number of USD per million tokens, 0 or more"),
    ],
)
def test_a_price_that_is_none_is_named_with_its_place(said: Any, why: str) -> None:
    with pytest.raises(NotAllowed) as error:
        find_price("openai", "gpt-4o", {"gpt-4o": said})
    assert str(error.value) == f"prices: gpt-4o in duragent.yaml{'' if why[0] == ':' else ' '}{why}"


def test_an_answer_costs_what_its_tokens_cost() -> None:
    price = Price(2.0, 10.0, 0.5)
    assert cost(price, Usage(1_000_000, 100_000, 1_100_000, 400_000)) == pytest.approx(1.2 + 0.2 + 1.0)
    assert cost(price, Usage(10, 0, 10, 99)) == pytest.approx(10 * 0.5 / 1e6)
    assert cost(FREE, Usage(10, 10, 20)) == 0


def test_a_reservation_is_the_most_a_call_can_cost() -> None:
    price = Price(2.0, 10.0, 0.5)
    assert reserve(price, 1_000_000, 100_000) == pytest.approx(3.0)
    assert reserve(price, 100, 50) >= cost(price, Usage(100, 50, 150, 70))


def test_what_anthropic_is_told_to_keep_costs_a_quarter_more() -> None:
    price = find_price("anthropic", "claude-sonnet-4-5")
    assert price is not None
    kept, plain = Usage(1_000_000, 0, 1_000_000, 0, 1_000_000), Usage(1_000_000, 0, 1_000_000)
    assert (cost(price, kept), cost(price, plain)) == (3.75, 3.0)
    assert reserve(price, 1_000_000, 0) == 3.75
