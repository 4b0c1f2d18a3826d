"""Writes an Agent as a Duragent folder."""

import posixpath
import shlex
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from duragent.agent import (
    BUILTINS,
    Access,
    Agent,
    BuiltinTool,
    CliTool,
    ContextRules,
    DiscoveredTool,
    Json,
    Limits,
    McpServer,
    PolicyTier,
    PromptPart,
    SessionRules,
    sentence,
    spoken,
)
from duragent.formats.duragent.fields import PROVIDERS, write_duration
from duragent.formats.duragent.needs import script_of
from duragent.formats.shape import Rendered, is_address, leaves, normal
from duragent.formats.skills import package_name, render_skill
from duragent.formats.write import dump_yaml, laid_over, said

_FILES = {"soul": "./SOUL.md", "system_prompt": "./SYSTEM_PROMPT.md", "instructions": "./INSTRUCTIONS.md"}
_PROVIDERS = {"claude": "anthropic"}
_GOES_TO = {"soul": "soul", "instructions": "instructions", "rules": "instructions"}
_NOTES = {
    "trust": "Duragent has policy.yaml instead; write rules by hand",
    "abilities": "Duragent has policy.yaml instead; write rules by hand",
    "limits.cost_usd": "Duragent has no limit in USD",
    "limits.steps": "Duragent counts tool iterations; max_tool_iterations is set to it",
    "limits.session_steps": "Duragent has no limit per session",
    "limits.on_error": "Duragent has no such choice",
    "limits.on_exceed": "Duragent has no such choice",
    "model.candidates": "Duragent names one model, of openrouter, openai, anthropic or ollama",
    "model.capability": "Duragent has no capability tiers",
    "abstract_skills": "Duragent has skill packages, not abstract skills",
    "prompt": "Duragent has soul, system_prompt and instructions; all text is in one of them",
    "tools": "Duragent knows its builtins, programs, and MCP servers with a command or an address and no environment",
    "commands": "Duragent has no commands",
    "expose": "Duragent has no interfaces",
    "auth": "Duragent finds keys by itself",
    "extensions": "Duragent has no extensions",
    "name": "a Duragent name has letters, digits and hyphens",
}


def render(agent: Agent) -> Rendered:
    files: dict[str, str] = {}
    copies: dict[str, str] = {}
    spec: dict[str, Json] = {"model": _model(agent)} | _prose(agent, files)
    spec |= {"session": _session(agent), "access": _access(agent.access), "memory": _memory(agent)}
    spec["tools"] = _tools(agent, copies)
    spec["skills_dir"] = agent.skills_dir
    spec |= {"skills": _skills(agent, files, copies), "triggers": _triggers(agent)}
    manifest: dict[str, Json] = {
        "apiVersion": "duragent/v1alpha1",
        "kind": "Agent",
        "metadata": said(
            {
                "name": _name(agent.name),
                "description": agent.description,
                "version": agent.version,
                "labels": dict(agent.labels),
                "a2a": dict(agent.a2a),
            }
        ),
        "spec": said(spec),
    }
    kept = dict(agent.extra.get("duragent", {}))
    for name, tier in (("policy.yaml", agent.policy.agent), ("policy.local.yaml", agent.policy.local)):
        rest = kept.pop(name, {})
        if tier is not None:
            files[name] = dump_yaml(laid_over(_policy(tier), rest))
    files["agent.yaml"] = dump_yaml(laid_over(manifest, kept))
    copies |= {f"memory/{name}": f"memory/{name}" for name in agent.memory.notes}
    if agent.source.format == "duragent":
        copies |= {name: name for name in agent.source.files if name.startswith("tools/")}
    return Rendered("", files, copies, notes=_NOTES)


def _name(name: str) -> str:
    clean = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
    return clean.strip("-")[:128] or "agent"


def _model(agent: Agent) -> Json:
    model = agent.model
    known = [(each, _PROVIDERS.get(each.provider, each.provider)) for each in model.candidates if each.name]
    first, provider = next(((each, name) for each, name in known if name in PROVIDERS), (None, ""))
    if first is None:
        return None
    values = {
        "provider": provider,
        "name": first.name,
        "temperature": model.temperature if model.temperature != 0.7 and 0 <= model.temperature <= 2 else None,
        "max_input_tokens": model.max_input_tokens,
        "max_output_tokens": model.max_output_tokens,
        "base_url": first.base_url,
    }
    return said(values)


def _prose(agent: Agent, files: dict[str, str]) -> dict[str, Json]:
    """soul, system_prompt and instructions. Kinds of text Duragent does not know join the nearest of them."""
    texts: dict[str, list[PromptPart]] = {"soul": [], "system_prompt": [], "instructions": []}
    bootstrap: list[Json] = []
    for index, part in enumerate(spoken(agent.prompt)):
        if part.kind == "bootstrap":
            path = part.path or f"./bootstrap-{index}.md"
            files[normal(path)] = part.text + "\n"
            bootstrap.append(said({"path": path, "max_tokens": part.max_tokens, "required": part.required or None}))
        else:
            texts[_GOES_TO.get(part.kind, "system_prompt")].append(part)
    named: dict[str, Json] = {}
    for kind, parts in texts.items():
        if parts:
            own = parts[0].path if len(parts) == 1 and parts[0].kind == kind and parts[0].path else None
            path = own if own and not leaves(normal(own)) and own.endswith(".md") else _FILES[kind]
            files[normal(path)] = "\n\n".join(sentence(part) for part in parts) + "\n"
            named[kind] = path
    for part in (part for part in agent.prompt if part.kind == "bootstrap" and not part.text and part.path):
        bootstrap.append(said({"path": part.path, "max_tokens": part.max_tokens, "required": part.required or None}))
        if part.required:
            files[normal(part.path or "")] = "\n"
    return named | {"bootstrap": bootstrap}


def _changed(value: Any, default: Any) -> dict[str, Json]:
    """Only what differs from the default."""
    new, old = to_builtins(value), to_builtins(default)
    return {name: each for name, each in new.items() if each != old[name]}


def _session(agent: Agent) -> dict[str, Json]:
    said = _changed(agent.session, SessionRules())
    if "context" in said:
        said["context"] = _changed(agent.session.context, ContextRules())
    iterations = agent.limits.rounds
    if iterations is not None and iterations != Limits().tool_iterations and 0 < iterations <= 2**53:
        said["max_tool_iterations"] = iterations
    if agent.limits.background_seconds is not None:
        said["max_background_runtime"] = write_duration(agent.limits.background_seconds)
    return said


def _access(access: Access | None) -> Json:
    """Written in full: what guards the agent should not depend on a default."""
    if access is None:
        return None
    said = to_builtins(access)
    if access.groups.queue.reject_message is None:
        del said["groups"]["queue"]["reject_message"]
    return said


def _memory(agent: Agent) -> Json:
    memory = agent.memory
    if memory.short_term is None:
        return {"backend": memory.long_term} if memory.long_term is not None else None
    short = said({"backend": memory.short_term, "max_tokens": memory.short_term_max_tokens})
    return said({"short_term": short, "long_term": {"backend": memory.long_term} if memory.long_term else None})


def _tools(agent: Agent, copies: dict[str, str]) -> list[Json]:
    listed: list[Json] = []
    for tool in agent.tools:
        if isinstance(tool, BuiltinTool) and tool.name in BUILTINS:
            listed.append({"type": "builtin", "name": tool.name})
        elif isinstance(tool, CliTool) and _is_at_hand(agent, tool.command):
            entry = {"type": "cli", "name": tool.name, "command": tool.command}
            listed.append(entry | said({"description": tool.description or None, "readme": tool.readme}))
        elif isinstance(tool, McpServer) and tool.enabled and (server := _server(tool)) and _is_at_hand(agent, server):
            listed.append({"type": "mcp", "name": tool.name, "server": server} | said({"config": dict(tool.config)}))
        for name in _files_of(tool):
            copies[normal(name)] = normal(name)
    return listed


def _is_at_hand(agent: Agent, command: str) -> bool:
    """Whether the program a command names beside the agent can be taken along; without it, it would not run."""
    script = script_of(command)
    return script is None or normal(script) in agent.source.files


def _files_of(tool: object) -> list[str]:
    """The files a tool brings along."""
    if isinstance(tool, McpServer):
        script = script_of(tool.command or "")
        return [script] if script and not leaves(normal(script)) else []
    if isinstance(tool, CliTool):
        first = script_of(tool.command)
        script_files = [first] if first and not leaves(normal(first)) else []
        return script_files + ([tool.readme] if tool.readme and not leaves(normal(tool.readme)) else [])
    if isinstance(tool, DiscoveredTool):
        return [tool.command, *([tool.readme] if tool.readme else [])]
    return []


def _server(tool: McpServer) -> str | None:
    # An environment or headers cannot be said; leaving them out would run something else than the owner wrote.
    if tool.env or tool.headers or tool.raw is not None:
        return None
    if tool.url or not tool.command:
        return tool.url if not tool.args else None
    return shlex.join([tool.command, *tool.args])


def _skills(agent: Agent, files: dict[str, str], copies: dict[str, str]) -> list[Json]:
    said: list[Json] = []
    home = normal(agent.skills_dir or "./skills/")
    for skill in agent.skills:
        if is_address(skill.path):
            said.append({"url": skill.path})
            continue
        folder = posixpath.join(home, package_name(skill.name))
        files[f"{folder}/SKILL.md"] = render_skill(replace(skill, name=package_name(skill.name)))
        for name in skill.files:
            copies[f"{folder}/{name}"] = posixpath.join(posixpath.dirname(skill.path), name)
    return said


def _triggers(agent: Agent) -> list[Json]:
    said: list[Json] = [{"pattern": trigger.pattern, "skill": trigger.skill} for trigger in agent.triggers]
    said += [{"schedule": each.cron, "skill": each.skill} for each in agent.schedules if each.skill and each.enabled]
    return said


def _policy(tier: PolicyTier) -> dict[str, Json]:
    notify = to_builtins(tier.notify) if tier.notify is not None else None
    return {
        "apiVersion": "duragent/v1alpha1",
        "kind": "Policy",
        **said({"mode": tier.mode, "deny": list(tier.deny), "allow": list(tier.allow)}),
        **({"notify": notify} if notify is not None else {}),
    }
