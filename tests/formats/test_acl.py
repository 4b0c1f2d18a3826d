"""The ACL language: read as A3S reads it, said aloud where A3S is silent, safe against any input."""

from time import perf_counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duragent.formats.agentdir.acl import can_be_key, env_name, parse_acl, to_json, write_acl
from duragent.formats.agentdir.tokens import MAX_BYTES, MAX_DEPTH, MAX_FINDINGS, MAX_ITEMS, MAX_TOKEN_BYTES


def items(text: str) -> list[dict[str, Any]]:
    found, findings = parse_acl(text)
    assert [finding for finding in findings if finding.level == "error"] == []
    return [to_json(item) for item in found]


def value(text: str) -> Any:
    (item,) = items(f"x = {text}")
    return item["value"]


def warnings(text: str) -> list[tuple[int, int, str]]:
    return [(each.line, each.column, each.text) for each in parse_acl(text)[1] if each.level == "warning"]


def fault(text: str) -> tuple[str, int, int]:
    found, findings = parse_acl(text)
    assert found == []
    (error,) = [each for each in findings if each.level == "error"]
    return error.code, error.line, error.column


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('"a b"', "a b"),
        ("'a b'", "a b"),
        (r'"\n\r\t\\\""', '\n\r\t\\"'),
        (r'"\u0041\x"', r"\u0041\x"),
        (r"'\'\n'", r"'\n"),
        ('"${x}"', "${x}"),
        ('"# / { not a comment"', "# / { not a comment"),
        ("1", 1),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("5.", 5),
        ("1e3", 1000),
        ("1E-2", 0.01),
        ("true", True),
        ("false", False),
        ("null", None),
        ("True", "True"),
        ("word", "word"),
        ("größe_1", "größe_1"),
        ("\n\n  7", 7),
        ("[]", []),
        ("[1, 2, 3]", [1, 2, 3]),
        ("[,1,,2\n3,]", [1, 2, 3]),
        ("[[1] [2]]", [[1], [2]]),
        ("{}", {}),
        ("{ a = 1, b: 2 c = 3 }", {"a": 1, "b": 2, "c": 3}),
        ("{\n a = { b = [1] }\n}", {"a": {"b": [1]}}),
        ('env("HOME")', {"env()": ["HOME"]}),
        ('env ( "HOME" )', {"env()": ["HOME"]}),
    ],
)
def test_a_value_is_read_without_a_word(text: str, read: Any) -> None:
    assert value(text) == read
    assert type(value(text)) is type(read)
    assert warnings(f"x = {text}") == []


@pytest.mark.parametrize("text", ["a = 1 # c", "a = 1 // c", "# c\na = 1", "a : 1", "a\t=\t1\r\n"])
def test_comments_colons_and_carriage_returns_are_part_of_the_language(text: str) -> None:
    assert items(text) == [{"name": "a", "value": 1}]
    assert warnings(text) == []


def test_a_block_has_labels_attributes_and_blocks() -> None:
    text = 'p "one" "two"\n{\n  a = 1\n  q { b = 2 }\n  r "x" { }\n}'
    assert items(text) == [
        {
            "name": "p",
            "labels": ["one", "two"],
            "attributes": {"a": 1},
            "blocks": [{"name": "q", "attributes": {"b": 2}}, {"name": "r", "labels": ["x"]}],
        }
    ]
    assert warnings(text) == []


def test_repeated_items_stay_in_order_and_the_last_of_equal_attributes_wins() -> None:
    assert [item["value"] for item in items("a = 1\na = 2")] == [1, 2]
    assert items("b { a = 1\na = 2 }") == [{"name": "b", "attributes": {"a": 2}}]
    assert warnings("b { a = 1\na = 2 }") == [(2, 1, "`a` stands here twice")]


@pytest.mark.parametrize(
    ("text", "read", "line", "column", "word"),
    [
        ("my-key = 1", [{"name": "my", "attributes": {"key": 1}}], 1, 3, "ends before `-`"),
        ("b { my-key = 1 }", [{"name": "b", "attributes": {"key": 1}}], 1, 7, "ends before `-`"),
        ('b { "k" = 1 c = 2 }', [{"name": "b", "attributes": {"c": 2}}], 1, 5, "in quotes is dropped"),
        ('x = { "k" = 1 }', [{"name": "x", "value": {}}], 1, 7, "in quotes is dropped"),
        ('x = "abc\ny = 1', [{"name": "x", "value": "abc"}, {"name": "y", "value": 1}], 1, 5, "no closing"),
        ("x = 'abc\\", [{"name": "x", "value": "abc"}], 1, 5, "no closing"),
        ("x = foo/bar", [{"name": "x", "value": "foo"}], 1, 8, "hides the rest"),
        ("/* a\nx = 1", [{"name": "x", "value": 1}], 1, 1, "no block comments"),
        ("x = 1; y = 2", [{"name": "x", "value": 1}, {"name": "y", "value": 2}], 1, 6, "means nothing here"),
        ("\x00x = 1", [{"name": "x", "value": 1}], 1, 1, "means nothing here"),
        ("b {\n a = 1", [{"name": "b", "attributes": {"a": 1}}], 1, 1, "never closed"),
        ('b "l"\na = 1\nc = 2', [{"name": "b", "labels": ["l"], "attributes": {"a": 1, "c": 2}}], 1, 1, "has no `{`"),
        ("a b { }", [{"name": "a", "blocks": [{"name": "b"}]}], 1, 1, "has no `{`"),
        ("b { a += 1 }", [{"name": "b"}], 1, 5, "sets nothing"),
        ("a += 1", [{"name": "a"}], 1, 3, "sets nothing"),
        ("b { a ] c = 1 }", [{"name": "b", "attributes": {"c": 1}}], 1, 5, "stands alone"),
        ("b { ] c = 1 }", [{"name": "b", "attributes": {"c": 1}}], 1, 5, "no place here"),
        ("x = { b { c = 1 } }", [{"name": "x", "value": {}}], 1, 7, "inside a value is dropped"),
        ("x = -", [{"name": "x", "value": 0}], 1, 5, "read as the number 0"),
        ("x = 1e999", [{"name": "x", "value": None}], 1, 5, "too large"),
        ('x = concat("a")', [{"name": "x", "value": {"concat()": ["a"]}}], 1, 5, "is not known"),
        ('x = env("A", "b")', [{"name": "x", "value": {"env()": ["A", "b"]}}], 1, 5, "takes one name"),
    ],
)
def test_what_the_reference_drops_or_guesses_in_silence_is_said(
    text: str, read: list[Any], line: int, column: int, word: str
) -> None:
    assert items(text) == read
    assert [True for each in warnings(text) if each[:2] == (line, column) and word in each[2]], warnings(text)


@pytest.mark.parametrize(
    ("text", "code", "line", "column"),
    [
        ("]", "acl.parse.unexpected_token", 1, 1),
        ("a = 1\n }", "acl.parse.unexpected_token", 2, 2),
        ("1", "acl.parse.unexpected_token", 1, 1),
        ('"a"', "acl.parse.unexpected_token", 1, 1),
        ("true = 1", "acl.parse.unexpected_token", 1, 1),
        ('{"json": 1}', "acl.parse.unexpected_token", 1, 1),
        ("x = 1.2.3", "acl.parse.unexpected_token", 1, 8),
        ("a == 1", "acl.parse.unexpected_token", 1, 4),
        ("x = )", "acl.parse.unexpected_token", 1, 5),
        ("x = [1\n}", "acl.parse.unexpected_token", 2, 1),
        ("x = [1, 2", "acl.parse.unexpected_eof", 1, 10),
        ("x =\n", "acl.parse.unexpected_eof", 2, 1),
        ('x = env("A"', "acl.parse.expected_token", 1, 12),
        ('x = env("A" "B")', "acl.parse.expected_token", 1, 13),
        ("b { a c = 1 }", "acl.parse.expected_token", 1, 7),
    ],
)
def test_what_the_reference_refuses_is_refused_at_its_place(text: str, code: str, line: int, column: int) -> None:
    assert fault(text) == (code, line, column)


def test_an_error_never_repeats_the_text_it_is_about() -> None:
    _, findings = parse_acl('x = env("A" "sk-secret")')
    assert "sk-secret" not in str(findings)


def test_every_limit_is_kept_and_one_less_is_fine() -> None:
    assert fault("#" * (MAX_BYTES + 1))[0] == "acl.limit.document_bytes"
    assert fault("#" + "é" * (MAX_BYTES // 2))[0] == "acl.limit.document_bytes"
    assert fault(f'x = "{"a" * MAX_TOKEN_BYTES}"')[0] == "acl.limit.token_bytes"
    assert value(f'"{"a" * (MAX_TOKEN_BYTES - 2)}"') == "a" * (MAX_TOKEN_BYTES - 2)
    assert fault("x = " + "[" * (MAX_DEPTH + 1)) == ("acl.limit.nesting_depth", 1, 5 + MAX_DEPTH)
    assert value("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    assert fault(f"x = [{'1 ' * (MAX_ITEMS + 1)}]")[0] == "acl.limit.collection_items"
    assert len(value(f"[{'1 ' * MAX_ITEMS}]")) == MAX_ITEMS
    assert fault("a = 1\n" * (MAX_ITEMS + 1)) == ("acl.limit.collection_items", MAX_ITEMS + 1, 1)
    assert fault("b {" + "a = 1\n" * (MAX_ITEMS + 1) + "}")[0] == "acl.limit.collection_items"
    assert fault("a " * (MAX_DEPTH + 2))[0] == "acl.limit.nesting_depth"


HOSTILE = [
    "{" * 120_000,
    "a{]" * 40_000,
    "a " * 120_000,
    'a "b" ' * 40_000,
    "x = [" * 30_000,
    "x = " + "f(" * 40_000,
    "a{b" * 40_000,
    "\\" * 120_000,
    '"\\' * 50_000,
    "'" * 120_000,
    "\x00" * 120_000,
    "-" * 120_000,
    ".e" * 120_000,
    "9" * 30_000,
    "/" * 120_000,
    "\n" * 120_000,
    "a{" + "]" * 120_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=[text[:5].encode("unicode_escape").decode() for text in HOSTILE])
def test_a_hostile_text_is_answered_in_time_and_in_few_words(text: str) -> None:
    begin = perf_counter()
    _, findings = parse_acl(text)
    assert len(findings) <= MAX_FINDINGS + 1
    assert perf_counter() - begin < 4


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from(list("ab{}[]()=:,+-.#/\"'\\\n 1e;\x00é")), max_size=60))
def test_any_text_is_answered_and_what_was_read_can_be_written(text: str) -> None:
    found, _ = parse_acl(text)
    kept = [to_json(item) for item in found]
    assert items(write_acl(kept)) == kept


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True).filter(can_be_key)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(NAMES, inner, max_size=3)
        | st.builds(lambda name: {"env()": [name]}, st.text(max_size=5))
    ),
    max_leaves=8,
)


@settings(max_examples=80, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.lists(st.text(max_size=6), max_size=3))
def test_whatever_is_written_reads_back_without_a_word(attributes: dict[str, Any], labels: list[str]) -> None:
    block = {"name": "b", "labels": labels, "attributes": attributes, "blocks": [{"name": "c", "labels": ["x"]}]}
    kept = {key: value for key, value in block.items() if value}
    text = write_acl([kept, {"name": "d", "value": attributes}])
    assert items(text) == [kept, {"name": "d", "value": attributes}]
    assert warnings(text) == []


def test_only_a_call_of_env_with_a_name_names_a_variable() -> None:
    assert env_name(value('env("A")')) == "A"
    assert [env_name(value(text)) for text in ('"A"', "env()", "env(1)", 'f("A")', "{}", "[]")] == [None] * 6
