"""The words of a shell line, unquoted as bash would, and its redirections.

Reads bytes, not the grammar's leaves: the grammar only says where expansions stand, and one that is found where the
grammar sees none is a doubt. What only bash will know becomes a mark. Here-documents are looked up once more, since
all that follows depends on where they end. Knows nothing of statements: `shell.py` walks those.
"""

import re
from abc import abstractmethod

from tree_sitter import Node

from duragent.core.lines import UNKNOWN, Redirect

PLAIN = re.compile(rb"[A-Za-z0-9_@%+:,./=-]+")
_PLAIN_REDIRECT = re.compile(rb"([0-9]*)(>>|>|<) ?([A-Za-z0-9_@%+:,./=-]+)")
_QUOTED = re.compile(rb"'[^']*'|\"[^\"$`\\]*\"")
_BLANK = re.compile(rb"(?:[ \t\n]|\\\n)*")
_INLINE = re.compile(rb"(?:[ \t]|\\\n)*")
_NUMBERS = re.compile(rb"[0-9\s+\-*/%()<>=!&|^~?:,]*")
EXPANDING = frozenset(
    ("simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
)
REDIRECTS = frozenset(("file_redirect", "heredoc_redirect", "herestring_redirect"))
GROUPS = frozenset(
    (
        *("program", "list", "pipeline", "subshell", "compound_statement", "do_group", "if_statement", "elif_clause"),
        *("else_clause", "while_statement", "negated_command", "redirected_statement", "case_statement", "case_item"),
        *("for_statement", "command_substitution", "process_substitution"),
    )
)
_OPERATORS = frozenset(("<", ">", ">>", ">|", "&>", "&>>", ">&", "<&", ">&-", "<&-", "<>", "<<<"))
_SIMPLE = re.compile(rb"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
_BRACED = re.compile(rb"\$\{#?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*?#$!-])\}")
_DEFAULTED = re.compile(rb"\$\{(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*])(?::?[-+]|##?|%%?)")
_QUIET = re.compile(rb"[A-Za-z0-9_@%+:,./=\-*? ]*")
_DELIMITER = re.compile(rb"""([A-Za-z0-9_.-]+)|'([A-Za-z0-9_.-]+)'|"([A-Za-z0-9_.-]+)"|\\([A-Za-z0-9_.-]+)""")
_NUMBERED = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|([0-7]{1,3}))")
_ESCAPES = {"n": "\n", "t": "\t", "\\": "\\", "'": "'", '"': '"', "?": "?"}


class Found:
    """What was found in a line so far."""

    def __init__(self) -> None:
        self.redirects: list[Redirect] = []
        self.doubts: list[str] = []
        self.depth = 0
        self.fed = False  # what is read now gets something as its standard input
        self.foreign = False  # a shell that may not be bash reads it

    def doubt(self, why: str) -> None:
        if why not in self.doubts:
            self.doubts.append(why)

    def bash_only(self) -> None:
        """Doubt what another shell would read in another way."""
        if self.foreign:
            self.doubt("it is written for bash, and which shell reads it is not known")


class Words:
    """One text and the grammar's view of it, word by word."""

    def __init__(self, found: Found, data: bytes, sure: bool) -> None:
        self.found, self.data, self.sure = found, data, sure  # the grammar is sure where it met no error
        self.doubt = found.doubt

    @abstractmethod
    def part(self, node: Node, around: str) -> None:
        """Read one statement, or what stands between two."""

    @abstractmethod
    def group(self, node: Node, start: int, end: int) -> None:
        """Read the statements of a group."""

    @abstractmethod
    def unread(self, node: Node) -> None:
        """Look for commands in what is not understood."""

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def blank(self, start: int, end: int, *, lines: bool = True) -> None:
        """Nothing may stand between two nodes. Inside a command a new line would end it, so there is none either."""
        between = self.data[start:end]
        if between and between != b" " and not (_BLANK if lines else _INLINE).fullmatch(between):
            self.doubt("parts of it are not understood")

    def word(self, node: Node) -> str:
        """A word as bash would unquote it, with marks for what only bash will know."""
        start, end = node.start_byte, node.end_byte
        raw = self.data[start:end]
        if PLAIN.fullmatch(raw):
            return raw.decode()
        if raw[:1] == b"#":
            self.doubt("where a comment begins is not certain")
        found: dict[int, Node] = {}
        _expansions(node, found)
        if not found and _QUOTED.fullmatch(raw):
            text = raw[1:-1].decode("utf-8", "replace")
        else:
            out = bytearray()
            self.unquote(start, end, found, out)
            text = out.decode("utf-8", "replace")
        known = text.replace("\x00", "").replace("\x01", "")
        if not known.isprintable() and any(not letter.isprintable() and letter not in "\n\t" for letter in known):
            self.doubt("it holds a letter that cannot be seen")
        return text

    def unquote(self, at: int, end: int, found: dict[int, Node], out: bytearray) -> None:
        data, quoted, whole = self.data, False, at
        while at < end:
            letter = data[at]
            if at in found:
                child = found[at]
                out += self.expansion(child, quoted)
                at = child.end_byte
                continue
            if letter == 0x5C:  # a backslash
                at = self.escaped(at, end, quoted, out)
            elif letter == 0x22:
                quoted = not quoted
                at += 1
            elif letter == 0x24:
                at = self.dollar(at, end, quoted, out)
            elif letter == 0x60:
                self.doubt("a substitution is not read with certainty")
                at += 1
            elif quoted:
                out.append(letter)
                at += 1
            elif letter == 0x27:
                close = data.find(b"'", at + 1, end)
                if close < 0:
                    self.doubt("a quote does not end")
                    return
                out += data[at + 1 : close]
                at = close + 1
            else:
                self.bare(letter, data[whole:end], data[at:end], out)
                at += 1
        if quoted:
            self.doubt("a quote does not end")

    def bare(self, letter: int, whole: bytes, rest: bytes, out: bytearray) -> None:
        """A letter outside quotes."""
        if letter in b" \t\n;&|<>()":
            self.doubt("where one word ends and the next begins is not certain")
        if letter in b"*?" or (letter == 0x5B and b"]" in rest):
            out += b"\x00" if out and out[0] > 1 else b"\x01"
            return
        if letter == 0x7B and rest != b"{}" and (b"," in rest or b".." in rest):
            self.found.bash_only()
            out += b"\x01"
        if letter == 0x7E and out and out[-1] in b"=:":
            out += b"\x00"
        out.append(letter)

    def escaped(self, at: int, end: int, quoted: bool, out: bytearray) -> int:
        following = self.data[at + 1 : at + 2] if at + 1 < end else b""
        if not following:
            self.doubt("it ends in a backslash")
        elif following != b"\n":
            out += following if not quoted or following in b'$`"\\' else b"\\" + following
        return at + 2

    def dollar(self, at: int, end: int, quoted: bool, out: bytearray) -> int:
        """A dollar sign that the grammar takes for no expansion."""
        following = self.data[at + 1 : at + 2] if at + 1 < end else b""
        if following == b"'" and not quoted:
            self.found.bash_only()
            close = at + 2
            while close < end and self.data[close] != 0x27:
                close += 2 if self.data[close] == 0x5C else 1
            out += self.ansi(self.data[at + 2 : close])
            return close + 1
        if following and (not quoted or following not in b' .,;:/)]}%^+=~|&<>"\\'):
            self.doubt("an expansion is not read with certainty")
        out.append(0x24)
        return at + 1

    def ansi(self, raw: bytes) -> bytes:
        r"""The text of `$'…'`: the usual escapes, and letters by their number."""
        text, out, at = raw.decode("utf-8", "replace"), [], 0
        while at < len(text):
            if text[at] != "\\":
                out.append(text[at])
                at += 1
            elif number := _NUMBERED.match(text, at):
                digits = number[1] or number[2] or number[3]
                code = int(digits, 8 if number[3] else 16)
                out.append(chr(code) if 0x20 <= code < 0x7F or code in (9, 10) else "\x7f")
                at = number.end()
            else:
                out.append(_ESCAPES.get(text[at + 1 : at + 2], "\x7f"))  # what is not known here cannot be seen either
                at += 2
        return "".join(out).encode()

    def expansion(self, node: Node, quoted: bool) -> bytes:
        """The mark of an expansion, whose commands are read."""
        kind, raw = node.type, self.data[node.start_byte : node.end_byte]
        mark = b"\x00" if quoted else b"\x01"
        if kind == "simple_expansion":
            if not _SIMPLE.fullmatch(raw):
                self.doubt("an expansion is not read with certainty")
            return b"\x01" if raw in (b"$@", b"$*") else mark
        if kind == "expansion":
            self.braces(node, raw)
            return b"\x01" if raw[2:3] in b"@*" else mark
        if kind == "arithmetic_expansion":
            self.arithmetic(node)
            return b"\x00"
        if raw.startswith((b"$((", b"<((")) or (raw[:1] == b"`" and b"\\" in raw):
            self.doubt("a substitution is not read with certainty")
        if kind == "process_substitution":
            self.found.bash_only()
        self.group(node, node.start_byte, node.end_byte)
        return b"/dev/fd/\x00" if kind == "process_substitution" else mark

    def braces(self, node: Node, raw: bytes) -> None:
        """`${name}` and its forms that neither evaluate nor assign."""
        if _BRACED.fullmatch(raw):
            return
        head = _DEFAULTED.match(raw)
        if head is None:
            self.doubt("an expansion is not read with certainty")
            self.unread(node)
            return
        found: dict[int, Node] = {}
        for child in node.children:
            _expansions(child, found)
        at = node.start_byte + head.end()
        for start in sorted(found):
            self.literal(at, start)
            self.expansion(found[start], True)
            at = found[start].end_byte
        self.literal(at, node.end_byte - 1)

    def literal(self, start: int, end: int) -> None:
        if not _QUIET.fullmatch(self.data, start, max(start, end)):
            self.doubt("an expansion is not read with certainty")

    def arithmetic(self, node: Node) -> None:
        """Sums of numbers are fine. A name in a sum is evaluated, and what it holds may run a program."""
        at, pieces = node.start_byte, []
        for each in self.substitutions(node):
            pieces.append(self.data[at : each.start_byte])
            at = each.end_byte
        pieces.append(self.data[at : node.end_byte])
        if len(pieces) > 1 or not _NUMBERS.fullmatch(b"".join(pieces).replace(b"$", b"", 1).strip()):
            self.doubt("arithmetic with names can run programs")

    def substitutions(self, node: Node) -> list[Node]:
        """The substitutions in an expression, each read."""
        found: list[Node] = []
        for child in node.children:
            if child.type in ("command_substitution", "process_substitution"):
                self.part(child, node.type)
                found.append(child)
            elif child.child_count:
                found += self.substitutions(child)
        return found

    def redirect(self, node: Node) -> tuple[str, ...] | None:
        """Note a redirection. Gives the texts that become standard input; None where those are not known."""
        if node.type == "heredoc_redirect":
            return self.heredoc(node)
        plain = _PLAIN_REDIRECT.fullmatch(self.data, node.start_byte, node.end_byte)
        if plain is not None and self.sure and node.child_count == (3 if plain[1] else 2):
            return self.redirected_to(plain[1], plain[2].decode(), plain[3].decode())
        operator, at, numbered = "", -1, b""
        targets: list[str] = []
        for child in node.children:
            kind = child.type
            if at >= 0 and kind == "file_descriptor":
                self.doubt("a redirection is not read with certainty")
            if at >= 0:
                self.blank(at, child.start_byte, lines=False)
            at = child.end_byte
            if kind == "file_descriptor":
                numbered = self.data[child.start_byte : at]
                if not numbered.isdigit() or self.data[at : at + 1] not in (b"<", b">"):
                    self.doubt("a redirection is not read with certainty")
            elif not child.is_named:
                operator += self.text(child)
            else:
                targets.append(self.word(child))
        if operator not in _OPERATORS or len(targets) != (0 if operator.endswith("-") else 1):
            self.doubt("a redirection is not read with certainty")
        return self.redirected_to(numbered, operator, targets[0] if targets else "")

    def redirected_to(self, numbered: bytes, operator: str, target: str) -> tuple[str, ...] | None:
        """Note where a redirection leads; gives what `redirect` gives."""
        self.found.redirects.append(Redirect(operator, target))
        if operator[:2] in ("&>", "<<") or len(numbered) > 1 or (operator == ">&" and not target.isdigit()):
            self.found.bash_only()
        if operator == "<<<" and not numbered:
            return (target,)
        return None if operator.startswith("<") or numbered.strip(b"0") == b"" != numbered else ()

    def heredoc(self, node: Node) -> tuple[str, ...] | None:
        """A here-document. Where its body begins and ends is looked up once more: everything after it depends on it."""
        parts = {child.type: child for child in node.children}
        start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
        for child in node.children:
            if child.type in REDIRECTS:
                self.redirect(child)
            elif child.type in GROUPS or child.type == "command":
                before, self.found.fed = self.found.fed, True
                self.part(child, "pipeline")
                self.found.fed = before
            elif child.is_named and not child.type.startswith("heredoc_"):
                self.doubt("a here-document is not read with certainty")
                self.unread(child)
        delimiter = _DELIMITER.fullmatch(self.data, *span(start)) if start else None
        if start is None or end is None or delimiter is None:
            self.doubt("a here-document is not read with certainty")
            return (UNKNOWN,)
        name = delimiter[1] or delimiter[2] or delimiter[3] or delimiter[4]
        first = self.data.find(b"\n", start.end_byte) + 1
        last = self.closing(first, name, "<<-" in parts)
        tabs = b"\t" if "<<-" in parts else b""
        begins, ends = (body.start_byte, body.end_byte) if body else (first, end.start_byte)
        between = (self.data[first:begins], self.data[ends : end.start_byte])
        if not first or last is None or last[1] != end.end_byte or not last[0] <= end.start_byte:
            self.doubt("where a here-document ends is not certain")
        if begins < first or ends > end.start_byte or any(each.strip(tabs) if tabs else each for each in between):
            self.doubt("where a here-document ends is not certain")
        self.found.redirects.append(Redirect("<<", ""))
        if "file_descriptor" in parts:
            return None
        if body is None:
            return ("",)
        if delimiter[1] is not None:
            return (self.expanded(body),)
        return (self.text(body),)

    def closing(self, at: int, name: bytes, tabs: bool) -> tuple[int, int] | None:
        """Where the line stands that ends a here-document."""
        while 0 < at <= len(self.data):
            after = self.data.find(b"\n", at)
            after = len(self.data) if after < 0 else after
            line = self.data[at:after]
            if (line.lstrip(b"\t") if tabs else line) == name:
                return at, after
            at = after + 1
        return None

    def expanded(self, body: Node) -> str:
        """A body in which bash expands: what it runs is read."""
        found: dict[int, Node] = {}
        for child in body.children:
            _expansions(child, found)
        out, at = bytearray(), body.start_byte
        while at < body.end_byte:
            letter = self.data[at]
            if at in found:
                out += self.expansion(found[at], True)
                at = found[at].end_byte
                continue
            following = self.data[at + 1 : at + 2]
            if letter == 0x60 or (letter == 0x5C and following == b"\n"):
                self.doubt("a here-document is not read with certainty")
            if letter == 0x24 and (following.isalnum() or following in b"_({[@*#?$!-'\""):
                self.doubt("a here-document is not read with certainty")
            skip = letter == 0x5C and following in b"$`\\"
            out += following if skip else bytes((letter,))
            at += 2 if skip else 1
        return out.decode("utf-8", "replace")


def span(node: Node) -> tuple[int, int]:
    return node.start_byte, node.end_byte


def _expansions(node: Node, found: dict[int, Node]) -> None:
    """Where the grammar sees expansions in a word."""
    if node.type in EXPANDING:
        found[node.start_byte] = node
        return
    for child in node.children:
        if child.is_named:  # signs hold nothing
            _expansions(child, found)
