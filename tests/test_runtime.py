"""The verbs every door uses: what posting, deciding and cancelling promise."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Access, Agent, Limits
from duragent.core import events as ev
from duragent.errors import Conflict, NotAllowed, NotFound
from duragent.models import Answer
from duragent.store import disk
from duragent.store.files import FileStore
from tests.acting import (
    AGENT,
    Clock,
    Gate,
    Speaker,
    call,
    calling,
    decide,
    nothing,
    play,
    results,
    runtime_at,
    said,
    stops,
    stored,
    tool,
)

PAY = tool(nothing, "pay", ask=True)
CANCELLED = ev.TurnStopped("cancelled", "The turn was cancelled.", until=2)


# Posting.


def test_a_message_is_on_disk_when_post_returns(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            session_id = await runtime.open_session(AGENT)
            assert stored(tmp_path, session_id) == [ev.SessionStart("a", version=1)]
            assert await runtime.post(session_id, "hi") == 2
            assert stored(tmp_path, session_id)[1] == ev.UserMessage("hi")

    play(main())


def test_a_message_that_comes_again_is_ignored(tmp_path: Path) -> None:
    async def main() -> None:
        model = Speaker("hello")
        hi = ev.UserMessage("hi", message_id="m1")
        async with runtime_at(tmp_path, model) as runtime:
            session_id = await runtime.open_session(AGENT)
            both = await asyncio.gather(runtime.post(session_id, hi), runtime.post(session_id, hi))
            assert both == [2, 0]
            await runtime.settled(session_id)
            await runtime.sweep()
            assert await runtime.post(session_id, hi) == 0
        async with runtime_at(tmp_path, model) as runtime:
            assert await runtime.post(session_id, hi) == 0
            assert await runtime.post(session_id, ev.UserMessage("hi", message_id="m2")) > 0
            await runtime.settled(session_id)
        assert said(stored(tmp_path, session_id)) == ["hi", "hello", "hi", "hello"]

    play(main())


def test_a_repeat_is_acknowledged_only_when_the_first_one_is_on_disk(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            hi = ev.UserMessage("hi", message_id="m1")
            first = asyncio.create_task(runtime.post(session_id, hi))
            await asyncio.sleep(0)
            assert await runtime.post(session_id, hi) == 0
            assert hi in stored(tmp_path, session_id)
            await first

    play(main())


def test_a_silent_message_is_kept_and_answered_by_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        model = Speaker("hello")
        async with runtime_at(tmp_path, model) as runtime:
            session_id = await runtime.open_session(AGENT)
            assert await runtime.post(session_id, ev.SilentMessage("Ada: psst")) == 2
            assert (await runtime.settled(session_id)).owes_answer is False
            assert model.requests == []

    play(main())


@pytest.mark.parametrize("session_id", ["session_0", "../session_0", "x", ""])
def test_a_session_that_is_not_there_is_not_found(tmp_path: Path, session_id: str) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path) as runtime:
            for doing in (runtime.post(session_id, "hi"), runtime.cancel(session_id), runtime.session(session_id)):
                with pytest.raises(NotFound):
                    await doing

    play(main())


def test_a_session_of_an_agent_that_is_gone_says_so_and_is_held_by_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path) as runtime:
            session_id = await runtime.open_session(AGENT)
        async with runtime_at(tmp_path, agent=Agent(name="b")) as runtime:
            with pytest.raises(NotFound, match="The agent 'a' of this session is not here"):
                await runtime.post(session_id, "hi")
            assert FileStore(tmp_path).holder(session_id) is None

    play(main())


def test_two_sessions_work_at_the_same_time(tmp_path: Path) -> None:
    async def main() -> None:
        gates = [Gate("one"), Gate("two")]
        async with runtime_at(tmp_path, Speaker(*gates)) as runtime:
            sessions = [await runtime.open_session(AGENT) for _ in gates]
            for session_id in sessions:
                await runtime.post(session_id, "hi")
            for gate in gates:
                await gate.reached.wait()
            for gate in reversed(gates):
                gate.open.set()
            answers = [(await runtime.settled(session_id)).messages[-1].content for session_id in sessions]
            assert answers == ["one", "two"]

    play(main())


def test_messages_while_the_model_speaks_get_an_answer_of_their_own(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate("1!")
        model = Speaker(gate, "2 and 3!")
        async with runtime_at(tmp_path, model) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "one")
            await gate.reached.wait()
            await runtime.post(session_id, "two")
            await runtime.post(session_id, "three")
            gate.open.set()
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages] == ["one", "1!", "two", "three", "2 and 3!"]
            assert model.requests[1] == [("user", "one"), ("assistant", "1!"), ("user", "two"), ("user", "three")]

    play(main())


def test_a_message_whose_sender_goes_away_meanwhile_is_still_answered(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            posting = asyncio.create_task(runtime.post(session_id, "hi"))
            await asyncio.sleep(0)
            posting.cancel()
            await asyncio.wait({posting})
            assert posting.cancelled()
            assert said(stored(tmp_path, session_id)) in ([], ["hi"], ["hi", "hello"])
            await runtime.settled(session_id)
        assert said(stored(tmp_path, session_id)) == ["hi", "hello"]

    play(main())


def test_in_a_chat_messages_are_taken_together_once_it_is_quiet(tmp_path: Path) -> None:
    async def main() -> None:
        model, clock, agent = Speaker("hello"), Clock(), Agent(name="a", access=Access())
        async with runtime_at(tmp_path, model, agent=agent, clock=clock) as runtime:
            session_id = await runtime.open_session(agent, gateway="telegram", gateway_chat_id="1")
            await runtime.post(session_id, "one")
            await runtime.post(session_id, "two")
            assert model.requests == []
            clock.forward(seconds=2)
            await runtime.post(session_id, ev.SilentMessage("somebody wakes it"))
            await runtime.settled(session_id)
            assert model.requests == [[("user", "one"), ("user", "two")]]

    play(main())


# Deciding.


def test_only_what_waits_can_be_decided_and_only_for_its_arguments(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "pay", sum=5)), "ok"), tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            with pytest.raises(Conflict, match="does not wait for a decision about 'c1': it was made, or never asked"):
                await decide(runtime, session_id, "c1", "allow_once")
            await runtime.post(session_id, "go")
            session = await runtime.settled(session_id)
            assert session.waiting == ("c1",)
            digest = session.open_calls["c1"].digest
            with pytest.raises(Conflict, match="for other arguments than those that wait"):
                await runtime.decide(session_id, "c1", "allow_once", digest="0" * 16)
            seq = await runtime.decide(session_id, "c1", "deny", digest=digest, by="Ada", reason="no")
            assert stored(tmp_path, session_id)[seq - 1] == ev.ApprovalDecision("c1", "deny", "Ada", "no")
            with pytest.raises(Conflict):
                await runtime.decide(session_id, "c1", "allow_once", digest=digest)
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "refused"}

    play(main())


def test_of_two_decisions_at_the_same_time_one_counts(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "pay")), "ok"), tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            digest = (await runtime.settled(session_id)).open_calls["c1"].digest
            await runtime.sweep()
            said: list[ev.Decision] = ["deny", "allow_once", "deny"]
            decided = await asyncio.gather(
                *[runtime.decide(session_id, "c1", decision, digest=digest) for decision in said],
                return_exceptions=True,
            )
            assert [type(each) for each in decided] == [int, Conflict, Conflict]
            await runtime.settled(session_id)
        events = stored(tmp_path, session_id)
        assert [event.decision for event in events if isinstance(event, ev.ApprovalDecision)] == ["deny"]
        assert results(events) == {"c1": "refused"}

    play(main())


def test_a_question_waits_through_a_restart_and_is_asked_once(tmp_path: Path) -> None:
    async def main() -> None:
        paid = []

        async def pay() -> None:
            paid.append(1)

        model, paying = Speaker(calling(call("c1", "pay")), "ok"), tool(pay, "pay", ask=True)
        async with runtime_at(tmp_path, model, tools=[paying]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        async with runtime_at(tmp_path, model, tools=[paying]) as runtime:
            assert await runtime.recover() == []
            assert (await runtime.session(session_id)).waiting == ("c1",)
            await decide(runtime, session_id, "c1", "allow_once")
            await runtime.settled(session_id)
        events = stored(tmp_path, session_id)
        assert (paid, len([event for event in events if isinstance(event, ev.ApprovalRequired)])) == ([1], 1)
        assert said(events) == ["go", "", "ok"]

    play(main())


def test_a_message_instead_of_a_decision_skips_the_call(tmp_path: Path) -> None:
    async def main() -> None:
        model = Speaker(calling(call("c1", "pay")), "as you wish")
        async with runtime_at(tmp_path, model, tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            await runtime.post(session_id, "rather not")
            session = await runtime.settled(session_id)
            assert (session.waiting, session.messages[-1].content) == ((), "as you wish")
        assert results(stored(tmp_path, session_id)) == {"c1": "skipped"}

    play(main())


def test_a_question_about_a_limit_is_decided_with_the_same_verb(tmp_path: Path) -> None:
    async def main() -> None:
        agent = Agent(name="a", limits=Limits(1, on_exceed="ask"))
        model = Speaker(calling(call("c1", "look")), "done")
        async with runtime_at(tmp_path, model, agent=agent, tools=[tool(nothing, "look")]) as runtime:
            session_id = await runtime.open_session(agent)
            await runtime.post(session_id, "go")
            (waiting,) = (await runtime.settled(session_id)).waiting
            assert waiting == "rounds:6"
            await decide(runtime, session_id, waiting, "allow_once")
            assert (await runtime.settled(session_id)).messages[-1].content == "done"

    play(main())


# Cancelling.


def test_cancelling_while_the_model_speaks_keeps_what_it_said(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate(before="I was about to")
        async with runtime_at(tmp_path, Speaker(gate, "hello again")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            assert await runtime.cancel(session_id) is True
            assert gate.cancelled
            stop = ev.TurnStopped("cancelled", "The turn was cancelled.", "I was about to", until=2)
            assert stored(tmp_path, session_id)[-1] == stop
            await runtime.post(session_id, "and now?")
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages] == [
                "hi",
                "I was about to",
                "and now?",
                "hello again",
            ]

    play(main())


def test_only_the_answer_that_was_cut_off_is_kept_as_a_part(tmp_path: Path) -> None:
    async def main() -> None:
        async def first(request: object, listener: Any) -> Answer:
            listener.delta("let me look")
            return calling(call("c1", "look"), text="let me look")

        gate = Gate(before="it is")
        async with runtime_at(tmp_path, Speaker(first, gate), tools=[tool(nothing, "look")]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await runtime.cancel(session_id)
            assert stops(stored(tmp_path, session_id)) == [
                ev.TurnStopped("cancelled", "The turn was cancelled.", "it is", until=2)
            ]

    play(main())


def test_cancelling_while_a_tool_runs_cancels_the_tool_and_says_nothing_twice(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()

        async def first(request: object, listener: Any) -> Answer:
            listener.delta("let me look")
            return calling(call("c1", "look"), call("c2", "look"), text="let me look")

        looking = tool(gate.pass_through, "look")
        async with runtime_at(tmp_path, Speaker(first, "ok"), tools=[looking]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            assert await runtime.cancel(session_id) is True
            session = await runtime.session(session_id)
            outcomes = [each.outcome for message in session.messages for each in message.calls]
            assert (gate.cancelled, outcomes) == (True, ["interrupted", "skipped"])
            assert stored(tmp_path, session_id)[-1] == CANCELLED

    play(main())


def test_cancelling_while_a_person_is_asked(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "pay"))), tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            assert await runtime.cancel(session_id) is True
            assert (await runtime.session(session_id)).waiting == ()
            assert stored(tmp_path, session_id)[-1] == CANCELLED

    play(main())


def test_cancelling_when_nothing_runs_does_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            assert await runtime.cancel(session_id) is False
            await runtime.post(session_id, "hi")
            await runtime.settled(session_id)
            assert await runtime.cancel(session_id) is False
            assert len(stored(tmp_path, session_id)) == 4

    play(main())


def test_cancelling_a_turn_before_it_has_begun(tmp_path: Path) -> None:
    async def main() -> None:
        model = Speaker("hello")
        async with runtime_at(tmp_path, model) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            assert await runtime.cancel(session_id) is True
            assert (model.requests, stored(tmp_path, session_id)[-1]) == ([], CANCELLED)
            await runtime.post(session_id, "again")
            assert (await runtime.settled(session_id)).messages[-1].content == "hello"

    play(main())


def test_cancelling_twice_at_once_stops_the_turn_once(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate, "hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            assert True in await asyncio.gather(runtime.cancel(session_id), runtime.cancel(session_id))
            assert stops(stored(tmp_path, session_id)) == [CANCELLED]
            await runtime.post(session_id, "again")
            assert (await runtime.settled(session_id)).messages[-1].content == "hello"

    play(main())


def test_a_message_that_comes_while_a_turn_is_being_cancelled_is_answered(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate, "hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            cancelling = asyncio.create_task(runtime.cancel(session_id))
            while not (await runtime.session(session_id)).messages or (await runtime.session(session_id)).owes_answer:
                await asyncio.sleep(0)
            await runtime.post(session_id, "something else")
            await cancelling
            assert (await runtime.settled(session_id)).messages[-1].content == "hello"

    play(main())


def test_a_turn_after_a_cancelled_one_can_be_left_to_be_recovered(tmp_path: Path) -> None:
    """Being cancelled concerns one turn: the next one that is cut off by closing is not taken for cancelled."""

    async def main() -> None:
        gates = [Gate(), Gate()]
        async with runtime_at(tmp_path, Speaker(*gates)) as runtime:
            session_id = await runtime.open_session(AGENT)
            for number, gate in enumerate(gates):
                await runtime.post(session_id, "hi")
                await gate.reached.wait()
                if not number:
                    await asyncio.gather(runtime.cancel(session_id), runtime.cancel(session_id))
        assert stops(stored(tmp_path, session_id)) == [CANCELLED]
        assert FileStore(tmp_path).read(session_id).session.owes_answer

    play(main())


def test_a_message_that_comes_after_a_cancel_gets_its_own_turn(tmp_path: Path) -> None:
    async def main() -> None:
        begun, cleaning = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await cleaning.wait()
            return "never"

        tools = [tool(slow, "slow")]
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "slow")), "hello"), tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await begun.wait()
            cancelling = asyncio.ensure_future(runtime.cancel(session_id))
            await asyncio.sleep(0)
            await runtime.post(session_id, "still there?")
            cleaning.set()
            assert await cancelling
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages][-2:] == ["still there?", "hello"]

    play(main())


def test_a_decision_that_comes_after_a_message_is_too_late(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()

        async def act() -> str:
            raise AssertionError("it must not run")

        tools = [tool(act, ask=True)]
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "act")), gate), tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            posting = asyncio.ensure_future(runtime.post(session_id, "no, wait"))
            await asyncio.sleep(0)
            with pytest.raises(Conflict):
                await decide(runtime, session_id, "c1", "allow_once")
            await posting

    play(main())


@pytest.mark.parametrize("raised", [SystemExit(3), BaseException("odd")], ids=repr)
def test_a_tool_that_wants_to_end_the_process_ends_only_itself(raised: BaseException, tmp_path: Path) -> None:
    async def main() -> None:
        async def leave() -> str:
            raise raised

        tools = [tool(leave, "leave")]
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "leave")), "went on"), tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            session = await runtime.settled(session_id)
            assert session.messages[-1].content == "went on"

    play(main())


def test_a_tool_that_swallows_its_cancellation_does_not_undo_it(tmp_path: Path) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def deaf() -> str:
            begun.set()
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "done all the same"

        tools = [tool(deaf, "deaf")]
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "deaf")), "too far"), tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await begun.wait()
            assert await runtime.cancel(session_id)
            session = await runtime.session(session_id)
            assert session.messages[-1].calls[0].content == "done all the same"
            assert [each.reason for each in stops(stored(tmp_path, session_id))] == ["cancelled"]

    play(main())


def test_a_post_that_is_being_written_when_the_runtime_closes_is_kept_and_not_begun(tmp_path: Path) -> None:
    async def main() -> None:
        speaker = Speaker("answer")
        runtime = runtime_at(tmp_path, speaker)
        session_id = await runtime.open_session(AGENT)
        posting = asyncio.ensure_future(runtime.post(session_id, "hi"))
        await asyncio.sleep(0)
        await runtime.close()
        assert await posting == 2
        assert speaker.requests == []
        with pytest.raises(Conflict, match="closing"):
            await runtime.post(session_id, "too late")
        async with runtime_at(tmp_path, Speaker("later")) as again:
            assert await again.recover() == [session_id]
            assert (await again.settled(session_id)).messages[-1].content == "later"

    play(main())


@pytest.mark.parametrize("decision", ["Deny", "yes please", "", None])
def test_only_a_known_decision_is_a_decision(decision: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async def act() -> str:
            raise AssertionError("it must not run")

        tools = [tool(act, ask=True)]
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "act")), "done"), tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            with pytest.raises(NotAllowed, match="is no decision"):
                await decide(runtime, session_id, "c1", decision)
            assert (await runtime.session(session_id)).waiting == ("c1",)

    play(main())


@pytest.mark.parametrize(
    "message", [ev.UserMessage("x", sender_id=42), ev.UserMessage("x", message_id=7)], ids=["sender", "message"]
)
def test_what_could_not_be_read_again_is_not_written(message: Any, tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("ok")) as runtime:
            session_id = await runtime.open_session(AGENT)
            with pytest.raises(ValueError, match="could not be read again"):
                await runtime.post(session_id, message)
            await runtime.post(session_id, "fine")
            await runtime.settled(session_id)
        assert said(stored(tmp_path, session_id)) == ["fine", "ok"]

    play(main())


def test_a_message_that_comes_while_the_answer_is_being_written_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, release, real = threading.Event(), threading.Event(), disk.append

    def slow(path: str, data: bytes, size: int, durable: bool = True) -> int:
        if b'"content":"first answer"' in data:
            writing.set()
            assert release.wait(10)
        return real(path, data, size, durable)

    async def main() -> None:
        monkeypatch.setattr(disk, "append", slow)
        async with runtime_at(tmp_path, Speaker("first answer", "second answer")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "one")
            while not writing.is_set():
                await asyncio.sleep(0)
            posting = asyncio.ensure_future(runtime.post(session_id, "two"))
            await asyncio.sleep(0)
            release.set()
            await posting
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages][-2:] == ["two", "second answer"]

    play(main())


def test_a_runtime_that_is_closing_takes_nothing_more_while_it_waits_for_what_runs(tmp_path: Path) -> None:
    async def main() -> None:
        begun, cleaning = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                await cleaning.wait()
            return "never"

        runtime = runtime_at(tmp_path, Speaker(calling(call("c1", "slow")), "ok"), tools=[tool(slow, "slow")])
        working, other = await runtime.open_session(AGENT), await runtime.open_session(AGENT)
        await runtime.post(working, "go")
        await begun.wait()
        closing = asyncio.ensure_future(runtime.close())
        await asyncio.sleep(0)
        with pytest.raises(Conflict, match="closing"):
            await runtime.post(other, "hi")
        cleaning.set()
        await closing
        assert said(stored(tmp_path, other)) == []

    play(main())
