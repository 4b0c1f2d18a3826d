"""Arguments that do not belong to the action are refused before anything happens, in every tool that has actions."""

from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, Skill, Source
from duragent.core.events import ToolAnswer
from duragent.sandbox import Box
from duragent.sandbox.none import NoSandbox
from duragent.tools import Tool, memory, processes, schedule, sessions, skills, web
from duragent.tools.host import Host
from duragent.tools.strays import stray
from tests.tools.places import ask

TABLES = {
    "background_process": processes.PERMITTED,
    "memory": memory._PERMITTED,
    "session": sessions._PERMITTED,
    "schedule": schedule._PERMITTED,
    "skill": skills._PERMITTED,
    "web": web._PERMITTED,
}


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, Tool]:
    skill = Skill("tidy", "Tidies up.", "Tidy up.", "skills/tidy/SKILL.md")
    agent = Agent(name="a", skills=(skill,), source=Source(format="duragent"))
    inside = {name: str(tmp_path / name) for name in ("workdir", "workspace", "memory_dir", "world_dir")}
    host = Host(agent, home=str(tmp_path), box=Box(cwd=str(tmp_path)), sandbox=NoSandbox(), **inside)
    made = [
        processes.make(host),
        memory.make(host),
        sessions.make(host),
        schedule.make(host),
        skills.make(host),
        web.make(host),
    ]
    return {tool.spec.name: tool for tool in made if tool is not None}


def test_every_argument_of_every_tool_belongs_to_an_action(tools: dict[str, Tool]) -> None:
    for name, tool in tools.items():
        properties = tool.spec.parameters["properties"]
        assert isinstance(properties, dict)
        assert set(TABLES[name]) == set(properties["action"]["enum"])
        assert {each for table in TABLES[name].values() for each in table} == set(properties) - {"action"}


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        ("background_process", {"action": "write", "handle": "x", "input": "rm x\n", "command": "ls"}, "For write, `command` means nothing; leave it out."),
        ("background_process", {"action": "send_keys", "handle": "x", "keys": "y", "input": "z"}, "For send_keys, `input` means nothing; leave it out."),
        ("background_process", {"action": "list", "handle": "x", "label": "y", "limit": 5}, "For list, `handle`, `label` and `limit` mean nothing; leave them out."),
        ("background_process", {"action": "spawn", "command": "touch ran", "keys": "x"}, "For spawn, `keys` means nothing; leave it out."),
        ("schedule", {"action": "cancel", "schedule_id": "x", "message": "harmless"}, "For cancel, `message` means nothing; leave it out."),
        ("schedule", {"action": "create", "schedule_id": "x", "every_seconds": 5, "task": "y"}, "For create, `schedule_id` means nothing; leave it out."),
        ("skill", {"action": "read", "name": "tidy", "file": "x", "script": "y"}, "For read, `script` means nothing; leave it out."),
        ("web", {"action": "fetch", "url": "http://127.0.0.1:1/", "query": "harmless"}, "For fetch, `query` means nothing; leave it out."),
        ("web", {"action": "search", "query": "x", "url": "https://allowed.test/"}, "For search, `url` means nothing; leave it out."),
    ],
)  # fmt: skip
def test_what_means_nothing_for_an_action_is_refused_and_nothing_happens(
    tool: str, arguments: dict[str, Any], told: str, tools: dict[str, Tool], tmp_path: Path
) -> None:
    assert ask(tools[tool], **arguments) == ToolAnswer(False, told)
    assert list(tmp_path.iterdir()) == []


def test_what_is_empty_or_holds_anyway_is_no_stray() -> None:
    parameters = {"type": "object", "properties": {"a": {}, "b": {"default": 5}, "c": {"default": False}}}
    permitted = {"go": ("a",)}
    assert stray(permitted, parameters, {"action": "go", "a": 1, "b": 5, "c": False}) == ""
    assert stray(permitted, parameters, {"action": "go", "b": None, "c": ""}) == ""
    assert (
        stray(permitted, parameters, {"action": "go", "b": 6, "c": False}) == "For go, `b` means nothing; leave it out."
    )
    assert stray(permitted, parameters, {"action": "fly", "b": 6}) == ""
