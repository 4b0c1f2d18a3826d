"""Converting between formats: nothing is dropped silently, and what protects the owner is not dropped at all."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from duragent.agent import (
    PROTECTED,
    Abilities,
    Access,
    Agent,
    Limits,
    McpServer,
    ModelChoice,
    Policy,
    PolicyTier,
    PromptPart,
    Trust,
)
from duragent.agentfiles import load
from duragent.conversion import TARGETS, Loss, comparable, convert, differences, write
from duragent.errors import DuragentError, LossRefused
from tests.agents import agents
from tests.build import MANIFEST, write_tree

EXAMPLES = Path(__file__).parents[1] / "examples"
FEW = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
SLOW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every single value with its path: an own, plain way to look at an agent."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from leaves(each, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple) and value:
        for index, each in enumerate(value):
            yield from leaves(each, f"{path}[{index}]")
    elif value is not None and value not in ("", [], (), {}):
        yield path, value


def unreported(before: Agent, after: Agent, losses: tuple[Loss, ...]) -> dict[str, tuple[Any, Any]]:
    """What differs and stands under no path that the report names."""
    old, new = dict(leaves(comparable(before))), dict(leaves(comparable(after)))
    named = [loss.path for loss in losses]
    return {
        path: (old.get(path), new.get(path))
        for path in old | new
        if old.get(path) != new.get(path)
        and not any(path == name or path.startswith((f"{name}.", f"{name}[")) for name in named)
    }


def weaker(before: Agent, after: Agent) -> dict[str, tuple[Any, Any]]:
    """What protected the owner and does so no longer: gone, another, or a limit that is wider."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in ("trust", "policy", "access", "abilities"):
        old, new = fields(comparable(before)[name], name), fields(comparable(after)[name], name)
        found |= {path: (value, new.get(path)) for path, value in old.items() if new.get(path) != value}
    one, other = before.limits, after.limits
    numbers = {name: (getattr(one, name), getattr(other, name)) for name in NUMBERS}
    numbers["rounds"] = rounds(one), rounds(other)
    numbers["max_input_tokens"] = before.model.max_input_tokens, after.model.max_input_tokens
    numbers["max_output_tokens"] = before.model.max_output_tokens, after.model.max_output_tokens
    for name, (most, now) in numbers.items():
        if most is not None and (now is None or now > most):
            found[name] = most, now
    if (one.on_exceed, other.on_exceed) == ("abort", "ask"):
        found["on_exceed"] = "abort", "ask"
    if before.status != "active" and after.status != before.status:
        found["status"] = before.status, after.status
    return found


def fields(value: Any, path: str) -> dict[str, Any]:
    """The single fields of a section that say something; a list is one value. An empty `allow` says: nothing."""
    if isinstance(value, dict):
        return {deep: each for name, inner in value.items() for deep, each in fields(inner, f"{path}.{name}").items()}
    empty = value is None or (value in ("", []) and path != "abilities.allow")
    return {} if empty else {path: value}


def rounds(limits: Limits) -> int | None:
    """Two words for rounds of the same loop; the tighter one counts."""
    return min((each for each in (limits.tool_iterations, limits.steps) if each is not None), default=None)


NUMBERS = ("session_steps", "cost_usd", "background_seconds", "parallel_tasks")
PAIRS = list(itertools.product(TARGETS, TARGETS))


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{source}-{target}" for source, target in PAIRS])
@SLOW
@given(agent=agents())
def test_reading_back_gives_the_same_agent_minus_what_the_report_names(source: str, target: str, agent: Agent) -> None:
    with TemporaryDirectory() as folder:
        first = write(agent, source, f"{folder}/first", accept_loss=True)
        before = load(first.entry)
        second = write(before, target, f"{folder}/second", accept_loss=True)
        after = load(second.entry)
        assert unreported(before, after, second.losses) == {}
        if source == target:
            assert second.losses == ()


@pytest.mark.parametrize("target", TARGETS)
@SLOW
@given(agent=agents())
def test_what_protects_the_owner_is_kept_or_the_conversion_is_refused(target: str, agent: Agent) -> None:
    with TemporaryDirectory() as folder:
        try:
            done = write(agent, target, f"{folder}/out")
        except LossRefused as refused:
            assert any(isinstance(loss, Loss) and loss.protected for loss in refused.losses)
            assert list(Path(folder).iterdir()) == []
            return
        assert weaker(agent, load(done.entry)) == {}


@pytest.mark.parametrize(("source", "target"), PAIRS, ids=[f"{source}-{target}" for source, target in PAIRS])
@FEW
@given(agent=agents())
def test_what_protects_the_owner_of_a_loaded_agent_is_kept_or_refused(source: str, target: str, agent: Agent) -> None:
    """An agent from a file knows where its values were written; that must not make any of them less worth."""
    with TemporaryDirectory() as folder:
        before = load(write(agent, source, f"{folder}/first", accept_loss=True).entry)
        assert before.origins
        try:
            done = write(before, target, f"{folder}/second")
        except LossRefused as refused:
            lost = [loss for loss in refused.losses if isinstance(loss, Loss) and loss.protected]
            assert all(loss.path.startswith(PROTECTED) for loss in lost)
            assert lost
            assert not Path(folder, "second").exists()
            return
        assert weaker(before, load(done.entry)) == {}


@pytest.mark.parametrize(
    ("text", "target", "refused"),
    [
        ("name: x\n", "agentspec", []),
        ("name: x\n", "duragent", ["trust", "limits.session_steps"]),
        ("name: x\ntrust: {exec: full}\n", "agentmd", ["trust", "limits.session_steps"]),
        ("name: x\nobservability: {cost_limit: 1}\n", "agentdir", ["trust", "limits.session_steps", "limits.cost_usd"]),
    ],
)
def test_a_default_protects_as_much_as_what_was_written(
    text: str, target: str, refused: list[str], tmp_path: Path
) -> None:
    (tmp_path / "x.agent").write_text(text)
    done = write(load(tmp_path / "x.agent"), target, tmp_path / "out", accept_loss=True)
    named = {loss.path for loss in done.losses if loss.protected}
    assert set(refused) <= named
    assert bool(refused) == bool(named)


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (Limits(10), Limits(10), False),
        (Limits(10), Limits(9), False),
        (Limits(10), Limits(None, 10), False),
        (Limits(10), Limits(None, 11), True),
        (Limits(10), Limits(11), True),
        (Limits(10), Limits(None), True),
        (Limits(None, 20), Limits(20), False),
        (Limits(10, 5), Limits(None, 5), False),
        (Limits(10, 5), Limits(10), True),
        (Limits(5, 10), Limits(None, 10), True),
        (Limits(None), Limits(10), False),
        (Limits(cost_usd=1.0), Limits(cost_usd=0.5), False),
        (Limits(cost_usd=1.0), Limits(cost_usd=2.0), True),
        (Limits(cost_usd=1.0), Limits(), True),
        (Limits(), Limits(cost_usd=1.0), False),
        (Limits(session_steps=5), Limits(session_steps=6), True),
        (Limits(background_seconds=5), Limits(), True),
        (Limits(parallel_tasks=2), Limits(parallel_tasks=3), True),
        (Limits(on_exceed="abort"), Limits(on_exceed="ask"), True),
    ],
)
def test_a_limit_that_is_equal_or_tighter_afterwards_is_no_loss_of_protection(
    before: Limits, after: Limits, found: bool
) -> None:
    old, new = Agent(name="x", limits=before), Agent(name="x", limits=after)
    assert any(loss.protected for loss in differences(old, new)) == found
    assert bool(weaker(old, new)) == found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Agent(name="x", abilities=Abilities(())), Agent(name="x", abilities=Abilities())),
        (Agent(name="x", abilities=Abilities(("fs",))), Agent(name="x")),
        (Agent(name="x", abilities=Abilities(deny=("sh",))), Agent(name="x", abilities=Abilities())),
        (Agent(name="x", policy=Policy(PolicyTier("ask"))), Agent(name="x")),
        (
            Agent(name="x", policy=Policy(PolicyTier("ask", deny=("a",)))),
            Agent(name="x", policy=Policy(PolicyTier("ask"))),
        ),
        (Agent(name="x", access=Access()), Agent(name="x")),
        (Agent(name="x", status="disabled"), Agent(name="x")),
        (Agent(name="x", model=ModelChoice(max_output_tokens=9)), Agent(name="x")),
        (Agent(name="x", trust=Trust()), Agent(name="x")),
        (Agent(name="x", trust=Trust()), Agent(name="x", trust=Trust(exec="full"))),
    ],
)
def test_less_protection_than_before_is_a_protected_loss(before: Agent, after: Agent) -> None:
    assert weaker(before, after) != {}
    assert any(loss.protected for loss in differences(before, after))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir() if path.suffix != ".sh"))
def test_every_example_converts_to_every_format(example: str, target: str, tmp_path: Path) -> None:
    path = EXAMPLES / example
    done = convert(path, target, tmp_path / "out", accept_loss=True)
    assert unreported(load(path), load(done.entry), done.losses) == {}


def test_the_text_of_the_prompt_survives_in_every_format(tmp_path: Path) -> None:
    parts = (
        PromptPart("soul", "I am calm."),
        PromptPart("instructions", "Answer briefly."),
        PromptPart("rules", "Never lie."),
    )
    agent = Agent(name="x", prompt=parts)
    for target in TARGETS:
        found = load(write(agent, target, tmp_path / target, accept_loss=True).entry)
        told = "\n".join(part.text for part in found.prompt)
        assert all(part.text in told for part in parts), target


def test_a_server_that_is_switched_off_is_never_written_as_one_that_runs(tmp_path: Path) -> None:
    agent = Agent(name="x", tools=(McpServer("danger", "stdio", "rm", enabled=False),))
    for target in TARGETS:
        found = load(write(agent, target, tmp_path / target, accept_loss=True).entry)
        assert not any(isinstance(tool, McpServer) and tool.enabled for tool in found.tools), target


def test_a_difference_says_what_was_lost_changed_and_added() -> None:
    before = Agent(name="x", version="1.0.0", trust=Trust(network="allowed"))
    after = Agent(name="y", description="new", trust=None)
    found = {(loss.path, loss.kind, loss.protected) for loss in differences(before, after)}
    assert found == {
        ("name", "changed", False),
        ("version", "lost", False),
        ("description", "added", False),
        ("trust", "lost", True),
    }


EVIL = '---\nname: "../../../evil"\ndescription: d\n---\nbody\n'


def beneath(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


WRITTEN_OF_EVIL = {
    "duragent": {"SYSTEM_PROMPT.md", "agent.yaml", "skills/evil/SKILL.md"},
    "agentspec": {"SOUL.md", "agent.yaml", "skills/evil/SKILL.md"},
    "agentdir": {"agent.acl", "instructions.md", "skills/x.md"},
    "agentmd": {"general_source.agent.md"},
    "openagentspec": {"source.oas.yaml"},
}


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_is_written_outside_of_the_output_folder(target: str, tmp_path: Path) -> None:
    source = write_tree(tmp_path / "source", {"instructions.md": "Work.\n", "skills/x.md": EVIL})
    agent = load(source)
    assert [skill.name for skill in agent.skills] == ["../../../evil"]
    before, out = beneath(tmp_path), tmp_path / "a" / "b" / "c" / "out"
    done = write(agent, target, out, accept_loss=True)
    assert set(done.files) == WRITTEN_OF_EVIL[target]
    assert beneath(tmp_path) - before == {f"a/b/c/out/{name}" for name in WRITTEN_OF_EVIL[target]}


@pytest.mark.parametrize("path", ["../evil.md", "/tmp/evil.md", "a/../../evil.md", "C:/evil.md"])
def test_a_path_that_leads_out_of_the_output_folder_is_refused_or_replaced(path: str, tmp_path: Path) -> None:
    """An agent that was built by a program may name any path."""
    for kind in ("bootstrap", "instructions"):
        agent = Agent(name="x", prompt=(PromptPart(kind, "Be evil.", path),))  # type: ignore[arg-type]
        for target in TARGETS:
            out = tmp_path / "a" / kind / target
            try:
                write(agent, target, out, accept_loss=True)
            except DuragentError as error:
                assert "would be written outside of" in str(error)
                assert (kind, target) == ("bootstrap", "duragent")
            else:
                assert (kind, target) != ("bootstrap", "duragent")
                assert out.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_files_of_a_skill_come_along_byte_by_byte(tmp_path: Path) -> None:
    source = tmp_path / "bot"
    (source / "skills" / "notes" / "scripts").mkdir(parents=True)
    (source / "agent.yaml").write_text("apiVersion: agent/v1\nname: bot\n")
    (source / "skills" / "notes" / "SKILL.md").write_text("---\nname: notes\ndescription: d\n---\nbody\n")
    (source / "skills" / "notes" / "scripts" / "run").write_bytes(b"\x00\xff\r\n")
    (source / "skills" / "notes" / "scripts" / "run").chmod(0o755)
    convert(source, "duragent", tmp_path / "out", accept_loss=True)
    copied = tmp_path / "out" / "skills" / "notes" / "scripts" / "run"
    assert copied.read_bytes() == b"\x00\xff\r\n"
    assert copied.stat().st_mode & 0o111


def test_a_server_behind_an_address_comes_along(tmp_path: Path) -> None:
    tools = "  tools:\n    - {type: mcp, name: s, server: 'https://mcp.example.com/x', config: {a: 1}}\n"
    source = write_tree(tmp_path / "bot", {"agent.yaml": MANIFEST + tools})
    done = convert(source, "duragent", tmp_path / "out")
    assert (done.files, done.losses) == (("agent.yaml",), ())


def test_the_program_of_a_server_comes_along(tmp_path: Path) -> None:
    server = "  tools:\n    - {type: mcp, name: s, server: ./bin/server}\n"
    source = write_tree(tmp_path / "bot", {"agent.yaml": MANIFEST + server, "bin/server": "#!/bin/sh\n"})
    (source / "bin" / "server").chmod(0o755)
    done = convert(source, "duragent", tmp_path / "out")
    assert (done.files, done.losses) == (("agent.yaml", "bin/server"), ())
