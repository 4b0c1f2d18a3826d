"""Notes on disk: Markdown files in folders, read without following links and written so that none is ever torn.

Owns names, sizes, locks and the order of writes. Refuses to know who may see which folder: that is `memory.py`.
A folder is opened step by step below a base that its owner chose, and no step and no file may be a link: whoever can
plant a link in a memory folder must not be able to have another file read out. What a person edits at the same time
is read as it is; two writers of ours wait for each other on a lock file in the folder.
"""

import errno
import fcntl
import os
import re
import stat
import time
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date

from msgspec import Struct

from duragent.errors import Conflict, StorageFailed

MAX_NOTE_BYTES = 64 << 10
MAX_FILE_BYTES = 1 << 20
MAX_TOPIC = 80
LOCK_SECONDS = 10.0
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MAX_NAME_BYTES = 200  # file systems take 255, and a temporary name is longer
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # a FIFO must not hold us up


class Folder(Struct, frozen=True):
    """A folder: `base` is the owner's word, `parts` are names below it that may be no links."""

    base: str
    parts: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return os.path.join(self.base, *self.parts)

    def inside(self, *names: str) -> "Folder":
        return Folder(self.base, (*self.parts, *names))


class Found(Struct, frozen=True):
    """A file in a folder. `stamp` changes whenever its content may have."""

    folder: Folder
    name: str
    stamp: str

    @property
    def stem(self) -> str:
        return self.name.removesuffix(".md")


class Text(Struct, frozen=True):
    """What was read of a file, and how large it is in all."""

    text: str
    size: int


def topic_name(topic: str) -> str | None:
    """The file name of a topic: letters and digits, everything else is one `-`. None where nothing useful is left."""
    plain = unicodedata.normalize("NFKC", topic).lower()
    kept = "".join(each if each.isalnum() or unicodedata.category(each)[0] == "M" else " " for each in plain)
    name = "-".join(kept.split())
    return name if name and len(name) <= MAX_TOPIC and len(name.encode()) <= _MAX_NAME_BYTES else None


def safe_name(text: str, most: int = 40) -> str:
    """A part of a file name for whatever another program calls its things. Different texts may get the same one."""
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")[:most] or "x"


def is_day(stem: str) -> bool:
    """Whether a file's name is a date that exists."""
    if _DAY.fullmatch(stem):
        with suppress(ValueError):
            return bool(date.fromisoformat(stem))
    return False


def files(folder: Folder) -> list[Found]:
    """The Markdown files of a folder by name; none where there is no such folder. Links are passed over."""
    return listed(folder, ".md")


def listed(folder: Folder, ending: str) -> list[Found]:
    """The files of a folder whose names end like this."""
    found: list[Found] = []
    with _reading(folder.path), _opened(folder) as fd, os.scandir(fd) as entries:
        for entry in entries:
            if entry.name.endswith(ending) and entry.name[0] != "." and entry.is_file(follow_symlinks=False):
                try:
                    at = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed while we look
                    continue
                found.append(Found(folder, entry.name, f"{at.st_mtime_ns}.{at.st_size}.{at.st_ino}"))
    return sorted(found, key=lambda each: each.name)


def read(folder: Folder, name: str, most: int = MAX_FILE_BYTES, *, tail: bool = False) -> Text | None:
    """Up to `most` bytes from the beginning (or the end) of a file. None where there is no such file."""
    with _reading(os.path.join(folder.path, name)), _opened(folder) as fd:
        data, size = _bytes(fd, name, most, tail)
        return Text(data.decode("utf-8", "ignore" if len(data) < size else "replace").replace("\r\n", "\n"), size)
    return None


def replace(folder: Folder, name: str, text: str) -> None:
    """Put a text in a file's place. There is always a whole one: the old or the new."""
    with _writing(folder) as fd:
        _refuse_link(fd, name)
        _put(fd, name, _encoded(text))


def append(folder: Folder, name: str, text: str) -> None:
    """Add a text to a file, after an empty line. Raises `Conflict` where the file would grow too large."""
    data = _encoded(text)
    with _writing(folder) as fd:
        _refuse_link(fd, name)
        try:
            before, size = _bytes(fd, name, MAX_FILE_BYTES, False)
        except FileNotFoundError:
            before, size = b"", 0
        if size + len(data) + 2 > MAX_FILE_BYTES:
            raise Conflict(f"{name} has {size:,} bytes and takes no more: a file of notes has at most 1 MiB.")
        gap = b"" if not before else b"\n" if before.endswith(b"\n") else b"\n\n"
        _put(fd, name, before + gap + data)


def _encoded(text: str) -> bytes:
    whole = text.replace("\0", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace")
    return whole if whole.endswith(b"\n") else whole + b"\n"


def _refuse_link(folder: int, name: str) -> None:
    """A link here was put there by somebody for a reason; to take its place would undo that without a word."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            raise Conflict(f"Nothing was written: {name} is a link or no file. Its owner must put a file there.")


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """What is not there, or is a link, is nothing; everything else that goes wrong is told."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ABSENT:
            raise StorageFailed(f"{path} cannot be read ({error.strerror or error}).") from error


@contextmanager
def _opened(folder: Folder, *, create: bool = False) -> Iterator[int]:
    """The folder, open. A part that is a link counts as one that is not there."""
    if create:
        os.makedirs(folder.base, 0o700, exist_ok=True)
    fd = os.open(folder.base, _FOLDER)
    try:
        for part in folder.parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
                    os.fsync(fd)
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _writing(folder: Folder) -> Iterator[int]:
    """The folder, open, and nobody else of ours writes to it."""
    try:
        with _opened(folder, create=True) as fd:
            lock = os.open(".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=fd)
            try:
                _wait_for(lock, folder.path)
                yield fd
            finally:
                os.close(lock)
    except OSError as error:
        why = error.strerror or str(error)
        raise StorageFailed(f"Nothing was written: {folder.path} cannot be written to ({why}).") from error


def _wait_for(lock: int, path: str) -> None:
    """Take the lock. Not for ever: whoever holds it may have been stopped."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                text = f"Nothing was written: another process has held {path}/.lock for {LOCK_SECONDS:.0f} s."
                raise StorageFailed(text) from None
            time.sleep(0.005)


def _bytes(folder: int, name: str, most: int, tail: bool) -> tuple[bytes, int]:
    fd = os.open(name, _FILE, dir_fd=folder)
    try:
        at = os.fstat(fd)
        if not stat.S_ISREG(at.st_mode):
            raise FileNotFoundError(errno.ENOENT, "is no file", name)
    except BaseException:
        os.close(fd)
        raise
    with os.fdopen(fd, "rb") as file:
        if tail and at.st_size > most:
            file.seek(at.st_size - most)
        return file.read(most), at.st_size


def _put(folder: int, name: str, data: bytes) -> None:
    """Written aside, then renamed. One name for what lies aside, so that a crash leaves at most one behind."""
    aside = f".{name}.tmp"
    with suppress(FileNotFoundError):
        os.unlink(aside, dir_fd=folder)
    fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(aside, dir_fd=folder)  # a full disk gets its space back
        raise
    os.fsync(folder)
