"""Where session logs live: one shape for all stores.

A store hands out the log of a session to one writer at a time. A log numbers events and writes them; `deliver` gets
the entries that are on disk, in order, before any `flush` that waits for them returns.
Adding a store: a module here with these two classes, and the contract tests in tests/contracts run for it.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from duragent.core.events import Entry, Event
from duragent.core.session import Session

Compaction = Literal["discard", "archive", "disabled"]
Deliver = Callable[[Sequence[Entry]], None]


class Stored(Struct, frozen=True):
    """What reading a session gave. `notes` say what was found and mended on the way."""

    session: Session
    notes: tuple[str, ...] = ()


class SessionLog(Protocol):
    """The log of one session, held by this process alone."""

    session_id: str
    seq: int
    first: int  # the first entry that the log still has
    covered: int  # entries up to here are in a snapshot

    @property
    def quiet(self) -> bool:
        """Whether everything staged is on disk."""

    def stage(self, event: Event, now: datetime, *, lazy: bool = False) -> Entry:
        """Number an event and give it to the next write. A lazy one harms nobody if it goes down with the process."""

    def kick(self) -> None:
        """Begin to write what is staged and not lazy."""

    async def flush(self) -> None:
        """Returns when everything staged is on disk. After `StorageFailed` none of it is, and the log is over."""

    async def snapshot(self, session: Session, compaction: Compaction | None = None) -> None:
        """Keep the state for fast opening; then, if `compaction` says how, shorten the log."""

    async def release(self) -> None: ...


class Store(Protocol):
    def ids(self) -> Sequence[str]: ...

    def create(self, session_id: str, deliver: Deliver) -> SessionLog: ...

    def open(self, session_id: str, deliver: Deliver) -> tuple[SessionLog, Stored]:
        """Raises `NotFound`, `Conflict` when another process holds it, `CorruptLog`, `StorageFailed`."""

    def read(self, session_id: str) -> Stored:
        """The session as it is on disk, without holding it."""

    def entries(self, session_id: str, after: int = 0) -> Iterator[Entry]:
        """What is on disk after `after`, without holding it."""
