"""The session tool: which other conversations an agent may look at, and how much of them it sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent
from duragent.core.events import ToolAnswer, UserMessage
from duragent.core.session import Message, Session, Status
from duragent.errors import CorruptLog, NotFound
from duragent.tools import NOWHERE, Scene, Tool, sessions
from tests.tools.places import ask, host

DM = Scene(session_id="session_dm", gateway="telegram", chat_id="17")
GROUP = Scene(session_id="session_group", gateway="telegram", chat_id="-17")


class Sessions:
    """A runtime that knows these sessions. `damaged` ones are there and cannot be opened."""

    def __init__(self, *found: tuple[str, Session], damaged: str = "") -> None:
        self.found, self.damaged = list(found), damaged

    async def post(self, session_id: str, message: UserMessage) -> int:
        raise AssertionError("the session tool only looks")

    async def siblings(
        self, agent: str, gateway: str | None, chat_id: str | None, most: int = 10
    ) -> list[tuple[str, Session]]:
        near = [
            (session_id, each)
            for session_id, each in self.found
            if (each.agent, each.gateway, each.gateway_chat_id) == (agent, gateway, chat_id) and not each.ended
        ]
        return near[:most]

    async def session(self, session_id: str) -> Session:
        if session_id == self.damaged:
            raise CorruptLog(f"{session_id}: line 3 is damaged")
        for known, each in self.found:
            if known == session_id:
                return each
        raise NotFound(f"no session {session_id}")

    async def reload(self, agent: Agent) -> None:
        raise AssertionError("the session tool only looks")


def session(*said: str, agent: str = "bot", scene: Scene = NOWHERE, status: Status = "active") -> Session:
    messages = [Message("assistant" if at % 2 else "user", text, at + 1) for at, text in enumerate(said)]
    return Session(
        agent=agent,
        gateway=scene.gateway,
        gateway_chat_id=scene.chat_id,
        status=status,
        messages=messages,
        created_at="2026-02-18T10:00:00Z",
        updated_at="2026-02-18T10:05:00Z",
    )


def tool(root: Path, *found: tuple[str, Session]) -> Tool:
    return sessions.make(host(root, door=Sessions(*found)))


def listed(tool: Tool, scene: Scene = NOWHERE) -> list[str]:
    return [each["session_id"] for each in json.loads(ask(tool, scene, action="list").content)]


def test_the_newest_ten_that_have_not_ended_are_listed_and_the_calling_one_is_marked(tmp_path: Path) -> None:
    found = [(f"session_{number}", session("hello " * 30, "hi")) for number in range(12)]
    found.insert(1, ("session_ended", session(status="completed")))
    answer = ask(tool(tmp_path, *found), Scene(session_id="session_1"), action="list")
    lines = json.loads(answer.content)
    assert [each["session_id"] for each in lines] == [f"session_{number}" for number in range(10)]
    assert lines[1] == {
        "session_id": "session_1",
        "status": "active",
        "created_at": "2026-02-18T10:00:00Z",
        "updated_at": "2026-02-18T10:05:00Z",
        "messages": 2,
        "begins": ("hello " * 30)[:100] + "…",
        "this": True,
    }
    assert [each for each in lines if "this" in each] == [lines[1]]


def test_only_sessions_of_the_same_agent_and_the_same_chat_are_seen(tmp_path: Path) -> None:
    box = tool(
        tmp_path,
        ("session_terminal", session("canary")),
        ("session_dm", session("canary", scene=DM)),
        ("session_group", session("canary", scene=GROUP)),
        ("session_other", session("canary", agent="other")),
    )
    assert [listed(box, scene) for scene in (NOWHERE, DM, GROUP)] == [
        ["session_terminal"],
        ["session_dm"],
        ["session_group"],
    ]
    for scene, own in ((NOWHERE, "session_terminal"), (DM, "session_dm"), (GROUP, "session_group")):
        for wanted in ("session_terminal", "session_dm", "session_group", "session_other"):
            answer = ask(box, scene, action="read", session_id=wanted)
            assert ("canary" in answer.content) is (wanted == own)


@pytest.mark.parametrize("wanted", ["session_dm", "session_other", "session_damaged", "session_none"])
def test_what_may_not_be_read_is_answered_like_what_is_not_there(wanted: str, tmp_path: Path) -> None:
    door = Sessions(
        ("session_dm", session("canary", scene=DM)),
        ("session_other", session("canary", agent="other", scene=GROUP)),
        damaged="session_damaged",
    )
    assert ask(sessions.make(host(tmp_path, door=door)), GROUP, action="read", session_id=wanted) == ToolAnswer(
        False, f"There is no session {wanted!r} that can be read from here. `list` names those that can."
    )


def test_read_shows_the_last_messages_each_cut_at_500_characters_not_bytes(tmp_path: Path) -> None:
    said = session("first", "second", "é" * 500, "家" * 501, "")
    said.messages[0].sender = "Anna"
    box = tool(tmp_path, ("session_1", said))
    assert ask(box, action="read", session_id="session_1") == ToolAnswer(
        True, f"Anna: first\n\nassistant: second\n\nuser: {'é' * 500}\n\nassistant: {'家' * 500}…"
    )
    assert ask(box, action="read", session_id="session_1", limit=1).content == f"assistant: {'家' * 500}…"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "read needs session_id: take one that `list` names."),
        (
            {"session_id": "../../etc"},
            "There is no session '../../etc' that can be read from here. `list` names those that can.",
        ),
    ],
)
def test_a_session_that_cannot_be_read_gives_a_clear_answer(
    arguments: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert ask(tool(tmp_path), action="read", **arguments) == ToolAnswer(False, said)


def test_an_ended_session_can_still_be_read_and_an_empty_one_says_so(tmp_path: Path) -> None:
    box = tool(tmp_path, ("session_1", session("bye", status="completed")), ("session_2", session()))
    assert ask(box, action="read", session_id="session_1") == ToolAnswer(True, "user: bye")
    assert ask(box, action="read", session_id="session_2").content == "Nothing has been said in this session."


def test_without_a_runtime_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    answer = ask(sessions.make(host(tmp_path)), action="list")
    assert answer == ToolAnswer(False, "There are no sessions to look at here.")


def test_looking_changes_nothing_and_needs_no_question(tmp_path: Path) -> None:
    spec = tool(tmp_path).spec
    assert (spec.name, spec.kind, spec.effect, spec.quiet) == ("session", "builtin", "pure", ("*",))
