"""Writes an Agent as agentspec: one `.agent` file, or a folder when it has prose or skill packages."""

import posixpath

from msgspec.structs import replace

from duragent.agent import (
    Abilities,
    AbstractSkill,
    Agent,
    BuiltinTool,
    Json,
    McpServer,
    ModelRef,
    sentence,
    spoken,
)
from duragent.formats.shape import Rendered, is_address
from duragent.formats.skills import package_name, render_skill
from duragent.formats.write import dump_yaml, file_name, laid_over, said

_NATIVE = ("soul", "persona", "trait", "override", "rules")
_NOTES = {
    "limits.tool_iterations": "agentspec has max_steps and step_limit instead; max_steps is set to it",
    "limits.background_seconds": "agentspec has no limit for running without a client",
    "access": "agentspec does not know chats",
    "policy": "agentspec has no rules for single tools, only trust",
    "abilities": "agentspec has trust instead; set it by hand",
    "trust": "agentspec reads silence as `none`; what was not limited is written as full",
    "session": "agentspec has no session settings",
    "schedules": "agentspec has no schedules",
    "triggers": "agentspec has no triggers",
    "commands": "agentspec has no commands",
    "startup": "agentspec has no start-up requirements",
    "labels": "agentspec has tags, not labels",
    "prompt": "agentspec has SOUL.md and RULES.md; all text is in one of them",
    "tools": "agentspec knows MCP servers and built-in tools",
}


def render(agent: Agent) -> Rendered:
    soul, rules = _prose(agent)
    manifest = _manifest(agent)
    skills = [skill for skill in agent.skills if not is_address(skill.path)]
    folder = bool(soul or rules or skills or agent.memory.notes)
    files: dict[str, str] = {}
    copies: dict[str, str] = {}
    entry = "" if folder else file_name(agent.name) + ".agent"
    files[entry or "agent.yaml"] = dump_yaml(manifest)
    if soul:
        files["SOUL.md"] = soul + "\n"
    if rules:
        files["RULES.md"] = rules + "\n"
    for skill in skills:
        folder_name = package_name(skill.name)
        files[f"skills/{folder_name}/SKILL.md"] = render_skill(replace(skill, name=folder_name))
        for name in skill.files:
            copies[f"skills/{folder_name}/{name}"] = posixpath.join(posixpath.dirname(skill.path), name)
    copies |= {f"memory/{name}": f"memory/{name}" for name in agent.memory.notes}
    return Rendered(entry, files, copies, notes=_NOTES)


def _prose(agent: Agent) -> tuple[str, str]:
    """SOUL.md and RULES.md. Kinds of text that agentspec does not know go with the soul, in their order."""
    rules = "\n\n".join(part.text for part in agent.prompt if part.kind == "rules")
    if all(part.kind in _NATIVE for part in agent.prompt):
        return "\n\n".join(part.text for part in agent.prompt if part.kind == "soul"), rules
    told = (sentence(part) for part in spoken(agent.prompt) if part.kind != "rules")
    return "\n\n".join(told), rules


def _manifest(agent: Agent) -> dict[str, Json]:
    sections: dict[str, Json] = {
        "apiVersion": "agent/v1",
        "name": agent.name,
        "version": agent.version if agent.version != "0.1.0" else None,
        "author": agent.author,
        "license": agent.license,
        "description": agent.description,
        "tags": list(agent.tags),
        "model": _model(agent),
        "auth": _auth(agent),
        "skills": [_skill(skill) for skill in agent.abstract_skills],
        "tools": _tools(agent),
        "memory": _memory(agent),
        "behavior": _behavior(agent),
        "expose": [_interface(each) for each in agent.expose],
        "trust": _trust(agent),
        "observability": _observability(agent),
        "extensions": dict(agent.extensions),
    }
    return laid_over(said(sections), agent.extra.get("agentspec", {}))


def _without(values: dict[str, Json], defaults: dict[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in values.items() if value != defaults.get(name)}


def _model(agent: Agent) -> dict[str, Json]:
    model = agent.model
    values = {
        "capability": model.capability,
        "preferred": [_reference(each) for each in model.candidates],
        "fallback": model.fallback,
        "context": model.context,
    }
    defaults = {"preferred": [], "context": "full"}
    return _without(values, defaults if model.capability is None else defaults | {"capability": "reasoning-mid"})


def _reference(model: ModelRef) -> str:
    return f"{model.provider}/{model.name}" if model.provider and model.name else model.provider or model.name


def _auth(agent: Agent) -> dict[str, Json]:
    providers = {
        name: {"from": provider.key_from} if provider.key_from is not None else {}
        for name, provider in agent.auth.providers.items()
    }
    return _without({"strategy": agent.auth.strategy, "providers": providers}, {"strategy": "auto", "providers": {}})


def _skill(skill: AbstractSkill) -> Json:
    if skill.raw is not None:
        return skill.raw
    return skill.name if skill.requires is None else {"name": skill.name, "requires": skill.requires}


def _tools(agent: Agent) -> dict[str, Json]:
    # A server that is switched off is left out: agentspec has no such switch and would start it.
    servers = [_server(tool) for tool in agent.tools if isinstance(tool, McpServer) and tool.enabled]
    native = [tool.name for tool in agent.tools if isinstance(tool, BuiltinTool)]
    return _without({"mcp": servers, "native": native}, {"mcp": [], "native": []})


def _server(server: McpServer) -> Json:
    if server.raw is not None:
        return server.raw
    settings = {
        "transport": server.transport,
        "command": server.command,
        "args": list(server.args),
        "url": server.url,
        "env": dict(server.env),
        "headers": dict(server.headers),
    }
    shown = said(settings)
    if server.config and not shown:
        return {server.name: dict(server.config)}
    return {"name": server.name, **shown} if shown else server.name


def _memory(agent: Agent) -> dict[str, Json]:
    memory = agent.memory
    long_term = "none" if memory.long_term is None else {"filesystem": "local"}.get(memory.long_term, "external")
    values = {"working": memory.working, "long_term": long_term, "shared": memory.shared}
    return _without(values, {"working": "session", "long_term": "none", "shared": False})


def _behavior(agent: Agent) -> dict[str, Json]:
    def text(kind: str) -> str | None:
        return next((part.text for part in agent.prompt if part.kind == kind), None)

    native = all(part.kind in _NATIVE for part in agent.prompt)
    limits = agent.limits
    values = {
        "persona": text("persona") if native else None,
        "traits": [part.text for part in agent.prompt if part.kind == "trait"] if native else [],
        "temperature": agent.model.temperature,
        "max_steps": 20 if limits.rounds is None else limits.rounds,
        "on_error": limits.on_error,
        "system_override": text("override") if native else None,
    }
    return _without(values, {"traits": [], "temperature": 0.5, "max_steps": 20, "on_error": "ask"})


def _interface(each: object) -> dict[str, Json]:
    return said({name: getattr(each, name) for name in ("name", "description", "input", "output")})


def _trust(agent: Agent) -> dict[str, Json]:
    trust = agent.trust
    if trust is None:
        return _as_trust(agent.abilities or Abilities())
    values = {"filesystem": trust.filesystem, "network": trust.network, "exec": trust.exec, "scope": list(trust.scope)}
    return _without(values, {"filesystem": "none", "network": "none", "exec": "none", "scope": []})


def _as_trust(abilities: Abilities) -> dict[str, Json]:
    """The trust that comes nearest to what the abilities allow, and never goes beyond it."""

    def has(name: str) -> bool:
        return name not in abilities.deny and ("*" in abilities.allow or name in abilities.allow)

    scoped = any(each.startswith("sh:") for each in (*abilities.allow, *abilities.deny))
    shell = has("sh") or (scoped and "sh" not in abilities.deny and "*" not in abilities.allow)
    values = {
        "filesystem": "full" if has("fs") else None,
        "network": "allowed" if has("network") else None,
        "exec": ("sandboxed" if scoped else "full") if shell else None,
    }
    return said(values) or {"filesystem": "none"}


def _observability(agent: Agent) -> dict[str, Json]:
    limits = agent.limits
    values = {
        "trace": agent.trace,
        "cost_limit": limits.cost_usd,
        "step_limit": 50 if limits.session_steps is None else limits.session_steps,
        "on_exceed": limits.on_exceed,
    }
    return _without(values, {"trace": False, "step_limit": 50, "on_exceed": "abort"})
