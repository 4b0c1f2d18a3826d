"""Finds and reads agent files and folders: the one module that knows where an agent lives.

`examine` says everything about a path, `load` gives the agent or raises, `find` lists the agents below a
folder. Formats ask for files; this module reads them (`reading.py`), fetches bases (`fetch.py`), and asks again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import islice
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from duragent.agent import Agent, Origin
from duragent.errors import FetchFailed, InvalidAgent, NotFound
from duragent.formats import FORMATS, Format, detect, open_format
from duragent.formats.shape import Absent, Blob, Entry, File, Files, Need, Parsed, Problem, absence, failed, is_address
from duragent.reading import Disk

MAX_ROUNDS = 100
_LOCAL = ("policy.local.yaml",)
_MANIFESTS = ("agent.yaml", "agent.yml", "instructions.md", "agent.acl")
_SINGLE = (".agent", ".agent.md", ".oas.yaml", ".oas.json")
_SKIP = ("node_modules", "__pycache__", "venv", "site-packages")

Fetch = Callable[[str], bytes]


class Examined(Struct, frozen=True):
    """All there is to say about one path. `format` is "" when none, or more than one, claims it."""

    path: str
    format: str
    why: str
    agent: Agent | None
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        return self.agent is not None


def load(path: str | os.PathLike[str], *, fetch: Fetch | None = None) -> Agent:
    """The agent at `path`, in whatever format. Raises `InvalidAgent` with every problem, or `NotFound`."""
    found = examine(path, fetch=fetch)
    if found.agent is None:
        raise InvalidAgent(path, [problem for problem in found.problems if problem.level == "error"])
    return found.agent


def examine(path: str | os.PathLike[str], *, fetch: Fetch | None = None) -> Examined:
    """Everything that can be said about the agent at `path`. Raises only `NotFound`."""
    given = os.fspath(path)
    try:
        os.lstat(given)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{given}: there is nothing here") from None
    except (OSError, ValueError) as error:
        raise NotFound(f"{given}: {getattr(error, 'strerror', None) or error}") from None
    root, entry = _locate(given)
    disk = Disk(root)
    found = _first_look(disk, entry)
    if not entry:
        listing = found[""]
        if isinstance(listing, Absent):
            return _no_agent(given, absence("error", given, listing, file=given, line=1, column=1, at=""))
        if {"agent.yaml", "agent.yml"} <= set(_names(found)):
            return _no_agent(given, _two_manifests(disk, found))
        if not any(name in _MANIFESTS for name in _names(found)):
            below = list(islice(_find_below(root), 6))
            if len(below) == 1 and os.path.isfile(below[0]):
                return replace(examine(below[0], fetch=fetch), path=given)
            if below:
                return _no_agent(given, _several(given, below))
    files = Files(entry, found, _name(root, entry))
    claimed = detect(files)
    if len(claimed) != 1:
        return _no_agent(given, *_shown(disk, [*disk.notes, _unclaimed(files, claimed)]))
    ((name, why),) = claimed.items()
    parsed = _ask(open_format(name), files, found, _Looker(disk, fetch))
    problems = _shown(disk, [*disk.notes, *parsed.problems, *_time_zones(parsed.agent)])
    if parsed.agent is None or failed(problems):
        return Examined(given, name, why, None, problems)
    return Examined(given, name, why, _placed(parsed.agent, name, given, disk, found), problems)


def _no_agent(given: str, *problems: Problem) -> Examined:
    """What there is to say about a path that no format, or more than one, claims."""
    return Examined(given, "", "", None, problems)


def _ask(format: Format, files: Files, found: dict[str, Entry], looker: "_Looker") -> Parsed:
    """Ask the format, look up what it needs, and ask again, until it has seen enough. `files` holds `found`."""
    again: Callable[[Files], Parsed | Need] = format.parse
    for _round in range(MAX_ROUNDS):
        answer = again(files)
        if not isinstance(answer, Need):
            return answer
        found |= looker.look(answer.without(found))
        again = answer.then or format.parse
    text, hint = "it asks for more and more files", "it may inherit too deeply"
    return Parsed(None, (Problem("error", files.entry, 1, 1, "", text, hint),))


def _placed(agent: Agent, format: str, given: str, disk: Disk, found: Mapping[str, Entry]) -> Agent:
    """The agent with where it came from, in paths that a person would type."""
    local = {n: skill.path for n, skill in enumerate(agent.skills) if not is_address(skill.path)}
    places = {f"skills[{n}]": Origin(path, 1, 1) for n, path in local.items()} | dict(agent.origins)
    shown = {file: _show(disk, file) for file in {origin.file for origin in places.values()}}
    source = replace(
        agent.source,
        format=format,
        path=given,
        files=tuple(sorted(path for path, entry in found.items() if isinstance(entry, File | Blob))),
        fingerprint=fingerprint(found),
    )
    origins = {key: Origin(shown[origin.file], origin.line, origin.column) for key, origin in places.items()}
    return replace(agent, source=source, origins=origins)


def _time_zones(agent: Agent | None) -> Iterator[Problem]:
    """Schedules in places that this machine's time zone data does not know."""
    for index, schedule in enumerate(agent.schedules if agent else ()):
        if schedule.timezone is None or agent is None:
            continue
        try:
            import_module("zoneinfo").ZoneInfo(schedule.timezone)
        except (LookupError, OSError, ValueError):
            where = agent.origins.get(f"schedules[{index}].timezone") or agent.origins.get(f"schedules[{index}]")
            where = where or Origin("", 1, 1)
            text = f"there is no time zone {schedule.timezone!r}"
            yield Problem("error", where.file, where.line, where.column, "timezone", text, "e.g. Europe/Paris, or UTC")


def agent_hash(agent: Agent) -> str:
    """What an agent is, in one word: `ag1:…` for agentspec, as its reference computes it; else `sha256:…`."""
    return agent.source.manifest_hash or agent.source.fingerprint


def fingerprint(found: Mapping[str, Entry]) -> str:
    """SHA-256 over everything that belongs to an agent: names, contents (LF, no byte order mark), who may run.

    policy.local.yaml is the owner's and changes with every approval, so it does not belong.
    """
    content = []
    for path, entry in sorted(found.items()):
        if isinstance(entry, File | Blob) and path not in _LOCAL:
            digest = entry.digest if isinstance(entry, Blob) else hashlib.sha256(entry.text.encode()).hexdigest()
            content.append([path, digest, entry.executable])
    return "sha256:" + hashlib.sha256(json.dumps(content).encode()).hexdigest()


def find(path: str | os.PathLike[str]) -> Iterator[str]:
    """The agents at or below `path`, sorted. A folder that is an agent is not searched further."""
    given = os.fspath(path)
    if not os.path.isdir(given):
        yield given
        return
    agents = _find_below(given)
    first = next(agents, None)
    if first is None:
        yield given  # nothing below: let examine say why
        return
    yield first
    yield from agents


def _find_below(folder: str) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        yield folder  # whoever examines it will say why
        return
    if any(entry.name in _MANIFESTS and not entry.is_dir(follow_symlinks=False) for entry in entries):
        yield folder
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            hidden = entry.name.startswith(".") and entry.name != ".duragent"
            if not hidden and entry.name not in _SKIP:
                yield from _find_below(entry.path)
        elif entry.name.endswith(_SINGLE):
            yield entry.path


def _locate(given: str) -> tuple[str, str]:
    if os.path.isdir(given):
        return given, ""
    root, name = os.path.split(given)
    return root or ".", "" if name in ("instructions.md", "agent.acl") else name


def _name(root: str, entry: str) -> str:
    return entry or os.path.basename(os.path.abspath(root)) or "agent"


def _first_look(disk: Disk, entry: str) -> dict[str, Entry]:
    """What the formats need to see before they can claim: names, and the text of what may be a manifest."""
    found: dict[str, Entry] = {"": disk.folder("")}
    names = [entry] if entry else [name for name in _names(found) if _may_be_manifest(name, _names(found))]
    found |= {name: disk.text(name) for name in names}
    return found


def _names(found: Mapping[str, Entry]) -> tuple[str, ...]:
    listing = found[""]
    return () if isinstance(listing, File | Blob | Absent) else listing.names


def _may_be_manifest(name: str, names: Iterable[str]) -> bool:
    if name in _MANIFESTS or name.endswith((".agent", ".agent.md")):
        return True
    return name.endswith((".yaml", ".yml", ".json")) and not any(each in _MANIFESTS for each in names)


def _two_manifests(disk: Disk, found: Mapping[str, Entry]) -> Problem:
    candidates = []
    for name in ("agent.yaml", "agent.yml"):
        claimed = detect(Files(name, found, name))
        candidates.append(f"{name} ({', '.join(claimed) or 'no known format'})")
    text = f"this folder holds two manifests: {' and '.join(candidates)}"
    return Problem("error", disk.path("agent.yml"), 1, 1, "", text, "point at the file you mean, or remove the other")


def _several(given: str, below: list[str]) -> Problem:
    listed = ", ".join(below[:5]) + (", …" if len(below) > 5 else "")
    return Problem("error", given, 1, 1, "", "this folder holds agents but is none itself", f"name one: {listed}")


def _unclaimed(files: Files, claimed: Mapping[str, str]) -> Problem:
    entry = files.entry
    shown = entry or next((name for name in files.names() if name in _MANIFESTS), "")
    absent = files.found.get(shown) if shown else None
    if isinstance(absent, Absent):
        return absence("error", shown, absent, file=shown, line=1, column=1, at="")
    if claimed:
        candidates = "; ".join(f"{name} ({why})" for name, why in claimed.items())
        hint = "point at the file you mean, or remove the other"
        return Problem("error", shown, 1, 1, "", f"this could be more than one format: {candidates}", hint)
    if shown and not (files.text(shown) or "").strip():
        return Problem("error", shown, 1, 1, "", f"{shown} is empty", _WANTED)
    if shown:
        text = f"{shown} is none of the formats {', '.join(FORMATS)}"
        return Problem("error", shown, 1, 1, "", text, _WANTED)
    return Problem("error", "", 1, 1, "", "no agent is here", _WANTED)


_WANTED = (
    "an agent is agent.yaml with `apiVersion: duragent/v1alpha1` or `agent/v1`, a `.agent` file, "
    "a folder with instructions.md, or a `.agent.md` file"
)


def _show(disk: Disk, file: str) -> str:
    return file if is_address(file) else disk.path(file)


def _shown(disk: Disk, problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems with the paths a person would type, errors and warnings in the order of the files."""
    shown = [replace(problem, file=_show(disk, problem.file)) for problem in problems]
    return tuple(dict.fromkeys(sorted(shown, key=lambda each: (each.file, each.line, each.column))))


class _Looker:
    """Looks up what a format needs: inside the folder, elsewhere on disk, in a registry, behind a URL."""

    def __init__(self, disk: Disk, fetch: Fetch | None) -> None:
        self.disk, self.fetch = disk, fetch

    def look(self, need: Need) -> dict[str, Entry]:
        disk = self.disk
        found: dict[str, Entry] = {path: disk.text(path) for path in need.files}
        found |= {path: disk.folder(path) for path in need.folders}
        found |= {path: disk.blob(path) for path in need.blobs}
        found |= {path: disk.blob(path, inside=False) for path in need.attached}
        return found | {path: self.elsewhere(path) for path in need.elsewhere}

    def elsewhere(self, path: str) -> Entry:
        if path.startswith("ag1:"):
            return _registered(path)
        if is_address(path):
            return self.fetched(path)
        if path.endswith("/**") or os.path.isdir(self.disk.path(path)):
            return self.disk.folder(path, inside=False)
        return self.disk.text(path, inside=False)

    def fetched(self, url: str) -> Entry:
        # Loaded by name: TLS and HTTP cost 30 ms, and hardly any agent has a base behind a URL.
        fetch = self.fetch or import_module("duragent.fetch").fetch
        try:
            return self.disk.decode(url, fetch(url))
        except FetchFailed as error:
            return Absent("refused", str(error))


def registries() -> list[Path]:
    """Where fingerprints are looked up: $DURAGENT_REGISTRY, or .duragent/registry and registry here."""
    named = os.environ.get("DURAGENT_REGISTRY", "")
    return [Path(part) for part in named.split(os.pathsep) if part] or [Path(".duragent/registry"), Path("registry")]


def _registered(reference: str) -> Entry:
    """The manifest stored under this `ag1:` fingerprint. That it has it, the format checks."""
    name = reference.replace(":", "_")
    for folder in registries():
        for place in (folder, folder / "agents"):
            disk = Disk(str(place))
            for ending in (".json", ".agent", ".yaml"):
                entry = disk.text(name + ending)
                if isinstance(entry, File):
                    return File(_unwrapped(entry.text))
    looked = ", ".join(str(folder) for folder in registries())
    return Absent("missing", f"looked in {looked}")


def _unwrapped(text: str) -> str:
    """Some registries store `{hash, manifest}`."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(stored, dict) and isinstance(stored.get("manifest"), dict):
        return json.dumps(stored["manifest"])
    return text
