"""Safe YAML with the position of every key and value, in both scalar dialects.

Built on libyaml's event stream, not on `compose()`: the stream does not recurse, so a file nested
100,000 deep is refused instead of overflowing the C stack. Bounded in size, depth and alias expansion.
Dialect "1.1" is bit for bit what PyYAML's safe_load gives (agentspec needs that for its fingerprints);
"1.2" is the core schema (`yes` is text, `010` is ten), with keys always text.
"""

import re
from collections.abc import Callable
from typing import Any, Literal

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

try:
    from yaml._yaml import CParser
except ImportError:  # a PyYAML built without libyaml: the same events, slower
    CParser = None  # type: ignore[assignment,misc]

Dialect = Literal["1.1", "1.2"]

MAX_BYTES = 1 << 20
MAX_DEPTH = 200
MAX_NODES = 20_000
_PURE_LIMIT = 64 * 1024

_TAG = "tag:yaml.org,2002:"
_STR, _MAP, _SEQ, _NULL, _MERGE = (_TAG + name for name in ("str", "map", "seq", "null", "merge"))
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_TAB_SEPARATOR = re.compile(r"^\s*(?:-|[\w.-]+:)[ ]*\t", re.MULTILINE)


class Node:
    """A YAML value and where it stands. `value` is a scalar, a list of Nodes or a dict of Nodes."""

    __slots__ = ("column", "keys", "line", "text", "value")

    def __init__(self, value: Any, line: int, column: int, text: str | None = None) -> None:
        self.value = value
        self.line = line
        self.column = column
        self.text = text
        self.keys: dict[Any, tuple[int, int]] = {}


class Fault(Exception):
    """The text is not YAML we read. Positions count from 1."""

    def __init__(self, line: int, column: int, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.line, self.column, self.text, self.hint = line, column, text, hint


class Note:
    """Something odd in YAML that can still be read."""

    __slots__ = ("column", "duplicate", "line", "text")

    def __init__(self, line: int, column: int, text: str, duplicate: bool) -> None:
        self.line, self.column, self.text, self.duplicate = line, column, text, duplicate


def parse_yaml(text: str, dialect: Dialect) -> tuple[Node | None, list[Note]]:
    """The one document of `text` (None if it is empty) and what is odd in it. Raises `Fault`."""
    if len(text) > MAX_BYTES:
        raise Fault(1, 1, f"is too large ({len(text):,} characters; at most {MAX_BYTES:,})", "split it into files")
    try:
        composer = _Composer(_events(text, dialect), dialect)
        node = composer.document()
    except yaml.MarkedYAMLError as error:
        raise _fault(error, text) from None
    except yaml.reader.ReaderError as error:
        line, column = position(text, error.position if isinstance(error.position, int) else 0)
        raise Fault(line, column, f"holds a character that YAML does not allow ({error.reason})", "remove it") from None
    except RecursionError:
        raise Fault(1, 1, f"is nested deeper than {MAX_DEPTH} levels", "make it flatter") from None
    if "\t" in text and dialect == "1.2" and (tab := _TAB_SEPARATOR.search(text)):
        line, column = position(text, tab.end() - 1)
        composer.notes.append(Note(line, column, "a tab stands where a space belongs", False))
    return node, composer.notes


def plain(node: Node) -> Any:
    """The value without its positions."""
    value = node.value
    if type(value) is dict:
        return {key: plain(child) for key, child in value.items()}
    if type(value) is list:
        return [plain(child) for child in value]
    return value


def position(text: str, offset: int) -> tuple[int, int]:
    """Line and column, from 1, of a character offset."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def _events(text: str, dialect: Dialect) -> Callable[[], Any]:
    # libyaml takes tabs as separators and refuses surrogate escapes; PyYAML's own parser, which the
    # agentspec fingerprints rest on, does neither. It is slow, so only short texts get it.
    exact = dialect == "1.1" and len(text) <= _PURE_LIMIT and ("\t" in text or _SURROGATE_ESCAPE.search(text))
    if CParser is None or exact:
        return yaml.SafeLoader(text).get_event
    return CParser(text).get_event


def _fault(error: yaml.MarkedYAMLError, text: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = " ".join(part for part in (error.context, error.problem) if part)
    lines = text.split("\n")
    here = lines[line - 1] if line <= len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return Fault(line, here.index("\t") + 1, "indented with a tab", "YAML wants spaces")
    if "found character '\\t'" in said or ("that cannot start any token" in said and "\t" in here):
        return Fault(line, column, "a tab stands where a space belongs", "YAML wants spaces")
    if "mapping values are not allowed" in said:
        return Fault(line, column, f"not valid YAML: {said}", "quote a text that contains `: `")
    return Fault(line, column, f"not valid YAML: {said}", _LOOK)


_LOOK = "look for a missing quote, bracket, colon or indent, here or just above"


class _Core(Resolver):
    """YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - how PyYAML keeps its tables


_Core.add_implicit_resolver(_NULL, re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Core.add_implicit_resolver(_TAG + "bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Core.add_implicit_resolver(
    _TAG + "int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$"), list("-+0123456789")
)
_Core.add_implicit_resolver(
    _TAG + "float",
    re.compile(
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"
    ),
    list("-+0123456789."),
)
_Core.add_implicit_resolver(_MERGE, re.compile(r"^<<$"), ["<"])
_TABLES: dict[Dialect, dict[Any, Any]] = {
    "1.1": Resolver.yaml_implicit_resolvers,
    "1.2": _Core.yaml_implicit_resolvers,
}
_construct = SafeConstructor()


class _Composer:
    """Builds Nodes from events. One per text."""

    def __init__(self, get_event: Callable[[], Any], dialect: Dialect) -> None:
        self.get_event = get_event
        self.dialect = dialect
        self.table = _TABLES[dialect]
        self.notes: list[Note] = []
        self.anchors: dict[str, tuple[Node | None, int]] = {}
        self.count = 0

    def document(self) -> Node | None:
        self.get_event()  # stream start
        if type(self.get_event()) is StreamEndEvent:
            return None
        node = self.value(self.get_event(), 0)
        self.get_event()  # document end
        after: Any = self.get_event()
        if type(after) is DocumentStartEvent:
            mark: Any = after.start_mark
            hint = "keep one document per file"
            raise Fault(mark.line + 1, mark.column + 1, "a second document begins here", hint)
        return None if node.text == "" and node.value is None else node

    def value(self, event: Any, depth: int) -> Node:
        """A node where `<<` means nothing special: text in 1.2; PyYAML refuses it."""
        node = self.node(event, depth)
        if node.value is not _Merge:
            return node
        if self.dialect == "1.1":
            raise Fault(node.line, node.column, "`<<` is a key, not a value", 'write "<<" in quotes')
        return Node(node.text, node.line, node.column, node.text)

    def node(self, event: Any, depth: int) -> Node:
        self.count += 1
        mark = event.start_mark
        if self.count > MAX_NODES:
            raise Fault(mark.line + 1, mark.column + 1, f"holds more than {MAX_NODES:,} values", "split it into files")
        kind = type(event)
        if kind is ScalarEvent:
            node = self.scalar(event, mark)
        elif kind is AliasEvent:
            return self.alias(event, mark)
        else:
            if depth >= MAX_DEPTH:
                text = f"is nested deeper than {MAX_DEPTH} levels"
                raise Fault(mark.line + 1, mark.column + 1, text, "make it flatter")
            if event.anchor is not None:
                self.new_anchor(event.anchor, mark)
                self.anchors[event.anchor] = (None, 0)
            before = self.count
            node = self.sequence(event, mark, depth) if kind is SequenceStartEvent else self.mapping(event, mark, depth)
            if event.anchor is not None:
                self.anchors[event.anchor] = (node, self.count - before + 1)
            return node
        if event.anchor is not None:
            self.new_anchor(event.anchor, mark)
            self.anchors[event.anchor] = (node, 1)
        return node

    def new_anchor(self, name: str, mark: Any) -> None:
        if name in self.anchors and self.dialect == "1.1":
            raise Fault(mark.line + 1, mark.column + 1, f"the anchor &{name} is defined twice", "rename one of them")

    def alias(self, event: Any, mark: Any) -> Node:
        line, column = mark.line + 1, mark.column + 1
        if event.anchor not in self.anchors:
            raise Fault(line, column, f"*{event.anchor} refers to nothing", f"define &{event.anchor} before it")
        node, size = self.anchors[event.anchor]
        if node is None:
            raise Fault(line, column, f"*{event.anchor} contains itself", "write the value out")
        self.count += size
        if self.count > MAX_NODES:
            raise Fault(
                line, column, f"its aliases expand to more than {MAX_NODES:,} values", "write the values out, or fewer"
            )
        return node

    def scalar(self, event: Any, mark: Any) -> Node:
        value = event.value
        if event.implicit[0] and (event.tag is None or self.dialect == "1.1"):  # PyYAML also resolves `! 3`
            table = self.table.get(value[0] if value else "", ())
            for tag, pattern in table:
                if pattern.match(value):
                    return Node(self.construct(tag, event, mark), mark.line + 1, mark.column + 1, value)
            return Node(value, mark.line + 1, mark.column + 1, value)
        if event.tag is None or event.tag == "!":
            return Node(value, mark.line + 1, mark.column + 1, value)
        return Node(self.construct(event.tag, event, mark), mark.line + 1, mark.column + 1, value)

    def construct(self, tag: str, event: Any, mark: Any) -> Any:
        value = event.value
        if tag == _STR:
            return value
        if tag == _NULL:
            return None
        node = ScalarNode(tag, value, event.start_mark, event.end_mark)
        known = tag[len(_TAG) :] if tag.startswith(_TAG) else None
        if self.dialect == "1.2" and known in ("timestamp", "binary"):
            known = None  # types of YAML 1.1
        try:
            match known:
                case "bool":
                    return _construct.bool_values[value.lower()]
                case "int":
                    return (
                        int(value, 0 if value[:2] in ("0o", "0x") else 10)
                        if self.dialect == "1.2"
                        else (_construct.construct_yaml_int(node))
                    )
                case "float":
                    return _construct.construct_yaml_float(node)
                case "timestamp":
                    return _construct.construct_yaml_timestamp(node)
                case "binary":
                    return _construct.construct_yaml_binary(node)
                case "merge":
                    return _Merge
        except (ValueError, OverflowError, LookupError, AttributeError, ConstructorError) as error:
            raise Fault(mark.line + 1, mark.column + 1, f"{value[:40]!r} cannot be read: {error}") from None
        raise Fault(mark.line + 1, mark.column + 1, f"the tag {_short(tag)} is not known", "remove it")

    def sequence(self, event: Any, mark: Any, depth: int) -> Node:
        items: list[Node] = []
        get_event = self.get_event
        while type(child := get_event()) is not SequenceEndEvent:
            items.append(self.value(child, depth + 1))
        if event.tag in (None, "!", _SEQ):
            return Node(items, mark.line + 1, mark.column + 1)
        return self.tagged_sequence(event.tag, items, mark)

    def tagged_sequence(self, tag: str, items: list[Node], mark: Any) -> Node:
        """`!!omap` and `!!pairs`: lists of one-entry maps that PyYAML turns into pairs."""
        if tag not in (_TAG + "omap", _TAG + "pairs"):
            raise Fault(mark.line + 1, mark.column + 1, f"the tag {_short(tag)} is not known", "remove it")
        pairs = []
        for item in items:
            if type(item.value) is not dict or len(item.value) != 1:
                raise Fault(item.line, item.column, f"{_short(tag)} wants a list of single `key: value` entries")
            ((key, value),) = item.value.items()
            line, column = item.keys[key]
            pairs.append(Node([Node(key, line, column), value], item.line, item.column))
        return Node(pairs, mark.line + 1, mark.column + 1)

    def mapping(self, event: Any, mark: Any, depth: int) -> Node:
        node = Node({}, mark.line + 1, mark.column + 1)
        values: dict[Any, Node] = node.value
        merges: list[tuple[Node, Node]] = []
        get_event = self.get_event
        as_text = self.dialect == "1.2"
        while type(event_key := get_event()) is not MappingEndEvent:
            key = self.node(event_key, depth + 1)
            value = self.value(get_event(), depth + 1)
            name = key.value
            if name is _Merge:
                merges.append((key, value))
                continue
            if type(name) in (dict, list):
                raise Fault(key.line, key.column, "a key must be a single word or text, not a list or map")
            if as_text and type(name) is not str:
                name = key.text
            if name in values:
                note = f"the key {key.text!r} stands here twice"
                self.notes.append(Note(key.line, key.column, note, True))
            values[name] = value
            node.keys[name] = (key.line, key.column)
        if merges:
            self.merge(node, merges)
        if event.tag in (None, "!", _MAP):
            return node
        if event.tag == _TAG + "set":
            return Node([Node(key, *node.keys[key]) for key in values], node.line, node.column)
        raise Fault(node.line, node.column, f"the tag {_short(event.tag)} is not known", "remove it")

    def merge(self, node: Node, merges: list[tuple[Node, Node]]) -> None:
        """`<<: *base`: what the base says and this map does not. An earlier base wins over a later one."""
        merged: dict[Any, Node] = {}
        for key, source in merges:
            sources = source.value if type(source.value) is list else [source]
            for base in reversed(sources):
                if type(base.value) is not dict:
                    raise Fault(key.line, key.column, "`<<` wants a map or a list of maps")
                for name, value in base.value.items():
                    merged[name] = value
                    node.keys.setdefault(name, base.keys[name])
        node.value = merged | node.value


class _MergeKey:
    """Stands for the key `<<`."""


_Merge = _MergeKey()


def _short(tag: str) -> str:
    return "!!" + tag[len(_TAG) :] if tag.startswith(_TAG) else tag
