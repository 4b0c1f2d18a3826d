"""bubblewrap: a command in namespaces of its own, seeing the disk through mounts that leave out what is not its.

The program `bwrap` builds the box: read-only root, a private /tmp, /run and /dev, homes and keys covered, only the
box's own folders writable. What is protected in them is mounted read-only, and so is every folder on the way to it
pinned in its place, since a folder that could be renamed could be replaced. Owns the list of mounts; the keeper
starts and ends the command.
"""

import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from duragent.core.addresses import is_public
from duragent.errors import NotAllowed
from duragent.sandbox import Box, Ending
from duragent.sandbox.keeper import Order, rlimits
from duragent.sandbox.placeholders import Placeholders, is_leftover
from duragent.sandbox.places import PRIVATE_HOME, PRIVATE_TMP, check, homes, nearest, resolver, secrets, within
from duragent.sandbox.proxy import Lookup, Proxy, lookup
from duragent.sandbox.repositories import completed
from duragent.sandbox.running import Prepared, Runner
from duragent.sandbox.seccomp import build

Kind = Literal["hide", "blank", "fill", "look", "write"]
_ARGUMENTS, _FILTER, _STATUS = 3, 4, 5  # the numbers of our files in bwrap
_FIRST_TEXT = 6
_IGNORED, _IGNORED_SHARED = f"{PRIVATE_HOME}/.config/git/ignore", "/dev/shm/git-ignore"
_SPREAD = 12  # each costs a mount
_LAYERS = 2  # bwrap outside, bwrap as the first process inside
_ALWAYS = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"),
)


class Bubblewrap(Runner):
    name = "bubblewrap"

    def __init__(self, program: str, *, lookup: Lookup = lookup, public: Callable[[str], bool] = is_public) -> None:
        super().__init__()
        self._program, self._lookup, self._public = program, lookup, public
        self._proxies: dict[tuple[str, ...], Proxy] = {}

    async def prepare(self, argv: Sequence[str], box: Box) -> Prepared:
        check(box)
        box, unseen = completed(box)
        self._distrust(box)
        _find(argv[0], box)
        proxy = await self._proxy(box.hosts) if box.network == "hosts" else None
        remarks, holders, texts = self.tidied(box, unseen), Placeholders(), _Texts()
        try:
            mounts = list(_mounts(box, holders, texts, proxy.shown if proxy else []))
            inside = proxy.inside(argv, build(sockets=True)) if proxy else list(argv)
            given = {**_for_git(box), **(proxy.environment if proxy else {})}
            words = [*_ALWAYS, *([] if box.network == "all" else ["--unshare-net"]), *mounts]
            words += [*_kernel(), *_surroundings(box, given)]
            return _Boxed(self._program, words, inside, box, holders, texts, filtered=proxy is None, remarks=remarks)
        except BaseException:
            holders.close()
            texts.close()
            raise

    def _distrust(self, box: Box) -> None:
        """What builds the box works outside of it: it must not come from where commands can write."""
        if not box.whole_disk and nearest(self._program, box.writable) and not nearest(self._program, box.protected):
            raise NotAllowed(
                f"{self._program} lies where this agent's commands can write, so it cannot be what keeps them in. "
                "Install bubblewrap for the machine, or give the agent another folder to work in"
            )

    async def close(self) -> None:
        await super().close()
        for proxy in self._proxies.values():
            await proxy.close()
        self._proxies.clear()

    async def _proxy(self, hosts: tuple[str, ...]) -> Proxy:
        if hosts not in self._proxies:
            self._proxies[hosts] = await Proxy.open(hosts, lookup=self._lookup, public=self._public)
        return self._proxies[hosts]


class _Boxed:
    """A command in its box, ready to start."""

    litter = ""

    def __init__(
        self,
        program: str,
        words: Sequence[str],
        argv: Sequence[str],
        box: Box,
        holders: Placeholders,
        texts: "_Texts",
        *,
        filtered: bool,
        remarks: bytes,
    ) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        arguments = _memory("\0".join(words).encode("utf-8", "surrogateescape"))
        rules = _memory(build(sockets=True) if filtered else b"")
        self.files: Sequence[int] = (arguments, rules, writer, *texts.files)
        self._reader, self._holders, self._argv, self._remarks = reader, holders, argv, remarks
        line = [program, "--args", str(_ARGUMENTS), "--json-status-fd", str(_STATUS)]
        line += ["--seccomp", str(_FILTER)] if filtered else []
        self.order = Order(
            [*line, "--", *argv],
            "/",
            {},
            rlimits(box.limits),
            box.limits.processes,
            skipped=_LAYERS,
            stand_ins=holders.held(),
        )

    def verdict(self, ending: Ending, code: int) -> tuple[Ending, int]:
        if ending == "signalled":
            return ending, code
        if not self._was_started():
            raise OSError(f"{self._argv[0]} could not be started in its box")
        return ("signalled", code - 128) if 128 < code < 160 else ("exited", code)

    def close(self) -> bytes:
        for file in (*self.files, self._reader):
            if file >= 0:
                os.close(file)
        self.files, self._reader = (), -1
        self._holders.close()
        return self._remarks

    def _was_started(self) -> bool:
        """bwrap tells an exit code only of a program that it really executed."""
        try:
            said = os.read(self._reader, 65_536)
        except OSError:
            return False
        return any("exit-code" in json.loads(line) for line in said.splitlines() if line.strip())


class _Texts:
    """Texts that bwrap makes files of inside the box."""

    def __init__(self) -> None:
        self.files: list[int] = []

    def add(self, data: bytes) -> str:
        """The number that the text has in bwrap."""
        self.files.append(_memory(data))
        return str(_FIRST_TEXT + len(self.files) - 1)

    def close(self) -> None:
        for file in self.files:
            os.close(file)


def _memory(data: bytes) -> int:
    handle = os.memfd_create("box", os.MFD_CLOEXEC)
    with open(handle, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _kernel() -> Iterator[str]:
    """A /proc of its own. Root is root there too as far as the settings of the kernel are concerned: it only reads."""
    yield from ("--proc", "/proc")
    if os.geteuid() == 0:
        yield from ("--remount-ro", "/proc")


def _surroundings(box: Box, given: Mapping[str, str]) -> Iterator[str]:
    for name, value in {**box.environment, **given}.items():
        yield from ("--setenv", name, value)
    yield from ("--chdir", box.cwd)


def _find(name: str, box: Box) -> None:
    """Say that a program is missing or cannot run before a box is built for it."""
    if "/" in name:
        candidates = [os.path.join(box.cwd, name)]
    else:
        folders = box.environment.get("PATH", os.defpath).split(":")
        candidates = [os.path.join(box.cwd, folder, name) for folder in folders]
    there = [path for path in candidates if os.path.isfile(path)]
    if not there:
        raise FileNotFoundError(2, os.strerror(2), name)
    if there and not any(os.access(path, os.X_OK) for path in there):
        raise PermissionError(13, os.strerror(13), name)


# --- mounts -------------------------------------------------------------------------------------------------


def _mounts(box: Box, holders: Placeholders, texts: _Texts, shown: Sequence[str]) -> Iterator[str]:
    """All mounts, from the outermost to the innermost, so that the innermost decides."""
    yield from ("--bind" if box.whole_disk else "--ro-bind", "/", "/")
    yield from ("--dev", "/dev")
    marks = _marks(box)
    marks |= dict.fromkeys(shown, "look")
    _protect(box, marks, holders)
    _foresee(box, marks, holders)
    for path, kind in sorted(marks.items(), key=lambda mark: (mark[0].count("/"), mark[0])):
        folder = kind in ("hide", "blank") and _is_folder(path)
        if folder:
            yield from ("--perms", "0555", "--size", "4096", "--tmpfs", path)
        elif kind == "hide":
            yield from ("--ro-bind", "/dev/null", path)
        elif kind == "blank":
            yield from ("--perms", "0444", "--ro-bind-data", texts.add(b""), path)
        elif kind == "fill":
            yield from ("--size", str(box.limits.tmp_bytes), "--tmpfs", path)
        else:
            yield from ("--bind" if kind == "write" else "--ro-bind", path, path)
    if not box.whole_disk:
        yield from ("--dir", PRIVATE_HOME)
    kept_out = [*(path for path, _, _ in holders.held()), *(path for path, kind in marks.items() if kind == "hide")]
    yield from ("--file", texts.add(_ignored(box, kept_out)), _IGNORED_SHARED if box.whole_disk else _IGNORED)
    yield from ("--remount-ro", "/dev")


def _ignored(box: Box, paths: Iterable[str]) -> bytes:
    """For git: what is no part of any project, although it seems to lie there."""
    lines = []
    for path in paths:
        root = nearest(path, (box.cwd, *box.writable))
        if root and root != path and "\n" not in path:
            top = next((each for each in _upwards(path, root) if os.path.lexists(os.path.join(each, ".git"))), root)
            lines.append(f"/{re.sub(r'([][*?#! ])', _BACKSLASHED, os.path.relpath(path, top))}")
    own = os.path.join(box.environment.get("HOME", ""), ".config/git/ignore") if box.whole_disk else ""
    said = b""
    with suppress(OSError), open(own, "rb") as file:
        said = file.read(65_536) + b"\n"
    return said + "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


_BACKSLASHED = r"\\\1"


def _upwards(path: str, root: str) -> Iterator[str]:
    """The folders that a path lies in, up to the root."""
    while path != root:
        path = os.path.dirname(path)
        yield path


def _for_git(box: Box) -> Mapping[str, str]:
    """With a home of its own a command's git finds what to ignore by itself; in a person's it must be told."""
    if not box.whole_disk:
        return {}
    return {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.excludesFile",
        "GIT_CONFIG_VALUE_0": _IGNORED_SHARED,
    }


def _marks(box: Box) -> dict[str, Kind]:
    marks: dict[str, Kind] = {"/dev/shm": "fill"}
    if not box.whole_disk:
        marks |= _existing((PRIVATE_TMP, "/var/tmp"), "fill")
        marks |= _existing(("/run", *homes(), *secrets()), "hide")
        if box.network == "all" and resolver():
            marks[resolver()] = "look"
    marks |= _existing(box.readable, "look")
    marks |= _existing(box.writable, "write")
    marks |= _existing(map(os.path.realpath, box.hidden), "hide")
    return marks


def _existing(paths: Iterable[str], kind: Kind) -> dict[str, Kind]:
    return {path: kind for path in paths if os.path.exists(path)}


def _protect(box: Box, marks: dict[str, Kind], holders: Placeholders) -> None:
    """Mark what is protected, and pin every folder that leads to it."""
    roots = {"/": "write" if box.whole_disk else "look"} | marks
    above = {path: nearest(path, {*roots, *box.protected} - {path}) for path in box.protected}
    endangered = [
        path
        for path, root in above.items()
        if marks.get(path) == "write" or (root not in box.protected and roots[root] == "write")
    ]
    missing = [path for path in endangered if _is_missing(path)]
    made = holders.make(missing)
    for path in [*(path for path in endangered if path not in missing), *made]:
        if marks.get(path) != "hide":
            marks[path] = "look"
        _pin(path, nearest(path, roots.keys() - {path}), marks)


def _foresee(box: Box, marks: dict[str, Kind], holders: Placeholders) -> None:
    """What is hidden and does not exist yet must not be seen either when it appears while the command runs."""
    ground: Kind = "write" if box.whole_disk else "look"
    for path in filter(_is_missing, map(os.path.realpath, box.hidden)):
        root = nearest(path, marks.keys() - {path})
        kind = marks.get(root, ground)
        if kind == "look" and os.path.dirname(path) == root and not within(box.cwd, root) and _spread(root, marks):
            continue
        if kind in ("look", "write"):
            for top in holders.make([path]):
                marks[top] = "blank"
                if kind == "write":
                    _pin(top, root or "/", marks)


def _spread(root: str, marks: dict[str, Kind]) -> bool:
    """Show what is in a folder instead of the folder; False where that is too much, or a link would be followed.

    Nothing has to stand in then: an agent's own folder stays as it is, and is not read again after each command.
    """
    try:
        with os.scandir(root) as found:
            entries = list(found)
    except OSError:
        return False
    if len(entries) > _SPREAD or any(entry.is_symlink() for entry in entries):
        return False
    marks[root] = "hide"
    for entry in entries:
        marks.setdefault(entry.path, "look")
    return True


def _pin(path: str, root: str, marks: dict[str, Kind]) -> None:
    """A folder that could be renamed could be replaced."""
    pinned = os.path.dirname(path)
    while len(pinned) > len(root):
        marks.setdefault(pinned, "write")
        pinned = os.path.dirname(pinned)


def _is_missing(path: str) -> bool:
    return not os.path.lexists(path) or is_leftover(path)


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError:
        return False
