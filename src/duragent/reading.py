"""Reads files that a stranger may have written, and says why when it will not.

Knows bytes, links and limits. Never follows a link out of the root, never waits on a FIFO, never reads
more than the cap. Does not know what the files mean: that is `formats/`.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator

from duragent.agent import Level
from duragent.formats.shape import Absent, Blob, Entry, File, Folder, Problem

MAX_TEXT = 1 << 20
MAX_BLOB = 64 << 20
MAX_NAMES = 5_000
MAX_FOLDERS_DEEP = 16


def is_stand_in(path: str) -> bool:
    """Whether a sandbox has put an empty file here for as long as a command runs, so that none can be made: it is
    nobody's word. It is dated to the beginning of time."""
    try:
        about = os.stat(path)
    except (OSError, ValueError):
        return False
    return about.st_size == 0 and about.st_mtime_ns == 0


class Disk:
    """One agent's folder. `notes` collects what is odd about the files themselves."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.real_root = os.path.realpath(root)
        self.notes: list[Problem] = []

    def path(self, name: str) -> str:
        return os.path.normpath(os.path.join(self.root, name)) if name else self.root

    def text(self, name: str, *, inside: bool = True) -> Entry:
        """A file's text: UTF-8, LF line ends, no byte order mark."""
        found = self._bytes(name, MAX_TEXT, inside=inside)
        if isinstance(found, Absent):
            return found
        data, executable = found
        return self.decode(name, data, executable)

    def blob(self, name: str, *, inside: bool = True) -> Entry:
        """A file of which only the digest matters. Outside of the folder it must be no link."""
        found = self.raw(name, inside=inside)
        if isinstance(found, Absent):
            return found
        data, executable = found
        return Blob(hashlib.sha256(data).hexdigest(), executable)

    def raw(self, name: str, *, inside: bool = True) -> tuple[bytes, bool] | Absent:
        """A file as it is, and whether it may be run. Outside of the folder it must be no link."""
        if not inside and os.path.islink(self.path(name)):
            return Absent("outside")
        return self._bytes(name, MAX_BLOB, inside=inside)

    def folder(self, name: str, *, inside: bool = True) -> Entry:
        """What a folder holds; `x/**` with everything below it."""
        deep = name.endswith("/**")
        plain = name[:-3] if deep else name
        path = os.path.realpath(self.path(plain))
        if inside and not self._contains(path):
            return Absent("outside")
        try:
            if not deep:
                return Folder(tuple(sorted(name for name, _astray in self._names(path))))
            names: list[str] = []
            for each in self._below(path, "", 0):
                names.append(each)
                if len(names) > MAX_NAMES:
                    return Absent("large", f"more than {MAX_NAMES:,} files")
            return Folder(tuple(sorted(names)))
        except NotADirectoryError:
            return Absent("special", "a folder is wanted")
        except OSError as error:
            return _absent(error)

    def _names(self, path: str) -> Iterator[tuple[str, str]]:
        """What a folder holds, and of a linked folder that is not followed, why."""
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    folder = entry.is_dir()
                    astray = self._astray(entry, path) if folder and entry.is_symlink() else ""
                except OSError:
                    folder, astray = False, ""
                if entry.name.startswith("policy.") and is_stand_in(entry.path):
                    continue
                yield _printable(entry.name) + ("/" if folder and not astray else ""), astray

    def _astray(self, link: os.DirEntry[str], path: str) -> str:
        target = os.path.realpath(link.path)
        if not self._contains(target):
            return "leads out of the agent's folder"
        return "leads in a circle" if f"{path}/".startswith(f"{target}/") else ""

    def _below(self, path: str, prefix: str, depth: int) -> Iterator[str]:
        if depth > MAX_FOLDERS_DEEP:
            return
        here = os.path.relpath(path, self.real_root)
        try:
            names = list(self._names(path))
        except OSError as error:
            if depth == 0:
                raise
            self._note(here, 1, 1, f"cannot be listed ({error.strerror})", "check its name and its permissions")
            return
        for name, astray in names:
            if astray:
                self._note(
                    os.path.join(here, name), 1, 1, f"{astray}; it is not read", "replace the link by a folder", "error"
                )
                continue
            yield prefix + name
            if name.endswith("/"):
                yield from self._below(os.path.join(path, name[:-1]), prefix + name, depth + 1)

    def _contains(self, real: str) -> bool:
        return real == self.real_root or real.startswith(self.real_root.rstrip("/") + "/")

    def _bytes(self, name: str, limit: int, *, inside: bool) -> tuple[bytes, bool] | Absent:
        if "\x00" in name:
            return Absent("missing", "a NUL in its name")
        path = os.path.realpath(self.path(name))
        if inside and not self._contains(path):
            return Absent("outside")
        try:
            # O_NONBLOCK: opening a FIFO must not wait. O_NOFOLLOW: the path was resolved, a link now is a trick.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            return _absent(error)
        try:
            about = os.fstat(handle)
            if stat.S_ISDIR(about.st_mode):
                return Absent("folder")
            if not stat.S_ISREG(about.st_mode):
                return Absent("special", _sort(about.st_mode))
            if about.st_size > limit:
                return Absent("large", f"{about.st_size:,} bytes; at most {limit:,}")
            data = os.read(handle, limit + 1)
            while len(data) <= limit and (more := os.read(handle, limit + 1 - len(data))):
                data += more
        except OSError as error:
            return _absent(error)
        finally:
            os.close(handle)
        if len(data) > limit:
            return Absent("large", f"more than {limit:,} bytes")
        if len(data) != about.st_size and about.st_size:
            return Absent("changed")
        return data, bool(about.st_mode & 0o111)

    def decode(self, name: str, data: bytes, executable: bool = False) -> Entry:
        """Bytes as text, or why they are none. What is odd about them is noted."""
        bom = data.startswith(b"\xef\xbb\xbf")
        if bom:
            data = data[3:]
            self._note(name, 1, 1, "begins with a byte order mark", "save it as UTF-8 without one")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            column = error.start - data.rfind(b"\n", 0, error.start)
            return Absent("encoding", _encoding(data, error), line, column)
        if (nul := text.find("\x00")) >= 0:
            return Absent("nul", "", text.count("\n", 0, nul) + 1, nul - text.rfind("\n", 0, nul))
        if "\r" in text:
            first = text.index("\r")
            line = text.count("\n", 0, first) + 1
            self._note(name, line, first - text.rfind("\n", 0, first), "has Windows line ends", "save it with LF")
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        return File(text, executable, bom)

    def _note(self, name: str, line: int, column: int, text: str, hint: str, level: Level = "warning") -> None:
        self.notes.append(Problem(level, name, line, column, "", text, hint))


def _absent(error: OSError) -> Absent:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Absent("missing")
    if error.errno == errno.ELOOP:
        return Absent("outside", "its links lead in a circle or changed")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return Absent("special")
    return Absent("unreadable", os.strerror(error.errno) if error.errno else str(error))


def _sort(mode: int) -> str:
    kinds = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
    return kinds.get(stat.S_IFMT(mode), "something else")


def _encoding(data: bytes, error: UnicodeDecodeError) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "it looks like UTF-16"
    return f"byte 0x{data[error.start]:02x}"


def _printable(name: str) -> str:
    """A file name that is not UTF-8 is shown with replacement characters; it cannot be asked for."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
