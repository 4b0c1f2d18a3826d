"""Background processes on disk: `<workspace>/processes/<handle>/meta.json` and `log` beside it.

Knows files and nothing of running programs. `meta.json` is replaced as a whole and synced, so that after a crash it
says the old thing or the new one. A log is cleaned and redacted text that grows to `LOG_BYTES`; then its older half is
dropped, and how many lines that were is remembered: a line keeps its number.
"""

import os
import secrets
import shutil
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import DecodeError, Struct
from msgspec.json import Decoder, Encoder
from msgspec.json import format as indented
from msgspec.structs import replace

from duragent.core.events import moment
from duragent.errors import StorageFailed

LOG_BYTES = 8 << 20
KEPT_FOR = timedelta(minutes=30)
State = Literal["running", "completed", "failed", "lost", "timed_out", "killed"]


class Status(Struct, frozen=True, omit_defaults=True):
    """`exit_code` where the process ended by itself, `signal` where one ended it; `why` where neither says enough."""

    state: State
    exit_code: int | None = None
    signal: int | None = None
    why: str | None = None


class Runner(Struct, frozen=True):
    """A process of this machine that no other can be mistaken for: its number, and when it began."""

    pid: int
    began: str


class Job(Struct, frozen=True, kw_only=True):
    """What is known of one background process."""

    handle: str
    command: str
    label: str | None = None
    workdir: str
    pid: int | None = None
    began: str | None = None  # of the process itself, so that a number given again is noticed
    session_id: str
    agent: str
    tmux_session: str | None = None
    backend: Literal["local", "tmux"] = "local"
    status: Status = Status("running")
    log_path: str
    spawned_at: str
    completed_at: str | None = None
    timeout_seconds: int
    gateway: str | None = None
    chat_id: str | None = None
    owner: Runner | None = None  # the runtime whose child it is
    told: bool = False  # the session knows how it ended
    lines_dropped: int = 0
    bytes_dropped: int = 0


_encode = Encoder().encode
_decode = Decoder(Job).decode


class Jobs:
    """The folder of all background processes, seen by one agent."""

    def __init__(self, folder: str, agent: str) -> None:
        self.folder, self.agent = folder, agent

    def create(self) -> str:
        """A new handle and its folder. Whoever makes the folder has the handle, also among several processes."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        while True:
            handle = f"proc_{secrets.token_hex(5)}"
            with suppress(FileExistsError):
                os.mkdir(self.path(handle), 0o700)
                return handle

    def path(self, handle: str, name: str = "") -> str:
        return os.path.join(self.folder, handle, name) if name else os.path.join(self.folder, handle)

    def save(self, job: Job) -> None:
        """Replace what is known. Raises `StorageFailed` where the disk refuses."""
        path = self.path(job.handle, "meta.json")
        new = f"{path}.new"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                file.write(indented(_encode(job), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
            folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise StorageFailed(
                f"{path} cannot be written: {error.strerror}. Make room, or mend its rights."
            ) from error

    def load(self) -> list[Job]:
        """All processes of this agent, the oldest first. A folder without a readable `meta.json` is none."""
        try:
            handles = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StorageFailed(f"{self.folder} cannot be read: {error.strerror}. Mend its rights.") from error
        found = [job for handle in handles if (job := self.read(handle)) is not None]
        return sorted(found, key=lambda job: (job.spawned_at, job.handle))

    def read(self, handle: str) -> Job | None:
        try:
            with open(self.path(handle, "meta.json"), "rb") as file:
                job = _decode(file.read(1 << 20))
        except (OSError, DecodeError):
            return None
        return job if job.agent == self.agent and job.handle == handle else None

    def remove(self, handle: str) -> None:
        shutil.rmtree(self.path(handle), ignore_errors=True)


def is_old(job: Job, now: datetime) -> bool:
    """Whether a process ended so long ago that nobody will ask for it."""
    at = moment(job.completed_at) if job.completed_at else None
    return job.status.state != "running" and at is not None and now - at > KEPT_FOR


def duration_seconds(job: Job, now: datetime | None = None) -> float:
    began, ended = moment(job.spawned_at), moment(job.completed_at) if job.completed_at else now
    return round((ended - began).total_seconds(), 1) if began and ended else 0.0


def keep(path: str, text: str) -> None:
    """Write a text for the owner's eyes only."""
    with open(
        os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w", encoding="utf-8"
    ) as file:
        file.write(text)


def began(pid: int) -> str | None:
    """When a process began, in the kernel's own count; None where it is gone or was never there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            parts = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if parts[0] in (b"Z", b"X") else parts[19].decode()


class Log:
    """What a process has printed, as far as it is kept. One writer; readers open the file themselves."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.total = 0  # bytes ever written
        self.lines_dropped = self.bytes_dropped = 0
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.lseek(self._fd, 0, os.SEEK_END)

    def write(self, text: str) -> bool:
        """Add a text. True when the older half had to go."""
        data = text.encode("utf-8", "replace")
        _write_all(self._fd, data)
        self.total += len(data)
        self._size += len(data)
        return self._size > LOG_BYTES and self._halve()

    def _halve(self) -> bool:
        with open(self.path, "rb") as file:
            whole = file.read()
        border = whole.rfind(b"\n", 0, len(whole) - LOG_BYTES // 2) + 1
        if not border:  # one line as long as all of it
            border = len(whole) - LOG_BYTES // 2
        new = f"{self.path}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(fd, whole[border:])
            os.replace(new, self.path)
        except OSError:
            os.close(fd)
            raise
        os.close(self._fd)
        self._fd, self._size = fd, len(whole) - border
        self.bytes_dropped += border
        self.lines_dropped += whole.count(b"\n", 0, border)
        return True

    def close(self) -> None:
        os.close(self._fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def tail(path: str, size: int) -> str:
    """The end of a log, from the beginning of a line if there is one in it."""
    try:
        with open(path, "rb") as file:
            whole = file.seek(0, os.SEEK_END)
            file.seek(max(whole - size, 0))
            data = file.read()
    except OSError:
        return ""
    if whole > size:
        data = data[data.find(b"\n") + 1 :]
    return data.decode("utf-8", "replace")


def page(job: Job, offset: int, limit: int, waiting: str = "") -> str:
    """Some lines of a log, and which ones they are. A negative offset counts from the end."""
    try:
        with open(job.log_path, encoding="utf-8", errors="replace", newline="\n") as file:
            lines = (file.read() + waiting).split("\n")
    except OSError:
        lines = waiting.split("\n")
    if lines[-1] == "":
        lines.pop()
    total = job.lines_dropped + len(lines)
    first = max(total + offset if offset < 0 else offset, job.lines_dropped)
    shown = lines[first - job.lines_dropped : first - job.lines_dropped + limit]
    gone = f"; lines 0 to {job.lines_dropped - 1} are no longer kept" if job.lines_dropped else ""
    if not shown:
        return f"[no line {first}: the log has {total} lines so far{gone}]"
    return "\n".join([f"[lines {first} to {first + len(shown) - 1} of {total}{gone}]", *shown])


def dropped(job: Job, log: Log) -> Job:
    return replace(job, lines_dropped=log.lines_dropped, bytes_dropped=log.bytes_dropped)
