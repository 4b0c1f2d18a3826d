"""What a shell line really runs: every simple command at any depth, every redirection, and every doubt.

Two readers must agree. The grammar (tree-sitter-bash) gives the structure; words are unquoted here, from the bytes,
and whatever stands between two nodes must be blank. Where the two differ, where the grammar is not sure, and where
bash itself decides only when it runs, the line is in doubt: doubts are never allowed by a rule with a star.

Knows bash, not rules. A kind of node that is not named here is a doubt; to read one more, name it.
"""

import re
from collections.abc import Callable, Mapping
from itertools import pairwise

import tree_sitter_bash
from msgspec.structs import replace
from tree_sitter import Language, Node, Parser

from duragent.core.calls import HIDDEN
from duragent.core.lines import SPLIT, UNKNOWN, Line, Simple, readable
from duragent.core.programs import converses
from duragent.core.words import EXPANDING, GROUPS, REDIRECTS, Found, Words, span
from duragent.core.wrappers import NOTHING, RESERVED, inside

LONGEST = 16_384
DEEPEST = 40
MOST_SCRIPTS = 20
_MOST = {"(": 100, "|": 200, "<": 200, "`": 200, "[": 400, "{": 400, ">": 400, ";": 500, "&": 500, "\n": 500, "!": 1000}
"""How many signs a line may have: the grammar needs far longer for tangled lines than for long ones."""
_FEWEST = min(_MOST.values())
_DOCUMENT = re.compile(r"[^'\"\\#`$(\[{<]*<<-?[ \t]*['\"\\]?([A-Za-z0-9_.-]+)['\"]?[^\n]*\n")
_APART = re.compile(rb"(?:\\\n)*[ \t](?:[ \t]|\\\n)*")
_WORDS = EXPANDING | {"word", "number", "string", "raw_string", "ansi_c_string", "concatenation", "brace_expression"}
_PLAIN_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+:,./=- "
_PATTERN = re.compile(rb"[A-Za-z0-9_@%+:,./=*?-]+")
_SAFE_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_NOTHING_TO_READ = re.compile(rb"0?< ?/dev/null|[3-9]<[^<].*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAMES_THAT_MATTER = frozenset(("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "histchars"))
_TOKENS = frozenset(
    (
        *(";", "&", "&&", "||", "|", "|&", ";;", ";&", ";;&", "(", ")", "{", "}", "!", "\n", "$(", "`", "<(", ">("),
        *("do", "done", "if", "then", "fi", "elif", "else", "while", "until", "for", "select", "in", "case", "esac"),
    )
)
_SIGNS = frozenset(sign.encode() for sign in _TOKENS - RESERVED)
_RESERVED = frozenset(word.encode() for word in RESERVED)
_MOVING = frozenset(("cd", "pushd", "popd"))
_parser = Parser(Language(tree_sitter_bash.language()))


def read(line: str) -> Line:
    """All that a line runs."""
    if why := _unprintable(line):
        return Line(doubts=(why,))
    if _tangled(line):
        return Line(doubts=("it has too many parts",))
    reader = _Reader()
    try:
        reader.script(line)
    except RecursionError:
        reader.doubt("it is nested too deeply")
    return Line(tuple(reader.commands), tuple(reader.redirects), tuple(reader.doubts), reader.moves)


def _unprintable(line: str) -> str:
    if len(line) > LONGEST:
        return f"it is longer than {LONGEST} letters"
    if line.isascii() and line.isprintable():
        return ""
    for letter in line:
        if (not letter.isprintable() and letter not in "\n\t") or HIDDEN.match(letter):
            return f"it holds a letter that cannot be seen (U+{ord(letter):04X})"
    return ""


def _tangled(line: str) -> bool:
    """Whether a line has more signs than can be read quickly. What stands in a here-document costs nothing."""
    if len(line) <= _FEWEST:
        return False
    document = _DOCUMENT.match(line)
    if document is not None:
        end = re.compile(rf"^\t*{re.escape(document[1])}$", re.MULTILINE).search(line, document.end())
        line = document[0] + (line[end.end() :] if end else "")
    return any(line.count(sign) > most for sign, most in _MOST.items())


class _Reader(Found):
    """Collects over one line and all scripts inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[Simple] = []
        self.moves = False
        self.scripts = 0

    def script(self, text: str, shell: str = "") -> None:
        """Read a text that a shell of this name reads; without one, the shell that reads all around it."""
        before, self.foreign = self.foreign, shell == "sh" if shell else self.foreign
        self.read(text)
        self.foreign = before

    def read(self, text: str) -> None:
        self.scripts += 1
        if self.scripts > MOST_SCRIPTS:
            self.doubt("it holds too many scripts inside scripts")
            return
        data = text.encode()
        root = _parser.parse(data).root_node
        sure = not root.has_error
        if not sure:
            self.doubt("it is not a whole and plain shell line")
        _Walk(self, data, sure).group(root, 0, len(data))

    def command(self, command: Simple, inputs: tuple[str, ...] | None, depth: int) -> None:
        """Note a command and what it starts."""
        self.commands.append(replace(command, fed=True) if self.fed else command)
        program = command.program
        if not (program.isalnum() and program.isascii()) or program in RESERVED:
            self.name(program, command)
        if program in _MOVING:
            self.moves = True
        if self.fed and converses(command.words):
            self.doubt(f"`{readable(program)}` takes commands from what it is fed")
        if depth > DEEPEST:
            self.doubt("it is nested too deeply")
            return
        found = inside(command, inputs)
        if found is NOTHING:
            return
        for why in found.doubts:
            self.doubt(why)
        for each in found.commands:
            self.command(each, None, depth + 1)
        for text in found.scripts:
            if why := _unprintable(text) or ("it has too many parts" if _tangled(text) else ""):
                self.doubt(why)
            else:
                self.script(text, found.shell)

    def name(self, program: str, command: Simple) -> None:
        """Doubt a name that is not clearly the name of a program."""
        if not program and command.words:
            self.doubt("a program has no name")
        if UNKNOWN in program or SPLIT in program:
            self.doubt("which program runs is only known when it runs")
        elif not program.isascii():
            self.doubt(f"the name of the program {program!r} is not plain")
        elif program in RESERVED:
            self.doubt(f"`{program}` stands where a program should")
        elif program.startswith("~") or "=" in program:
            self.doubt(f"`{readable(program)}` is no plain name of a program")


class _Walk(Words):
    """One text and the grammar's view of it, statement by statement."""

    def __init__(self, reader: _Reader, data: bytes, sure: bool) -> None:
        super().__init__(reader, data, sure)
        self.reader = reader

    def group(self, node: Node, start: int, end: int) -> None:
        """Statements and the words between them."""
        reader = self.reader
        reader.depth += 1
        if reader.depth > DEEPEST:
            reader.depth -= 1
            self.doubt("it is nested too deeply")
            return
        at, around, fed = start, node.type, reader.fed
        for child in node.children:
            if at < child.start_byte:
                self.blank(at, child.start_byte)
            at = child.end_byte
            self.part(child, around)
            if around == "pipeline" and not child.is_named:
                reader.fed = True  # what follows a pipe
        self.blank(at, end)
        reader.depth -= 1
        reader.fed = fed

    def part(self, node: Node, around: str) -> None:
        kind = node.type
        if kind == "command":
            self.command(node, ())
        elif not node.is_named:
            self.token(node)
        elif kind == "redirected_statement":
            self.redirected(node)
        elif kind == "compound_statement" and self.data.startswith(b"((", node.start_byte):
            self.arithmetic(node)
        elif kind in GROUPS:
            if kind == "subshell" and self.data.startswith(b"((", node.start_byte):
                self.doubt("whether it counts or runs is not certain")
            self.group(node, node.start_byte, node.end_byte)
        elif (known := _READ.get(kind)) is not None:
            known(self, node)
        elif not self.between(node, kind, around):
            self.doubt(f"a part of it is not read here ({kind.replace('_', ' ')})")
            self.unread(node)

    def between(self, node: Node, kind: str, around: str) -> bool:
        """What may stand in a loop or a choice that is no statement."""
        if kind == "variable_name" and around == "for_statement":
            self.loop_name(node)
        elif kind in _WORDS and around in ("for_statement", "case_statement", "case_item"):
            self.word(node)
        else:
            return (
                kind == "extglob_pattern" and around == "case_item" and bool(_PATTERN.fullmatch(self.data, *span(node)))
            )
        return True

    def unread(self, node: Node) -> None:
        """Deny rules still see the commands in what is not understood."""
        self.reader.depth += 1
        if self.reader.depth <= DEEPEST:
            for child in node.children:
                if child.type == "command":
                    self.command(child, ())
                else:
                    self.unread(child)
        self.reader.depth -= 1

    def token(self, node: Node) -> None:
        """Signs and reserved words. Bash knows a reserved word only where it stands alone."""
        sign = self.data[node.start_byte : node.end_byte]
        if sign in _SIGNS:
            if sign in (b"|&", b";&", b";;&"):
                self.reader.bash_only()
            return
        text = self.text(node)
        if text == "select":
            self.reader.bash_only()
        if text not in _TOKENS:
            self.doubt("parts of it are not understood")
        elif text in RESERVED and not self.alone(*span(node)):
            self.doubt(f"whether `{text}` is a word of the shell is not certain")

    def alone(self, start: int, end: int) -> bool:
        before, after = self.data[start - 1 : start] if start else b"", self.data[end : end + 1]
        ends = b" \t\n" if self.data[start:end] in (b"{", b"!", b"[", b"[[") else b" \t\n;&|()<>`"
        return (not before or before in b" \t\n;&|()`") and (not after or after in ends)

    def comment(self, node: Node) -> None:
        before = self.data[node.start_byte - 1 : node.start_byte]
        if (before and before not in b" \t\n;&|(") or b"\n" in self.data[node.start_byte : node.end_byte]:
            self.doubt("where a comment begins is not certain")

    def loop_name(self, node: Node) -> None:
        name = self.text(node)
        if not _SAFE_NAME.fullmatch(name) or name in _NAMES_THAT_MATTER:
            self.reader.commands.append(Simple((), (name,), (f"{name}={UNKNOWN}",)))

    def redirected(self, node: Node) -> None:
        """A statement with its redirections."""
        body, redirects, at = None, [], node.start_byte
        for child in node.children:
            self.blank(at, child.start_byte, lines=False)
            at = child.end_byte
            if child.type in REDIRECTS:
                redirects.append(child)
            elif body is None and child.is_named:
                body = child
            else:
                self.doubt("parts of it are not understood")
        fed = self.reader.fed
        self.reader.fed = fed or any(map(self.feeds, redirects))
        if body is not None and body.type == "command":
            self.command(body, tuple(redirects))
        elif body is not None:
            self.part(body, "redirected_statement")
        self.reader.fed = fed
        for each in redirects if body is None or body.type != "command" else ():
            self.redirect(each)

    def feeds(self, node: Node) -> bool:
        """Whether a redirection gives a program something to read."""
        text = self.data[node.start_byte : node.end_byte]
        return b"<" in text and not _NOTHING_TO_READ.fullmatch(text)

    def command(self, node: Node, redirects: tuple[Node, ...]) -> None:
        first, last = node.start_byte, node.end_byte
        words = self.plain(node, first, last)
        if words and not redirects:
            self.reader.command(Simple(tuple(words), source=self.data[first:last].decode()), None, 0)
            return
        names: list[str] = []
        assigned: list[str] = []
        inputs: list[str] | None = []
        fed = self.reader.fed
        at, first = (last, first) if words else (-1, -1)
        for child in redirects if words else (*node.children, *redirects):
            start, kind = child.start_byte, child.type
            if at >= 0 and (self.data[at:start] != b" " or kind in REDIRECTS):
                self.apart(at, start, kind in REDIRECTS)
            at = child.end_byte
            if kind in _WORDS:
                words.append(self.word(child))
            elif kind in REDIRECTS:
                text = self.redirect(child)
                self.reader.fed = self.reader.fed or self.feeds(child)
                inputs = None if text is None or inputs is None else [*inputs, *text]
                continue
            elif kind == "variable_assignment":
                self.assign(child, names, assigned)
            elif kind == "command_name" and child.child_count == 1:
                words.append(self.program(child.children[0]))
            else:
                self.doubt(f"a word of it is not read here ({kind.replace('_', ' ')})")
                words.append(SPLIT)
                self.unread(child)
            first, last = start if first < 0 else first, at
        source = self.data[first:last].decode("utf-8", "replace") if first >= 0 else ""
        found = Simple(tuple(words), tuple(names), tuple(assigned), source)
        if found.program == "exec" and self.reader.fed and len(words) == 1:
            self.doubt("all that follows is fed by a redirection")
        self.reader.command(found, tuple(inputs) if inputs else None, 0)
        self.reader.fed = fed

    def plain(self, node: Node, start: int, end: int) -> list[str]:
        """The words of a command without quotes, signs and variables, where the grammar counts as many; else none."""
        raw = self.data[start:end]
        if not self.sure or raw.translate(None, _PLAIN_LETTERS):
            return []
        words = raw.decode().split(" ")
        if node.child_count != len(words) or words[0] in RESERVED or "=" in words[0]:
            return []
        return words if b"=" not in raw or all(word[0] == "-" for word in words if "=" in word) else []

    def apart(self, start: int, end: int, redirect: bool) -> None:
        """Two words touch only where the second is a redirection that begins with its sign."""
        if redirect and self.data[end : end + 1] in (b"<", b">", b"&"):
            self.blank(start, end, lines=False)
            if start == end and self.data[start - 1 : start] == b"}":
                self.doubt("a redirection is not read with certainty")
        elif not _APART.fullmatch(self.data, start, end):
            self.doubt("where one word ends and the next begins is not certain")

    def program(self, node: Node) -> str:
        raw = self.data[node.start_byte : node.end_byte]
        if raw in _RESERVED or raw[:1] == b"#":
            self.doubt(f"`{raw.decode('utf-8', 'replace')}` stands where a program should")
        return self.word(node)

    def assignments(self, node: Node) -> None:
        """Variables that are set and stay."""
        names: list[str] = []
        assigned: list[str] = []
        for child in [node] if node.type == "variable_assignment" else node.children:
            if child.type == "variable_assignment":
                self.assign(child, names, assigned)
            else:
                self.doubt("parts of it are not understood")
        self.reader.commands.append(Simple((), tuple(names), tuple(assigned), self.text(node)))

    def assign(self, node: Node, names: list[str], assigned: list[str]) -> None:
        children = node.children
        if not children or children[0].type != "variable_name" or len(children) not in (2, 3):
            self.doubt("an assignment is not read with certainty")
            self.unread(node)
            names.append(self.text(node).partition("=")[0])
            assigned.append(SPLIT)
            return
        name, operator = self.text(children[0]), self.text(children[1])
        value = ""
        if len(children) == 3 and children[2].type in _WORDS:
            value = self.word(children[2])
        elif len(children) == 3:
            self.doubt("an assignment is not read with certainty")
            self.unread(children[2])
        if not _NAME.fullmatch(name) or any(one.end_byte != two.start_byte for one, two in pairwise(children)):
            self.doubt("an assignment is not read with certainty")
        if operator != "=":
            self.reader.bash_only()
        names.append(name)
        assigned.append(f"{name}{operator}{value}")

    def declaration(self, node: Node) -> None:
        """export, declare, local, readonly, typeset, unset."""
        words: list[str] = []
        names: list[str] = []
        at = -1
        for child in node.children:
            if at >= 0:
                self.apart(at, child.start_byte, False)
            at = child.end_byte
            if child.type == "variable_assignment":
                assigned: list[str] = []
                self.assign(child, names, assigned)
                words += assigned
            elif child.type in _WORDS or child.type == "variable_name" or not child.is_named:
                word = self.word(child)
                words.append(word)
                if len(words) > 1 and not word.startswith("-"):
                    names.append(word)
            else:
                self.doubt("a declaration is not read with certainty")
                self.unread(child)
        if any(word.startswith("-") and "f" in word for word in words):
            self.doubt("functions are not followed")
        self.reader.command(Simple(tuple(words), tuple(names), (), self.text(node)), None, 0)

    def test(self, node: Node) -> None:
        """`[ … ]` and `[[ … ]]`: what they expand is read; operators that evaluate names are a doubt."""
        double = self.data.startswith(b"[[", node.start_byte)
        if double:
            self.reader.bash_only()
        if not all(self.alone(*span(each)) for each in (node.children[0], node.children[-1])):
            self.doubt("whether it is a test is not certain")
        words: list[str] = []
        self.test_words(node, words)
        evaluated = {"-v", "-R"} | ({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"} if double else set())
        if evaluated.intersection(words) or (not double and any(SPLIT in word for word in words)):
            self.doubt("a test of names or numbers can run programs")

    def test_words(self, node: Node, words: list[str]) -> None:
        self.reader.depth += 1
        at = node.start_byte
        for child in node.children if self.reader.depth <= DEEPEST else []:
            self.blank(at, child.start_byte, lines=False)
            at = child.end_byte
            if child.type in _WORDS:
                words.append(self.word(child))
            elif child.type in ("test_operator", "regex"):
                text = self.text(child)
                words.append(text)
                if child.type == "regex" and re.search(r"[$`\\'\"]", text):
                    self.doubt("a pattern is not read with certainty")
            elif child.type == "extglob_pattern" and _PATTERN.fullmatch(self.data, *span(child)):
                words.append(self.text(child))
            elif child.child_count:
                self.test_words(child, words)
            elif child.is_named:
                self.doubt("a test is not read with certainty")
        self.blank(at, node.end_byte, lines=False)
        if self.reader.depth > DEEPEST:
            self.doubt("it is nested too deeply")
        self.reader.depth -= 1


_READ: Mapping[str, Callable[[_Walk, Node], object]] = {
    "variable_assignment": _Walk.assignments,
    "variable_assignments": _Walk.assignments,
    "declaration_command": _Walk.declaration,
    "unset_command": _Walk.declaration,
    "test_command": _Walk.test,
    "comment": _Walk.comment,
    **dict.fromkeys(REDIRECTS, _Walk.redirect),
}
