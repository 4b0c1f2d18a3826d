"""Stand-ins for protected paths that do not exist yet, so that there is something to mount over.

Each is empty and dated to the beginning of time, which is how a leftover of a killed runtime is known and taken up
again. Whoever uses one holds a shared lock on it; the last one takes it away, if it still is what it was. Where
nothing can stand in, what a command made is moved aside afterwards.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress

_FILES = (".envrc", ".netrc", ".npmrc", "Makefile", "Justfile")
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

    def close(self) -> bytes:
        """Take the stand-ins away. Returns what is to be said about things that should not have appeared."""
        for path, handle in reversed(self._held):
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # somebody else's command may still need it
                if _is_ours(path, handle):
                    (os.rmdir if stat.S_ISDIR(os.fstat(handle).st_mode) else os.unlink)(path)
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
                handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            except FileNotFoundError:
                continue  # another runtime has just taken it away
            except OSError:
                return True  # somebody's own
            fcntl.flock(handle, fcntl.LOCK_SH)
            if _is_ours(path, handle):
                self._held.append((path, handle))
                return True
            os.close(handle)
            if os.path.lexists(path):
                return True
        return False


def _create(path: str, folder: bool) -> None:
    if folder:
        os.mkdir(path, 0o555)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o444))
    os.utime(path, ns=(0, 0))


def _is_folder(path: str) -> bool:
    name = os.path.basename(path)
    return name not in _FILES and "." not in name[1:]


def _is_ours(path: str, handle: int) -> bool:
    """Whether the file at the path is the open one, as empty and as old as we made it."""
    with suppress(OSError):
        there, held = os.lstat(path), os.fstat(handle)
        if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino) and there.st_mtime_ns == 0:
            return not os.listdir(handle) if stat.S_ISDIR(held.st_mode) else held.st_size == 0
    return False


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
