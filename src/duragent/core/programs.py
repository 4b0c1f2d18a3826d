"""Programs whose flags or arguments run other programs, load code or write files: a star in a rule does not mean them.

One row per program. `risky` gives the words of a command that an allow rule must write out in full. Nothing here
allows anything; a program without a row is what its owner allowed. GNU programs take any beginning of a long flag, so
every beginning counts. Adding a program: a row in `_ROWS`, and its attempts in tests/core/test_bypasses.py.
"""

import posixpath
import re
from collections.abc import Callable, Mapping

from msgspec import Struct

Words = tuple[str, ...]
_MARKS = re.compile("[\x00\x01]")


class Row(Struct, frozen=True):
    """What to look for among the arguments of a program."""

    short: str = ""  # letters of flags, alone or among others: `-o`, `-xo`, `-oFILE`
    long: tuple[str, ...] = ()  # `--output`, also as `--out` and `--output=FILE`
    words: tuple[str, ...] = ()  # whole words, or the beginning of one where it ends with `=` or `*`
    more: Callable[[Words], Words] | None = None  # what no list can say
    ends: bool = True  # `--` ends the flags
    first: bool = False  # its first argument that is no flag decides what it does


def risky(words: Words) -> Words:
    """The words that a rule must write out; a word nobody can know counts where it could become one of them."""
    if not words:
        return ()
    row = _ROWS.get(posixpath.basename(words[0]))
    if row is None:
        row = next((each for name, each in _VERSIONED if name.fullmatch(posixpath.basename(words[0]))), None)
    if row is None:
        return ()
    found: list[str] = []
    for at, word in enumerate(words[1:], 1):
        if row.ends and word == "--":
            break
        if _is_risky(row, word):
            found.append(word)
            if at + 1 < len(words) and "=" not in word and word.startswith("-"):
                found.append(words[at + 1])  # its value, where it has one; a rule that says the flag says it too
    if row.more is not None:
        found += row.more(words)
    if row.first:
        found += [word for word in words[1:] if not word.startswith("-")][:1]
    return tuple(found)


def _is_risky(row: Row, word: str) -> bool:
    if _could_be_flag(word):
        return True
    if word.startswith("--"):
        name = word.partition("=")[0]
        return len(name) > 2 and any(flag.startswith(name) for flag in row.long)
    if word.startswith("-") and len(word) > 1 and any(letter in row.short for letter in word[1:]):
        return True
    return any(word.startswith(each[:-1] if each.endswith("*") else each) if each[-1] in "=*" else word == each
               for each in row.words)


def _could_be_flag(word: str) -> bool:
    mark = _MARKS.search(word)
    return mark is not None and (word.startswith("-") or mark.start() == 0 or "\x01" in word)
