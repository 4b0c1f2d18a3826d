"""What a new workspace and a new agent begin with: texts with `{name}`, `{provider}` and `{model}` to fill in.

Every text validates without a warning; a test keeps that so. Knows no disk: `agents.py` writes the files.
Adding a format: a line in `TEMPLATES` with the files of such an agent, relative to the folder with agents.
"""

from collections.abc import Mapping

from msgspec import Struct

SETTINGS = """\
# yaml-language-server: $schema={schemas}/config.schema.json
# Settings of this workspace; `duragent schema config` names them all. Keys stay in the environment.
workspace: .duragent

sessions:
  ttl_hours: 168        # sessions that rest this long end; their files stay
  compaction: archive   # what is no longer needed for going on is kept beside the log
"""

IGNORED = """\
# What people said and what machines keep is nobody's source code.
sessions/
work/
processes/
schedules/
memory/
skills/quarantine/
policies/
notifications.jsonl
chat_history
policy.local.yaml
.index.sqlite*
.lock
"""

_PROMPT = """\
You are {title}, a helpful assistant.

- Answer what was asked first, in plain words, and keep it short.
- Say so when you do not know something or are not sure.
- Ask one question when the task is unclear.
"""

_DURAGENT = """\
# yaml-language-server: $schema={schemas}/agent.schema.json
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: {yaml_name}
  description: Answers questions and helps with everyday tasks.
  version: 0.1.0

spec:
  model:
    provider: {provider}
    name: {yaml_model}

  system_prompt: ./SYSTEM_PROMPT.md

  memory:
    backend: filesystem

  # What it may use; policy.yaml beside this file says what runs without a question.
  tools:
    - type: builtin
      name: bash
"""

_POLICY = """\
# yaml-language-server: $schema={schemas}/policy.schema.json
apiVersion: duragent/v1alpha1
kind: Policy

# What no rule names is asked about. Try a rule: duragent policy test {name} 'bash:git push'
mode: ask

allow:
  - "bash:ls"
  - "bash:ls *"
  - "bash:cat *"
  - "bash:git status"
"""

_AGENTSPEC = """\
# yaml-language-server: $schema={schemas}/agentspec.schema.json
apiVersion: agent/v1
name: {yaml_name}
version: 0.1.0
description: Answers questions and helps with everyday tasks.

model:
  capability: reasoning-mid
  preferred:
    - {preferred}

behavior:
  persona: helpful assistant
  traits:
    - be-concise
    - never-guess
    - flag-uncertainty
"""

_AGENTDIR = """\
name          = "{name}"
description   = "Answers questions and helps with everyday tasks."
version       = "0.1.0"
default_model = "{provider}/{model}"

providers "{provider}" {{
{key}  models "{model}" {{}}
}}
"""

_AGENTMD = """\
---
version: 0.1.0
recommended:
  models:
    - {provider}/{model}
---

# {title}

Answers questions and helps with everyday tasks.

## System

{prompt}
## Rules

- Never invent facts, sources or numbers.
"""


class Template(Struct, frozen=True):
    """The files of one new agent by their paths, which file or folder is the agent, and the schemas it names."""

    entry: str
    files: Mapping[str, str]
    schemas: tuple[str, ...] = ()


TEMPLATES: Mapping[str, Template] = {
    "duragent": Template(
        "{name}",
        {"{name}/agent.yaml": _DURAGENT, "{name}/SYSTEM_PROMPT.md": _PROMPT, "{name}/policy.yaml": _POLICY},
        ("agent", "policy"),
    ),
    "agentspec": Template("{name}.agent", {"{name}.agent": _AGENTSPEC}, ("agentspec",)),
    "agentdir": Template("{name}", {"{name}/instructions.md": _PROMPT, "{name}/agent.acl": _AGENTDIR}),
    "agentmd": Template("general_{name}.agent.md", {"general_{name}.agent.md": _AGENTMD}),
}

MODELS: Mapping[str, tuple[str, str]] = {
    "anthropic": ("claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    "openai": ("gpt-4o-mini", "OPENAI_API_KEY"),
    "openrouter": ("anthropic/claude-sonnet-4.5", "OPENROUTER_API_KEY"),
    "ollama": ("llama3.2", "OLLAMA_HOST"),
    "local": ("smollm2", ""),
}
"""What a new agent runs on where nobody names a model, and the variable that says that it can."""


def likely_provider(environ: Mapping[str, str]) -> str:
    """The provider whose key is set here; openai where none is."""
    return next((name for name, (_, key) in MODELS.items() if key and environ.get(key)), "openai")


def _plain(word: str) -> str:
    """A word as YAML takes it for a text: `007` and `null` need quotes, `gpt-4o` does not."""
    ordinary = word[0].isalpha() and word.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    return word if ordinary else f'"{word}"'


def filled(template: Template, *, name: str, provider: str, model: str, schemas: str) -> dict[str, str]:
    """The files of a new agent, ready to be written. `schemas` leads from the agents' folder to the schemas."""
    title = name.replace("-", " ").strip().capitalize()
    variable = MODELS.get(provider, ("", ""))[1]
    words = {
        "name": name,
        "yaml_name": _plain(name),
        "yaml_model": _plain(model),
        "title": title,
        "provider": provider,
        "model": model,
        "preferred": f"{'claude' if provider == 'anthropic' else provider}/{model}",
        "prompt": _PROMPT.format(title=title),
        "key": f'  api_key = env("{variable}")\n\n' if variable.endswith("_KEY") else "",
    }
    found = {}
    for path, text in template.files.items():
        up = "../" * path.count("/")
        found[path.format(name=name)] = text.format(**words, schemas=f"{up}{schemas}")
    return found
