"""Breaks texts in every way a tired person, a bad tool or a stranger might. The same seed breaks the same way."""

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import yaml

Break = Callable[[Random, str], str]

_DEPTHS = (3, 30, 199, 201, 3_000)
_SNIPPETS = (
    *("&a [*a]", "&x {y: *x}", "*nowhere", "<<: *nowhere", "<<: {name: other}", "<<: [1, 2]", "? [a, b]\n: c"),
    *(
        "? {a: b}\n: c",
        "!!python/object/apply:os.system [ls]",
        "!!binary aGk=",
        "!!binary *",
        "!!set {a, b}",
        "!custom x",
    ),
    *("!!omap [a: 1]", "!!pairs [a, b]", "!!float x", "!!int ''", "!!timestamp 9999-99-99", "2024-02-30", "!!str"),
    *("---", "...", "--- |", "%YAML 1.3", "%TAG ! tag:x,2000:", "\t", "\tname: x", "name:\tx", "key:", "- ", "-", ": "),
    *("0x", "0o8", "010", "1_000", "190:20:30", "1e400", "-.inf", ".nan", "9" * 400, "9" * 5_000, "1" + "e9" * 3),
    *("yes", "no", "~", "null", "''", '""', "[]", "{}", "[[]]", "{a: {}}", "true", "=", "<<", "@x", "`x`", "%x"),
    *("|", "|9", ">-", "|\n  a\n b", "'", '"', '"\\ud800"', '"\\x00"', "'a''", "[", "{", "]", "}", "[a,,b]", "{a b}"),
    *("base: ./seed.agent", "base: ../../etc/passwd", "base: ag1:000000000000", "base: https://example.org/x.agent"),
    *("x-own: 1", "1: 2", "null: x", "true: y", "1.5: z", "2024-01-01: d", "__proto__: 1", "name: [a]", "name: {a: b}"),
    *(
        "\ufeff",
        "\u2028",
        "\u0085",
        "\u200b",
        "\u202e",
        "\U0001f600",
        "\ud7ff",
        "\ufffe",
        "\x00",
        "\x07",
        "\x1b[31m",
        "\r",
    ),
    *(
        "```",
        "~~~",
        "# System",
        "## Rules",
        "## System",
        "<!-- ",
        "-->",
        "![x](y)",
        "[x]: y",
        "===",
        "---\nname: x\n---",
    ),
    *(
        "{{input.x}}",
        "{{",
        "${HOME}",
        "$(x)",
        'env("X")',
        'x "y" {',
        "a = [1, {b = 2}]",
        "/*",
        "//",
        "<<EOT",
        'x = "${',
    ),
    *("$component_ref: a", '{"$component_ref": "tool-2"}', "$referenced_components: []", "component_type: Flow"),
    *("../x", "/etc/passwd", "C:\\x", "a/../../b", "*" * 3_000, "a" * 70_000, "é" * 300, "0 0 31 2 *", "* * * *"),
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**63, 10**400, 0.5, -0.0, 1e308, float("inf"), float("nan")),
    *("", " ", "\n", "x", "true", "1", "./x", "../x", "/x", "https://example.org", "a" * 5_000, "\x07", "é\u2028"),
    *([], {}, [None], [[]], [{}], {"": None}, {"a": {"b": {}}}, {"name": None}, [1, "a", None, {}], ["x", "x"]),
    *({"type": "builtin"}, {"type": []}, {"name": "x", "command": 1}, {"x": [{"y": [{}]}]}, {"$component_ref": "a"}),
)
_SCALAR = re.compile(r"(?<=[:=]) *[^\s{\[|>][^\n]*|(?<=- )[^\n]+|\"[^\"\n]*\"|\b[\w.-]+\b")


def broken(rng: Random, text: str) -> str:
    """`text` after one to four accidents. Only a whole text can be restructured, so that comes first."""
    breaks = rng.choice((1, 1, 1, 2, 2, 3, 4))
    if rng.random() < 0.3:
        text = _restructure(rng, text)
        breaks -= 1
    for _ in range(breaks):
        text = rng.choice(_BREAKS)(rng, text)
    return text


def _flip(rng: Random, text: str) -> str:
    data = bytearray(text.encode("utf-8", "replace"))
    for _ in range(rng.choice((1, 1, 4)) if data else 0):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return data.decode("utf-8", "replace")


def _lines(change: Callable[[Random, list[str]], None]) -> Break:
    def apply(rng: Random, text: str) -> str:
        lines = text.split("\n")
        change(rng, lines)
        return "\n".join(lines)

    return apply


def _swap(rng: Random, lines: list[str]) -> None:
    one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _double(rng: Random, lines: list[str]) -> None:
    start = rng.randrange(len(lines))
    lines[start:start] = lines[start : start + rng.choice((1, 1, 3, 10))] * rng.choice((1, 1, 1, 1, 1, 50))


def _drop(rng: Random, lines: list[str]) -> None:
    start = rng.randrange(len(lines))
    del lines[start : start + rng.choice((1, 1, 3, 10))]


def _indent(rng: Random, lines: list[str]) -> None:
    start = rng.randrange(len(lines))
    shift = rng.choice((" ", "  ", "    ", "\t", "- ", "", "", "# ", "> "))
    for index in range(start, min(len(lines), start + rng.choice((1, 1, 3, 10)))):
        lines[index] = shift + lines[index] if shift else lines[index][rng.choice((1, 2, 4)) :]


def _insert_line(rng: Random, lines: list[str]) -> None:
    at = rng.randrange(len(lines) + 1)
    near = lines[min(at, len(lines) - 1)]
    indent = near[: len(near) - len(near.lstrip(" "))] if rng.random() < 0.8 else ""
    lines.insert(at, indent + rng.choice(_SNIPPETS))


def _insert(rng: Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    return text[:at] + rng.choice(_SNIPPETS) + text[at:]


def _scalar(rng: Random, text: str) -> str:
    """Another value where one stands."""
    found = list(_SCALAR.finditer(text))
    if not found:
        return text
    here, there = rng.choice(found), rng.choice(found)
    new = there[0] if rng.random() < 0.2 else " " + rng.choice(_SNIPPETS)
    return text[: here.start()] + new + text[here.end() :]


def _nest(rng: Random, text: str) -> str:
    opening, closing = rng.choice(
        (("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", ""), ("> ", ""), ("a {\n", "}\n"), ("a: [", "]"))
    )
    depth = rng.choice(_DEPTHS)
    tower = opening * depth + (closing * depth if rng.random() < 0.7 else "")
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    lines[at] = lines[at].partition(":")[0] + ": " + tower if rng.random() < 0.7 else tower
    return "\n".join(lines)


def _laugh(rng: Random, text: str) -> str:
    """Aliases that expand to a billion, or only to many."""
    width, height = rng.choice(((10, 9), (3, 3), (2, 30)))
    rows = [f"x0: &x0 [{', '.join('a' * width)}]"]
    rows += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * width)}]" for n in range(1, height)]
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    return "\n".join(lines[:at] + rows + lines[at:])


def _cut(rng: Random, text: str) -> str:
    return text[: rng.randrange(len(text) + 1)]


def _flood(rng: Random, text: str) -> str:
    lines = text.split("\n")
    at = rng.randrange(len(lines))
    near = lines[at]
    indent = near[: len(near) - len(near.lstrip(" "))]
    row = rng.choice(("key{}: {}", "- item{}", "k{}: [1, 2]", "## h{} {}", "- [x{}](y{})", "a{} = {}", "x{} {{}}"))
    rows = [indent + row.replace("{}", str(n)) for n in range(rng.choice((20, 20, 20, 1_000)))]
    return "\n".join(lines[:at] + rows + lines[at:])


def _restructure(rng: Random, text: str) -> str:
    """Read it as YAML, put something of another type somewhere, write it again."""
    head, body = _head(text)
    try:
        whole = yaml.load(head, yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError):
        return _scalar(rng, text)
    places = list(_places(whole, 0))
    if not places:
        return _scalar(rng, text)
    _replace(rng, *rng.choice(places), places)
    written = _write(rng, whole)
    return f"---\n{written}\n---{body}" if body is not None else written


def _head(text: str) -> tuple[str, str | None]:
    """The YAML of a text: its header if it has one, else all of it."""
    if text.startswith("---\n") and (end := text.find("\n---", 3)) > 0:
        return text[4 : end + 1], text[end + 4 :]
    return text, None


def _places(value: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in items:
        yield value, key
        if depth < 20:
            yield from _places(child, depth + 1)


def _replace(rng: Random, holder: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    match rng.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("name", "x", "", "x-own", "type", f"{key}s", f"{key}.{key}"))] = holder.pop(key)
        case 2:
            other, name = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[name], default=str))
        case 3:
            holder[key] = [holder[key]]
        case _:
            holder[key] = rng.choice(_VALUES)


def _write(rng: Random, whole: Any) -> str:
    if rng.random() < 0.1:
        return str(yaml.dump(whole, Dumper=yaml.CSafeDumper, allow_unicode=True, sort_keys=False)).rstrip("\n")
    return json.dumps(whole, ensure_ascii=False, indent=rng.choice((None, 1)), default=str)


_BREAKS: tuple[Break, ...] = (
    *(_flip, _lines(_swap), _lines(_double), _lines(_drop), _lines(_indent), _lines(_insert_line), _insert),
    *(_scalar, _scalar, _scalar, _nest, _laugh, _cut, _flood),
)
