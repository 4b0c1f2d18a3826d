"""What an agent may do: one shape for all tools.

A tool is a `ToolSpec` (what it is) and an async function from arguments to an answer. What it raises becomes its
result; nothing crosses the engine. Plain async functions become tools with `function_tool`. Adding a kind: a module
here that makes `Tool`s, and a line in `tools_of`.
"""

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

from duragent.agent import Agent, BuiltinTool, CliTool, DiscoveredTool, InlineTools
from duragent.agent import Tool as AgentTool
from duragent.core.events import ToolAnswer
from duragent.core.narrowing import withheld
from duragent.core.policy import Effect, ToolSpec
from duragent.tools.host import Host


class Scene(Struct, frozen=True):
    """Where a call happens: what a tool may know of the session, and how it is heard while it works."""

    session_id: str = ""
    call_id: str = ""
    gateway: str | None = None
    chat_id: str | None = None
    sender: str | None = None
    say: Callable[[str], None] = lambda text: None  # output for whoever follows the session now; not kept


NOWHERE = Scene()
Run = Callable[[dict[str, Any], Scene], Awaitable[str | ToolAnswer]]


class Tool(Struct, frozen=True):
    spec: ToolSpec
    run: Run


Toolbox = Mapping[str, Tool]
NO_TOOLS: Toolbox = {}


def function_tool(
    function: Callable[..., Awaitable[Any]],
    *,
    name: str = "",
    description: str = "",
    effect: Effect = "unknown",
    parallel_safe: bool = False,
    ask: bool = False,
) -> Tool:
    """A tool made of an async function: its parameters are the schema, its docstring says what it does.

    `ask` has a person approve each call unless a policy file says otherwise.
    """
    if not inspect.iscoroutinefunction(inspect.unwrap(function)) and not inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__ is as good
    ):
        raise TypeError(f"{name or function!r} is no async function; write `async def`")
    signature = inspect.signature(function)
    spec = ToolSpec(
        name=name or function.__name__,
        description=description or inspect.getdoc(function) or "",
        parameters=_schema(function),
        kind="function",
        effect=effect,
        parallel_safe=parallel_safe,
        unruled="ask" if ask else "allow",
    )

    async def run(arguments: dict[str, Any], scene: Scene) -> str | ToolAnswer:
        try:
            signature.bind(**arguments)
        except TypeError as error:  # the model's mistake, not the tool's: it is told, and can mend it
            return ToolAnswer(False, f"The arguments are not as they should be: {error}")
        answer = await function(**arguments)
        return answer if isinstance(answer, ToolAnswer) else "" if answer is None else str(answer)

    return Tool(spec, run)


def build_toolbox(given: Mapping[str, Tool | Callable[..., Awaitable[Any]]]) -> Toolbox:
    """Tools by their names, in a fixed order."""
    tools = {
        name: tool if isinstance(tool, Tool) else function_tool(tool, name=name) for name, tool in sorted(given.items())
    }
    return tools


_BUILTINS: Mapping[str, str] = {
    "background_process": "processes",
    "bash": "shell",
    "memory": "memory",
    "reload_tools": "reloading",
    "schedule": "schedule",
    "session": "sessions",
    "web": "web",
}
"""Which module makes a builtin tool. They are loaded when an agent has them: a plain chat needs none."""


def runs_programs(agent: Agent, workspace: str) -> bool:
    """Whether any tool of this agent would start a program, as far as its trust and its abilities let it."""
    if withheld(agent, "builtin", ("sh",)) and withheld(agent, "cli", ("tool",)):
        return False
    if any(_is_program(tool) for tool in agent.tools) or any(skill.files for skill in agent.skills):
        return True
    if "bash" in _granted(agent):
        return True
    return os.path.isdir(os.path.join(workspace, "tools"))


def _is_program(tool: AgentTool) -> bool:
    if isinstance(tool, BuiltinTool):
        return tool.name in ("bash", "background_process")
    return isinstance(tool, CliTool | DiscoveredTool)


async def recover_tools(host: Host) -> None:
    """Let the sessions of an agent hear what became of the processes that an earlier runtime left."""
    await import_module("duragent.tools.processes").recover(host)


def stamp_of(host: Host) -> object:
    """What a toolbox was built from on disk: a different one means that it must be built again."""
    return import_module("duragent.tools.cli").stamp(host, host.agent.tools)


def tools_of(agent: Agent, host: Host) -> tuple[Toolbox, tuple[str, ...]]:
    """The tools an agent has here, and why others that it names are not offered."""
    made: list[Tool] = []
    notes: list[str] = []
    wanted = {tool.name for tool in agent.tools if isinstance(tool, BuiltinTool)}
    if agent.memory.long_term is not None:
        wanted.add("memory")
    wanted |= _granted(agent)
    for name in sorted(wanted & set(_BUILTINS)):
        make = import_module(f"duragent.tools.{_BUILTINS[name]}").make
        made.append(make(host, _embedder) if name == "memory" else make(host))
    programs, told = import_module("duragent.tools.cli").make_all(host, agent.tools)
    made += programs
    notes += told
    if agent.skills and (skill := import_module("duragent.tools.skills").make(host)) is not None:
        made.append(skill)
    offered = {tool.spec.name: tool for tool in made}
    for name, tool in list(offered.items()):
        if why := _withheld(agent, host, tool.spec):
            del offered[name]
            if name in wanted or tool.spec.kind == "cli":
                notes.append(f"Not offered: {name}, since {why}.")
    if not any(tool.spec.kind == "cli" for tool in offered.values()):
        offered.pop("tool_help", None)
    missing = [_named(tool) for tool in agent.tools if _unknown(tool)]
    if missing:
        notes.append(f"Not offered, since this version does not have them: {', '.join(missing)}.")
    return build_toolbox(offered), tuple(notes)


def _granted(agent: Agent) -> set[str]:
    """The builtin tools of an agent whose abilities name what they need: its format has no other word for them."""
    named = agent.abilities.allow if agent.abilities is not None else ()
    shell = {"bash"} if any(each == "sh" or each.startswith("sh:") for each in named) else set()
    return shell | ({"web"} if "network" in named else set())


def _embedder() -> Any:
    """What ranks notes by meaning; None where the extra `embeddings` is not installed."""
    try:
        return import_module("duragent.tools.meaning").embedder()
    except ImportError:
        return None


def _withheld(agent: Agent, host: Host, spec: ToolSpec) -> str:
    """Why a tool is not even shown to the model."""
    needs: tuple[str, ...] = (*spec.needs, "tool") if spec.kind == "cli" else spec.needs
    if why := withheld(agent, spec.kind, needs):
        return f"the agent's {why}" if why.startswith("trust") else f"its {why}"
    if host.sandbox is None and ("sh" in needs or "tool" in needs):
        return "no sandbox works here (duragent doctor --sandbox says why); sandbox.mode: trust runs it without one"
    return ""


def _unknown(tool: AgentTool) -> bool:
    if isinstance(tool, BuiltinTool):
        return tool.name not in _BUILTINS
    return not isinstance(tool, CliTool | DiscoveredTool)


def _named(tool: AgentTool) -> str:
    kind = str(type(tool).__struct_config__.tag)
    return kind if isinstance(tool, InlineTools) else f"{kind} {tool.name}"


_TYPES: Mapping[type, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}


def _schema(function: Callable[..., Any]) -> dict[str, Any]:
    hints = get_type_hints(function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        properties[name] = _type(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    return {**schema, "required": required} if required else schema


def _type(hint: Any) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        kinds = [each for each in arguments if each is not type(None)]
        return _type(kinds[0]) if len(kinds) == 1 else {"anyOf": [_type(each) for each in kinds]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (list, tuple) and arguments:
        return {"type": "array", "items": _type(arguments[0])}
    known = _TYPES.get(origin or hint)
    return {"type": known} if known else {}
