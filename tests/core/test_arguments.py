"""Arguments that do not fit the schema: all faults at once, in words a model can act on."""

from typing import Any

import pytest

from duragent.agent import Agent
from duragent.core.events import ToolCall
from duragent.core.policy import Judge, ToolSpec

SCHEMA = {
    "type": "object",
    "properties": {
        "action": {"enum": ["add", "list"]},
        "sum": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["action"],
    "additionalProperties": False,
}


def faults(schema: dict[str, Any], arguments: Any) -> str:
    spec = ToolSpec("ledger", parameters=schema)
    return Judge(Agent(name="a")).faults(spec, ToolCall("c1", "ledger", arguments))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"action": "add", "sum": 5, "tags": ["x"]}, ""),
        ({"action": "add", "sum": "5"}, '- sum: "5" is not of type "integer"'),
        ({"action": "mul"}, '- action: "mul" is none of "add", "list"'),
        ({"action": "add", "tags": ["x", 1]}, '- tags[1]: 1 is not of type "string"'),
        (None, '- arguments: "action" is a required property'),
        (
            {"sum": 0, "more": 1},
            "- sum: 0 is less than the minimum of 1\n"
            "- arguments: Additional properties are not allowed ('more' was unexpected)\n"
            '- arguments: "action" is a required property',
        ),
    ],
)
def test_every_fault_is_told_with_its_place(arguments: Any, expected: str) -> None:
    assert sorted(faults(SCHEMA, arguments).splitlines()) == sorted(expected.splitlines())


def test_the_list_of_faults_has_an_end() -> None:
    found = faults(SCHEMA, {"action": "add", "tags": list(range(500))})
    assert len(found) < 2_100
    assert found.splitlines()[-1] == "- and 480 more"
    long = faults(
        {"type": "object", "additionalProperties": {"type": "integer"}}, {str(n) * 90: "x" * 900 for n in range(9)}
    )
    assert len(long) < 2_100


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "objekt"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"properties": {"x": {"pattern": "("}}},
        {"properties": 5},
        {},
    ],
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_fetches_nothing(schema: dict[str, Any]) -> None:
    assert faults(schema, {"x": "y"}) == ""


def test_a_pattern_in_a_schema_cannot_hang() -> None:
    schema = {"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}}
    assert faults(schema, {"x": "a" * 5_000 + "b"}).startswith("- x: ")


def test_a_tool_whose_schema_changed_is_checked_against_the_new_one() -> None:
    judge, call = Judge(Agent(name="a")), ToolCall("c1", "t", {"x": 1})
    assert judge.faults(ToolSpec("t", parameters={"properties": {"x": {"type": "integer"}}}), call) == ""
    assert judge.faults(ToolSpec("t", parameters={"properties": {"x": {"type": "string"}}}), call) == (
        '- x: 1 is not of type "string"'
    )
