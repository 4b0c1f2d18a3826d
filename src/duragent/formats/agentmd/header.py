"""The header of `.agent.md` files and of their command files: forgiving about case, strict about the rest.

Keys are the same in any case. `argument-hint: [a] [b]`, which the format's own document shows and YAML
refuses, is read as the text it means. Unknown keys are reported and kept.
"""

import re
from typing import Any

from duragent.agent import Json, Origin
from duragent.formats.fields import Anything, Kind, Section, Text
from duragent.formats.markdown import Page
from duragent.formats.places import places
from duragent.formats.reader import BAD, Reader, describe, did_you_mean, join, read_yaml
from duragent.formats.yaml import Fault, Node, parse_yaml

_HINT_LINE = re.compile(r"^(\s*(?:-\s+)?argument-hint:\s*)(\[.*\S)\s*$", re.IGNORECASE)
_MOST_REPAIRS = 100
_BARE_STAR = re.compile(r"^\s*(?:allow|deny)\s*:\s*\*\s*$", re.IGNORECASE)


_JSON = Anything()


def read_front(page: Page, reader: Reader) -> Node | None:
    """The header as a map, with positions from the top of the file. None if there is none or it is unusable."""
    if not page.closed:
        text = "the header that begins here never ends"
        reader.error((page.header_line - 1, 1), "", text, "write `---` on a line of its own below its last field")
        return None
    if page.header is None:
        return None
    before = len(reader.problems)
    padded = _repair("\n" * (page.header_line - 1) + page.header + "\n", reader)
    node = read_yaml(reader, padded, "1.2")
    if node is None and len(reader.problems) > before:
        _explain_star(padded, reader)
    if node is not None and type(node.value) is not dict:
        text = f"the header must be `key: value` lines, not {describe(node)}"
        reader.error(node, "", text, "write `title: …` and the like, or remove the `---` lines")
        return None
    return node


def _repair(text: str, reader: Reader) -> str:
    """Put quotes around `[a] [b]` hints, but only where YAML stumbles: the same words in a body are text."""
    lines = text.split("\n")
    if not any(_HINT_LINE.match(line) for line in lines):
        return text
    for _ in range(_MOST_REPAIRS):
        try:
            parse_yaml(text, "1.2")
        except Fault as fault:
            found = _HINT_LINE.match(lines[fault.line - 1]) if fault.line <= len(lines) else None
            if found is None:
                return text
            hint = "'" + found[2].replace("'", "''") + "'"
            lines[fault.line - 1] = found[1] + hint
            said = f"argument-hint is not valid YAML; it is read as the text {found[2][:60]}"
            reader.warning((fault.line, len(found[1]) + 1), "argument-hint", said, f"put it in quotes: {hint[:60]}")
            text = "\n".join(lines)
        else:
            return text
    return text


def _explain_star(text: str, reader: Reader) -> None:
    last = reader.problems[-1]
    lines = text.split("\n")
    if last.line <= len(lines) and _BARE_STAR.match(lines[last.line - 1]):
        reader.problems.pop()
        said = "a `*` without quotes means something else in YAML"
        reader.error((last.line, lines[last.line - 1].index("*") + 1), last.path, said, 'write "*"')


def fold(node: Node, section: Section, path: str, reader: Reader) -> Node:
    """The same map with its known keys spelled as `section` spells them and the others in lower case."""
    spelling = {name.lower(): name for name in section.fields}
    folded = Node({}, node.line, node.column, node.text)
    first: dict[str, str] = {}
    for key, value in node.value.items():
        name = spelling.get(key.lower(), key.lower())
        place = node.keys.get(key, (value.line, value.column))
        if name in folded.value:
            line, _ = folded.keys[name]
            said = f"`{join(path, first[name])}` (line {line}) and `{join(path, key)}` are the same key in another case"
            reader.error(place, join(path, name), said, "remove one of them")
            continue
        first[name] = key
        folded.value[name] = value
        folded.keys[name] = place
    return folded


def take_unknown(node: Node, section: Section, path: str, reader: Reader) -> tuple[dict[str, Json], dict[str, Origin]]:
    """Remove the keys that `section` does not know; give them back, and where they and their parts stand.

    `x-…` is taken without a word.
    """
    taken = {}
    where: dict[str, Origin] = {}
    for name in [name for name in node.value if name not in section.fields]:
        value = _JSON.read(node.value[name], join(path, name), reader)
        if value is not BAD:
            taken[name] = value
            where |= places(value, node.value[name], name, reader.file)
        if not name.startswith("x-"):
            hint = did_you_mean(name, section.fields) or "it is kept, but nothing is done with it"
            reader.problem(
                reader.unknown, node.keys[name], join(path, name), f"unknown field `{join(path, name)}`", hint
            )
        del node.value[name]
    return taken, where


class Names(Kind):
    """A list of names, or one text with commas or line breaks between them. Blank ones are left out."""

    wanted = "a list of names"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) in (dict, bool) or node.value is None:
            return reader.wrong(node, path, self.wanted, "put `- ` before each entry")
        found: list[str] = []
        for index, item in enumerate(node.value if type(node.value) is list else [node]):
            value = Text().read(item, f"{path}[{index}]" if item is not node else path, reader)
            if value is BAD:
                continue
            for name in names_in(value) if item is node else [value.strip()]:
                if name:
                    reader.place(f"{path}[{len(found)}]", item)
                    found.append(name)
        return found

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}


def names_in(text: str) -> list[str]:
    return [name for each in re.split(r"[,\n]", text) if (name := each.strip())]
