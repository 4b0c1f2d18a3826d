"""The workloads of the table with our own runtime: real files, every acknowledged word on disk, the real OpenAI adapter.

`python -m bench.ours WORKLOAD '{"url": …}'` is one fresh process and prints its figures as JSON (see `measure.py`). Each
function does what its namesake in `floor.py` does, and checks that it did.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bench.fake_model import DELTA_TEXT, DELTAS, PLAIN_TEXT, ROUNDS, TOOL
from bench.measure import (
    PROMPT,
    TOOL_TEXT,
    Figures,
    Options,
    Turn,
    best_cpu,
    cpu_of_turns,
    folder_size,
    resident,
    wall_of,
    worker,
)

from duragent.agent import Agent, ContextRules, ModelChoice, ModelRef, PromptPart, SessionRules
from duragent.core.events import AssistantResponse, Entry
from duragent.core.session import Session
from duragent.models.http import Transport
from duragent.models.openai import OpenAIModel
from duragent.runtime import Delta, Lagged, Runtime, Settings

WHOLE = 1_000_000_000
"""A history budget that nothing reaches."""


async def count(n: int) -> str:
    """Count one more."""
    return TOOL_TEXT


def agent(whole: bool = False) -> Agent:
    context = ContextRules(max_history_tokens=WHOLE) if whole else ContextRules()
    return Agent(
        name="bench",
        model=ModelChoice((ModelRef("openai", "fake"),)),
        prompt=(PromptPart("system_prompt", "You are brief."),),
        session=SessionRules(context=context),
    )


@asynccontextmanager
async def runtime(options: Options, tools: bool = False, **settings: Any) -> AsyncIterator[Runtime]:
    transport = Transport()
    model = OpenAIModel("fake", base_url=f"{options.url}/v1", key="key", transport=transport)
    offered = {TOOL: count} if tools else {}
    async with Runtime(
        options.folder,
        agents=lambda name, source: agent(options.whole),
        models=[model],
        tools=offered,
        settings=Settings(**settings),
    ) as opened:
        yield opened
    await transport.close()


async def take(opened: Runtime, session_id: str, prompt: str = PROMPT) -> Session:
    """One turn, from the message to the session at rest."""
    await opened.post(session_id, prompt)
    session = await opened.settled(session_id)
    assert session.messages[-1].content == PLAIN_TEXT and not session.owes_answer, session
    return session


async def _turns(options: Options, tools: bool) -> Figures:
    async with runtime(options, tools) as opened:
        ids: list[str] = []

        async def conversation(name: str) -> Turn:
            session_id = await opened.open_session(agent())
            ids.append(session_id)
            return lambda: take(opened, session_id)

        cpu = await best_cpu(conversation, options)
        session = await opened.session(ids[-1])
        calls = sum(len(message.calls) for message in session.messages)
        assert calls == (ROUNDS * options.turns if tools else 0), f"{calls} calls"
    logs = [(options.folder / each / "events.jsonl").stat().st_size for each in ids]
    turns = options.turns * len(ids)
    return {"cpu": cpu, "bytes": sum(logs) / turns, "folder_bytes": folder_size(options.folder) / turns}


async def plain(options: Options) -> Figures:
    return await _turns(options, tools=False)


async def tools(options: Options) -> Figures:
    return await _turns(options, tools=True)


async def concurrent(options: Options) -> Figures:
    async with runtime(options) as opened:

        async def conversation(session_id: str) -> None:
            for _ in range(options.turns):
                await take(opened, session_id)

        async def ready(round: int) -> Turn:
            ids = [await opened.open_session(agent()) for _ in range(options.sessions)]
            return lambda: asyncio.gather(*map(conversation, ids))

        wall, cpu = await wall_of(ready, options)
    turns = options.sessions * options.turns
    return {"turns_per_second": turns / wall, "cpu": cpu / turns}


async def relay(options: Options) -> Figures:
    """From the provider's stream to somebody who follows the session; every letter must arrive, live."""
    async with runtime(options) as opened:

        async def follow(session_id: str) -> int:
            heard = 0
            async for item in opened.follow(session_id):
                if isinstance(item, Delta):
                    heard += len(item.text)
                elif isinstance(item, Entry) and isinstance(item.event, AssistantResponse):
                    assert len(item.event.content) == DELTAS * len(DELTA_TEXT)
                    return heard
                elif isinstance(item, Lagged):
                    raise AssertionError(f"the follower was left behind after {heard} letters")
            raise AssertionError("the stream ended")

        async def once() -> tuple[float, float]:
            session_id = await opened.open_session(agent())
            follower = asyncio.create_task(follow(session_id))
            await asyncio.sleep(0.01)  # until it listens
            start, used = time.perf_counter(), time.process_time()
            await opened.post(session_id, PROMPT)
            heard = await follower
            took = time.process_time() - used, time.perf_counter() - start
            assert heard == DELTAS * len(DELTA_TEXT), f"{heard} letters were heard"
            await opened.settled(session_id)
            return took

        await once()
        found = [await once() for _ in range(options.rounds)]
    cpu, wall = min(cpu for cpu, _ in found), min(wall for _, wall in found)
    return {"deltas_per_cpu_second": DELTAS / cpu, "deltas_per_second": DELTAS / wall}


async def growth(options: Options) -> Figures:
    async with runtime(options) as opened:

        async def conversation(name: str) -> Turn:
            session_id = await opened.open_session(agent(options.whole))
            return lambda: take(opened, session_id)

        return await cpu_of_turns(conversation, options)


async def memory(options: Options) -> Figures:
    """Sessions that are open and at rest, each with real turns behind it; then what they leave behind when they are idle.

    Python keeps the pages of what was freed for what comes next. So what idle sessions still hold is what a second
    lot of them adds when it has come and gone."""
    async with runtime(options, idle_seconds=3600.0) as opened:

        async def some(first: int, sessions: int) -> None:
            for number in range(first, sessions, 16):
                session_id = await opened.open_session(agent())
                for turn in range(options.turns):
                    await take(opened, session_id, f"{PROMPT} {number} {turn}")

        async def all_of(sessions: int) -> None:
            await asyncio.gather(*(some(first, sessions) for first in range(16)))

        await all_of(64)  # threads, connections and buffers that every runtime has
        await opened.sweep()
        before = resident()
        await all_of(options.sessions)
        open_now = resident()
        await opened.sweep()
        left = resident()
        await all_of(options.sessions)
        await opened.sweep()
        left_again = resident()
    each = options.sessions
    return {
        "each": (open_now - before) / each,
        "idle": max(0, left_again - left) / each,
        "pages": (left - before) / each,
    }


WORKLOADS = {
    "plain": plain,
    "tools": tools,
    "concurrent": concurrent,
    "relay": relay,
    "growth": growth,
    "memory": memory,
}

if __name__ == "__main__":
    worker(WORKLOADS)
