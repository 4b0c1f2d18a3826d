"""The schedule tool: what may be scheduled, the file it becomes, and who sees and cancels it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from duragent.core.events import ToolAnswer
from duragent.tools import NOWHERE, Scene, Tool, schedule
from duragent.tools.schedule import (
    At,
    BrokenSchedule,
    Destination,
    MessagePayload,
    Payload,
    StoredSchedule,
    When,
    folder_of,
    load_schedules,
    save_schedule,
)
from tests.tools.places import NOW, ask, host

DM = Scene(session_id="session_dm", gateway="telegram", chat_id="17")
GROUP = Scene(session_id="session_group", gateway="telegram", chat_id="-17")
TERMINAL = Scene(session_id="session_1")
DAILY = {"action": "create", "cron": "0 9 * * MON-FRI", "task": "Look at the news."}


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return schedule.make(host(tmp_path))


def create(tool: Tool, scene: Scene = TERMINAL, **arguments: Any) -> str:
    answer = ask(tool, scene, **{**DAILY, **arguments})
    assert answer.success, answer.content
    return str(json.loads(answer.content)["id"])


def listed(tool: Tool, scene: Scene = TERMINAL) -> list[str]:
    return [each["id"] for each in json.loads(ask(tool, scene, action="list").content)]


def files(root: Path) -> dict[str, Any]:
    return {path.name: yaml.safe_load(path.read_text()) for path in sorted((root / "schedules").glob("*.yaml"))}


def test_a_schedule_is_a_file_in_duragents_own_shape(tool: Tool, tmp_path: Path) -> None:
    answer = ask(
        tool,
        DM,
        action="create",
        at="2026-02-19T09:30:00+01:00",
        message="Wake up ☀️, the key is sk-secret",
        max_retries=5,
        retry_delay_ms=200,
        process_handle="01abc",
    )
    written = {
        "id": json.loads(answer.content)["id"],
        "agent": "bot",
        "created_by_session": "session_dm",
        "destination": {"gateway": "telegram", "chat_id": "17"},
        "schedule": {"at": {"at": "2026-02-19T08:30:00Z"}},
        "payload": {"message": {"message": "Wake up ☀️, the key is [redacted]"}},
        "created_at": "2026-02-18T10:32:00Z",
        "status": "active",
        "retry": {"max_retries": 5, "initial_delay_ms": 200, "max_delay_ms": 30_000},
        "process_handle": "01abc",
    }
    assert json.loads(answer.content) == written
    assert files(tmp_path) == {f"{written['id']}.yaml": written}
    assert len(written["id"]) == len("sched_") + 26 and written["id"].startswith("sched_01KHR")


def test_a_schedule_made_at_the_terminal_belongs_to_its_session(tool: Tool, tmp_path: Path) -> None:
    first, second = create(tool, every_seconds=60, cron=""), create(tool, timezone="Europe/Berlin")
    found = files(tmp_path)
    assert found[f"{first}.yaml"]["schedule"] == {"every": {"every_seconds": 60, "anchor": "2026-02-18T10:32:00Z"}}
    assert found[f"{second}.yaml"]["schedule"] == {"cron": {"expr": "0 9 * * MON-FRI", "tz": "Europe/Berlin"}}
    assert [(each["destination"], each["created_by_session"]) for each in found.values()] == [(None, "session_1")] * 2


WHEN = "give exactly one of at, every_seconds, cron, not"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cron": ""}, f"{WHEN} none."),
        ({"every_seconds": 5}, f"{WHEN} every_seconds and cron."),
        ({"message": "x"}, "give exactly one of message, task, not both."),
        ({"task": " "}, "give exactly one of message, task, not none."),
        (
            {"cron": "", "at": "tomorrow"},
            "'tomorrow' is no time. Write it like 2026-03-01T09:30:00+01:00.",
        ),
        (
            {"cron": "", "at": "2026-02-31T10:00"},
            "'2026-02-31T10:00' is no time. Write it like 2026-03-01T09:30:00+01:00.",
        ),
        (
            {"cron": "", "at": "0001-01-01T00:00+23:59"},
            "'0001-01-01T00:00+23:59' is no time. Write it like 2026-03-01T09:30:00+01:00.",
        ),
        (
            {"cron": "", "at": "2026-02-18T10:32:00"},
            "2026-02-18T10:32:00+00:00 has passed; it is 2026-02-18T10:32:00+00:00 now.",
        ),
        (
            {"cron": "* * *"},
            "cron has 3 fields; write minute hour day month weekday, e.g. 0 9 * * MON-FRI.",
        ),
        ({"cron": "0 0 9 * * * 2027"}, "cron names a year; leave it out, or write * for it."),
        (
            {"cron": "0 0 9 * * 1-5"},
            "cron has seconds and a weekday as a number, which programs count differently; write SUN to SAT.",
        ),
        ({"cron": "99 * * * *"}, "cron is not an expression for a time (Bad minute); e.g. 0 9 * * MON-FRI."),
        (
            {"timezone": "../../etc/passwd"},
            "there is no timezone '../../etc/passwd'; write a name such as Europe/Berlin.",
        ),
        ({"timezone": "Mars/Base"}, "there is no timezone 'Mars/Base'; write a name such as Europe/Berlin."),
        (
            {"cron": "", "at": "2026-02-19T09:30", "timezone": "Europe/Berlin"},
            "timezone is for cron alone; a time for `at` has its offset in it, like 2026-03-01T09:30:00+01:00.",
        ),
    ],
)
def test_what_cannot_be_scheduled_says_why_and_leaves_no_file(
    arguments: dict[str, Any], said: str, tool: Tool, tmp_path: Path
) -> None:
    assert ask(tool, TERMINAL, **{**DAILY, **arguments}) == ToolAnswer(False, f"Nothing was scheduled: {said}")
    assert files(tmp_path) == {}


def test_all_that_is_wrong_is_said_at_once(tool: Tool, tmp_path: Path) -> None:
    answer = ask(
        tool, action="create", cron="* * *", at="tomorrow", timezone="Mars/Base", message="x", task="y", max_retries=3
    )
    assert answer.content.split("\n- ") == [
        "Nothing was scheduled:",
        f"{WHEN} at and cron.",
        "'tomorrow' is no time. Write it like 2026-03-01T09:30:00+01:00.",
        "there is no timezone 'Mars/Base'; write a name such as Europe/Berlin.",
        "cron has 3 fields; write minute hour day month weekday, e.g. 0 9 * * MON-FRI.",
        "give exactly one of message, task, not both.",
    ]
    assert (answer.success, files(tmp_path)) == (False, {})


@pytest.mark.parametrize(
    "cron",
    ["*/5 * * * *", "0 9 * * 1-5", "30 0 9 * * MON#2", "0 0 9 ? * SUN *", "@daily", "0 9 L * *", "0 0 9 * * */2"],
)
def test_five_fields_six_with_seconds_first_and_names_are_taken(cron: str, tool: Tool) -> None:
    assert [create(tool, cron=cron)] == listed(tool)


def test_a_chat_sees_and_cancels_its_own_and_the_owner_all_of_the_agent(tmp_path: Path) -> None:
    bot, other = schedule.make(host(tmp_path)), schedule.make(host(tmp_path, "other"))
    ids = {name: create(bot, scene) for name, scene in (("terminal", TERMINAL), ("dm", DM), ("group", GROUP))}
    ids["other"] = create(other)
    assert listed(bot, DM) == [ids["dm"]]
    assert listed(bot, GROUP) == [ids["group"]]
    assert sorted(listed(bot)) == sorted([ids["terminal"], ids["dm"], ids["group"]])
    assert listed(other) == [ids["other"]]
    for scene, wanted in ((DM, "group"), (GROUP, "terminal"), (TERMINAL, "other")):
        text = f"There is no active schedule {ids[wanted]!r} here. `list` names those there are."
        assert ask(bot, scene, action="cancel", schedule_id=ids[wanted]) == ToolAnswer(False, text)
    assert ask(bot, GROUP, action="cancel", schedule_id=ids["group"]) == ToolAnswer(True, f"Cancelled {ids['group']}.")
    assert ask(bot, action="cancel", schedule_id=ids["dm"]).success
    assert (listed(bot, DM), listed(bot, GROUP), listed(bot)) == ([], [], [ids["terminal"]])
    assert {each["id"]: each["status"] for each in files(tmp_path).values()} == {
        ids["terminal"]: "active",
        ids["dm"]: "cancelled",
        ids["group"]: "cancelled",
        ids["other"]: "active",
    }


@pytest.mark.parametrize("schedule_id", ["../../x", "/etc/passwd", "\0", "sched_"])
def test_an_id_is_looked_up_and_never_a_path(schedule_id: str, tool: Tool) -> None:
    create(tool)
    text = f"There is no active schedule {schedule_id!r} here. `list` names those there are."
    assert ask(tool, TERMINAL, action="cancel", schedule_id=schedule_id) == ToolAnswer(False, text)


def test_cancel_needs_an_id(tool: Tool) -> None:
    assert ask(tool, action="cancel") == ToolAnswer(False, "cancel needs schedule_id: take one that `list` names.")


STORED = StoredSchedule(
    id="sched_1",
    agent="bot",
    created_by_session="session_1",
    destination=Destination("telegram", "17"),
    schedule=When(at=At(NOW)),
    payload=Payload(message=MessagePayload("hello")),
    created_at=NOW,
    status="completed",
)
BY_HAND = """\
id: sched_1
agent: bot
created_by_session: session_1
destination: {gateway: telegram, chat_id: "17"}
schedule: {at: {at: 2026-02-18T10:32:00Z}}
payload: {message: {message: hello}}
created_at: 2026-02-18T10:32:00Z
status: completed
something_newer: 1
"""


def test_what_is_saved_is_loaded_and_so_is_what_another_program_wrote(tmp_path: Path) -> None:
    folder = folder_of(str(tmp_path))
    assert load_schedules(folder) == ([], [])
    save_schedule(folder, STORED)
    assert load_schedules(folder) == ([STORED], [])
    (tmp_path / "schedules/sched_1.yaml").write_text(BY_HAND)
    assert load_schedules(folder) == ([STORED], [])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "while parsing a flow node"),
        ("", "Expected `object`, got `null`"),
        ("[" * 5000, "it is nested more than 10 deep"),
        ("a: &a [x]\nb: *a\n", "it uses an alias (*name), which no schedule needs"),
        ("x: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("#" * 200_000, "it has 200,000 bytes; a schedule has at most 131,072"),
        (BY_HAND.replace("id: sched_1", "id: sched_2"), "it says id 'sched_2', which is not the name of the file"),
        (BY_HAND.replace("status: completed", "status: asleep"), "Invalid enum value 'asleep'"),
        (BY_HAND.replace("10:32:00Z}}", "10:32:00}}"), "Expected `datetime` with a timezone component"),
        (BY_HAND.replace("{at: {at: 2026-02-18T10:32:00Z}}", "{}"), "schedule needs exactly one of at, every, cron"),
        (BY_HAND.replace("{message: {message: hello}}", "{}"), "payload needs exactly one of message, task"),
        (
            BY_HAND.replace("{at: {at: 2026-02-18T10:32:00Z}}", "{every: {every_seconds: 0}}"),
            "every_seconds must be at least 1",
        ),
        (
            BY_HAND.replace("{at: {at: 2026-02-18T10:32:00Z}}", "{cron: {expr: 0 0 9 * * 2}}"),
            "cron has seconds and a weekday as a number",
        ),
    ],
)
def test_a_broken_file_is_reported_and_stops_no_other(text: str, why: str, tmp_path: Path) -> None:
    folder = folder_of(str(tmp_path))
    good = StoredSchedule(**{name: getattr(STORED, name) for name in STORED.__struct_fields__} | {"id": "sched_0"})
    save_schedule(folder, good)
    (tmp_path / "schedules/sched_1.yaml").write_text(text)
    schedules, (broken,) = load_schedules(folder)
    assert schedules == [good]
    assert isinstance(broken, BrokenSchedule) and broken.file == str(tmp_path / "schedules/sched_1.yaml")
    assert broken.text.startswith(why)


def test_an_agent_has_only_so_many_schedules(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "MOST_ACTIVE", 2)
    first = create(tool)
    create(tool)
    assert ask(tool, TERMINAL, **DAILY) == ToolAnswer(
        False, "Nothing was scheduled: this agent has 2 schedules. Cancel one first."
    )
    ask(tool, TERMINAL, action="cancel", schedule_id=first)
    create(tool)


def test_a_folder_that_cannot_be_written_to_gives_a_clear_answer(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "schedules").write_text("a file where the folder should be")
    assert ask(tool, NOWHERE, **DAILY) == ToolAnswer(
        False, f"Nothing was written: {tmp_path}/schedules cannot be written to (Not a directory)."
    )


def test_ids_sort_by_the_time_they_were_made(tmp_path: Path) -> None:
    later = schedule.make(host(tmp_path, now=datetime(2026, 2, 18, 10, 33, tzinfo=UTC)))
    assert create(schedule.make(host(tmp_path))) < create(later)


def test_creating_is_done_once_and_only_looking_is_quiet(tool: Tool) -> None:
    spec = tool.spec
    assert (spec.name, spec.kind, spec.quiet) == ("schedule", "builtin", ("list",))
    assert dict(spec.effects) == {"create": "once", "list": "pure", "cancel": "repeatable"}
    assert spec.detail == ("message", "task", "schedule_id")
