"""What happens next, as tables: events in, one step out."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.agent import Access, Agent, Debounce, GroupAccess, Limits, Policy, PolicyTier, QueueRules
from duragent.core import events as ev
from duragent.core.policy import ToolSpec, digest
from duragent.core.session import apply, fold
from duragent.core.turn import (
    AskApproval,
    CallModel,
    CloseCall,
    Rest,
    RunTools,
    Step,
    StopTurn,
    Wait,
    WaitUntil,
    next_step,
    reached,
)
from tests.core.logs import AT, log, logs

NOW = datetime(2026, 2, 18, 10, 0, tzinfo=UTC)
SPECS = {
    spec.name: spec
    for spec in (
        ToolSpec("look", effect="pure", parallel_safe=True, unruled="allow"),
        ToolSpec("read", effect="repeatable", parallel_safe=True, unruled="allow"),
        ToolSpec("note", effect="unknown", unruled="allow"),
        ToolSpec("pay", effect="once", unruled="ask"),
        ToolSpec("peek", parallel_safe=True, unruled="ask"),
    )
}
ASK = Limits(on_exceed="ask")
LATER = NOW + timedelta(seconds=60)
NEW_TURN = "Write again to go on in a new turn."
NEW_SESSION = "Raise the limit in the agent's file, or begin a new session."
NEW_MESSAGE = "This call was not run: the person wrote a new message first."


def call(call_id: str, tool: str = "look", arguments: ev.Json = None, malformed: str | None = None) -> ev.ToolCall:
    return ev.ToolCall(call_id, tool, {} if arguments is None and malformed is None else arguments, malformed)


def answer(*calls: ev.ToolCall) -> ev.AssistantResponse:
    return ev.AssistantResponse("a", "", calls)


def result(call_id: str, outcome: ev.Outcome = "ok") -> ev.ToolResult:
    return ev.ToolResult(call_id, ev.ToolAnswer(outcome == "ok", "x"), outcome)


def step(*events: ev.Event, limits: Limits | None = None, policy: Policy | None = None, **more: Any) -> Step:
    """The step after somebody said "go" and these events."""
    agent = Agent(name="a", limits=limits or Limits(), policy=policy or Policy(), access=more.pop("access", None))
    at = more.pop("now", NOW)
    return next_step(agent, fold(log(ev.UserMessage("go"), ev.ModelCalled("m"), *events)), at, SPECS, **more)


def asked(call_id: str, tool: str = "pay", **decision: Any) -> list[ev.Event]:
    out: list[ev.Event] = [ev.ApprovalRequired(call_id, tool, digest(call(call_id, tool)), "rule")]
    return [*out, ev.ApprovalDecision(call_id, **decision)] if decision else out


# Who is owed what.


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], Rest()),
        ([ev.SessionStart("a")], Rest()),
        ([ev.UserMessage("hi")], CallModel()),
        ([ev.UserMessage("hi"), ev.ModelCalled("m")], CallModel()),
        ([ev.UserMessage("hi", wants_answer=False)], Rest()),
        ([ev.SilentMessage("hi")], Rest()),
        ([ev.UserMessage("hi"), ev.ModelCalled("m"), answer()], Rest()),
        ([ev.UserMessage("hi"), ev.ModelCalled("m"), ev.UserMessage("and"), answer()], CallModel()),
        ([ev.UserMessage("hi"), ev.ModelCalled("m"), ev.TurnStopped("cancelled", "x")], Rest()),
        ([ev.UserMessage("hi"), ev.TurnStopped("cancelled", "x"), ev.UserMessage("again")], CallModel()),
        ([ev.UserMessage("hi"), answer(call("c1")), ev.SessionEnd()], Rest()),
        ([ev.SessionEnd(), ev.UserMessage("hi")], Rest()),
        ([ev.UserMessage("hi"), ev.StatusChange("active", "paused")], Wait(())),
        ([ev.UserMessage("hi"), ev.StatusChange("active", "paused"), ev.StatusChange("paused", "active")], CallModel()),
        ([ev.UserMessage("hi"), ev.StatusChange("active", "paused"), ev.UserMessage("you there?")], CallModel()),
        ([ev.UserMessage("hi"), answer(), ev.StatusChange("active", "paused")], Rest()),
        (
            [ev.UserMessage("hi"), answer(call("c1", "pay")), *asked("c1"), ev.StatusChange("active", "paused")],
            Wait(("c1",)),
        ),
    ],
)
def test_who_is_owed_what(events: list[ev.Event], expected: Step) -> None:
    assert next_step(Agent(name="a"), fold(log(*events)), NOW, SPECS) == expected


@given(logs(), st.sampled_from(["ask", "abort"]), st.sampled_from(["ask", "retry", "fail", "skip"]))
def test_there_is_a_next_step_for_any_entries_whatever(entries: list[ev.Entry], exceed: Any, error: Any) -> None:
    limits = Limits(2, session_steps=4, cost_usd=1.0, on_exceed=exceed, on_error=error, background_seconds=60)
    agent = Agent(name="a", limits=limits, access=Access())
    session = fold(entries)
    long_ago = NOW - timedelta(days=1)
    tools = {**SPECS, "bash": ToolSpec("bash", parallel_safe=True), "web": ToolSpec("web", effect="once")}
    first = next_step(agent, session, NOW, tools, long_ago)
    assert next_step(agent, session, NOW, tools, long_ago) == first
    assert not (session.ended and first != Rest())


@given(logs())
def test_carrying_out_the_steps_always_comes_to_an_end(entries: list[ev.Entry]) -> None:
    session, agent = fold(entries), Agent(name="a", limits=Limits(3, on_error="skip"))
    for _ in range(100):
        seq, todo = session.seq + 1, next_step(agent, session, NOW, SPECS)
        if isinstance(todo, Rest | Wait | WaitUntil):
            return
        for number, event in enumerate(_carried_out(todo)):
            apply(session, ev.Entry(seq + number, AT, event))
    raise AssertionError(f"never rests: {todo}")


def _carried_out(todo: Step) -> list[ev.Event]:
    match todo:
        case CallModel():
            return [ev.ModelCalled("m"), answer(call("n1", "look"))]
        case RunTools(calls):
            return [*[ev.ToolStarted(each.call_id) for each in calls], *[result(each.call_id) for each in calls]]
        case CloseCall(call_id, outcome, _):
            return [result(call_id, outcome)]
        case AskApproval(call_id, command, exactly, rule):
            return [ev.ApprovalRequired(call_id, command, exactly, rule)]
        case StopTurn(reason, message):
            return [ev.TurnStopped(reason, message)]
    raise AssertionError(todo)


# Calls.


@pytest.mark.parametrize(
    ("calls", "limits", "expected"),
    [
        (["look"], None, ["c0"]),
        (["look", "read", "look"], None, ["c0", "c1", "c2"]),
        (["look", "read", "look"], Limits(parallel_tasks=2), ["c0", "c1"]),
        (["look", "read", "look"], Limits(parallel_tasks=1), ["c0"]),
        (["look", "note"], None, ["c0"]),
        (["note", "look", "look"], None, ["c0"]),
        (["look", "peek"], None, ["c0"]),
        (["look", "no_such_tool"], None, ["c0"]),
    ],
)
def test_calls_run_side_by_side_when_all_may_and_all_can(
    calls: list[str], limits: Limits | None, expected: list[str]
) -> None:
    opened = [call(f"c{number}", tool) for number, tool in enumerate(calls)]
    assert step(answer(*opened), limits=limits) == RunTools(tuple(each for each in opened if each.call_id in expected))


def test_calls_that_remain_run_after_the_first_ones_in_their_order() -> None:
    calls = [call("c1", "note"), call("c2", "note"), call("c3", "look"), call("c4", "look")]
    events: list[ev.Event] = [answer(*calls)]
    ran = []
    for _ in range(3):
        todo = step(*events)
        assert isinstance(todo, RunTools)
        ran.append([each.call_id for each in todo.calls])
        events += _carried_out(todo)
    assert ran == [["c1"], ["c2"], ["c3", "c4"]]
    assert step(*events) == CallModel()


def test_an_approved_call_and_an_allowed_one_run_side_by_side() -> None:
    calls = (call("c1", "peek"), call("c2", "look"))
    assert step(answer(*calls), *asked("c1", "peek", decision="allow_once")) == RunTools(calls)


@pytest.mark.parametrize(
    ("opened", "content"),
    [
        (call("c1", "fly"), "There is no tool called 'fly'. There are: look, read, note, pay, peek."),
        (call("c1", "look", malformed='{"a":'), 'The arguments are no JSON object: {"a":'),
        (call("c1", "look", malformed=""), "The arguments are no JSON object: nothing"),
        (call("c1", "look", arguments=[1]), "The arguments are no JSON object: nothing"),
        (call("c1", "look", malformed="x" * 1_000), "The arguments are no JSON object: " + "x" * 500),
    ],
)
def test_a_call_that_cannot_run_is_told_to_the_model(opened: ev.ToolCall, content: str) -> None:
    assert step(answer(opened)) == CloseCall("c1", "error", content)
    assert step(answer(opened), result("c1", "error")) == CallModel()


def test_a_call_that_must_be_asked_about_is_asked_about_once() -> None:
    pay = call("c1", "pay", {"sum": 5})
    first = step(answer(pay))
    assert first == AskApproval("c1", 'pay {"sum":5}', digest(pay), "no policy says a mode")
    assert step(answer(pay), *_carried_out(first)) == Wait(("c1",))


def test_a_later_call_is_asked_about_when_its_turn_comes() -> None:
    calls = (call("c1", "pay"), call("c2", "pay", {"sum": 1}))
    assert step(answer(*calls), *asked("c1")) == Wait(("c1",))
    decided = [*asked("c1", decision="deny"), result("c1", "refused")]
    assert step(answer(*calls), *decided) == AskApproval(
        "c2", 'pay {"sum":1}', digest(calls[1]), "no policy says a mode"
    )


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"decision": "allow_once"}, RunTools((call("c1", "pay"),))),
        ({"decision": "allow_session"}, RunTools((call("c1", "pay"),))),
        ({"decision": "allow_always"}, RunTools((call("c1", "pay"),))),
        ({"decision": "deny"}, CloseCall("c1", "refused", "The person refused this call.")),
        (
            {"decision": "deny", "reason": "too dear"},
            CloseCall("c1", "refused", "The person refused this call: too dear"),
        ),
    ],
)
def test_what_a_decision_leads_to(decision: Any, expected: Step) -> None:
    assert step(answer(call("c1", "pay")), *asked("c1", **decision)) == expected


@pytest.mark.parametrize(
    ("decision", "again", "asks"),
    [
        ("allow_session", {}, False),
        ("allow_always", {}, False),
        ("allow_once", {}, True),
        ("allow_session", {"sum": 1}, True),
    ],
)
def test_a_grant_is_for_the_session_and_for_exactly_these_arguments(decision: Any, again: Any, asks: bool) -> None:
    first = [answer(call("c1", "pay")), *asked("c1", decision=decision), ev.ToolStarted("c1"), result("c1")]
    todo = step(*first, ev.ModelCalled("m"), answer(call("c2", "pay", again)))
    assert isinstance(todo, AskApproval if asks else RunTools)


def test_a_policy_that_forbids_beats_what_was_granted() -> None:
    first = [answer(call("c1", "pay")), *asked("c1", decision="allow_session"), ev.ToolStarted("c1"), result("c1")]
    forbidding = Policy(local=PolicyTier(deny=("pay",)))
    todo = step(*first, answer(call("c2", "pay")), policy=forbidding)
    assert todo == CloseCall("c2", "refused", "The owner's policy forbids this call (pay).")


# A crash while a tool ran.


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("look", RunTools((call("c1", "look"),))),
        ("read", RunTools((call("c1", "read"),))),
        (
            "note",
            CloseCall(
                "c1",
                "interrupted",
                "The runtime stopped while this tool ran. Its outcome is unknown: look before you try again.",
            ),
        ),
        (
            "pay",
            AskApproval(
                "c1",
                "pay {} was cut off; it may have happened. Run it again?",
                digest(call("c1", "pay")),
                "outcome unknown",
            ),
        ),
        (
            "gone",
            CloseCall(
                "c1",
                "interrupted",
                "The runtime stopped while this tool ran. Its outcome is unknown: look before you try again.",
            ),
        ),
    ],
)
def test_a_call_that_was_cut_off(tool: str, expected: Step) -> None:
    assert step(answer(call("c1", tool)), ev.ToolStarted("c1")) == expected


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"decision": "allow_once"}, RunTools((call("c1", "pay"),))),
        (
            {"decision": "deny"},
            CloseCall(
                "c1",
                "interrupted",
                "This call was cut off and its outcome is unknown. The person chose not to run it again.",
            ),
        ),
    ],
)
def test_a_call_that_may_happen_only_once_runs_again_only_if_a_person_says_so(decision: Any, expected: Step) -> None:
    before = [answer(call("c1", "pay")), *asked("c1", decision="allow_session"), ev.ToolStarted("c1")]
    question = ev.ApprovalRequired("c1", "again?", digest(call("c1", "pay")), "outcome unknown")
    assert step(*before, question) == Wait(("c1",))
    assert step(*before, question, ev.ApprovalDecision("c1", **decision)) == expected


def test_calls_that_were_cut_off_together_are_seen_to_one_by_one_before_new_ones() -> None:
    calls = (call("c1", "look"), call("c2", "note"), call("c3", "look"))
    events = [answer(*calls), ev.ToolStarted("c2"), ev.ToolStarted("c3")]
    assert step(*events) == CloseCall(
        "c2",
        "interrupted",
        "The runtime stopped while this tool ran. Its outcome is unknown: look before you try again.",
    )
    assert step(*events, result("c2", "interrupted")) == RunTools((calls[2],))


# A message while calls are open.


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ([], CloseCall("c1", "skipped", NEW_MESSAGE)),
        (asked("c1", "peek"), CloseCall("c1", "skipped", NEW_MESSAGE)),
        (asked("c1", "peek", decision="allow_once"), CloseCall("c1", "skipped", NEW_MESSAGE)),
        (asked("c1", "peek", decision="deny"), CloseCall("c1", "refused", "The person refused this call.")),
    ],
)
def test_a_message_while_calls_are_open_skips_those_that_have_not_begun(before: list[ev.Event], expected: Step) -> None:
    calls = (call("c1", "peek"), call("c2", "look"))
    assert step(answer(*calls), *before, ev.UserMessage("wait")) == expected


def test_after_a_message_the_rest_is_skipped_and_the_model_sees_it_next() -> None:
    events: list[ev.Event] = [answer(call("c1", "note"), call("c2", "note"), call("c3", "note")), ev.ToolStarted("c1")]
    events += [ev.UserMessage("wait"), result("c1")]
    taken = []
    for _ in range(3):
        taken.append(todo := step(*events))
        if not isinstance(todo, CallModel):
            events += _carried_out(todo)
    assert taken == [CloseCall("c2", "skipped", NEW_MESSAGE), CloseCall("c3", "skipped", NEW_MESSAGE), CallModel()]


def test_calls_of_the_answer_after_a_message_run_again() -> None:
    events = [answer(call("c1", "note")), ev.UserMessage("wait"), result("c1", "skipped"), ev.ModelCalled("m")]
    assert step(*events, answer(call("c2", "note"))) == RunTools((call("c2", "note"),))


# Limits.

ROUND = [answer(call("c1")), ev.ToolStarted("c1"), result("c1")]
EXCEEDED: list[tuple[Limits, list[ev.Event], str, str]] = [
    (Limits(2), [*ROUND, *ROUND], "rounds", "it has asked the model 2 times in this turn"),
    (Limits(None, steps=1), ROUND, "rounds", "it has asked the model 1 times in this turn"),
    (Limits(9, steps=1), ROUND, "rounds", "it has asked the model 1 times in this turn"),
    (Limits(session_steps=1), ROUND, "session_steps", "this session has taken 1 steps"),
    (Limits(cost_usd=0.5), [ev.ModelCalled("m", 0.5)], "cost", "this session has used $0.5000 of $0.5000"),
    (Limits(background_seconds=60), [], "background", "it has run for 60 s with nobody there"),
]


@pytest.mark.parametrize(("limits", "events", "kind", "what"), EXCEEDED)
def test_a_limit_stops_the_turn_with_a_sentence(limits: Limits, events: list[ev.Event], kind: Any, what: str) -> None:
    todo = step(*events, limits=limits, now=LATER, alone_since=NOW)
    remedy = NEW_TURN if kind in ("rounds", "background") else NEW_SESSION
    assert todo == StopTurn(kind, f"Stopped at a limit: {what}. {remedy}")


@pytest.mark.parametrize(("limits", "events", "kind", "what"), EXCEEDED)
def test_a_limit_asks_where_the_agent_says_so(limits: Limits, events: list[ev.Event], kind: str, what: str) -> None:
    asking = Limits(
        limits.tool_iterations,
        limits.steps,
        limits.session_steps,
        limits.cost_usd,
        on_exceed="ask",
        background_seconds=limits.background_seconds,
    )
    todo = step(*events, limits=asking, now=LATER, alone_since=NOW)
    seq = 2 + len(events)
    assert todo == AskApproval(f"{kind}:{seq}", f"A limit is reached: {what}. Go on?")
    events = [*events, *_carried_out(todo)]
    assert step(*events, limits=asking, now=LATER, alone_since=NOW) == Wait((f"{kind}:{seq}",))
    allowed = [*events, ev.ApprovalDecision(f"{kind}:{seq}", "allow_once")]
    assert step(*allowed, limits=asking, now=LATER, alone_since=NOW) == CallModel()
    refused = [*events, ev.ApprovalDecision(f"{kind}:{seq}", "deny")]
    stop = StopTurn(kind, "Stopped at a limit: the person chose to stop.")
    assert step(*refused, limits=asking, now=LATER, alone_since=NOW) == stop
    assert step(*refused, *_carried_out(stop), limits=asking, now=LATER, alone_since=NOW) == Rest()


def test_going_on_extends_a_limit_by_itself_and_no_further() -> None:
    limits = Limits(1, on_exceed="ask")
    granted = [*ROUND, ev.ApprovalRequired("rounds:5", "?"), ev.ApprovalDecision("rounds:5", "allow_once")]
    assert step(*granted, limits=limits) == CallModel()
    assert step(*granted, *ROUND, limits=limits) == AskApproval(
        "rounds:10", "A limit is reached: it has asked the model 2 times in this turn. Go on?"
    )


def test_an_agent_without_limits_is_never_stopped() -> None:
    assert step(*ROUND * 50, limits=Limits(None)) == CallModel()


def test_after_a_limit_a_new_message_begins_a_new_turn() -> None:
    events = [*ROUND, ev.TurnStopped("rounds", "x"), ev.UserMessage("go on")]
    assert step(*events, limits=Limits(1)) == CallModel()
    assert step(*events, limits=Limits(session_steps=1)) == StopTurn(
        "session_steps", f"Stopped at a limit: this session has taken 1 steps. {NEW_SESSION}"
    )


@pytest.mark.parametrize(
    ("spent", "next_usd", "returned", "stops"),
    [
        ([], 0.5, 0.0, False),
        ([], 0.51, 0.0, True),
        ([ev.ModelCalled("m", 0.25)], 0.25, 0.0, False),
        ([ev.ModelCalled("m", 0.25)], 0.26, 0.0, True),
        ([ev.ModelCalled("m", 0.25)], 0.5, 0.25, False),
        ([ev.ModelCalled("m", 0.25), ev.AssistantResponse("a", "", cost_usd=0.0)], 0.5, 0.0, False),
        ([ev.ModelCalled("m", 0.25), ev.AssistantResponse("a", "", cost_usd=0.01)], 0.5, 0.0, True),
        ([ev.ApprovalRequired("cost:1", "?"), ev.ApprovalDecision("cost:1", "allow_once")], 1.0, 0.0, False),
    ],
)
def test_a_call_is_made_only_if_the_most_it_can_cost_fits(
    spent: list[ev.Event], next_usd: float, returned: float, stops: bool
) -> None:
    session = fold(log(ev.UserMessage("go"), *spent))
    todo = reached(Agent(name="a", limits=Limits(cost_usd=0.5)), session, next_usd, returned)
    assert (todo is not None) is stops


def test_what_the_next_call_may_cost_is_said() -> None:
    todo = reached(Agent(name="a", limits=Limits(cost_usd=0.5)), fold(log(ev.ModelCalled("m", 0.25))), 0.75)
    said = "this session has used $0.2500 of $0.5000, and the next call may cost $0.7500"
    assert todo == StopTurn("cost", f"Stopped at a limit: {said}. {NEW_SESSION}")


@pytest.mark.parametrize(
    ("since", "turn_at", "stops"),
    [
        (None, AT, False),
        (NOW - timedelta(seconds=59), AT, False),
        (NOW - timedelta(seconds=61), AT, False),
        (NOW - timedelta(seconds=61), "2026-02-18T09:58:00", True),
        (NOW - timedelta(seconds=61), "yesterday", True),
    ],
)
def test_time_alone_counts_from_when_both_the_turn_began_and_everybody_had_left(
    since: Any, turn_at: str, stops: bool
) -> None:
    agent = Agent(name="a", limits=Limits(background_seconds=60))
    session = fold([ev.Entry(1, turn_at, ev.UserMessage("go"))])
    assert isinstance(next_step(agent, session, NOW, {}, since), StopTurn) is stops


# A tool that broke.


@pytest.mark.parametrize(
    ("on_error", "expected"),
    [
        ("skip", CallModel()),
        ("retry", CallModel()),
        ("fail", StopTurn("tool_failed", "A tool failed, and this agent stops when one does.")),
        ("ask", AskApproval("failed:c1", "A tool failed. Let the agent go on?")),
    ],
)
def test_what_follows_when_a_tool_broke(on_error: Any, expected: Step) -> None:
    broke = [answer(call("c1")), ev.ToolStarted("c1"), result("c1", "error")]
    assert step(*broke, limits=Limits(on_error=on_error)) == expected


@pytest.mark.parametrize("outcome", ["ok", "refused", "interrupted", "skipped"])
def test_only_a_tool_that_broke_is_a_failure(outcome: ev.Outcome) -> None:
    ran = [answer(call("c1")), ev.ToolStarted("c1"), result("c1", outcome)]
    assert step(*ran, limits=Limits(on_error="fail")) == CallModel()


def test_all_calls_of_an_answer_are_seen_to_before_a_failure_is_spoken_of() -> None:
    broke = [answer(call("c1", "note"), call("c2", "note")), ev.ToolStarted("c1"), result("c1", "error")]
    assert step(*broke) == RunTools((call("c2", "note"),))


def test_a_person_lets_the_agent_go_on_after_a_failure_or_not() -> None:
    broke = [answer(call("c1")), ev.ToolStarted("c1"), result("c1", "error")]
    question = [*broke, ev.ApprovalRequired("failed:c1", "?")]
    assert step(*question) == Wait(("failed:c1",))
    assert step(*question, ev.ApprovalDecision("failed:c1", "allow_once")) == CallModel()
    assert step(*question, ev.ApprovalDecision("failed:c1", "deny")) == StopTurn(
        "tool_failed", "A tool failed, and the person chose to stop."
    )
    assert step(*question, ev.UserMessage("try something else")) == CallModel()


# Chats.


def chatting(*events: ev.Event, now: datetime, access: Access | None, gateway: str | None = "telegram") -> Step:
    session = fold(log(ev.SessionStart("a", gateway=gateway), ev.UserMessage("hi"), *events))
    return next_step(Agent(name="a", access=access), session, now, SPECS)


QUIET = NOW + timedelta(milliseconds=1_500)
NO_DEBOUNCE = Access(groups=GroupAccess(queue=QueueRules(debounce=Debounce(enabled=False))))


@pytest.mark.parametrize(
    ("now", "access", "gateway", "events", "expected"),
    [
        (NOW, Access(), "telegram", [], WaitUntil(QUIET)),
        (NOW + timedelta(seconds=1), Access(), "telegram", [], WaitUntil(QUIET)),
        (QUIET, Access(), "telegram", [], CallModel()),
        (NOW - timedelta(hours=1), Access(), "telegram", [], CallModel()),
        (NOW, Access(), None, [], CallModel()),
        (NOW, None, "telegram", [], CallModel()),
        (NOW, NO_DEBOUNCE, "telegram", [], CallModel()),
        (NOW, Access(), "telegram", [*ROUND], CallModel()),
    ],
)
def test_in_a_chat_the_model_is_called_once_the_person_has_stopped_typing(
    now: datetime, access: Access | None, gateway: str | None, events: list[ev.Event], expected: Step
) -> None:
    assert chatting(*events, now=now, access=access, gateway=gateway) == expected


def test_calls_of_an_answer_that_a_message_has_overtaken_are_skipped() -> None:
    spoken_over = (ev.ModelCalled("m"), ev.UserMessage("stop, not that"), answer(call("c1"), call("c2")))
    assert step(*spoken_over) == CloseCall("c1", "skipped", NEW_MESSAGE)
    assert step(*spoken_over, result("c1", "skipped")) == CloseCall("c2", "skipped", NEW_MESSAGE)
    assert step(*spoken_over, result("c1", "skipped"), result("c2", "skipped")) == CallModel()


def test_a_message_that_came_in_the_last_round_gets_a_turn_of_its_own() -> None:
    last = (ev.ModelCalled("m"), answer(call("c1")), ev.ToolStarted("c1"), ev.UserMessage("and this?"), result("c1"))
    stopped = step(*last, limits=Limits(tool_iterations=1))
    assert isinstance(stopped, StopTurn) and stopped.reason == "rounds"
    assert step(*last, ev.TurnStopped("rounds", "x"), limits=Limits(tool_iterations=1)) == CallModel()
    assert step(*last[:3], result("c1"), ev.TurnStopped("rounds", "x"), limits=Limits(tool_iterations=1)) == Rest()


def test_a_repeatable_call_that_is_cut_off_again_and_again_is_not_run_for_ever() -> None:
    starts = [ev.ToolStarted("c1")] * 4
    assert step(answer(call("c1")), *starts[:3]) == RunTools((call("c1"),))
    closed = step(answer(call("c1")), *starts)
    assert isinstance(closed, CloseCall) and closed.outcome == "interrupted"


@pytest.mark.parametrize("args", [{"delete": 1, "all": 2}, "de'le'te all", ["delete", 7], None, [["delete"]]])
def test_a_program_runs_with_a_list_of_texts_or_not_at_all(args: Any) -> None:
    ledger = ToolSpec("ledger", kind="cli", unruled="allow")
    events = [ev.UserMessage("go"), ev.ModelCalled("m"), answer(call("c1", "ledger", {"args": args}))]
    found = next_step(Agent(name="a"), fold(log(*events)), NOW, {"ledger": ledger})
    expected = "The arguments are not as they should be: args is a list of texts."
    assert found == CloseCall("c1", "error", expected)
