"""The environment of an agent's commands: a short list of harmless variables, and what the agent names.

A name that looks like a key's is handed over only where the owner has granted it: an agent's file can be anybody's.
Keys of model providers and of this program are never in it, whatever an agent names and an owner grants. Pure.
"""

import os
import re
from collections.abc import Collection, Mapping

from duragent.agent import Agent
from duragent.sandbox.places import PRIVATE_HOME, PRIVATE_TMP

PROVIDER_KEYS = frozenset(
    (
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        *("GOOGLE_API_KEY", "MISTRAL_API_KEY", "GROQ_API_KEY", "DEEPSEEK_API_KEY", "XAI_API_KEY", "COHERE_API_KEY"),
        *("TOGETHER_API_KEY", "FIREWORKS_API_KEY", "AZURE_OPENAI_API_KEY", "BRAVE_API_KEY"),
    )
)
_PLAIN = ("LANG", "LANGUAGE", "LOGNAME", "TZ", "USER")
_NOBODY_LOOKS = {
    **dict.fromkeys(("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL"), "false"),
    **{"GIT_PAGER": "cat", "PAGER": "cat", "GIT_TERMINAL_PROMPT": "0", "TERM": "dumb"},
}
"""A command has no terminal and nobody at it: what would wait for a person fails at once and says so."""
_STEERS_PROGRAMS = re.compile(
    r"LD_\w+|DURAGENT_\w+|GIT_CONFIG_\w+|PATH|HOME|TMPDIR|BASH_ENV|ENV|(?:https?|all|no)_proxy", re.IGNORECASE
)
_LOOKS_SECRET = re.compile(
    r"(?:.*_)?(?:KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS|AUTH)|.*(?:SECRET|PASSWORD|CREDENTIAL).*",
    re.IGNORECASE,
)
_PATH = "/usr/local/bin:/usr/bin:/bin"


def environment_of(
    agent: Agent, environ: Mapping[str, str], home: str = "", granted: Collection[str] = ()
) -> dict[str, str]:
    """What its commands find. `home` is a person's, where the owner gave the agent the whole disk.

    `granted` are the names that look like keys and that the owner lets agents have which name them.
    """
    folders = [each for each in environ.get("PATH", "").split(":") if os.path.isabs(each)]
    chosen = dict(_NOBODY_LOOKS)
    chosen |= {name: value for name, value in environ.items() if name in _PLAIN or name.startswith("LC_")}
    chosen |= {name: environ[name] for name in _named(agent, granted) if name in environ}
    return chosen | {"PATH": ":".join(folders) or _PATH, "HOME": home or PRIVATE_HOME, "TMPDIR": PRIVATE_TMP}


def _named(agent: Agent, granted: Collection[str]) -> list[str]:
    abilities = agent.abilities
    if abilities is not None and ("env" in abilities.deny or not {"*", "env"} & set(abilities.allow)):
        return []
    keys = PROVIDER_KEYS | {(each.key_from or "").removeprefix("env.") for each in agent.auth.providers.values()}
    never = [name for name in agent.startup.env if name in keys or _STEERS_PROGRAMS.fullmatch(name)]
    return [name for name in agent.startup.env if name not in never and (name in granted or not looks_secret(name))]


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is probably a key, a token or a password."""
    return _LOOKS_SECRET.fullmatch(name) is not None
