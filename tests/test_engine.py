"""The engine does what the next step says, writes down what happened, and survives whatever models and tools do."""

import asyncio
from typing import Any

import pytest

from duragent.agent import Agent, Limits, ModelChoice
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.core.policy import ToolSpec
from duragent.core.turn import Rest, Step, Wait
from duragent.engine import MAX_DEPTH, MAX_RESULT_CHARS, Work, advance
from duragent.errors import ModelFailed, StorageFailed
from duragent.models import Answer
from duragent.models.prices import Price
from duragent.tools import Tool
from tests.acting import Gate, MemoryLog, Speaker, call, calling, tool, work_of

AGENT = Agent(name="a")
PATIENT = Agent(name="a", limits=Limits(on_error="skip"))


def saving(usd: float, **more: Any) -> Agent:
    """An agent that may spend so much, and whose answers are at most a thousand tokens long."""
    return Agent(name="a", model=ModelChoice(max_output_tokens=1_000), limits=Limits(cost_usd=usd, **more))


def dear(model: str) -> Price:
    """A dollar for an answer of a thousand tokens, nothing for being asked."""
    return Price(0.0, 1_000.0, 0.0)


def ran(work: Work) -> tuple[Step, list[ev.Event]]:
    """Where it came to rest, and what was written down after the message."""
    step = asyncio.run(advance(work))
    assert isinstance(work.log, MemoryLog)
    assert work.log.durable == work.log.seq
    return step, work.log.events[2:]


def said(
    text: str, *calls: ev.ToolCall, usage: ev.Usage | None = None, usd: float | None = None
) -> ev.AssistantResponse:
    return ev.AssistantResponse("a", text, calls, usage, usd)


def result(call_id: str, text: str, outcome: ev.Outcome = "ok", success: bool = True) -> ev.ToolResult:
    return ev.ToolResult(call_id, ev.ToolAnswer(success and outcome == "ok", text), outcome)


def stopped(events: list[ev.Event]) -> ev.TurnStopped:
    (stop,) = [event for event in events if isinstance(event, ev.TurnStopped)]
    return stop


# Turns.


def test_a_plain_turn_is_a_call_and_an_answer() -> None:
    model = Speaker("hello")
    assert ran(work_of(AGENT, model)) == (Rest(), [ev.ModelCalled("test/speaker"), said("hello")])
    assert model.requests == [[("user", "go")]]


def test_a_turn_with_a_tool_writes_intent_then_outcome() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    wants = call("c1", "add", a=2, b=3)
    step, events = ran(work_of(AGENT, Speaker(calling(wants, text="let me see"), "5"), tools=[tool(add, "add")]))
    assert step == Rest()
    assert events == [
        ev.ModelCalled("test/speaker"),
        said("let me see", wants),
        ev.ToolStarted("c1"),
        result("c1", "5"),
        ev.ModelCalled("test/speaker"),
        said("5"),
    ]


def test_nothing_runs_before_its_start_is_on_disk() -> None:
    log, seen = MemoryLog(), []

    async def look() -> None:
        seen.append([log.events[seq - 1] for seq in (log.durable, log.seq)])

    ran(work_of(AGENT, Speaker(calling(call("c1", "look")), "ok"), tools=[tool(look, "look")], log=log))
    assert seen == [[ev.ToolStarted("c1")] * 2]


def test_a_question_is_on_disk_before_anybody_waits_for_its_answer() -> None:
    async def pay() -> None: ...

    wants = call("c1", "pay")
    work = work_of(AGENT, Speaker(calling(wants)), tools=[tool(pay, "pay", ask=True)])
    step, events = ran(work)
    assert step == Wait(("c1",))
    assert [type(event) for event in events] == [ev.ModelCalled, ev.AssistantResponse, ev.ApprovalRequired]
    work.record(ev.ApprovalDecision("c1", "deny", "Ada", "no"))
    work.actor.models[0]._spoken[:] = ["a pity"]  # type: ignore[attr-defined]
    step, events = ran(work)
    assert (step, events[3:]) == (
        Rest(),
        [
            ev.ApprovalDecision("c1", "deny", "Ada", "no"),
            result("c1", "The person refused this call: no", "refused"),
            ev.ModelCalled("test/speaker"),
            said("a pity"),
        ],
    )


def test_asking_again_after_a_crash_goes_on_from_what_is_written() -> None:
    async def note() -> None:
        raise AssertionError("it must not run")

    work = work_of(AGENT, Speaker("I see"), tools=[tool(note, "note")])
    for event in (ev.ModelCalled("test/speaker"), said("", call("c1", "note")), ev.ToolStarted("c1")):
        work.record(event)
    unknown = "The runtime stopped while this tool ran. Its outcome is unknown: look before you try again."
    assert ran(work)[1][3:] == [result("c1", unknown, "interrupted"), ev.ModelCalled("test/speaker"), said("I see")]


def test_a_message_while_a_tool_runs_is_seen_by_the_next_call_and_skips_the_rest() -> None:
    async def act() -> str:
        work.record(ev.UserMessage("wait!"))
        return "did it"

    model = Speaker(calling(call("c1", "act"), call("c2", "act")), "waiting")
    work = work_of(AGENT, model, tools=[tool(act)])
    _, events = ran(work)
    skipped = result("c2", "This call was not run: the person wrote a new message first.", "skipped")
    assert events[2:6] == [ev.ToolStarted("c1"), ev.UserMessage("wait!"), result("c1", "did it"), skipped]
    assert model.requests[1] == [("user", "go"), ("assistant", ""), ("user", "wait!")]


# Side by side.


def test_calls_that_may_run_side_by_side_do_and_results_find_their_calls() -> None:
    async def both() -> tuple[list[ev.Event], int]:
        gates, running, most = {"one": Gate(), "two": Gate()}, 0, 0

        async def look(at: str) -> str:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gates[at].pass_through()
            running -= 1
            return at

        calls = call("c1", "look", at="one"), call("c2", "look", at="two")
        looking = tool(look, "look", parallel_safe=True)
        work = work_of(AGENT, Speaker(calling(*calls), "ok"), tools=[looking])
        turn = asyncio.create_task(advance(work))
        for gate in gates.values():
            await gate.reached.wait()
        gates["two"].open.set()
        while len(work.session.open_calls) > 1:
            await asyncio.sleep(0)
        gates["one"].open.set()
        await turn
        return work.log.events[4:8], most  # type: ignore[attr-defined]

    assert asyncio.run(both()) == (
        [ev.ToolStarted("c1"), ev.ToolStarted("c2"), result("c2", "two"), result("c1", "one")],
        2,
    )


@pytest.mark.parametrize(("safe", "limit", "most"), [(True, None, 4), (True, 2, 2), (True, 1, 1), (False, None, 1)])
def test_how_many_run_at_once(safe: bool, limit: int | None, most: int) -> None:
    running, seen = 0, []

    async def look() -> None:
        nonlocal running
        running += 1
        seen.append(running)
        for _ in range(10):
            await asyncio.sleep(0)
        running -= 1

    agent = Agent(name="a", limits=Limits(parallel_tasks=limit))
    calls = [call(f"c{number}", "look") for number in range(4)]
    work = work_of(agent, Speaker(calling(*calls), "ok"), tools=[tool(look, "look", parallel_safe=safe)])
    _, events = ran(work)
    results = [event.call_id for event in events if isinstance(event, ev.ToolResult)]
    assert (len(seen), max(seen), sorted(results)) == (4, most, ["c0", "c1", "c2", "c3"])


def test_a_disk_that_refuses_while_tools_run_side_by_side_is_heard_as_such() -> None:
    log = MemoryLog()

    async def look() -> None:
        log.refuses = True

    calls = call("c1", "look"), call("c2", "look")
    work = work_of(AGENT, Speaker(calling(*calls)), tools=[tool(look, "look", parallel_safe=True)], log=log)
    with pytest.raises(StorageFailed, match="the disk is full"):
        asyncio.run(advance(work))


# Models that fail.


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (ModelFailed("quota used up"), "quota used up"),
        (ValueError("odd"), "test/speaker broke: ValueError: odd"),
        (RecursionError("deep"), "test/speaker broke: RecursionError: deep"),
        (TimeoutError(), "test/speaker broke: TimeoutError"),
        (asyncio.CancelledError(), "test/speaker broke: CancelledError"),
        (Unspeakable(), "test/speaker broke: Unspeakable"),
        (ExceptionGroup("many", [ValueError("a")]), "test/speaker broke: ExceptionGroup: many (1 sub-exception)"),
    ],
)
def test_whatever_a_model_raises_the_turn_stops_and_the_session_can_go_on(failure: BaseException, text: str) -> None:
    work = work_of(AGENT, Speaker(failure, "better now"))
    step, events = ran(work)
    assert (step, events) == (Rest(), [ev.ModelCalled("test/speaker"), ev.TurnStopped("model_failed", text)])
    work.record(ev.UserMessage("again"))
    assert ran(work)[1][-1] == said("better now")


@pytest.mark.parametrize("odd", [None, "text", Answer(None), Answer("x", (None,))])  # type: ignore[arg-type]
def test_what_is_no_answer_is_the_models_failure(odd: Any) -> None:
    async def answer(request: object, listener: object) -> Any:
        return odd

    work = work_of(AGENT, Speaker(answer))
    assert stopped(ran(work)[1]).reason == "model_failed"


def test_without_a_model_the_turn_stops_and_says_so() -> None:
    assert ran(work_of(AGENT))[1] == [
        ev.TurnStopped("model_failed", "This agent names no model that can be used here.")
    ]


def test_the_next_candidate_is_asked_when_one_fails_and_the_log_says_which_and_why() -> None:
    async def breaks(request: object, listener: Any) -> Answer:
        listener.delta("I th")
        raise ModelFailed("401", lasting=True, billed=False)

    work = work_of(
        AGENT, Speaker(breaks, name="x/one"), Speaker(KeyError("k"), name="x/two"), Speaker("hi", name="x/three")
    )
    assert ran(work)[1] == [
        ev.ModelCalled("x/one"),
        ev.ModelCalled("x/two", None, "401", True),
        ev.ModelCalled("x/three", None, "x/two broke: KeyError: 'k'"),
        said("hi"),
    ]
    assert work.listener.heard == ["I th", "<401>", "<x/two broke: KeyError: 'k'>", "hi"]  # type: ignore[attr-defined]


def test_an_agent_that_tries_again_asks_every_model_twice_except_those_that_cannot_work() -> None:
    agent = Agent(name="a", limits=Limits(on_error="retry"))
    hopeless = Speaker(ModelFailed("no key", lasting=True, billed=False), name="x/one")
    work = work_of(agent, hopeless, Speaker(ModelFailed("busy"), "hi", name="x/two"))
    assert [event.model for event in ran(work)[1] if isinstance(event, ev.ModelCalled)] == ["x/one", "x/two", "x/two"]
    assert work.session.messages[-1].content == "hi"


# What a model answers.


def test_ids_that_are_missing_or_come_twice_are_made_distinct() -> None:
    async def look() -> None: ...

    calls = [call(call_id, "look") for call_id in ("c", "", "c", "c_4_2", "")]
    work = work_of(AGENT, Speaker(calling(*calls), "ok"), tools=[tool(look, "look")])
    _, events = ran(work)
    answer = events[1]
    assert isinstance(answer, ev.AssistantResponse)
    assert [each.call_id for each in answer.tool_calls] == ["c", "call_4_1", "c_4_2", "c_4_2_4_3", "call_4_4"]
    assert len([event for event in events if isinstance(event, ev.ToolResult)]) == 5


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "odd", [nested(MAX_DEPTH + 1), nested(5_000), float("nan"), float("-inf"), object(), {1: 2}, b"x"]
)
def test_arguments_that_no_line_can_hold_are_malformed(odd: Any) -> None:
    async def look(at: Any) -> None: ...

    work = work_of(AGENT, Speaker(calling(call("c1", "look", at=odd)), "ok"), tools=[tool(look, "look")])
    text = f"they hold what JSON cannot, or are nested deeper than {MAX_DEPTH} levels"
    assert ran(work)[1][1:3] == [
        said("", ev.ToolCall("c1", "look", None, text)),
        result("c1", f"The arguments are no JSON object: {text}", "error"),
    ]


def test_arguments_as_deep_as_allowed_reach_the_tool() -> None:
    got = []

    async def look(at: Any) -> None:
        got.append(at)

    deep = nested(MAX_DEPTH - 1)
    ran(work_of(AGENT, Speaker(calling(call("c1", "look", at=deep)), "ok"), tools=[tool(look, "look")]))
    assert got == [deep]


def test_half_characters_in_an_answer_are_mended_before_anything_uses_them() -> None:
    got = []

    async def look(at: str) -> None:
        got.append(at)

    ran(
        work_of(
            AGENT, Speaker(calling(call("c1", "look", at="a\ud800"), text="\udfff"), "ok"), tools=[tool(look, "look")]
        )
    )
    assert got == ["a\ufffd"]


# Tools.


def raising(error: BaseException) -> Any:
    async def run(arguments: dict[str, Any], scene: Any) -> Any:
        raise error

    return run


def returning(value: Any) -> Any:
    async def run(arguments: dict[str, Any], scene: Any) -> Any:
        return value

    return run


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("odd"), "ValueError: odd"),
        (KeyError("k"), "KeyError: 'k'"),
        (RecursionError("deep"), "RecursionError: deep"),
        (asyncio.CancelledError(), "CancelledError"),
        (TimeoutError(), "TimeoutError"),
        (StorageFailed("a tool's own disk"), "StorageFailed: a tool's own disk"),
        (Unspeakable(), "Unspeakable"),
        (ExceptionGroup("many", [ValueError("a")]), "ExceptionGroup: many (1 sub-exception)"),
    ],
)
@pytest.mark.parametrize("calls", [1, 2])
def test_whatever_a_tool_raises_is_its_result(error: BaseException, text: str, calls: int) -> None:
    acting = Tool(ToolSpec("act", parallel_safe=True, unruled="allow", effect="pure"), raising(error))
    wants = [call(f"c{number}", "act") for number in range(calls)]
    _, events = ran(work_of(PATIENT, Speaker(calling(*wants), "ok"), tools=[acting]))
    results = [event for event in events if isinstance(event, ev.ToolResult)]
    assert results == [result(f"c{number}", text, "error") for number in range(calls)]
    assert events[-1] == said("ok")


@pytest.mark.parametrize(
    ("value", "text", "success"),
    [
        ("fine", "fine", True),
        (None, "", True),
        (5, "5", True),
        (["a", 1], "['a', 1]", True),
        (b"raw", "b'raw'", True),
        (ev.ToolAnswer(False, "exit 1"), "exit 1", False),
        (ev.ToolAnswer(1, None), "", True),  # type: ignore[arg-type]
        ("a\ud800\0", "a\ufffd\0", True),
        ("x" * (MAX_RESULT_CHARS + 1), "x" * MAX_RESULT_CHARS + "\n[cut: 262,145 characters in all]", True),
    ],
)
def test_whatever_a_tool_returns_becomes_text(value: Any, text: str, success: bool) -> None:
    acting = Tool(ToolSpec("act", unruled="allow"), returning(value))
    _, events = ran(work_of(AGENT, Speaker(calling(call("c1", "act")), "ok"), tools=[acting]))
    assert events[3] == result("c1", text, success=success)


def test_a_value_that_cannot_be_told_is_an_error() -> None:
    class Mute:
        def __str__(self) -> str:
            raise RuntimeError("no words")

    acting = Tool(ToolSpec("act", unruled="allow"), returning(Mute()))
    _, events = ran(work_of(PATIENT, Speaker(calling(call("c1", "act")), "ok"), tools=[acting]))
    assert events[3] == result("c1", "RuntimeError: no words", "error")


def test_arguments_that_do_not_fit_a_function_are_an_error_the_model_sees() -> None:
    async def add(a: int, b: int) -> int:
        return a + b

    _, events = ran(work_of(PATIENT, Speaker(calling(call("c1", "add", a=1)), "ok"), tools=[tool(add, "add")]))
    (answer,) = [event for event in events if isinstance(event, ev.ToolResult)]
    assert answer.outcome == "error" and '"b" is a required property' in answer.result.content
    assert not any(isinstance(event, ev.ToolStarted) for event in events)


@pytest.mark.parametrize(
    ("effect", "on_error", "runs", "starts"),
    [
        ("pure", "retry", 2, 2),
        ("repeatable", "retry", 2, 2),
        ("once", "retry", 1, 1),
        ("unknown", "retry", 1, 1),
        ("pure", "skip", 1, 1),
    ],
)
def test_a_tool_that_broke_is_tried_again_only_if_that_does_no_harm(
    effect: Any, on_error: Any, runs: int, starts: int
) -> None:
    count = 0

    async def act() -> str:
        nonlocal count
        count += 1
        if count == 1:
            raise OSError("not yet")
        return "now"

    agent = Agent(name="a", limits=Limits(on_error=on_error))
    _, events = ran(work_of(agent, Speaker(calling(call("c1", "act")), "ok"), tools=[tool(act, effect=effect)]))
    assert (count, events.count(ev.ToolStarted("c1"))) == (runs, starts)
    assert result("c1", "now") in events or result("c1", "OSError: not yet", "error") in events


@pytest.mark.parametrize("on_error", ["ask", "fail"])
def test_what_an_agent_does_when_a_tool_broke(on_error: Any) -> None:
    agent = Agent(name="a", limits=Limits(on_error=on_error))
    acting = Tool(ToolSpec("act", unruled="allow"), raising(OSError("broken")))
    step, events = ran(work_of(agent, Speaker(calling(call("c1", "act"))), tools=[acting]))
    assert (step, events[-1]) == {
        "ask": (Wait(("failed:c1",)), ev.ApprovalRequired("failed:c1", "A tool failed. Let the agent go on?")),
        "fail": (Rest(), ev.TurnStopped("tool_failed", "A tool failed, and this agent stops when one does.")),
    }[on_error]


def test_rounds_are_counted_and_the_turn_stops() -> None:
    async def look() -> None: ...

    agent = Agent(name="a", limits=Limits(2))
    model = Speaker(calling(call("c1", "look")))
    _, events = ran(work_of(agent, model, tools=[tool(look, "look")]))
    assert (len(model.requests), stopped(events).reason) == (2, "rounds")


# Money.


def test_what_a_call_may_cost_is_on_disk_before_it_is_made() -> None:
    log, seen = MemoryLog(), []

    async def answer(request: object, listener: object) -> Answer:
        seen.append(log.events[log.durable - 1])
        return Answer("hi", (), ev.Usage(0, 250, 250))

    _, events = ran(work_of(saving(2), Speaker(answer), price=dear, log=log))
    assert seen == [ev.ModelCalled("test/speaker", 1.0)]
    assert events[-1] == said("hi", usage=ev.Usage(0, 250, 250), usd=0.25)


@pytest.mark.parametrize(
    ("answer", "usd"),
    [
        (Answer("x", (), ev.Usage(0, 500, 500)), 0.5),
        (Answer("x", (), ev.Usage(0, 500, 500), 0.125), 0.125),
        (Answer("x", (), ev.Usage(0, 500, 500), 0.0), 0.0),
        (Answer("x", (), None, 0.125), 0.125),
        (Answer("x"), 1.0),
        (Answer("x", (), ev.Usage(0, 500, 500), float("nan")), 0.5),
    ],
)
def test_what_is_spent_is_what_the_provider_says_or_the_price_or_what_was_set_aside(answer: Answer, usd: float) -> None:
    work = work_of(saving(2), Speaker(answer), price=dear)
    ran(work)
    assert (work.session.spent.usd, work.session.spent.reserved_usd) == (usd, 0.0)


def test_a_call_that_may_cost_too_much_is_not_made() -> None:
    model = Speaker("hi")
    _, events = ran(work_of(saving(0.5), model, price=dear))
    assert (model.requests, stopped(events).reason, len(events)) == ([], "cost", 1)


def test_a_person_can_let_it_cost_more() -> None:
    model = Speaker(Answer("hi", (), None, 0.9))
    work = work_of(saving(0.5, on_exceed="ask"), model, price=dear)
    step, events = ran(work)
    assert (step, len(model.requests), type(events[-1])) == (Wait(("cost:2",)), 0, ev.ApprovalRequired)
    work.record(ev.ApprovalDecision("cost:2", "allow_once"))
    assert ran(work)[0] == Rest()
    assert (len(model.requests), work.session.spent.usd) == (1, 0.9)


def test_an_unknown_price_stops_before_the_call_and_says_how_to_set_it() -> None:
    model = Speaker("hi", name="acme/m1")
    assert ran(work_of(saving(2), model))[1] == [
        ev.TurnStopped(
            "price_unknown",
            "This agent may spend $2, and what acme/m1 costs is not known. Set its price in duragent.yaml, in USD per "
            "million tokens: prices: {acme/m1: {input: 1, output: 2}}",
        )
    ]
    assert model.requests == []


@pytest.mark.parametrize(("price", "answered"), [(Price(0.0, 0.0, 0.0), True), (Price(0.0, 0.1, 0.0), False)])
def test_an_agent_that_may_spend_nothing_can_use_what_costs_nothing(price: Price, answered: bool) -> None:
    model = Speaker("hi")
    ran(work_of(saving(0), model, price=lambda name: price))
    assert bool(model.requests) is answered


def test_without_a_limit_nobody_asks_for_the_price() -> None:
    assert ran(work_of(AGENT, Speaker("hi")))[1] == [ev.ModelCalled("test/speaker"), said("hi")]


@pytest.mark.parametrize(("billed", "usd"), [(True, 1.0), (False, 0.0)])
def test_what_a_failed_call_cost(billed: bool, usd: float) -> None:
    work = work_of(saving(2), Speaker(ModelFailed("no", billed=billed, lasting=True)), price=dear)
    ran(work)
    assert (work.session.spent.usd, work.session.spent.reserved_usd) == (usd, 0.0)


@pytest.mark.parametrize(("billed", "answered", "usd"), [(False, True, 0.25), (True, False, 1.0)])
def test_a_call_that_was_turned_away_leaves_its_money_to_the_next_candidate(
    billed: bool, answered: bool, usd: float
) -> None:
    models = (
        Speaker(ModelFailed("no", billed=billed), name="x/one"),
        Speaker(Answer("hi", (), None, 0.25), name="x/two"),
    )
    work = work_of(saving(1.5), *models, price=dear)
    ran(work)
    assert (bool(models[1].requests), work.session.spent.usd) == (answered, usd)


def test_a_call_that_was_turned_away_costs_nothing_even_if_no_other_can_be_made() -> None:
    models = Speaker(ModelFailed("no", billed=False), name="x/one"), Speaker("hi", name="x/two")
    work = work_of(saving(1.5), *models, price=lambda name: dear(name) if name == "x/one" else None)
    assert stopped(ran(work)[1]).reason == "price_unknown"
    assert work.session.spent.committed_usd == 0.0


def test_money_set_aside_by_a_process_that_died_counts_as_spent() -> None:
    model = Speaker("hi")
    work = work_of(saving(1.5), model, price=dear)
    work.record(ev.ModelCalled("test/speaker", 1.0))
    _, events = ran(work)
    assert (model.requests, stopped(events).reason, work.session.spent.usd) == ([], "cost", 1.0)


def test_a_try_that_may_have_cost_money_is_counted_before_the_next_one_is_made() -> None:
    work = work_of(saving(2.5), Speaker(ModelFailed("broke off"), ModelFailed("broke off"), "never asked"), price=dear)
    _, events = ran(work)
    assert [each.reserved_usd for each in events if isinstance(each, ev.ModelCalled)] == [1.0, 1.0]
    assert [each.reason for each in events if isinstance(each, ev.TurnStopped)] == ["cost"]
    assert work.session.spent.usd == 2.0


def test_where_money_is_limited_the_model_is_told_how_much_it_may_say() -> None:
    asked: list[tuple[int | None, bool]] = []

    async def answer(request: Request, listener: object) -> Answer:
        asked.append((request.max_output_tokens, request.pay_once))
        return Answer("hi")

    ran(work_of(Agent(name="a", limits=Limits(cost_usd=50)), Speaker(answer), price=dear))
    ran(work_of(PATIENT, Speaker(answer)))
    assert asked == [(4096, True), (None, False)]
