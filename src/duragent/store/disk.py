"""The few ways in which a session's files touch the disk. Each returns when what it did will survive a power cut.

Kept together so that tests can make any one of them fail. Files are 0600 and folders 0700: a session holds what
people said.
"""

import fcntl
import os
import sys
from contextlib import suppress

FILE, FOLDER = 0o600, 0o700


def sync(fd: int) -> None:
    """Wait until what was written is on the disk. macOS only promises that for F_FULLFSYNC."""
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def sync_folder(path: str) -> None:
    """Make the names in a folder survive."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(path: str) -> None:
    """Wait until all of a file is on the disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        sync(fd)
    finally:
        os.close(fd)


def append(path: str, data: bytes, size: int, durable: bool = True) -> int:
    """Add `data` to a file that has `size` bytes, and give its new size.

    If `durable`, the whole file is on the disk afterwards; if not, what was added survives the process but perhaps not
    a power cut. Where it fails nothing was added: a part that was written is taken back.
    """
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if (found := os.fstat(fd).st_size) != size:
            raise OSError(f"the file has {found} bytes where {size} were written: something else wrote to it")
        try:
            if data:
                write_all(fd, data)
            if durable:
                sync(fd)
        except BaseException:
            with suppress(OSError):
                os.ftruncate(fd, size)
                os.fsync(fd)
            raise
    finally:
        os.close(fd)
    return size + len(data)


def write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def create(path: str, data: bytes) -> None:
    """A new file with its content; fails when there is one already."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE)
    try:
        write_all(fd, data)
        sync(fd)
    finally:
        os.close(fd)


def replace(path: str, data: bytes) -> None:
    """Put new content in a file's place: written aside, then renamed, so that there is always a whole one."""
    aside = f"{path}.tmp"
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE)
        try:
            write_all(fd, data)
            sync(fd)
        finally:
            os.close(fd)
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):
            os.unlink(aside)  # a full disk gets its space back
        raise
    sync_folder(os.path.dirname(path))


def cut(path: str, size: int) -> None:
    """Shorten a file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, size)
        sync(fd)
    finally:
        os.close(fd)


def make_folder(path: str) -> None:
    """A folder, and those above it, for its owner alone."""
    if not os.path.isdir(path):
        above = os.path.dirname(path) or "."
        if not os.path.isdir(above):
            make_folder(above)
        with suppress(FileExistsError):
            os.mkdir(path, FOLDER)
        sync_folder(above)


def read(path: str, offset: int = 0) -> bytes:
    with open(path, "rb") as file:
        file.seek(offset)
        return file.read()
