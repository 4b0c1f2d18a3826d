"""The environment of an agent's commands: a short list of harmless variables, and what the agent names.

Keys of model providers and of this program are never in it, whatever an agent names. Pure.
"""

import os
import re
from collections.abc import Mapping

from duragent.agent import Agent
from duragent.sandbox.running import PRIVATE_HOME, PRIVATE_TMP

PROVIDER_KEYS = frozenset(
    (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        *("GOOGLE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "COHERE_API_KEY"),
        *("TOGETHER_API_KEY", "FIREWORKS_API_KEY", "AZURE_OPENAI_API_KEY", "BRAVE_API_KEY"),
    )
)
_PLAIN = ("LANG", "LANGUAGE", "LOGNAME", "TERM", "TZ", "USER")
_STEERS_PROGRAMS = re.compile(
    r"LD_\w+|DURAGENT_\w+|PATH|HOME|TMPDIR|BASH_ENV|ENV|(?:https?|all|no)_proxy", re.IGNORECASE
)
_PATH = "/usr/local/bin:/usr/bin:/bin"


def environment_of(agent: Agent, environ: Mapping[str, str], home: str = "") -> dict[str, str]:
    """What its commands find. `home` is a person's, where the owner gave the agent the whole disk."""
    folders = [each for each in environ.get("PATH", "").split(":") if os.path.isabs(each)]
    chosen = {name: value for name, value in environ.items() if name in _PLAIN or name.startswith("LC_")}
    chosen |= {name: environ[name] for name in _named(agent) if name in environ}
    return chosen | {"PATH": ":".join(folders) or _PATH, "HOME": home or PRIVATE_HOME, "TMPDIR": PRIVATE_TMP}


def _named(agent: Agent) -> list[str]:
    abilities = agent.abilities
    if abilities is not None and ("env" in abilities.deny or not {"*", "env"} & set(abilities.allow)):
        return []
    keys = PROVIDER_KEYS | {(each.key_from or "").removeprefix("env.") for each in agent.auth.providers.values()}
    return [name for name in agent.startup.env if name not in keys and not _STEERS_PROGRAMS.fullmatch(name)]
