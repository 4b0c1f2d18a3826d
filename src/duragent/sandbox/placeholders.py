"""Stand-ins for protected paths that do not exist yet, so that there is something to mount over.

Each is empty and dated to the beginning of time: whatever is put into it outside of the box makes it somebody's own.
Whoever uses one holds a shared lock on it; the last one takes it away, if it still is what it was, and the warden does
so for a runtime that was killed. A leftover of both is taken up again. Where nothing can stand in, what a command made
is moved aside afterwards.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from duragent.sandbox.keeper_main import is_stand_in, open_stand_in, remove_stand_in

_FILES = (".envrc", ".netrc", ".npmrc", "Makefile", "Justfile")
_SUFFIXES = (".json", ".jsonl", ".lock", ".md", ".toml", ".txt", ".yaml", ".yml")
_TRIES = 10
_IN_THE_WAY = ("commondir", "config", "config.worktree")
"""Files of a repository that git takes seriously when they are empty: nothing can stand in for them."""


def topmost_missing(path: str) -> str:
    """The path itself, or the first folder on the way to it, that does not exist; nothing where all of it does."""
    missing = ""
    while path != "/" and not os.path.lexists(path):
        missing, path = path, os.path.dirname(path)
    return missing


class Placeholders:
    """The stand-ins of one command."""

    def __init__(self) -> None:
        self._held: list[tuple[str, int]] = []
        self._watched: list[str] = []

    def make(self, paths: Sequence[str]) -> list[str]:
        """Stand-ins for these paths. Returns the paths that there is something at now."""
        made: list[str] = []
        for path in paths:
            if os.path.basename(path) in _IN_THE_WAY and os.path.isdir(os.path.dirname(path)):
                self._watched.append(path)
                continue
            top = topmost_missing(path) or path
            if top not in made and self._make(top, folder=top != path or _is_folder(path)):
                made.append(top)
        return made

    def held(self) -> list[tuple[str, int, int]]:
        """What is to be taken away: path, device and number of each."""
        abouts = ((path, os.fstat(handle)) for path, handle in self._held)
        return [(path, about.st_dev, about.st_ino) for path, about in abouts]

    def close(self) -> bytes:
        """Take the stand-ins away. Returns what is to be said about things that should not have appeared."""
        for path, handle in reversed(self._held):
            remove_stand_in(path, handle)
            os.close(handle)
        self._held.clear()
        return take_away(self._watched)

    def _make(self, path: str, *, folder: bool) -> bool:
        for _ in range(_TRIES):
            try:
                _create(path, folder)
            except FileExistsError:
                pass
            except OSError:
                return False  # where we cannot write, a command cannot either
            try:
                handle = open_stand_in(path)
            except FileNotFoundError:
                continue  # another runtime has just taken it away
            except OSError:
                return True  # somebody's own
            fcntl.flock(handle, fcntl.LOCK_SH)
            if is_stand_in(path, handle):
                self._held.append((path, handle))
                return True
            os.close(handle)
            if os.path.lexists(path):
                return True
        return False


def _create(path: str, folder: bool) -> None:
    if folder:
        os.mkdir(path, 0o755)  # writable: outside of the box it is in nobody's way, not even the runtime's
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    os.utime(path, ns=(0, 0))


def _is_folder(path: str) -> bool:
    name = os.path.basename(path)
    return name not in _FILES and not name.endswith(_SUFFIXES)


def is_leftover(path: str) -> bool:
    """Whether a stand-in was left here by a runtime that was killed."""
    with suppress(OSError):
        there = os.lstat(path)
        if there.st_mtime_ns == 0:
            return not os.listdir(path) if stat.S_ISDIR(there.st_mode) else there.st_size == 0
    return False


def take_away(paths: Sequence[str]) -> bytes:
    """Move what has appeared at these paths to where it does no harm. Returns what a person should know of it."""
    said = []
    for path in paths:
        if os.path.lexists(path):
            try:
                kept = shutil.move(path, tempfile.mkdtemp(prefix="duragent-quarantine-"))
                said.append(f"{path} must not be made by a command; it was moved to {kept}")
            except OSError as error:
                said.append(f"{path} must not be made by a command, and could not be taken away: {error}")
    return "".join(f"\n[{each}]\n" for each in said).encode("utf-8", "surrogateescape")
