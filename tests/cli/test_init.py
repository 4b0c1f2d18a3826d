"""A new workspace, and new agents in it."""

import json
import re
import resource
import signal
from pathlib import Path

import pytest

from duragent.agentfiles import examine, load
from duragent.cli.templates import MODELS, TEMPLATES
from tests.cli.workspace import Program


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_init_writes_a_workspace_that_validates_strictly(program: Program) -> None:
    done = program("init")
    assert (done.code, done.err) == (0, "")
    assert sorted(files(program.folder)) == [
        ".duragent/.gitignore",
        ".duragent/agents/assistant/SYSTEM_PROMPT.md",
        ".duragent/agents/assistant/agent.yaml",
        ".duragent/agents/assistant/policy.yaml",
        ".duragent/schemas/agent.schema.json",
        ".duragent/schemas/config.schema.json",
        ".duragent/schemas/policy.schema.json",
        "duragent.yaml",
    ]
    checked = program("validate", ".", "--strict")
    assert (checked.code, checked.out.splitlines()[-1]) == (0, "1 agent, 0 errors, 0 warnings")


def test_init_says_the_next_command_and_what_is_missing(program: Program) -> None:
    lines = program("init", "new").out.splitlines()
    assert lines[0] == "written  new/duragent.yaml"
    assert lines[-2] == "Next: cd new && duragent chat --agent assistant"
    assert lines[-1].startswith("Set OPENAI_API_KEY first")


def test_init_changes_nothing_that_is_there(program: Program) -> None:
    program("init")
    (program.folder / "duragent.yaml").write_text("sessions: {ttl_hours: 1}\n")
    (program.folder / ".duragent/agents/assistant/SYSTEM_PROMPT.md").write_text("Mine.\n")
    before = files(program.folder)
    done = program("init")
    assert done.code == 0
    assert files(program.folder) == before
    kept = [line.split() for line in done.out.splitlines()[: len(before)]]
    assert sorted(kept) == sorted(["kept", name] for name in before)


def test_init_follows_the_settings_that_are_there(program: Program) -> None:
    (program.folder / "duragent.yaml").write_text("workspace: state\nagents_dir: people\n")
    program("init")
    assert load("people/assistant").name == "assistant"
    assert (program.folder / "state/schemas/agent.schema.json").exists()
    assert program("validate", "people", "--strict").code == 0


def test_wrong_settings_stop_init_where_they_are_wrong(program: Program) -> None:
    (program.folder / "duragent.yaml").write_text("workspaces: x\n")
    done = program("init")
    assert (done.code, done.out) == (1, "kept     duragent.yaml\n")
    assert "duragent.yaml:1:1  error  unknown field `workspaces` (did you mean `workspace`?)" in done.err


def test_a_file_in_the_way_is_named(program: Program) -> None:
    (program.folder / ".duragent").write_text("")
    done = program("init")
    assert done.code == 1
    assert ".duragent" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("form", TEMPLATES)
def test_a_new_agent_is_without_any_problem(form: str, provider: str, program: Program) -> None:
    done = program("agent", "create", "code-helper", "--format", form, "--provider", provider)
    assert (done.code, done.err) == (0, "")
    entry = program.folder / ".duragent/agents" / TEMPLATES[form].entry.format(name="code-helper")
    found = examine(entry)
    assert (found.problems, found.format) == ((), form)
    assert found.agent is not None
    assert found.agent.name == "code-helper"
    (model,) = found.agent.model.candidates
    assert (model.provider.replace("claude", "anthropic"), model.name) == (provider, MODELS[provider][0])


@pytest.mark.parametrize("form", [name for name, template in TEMPLATES.items() if template.schemas])
def test_the_schema_that_a_new_manifest_names_is_there(form: str, program: Program) -> None:
    program("agent", "create", "helper", "--format", form)
    manifests = [
        path for path in (program.folder / ".duragent/agents").rglob("*") if path.suffix in (".yaml", ".agent")
    ]
    for path in manifests:
        named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", path.read_text())
        assert named
        assert json.loads((path.parent / named[1]).read_text())["$id"].startswith("urn:duragent:schema:")
    assert len(manifests) == len(TEMPLATES[form].schemas)


@pytest.mark.parametrize("name", ["007", "null", "true", "1e5", "2024-01-01", "no", "x"])
@pytest.mark.parametrize("form", TEMPLATES)
def test_a_name_is_a_text_whatever_it_looks_like(form: str, name: str, program: Program) -> None:
    program("agent", "create", name, "--format", form)
    found = examine(program.folder / ".duragent/agents" / TEMPLATES[form].entry.format(name=name))
    assert (found.problems, found.agent.name if found.agent else None) == ((), name)


@pytest.mark.parametrize("model", ["", "a b", 'x"y', "x\ny", "{x}", "-x"])
def test_a_model_that_cannot_be_one_is_wrong_usage(model: str, program: Program) -> None:
    assert program("agent", "create", "one", f"--model={model}").code == 2
    assert files(program.folder) == {}


def test_a_model_may_be_named_with_its_provider(program: Program) -> None:
    program("agent", "create", "one", "--model", "ollama/qwen3:8b")
    (model,) = load(".duragent/agents/one").model.candidates
    assert (model.provider, model.name) == ("ollama", "qwen3:8b")


def test_a_new_agent_takes_the_provider_whose_key_is_set(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "x")
    program("agent", "create", "one")
    assert load(".duragent/agents/one").model.candidates[0].provider == "openrouter"


def test_an_agent_that_could_not_be_written_is_not_half_there(program: Program) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        done = program("agent", "create", "one", "--format", "agentmd")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert (done.code, done.out, files(program.folder)) == (1, "", {})
    assert "File too large" in done.err
    assert program("agent", "create", "one", "--format", "agentmd").code == 0


def test_agents_are_listed_by_name_wherever_they_are(program: Program) -> None:
    for name, place in (("zed", "a.agent"), ("abe", "b.agent")):
        (program.folder / ".duragent/agents").mkdir(parents=True, exist_ok=True)
        (program.folder / ".duragent/agents" / place).write_text(f"name: {name}\n")
    assert [line.split()[0] for line in program("agent", "list").out.splitlines()] == ["abe", "zed"]


def test_no_agent_is_overwritten(program: Program) -> None:
    program("agent", "create", "one", "--format", "agentmd")
    done = program("agent", "create", "one")
    assert (done.code, done.out) == (1, "")
    assert "there is an agent called one in .duragent/agents already" in done.err


@pytest.mark.parametrize("name", ["../x", "a b", "", "-x", "é"])
def test_a_name_that_cannot_be_one_is_wrong_usage(name: str, program: Program) -> None:
    done = program("agent", "create", "--", name)
    assert done.code == 2
    assert "letters, digits and hyphens only" in done.err
    assert files(program.folder) == {}


def test_agents_are_listed_with_format_model_place_and_problems(workspace: Program) -> None:
    (workspace.folder / ".duragent/agents/odd.agent").write_text("name: odd\nmdoel: x\n")
    done = workspace("agent", "list")
    assert done.out.splitlines() == [
        "assistant  duragent   openai/gpt-4o-mini  .duragent/agents/assistant",
        "odd        agentspec  reasoning-mid       .duragent/agents/odd.agent  1 problem",
        "See: duragent validate .duragent/agents",
    ]
    assert json.loads(workspace("agent", "list", "--format", "json").out) == [
        {
            "name": "assistant",
            "format": "duragent",
            "model": "openai/gpt-4o-mini",
            "path": ".duragent/agents/assistant",
            "problems": 0,
        },
        {
            "name": "odd",
            "format": "agentspec",
            "model": "reasoning-mid",
            "path": ".duragent/agents/odd.agent",
            "problems": 1,
        },
    ]


def test_where_there_are_no_agents_the_list_says_how_to_get_one(program: Program) -> None:
    assert program("agent", "list") == (
        0,
        "There are no agents in .duragent/agents. Try: duragent agent create NAME\n",
        "",
    )


def test_the_workspace_is_found_from_a_folder_below_it(workspace: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    (workspace.folder / "duragent.yaml").write_text("")
    (workspace.folder / "src").mkdir()
    monkeypatch.chdir(workspace.folder / "src")
    assert "assistant" in workspace("agent", "list").out
