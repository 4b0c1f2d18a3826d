"""The box of an agent: what its trust and abilities, its owner's settings and this workspace come to.

An agent's file can only narrow: what it names never reaches a home folder, the machine's own folders, or what steers
the agent. Whatever the trust is, an agent's own files, policies, sessions and settings, and the places from which
other programs take commands (git hooks, editor and shell settings), are not writable. The workspace and all memory
are hidden, except what an agent's own programs are made of: a command knows only what it is told in its session.

Knows no backend. Looks at the disk for what is there, and changes nothing.
"""

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from msgspec import Struct

from duragent.agent import Abilities, Agent
from duragent.errors import NotAllowed
from duragent.sandbox import Box, Network
from duragent.sandbox.environment import environment_of
from duragent.sandbox.places import PRIVATE_TMP, within
from duragent.sandbox.proxy import common
from duragent.sandbox.repositories import look

Reach = Literal["none", "scoped", "allowed"]
_ORDER: tuple[Reach, ...] = ("none", "scoped", "allowed")
_NETWORKS: Mapping[Reach, Network] = {"none": "none", "scoped": "hosts", "allowed": "all"}
_HOST = re.compile(r"(\*\.)?([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*(:\d+)?", re.IGNORECASE)
_STEERING = ("duragent.yaml", ".envrc", ".mcp.json", ".vscode", ".claude")
_ONCE_THERE = (".idea", "policy.yaml", "policy.local.yaml")  # protected where it exists; not worth a stand-in elsewhere
STATE_FOLDERS = ("artifacts", "memory", "policies", "processes", "schedules", "sessions", "work")
STATE_FILES = ("chat_history", "notifications.jsonl")
"""What the program keeps in a workspace and commands do not see. All else in it is the owner's, perhaps under git."""
_MACHINE = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/root", "/run", "/sbin", "/sys"),
    *("/usr", "/var"),
)


class Places(Struct, frozen=True):
    """Where the things of one agent are."""

    workdir: str
    home: str  # the folder of its own files
    workspace: str  # where the program keeps state
    sessions_dir: str
    agents_dir: str
    config_file: str | None = None
    person_home: str = ""
    memory_dirs: tuple[str, ...] = ()  # wherever memory really is: of this agent, of its chats, of all agents
    secret_files: tuple[str, ...] = ()  # files with tokens in them: nobody's to read, also with the whole disk


def demands(agent: Agent) -> str:
    """Why this agent must not run its commands without a sandbox; nothing where it may."""
    trust, abilities = agent.trust, agent.abilities
    if trust is not None:
        if trust.exec == "sandboxed":
            return "trust.exec: sandboxed"
        if trust.filesystem != "full":
            return f"trust.filesystem: {trust.filesystem}"
        if trust.network != "allowed":
            return f"trust.network: {trust.network}"
    for name in ("fs", "network") if abilities is not None else ():
        if not _may(abilities, name):
            return f"its abilities do not allow {name}"
    return ""


def box_of(
    agent: Agent,
    places: Places,
    *,
    network: Literal["trust", "none", "scoped", "allowed"] = "trust",
    hosts: tuple[str, ...] = (),
    environ: Mapping[str, str],
    granted: tuple[str, ...] = (),
    files: Literal["workdir", "full"] = "workdir",
) -> Box:
    """What the agent's commands may touch. Raises `NotAllowed` for a scope that nobody may have.

    `network` is the owner's word: the most that an agent which says something itself may have, and what all others get.
    So are `granted`, which variables that look like keys an agent may have if it names them, and `files`: whether
    `trust.filesystem: full` really is the whole disk, or no more than the folder in which the agent works.
    """
    workdir = os.path.realpath(places.workdir)
    reach, names = _reach(agent, workdir, network, hosts)
    box = _files(agent, workdir, places, files)
    written = ("/",) if box.whole_disk else box.writable
    shown = () if box.whole_disk else tuple(_shown(agent, places))
    veiled = (*(() if box.whole_disk else _veiled(places, workdir)), *map(os.path.realpath, places.secret_files))
    return Box(
        cwd=box.cwd,
        readable=_unique((*shown, *box.readable)),
        writable=box.writable,
        hidden=_unique((*box.hidden, *veiled)),
        protected=_unique(_protected(agent, places, workdir, written, environ)),
        whole_disk=box.whole_disk,
        network=_NETWORKS[reach],
        hosts=names if reach == "scoped" else (),
        environment=environment_of(agent, environ, places.person_home if box.whole_disk else "", granted),
    )


def _may(abilities: Abilities | None, name: str) -> bool:
    return abilities is None or (name not in abilities.deny and ("*" in abilities.allow or name in abilities.allow))


def _unique(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


# --- files ----------------------------------------------------------------------------------------------------


def _files(agent: Agent, workdir: str, places: Places, files: str) -> Box:
    """Only what concerns files."""
    kind = agent.trust.filesystem if agent.trust is not None else "workdir"
    if not _may(agent.abilities, "fs"):
        kind = "none"
    if kind == "none":
        return Box(cwd=PRIVATE_TMP, hidden=(workdir,))
    if kind == "full" and files == "full":
        return Box(cwd=workdir, whole_disk=True)
    paths = tuple(_scope(agent, workdir, places)) if kind in ("scoped", "read-only") else ()
    if kind == "scoped" and not paths:
        return Box(cwd=PRIVATE_TMP, hidden=(workdir,))  # a list of nothing grants nothing
    whole = not paths or workdir in paths
    granted = (workdir,) if whole else paths
    hidden = () if whole else (workdir,)
    if kind == "read-only":
        return Box(cwd=workdir, readable=granted, hidden=hidden)
    return Box(cwd=workdir, writable=granted, hidden=hidden)


def _scope(agent: Agent, workdir: str, places: Places) -> Iterator[str]:
    for entry in agent.trust.scope if agent.trust is not None else ():
        if _host(entry, agent, workdir):
            continue
        path = os.path.normpath(os.path.join(workdir, entry))
        real = os.path.realpath(path)
        why = _why_not(entry, path, real, workdir, places)
        if not why and agent.trust is not None and agent.trust.filesystem == "scoped":
            why = _steers_others(real, workdir)
        if why:
            raise NotAllowed(
                f"{agent.name}: trust.scope {entry!r} cannot be granted: {why}. Name a folder inside {workdir}, or a "
                "whole path to a folder made for the agent"
            )
        yield real


def _why_not(entry: str, path: str, real: str, workdir: str, places: Places) -> str:
    if entry.startswith("~") or "$" in entry:
        return "only plain paths are understood"
    if real != path and not (os.path.isabs(entry) and within(real, workdir)):
        return f"a symbolic link leads from there to {real}"
    if within(real, workdir):
        return _why_not_inside(real, workdir, places)
    if not os.path.isabs(entry):
        return "it leads out of the folder the agent works in"
    home = os.path.realpath(places.person_home) if places.person_home else ""
    if os.path.dirname(real) == "/" or any(within(real, each) for each in _MACHINE if each != home):
        return "it belongs to this machine"
    for each in filter(None, (home, *map(os.path.realpath, _kept(places)))):
        if within(each, real):
            return f"it holds {each}"
    if any(within(real, os.path.realpath(each)) for each in _kept(places)):
        return "the agent is steered from there"
    if home and within(real, home) and os.path.relpath(real, home).startswith("."):
        return "people keep their keys and settings there"
    return ""


def _why_not_inside(real: str, workdir: str, places: Places) -> str:
    kept = (*map(os.path.realpath, _kept(places)), *_veiled(places, workdir))
    inner = [each for each in kept if within(each, workdir) and each != workdir]
    if any(within(real, each) for each in inner):
        return "the agent is steered from there"
    held = next((each for each in inner if within(each, real)), "") if real != workdir else ""
    return f"it holds {held}" if held else ""


def _steers_others(real: str, workdir: str) -> str:
    """Why a folder cannot be written although it is inside: other programs take commands from it."""
    parts = os.path.relpath(real, workdir).split("/") if within(real, workdir) else real.split("/")
    named = next((each for each in (".git", *_STEERING, *_ONCE_THERE) if each in parts), "")
    return f"other programs take commands from {named}" if named else ""


def _kept(places: Places) -> list[str]:
    """What steers agents, and what they remember, wherever it is."""
    folders = [places.home, places.agents_dir, places.workspace, places.sessions_dir, *places.memory_dirs]
    return [each for each in (*folders, places.config_file or "", *places.secret_files) if each]


def _shown(agent: Agent, places: Places) -> Iterator[str]:
    """What an agent's programs are made of: they must be able to run, also from a hidden home or workspace."""
    home, workspace = os.path.realpath(places.home), os.path.realpath(places.workspace)
    if home in (workspace, os.path.realpath(places.agents_dir)):
        # One file among those of others: only what it was read from is its own.
        own = [os.path.realpath(os.path.join(home, name)) for name in agent.source.files]
        candidates = [path for path in own if within(path, home) and os.path.isfile(path)]
    else:
        candidates = [home]
    candidates += [os.path.realpath(os.path.join(workspace, name)) for name in ("tools", "skills")]
    person = os.path.realpath(places.person_home) if places.person_home else "/"
    for path in candidates:
        if os.path.exists(path) and not within(person, path):
            yield path


def _veiled(places: Places, workdir: str) -> Iterator[str]:
    """What was said elsewhere: commands of one session do not read it in another's name."""
    home, workspace, agents = map(os.path.realpath, (places.home, places.workspace, places.agents_dir))
    named = [*_state(workspace, workdir), places.sessions_dir, *places.memory_dirs]
    named += [os.path.join(workspace, "memory"), os.path.join(workspace, "skills", "quarantine")]
    if home != workdir or not places.memory_dirs:
        named.append(os.path.join(home, "memory"))
    named += glob.glob(os.path.join(glob.escape(agents), "*", "memory")) if within(agents, workdir) else [agents]
    for path in map(os.path.realpath, named):
        if path not in ("/", workdir):
            yield path


def _state(workspace: str, workdir: str) -> list[str]:
    """What the program keeps: the whole workspace; where that lies in the folder commands work in, what it has in it.
    To git, what is hidden looks deleted, so what people keep under git there stays in sight."""
    names = (*STATE_FOLDERS, *STATE_FILES)
    return [os.path.join(workspace, name) for name in names] if within(workspace, workdir) else [workspace]


# --- what steers ------------------------------------------------------------------------------------------------


def _protected(
    agent: Agent, places: Places, workdir: str, writable: tuple[str, ...], environ: Mapping[str, str]
) -> Iterator[str]:
    """Everything in a writable folder that must not be written."""
    for path in (
        *_steering(agent, places, workdir),
        *_repositories(workdir, below="/" in writable),
        *_programs(environ, writable),
    ):
        if path != workdir and any(within(path, each) for each in writable):
            yield path


def _steering(agent: Agent, places: Places, workdir: str) -> Iterator[str]:
    home = os.path.realpath(places.home)
    workspace = os.path.realpath(places.workspace)
    programs = [os.path.join(workspace, name) for name in ("tools", "skills")] if workspace == workdir else []
    for folder in map(os.path.realpath, (*_kept(places), *_state(workspace, workdir), *programs)):
        if not within(workdir, folder):
            yield folder
    for name in agent.source.files:
        yield os.path.normpath(os.path.join(home, name))
    if os.path.isfile(agent.source.path):
        yield os.path.realpath(agent.source.path)
    for name in ("policy.yaml", "policy.local.yaml"):
        yield os.path.join(home, name)
    yield from (os.path.join(workdir, name) for name in _STEERING)
    for path in (os.path.join(workdir, name) for name in _ONCE_THERE):
        if os.path.lexists(path) or workspace == workdir:
            yield path


def _repositories(workdir: str, *, below: bool) -> Iterator[str]:
    """What git takes commands from in this folder; where there is no repository, what would make it one.

    Those `below` come and go, and a backend that keeps to folders looks for them before each command.
    """
    if not os.path.lexists(os.path.join(workdir, ".git")):
        yield from (os.path.join(workdir, name) for name in (".git", "HEAD"))
    own = os.path.join(workdir, ".git")
    yield from (path for path in look(workdir).protected if below or within(path, own))


def _programs(environ: Mapping[str, str], writable: tuple[str, ...]) -> Iterator[str]:
    """What this very program is made of, and where a person's programs are: it runs outside of every box."""
    package = Path(__file__).parents[1]
    own = [str(package), *([str(package.parent)] if package.parent.name.endswith("-packages") else [])]
    if sys.prefix != sys.base_prefix:
        own += [sys.prefix, sys.exec_prefix, os.path.dirname(sys.executable)]
    if writable != ("/",):
        own += [sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.path.realpath(sys.executable))]
        own += [each for each in environ.get("PATH", "").split(":") if os.path.isabs(each)]
    for path in own:
        if os.path.isdir(path):
            yield os.path.realpath(path)


# --- network ----------------------------------------------------------------------------------------------------


def _reach(agent: Agent, workdir: str, owner: str, hosts: tuple[str, ...]) -> tuple[Reach, tuple[str, ...]]:
    """How far its commands reach, and for `scoped` to which hosts."""
    own = _own_reach(agent)
    named = _unique(filter(None, (_host(each, agent, workdir) for each in agent.trust.scope))) if agent.trust else ()
    if owner == "trust":
        return own or "none", _unique((*named, *hosts))
    said: Reach = next(each for each in _ORDER if each == owner)
    reach = said if own is None else min(own, said, key=_ORDER.index)
    if said == "scoped" and own == "scoped" and named:
        # Both have a list: the owner's is the most that there is.
        return reach, common(named, hosts)
    return reach, named if own == "scoped" and said == "allowed" else hosts


def _own_reach(agent: Agent) -> Reach | None:
    """What the agent itself says; None where it says nothing."""
    if not _may(agent.abilities, "network"):
        return "none"
    if agent.trust is not None:
        return agent.trust.network
    return "allowed" if agent.abilities is not None else None


def _host(entry: str, agent: Agent, workdir: str) -> str:
    """The host that an entry of a scope names; nothing where it names a path."""
    if "://" in entry:
        parts = urlsplit(entry)
        with suppress(ValueError):  # a port that is none
            return f"{parts.hostname}:{parts.port}" if parts.hostname and parts.port else parts.hostname or ""
        return ""
    if agent.trust is None or agent.trust.network != "scoped" or not _HOST.fullmatch(entry):
        return ""
    if agent.trust.filesystem in ("scoped", "read-only") and os.path.lexists(os.path.join(workdir, entry)):
        return ""
    return entry.lower()
