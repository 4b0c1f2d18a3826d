"""`load_agent` and `agent_hash` as the agentspec document shows them.

    from duragent.agentspec import load_agent, agent_hash

    manifest = load_agent("researcher.agent")
    print(agent_hash(manifest))  # ag1:…

What is loaded here is the manifest as it was declared: its base is named, not followed, as in the
reference. `duragent.load_agent` gives the effective agent.
"""

import os

from msgspec import Struct

from duragent.agent import Agent, Json
from duragent.errors import DuragentError, InvalidAgent, NotFound
from duragent.formats.agentspec.manifest import fingerprint, read_manifest
from duragent.formats.reader import Reader
from duragent.formats.shape import Absent, Entry, File, Problem, absence
from duragent.reading import Disk

__all__ = ["Manifest", "agent_hash", "load_agent"]


class Manifest(Struct, frozen=True):
    """A declared manifest: `values` holds every field of the format, defaults included."""

    path: str
    values: dict[str, Json]
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        return str(self.values["name"])

    @property
    def version(self) -> str:
        return str(self.values["version"])

    @property
    def base(self) -> str | None:
        base: str | None = self.values["base"]
        return base


def load_agent(path: str | os.PathLike[str]) -> Manifest:
    """The manifest at `path`: a `.agent` file, or a folder with agent.yaml, SOUL.md and RULES.md."""
    given = os.fspath(path)
    if not os.path.lexists(given):
        raise NotFound(f"{given}: there is nothing here")
    folder = os.path.isdir(given)
    disk = Disk(given if folder else os.path.dirname(given) or ".")
    name = os.path.basename(given)
    if folder:
        name = "agent.yaml" if os.path.lexists(disk.path("agent.yaml")) else "agent.yml"
    reader = Reader(disk.path(name), unknown="warning")
    text = _text(disk.text(name), name, reader)
    soul, rules = (_prose(disk, each, reader) if folder else None for each in ("SOUL.md", "RULES.md"))
    manifest = read_manifest(reader, text, soul=soul, rules=rules) if text is not None else None
    problems = sorted((*disk.notes, *reader.problems), key=lambda each: (each.file, each.line, each.column))
    if manifest is None or not reader.ok():
        raise InvalidAgent(given, [problem for problem in problems if problem.level == "error"])
    return Manifest(given, manifest.values, tuple(problems))


def _prose(disk: Disk, name: str, reader: Reader) -> str | None:
    if not os.path.lexists(disk.path(name)):
        return None
    entry = disk.text(name)
    text = _text(entry, name, reader)
    # The reference hashes a byte order mark, too.
    return "\ufeff" + text if text is not None and isinstance(entry, File) and entry.bom else text


def _text(entry: Entry, name: str, reader: Reader) -> str | None:
    if isinstance(entry, File):
        return entry.text
    if isinstance(entry, Absent):
        reader.problems.append(absence("error", name, entry, file=reader.file, line=1, column=1, at=""))
    return None


def agent_hash(agent: Manifest | Agent) -> str:
    """The `ag1:` fingerprint of a manifest as it was declared, before inheritance."""
    if isinstance(agent, Manifest):
        return fingerprint(agent.values)
    if agent.source.manifest_hash is None:
        raise DuragentError(f"{agent.name} was not read from an agentspec manifest; it has no ag1: fingerprint")
    return agent.source.manifest_hash
