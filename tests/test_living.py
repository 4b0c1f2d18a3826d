"""Sessions leave memory, come back, grow old, pause, end, and survive whatever closes or breaks around them."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, Limits, SessionRules
from duragent.core import events as ev
from duragent.errors import Conflict, DuragentError, NotFound, StorageFailed
from duragent.following import Settled
from duragent.runtime import Runtime
from duragent.store import disk
from duragent.store.files import FileStore
from tests.acting import (
    AGENT,
    Clock,
    Gate,
    Speaker,
    Watcher,
    call,
    calling,
    decide,
    play,
    results,
    runtime_at,
    said,
    stops,
    stored,
    tool,
)

GOING_ON = Agent(name="a", session=SessionRules(on_disconnect="continue"))


# Memory.


def test_idle_sessions_leave_memory_and_come_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("one", "two")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await runtime.settled(session_id)
            assert FileStore(tmp_path).holder(session_id) is not None
            await runtime.sweep()
            assert (FileStore(tmp_path).holder(session_id), runtime._lives.all()) == (None, [])
            await runtime.post(session_id, "again")
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages] == ["hi", "one", "again", "two"]

    play(main())


def test_who_works_or_is_followed_stays_in_memory(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            working, followed, idle = [await runtime.open_session(AGENT) for _ in range(3)]
            await runtime.post(working, "hi")
            await gate.reached.wait()
            watcher = Watcher(runtime, followed)
            await watcher.until_seq(1)
            await runtime.sweep(3_600)
            assert {live.id for live in runtime._lives.all()} == {working, followed, idle}
            await runtime.sweep()
            assert {live.id for live in runtime._lives.all()} == {working, followed}
            await watcher.leave()

    play(main())


def test_everybody_who_comes_at_once_gets_the_same_session(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.sweep()
            seqs = await asyncio.gather(
                *[runtime.post(session_id, str(number)) for number in range(5)], runtime.sweep()
            )
            assert sorted(seqs[:5]) == [2, 3, 4, 5, 6]
            await runtime.settled(session_id)
        assert sorted(said(stored(tmp_path, session_id))[:5]) == ["0", "1", "2", "3", "4"]

    play(main())


def test_a_visitor_who_leaves_while_a_session_is_opened_does_not_keep_it_locked(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.sweep()
            opening = asyncio.create_task(runtime.cancel(session_id))
            await asyncio.sleep(0)
            opening.cancel()
            await asyncio.wait({opening})
            assert await runtime.post(session_id, "hi") == 2
            await runtime.settled(session_id)
            await runtime.sweep()
            assert FileStore(tmp_path).holder(session_id) is None

    play(main())


def test_a_session_that_another_process_holds_is_refused_and_says_who_holds_it(tmp_path: Path) -> None:
    async def main() -> None:
        there, gate = "http://there", Gate()
        async with runtime_at(tmp_path, Speaker(gate), address=there) as one, runtime_at(tmp_path) as other:
            session_id = await one.open_session(AGENT)
            await one.post(session_id, "hi")
            await gate.reached.wait()
            with pytest.raises(Conflict, match=r"is held by process \d+ \(http://there\)"):
                await other.post(session_id, "hi")
            assert (await other.recover(), list(other.problems)) == ([], [session_id])

    play(main())


# Age.


@pytest.mark.parametrize(
    ("everybodys", "agents", "hours", "ends"),
    [
        (168, None, 167, False),
        (168, None, 169, True),
        (0, None, 100_000, False),
        (168, 0, 100_000, False),
        (168, 2, 1, False),
        (168, 2, 3, True),
        (0, 2, 3, True),
        (1, 200, 199, False),
    ],
)
@pytest.mark.parametrize("by", ["post", "recover"])
def test_a_session_that_was_idle_for_too_long_ends_and_keeps_its_files(
    tmp_path: Path, everybodys: int, agents: int | None, hours: int, ends: bool, by: str
) -> None:
    async def main() -> None:
        clock, agent = Clock(), Agent(name="a", session=SessionRules(ttl_hours=agents))
        runtime = runtime_at(tmp_path, Speaker("hello"), agent=agent, clock=clock, ttl_hours=everybodys)
        async with runtime:
            session_id = await runtime.open_session(agent)
            await runtime.sweep()
            clock.forward(hours=hours)
            if by == "recover":
                assert await runtime.recover() == []
            elif ends:
                with pytest.raises(Conflict, match="has ended"):
                    await runtime.post(session_id, "hi")
            else:
                await runtime.post(session_id, "hi")
                await runtime.settled(session_id)
            assert (await runtime.session(session_id)).ended is ends
        events = stored(tmp_path, session_id)
        assert (events[-1] == ev.SessionEnd("timeout")) is ends

    play(main())


def test_a_copy_of_a_session_that_ended_for_its_age_goes_on(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with runtime_at(tmp_path, Speaker("hello"), clock=clock) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await runtime.settled(session_id)
            await runtime.sweep()
            clock.forward(days=8)
            with pytest.raises(Conflict, match="go on from a copy: fork it at entry 4"):
                await runtime.post(session_id, "still there?")
            forked = await runtime.fork(session_id, 4)
            await runtime.post(forked, "still there?")
            session = await runtime.settled(forked)
            assert [message.content for message in session.messages] == ["hi", "hello", "still there?", "hello"]

    play(main())


# Leaving and coming back.


def test_a_session_pauses_when_its_last_follower_leaves_and_goes_on_when_somebody_comes(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        model = Speaker(calling(call("c1", "look")), "done")
        async with runtime_at(tmp_path, model, tools=[tool(gate.pass_through, "look")]) as runtime:
            session_id = await runtime.open_session(AGENT)
            watchers = [Watcher(runtime, session_id) for _ in range(2)]
            for watcher in watchers:
                await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await watchers[0].leave()
            assert (await runtime.session(session_id)).status == "active"
            await watchers[1].leave()
            gate.open.set()
            session = await runtime.settled(session_id)
            assert (session.status, session.owes_answer, len(model.requests)) == ("paused", True, 1)
            assert ev.StatusChange("active", "paused") in stored(tmp_path, session_id)
            assert (await runtime.sweep(), await runtime.recover()) == (None, [])
            back = Watcher(runtime, session_id)
            await back.until(lambda items: len(model.requests) == 2 and isinstance(items[-1], Settled))
            session = await runtime.settled(session_id)
            assert (session.status, session.messages[-1].content) == ("active", "done")
            assert ev.StatusChange("paused", "active") in stored(tmp_path, session_id)
            await back.leave()

    play(main())


def test_an_agent_that_goes_on_alone_does_so(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        model = Speaker(calling(call("c1", "look")), "done")
        tools = [tool(gate.pass_through, "look")]
        async with runtime_at(tmp_path, model, agent=GOING_ON, tools=tools) as runtime:
            session_id = await runtime.open_session(GOING_ON)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await watcher.leave()
            gate.open.set()
            session = await runtime.settled(session_id)
            assert (session.status, session.messages[-1].content) == ("active", "done")

    play(main())


def test_an_agent_that_goes_on_alone_stops_after_its_time(tmp_path: Path) -> None:
    async def main() -> None:
        gate, clock = Gate(), Clock()
        rules = SessionRules(on_disconnect="continue")
        agent = Agent(name="a", session=rules, limits=Limits(background_seconds=60))
        model = Speaker(calling(call("c1", "look")), "done")
        tools = [tool(gate.pass_through, "look")]
        async with runtime_at(tmp_path, model, agent=agent, tools=tools, clock=clock) as runtime:
            session_id = await runtime.open_session(agent)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await watcher.leave()
            clock.forward(seconds=61)
            gate.open.set()
            await runtime.settled(session_id)
        assert [stop.reason for stop in stops(stored(tmp_path, session_id))] == ["background"]

    play(main())


def test_a_session_that_rests_does_not_pause_when_everybody_leaves(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await watcher.leave()
            assert len(stored(tmp_path, session_id)) == 1

    play(main())


# Ending, copying, taking away.


def test_ending_a_session_stops_its_turn_and_keeps_its_files(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await runtime.end(session_id, "terminated")
            await runtime.end(session_id)
            assert gate.cancelled
            assert stored(tmp_path, session_id)[-1] == ev.SessionEnd("terminated")
            with pytest.raises(
                Conflict, match=r"has ended\. Begin a new session, or go on from a copy: fork it at entry 3"
            ):
                await runtime.post(session_id, "hello?")
            assert await runtime.cancel(session_id) is False
            assert await runtime.recover() == []

    play(main())


def test_a_copy_begins_with_the_same_entries_and_goes_its_own_way(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("one", "two", "three")) as runtime:
            session_id = await runtime.open_session(AGENT)
            for text in ("hi", "again"):
                await runtime.post(session_id, text)
                await runtime.settled(session_id)
            forked = await runtime.fork(session_id, 4)
            await runtime.post(forked, "otherwise")
            session = await runtime.settled(forked)
            assert session.forked_from == f"{session_id}@4"
            assert [message.content for message in session.messages] == ["hi", "one", "otherwise", "three"]
            with pytest.raises(NotFound, match="has no entry 99"):
                await runtime.fork(session_id, 99)
        assert said(stored(tmp_path, session_id)) == ["hi", "one", "again", "two"]

    play(main())


def test_a_session_that_was_taken_away_is_gone_even_in_the_middle_of_a_turn(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await runtime.delete(session_id)
            assert (gate.cancelled, list(tmp_path.iterdir()), runtime.store.ids()) == (True, [], [])
            with pytest.raises(NotFound):
                await runtime.post(session_id, "hi")
            with pytest.raises(NotFound):
                await runtime.delete(session_id)

    play(main())


# Closing and carrying on.


def test_a_turn_that_was_cut_off_by_closing_is_carried_on(tmp_path: Path) -> None:
    async def main() -> None:
        gate, model = Gate(), Speaker("hello")
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
        assert gate.cancelled
        async with runtime_at(tmp_path, model) as runtime:
            assert await runtime.recover() == [session_id]
            await runtime.settled(session_id)
            assert await runtime.recover() == []
        assert said(stored(tmp_path, session_id)) == ["hi", "hello"]
        assert len(model.requests) == 1

    play(main())


def test_closing_before_a_turn_has_begun_leaves_it_to_be_carried_on(tmp_path: Path) -> None:
    async def main() -> None:
        model = Speaker("hello")
        async with runtime_at(tmp_path, model) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
        assert (model.requests, model.closed) == ([], 1)
        async with runtime_at(tmp_path, model) as runtime:
            assert await runtime.recover([session_id]) == [session_id]
            assert (await runtime.settled(session_id)).messages[-1].content == "hello"

    play(main())


@pytest.mark.parametrize(
    ("effect", "runs", "outcome"), [("pure", 2, "ok"), ("repeatable", 2, "ok"), ("unknown", 1, "interrupted")]
)
def test_a_tool_that_was_cut_off_by_closing(tmp_path: Path, effect: Any, runs: int, outcome: str) -> None:
    async def main() -> None:
        gate, count = Gate(), 0

        async def look() -> None:
            nonlocal count
            count += 1
            if count == 1:
                await gate.pass_through()

        model, tools = Speaker(calling(call("c1", "look")), "ok"), [tool(look, "look", effect=effect)]
        async with runtime_at(tmp_path, model, tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
        async with runtime_at(tmp_path, model, tools=tools) as runtime:
            assert await runtime.recover() == [session_id]
            await runtime.settled(session_id)
        events = stored(tmp_path, session_id)
        assert (count, results(events), said(events)) == (runs, {"c1": outcome}, ["hi", "", "ok"])

    play(main())


def test_a_tool_that_may_run_only_once_is_asked_about_after_it_was_cut_off(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        model, tools = Speaker(calling(call("c1", "pay")), "ok"), [tool(gate.pass_through, "pay", effect="once")]
        async with runtime_at(tmp_path, model, tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
        async with runtime_at(tmp_path, model, tools=tools) as runtime:
            assert await runtime.recover() == [session_id]
            session = await runtime.settled(session_id)
            assert session.open_calls["c1"].command == "pay {} was cut off; it may have happened. Run it again?"
            await decide(runtime, session_id, "c1", "deny")
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "interrupted"}

    play(main())


def test_recovering_carries_on_what_is_undone_and_leaves_the_rest_alone(tmp_path: Path) -> None:
    async def main() -> None:
        gates = [Gate(), Gate()]
        async with runtime_at(tmp_path, Speaker("fine", *gates)) as runtime:
            resting, undone, broken = [await runtime.open_session(AGENT) for _ in range(3)]
            await runtime.post(resting, "hi")
            await runtime.settled(resting)
            for session_id, gate in zip((undone, broken), gates, strict=True):
                await runtime.post(session_id, "hi")
                await gate.reached.wait()
        log = tmp_path / broken / "events.jsonl"
        log.write_bytes(log.read_bytes().replace(b'"content":"hi"', b'"content":"ho"'))
        (tmp_path / broken / "state.yaml").unlink(missing_ok=True)
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            assert await runtime.recover() == [undone]
            assert list(runtime.problems) == [broken]
            assert "events.jsonl:2: " in str(runtime.problems[broken])
            assert [live.id for live in runtime._lives.all()] == [undone]
            assert (await runtime.settled(undone)).messages[-1].content == "hello"

    play(main())


def test_a_paused_session_goes_on_only_if_it_is_named(tmp_path: Path) -> None:
    async def main() -> None:
        gate = Gate()
        async with runtime_at(tmp_path, Speaker(gate)) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            await watcher.leave()
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            assert await runtime.recover() == []
            assert await runtime.recover([session_id]) == [session_id]
            assert (await runtime.settled(session_id)).messages[-1].content == "hello"

    play(main())


def test_every_model_is_closed_once_also_those_of_an_agent_that_changed(tmp_path: Path) -> None:
    async def main() -> None:
        opened: list[Speaker] = []

        async def models(agent: Agent) -> Sequence[Speaker]:
            opened.append(Speaker(f"I am version {agent.version}"))
            return opened[-1:]

        current = Agent(name="a", version="1")
        async with Runtime(tmp_path, agents=lambda name, source: current, models=models) as runtime:
            for version in ("1", "2"):
                current = Agent(name="a", version=version)
                session_id = await runtime.open_session(current)
                await runtime.post(session_id, "hi")
                session = await runtime.settled(session_id)
                assert session.messages[-1].content == f"I am version {version}"
        assert [model.closed for model in opened] == [1, 1]

    play(main())


# When something breaks.


class Full:
    """A disk that can be full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full, append = False, disk.append

        def appending(path: str, data: bytes, size: int, durable: bool = True) -> int:
            if self.full:
                raise OSError(28, "No space left on device")
            return append(path, data, size, durable)

        monkeypatch.setattr(disk, "append", appending)


def test_a_disk_that_refuses_is_heard_by_everybody_and_the_session_opens_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        space = Full(monkeypatch)
        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until_seq(1)
            space.full = True
            with pytest.raises(StorageFailed, match="No space left on device"):
                await runtime.post(session_id, "lost")
            with pytest.raises(StorageFailed, match="No space left on device"):
                await watcher.ended()
            space.full = False
            assert await runtime.post(session_id, "hi") == 2
            await runtime.settled(session_id)
        assert said(stored(tmp_path, session_id)) == ["hi", "hello"]

    play(main())


def test_a_disk_that_refuses_in_the_middle_of_a_turn_stops_it_and_it_can_be_carried_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        space, gate, ran = Full(monkeypatch), Gate(calling(call("c1", "look"))), []

        async def look() -> None:
            ran.append(1)

        async with runtime_at(
            tmp_path, Speaker(gate, calling(call("c1", "look")), "ok"), tools=[tool(look, "look")]
        ) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hi")
            await gate.reached.wait()
            space.full = True
            settling = asyncio.create_task(runtime.settled(session_id))
            await asyncio.sleep(0)
            gate.open.set()
            with pytest.raises(StorageFailed):
                await settling
            assert ran == []
            space.full = False
            assert await runtime.recover() == [session_id]
            await runtime.settled(session_id)
        assert (ran, said(stored(tmp_path, session_id))) == ([1], ["hi", "", "ok"])

    play(main())


def test_a_defect_stops_one_session_and_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        def build(*_: object) -> None:
            raise ZeroDivisionError("oops")

        async with runtime_at(tmp_path, Speaker("hello")) as runtime:
            one, other = [await runtime.open_session(AGENT) for _ in range(2)]
            with monkeypatch.context() as broken:
                broken.setattr("duragent.engine.build", build)
                settling = await _posted(runtime, one)
                with pytest.raises(DuragentError, match=f"{one} could not go on: ZeroDivisionError: oops"):
                    await settling
            await runtime.post(other, "hi")
            assert (await runtime.settled(other)).messages[-1].content == "hello"
            assert await runtime.recover() == [one]
            assert (await runtime.settled(one)).messages[-1].content == "hello"

    play(main())


async def _posted(runtime: Runtime, session_id: str) -> Any:
    await runtime.post(session_id, "hi")
    return runtime.settled(session_id)


def test_when_a_model_breaks_the_session_goes_on_with_the_next_message(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(asyncio.CancelledError(), ValueError("x"), "hello")) as runtime:
            session_id = await runtime.open_session(AGENT)
            for text in ("one", "two", "three"):
                await runtime.post(session_id, text)
                session = await runtime.settled(session_id)
            assert session.messages[-1].content == "hello"
        assert [stop.reason for stop in stops(stored(tmp_path, session_id))] == ["model_failed"] * 2

    play(main())


def test_a_session_that_is_opened_again_and_again_is_compacted_too(tmp_path: Path) -> None:
    async def main() -> None:
        session_id = ""
        for _ in range(30):
            async with runtime_at(tmp_path, Speaker("ok"), compaction="discard", snapshot_every=20) as runtime:
                session_id = session_id or await runtime.open_session(AGENT)
                await runtime.post(session_id, "hi")
                await runtime.settled(session_id)
        lines = (tmp_path / session_id / "events.jsonl").read_bytes().splitlines()
        assert 2 * len(lines) < 1 + 30 * 3
        async with runtime_at(tmp_path, Speaker("ok")) as runtime:
            assert len((await runtime.session(session_id)).messages) == 60

    play(main())


def test_compaction_never_throws_away_what_only_a_newer_version_understands(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker("ok")) as runtime:
            session_id = await runtime.open_session(AGENT)
        strange = b'{"seq":2,"timestamp":"2026-02-18T10:00:00.000Z","type":"from_the_future","word":"keep me"}'
        with (tmp_path / session_id / "events.jsonl").open("ab") as log:
            log.write(strange + b"\n")
        async with runtime_at(tmp_path, Speaker("ok"), compaction="discard", snapshot_every=5) as runtime:
            for _ in range(4):
                await runtime.post(session_id, "hi")
                await runtime.settled(session_id)
        assert strange not in (tmp_path / session_id / "events.jsonl").read_bytes()
        assert (tmp_path / session_id / "events.archive.jsonl").read_bytes() == strange + b"\n"
        async with runtime_at(tmp_path, Speaker("ok")) as runtime:
            assert len((await runtime.session(session_id)).messages) == 8

    play(main())


def test_a_session_that_waits_for_a_person_does_not_grow_too_old(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()

        async def act() -> str:
            return "acted"

        tools = [tool(act, ask=True)]
        async with runtime_at(
            tmp_path, Speaker(calling(call("c1", "act")), "done"), tools=tools, clock=clock
        ) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            await runtime.sweep()
            clock.forward(hours=1000)
            assert (await runtime.settled(session_id)).waiting == ("c1",)

    play(main())
