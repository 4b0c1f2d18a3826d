"""Git repositories in a folder, and what git takes commands from in each: hooks, settings, what leads elsewhere.

Reads git's own files and runs no git: that would already do what those files say. A folder is looked through once,
and again where something near its top has changed. There is an end to looking: what lies beyond it is named as
`unseen`, so that it can be kept from being written instead of being forgotten.
"""

import os
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from duragent.sandbox import Box
from duragent.sandbox.places import nearest, within

FOLDERS, DEPENDENCIES = 12_000, 3_000  # how many are looked into, of people's own and of installed packages
WHOLE, PARTS = 160, 24  # how many folders, and how many repositories in detail: each costs every command mounts
_NEAR = 2  # how deep a change is noticed before a command
_NOTICED = 400
_REMEMBERED = 64
_MOMENT_NS = 50_000_000
_INSTALLED = {"node_modules", ".venv", "venv", "__pycache__", ".tox", "site-packages", "target"}
_BARE = {"HEAD", "objects", "refs"}
_CONFIG_BYTES = 262_144
_SECTION = re.compile(r"\s*\[\s*([\w.-]+)[^\]]*\]")
_ENTRY = re.compile(r"\s*(hookspath|path|worktreeconfig)\s*=\s*(.*)", re.IGNORECASE)


class Found(Struct, frozen=True):
    """What must not be written, and which folders were not looked into because there are too many."""

    protected: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    places: tuple[str, ...] = ()  # where git's own files are


_known: dict[str, "_Walk"] = {}
_own: dict[str, tuple[int, ...]] = {}  # what commands made, and by what it is known again


def look(folder: str) -> Found:
    """What is in a folder. Remembered, and looked at again where a folder near its top has changed."""
    if folder not in _known:
        if len(_known) > _REMEMBERED:
            _known.clear()
        _known[folder] = _Walk(folder)
    return _known[folder].found()


def completed(box: Box) -> tuple[Box, tuple[str, ...]]:
    """The box with what is there by now, and the folders that nobody looked into, which are only readable in it."""
    if box.whole_disk or not box.writable:
        return box, ()
    found = [look(folder) for folder in box.writable]
    own = [place for place, marks in _own.items() if _marks(place) == marks]
    unseen = tuple(path for each in found for path in each.unseen if not nearest(path, own))
    more = [path for each in found for path in each.protected if not nearest(path, own)]
    protected = tuple(dict.fromkeys((*box.protected, *more, *unseen)))
    return (box if protected == box.protected else replace(box, protected=protected)), unseen


def seen(box: Box) -> set[str]:
    """Where repositories are in what a command of this box can write."""
    return {place for folder in box.writable for place in look(folder).places} if not box.whole_disk else set()


def claim(places: Iterable[str]) -> None:
    """These were made by a command: they are its own, to be changed and taken away, as long as they are the same."""
    for place in [place for place, marks in _own.items() if _marks(place) != marks]:
        del _own[place]
    _own.update((place, _marks(place)) for place in places)


def _stamp(path: str) -> int:
    """When a folder was last changed. A moment ago could also have been a moment later: that does not count."""
    try:
        changed = os.stat(path, follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0
    return changed if time.time_ns() - changed > _MOMENT_NS else -1


def _marks(place: str) -> tuple[int, ...]:
    """By what a repository is known again: its number on the disk is soon another's, when git made it stays."""
    found = []
    for path in (place, os.path.join(place, "description"), os.path.join(place, "info")):
        try:
            about = os.lstat(path)
            found += [about.st_dev, about.st_ino, 0 if path == place else about.st_mtime_ns]
        except OSError:
            found.append(0)
    return tuple(found)


class _Walk:
    """What is known of one folder."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._near: dict[str, tuple[int, int, set[str]]] = {}  # when it was changed, how deep it is, its folders
        self._repositories: dict[str, str] = {}  # where git's files are, and what they are about
        self._files: set[str] = set()
        self._unseen: list[str] = []
        self._left, self._spare = FOLDERS, DEPENDENCIES
        self._go([(top, 0)])
        self._found = self._summed()

    def found(self) -> Found:
        self._left, self._spare = FOLDERS, DEPENDENCIES  # for each look: folders come and go as long as we live
        changed = [path for path, (stamp, _, _) in self._near.items() if stamp == -1 or _stamp(path) != stamp]
        for path in changed:
            if path in self._near:
                self._look_again(path)
        if changed:
            self._found = self._summed()
        return self._found

    def _look_again(self, folder: str) -> None:
        _, depth, before = self._near[folder]
        for gone in [path for path in self._near if not os.path.isdir(path)]:
            del self._near[gone]
        if os.path.basename(folder) == ".git":
            self._near[folder] = (_stamp(folder), depth, before)
        elif folder in self._near:
            now = self._visit(folder, depth)
            self._go([(os.path.join(folder, name), depth + 1) for name in sorted(now - before)])

    def _go(self, folders: list[tuple[str, int]]) -> None:
        own, installed = deque(folders), deque[tuple[str, int]]()
        while (own and self._left) or (installed and self._spare and not own):
            queue = own or installed
            if queue is own:
                self._left -= 1
            else:
                self._spare -= 1
            folder, depth = queue.popleft()
            for name in sorted(self._visit(folder, depth)):
                beside = installed if queue is installed or name in _INSTALLED else own
                beside.append((os.path.join(folder, name), depth + 1))
        self._unseen += [path for path, _ in own]

    def _visit(self, folder: str, depth: int) -> set[str]:
        """Note what one folder is; the folders in it that are still to be looked into."""
        stamp = _stamp(folder)
        names, folders = _entries(folder)
        git = os.path.join(folder, ".git")
        if ".git" in folders:
            self._repositories[git] = folder
        elif ".git" in names:
            self._files.add(git)
        if names >= _BARE:
            self._repositories[folder] = folder
            folders = set()
        if depth < _NEAR and len(self._near) < _NOTICED:
            self._near[folder] = (stamp, depth, folders - {".git"})
            if ".git" in folders:
                self._near[git] = (_stamp(git), depth, set())
        return folders - {".git"}

    def _summed(self) -> Found:
        there = [(git, about) for git, about in self._repositories.items() if os.path.lexists(git)]
        files = [part for path in sorted(self._files) if os.path.lexists(path) for part in _leading(path, self._top)]
        protected, whole = _protected(self._top, there)
        unseen = _fewer([*filter(os.path.isdir, self._unseen), *whole], self._top)
        real = dict.fromkeys(_real(path, self._top) for path in (*files, *protected))
        return Found(tuple(real), tuple(unseen), tuple(git for git, _ in there))


def _real(path: str, top: str) -> str:
    """The path, or where a link is on its way, the folder with that link: only there it can be kept in its place."""
    real = path
    while os.path.realpath(real) != real and os.path.dirname(real) != top:
        real = os.path.dirname(real)
    return real


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
