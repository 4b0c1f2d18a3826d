"""The patterns of policy rules: `type:text`, where `*` stands for any characters and `\\*` for a star itself.

A pattern is anchored at both ends and case-sensitive. Matching cuts the text at the stars and looks for the pieces
in their order, so its cost is linear whatever somebody wrote. Knows nothing of tools or shells.
"""

from shlex import split

from msgspec import Struct

from duragent.agent import Origin

_STAR = "\x02"
TYPES = ("bash", "builtin", "cli", "mcp", "script", "*")


class Rule(Struct, frozen=True):
    """One compiled rule. `pieces` are the texts between its stars; a rule without a star has one piece."""

    text: str  # as its owner wrote it
    type: str  # of TYPES
    pieces: tuple[str, ...]
    words: frozenset[str]  # the words it writes out in full
    origin: Origin | None = None
    literal: str | None = None  # what it says letter by letter, where it has no star
    everything: bool = False  # it is nothing but stars
    quotes: bool = False  # it has quotes or dollar signs: its owner means a line as it is written
    longest: str = ""  # the longest of its pieces: it means no text without that

    def speaks_of(self, type: str) -> bool:
        return self.type in ("*", type)

    def matches(self, text: str) -> bool:
        pieces = self.pieces
        if len(pieces) == 1:
            return text == pieces[0]
        first, last = pieces[0], pieces[-1]
        if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
            return False
        at, end = len(first), len(text) - len(last)
        for piece in pieces[1:-1]:
            found = text.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return True

    def occurs_in(self, text: str) -> bool:
        """Whether it matches some stretch of a text that begins and ends where words do."""
        first, last = self.pieces[0], self.pieces[-1]
        if not first and len(self.pieces) == 1:
            return False
        at = _find(text, first, 0, len(self.pieces) == 1)
        if at < 0:
            return False
        for piece in self.pieces[1:-1]:
            found = text.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return len(self.pieces) == 1 or not last or _find(text, last, at, True, begin=False) >= 0


def _find(text: str, piece: str, at: int, end: bool, begin: bool = True) -> int:
    """Where a piece ends that stands in a text from `at` on, with its beginning and its end between words; -1 if
    nowhere."""
    while piece:
        found = text.find(piece, at)
        if found < 0:
            return -1
        after = found + len(piece)
        starts = not begin or found == 0 or not (_inner(text[found - 1]) and _inner(piece[0]))
        if starts and (not end or after == len(text) or not (_inner(text[after]) and _inner(piece[-1]))):
            return after
        at = found + 1
    return at


def _inner(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


def compile_rule(text: str, origin: Origin | None = None) -> Rule:
    """A rule from its text. What begins with no known type speaks of tools of any type."""
    type, colon, rest = text.partition(":")
    if not colon or type not in TYPES:
        type, rest = "*", text
    pieces = _cut(rest)
    literal = pieces[0] if len(pieces) == 1 else None
    quotes = any(letter in rest for letter in "'\"$")
    words, everything, longest = _whole_words(pieces), literal is None and not any(pieces), max(pieces, key=len)
    return Rule(text, type, pieces, words, origin, literal, everything, quotes, longest)


def _cut(text: str) -> tuple[str, ...]:
    pieces, piece, at = [], [], 0
    while at < len(text):
        if text.startswith("\\*", at):
            piece.append("*")
            at += 1
        elif text[at] == "*":
            pieces.append("".join(piece))
            piece = []
        else:
            piece.append(text[at])
        at += 1
    return (*pieces, "".join(piece))


def _whole_words(pieces: tuple[str, ...]) -> frozenset[str]:
    """The words that no star touches, as they are written and without their quotes. A star at the very end may be
    nothing, so the word before it is written out too."""
    text = _STAR.join(pieces)
    last = text[:-1].rpartition(" ")[2] if len(pieces) > 1 and not pieces[-1] else ""
    try:
        found = {*text.split(), *split(text)}
    except ValueError:  # quotes that do not end are letters like others
        found = {*text.split()}
    found |= {last} if last else set()
    return frozenset(word for word in found if _STAR not in word)


def escape(text: str) -> str:
    """A text as a pattern that matches it alone."""
    return text.replace("*", "\\*")
