"""The `skill` tool: loads a skill's instructions, reads the files of its package, and runs its scripts.

Owns the way from a skill's name to its folder, and that nothing outside of it is read or run. Which skill is in use
is folded from the log (`core/skills.py`), not kept here. Scripts run in the sandbox, inside the box of the agent's own
commands with the skill's folder to be read; whether a call may run at all is the policy's word.

A new action: a function `_<action>` here, a line in `make` and in `_PERMITTED`, and its effect in `_SPEC`.
"""

import codecs
import json
import os
import stat
from typing import Any

from msgspec.structs import replace

from duragent.agent import Skill
from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.core.skills import absent, find, offered, page
from duragent.errors import NotAllowed, NotFound
from duragent.tools import Scene, Tool
from duragent.tools.host import Host
from duragent.tools.printed import plain
from duragent.tools.shell import NO_SANDBOX, bounded, execute
from duragent.tools.strays import stray

MAX_READ = 65_536
_PAGE = "SKILL.md"
_INTERPRETERS = ("sh", "bash", "dash", "zsh", "python", "python3", "node", "perl", "ruby")
_PERMITTED = {
    "load": ("name",),
    "read": ("name", "file", "offset"),
    "run": ("name", "script", "args", "input"),
    "unload": ("name",),  # there is one at most; to name it does no harm
}
_SPEC = ToolSpec(
    "skill",
    "Work with skills: load one before you use it, then read its files and run its scripts as it says.",
    effects={"load": "pure", "read": "pure", "unload": "pure", "run": "unknown"},
    quiet=("load", "read", "unload"),
    detail=("script", "name"),
)


def make(host: Host) -> Tool | None:
    """The tool, if the agent has a skill that a model may load or that a message can activate."""
    reachable = _reachable(host)
    if not reachable:
        return None
    actions = ["load", "read", "run", "unload"] if _why_not(host) is None else ["load", "read", "unload"]

    parameters = _parameters(actions, sorted(reachable))

    async def run(arguments: dict[str, Any], scene: Scene) -> str | ToolAnswer:
        if wrong := stray(_PERMITTED, parameters, arguments):
            return ToolAnswer(False, wrong)
        try:
            match arguments.get("action"):
                case "load":
                    return _load(host, arguments)
                case "read":
                    return _read(host, arguments)
                case "run":
                    return await _run(host, arguments, scene)
                case "unload":
                    return "No skill is loaded any more."
                case other:
                    raise NotFound(f"There is no action {other!r}; there are {', '.join(actions)}.")
        except (NotAllowed, NotFound) as error:  # the model's mistake, or the owner's word: no tool broke
            return ToolAnswer(False, str(error))

    return Tool(replace(_SPEC, parameters=parameters), run)


def _parameters(actions: list[str], names: list[str]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "action": {"type": "string", "enum": actions},
        "name": {"type": "string", "enum": names, "description": "The skill; not for unload."},
        "file": {"type": "string", "description": "For read: a file of the skill, as load lists it."},
        "offset": {"type": "integer", "minimum": 0, "description": "For read: the byte to begin at."},
    }
    if "run" in actions:
        text = {"type": "string"}
        properties |= {
            "script": {**text, "description": "For run: a file in the skill's scripts folder."},
            "args": {"type": "array", "items": text, "description": "For run: arguments, one by one; no shell."},
            "input": {"type": "object", "description": "For run: what the script reads as JSON on standard input."},
        }
    return {"type": "object", "properties": properties, "required": ["action"], "additionalProperties": False}


def _reachable(host: Host) -> dict[str, Skill]:
    """By name: what the model may load, and what it is shown when a message activates it."""
    agent = host.agent
    activated = {trigger.skill for trigger in agent.triggers} | {each.skill for each in agent.schedules}
    others = [skill for skill in agent.skills if skill.name in activated and not absent(skill)]
    return {skill.name: skill for skill in (*offered(agent), *others)}


def _skill(host: Host, arguments: dict[str, Any], *, loading: bool = False) -> Skill:
    name, reachable = arguments.get("name"), _reachable(host)
    if not isinstance(name, str) or not name:
        raise NotFound(f"Which skill? Give its name: {', '.join(sorted(reachable))}.")
    skill = reachable.get(name)
    if skill is None and find(host.agent, name) is None:
        raise NotFound(f"There is no skill {name!r}; there are {', '.join(sorted(reachable))}.")
    if skill is None or (loading and skill not in offered(host.agent)):
        raise NotAllowed(f"The skill {name} is not for you to load: only a person can start it.")
    return skill


# --- load and read -----------------------------------------------------------------------------------------


def _load(host: Host, arguments: dict[str, Any]) -> str:
    skill = _skill(host, arguments, loading=True)
    folder = _folder(host, skill)
    sizes: dict[str, int] = {}
    for name in skill.files:
        try:
            sizes[name] = os.lstat(os.path.join(folder, name)).st_size
        except OSError:  # it is listed without a size; whoever reads it is told why not
            continue
    return host.redact(plain(page(skill, sizes)))


def _read(host: Host, arguments: dict[str, Any]) -> str:
    skill, name = _skill(host, arguments), arguments.get("file")
    if not isinstance(name, str) or not name:
        raise NotFound("Which file? Give one that load lists.")
    offset = arguments.get("offset") or 0
    if not isinstance(offset, int) or offset < 0:
        raise NotFound("The offset is a number of bytes from the beginning: 0 or more.")
    data, size = _bytes(_inside(host, skill, name), name, offset)
    try:
        text, used = _decoded(data, whole=offset + len(data) >= size, begun=offset > 0)
    except UnicodeDecodeError:
        raise NotFound(f"{name} is no text ({size:,} bytes). A script may be able to use it.") from None
    if not text:
        return f"{name} is empty." if size == 0 else f"{name} has {size:,} bytes: there is nothing at {offset:,}."
    end = offset + used
    if end < size:
        text += f"\n[Cut here: bytes {offset:,} to {end:,} of {size:,}. Go on with offset {end}.]"
    return host.redact(plain(text))


def _decoded(data: bytes, *, whole: bool, begun: bool) -> tuple[str, int]:
    """A piece of a text without half a character at either end, and how many bytes it is; a NUL is no text."""
    start = next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), len(data[:4])) if begun else 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    text = decoder.decode(data[start:], final=whole)
    if (at := data.find(b"\x00")) >= 0:
        raise UnicodeDecodeError("utf-8", data, at, at + 1, "a NUL")
    return text, len(data) - len(decoder.getstate()[0])


def _bytes(path: str, name: str, offset: int) -> tuple[bytes, int]:
    """A piece of a file and how large the file is. Opening does not wait, even where a pipe stands there."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise NotFound(f"{name} cannot be read: {error.strerror}.") from None
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode):
            raise NotFound(f"{name} is no file that can be read.")
        return os.pread(handle, MAX_READ, min(offset, about.st_size)), about.st_size
    finally:
        os.close(handle)


# --- run ---------------------------------------------------------------------------------------------------


def _why_not(host: Host) -> str | None:
    """Why no script may run here; None where one may."""
    trust, abilities = host.agent.trust, host.agent.abilities
    if trust is not None and trust.exec == "none":
        return "Scripts of skills do not run here: the agent's trust says exec: none."
    if abilities is not None and ("sh" in abilities.deny or not {"*", "sh"} & set(abilities.allow)):
        return "Scripts of skills do not run here: the agent is not allowed to run commands (sh)."
    return NO_SANDBOX if host.sandbox is None else None


async def _run(host: Host, arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
    skill = _skill(host, arguments)
    why = _why_not(host)
    if why is not None:
        raise NotAllowed(why)
    script = arguments.get("script")
    if not isinstance(script, str) or not script:
        raise NotFound("Which script? Give one that load lists.")
    args, given = arguments.get("args") or [], arguments.get("input")
    if not isinstance(args, list) or not all(isinstance(each, str) and "\x00" not in each for each in args):
        raise NotFound("The arguments are not as they should be: args is a list of texts.")
    path = _inside(host, skill, script if script.startswith(("scripts/", "/")) else f"scripts/{script}")
    argv = [*_starter(path, script), *args]
    box = bounded(host.box, host.box.limits.seconds)
    box = replace(box, readable=(*box.readable, _folder(host, skill)))
    stdin = b"" if given is None else json.dumps(given).encode()
    return await execute(host, argv, box, scene, script, stdin)


def _starter(path: str, script: str) -> list[str]:
    """How a script is started: by itself if it is executable, else by the interpreter it names."""
    if os.path.isfile(path) and os.access(path, os.X_OK):
        return [path]
    first = _bytes(path, script, 0)[0][:200].split(b"\n", 1)[0]
    words = first[2:].decode("utf-8", "replace").split() if first.startswith(b"#!") else []
    program = next((os.path.basename(w) for w in words if os.path.basename(w) != "env" and not w.startswith("-")), "")
    if program.rstrip("0123456789.") not in _INTERPRETERS and program not in _INTERPRETERS:
        raise NotAllowed(f"{script} is not executable. Its owner can mend that: chmod +x {path}")
    return [*words, path]


# --- where a skill is --------------------------------------------------------------------------------------


def _folder(host: Host, skill: Skill) -> str:
    """The real folder of a skill's files."""
    return os.path.realpath(os.path.join(host.home, os.path.dirname(skill.path)))


def _inside(host: Host, skill: Skill, name: str) -> str:
    """The real path of a file of a skill. A single Markdown file has no folder of its own: only itself is its own."""
    folder, own = _folder(host, skill), os.path.basename(skill.path)
    parts = name.split("/")
    if os.path.isabs(name) or ".." in parts or "\x00" in name or (own != _PAGE and name != own):
        raise NotAllowed(f"{name!r} is not inside the skill {skill.name}.")
    path = os.path.realpath(os.path.join(folder, *parts))
    if not path.startswith(f"{folder.rstrip('/')}/"):
        raise NotAllowed(f"{name!r} is not inside the skill {skill.name}.")
    if not os.path.lexists(path):
        listed = ", ".join(skill.files[:20]) or "none"
        raise NotFound(f"The skill {skill.name} has no file {name!r}; there are: {listed}.")
    return path
