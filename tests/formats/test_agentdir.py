"""A3S agent directories: what is read, what is refused, and that writing loses nothing."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from duragent.agent import (
    Agent,
    BuiltinTool,
    Limits,
    McpServer,
    ModelChoice,
    ModelRef,
    Origin,
    PromptPart,
    Provider,
    Schedule,
    ScriptLimits,
    ScriptTool,
    SessionRules,
    Skill,
    Source,
)
from duragent.formats import agentdir
from duragent.formats.agentdir.acl import write_acl
from duragent.formats.agentdir.keys import ALIASES, KEYS
from duragent.formats.agentdir.tools import MCP, SCRIPT
from duragent.formats.fields import inner_paths
from duragent.formats.markdown import with_header
from duragent.formats.shape import Absent, Blob, Entry, File, Files, Folder, Need, Parsed, Rendered
from duragent.formats.skills import HEADER
from duragent.formats.write import laid_over

ROOT = Path(__file__).parents[2]


def look(tree: Mapping[str, str | Entry], need: Need) -> dict[str, Entry]:
    """What `need` asks for, from a dict of path → text."""
    found: dict[str, Entry] = {}
    for path in need.files:
        entry = tree.get(path, Absent("missing"))
        found[path] = File(entry) if isinstance(entry, str) else entry
    for path in need.blobs:
        entry = tree.get(path, Absent("missing"))
        found[path] = Blob("digest") if isinstance(entry, str) else entry
    for path in need.folders:
        folder = path.removesuffix("/**")
        below = [name[len(folder) + 1 :] for name in tree if name.startswith(folder + "/")]
        if path != folder:
            names = below
        else:
            names = [name.split("/")[0] + ("/" if "/" in name else "") for name in below]
        listed = Folder(tuple(sorted(set(names)))) if names else Absent("missing")
        special = tree.get(folder, listed)
        found[path] = listed if isinstance(special, str) else special
    return found


def read(tree: Mapping[str, str | Entry], name: str = "folder") -> Parsed:
    tree = {"instructions.md": "Be kind.\n", **tree}
    files = Files("", {}, name)
    for _ in range(5):
        answer = agentdir.parse(files)
        if isinstance(answer, Parsed):
            return answer
        files = Files("", {**files.found, **look(tree, answer)}, name)
    raise AssertionError("the format keeps asking")


def agent_of(tree: Mapping[str, str | Entry]) -> Agent:
    parsed = read(tree)
    assert parsed.agent is not None, [str(problem) for problem in parsed.problems]
    return parsed.agent


def said(tree: Mapping[str, str | Entry], level: str | None = None) -> list[str]:
    return [str(problem) for problem in read(tree).problems if level in (None, problem.level)]


def written(agent: Agent, sources: Mapping[str, str | Entry] = {}) -> tuple[Rendered, dict[str, str | Entry]]:
    rendered = agentdir.render(agent)
    copied = {target: sources.get(source, "copied") for target, source in rendered.copies.items()}
    return rendered, {**copied, **rendered.files}


def same(agent: Agent) -> Agent:
    """An agent without what a rewrite may change: where it came from."""
    return replace(
        agent,
        origins={},
        prompt=tuple(replace(part, path=None) for part in agent.prompt),
        skills=tuple(replace(skill, path="") for skill in agent.skills),
    )


def example() -> dict[str, str | Entry]:
    folder = ROOT / "examples" / "release-agent"
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_the_example_has_nothing_to_complain_about() -> None:
    parsed = read(example(), "release-agent")
    assert [str(problem) for problem in parsed.problems] == []
    assert parsed.agent is not None
    assert parsed.agent.extra == {}
    assert [tool.name for tool in parsed.agent.tools] == ["changes-since-tag", "git"]  # type: ignore[union-attr]


def test_the_example_reads_the_same_after_it_was_written() -> None:
    agent = agent_of(example())
    _, tree = written(agent)
    assert same(agent_of(tree)) == same(agent)


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("instructions.md",), "instructions.md in the folder"),
        (("agent.acl", "agent.yaml"), "agent.acl in the folder"),
        (("agent.yaml", "instructions.md"), None),
        (("agent.yml", "instructions.md"), None),
        (("agent.acl/", "README.md"), None),
    ],
)
def test_a_folder_is_claimed_by_its_files(names: tuple[str, ...], why: str | None) -> None:
    assert agentdir.claims(Files("", {"": Folder(names)})) == why


def test_a_folder_with_instructions_alone_is_an_agent_with_defaults() -> None:
    parsed = read({"instructions.md": "\n  Be kind.\n\n"}, "greeter")
    assert parsed.problems == ()
    assert parsed.agent == Agent(
        name="greeter",
        prompt=(PromptPart(kind="role", text="Be kind.", path="instructions.md"),),
        limits=Limits(tool_iterations=25),
        origins={"prompt[0]": Origin("instructions.md", 2, 3)},
    )


ACL = """
name = "shipper"
description = "Ships."
version = "2.0"
default_model = "openrouter/meta/llama-3"
max_tool_rounds = 7
max_parallel_tasks = 3
llm_api_timeout_ms = 90000
providers "openrouter" {
  api_key = env("OPENROUTER_KEY")
  base_url = "https://openrouter.ai/api/v1"
  headers = { Title = "shipper" }
  models "meta/llama-3" {
    base_url = "https://llama.example"
    limit { context = 8000 output = 0 }
  }
}
mcp_servers "files" {
  transport = "stdio"
  command = "mcp-files"
  args = ["--root", env("ROOT")]
  toolTimeoutSecs = 5
}
"""


def test_agent_acl_says_who_the_agent_is_and_what_it_runs_on() -> None:
    parsed = read({"agent.acl": ACL})
    assert [str(problem) for problem in parsed.problems] == []
    agent = parsed.agent
    assert agent is not None
    assert (agent.name, agent.description, agent.version) == ("shipper", "Ships.", "2.0")
    ref = ModelRef("openrouter", "meta/llama-3", "https://llama.example")
    assert agent.model == ModelChoice(candidates=(ref,), max_input_tokens=8000)
    assert agent.limits == Limits(tool_iterations=7, parallel_tasks=3)
    assert agent.session == SessionRules(llm_timeout_seconds=90)
    assert agent.auth.providers == {
        "openrouter": Provider("env.OPENROUTER_KEY", "https://openrouter.ai/api/v1", {"Title": "shipper"})
    }
    assert agent.tools == (McpServer("files", "stdio", "mcp-files", ("--root", "${ROOT}"), timeout_seconds=5),)
    assert agent.extra == {}
    assert agent.origins["model.candidates[0]"] == Origin("agent.acl", 5, 17)
    assert agent.origins["limits.tool_iterations"] == Origin("agent.acl", 6, 19)


@pytest.mark.parametrize(
    "written_so",
    [
        '"{}"',
        "'{}'",
        "{}",
        '["{}"]',
        '{{ a = "{}" }}',
        'key("{}")',
        "{}(1)",
        "{} {{ x = 1 }}",
        "Bearer {}",
        "$ {}",
        '"{}',
    ],
)
@pytest.mark.parametrize(
    "where",
    [
        'providers "a" {{\n  api_key = {} \n}}',
        'providers "a" {{\n  apiKey = {} \n}}',
        'providers "a" {{\n  models "m" {{\n    api_key = {} \n  }}\n}}',
        'search {{\n  engine "x" {{\n    api_key = {} \n  }}\n}}',
    ],
)
def test_a_key_in_the_file_is_not_used_and_never_repeated(where: str, written_so: str) -> None:
    parsed = read({"agent.acl": where.format(written_so.format("zqTopSecret"))})
    assert not any("TopSecret" in str(problem) for problem in parsed.problems)
    assert parsed.agent is None or parsed.agent.auth.providers == {}


def test_every_problem_of_a_tool_and_a_schedule_is_said_at_once() -> None:
    parsed = read(
        {
            "agent.acl": 'providers {\n  base_url = 5\n  models { }\n}\nmcp_servers "s" {\n  transport = "sse"\n  enabled = 3\n}',
            "tools/mcp.md": "---\nkind: mcp\ntransport: pigeon\nenabled: 3\n"
            "oauth: {auth_url: a, token_url: t, client_id: c, redirect_uri: r, access_token: x}\n---\n",
            "tools/script.md": "---\nkind: script\npath: ../x.sh\nlimits: {timeoutMs: 0, maxToolCalls: many}\n---\n",
            "tools/lost.md": "---\nkind: script\npath: lost.js\nallowed_tools: 5\n---\n",
            "tools/way.md": "---\nkind: mcp\ntransport: {type: stdio, url: u}\n---\n",
            "schedules/a.md": "---\ncron: never\nenabled: 5\ntimezone: nowhere\n---\n",
        }
    )
    assert parsed.agent is None
    assert sorted((problem.level, problem.file, problem.line, problem.path) for problem in parsed.problems) == [
        ("error", "agent.acl", 1, "providers"),
        ("error", "agent.acl", 3, "models"),
        ("error", "agent.acl", 6, "transport"),
        ("error", "agent.acl", 7, "enabled"),
        ("error", "schedules/a.md", 2, "cron"),
        ("error", "schedules/a.md", 3, "enabled"),
        ("error", "schedules/a.md", 4, "timezone"),
        ("error", "tools/lost.md", 4, "allowed_tools"),
        ("error", "tools/mcp.md", 2, "name"),
        ("error", "tools/mcp.md", 3, "transport"),
        ("error", "tools/mcp.md", 4, "enabled"),
        ("error", "tools/script.md", 3, "path"),
        ("error", "tools/script.md", 4, "limits.maxToolCalls"),
        ("error", "tools/script.md", 4, "limits.timeoutMs"),
        ("error", "tools/way.md", 2, "command"),
        ("error", "tools/way.md", 2, "name"),
        ("warning", "schedules/a.md", 1, "prompt"),
        ("warning", "tools/lost.md", 3, "path"),
        ("warning", "tools/mcp.md", 5, "oauth.access_token"),
        ("warning", "tools/way.md", 3, "url"),
    ]


def test_the_model_takes_the_address_of_its_provider_when_it_has_none() -> None:
    acl = 'default_model = "a/b"\nproviders "a" { base_url = "https://a.example" }'
    assert agent_of({"agent.acl": acl}).model.candidates == (ModelRef("a", "b", "https://a.example"),)


@pytest.mark.parametrize("name", ["llm_api_timeout_ms", "api_timeout_ms", "model_api_timeout_ms"])
def test_a_timeout_between_seconds_is_rounded_up_and_kept_exactly(name: str) -> None:
    agent = agent_of({"agent.acl": f"{name} = 1500"})
    assert agent.session.llm_timeout_seconds == 2
    _, tree = written(agent)
    assert "llm_api_timeout_ms = 1500" in str(tree["agent.acl"])
    assert same(agent_of(tree)) == same(agent)


def test_a_key_in_the_file_is_reported_and_never_used() -> None:
    tree = {"agent.acl": 'providers "a" { api_key = "sk-1" }'}
    assert said(tree) == [
        'agent.acl:1:27  warning  a key stands in the file itself, and is not used (write api_key = env("NAME"))'
    ]
    agent = agent_of(tree)
    assert agent.auth.providers == {}
    assert agent.extra == {"agentdir": {"providers": {"a": {"attributes": {"api_key": "sk-1"}}}}}


UNUSED = {
    "storage_backend": '"File"',
    "sessions_dir": '"s"',
    "storage_url": '"u"',
    "memory_dir": '"m"',
    "memoryDir": '"m"',
    "memory": "{ max_items = 1 }",
    "skill_dirs": '["a"]',
    "skills": '"a"',
    "agent_dirs": '"a"',
    "user_instructions_dir": '"a"',
    "project_doc_max_bytes": "0",
    "project_doc_fallback_filenames": '["A.md"]',
    "thinking_budget": "100",
    "auto_parallel": "true",
    "os": '"https://a3s.example"',
}


@pytest.mark.parametrize("name", UNUSED)
def test_a_setting_that_nothing_is_done_with_is_said_once_and_written_back(name: str) -> None:
    acl = f"{name} = {UNUSED[name]}"
    assert [text for text in said({"agent.acl": acl}) if "nothing is done with it" in text] == [
        f"agent.acl:1:1  warning  {name} is read and kept, but nothing is done with it"
    ]
    _, tree = written(agent_of({"agent.acl": acl}))
    assert acl in re.sub(r"\s+", " ", str(tree["agent.acl"]))


@pytest.mark.parametrize(
    ("acl", "word"),
    [
        ("queue { retry_policy { max_retries = 1 } }", "queue.retry_policy.strategy is missing"),
        ('queue { lane_handlers { query { mode = "internal" } } }', "timeout_ms is missing"),
        ('queue { rate_limit { limit_type = "per_day" } }', "per_second, per_minute, per_hour, unlimited"),
        ('queue { queryMaxConcurrency = "x" }', "queue.query_max_concurrency must be a whole number"),
        ("task_scheduler { max_active = 0 }", "task_scheduler.max_active must be"),
        ("taskScheduler { agingIntervalMs = 0 }", "task_scheduler.aging_interval_ms must be"),
        ('search { timeout = "soon" }', "search.timeout must be"),
        ('search { cascade_order = ["carrier pigeon"] }', "search.cascade_order[0] must be one of"),
        ("document_parser { enabled = 1 }", "document_parser.enabled must be true or false"),
        ("providers { }", "needs a name in quotes"),
        ('providers "a" { models { } }', "needs a name in quotes"),
        ('mcp_servers "a" { command = "x" }', "transport is missing"),
        ('mcp_server "a" { transport = "stdio" }', "command is missing"),
        ('mcpServers "a" { transport = "sse" url = "u" }', "transport 'sse' is not known"),
        ('mcp_servers { transport = "stdio" command = "x" }', "name is missing"),
        ("name = 1", "name must be a text"),
        ("x = [1", "the file ends where a value was expected"),
        ("}", "cannot begin a line"),
        ('{"default_model": "a/b"}', "cannot begin a line"),
    ],
)
def test_a_setting_that_the_reference_refuses_is_an_error(acl: str, word: str) -> None:
    assert [text for text in said({"agent.acl": acl}, "error") if word in text]
    assert read({"agent.acl": acl}).agent is None


@pytest.mark.parametrize(
    ("acl", "word"),
    [
        ('defaultModel = "a/b"', "did you mean `default_model`?"),
        ("surprise { }", "unknown setting `surprise`"),
        ('default_model = "gpt"', "the provider and the model"),
        ('default_model = "/gpt"', "the provider and the model"),
        ('default_model = env("MODEL")', "the provider and the model"),
        ("max_tool_rounds = 0", "a number from 1 up"),
        ('max_parallel_tasks = "many"', "a number from 1 up"),
        ("llm_api_timeout_ms = -5", "a number from 1 up"),
        ("max_tool_rounds = 1\nmax_tool_rounds = 2", "is set again below"),
        ('providers "a" { }\nproviders "a" { base_url = "u" }', "the first one counts"),
        ('providers "a" { headers = { A = 1 B = true } }', "headers must be texts"),
        ('providers "a" { models "b" { cost = { input = 1 } } }', "cost is read and kept"),
        ('providers "a" { models "b" { attachment = "yes" } }', "must be true or false"),
        ('storage_backend = "tape"', "storage_backend must be one of memory, file, custom"),
        ("memory { max_short_term = true }", "memory.max_short_term must be a whole number"),
        ("auto_delegation { min_confidence = 2 }", "auto_delegation.min_confidence must be a number from 0 to 1"),
        ("queue { colour = 1 }", "unknown field `queue.colour`"),
        ("mcp_servers = []", "is not a block"),
        ("my-key = 1", "a name ends before `-`"),
    ],
)
def test_a_setting_that_the_reference_skips_is_a_warning_and_is_kept(acl: str, word: str) -> None:
    assert [text for text in said({"agent.acl": acl}, "warning") if word in text], said({"agent.acl": acl})
    agent = agent_of({"agent.acl": acl})
    assert same(agent_of(written(agent)[1])) == same(agent)


def test_a_float_is_cut_to_a_whole_number() -> None:
    assert agent_of({"agent.acl": "max_tool_rounds = 3.9"}).limits.tool_iterations == 3


def test_prices_and_other_models_survive_a_rewrite() -> None:
    acl = """
    default_model = "a/b"
    providers "a" {
      apiKey = "sk"
      models "b" { family = "f" limit = { context = 5 rest = 1 } }
      models "c" { cost { input = 1.5 cache_read = 0.1 } base_url = env("C_URL") }
    }
    """
    agent = agent_of({"agent.acl": acl})
    assert agent.model.max_input_tokens == 5
    again = agent_of(written(agent)[1])
    assert same(again) == same(agent)
    assert 'env("C_URL")' in str(written(again)[1]["agent.acl"])


SCHEDULE = '---\ncron: "0 9 * * MON"\n---\nLook around.\n'


def test_a_schedule_is_a_header_and_a_prompt() -> None:
    page = '\n \n---\ncron: "0 9 * * MON"\nname: weekly\nenabled: false\ntimezone: Europe/Paris\n---\n\n  Look.\n\n'
    parsed = read({"schedules/b.md": page, "schedules/a.md": SCHEDULE, "schedules/c.MD": "x", "schedules/d/e.md": "x"})
    assert parsed.problems == ()
    assert parsed.agent is not None
    assert parsed.agent.schedules == (
        Schedule(name="a", cron="0 9 * * MON", prompt="Look around."),
        Schedule(name="weekly", cron="0 9 * * MON", prompt="Look.", enabled=False, timezone="Europe/Paris"),
    )
    assert parsed.agent.origins["schedules[1].cron"] == Origin("schedules/b.md", 4, 7)


@pytest.mark.parametrize(
    ("page", "place", "word"),
    [
        ("Look.", "1:1", "has no header"),
        ('---\ncron: "* * * * *"\nLook.', "1:1", "never ends"),
        ("---\n---\nLook.", "2:1", "cron is missing"),
        ("---\nname: x\n---\nLook.", "2:1", "cron is missing"),
        ("---\ncron: * * * * *\n---\nLook.", "2:7", 'write cron: "* * * * *" in quotes'),
        ("---\ncron: [\n---\nLook.", "3:1", "not valid YAML"),
        ("---\ncron:\n---\nLook.", "2:1", "cron has no value"),
        ("---\n- a\n---\nLook.", "2:1", "must be a section"),
        ('---\ncron: "0 9 * *"\n---\nLook.', "2:7", "cron has 4 fields"),
        ("---\ncron: 5\n---\nLook.", "2:7", "cron has 1 fields"),
        ('---\ncron: "0 9 * * MON"\nenabled: yes\n---\nLook.', "3:10", "write true"),
        ('---\ncron: "0 9 * * MON"\ntimezone: Mars time\n---\nLook.', "3:11", "an IANA name"),
        ('---\ncron: "0 9 * * MON"\nname: [a]\n---\nLook.', "3:7", "name must be a text"),
    ],
)
def test_a_wrong_schedule_is_an_error_at_its_place(page: str, place: str, word: str) -> None:
    (error,) = said({"schedules/a.md": page}, "error")
    assert error.startswith(f"schedules/a.md:{place}  ")
    assert word in error


def test_a_wrong_cron_on_a_schedule_that_does_not_run_is_a_warning() -> None:
    page = '---\ncron: "61 * * * *"\nenabled: false\n---\nLook.'
    assert "cron has a bad minute" in said({"schedules/a.md": page}, "warning")[0]
    assert agent_of({"schedules/a.md": page}).schedules[0].cron == "61 * * * *"


def test_a_weekday_as_a_number_and_an_empty_prompt_are_warned_about() -> None:
    texts = said({"schedules/a.md": '---\ncron: "0 9 * * 1"\n---\n'}, "warning")
    assert ["1 is Monday here" in texts[0], "asks nothing" in texts[1]] == [True, True]


def test_enabled_schedules_have_different_names_but_a_disabled_one_may_share() -> None:
    twin = SCHEDULE.replace("cron:", "name: a\ncron:")
    assert "another enabled schedule is called 'a'" in said({"schedules/a.md": SCHEDULE, "schedules/b.md": twin})[0]
    off = twin.replace("name:", "enabled: false\nname:")
    assert said({"schedules/a.md": SCHEDULE, "schedules/b.md": off}) == []


def tool(**header: object) -> dict[str, str | Entry]:
    lines = "".join(f"{key}: {value}\n" for key, value in header.items())
    return {"tools/t.md": f"---\n{lines}---\nBody.\n", "s.js": "function run() {}"}


def test_mcp_servers_are_read_in_every_form() -> None:
    flat = tool(
        kind="mcp", name="m", transport="streamable_http", url="https://x", headers="{X-Key: 1}", enabled="false"
    )
    assert agent_of(flat).tools == (
        McpServer("m", "streamable-http", url="https://x", headers={"X-Key": "1"}, enabled=False),
    )
    nested = tool(
        kind="mcp", name="m", transport="{type: stdio, command: run, args: [a]}", env="{A: b}", tool_timeout_secs=9
    )
    assert agent_of(nested).tools == (McpServer("m", "stdio", "run", ("a",), env={"A": "b"}, timeout_seconds=9),)
    oauth = "{auth_url: a, token_url: t, client_id: c, redirect_uri: r, scopes: [s]}"
    signed = agent_of(tool(kind="mcp", name="m", transport="http", url="u", oauth=oauth)).tools[0]
    assert isinstance(signed, McpServer)
    assert signed.oauth["scopes"] == ["s"]
    assert [said(tree) for tree in (flat, nested)] == [[], []]


def test_scripts_are_read_with_their_limits() -> None:
    tree = tool(kind="script", path="./s.js", allowed_tools="[bash]", limits="{timeoutMs: 5, maxToolCalls: 1000}")
    parsed = read(tree)
    assert parsed.problems == ()
    assert parsed.agent is not None
    assert parsed.agent.tools == (
        ScriptTool("t", "s.js", "Body.", ("bash",), ScriptLimits(timeout_ms=5, max_tool_calls=1000)),
    )
    assert parsed.agent.origins["tools[0].limits.timeout_ms"].file == "tools/t.md"
    assert agent_of(tool(kind="script", path="s.js", description="Own.")).tools[0] == ScriptTool("t", "s.js", "Own.")


def test_a_script_that_may_start_tasks_has_ten_minutes() -> None:
    found = agent_of(tool(kind="script", path="s.js", allowed_tools="[task]")).tools[0]
    assert isinstance(found, ScriptTool)
    assert found.limits.timeout_ms == 600_000


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"name": "x"}, "kind is missing"),
        ({"kind": "cli"}, "kind must be one of mcp, script"),
        ({"kind": "MCP"}, "kind must be one of mcp, script"),
        ({"kind": "mcp", "transport": "stdio", "command": "x"}, "name is missing"),
        ({"kind": "mcp", "name": "x"}, "transport is missing"),
        ({"kind": "mcp", "name": "x", "transport": ""}, "transport has no value"),
        ({"kind": "mcp", "name": "x", "transport": "stdio"}, "command is missing"),
        ({"kind": "mcp", "name": "x", "transport": "http"}, "url is missing"),
        ({"kind": "mcp", "name": "x", "transport": "streamable-http"}, "url is missing"),
        ({"kind": "mcp", "name": "x", "transport": "sse", "url": "u"}, "http is the old HTTP with SSE"),
        ({"kind": "mcp", "name": "x", "transport": "{command: x}"}, "transport.type is missing"),
        ({"kind": "mcp", "name": "x", "transport": "http", "url": "u", "tool_timeout_secs": 0}, "at least 1"),
        (
            {"kind": "mcp", "name": "x", "transport": "http", "url": "u", "oauth": "{client_id: c}"},
            "oauth.auth_url is missing",
        ),
        ({"kind": "script"}, "path is missing"),
        ({"kind": "script", "path": ""}, "path has no value"),
        ({"kind": "script", "path": "a.ts"}, "is no JavaScript file"),
        ({"kind": "script", "path": "a.JS"}, "is no JavaScript file"),
        ({"kind": "script", "path": "/a.js"}, "is absolute"),
        ({"kind": "script", "path": "C:a.js"}, "is absolute"),
        ({"kind": "script", "path": "'\\\\host\\a.js'"}, "is absolute"),
        ({"kind": "script", "path": "../a.js"}, "leads out"),
        ({"kind": "script", "path": "a/../b.js"}, "leads out"),
        ({"kind": "script", "path": "'a\\..\\..\\b.js'"}, "leads out"),
        ({"kind": "script", "path": "a.js", "allowed_tools": "bash"}, "allowed_tools must be a list"),
        (
            {"kind": "script", "path": "a.js", "limits": "{timeoutMs: 0}"},
            "limits.timeoutMs must be a whole number from 1 to 600,000",
        ),
        ({"kind": "script", "path": "a.js", "limits": "{timeoutMs: 600001}"}, "from 1 to 600,000"),
        ({"kind": "script", "path": "a.js", "limits": "{maxToolCalls: 1001}"}, "from 1 to 1,000"),
        ({"kind": "script", "path": "a.js", "limits": "{maxToolCalls: -1}"}, "from 1 to 1,000"),
        ({"kind": "script", "path": "a.js", "limits": "{maxOutputBytes: 16777217}"}, "from 1 to 16,777,216"),
        ({"kind": "script", "path": "a.js", "limits": "{maxOutputBytes: 1.5}"}, "from 1 to 16,777,216"),
    ],
)
def test_a_wrong_tool_is_an_error(header: dict[str, object], word: str) -> None:
    errors = said(tool(**header), "error")
    assert [error for error in errors if word in error], errors


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ({"kind": "script", "path": "s.js", "allowedTools": "[a]"}, "did you mean `allowed_tools`?"),
        ({"kind": "script", "path": "s.js", "limits": "{timeout_ms: 5}"}, "did you mean `timeoutMs`?"),
        ({"kind": "script", "path": "gone.js"}, "gone.js is not there"),
        ({"kind": "mcp", "name": "x", "transport": "stdio", "command": "c", "args": "one"}, "args must be a list"),
        ({"kind": "mcp", "name": "x", "transport": "stdio", "command": "c", "env": "[A]"}, "env must be a map"),
        ({"kind": "mcp", "name": "x", "transport": "stdio", "command": "c", "url": "u"}, "url means nothing"),
        (
            {
                "kind": "mcp",
                "name": "x",
                "transport": "http",
                "url": "u",
                "oauth": "{auth_url: a, token_url: t, client_id: c, redirect_uri: r, access_token: z}",
            },
            "oauth.access_token is a secret",
        ),
    ],
)
def test_a_doubtful_tool_is_a_warning(header: dict[str, object], word: str) -> None:
    (warning,) = said(tool(**header))
    assert "  warning  " in warning
    assert word in warning


def test_two_tools_of_one_name_are_an_error_wherever_they_stand() -> None:
    tree = tool(kind="script", path="s.js", name="same")
    tree["tools/u.md"] = "---\nkind: mcp\nname: same\ntransport: stdio\ncommand: x\n---\n"
    assert said(tree) == ["tools/u.md:3:7  error  another tool is called 'same' (rename one of them)"]
    del tree["tools/u.md"]
    tree["agent.acl"] = 'mcp_servers "same" { transport = "stdio" command = "x" }'
    assert "another tool is called 'same'" in said(tree)[0]


@pytest.mark.parametrize(
    "path", ["instructions.md", "agent.acl", "schedules", "tools", "skills", "schedules/a.md", "tools/a.md", "s.js"]
)
@pytest.mark.parametrize("why", ["outside", "large", "encoding", "special"])
def test_whatever_cannot_be_read_is_an_error(path: str, why: str) -> None:
    tree: dict[str, str | Entry] = {path: Absent(why)}  # type: ignore[arg-type]
    if path == "s.js":
        tree = tool(kind="script", path="s.js") | tree
    (error,) = said(tree, "error")
    assert path in error
    assert read(tree).agent is None


def test_missing_instructions_are_an_error_and_empty_ones_a_warning() -> None:
    assert "instructions.md is not there" in said({"instructions.md": Absent("missing")}, "error")[0]
    assert "the agent has no role" in said({"instructions.md": " \n"}, "warning")[0]
    assert agent_of({"instructions.md": ""}).prompt == ()


def test_a_header_in_the_instructions_is_text_and_is_warned_about() -> None:
    text = "---\nname: x\n---\nBe kind."
    assert "the model sees it as text" in said({"instructions.md": text}, "warning")[0]
    assert agent_of({"instructions.md": text}).prompt[0].text == text


@pytest.mark.parametrize("path", ["instructions.md", "agent.acl", "schedules/a.md", "tools/a.md"])
def test_no_file_may_be_larger_than_the_reference_allows(path: str) -> None:
    (error,) = said({path: "é" * 131_073}, "error")
    assert "262,146 bytes" in error
    assert not [text for text in said({path: "#" * 262_144}) if "bytes" in text]


def test_folders_in_the_place_of_files() -> None:
    assert "agent.acl is a folder and is not read" in said({"agent.acl": Absent("folder")}, "warning")[0]
    assert "schedules/d.md is a folder" in said({"schedules/d.md/x": ""}, "error")[0]


def test_bad_skills_are_warnings_only() -> None:
    tree = {
        "skills/a.md": "no header",
        "skills/b.md": "---\nname: B b\n---\nDo b.",
        "skills/c/SKILL.md": "---\n: [\n---\n",
    }
    parsed = read(tree)
    assert {problem.level for problem in parsed.problems} == {"warning"}
    assert parsed.agent is not None
    assert [skill.name for skill in parsed.agent.skills] == ["B b"]


def test_what_an_agent_directory_cannot_say_is_left_out_and_explained() -> None:
    agent = Agent(
        name="other",
        prompt=(PromptPart("soul", "I am."), PromptPart("instructions", "Do.")),
        model=ModelChoice(candidates=(ModelRef("openai", "gpt"), ModelRef("x", "y")), temperature=0.1),
        tools=(
            BuiltinTool("bash"),
            McpServer("only-a-name"),
            McpServer("z", "stdio", "c"),
            McpServer("a", "http", url="u"),
        ),
        skills=(
            Skill("far", path="https://example.org/SKILL.md"),
            Skill("near", "d", path="elsewhere/near/SKILL.md", files=("x/y.txt",)),
        ),
        schedules=(Schedule(cron="@daily", skill="near"),),
    )
    rendered, tree = written(agent)
    again = agent_of(tree)
    assert (again.name, again.prompt[0].text) == ("other", "I am.\n\nDo.")
    assert again.tools == (McpServer("z", "stdio", "c"), McpServer("a", "http", url="u"))
    assert [skill.name for skill in again.skills] == ["near"]
    assert rendered.copies == {"skills/near/x/y.txt": "elsewhere/near/x/y.txt"}
    assert {"skills[0]", "model.temperature"} <= rendered.notes.keys()
    assert again.schedules[0].prompt == "Use the skill `near`."


def test_only_scripts_that_are_there_are_copied() -> None:
    agent = Agent(name="n", tools=(ScriptTool("a", "a.js"), ScriptTool("b", "lib/b.js")))
    assert agentdir.render(agent).copies == {"a.js": "a.js", "lib/b.js": "lib/b.js"}
    known = replace(agent, source=Source(files=("instructions.md", "lib/b.js")))
    assert agentdir.render(known).copies == {"lib/b.js": "lib/b.js"}


def test_names_cannot_lead_out_of_the_folder() -> None:
    agent = Agent(
        name="n",
        tools=(McpServer("../../x", "stdio", "c"), McpServer("..", "stdio", "c")),
        skills=(Skill("../evil", "d", path="../evil/SKILL.md"), Skill("/", "d", path="/etc/SKILL.md")),
        schedules=(Schedule(cron="@daily", name="a/b", prompt="p"),),
    )
    for path in agentdir.render(agent).files:
        assert re.fullmatch(
            r"(?:(?:skills|tools|schedules)/)?[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/SKILL)?\.(?:md|acl)", path
        ), path


def test_the_schemas_are_schemas_and_accept_the_example() -> None:
    for schema in agentdir.SCHEMAS.values():
        Draft202012Validator.check_schema(schema)
    Draft202012Validator(agentdir.SCHEMAS["agentdir-schedule"]).validate({"cron": "@daily", "enabled": True})
    tools = Draft202012Validator(agentdir.SCHEMAS["agentdir-tool"])
    tools.validate({"kind": "script", "path": "a.js", "limits": {"timeoutMs": 5}})
    assert not tools.is_valid({"kind": "script", "path": "a.js", "limits": {"timeoutMs": 0}})
    assert not tools.is_valid({"kind": "mcp", "name": "x"})


def test_every_field_is_in_the_documentation() -> None:
    page = (ROOT / "docs" / "formats" / "agentdir.md").read_text()
    quoted = set(re.findall(r"`([^`\n]+)`", page))
    tables = [agentdir.SCHEDULE, MCP, SCRIPT, HEADER, KEYS]
    wanted = {path for table in tables for path in inner_paths(table, "")} | set(ALIASES)
    assert wanted - quoted == set()


# --- parse, render, parse -------------------------------------------------------------------------

WORD = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_.-]{0,6}", fullmatch=True)
IDENT = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True).filter(lambda name: name not in ("true", "false", "null"))
LINE = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=20)
PROSE = st.lists(LINE, max_size=4).map("\n".join)
JSONISH = st.recursive(
    st.booleans() | st.integers(-999, 999) | LINE,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORD, inner, max_size=2),
    max_leaves=4,
)
UNKNOWN = st.dictionaries(WORD.map(lambda name: f"x-{name}"), JSONISH, max_size=2)
RAW = st.recursive(
    st.none() | st.booleans() | st.integers(-999, 999) | LINE | st.builds(lambda name: {"env()": [name]}, IDENT),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(IDENT, inner, max_size=2),
    max_leaves=4,
)


def block(
    name: str, labels: list[str], attributes: dict[str, object], blocks: list[dict[str, object]]
) -> dict[str, object]:
    return {"name": name, "labels": labels, "attributes": attributes, "blocks": blocks}


MODEL_KEYS = st.fixed_dictionaries(
    {},
    optional={
        "base_url": RAW,
        "family": RAW,
        "limit": st.fixed_dictionaries({}, optional={"context": RAW, "rest": RAW}),
        "cost": RAW,
    },
)
MODELS = st.builds(
    lambda label, keys, limit: block("models", [label], keys, limit),
    st.sampled_from(["m", "m/n"]),
    MODEL_KEYS,
    st.lists(
        st.builds(lambda size: block("limit", [], {"context": size, "output": 7}, []), st.integers(0, 9)), max_size=1
    ),
)
PROVIDERS = st.builds(
    lambda label, keys, models: block("providers", [label], keys, models),
    st.sampled_from(["p", "q"]),
    st.fixed_dictionaries({}, optional={"api_key": RAW, "apiKey": RAW, "base_url": RAW, "headers": RAW, "other": RAW}),
    st.lists(MODELS, max_size=2),
)
SINGLES = st.builds(
    lambda name, value: {"name": name, "value": value},
    st.sampled_from(
        [
            "default_model",
            "max_tool_rounds",
            "max_parallel_tasks",
            "llm_api_timeout_ms",
            "api_timeout_ms",
            "memory_dir",
            "skills",
            "odd",
        ]
    ),
    RAW | st.sampled_from(["p/m", "q/m/n", "r/s"]) | st.integers(1, 5000),
)
SERVERS = st.builds(
    lambda name, env, args, odd: block(
        "mcp_servers", [name], {"transport": "stdio", "command": "c", "env": env, "args": args, **odd}, []
    ),
    st.sampled_from(["acl-one", "acl-two"]),
    st.dictionaries(IDENT, LINE | st.builds(lambda name: {"env()": [name]}, IDENT), max_size=2),
    st.lists(LINE, max_size=2),
    st.dictionaries(IDENT.map(lambda name: f"zz_{name}"), RAW, max_size=1),
)


@st.composite
def folders(draw: st.DrawFn) -> dict[str, str | Entry]:
    tree: dict[str, str | Entry] = {"instructions.md": draw(PROSE)}
    servers = draw(st.lists(SERVERS, max_size=2, unique_by=lambda item: item["labels"][0]))  # type: ignore[index]
    items = draw(st.lists(SINGLES | PROVIDERS, max_size=5)) + servers
    identity = draw(
        st.fixed_dictionaries({}, optional={"name": LINE.filter(str.strip), "description": LINE, "version": LINE})
    )
    tree["agent.acl"] = write_acl(
        [*({"name": key, "value": value} for key, value in identity.items()), *draw(st.permutations(items))]
    )
    for stem in draw(st.lists(WORD, max_size=3, unique=True)):
        header: dict[str, object] = {
            "cron": draw(st.sampled_from(["@daily", "0 9 * * MON", "0 9 * * 1"])),
            "name": f"s {stem}",
        }
        header |= draw(
            st.fixed_dictionaries({}, optional={"enabled": st.booleans(), "timezone": st.just("Asia/Tokyo")})
        )
        tree[f"schedules/{stem}.md"] = with_header(laid_over(draw(UNKNOWN), header), draw(PROSE))
    for number, stem in enumerate(draw(st.lists(WORD, max_size=3, unique=True))):
        tree[f"tools/{stem}.md"] = with_header(
            laid_over(draw(UNKNOWN), draw(tool_headers(f"{number} {stem}"))), draw(PROSE)
        )
    for stem in draw(st.lists(WORD, max_size=2, unique_by=str.lower)):
        header = {"name": stem, "description": draw(LINE), "tags": draw(st.lists(LINE, max_size=2))}
        where = draw(st.sampled_from([f"skills/{stem}.md", f"skills/{stem}/SKILL.md"]))
        tree[where] = with_header(header | draw(UNKNOWN), draw(PROSE))
        if where.endswith("SKILL.md"):
            tree[f"skills/{stem}/data/x.txt"] = "x"
    return tree


@st.composite
def tool_headers(draw: st.DrawFn, name: str) -> dict[str, object]:
    limits = {"timeoutMs": st.integers(1, 600_000), "maxToolCalls": st.integers(1, 1000), "x-more": JSONISH}
    if draw(st.booleans()):
        return {
            "kind": "script",
            "name": name,
            "path": "a/b.mjs",
            "description": draw(LINE),
            "allowed_tools": draw(st.lists(st.sampled_from(["bash", "task"]), max_size=2)),
            "limits": draw(st.fixed_dictionaries({}, optional=limits)),
        }
    texts = st.dictionaries(WORD, LINE | st.just("${HOME}"), max_size=2)
    nested = draw(
        st.fixed_dictionaries({"type": st.just("stdio"), "command": st.just("c")}, optional={"x-more": JSONISH})
    )
    way: dict[str, object] = draw(st.sampled_from([{"transport": "http", "url": "u"}, {"transport": nested}]))
    optional = {"env": texts, "headers": texts, "enabled": st.booleans(), "tool_timeout_secs": st.integers(1, 99)}
    return {"kind": "mcp", "name": name, **way, **draw(st.fixed_dictionaries({}, optional=optional))}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(folders())
def test_writing_an_agent_directory_loses_nothing(tree: dict[str, str | Entry]) -> None:
    parsed = read(tree)
    if parsed.agent is None:
        raise AssertionError([str(problem) for problem in parsed.problems])
    rendered, again = written(parsed.agent)
    assert same(agent_of(again)) == same(parsed.agent)
    assert agentdir.render(agent_of(again)).files == rendered.files
