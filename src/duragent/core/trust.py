"""What an agent's trust and abilities leave room for: they only ever forbid, and no rule can widen them."""

from typing import Literal

from duragent.agent import Abilities, Agent, Trust

Need = Literal["sh", "network", "fs", "tool", "mcp", "browser"]


def forbidden(agent: Agent, need: Need) -> str:
    """Why a tool that needs this is not for this agent; "" where it may be."""
    return (_by_trust(agent.trust, need) if agent.trust else "") or (
        _by_abilities(agent.abilities, need) if agent.abilities else ""
    )


def _by_trust(trust: Trust, need: Need) -> str:
    if trust.exec == "none" and need in ("sh", "tool"):
        return "trust.exec: none"
    if trust.network == "none" and need in ("network", "browser"):
        return "trust.network: none"
    return "trust.filesystem: none" if trust.filesystem == "none" and need == "fs" else ""


def _by_abilities(abilities: Abilities, need: Need) -> str:
    """`sh:git` is an ability to run something: which programs, is judged line by line."""
    if need in abilities.deny:
        return f"abilities deny {need}"
    some = any(each in ("*", need) or (need == "sh" and each.startswith("sh:")) for each in abilities.allow)
    return "" if some else f"abilities do not allow {need}"
