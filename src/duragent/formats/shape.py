"""What goes into a format and what comes out of it.

A format is handed `Files`, everything that has been looked at so far, and answers with a `Parsed`
agent or with a `Need` for more. It never opens a file: `agentfiles` does, and asks again.
"""

import posixpath
from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duragent.agent import Agent, Level

Why = Literal["missing", "outside", "folder", "special", "unreadable", "encoding", "nul", "large", "changed", "refused"]


class Problem(Struct, frozen=True):
    """One thing that is wrong: what, where, and what to do about it."""

    level: Level
    file: str
    line: int
    column: int
    path: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        said = f"{self.file}:{self.line}:{self.column}  {self.level}  {self.text}{hint}"
        # A key may hold a line break or a lone surrogate; a problem is one line that can be printed.
        return said.replace("\n", "\\n").encode("utf-8", "backslashreplace").decode()


class File(Struct, frozen=True):
    """A text file that was read: no byte order mark (`bom`: there was one), line ends are LF."""

    text: str
    executable: bool = False
    bom: bool = False


class Blob(Struct, frozen=True):
    """A file whose content does not matter to the format, only that it is there."""

    digest: str
    executable: bool = False


class Folder(Struct, frozen=True):
    """What a folder holds: sorted names; those of folders end in a slash."""

    names: tuple[str, ...]


class Absent(Struct, frozen=True):
    """Something that was asked for and could not be had."""

    why: Why
    detail: str = ""
    line: int = 1
    column: int = 1


Entry = File | Blob | Folder | Absent


class Files(Struct, frozen=True):
    """What has been looked at. `entry` is the file that was pointed at, or "" for a folder.

    Paths are relative to the agent's folder, with `/` between the parts; `""` is that folder itself.
    A base that lives elsewhere keeps its relative path (`../parent.agent`), `ag1:…` or URL as its name.
    `name` is what the folder, or the file that was pointed at, is called.
    """

    entry: str
    found: Mapping[str, Entry]
    name: str = "agent"

    def text(self, path: str) -> str | None:
        entry = self.found.get(path)
        return entry.text if type(entry) is File else None

    def notes(self) -> tuple[str, ...]:
        """The files in the agent's memory folder, without what a program keeps there for itself."""
        found = (name for name in self.names("memory/**") if not name.endswith("/"))
        return tuple(name for name in found if not posixpath.basename(name).startswith("."))

    def names(self, folder: str = "") -> tuple[str, ...]:
        entry = self.found.get(folder)
        return entry.names if type(entry) is Folder else ()


class Need(Struct, frozen=True):
    """What a format must see before it can go on.

    `files` are read as text, `blobs` only digested, `folders` listed (`skills/**`: with all below it).
    `elsewhere` may leave the agent's folder: a `base`, a shared skill; `attached` are blobs that may.
    `then` goes on from where the format stopped; without it `parse` is asked again from the start.
    """

    files: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    blobs: frozenset[str] = frozenset()
    elsewhere: frozenset[str] = frozenset()
    attached: frozenset[str] = frozenset()
    then: "Callable[[Files], Parsed | Need] | None" = None

    def without(self, found: Mapping[str, Entry]) -> "Need":
        """Only what has not been looked at yet."""
        seen = found.keys()
        return replace(
            self,
            files=self.files - seen,
            folders=self.folders - seen,
            blobs=self.blobs - seen,
            elsewhere=self.elsewhere - seen,
            attached=self.attached - seen,
        )

    def __bool__(self) -> bool:
        return bool(self.files or self.folders or self.blobs or self.elsewhere or self.attached)


class Parsed(Struct, frozen=True):
    """An agent, or None when an error makes it unusable; and everything worth saying about it."""

    agent: Agent | None
    problems: tuple[Problem, ...] = ()


class Rendered(Struct, frozen=True):
    """Files to write; `entry` is the one to point at, or "" for the folder.

    `copies` (target → path in the source agent) are taken over byte by byte.
    `notes` (path in the model → why) explain what the target cannot say.
    """

    entry: str
    files: Mapping[str, str]
    copies: Mapping[str, str] = {}
    notes: Mapping[str, str] = {}


def failed(problems: Iterable[Problem]) -> bool:
    """Whether any of the problems is an error."""
    return any(problem.level == "error" for problem in problems)


def normal(path: str) -> str:
    """`./a/../b` → `b`. The name under which `Files` keeps a path."""
    clean = posixpath.normpath(path.replace("\\", "/"))
    return "" if clean == "." else clean


def beside(file: str, reference: str) -> str:
    """The path that `reference`, written in `file`, stands for."""
    if is_address(reference):
        return reference
    return normal(posixpath.join(posixpath.dirname(file), reference))


def is_address(reference: str) -> bool:
    return reference.startswith(("https://", "http://", "ag1:"))


def leaves(path: str) -> bool:
    """Whether a normal path points outside the folder it is relative to."""
    return path.startswith(("../", "/")) or path == ".." or path[1:2] == ":"


_WHY = {
    "missing": "is not there",
    "outside": "leads out of the agent's folder",
    "folder": "is a folder, not a file",
    "special": "is not a regular file",
    "unreadable": "cannot be read",
    "encoding": "is not UTF-8 text",
    "nul": "holds a NUL character",
    "large": "is too large",
    "changed": "changed or vanished while it was read",
    "refused": "is not used",
}
_HINT = {
    "missing": "create it, or correct the path",
    "outside": "move it into the folder; links and `..` must stay inside",
    "folder": "name a file inside it",
    "special": "replace it by a plain file",
    "unreadable": "check its permissions",
    "encoding": "save it as UTF-8",
    "nul": "save it as plain text",
    "large": "shorten it or split it",
    "changed": "try again",
    "refused": "only public https addresses are; a local copy will do",
}


def absence(level: Level, path: str, absent: Absent, *, file: str, line: int, column: int, at: str) -> Problem:
    """The Problem for a file that was named at `file:line:column` and could not be had."""
    detail = f" ({absent.detail})" if absent.detail else ""
    if absent.why in ("encoding", "nul"):
        file, line, column = path, absent.line, absent.column
    return Problem(level, file, line, column, at, f"{path} {_WHY[absent.why]}{detail}", _HINT[absent.why])
