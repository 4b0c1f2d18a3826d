"""The process that is killed: it opens a runtime in a folder, carries on what was cut off, and takes turns until it dies.

`python -m bench.kill_worker` is the nursery: it has imported everything, and for each line on its input (`folder mode
seed`) it forks one worker, so that a start costs milliseconds and yet every worker is a process of its own. Whatever a
worker says goes to the nursery's output: `start PID` first of all, `opened SESSION` and `ack SESSION SEQ TEXT` once
something is on disk, `unreadable SESSION WHY`. The nursery adds `gone PID STATUS` once the worker is no more.
"""

import asyncio
import os
import sys
import traceback
from pathlib import Path
from random import Random

from duragent.agent import Agent, Limits
from duragent.core.context import Request
from duragent.core.events import ToolCall
from duragent.core.policy import ToolSpec
from duragent.errors import DuragentError
from duragent.models import Answer, Listener
from duragent.runtime import Runtime, Settings
from duragent.tools import Tool

EFFECTS = "effects.txt"
SESSIONS = "sessions"
AT_ONCE = 3
CALLS = 2
LONG = 60
"""A session with so many messages is left alone, and a new one takes its place."""
AGENT = Agent(name="counter", limits=Limits(on_error="skip"))


def say(*words: object) -> None:
    """One write of less than a pipe's block: it arrives whole or not at all."""
    os.write(1, (" ".join(str(word) for word in words) + "\n").encode())


class Counter:
    """A model that asks for `CALLS` calls, each with a number of its own, and then gives its answer."""

    name = "bench/counter"

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        asked = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            asked += 1
        await asyncio.sleep(0)
        listener.delta("counting")
        if asked >= CALLS:
            return Answer("Counted.")
        number = f"{os.getpid()}-{self.chance.getrandbits(60):015x}"
        tool = "count" if asked % 2 == 0 else "count_again"
        return Answer("", (ToolCall(number, tool, {"call": number}),))

    async def close(self) -> None: ...


def toolbox(folder: Path, chance: Random) -> dict[str, Tool]:
    """Two tools that leave one line each time they run. Only the second may be run again by itself."""
    file = os.open(folder / EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    async def count(arguments: dict[str, str], scene: object) -> str:
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.002)
        os.write(file, f"{arguments['call']}\n".encode())
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.002)
        return "counted"

    parameters = {"type": "object", "properties": {"call": {"type": "string"}}, "required": ["call"]}
    once = ToolSpec("count", "Counts.", parameters, "function", "unknown", unruled="allow")
    again = ToolSpec("count_again", "Counts.", parameters, "function", "repeatable", unruled="allow")
    return {"count": Tool(once, count), "count_again": Tool(again, count)}


def open_runtime(folder: Path, chance: Random) -> Runtime:
    return Runtime(
        folder / SESSIONS,
        agents=lambda name, source: AGENT,
        models=[Counter(chance)],
        tools=toolbox(folder, chance),
        settings=Settings(compaction="archive", snapshot_every=50),
    )


def known(folder: Path, newest: int = 0) -> list[str]:
    """The sessions there are, or the newest of them: their ids begin with the time. A folder whose log has no whole
    first entry was never acknowledged, and is no session."""
    names = sorted(os.listdir(folder / SESSIONS))[-newest:]
    return [name for name in names if _has_begun(folder / SESSIONS / name)]


def _has_begun(path: Path) -> bool:
    log = path / "events.jsonl"
    return (path / "state.yaml").exists() or (log.exists() and b"\n" in log.read_bytes())


async def work(folder: Path, chance: Random) -> None:
    """Recover, then talk in a few sessions at once, for ever."""
    async with open_runtime(folder, chance) as runtime:
        recent = known(folder, 3 * AT_ONCE)
        await runtime.recover(recent)
        usable = [each for each in recent if await readable(runtime, each)]
        await asyncio.gather(*(talk(runtime, chance, usable[-AT_ONCE:], number) for number in range(AT_ONCE)))


async def begin(runtime: Runtime) -> str:
    session_id = await runtime.open_session(AGENT)
    say("opened", session_id)
    return session_id


async def talk(runtime: Runtime, chance: Random, ids: list[str], number: int) -> None:
    session_id = ids[number] if number < len(ids) else await begin(runtime)
    while True:
        if len((await runtime.session(session_id)).messages) > LONG:
            session_id = await begin(runtime)
        text = f"message-{os.getpid()}-{chance.getrandbits(60):015x}"
        seq = await runtime.post(session_id, text)
        say("ack", session_id, seq, text)
        if chance.random() < 0.8:  # else one more arrives while the turn runs
            await runtime.settled(session_id)


async def readable(runtime: Runtime, session_id: str) -> bool:
    try:
        await runtime.session(session_id)
    except DuragentError as error:
        say("unreadable", session_id, str(error).replace("\n", " ")[:300])
        return False
    return True


async def finish(folder: Path, chance: Random) -> None:
    """Nobody kills this one: every session is opened and carried to its end."""
    async with open_runtime(folder, chance) as runtime:
        for session_id in known(folder):
            if await readable(runtime, session_id):
                await runtime.recover([session_id])
                session = await runtime.settled(session_id)
                if session.owes_answer or session.open_calls:
                    say("unfinished", session_id)


def live(folder: str, mode: str, seed: str) -> None:
    say("start", os.getpid())
    chance = Random(seed)
    asyncio.run((finish if mode == "finish" else work)(Path(folder), chance))


def nursery() -> None:
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if not pid:
            status = 1
            try:
                os.close(0)
                live(*line.split())
                status = 0
            except BaseException:  # noqa: BLE001 - the child must never go on as a second nursery
                traceback.print_exc()
            finally:
                os._exit(status)
        _, ended = os.waitpid(pid, 0)
        say("gone", pid, os.waitstatus_to_exitcode(ended))


if __name__ == "__main__":
    nursery()
