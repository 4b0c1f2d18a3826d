"""The published schemas say the same as the checks: what is valid passes, what is wrong does not."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
_HEADER = re.compile(r"---\n(.*?)^---$", re.DOTALL | re.MULTILINE)
_BY_PLACE = {
    "skills/*/SKILL.md": "skill",
    "schedules/*.md": "agentdir-schedule",
    "tools/*.md": "agentdir-tool",
    "*.agent.md": "agentmd",
}
"""Where Markdown with a header stands in an agent's folder, and the schema of that header."""


def headed() -> Iterator[tuple[Path, str]]:
    for place, name in _BY_PLACE.items():
        yield from ((path, name) for path in sorted(EXAMPLES.glob(f"*/{place}")))


def manifests() -> Iterator[tuple[Path, str]]:
    """YAML files, with the schema that their first line names. What a scripted model says is no part of an agent."""
    for path in sorted([*EXAMPLES.rglob("*.yaml"), *EXAMPLES.rglob("*.agent")]):
        if path.name == "script.yaml":
            continue
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        yield path, first.rpartition("/")[2].removesuffix(".schema.json")


CASES = [*manifests(), *headed()]


def schema(name: str) -> Any:
    return json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))


def said(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    header = _HEADER.match(text) if path.suffix == ".md" else None
    assert header or path.suffix != ".md", f"{path} has no header"
    return yaml.safe_load(header[1] if header else text)


def complaints(name: str, value: Any) -> list[str]:
    return [each.message for each in jsonschema.Draft202012Validator(schema(name)).iter_errors(value)]


def changed(value: Any, path: str, new: Any) -> Any:
    """`value` with something else at the dotted `path`."""
    whole = copy.deepcopy(value)
    *sections, last = path.split(".")
    here = whole
    for section in sections:
        here = here.setdefault(section, {})
    here[last] = new
    return whole


@pytest.mark.parametrize(("path", "name"), CASES, ids=[str(path.relative_to(EXAMPLES)) for path, _ in CASES])
def test_an_example_is_valid_by_its_published_schema(path: Path, name: str) -> None:
    assert complaints(name, said(path)) == []


def test_every_kind_of_file_an_agent_is_made_of_is_among_the_examples() -> None:
    published = {path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").iterdir()}
    assert {name for _, name in CASES} == published - {"config"}


@pytest.mark.parametrize(
    ("example", "name", "path", "wrong"),
    [
        ("code-reviewer/agent.yaml", "agent", "spec.modle", {}),
        ("code-reviewer/agent.yaml", "agent", "spec.model.temprature", 1),
        ("code-reviewer/agent.yaml", "agent", "kind", "Agnt"),
        ("code-reviewer/agent.yaml", "agent", "spec.model.provider", "nobody"),
        ("code-reviewer/agent.yaml", "agent", "spec.session.on_disconnect", "stop"),
        ("code-reviewer/agent.yaml", "agent", "spec.session.max_tool_iterations", "many"),
        ("code-reviewer/policy.yaml", "policy", "alow", []),
        ("code-reviewer/policy.yaml", "policy", "mode", "strict"),
        ("researcher.agent", "agentspec", "trust.network", "all"),
        ("researcher.agent", "agentspec", "behavior.on_error", "panic"),
        ("researcher.agent", "agentspec", "behavior.max_steps", "many"),
        ("release-agent/schedules/weekly-check.md", "agentdir-schedule", "crn", "* * * * *"),
        ("release-agent/schedules/weekly-check.md", "agentdir-schedule", "enabled", "sometimes"),
        ("release-agent/tools/git.md", "agentdir-tool", "kind", "mpc"),
        ("release-agent/tools/git.md", "agentdir-tool", "tool_timeout_secs", "long"),
        ("policy-writer/writing_policy-writer.agent.md", "agentmd", "status", "sleeping"),
        ("policy-writer/writing_policy-writer.agent.md", "agentmd", "recomended", {}),
        ("code-reviewer/skills/review-checklist/SKILL.md", "skill", "kind", "magic"),
        ("code-reviewer/skills/review-checklist/SKILL.md", "skill", "descripton", "x"),
    ],
)
def test_an_unknown_field_or_a_wrong_value_is_not_valid(example: str, name: str, path: str, wrong: Any) -> None:
    value = said(EXAMPLES / example)
    assert len(complaints(name, value)) == 0
    assert len(complaints(name, changed(value, path, wrong))) == 1


@pytest.mark.parametrize(
    ("example", "name", "field"),
    [
        ("code-reviewer/agent.yaml", "agent", "metadata"),
        ("researcher.agent", "agentspec", "name"),
        ("release-agent/schedules/weekly-check.md", "agentdir-schedule", "cron"),
    ],
)
def test_a_required_field_may_not_be_missing(example: str, name: str, field: str) -> None:
    value = {key: each for key, each in said(EXAMPLES / example).items() if key != field}
    assert complaints(name, value) == [f"'{field}' is a required property"]


def test_a_field_of_ones_own_is_valid_in_a_manifest() -> None:
    value = said(EXAMPLES / "code-reviewer/agent.yaml")
    assert complaints("agent", changed(value, "spec.x-note", {"any": ["thing"]})) == []


def test_agentspec_promises_that_fields_of_tomorrow_are_valid() -> None:
    assert complaints("agentspec", changed(said(EXAMPLES / "researcher.agent"), "tomorrow", 1)) == []
