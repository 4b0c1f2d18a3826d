"""Agents are files: read them from any of four formats, check them, convert them, run them.

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
    from duragent.errors import (
        Conflict,
        CorruptLog,
        DuragentError,
        FetchFailed,
        InvalidAgent,
        LossRefused,
        ModelFailed,
        NotFound,
        StorageFailed,
    )
    from duragent.following import Settled
    from duragent.formats.shape import Problem
    from duragent.runtime import Runtime
    from duragent.tools import function_tool

_HOMES = {
    "Agent": ("duragent.agent", "Agent"),
    "Conflict": ("duragent.errors", "Conflict"),
    "Converted": ("duragent.conversion", "Converted"),
    "CorruptLog": ("duragent.errors", "CorruptLog"),
    "DuragentError": ("duragent.errors", "DuragentError"),
    "Examined": ("duragent.agentfiles", "Examined"),
    "FetchFailed": ("duragent.errors", "FetchFailed"),
    "InvalidAgent": ("duragent.errors", "InvalidAgent"),
    "Loss": ("duragent.conversion", "Loss"),
    "LossRefused": ("duragent.errors", "LossRefused"),
    "ModelFailed": ("duragent.errors", "ModelFailed"),
    "NotFound": ("duragent.errors", "NotFound"),
    "Origin": ("duragent.agent", "Origin"),
    "Problem": ("duragent.formats.shape", "Problem"),
    "Runtime": ("duragent.runtime", "Runtime"),
    "Settled": ("duragent.following", "Settled"),
    "StorageFailed": ("duragent.errors", "StorageFailed"),
    "agent_hash": ("duragent.agentfiles", "agent_hash"),
    "convert_agent": ("duragent.conversion", "convert"),
    "function_tool": ("duragent.tools", "function_tool"),
    "load_agent": ("duragent.agentfiles", "load"),
    "validate": ("duragent.agentfiles", "examine"),
}

__all__ = [
    "Agent",
    "Conflict",
    "Converted",
    "CorruptLog",
    "DuragentError",
    "Examined",
    "FetchFailed",
    "InvalidAgent",
    "Loss",
    "LossRefused",
    "ModelFailed",
    "NotFound",
    "Origin",
    "Problem",
    "Runtime",
    "Settled",
    "StorageFailed",
    "__version__",
    "agent_hash",
    "convert_agent",
    "function_tool",
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
