"""The `allow` and `deny` lists of `.agent.md`: which abilities exist, and which lists contradict each other."""

import re
from typing import Any

from duragent.agent import Abilities, Json
from duragent.formats.agentmd.header import names_in
from duragent.formats.fields import Kind
from duragent.formats.reader import BAD, Reader, describe, did_you_mean
from duragent.formats.yaml import Node

BASE = ("fs", "network", "sh", "tool", "mcp", "browser", "env")
_ENTRY = re.compile(rf"(?:{'|'.join(BASE)})|sh:[a-z0-9._-]+")
_KNOWN = ", ".join(BASE)


class AbilityList(Kind):
    """A list of abilities or a text with commas; `""` and false for none. With `star` also `"*"` for all."""

    wanted = "a list of abilities"

    def __init__(self, *, star: bool) -> None:
        self.star = star

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if value is False:
            return ()
        if type(value) is str:
            if value.strip() == "*":
                return ("*",) if self.star else self.no_star(node, path, reader)
            entries = [(name, node) for name in names_in(value)]
        elif type(value) is list:
            entries = [(each.value, each) for each in value]
        else:
            hint = f'write {path}: "" for none' + (f', or {path}: "*" for all' if self.star else "")
            return reader.wrong(node, path, self.wanted, hint)
        return self.entries(entries, path, reader)

    def entries(self, entries: list[tuple[Any, Node]], path: str, reader: Reader) -> Any:
        found: dict[str, None] = {}  # in order, and quick to ask
        usable = True
        for index, (entry, node) in enumerate(entries):
            name = entry.strip().lower() if type(entry) is str else ""
            if name in found:
                continue
            if _ENTRY.fullmatch(name):
                reader.place(f"{path}[{len(found)}]", node)
                found[name] = None
                continue
            usable = False
            text, hint = _why(name, node)
            reader.error(node, f"{path}[{index}]", f"{path}: {text}", hint)
        return tuple(found) if usable else BAD

    def no_star(self, node: Node, path: str, reader: Reader) -> Any:
        reader.error(node, path, f'{path}: "*" would forbid everything', 'write allow: "" instead')
        return BAD

    def schema(self) -> dict[str, Json]:
        one = {"type": "string", "pattern": rf"^\s*(?:{'|'.join(map(_any_case, BASE))}|[sS][hH]:[A-Za-z0-9._-]+)\s*$"}
        return {"anyOf": [{"type": "array", "items": one}, {"type": "string"}, {"const": False}]}


def _any_case(word: str) -> str:
    return "".join(f"[{letter}{letter.upper()}]" for letter in word)


def _why(name: str, node: Node) -> tuple[str, str]:
    """What is wrong with an entry, and what to write instead."""
    base, colon, scope = name.partition(":")
    if type(node.value) is dict and len(node.value) == 1:
        ((key, value),) = node.value.items()
        return f"`{key}: {value.text or ''}` is a map", f"write {key}:{value.text or '<command>'} without a space"
    if not name:
        return f"an ability is a name, not {describe(node)}", f"one of {_KNOWN}"
    if name == "*":
        return "`*` cannot stand in a list", 'write allow: "*" alone, and what is forbidden under deny'
    if base not in BASE:
        return f"{name[:60]!r} is not an ability", did_you_mean(base, BASE) or f"one of {_KNOWN}"
    if colon and base != "sh":
        return f"{name[:60]!r} has a scope, and only sh can have one", f"write {base}"
    wrong = "names no command" if not scope.strip() else "must be one plain command name"
    return f"the scope of {name[:60]!r} {wrong}", "like sh:git; letters, digits, dot, underscore and hyphen"


def read_abilities(values: dict[str, Any], reader: Reader) -> Abilities | None:
    """The two lists together; None when the file has neither. Any overlap is an error."""
    if "allow" not in values and "deny" not in values:
        return None
    found = Abilities(values.get("allow", ("*",)), values.get("deny", ()))
    allowed = {each: index for index, each in enumerate(found.allow)}
    scoped = [each for each in found.allow if each.startswith("sh:")]
    for index, name in enumerate(found.deny):
        for each in [*([name] if name in allowed else []), *(scoped if name == "sh" else [])]:
            where = reader.at.get(f"allow[{allowed[each]}]")
            said = f"deny: {name!r} and allow: {each!r} (line {where.line if where else 1}) overlap"
            reader.error(reader.position(f"deny[{index}]"), f"deny[{index}]", said, "remove one of them")
    return found


def render_abilities(abilities: Abilities | None) -> dict[str, Json]:
    if abilities is None:
        return {}
    header: dict[str, Json] = {}
    if abilities.allow != ("*",):
        header["allow"] = list(abilities.allow)
    elif not abilities.deny:
        header["allow"] = "*"
    return header | ({"deny": list(abilities.deny)} if abilities.deny else {})
