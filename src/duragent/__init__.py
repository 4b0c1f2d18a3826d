"""Agents are files: read them from any of four formats, check them, show them, convert them.

    from duragent import load_agent, agent_hash, validate

    agent = load_agent("researcher.agent")
    print(agent.name, agent_hash(agent))

The names below are the whole public surface. They are loaded when they are first used, so that
importing the package costs nothing.
"""

from importlib import import_module

TYPE_CHECKING = False  # the name is enough for type checkers; importing typing would cost every start

__version__ = "0.1.0"

if TYPE_CHECKING:
    from duragent.agent import Agent, Origin
    from duragent.agentfiles import Examined, agent_hash
    from duragent.agentfiles import examine as validate
    from duragent.agentfiles import load as load_agent
    from duragent.conversion import Converted, Loss
    from duragent.conversion import convert as convert_agent
    from duragent.errors import DuragentError, FetchFailed, InvalidAgent, LossRefused, NotFound
    from duragent.formats.shape import Problem

_HOMES = {
    "Agent": ("duragent.agent", "Agent"),
    "Converted": ("duragent.conversion", "Converted"),
    "DuragentError": ("duragent.errors", "DuragentError"),
    "Examined": ("duragent.agentfiles", "Examined"),
    "FetchFailed": ("duragent.errors", "FetchFailed"),
    "InvalidAgent": ("duragent.errors", "InvalidAgent"),
    "Loss": ("duragent.conversion", "Loss"),
    "LossRefused": ("duragent.errors", "LossRefused"),
    "NotFound": ("duragent.errors", "NotFound"),
    "Origin": ("duragent.agent", "Origin"),
    "Problem": ("duragent.formats.shape", "Problem"),
    "agent_hash": ("duragent.agentfiles", "agent_hash"),
    "convert_agent": ("duragent.conversion", "convert"),
    "load_agent": ("duragent.agentfiles", "load"),
    "validate": ("duragent.agentfiles", "examine"),
}

__all__ = [
    "Agent",
    "Converted",
    "DuragentError",
    "Examined",
    "FetchFailed",
    "InvalidAgent",
    "Loss",
    "LossRefused",
    "NotFound",
    "Origin",
    "Problem",
    "__version__",
    "agent_hash",
    "convert_agent",
    "load_agent",
    "validate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'duragent' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    found: object = getattr(import_module(module), attribute)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
