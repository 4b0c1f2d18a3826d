"""Field tables: what a file may say, said once, and used three times.

A table of `Field`s reads YAML nodes into plain values with every problem at its position, gives the
JSON Schema for editors, and is what the documentation is compared with. pydantic would do the first
two, at 130 ms of import for every command; see docs/decisions/0001-field-tables.md.

Extending: a new kind of value is a class with `read` and `schema`.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from duragent.agent import Json, Level, Origin
from duragent.formats.reader import BAD, Reader, did_you_mean, join
from duragent.formats.yaml import Node, plain


class Kind(ABC):
    """What a value may be."""

    wanted = "a value"

    @abstractmethod
    def read(self, node: Node, path: str, reader: Reader) -> Any:
        """The value, or BAD after its problems have been reported."""

    @abstractmethod
    def schema(self) -> dict[str, Json]:
        """The JSON Schema of such a value."""


class Text(Kind):
    wanted = "a text"

    def __init__(
        self, *, pattern: str | None = None, rule: str = "", longest: int | None = None, empty: bool = True
    ) -> None:
        self.pattern = re.compile(pattern) if pattern else None
        self.rule = rule
        self.longest = longest
        self.empty = empty

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) is not str:
            if type(value) not in (int, float) or node.text is None:
                return reader.wrong(node, path, self.wanted, _quote_hint(node))
            if reader.number_as_text is not None:
                reader.problem(
                    reader.number_as_text, node, path, f"{path} is a number; it is read as text", f'write "{node.text}"'
                )
            value = node.text
        if not value.strip() and not self.empty:
            return reader.wrong(node, path, "a text", "it may not be empty")
        if self.pattern and not self.pattern.fullmatch(value):
            reader.error(node, path, f"{path} is {value[:60]!r}, which is not allowed", self.rule)
            return BAD
        if self.longest is not None and len(value) > self.longest:
            reader.error(node, path, f"{path} is {len(value):,} characters long", f"at most {self.longest:,}")
            return BAD
        return value

    def schema(self) -> dict[str, Json]:
        found: dict[str, Json] = {"type": "string"}
        if self.pattern:
            found["pattern"] = f"^(?:{self.pattern.pattern})$"
        if self.longest is not None:
            found["maxLength"] = self.longest
        if not self.empty:
            found["minLength"] = 1
        return found


def _quote_hint(node: Node) -> str:
    return f'write "{node.text}" in quotes' if type(node.value) is bool and node.text else ""


class Integer(Kind):
    def __init__(self, minimum: int = 0, maximum: int = 2**53) -> None:
        self.minimum, self.maximum = minimum, maximum
        self.wanted = (
            f"a whole number from {minimum:,} to {maximum:,}"
            if maximum < 2**53
            else f"a whole number, at least {minimum}"
        )

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not self.minimum <= value <= self.maximum:
            return reader.wrong(node, path, self.wanted)
        return value

    def schema(self) -> dict[str, Json]:
        found: dict[str, Json] = {"type": "integer", "minimum": self.minimum}
        return found | ({"maximum": self.maximum} if self.maximum < 2**53 else {})


class Number(Kind):
    def __init__(self, minimum: float | None = None, maximum: float | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum
        self.wanted = (
            "a number"
            if minimum is None
            else f"a number from {minimum:g} to {maximum:g}"
            if (maximum is not None)
            else f"a number, at least {minimum:g}"
        )

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) not in (int, float) or value != value or value in (float("inf"), float("-inf")):
            return reader.wrong(node, path, self.wanted)
        if (self.minimum is not None and value < self.minimum) or (self.maximum is not None and value > self.maximum):
            return reader.wrong(node, path, self.wanted)
        try:
            return float(value)
        except OverflowError:
            return reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        found: dict[str, Json] = {"type": "number"}
        if self.minimum is not None:
            found["minimum"] = self.minimum
        if self.maximum is not None:
            found["maximum"] = self.maximum
        return found


class Flag(Kind):
    wanted = "true or false"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is bool:
            return node.value
        said = node.value.lower() if type(node.value) is str else None
        hint = "write true" if said in ("yes", "on") else "write false" if said in ("no", "off") else ""
        return reader.wrong(node, path, self.wanted, hint)

    def schema(self) -> dict[str, Json]:
        return {"type": "boolean"}


class OneOf(Kind):
    def __init__(self, *values: str, fold: bool = False) -> None:
        self.values = values
        self.fold = fold
        self.wanted = "one of " + ", ".join(values) if len(values) > 1 else f"the word {values[0]}"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) is str:
            if value in self.values:
                return value
            if self.fold and value.strip().lower() in self.values:
                return value.strip().lower()
        return reader.wrong(node, path, self.wanted, reader.meant(node.text, self.values))

    def schema(self) -> dict[str, Json]:
        return {"type": "string", "enum": list(self.values)}


class Anything(Kind):
    """Kept as it is; only what JSON can hold."""

    wanted = "a value that JSON can hold"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        odd = _not_json(node)
        return plain(node) if odd is None else reader.wrong(odd, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        return {}


def _not_json(node: Node) -> Node | None:
    """The first value below that JSON has no word for: infinity, a date."""
    value = node.value
    if isinstance(value, dict | list):
        children = value.values() if isinstance(value, dict) else value
        return next((odd for child in children if (odd := _not_json(child)) is not None), None)
    fine = value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value))
    return None if fine else node


class ListOf(Kind):
    wanted = "a list"

    def __init__(self, item: Kind, *, single: bool = False) -> None:
        self.item, self.single = item, single

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        items = node.value
        if type(items) is not list:
            if not self.single or type(items) is dict or items is None:
                return reader.wrong(node, path, self.wanted, "put `- ` before each entry")
            items = [node]
        found: list[Any] = []
        for index, item in enumerate(items):
            where = f"{path}[{index}]"
            value = self.item.read(item, where, reader)
            if value is not BAD:
                if len(found) != index:
                    _move_places(reader, where, f"{path}[{len(found)}]")
                reader.place(f"{path}[{len(found)}]", item)
                found.append(value)
        return found

    def schema(self) -> dict[str, Json]:
        found: dict[str, Json] = {"type": "array", "items": self.item.schema()}
        return {"anyOf": [found, self.item.schema()]} if self.single else found


def _move_places(reader: Reader, old: str, new: str) -> None:
    """An entry before this one was unusable, so this one moves up; what stands in it moves along."""
    for path in [path for path in reader.at if path.startswith((f"{old}.", f"{old}["))]:
        reader.at[new + path[len(old) :]] = reader.at.pop(path)


class MapOf(Kind):
    wanted = "a map (`key: value` lines)"

    def __init__(self, value: Kind) -> None:
        self.value = value

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is not dict:
            return reader.wrong(node, path, self.wanted)
        found = {}
        for name, child in node.value.items():
            where = join(path, name)
            value = self.value.read(child, where, reader)
            if value is not BAD:
                reader.place(where, child)
                found[str(name)] = value
        return found

    def schema(self) -> dict[str, Json]:
        return {"type": "object", "additionalProperties": self.value.schema()}


class Either(Kind):
    """The first kind whose YAML shape (text, list, map) fits reads the value."""

    def __init__(self, **shapes: Kind) -> None:
        self.shapes = shapes
        self.wanted = " or ".join(kind.wanted for kind in shapes.values())

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        shape = "map" if type(node.value) is dict else "list" if type(node.value) is list else "text"
        kind = self.shapes.get(shape)
        return kind.read(node, path, reader) if kind else reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [kind.schema() for kind in self.shapes.values()]}


class Field(Struct, frozen=True):
    """One key of a section. `acted` is False where it is read and kept, but nothing is done with it."""

    kind: Any
    about: str
    required: bool = False
    default: Json = None
    acted: bool = True
    null_is_absent: bool = True


class Section(Kind):
    """A map with known keys. Unknown ones are reported and kept; keys that begin with `x-` are only kept."""

    wanted = "a section (`key: value` lines)"

    def __init__(self, fields: Mapping[str, Field], *, title: str = "") -> None:
        self.fields = fields
        self.title = title
        self.required = [name for name, field in fields.items() if field.required]

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is not dict:
            return reader.wrong(node, path, self.wanted)
        found: dict[str, Any] = {}
        for name, child in node.value.items():
            field = self.fields.get(name)
            where = join(path, name)
            if field is None:
                self.unknown(node, name, child, where, reader)
                continue
            if child.value is None and field.null_is_absent and child.text is not None:
                place = node.keys.get(name, (child.line, child.column))
                level: Level = "error" if field.required else "warning"
                reader.problem(level, place, where, f"{where} has no value", "give one, or remove the line")
                continue
            value = field.kind.read(child, where, reader)
            if value is BAD:
                continue
            reader.place(where, child)
            found[name] = value
            if not field.acted:
                reader.warning(node.keys[name], where, f"{where} is read and kept, but nothing is done with it")
        for name in self.required:
            if name not in node.value:
                hint = f"add `{name}:`; {self.fields[name].about}"
                reader.error(node, join(path, name), f"{join(path, name)} is missing", hint)
        return found

    def unknown(self, node: Node, name: object, child: Node, where: str, reader: Reader) -> None:
        reader.keep(where, plain(child))
        reader.kept_at[where] = Origin(reader.file, child.line, child.column)
        if str(name).startswith("x-"):
            return
        place = node.keys.get(name, (child.line, child.column))
        hint = reader.meant(name, self.fields) or "known here: " + ", ".join(self.fields)
        reader.problem(reader.unknown, place, where, f"unknown field `{where}`", hint)

    def schema(self) -> dict[str, Json]:
        properties: dict[str, Json] = {}
        for name, field in self.fields.items():
            about = field.about if field.acted else f"{field.about} Read and kept; nothing is done with it."
            properties[name] = field.kind.schema() | {"description": about}
            if field.default is not None:
                properties[name]["default"] = field.default
        found: dict[str, Json] = {"type": "object", "properties": properties, "additionalProperties": False}
        found["patternProperties"] = {"^x-": {}}
        return found | ({"required": self.required} if self.required else {})

    def paths(self, prefix: str = "") -> Iterator[str]:
        """Every field below, as documented: `spec.tools[].name`, `metadata.labels`."""
        for name, field in self.fields.items():
            path = join(prefix, name)
            yield path
            yield from inner_paths(field.kind, path)


def inner_paths(kind: Kind, path: str) -> Iterator[str]:
    if isinstance(kind, Section):
        yield from kind.paths(path)
    elif isinstance(kind, ListOf):
        yield from inner_paths(kind.item, f"{path}[]")
    elif isinstance(kind, MapOf):
        yield from inner_paths(kind.value, f"{path}.*")
    elif isinstance(kind, Either):
        for each in kind.shapes.values():
            yield from inner_paths(each, path)
    elif isinstance(kind, Tagged):
        for section in kind.sections.values():
            yield from section.paths(path)


class Tagged(Kind):
    """A section whose shape depends on one of its keys: `type: builtin | cli | mcp`."""

    def __init__(self, key: str, sections: Mapping[str, Section]) -> None:
        self.key, self.sections = key, sections
        self.wanted = f"a section with `{key}:`"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is not dict:
            return reader.wrong(node, path, self.wanted)
        names = ", ".join(self.sections)
        tag = node.value.get(self.key)
        if tag is None:
            reader.error(node, join(path, self.key), f"{join(path, self.key)} is missing", f"one of {names}")
            return BAD
        section = self.sections.get(tag.value) if type(tag.value) is str else None
        if section is None:
            return reader.wrong(tag, join(path, self.key), f"one of {names}", did_you_mean(tag.text, self.sections))
        return section.read(node, path, reader)

    def schema(self) -> dict[str, Json]:
        found = []
        for tag, section in self.sections.items():
            one = section.schema()
            one["properties"][self.key] = one["properties"][self.key] | {"const": tag}
            one["required"] = sorted({self.key, *one.get("required", ())})
            found.append(one)
        return {"oneOf": found}


def document(section: Section, *, name: str, title: str, about: str) -> dict[str, Json]:
    """A whole JSON Schema document."""
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:duragent:schema:{name}",
        "title": title,
        "description": about,
    }
    return head | section.schema()
