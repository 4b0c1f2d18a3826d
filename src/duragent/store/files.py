"""Sessions as plain files: `<folder>/<session_id>/` with events.jsonl, state.yaml, events.archive.jsonl and lock.

The log is only ever appended to, except by compaction, which takes lines away once what replaces them is on disk.
Appends that wait together share one sync; logs of different sessions are synced side by side. One process holds a
session at a time (flock); its lock file says which.
"""

import asyncio
import fcntl
import os
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from duragent.core.events import Entry, Event, SessionStart, render_entry, seal
from duragent.core.session import Session
from duragent.errors import Conflict, CorruptLog, NotFound, StorageFailed
from duragent.store import Compaction, Deliver, Stored, disk, lines, opening, snapshot
from duragent.store.opening import FOREIGN, LOG, STATE
from duragent.store.writers import Writers

LOCK = "lock"
DELETED, FORKING = ".deleted-", ".forking-"  # folders that are no session any more, or not yet
FIRST_LINE = 8192  # a log that is longer than this is not looked into before it is opened
LOCK_TRIES, LOCK_PAUSE_SECONDS = 5, 0.005


class Holder(Struct, frozen=True):
    """Who holds a session, as its lock file says."""

    pid: int
    host: str = ""
    address: str = ""
    since: str = ""

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host and self.host != socket.gethostname() else ""
        door = f" ({self.address})" if self.address else ""
        return f"process {self.pid}{where}{door}" + (f" since {self.since}" if self.since else "")


class FileStore:
    """All sessions below one folder. `address` is told to whoever finds a session held by us."""

    def __init__(self, folder: str | os.PathLike[str], *, address: str = "") -> None:
        self.folder = os.fspath(folder)
        self.address = address
        self.writers = Writers()

    def ids(self) -> list[str]:
        """Every session there is, the oldest first. What is no session, a copy somebody made, say, is left out."""
        names: list[str] = []
        with _storing(self.folder), suppress(FileNotFoundError):
            names = os.listdir(self.folder)
        for name in names:
            if name.startswith(DELETED):  # a crash came between taking it out of sight and off the disk
                shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
        return sorted(name for name in names if _is_id(name) and self._has_session(name))

    def _has_session(self, session_id: str) -> bool:
        """A log that never got its first entry whole is no session: its opening was never acknowledged."""
        try:
            path = self.path(session_id, LOG)
            size = os.path.getsize(path)
            if size >= FIRST_LINE or (size and lines.tear(disk.read(path)).size):
                return True
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError:
            return True  # something is there; whoever opens it is told what is wrong with it
        return any(os.path.exists(self.path(session_id, name)) for name in (STATE, FOREIGN))

    def path(self, session_id: str, name: str = "") -> str:
        if not _is_id(session_id):
            raise NotFound(f"{session_id!r} is no id of a session: that is session_ and letters and digits")
        return os.path.join(self.folder, session_id, name) if name else os.path.join(self.folder, session_id)

    def create(self, session_id: str, deliver: Deliver) -> "FileLog":
        path = self.path(session_id)
        with _storing(path):
            disk.make_folder(path)
            lock = self._lock(session_id)
            try:
                disk.create(self.path(session_id, LOG), b"")
                disk.sync_folder(path)
            except BaseException:
                os.close(lock)
                raise
        return FileLog(self, session_id, lock, deliver)

    def open(self, session_id: str, deliver: Deliver) -> tuple["FileLog", Stored]:
        self._must_exist(session_id)
        with _storing(self.path(session_id)):
            lock = self._lock(session_id)
            try:
                log = FileLog(self, session_id, lock, deliver)
                stored = log.load()
                if not stored.session.seq:
                    raise NotFound(f"{session_id} never began: its log in {self.folder} holds no entry.")
                return log, stored
            except BaseException:
                os.close(lock)
                raise

    def read(self, session_id: str) -> Stored:
        self._must_exist(session_id)
        with _storing(self.path(session_id)):
            loaded = self._read(session_id)
            return Stored(loaded.session, loaded.notes)

    def _read(self, session_id: str) -> opening.Loaded:
        """Its holder may put a new snapshot and a shorter log in place between our reading the one and the other."""
        while True:
            before = self._snapshot_id(session_id)
            try:
                return opening.load(self.path(session_id))
            except CorruptLog:
                if self._snapshot_id(session_id) == before:
                    raise

    def _snapshot_id(self, session_id: str) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            found = os.stat(self.path(session_id, STATE))
            return found.st_ino, found.st_mtime_ns
        return None

    def entries(self, session_id: str, after: int = 0) -> Iterator[Entry]:
        """What there is after `after`. The beginning is missing where compaction threw it away."""
        self._must_exist(session_id)
        with _storing(self.path(session_id)):
            yield from opening.entries(self.path(session_id), after)

    def _must_exist(self, session_id: str) -> None:
        if not self._has_session(session_id):
            raise NotFound(f"There is no session {session_id} in {self.folder}.")

    def holder(self, session_id: str) -> Holder | None:
        """Who holds the session now, if anybody does."""
        try:
            fd = os.open(self.path(session_id, LOCK), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            if not os.fstat(fd).st_size:
                return None  # it was let go properly, and nobody has taken it since
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return _holder(fd)
        finally:
            os.close(fd)
        return None

    def _lock(self, session_id: str) -> int:
        fd = os.open(self.path(session_id, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, disk.FILE)
        if not _taken(fd):
            holder = _holder(fd)
            os.close(fd)
            raise Conflict(
                f"{session_id} is held by {holder or 'another process'}. Use it there, or end that process first."
            )
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        with suppress(OSError):  # on a full disk the lock holds all the same; only who has it is not written down
            os.ftruncate(fd, 0)
            os.pwrite(fd, encode(Holder(os.getpid(), socket.gethostname(), self.address, since)) + b"\n", 0)
        return fd

    def fork(self, session_id: str, seq: int, new_id: str) -> None:
        """A new session that begins as the first `seq` entries of another one."""
        entries = [entry for entry in self.entries(session_id) if entry.seq <= seq]
        if not entries or entries[-1].seq != seq:
            last = self.read(session_id).session.seq
            raise NotFound(f"{session_id} has no entry {seq} in its log; its last one is {last}.")
        forked = f"{session_id}@{seq}"
        state = b""
        if entries[0].seq == 1:
            entries[0] = _forked(entries[0], forked)
        else:
            kept = opening.snapshot_in(self.path(session_id))
            if kept is None or kept.session.seq > seq:
                raise NotFound(f"{session_id}@{seq}: what came before entry {entries[0].seq} was compacted away.")
            kept.session.forked_from = forked
            kept.session.gateway = kept.session.gateway_chat_id = None  # as in a log that is forked from entry 1
            kept.session.undelivered = {}
            entries = [entry for entry in entries if entry.seq >= kept.session.seq]
            state = snapshot.render(new_id, kept.session, 0)
        with _storing(self.path(new_id)):
            aside = os.path.join(self.folder, f"{FORKING}{new_id}")
            disk.make_folder(aside)
            if state:
                disk.create(os.path.join(aside, STATE), state)
            disk.create(os.path.join(aside, LOG), b"".join(render_entry(entry) + b"\n" for entry in entries))
            disk.sync_folder(aside)
            os.rename(aside, self.path(new_id))
            disk.sync_folder(self.folder)

    def delete(self, session_id: str) -> None:
        """Take a session away, whole: first out of sight, then from the disk."""
        self._must_exist(session_id)
        with _storing(self.path(session_id)):
            lock = self._lock(session_id)
            try:
                gone = os.path.join(self.folder, f"{DELETED}{session_id}")
                os.rename(self.path(session_id), gone)
                disk.sync_folder(self.folder)
                with suppress(FileNotFoundError):  # `ids`, in another process, may help
                    shutil.rmtree(gone)
            finally:
                os.close(lock)

    def close(self) -> None:
        self.writers.close()


def _is_id(session_id: str) -> bool:
    """No dots and no slashes: an id never leads out of the folder."""
    plain = session_id.replace("_", "")
    return session_id.startswith("session_") and plain.isascii() and plain.isalnum() and len(session_id) <= 128


def _taken(fd: int) -> bool:
    """Whether the lock is ours now. Who only looks whether a session is held has it for a moment: try again."""
    for attempt in range(LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt + 1 < LOCK_TRIES:
                time.sleep(LOCK_PAUSE_SECONDS)
    return False


def _forked(entry: Entry, forked: str) -> Entry:
    start = entry.event
    if not isinstance(start, SessionStart):
        return entry
    again = SessionStart(
        start.agent, start.on_disconnect, start.fingerprint, start.source, forked_from=forked, version=start.version
    )
    return Entry(entry.seq, entry.timestamp, again)


def _holder(fd: int) -> Holder | None:
    try:
        return decode(os.pread(fd, 4096, 0), type=Holder)
    except (DecodeError, OSError):
        return None


class FileLog:
    """The log of one session, held by this process until `release`."""

    def __init__(self, store: FileStore, session_id: str, lock: int, deliver: Deliver) -> None:
        self.session_id = session_id
        self.seq = 0
        self.covered = 0  # entries up to here are in the snapshot on disk
        self._store, self._lock, self._deliver = store, lock, deliver
        self._log = store.path(session_id, LOG)
        self._size = 0
        self._last = ""
        self._pending: list[tuple[Entry, bytes]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._eager = False  # something staged should not wait for the next flush
        self._busy = False
        self._broken: StorageFailed | None = None

    def load(self) -> Stored:
        """Read what is there, and cut off what a crash tore."""
        loaded = opening.load(self._store.path(self.session_id))
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
        self.seq += 1
        timestamp = now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        self._last = timestamp = max(timestamp, self._last)
        entry, line = seal(self.seq, timestamp, event)
        self._pending.append((entry, line))
        self._eager = self._eager or not lazy
        return entry

    def kick(self) -> None:
        """Begin to write what is staged, if any of it should not wait; nobody waits for it."""
        if self._eager and not self._busy:
            self._write(asyncio.get_running_loop())

    async def flush(self) -> None:
        """Wait until everything staged so far is on disk."""
        if self._broken is not None:
            raise self._broken  # what was staged may have gone down with a write that nobody waited for
        if not self._pending and not self._busy:
            return
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiters.append(done)
        if not self._busy:
            self._write(loop)
        await done

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        """Give everything that waits to a thread: one write, one sync."""
        batch, self._pending, self._eager = self._pending, [], False
        waiters, self._waiters = self._waiters, []
        if self._broken is not None or not batch:
            self._settle(waiters)
            return
        path, size = self._log, self._size
        data = b"\n".join([line for _, line in batch]) + b"\n"
        self._busy = True

        def done(size: int | None, error: OSError | None) -> None:
            self._busy = False
            if error is not None:
                self._broken = _failed(self._log, error)
            else:
                self._size = size or self._size
                self._deliver([entry for entry, _ in batch])
            self._settle(waiters)
            if self._waiters or self._eager:
                self._write(loop)

        self._store.writers.submit(loop, lambda: disk.append(path, data, size), done)

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
        while self._pending or self._busy:  # a snapshot must not hold what the log does not: no waiting below this
            await self.flush()
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        path, log, size, seq = self._store.path(self.session_id), self._log, self._size, session.seq
        offset = size if seq == self.seq and not _shortens(compaction) else 0
        data = snapshot.render(self.session_id, session, offset)
        self._busy = True

        def work() -> int:
            disk.replace(os.path.join(path, STATE), data)
            return opening.compact(path, seq, compaction) if _shortens(compaction) else size

        def done(size: int | None, error: OSError | None) -> None:
            self._busy = False
            if error is None:
                self._size, self.covered = self._size if size is None else size, seq
            elif not os.path.exists(log) or os.path.getsize(log) != self._size:
                self._broken = _failed(path, error)
            if not waiter.done():
                waiter.set_exception(_failed(path, error)) if error else waiter.set_result(None)
            if self._waiters or self._eager:
                self._write(loop)

        self._store.writers.submit(loop, work, done)
        await waiter

    async def release(self) -> None:
        """Let go of the session: another process may take it."""
        if self._lock >= 0:
            with suppress(StorageFailed):
                while self._broken is None and (self._pending or self._busy):
                    await self.flush()
            with suppress(OSError):
                os.ftruncate(self._lock, 0)
            os.close(self._lock)
            self._lock = -1


def _shortens(compaction: Compaction | None) -> bool:
    return compaction in ("discard", "archive")


class _storing:
    """Turns what the disk says into our own error, with the place."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            raise _failed(self.path, error) from error


def _failed(path: str, error: OSError) -> StorageFailed:
    why = error.strerror or str(error)
    return StorageFailed(f"{path}: {why}. Nothing that was being written counts; what was there before is safe.")
