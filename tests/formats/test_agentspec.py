"""agentspec: the reference's fingerprints bit for bit, what it rejects, and inheritance that can only narrow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, BuiltinTool, McpServer, ModelChoice, ModelRef, Origin, Trust
from duragent.agentfiles import Examined, examine
from duragent.agentspec import agent_hash, load_agent
from duragent.errors import DuragentError, FetchFailed, InvalidAgent
from tests.build import MANIFEST, agent_at, errors, look, only, said, warnings, write_tree

DATA = Path(__file__).parents[1] / "data"


def vectors(kind: str) -> list[Any]:
    found = json.loads((DATA / f"agentspec_{kind}.json").read_text(encoding="utf-8"))["vectors"]
    return [pytest.param(each, id=each["name"]) for each in found]


# --- the reference's own vectors -------------------------------------------------------------------------


@pytest.mark.parametrize("vector", vectors("hash"))
def test_the_fingerprint_is_the_references(vector: Mapping[str, Any], tmp_path: Path) -> None:
    # `merged_hash`, where a vector has one, is over the reference's merge, which throws the child's model away
    # and lets a child replace its rules. Ours keeps both on purpose, so only the declared manifest is compared.
    if vector["form"] == "directory":
        prose = {"SOUL.md": vector["soul"], "RULES.md": vector["rules"]}
        present = {name: text for name, text in prose.items() if text is not None}
        write_tree(tmp_path, {"agent.yaml": vector["yaml"], **present, **vector["extra_files"]})
        assert agent_hash(load_agent(tmp_path)) == vector["hash"]
        assert agent_hash(load_agent(tmp_path / "agent.yaml")) == vector["hash_of_agent_yaml_loaded_as_file"]
    elif vector["form"] == "inheritance":
        write_tree(tmp_path, vector["files"])
        assert agent_hash(load_agent(tmp_path / vector["entry"])) == vector["hash"]
    else:
        write_tree(tmp_path, {"x.agent": vector["yaml"]})
        assert agent_hash(load_agent(tmp_path / "x.agent")) == vector["hash"]


@pytest.mark.parametrize("vector", vectors("accept"))
def test_what_the_reference_accepts_is_read_as_the_same(vector: Mapping[str, Any], tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": vector["yaml"]})
    assert agent_hash(load_agent(tmp_path / "x.agent")) == vector["hash"]


@pytest.mark.parametrize("vector", vectors("reject"))
def test_what_the_reference_rejects_is_an_error_with_a_position(vector: Mapping[str, Any], tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": vector["yaml"]})
    found = look(tmp_path / "x.agent")
    lines = vector["yaml"].splitlines() or [""]
    assert (found.format, found.agent) == ("agentspec", None)
    assert errors(found)
    for problem in errors(found):
        assert problem.file == str(tmp_path / "x.agent")
        assert 1 <= problem.line <= len(lines) + 1
        assert problem.column >= 1
        assert problem.text


def test_the_seeds_full_manifest_has_the_fingerprint_the_reference_prints() -> None:
    assert agent_hash(load_agent(DATA / "seed.agent")) == "ag1:3237f6d540af"


def test_a_manifest_has_its_fingerprint_also_where_its_base_is_missing(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": (DATA / "seed.agent").read_text(encoding="utf-8")})
    manifest = load_agent(tmp_path / "x.agent")
    assert (manifest.name, manifest.version, manifest.base) == ("deep-researcher", "1.2.0", "./parent.agent")
    assert agent_hash(manifest) == "ag1:3237f6d540af"


def test_the_effective_agent_and_its_manifest_have_the_same_fingerprint() -> None:
    assert agent_hash(agent_at(DATA / "seed.agent")) == agent_hash(load_agent(DATA / "seed.agent"))


def test_the_seeds_full_manifest_is_read_without_a_problem() -> None:
    assert look(DATA / "seed.agent").problems == ()


def test_every_section_of_the_seeds_manifest_reaches_the_agent() -> None:
    agent = agent_at(DATA / "seed.agent")
    assert agent.model == ModelChoice(
        candidates=(
            ModelRef("claude", "claude-sonnet-4-6"),
            ModelRef("gemini", "gemini-2.5-pro"),
            ModelRef("openai", "o3"),
            ModelRef("local", "llama3:70b"),
        ),
        capability="reasoning-high",
        fallback="reasoning-mid",
        temperature=0.2,
    )
    assert agent.trust == Trust("read-only", "allowed", "none", ("./workspace",))
    assert agent.tools == (
        McpServer("github"),
        McpServer("postgres", config={"connection": "env.DB_URL", "mode": "read-only"}),
        BuiltinTool("bash"),
        BuiltinTool("browser"),
    )
    assert (agent.limits.cost_usd, agent.limits.session_steps, agent.limits.on_exceed) == (0.5, 30, "ask")
    assert agent.extensions == {"x-claude": {"extended_thinking": True}, "x-gemini": {"grounding": True}}
    assert [skill.name for skill in agent.abstract_skills][:3] == ["summarize", "web-search", "code-execution"]
    assert {name: each.key_from for name, each in agent.auth.providers.items()} == {
        "anthropic": "env.ANTHROPIC_API_KEY",
        "google": "env.GOOGLE_API_KEY",
    }


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_line_ends_and_a_byte_order_mark_do_not_change_the_fingerprint(tmp_path: Path, line_end: str) -> None:
    text = (DATA / "seed.agent").read_text(encoding="utf-8").replace("\n", line_end)
    parent = (DATA / "parent.agent").read_bytes()
    write_tree(tmp_path, {"x.agent": b"\xef\xbb\xbf" + text.encode(), "parent.agent": parent})
    assert agent_hash(load_agent(tmp_path / "x.agent")) == "ag1:3237f6d540af"


# --- files and folders -----------------------------------------------------------------------------------


def test_a_folder_brings_its_soul_its_rules_and_its_skills(tmp_path: Path) -> None:
    files = {"agent.yaml": "name: x\n", "SOUL.md": "I am.\n", "RULES.md": "Never.\n"}
    write_tree(tmp_path, files | {"skills/notes/SKILL.md": "---\nname: notes\ndescription: d\n---\nbody\n"})
    agent = agent_at(tmp_path)
    assert [(part.kind, part.text) for part in agent.prompt] == [("soul", "I am."), ("rules", "Never.")]
    assert [skill.name for skill in agent.skills] == ["notes"]


def test_the_manifest_pointed_at_as_a_file_has_the_fingerprint_without_the_soul(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": "name: x\n", "SOUL.md": "hello\n", "RULES.md": "rule\n"})
    assert agent_hash(load_agent(tmp_path)) == "ag1:f780b17de793"
    single = load_agent(tmp_path / "agent.yaml")
    assert (agent_hash(single), single.values["soul"]) == ("ag1:58d7fcdef041", None)


def test_unknown_fields_are_warnings_with_a_suggestion(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": "name: x\nmodle: {}\nbehavior:\n  tempature: 1\nmine: 1\nx-mine: 2\n"})
    found = look(tmp_path / "x.agent")
    assert [(p.level, p.line, p.column, p.path) for p in found.problems] == [
        ("warning", 2, 1, "modle"),
        ("warning", 4, 3, "behavior.tempature"),
        ("warning", 5, 1, "mine"),
    ]
    assert [p.hint for p in found.problems][:2] == ["did you mean `model`?", "did you mean `temperature`?"]
    assert found.agent is not None
    assert found.agent.extra["agentspec"] == {"modle": {}, "behavior": {"tempature": 1}, "mine": 1, "x-mine": 2}


def test_sections_nothing_is_done_with_are_kept_and_mentioned(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": "name: x\nagents: {a: {ref: b}}\npipeline: [{call: a}]\n"})
    found = look(tmp_path / "x.agent")
    assert said(found, tmp_path) == [
        ("warning", "x.agent", 2, 9, "agents is read and kept, but nothing is done with it"),
        ("warning", "x.agent", 3, 11, "pipeline is read and kept, but nothing is done with it"),
    ]
    assert found.agent is not None
    assert found.agent.extra["agentspec"] == {
        "agents": {"a": {"ref": "b", "role": "subagent"}},
        "pipeline": [{"call": "a", "output": None}],
    }


def test_a_duplicate_key_is_a_warning_because_the_reference_reads_on(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": "name: x\nname: y\n"})
    found = look(tmp_path / "x.agent")
    assert said(found, tmp_path) == [("warning", "x.agent", 2, 1, "the key 'name' stands here twice")]
    assert found.agent is not None
    assert found.agent.name == "y"


def test_load_agent_raises_with_every_error_at_once(tmp_path: Path) -> None:
    write_tree(tmp_path, {"x.agent": "version: 1.0\ntrust: {exec: no}\n"})
    with pytest.raises(InvalidAgent) as caught:
        load_agent(tmp_path / "x.agent")
    assert [str(problem).partition("  ")[0] for problem in caught.value.problems] == [
        f"{tmp_path}/x.agent:1:1",
        f"{tmp_path}/x.agent:1:10",
        f"{tmp_path}/x.agent:2:15",
    ]


def test_another_formats_agent_has_no_ag1_fingerprint(tmp_path: Path) -> None:
    write_tree(tmp_path, {"agent.yaml": MANIFEST})
    with pytest.raises(InvalidAgent, match="name is missing"):
        load_agent(tmp_path)
    with pytest.raises(DuragentError, match="has no ag1: fingerprint"):
        agent_hash(agent_at(tmp_path))


# --- inheritance: what is taken from whom ----------------------------------------------------------------


def family(root: Path, parent: str, child: str) -> Examined:
    write_tree(root, {"p.agent": f"name: p\n{parent}", "c.agent": f"name: c\nbase: ./p.agent\n{child}"})
    return look(root / "c.agent")


def heir(root: Path, parent: str, child: str) -> Agent:
    found = family(root, parent, child)
    assert found.agent is not None, found.problems
    return found.agent


@pytest.mark.parametrize(
    ("how", "wanted"),
    [("", ["a", "b", "c"]), ("append", ["a", "b", "c"]), ("override", ["b", "c"]), ("restrict", ["b"])],
)
def test_how_skills_are_merged(tmp_path: Path, how: str, wanted: list[str]) -> None:
    merge = f"merge: {{skills: {how}}}\n" if how else ""
    agent = heir(tmp_path, "skills: [a, b]\n", f"{merge}skills: [b, c]\n")
    assert [skill.name for skill in agent.abstract_skills] == wanted


@pytest.mark.parametrize(
    ("how", "servers", "native"),
    [
        ("append", {"github": {}, "pg": {"mode": "ro"}, "slack": {}}, ["bash", "web"]),
        ("override", {"pg": {"mode": "rw"}, "slack": {}}, ["bash", "web"]),
        ("restrict", {"pg": {"mode": "ro"}}, ["bash"]),
    ],
)
def test_how_tools_are_merged(tmp_path: Path, how: str, servers: dict[str, Any], native: list[str]) -> None:
    parent = "tools: {mcp: [github, {pg: {mode: ro}}], native: [bash]}\n"
    child = f"merge: {{tools: {how}}}\ntools: {{mcp: [{{pg: {{mode: rw}}}}, slack], native: [bash, web]}}\n"
    agent = heir(tmp_path, parent, child)
    assert {tool.name: tool.config for tool in agent.tools if isinstance(tool, McpServer)} == servers
    assert [tool.name for tool in agent.tools if isinstance(tool, BuiltinTool)] == native


def test_appending_cannot_change_a_parents_server_and_says_so(tmp_path: Path) -> None:
    found = family(tmp_path, "tools: {mcp: [{pg: {mode: ro}}]}\n", "tools: {mcp: [{pg: {mode: rw}}]}\n")
    assert said(found, tmp_path) == [
        ("warning", "c.agent", 3, 14, "the base already sets up 'pg'; its settings stay"),
    ]


@pytest.mark.parametrize(("how", "wanted"), [("override", ["y"]), ("append", ["x", "y"])])
def test_how_behavior_is_merged(tmp_path: Path, how: str, wanted: list[str]) -> None:
    parent = "behavior: {persona: sage, traits: [x], temperature: 0.9, on_error: retry}\n"
    agent = heir(tmp_path, parent, f"merge: {{behavior: {how}}}\nbehavior: {{traits: [y], max_steps: 5}}\n")
    assert [part.text for part in agent.prompt if part.kind == "trait"] == wanted
    assert [part.text for part in agent.prompt if part.kind == "persona"] == ["sage"]
    assert (agent.model.temperature, agent.limits.steps, agent.limits.on_error) == (0.9, 5, "retry")


def test_what_the_child_does_not_say_is_inherited_section_by_section(tmp_path: Path) -> None:
    parent = (
        "skills: [a]\ntools: {native: [bash]}\nbehavior: {traits: [x]}\ntags: [t]\nauthor: me\nmemory: {shared: yes}\n"
    )
    agent = heir(tmp_path, parent, "")
    assert [skill.name for skill in agent.abstract_skills] == ["a"]
    assert agent.tools == (BuiltinTool("bash"),)
    assert [part.text for part in agent.prompt] == ["x"]
    assert (agent.tags, agent.author, agent.memory.shared, agent.name) == (("t",), "me", True, "c")


def test_the_childs_model_wins_key_by_key(tmp_path: Path) -> None:
    parent = "model: {capability: reasoning-max, preferred: [claude/x, openai/y], fallback: reasoning-low}\n"
    assert heir(tmp_path, parent, "model: {capability: reasoning-mid}\n").model == ModelChoice(
        candidates=(ModelRef("claude", "x"), ModelRef("openai", "y")),
        capability="reasoning-mid",
        fallback="reasoning-low",
        temperature=0.5,
    )


def test_limits_are_not_reset_by_leaving_them_out(tmp_path: Path) -> None:
    agent = heir(tmp_path, "observability: {cost_limit: 0.5, step_limit: 7}\n", "observability: {trace: true}\n")
    assert (agent.limits.cost_usd, agent.limits.session_steps, agent.trace) == (0.5, 7, True)


def test_providers_and_extensions_are_joined_by_name(tmp_path: Path) -> None:
    parent = "auth: {providers: {a: {from: env.A}, b: {from: env.B}}}\nextensions: {x-a: {k: 1, d: {a: 1}}}\n"
    child = "auth: {providers: {b: {from: env.C}}}\nextensions: {x-a: {k: 2, d: {b: 1}}, x-b: 1}\n"
    agent = heir(tmp_path, parent, child)
    assert {name: each.key_from for name, each in agent.auth.providers.items()} == {"a": "env.A", "b": "env.C"}
    assert agent.extensions == {"x-a": {"k": 2, "d": {"a": 1, "b": 1}}, "x-b": 1}


def test_the_parents_own_version_is_not_inherited(tmp_path: Path) -> None:
    assert heir(tmp_path, "version: 9.9.9\n", "").version == "0.1.0"


def test_rules_of_all_ancestors_accumulate_oldest_first_and_the_soul_is_the_nearest(tmp_path: Path) -> None:
    files = {
        "child/agent.yaml": "name: c\nbase: ../mid\n",
        "child/RULES.md": "third\n",
        "mid/agent.yaml": "name: m\nbase: ../old.agent\n",
        "mid/SOUL.md": "middle soul\n",
        "mid/RULES.md": "second\n",
        "old.agent": "name: o\nsoul: old soul\nrules: first\n",
    }
    agent = agent_at(write_tree(tmp_path, files) / "child")
    assert [(part.kind, part.text) for part in agent.prompt] == [
        ("soul", "middle soul"),
        ("rules", "first"),
        ("rules", "second"),
        ("rules", "third"),
    ]
    assert agent.source.ancestors == ("../mid/agent.yaml", "../old.agent")
    assert agent.origins["prompt[0]"] == Origin(str(tmp_path / "mid/SOUL.md"), 1, 1)


def test_each_value_knows_which_ancestor_said_it(tmp_path: Path) -> None:
    agent = heir(tmp_path, "author: me\nmodel: {context: 8k}\n", "model: {fallback: x}\n")
    parent, child = str(tmp_path / "p.agent"), str(tmp_path / "c.agent")
    wanted = {
        "author": Origin(parent, 2, 9),
        "model.context": Origin(parent, 3, 18),
        "model.fallback": Origin(child, 3, 19),
    }
    assert {key: agent.origins[key] for key in wanted} == wanted


# --- trust can only narrow -------------------------------------------------------------------------------

LIMITED = "trust:\n  filesystem: scoped\n  network: scoped\n  exec: sandboxed\n  scope: [./work]\n"


def test_trust_left_out_is_the_parents(tmp_path: Path) -> None:
    assert heir(tmp_path, LIMITED, "").trust == Trust("scoped", "scoped", "sandboxed", ("./work",))


def test_trust_left_out_on_one_axis_is_the_parents_there(tmp_path: Path) -> None:
    assert heir(tmp_path, LIMITED, "trust: {exec: none}\n").trust == Trust("scoped", "scoped", "none", ("./work",))


def test_trust_may_narrow_on_every_axis(tmp_path: Path) -> None:
    child = "trust: {filesystem: read-only, network: none, exec: none, scope: [./work/a, work]}\n"
    assert heir(tmp_path, LIMITED, child).trust == Trust("read-only", "none", "none", ("./work/a", "work"))


@pytest.mark.parametrize(
    ("axis", "wider", "limit", "line", "column"),
    [
        ("filesystem", "full", "scoped", 3, 15),
        ("network", "allowed", "scoped", 4, 12),
        ("exec", "full", "sandboxed", 5, 9),
    ],
)
def test_trust_wider_than_the_parents_is_an_error_that_names_both_places(
    tmp_path: Path, axis: str, wider: str, limit: str, line: int, column: int
) -> None:
    found = family(tmp_path, LIMITED, f"trust:\n  {axis}: {wider}\n")
    text = f"trust.{axis} is {wider}, wider than the {limit} that its base (p.agent:{line}:{column}) allows"
    assert said(found, tmp_path) == [("error", "c.agent", 4, len(axis) + 5, text)]
    assert (found.agent, only(found).hint) == (None, f"at most {limit}")


def test_a_parent_that_says_nothing_of_trust_allows_nothing(tmp_path: Path) -> None:
    found = family(tmp_path, "", "trust: {exec: sandboxed}\n")
    text = "trust.exec is sandboxed, wider than the none that its base (p.agent:1:7, by default) allows"
    assert said(found, tmp_path) == [("error", "c.agent", 3, 15, text)]


def test_a_grandparents_limit_holds_over_a_parent_that_says_nothing(tmp_path: Path) -> None:
    files = {
        "g.agent": f"name: g\n{LIMITED}",
        "p.agent": "name: p\nbase: ./g.agent\n",
        "c.agent": "name: c\nbase: ./p.agent\ntrust: {exec: full}\n",
    }
    found = look(write_tree(tmp_path, files) / "c.agent")
    text = "trust.exec is full, wider than the sandboxed that its base (g.agent:5:9) allows"
    assert said(found, tmp_path) == [("error", "c.agent", 3, 15, text)]


def test_a_parent_that_itself_is_too_wide_is_an_error_in_the_parent(tmp_path: Path) -> None:
    files = {
        "g.agent": "name: g\n",
        "p.agent": "name: p\nbase: ./g.agent\ntrust: {exec: full}\n",
        "c.agent": "name: c\nbase: ./p.agent\ntrust: {exec: none}\n",
    }
    found = look(write_tree(tmp_path, files) / "c.agent")
    assert [(p.file, p.line) for p in errors(found)] == [(str(tmp_path / "p.agent"), 3)]


@pytest.mark.parametrize(
    "scope",
    [
        "..",
        "../work",
        "./work/../..",
        "work/../other",
        "/work",
        "/",
        ".",
        "./workspace",
        "./work-2",
        "~/work",
        "./Work",
        "''",
    ],
)
def test_a_scope_outside_the_parents_is_refused(tmp_path: Path, scope: str) -> None:
    found = family(tmp_path, LIMITED, f"trust:\n  scope:\n    - {scope}\n")
    plain = scope.strip("'")
    text = f"the scope {plain!r} is outside the scope of its base (p.agent:6:10)"
    assert said(found, tmp_path) == [("error", "c.agent", 5, 7, text)]
    assert only(found).hint == "allowed: paths below ./work"


@pytest.mark.parametrize("scope", ["./work", "work", "work/", "./work/deep/er", "work/x/../y"])
def test_a_scope_inside_the_parents_is_fine(tmp_path: Path, scope: str) -> None:
    trust = heir(tmp_path, LIMITED, f"trust: {{scope: [{scope}]}}\n").trust
    assert trust is not None
    assert trust.scope == (scope,)


def test_a_scoped_parent_without_a_scope_allows_no_path(tmp_path: Path) -> None:
    found = family(tmp_path, "trust: {filesystem: scoped}\n", "trust: {scope: [./x]}\n")
    assert [p.hint for p in errors(found)] == ["the base allows none"]


# --- where a base may be ---------------------------------------------------------------------------------


def line_of(levels: int) -> dict[str, str]:
    names = range(levels + 1)
    return {
        f"a{n}.agent": f"name: a{n}\n" + (f"base: ./a{n + 1}.agent\n" if n < levels else "skills: [s]\n") for n in names
    }


def test_sixteen_levels_are_fine(tmp_path: Path) -> None:
    agent = agent_at(write_tree(tmp_path, line_of(16)) / "a0.agent")
    assert ([skill.name for skill in agent.abstract_skills], len(agent.source.ancestors)) == (["s"], 16)


def test_seventeen_levels_are_refused_with_the_chain(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, line_of(17)) / "a0.agent")
    chain = " → ".join(f"a{n}.agent" for n in range(18))
    assert said(found, tmp_path) == [("error", "a16.agent", 2, 7, f"more than 16 levels of inheritance: {chain}")]


def test_a_cycle_is_an_error_that_prints_the_chain(tmp_path: Path) -> None:
    files = {
        "a.agent": "name: a\nbase: ./b.agent\n",
        "b.agent": "name: b\nbase: ./c.agent\n",
        "c.agent": "name: c\nbase: ./x/../b.agent\n",
    }
    found = look(write_tree(tmp_path, files) / "a.agent")
    text = "the agent inherits from itself: a.agent → b.agent → c.agent → b.agent"
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, text)]


def test_an_agent_that_is_its_own_base_is_a_cycle(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"a.agent": "name: a\nbase: a.agent\n"}) / "a.agent")
    text = "the agent inherits from itself: a.agent → a.agent"
    assert said(found, tmp_path) == [("error", "a.agent", 2, 7, text)]


def test_a_base_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    files = {
        "top/c.agent": "name: c\nbase: ../mid/p.agent\n",
        "mid/p.agent": "name: p\nbase: deep/g.agent\n",
        "mid/deep/g.agent": "name: g\nskills: [s]\n",
    }
    agent = agent_at(write_tree(tmp_path, files) / "top/c.agent")
    assert [skill.name for skill in agent.abstract_skills] == ["s"]
    assert agent.source.ancestors == ("../mid/p.agent", "../mid/deep/g.agent")


def test_a_missing_base_is_an_error_where_it_is_named(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"c.agent": "name: c\nbase: ./gone.agent\n"}) / "c.agent")
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, "gone.agent is not there")]


def test_a_folder_without_a_manifest_is_no_base(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"c.agent": "name: c\nbase: ./dir\n", "dir/x.txt": ""}) / "c.agent")
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, "dir/agent.yaml is not there")]


def test_a_base_in_another_format_is_refused(tmp_path: Path) -> None:
    found = look(write_tree(tmp_path, {"c.agent": "name: c\nbase: ./dir\n", "dir/agent.yaml": MANIFEST}) / "c.agent")
    assert found.agent is None
    assert ("dir/agent.yaml is not an agentspec manifest", "a base must be one") in [
        (p.text, p.hint) for p in errors(found)
    ]


def test_an_error_in_the_base_is_reported_in_the_base(tmp_path: Path) -> None:
    found = family(tmp_path, "version: 1.0\n", "")
    assert said(found, tmp_path) == [("error", "p.agent", 2, 10, "version must be a text, not the number 1.0")]


# --- registries ------------------------------------------------------------------------------------------

STORED = {"name": "p", "skills": ["stored"]}


@pytest.mark.parametrize("folder", ["", "agents/"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_fingerprint_is_looked_up_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, wrapped: bool
) -> None:
    reference = stored_under(tmp_path, STORED, folder, wrapped=wrapped)
    monkeypatch.setenv("DURAGENT_REGISTRY", str(tmp_path / "registry"))
    agent = agent_at(write_tree(tmp_path, {"c.agent": f"name: c\nbase: {reference}\n"}) / "c.agent")
    assert [skill.name for skill in agent.abstract_skills] == ["stored"]
    assert agent.source.ancestors == (reference,)


def stored_under(root: Path, manifest: dict[str, Any], folder: str = "", *, wrapped: bool = False) -> str:
    """Store a manifest in root/registry under its own fingerprint."""
    text = json.dumps(manifest)
    reference = agent_hash(load_agent(write_tree(root, {"stored.agent": text}) / "stored.agent"))
    content = json.dumps({"hash": reference, "manifest": manifest}) if wrapped else text
    write_tree(root, {f"registry/{folder}{reference.replace(':', '_')}.json": content})
    return reference


def test_the_registrys_copy_must_have_the_fingerprint_it_is_stored_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURAGENT_REGISTRY", str(tmp_path / "registry"))
    files = {"registry/ag1_0123456789ab.json": "name: x\n", "c.agent": "name: c\nbase: ag1:0123456789ab\n"}
    found = look(write_tree(tmp_path, files) / "c.agent")
    problem = only(found)
    assert (problem.level, problem.file, problem.text) == (
        "error",
        "ag1:0123456789ab",
        "the registry's copy of ag1:0123456789ab is ag1:58d7fcdef041",
    )


def test_a_fingerprint_nobody_has_is_an_error_that_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURAGENT_REGISTRY", f"{tmp_path}/one:{tmp_path}/two")
    found = look(write_tree(tmp_path, {"c.agent": "name: c\nbase: ag1:0123456789ab\n"}) / "c.agent")
    text = "ag1:0123456789ab is not there (looked in one, two)"
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, text)]


@pytest.mark.parametrize("reference", ["ag1:../../c", "ag1:/etc/hostname", "ag1:"])
def test_a_fingerprint_that_is_a_path_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    monkeypatch.setenv("DURAGENT_REGISTRY", str(tmp_path / "registry/deep"))
    write_tree(
        tmp_path, {"registry/deep/x": "", "c.json": "name: stolen\n", "c.agent": f"name: c\nbase: '{reference}'\n"}
    )
    assert [p.line for p in errors(look(tmp_path / "c.agent"))] == [2]


def test_what_comes_from_a_registry_cannot_name_local_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURAGENT_REGISTRY", str(tmp_path / "registry"))
    write_tree(tmp_path, {"secret.agent": "name: s\n"})
    reference = stored_under(tmp_path, {"name": "p", "base": "./secret.agent"})
    found = look(write_tree(tmp_path, {"c.agent": f"name: c\nbase: {reference}\n"}) / "c.agent")
    wanted = f"'./secret.agent' is a path, but {reference} came from a registry, where paths lead nowhere"
    assert [p.text for p in errors(found)] == [wanted]


# --- bases behind URLs -----------------------------------------------------------------------------------


class Web:
    """A fake network: pages by address, and what was asked for."""

    def __init__(self, pages: Mapping[str, bytes]) -> None:
        self.pages = pages
        self.asked: list[str] = []

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if url not in self.pages:
            raise FetchFailed(f"{url} answered with status 404")
        return self.pages[url]


def from_web(root: Path, base: str, pages: Mapping[str, bytes]) -> tuple[Examined, list[str]]:
    write_tree(root, {"c.agent": f"name: c\nbase: {base}\n"})
    web = Web(pages)
    return examine(root / "c.agent", fetch=web), web.asked


def test_a_base_is_fetched_over_https(tmp_path: Path) -> None:
    found, asked = from_web(
        tmp_path, "https://a.test/p.agent", {"https://a.test/p.agent": b"\xef\xbb\xbfname: p\r\nskills: [w]\r\n"}
    )
    assert found.agent is not None
    assert [skill.name for skill in found.agent.abstract_skills] == ["w"]
    assert asked == ["https://a.test/p.agent"]


def test_the_pin_of_a_base_is_handed_to_whoever_fetches_and_nothing_else_is_fetched(tmp_path: Path) -> None:
    url = "https://a.test/p.agent#sha256=" + "0" * 64
    found, asked = from_web(tmp_path, url, {url: b"name: p\n"})
    assert (found.problems, asked) == ((), [url])


def test_a_base_over_plain_http_is_refused_and_not_fetched(tmp_path: Path) -> None:
    found, asked = from_web(tmp_path, "http://a.test/p.agent", {})
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, "a base is only fetched over https")]
    assert asked == []


def test_a_base_that_cannot_be_fetched_is_an_error_with_the_reason(tmp_path: Path) -> None:
    found, _asked = from_web(tmp_path, "https://a.test/p.agent", {})
    text = "https://a.test/p.agent is not used (https://a.test/p.agent answered with status 404)"
    assert said(found, tmp_path) == [("error", "c.agent", 2, 7, text)]


def test_a_base_that_is_not_text_is_an_error(tmp_path: Path) -> None:
    found, _asked = from_web(tmp_path, "https://a.test/p.agent", {"https://a.test/p.agent": b"\xff\xfe\x00"})
    problem = only(found)
    assert (problem.level, problem.file, problem.text) == (
        "error",
        "https://a.test/p.agent",
        "https://a.test/p.agent is not UTF-8 text (it looks like UTF-16)",
    )


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("q.agent", "https://a.test/x/q.agent"),
        ("./q.agent", "https://a.test/x/q.agent"),
        ("../q.agent", "https://a.test/q.agent"),
        ("../../../../q.agent", "https://a.test/q.agent"),
        ("/etc/q.agent", "https://a.test/etc/q.agent"),
        ("//b.test/q.agent", "https://b.test/q.agent"),
        ("https://b.test/q.agent", "https://b.test/q.agent"),
    ],
)
def test_a_relative_base_in_a_fetched_manifest_is_an_address(tmp_path: Path, base: str, address: str) -> None:
    start = "https://a.test/x/p.agent"
    write_tree(tmp_path, {"q.agent": "name: local\nskills: [local]\n", "x/q.agent": "name: local\n"})
    found, asked = from_web(
        tmp_path, start, {start: f"name: p\nbase: '{base}'\n".encode(), address: b"name: q\nskills: [w]\n"}
    )
    assert asked == [start, address]
    assert found.agent is not None
    assert [skill.name for skill in found.agent.abstract_skills] == ["w"]


@pytest.mark.parametrize(
    "base", ["file:///etc/passwd", "x:../secret.agent", "x:secret.agent", "//[oops", "ftp://b.test/q"]
)
def test_a_fetched_manifest_cannot_reach_a_local_file(tmp_path: Path, base: str) -> None:
    start = "https://a.test/p.agent"
    write_tree(tmp_path, {"secret.agent": "name: s\n", "x:secret.agent": "name: s\n"})
    found, asked = from_web(tmp_path, start, {start: f"name: p\nbase: '{base}'\n".encode()})
    text = f"{base!r} in {start} does not lead to an https address"
    assert [(p.file, p.line, p.column, p.text) for p in found.problems] == [(start, 2, 7, text)]
    assert asked == [start]


def test_a_fetched_manifest_that_names_plain_http_is_refused(tmp_path: Path) -> None:
    start = "https://a.test/p.agent"
    found, asked = from_web(tmp_path, start, {start: b"name: p\nbase: http://b.test/q.agent\n"})
    assert [p.text for p in found.problems] == ["a base is only fetched over https"]
    assert asked == [start]


def test_a_cycle_through_the_web_is_found(tmp_path: Path) -> None:
    one, two = "https://a.test/1.agent", "https://a.test/2.agent"
    found, asked = from_web(tmp_path, one, {one: b"name: a\nbase: 2.agent\n", two: b"name: b\nbase: 1.agent\n"})
    assert [p.text for p in found.problems] == [f"the agent inherits from itself: c.agent → {one} → {two} → {one}"]
    assert asked == [one, two]


def test_nothing_is_wrong_with_a_plain_family(tmp_path: Path) -> None:
    assert warnings(family(tmp_path, "skills: [a]\n", "skills: [b]\n")) == []
