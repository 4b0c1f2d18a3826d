"""The log of one session as a file, written by the process that holds it.

Events are numbered when they are staged. `flush` waits for a write and a sync in a thread; appends that wait together
share one. `kick` writes at once, so that the process may die, and lets the sync follow within milliseconds. After
the disk has refused once, the log is over: it is opened again from what is on disk.
"""

import asyncio
import os
from contextlib import suppress
from datetime import datetime

from duragent.core.events import Entry, Event, seal
from duragent.core.session import Session
from duragent.errors import StorageFailed
from duragent.store import Compaction, Deliver, Stored, disk, opening, snapshot
from duragent.store.opening import LOG, STATE
from duragent.store.writers import Writers

SYNC_SOON_SECONDS = 0.005  # how long a write that nobody waits for may wait for company


class FileLog:
    """The log of one session, held by this process until `release`."""

    def __init__(self, folder: str, writers: Writers, lock: int, deliver: Deliver) -> None:
        self.session_id = os.path.basename(folder)
        self.seq = 0
        self.first = 1  # the first entry that the log still has
        self.covered = 0  # entries up to here are in the snapshot on disk
        self._folder, self._writers, self._lock, self._deliver = folder, writers, lock, deliver
        self._log = os.path.join(folder, LOG)
        self._size = 0  # of the file, and
        self._synced = 0  # how much of it is on the disk for certain
        self._last = ""
        self._pending: list[tuple[Entry, bytes]] = []  # numbered, not written
        self._written: list[Entry] = []  # written, not synced
        self._soon: asyncio.TimerHandle | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._eager = False  # something staged should not wait for the next flush
        self._busy = False
        self._broken: StorageFailed | None = None

    def load(self) -> Stored:
        """Read what is there, and cut off what a crash tore."""
        loaded = opening.load(self._folder)
        notes = list(loaded.notes)
        if loaded.torn:
            aside = self._keep_aside(loaded.torn, loaded.size)
            disk.cut(self._log, loaded.size)
            notes.append(f"The last {len(loaded.torn)} bytes were torn by a crash; they are kept in {aside}.")
        if not os.path.exists(self._log):
            disk.create(self._log, b"")
            disk.sync_folder(os.path.dirname(self._log))
        self.seq, self.covered, self._size = loaded.session.seq, loaded.covered, loaded.size
        self._last = loaded.session.updated_at
        self.first = opening.first_seq(self._folder)
        # The process before may have been killed after a write and before its sync: make certain what is believed.
        disk.sync_file(self._log)
        self._synced = self._size
        return Stored(loaded.session, tuple(notes))

    def _keep_aside(self, torn: bytes, size: int) -> str:
        """Two crashes can tear at the same place; and one can come before the tail is cut: then it is kept already."""
        path, number = f"{self._log}.torn-{size}", 1
        while os.path.exists(path) and disk.read(path) != torn:
            number += 1
            path = f"{self._log}.torn-{size}-{number}"
        if not os.path.exists(path):
            disk.replace(path, torn)
        return path

    def stage(self, event: Event, now: datetime, *, lazy: bool = False) -> Entry:
        """Number an event; it goes to disk with the next write. The clock of the log never runs backwards."""
        if self._broken is not None:
            raise self._broken
        timestamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        timestamp = max(timestamp, self._last)
        entry, line = seal(self.seq + 1, timestamp, event)
        self.seq, self._last = entry.seq, timestamp
        self._pending.append((entry, line))
        self._eager = self._eager or not lazy
        return entry

    def kick(self) -> None:
        """Write what is staged, if any of it should not wait, so that it survives the process at once; and see to it
        that it is synced soon. Nobody waits for either."""
        if not self._eager or self._busy or self._broken is not None:
            return
        batch, self._pending, self._eager = self._pending, [], False
        try:
            self._size = disk.append(self._log, _joined(batch), self._size, False)
        except BaseException as error:
            self._broken = failed(self._log, error if isinstance(error, OSError) else OSError(type(error).__name__))
            if not isinstance(error, OSError):
                raise
            return
        self._written += [entry for entry, _ in batch]
        if self._soon is None:
            loop = asyncio.get_running_loop()
            self._soon = loop.call_later(SYNC_SOON_SECONDS, self._write_soon, loop)

    def _write_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        self._soon = None
        if self._written and not self._busy:
            self._write(loop)

    async def flush(self) -> None:
        """Wait until everything staged so far is on disk."""
        if self._broken is not None:
            raise self._broken  # what was staged may have gone down with a write that nobody waited for
        if self.quiet:
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiters.append(done)
        if not self._busy:
            self._write(loop)
        await done

    @property
    def quiet(self) -> bool:
        return not (self._pending or self._written or self._busy)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give everything that waits to a thread: one write, one sync."""
        batch, self._pending, self._eager = self._pending, [], False
        waiters, self._waiters = self._waiters, []
        if self._broken is not None or not (batch or self._written):
            self._settle(waiters)
            return
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        entries, self._written = [*self._written, *(entry for entry, _ in batch)], []
        path, size, synced, data = self._log, self._size, self._synced, _joined(batch)
        self._busy = True

        def done(size: int | None, error: OSError | None) -> None:
            self._busy = False
            if error is not None:
                self._broken = failed(self._log, error)
            else:
                self._size = self._synced = size or self._size
                self._deliver(entries)
            self._settle(waiters)
            if self._waiters or self._eager:
                self._write(loop)

        self._writers.submit(loop, lambda: _append(path, data, size, synced), done, id(self))

    def _settle(self, waiters: list[asyncio.Future[None]]) -> None:
        for waiter in waiters:
            if waiter.done():
                continue  # whoever waited has gone; what it wrote stays written
            if self._broken is not None:
                waiter.set_exception(self._broken)
            else:
                waiter.set_result(None)

    async def snapshot(self, session: Session, compaction: Compaction | None = None) -> None:
        """Write state.yaml; then, if `compaction` says how, take the lines away that it covers."""
        await self.flush()
        while not self.quiet:  # a snapshot must not hold what the log does not: no waiting below this
            await self.flush()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        path, log, size, seq = self._folder, self._log, self._size, session.seq
        shortened = _shortens(compaction)
        offset = size if seq == self.seq and not shortened else 0
        data = snapshot.render(self.session_id, session, offset)
        self._busy = True

        def work() -> int:
            disk.replace(os.path.join(path, STATE), data)
            return opening.compact(path, seq, compaction) if shortened else size

        def done(size: int | None, error: OSError | None) -> None:
            self._busy = False
            if error is None:
                self._size, self.covered = self._size if size is None else size, seq
                self._synced = self._size
                if shortened:
                    self.first = seq
            elif not os.path.exists(log) or os.path.getsize(log) != self._size:
                self._broken = failed(path, error)
            if not waiter.done():
                waiter.set_exception(failed(path, error)) if error else waiter.set_result(None)
            if self._waiters or self._eager:
                self._write(loop)

        self._writers.submit(loop, work, done)
        await waiter

    async def release(self) -> None:
        """Let go of the session: another process may take it."""
        if self._lock >= 0:
            with suppress(StorageFailed):
                while self._broken is None and not self.quiet:
                    await self.flush()
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
            if self._soon is not None:
                self._soon.cancel()
            os.close(self._lock)
            self._lock = -1
            self._broken = self._broken or StorageFailed(f"{self._log} was let go and is not written any more.")


def _append(path: str, data: bytes, size: int, synced: int) -> int:
    """Add to the log durably. After a sync that failed nobody knows what became of the bytes before: they go, too."""
    try:
        return disk.append(path, data, size)
    except OSError:
        if synced < size:
            with suppress(OSError):
                disk.cut(path, synced)
        raise


def _joined(batch: list[tuple[Entry, bytes]]) -> bytes:
    return b"\n".join([*(line for _, line in batch), b""]) if batch else b""


def _shortens(compaction: Compaction | None) -> bool:
    return compaction in ("discard", "archive")


class storing:
    """Turns what the disk says into our own error, with the place."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise failed(self.path, error) from error


def failed(path: str, error: OSError) -> StorageFailed:
    why = error.strerror or str(error)
    return StorageFailed(f"{path}: {why}. Nothing that was being written counts; what was there before is safe.")
