"""ACL, the configuration language of `agent.acl`: text in, items with positions out, and back.

Reads what A3S's own parser reads, also where that one is forgiving, and says so: whatever it would
drop or regroup in silence becomes a warning here. Knows nothing of what the names mean.
Values are `yaml.Node`s, so that field tables can read them; a call `env("X")` is the one-entry map
`{"env()": ["X"]}`, a key that no author can write.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from duragent.agent import Json
from duragent.formats.agentdir.tokens import (
    KEYWORDS,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_FINDINGS,
    MAX_ITEMS,
    Finding,
    Lexer,
    Stop,
    Token,
    too_deep,
)
from duragent.formats.yaml import Node, plain

_IDENT = re.compile(r"[^\W\d]\w*")


class Item:
    """An attribute (`name = value`) or a block (`name "label" { … }`)."""

    __slots__ = ("attributes", "blocks", "column", "labels", "line", "name", "value")

    def __init__(self, name: str, line: int, column: int, value: Node | None = None) -> None:
        self.name, self.line, self.column, self.value = name, line, column, value
        self.labels: list[str] = []
        self.attributes = Node({}, line, column)
        self.blocks: list[Item] = []


def parse_acl(text: str) -> tuple[list[Item], list[Finding]]:
    """The items of an ACL text and what is to be said about it. With an error there are no items."""
    findings: list[Finding] = []
    try:
        if len(text) > MAX_BYTES or len(text.encode("utf-8", "replace")) > MAX_BYTES:
            raise Stop(_START, "acl.limit.document_bytes", f"is larger than {MAX_BYTES:,} bytes", "shorten it")
        tokens = Lexer(text, findings).tokens()
        items = _Parser(tokens, findings).document()
    except Stop as stop:
        return [], [*findings, stop.finding]
    return items, findings


_START = Token("end", None, 1, 1, "")


_SPOKEN = {
    "end": "the end of the file",
    "string": "a text",
    "number": "a number",
    "keyword": "a value",
    "name": "a name",
}


def _spoken(token: Token) -> str:
    """What stands there, without quoting it: it may be a secret."""
    return _SPOKEN.get(token.kind, f"`{token.kind}`")


class _Parser:
    """Recursive, but never deeper than twice MAX_DEPTH: brackets and blocks without braces both count."""

    def __init__(self, tokens: list[Token], findings: list[Finding]) -> None:
        self.tokens, self.findings = tokens, findings
        self.position = 0
        self.depth = self.blocks = 0
        self.junk_line = 0

    def here(self) -> Token:
        return self.tokens[self.position]

    def ahead(self, distance: int) -> str:
        index = self.position + distance
        return self.tokens[index].kind if index < len(self.tokens) else "end"

    def take(self) -> Token:
        token = self.tokens[self.position]
        if self.position < len(self.tokens) - 1:
            self.position += 1
        return token

    def skip_lines(self) -> None:
        while self.here().kind == "newline":
            self.take()

    def warn(self, token: Token | Item | Node, text: str, hint: str = "") -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding("warning", token.line, token.column, text, hint))

    def junk(self, token: Token, text: str, hint: str) -> None:
        """One word per line about what is skipped; what follows on that line is only its echo."""
        if token.line != self.junk_line:
            self.warn(token, text, hint)
        self.junk_line = token.line

    def deeper(self, token: Token) -> None:
        self.depth += 1
        if self.depth > 2 * MAX_DEPTH:
            raise too_deep(token)

    def room(self, taken: int, token: Token) -> None:
        if taken >= MAX_ITEMS:
            text = f"more than {MAX_ITEMS:,} entries stand together here"
            raise Stop(token, "acl.limit.collection_items", text, "use fewer")

    def document(self) -> list[Item]:
        items: list[Item] = []
        self.skip_lines()
        while (token := self.here()).kind != "end":
            if token.kind != "name":
                text = f"{_spoken(token)} cannot begin a line here; a name was expected"
                raise Stop(token, "acl.parse.unexpected_token", text, 'write `name = value` or `name "label" { … }`')
            self.room(len(items), token)
            if self.ahead(1) in ("=", ":"):
                items.append(self.attribute())
            else:
                items.append(self.block())
            self.skip_lines()
        return items

    def attribute(self) -> Item:
        name = self.take()
        if self.here().kind not in ("=", ":"):
            text = f"after a name, `=` was expected, not {_spoken(self.here())}"
            raise Stop(self.here(), "acl.parse.expected_token", text, "write `name = value`")
        self.take()
        self.skip_lines()
        return Item(name.value, name.line, name.column, self.value())

    def block(self, *, counted: bool = True) -> Item:
        name = self.take()
        if counted and self.blocks >= MAX_DEPTH:
            raise too_deep(name)
        self.blocks += counted
        item = Item(name.value, name.line, name.column)
        while self.here().kind == "string":
            self.room(len(item.labels), self.here())
            item.labels.append(self.take().value)
        self.skip_lines()
        self.body(item, opened=False)
        self.blocks -= counted
        return item

    def body(self, home: Item, *, opened: bool) -> None:
        self.deeper(self.here())
        self.skip_lines()
        if not opened and self.here().kind == "{":
            self.take()
            opened = True
        elif not opened:
            text = f"the block `{home.name}` has no `{{`: all that follows up to the next `}}` becomes part of it"
            self.warn(home, text, "add `{` and `}`, or `=` if a value was meant")
        count = 0
        while True:
            self.skip_lines()
            token = self.here()
            if token.kind == "}":
                self.take()
                break
            if token.kind == "end":
                if opened:
                    self.warn(home, f"the `{{` of `{home.name}` is never closed", "add `}`")
                break
            count += self.entry(home, count)
        self.depth -= 1

    def entry(self, home: Item, count: int) -> int:
        """One entry of a block's body. Gives 0 where something was only skipped."""
        token, following = self.here(), self.ahead(1)
        if token.kind != "name":
            self.skipped(token, following)
            return 0
        if following in ("=", ":") or (following == "name" and self.ahead(2) in ("=", ":")):
            self.room(count, token)
            self.keep(home, self.attribute())
        elif following in ("string", "name", "{"):
            self.room(count, token)
            home.blocks.append(self.block(counted=following != "{"))
        else:
            first = self.position == 0 or self.tokens[self.position - 1].kind in ("newline", "{", ",")
            self.take()
            if following == "+=":
                self.junk(token, f"`{token.value} +=` sets nothing", "write `=`")
            else:
                self.junk(
                    token,
                    f"{f'`{token.value}`' if first else 'a word'} stands alone and is skipped",  # it may end a secret
                    "write `name = value`; `{` goes on the same line",
                )
            return 0
        return 1

    def keep(self, home: Item, entry: Item) -> None:
        if entry.name in home.attributes.value:
            self.warn(entry, f"`{entry.name}` stands here twice", "remove one of them")
        home.attributes.value[entry.name] = entry.value
        home.attributes.keys[entry.name] = (entry.line, entry.column)

    def skipped(self, token: Token, following: str) -> None:
        self.take()
        before = self.tokens[self.position - 2] if self.position > 1 else token
        if token.kind == "number" and before.kind == "name" and before.line == token.line:
            self.junk_line = token.line  # `my-key`: the tokenizer has said it
        elif token.kind == "string" and following in ("=", ":"):
            self.junk(token, "a key in quotes is dropped, with its value", "write the key without quotes")
        elif token.kind == "+=":
            self.junk(token, "`+=` sets nothing", "write `=`")
        elif token.kind != ",":
            self.junk(token, f"{_spoken(token)} has no place here and is skipped", "remove it")

    def value(self) -> Node:
        token = self.take()
        match token.kind:
            case "string" | "number" | "keyword":
                return Node(
                    token.value, token.line, token.column, token.value if token.kind == "string" else token.text
                )
            case "[":
                return self.list(token)
            case "{":
                home = Item("value", token.line, token.column)
                self.body(home, opened=True)
                for dropped in home.blocks:
                    self.warn(
                        dropped,
                        f"the block `{dropped.name}` inside a value is dropped",
                        f"write `{dropped.name} = {{ … }}`",
                    )
                return home.attributes
            case "name":
                return self.word(token)
            case "end":
                hint = "close the list with `]`, or give a value"
                raise Stop(token, "acl.parse.unexpected_eof", "the file ends where a value was expected", hint)
        text = f"a value was expected, not {_spoken(token)}"
        raise Stop(
            token, "acl.parse.unexpected_token", text, "a text in quotes, a number, true, false, a list or a map"
        )

    def word(self, token: Token) -> Node:
        self.skip_lines()
        if self.here().kind == "(":
            return self.call(token)
        if self.here().kind == "{":
            inner = Item(token.value, token.line, token.column)
            self.body(inner, opened=False)
            self.warn(token, "a word with `{ … }` is not a value and is set aside", "write only the `{ … }`")
            place = (token.line, token.column)
            parts = {
                "name": Node(inner.name, *place, inner.name),
                "labels": Node([], *place),
                "attributes": inner.attributes,
            }
            return Node({"_block": Node(parts, *place)}, *place)
        return Node(token.value, token.line, token.column, token.value)

    def list(self, start: Token) -> Node:
        self.deeper(start)
        items: list[Node] = []
        while (token := self.here()).kind != "]":
            if token.kind in (",", "newline"):
                self.take()
                continue
            self.room(len(items), token)
            items.append(self.value())
        self.take()
        self.depth -= 1
        return Node(items, start.line, start.column)

    def call(self, name: Token) -> Node:
        self.deeper(name)
        self.take()
        self.skip_lines()
        arguments: list[Node] = []
        while self.here().kind != ")" or arguments:
            self.room(len(arguments), self.here())
            arguments.append(self.value())
            self.skip_lines()
            if self.here().kind == ")":
                break
            if self.here().kind != ",":
                text = f"`,` or `)` was expected, not {_spoken(self.here())}"
                raise Stop(self.here(), "acl.parse.expected_token", text, f"close `{name.value}(` with `)`")
            self.take()
            self.skip_lines()
        self.take()
        self.depth -= 1
        if name.value != "env":
            self.warn(name, "this function is not known; the value counts as missing", 'only env("NAME") is')
        elif len(arguments) != 1 or type(arguments[0].value) is not str:
            self.warn(name, "env() takes one name in quotes; anything else is ignored", 'write env("NAME")')
        return Node({f"{name.value}()": Node(arguments, name.line, name.column)}, name.line, name.column)


def env_name(value: Json) -> str | None:
    """`NAME`, when a plain value is the call env("NAME")."""
    arguments = value.get("env()") if type(value) is dict else None
    return arguments[0] if arguments and type(arguments[0]) is str else None


def to_json(item: Item) -> dict[str, Json]:
    """An item as plain data, for keeping; `write_acl` takes it back."""
    if item.value is not None:
        return {"name": item.name, "value": plain(item.value)}
    found: dict[str, Json] = {"name": item.name}
    if item.labels:
        found["labels"] = list(item.labels)
    if item.attributes.value:
        found["attributes"] = plain(item.attributes)
    if item.blocks:
        found["blocks"] = [to_json(block) for block in item.blocks]
    return found


def can_be_key(name: str) -> bool:
    return _IDENT.fullmatch(name) is not None and name not in KEYWORDS


def write_acl(items: Iterable[Mapping[str, Json]], indent: str = "") -> str:
    """ACL text that reads back as these items (`to_json`'s shape)."""
    lines = []
    for item in items:
        if "value" in item:
            lines.append(f"{indent}{item['name']} = {_write(item['value'], indent)}\n")
            continue
        if lines and not indent:
            lines.append("\n")
        head = " ".join([item["name"], *(_quote(label) for label in item.get("labels", ()))])
        inner = [{"name": name, "value": value} for name, value in item.get("attributes", {}).items()]
        body = write_acl([*inner, *item.get("blocks", ())], indent + "  ")
        lines.append(f"{indent}{head} {{\n{body}{indent}}}\n")
    return "".join(lines)


def _write(value: Json, indent: str) -> str:
    if value is None or type(value) is bool:
        return {None: "null", True: "true", False: "false"}[value]
    if type(value) is str:
        return _quote(value)
    if isinstance(value, Mapping):
        return _write_map(value, indent)
    if isinstance(value, Sequence):
        return "[" + ", ".join(_write(each, indent) for each in value) + "]"
    return repr(value)


def _write_map(value: Mapping[str, Json], indent: str) -> str:
    if len(value) == 1 and (name := next(iter(value))).endswith("()"):
        return f"{name[:-1]}{', '.join(_write(each, indent) for each in value[name])})"
    if not value:
        return "{}"
    inner = "".join(f"{indent}  {key} = {_write(each, indent + '  ')}\n" for key, each in value.items())
    return f"{{\n{inner}{indent}}}"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t") + '"'
