"""Agent file formats: text in, `Agent` out, and back. One package per format, one shape for all.

A format never opens a file. It is handed what has been read so far and answers with a `Parsed` agent
or a `Need` for more. Modules are loaded by name, here and nowhere else, and only when a file name
makes them a candidate, so that checking one file costs one format.

Adding a format: write `formats/<name>/` with `claims`, `parse`, `render` and `SCHEMAS`, and list it below.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Protocol, cast

from duragent.agent import Agent, Json
from duragent.formats.shape import Files, Need, Parsed, Rendered

FORMATS: Mapping[str, tuple[str, ...]] = {
    "duragent": ("agent.yaml", "agent.yml"),
    "agentspec": ("*.agent", "agent.yaml", "agent.yml"),
    "agentdir": ("instructions.md", "agent.acl"),
    "agentmd": ("*.agent.md",),
    "openagentspec": ("*.yaml", "*.yml", "*.json"),
}
"""Each format and the names of the files that may make an agent of it."""


class Format(Protocol):
    SCHEMAS: Mapping[str, Mapping[str, Json]]
    """JSON Schemas for editors, by name."""

    def claims(self, files: Files) -> str | None:
        """Why these files are of this format, or None. May look only at what `files` holds."""

    def parse(self, files: Files) -> Parsed | Need: ...

    def render(self, agent: Agent) -> Rendered: ...


def open_format(name: str) -> Format:
    return cast(Format, import_module(f"duragent.formats.{name}"))


def detect(files: Files) -> dict[str, str]:
    """Every format that claims these files, and why."""
    names = (files.entry,) if files.entry else files.names()
    claimed = {}
    for name, patterns in FORMATS.items():
        if any(fnmatchcase(each.rsplit("/", 1)[-1], pattern) for each in names for pattern in patterns):
            why = open_format(name).claims(files)
            if why is not None:
                claimed[name] = why
    return claimed
