"""What every store must do, whatever it keeps sessions in. A new store is one more line in STORES."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from duragent.core import events as ev
from duragent.errors import Conflict, NotFound, StorageFailed
from duragent.store import Store
from duragent.store.files import FileStore

STORES: dict[str, Callable[[Path], Store]] = {"files": FileStore}
ID = "session_01AAAAAAAAAAAAAAAAAAAAAAAA"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
START, HELLO, BYE = ev.SessionStart("bot"), ev.UserMessage("hello"), ev.UserMessage("bye")


@pytest.fixture(params=STORES)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    return lambda: STORES[request.param](tmp_path)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_what_was_flushed_is_there_for_the_next_store_in_its_order(open_store: Callable[[], Store]) -> None:
    async def main() -> None:
        log = open_store().create(ID, lambda entries: None)
        for event in (START, HELLO, BYE):
            log.stage(event, NOW)
        await log.flush()
        await log.release()
        assert [entry.event for entry in open_store().entries(ID)] == [START, HELLO, BYE]
        assert [entry.seq for entry in open_store().entries(ID, after=1)] == [2, 3]
        assert [message.content for message in open_store().read(ID).session.messages] == ["hello", "bye"]
        assert list(open_store().ids()) == [ID]

    run(main())


def test_entries_are_delivered_once_in_order_before_the_flush_that_waits_for_them_returns(
    open_store: Callable[[], Store],
) -> None:
    async def main() -> None:
        heard: list[int] = []

        def deliver(entries: Sequence[ev.Entry]) -> None:
            heard.extend(entry.seq for entry in entries)

        log = open_store().create(ID, deliver)
        log.stage(START, NOW)
        log.stage(ev.ModelCalled("m"), NOW, lazy=True)
        assert (heard, log.quiet) == ([], False)
        await log.flush()
        assert (heard, log.quiet) == ([1, 2], True)
        await asyncio.gather(*(flushed(log, ev.UserMessage(str(n))) for n in range(20)))
        assert heard == list(range(1, 23))
        await log.release()

    async def flushed(log: Any, event: ev.Event) -> None:
        log.stage(event, NOW)
        await log.flush()

    run(main())


def test_a_session_has_one_writer_at_a_time(open_store: Callable[[], Store]) -> None:
    async def main() -> None:
        log = open_store().create(ID, lambda entries: None)
        log.stage(START, NOW)
        await log.flush()
        with pytest.raises(Conflict):
            open_store().open(ID, lambda entries: None)
        await log.release()
        with pytest.raises(StorageFailed):
            log.stage(HELLO, NOW)  # what was let go is not written any more
        again, stored = open_store().open(ID, lambda entries: None)
        assert (again.seq, stored.session.agent) == (1, "bot")
        await again.release()

    run(main())


def test_a_snapshot_changes_nothing_that_can_be_seen(open_store: Callable[[], Store]) -> None:
    async def main() -> None:
        log = open_store().create(ID, lambda entries: None)
        for event in (START, HELLO):
            log.stage(event, NOW)
        await log.flush()
        before = open_store().read(ID).session
        await log.snapshot(before, "archive")
        log.stage(BYE, NOW)
        await log.flush()
        await log.release()
        assert [message.content for message in open_store().read(ID).session.messages] == ["hello", "bye"]
        assert [entry.seq for entry in open_store().entries(ID)] == [1, 2, 3]

    run(main())


@pytest.mark.parametrize("session_id", [ID, "../etc", "session_../../x", ""])
def test_what_is_not_there_is_not_found(session_id: str, open_store: Callable[[], Store]) -> None:
    for ask in (open_store().read, lambda each: open_store().open(each, lambda entries: None)):
        with pytest.raises(NotFound):
            ask(session_id)
