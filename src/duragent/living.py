"""The sessions that are in memory: how they come in from disk and how they leave again.

Knows stores and time, not what a session does while it is here; that is `runtime.py`.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from msgspec import Struct

from duragent.core import events as ev
from duragent.core.session import Session, too_old
from duragent.core.turn import Rest, Wait
from duragent.engine import Actor, Work
from duragent.errors import Conflict, DuragentError, StorageFailed
from duragent.following import Delta, Follower, Forget, Item, Output
from duragent.store import Compaction, SessionLog, Store

Moved = TypeVar("Moved")


class Settings(Struct, frozen=True):
    """What holds for all sessions of a runtime. An agent's own word about ttl and compaction wins."""

    ttl_hours: int = 168
    compaction: Compaction = "discard"
    prices: Mapping[str, Any] = {}
    known: Mapping[str, str] = {}  # values of prompt variables: user.name, user.timezone, duragent.data_dir
    idle_seconds: float = 60.0
    snapshot_every: int = 200
    follower_buffer: int = 8192
    address: str = ""


class Live:
    """One session in memory. It is what a model speaks to."""

    __slots__ = (
        *("cancelling", "failure", "followers", "held", "id", "left_at", "log", "until"),
        *("partial", "published", "speaking", "task", "touched", "wake", "work"),
    )

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.log: SessionLog
        self.work: Work
        self.followers: list[Follower] = []
        self.held: list[tuple[int, Item]] = []  # what was said while the entry before it was not on disk yet
        self.task: asyncio.Task[None] | None = None
        self.wake: asyncio.Event | None = None
        self.cancelling = False
        self.failure: DuragentError | None = None
        self.partial: list[str] = []  # what a model has said of an answer,
        self.speaking = 0  # and how many answers there were before it
        self.published = 0
        self.until = 0  # the newest message when the turn was cancelled
        self.touched = 0.0
        self.left_at: datetime | None = None

    @property
    def session(self) -> Session:
        return self.work.session

    def publish(self, entries: Sequence[ev.Entry]) -> None:
        """Tell the followers what is on disk now."""
        self.published = entries[-1].seq
        held, at = self.held, 0
        for entry in entries:
            self.tell(entry)
            while at < len(held) and held[at][0] <= entry.seq:
                self.tell(held[at][1])
                at += 1
        if at:
            del held[:at]

    def tell(self, item: Item) -> None:
        for follower in self.followers:
            follower.put(item)

    @property
    def spoken(self) -> str:
        """What the model has said of the answer that is not finished."""
        return "".join(self.partial) if self.speaking == self.session.steps else ""

    def delta(self, text: str) -> None:
        if self.task is None or not isinstance(text, str):
            return  # a model that speaks when nobody asked it, or no words
        if self.speaking != self.session.steps:
            self.speaking = self.session.steps
            self.partial.clear()
        self.partial.append(text)
        if self.followers:
            self._say(Delta(text))

    def output(self, call_id: str, text: str) -> None:
        """A tool prints something."""
        if self.followers and self.task is not None and text:
            self._say(Output(call_id, text))

    def restart(self, why: str) -> None:
        if self.spoken:
            self._say(Forget(why))
        self.partial.clear()

    def _say(self, item: Item) -> None:
        """Tell the followers, after what they have not heard of yet."""
        if self.published < self.work.due:
            self.held.append((self.work.due, item))
        else:
            self.tell(item)

    def alone_since(self) -> datetime | None:
        return None if self.followers else self.left_at


class Lives:
    """Every session that this process holds, by id."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        clock: Callable[[], datetime],
        cast: Callable[[Session], Awaitable[Actor]],
    ) -> None:
        self._store, self._settings, self._clock, self._cast = store, settings, clock, cast
        self._here: dict[str, Live] = {}
        self._moving: dict[str, asyncio.Task[Any]] = {}  # sessions that are just being opened or let go
        self._reaper: asyncio.Task[None] | None = None
        self._closing = False
        self.rouse: Callable[[Live], None] = lambda live: None  # lets a session go on that has something to do

    def holds(self, live: Live) -> bool:
        """Whether a session may still begin something: it is here, and will be."""
        return not self._closing and self._here.get(live.id) is live

    def stop_opening(self) -> None:
        """From now on nothing is opened and nothing begun: the runtime closes."""
        self._closing = True

    def get(self, session_id: str) -> Live | None:
        return self._here.get(session_id)

    def all(self) -> list[Live]:
        return list(self._here.values())

    async def create(self, actor: Actor, start: ev.SessionStart) -> Live:
        live = Live(new_id(self._clock()))
        live.left_at = self._clock()
        return await self._moved(live.id, self._begin(live, actor, start))

    async def _begin(self, live: Live, actor: Actor, start: ev.SessionStart) -> Live:
        live.log = await asyncio.to_thread(self._store.create, live.id, live.publish)
        live.work = Work(live.id, actor, Session(), live.log, live, self._clock, live.alone_since)
        try:
            live.work.record(start)
            await live.log.flush()
        except BaseException:
            await live.log.release()
            raise
        return self._enter(live)

    async def open(self, session_id: str) -> Live:
        """The session as it is in memory, or read from disk."""
        while True:
            if self._closing:
                raise Conflict(f"{session_id} cannot be used any more: the runtime is closing.")
            if (moving := self._moving.get(session_id)) is not None:
                await asyncio.wait({moving})
            elif (live := self._here.get(session_id)) is not None:
                live.touched = asyncio.get_running_loop().time()
                return live
            else:
                await self._moved(session_id, self._load(session_id))

    async def _moved(self, session_id: str, work: Coroutine[Any, Any, Moved]) -> Moved:
        """Do something to a session's place, with nobody else opening it meanwhile. It is done to its end even when
        whoever asked for it goes away: a lock taken half-way would be held by nobody."""
        task: asyncio.Task[Moved] = asyncio.get_running_loop().create_task(work)
        self._moving[session_id] = task
        task.add_done_callback(lambda _: self._arrived(session_id, task))
        await asyncio.wait({task})
        return task.result()

    def _arrived(self, session_id: str, task: asyncio.Task[Any]) -> None:
        self._moving.pop(session_id, None)
        if not task.cancelled():
            task.exception()  # whoever waits raises it; when nobody does any more, it concerns nobody

    async def _load(self, session_id: str) -> Live:
        live = Live(session_id)
        live.left_at = self._clock()
        live.log, stored = await asyncio.to_thread(self._store.open, session_id, live.publish)
        try:
            actor = await self._cast(stored.session)
            live.work = Work(live.id, actor, stored.session, live.log, live, self._clock, live.alone_since)
            live.published = stored.session.seq
            expired = self.too_old(stored.session, actor.agent.session.ttl_hours)
            for note in stored.notes:
                live.work.record(ev.ErrorNoted("mended", note))
            for call_id in _lost(stored.session):
                text = "The runtime stopped while this tool may have run. Its outcome is unknown."
                live.work.record(ev.ToolResult(call_id, ev.ToolAnswer(False, text), "interrupted"))
            if expired:
                live.work.record(ev.SessionEnd("timeout"))
            await live.log.flush()
        except BaseException:
            await live.log.release()
            raise
        return self._enter(live)

    async def renew(self, session_id: str) -> None:
        """Let a copy of an old session begin now, so that it does not end for the age of what it was copied from."""
        log, stored = await asyncio.to_thread(self._store.open, session_id, lambda entries: None)
        try:
            log.stage(ev.StatusChange(stored.session.status, "active"), self._clock())
            await log.flush()
        finally:
            await log.release()

    def _enter(self, live: Live) -> Live:
        loop = asyncio.get_running_loop()
        self._here[live.id] = live
        live.touched = loop.time()
        if self._reaper is None:
            self._reaper = loop.create_task(self._reap())
        return live

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._settings.idle_seconds / 2)
            for live in self.all():
                if live.task is None:
                    self.rouse(live)  # a question that nobody answered in time
            await self.sweep(self._settings.idle_seconds)

    async def sweep(self, idle_seconds: float) -> None:
        """Let every session leave memory that nobody follows and that has rested for so long."""
        now = asyncio.get_running_loop().time()
        for live in self.all():
            resting = live.task is None and not live.followers and now - live.touched >= idle_seconds
            resting = resting and live.log.quiet and isinstance(live.work.next(), Rest | Wait)
            if resting and live.id in self._here:
                with suppress(StorageFailed):
                    await self.release(live)

    async def release(self, live: Live, *, snapshot: bool = True) -> None:
        """Let go of a session: another process may take it. Whoever follows it hears no more."""
        for follower in live.followers:
            follower.end()
        if self._here.pop(live.id, None) is not None:
            await self._moved(live.id, self._let_go(live, snapshot))

    async def _let_go(self, live: Live, snapshot: bool) -> None:
        try:
            if snapshot and live.failure is None and (live.session.seq > live.log.covered or self.grown(live)):
                await self.keep(live)
        finally:
            await live.log.release()

    def grown(self, live: Live) -> bool:
        """Whether enough has happened for a snapshot that shortens the log: rarer the longer a session is."""
        old = live.log.covered if self._compaction(live) == "disabled" else live.log.first
        return live.session.seq - old >= max(self._settings.snapshot_every, live.session.seq // 3)

    async def keep(self, live: Live) -> None:
        """Write a snapshot, and shorten the log if it has grown."""
        await live.log.snapshot(live.session, self._compaction(live) if self.grown(live) else None)

    def _compaction(self, live: Live) -> Compaction:
        return live.work.actor.agent.session.compaction or self._settings.compaction

    async def discard(self, live: Live, error: DuragentError) -> None:
        """The disk refused: this state is over, and the next message opens the session from what is on disk."""
        live.failure = error
        await self.release(live)

    async def close(self) -> None:
        self.stop_opening()
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.wait({self._reaper})
            self._reaper = None
        while self._moving:
            await asyncio.wait(set(self._moving.values()))
        for live in self.all():
            with suppress(StorageFailed):
                await self.release(live)

    def too_old(self, session: Session, ttl_hours: int | None = None) -> bool:
        """Whether a session has been idle for longer than it may be."""
        return too_old(session, self._settings.ttl_hours if ttl_hours is None else ttl_hours, self._clock())


def _lost(session: Session) -> list[str]:
    """Calls of a log that Duragent wrote: it does not say when a tool starts, so any that lacks its result may have
    run. Once a model was called here, the log is ours and says it."""
    if session.version or session.called_seq:
        return []
    return [call_id for call_id, call in session.open_calls.items() if call.stage in ("new", "approved")]


_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_id(now: datetime) -> str:
    """`session_` and a ULID: 48 bits of time, 80 of chance, so that ids sort by when they began."""
    number = (int(now.timestamp() * 1000) & (1 << 48) - 1) << 80 | secrets.randbits(80)
    return "session_" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
