"""YAML with positions: both dialects, everything a hostile file can try, and what is written reads back."""

import math
import re
from datetime import date
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from duragent.formats.write import dump_yaml
from duragent.formats.yaml import MAX_BYTES, MAX_DEPTH, MAX_NODES, Dialect, Fault, Node, parse_yaml, plain

REFUSED = "refused"


def read(text: str, dialect: Dialect) -> Any:
    node, _notes = parse_yaml(text, dialect)
    return plain(node) if node is not None else None


def fault(text: str, dialect: Dialect = "1.2") -> tuple[int, int, str, str]:
    with pytest.raises(Fault) as caught:
        parse_yaml(text, dialect)
    return caught.value.line, caught.value.column, caught.value.text, caught.value.hint


@pytest.mark.parametrize(
    ("text", "older", "core"),
    [
        ("yes", True, "yes"),
        ("No", False, "No"),
        ("on", True, "on"),
        ("y", "y", "y"),
        ("true", True, True),
        ("TRUE", True, True),
        ("010", 8, 10),
        ("0o10", "0o10", 8),
        ("0x1F", 31, 31),
        ("0b11", 3, "0b11"),
        ("1_000", 1000, "1_000"),
        ("1:30", 90, "1:30"),
        ("-7", -7, -7),
        ("+7", 7, 7),
        ("1e3", "1e3", 1000.0),
        ("1.5e3", "1.5e3", 1500.0),
        ("1.5e+3", 1500.0, 1500.0),
        (".5", 0.5, 0.5),
        ("5.", 5.0, 5.0),
        (".inf", math.inf, math.inf),
        ("-.INF", -math.inf, -math.inf),
        ("2020-01-02", date(2020, 1, 2), "2020-01-02"),
        ("~", None, None),
        ("null", None, None),
        ("nUll", "nUll", "nUll"),
        ("=", REFUSED, "="),
        ("<<", REFUSED, "<<"),
        ("- <<", REFUSED, ["<<"]),
        ("! 3", 3, "3"),
        ("!!str 3", "3", "3"),
        ("!!int '3'", 3, 3),
        ("!!bool maybe", REFUSED, REFUSED),
        ("!!timestamp x", REFUSED, REFUSED),
        ("!!int ''", REFUSED, REFUSED),
        ("!!binary aGk=", b"hi", REFUSED),
        ("'yes'", "yes", "yes"),
        ("1: a\ntrue: b\n~: c", {1: "b", None: "c"}, {"1": "a", "true": "b", "~": "c"}),
        ("a:\t1", REFUSED, {"a": 1}),
        ("", None, None),
        ("# only a comment", None, None),
        ("---\n", None, None),
    ],
)
def test_how_scalars_are_read_in_each_dialect(text: str, older: Any, core: Any) -> None:
    for dialect, wanted in (("1.1", older), ("1.2", core)):
        try:
            found = read(text, dialect)  # type: ignore[arg-type]
        except Fault:
            found = REFUSED
        assert (type(found), found) == (type(wanted), wanted), dialect


# Where we are not PyYAML on purpose, or cannot be:
# - it crashes (ValueError, KeyError, AttributeError) where we refuse;
# - `&a [*a]` is a loop for it and refused by us;
# - `!!set`, `!!omap` and `!!pairs` are plain lists for us;
# - libyaml, which we parse with, refuses `%YAML 1.3` and takes or refuses some odd placements of anchors, tags,
#   `-`, `?` and `:` that PyYAML's own parser does not;
# - `=` as a key is text for it; for us it is refused like every `=`.
PIECES = st.sampled_from(
    [
        *("a", "b: ", "- ", "c:\n  ", "\n", "\n", "  ", "[", "]", "{", "}", ", ", "'", '"', "|\n ", ">\n "),
        *("1", "0x1f", "1_0", "1:30", "1e5", "1.5", ".5", "yes", "No", "null", "~", "2020-01-02", "é", "😀"),
        *("&x ", "*x", "<<: ", "!!str ", "!!int ", "!!null ", "# note", "\\u00e9", "\\n", "\t", "---\n", "<<", "="),
    ]
)
PLAIN = st.text(st.sampled_from("0123456789abefnoxyYNESTRU.:_-+~<=#'\" "), max_size=12)


def oracle(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, KeyError, AttributeError, TypeError, IndexError, RecursionError):
        return REFUSED


def ours(text: str) -> Any:
    try:
        return read(text, "1.1")
    except Fault:
        return REFUSED


@settings(max_examples=400, deadline=None)
@given(PLAIN)
@example("1:30.5")
@example("-0b1")
@example("1__0.")
@example("0_")
@example("= ")
def test_every_scalar_is_what_pyyaml_says(text: str) -> None:
    assume(not re.search(r"=\s*:", text))  # `=` as a key, see above
    document = f"- {text}\n"
    assert repr(ours(document)) == repr(oracle(document))


@settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=12).map("".join))
@example("a: &x {b: 1}\nc: {<<: *x, b: 2}\n")
@example("- &x [1]\n- *x\n")
@example("a:\t1")
def test_whatever_both_read_has_the_same_value(text: str) -> None:
    theirs, mine = oracle(text), ours(text)
    if theirs is not REFUSED and mine is not REFUSED:
        assert repr(mine) == repr(theirs)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
        max_leaves=20,
    ),
    st.booleans(),
)
def test_what_pyyaml_writes_is_read_as_pyyaml_reads_it(value: Any, flow: bool) -> None:
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=True)
    assert repr(read(text, "1.1")) == repr(yaml.safe_load(text))


@pytest.mark.parametrize("text", ["'a\tb'", 'a: "\\ud83d\\ude00"', "a: |\n  b\tc\n", "- a\tb\n"])
def test_tabs_and_surrogate_escapes_are_read_as_pyyaml_reads_them(text: str) -> None:
    assert ours(text) == oracle(text)


def places(node: Node) -> Any:
    """Every value with where it stands, every key with where it stands."""
    here = f"{node.line}:{node.column}"
    if isinstance(node.value, dict):
        return here, {(key, ":".join(map(str, node.keys[key]))): places(child) for key, child in node.value.items()}
    if isinstance(node.value, list):
        return here, [places(child) for child in node.value]
    return here, node.value


def test_every_key_and_value_knows_where_it_stands() -> None:
    node, notes = parse_yaml("# head\nname: x\nlist:\n  - 1\n  - {a: b}\ntext: |\n  hello\n", "1.2")
    assert node is not None
    assert notes == []
    assert places(node) == (
        "2:1",
        {
            ("name", "2:1"): ("2:7", "x"),
            ("list", "3:1"): ("4:3", [("4:5", 1), ("5:5", {("a", "5:6"): ("5:9", "b")})]),
            ("text", "6:1"): ("6:7", "hello\n"),
        },
    )


def test_columns_count_characters_not_bytes() -> None:
    node, _notes = parse_yaml("{é: 1, 😀: 2}", "1.2")
    assert node is not None
    assert places(node) == ("1:1", {("é", "1:2"): ("1:5", 1), ("😀", "1:8"): ("1:11", 2)})


def test_a_key_that_stands_twice_is_noted_and_the_last_one_wins() -> None:
    node, notes = parse_yaml("a: 1\nb: 2\na: 3\n", "1.2")
    assert node is not None
    assert plain(node) == {"a": 3, "b": 2}
    (note,) = notes
    assert (note.line, note.column, note.text, note.duplicate) == (
        3,
        1,
        "the key 'a' stands here twice",
        True,
    )


def test_a_tab_after_a_colon_is_noted() -> None:
    _node, notes = parse_yaml("a: 1\nb:\t2\n", "1.2")
    assert [(note.line, note.column, note.text, note.duplicate) for note in notes] == [
        (2, 3, "a tab stands where a space belongs", False)
    ]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a: 1\n\tb: 2\n", (2, 1, "indented with a tab", "YAML wants spaces")),
        ("a: b: c\n", (1, 5, "not valid YAML: mapping values are not allowed in this context", "quote a text that contains `: `")),
        ("a: 1\n---\nb: 2\n", (2, 1, "a second document begins here", "keep one document per file")),
        ("a: 1\n---\n", (2, 1, "a second document begins here", "keep one document per file")),
        ("a: !mine x\n", (1, 4, "the tag !mine is not known", "remove it")),
        ("a: !!python/object/apply:os.system [ls]\n", (1, 4, "the tag !!python/object/apply:os.system is not known", "remove it")),
        ("a: !mine [1]\n", (1, 4, "the tag !mine is not known", "remove it")),
        ("a: !mine {b: 1}\n", (1, 4, "the tag !mine is not known", "remove it")),
        ("a: *b\n", (1, 4, "*b refers to nothing", "define &b before it")),
        ("a: &b [1, *b]\n", (1, 11, "*b contains itself", "write the value out")),
        ("a: &b {c: *b}\n", (1, 11, "*b contains itself", "write the value out")),
        ("? [a]\n: 1\n", (1, 3, "a key must be a single word or text, not a list or map", "")),
        ("<<: 1\n", (1, 1, "`<<` wants a map or a list of maps", "")),
        ("<<: [{a: 1}, 2]\n", (1, 1, "`<<` wants a map or a list of maps", "")),
    ],
)  # fmt: skip
def test_what_is_refused_and_where(text: str, where: tuple[int, int, str, str]) -> None:
    assert fault(text) == where


def test_a_character_yaml_does_not_allow_is_found() -> None:
    text = "holds a character that YAML does not allow (special characters are not allowed)"
    assert fault("a: 1\nb: \x07\t\n", "1.1") == (2, 4, text, "remove it")
    assert fault("a: 1\nb: \x07\n")[0] == 2


def test_merge_keys_give_what_the_map_does_not_say_itself() -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], c: 3}\n"
    for dialect in ("1.1", "1.2"):
        assert read(text, dialect)["z"] == yaml.safe_load(text)["z"] == {"a": 1, "b": 1, "c": 3}  # type: ignore[arg-type]


def test_a_merged_value_knows_where_it_was_written() -> None:
    node, _notes = parse_yaml("x: &x\n  a: 1\nz:\n  <<: *x\n", "1.2")
    assert node is not None
    assert places(node.value["z"]) == ("4:3", {("a", "2:3"): ("2:6", 1)})


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def test_aliases_that_expand_without_bound_are_refused_where_they_begin_to() -> None:
    assert len(read(bomb(3), "1.2")) == 3
    line, column, text, hint = fault(bomb(9))
    assert (line, text, hint) == (
        5,
        f"its aliases expand to more than {MAX_NODES:,} values",
        "write the values out, or fewer",
    )
    assert column > 1


def test_merge_keys_do_not_get_around_the_bound() -> None:
    lines = ["a0: &a0 {x: 1, y: 1}"]
    lines += [f"a{n}: &a{n} {{l{n}: *a{n - 1}, r{n}: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 40)]
    assert fault("\n".join(lines))[2] == f"its aliases expand to more than {MAX_NODES:,} values"


def test_very_many_values_are_refused() -> None:
    assert fault("[" + "1," * (MAX_NODES + 1) + "]")[2:] == (
        f"holds more than {MAX_NODES:,} values",
        "split it into files",
    )


@pytest.mark.parametrize("dialect", ["1.1", "1.2"])
def test_nesting_is_bounded(dialect: Dialect) -> None:
    value = read("[" * MAX_DEPTH + "]" * MAX_DEPTH, dialect)
    for _level in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []
    deeper = MAX_DEPTH + 1
    wanted = (1, deeper, f"is nested deeper than {MAX_DEPTH} levels", "make it flatter")
    assert fault("[" * deeper + "]" * deeper, dialect) == wanted


@pytest.mark.parametrize("dialect", ["1.1", "1.2"])
@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "&a ["])
def test_a_file_nested_a_hundred_thousand_deep_is_refused(opening: str, dialect: Dialect) -> None:
    fault(opening * 100_000, dialect)


def test_deep_nesting_with_a_tab_does_not_overflow_the_slower_parser() -> None:
    fault("#\t\n" + "[" * 20_000, "1.1")


def test_a_text_over_the_limit_is_refused_before_it_is_parsed() -> None:
    wanted = (1, 1, f"is too large ({MAX_BYTES + 1:,} characters; at most {MAX_BYTES:,})", "split it into files")
    assert fault("#" * (MAX_BYTES + 1)) == wanted
    assert read("#" * MAX_BYTES, "1.2") is None


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["1.1", "1.2"]))
def test_no_text_does_anything_but_parse_or_be_refused(text: str, dialect: Dialect) -> None:
    try:
        parse_yaml(text, dialect)
    except Fault as found:
        assert found.line >= 1
        assert found.column >= 1
        assert found.text


TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from(
        ["yes", "no", "010", "1e3", "1:30", "2020-01-02", "null", "~", "<<", "=", "", " ", "a: b", "- x", "#", "a #b"]
    ),
    st.sampled_from(["line\nline\n", "line\n\n", "\nline", "  indented\nline", "trailing \nx", "\ttab\nx", "é\u2028x", "\x07"]),
    st.from_regex(re.compile(r"[0-9._:eExo+-]{1,8}"), fullmatch=True),
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize("dialect", ["1.1", "1.2"])
@settings(max_examples=150, deadline=None)
@given(VALUES)
@example("1e3")
@example({"y": "0o7"})
@example("a\n b\n")
@example(1e300)
@example(1e-7)
@example("\x85")
@example("a\u2028b\n")
def test_what_is_written_reads_back_in_both_dialects(dialect: Dialect, value: Any) -> None:
    assert repr(read(dump_yaml(value), dialect)) == repr(value)
