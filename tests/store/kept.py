"""Sessions on disk for tests: written through the store, looked at as bytes."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from duragent.core import events as ev
from duragent.core.session import Session, apply
from duragent.store import Compaction, disk
from duragent.store.filelog import FileLog
from duragent.store.files import FileStore

Result = TypeVar("Result")
ID, OTHER = "session_01AAAAAAAAAAAAAAAAAAAAAAAA", "session_01BBBBBBBBBBBBBBBBBBBBBBBB"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STAMP = "2026-03-01T12:00:00.000Z"
CALL = ev.ToolCall("c1", "bash", {"command": "make größer"})
EVENTS: tuple[ev.Event, ...] = (
    ev.SessionStart("bot", version=ev.LOG_VERSION),
    ev.UserMessage("größer 🦉\nsecond line", message_id="m1"),
    ev.AssistantResponse("bot", "I will.", (CALL,), ev.Usage(10, 5, 15)),
    ev.ApprovalRequired("c1", "bash make", "0123"),
    ev.ApprovalDecision("c1", "allow_once"),
    ev.ToolStarted("c1"),
    ev.ToolResult("c1", ev.ToolAnswer(True, "made\n\u2028done")),
    ev.AssistantResponse("bot", "It is made."),
)


def run(work: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(work)


class Book:
    """A held session, its state, and what was delivered."""

    def __init__(self, store: FileStore) -> None:
        self.store, self.delivered = store, list[int]()
        self.session, self.notes = Session(), tuple[str, ...]()
        self.log: FileLog

    def deliver(self, entries: Sequence[ev.Entry]) -> None:
        self.delivered += [entry.seq for entry in entries]

    def create(self, session_id: str = ID) -> "Book":
        self.log = self.store.create(session_id, self.deliver)
        return self

    def open(self, session_id: str = ID) -> "Book":
        self.log, stored = self.store.open(session_id, self.deliver)
        self.session, self.notes = stored.session, stored.notes
        return self

    def stage(self, *events: ev.Event, now: datetime = NOW) -> list[ev.Entry]:
        entries = [self.log.stage(event, now) for event in events]
        for entry in entries:
            apply(self.session, entry)
        return entries

    async def write(self, *events: ev.Event) -> None:
        self.stage(*events)
        await self.log.flush()

    async def snapshot(self, compaction: Compaction | None = None) -> None:
        await self.log.snapshot(self.session, compaction)


def keep(folder: Path, events: Sequence[ev.Event] = EVENTS, session_id: str = ID, *, snapshot: bool = False) -> Path:
    """A session on disk that nobody holds. Gives its folder."""

    async def write() -> None:
        store = FileStore(folder)
        book = Book(store).create(session_id)
        await book.write(*events)
        if snapshot:
            await book.snapshot()
        await book.log.release()
        store.close()

    run(write())
    return folder / session_id


def add(folder: Path, *events: ev.Event, session_id: str = ID, compaction: Compaction | None = None) -> tuple[str, ...]:
    """Open a session, write to it, take a snapshot if asked, let it go. Gives the notes of its opening."""

    async def write() -> tuple[str, ...]:
        store = FileStore(folder)
        book = Book(store).open(session_id)
        await book.write(*events)
        if compaction:
            await book.snapshot(compaction)
        await book.log.release()
        store.close()
        return book.notes

    return run(write())


def entries(folder: Path, session_id: str = ID, after: int = 0) -> list[ev.Entry]:
    return list(FileStore(folder).entries(session_id, after))


def seqs(folder: Path, session_id: str = ID, after: int = 0) -> list[int]:
    return [entry.seq for entry in entries(folder, session_id, after)]


def chat(turns: int, begin: int = 0) -> list[ev.Event]:
    return [
        event
        for turn in range(begin, begin + turns)
        for event in (ev.UserMessage(f"question {turn}"), ev.AssistantResponse("bot", f"answer {turn}"))
    ]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


NO_SPACE, BROKEN, READ_ONLY = errno.ENOSPC, errno.EIO, errno.EROFS


@contextmanager
def failing(
    patch: pytest.MonkeyPatch, name: str, number: int, when: Callable[..., bool] = lambda *_: True
) -> Iterator[None]:
    """One of the calls through which files are changed fails, for those for which `when` holds."""

    class Os:
        def __getattr__(self, called: str) -> Any:
            real = getattr(os, called)
            if called != name:
                return real

            def call(*given: Any) -> Any:
                if when(*given):
                    raise error(number)
                return real(*given)

            return call

    with patch.context() as context:
        context.setattr(disk, "os", Os())
        yield
