"""Kill the process at every point where it touches the log, start it again, and look at the files.

This is about losing the process. That what was synced also survives a loss of power is the disk's word.
"""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from duragent.core import events as ev
from duragent.store.files import FileStore
from tests.crashing import ACKS, CALLS, EFFECTS, KILLED, SAID, SESSIONS, Nursery

FINAL = ["I will count and deploy.", "Deployed.", "Answer 2.", "Answer 3."]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


def acknowledged(folder: Path) -> list[tuple[str, str, int]]:
    path = folder / ACKS
    return [tuple(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def effects(folder: Path) -> Counter[str]:
    path = folder / EFFECTS
    return Counter(path.read_text().split() if path.exists() else ())


def name_of(session_id: str, event: ev.Event) -> tuple[str, str] | None:
    match event:
        case ev.SessionStart():
            return "session_start", session_id
        case ev.UserMessage(message_id=str(message_id)):
            return "user_message", message_id
        case ev.ApprovalDecision(call_id=call_id):
            return "approval_decision", call_id
    return None


def look_at_the_log(folder: Path) -> None:
    """What must hold for the files of a conversation that was cut off and carried to its end."""
    store = FileStore(folder / SESSIONS)
    (session_id,) = store.ids()
    entries = list(store.entries(session_id))
    assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
    there = {(*named, entry.seq) for entry in entries if (named := name_of(session_id, entry.event))}
    assert set(acknowledged(folder)) <= there, "something acknowledged is lost"
    kinds = Counter(type(entry.event) for entry in entries)
    assert (kinds[ev.UserMessage], kinds[ev.SessionStart]) == (len(SAID), 1)
    asked = [entry.event.call_id for entry in entries if isinstance(entry.event, ev.ApprovalRequired)]
    assert asked == ["c2"], "the approval is asked once"
    results = [entry.event for entry in entries if isinstance(entry.event, ev.ToolResult)]
    assert sorted(result.call_id for result in results) == [call.call_id for call in CALLS]
    for result in results:
        ran = effects(folder)[result.call_id]
        assert (result.outcome, ran) in {("ok", 1), ("interrupted", 1), ("interrupted", 0)}, result
    starts = Counter(entry.event.call_id for entry in entries if isinstance(entry.event, ev.ToolStarted))
    assert starts == Counter(call.call_id for call in CALLS)


def look_at_the_session(folder: Path) -> None:
    store = FileStore(folder / SESSIONS)
    (session_id,) = store.ids()
    session = store.read(session_id).session
    assert [message.content for message in session.messages if message.role == "assistant"] == FINAL
    assert [message.content for message in session.messages if message.role == "user"] == [text for _, text in SAID]
    assert (session.owes_answer, session.open_calls, session.waiting) == (False, {}, ())
    assert all(times == 1 for times in effects(folder).values()), "nothing runs twice"


def test_the_conversation_touches_the_log_as_often_as_it_should(nursery: Nursery, tmp_path: Path) -> None:
    assert nursery.run(tmp_path) == 0
    look_at_the_log(tmp_path)
    look_at_the_session(tmp_path)
    assert [kind for kind, _, _ in acknowledged(tmp_path)] == [
        "session_start",
        "user_message",
        "approval_decision",
        "user_message",
        "user_message",
    ]
    assert effects(tmp_path) == {"c1": 1, "c2": 1}


@pytest.mark.parametrize("how", ["before", "during", "after"])
def test_killed_at_any_append_nothing_is_lost_and_nothing_runs_twice(
    how: str, nursery: Nursery, tmp_path: Path
) -> None:
    for nth in count(1):
        folder = tmp_path / str(nth)
        folder.mkdir()
        if (status := nursery.run(folder, nth=nth, how=how)) == 0:
            break
        assert status == KILLED, (nth, how)
        assert nursery.run(folder) == 0, (nth, how)
        look_at_the_log(folder)
        look_at_the_session(folder)
    assert nth > 12, "there were fewer appends than the conversation has steps"


@pytest.mark.parametrize(("how", "nth"), [("before", 2), ("during", 3), ("after", 1)])
def test_killed_again_and_again_while_it_recovers_still_nothing_runs_twice(
    how: str, nth: int, nursery: Nursery, tmp_path: Path
) -> None:
    """Every process gets one append further than the one before it (a torn tail costs one more, for its note)."""
    statuses = [nursery.run(tmp_path, nth=nth, how=how) for _ in range(25)]
    assert KILLED in statuses[5:] and 0 in statuses and set(statuses) <= {0, KILLED}
    assert nursery.run(tmp_path) == 0
    look_at_the_log(tmp_path)
    look_at_the_session(tmp_path)


@pytest.mark.parametrize("how", ["before", "during"])  # after one is before the next
@pytest.mark.parametrize("compaction", ["discard", "archive", "disabled"])
def test_killed_at_any_touch_of_the_disk_while_snapshots_and_compaction_go_on(
    compaction: str, how: str, nursery: Nursery, tmp_path: Path
) -> None:
    """Creating, appending, writing snapshots aside, renaming, archiving, shortening, syncing: each one once."""
    for nth in count(1):
        folder = tmp_path / str(nth)
        folder.mkdir()
        if (status := nursery.run(folder, compaction, 4, kind="any", nth=nth, how=how)) == 0:
            break
        assert status == KILLED, (nth, how)
        assert nursery.run(folder, compaction, 4) == 0, (nth, how)
        look_at_the_session(folder)
        if compaction != "discard":
            look_at_the_log(folder)
    assert nth > 40, "there were fewer touches than snapshots and compaction need"


@pytest.mark.parametrize("call", ["c1", "c2"])
def test_a_call_cut_off_while_it_ran_is_reported_once_and_for_good_and_never_run_again(
    call: str, nursery: Nursery, tmp_path: Path
) -> None:
    """`c2` was approved: it is not asked about again either. What is reported is in the log, at its place."""
    assert nursery.run(tmp_path, dies_in=call) == KILLED
    (session_id,) = FileStore(tmp_path / SESSIONS).ids()
    assert FileStore(tmp_path / SESSIONS).read(session_id).session.open_calls[call].stage == "started"
    assert nursery.run(tmp_path, dies_in=call) == 0
    assert effects(tmp_path) == {"c1": 1, "c2": 1}
    look_at_the_log(tmp_path)
    log = (tmp_path / SESSIONS / session_id / "events.jsonl").read_bytes()
    assert nursery.run(tmp_path) == 0
    assert (tmp_path / SESSIONS / session_id / "events.jsonl").read_bytes() == log, "a third start adds nothing"
    events = [entry.event for entry in FileStore(tmp_path / SESSIONS).entries(session_id)]
    results = {event.call_id: event.outcome for event in events if isinstance(event, ev.ToolResult)}
    assert results == {"c1": "ok", "c2": "ok", call: "interrupted"}
    place = events.index(next(e for e in events if isinstance(e, ev.ToolResult) and e.outcome == "interrupted"))
    assert ev.AssistantResponse("bot", "Deployed.") in events[place:], "the model was told before it went on"
    look_at_the_session(tmp_path)
