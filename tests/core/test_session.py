"""The state of a session is folded from its entries: the same every time, from any point on, whatever they are."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.core import events as ev
from duragent.core.session import REMEMBERED_IDS, SILENT_MESSAGES, Message, Question, Session, Spent, apply, fold
from tests.core.logs import AT, chat, log, logs, used

LATER = "2026-02-18T10:05:00.000000Z"
LS = ev.ToolCall("c1", "bash", {"command": "ls"})
PWD = ev.ToolCall("c2", "bash", {"command": "pwd"})


def answer(*calls: ev.ToolCall, text: str = "") -> ev.AssistantResponse:
    return ev.AssistantResponse("a", text, calls)


def result(call_id: str, text: str = "done", outcome: ev.Outcome = "ok") -> ev.ToolResult:
    return ev.ToolResult(call_id, ev.ToolAnswer(outcome == "ok", text), outcome)


def said(session: Session) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in session.messages]


def stages(session: Session) -> dict[str, str]:
    return {call.call.call_id: call.stage for message in session.messages for call in message.calls}


def outcomes(session: Session) -> dict[str, tuple[str | None, str]]:
    return {call.call.call_id: (call.outcome, call.content) for message in session.messages for call in message.calls}


def image(session: Session) -> Any:
    """Everything a session holds, as plain values."""
    return msgspec.to_builtins(session)


# Whatever the entries are.


@given(logs())
def test_folding_never_fails_and_gives_the_same_every_time(entries: list[ev.Entry]) -> None:
    assert image(fold(entries)) == image(fold(entries))


@given(logs(), st.integers(0, 25))
def test_folding_in_two_parts_is_folding_at_once(entries: list[ev.Entry], at: int) -> None:
    assert image(fold(entries[at:], fold(entries[:at]))) == image(fold(entries))


@given(logs())
def test_what_holds_after_any_entries(entries: list[ev.Entry]) -> None:
    session = fold(entries)
    assert session.seq == len(entries)
    calls = {id(call) for message in session.messages for call in message.calls}
    assert {id(call) for call in session.open_calls.values()} <= calls
    assert all(call.stage != "done" for call in session.open_calls.values())
    assert session.spent.usd >= 0
    assert set(session.waiting) <= {*session.open_calls, session.question.id if session.question else ""}
    assert len(session.silent) <= SILENT_MESSAGES
    assert not (session.ended and session.status != "completed")


@given(logs())
def test_entries_that_went_through_a_file_fold_alike(entries: list[ev.Entry]) -> None:
    session = fold(
        ev.parse_entry(ev.render_entry(entry)) for entry in entries if not isinstance(entry.event, ev.Unknown)
    )
    plain = fold(entry for entry in entries if not isinstance(entry.event, ev.Unknown))
    assert said(session) == said(plain)
    assert session.spent == plain.spent


class Counting(list[Message]):
    """A list that counts how often it is copied or walked."""

    walks = 0

    def __iter__(self) -> Any:
        self.walks += 1
        return super().__iter__()

    def copy(self) -> Any:
        self.walks += 1
        return super().copy()

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            self.walks += 1
        return super().__getitem__(at)


def test_a_turn_in_a_long_session_neither_copies_nor_walks_what_was_said() -> None:
    session = fold(log(*chat(500)))
    messages = session.messages = Counting(session.messages)
    turn = [ev.UserMessage("more"), ev.ModelCalled("m"), *used("c9", "x"), ev.ModelCalled("m"), answer(text="done")]
    for entry in log(*turn, ev.TurnStopped("cancelled", "", "half"), after=session.seq):
        apply(session, entry)
    assert session.messages is messages
    assert messages.walks == 0
    assert len(messages) == 1004


def test_the_ids_that_are_remembered_and_the_silent_messages_are_bounded() -> None:
    many = [ev.UserMessage("x", message_id=str(number), wants_answer=False) for number in range(REMEMBERED_IDS + 2)]
    session = fold(log(*many, *[ev.SilentMessage(str(number)) for number in range(SILENT_MESSAGES + 3)]))
    assert (len(session.seen), "1" in session.seen, "2" in session.seen) == (REMEMBERED_IDS, False, True)
    assert (len(session.silent), session.silent[0], session.silent[-1]) == (SILENT_MESSAGES, (AT, "3"), (AT, "202"))


# What each event does.


def test_a_session_begins_with_what_its_first_entry_says() -> None:
    start = ev.SessionStart("helper", "continue", "ag1:x", "/a/helper", "telegram", "42", "session_1@3", 1)
    assert fold(log(start)) == Session(
        "helper",
        "/a/helper",
        "ag1:x",
        "continue",
        "telegram",
        "42",
        "session_1@3",
        version=1,
        created_at=AT,
        updated_at=AT,
        seq=1,
    )


def test_a_plain_turn() -> None:
    usage = ev.Usage(10, 5, 15, 3)
    session = fold(
        log(
            ev.SessionStart("a"),
            ev.UserMessage("hi", "7", "Ada", "m1"),
            ev.ModelCalled("m"),
            ev.AssistantResponse("a", "hello", usage=usage, cost_usd=0.25),
        )
    )
    assert session == Session(
        agent="a",
        created_at=AT,
        updated_at=AT,
        seq=4,
        messages=[Message("user", "hi", 2, sender="Ada"), Message("assistant", "hello", 4)],
        wanted_seq=2,
        wanted_at=AT,
        wanted_by="7",
        person_seq=2,
        turn_by="7",
        called_seq=3,
        turn_seq=2,
        turn_at=AT,
        rounds=1,
        steps=1,
        seen={"m1": None},
        spent=Spent(10, 5, 3, 0.25, model_calls=1),
    )


def test_time_never_runs_backwards() -> None:
    entries = [ev.Entry(1, LATER, ev.SessionStart("a")), ev.Entry(2, AT, ev.UserMessage("x"))]
    assert fold(entries).updated_at == LATER


def test_an_unknown_event_counts_is_warned_of_and_changes_nothing_else() -> None:
    before = fold(log(*chat(1)))
    after = fold(log(*chat(1), ev.Unknown("from_tomorrow", b"{}")))
    assert after.warnings == ["entry 5 is a 'from_tomorrow', which this version does not know"]
    after.warnings, after.seq = [], before.seq
    assert after == before


def test_a_thousand_unknown_events_give_twenty_warnings() -> None:
    assert len(fold(log(*[ev.Unknown("x", b"{}")] * 1_000)).warnings) == 20


def test_a_message_that_wants_no_answer_is_kept_and_owed_nothing() -> None:
    session = fold(log(ev.UserMessage("for the record", wants_answer=False)))
    assert (session.owes_answer, said(session)) == (False, [("user", "for the record")])


def test_a_message_while_the_model_speaks_comes_after_the_answer_and_gets_its_own_turn() -> None:
    session = fold(
        log(
            ev.UserMessage("one"),
            ev.ModelCalled("m"),
            ev.UserMessage("two"),
            ev.UserMessage("three"),
            answer(text="1!"),
        )
    )
    assert said(session) == [("user", "one"), ("assistant", "1!"), ("user", "two"), ("user", "three")]
    assert (session.owes_answer, session.turn_seq, session.rounds) == (True, 4, 0)
    for entry in log(ev.ModelCalled("m"), answer(text="2!"), after=5):
        apply(session, entry)
    assert (session.owes_answer, said(session)[-1]) == (False, ("assistant", "2!"))


def test_a_message_while_calls_are_open_interrupts_them() -> None:
    session = fold(log(ev.UserMessage("go"), ev.ModelCalled("m"), answer(LS, PWD), ev.UserMessage("stop")))
    assert (session.interrupted_by, session.turn_seq, list(session.open_calls)) == (4, 1, ["c1", "c2"])


def test_messages_that_come_one_after_another_are_one_turn() -> None:
    session = fold(log(ev.UserMessage("one"), ev.UserMessage("two")))
    assert (session.turn_seq, session.wanted_seq, session.owes_answer) == (1, 2, True)


def test_a_new_turn_forgets_the_counts_and_grants_of_the_old_one_but_not_those_of_the_session() -> None:
    session = fold(
        log(
            ev.UserMessage("go"),
            *used("c1", "x"),
            *[
                event
                for kind in ("rounds", "background", "cost", "session_steps")
                for event in (ev.ApprovalRequired(f"{kind}:1", "?"), ev.ApprovalDecision(f"{kind}:1", "allow_once"))
            ],
        )
    )
    assert (session.rounds, session.granted) == (1, {"rounds": 1, "background": 1, "cost": 1, "session_steps": 1})
    for entry in log(answer(text="ok"), ev.UserMessage("again"), after=session.seq):
        apply(session, entry)
    assert (session.rounds, session.steps, session.granted) == (0, 2, {"cost": 1, "session_steps": 1})


@pytest.mark.parametrize(
    ("events", "stage"),
    [
        ([], "new"),
        ([ev.ApprovalRequired("c1", "ls", "d")], "asked"),
        ([ev.ApprovalRequired("c1", "ls", "d"), ev.ApprovalDecision("c1", "allow_once")], "approved"),
        ([ev.ApprovalRequired("c1", "ls", "d"), ev.ApprovalDecision("c1", "deny")], "denied"),
        ([ev.ToolStarted("c1")], "started"),
        ([ev.ToolStarted("c1"), result("c1")], "done"),
        ([ev.ApprovalDecision("c1", "allow_once")], "new"),
        ([ev.ToolStarted("c7")], "new"),
        ([result("c7")], "new"),
    ],
)
def test_how_far_a_call_is(events: list[ev.Event], stage: str) -> None:
    assert stages(fold(log(ev.UserMessage("go"), answer(LS), *events))) == {"c1": stage}


def test_results_find_their_calls_by_id_in_any_order() -> None:
    session = fold(
        log(
            ev.UserMessage("go"),
            answer(LS, PWD),
            ev.ToolStarted("c1"),
            ev.ToolStarted("c2"),
            result("c2", "two"),
            result("c1", "one"),
        )
    )
    assert outcomes(session) == {"c1": ("ok", "one"), "c2": ("ok", "two")}
    assert session.open_calls == {}


def test_the_first_result_of_a_call_stands() -> None:
    session = fold(
        log(ev.UserMessage("go"), answer(LS), ev.ToolStarted("c1"), result("c1", "one"), result("c1", "two"))
    )
    assert outcomes(session) == {"c1": ("ok", "one")}


def test_a_decision_for_the_session_is_remembered_by_the_digest_of_the_exact_arguments() -> None:
    asked = ev.ApprovalRequired("c1", "ls", "digest")
    grants = [
        fold(log(ev.UserMessage("go"), answer(LS), asked, ev.ApprovalDecision("c1", decision))).grants
        for decision in ("allow_once", "allow_session", "allow_always", "deny")
    ]
    assert grants == [{}, {"digest": "allow_session"}, {"digest": "allow_always"}, {}]


def test_the_first_decision_stands() -> None:
    asked = ev.ApprovalRequired("c1", "ls", "digest")
    decided = [ev.ApprovalDecision("c1", "deny", "Ada", "no"), ev.ApprovalDecision("c1", "allow_session", "Bob")]
    session = fold(log(ev.UserMessage("go"), answer(LS), asked, *decided))
    call = session.open_calls["c1"]
    assert (call.stage, call.decision, call.reason, session.grants) == ("denied", "deny", "no", {})
    question = [
        ev.ApprovalRequired("cost:3", "?"),
        ev.ApprovalDecision("cost:3", "deny"),
        ev.ApprovalDecision("cost:3", "allow_once"),
    ]
    session = fold(log(ev.UserMessage("go"), *question))
    assert (session.question, session.granted) == (Question("cost:3", "?", "denied", AT), {})


def test_a_call_that_was_started_and_is_asked_about_again_is_in_doubt() -> None:
    session = fold(
        log(ev.UserMessage("go"), answer(LS), ev.ToolStarted("c1"), ev.ApprovalRequired("c1", "again?", "d"))
    )
    assert (session.open_calls["c1"].stage, session.open_calls["c1"].in_doubt, session.waiting) == (
        "asked",
        True,
        ("c1",),
    )


def test_a_new_message_answers_a_question_about_a_limit_by_beginning_a_new_turn() -> None:
    session = fold(
        log(
            ev.UserMessage("go"), answer(LS), result("c1"), ev.ApprovalRequired("rounds:3", "?"), ev.UserMessage("well")
        )
    )
    assert (session.question, session.turn_seq, session.rounds, session.owes_answer) == (None, 5, 0, True)


@pytest.mark.parametrize(
    ("ending", "skipped"),
    [
        (ev.TurnStopped("cancelled", "x"), "This call was not run: the turn had been stopped."),
        (ev.SessionEnd(), "This call was not run: the session had ended."),
        (answer(text="never mind"), "This call was never run."),
    ],
)
def test_no_call_stays_open_behind_the_end_of_a_turn(ending: ev.Event, skipped: str) -> None:
    session = fold(log(ev.UserMessage("go"), answer(LS, PWD), ev.ToolStarted("c1"), ending))
    assert session.open_calls == {}
    assert outcomes(session) == {
        "c1": ("interrupted", "The outcome of this call is unknown."),
        "c2": ("skipped", skipped),
    }


def test_a_turn_that_stops_keeps_what_was_said_where_it_was_said() -> None:
    session = fold(
        log(
            ev.UserMessage("one"), ev.ModelCalled("m"), ev.UserMessage("two"), ev.TurnStopped("cancelled", "x", "I was")
        )
    )
    assert said(session) == [("user", "one"), ("assistant", "I was"), ("user", "two")]
    assert session.owes_answer is False


def test_an_answer_in_a_chat_is_undelivered_until_it_is_delivered() -> None:
    begun = [
        ev.SessionStart("a", gateway="telegram", gateway_chat_id="1"),
        ev.UserMessage("hi"),
        answer(LS),
        result("c1"),
    ]
    stopped = [answer(text="yes"), ev.UserMessage("more"), ev.TurnStopped("cost", "no money")]
    session = fold(log(*begun, *stopped))
    assert session.undelivered == {5: None, 7: None}
    apply(session, ev.Entry(8, AT, ev.ReplyDelivered(5, "telegram", "1")))
    assert session.undelivered == {7: None}


def test_an_ended_session_stays_ended() -> None:
    session = fold(log(*chat(1), ev.SessionEnd("timeout"), ev.UserMessage("hello?")))
    assert (session.status, session.ended, session.waiting) == ("completed", True, ())


@pytest.mark.parametrize(
    ("on_disconnect", "to", "status"),
    [
        ("pause", "paused", "paused"),
        ("pause", "active", "active"),
        ("pause", "running", "paused"),
        ("continue", "running", "active"),
        ("pause", "completed", "completed"),
        ("pause", "levitating", "active"),
    ],
)
def test_what_a_change_of_status_makes(on_disconnect: Any, to: str, status: str) -> None:
    assert fold(log(ev.SessionStart("a", on_disconnect), ev.StatusChange("active", to))).status == status


def test_a_message_or_a_decision_wakes_a_paused_session() -> None:
    paused = ev.StatusChange("active", "paused")
    assert fold(log(paused, ev.UserMessage("hi"))).status == "active"
    asked = [ev.UserMessage("go"), answer(LS), ev.ApprovalRequired("c1", "ls"), paused]
    assert fold(log(*asked, ev.ApprovalDecision("c1", "allow_once"))).status == "active"


# Money.


@pytest.mark.parametrize(
    ("events", "usd", "reserved"),
    [
        ([ev.ModelCalled("m", 0.5)], 0.0, 0.5),
        ([ev.ModelCalled("m", 0.5), ev.AssistantResponse("a", "", cost_usd=0.125)], 0.125, 0.0),
        ([ev.ModelCalled("m", 0.5), ev.AssistantResponse("a", "", cost_usd=0.0)], 0.0, 0.0),
        ([ev.ModelCalled("m", 0.5), ev.AssistantResponse("a", "")], 0.5, 0.0),
        ([ev.ModelCalled("m", 0.5), ev.ModelCalled("m", 0.25)], 0.5, 0.25),
        ([ev.ModelCalled("m", 0.5), ev.ModelCalled("n", 0.25, "401", refunded=True)], 0.0, 0.25),
        ([ev.ModelCalled("m", 0.5), ev.TurnStopped("model_failed", "x")], 0.5, 0.0),
        ([ev.ModelCalled("m", 0.5), ev.TurnStopped("model_failed", "x", refunded=True)], 0.0, 0.0),
        ([ev.ModelCalled("m"), ev.AssistantResponse("a", "", cost_usd=0.125)], 0.125, 0.0),
        ([ev.AssistantResponse("a", "", cost_usd=0.125)], 0.125, 0.0),
    ],
)
def test_what_was_set_aside_counts_until_the_truth_is_known(
    events: list[ev.Event], usd: float, reserved: float
) -> None:
    spent = fold(log(ev.UserMessage("go"), *events)).spent
    assert (spent.usd, spent.reserved_usd, spent.committed_usd) == (usd, reserved, usd + reserved)


# What an older Duragent wrote.


def test_an_older_answer_and_its_calls_become_one_message() -> None:
    session = fold(
        log(
            ev.SessionStart("a"),
            ev.UserMessage("go"),
            ev.AssistantMessage("let me see", "a", ev.Usage(1, 2, 3)),
            ev.ToolCalled("c1", "bash", {"command": "ls"}),
            result("c1", "one"),
            ev.ToolCalled("c2", "bash", {"command": "pwd"}),
            ev.ToolsSkipped(("c2", "c9"), "new user message received"),
            ev.AssistantMessage("done", "a"),
        )
    )
    assert said(session) == [("user", "go"), ("assistant", "let me see"), ("assistant", "done")]
    assert outcomes(session) == {
        "c1": ("ok", "one"),
        "c2": ("skipped", "This call was not run: new user message received."),
    }
    assert (session.owes_answer, session.spent) == (False, Spent(1, 2))


def test_an_older_call_without_an_answer_before_it_gets_an_empty_one() -> None:
    session = fold(log(ev.UserMessage("go"), ev.ToolCalled("c1", "bash", {})))
    assert (said(session), stages(session), session.owes_answer) == (
        [("user", "go"), ("assistant", "")],
        {"c1": "new"},
        True,
    )
