"""Reads one file's YAML and collects what is found: problems, positions, and what nobody claims."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Final

from duragent.agent import Json, Level, Origin
from duragent.formats.shape import Problem, failed
from duragent.formats.yaml import Dialect, Fault, Node, parse_yaml


class _Bad:
    """What `read` gives back when a value is unusable; the problem has been reported."""


BAD: Final = _Bad()


class Reader:
    """Collects what is found while one file is read: problems, positions, and what nobody claims."""

    def __init__(self, file: str, *, unknown: Level = "error", number_as_text: Level | None = "warning") -> None:
        self.file = file
        self.unknown: Level = unknown
        self.number_as_text = number_as_text
        self.problems: list[Problem] = []
        self.at: dict[str, Origin] = {}
        self.extra: dict[str, Json] = {}
        self.kept_at: dict[str, Origin] = {}
        self.guesses = 0

    def problem(self, level: Level, node: Node | tuple[int, int], path: str, text: str, hint: str = "") -> None:
        line, column = node if type(node) is tuple else (node.line, node.column)  # type: ignore[union-attr]
        self.problems.append(Problem(level, self.file, line, column, path, text, hint))

    def error(self, node: Node | tuple[int, int], path: str, text: str, hint: str = "") -> None:
        self.problem("error", node, path, text, hint)

    def warning(self, node: Node | tuple[int, int], path: str, text: str, hint: str = "") -> None:
        self.problem("warning", node, path, text, hint)

    def wrong(self, node: Node, path: str, wanted: str, hint: str = "") -> _Bad:
        self.error(node, path, f"{path or 'the file'} must be {wanted}, not {describe(node)}", hint)
        return BAD

    def place(self, path: str, node: Node) -> None:
        self.at[path] = Origin(self.file, node.line, node.column)

    def position(self, path: str) -> tuple[int, int]:
        """Where `path`, or the nearest section around it, stands."""
        while path and path not in self.at:
            path = parent(path)
        found = self.at.get(path)
        return (found.line, found.column) if found else (1, 1)

    def keep(self, path: str, value: Json) -> None:
        """Remember what no field claims, so that writing the same format loses nothing."""
        here = self.extra
        *sections, name = split(path)
        for section in sections:
            inner = here.setdefault(section, {})
            if type(inner) is not dict:  # `a` and `a.b` are both keys here
                here, name = self.extra, path
                break
            here = inner
        here[name] = value

    def meant(self, word: object, known: Iterable[str]) -> str:
        """A hint for a word nobody knows. Somebody who misspelt a hundred words did not misspell them."""
        self.guesses += 1
        return did_you_mean(word, known) if self.guesses <= 100 else ""

    def ok(self) -> bool:
        return not failed(self.problems)


def read_yaml(reader: Reader, text: str, dialect: Dialect, *, duplicates: Level = "error") -> Node | None:
    """The document of `text`, with its oddities reported. None if it is empty or cannot be read."""
    try:
        node, notes = parse_yaml(text, dialect)
    except Fault as fault:
        reader.error((fault.line, fault.column), "", fault.text, fault.hint)
        return None
    for note in notes:
        reader.problem(
            duplicates if note.duplicate else "warning",
            (note.line, note.column),
            "",
            note.text,
            "remove one of them" if note.duplicate else "use spaces",
        )
    return node


def parent(path: str) -> str:
    """`a.b[2]` → `a.b` → `a` → ``"""
    cut = max(path.rfind("."), path.rfind("["))
    return path[:cut] if cut > 0 else ""


def split(path: str) -> list[str]:
    return path.split(".")


def join(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def describe(node: Node) -> str:
    """What stands there, in words short enough for one line."""
    value = node.value
    if value is None:
        return "empty"
    if type(value) is dict:
        return "a map"
    if type(value) is list:
        return "a list"
    if type(value) is bool:
        return f"the truth value {node.text}"
    if type(value) in (int, float):
        return f"the number {node.text}"
    shown = str(value)
    return f"the text {shown[:40] + '…' if len(shown) > 40 else shown!r}"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(str(word), list(known), 1, 0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def homes(at: Mapping[str, Origin], table: Mapping[str, str]) -> dict[str, Origin]:
    """Positions by where a value went in the model. `table` maps path prefixes; the longest wins."""
    found = {}
    for path, origin in at.items():
        prefix = path
        while prefix and prefix not in table:
            prefix = parent(prefix)
        if prefix:
            found[table[prefix] + path[len(prefix) :]] = origin
    return found
