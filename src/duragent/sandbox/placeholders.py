"""Stand-ins for protected paths that do not exist yet, so that there is something to mount over.

Each is empty and dated to the beginning of time, by which readers tell it from a file of somebody's own: whatever is
put into it outside of the box makes it one. Whoever uses one holds a shared lock on it; the last one takes it away, if
it still is what it was, and the warden does so for a runtime that was killed. A leftover of both is taken up again, or
swept away by name. Also owned here: moving aside what a command made and must not have made.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress

from duragent.sandbox.keeper_main import content_of, is_stand_in, open_stand_in, remove_stand_in

_FILES = {
    *(".envrc", ".netrc", ".npmrc", "HEAD", "Justfile", "Makefile"),
    *("commondir", "config", "config.worktree", "gitdir"),
}
_SUFFIXES = (".json", ".jsonl", ".lock", ".md", ".toml", ".txt", ".yaml", ".yml")
_TRIES = 10
STOOD_IN = (
    *(".claude", ".envrc", ".git", ".idea", ".mcp.json", ".vscode", "HEAD", "duragent.yaml", "policy.yaml"),
    *("policy.local.yaml", ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir"),
)
"""What mostly stands in somewhere: leftovers are looked for by name, since an old empty file may be anybody's."""


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

    def make(self, paths: Sequence[str]) -> list[str]:
        """Stand-ins for these paths. Returns the paths that there is something at now."""
        made: list[str] = []
        for path in paths:
            top = topmost_missing(path) or path
            if top not in made and self._make(top, folder=top != path or _is_folder(path)):
                made.append(top)
        return made

    def held(self) -> list[tuple[str, int, int]]:
        """What is to be taken away: path, device and number of each."""
        abouts = ((path, os.fstat(handle)) for path, handle in self._held)
        return [(path, about.st_dev, about.st_ino) for path, about in abouts]

    def close(self) -> None:
        """Take the stand-ins away."""
        for path, handle in reversed(self._held):
            remove_stand_in(path, handle)
            os.close(handle)
        self._held.clear()

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
        os.utime(path, ns=(0, 0))
        return
    # Without a name first: whoever looks finds either nothing or a whole stand-in.
    try:
        handle = os.open(os.path.dirname(path), os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    except OSError:
        handle = -1  # not every file system can
    try:
        if handle >= 0:
            _fill(handle, path)
            os.link(f"/proc/self/fd/{handle}", path, follow_symlinks=True)
            return
    except FileExistsError:
        raise
    except OSError:
        pass
    finally:
        if handle >= 0:
            os.close(handle)
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644)
    try:
        _fill(handle, path)
    finally:
        os.close(handle)


def _fill(handle: int, path: str) -> None:
    os.write(handle, content_of(path))
    os.utime(handle, ns=(0, 0))


def _is_folder(path: str) -> bool:
    name = os.path.basename(path)
    return name not in _FILES and not name.endswith(_SUFFIXES)


def is_leftover(path: str) -> bool:
    """Whether a stand-in is here: one that is in use, or one that was left by a runtime that was killed."""
    with suppress(OSError):
        if os.lstat(path).st_mtime_ns == 0:
            handle = open_stand_in(path)
            try:
                return is_stand_in(path, handle)
            finally:
                os.close(handle)
    return False


def sweep(folders: Sequence[str]) -> None:
    """Take away what earlier runtimes left in these folders, and nobody uses."""
    for path in (os.path.join(folder, name) for folder in folders for name in STOOD_IN):
        if is_leftover(path):
            with suppress(OSError):
                handle = open_stand_in(path)
                try:
                    remove_stand_in(path, handle)
                finally:
                    os.close(handle)


def take_away(paths: Sequence[str], why: str = "must not be made by a command") -> bytes:
    """Move what is at these paths to where it does no harm. Returns what a person should know of it."""
    said = []
    for path in paths:
        if os.path.lexists(path):
            try:
                said.append(f"{path} {why}; it was {_put_aside(path)}")
            except OSError as error:
                said.append(f"{path} {why}, and could not be taken away: {error}")
    return "".join(f"\n[{each}]\n" for each in said).encode("utf-8", "surrogateescape")


def strayed(paths: Sequence[str]) -> list[str]:
    """Which of these lead git from an ordinary repository to settings elsewhere, and are nobody's stand-ins."""
    leading = [path for path in paths if os.path.basename(path) == "commondir" and os.path.lexists(path)]
    ordinary = [path for path in leading if os.path.isdir(os.path.join(os.path.dirname(path), "objects"))]
    return [path for path in ordinary if not is_leftover(path)]


def _put_aside(path: str) -> str:
    """Rename it, and never copy: it may be a pipe without an end. Where no name will do, remove it."""
    if os.path.isdir(path) and not os.path.islink(path):
        os.chmod(path, 0o700)
    for folder, prefix in ((tempfile.gettempdir(), ""), (os.path.dirname(path), ".")):
        with suppress(OSError):
            kept = tempfile.mkdtemp(prefix=f"{prefix}duragent-quarantine-", dir=folder)
            try:
                moved = os.path.join(kept, os.path.basename(path).lstrip("."))
                os.rename(path, moved)
            except OSError:
                os.rmdir(kept)
                raise
            return f"moved to {moved}"
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)
    return "removed"
