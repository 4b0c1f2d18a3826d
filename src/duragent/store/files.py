"""Sessions as plain files: `<folder>/<session_id>/` with events.jsonl, state.yaml, events.archive.jsonl and lock.

The log is only ever appended to, except by compaction, which takes lines away once what replaces them is on disk.
Appends that wait together share one sync; logs of different sessions are synced side by side. One process holds a
session at a time (flock); its lock file says which.
"""

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

from duragent.core.events import Entry, SessionStart, render_entry
from duragent.errors import Conflict, CorruptLog, NotFound
from duragent.store import Deliver, Stored, disk, lines, opening, snapshot
from duragent.store.filelog import FileLog, storing
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
        with storing(self.folder), suppress(FileNotFoundError):
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
        with storing(path):
            disk.make_folder(path)
            lock = self._lock(session_id)
            try:
                disk.create(self.path(session_id, LOG), b"")
                disk.sync_folder(path)
            except BaseException:
                os.close(lock)
                raise
        return FileLog(self.path(session_id), self.writers, lock, deliver)

    def open(self, session_id: str, deliver: Deliver) -> tuple["FileLog", Stored]:
        self._must_exist(session_id)
        with storing(self.path(session_id)):
            lock = self._lock(session_id)
            try:
                log = FileLog(self.path(session_id), self.writers, lock, deliver)
                stored = log.load()
                if not stored.session.seq:
                    raise NotFound(f"{session_id} never began: its log in {self.folder} holds no entry.")
                return log, stored
            except BaseException:
                os.close(lock)
                raise

    def read(self, session_id: str) -> Stored:
        self._must_exist(session_id)
        with storing(self.path(session_id)):
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
        with storing(self.path(session_id)):
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
        with storing(self.path(new_id)):
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
        with storing(self.path(session_id)):
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
