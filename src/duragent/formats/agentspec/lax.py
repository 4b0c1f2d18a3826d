"""Kinds of values as the agentspec reference reads them: what it accepts, and as what.

Its rules are those of a validator that converts (`'25'` is 25, `yes` is true); its fingerprints depend
on them bit for bit, so they are kept apart from the strict kinds in `fields.py`.
"""

import math
import re
from typing import Any

from duragent.agent import Json
from duragent.formats.fields import Kind
from duragent.formats.reader import BAD, Reader, did_you_mean, join
from duragent.formats.yaml import Node, plain

_INT = re.compile(r"[+-]?[0-9]+(?:_[0-9]+)*(?:\.0+)?", re.ASCII)
_DIGITS = r"[0-9]+(?:_[0-9]+)*"
_FLOAT = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?", re.ASCII)
_WORD_FLOAT = re.compile(r"[+-]?(?:inf|infinity|nan)", re.IGNORECASE)
_YES = frozenset({"1", "t", "true", "on", "y", "yes"})
_NO = frozenset({"0", "f", "false", "off", "n", "no"})
_LONGEST_NUMBER = 4_300
# What the reference trims around a number: white space, but not the separators that Python's strip() also takes.
_SPACE = " \t\n\r\x0b\x0c\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))


class LaxText(Kind):
    def __init__(self, *, null: bool = False) -> None:
        self.null = null
        self.wanted = "a text or nothing" if null else "a text"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) is str or (value is None and self.null):
            return value
        if type(value) is bytes:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return reader.wrong(node, path, self.wanted, "the bytes are not UTF-8")
        hint = f'write "{node.text}" in quotes' if node.text and not isinstance(value, dict | list) else ""
        return reader.wrong(node, path, self.wanted, hint)

    def schema(self) -> dict[str, Json]:
        return {"type": ["string", "null"] if self.null else "string"}


class LaxEnum(Kind):
    def __init__(self, *values: str) -> None:
        self.values = values
        self.wanted = "one of " + ", ".join(values)

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is str and node.value in self.values:
            return node.value
        hint = did_you_mean(node.text, self.values)
        if type(node.value) is bool and "none" in self.values:
            hint = f"YAML reads `{node.text}` as a truth value; write none"
        return reader.wrong(node, path, self.wanted, hint)

    def schema(self) -> dict[str, Json]:
        return {"type": "string", "enum": list(self.values)}


class LaxInt(Kind):
    wanted = "a whole number"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if isinstance(value, bool | int):
            return int(value)
        if type(value) is float and math.isfinite(value) and value.is_integer() and abs(value) < 2**63:
            return int(value)
        if type(value) is str and len(value) < _LONGEST_NUMBER and _INT.fullmatch(value.strip(_SPACE)):
            return int(value.strip(_SPACE).partition(".")[0])
        return reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        return {"type": "integer"}


class LaxFloat(Kind):
    def __init__(self, *, null: bool = False) -> None:
        self.null = null
        self.wanted = "a number or nothing" if null else "a number"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if value is None and self.null:
            return None
        if isinstance(value, bool | int | float):
            try:
                return float(value)
            except OverflowError:
                return reader.wrong(node, path, "a number that fits")
        if type(value) is str and len(value) < _LONGEST_NUMBER:
            text = value.strip(_SPACE)
            padded_underscore = "_" in text and text != value
            if _WORD_FLOAT.fullmatch(text) or (_FLOAT.fullmatch(text) and not padded_underscore):
                return float(text)
        hint = "write the bare number, in USD" if type(value) is str and value.startswith("$") else ""
        return reader.wrong(node, path, self.wanted, hint)

    def schema(self) -> dict[str, Json]:
        return {"type": ["number", "null"] if self.null else "number"}


class LaxBool(Kind):
    wanted = "true or false"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = node.value
        if type(value) is bool:
            return value
        if type(value) in (int, float) and value in (0, 1):
            return bool(value)
        if type(value) is str and value.lower() in _YES | _NO:
            return value.lower() in _YES
        return reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        return {"type": "boolean"}


class FreeMap(Kind):
    """A map with text keys and any values, kept as written."""

    wanted = "a map (`key: value` lines)"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is not dict:
            return reader.wrong(node, path, self.wanted)
        fine = True
        for name, child in node.value.items():
            if type(name) is not str:
                reader.error(node.keys[name], path, f"the key {name!r} of {path} is not a text", "put it in quotes")
                fine = False
            else:
                reader.place(join(path, name), child)
        try:
            return {name: _jsonable(plain(child)) for name, child in node.value.items()} if fine else BAD
        except UnicodeDecodeError:
            return reader.wrong(node, path, "text", "it holds bytes that are not UTF-8")

    def schema(self) -> dict[str, Json]:
        return {"type": "object"}


class TextMap(FreeMap):
    """A map from text to text."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if super().read(node, path, reader) is BAD:
            return BAD
        text = LaxText()
        found = {name: text.read(child, join(path, name), reader) for name, child in node.value.items()}
        return BAD if any(value is BAD for value in found.values()) else found

    def schema(self) -> dict[str, Json]:
        return {"type": "object", "additionalProperties": {"type": "string"}}


class TextOrMap(Kind):
    wanted = "a text or a map"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is dict:
            return FreeMap().read(node, path, reader)
        if type(node.value) in (str, bytes):
            return LaxText().read(node, path, reader)
        return reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Json]:
        return {"type": ["string", "object"]}


def _jsonable(value: Any) -> Json:
    """A free value as the fingerprint sees it: dates as ISO text, bytes as text, keys as text."""
    if isinstance(value, dict):
        return {_key(name): _jsonable(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_jsonable(child) for child in value]
    if type(value) is float and not math.isfinite(value):
        return None
    if type(value) is bytes:
        return value.decode()
    if hasattr(value, "isoformat"):
        return _iso(value)
    return value


def _key(name: Any) -> str:
    if type(name) is bool:
        return "true" if name else "false"
    if type(name) is bytes:
        return name.decode()
    return _iso(name) if hasattr(name, "isoformat") else str(name)


def _iso(moment: Any) -> str:
    text: str = moment.isoformat()
    return text[:-6] + "Z" if text.endswith("+00:00") else text
