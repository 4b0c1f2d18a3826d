"""Whoever follows a session gets every entry once and in order, and can never slow it down."""

import asyncio
from pathlib import Path

import pytest

from duragent.agent import Agent
from duragent.core import events as ev
from duragent.errors import NotFound
from duragent.following import Delta, Follower, Forget, Lagged, Settled
from duragent.models import Answer
from duragent.runtime import Runtime, Settings
from duragent.tools import function_tool
from tests.acting import Gate, Speaker, Watcher, call, calling, play

AGENT = Agent(name="a")


def runtime_at(folder: Path, *models: Speaker, **more: object) -> Runtime:
    settings = Settings(compaction="disabled", **more)  # type: ignore[arg-type]
    return Runtime(folder, agents=[AGENT], models=models, settings=settings)


# The buffer.


def test_a_buffer_gives_everything_in_order_and_what_leads_first() -> None:
    async def main() -> None:
        follower = Follower(3)
        follower.put(Delta("b"))
        follower.put(Delta("c"))
        follower.lead(Delta("a"))
        assert await follower.take() == [Delta("a"), Delta("b"), Delta("c")]

    play(main())


def test_a_buffer_that_is_full_is_emptied_and_takes_no_more() -> None:
    async def main() -> None:
        follower = Follower(2)
        for text in "abcd":
            follower.put(Delta(text))
        assert (follower.lagged, await follower.take()) == (True, [])

    play(main())


@pytest.mark.parametrize("happens", ["put", "end"])
def test_who_waits_at_an_empty_buffer_is_woken(happens: str) -> None:
    async def main() -> None:
        follower = Follower(2)
        taking = asyncio.create_task(follower.take())
        await asyncio.sleep(0)
        assert not taking.done()
        follower.put(Delta("a")) if happens == "put" else follower.end()
        assert await taking == ([Delta("a")] if happens == "put" else [])

    play(main())


def test_a_listener_that_went_away_while_waiting_does_no_harm() -> None:
    async def main() -> None:
        follower = Follower(2)
        taking = asyncio.create_task(follower.take())
        await asyncio.sleep(0)
        taking.cancel()
        await asyncio.wait({taking})
        follower.put(Delta("a"))
        assert await follower.take() == [Delta("a")]

    play(main())


# Following a session.


def test_from_any_entry_on_everything_comes_once_and_in_order_while_turns_run(tmp_path: Path) -> None:
    async def main() -> None:
        async def look() -> None: ...

        answers = [said for number in range(8) for said in (calling(call(f"c{number}", "look")), f"answer {number}")]
        runtime = Runtime(
            tmp_path,
            agents=[AGENT],
            models=[Speaker(*answers)],
            tools={"look": look},
            settings=Settings(compaction="archive", snapshot_every=5),
        )
        async with runtime:
            session_id = await runtime.open_session(AGENT)
            watchers = [(after, Watcher(runtime, session_id, after)) for after in (0, 1, 7, 30)]
            for number in range(8):
                await runtime.post(session_id, f"question {number}")
                watchers.append((3 * number, Watcher(runtime, session_id, 3 * number)))
                if number % 2:
                    await runtime.settled(session_id)
            last = (await runtime.settled(session_id)).seq
            watchers.append((0, Watcher(runtime, session_id)))
            for after, watcher in watchers:
                await watcher.until_seq(last)
                assert watcher.seqs == list(range(after + 1, last + 1))
            stored = list(runtime.store.entries(session_id))
            assert [entry.event for entry in stored] == watchers[0][1].events

    play(main())


def test_what_is_said_is_heard_while_it_is_said_and_ends_with_its_entry(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await watcher.until(lambda items: items[-1] == Settled(4, ()))
            kinds = [item if not isinstance(item, ev.Entry) else type(item.event) for item in watcher.items]
            assert [kind for kind in kinds if kind != ev.ModelCalled] == [
                ev.SessionStart,
                Settled(1, ()),
                ev.UserMessage,
                Delta("hello"),
                ev.AssistantResponse,
                Settled(4, ()),
            ]

    play(main())


def test_an_answer_is_told_whole_before_the_next_one_is_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async def first(request: object, listener: object) -> Answer:
            listener.delta("first")  # type: ignore[attr-defined]
            return calling(call("c1", "no_such_tool"), text="first")

        async with runtime_at(tmp_path, Speaker(first, "second")) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await watcher.until(lambda items: items[-1] == Settled(7, ()))
            heard = [
                item.text if isinstance(item, Delta) else item.event
                for item in watcher.items
                if not isinstance(item, Settled)
            ]  # type: ignore[union-attr]
            told = [each if isinstance(each, str) else type(each) for each in heard]
            assert [each for each in told if each is not ev.ModelCalled] == [
                ev.SessionStart,
                ev.UserMessage,
                "first",
                ev.AssistantResponse,
                ev.ToolResult,
                "second",
                ev.AssistantResponse,
            ]

    play(main())


def test_who_joins_late_gets_what_was_said_so_far_once_and_then_the_rest(tmp_path: Path) -> None:
    async def main() -> None:
        gate, rest = Gate(before="half a "), Gate("half a sentence")

        async def speak(request: object, listener: object) -> Answer:
            await gate(request, listener)  # type: ignore[arg-type]
            for text in "sentence":
                listener.delta(text)  # type: ignore[attr-defined]
            return await rest(request, listener)  # type: ignore[arg-type]

        async with runtime_at(tmp_path, Speaker(speak)) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            late = Watcher(runtime, session_id, 2)
            await late.until_text("half a ")
            gate.open.set()
            await rest.reached.wait()
            later = Watcher(runtime, session_id, 2)
            await later.until_text("half a sentence")
            rest.open.set()
            for watcher in (late, later):
                await watcher.until_seq(4)
                assert watcher.text == "half a sentence"
            assert later.items[0] == Delta("half a sentence")

    play(main())


def test_who_joins_in_a_later_round_does_not_hear_the_earlier_answer_again(tmp_path: Path) -> None:
    async def main() -> None:
        async def look() -> None: ...

        async def first(request: object, listener: object) -> Answer:
            listener.delta("let me look")  # type: ignore[attr-defined]
            return calling(call("c1", "look"), text="let me look")

        gate = Gate(before="it is")
        runtime = Runtime(tmp_path, agents=[AGENT], models=[Speaker(first, gate)], tools={"look": look})
        async with runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            late = Watcher(runtime, session_id)
            await late.until_text("it is")
            gate.open.set()
            await runtime.settled(session_id)
            await late.until(lambda items: isinstance(items[-1], Settled))
            assert late.text == "it is"

    play(main())


def test_followers_are_told_to_forget_what_a_model_said_that_failed(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()

        async def breaks(request: object, listener: object) -> Answer:
            await gate(request, listener)  # type: ignore[arg-type]
            listener.delta("I th")  # type: ignore[attr-defined]
            raise RuntimeError("gone")

        models = Speaker(breaks, name="x/one"), Speaker("hello", name="x/two")
        async with runtime_at(tmp_path, *models) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            watcher = Watcher(runtime, session_id, 2)
            await asyncio.sleep(0)
            gate.open.set()
            await watcher.until(lambda items: bool(items) and isinstance(items[-1], Settled))
            heard = [item for item in watcher.items if isinstance(item, Delta | Forget)]
            assert heard == [Delta("I th"), Forget("x/one broke: RuntimeError: gone"), Delta("hello")]

    play(main())


def test_a_question_is_told_to_who_follows_and_to_who_comes_later(tmp_path: Path) -> None:
    async def main() -> None:
        async def pay() -> None: ...

        asking = {"pay": function_tool(pay, ask=True)}
        runtime = Runtime(tmp_path, agents=[AGENT], models=[Speaker(calling(call("c1", "pay")))], tools=asking)
        async with runtime:
            session_id = await runtime.open_session(AGENT)
            early = Watcher(runtime, session_id)
            await runtime.post(session_id, "hi")
            await early.until(lambda items: Settled(5, ("c1",)) in items)
            late = Watcher(runtime, session_id, 5)
            await late.until(lambda items: items == [Settled(5, ("c1",))])

    play(main())


def test_a_slow_follower_is_told_to_come_back_and_loses_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(*[f"answer {n}" for n in range(20)]), follower_buffer=6) as runtime:
            session_id = await runtime.open_session(AGENT)
            slow = runtime.follow(session_id)
            got = [await anext(slow)]
            for number in range(20):
                await runtime.post(session_id, f"question {number}")
                await runtime.settled(session_id)
            last = (await runtime.session(session_id)).seq
            assert last == 61
            rest = [item async for item in slow]
            lagged = rest[-1]
            assert isinstance(lagged, Lagged)
            got += [item for item in rest if isinstance(item, ev.Entry)]
            assert (lagged.after, len(got) < last) == (got[-1].seq, True)  # type: ignore[union-attr]
            again = Watcher(runtime, session_id, lagged.after)
            await again.until_seq(last)
            assert [item.seq for item in got] + again.seqs == list(range(1, last + 1))  # type: ignore[union-attr]

    play(main())


def test_a_follower_who_never_takes_anything_does_not_hold_the_session_up(tmp_path: Path) -> None:
    async def main() -> None:
        async def speak(request: object, listener: object) -> Answer:
            for _ in range(10_000):
                listener.delta("x")  # type: ignore[attr-defined]
            return Answer("x" * 10_000)

        async with runtime_at(tmp_path, Speaker(speak), follower_buffer=100) as runtime:
            session_id = await runtime.open_session(AGENT)
            stuck = runtime.follow(session_id)
            await anext(stuck)
            await runtime.post(session_id, "hi")
            session = await runtime.settled(session_id)
            assert (session.seq, session.status) == (4, "active")
            assert [item async for item in stuck][-1] == Lagged(1)
            assert (await runtime.session(session_id)).status == "active"

    play(main())


def test_being_slow_is_not_being_gone(tmp_path: Path) -> None:
    """A session pauses when its last follower leaves, but not when that one is only told to come back."""

    async def main() -> None:
        gate = Gate("done", before="x" * 50)
        async with runtime_at(tmp_path, Speaker(gate), follower_buffer=10) as runtime:
            session_id = await runtime.open_session(AGENT)
            slow = runtime.follow(session_id)
            await anext(slow)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            assert [item async for item in slow][-1] == Lagged(1)
            gate.open.set()
            session = await runtime.settled(session_id)
            assert (session.status, session.messages[-1].content) == ("active", "done")

    play(main())


def test_following_a_session_that_is_not_there_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path) as runtime:
            with pytest.raises(NotFound, match="There is no session session_0 in "):
                await anext(runtime.follow("session_0"))

    play(main())


@pytest.mark.parametrize("how", ["delete", "close"])
def test_following_ends_when_the_session_leaves(tmp_path: Path, how: str) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await (runtime.delete(session_id) if how == "delete" else runtime.close())
            await watcher.ended()
            assert watcher.seqs == [1]

    play(main())
