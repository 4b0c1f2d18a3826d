"""Writes an agent as an A3S agent directory."""

import posixpath
import re
from collections.abc import Mapping

from duragent.agent import Agent, Json, McpServer, ModelRef, Provider, ScriptTool, Skill, Tool, sentence, spoken
from duragent.formats.agentdir.acl import can_be_key, write_acl
from duragent.formats.agentdir.keys import ALIASES
from duragent.formats.agentdir.settings import FILE, TIMEOUT_SECONDS, TOOL_ROUNDS
from duragent.formats.agentdir.tools import script_header, server_header
from duragent.formats.markdown import with_header
from duragent.formats.shape import Rendered, is_address, normal
from duragent.formats.skills import render_skill
from duragent.formats.write import file_name, laid_over

INSTRUCTIONS = "instructions.md"
_ENV_TEXT = re.compile(r"\$\{([^\W\d]\w*)\}")
_KEPT_PAGE = re.compile(r"skills/(?:[^/]+/SKILL\.md|[^/]+\.md)")


def render(agent: Agent) -> Rendered:
    kept = agent.extra.get("agentdir", {})
    in_settings = _settings_servers(agent, kept)
    files = {INSTRUCTIONS: "\n\n".join(sentence(part).strip() for part in spoken(agent.prompt)) + "\n"}
    files[FILE] = _write_settings(agent, in_settings, kept)
    files |= _schedule_pages(agent, kept)
    files |= _tool_pages(agent.tools[len(in_settings) :], kept)
    scripts = [normal(tool.path) for tool in agent.tools if isinstance(tool, ScriptTool)]
    there = agent.source.files or scripts  # a script may be missing: it belongs to the workspace
    copies = {path: path for path in scripts if path in there}
    notes = dict(_NOTES)
    targets: set[str] = set()
    for index, skill in enumerate(agent.skills):
        if is_address(skill.path):
            notes[f"skills[{index}]"] = "a skill behind an address cannot be written into the folder"
            continue
        page = _skill_page(skill, targets)
        targets.add(page)
        files[page] = render_skill(skill)
        home, target = posixpath.dirname(skill.path), posixpath.dirname(page)
        copies |= {posixpath.join(target, name): posixpath.join(home, name) for name in skill.files}
    return Rendered(entry="", files=files, copies=copies, notes=notes)


_NOTES = {
    "model.temperature": "agent.acl has no place for a temperature",
    "model.candidates": "agent.acl names one default model",
    "policy": "permissions belong to the program that runs an agent directory",
    "trust": "permissions belong to the program that runs an agent directory",
    "access": "an agent directory does not say who may speak with it",
    "abilities": "permissions belong to the program that runs an agent directory",
    "memory": "agent.acl has no such memory",
    "prompt": "instructions.md is one text: all parts are written into it",
    "auth.providers": 'agent.acl takes keys from env("NAME") only, and header names without `-`',
    "tools": "an agent directory knows MCP servers with a transport, and scripts",
    "schedules": "a schedule holds a prompt, not a skill",
}


def _settings_servers(agent: Agent, kept: Mapping[str, Json]) -> list[McpServer]:
    """The servers that go into agent.acl: those that lead the list, up to the last that should."""
    leading: list[McpServer] = []
    count = 0
    for tool in agent.tools:
        if not isinstance(tool, McpServer) or not (tool.command or tool.url) or tool.name in kept.get("bodies", {}):
            break
        if not _can_hold(server_header(tool, kept.get("tools", {}).get(tool.name, {}))):
            break
        leading.append(tool)
        count = len(leading) if _uses_env(tool) else count
    return leading[:count]


def _schedule_pages(agent: Agent, kept: Mapping[str, Json]) -> dict[str, str]:
    names = [each.name or f"schedule-{index + 1}" for index, each in enumerate(agent.schedules)]
    pages = {}
    for index, (name, file, each) in enumerate(zip(names, _file_names(names), agent.schedules, strict=True)):
        header: dict[str, Json] = {"cron": each.cron, "name": name}
        if not each.enabled:
            header["enabled"] = False
        if each.timezone:
            header["timezone"] = each.timezone
        prompt = each.prompt or (f"Use the skill `{each.skill}`." if each.skill else "")
        pages[f"schedules/{file}"] = with_header(
            laid_over(header, kept.get("schedules", {}).get(str(index), {})), prompt
        )
    return pages


def _tool_pages(tools: tuple[Tool, ...], kept: Mapping[str, Json]) -> dict[str, str]:
    written: list[McpServer | ScriptTool] = []
    for tool in tools:
        if isinstance(tool, ScriptTool) or (isinstance(tool, McpServer) and (tool.command or tool.url)):
            written.append(tool)
    pages = {}
    for file, tool in zip(_file_names([tool.name for tool in written]), written, strict=True):
        extra = kept.get("tools", {}).get(tool.name, {})
        if isinstance(tool, McpServer):
            header = {"kind": "mcp"} | server_header(tool, extra)
        else:
            header = {"kind": "script"} | script_header(tool, extra)
        pages[f"tools/{file}"] = with_header(header, kept.get("bodies", {}).get(tool.name, ""))
    return pages


def _file_names(names: list[str]) -> list[str]:
    """A file for each name, such that the folder's order is the list's order."""
    files = [f"{file_name(name)}.md" for name in names]
    if files == sorted(files) and len({file.lower() for file in files}) == len(files):
        return files
    width = len(str(len(files)))
    return [f"{index + 1:0{width}}-{file}" for index, file in enumerate(files)]


def _skill_page(skill: Skill, taken: set[str]) -> str:
    if _KEPT_PAGE.fullmatch(skill.path) and skill.path not in taken:
        return skill.path
    name, number = file_name(skill.name), 1
    while (page := f"skills/{name if number == 1 else f'{name}-{number}'}/SKILL.md") in taken:
        number += 1
    return page


def _uses_env(server: McpServer) -> bool:
    """Whether a server should be written in agent.acl: only there is `${X}` the environment's X."""
    texts = [server.command, server.url, *server.args, *server.env.values(), *server.headers.values()]
    return any(_ENV_TEXT.fullmatch(text) for text in texts if text)


def _can_hold(value: Json) -> bool:
    """Whether ACL has words for a value: its keys are names, never quoted texts."""
    if isinstance(value, Mapping):
        return all(can_be_key(key) and _can_hold(each) for key, each in value.items())
    return all(_can_hold(each) for each in value) if isinstance(value, list) else True


def _write_settings(agent: Agent, servers: list[McpServer], kept: Mapping[str, Json]) -> str:
    """The text of agent.acl. `kept` is the agent's `extra["agentdir"]`."""
    singles: dict[str, Json] = {"name": agent.name, "description": agent.description, "version": agent.version}
    model = agent.model.candidates[0] if agent.model.candidates else None
    if model is not None:
        singles["default_model"] = f"{model.provider}/{model.name}"
    rounds = agent.limits.rounds
    if rounds is not None and rounds > 0 and rounds != TOOL_ROUNDS:
        singles["max_tool_rounds"] = rounds
    singles["max_parallel_tasks"] = agent.limits.parallel_tasks
    seconds = agent.session.llm_timeout_seconds
    raw = [each for each in kept.get("acl", ()) if "value" in each]
    exact = [each["value"] for each in raw if each["name"] == "llm_api_timeout_ms" and type(each["value"]) is int]
    if seconds != TIMEOUT_SECONDS and not any(-(-value // 1000) == seconds for value in exact):
        singles["llm_api_timeout_ms"] = seconds * 1000
    singles = {name: value for name, value in singles.items() if value is not None}
    items: list[Mapping[str, Json]] = [{"name": name, "value": value} for name, value in singles.items()]
    labels = dict.fromkeys([*agent.auth.providers, *kept.get("providers", {}), *([model.provider] if model else [])])
    items += [_provider_item(agent, label, kept.get("providers", {}).get(label, {})) for label in labels]
    items += [_server_item(server, kept.get("tools", {}).get(server.name, {})) for server in servers]
    items += [each for each in kept.get("acl", ()) if ALIASES.get(each["name"], each["name"]) not in singles]
    return write_acl(items)


def _provider_item(agent: Agent, label: str, rest: Mapping[str, Json]) -> dict[str, Json]:
    provider = agent.auth.providers.get(label, Provider())
    attributes: dict[str, Json] = {}
    if provider.key_from and provider.key_from.startswith("env."):
        attributes["api_key"] = {"env()": [provider.key_from.removeprefix("env.")]}
    if provider.base_url is not None:
        attributes["base_url"] = provider.base_url
    headers = {name: value for name, value in provider.headers.items() if can_be_key(name)}
    if headers:
        attributes["headers"] = headers
    blocks = list(rest.get("blocks", ()))
    model = agent.model.candidates[0] if agent.model.candidates else None
    if model is not None and model.provider == label:
        blocks = _with_model(blocks, agent, model, provider)
    return {
        "name": "providers",
        "labels": [label],
        "attributes": attributes | rest.get("attributes", {}),
        "blocks": blocks,
    }


def _with_model(blocks: list[Json], agent: Agent, model: ModelRef, provider: Provider) -> list[Json]:
    """The provider's models, the agent's own among them with what the model says about it."""
    fresh: dict[str, Json] = {"name": "models", "labels": [model.name]}
    own = next((each for each in blocks if each["name"] == "models" and each["labels"][0] == model.name), None)
    window = {"context": agent.model.max_input_tokens, "output": agent.model.max_output_tokens}
    window = {name: size for name, size in window.items() if size}
    attributes = dict((own or fresh).get("attributes", {}))
    inner = list((own or fresh).get("blocks", ()))
    if model.base_url and model.base_url != provider.base_url:
        attributes = {"base_url": model.base_url} | attributes
    limit = next((each for each in inner if each["name"] == "limit"), None)
    if window and type(attributes.get("limit")) is dict:
        attributes["limit"] = window | attributes["limit"]
    elif window and limit is not None:
        inner[inner.index(limit)] = limit | {"attributes": window | limit.get("attributes", {})}
    elif window:
        inner.append({"name": "limit", "attributes": window})
    merged = (own or fresh) | {"attributes": attributes, "blocks": inner}
    return [merged if each is own else each for each in blocks] if own else [merged, *blocks]


def _server_item(server: McpServer, extra: Mapping[str, Json]) -> dict[str, Json]:
    header = server_header(server, extra)
    name = header.pop("name")
    return {"name": "mcp_servers", "labels": [name], "attributes": _as_calls(header)}


def _as_calls(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _as_calls(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_calls(each) for each in value]
    found = _ENV_TEXT.fullmatch(value) if type(value) is str else None
    return {"env()": [found[1]]} if found else value
