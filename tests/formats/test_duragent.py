"""The Duragent format: every field of both format documents, its default, and what a wrong value is told."""

import re
import stat
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duragent.agent import (
    Access,
    BuiltinTool,
    CliTool,
    ContextBuffer,
    ContextRules,
    Debounce,
    DirectAccess,
    DiscoveredTool,
    GroupAccess,
    Limits,
    McpServer,
    Memory,
    ModelChoice,
    ModelRef,
    Notify,
    Origin,
    Policy,
    PolicyTier,
    QueueRules,
    Schedule,
    SessionRules,
    Skill,
    Trigger,
)
from duragent.agentfiles import Examined
from duragent.conversion import write
from duragent.formats.duragent.fields import BUILTINS, PROVIDERS
from duragent.formats.write import dump_yaml
from tests.build import HEAD, MANIFEST, MODEL, SKILL, agent_at, errors, look, only, said, write_tree


def spec(root: Path, lines: str, **files: str) -> Examined:
    """The smallest manifest with more `lines` in its spec; the first of them is line 7, column 3."""
    body = "".join(f"  {line}\n" for line in lines.splitlines())
    others = {name.replace("__", "/").replace("_md", ".md"): text for name, text in files.items()}
    return look(write_tree(root, {"agent.yaml": MANIFEST + body, **others}))


def agent_with(root: Path, lines: str, **files: str) -> Any:
    found = spec(root, lines, **files)
    assert found.agent is not None, found.problems
    return found.agent


def executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


# --- the documents' own examples -------------------------------------------------------------------------

FULL = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: productivity-assistant
  description: Personal productivity assistant with task management
  version: 1.0.0
  labels:
    domain: productivity
spec:
  model:
    provider: openrouter
    name: anthropic/claude-sonnet-4
    temperature: 0.7
    max_input_tokens: 100000
    max_output_tokens: 4096
    base_url: https://custom-endpoint.example.com/v1
  soul: ./SOUL.md
  system_prompt: ./SYSTEM_PROMPT.md
  instructions: ./INSTRUCTIONS.md
  session:
    on_disconnect: continue
    max_tool_iterations: 10
    llm_timeout_seconds: 300
    ttl_hours: 48
    compaction: archive
    max_background_runtime: 30m
    output_buffer_size: 500
    context:
      max_history_tokens: 20000
      max_tool_result_tokens: 8000
      tool_result_truncation: head
      tool_result_keep_first: 2
      tool_result_keep_last: 5
  access:
    dm:
      policy: allowlist
      allowlist: ["123456789"]
    groups:
      policy: allowlist
      allowlist: ["telegram:-100123456"]
      activation: mention
      sender_default: allow
      sender_overrides:
        "999999": block
        "888888": passive
      context_buffer:
        mode: silent
        max_messages: 100
        max_age_hours: 24
      queue:
        mode: batch
        max_pending: 10
        overflow: drop_old
        reject_message: "I'm busy, please wait."
        debounce:
          enabled: true
          window_ms: 1500
  memory:
    backend: filesystem
  tools:
    - type: builtin
      name: bash
    - type: builtin
      name: web
    - type: builtin
      name: schedule
    - type: builtin
      name: background_process
    - type: builtin
      name: session
    - type: builtin
      name: reload_tools
    - type: cli
      name: git-helper
      command: ./tools/git-helper/script.sh
      description: Run git operations
      readme: ./tools/git-helper/README.md
    - type: mcp
      name: web_search
      server: /usr/local/bin/web-search-mcp
    - type: mcp
      name: calendar
      server: ./tools/calendar-mcp
      config:
        calendar_id: primary
  skills_dir: ./skills/
  skills:
    - path: ./shared-skills/meeting-notes/
    - url: https://example.com/productivity/weekly-review
  triggers:
    - pattern: "extract tasks from *"
      skill: task-extraction
    - schedule: "0 20 * * FRI"
      skill: weekly-review
"""
MINIMAL = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: simple-assistant
spec:
  model:
    provider: openrouter
    name: anthropic/claude-sonnet-4
  system_prompt: ./SYSTEM_PROMPT.md
"""
REVIEWER = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: code-reviewer
spec:
  model:
    provider: openrouter
    name: anthropic/claude-sonnet-4
    temperature: 0.3
  system_prompt: ./SYSTEM_PROMPT.md
  instructions: ./INSTRUCTIONS.md
  session:
    on_disconnect: pause  # Interactive review sessions
  tools:
    - type: builtin
      name: bash
    - type: cli
      name: git-diff
      command: ./tools/git-diff.sh
      description: Show git diff for review
"""
SUPERVISOR = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: code-supervisor
  description: Completes coding tasks autonomously
spec:
  model:
    provider: anthropic
    name: claude-sonnet-4-20250514
  system_prompt: ./SYSTEM_PROMPT.md
  session:
    on_disconnect: continue
    max_tool_iterations: 50
  tools:
    - type: builtin
      name: bash
    - type: cli
      name: git-pr
      command: ./tools/git-pr.sh
"""
A2A = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: my-agent
  a2a:
    defaultInputModes: [text, file]
    defaultOutputModes: [text, data]
    securitySchemes:
      - type: oauth2
        flows:
          authorizationCode:
            authorizationUrl: https://auth.example.com/authorize
            tokenUrl: https://auth.example.com/token
spec:
  model: {provider: openai, name: m}
"""
BLOCKS = [
    "session:\n  on_disconnect: pause\n",
    "session:\n  on_disconnect: continue\n  max_background_runtime: 2h\n",
    "session:\n  context:\n    max_history_tokens: 20000\n    max_tool_result_tokens: 8000\n"
    "    tool_result_truncation: head\n    tool_result_keep_first: 2\n    tool_result_keep_last: 5\n",
    'access:\n  dm:\n    policy: allowlist\n    allowlist: ["12345"]\n  groups:\n    policy: allowlist\n'
    '    allowlist: ["telegram:-100123456"]\n    sender_default: passive\n    sender_overrides:\n'
    '      "67890": allow\n      "99999": block\n    activation: mention\n    context_buffer:\n      mode: silent\n'
    "      max_messages: 50\n      max_age_hours: 12\n    queue:\n      mode: sequential\n      max_pending: 5\n"
    '      overflow: reject\n      reject_message: "I\'m busy, please wait."\n',
    "memory:\n  short_term:\n    backend: buffer\n    max_tokens: 8000\n  long_term:\n    backend: filesystem\n",
]
BESIDE = {
    "SOUL.md": "Communication style rules:\n- Be concise and concrete\n",
    "SYSTEM_PROMPT.md": "You help.\n",
    "INSTRUCTIONS.md": "Today is ${date}, ${user.name} lives in ${user.timezone}.\n",
    "tools/git-helper/script.sh": "#!/bin/sh\n",
    "tools/git-helper/README.md": "Runs git.\n",
    "tools/calendar-mcp": "#!/bin/sh\n",
    "tools/git-diff.sh": "#!/bin/sh\n",
    "tools/git-pr.sh": "#!/bin/sh\n",
    "skills/task-extraction/SKILL.md": "---\nname: task-extraction\ndescription: Extract tasks.\n---\nDo it.\n",
    "shared-skills/meeting-notes/SKILL.md": "---\nname: meeting-notes\ndescription: Notes.\n---\nDo it.\n",
}


def with_everything(root: Path, manifest: str) -> Path:
    write_tree(root, {"agent.yaml": manifest, **BESIDE})
    for script in ("tools/git-helper/script.sh", "tools/calendar-mcp", "tools/git-diff.sh", "tools/git-pr.sh"):
        executable(root / script)
    return root


@pytest.mark.parametrize("manifest", [MINIMAL, FULL, REVIEWER, SUPERVISOR, A2A])
def test_the_documents_manifests_are_read_without_a_problem(tmp_path: Path, manifest: str) -> None:
    found = look(with_everything(tmp_path, manifest))
    assert (found.format, found.problems) == ("duragent", ())


@pytest.mark.parametrize("block", BLOCKS)
def test_the_documents_fragments_are_read_without_a_problem(tmp_path: Path, block: str) -> None:
    assert spec(tmp_path, block).problems == ()


def test_every_field_of_the_full_manifest_reaches_the_agent(tmp_path: Path) -> None:
    agent = agent_at(with_everything(tmp_path, FULL))
    assert (agent.name, agent.version, agent.labels) == ("productivity-assistant", "1.0.0", {"domain": "productivity"})
    assert agent.model == ModelChoice(
        candidates=(ModelRef("openrouter", "anthropic/claude-sonnet-4", "https://custom-endpoint.example.com/v1"),),
        temperature=0.7,
        max_input_tokens=100_000,
        max_output_tokens=4096,
    )
    assert [(part.kind, part.path) for part in agent.prompt] == [
        ("soul", "./SOUL.md"),
        ("system_prompt", "./SYSTEM_PROMPT.md"),
        ("instructions", "./INSTRUCTIONS.md"),
    ]
    assert agent.session == SessionRules("continue", 300, 48, "archive", 500, ContextRules())
    assert agent.limits == Limits(tool_iterations=10, background_seconds=1800)
    assert agent.access == Access(
        dm=DirectAccess("allowlist", ("123456789",)),
        groups=GroupAccess(
            policy="allowlist",
            allowlist=("telegram:-100123456",),
            sender_overrides={"999999": "block", "888888": "passive"},
            context_buffer=ContextBuffer("silent", 100, 24),
            queue=QueueRules(reject_message="I'm busy, please wait.", debounce=Debounce(True, 1500)),
        ),
    )
    assert agent.tools == (
        *(BuiltinTool(name) for name in BUILTINS if name != "memory"),
        CliTool(
            "git-helper",
            "./tools/git-helper/script.sh",
            "Run git operations",
            "./tools/git-helper/README.md",
        ),
        McpServer("web_search", command="/usr/local/bin/web-search-mcp"),
        McpServer("calendar", command="./tools/calendar-mcp", config={"calendar_id": "primary"}),
    )
    assert [(skill.name, skill.path) for skill in agent.skills] == [
        ("task-extraction", "skills/task-extraction/SKILL.md"),
        ("meeting-notes", "shared-skills/meeting-notes/SKILL.md"),
        ("weekly-review", "https://example.com/productivity/weekly-review"),
    ]
    assert agent.triggers == (Trigger("extract tasks from *", "task-extraction"),)
    assert agent.schedules == (Schedule(cron="0 20 * * FRI", skill="weekly-review"),)
    assert (agent.memory, agent.templates) == (Memory(long_term="filesystem"), "variables")


# --- defaults --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", ["", "session: {}", "session: {context: {}}"])
def test_session_defaults_hold_whether_or_not_the_block_is_there(tmp_path: Path, lines: str) -> None:
    agent = agent_with(tmp_path, lines)
    assert agent.session == SessionRules(
        on_disconnect="pause",
        llm_timeout_seconds=300,
        ttl_hours=None,
        compaction=None,
        output_buffer_size=None,
        context=ContextRules(
            max_history_tokens=20_000,
            max_tool_result_tokens=8_000,
            tool_result_truncation="head",
            tool_result_keep_first=2,
            tool_result_keep_last=5,
        ),
    )
    assert (agent.limits.tool_iterations, agent.limits.background_seconds) == (10, None)


def test_the_temperature_is_07_when_nothing_is_said(tmp_path: Path) -> None:
    assert agent_with(tmp_path, "").model.temperature == 0.7


@pytest.mark.parametrize(
    "lines",
    ["access: {}", "access: {dm: {}, groups: {}}", "access: {groups: {queue: {debounce: {}}, context_buffer: {}}}"],
)
def test_access_defaults_are_the_documents(tmp_path: Path, lines: str) -> None:
    assert agent_with(tmp_path, lines).access == Access(
        dm=DirectAccess(policy="open", allowlist=()),
        groups=GroupAccess(
            policy="open",
            allowlist=(),
            sender_default="allow",
            sender_overrides={},
            activation="mention",
            context_buffer=ContextBuffer(mode="silent", max_messages=100, max_age_hours=24),
            queue=QueueRules("batch", 10, "drop_old", None, Debounce(enabled=True, window_ms=1500)),
        ),
    )


def test_an_agent_without_access_has_none_of_it(tmp_path: Path) -> None:
    assert agent_with(tmp_path, "").access is None


@pytest.mark.parametrize(
    ("lines", "memory"),
    [
        ("", Memory()),
        ("memory: {}", Memory(long_term="filesystem")),
        ("memory: {backend: external}", Memory(long_term="external")),
        ("memory: {short_term: {}}", Memory(short_term="buffer", long_term="filesystem")),
        (
            "memory: {short_term: {backend: external, max_tokens: 9}, long_term: {backend: external}}",
            Memory(short_term="external", short_term_max_tokens=9, long_term="external"),
        ),
        ("memory: {long_term: {}}", Memory(long_term="filesystem")),
    ],
)
def test_both_shapes_of_memory(tmp_path: Path, lines: str, memory: Memory) -> None:
    assert agent_with(tmp_path, lines).memory == memory


def test_a_value_knows_where_it_was_written(tmp_path: Path) -> None:
    origins = agent_with(tmp_path, "session:\n  max_tool_iterations: 3\n  ttl_hours: 1").origins
    file = str(tmp_path / "agent.yaml")
    assert origins["limits.tool_iterations"] == Origin(file, 8, 26)
    assert origins["session.ttl_hours"] == Origin(file, 9, 16)
    assert origins["name"] == Origin(file, 4, 9)
    assert "model.temperature" not in origins


# --- wrong values ----------------------------------------------------------------------------------------

WHOLE = "a whole number, at least"
WRONG = [
    ("soul: ''", "spec.soul", 9, "spec.soul must be a text, not the text ''"),
    ("soul: [a]", "spec.soul", 9, "spec.soul must be the path of a Markdown file, not a list"),
    ("bootstrap: x", "spec.bootstrap", 14, "spec.bootstrap must be a list, not the text 'x'"),
    ("bootstrap: [{}]", "spec.bootstrap[0].path", 15, "spec.bootstrap[0].path is missing"),
    ("bootstrap: [{path: a, max_tokens: 0}]", "spec.bootstrap[0].max_tokens", 37, f"must be {WHOLE} 1, not the number 0"),
    ("bootstrap: [{path: a, required: yes}]", "spec.bootstrap[0].required", 35, "must be true or false, not the text 'yes'"),
    ("session: 3", "spec.session", 12, "must be a section (`key: value` lines), not the number 3"),
    ("session: {on_disconnect: stop}", "spec.session.on_disconnect", 28, "must be one of pause, continue, not the text 'stop'"),
    ("session: {max_tool_iterations: 0}", "spec.session.max_tool_iterations", 34, f"must be {WHOLE} 1, not the number 0"),
    ("session: {max_tool_iterations: '5'}", "spec.session.max_tool_iterations", 34, f"must be {WHOLE} 1, not the text '5'"),
    ("session: {llm_timeout_seconds: 1.5}", "spec.session.llm_timeout_seconds", 34, f"must be {WHOLE} 1, not the number 1.5"),
    ("session: {llm_timeout_seconds: true}", "spec.session.llm_timeout_seconds", 34, f"must be {WHOLE} 1, not the truth value true"),
    ("session: {ttl_hours: -1}", "spec.session.ttl_hours", 24, f"must be {WHOLE} 0, not the number -1"),
    ("session: {compaction: none}", "spec.session.compaction", 25, "must be one of discard, archive, disabled, not the text 'none'"),
    ("session: {max_background_runtime: 30}", "spec.session.max_background_runtime", 37, "must be a duration such as 30m or 2h, not the number 30"),
    ("session: {output_buffer_size: many}", "spec.session.output_buffer_size", 33, f"must be {WHOLE} 1, not the text 'many'"),
    ("session: {context: {max_history_tokens: -1}}", "spec.session.context.max_history_tokens", 43, f"must be {WHOLE} 0, not the number -1"),
    ("session: {context: {max_tool_result_tokens: 0}}", "spec.session.context.max_tool_result_tokens", 47, f"must be {WHOLE} 1, not the number 0"),
    ("session: {context: {tool_result_truncation: mid}}", "spec.session.context.tool_result_truncation", 47, "must be one of head, tail, both, not the text 'mid'"),
    ("session: {context: {tool_result_keep_first: a}}", "spec.session.context.tool_result_keep_first", 47, f"must be {WHOLE} 0, not the text 'a'"),
    ("session: {context: {tool_result_keep_last: [1]}}", "spec.session.context.tool_result_keep_last", 46, f"must be {WHOLE} 0, not a list"),
    ("access: {dm: {policy: closed}}", "spec.access.dm.policy", 25, "must be one of open, disabled, allowlist, not the text 'closed'"),
    ("access: {dm: {allowlist: '1'}}", "spec.access.dm.allowlist", 28, "must be a list, not the text '1'"),
    ("access: {groups: {sender_default: no}}", "spec.access.groups.sender_default", 37, "must be one of allow, passive, silent, block, not the text 'no'"),
    ("access: {groups: {sender_overrides: {a: x}}}", "spec.access.groups.sender_overrides.a", 43, "must be one of allow, passive, silent, block, not the text 'x'"),
    ("access: {groups: {activation: never}}", "spec.access.groups.activation", 33, "must be one of mention, always, not the text 'never'"),
    ("access: {groups: {context_buffer: {mode: x}}}", "spec.access.groups.context_buffer.mode", 44, "must be one of silent, passive, not the text 'x'"),
    ("access: {groups: {queue: {overflow: x}}}", "spec.access.groups.queue.overflow", 39, "must be one of drop_old, drop_new, reject, not the text 'x'"),
    ("access: {groups: {queue: {max_pending: 0}}}", "spec.access.groups.queue.max_pending", 42, f"must be {WHOLE} 1, not the number 0"),
    ("access: {groups: {queue: {debounce: {enabled: 1}}}}", "spec.access.groups.queue.debounce.enabled", 49, "must be true or false, not the number 1"),
    ("memory: {backend: redis}", "spec.memory.backend", 21, "must be one of filesystem, external, not the text 'redis'"),
    ("memory: {short_term: {max_tokens: 0}}", "spec.memory.short_term.max_tokens", 37, f"must be {WHOLE} 1, not the number 0"),
    ("tools: {}", "spec.tools", 10, "must be a list, not a map"),
    ("tools: [bash]", "spec.tools[0]", 11, "must be a section with `type:`, not the text 'bash'"),
    ("tools: [{name: bash}]", "spec.tools[0].type", 11, "spec.tools[0].type is missing"),
    ("tools: [{type: skill, name: x}]", "spec.tools[0].type", 18, "must be one of builtin, cli, mcp, not the text 'skill'"),
    ("tools: [{type: builtin, name: bahs}]", "spec.tools[0].name", 33, "not the text 'bahs'"),
    ("tools: [{type: cli, name: x}]", "spec.tools[0].command", 11, "spec.tools[0].command is missing"),
    ("tools: [{type: mcp, name: x}]", "spec.tools[0].server", 11, "spec.tools[0].server is missing"),
    ("tools: [{type: mcp, name: x, server: y, config: 1}]", "spec.tools[0].config", 51, "must be a map (`key: value` lines), not the number 1"),
    ("tools: [{type: builtin, name: bash}, {type: builtin, name: bash}]", "spec.tools[1]", 40, "two tools are called 'bash'"),
    ("skills: [{}]", "spec.skills[0]", 12, "spec.skills[0] needs `path` or `url`, and not both"),
    ("skills: [{path: a, url: 'https://b.c'}]", "spec.skills[0]", 12, "spec.skills[0] needs `path` or `url`, and not both"),
    ("skills: [{url: 'http://b.c'}]", "spec.skills[0].url", 12, "'http://b.c' is not an https address"),
    ("triggers: [{skill: x}]", "spec.triggers[0]", 14, "spec.triggers[0] needs `pattern` or `schedule`, and not both"),
    ("triggers: [{pattern: x}]", "spec.triggers[0].skill", 14, "spec.triggers[0].skill is missing"),
    ("triggers: [{pattern: a, skill: x}]", "spec.triggers[0].skill", 34, "there is no skill 'x'"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "path", "column", "text"), WRONG)
def test_a_wrong_value_is_an_error_with_its_path_and_place(
    tmp_path: Path, lines: str, path: str, column: int, text: str
) -> None:
    found = spec(tmp_path, lines)
    problem = next(each for each in errors(found) if each.path == path)
    assert found.agent is None
    assert (problem.line, problem.column) == (7, column)
    assert problem.text.endswith(text)


MODEL_WRONG = [
    ("model: 3", "spec.model", 10, "spec.model must be a section (`key: value` lines), not the number 3"),
    ("model: {name: m}", "spec.model.provider", 10, "spec.model.provider is missing"),
    ("model: {provider: openai}", "spec.model.name", 10, "spec.model.name is missing"),
    ("model: {provider: opnai, name: m}", "spec.model.provider", 21, f"spec.model.provider must be one of {', '.join(PROVIDERS)}, not the text 'opnai'"),
    ("model: {provider: openai, name: ''}", "spec.model.name", 35, "spec.model.name must be a text, not the text ''"),
    ("model: {provider: openai, name: m, temperature: 2.1}", "spec.model.temperature", 51, "spec.model.temperature must be a number from 0 to 2, not the number 2.1"),
    ("model: {provider: openai, name: m, temperature: -0.1}", "spec.model.temperature", 51, "spec.model.temperature must be a number from 0 to 2, not the number -0.1"),
    ("model: {provider: openai, name: m, temperature: .nan}", "spec.model.temperature", 51, "spec.model.temperature must be a number from 0 to 2, not the number .nan"),
    ("model: {provider: openai, name: m, temperature: hot}", "spec.model.temperature", 51, "spec.model.temperature must be a number from 0 to 2, not the text 'hot'"),
    ("model: {provider: openai, name: m, max_input_tokens: 0}", "spec.model.max_input_tokens", 56, f"spec.model.max_input_tokens must be {WHOLE} 1, not the number 0"),
    ("model: {provider: openai, name: m, max_output_tokens: 1.5}", "spec.model.max_output_tokens", 57, f"spec.model.max_output_tokens must be {WHOLE} 1, not the number 1.5"),
    ("model: {provider: openai, name: m, base_url: ftp://x}", "spec.model.base_url", 48, "spec.model.base_url is 'ftp://x', which is not allowed"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "path", "column", "text"), MODEL_WRONG)
def test_a_wrong_model_is_an_error_with_its_path_and_place(
    tmp_path: Path, line: str, path: str, column: int, text: str
) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": f"{HEAD}spec:\n  {line}\n"})))
    assert (problem.level, problem.path, problem.line, problem.column, problem.text) == ("error", path, 6, column, text)


@pytest.mark.parametrize(
    ("old", "new", "path", "place", "text"),
    [
        ("v1alpha1", "v7", "apiVersion", (1, 13), "apiVersion 'duragent/v7' is not known"),
        ("kind: Agent", "kind: Agnt", "kind", (2, 7), "kind must be the word Agent, not the text 'Agnt'"),
        ("name: helper", "description: x", "metadata.name", (4, 3), "metadata.name is missing"),
        ("helper", "no_good", "metadata.name", (4, 9), "metadata.name is 'no_good', which is not allowed"),
        ("helper", "-x", "metadata.name", (4, 9), "metadata.name is '-x', which is not allowed"),
        ("helper", "ü", "metadata.name", (4, 9), "metadata.name is 'ü', which is not allowed"),
        ("helper", "a" * 129, "metadata.name", (4, 9), "metadata.name is 129 characters long"),
        ("helper", "", "metadata.name", (4, 3), "metadata.name has no value"),
        ("name: helper", "name: helper\n  labels: [a]", "metadata.labels", (5, 11), "metadata.labels must be a map (`key: value` lines), not a list"),
        ("name: helper", "name: helper\n  labels: {a: [b]}", "metadata.labels.a", (5, 15), "metadata.labels.a must be a text, not a list"),
        ("name: helper", "name: helper\n  a2a: x", "metadata.a2a", (5, 8), "metadata.a2a must be a map (`key: value` lines), not the text 'x'"),
    ],
)  # fmt: skip
def test_a_wrong_envelope_is_an_error_with_its_path_and_place(
    tmp_path: Path, old: str, new: str, path: str, place: tuple[int, int], text: str
) -> None:
    problem = only(look(write_tree(tmp_path, {"agent.yaml": MANIFEST.replace(old, new, 1)})))
    assert (problem.level, problem.path, (problem.line, problem.column), problem.text) == ("error", path, place, text)


def test_all_errors_are_told_at_once(tmp_path: Path) -> None:
    found = spec(tmp_path, "session: {ttl_hours: x}\nmemory: 1\ntols: []")
    assert [(p.line, p.path) for p in errors(found)] == [
        (7, "spec.session.ttl_hours"),
        (8, "spec.memory"),
        (9, "spec.tols"),
    ]


def test_an_unknown_field_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    problem = only(spec(tmp_path, "session:\n  max_tool_iteration: 3"))
    assert (problem.level, problem.line, problem.column, problem.text, problem.hint) == (
        "error",
        8,
        5,
        "unknown field `spec.session.max_tool_iteration`",
        "did you mean `max_tool_iterations`?",
    )


def test_a_field_that_begins_with_x_is_the_owners_own(tmp_path: Path) -> None:
    found = spec(tmp_path, "x-note: {a: 1}")
    assert found.problems == ()
    assert found.agent is not None
    assert found.agent.extra == {"duragent": {"spec": {"x-note": {"a": 1}}}}


def test_a_duplicate_key_is_an_error(tmp_path: Path) -> None:
    problem = only(spec(tmp_path, "memory: {}\nmemory: {}"))
    assert (problem.level, problem.line, problem.column, problem.text) == (
        "error",
        8,
        3,
        "the key 'memory' stands here twice",
    )


@pytest.mark.parametrize(
    ("lines", "line", "column", "text"),
    [
        ("memory:", 7, 3, "spec.memory has no value"),
        ("hooks: {before_tool: []}", 7, 3, "spec.hooks is read and kept, but nothing is done with it"),
        ("skills_dir: ./none", 7, 15, "none is not there"),
        ("bootstrap: [{path: ./none.md}]", 7, 22, "none.md is not there"),
        ("tools: [{type: cli, name: x, command: git, readme: ./none.md}]", 7, 54, "none.md is not there"),
    ],
)
def test_what_is_odd_but_usable_is_a_warning(tmp_path: Path, lines: str, line: int, column: int, text: str) -> None:
    found = spec(tmp_path, lines)
    assert said(found, tmp_path) == [("warning", "agent.yaml", line, column, text)]
    assert found.agent is not None


@pytest.mark.parametrize(
    ("old", "new", "place", "text"),
    [
        ("v1alpha1", "v1", (1, 13), "duragent/v1 is read as duragent/v1alpha1"),
        ("helper", "7", (4, 9), "metadata.name is a number; it is read as text"),
        ("helper", "helper\n  version: one", (5, 12), "'one' is not a semantic version"),
        ("gpt-5}", "gpt-5, max_tokens: 5}", (6, 54), "max_tokens is the older name"),
        (MODEL, "spec: {}\n", (5, 7), "the agent names no model; the default of the machine is used"),
    ],
)
def test_an_odd_envelope_is_a_warning(tmp_path: Path, old: str, new: str, place: tuple[int, int], text: str) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": MANIFEST.replace(old, new, 1)}))
    assert said(found, tmp_path) == [("warning", "agent.yaml", *place, text)]
    assert found.agent is not None


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("30m", 1800), ("2h", 7200), ("1h30m", 5400), ("45s", 45), ("1d", 86_400), ("1d2h3m4s", 93_784), ("0s", 0)],
)
def test_durations_are_read_as_seconds(tmp_path: Path, written: str, seconds: int) -> None:
    agent = agent_with(tmp_path, f"session: {{max_background_runtime: {written}}}")
    assert agent.limits.background_seconds == seconds


@pytest.mark.parametrize("written", ["''", "5", "5x", "m", "30m2h", "1.5h", "-5m", "30 m", "９m", "9" * 21 + "m"])
def test_what_is_no_duration_is_refused(tmp_path: Path, written: str) -> None:
    problem = only(spec(tmp_path, f"session: {{max_background_runtime: {written}}}"))
    assert (problem.path, problem.line, problem.column) == ("spec.session.max_background_runtime", 7, 37)


def test_an_a2a_card_is_kept_as_it_is(tmp_path: Path) -> None:
    assert agent_at(with_everything(tmp_path, A2A)).a2a == {
        "defaultInputModes": ["text", "file"],
        "defaultOutputModes": ["text", "data"],
        "securitySchemes": [
            {
                "type": "oauth2",
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://auth.example.com/authorize",
                        "tokenUrl": "https://auth.example.com/token",
                    }
                },
            }
        ],
    }


def test_hooks_are_kept(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, "hooks: {before_tool: [{match: bash, type: depends_on}]}")
    assert agent.extra == {"duragent": {"spec": {"hooks": {"before_tool": [{"match": "bash", "type": "depends_on"}]}}}}


# --- prose -----------------------------------------------------------------------------------------------


def test_prose_that_is_written_into_the_manifest_is_told_apart_from_a_path(tmp_path: Path) -> None:
    problem = only(spec(tmp_path, "system_prompt: |\n  You are helpful.\n  Be kind."))
    assert problem.text.startswith(
        "spec.system_prompt must be the path of a Markdown file, not the text 'You are helpful."
    )
    assert problem.hint == "put the text into a file and name it, e.g. ./SYSTEM_PROMPT.md"


def test_a_missing_prompt_file_is_an_error_where_it_is_named(tmp_path: Path) -> None:
    assert said(spec(tmp_path, "soul: ./SOUL.md"), tmp_path) == [("error", "agent.yaml", 7, 9, "SOUL.md is not there")]


def test_an_empty_prompt_file_is_a_warning_in_that_file(tmp_path: Path) -> None:
    found = spec(tmp_path, "soul: ./SOUL.md", SOUL_md=" \n")
    assert said(found, tmp_path) == [("warning", "SOUL.md", 1, 1, "SOUL.md is empty")]


def test_instructions_may_be_an_agents_md(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, "instructions: ./AGENTS.md", AGENTS_md="Use make.\n")
    assert [(part.kind, part.text, part.path) for part in agent.prompt] == [
        ("instructions", "Use make.", "./AGENTS.md")
    ]


def test_bootstrap_files_follow_the_prose_with_their_settings(tmp_path: Path) -> None:
    lines = "bootstrap:\n  - {path: ./a.md, max_tokens: 9, required: true}\n  - path: ./b.md\nsoul: ./S.md"
    agent = agent_with(tmp_path, lines, a_md="A\n", b_md="B\n", S_md="S\n")
    assert [(part.kind, part.text, part.max_tokens, part.required) for part in agent.prompt] == [
        ("soul", "S", None, False),
        ("bootstrap", "A", 9, True),
        ("bootstrap", "B", None, False),
    ]


def test_a_required_bootstrap_file_that_is_missing_is_an_error(tmp_path: Path) -> None:
    found = spec(tmp_path, "bootstrap: [{path: ./a.md, required: true}]")
    assert said(found, tmp_path) == [("error", "agent.yaml", 7, 22, "a.md is not there")]


@pytest.mark.parametrize(
    "variable",
    ["${user.name}", "${user.timezone}", "${date}", "${time}", "${duragent.data_dir}", "{{date}}", "{{ time }}", "{{agent.name}}", "{{agent.home}}"],
)  # fmt: skip
def test_template_variables_are_recognised(tmp_path: Path, variable: str) -> None:
    found = spec(tmp_path, "soul: ./S.md", S_md=f"Hello {variable}.\n")
    assert found.problems == ()
    assert found.agent is not None
    assert found.agent.templates == "variables"


@pytest.mark.parametrize("text", ["${HOME}", "$date", "{date}", "${PATH:-x}", "{{#if x}}", "${1}", "no variable"])
def test_what_merely_looks_like_a_variable_is_left_alone(tmp_path: Path, text: str) -> None:
    found = spec(tmp_path, "soul: ./S.md", S_md=f"{text}\n")
    assert found.problems == ()
    assert found.agent is not None
    assert found.agent.templates == "none"


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("${user.nam}", "did you mean `user.name`?"),
        ("${dat}", "did you mean `date`?"),
        ("{{tim}}", "did you mean `time`?"),
        ("${agent.nickname}", None),
        ("{{user.name}}", None),
    ],
)
def test_a_near_miss_of_a_variable_is_a_warning_where_it_stands(
    tmp_path: Path, variable: str, hint: str | None
) -> None:
    problem = only(spec(tmp_path, "soul: ./S.md", S_md=f"One\nHello {variable}.\n"))
    assert (problem.level, problem.file, problem.line, problem.column, problem.text) == (
        "warning",
        str(tmp_path / "S.md"),
        2,
        7,
        f"unknown variable {variable}",
    )
    assert problem.hint == hint if hint else problem.hint


# --- policy ----------------------------------------------------------------------------------------------


def test_both_policy_files_are_read(tmp_path: Path) -> None:
    files = {
        "agent.yaml": MANIFEST,
        "policy.yaml": "apiVersion: duragent/v1alpha1\nkind: Policy\nmode: ask\ndeny: ['bash:rm *']\nallow: ['bash:ls']\n"
        "notify: {enabled: true, patterns: ['bash:*'], deliveries: [{type: webhook, url: 'https://h.test'}, {type: log}]}\n",
        "policy.local.yaml": "allow: ['mcp:*', '*:*']\n",
    }
    found = look(write_tree(tmp_path, files))
    assert found.problems == ()
    assert found.agent is not None
    deliveries = ({"type": "webhook", "url": "https://h.test"}, {"type": "log"})
    assert found.agent.policy == Policy(
        agent=PolicyTier("ask", ("bash:ls",), ("bash:rm *",), Notify(True, ("bash:*",), deliveries)),
        local=PolicyTier(None, ("mcp:*", "*:*")),
    )
    assert found.agent.origins["policy.agent.mode"] == Origin(str(tmp_path / "policy.yaml"), 3, 7)


def test_an_empty_policy_file_sets_nothing(tmp_path: Path) -> None:
    assert agent_at(write_tree(tmp_path, {"agent.yaml": MANIFEST, "policy.yaml": ""})).policy == Policy(
        agent=PolicyTier()
    )


def test_a_rule_without_a_sort_of_tool_is_a_warning(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": MANIFEST, "policy.yaml": "deny:\n  - rm *\n"}))
    text = "the rule 'rm *' names no sort of tool; it matches any"
    assert said(found, tmp_path) == [("warning", "policy.yaml", 2, 5, text)]


@pytest.mark.parametrize("name", ["policy.yaml", "policy.local.yaml"])
@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("mode: ask\ndeny: [", (3, 1)),
        ("mode: never\n", (1, 7)),
        ("- deny\n", (1, 1)),
        ("just text", (1, 1)),
        ("mode: ask\ndney: []\n", (2, 1)),
        ("deny: 'bash:*'\n", (1, 7)),
        ("deny: ['']\n", (1, 8)),
        ("mode: ask\nmode: dangerous\n", (2, 1)),
        ("notify: {deliveries: [{type: mail}]}\n", (1, 30)),
        ("notify: {deliveries: [{type: webhook}]}\n", (1, 23)),
    ],
)
def test_a_broken_policy_makes_the_agent_unusable(tmp_path: Path, name: str, text: str, place: tuple[int, int]) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": MANIFEST, name: text}))
    assert found.agent is None
    assert [(p.level, p.file, (p.line, p.column)) for p in found.problems] == [("error", str(tmp_path / name), place)]


# --- tools -----------------------------------------------------------------------------------------------


def test_tools_beside_the_agent_are_discovered(tmp_path: Path) -> None:
    files = {
        "agent.yaml": MANIFEST,
        "tools/b-tool/run.py": "#!",
        "tools/a-tool/run": "#!",
        "tools/a-tool/README.md": "How.\n",
        "tools/no-tool/runner.sh": "#!",
        "tools/loose.sh": "#!",
    }
    write_tree(tmp_path, files)
    executable(tmp_path / "tools/a-tool/run")
    executable(tmp_path / "tools/b-tool/run.py")
    found = look(tmp_path)
    assert found.problems == ()
    assert found.agent is not None
    assert found.agent.tools == (
        DiscoveredTool("a-tool", "./tools/a-tool/run", "./tools/a-tool/README.md"),
        DiscoveredTool("b-tool", "./tools/b-tool/run.py"),
    )


def test_a_declared_tool_wins_over_a_discovered_one(tmp_path: Path) -> None:
    write_tree(tmp_path, {"tools/git/run.sh": "#!"})
    agent = agent_with(tmp_path, "tools: [{type: cli, name: git, command: git status}]")
    assert agent.tools == (CliTool("git", "git status"),)


def test_a_discovered_tool_that_cannot_be_run_is_a_warning(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"agent.yaml": MANIFEST, "tools/t/run.sh": "#!"}))
    assert said(found, tmp_path) == [("warning", "tools/t/run.sh", 1, 1, "tools/t/run.sh is not executable")]
    assert only(found).hint == "chmod +x tools/t/run.sh"


@pytest.mark.parametrize(
    ("tool", "column", "level"),
    [
        ("{type: cli, name: x, command: ./t.sh --fast}", 41, "warning"),  # the agent runs without it
        ("{type: mcp, name: x, server: ./t.sh}", 40, "error"),
    ],
)
def test_a_declared_script_should_be_there_and_executable(tmp_path: Path, tool: str, column: int, level: str) -> None:
    found = spec(tmp_path, f"tools: [{tool}]")
    assert said(found, tmp_path) == [(level, "agent.yaml", 7, column, "t.sh is not there")]
    write_tree(tmp_path, {"t.sh": "#!"})
    assert said(look(tmp_path), tmp_path) == [("warning", "agent.yaml", 7, column, "t.sh is not executable")]
    executable(tmp_path / "t.sh")
    assert look(tmp_path).problems == ()


@pytest.mark.parametrize("command", ["git status", "/usr/bin/true", "npx -y x"])
def test_a_command_that_names_no_file_beside_the_agent_is_not_looked_for(tmp_path: Path, command: str) -> None:
    assert spec(tmp_path, f"tools: [{{type: cli, name: x, command: {command}}}]").problems == ()


def test_an_mcp_server_may_be_an_address(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, "tools: [{type: mcp, name: x, server: 'https://m.test/mcp'}]")
    assert agent.tools == (McpServer("x", url="https://m.test/mcp"),)


# --- skills ----------------------------------------------------------------------------------------------


def skill(root: Path, text: str, folder: str = "notes") -> Examined:
    return look(write_tree(root, {"agent.yaml": MANIFEST, f"skills/{folder}/SKILL.md": text}))


@pytest.mark.parametrize("name", ["a", "notes", "a-b-c", "a1", "1", "x" * 64])
def test_good_skill_names(tmp_path: Path, name: str) -> None:
    found = skill(tmp_path, f"---\nname: '{name}'\ndescription: d\n---\n", name)
    assert found.problems == ()


@pytest.mark.parametrize("name", ["A", "a_b", "a--b", "-a", "a-", "x" * 65, "a b", "ä", "a.b"])
def test_bad_skill_names(tmp_path: Path, name: str) -> None:
    problem = only(skill(tmp_path, f"---\nname: '{name}'\ndescription: d\n---\n", name))
    assert (problem.level, problem.line, problem.column, problem.text, problem.hint) == (
        "error",
        2,
        1,
        f"{name!r} is not a skill name",
        "1 to 64 of a-z, 0-9 and single hyphens, not at either end",
    )


@pytest.mark.parametrize(
    ("text", "level", "line", "said"),
    [
        ("---\nname: other\ndescription: d\n---\n", "error", 2, "the skill is called 'other' but its folder 'notes'"),
        ("---\ndescription: d\n---\n", "warning", 2, "the skill has no name; 'notes', its folder, is used"),
        ("---\nname: notes\n---\n", "error", 2, "the skill's description is missing"),
        ("---\nname: notes\ndescription: ' '\n---\n", "error", 3, "the skill's description is missing"),
        (f"---\nname: notes\ndescription: {'d' * 1025}\n---\n", "error", 3, "the skill's description has 1,025 characters"),
        (f"---\nname: notes\ndescription: d\ncompatibility: {'c' * 501}\n---\n", "error", 4, "compatibility has 501 characters"),
        ("---\nname: notes\ndescription: d\nlicence: MIT\n---\n", "warning", 4, "unknown field `licence`"),
        ("---\nname: notes\ndescription: d\nmetadata: x\n---\n", "error", 4, "metadata must be a map (`key: value` lines), not the text 'x'"),
        ("no header\n", "warning", 1, "a skill needs a header: `---`, then `name:` and `description:`, then `---`"),
        ("", "warning", 1, "a skill needs a header: `---`, then `name:` and `description:`, then `---`"),
    ],
)  # fmt: skip
def test_what_a_skill_is_told(tmp_path: Path, text: str, level: str, line: int, said: str) -> None:
    problem = only(skill(tmp_path, text))
    assert (problem.level, problem.file, problem.line, problem.text) == (
        level,
        str(tmp_path / "skills/notes/SKILL.md"),
        line,
        said,
    )


def test_the_longest_description_and_compatibility_are_fine(tmp_path: Path) -> None:
    text = f"---\nname: notes\ndescription: {'d' * 1024}\ncompatibility: {'c' * 500}\n---\n"
    assert skill(tmp_path, text).problems == ()


def test_every_field_of_a_skill_is_kept(tmp_path: Path) -> None:
    text = (
        "---\nname: notes\ndescription: d\nlicense: MIT\ncompatibility: git\nmetadata: {a: b}\n"
        "allowed-tools: Bash(git *), Read\ndisable-model-invocation: true\nversion: '2'\nmine: 1\n---\n\nBody.\n"
    )
    write_tree(tmp_path, {"skills/notes/scripts/x.py": "print()\n", "skills/notes/a.txt": "a"})
    found = skill(tmp_path, text)
    assert found.agent is not None
    assert found.agent.skills == (
        Skill(
            name="notes",
            description="d",
            body="Body.",
            path="skills/notes/SKILL.md",
            files=("a.txt", "scripts/x.py"),
            license="MIT",
            compatibility="git",
            metadata={"a": "b"},
            allowed_tools=("Bash(git *)", "Read"),
            version="2",
            model_may_invoke=False,
            extra={"mine": 1},
        ),
    )


def test_skills_are_looked_for_where_skills_dir_says(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, "skills_dir: ./my/skills", **{"my__skills__notes__SKILL_md": SKILL})
    assert [each.path for each in agent.skills] == ["my/skills/notes/SKILL.md"]


def test_a_shared_skill_may_lie_outside_and_a_remote_one_is_named_by_its_address(tmp_path: Path) -> None:
    write_tree(tmp_path, {"shared/notes/SKILL.md": SKILL})
    (tmp_path / "agent").mkdir()
    found = spec(tmp_path / "agent", "skills:\n  - path: ../shared/notes/\n  - url: https://s.test/weekly-review/")
    assert found.problems == ()
    assert found.agent is not None
    assert [(each.name, each.path) for each in found.agent.skills] == [
        ("notes", "../shared/notes/SKILL.md"),
        ("weekly-review", "https://s.test/weekly-review/"),
    ]


def test_triggers_activate_known_skills_by_pattern_or_clock(tmp_path: Path) -> None:
    lines = 'triggers:\n  - {pattern: "note *", skill: notes}\n  - {schedule: "0 20 * * FRI", skill: notes}'
    agent = agent_with(tmp_path, lines, **{"skills__notes__SKILL_md": SKILL})
    assert agent.triggers == (Trigger("note *", "notes"),)
    assert agent.schedules == (Schedule(cron="0 20 * * FRI", skill="notes"),)


def test_a_trigger_for_a_skill_that_is_not_there_suggests_one(tmp_path: Path) -> None:
    problem = only(spec(tmp_path, "triggers: [{pattern: x, skill: note}]", **{"skills__notes__SKILL_md": SKILL}))
    assert (problem.text, problem.hint) == ("there is no skill 'note'", "did you mean `notes`?")


@pytest.mark.parametrize("cron", ["every day", "61 * * * *", "* * *", "0 0 31 2 *"])
def test_a_schedule_that_is_no_cron_expression_is_an_error(tmp_path: Path, cron: str) -> None:
    found = spec(tmp_path, f"triggers: [{{schedule: '{cron}', skill: notes}}]", **{"skills__notes__SKILL_md": SKILL})
    problem = errors(found)[0]
    assert (problem.path, problem.line, problem.column) == ("spec.triggers[0].schedule", 7, 25)
    assert problem.text.startswith("spec.triggers[0].schedule ")


# --- reading what was written ----------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).filter(
    str.strip
)
TRICKY = st.sampled_from(
    ["yes", "010", "1e3", "~", "null", "a: b", "# x", "- x", "{", "'", '"', "é", "2020-01-02", "=", "<<"]
)
TEXT = WORDS | TRICKY
NAME = st.from_regex(re.compile(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?"), fullmatch=True)
COUNT = st.integers(1, 10**6)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


SESSION = some(
    on_disconnect=st.sampled_from(["pause", "continue"]),
    max_tool_iterations=COUNT,
    llm_timeout_seconds=COUNT,
    ttl_hours=st.integers(0, 99),
    compaction=st.sampled_from(["discard", "archive", "disabled"]),
    max_background_runtime=st.sampled_from(["0s", "30m", "2h", "1d1h1m1s"]),
    output_buffer_size=COUNT,
    context=some(
        max_history_tokens=st.integers(0, 99),
        max_tool_result_tokens=COUNT,
        tool_result_truncation=st.sampled_from(["head", "tail", "both"]),
        tool_result_keep_first=st.integers(0, 9),
        tool_result_keep_last=st.integers(0, 9),
    ),
)
GATE = st.sampled_from(["open", "disabled", "allowlist"])
SENDER = st.sampled_from(["allow", "passive", "silent", "block"])
ACCESS = some(
    dm=some(policy=GATE, allowlist=st.lists(TEXT, max_size=3)),
    groups=some(
        policy=GATE,
        allowlist=st.lists(TEXT, max_size=3),
        sender_default=SENDER,
        sender_overrides=st.dictionaries(TEXT, SENDER, max_size=3),
        activation=st.sampled_from(["mention", "always"]),
        context_buffer=some(mode=st.sampled_from(["silent", "passive"]), max_messages=COUNT, max_age_hours=COUNT),
        queue=some(
            mode=st.sampled_from(["batch", "sequential", "drop"]),
            max_pending=COUNT,
            overflow=st.sampled_from(["drop_old", "drop_new", "reject"]),
            reject_message=TEXT,
            debounce=some(enabled=st.booleans(), window_ms=COUNT),
        ),
    ),
)
TOOL = st.one_of(
    st.sampled_from(BUILTINS).map(lambda name: {"type": "builtin", "name": name}),
    st.builds(lambda n, d: {"type": "cli", "name": f"cli-{n}", "command": "git log", "description": d}, NAME, TEXT),
    st.builds(
        lambda n, c: {"type": "mcp", "name": f"mcp-{n}", "server": "npx server", "config": c},
        NAME,
        st.dictionaries(TEXT, TEXT | st.integers() | st.booleans() | st.lists(TEXT, max_size=2), max_size=2),
    ),
)
SPEC = st.fixed_dictionaries(
    {
        "model": st.fixed_dictionaries(
            {"provider": st.sampled_from(PROVIDERS), "name": TEXT},
            optional={
                "temperature": st.floats(0, 2),
                "max_input_tokens": COUNT,
                "max_output_tokens": COUNT,
                "base_url": st.just("https://m.test/v1"),
            },
        )
    },
    optional={
        "soul": st.just("./SOUL.md"),
        "system_prompt": st.just("./prompts/system.md"),
        "instructions": st.just("./AGENTS.md"),
        "bootstrap": st.just([{"path": "./boot.md", "max_tokens": 5, "required": True}, {"path": "./b2.md"}]),
        "session": SESSION,
        "access": ACCESS,
        "memory": st.one_of(
            some(backend=st.sampled_from(["filesystem", "external"])),
            some(
                short_term=some(backend=st.sampled_from(["buffer", "external"]), max_tokens=COUNT),
                long_term=some(backend=st.sampled_from(["filesystem", "external"])),
            ),
        ),
        "tools": st.lists(TOOL, max_size=4, unique_by=lambda tool: tool["name"]),
        "skills_dir": st.just("./my-skills"),
        "skills": st.just([{"url": "https://s.test/remote"}]),
        "x-mine": st.dictionaries(TEXT, TEXT, max_size=2),
        "hooks": st.just({"before_tool": [{"match": "bash"}]}),
    },
)
METADATA = st.fixed_dictionaries(
    {"name": NAME},
    optional={
        "description": TEXT,
        "version": st.sampled_from(["1.0.0", "1.0.0-rc.1"]),
        "labels": st.dictionaries(TEXT, TEXT, max_size=3),
        "a2a": st.dictionaries(TEXT, st.lists(TEXT, max_size=2), max_size=2),
    },
)
POLICY = some(
    mode=st.sampled_from(["dangerous", "ask", "restrict"]),
    deny=st.lists(TEXT.map("bash:{}".format), max_size=2),
    allow=st.lists(TEXT.map("*:{}".format), max_size=2),
    notify=some(enabled=st.booleans(), patterns=st.lists(TEXT, max_size=2)),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(METADATA, SPEC, TEXT, POLICY, POLICY)
def test_what_is_written_reads_back_as_the_same_agent(
    metadata: dict[str, Any], body: dict[str, Any], prose: str, policy: dict[str, Any], local: dict[str, Any]
) -> None:
    manifest = {"apiVersion": "duragent/v1alpha1", "kind": "Agent", "metadata": metadata, "spec": body}
    files = {
        "agent.yaml": dump_yaml(manifest),
        "SOUL.md": prose,
        "prompts/system.md": f"{prose}\n\n{prose}",
        "AGENTS.md": "${date}",
        "boot.md": prose,
        "b2.md": prose,
        "policy.yaml": dump_yaml(policy),
        "policy.local.yaml": dump_yaml(local),
        "my-skills/notes/SKILL.md": SKILL,
        "my-skills/notes/more.txt": "more",
        "tools/found/run.sh": "#!/bin/sh\n",
    }
    with tempfile.TemporaryDirectory() as folder:
        source = write_tree(Path(folder) / "source", files)
        executable(source / "tools/found/run.sh")
        before = agent_at(source)
        written = write(before, "duragent", Path(folder) / "copy")
        assert written.losses == ()
        again = write(agent_at(Path(folder) / "copy"), "duragent", Path(folder) / "again")
        assert again.losses == ()
        assert (Path(folder) / "again/agent.yaml").read_text() == (Path(folder) / "copy/agent.yaml").read_text()
