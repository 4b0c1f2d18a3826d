"""The commands of an `.agent.md` file: written in its header, in Markdown files beside it, or behind a URL.

A path that ends in `.md` is a file, any other is a folder of such files. Files are asked for through
`needs`; a URL is only remembered, nothing is fetched here.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct

from duragent.agent import Command, Json, Origin
from duragent.formats.agentmd.header import fold, read_front, take_unknown
from duragent.formats.agentmd.headings import trim
from duragent.formats.fields import Either, Field, Kind, ListOf, Section, Text
from duragent.formats.markdown import cut, with_header
from duragent.formats.reader import BAD, Reader, describe, homes, join
from duragent.formats.shape import Absent, File, Files, Folder, Need, Problem, absence, beside, is_address
from duragent.formats.yaml import Node, position

KEPT = "extra.agentmd.commands"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_NAME_RULE = "letters, digits, hyphens and underscores, not at the beginning a hyphen or underscore"
_URL = re.compile(r"https://[^/?#\s]+(/[^?#\s]*)?(?:\?[^#\s]*)?(?:#\S*)?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ZERO = re.compile(r"(?<!\$)\$0(?![0-9]|\.[0-9])")


class _Hint(Kind):
    """One argument. `[name]`, which YAML takes for a list, is the text that was written."""

    wanted = "a text"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is list and len(node.value) == 1 and type(node.value[0].value) is str:
            return f"[{node.value[0].value}]"
        return Text().read(node, path, reader)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 1}]}


_HINT = Field(Either(text=Text(), list=ListOf(_Hint())), "What arguments it takes, for people: a text or a list.")

INLINE = Section(
    {
        "name": Field(Text(pattern=_NAME, rule=_NAME_RULE), "What is typed after the slash.", required=True),
        "description": Field(Text(empty=False), "What the command does, in a line.", required=True),
        "argument-hint": _HINT,
        "body": Field(
            Text(empty=False), "What the model is told; $1, $2 … and $ARGUMENTS stand for arguments.", required=True
        ),
    }
)
FILE = Section({"description": Field(Text(), "What the command does, in a line."), "argument-hint": _HINT})

KIND = ListOf(Either(text=Text(empty=False), map=INLINE))
KIND.wanted = "a list of paths, URLs and command definitions"


class Reference(Struct, frozen=True):
    """What a text in the list of commands points at. `target` is a path as `Files` knows it, or a URL."""

    kind: Literal["file", "folder", "url", "url folder", "bad"]
    target: str
    why: str = ""


def refer(text: str, file: str) -> Reference:
    text = text.strip()
    if _CONTROL.search(text):
        return Reference("bad", text, "holds a control character")
    if is_address(text) or "://" in text:
        url = _URL.fullmatch(text)
        if url is None:
            return Reference("bad", text, "is not an https address")
        whole = url[1] is None or url[1].endswith("/")
        return Reference("url folder" if whole else "url", text)
    path = beside(file, text)
    return Reference("file" if path.lower().endswith(".md") else "folder", path)


class Commands:
    """Reads the commands of one file. `kept` is what the model has no place for."""

    def __init__(self, reader: Reader, files: Files) -> None:
        self.reader = reader
        self.files = files
        self.found: list[Command] = []
        self.origins: dict[str, Origin] = {}
        self.kept: dict[str, Json] = {}
        self.seen: dict[str, str] = {}
        self.listed: set[str] = set()

    def fold(self, node: Node) -> None:
        """Before the header is read: spell the keys of inline commands, set their unknown fields aside."""
        for index, item in enumerate(node.value if type(node.value) is list else []):
            if type(item.value) is dict:
                path = f"commands[{index}]"
                folded = fold(item, INLINE, path, self.reader)
                unknown, where = take_unknown(folded, INLINE, path, self.reader)
                item.value, item.keys = folded.value, folded.keys
                name = item.value.get("name")
                self.keep_fields(str(name.value) if name else "", unknown, where)

    def keep_fields(self, name: str, unknown: dict[str, Json], where: Mapping[str, Origin]) -> None:
        if unknown:
            self.kept.setdefault("fields", {})[name.lower()] = unknown
            self.origins |= {f"{KEPT}.fields.{name.lower()}.{key}": origin for key, origin in where.items()}

    def needs(self, items: list[Any]) -> Need:
        """The files and folders that the list names and that have not been looked at."""
        references = [refer(item, self.reader.file) for item in items if type(item) is str]
        folders = frozenset(each.target for each in references if each.kind == "folder")
        files = {each.target for each in references if each.kind == "file"}
        for folder in folders:
            files.update(self.pages(folder))
        return Need(files=frozenset(files), folders=folders).without(self.files.found)

    def pages(self, folder: str) -> Iterator[str]:
        """The command files in a folder, by name; hidden files and agents are none."""
        for name in self.files.names(folder):
            if name.endswith(".md") and not name.startswith(".") and not name.endswith(".agent.md"):
                yield posixpath.join(folder, name)

    def read(self, items: list[Any]) -> tuple[Command, ...]:
        for index, item in enumerate(items):
            path = f"commands[{index}]"
            place = self.reader.at[path]
            if type(item) is dict:
                self.inline(item, path, place)
            else:
                self.referred(refer(item, self.reader.file), path, place)
        return tuple(self.found)

    def inline(self, item: dict[str, Any], path: str, place: Origin) -> None:
        body = trim(item.get("body", "").split("\n"))
        self.check_body(body, f"{path}.body", self.reader, *self.reader.position(f"{path}.body"))
        if item.keys() >= {"name", "description", "body"}:
            hint = _hint(item.get("argument-hint", ""))
            command = Command(item["name"], item["description"].strip(), body, hint)
            self.add(command, path, place, place, _places(self.reader.at, path))

    def referred(self, reference: Reference, path: str, place: Origin) -> None:
        here = (place.line, place.column)
        target = reference.target
        match reference.kind:
            case "bad":
                hint = "write a path, or an address that begins with https://"
                self.reader.error(here, path, f"the command {target[:80]!r} {reference.why}", hint)
            case "url folder":
                said = f"{target[:120]} is a folder behind a URL, which cannot be listed; it gives no commands"
                self.reader.warning(here, path, said, "name each file: https://…/name.md")
                folders = self.kept.setdefault("folders", [])
                self.origins[f"{KEPT}.folders[{len(folders)}]"] = place
                folders.append(target)
            case "url":
                self.add(Command(url_name(target), source=target), path, place, place, {})
            case "file":
                self.file(target, path, place)
            case "folder":
                self.folder(target, path, place)

    def folder(self, folder: str, path: str, place: Origin) -> None:
        entry = self.files.found.get(folder)
        if not isinstance(entry, Folder):
            self.absent(folder, entry, path, place)
            return
        pages = list(self.pages(folder))
        if not pages:
            said = f"the folder {folder or '.'} holds no command: there is no .md file in it"
            self.reader.warning((place.line, place.column), path, said, "add one, or remove this line")
        for page in pages:
            self.file(page, path, place)

    def absent(self, target: str, entry: object, path: str, place: Origin) -> None:
        why = entry if isinstance(entry, Absent) else Absent("missing")
        found = absence("error", target or ".", why, file=place.file, line=place.line, column=place.column, at=path)
        if why.why == "special":
            said = f"{target} is neither a folder nor a .md file"
            hint = "name a folder of .md files, or one file that ends in .md"
            found = Problem("error", place.file, place.line, place.column, path, said, hint)
        self.reader.problems.append(found)

    def file(self, page: str, path: str, place: Origin) -> None:
        entry = self.files.found.get(page)
        if not isinstance(entry, File):
            self.absent(page, entry, path, place)
            return
        own = Reader(page, unknown=self.reader.unknown, number_as_text=None)
        text = cut(entry.text)
        node = read_front(text, own)
        values = self.header(node, page, own) if node is not None else {}
        body = trim(text.body.split("\n"))
        if own.ok() and not body:
            own.warning(
                (text.body_line, 1), "body", f"the command {_stem(page)!r} has no text", "write what it should do"
            )
        below = position(entry.text, entry.text.index(body, len(entry.text) - len(text.body)) if body else 0)
        self.check_body(body, "body", own, *below)
        self.reader.problems.extend(own.problems)
        if own.ok():
            hint = _hint(values.get("argument-hint", ""))
            command = Command(_stem(page), values.get("description", "").strip(), body, hint, page)
            inner = homes(own.at, _homes("")) | ({"body": Origin(page, *below)} if body else {})
            self.add(command, path, place, Origin(page, 1, 1), inner)

    def header(self, node: Node, page: str, own: Reader) -> dict[str, Any]:
        folded = fold(node, FILE, "", own)
        name = folded.value.pop("name", None)
        if name is not None and str(name.value).lower() != _stem(page).lower():
            said = f"the command is called {(name.text or describe(name))[:60]!r} here and {_stem(page)!r} by its file"
            own.error(name, "name", said, "rename the file, or remove this line")
        if "body" in folded.value:
            hint = "write it below the second `---`"
            own.error(folded.keys["body"], "body", "the text of a command file stands below its header", hint)
        self.keep_fields(_stem(page), *take_unknown(folded, FILE, "", own))
        values = FILE.read(folded, "", own)
        return {} if values is BAD else values

    def check_body(self, body: str, path: str, reader: Reader, line: int, column: int) -> None:
        found = _ZERO.search(body)
        if found is None:
            return
        if reader is not self.reader:  # a file shows its text as it is, so the very place is known
            below, across = position(body, found.start())
            line, column = line + below - 1, across if below > 1 else column + across - 1
        reader.warning((line, column), path, "$0 stands for nothing; it stays as it is", "arguments begin at $1")

    def add(self, command: Command, path: str, place: Origin, origin: Origin, inner: Mapping[str, Origin]) -> None:
        """One more command. It begins at `origin`; `inner` tells where its parts stand, `place` who names it."""
        here = (place.line, place.column)
        where = command.source or str(place)
        if not re.fullmatch(_NAME, command.name):
            said = f"{where} gives the name {command.name[:60]!r}, which a command cannot have"
            self.reader.error(here, path, said, _NAME_RULE)
            return
        before = self.seen.setdefault(command.name.lower(), where)
        if before != where:
            said = f"two commands are called {command.name!r}: {before} and {where}"
            self.reader.error(here, path, said, "rename one, or remove it")
        elif command.name.lower() not in self.listed:
            self.listed.add(command.name.lower())
            home = f"commands[{len(self.found)}]"
            self.origins |= {home: origin} | {f"{home}.{name}": each for name, each in inner.items()}
            self.found.append(command)


def _homes(path: str) -> dict[str, str]:
    """Where the fields of the command at `path` of a header go in the model."""
    return {join(path, name): name.replace("-", "_") for name in INLINE.fields}


def _places(at: Mapping[str, Origin], path: str) -> dict[str, Origin]:
    """Where the fields of one command stand. Looks only at its own: a file may hold thousands of commands."""
    found: dict[str, Origin] = {}
    for source, home in _homes(path).items():
        if source in at:
            found[home] = at[source]
        index = 0
        while (item := f"{source}[{index}]") in at:
            found[f"{home}[{index}]"] = at[item]
            index += 1
    return found


def _stem(page: str) -> str:
    return re.sub(r"\.md$", "", posixpath.basename(page), flags=re.IGNORECASE)


def url_name(url: str) -> str:
    found = _URL.fullmatch(url)
    return _stem(found[1] or "") if found else ""


def _hint(hint: str | list[str]) -> str | tuple[str, ...]:
    return hint.strip() if isinstance(hint, str) else tuple(hint) or ""


def render_commands(
    commands: tuple[Command, ...], kept: Mapping[str, Json]
) -> tuple[list[Json], dict[str, str], list[str]]:
    """Entries for the header, files beside it, and the names of commands that cannot be written."""
    entries: list[Json] = []
    files: dict[str, str] = {}
    unsaid = []
    fields = kept.get("fields", {})
    for command in commands:
        own: dict[str, Json] = {"description": command.description} if command.description else {}
        if command.argument_hint:
            hint = command.argument_hint
            own["argument-hint"] = hint if isinstance(hint, str) else list(hint)
        more = {key: value for key, value in fields.get(command.name.lower(), {}).items() if key not in own}
        if not re.fullmatch(_NAME, command.name):
            unsaid.append(command.name)
        elif command.source and not command.body and url_name(command.source) == command.name:
            entries.append(command.source)
        elif command.description and command.body:
            entries.append({"name": command.name} | own | more | {"body": command.body})
        else:  # only a file may do without a description
            path = f"commands/{command.name}.md"
            text = with_header(own | more, command.body)
            files[path] = f"---\n---\n\n{text}" if text.startswith("---") and not (own or more) else text
            entries.append(f"./{path}")
    return entries + list(kept.get("folders", ())), files, unsaid
