"""What a follower of a session gets, and the buffer between the two.

A session never waits for who listens: a follower whose buffer is full is told to start again from where it was.
"""

import asyncio

from msgspec import Struct

from duragent.core.events import Entry


class Delta(Struct, frozen=True):
    """Some text of the answer that is being spoken. Never stored: the whole answer will be."""

    text: str


class Forget(Struct, frozen=True):
    """The answer broke off and is asked for again: the deltas so far do not count."""

    why: str


class Output(Struct, frozen=True):
    """Some text that a tool prints while it works. Never stored: its result will be."""

    call_id: str
    text: str


class Settled(Struct, frozen=True):
    """Nothing runs any more: the session rests, or waits for a person to decide `waiting`."""

    seq: int
    waiting: tuple[str, ...]


class Gap(Struct, frozen=True):
    """What came after `after` and before `first` is no longer in the log: compaction has taken it out. The conversation
    is whole in the session's state."""

    after: int
    first: int


class Lagged(Struct, frozen=True):
    """This follower was too slow and missed something. Follow again from `after`."""

    after: int


Item = Entry | Delta | Forget | Output | Settled | Gap | Lagged


class Follower:
    """A bounded buffer that the session fills and one listener empties."""

    __slots__ = ("_items", "_limit", "_waiter", "ended", "lagged")

    def __init__(self, limit: int) -> None:
        self._items: list[Item] = []
        self._limit = limit
        self._waiter: asyncio.Future[None] | None = None
        self.lagged = False
        self.ended = False

    def put(self, item: Item) -> None:
        if self.lagged:
            return
        if len(self._items) >= self._limit:
            self.lagged = True
            self._items.clear()
        else:
            self._items.append(item)
        if self._waiter is not None:
            self._wake()

    def end(self) -> None:
        """The session is no longer here: nothing more will come."""
        self.ended = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        self._waiter = None

    def lead(self, item: Item) -> None:
        """Put something before everything else."""
        self._items.insert(0, item)

    async def take(self) -> list[Item]:
        """Everything there is; waits for the first. Nothing where this follower lagged or the session is gone."""
        if not self._items and not self.lagged and not self.ended:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        items, self._items = self._items, []
        return items
