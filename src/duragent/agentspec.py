"""`load_agent` and `agent_hash` as the agentspec document shows them.

from duragent.agentspec import load_agent, agent_hash

manifest = load_agent("researcher.agent")
print(agent_hash(manifest))  # ag1:…
"""

import os

from duragent import agentfiles
from duragent.agent import Agent
from duragent.errors import DuragentError

__all__ = ["agent_hash", "load_agent"]


def load_agent(path: str | os.PathLike[str]) -> Agent:
    """The agentspec agent at `path`: a `.agent` file or a folder. Its bases are resolved."""
    agent = agentfiles.load(path)
    if agent.source.format != "agentspec":
        raise DuragentError(f"{os.fspath(path)} is in the {agent.source.format} format, not agentspec")
    return agent


def agent_hash(agent: Agent) -> str:
    """The `ag1:` fingerprint of the manifest as it was declared, before inheritance."""
    if agent.source.manifest_hash is None:
        raise DuragentError(f"{agent.name} was not read from an agentspec manifest; it has no ag1: fingerprint")
    return agent.source.manifest_hash
