"""What a shell line runs, as values, and whether one rule covers one of its commands.

A word is a text in which what only the shell will know is marked: `UNKNOWN` is some text inside this word, `SPLIT`
may also become several words or none. A star of a rule covers a mark, literal text never does. `shell.py` reads
lines into these values, `programs.py` knows which words make a program run something else.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from msgspec import Struct

from duragent.core import git
from duragent.core.patterns import Rule
from duragent.core.programs import NOWHERE, ends_flags, interprets, of_repository, protected, renames, risky

UNKNOWN, SPLIT = "\x00", "\x01"
_MARKED = re.compile("[\x00\x01]")
_NEEDS_QUOTES = re.compile(r"[\s'\"\\]")
_SYSTEM = ("/bin/", "/usr/bin/")
_REMEMBERED = 256
_MOST_ENDS = 200
_FREE = frozenset((":", "true", "false"))
_HARMLESS_TARGETS = frozenset(("/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin"))


class Redirect(Struct, frozen=True):
    """One redirection: its operator, and the target as a word."""

    operator: str
    target: str


class Simple(Struct, frozen=True):
    """One program with its arguments. `names` are the variables that are set for it, or by it."""

    words: tuple[str, ...]
    names: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()  # what stands before the program: `NAME=value`
    source: str = ""  # as it is written; "" where it was found inside another command
    fed: bool = False  # a pipe or a redirection gives it something to read

    @property
    def program(self) -> str:
        return self.words[0] if self.words else ""


class Line(Struct, frozen=True):
    """All that a line runs. With `doubts` it is not known for certain, and the commands are only what was seen."""

    commands: tuple[Simple, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    doubts: tuple[str, ...] = ()
    moves: bool = False  # it changes the folder, so that relative paths mean something else


class Shelf:
    """Rules by the first word they speak of, so that many of them cost a command no more than few.

    What was found for a command is remembered, since most lines are put together from the same few commands.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self._first = [_first_word(rule) for rule in rules]
        self._words = frozenset(self._first)
        self._loose = self._of(None)
        self.everything = next((rule for rule in rules if rule.everything), None)
        self._known: dict[str, list[Rule]] = {}
        self._covered: dict[Simple, Rule | None] = {}

    def covering(self, command: Simple) -> Rule | None:
        """The rule that allows a command with everything about it."""
        if command not in self._covered:
            if len(self._covered) >= _REMEMBERED:
                self._covered.clear()
            self._covered[command] = covering(self.near(command), command)
        return self._covered[command]

    def near(self, command: Simple) -> Sequence[Rule]:
        """The rules that may cover a command, in their order."""
        program = command.program
        if command.assignments or program.startswith(_SYSTEM):
            return self.rules
        found = self._known.get(program)
        if found is None:
            if program not in self._words:
                return self._loose
            found = self._known[program] = self._of(program)
        return found

    def _of(self, word: str | None) -> list[Rule]:
        return [rule for rule, first in zip(self.rules, self._first, strict=True) if first is None or first == word]


def _first_word(rule: Rule) -> str | None:
    """The word with which every text that a rule matches begins; None where that may differ."""
    head, space, _ = rule.pieces[0].partition(" ")
    return head if (space or rule.literal is not None) and not rule.quotes else None


def is_free(command: Simple) -> bool:
    """Whether a command does nothing at all, so that no rule need allow it."""
    return command.program in _FREE and not command.names and not any(map(_MARKED.search, command.words))


def text_of(words: tuple[str, ...]) -> str:
    """Words as one text that can be cut back into the same words."""
    if all(words) and not _NEEDS_QUOTES.search("".join(words)):
        return " ".join(words)
    return " ".join(quote(word) if not word or _NEEDS_QUOTES.search(word) else word for word in words)


def readable(text: str) -> str:
    """A text with marks as a person can read it."""
    return _MARKED.sub("…", text)


def covering(rules: Iterable[Rule], command: Simple) -> Rule | None:
    """The rule that allows a command with everything about it: variables, flags that run others, unknown words."""
    texts, risks = _texts(command), None
    for rule in rules:
        if rule.everything:
            return rule
        if not _fits(rule, command, texts) or (rule.literal is not None and _only_whole(rule.literal, command)):
            continue
        if command.names and not all(_names(rule, name) for name in command.names):
            continue
        risks = risky(command.words) if risks is None else risks
        written = rule.literal is not None and rule.literal == command.source and NOWHERE not in risks
        if written or rule.words.issuperset(risks) or rule.words.issuperset(_unended(rule, command, risks)):
            return rule
    return None


def _only_whole(literal: str, command: Simple) -> bool:
    """Whether a rule without a star means its line alone: what its words become, or what it is fed, depends on what
    stands around it."""
    if "$" in literal or "`" in literal or any(map(_MARKED.search, command.words)):
        return True
    return command.fed and (interprets(command.words) or bool(risky(command.words)))


def _unended(rule: Rule, command: Simple, risks: tuple[str, ...]) -> tuple[str, ...]:
    """The risks where the rule itself ends the flags before its first star: what follows may be a path, but no flag."""
    head = rule.pieces[0]
    if not head.endswith(" -- ") or rule.quotes or command.assignments or not ends_flags(command.program):
        return risks
    end = len(head.split())
    paths = (f"./{word}" if word[:1] in ("-", UNKNOWN) else word for word in command.words[end:])
    return risky((*command.words[:end], *paths))


def evades(command: Simple) -> bool:
    """Whether a command is told in a roundabout way what to run, so that no deny rule can be sure to see it."""
    if any(name in ("BASH_ENV", "ENV") or name.startswith("GIT_CONFIG") for name in command.names):
        return True
    return renames(command.words)


def obstacle(rules: Iterable[Rule], command: Simple) -> str:
    """Why no rule allows a command, in words for a person."""
    text = readable(command.source or text_of((*command.assignments, *command.words)))
    bare = Simple(command.words)
    texts = (*_texts(command), *_texts(bare))
    near = [rule for rule in rules if _fits(rule, command, texts)]
    if not near:
        return f"`{text}` is not allowed by any rule"
    missing = [name for name in command.names if not any(_names(rule, name) for rule in near)]
    if missing:
        return f"no rule writes out `{missing[0]}=` for `{text}`"
    risks = [word for word in risky(command.words) if not any(word in rule.words for rule in near)]
    shown = readable(risks[0]) if risks else text
    return f"`{shown}` in `{text}` can do more than the rule says; a rule must write it out"


def _fits(rule: Rule, command: Simple, texts: tuple[str, ...]) -> bool:
    if rule.matches(texts[0]) or (len(texts) > 1 and any(map(rule.matches, texts[1:]))):
        return rule.literal is not None or _writes_folder(rule, command)
    return rule.quotes and bool(command.source) and rule.matches(command.source) and _writes_folder(rule, command)


def _writes_folder(rule: Rule, command: Simple) -> bool:
    """Whether the folder of a program is no star's doing: `ls*` is `lsof` too, but not a program in `lsd/`."""
    program = command.program
    if "/" not in program:
        return True
    folder = program[: program.rfind("/") + 1]
    return folder in _SYSTEM or program in rule.words or rule.pieces[0].startswith(folder)


def _texts(command: Simple) -> tuple[str, ...]:
    program = command.program
    if not command.assignments and program[:1] != "/":
        return (text_of(command.words),)
    said = (*command.assignments, *command.words)
    for folder in _SYSTEM if program.startswith(_SYSTEM) else ():
        if program.startswith(folder) and "/" not in program[len(folder) :]:
            short = (*command.assignments, program[len(folder) :], *command.words[1:])
            return text_of(said), text_of(short)
    return (text_of(said),)


def _names(rule: Rule, name: str) -> bool:
    """Whether a rule writes out that this variable is set."""
    return any(re.search(rf"(?:^|\s){re.escape(name)}\+?=", piece) for piece in rule.pieces)


def denied_texts(command: Simple, quotes: bool) -> tuple[str, ...]:
    """All the ways in which a rule may have meant this command; also with quotes, where a rule has some."""
    words, before = command.words, command.assignments
    text = " ".join(words)
    plain = "git" not in text or (words[0] == "git" and text[4:5] != "-" and "git" not in text[4:])
    if plain and not before and not quotes and words and "/" not in words[0]:
        return (text,)
    found = dict.fromkeys((text, *(" ".join(git.stripped(("git", *words[at + 1 :]))) for at in _gits(words))))
    for program in {command.program, posixpath.basename(command.program)}:
        named = (program, *words[1:]) if words else ()
        found[" ".join(named)] = None
        if quotes:
            found[" ".join(map(quote, named))] = None
        if before:
            found[" ".join((*before, *named))] = None
    return tuple(found)


def _gits(words: tuple[str, ...]) -> list[int]:
    return [at for at, word in enumerate(words) if posixpath.basename(word) == "git"]


def denied_ends(command: Simple) -> Iterator[str]:
    """What follows the first word, the second and so on: many programs run the program that their arguments name."""
    words = command.words
    for at in range(1, min(len(words), _MOST_ENDS)):
        yield " ".join(words[at:])
        if "/" in words[at]:
            yield " ".join((posixpath.basename(words[at]), *words[at + 1 :]))


def refused(redirect: Redirect, workdir: str, moves: bool) -> str:
    """Why a redirection is not permitted by itself; "" where it is."""
    target = redirect.target
    if redirect.operator in ("<<", "<<-", "<<<"):
        return ""
    if redirect.operator.endswith("&-") or (redirect.operator.endswith("&") and re.fullmatch(r"\d{1,3}-?|-", target)):
        return ""
    if target in _HARMLESS_TARGETS:
        return ""
    if _MARKED.search(target) or target.startswith("~") or not target:
        return f"where `{_shown(redirect)}` leads is only known when it runs"
    path = posixpath.normpath(target)
    if path.startswith("//"):
        path = path[1:]
    if posixpath.isabs(path):
        inside = bool(workdir) and path.startswith(posixpath.normpath(workdir).rstrip("/") + "/")
        path = path[len(posixpath.normpath(workdir)) :] if inside else path
    else:
        inside = not moves and path != ".." and not path.startswith("../")
    if not inside:
        why = "after a change of folder" if moves and not posixpath.isabs(path) else "outside the working folder"
        return f"`{_shown(redirect)}` is {why}"
    if protected(path) or of_repository(path.lstrip("/")):
        return f"`{_shown(redirect)}` is a file that decides what runs"
    return ""


def _shown(redirect: Redirect) -> str:
    return readable(f"{redirect.operator} {redirect.target}")
