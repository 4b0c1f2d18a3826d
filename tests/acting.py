"""Small models, tools and logs for tests: they do what a test says, when it says so, without sleeping."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from duragent.agent import Agent
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.core.session import Session
from duragent.engine import Actor, Work
from duragent.errors import StorageFailed
from duragent.models import Answer, Listener
from duragent.models.prices import Price
from duragent.runtime import Delta, Item, Runtime, Settings
from duragent.store import Compaction
from duragent.store.files import FileStore
from duragent.tools import Tool, build_toolbox, function_tool

AGENT = Agent(name="a")
NOW = datetime(2026, 2, 18, 10, 0, tzinfo=UTC)
Spoken = str | Answer | BaseException | Callable[[Request, Listener], Awaitable[Any]]


def call(call_id: str, tool: str, **arguments: Any) -> ev.ToolCall:
    return ev.ToolCall(call_id, tool, arguments)


def calling(*calls: ev.ToolCall, text: str = "") -> Answer:
    return Answer(text, calls)


class Speaker:
    """A model that says these things, one after another; the last one again and again."""

    def __init__(self, *spoken: Spoken, name: str = "test/speaker") -> None:
        self.name = name
        self.requests: list[list[tuple[str, str]]] = []
        self.closed = 0
        self._spoken = list(spoken)

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        self.requests.append([(message.role, message.content) for message in request.messages])
        said = self._spoken.pop(0) if len(self._spoken) > 1 else self._spoken[0]
        if isinstance(said, BaseException):
            raise said
        if isinstance(said, str):
            listener.delta(said)
            return Answer(said)
        if isinstance(said, Answer):
            return said
        answered: Answer = await said(request, listener)
        return answered

    async def close(self) -> None:
        self.closed += 1


class Gate:
    """A place where something stops until the test lets it go on. As something spoken, it says `before`, then waits."""

    def __init__(self, answer: Answer | str = "done", before: str = "") -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        self.answer = Answer(answer) if isinstance(answer, str) else answer
        self.before = before
        self.cancelled = False

    async def pass_through(self) -> None:
        self.reached.set()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise

    async def __call__(self, request: Request, listener: Listener) -> Answer:
        for text in self.before:
            listener.delta(text)
        await self.pass_through()
        return self.answer


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self, now: datetime = NOW) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **much: float) -> None:
        self.now += timedelta(**much)


class MemoryLog:
    """A log that keeps its lines in memory and knows how far it was flushed. It can be told to refuse."""

    session_id = "session_1"
    covered = 0

    def __init__(self) -> None:
        self.seq = self.durable = 0
        self.entries: list[ev.Entry] = []
        self.refuses = False

    def stage(self, event: ev.Event, now: datetime, *, lazy: bool = False) -> ev.Entry:
        if self.refuses:
            raise StorageFailed("the disk is full")
        self.seq += 1
        entry, line = ev.seal(self.seq, now.isoformat(), event)
        self.entries.append(ev.parse_entry(line))
        return entry

    def kick(self) -> None: ...

    async def flush(self) -> None:
        if self.refuses:
            raise StorageFailed("the disk is full")
        self.durable = self.seq

    async def snapshot(self, session: Session, compaction: Compaction | None = None) -> None: ...

    async def release(self) -> None: ...

    @property
    def events(self) -> list[ev.Event]:
        return [entry.event for entry in self.entries]


class Ear:
    """A listener that remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def delta(self, text: str) -> None:
        self.heard.append(text)

    def restart(self, why: str) -> None:
        self.heard.append(f"<{why}>")

    def output(self, call_id: str, text: str) -> None:
        self.heard.append(f"{call_id}: {text}")


async def decide(runtime: Runtime, session_id: str, call_id: str, decision: ev.Decision) -> int:
    """Decide as somebody who has seen what is asked."""
    call = (await runtime.session(session_id)).open_calls.get(call_id)
    return await runtime.decide(session_id, call_id, decision, digest=call.digest if call else None)


def work_of(
    agent: Agent,
    *models: Speaker,
    tools: Sequence[Tool] = (),
    price: Callable[[str], Price | None] = lambda model: None,
    log: MemoryLog | None = None,
) -> Work:
    """An agent at work in memory, with a message that waits for its answer."""
    toolbox = build_toolbox({tool.spec.name: tool for tool in tools})
    actor = Actor(agent, models, toolbox, price, {})
    work = Work("session_1", actor, Session(), log or MemoryLog(), Ear(), Clock(), lambda: None)
    work.record(ev.SessionStart(agent.name, version=ev.LOG_VERSION))
    work.record(ev.UserMessage("go"))
    return work


def tool(run: Callable[..., Awaitable[Any]], name: str = "act", **said: Any) -> Tool:
    return function_tool(run, name=name, **said)


class Watcher:
    """Somebody who follows a session in the background and keeps what they get."""

    def __init__(self, runtime: Runtime, session_id: str, after: int = 0) -> None:
        self.items: list[Item] = []
        self._news = asyncio.Event()
        self._task = asyncio.create_task(self._follow(runtime, session_id, after))

    async def _follow(self, runtime: Runtime, session_id: str, after: int) -> None:
        try:
            async with aclosing(runtime.follow(session_id, after)) as items:
                async for item in items:
                    self.items.append(item)
                    self._news.set()
        finally:
            self._news.set()

    async def until(self, enough: Callable[[list[Item]], bool]) -> None:
        """Wait until there is enough. What ended the following is raised."""
        while not enough(self.items):
            if self._task.done():
                self._task.result()
                raise AssertionError(f"following ended with {self.items}")
            self._news.clear()
            await self._news.wait()

    async def until_text(self, text: str) -> None:
        await self.until(lambda items: self.text == text)

    async def until_seq(self, seq: int) -> None:
        await self.until(lambda items: bool(self.seqs) and self.seqs[-1] >= seq)

    async def ended(self) -> None:
        await self._task

    async def leave(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    @property
    def text(self) -> str:
        return "".join(item.text for item in self.items if isinstance(item, Delta))

    @property
    def seqs(self) -> list[int]:
        return [item.seq for item in self.items if isinstance(item, ev.Entry)]

    @property
    def events(self) -> list[ev.Event]:
        return [item.event for item in self.items if isinstance(item, ev.Entry)]


def play(main: Coroutine[Any, Any, Any]) -> Any:
    """Run a test in a loop of its own. One that would hang fails instead."""

    async def guarded() -> Any:
        async with asyncio.timeout(60):
            return await main

    return asyncio.run(guarded())


def runtime_at(
    folder: Path,
    *models: Speaker,
    agent: Agent = AGENT,
    tools: Sequence[Tool] = (),
    clock: Clock | None = None,
    **settings: Any,
) -> Runtime:
    return Runtime(
        folder,
        agents=[agent],
        models=models,
        tools={each.spec.name: each for each in tools},
        settings=Settings(**{"compaction": "disabled", **settings}),
        clock=clock or Clock(),
    )


def stored(folder: Path, session_id: str) -> list[ev.Event]:
    """What is on disk, read by somebody else."""
    return [entry.event for entry in FileStore(folder).entries(session_id)]


def said(events: Sequence[ev.Event]) -> list[str]:
    return [event.content for event in events if isinstance(event, ev.UserMessage | ev.AssistantResponse)]


def stops(events: Sequence[ev.Event]) -> list[ev.TurnStopped]:
    return [event for event in events if isinstance(event, ev.TurnStopped)]


def results(events: Sequence[ev.Event]) -> dict[str, str]:
    return {event.call_id: event.outcome for event in events if isinstance(event, ev.ToolResult)}


async def nothing() -> None: ...
