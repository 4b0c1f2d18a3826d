"""The writing half of `openagentspec`: what we would write for an agent, and what a file says beyond that.

Every id is derived from names, so the same agent always gives the same file.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from duragent.agent import BUILTINS, Agent, BuiltinTool, Json, McpServer, ModelRef, Tool, sentence, spoken
from duragent.formats.shape import Rendered
from duragent.formats.write import dump_yaml, file_name, laid_over

CONFIGS = {"ollama": "OllamaConfig", "vllm": "VllmConfig", "openai-compatible": "OpenAiCompatibleConfig"}
TRANSPORTS: Mapping[Any, Any] = {"StdioTransport": "stdio", "StreamableHTTPTransport": "streamable-http"}
DETAILS = ("title", "version", "author", "license", "icon", "avatar", "tags", "labels", "status", "templates")
"""What the specification has no word for and `metadata.duragent` can carry without harm."""

_DEFAULT_URLS = {"ollama": "http://localhost:11434"}
_PLACEHOLDER = re.compile(r"{{\s*(\w+)\s*}}")  # what pyagentspec takes for one
_SILENT = {  # what pyagentspec writes out although it is the default
    "requires_confirmation": False,
    "human_in_the_loop": True,
    "api_type": "chat_completions",
    "session_parameters": {"read_timeout_seconds": 60},
}
_CHOSEN = frozenset({"id", "name", "component_type", "provider", "api_provider"})
"""What we write by our own choice: where a file chose otherwise, it is right."""

_PROTECTING = ("trust", "policy", "access", "limits", "abilities", "session")
_UNSAID = (
    *("memory", "schedules", "triggers", "startup", "auth", "trace", "skills", "abstract_skills", "skills_dir"),
    *("commands", "expose", "input", "a2a", "extensions"),
)


def as_map(value: Json) -> dict[str, Json]:
    return value if type(value) is dict else {}


def ours_in(component: Mapping[str, Json]) -> dict[str, Json]:
    """What we put into the metadata of a component, if anything."""
    return as_map(as_map(component.get("metadata")).get("duragent"))


def render(agent: Agent) -> Rendered:
    kept = as_map(agent.extra.get("openagentspec"))
    notes = _notes(agent)
    written = []
    lists: dict[str, list[Json]] = {"tools": [], "toolboxes": []}
    waiting = {where: dict(as_map(kept.get(where))) for where in lists}
    for index, tool in enumerate(agent.tools):
        part = piece(tool, agent.name)
        name = part["name"] if part else ""
        if part is None or any(name == each["name"] for each in lists["toolboxes" if _is_box(part) else "tools"]):
            notes[f"tools[{index}]"] = _why_not(tool) if part is None else "another tool has the same name"
            continue
        single = as_map(waiting["tools"].get(name)).get("component_type") == "MCPTool"
        where = "toolboxes" if _is_box(part) and not single else "tools"
        part = laid_over(part, as_map(waiting[where].pop(name, None)))
        if part["component_type"] == "MCPTool":  # the tool is the filter
            part.pop("tool_filter", None)
        lists["toolboxes" if _is_box(part) else "tools"].append(part)
        written.append(name)
    order = [each["name"] for where in ("tools", "toolboxes") for each in lists[where]]
    for where, rest in waiting.items():
        lists[where] += [each for each in rest.values() if "name" in as_map(each)]
    text = dump_yaml(_whole(agent, kept, lists, written if written != order else []))
    name = f"{file_name(agent.name)}.oas.yaml"
    return Rendered(name, {name: text}, notes=notes)


def _whole(agent: Agent, kept: dict[str, Json], lists: dict[str, list[Json]], order: list[str]) -> dict[str, Json]:
    alone = {name: value for name, value in kept.items() if name not in ("tools", "toolboxes", "inputs")}
    ours = document(agent)
    if order:
        ours.setdefault("metadata", {}).setdefault("duragent", {})["tools"] = order
    found = laid_over(ours, alone)
    # A kind of model that implies its provider has none of its own.
    found["llm_config"] = {name: value for name, value in found["llm_config"].items() if value is not None}
    found["agentspec_version"] = max(ours["agentspec_version"], str(found["agentspec_version"]), key=_version)
    declared = {_title(each): each for each in kept.get("inputs") or ()}
    inputs = [declared.get(title, _input(title)) for title in _placeholders(ours["system_prompt"])]
    shared = found.pop("$referenced_components", None)
    found |= {"inputs": inputs} if inputs else {}
    found |= {where: parts for where, parts in lists.items() if parts}
    return found | ({"$referenced_components": shared} if shared else {})


def document(agent: Agent) -> dict[str, Json]:
    """The agent in Open Agent Specification, without its tools and inputs."""
    fresh = Agent(name=agent.name)
    details = {name: getattr(agent, name) for name in DETAILS if getattr(agent, name) != getattr(fresh, name)}
    model = _model(agent)
    found: dict[str, Json] = {
        "component_type": "Agent",
        "agentspec_version": "26.1.2" if model["component_type"] == "LlmConfig" else "25.4.2",
        "id": _id(agent.name, "agent"),
        "name": agent.name,
    }
    found |= {"description": agent.description} if agent.description is not None else {}
    if details:
        plain = {name: list(value) if type(value) is tuple else value for name, value in details.items()}
        found["metadata"] = {"duragent": plain | ({"labels": dict(agent.labels)} if agent.labels else {})}
    prompt = "\n\n".join(sentence(part) for part in spoken(agent.prompt))
    return found | {"llm_config": model, "system_prompt": prompt}


def _model(agent: Agent) -> dict[str, Json]:
    model = agent.model
    ref = model.candidates[0] if model.candidates else ModelRef("", "")
    default_url = _DEFAULT_URLS.get(ref.provider) if ref.base_url is None else None
    url = ref.base_url or default_url
    kind = CONFIGS.get(ref.provider, "LlmConfig") if url else "LlmConfig"
    kind = "OpenAiConfig" if ref.provider == "openai" and url is None else kind
    found: dict[str, Json] = {"component_type": kind, "id": _id(agent.name, "llm_config"), "name": ref.name or "model"}
    found |= {"metadata": {"duragent": {"default_url": True}}} if default_url else {}
    found["model_id"] = ref.name
    if kind == "LlmConfig" and ref.provider:
        found |= {"provider": ref.provider, "api_provider": ref.provider}
    found |= {"url": url} if url else {}
    asked: dict[str, Json] = {}
    unset = agent.source.format == "openagentspec" and "model.temperature" not in agent.origins
    if not unset or model.temperature != type(model)().temperature:
        asked["temperature"] = model.temperature
    if model.max_output_tokens is not None:
        asked["max_tokens"] = model.max_output_tokens
    return found | ({"default_generation_parameters": asked} if asked else {})


def piece(tool: Tool, owner: str) -> dict[str, Json] | None:
    """The component for a tool of the agent called `owner`; None if there is no such component."""
    if type(tool) is BuiltinTool:
        mark = {} if tool.name in BUILTINS else {"metadata": {"duragent": {"builtin": True}}}
        return {"component_type": "ServerTool", "id": _id(owner, "tools", tool.name), "name": tool.name} | mark
    if type(tool) is not McpServer or not tool.enabled:
        return None
    local = tool.transport == "stdio" or (tool.transport is None and tool.command is not None)
    target = tool.command if local else tool.url
    if not target or not tool.name:
        return None
    kind = "StdioTransport" if local else "StreamableHTTPTransport"
    link: dict[str, Json] = {"component_type": kind, "id": _id(owner, "transport", tool.name), "name": tool.name}
    if local:
        extra = {"command": target, "args": list(tool.args), "env": dict(tool.env)}
    else:
        extra = {"url": target, "headers": dict(tool.headers)}
    link |= {name: value for name, value in extra.items() if value}
    if tool.timeout_seconds != 60:
        link["session_parameters"] = {"read_timeout_seconds": float(tool.timeout_seconds)}
    ours: dict[str, Json] = {} if tool.transport == TRANSPORTS[kind] else {"transport": tool.transport}
    config = {name: value for name, value in tool.config.items() if name != "tool_filter"}
    ours |= {"config": config} if config else {}
    found: dict[str, Json] = {"component_type": "MCPToolBox", "id": _id(owner, "toolboxes", tool.name)}
    found |= {"name": tool.name} | ({"metadata": {"duragent": ours}} if ours else {}) | {"client_transport": link}
    return found | ({"tool_filter": tool.config["tool_filter"]} if "tool_filter" in tool.config else {})


def _is_box(part: Mapping[str, Json]) -> bool:
    return bool(part["component_type"] == "MCPToolBox")


def left_over(raw: Mapping[str, Json], ours: Mapping[str, Json]) -> dict[str, Json]:
    """What `raw` says beyond `ours`. Empty values and defaults that we do not write say nothing."""
    found: dict[str, Json] = {}
    for name, value in raw.items():
        if name == "metadata":
            value = {key: each for key, each in as_map(value).items() if key != "duragent"}
            found |= {name: value} if value else {}
        elif name not in ours:
            if value not in (None, {}, []) and (name not in _SILENT or value != _SILENT[name]):
                found[name] = value
        elif type(value) is dict and type(ours[name]) is dict:
            inner = left_over(value, ours[name])
            found |= {name: inner} if inner else {}
        elif name == "agentspec_version":  # ours is the lowest that will do
            found |= {name: value} if _version(str(value)) > _version(ours[name]) else {}
        elif name in _CHOSEN and value is not None and str(value) != ours[name]:
            found[name] = value
    # A kind of model that implies its provider must not be given ours.
    return found | {name: None for name in ("provider", "api_provider") if name in ours and raw.get(name) is None}


def declared_inputs(raw: Mapping[str, Json]) -> tuple[list[Json], int]:
    """The inputs of a file that are not of our making, and how many of them no placeholder asks for.

    In the order of the placeholders; one without an input stands for a text.
    """
    titles = _placeholders(str(raw.get("system_prompt")))
    given = {_title(each): each for each in raw.get("inputs") or ()}
    wanted = [given.get(title, {"title": title, "type": "string"}) for title in titles]
    return [each for each in wanted if each != _input(each["title"])], len(given.keys() - set(titles))


def _title(declared: Json) -> str:
    title = as_map(declared).get("title")
    return "" if title is None else str(title)  # no placeholder is empty


def _input(title: str) -> dict[str, Json]:
    # Its own placeholder as default: a runtime that fills the prompt in leaves the text as it was.
    return {"title": title, "type": "string", "default": f"{{{{{title}}}}}"}


def _placeholders(text: str) -> list[str]:
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", text))


def _id(*names: str) -> str:
    digest = hashlib.sha256("\0".join(names).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"


def _notes(agent: Agent) -> dict[str, str]:
    fresh = Agent(name=agent.name)
    notes: dict[str, str] = {}
    for names, why in (
        (_PROTECTING, "other runtimes would not honour it"),
        (_UNSAID, "the specification has no place for it"),
    ):
        notes |= {name: why for name in names if getattr(agent, name) != getattr(fresh, name)}
    if not agent.model.candidates:
        notes["model.candidates"] = "the specification requires a model; an empty one is written"
    if len(agent.model.candidates) > 1:
        notes["model.candidates"] = "an agent has one model there; the first is written"
    if len(agent.prompt) > 1 or any(part.kind != "system_prompt" for part in agent.prompt):
        notes["prompt"] = "all parts are joined to one system_prompt"
    return notes


def _why_not(tool: Tool) -> str:
    if type(tool) is McpServer:
        return "it is disabled" if not tool.enabled else "a server needs a command or a URL there"
    return "the specification describes tools, it does not carry programs"
