"""The words of ACL: cuts a text into tokens with positions, within limits.

Whatever the reference's tokenizer skips or guesses in silence is reported. `acl.py` makes sense of the tokens.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from duragent.agent import Json, Level

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
MAX_ITEMS = 10_000
MAX_TOKEN_BYTES = 256 * 1024
MAX_FINDINGS = 100

KEYWORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)
      | (?P<newline>[\r\n]+)
      | (?P<comment>[#/][^\n]*)
      | (?P<mark>\+=|[{}\[\](),=:])
      | (?P<string>"(?:[^"\\\n]+|\\(?:.|\Z))*"?|'(?:[^'\\\n]+|\\(?:.|\Z))*'?)
      | (?P<number>(?=[0-9.\-])-?[0-9]*(?:\.[0-9]*)?(?:[eE][+\-]?[0-9]*)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<other>[^\s{}\[\](),=:"'\#/0-9.\-\w]+|.)""",
    re.VERBOSE | re.DOTALL,
)
_OPENING, _CLOSING = frozenset("{[("), frozenset("}])")
_BRACKETS = _OPENING | _CLOSING


class Finding(Struct, frozen=True):
    """Something wrong (`error`: nothing was read) or doubtful in a text. `code` is the reference's own, for errors."""

    level: Level
    line: int
    column: int
    text: str
    hint: str = ""
    code: str = ""


class Token(Struct, frozen=True):
    kind: str
    value: Json
    line: int
    column: int
    text: str


class Stop(Exception):
    """Reading cannot go on."""

    def __init__(self, token: Token, code: str, text: str, hint: str) -> None:
        super().__init__(text)
        self.finding = Finding("error", token.line, token.column, text, hint, code)


class Lexer:
    def __init__(self, text: str, findings: list[Finding]) -> None:
        self.text, self.findings = text, findings
        self.line, self.line_start = 1, 0
        self.depth = 0

    def tokens(self) -> list[Token]:
        found: list[Token] = []
        end_of_name = -1
        for match in _TOKEN.finditer(self.text):
            kind, raw, start = match.lastgroup or "other", match.group(), match.start()
            token = self.token(kind, raw, start, start == end_of_name)
            if token.kind == "newline" and found and found[-1].kind == "newline":
                pass
            elif token.kind != "space":
                found.append(token)
            end_of_name = match.end() if kind == "name" else -1
            breaks = raw.count("\n")
            if breaks:
                self.line += breaks
                self.line_start = start + raw.rindex("\n") + 1
        found.append(Token("end", None, self.line, len(self.text) - self.line_start + 1, ""))
        return found

    def token(self, kind: str, raw: str, start: int, after_name: bool) -> Token:
        column = start - self.line_start + 1
        if kind == "mark" and raw not in _BRACKETS:
            return Token(raw, None, self.line, column, raw)
        token = Token(kind, None, self.line, column, raw)
        if len(raw) > MAX_TOKEN_BYTES // 4 and len(raw.encode("utf-8", "replace")) > MAX_TOKEN_BYTES:
            raise Stop(
                token, "acl.limit.token_bytes", f"one word is longer than {MAX_TOKEN_BYTES:,} bytes", "shorten it"
            )
        place = (self.line, column)
        match kind:
            case "mark":
                self.count(raw, token)
                return Token(raw, None, *place, raw)
            case "string":
                return Token("string", self.string(raw, token), *place, raw)
            case "number":
                return Token("number", self.number(raw, token, after_name), *place, raw)
            case "name" if raw in KEYWORDS:
                return Token("keyword", KEYWORDS[raw], *place, raw)
            case "name":
                return Token("name", raw, *place, raw)
            case "comment":
                self.comment(raw, token)
                return Token("newline", None, *place, raw)
            case "other":
                self.warn(
                    token, f"{raw[:20]!r} means nothing here and is skipped", "remove it, or quote the text around it"
                )
                return Token("space", None, *place, raw)
        return token

    def warn(self, token: Token, text: str, hint: str) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding("warning", token.line, token.column, text, hint))

    def count(self, mark: str, token: Token) -> None:
        if mark in _OPENING:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise too_deep(token)
        elif mark in _CLOSING:
            self.depth = max(0, self.depth - 1)

    def comment(self, raw: str, token: Token) -> None:
        if raw.startswith("/*"):
            self.warn(token, "there are no block comments; only this line is one", "begin each line with `#`")
        elif raw[0] == "/" and not raw.startswith("//"):
            self.warn(
                token,
                "a single `/` hides the rest of the line",
                "put a text with `/` in quotes; begin a comment with `#`",
            )

    def number(self, raw: str, token: Token, after_name: bool) -> int | float | None:
        if after_name:
            self.warn(token, f"a name ends before `{raw[0]}`", "use `_` in names; put values in quotes")
        try:
            value = float(raw)
        except ValueError:
            if not after_name:
                self.warn(token, f"{raw[:20]!r} is read as the number 0", "write a number, or put a text in quotes")
            return 0
        if value in (float("inf"), float("-inf")):
            self.warn(token, "this number is too large and is read as null", "write a smaller one")
            return None
        return int(value) if value.is_integer() and abs(value) <= 2**53 else value

    def string(self, raw: str, token: Token) -> str:
        quote = raw[0]
        body = raw[1:]
        backslashes = len(body) - 1 - len(body[:-1].rstrip("\\"))
        closed = body.endswith(quote) and backslashes % 2 == 0
        if closed:
            body = body[:-1]
        else:
            self.warn(token, f"the text has no closing {quote}; it ends with the line", f"add a {quote}")
        if "\\" not in body:
            return body
        if quote == "'":
            return re.sub(
                r"\\(.?)", lambda found: "'" if found[1] == "'" else found[0] if found[1] else "", body, flags=re.DOTALL
            )
        return re.sub(
            r"\\(.?)", lambda found: _ESCAPES.get(found[1], found[0] if found[1] else ""), body, flags=re.DOTALL
        )


def too_deep(token: Token) -> Stop:
    return Stop(
        token,
        "acl.limit.nesting_depth",
        f"is nested deeper than {MAX_DEPTH} levels",
        "close a bracket, or use fewer levels",
    )
