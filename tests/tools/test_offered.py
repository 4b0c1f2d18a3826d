"""Which tools an agent has, what is said about those it has not, and that what rules know of a tool is what it is."""

from pathlib import Path

import pytest

from duragent.agent import Abilities, Agent, BuiltinTool, CliTool, McpServer, Memory, Skill, Source, Trust
from duragent.cli.policies import BUILTINS
from duragent.sandbox import Box, Sandbox
from duragent.sandbox.none import NoSandbox
from duragent.tools import runs_programs, tools_of
from duragent.tools.host import Host

EVERYTHING = ("background_process", "bash", "memory", "reload_tools", "schedule", "session", "web")
HANDS = Agent(
    name="a",
    tools=(*map(BuiltinTool, EVERYTHING), CliTool("ledger", "./ledger", "Keeps a ledger.", "./README.md")),
    skills=(Skill("tidy", "Tidies up.", "Tidy up.", "skills/tidy/SKILL.md"),),
    source=Source(format="duragent"),
)


def place(folder: Path, agent: Agent, sandbox: Sandbox | None) -> Host:
    program = folder / "ledger"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (folder / "README.md").write_text("# ledger\n\nKeeps a ledger.\n")
    inside = {name: str(folder / name) for name in ("workdir", "workspace", "memory_dir", "world_dir")}
    return Host(agent, home=str(folder), box=Box(cwd=str(folder)), sandbox=sandbox, **inside)


def offered(folder: Path, agent: Agent = HANDS, sandbox: Sandbox | None = None) -> tuple[list[str], tuple[str, ...]]:
    toolbox, notes = tools_of(agent, place(folder, agent, sandbox or NoSandbox()))
    return list(toolbox), notes


def test_an_agent_gets_what_it_names_in_a_fixed_order(tmp_path: Path) -> None:
    names = ["background_process", "bash", "ledger", "memory", "reload_tools", "schedule", "session", "skill"]
    assert offered(tmp_path) == ([*names, "tool_help", "web"], ())


def test_what_rules_know_of_a_builtin_tool_is_what_it_is(tmp_path: Path) -> None:
    toolbox, _ = tools_of(HANDS, place(tmp_path, HANDS, NoSandbox()))
    specs = {name: tool.spec for name, tool in toolbox.items() if tool.spec.kind == "builtin"}
    assert specs.keys() == BUILTINS.keys()
    for name, spec in specs.items():
        known = BUILTINS[name]
        assert (spec.line, spec.detail, spec.quiet, spec.needs) == (known.line, known.detail, known.quiet, known.needs)


def test_every_builtin_tool_has_a_closed_schema_and_says_what_a_call_that_was_cut_off_means(tmp_path: Path) -> None:
    toolbox, _ = tools_of(HANDS, place(tmp_path, HANDS, NoSandbox()))
    for tool in toolbox.values():
        assert tool.spec.description and tool.spec.parameters["additionalProperties"] is False, tool.spec.name
        actions = tool.spec.parameters["properties"].get("action", {}).get("enum", [])
        assert set(tool.spec.effects) in (set(), set(actions)), tool.spec.name


@pytest.mark.parametrize(
    ("agent", "gone"),
    [
        ({"trust": Trust(filesystem="full", network="allowed", exec="none")}, {"bash", "background_process", "ledger"}),
        ({"trust": Trust(filesystem="full", network="none", exec="full")}, {"web"}),
        ({"abilities": Abilities(allow=("network", "fs"))}, {"bash", "background_process", "ledger"}),
        ({"abilities": Abilities(deny=("network",))}, {"web"}),
        ({"abilities": Abilities(allow=("sh:git", "tool"))}, {"web"}),
    ],
)
def test_what_trust_and_abilities_leave_no_room_for_is_not_even_shown(
    tmp_path: Path, agent: dict[str, Trust | Abilities], gone: set[str]
) -> None:
    everything, _ = offered(tmp_path)
    left, notes = offered(tmp_path, Agent(name="a", tools=HANDS.tools, skills=HANDS.skills, **agent))
    help_too = {"tool_help"} if "ledger" in gone else set()
    assert set(everything) - set(left) == gone | help_too
    assert len(notes) == len(gone) and all(any(f"{name}," in note for note in notes) for name in gone)


def test_without_a_sandbox_nothing_that_starts_a_program_is_offered_and_the_owner_is_told_why(tmp_path: Path) -> None:
    toolbox, notes = tools_of(HANDS, place(tmp_path, HANDS, None))
    assert list(toolbox) == ["memory", "reload_tools", "schedule", "session", "skill", "web"]
    assert len(notes) == 3 and all("duragent doctor --sandbox" in note for note in notes)


def test_what_this_version_does_not_have_is_named(tmp_path: Path) -> None:
    agent = Agent(name="a", tools=(McpServer("files"), BuiltinTool("telepathy")))
    expected = "Not offered, since this version does not have them: mcp files, builtin telepathy."
    assert offered(tmp_path, agent) == ([], (expected,))


@pytest.mark.parametrize(
    ("allow", "names"),
    [(("sh", "network"), ["bash", "web"]), (("sh:git",), ["bash"]), (("fs", "env"), []), (("*",), [])],
)
def test_abilities_that_are_named_bring_the_tools_they_are_for(
    tmp_path: Path, allow: tuple[str, ...], names: list[str]
) -> None:
    assert offered(tmp_path, Agent(name="a", abilities=Abilities(allow))) == (names, ())


def test_memory_comes_with_a_long_term_memory(tmp_path: Path) -> None:
    assert offered(tmp_path, Agent(name="a", memory=Memory(long_term="filesystem"))) == (["memory"], ())


def test_an_agent_that_may_run_nothing_needs_no_sandbox(tmp_path: Path) -> None:
    assert runs_programs(HANDS, str(tmp_path))
    assert not runs_programs(Agent(name="a", tools=HANDS.tools, trust=Trust()), str(tmp_path))
    assert not runs_programs(Agent(name="a", tools=(BuiltinTool("web"),)), str(tmp_path))
