"""Following a session to the end of its turn: whoever looks on sees every event once, and the words as they come.

A `View` is told what happens; it decides what to show. `watching` keeps it told; `Turn` remembers what a program
wants to know when all is over. Knows no terminal and no format.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

from duragent.cli.telling import cost, has_price
from duragent.core import events as ev
from duragent.core.session import Session, Spent
from duragent.runtime import Delta, Forget, Lagged, Output, Runtime


class View(Protocol):
    """Whoever looks on. All are plain calls: they must be quick."""

    def entry(self, entry: ev.Entry) -> None: ...

    def delta(self, text: str) -> None: ...

    def forget(self, why: str) -> None:
        """The stream broke: the words of this answer so far do not count."""

    def output(self, call_id: str, text: str) -> None:
        """A tool prints something while it works."""


class Turn:
    """What came of a turn, gathered while it is followed."""

    def __init__(self, prices: Mapping[str, Any]) -> None:
        self.prices = prices
        self.answer = ""
        self.model = ""
        self.empty = False  # the last answer said nothing
        self.stopped: ev.TurnStopped | None = None
        self.prompt_tokens = self.completion_tokens = self.cached_tokens = 0
        self.cost_usd = 0.0
        self.events = 0

    @property
    def cost(self) -> float | None:
        """US dollars; None where something was used that has no known price."""
        used = Spent(self.prompt_tokens, self.completion_tokens, usd=self.cost_usd)
        return cost(used, priced=has_price(self.model, self.prices))

    def take(self, entry: ev.Entry) -> None:
        self.events += 1
        event = entry.event
        if isinstance(event, ev.AssistantResponse):
            self.answer = event.content
            self.empty = not event.content.strip() and not event.tool_calls
            self.stopped = None
            self.cost_usd += event.cost_usd or 0.0
            if event.usage is not None:
                self.prompt_tokens += event.usage.prompt_tokens
                self.completion_tokens += event.usage.completion_tokens
                self.cached_tokens += event.usage.cached_tokens
        elif isinstance(event, ev.ModelCalled):
            self.model = event.model
        elif isinstance(event, ev.TurnStopped):
            self.stopped = event
        elif isinstance(event, ev.UserMessage):
            self.answer, self.stopped, self.empty = "", None, False


class Follower:
    """Tells a view everything that happens after `seen`, and knows how far it has got."""

    def __init__(self, runtime: Runtime, session_id: str, view: View, seen: int) -> None:
        self.runtime, self.session_id, self.view, self.seen = runtime, session_id, view, seen
        self.turn = Turn(runtime.settings.prices)
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        while await self._follow_once():
            pass

    async def _follow_once(self) -> bool:
        """Follow until the runtime has no more to say; True where we were too slow and must ask again."""
        async for item in self.runtime.follow(self.session_id, after=self.seen):
            if isinstance(item, Delta):
                self.view.delta(item.text)
            elif isinstance(item, Forget):
                self.view.forget(item.why)
            elif isinstance(item, Output):
                self.view.output(item.call_id, item.text)
            elif isinstance(item, Lagged):
                self.view.forget("this terminal was too slow")  # what is being said comes again from its beginning
                return True
            elif isinstance(item, ev.Entry) and item.seq > self.seen:
                self.turn.take(item)
                self.view.entry(item)
                self.seen = item.seq
                self._moved.set()
        return False

    async def settled(self) -> Session:
        """Wait until nothing runs any more and everything has been shown."""
        session = await self.runtime.settled(self.session_id)
        await self._caught_up(session.seq)
        return session

    async def _caught_up(self, seq: int) -> None:
        while self.seen < seq and self._task is not None:
            self._moved.clear()
            moved = asyncio.ensure_future(self._moved.wait())
            await asyncio.wait((moved, self._task), return_when=asyncio.FIRST_COMPLETED)
            moved.cancel()
            if self._task.done():
                self._task.result()
                return

    def start(self) -> None:
        if self._task is not None and not self._task.done():
            return
        self._task = asyncio.ensure_future(self.follow())
        self._task.add_done_callback(_fetched)

    async def stop(self) -> None:
        """Look away. What went wrong while looking was told to whoever waited for it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})


def _fetched(task: asyncio.Task[None]) -> None:
    """What went wrong while looking is told by whoever waits for the session; nobody else needs to hear of it."""
    if not task.cancelled():
        task.exception()


@asynccontextmanager
async def watching(runtime: Runtime, session_id: str, view: View, after: int) -> AsyncIterator[Follower]:
    """Keep a view told about what happens after `after`, for as long as this lasts."""
    follower = Follower(runtime, session_id, view, after)
    follower.start()
    try:
        yield follower
    finally:
        await follower.stop()


class Interrupts:
    """How often Ctrl-C was pressed. The first one cancels the turn, in writing; a second one does not wait."""

    def __init__(self) -> None:
        self.count = 0


@contextmanager
def cancelling(runtime: Runtime, session_id: str) -> Iterator[Interrupts]:
    """While this lasts, Ctrl-C cancels the running turn instead of ending the program."""
    loop, pressed = asyncio.get_running_loop(), Interrupts()
    me, tasks = asyncio.current_task(), set[asyncio.Task[bool]]()

    def cancelled(task: asyncio.Task[bool]) -> None:
        tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for the session hears of it

    def cancel() -> None:
        pressed.count += 1
        if pressed.count > 2 and me is not None:
            me.cancel()
            return
        task = asyncio.ensure_future(runtime.cancel(session_id))
        tasks.add(task)
        task.add_done_callback(cancelled)

    loop.add_signal_handler(signal.SIGINT, cancel)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)
