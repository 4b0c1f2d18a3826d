"""Converting between formats: nothing is dropped silently, and what protects the owner is not dropped at all."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from duragent.agent import PROTECTED, Agent, McpServer, PromptPart, Trust
from duragent.agentfiles import load
from duragent.conversion import TARGETS, Loss, comparable, convert, differences, write
from duragent.errors import DuragentError, LossRefused
from tests.agents import agents

EXAMPLES = Path(__file__).parents[1] / "examples"
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
        before, after = comparable(agent), comparable(load(done.entry))
        for name in PROTECTED:
            kept = dict(leaves(before[name], name))
            assert {path: value for path, value in leaves(after[name], name) if path in kept} == kept


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


def test_nothing_is_written_outside_of_the_output_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "skills").mkdir(parents=True)
    (source / "instructions.md").write_text("Work.\n")
    (source / "skills" / "x.md").write_text('---\nname: "../../../evil"\ndescription: d\n---\nbody\n')
    for target in TARGETS:
        try:
            write(load(source), target, tmp_path / "deep" / target, accept_loss=True)
        except DuragentError:
            continue
    assert not list(tmp_path.rglob("*evil*")) or all("deep" in str(path) for path in tmp_path.rglob("*evil*"))


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
