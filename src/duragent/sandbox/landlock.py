"""Landlock: the kernel keeps a command to the files it was granted; a filter keeps it from sockets and worse.

Needs no package and no privileges, only Linux 5.13 or newer. Weaker than bubblewrap in two ways that its page says:
other processes and their command lines can be seen, and nothing can be cut out of a folder that is granted. So where
something protected lies in a writable folder, the other things in that folder are granted one by one, and what is
protected but does not exist yet is taken away after the command if it made it.
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from duragent.errors import NotAllowed
from duragent.sandbox import Box
from duragent.sandbox.keeper import Order, rlimits
from duragent.sandbox.placeholders import take_away
from duragent.sandbox.places import FACTS, SYSTEM, check, homes, nearest, resolver, secrets, stamps, within
from duragent.sandbox.repositories import completed
from duragent.sandbox.running import Plain, Prepared, Runner, moved, private_folder, remove
from duragent.sandbox.seccomp import build

_CREATE, _ADD = 444, 445
_EXECUTE, _WRITE, _READ, _LIST = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
_LOOK = _EXECUTE | _READ | _LIST
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # how many rights about files each version knows
_TCP = 0b11
_SCOPES = 0b11  # abstract sockets, signals
_DEVICES = {"null": _WRITE, "zero": _WRITE, "full": _WRITE, "random": 0, "urandom": 0}
_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Which Landlock this kernel has; 0 for none."""
    return max(int(_libc.syscall(_CREATE, None, 0, 1)), 0)


class Landlock(Runner):
    name = "landlock"

    def __init__(self) -> None:
        super().__init__()
        self._version = version()

    async def prepare(self, argv: Sequence[str], box: Box) -> Prepared:
        if box.network == "hosts":
            raise NotAllowed(
                "this command may reach only certain hosts, and Landlock cannot tell hosts apart. "
                "Install bubblewrap, or set the network of this agent to none or to allowed"
            )
        check(box)
        box, unseen = completed(box)
        remarks = self.tidied(box, unseen)
        folder = private_folder()
        try:
            ruleset = self._ruleset(box, folder)
        except BaseException:
            remove(folder)
            raise
        cwd, environment = moved(box, folder)
        order = Order(
            argv,
            cwd,
            environment,
            rlimits(box.limits),
            box.limits.processes,
            confined=True,
            powerless=True,
            ruleset=3,
            seccomp=build(sockets=box.network == "all", truncation=self._version >= 3).hex(),
            private=folder,
        )
        return _Watched(order, files=(ruleset,), box=box, remarks=remarks)

    def _ruleset(self, box: Box, folder: str) -> int:
        rights = (1 << _RIGHTS.get(self._version, 16)) - 1
        network = _TCP if self._version >= 4 and box.network == "none" else 0
        scopes = _SCOPES if self._version >= 6 else 0
        size = 24 if self._version >= 6 else 16 if self._version >= 4 else 8
        attributes = struct.pack("=QQQ", rights, network, scopes)
        ruleset = int(_libc.syscall(_CREATE, attributes, size, 0))
        if ruleset < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        for path, granted in _granted(box, folder):
            _grant(ruleset, path, granted & rights)
        return ruleset


def _grant(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return  # gone since it was listed: nothing to grant
    try:
        kind = os.fstat(place).st_mode
        if stat.S_ISLNK(kind):
            return
        rights = rights if stat.S_ISDIR(kind) else rights & _OF_FILES
        if rights and _libc.syscall(_ADD, ruleset, 1, struct.pack("=Qi", rights, place), 0) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    finally:
        os.close(place)


def _granted(box: Box, folder: str) -> Iterator[tuple[str, int]]:
    """Every path with the rights on it and on all below."""
    everything = (1 << 16) - 1 & ~_MAKE_DEVICES
    marks: dict[str, int] = {}
    if box.whole_disk:
        marks["/"] = everything
    else:
        marks |= {os.path.realpath(path): _LOOK for path in (*SYSTEM, *FACTS) if os.path.exists(path)}
        marks |= dict.fromkeys((*homes(), *secrets()), 0)
        marks |= {f"/dev/{name}": _READ | _IOCTL | more for name, more in _DEVICES.items()}
        if box.network == "all" and resolver():
            marks[resolver()] = _READ
    marks |= dict.fromkeys(box.readable, _LOOK)
    marks |= dict.fromkeys(box.writable, everything & ~_IOCTL)
    marks |= dict.fromkeys(map(os.path.realpath, box.hidden), 0)
    for path in (path for path in box.protected if os.path.lexists(path)):
        marks[path] = marks.get(nearest(path, marks), 0) & _LOOK  # never more than what it lies in
    marks[folder] = everything & ~_IOCTL
    for path, rights in marks.items():
        cuts = _cuts(path, rights, marks) if rights else ()
        if rights and path in SYSTEM:
            yield from _spread_once(path, rights, cuts, stamps({path, *map(os.path.dirname, cuts)}))
        elif rights:
            yield from _spread(path, rights, cuts)


def _cuts(path: str, rights: int, marks: Mapping[str, int]) -> tuple[str, ...]:
    """What lies below a path and has less than its rights."""
    return tuple(each for each, less in marks.items() if each != path and within(each, path) and rights & ~less)


@lru_cache(64)
def _spread_once(path: str, rights: int, cuts: tuple[str, ...], changed: tuple[int, ...]) -> list[tuple[str, int]]:
    """The same, remembered until a folder on the way has changed."""
    return list(_spread(path, rights, cuts))


def _spread(path: str, rights: int, cuts: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Rights on all below a path but the cuts: everything beside the way to one is granted by itself."""
    if not cuts:
        yield path, rights
        return
    yield path, rights & _LIST
    with suppress(OSError), os.scandir(path) as found:
        for entry in found:
            inner = [cut for cut in cuts if within(cut, entry.path)]
            if entry.path not in inner and not entry.is_symlink():
                yield from _spread(entry.path, rights, inner)


class _Watched(Plain):
    """Knows what was missing before where the command can write, and takes it away when it has appeared.

    What appears elsewhere is not the command's: the runtime keeps memory and answers to questions while one runs.
    """

    def __init__(self, order: Order, *, files: Sequence[int], box: Box, remarks: bytes = b"") -> None:
        super().__init__(order, files=files)
        self._remarks = remarks
        there = [path for path in box.protected if os.path.lexists(path)]
        closed = {*box.readable, *there, *map(os.path.realpath, box.hidden)} - {*box.writable}
        own = ("", *box.writable) if box.whole_disk else box.writable
        absent = (path for path in box.protected if not os.path.lexists(path))
        self._missing = [path for path in absent if nearest(path, {*closed, *box.writable}) in own]

    def close(self) -> bytes:
        super().close()
        return self._remarks + take_away(self._missing)
