"""Git repositories in a folder, and what git takes commands from in each: hooks, settings, what leads elsewhere.

Reads git's own files and runs no git: that would already do what those files say. A folder is looked through once,
and again where something near its top has changed. There is an end to looking: what lies beyond it is named as
`unseen`, so that it can be kept from being written instead of being forgotten.
"""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from duragent.sandbox import Box
from duragent.sandbox.places import within

FOLDERS, DEPENDENCIES = 12_000, 3_000  # how many are looked into, of people's own and of installed packages
WHOLE, PARTS = 160, 24  # how many folders, and how many repositories in detail: each costs every command mounts
_NEAR = 2  # how deep a change is noticed before a command
_NOTICED = 400
_INSTALLED = {"node_modules", ".venv", "venv", "__pycache__", ".tox", "site-packages", "target"}
_BARE = {"HEAD", "objects", "refs"}
_CONFIG_BYTES = 262_144
_SECTION = re.compile(r"\s*\[\s*([\w.-]+)[^\]]*\]")
_ENTRY = re.compile(r"\s*(hookspath|path|worktreeconfig)\s*=\s*(.*)", re.IGNORECASE)


class Found(Struct, frozen=True):
    """What must not be written, and which folders were not looked into because there are too many."""

    protected: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()


class _Walked(Struct, frozen=True):
    found: Found
    stamps: dict[str, int]


_known: dict[str, _Walked] = {}


def look(folder: str) -> Found:
    """What is in a folder. Remembered until something is added to or taken from a folder near its top."""
    known = _known.get(folder)
    if known is None or any(_stamp(path) != stamp for path, stamp in known.stamps.items()):
        if len(_known) > WHOLE:
            _known.clear()
        known = _known[folder] = _walk(folder)
    return known.found


def completed(box: Box) -> tuple[Box, tuple[str, ...]]:
    """The box with what is there by now, and the folders that nobody looked into, which are only readable in it."""
    if box.whole_disk or not box.writable:
        return box, ()
    found = [look(folder) for folder in box.writable]
    unseen = tuple(path for each in found for path in each.unseen)
    more = [path for each in found for path in each.protected]
    protected = tuple(dict.fromkeys((*box.protected, *more, *unseen)))
    return (box if protected == box.protected else replace(box, protected=protected)), unseen


def _stamp(path: str) -> int:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def _walk(top: str) -> _Walked:
    stamps: dict[str, int] = {}
    repositories: list[tuple[str, str]] = []  # where git's files are, and what they are about
    files: list[str] = []
    own, installed = deque([(top, 0)]), deque[tuple[str, int]]()
    left, spare = FOLDERS, DEPENDENCIES
    while (own and left) or (installed and spare and not own):
        queue = own or installed
        left, spare = (left - 1, spare) if queue is own else (left, spare - 1)
        folder, depth = queue.popleft()
        if depth < _NEAR and len(stamps) < _NOTICED:
            stamps[folder] = _stamp(folder)
        names, folders = _entries(folder)
        if ".git" in folders:
            repositories.append((os.path.join(folder, ".git"), folder))
            if depth < _NEAR:
                stamps[os.path.join(folder, ".git")] = _stamp(os.path.join(folder, ".git"))
        elif ".git" in names:
            files += _leading(os.path.join(folder, ".git"), top)
        if names >= _BARE:
            repositories.append((folder, folder))
            continue
        for name in sorted(folders - {".git"}):
            beside = installed if queue is installed or name in _INSTALLED else own
            beside.append((os.path.join(folder, name), depth + 1))
    protected, more = _protected(top, repositories)
    unseen = [path for path, _ in own]
    return _Walked(Found((*files, *protected), tuple(_fewer([*unseen, *more], top))), stamps)


def _leading(path: str, top: str) -> Iterator[str]:
    """A file that says where the repository is. Where it is a link below the top, its whole folder is kept as it is."""
    if not os.path.islink(path) or os.path.dirname(path) == top:
        yield path
    else:
        yield from _linked(path, os.path.dirname(path), top)


def _linked(path: str, folder: str, top: str) -> Iterator[str]:
    """Instead of a link: the folder it is in, and where it leads to."""
    yield folder
    real = os.path.realpath(path)
    if within(real, top) and not within(top, real):
        yield real


def _entries(folder: str) -> tuple[set[str], set[str]]:
    """The names in a folder, and which of them are folders."""
    names, folders = set(), set()
    with suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            names.add(entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.add(entry.name)
    return names, folders


def _protected(top: str, repositories: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    """What of them is protected part by part, and which folders had better not be written at all."""
    parts, whole = [], []
    real = 0
    for git, about in repositories:
        if not os.path.lexists(os.path.join(git, "HEAD")):
            if about == top:
                parts.append(git)  # nothing yet, and nobody else may make a repository of it
        elif real < PARTS:
            found = list(_of_repository(git, about, top))
            real += 1 + sum(path.endswith("/hooks") for path in found[1:])
            parts += found
        else:
            whole.append(git)
    return parts, whole


def _of_repository(git: str, about: str, top: str) -> Iterator[str]:
    """What git takes commands from, in a repository, its submodules and its other working folders."""
    for path in (os.path.join(git, name) for name in ("hooks", "config", "commondir")):
        yield from _linked(path, git, top) if os.path.islink(path) else (path,)
    yield from _named(git, about, top)
    worktrees = os.path.join(git, "worktrees")
    for name in sorted(_entries(worktrees)[1]):
        inner = (os.path.join(worktrees, name, each) for each in ("commondir", "gitdir", "config.worktree"))
        yield from filter(os.path.lexists, inner)
    modules = deque([os.path.join(git, "modules")])
    for _ in range(DEPENDENCIES):
        if not modules:
            return
        folder = modules.popleft()
        names, folders = _entries(folder)
        if (names - folders) & {"HEAD", "config"}:
            yield from _of_repository(folder, folder, top)
        else:
            modules += [os.path.join(folder, name) for name in sorted(folders)]
    yield os.path.join(git, "modules")  # too many to look into


def _named(git: str, about: str, top: str) -> Iterator[str]:
    """What a repository's settings name: other settings, a folder of hooks."""
    for key, value in _settings(os.path.join(git, "config")):
        if key == "worktreeconfig":
            yield os.path.join(git, "config.worktree")
        elif value and not value.startswith("~"):
            path = os.path.realpath(os.path.join(about if key == "hookspath" else git, value))
            if within(path, top) and path != top:
                yield path


def _settings(path: str) -> Iterator[tuple[str, str]]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(_CONFIG_BYTES).splitlines()
    except OSError:
        return
    section = ""
    for line in lines:
        if head := _SECTION.match(line):
            section = head[1].lower()
            line = line[head.end() :]
        entry = _ENTRY.match(line)
        if entry and (section, entry[1].lower()) in _MEANT:
            yield entry[1].lower(), re.sub(r"\s*[#;].*", "", entry[2]).strip().strip('"')


_MEANT = {("core", "hookspath"), ("include", "path"), ("includeif", "path"), ("extensions", "worktreeconfig")}


def _fewer(folders: Iterable[str], top: str) -> list[str]:
    """Few enough to be mounted one by one: folders that hold them instead, but never the top itself."""
    left = set(folders)
    while len(left) > WHOLE:
        depth = max(path.count("/") for path in left)
        above = {os.path.dirname(path) if path.count("/") == depth else path for path in left}
        if top in above:
            break
        left = above
    return sorted(path for path in left if not any(within(path, each) for each in left if each != path))
