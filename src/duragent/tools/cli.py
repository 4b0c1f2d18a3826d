"""Programs as tools: those an agent declares (`type: cli`) and those found as `tools/<name>/run*`, its own and the
workspace's.

Finds them, says why one is not offered, and runs them in the agent's box with the tool's own folder readable.
Arguments are a list, or one JSON object on standard input; no shell ever reads them. A program works where the agent
works; its own folder is in DURAGENT_TOOL_DIR. A README is not told to the model before it asks (`help.py`).
"""

import os
import re
import shlex
import shutil
from collections.abc import Iterable
from typing import Any, Literal

from msgspec import Struct
from msgspec.json import Encoder
from msgspec.structs import replace

from duragent.agent import BUILTINS, CliTool, DiscoveredTool
from duragent.agent import Tool as AgentTool
from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.sandbox import Box
from duragent.tools import Scene, Tool, help
from duragent.tools.host import Host
from duragent.tools.printed import decoded, plain
from duragent.tools.shell import bounded, execute

OURS = frozenset({*BUILTINS, "skill", "tool_help"})
"""Names that a program found in a folder cannot take."""
MAX_DESCRIPTION = 300
PARAMETERS = {
    "type": "object",
    "properties": {
        "args": {
            "type": "array",
            "items": {"type": "string", "maxLength": 100_000},
            "maxItems": 1_000,
            "description": "Arguments of the program, one by one. No shell reads them: nothing needs quoting.",
        },
        "input": {
            "type": "object",
            "description": "In place of args: one object that the program reads as JSON from its standard input.",
        },
    },
    "additionalProperties": False,
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_RUN = re.compile(r"run(?:\.[^/]+)?")
_SENTENCE = re.compile(r"(.+?[.!?])(?:\s|$)")
_encode = Encoder().encode


class Program(Struct, frozen=True):
    """A program that is offered: what is executed, and what of the disk is its own."""

    name: str
    argv: tuple[str, ...]
    own: str  # the folder, or the one file, that it may read beside the agent's box; "" for a program of the system
    description: str
    readme: str | None
    source: Literal["declared", "agent", "workspace"]


class Roots:
    """Where tools live, links followed: the agent's folder, and the one for tools of the whole workspace."""

    def __init__(self, host: Host) -> None:
        self.home = os.path.realpath(host.home)
        self.shared = os.path.realpath(os.path.join(host.workspace, "tools"))
        self._walked: dict[str, str] = {}  # the files of a tool share most of the way to them

    def real(self, path: str) -> str:
        """Where a path leads."""
        if os.path.islink(path):
            return os.path.realpath(path)
        folder, name = os.path.split(path)
        if folder not in self._walked:
            self._walked[folder] = os.path.realpath(folder)
        return os.path.join(self._walked[folder], name)


class Found(Struct, frozen=True):
    """What there is, why something else is not offered, and where was looked."""

    programs: tuple[Program, ...]
    notes: tuple[str, ...]
    folders: tuple[str, ...]


def make_all(host: Host, tools: Iterable[AgentTool]) -> tuple[list[Tool], list[str]]:
    """The programs of an agent as tools, `tool_help` with them where one has a README, and why others are missing."""
    found = find(host, tools)
    readmes = {each.name: each.readme for each in found.programs if each.readme}
    made = [_make(host, program) for program in found.programs]
    return made + ([help.make(host, readmes)] if readmes else []), list(found.notes)


def find(host: Host, tools: Iterable[AgentTool]) -> Found:
    """Every program by its name: a declared one before the agent's own folder, that before the workspace's."""
    listed = list(tools)
    folders = _folders(host)
    roots = Roots(host)
    programs: dict[str, Program] = {}
    notes: list[str] = []

    def offer(tool: CliTool | DiscoveredTool, source: Literal["declared", "agent", "workspace"]) -> None:
        if tool.name in programs:
            return
        if source != "declared" and (tool.name in OURS or not _NAME.fullmatch(tool.name)):
            why = "the name belongs to a builtin tool" if tool.name in OURS else "use letters, digits, - and _ only"
            notes.append(f"Not offered: {plain(tool.command)} cannot be called {plain(tool.name)}; {why}.")
            return
        made = _program(host, roots, tool, source)
        if isinstance(made, str):
            notes.append(f"Not offered: {tool.name}. {made}")
        else:
            programs[tool.name] = made

    for tool in listed:
        if isinstance(tool, CliTool):
            offer(tool, "declared")
    own = {tool.name: tool for tool in listed if isinstance(tool, DiscoveredTool)}
    if folders[0][1] == "agent":  # what is there now counts, not what was there when the agent was read
        own = {tool.name: tool for tool in discover(folders[0][0]) if _inside(roots.real(tool.command), roots.home)}
    for tool in own.values():
        offer(tool, "agent")
    for tool in discover(os.path.join(host.workspace, "tools")):
        offer(tool, "workspace")
    return Found(tuple(programs.values()), tuple(notes), tuple(path for path, _ in folders))


def discover(folder: str) -> list[DiscoveredTool]:
    """The programs `<folder>/<name>/run`, or else the first `run.*`, in the order of their names."""
    found = []
    for name, names in _listing(folder):
        runs = sorted(each for each in names if _RUN.fullmatch(each))
        if runs:
            path = os.path.join(folder, name)
            readme = os.path.join(path, "README.md") if "README.md" in names else None
            found.append(DiscoveredTool(name, os.path.join(path, runs[0]), readme))
    return found


def stamp(host: Host, tools: Iterable[AgentTool]) -> tuple[object, ...]:
    """A value that is another one when anything changed that `find` has looked at."""
    seen: list[object] = []
    for folder, _ in _folders(host):
        seen.append(_look(folder))
        for name, names in _listing(folder):
            path = os.path.join(folder, name)
            parts = sorted(each for each in names if each == "README.md" or _RUN.fullmatch(each))
            seen += [name, *(_look(os.path.join(path, each)) for each in parts), *parts]
    for tool in tools:
        if isinstance(tool, CliTool | DiscoveredTool):
            paths = [*tool.command.split(maxsplit=1)[:1], *([tool.readme] if tool.readme else [])]
            seen += [tool, *(_look(os.path.join(host.home, path)) for path in paths)]
    return tuple(seen)


def _folders(host: Host) -> list[tuple[str, str]]:
    """Where programs are found. `tools/` beside an agent means something else in the other formats."""
    own = [(os.path.join(host.home, "tools"), "agent")] if host.agent.source.format == "duragent" else []
    return [*own, (os.path.join(host.workspace, "tools"), "workspace")]


def _listing(folder: str) -> list[tuple[str, list[str]]]:
    """The folders in a folder and what is in each. What cannot be read is not there."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(each.name for each in entries if not each.name.startswith(".") and each.is_dir())
    except OSError:
        return []
    listed = []
    for name in names:
        try:
            listed.append((name, os.listdir(os.path.join(folder, name))))
        except OSError:
            continue
    return listed


def _look(path: str) -> tuple[int, ...]:
    try:
        state = os.stat(path)
    except OSError:
        return ()
    return state.st_mtime_ns, state.st_size, state.st_mode, state.st_ino


def _program(
    host: Host, roots: Roots, tool: CliTool | DiscoveredTool, source: Literal["declared", "agent", "workspace"]
) -> Program | str:
    """The program behind a tool, or why it cannot be run."""
    if isinstance(tool, DiscoveredTool):
        words = [tool.command]
    else:
        try:
            words = shlex.split(tool.command)
        except ValueError as error:
            return f"Its command cannot be read ({str(error).lower()}): {plain(tool.command)}"
    if not words:
        return "Its command is empty: name the program to run."
    path = os.path.join(host.home, words[0])
    if "/" not in words[0] and not os.path.isfile(path):
        if shutil.which(words[0], path=host.box.environment.get("PATH", os.defpath)) is None:
            return f"There is no program {words[0]}, neither in the agent's folder nor on the PATH."
        own = ""
    else:
        path = os.path.normpath(path)
        if not os.path.isfile(path):
            return f"There is no file {path}."
        if not os.access(path, os.X_OK):
            return f"{path} is not executable. Try: chmod +x {shlex.quote(path)}"
        words[0], own = path, _own(roots, path)
    readme = os.path.normpath(os.path.join(host.home, tool.readme)) if tool.readme else None
    if readme is not None and not _inside(roots.real(readme), roots.home, roots.shared):
        readme = None
    said = tool.description if isinstance(tool, CliTool) else ""
    about = said or _first_sentence(readme) or f"Runs the program {tool.name}."
    return Program(tool.name, tuple(words), own, about, readme, source)


def _own(roots: Roots, path: str) -> str:
    """What a program may read of its surroundings: its folder, if that is a folder for tools; else itself alone."""
    real = roots.real(path)
    folder = os.path.dirname(real)
    roomy = folder not in (roots.home, roots.shared) and _inside(folder, roots.home, roots.shared)
    return folder if roomy else real


def _inside(real: str, *roots: str) -> bool:
    return any(real == root or real.startswith(f"{root.rstrip('/')}/") for root in roots)


def _first_sentence(readme: str | None) -> str:
    """What a README says first, apart from its heading."""
    if readme is None:
        return ""
    try:
        with open(readme, "rb", buffering=0) as file:
            lines = [line.strip() for line in decoded(file.read(4_096)).splitlines()]
    except OSError:
        return ""
    said = [line for line in lines if line and not line.startswith(("#", "<!--", "[![", "![", "```", "---", "==="))]
    heading = next((line.lstrip("# ") for line in lines if line.startswith("#")), "")
    first = said[0] if said else heading
    sentence = _SENTENCE.match(first)
    return (sentence[1] if sentence else first)[:MAX_DESCRIPTION]


def _make(host: Host, program: Program) -> Tool:
    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        if arguments.get("args") and "input" in arguments:
            return ToolAnswer(False, "Give either args or input: a program gets the one or the other.")
        stdin = _encode(arguments["input"]) + b"\n" if "input" in arguments else b""
        argv = [*program.argv, *arguments.get("args", [])]
        return await execute(host, argv, _box(host, program), scene, program.name, stdin)

    return Tool(ToolSpec(program.name, program.description, PARAMETERS, kind="cli", needs=("tool",)), run)


def _box(host: Host, program: Program) -> Box:
    box = bounded(host.box, host.box.limits.seconds)
    if not program.own:
        return box
    folder = program.own if os.path.isdir(program.own) else os.path.dirname(program.own)
    environment = {**box.environment, "DURAGENT_TOOL_DIR": folder}
    return replace(box, readable=(*box.readable, program.own), environment=environment)
