"""Writes an agent as an A3S agent directory."""

import posixpath
import re
from collections.abc import Mapping

from duragent.agent import Agent, Json, McpServer, ScriptTool, Skill, Tool, sentence, spoken
from duragent.formats.agentdir.settings import FILE, can_hold, uses_env, write_settings
from duragent.formats.agentdir.tools import merged, script_header, server_header
from duragent.formats.markdown import with_header
from duragent.formats.shape import Rendered, is_address, normal
from duragent.formats.skills import render_skill

INSTRUCTIONS = "instructions.md"
_KEPT_PAGE = re.compile(r"skills/(?:[^/]+/SKILL\.md|[^/]+\.md)")


def render(agent: Agent) -> Rendered:
    kept = agent.extra.get("agentdir", {})
    in_settings = _settings_servers(agent, kept)
    files = {INSTRUCTIONS: "\n\n".join(sentence(part).strip() for part in spoken(agent.prompt)) + "\n"}
    files[FILE] = write_settings(agent, in_settings, kept)
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
        if not can_hold(server_header(tool, kept.get("tools", {}).get(tool.name, {}))):
            break
        leading.append(tool)
        count = len(leading) if uses_env(tool) else count
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
        pages[f"schedules/{file}"] = with_header(merged(header, kept.get("schedules", {}).get(str(index), {})), prompt)
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
    files = [f"{_safe(name)}.md" for name in names]
    if files == sorted(files) and len({file.lower() for file in files}) == len(files):
        return files
    width = len(str(len(files)))
    return [f"{index + 1:0{width}}-{file}" for index, file in enumerate(files)]


def _safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80] or "unnamed"


def _skill_page(skill: Skill, taken: set[str]) -> str:
    if _KEPT_PAGE.fullmatch(skill.path) and skill.path not in taken:
        return skill.path
    name, number = _safe(skill.name), 1
    while (page := f"skills/{name if number == 1 else f'{name}-{number}'}/SKILL.md") in taken:
        number += 1
    return page
