"""Every value knows where it came from: nothing that somebody wrote is called a default."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from duragent.agent import Access, Agent, Json, Origin
from duragent.agentfiles import load
from duragent.cli.showing import origins

ROOT = Path(__file__).parents[1]
SAMPLES = [path for folder in ("examples", "bench/data") for path in sorted((ROOT / folder).iterdir())]
LEAST: Mapping[str, Mapping[str, str]] = {
    "agentdir": {"instructions.md": "Be kind.\n"},
    "agentmd": {"general_least.agent.md": "## System\n\nBe kind.\n"},
    "openagentspec": {
        "agent.yaml": "component_type: Agent\nagentspec_version: 25.4.2\nname: least\nsystem_prompt: Be kind.\n"
        "llm_config: {component_type: OpenAiConfig, name: m, model_id: gpt-4o}\n"
    },
    "duragent": {
        "agent.yaml": "apiVersion: duragent/v1alpha1\nkind: Agent\nmetadata: {name: least}\n"
        "spec: {model: {provider: openai, name: gpt-4o}}\n"
    },
    "agentspec": {"least.agent": "apiVersion: agent/v1\nname: least\n"},
}
ENTRY_DEFAULTS: Mapping[str, Json] = {
    "prompt[].required": False,
    "tools[].enabled": True,
    "tools[].language": "js",
    "tools[].timeout_seconds": 60,
    "tools[].limits.timeout_ms": 30_000,
    "tools[].limits.max_tool_calls": 20,
    "tools[].limits.max_output_bytes": 65_536,
    "skills[].kind": "instruction",
    "skills[].model_may_invoke": True,
    "schedules[].enabled": True,
    "schedules[].name": "",
    "schedules[].prompt": "",
    "commands[].description": "",
    "commands[].body": "",
    "commands[].argument_hint": "",
    "abilities.allow[]": "*",
    **{path: value for path, value, _ in origins(Agent(name="", access=Access())) if path.startswith("access.")},
}
"""What an entry of a list, or a section that an agent need not have, says when its author does not."""


def is_agent(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".agent"


def put(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def defaults(agent: Agent) -> dict[str, Json]:
    """The values that are said to be defaults."""
    return {path: value for path, value, origin in origins(agent) if origin is None}


def unexplained(agent: Agent, least: Agent) -> dict[str, Json]:
    """Values said to be defaults that are none: an agent that says as little as it may has others, or none."""
    allowed = defaults(least) | dict(ENTRY_DEFAULTS)
    return {
        path: value
        for path, value in defaults(agent).items()
        if (path, value) not in allowed.items() and (re.sub(r"\d+(?=\])", "", path), value) not in allowed.items()
    }


@pytest.mark.parametrize(
    "path", [path for path in SAMPLES if is_agent(path)], ids=lambda path: str(path.relative_to(ROOT))
)
def test_a_sample_calls_nothing_a_default_that_is_none(path: Path, tmp_path: Path) -> None:
    agent = load(path)
    assert unexplained(agent, load(put(tmp_path / "least", LEAST[agent.source.format]))) == {}


EVERYTHING: Mapping[str, Mapping[str, str]] = {
    "agentdir": {
        "instructions.md": "\nBe kind.\n",
        "agent.acl": """\
name = "full"
description = "Says everything."
version = "1"
default_model = "a/m"
max_tool_rounds = 25
max_parallel_tasks = 2
llm_api_timeout_ms = 300000
thinking_budget = 5
memory { max_working = 3 }
providers "a" {
  api_key = env("KEY")
  base_url = "https://a.example"
  headers = { Title = "t" }
  session_id_header = "s"
  models "m" {
    family = "f"
    limit { context = 9, output = 8 }
  }
  models "n" { limit { context = 7 } }
}
mcp_servers "s" {
  transport = "stdio"
  command = "run"
  args = ["-v"]
  env = { A = "b" }
  enabled = true
  toolTimeoutSecs = 60
  odd = 1
}
""",
        "tools/one.md": """\
---
kind: mcp
name: one
transport: {type: http, url: https://x, headers: {A: b}}
enabled: true
tool_timeout_secs: 60
oauth: {auth_url: https://a, token_url: https://t, client_id: c, redirect_uri: https://r, scopes: [s]}
x-odd: {a: [1]}
---

About it.
""",
        "tools/two.md": """\
---
kind: script
name: two
path: two.js
allowed_tools: [bash]
limits: {timeoutMs: 30000, maxToolCalls: 20, maxOutputBytes: 65536}
---

  What it does.
""",
        "two.js": "",
        "schedules/daily.md": "---\ncron: 0 9 * * MON\nname: d\nenabled: true\ntimezone: UTC\nx-a.b: 1\n---\n\nDo it.\n",
    },
    "agentmd": {
        "general_full.agent.md": """\
---
version: 0.1.0
icon: 🤖
status: active
avatar: a.png
templateEngine: hbs
input: {a: 1}
recommended: {models: [a/m], capabilities: [c], odd: 1}
required: {env: [HOME], startup: go}
allow: "*"
deny: fs, network
commands:
  - ./more.md
  - https://x.example/c/
  - https://x.example/far.md
  - {name: here, description: d, argument-hint: [a], body: b, odd: 2}
tags: [x]
rules: unused
---

# Full

Says everything.

## System

Be kind to {{name}}.

## Tools

```js
return { go: { fn, scheme } };
```

## More

Text.
""",
        "more.md": '---\ndescription: m\nargument-hint: "[a]"\nodd: {b: 3}\n---\n\nDo more.\n',
    },
    "openagentspec": {
        "agent.yaml": """\
component_type: Agent
agentspec_version: 26.1.2
id: full-1
name: full
description: Says everything.
metadata: {owner: me, duragent: {title: Full, version: "1", tags: [t], labels: {a: b}, icon: 🤖, templates: none}}
system_prompt: Speak {{language}} and {{tone}}.
inputs: [{title: tone, type: string, default: mild}]
llm_config:
  component_type: LlmConfig
  name: m
  model_id: gpt
  provider: p
  api_provider: q
  url: https://q.example
  default_generation_parameters: {temperature: 0.7, max_tokens: 9, top_p: 1}
tools:
  - {component_type: ServerTool, name: bash, description: d}
  - {component_type: ServerTool, name: odd, inputs: [{title: a}]}
  - $component_ref: one
toolboxes:
  - component_type: MCPToolBox
    name: box
    tool_filter: [a]
    metadata: {duragent: {transport: http, config: {k: [1]}}}
    client_transport:
      component_type: StreamableHTTPTransport
      name: t
      url: https://x
      headers: {A: b}
      session_parameters: {read_timeout_seconds: 60}
$referenced_components:
  one:
    component_type: MCPTool
    name: single
    client_transport: {component_type: StdioTransport, name: u, command: run, args: [-v], env: {A: b}, cwd: /x}
"""
    },
}
UNSAID: Mapping[str, set[str]] = {
    "agentdir": {"icon", "status", "templates", "prompt[0].required"},
    "agentmd": {
        "prompt[0].required",
        "tools[0].language",
        *(f"commands[1].{name}" for name in ("description", "body", "argument_hint")),
    },
    "openagentspec": {
        "prompt[0].required",
        "status",
        *(f"tools[{n}].enabled" for n in (1, 2)),
        "tools[1].timeout_seconds",
    },
}
"""What no author of the files above wrote, and no format leaves out of an agent that says nothing."""


@pytest.mark.parametrize("name", EVERYTHING)
def test_what_is_written_is_no_default_even_if_it_says_the_same(name: str, tmp_path: Path) -> None:
    agent = load(put(tmp_path / "full", EVERYTHING[name]))
    assert agent.source.format == name
    least = defaults(load(put(tmp_path / "least", LEAST[name])))
    never = ("memory.", "session.on", "session.context.", "limits.on_", "auth.strategy", "trace", "model.context")
    found = {path for path in defaults(agent) if not path.startswith(never)}
    model = {"model.temperature"} if name != "openagentspec" else set()
    rest = {"limits.tool_iterations", "session.llm_timeout_seconds"} & least.keys() if name != "agentdir" else set()
    assert found == UNSAID[name] | model | rest


def places(agent: Agent, folder: Path) -> dict[str, str]:
    return {
        path: f"{Path(origin.file).relative_to(folder)}:{origin.line}:{origin.column}"
        for path, _, origin in origins(agent)
        if isinstance(origin, Origin)
    }


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        (
            "agentdir",
            {
                "name": "agent.acl:1:8",
                "prompt[0].text": "instructions.md:2:1",
                "model.candidates[0].name": "agent.acl:4:17",
                "model.candidates[0].base_url": "agent.acl:12:14",
                "model.max_input_tokens": "agent.acl:17:23",
                "model.max_output_tokens": "agent.acl:17:35",
                "limits.tool_iterations": "agent.acl:5:19",
                "limits.parallel_tasks": "agent.acl:6:22",
                "session.llm_timeout_seconds": "agent.acl:7:22",
                "auth.providers.a.key_from": "agent.acl:11:13",
                "auth.providers.a.base_url": "agent.acl:12:14",
                "auth.providers.a.headers.Title": "agent.acl:13:23",
                "tools[0].name": "agent.acl:21:1",
                "tools[0].command": "agent.acl:23:13",
                "tools[0].args[0]": "agent.acl:24:11",
                "tools[1].transport": "tools/one.md:4:19",
                "tools[1].url": "tools/one.md:4:30",
                "tools[1].headers.A": "tools/one.md:4:54",
                "tools[1].oauth.scopes[0]": "tools/one.md:7:100",
                "tools[2].description": "tools/two.md:9:3",
                "tools[2].limits.max_tool_calls": "tools/two.md:6:42",
                "schedules[0].cron": "schedules/daily.md:2:7",
                "schedules[0].timezone": "schedules/daily.md:5:11",
                "schedules[0].prompt": "schedules/daily.md:9:1",
                "extra.agentdir.acl[0].value": "agent.acl:8:19",
                "extra.agentdir.acl[1].name": "agent.acl:9:1",
                "extra.agentdir.acl[1].attributes.max_working": "agent.acl:9:24",
                "extra.agentdir.providers.a.attributes.session_id_header": "agent.acl:14:23",
                "extra.agentdir.providers.a.blocks[0].attributes.family": "agent.acl:16:14",
                "extra.agentdir.providers.a.blocks[1].blocks[0].attributes.context": "agent.acl:19:34",
                "extra.agentdir.tools.s.odd": "agent.acl:28:9",
                "extra.agentdir.tools.one.x-odd.a[0]": "tools/one.md:8:13",
                "extra.agentdir.bodies.one": "tools/one.md:11:1",
                "extra.agentdir.schedules.0.x-a.b": "schedules/daily.md:6:8",
            },
        ),
        (
            "agentmd",
            {
                "name": "general_full.agent.md:1:1",
                "labels.category": "general_full.agent.md:1:1",
                "templates": "general_full.agent.md:6:17",
                "input.a": "general_full.agent.md:7:12",
                "startup.env[0]": "general_full.agent.md:9:18",
                "startup.tool": "general_full.agent.md:9:34",
                "abilities.allow[0]": "general_full.agent.md:10:8",
                "abilities.deny[1]": "general_full.agent.md:11:7",
                "commands[0].name": "more.md:1:1",
                "commands[0].description": "more.md:2:14",
                "commands[0].argument_hint": "more.md:3:16",
                "commands[0].body": "more.md:7:1",
                "commands[1].source": "general_full.agent.md:15:5",
                "commands[2].name": "general_full.agent.md:16:12",
                "commands[2].argument_hint[0]": "general_full.agent.md:16:50",
                "commands[2].body": "general_full.agent.md:16:60",
                "extra.agentmd.tags[0]": "general_full.agent.md:17:8",
                "extra.agentmd.recommended.odd": "general_full.agent.md:8:54",
                "extra.agentmd.rules": "general_full.agent.md:18:8",
                "extra.agentmd.commands.fields.more.odd.b": "more.md:4:10",
                "extra.agentmd.commands.fields.here.odd": "general_full.agent.md:16:68",
                "extra.agentmd.commands.folders[0]": "general_full.agent.md:14:5",
                "extra.agentmd.body[0].slot": "general_full.agent.md:21:1",
            },
        ),
        (
            "openagentspec",
            {
                "title": "agent.yaml:6:41",
                "tags[0]": "agent.yaml:6:68",
                "model.candidates[0].provider": "agent.yaml:14:17",
                "model.candidates[0].name": "agent.yaml:12:13",
                "model.candidates[0].base_url": "agent.yaml:15:8",
                "model.temperature": "agent.yaml:16:48",
                "tools[0].name": "agent.yaml:18:40",
                "tools[1].command": "agent.yaml:36:74",
                "tools[1].config.tool_filter[0]": "agent.yaml:35:11",
                "tools[1].env.A": "agent.yaml:36:100",
                "tools[2].transport": "agent.yaml:25:38",
                "tools[2].config.tool_filter[0]": "agent.yaml:24:19",
                "tools[2].config.k[0]": "agent.yaml:25:57",
                "tools[2].timeout_seconds": "agent.yaml:31:50",
                "extra.openagentspec.id": "agent.yaml:3:5",
                "extra.openagentspec.metadata.owner": "agent.yaml:6:19",
                "extra.openagentspec.inputs[0].title": "agent.yaml:7:16",
                "extra.openagentspec.inputs[1].default": "agent.yaml:8:47",
                "extra.openagentspec.llm_config.default_generation_parameters.top_p": "agent.yaml:16:75",
                "extra.openagentspec.tools.odd.inputs[0].title": "agent.yaml:19:62",
                "extra.openagentspec.tools.single.client_transport.cwd": "agent.yaml:36:109",
            },
        ),
    ],
)
def test_a_value_is_found_at_its_own_place(name: str, wanted: Mapping[str, str], tmp_path: Path) -> None:
    found = places(load(put(tmp_path, EVERYTHING[name])), tmp_path)
    assert {path: found.get(path) for path in wanted} == wanted
