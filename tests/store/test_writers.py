"""One process writes a session; what waits together is written together; different sessions are written side by side."""

import asyncio
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from duragent.core import events as ev
from duragent.errors import Conflict, NotFound
from duragent.store import disk
from duragent.store.files import FileStore
from duragent.store.writers import Writers
from tests.store.kept import EVENTS, ID, NOW, OTHER, Book, chat, entries, keep, names, run, seqs

HOLDER = """
import sys
from duragent.store.files import FileStore
store = FileStore(sys.argv[1], address="http://127.0.0.1:4000")
log, stored = store.open(sys.argv[2], lambda entries: None)
print("held", flush=True)
sys.stdin.read()
"""


def nothing(entries: object) -> None: ...


class Recorder:
    """In the place of `disk.append`: counts, and can be made to wait."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.real = disk.append
        patch.setattr(disk, "append", self)

    def __call__(self, path: str, data: bytes, size: int, durable: bool = True) -> int:
        assert self.gate.wait(10)
        self.batches.append([json.loads(line)["seq"] for line in data.splitlines()])
        return self.real(path, data, size, durable)


def test_appends_that_wait_together_share_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, EVENTS[:1])

    async def write() -> Book:
        book = Book(FileStore(tmp_path)).open()
        recorder = Recorder(monkeypatch)
        recorder.gate.clear()
        first = asyncio.ensure_future(book.write(ev.UserMessage("first")))
        await asyncio.sleep(0)
        others = [asyncio.ensure_future(book.write(ev.UserMessage(str(n)))) for n in range(64)]
        await asyncio.sleep(0)
        assert book.delivered == []
        recorder.gate.set()
        await asyncio.gather(first, *others)
        assert recorder.batches == [[2], list(range(3, 67))]
        await book.log.release()
        return book

    assert run(write()).delivered == list(range(2, 67))
    assert seqs(tmp_path) == list(range(1, 67))


def test_what_is_delivered_is_on_disk_and_in_order(tmp_path: Path) -> None:
    keep(tmp_path, EVENTS[:1])
    on_disk: list[bool] = []

    async def write() -> list[int]:
        book = Book(FileStore(tmp_path))
        told = book.deliver

        def deliver(entries_now: Any) -> None:
            lines = (tmp_path / ID / "events.jsonl").read_bytes().splitlines()
            on_disk.extend(len(lines) >= entry.seq for entry in entries_now)
            told(entries_now)

        book.deliver = deliver  # type: ignore[method-assign]
        book.open()
        for n in range(5):
            tasks = [asyncio.ensure_future(book.write(*chat(2))) for _ in range(n)]
            await book.write(ev.SilentMessage("aside"))
            await asyncio.gather(*tasks)
        await book.log.release()
        return book.delivered

    delivered = run(write())
    assert delivered == list(range(2, len(delivered) + 2))
    assert len(on_disk) == len(delivered) and all(on_disk)


def test_a_flush_returns_only_after_its_entries_were_delivered(tmp_path: Path) -> None:
    async def write() -> None:
        book = Book(FileStore(tmp_path)).create()
        for event in EVENTS:
            await book.write(event)
            assert book.delivered[-1] == book.log.seq
        await book.log.release()

    run(write())


def test_different_sessions_are_written_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both writes wait at a barrier that only two can pass."""
    barrier, real = threading.Barrier(2), disk.append

    def append(path: str, data: bytes, size: int, durable: bool = True) -> int:
        barrier.wait(10)
        return real(path, data, size, durable)

    async def write() -> None:
        store = FileStore(tmp_path)
        books = [Book(store).create(ID), Book(store).create(OTHER)]
        monkeypatch.setattr(disk, "append", append)
        await asyncio.gather(*(book.write(EVENTS[0]) for book in books))
        for book in books:
            await book.log.release()

    run(write())
    assert seqs(tmp_path, ID) == seqs(tmp_path, OTHER) == [1]


def test_more_sessions_than_threads_are_all_written(tmp_path: Path) -> None:
    async def write() -> None:
        store = FileStore(tmp_path)
        books = [Book(store).create(f"session_{n:026d}") for n in range(40)]
        await asyncio.gather(*(book.write(*EVENTS) for book in books))
        for book in books:
            await book.log.release()
        store.close()

    run(write())
    assert [seqs(tmp_path, session_id) for session_id in FileStore(tmp_path).ids()] == [list(range(1, 9))] * 40


def test_whoever_stops_waiting_does_not_take_its_entry_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path, EVENTS[:1])

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        recorder = Recorder(monkeypatch)
        recorder.gate.clear()
        tasks = [asyncio.ensure_future(book.write(ev.UserMessage(str(n)))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[1].cancel()
        recorder.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await book.log.release()
        assert book.delivered == [2, 3, 4]

    run(write())
    assert seqs(tmp_path) == [1, 2, 3, 4]


def test_a_lazy_entry_waits_for_the_next_write_and_release_writes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, EVENTS[:1])

    async def write() -> list[list[int]]:
        book = Book(FileStore(tmp_path)).open()
        recorder = Recorder(monkeypatch)
        book.log.stage(ev.ModelCalled("m"), NOW, lazy=True)
        book.log.kick()
        await book.write(ev.UserMessage("hello"))
        book.log.stage(ev.ModelCalled("m"), NOW, lazy=True)
        book.log.kick()
        await book.log.release()
        return recorder.batches

    assert run(write()) == [[2, 3], [4]]


def test_writer_threads_serve_a_second_loop_after_the_first_was_closed_under_them() -> None:
    writers, gate, ran = Writers(1), threading.Event(), list[int]()

    async def leave() -> None:
        writers.submit(asyncio.get_running_loop(), lambda: gate.wait(10), lambda result, error: ran.append(1))

    async def stay() -> None:
        done = asyncio.get_running_loop().create_future()
        writers.submit(asyncio.get_running_loop(), lambda: 7, lambda result, error: done.set_result(result))
        assert await asyncio.wait_for(done, 5) == 7

    run(leave())
    gate.set()
    run(stay())
    assert ran == []
    writers.close()


@pytest.mark.parametrize("seed", range(20))
def test_however_appends_and_snapshots_mingle_the_log_is_what_was_delivered(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)

    async def say(book: Book) -> None:
        for number in range(chance.randrange(1, 15)):
            if chance.random() < 0.3:
                book.stage(ev.SilentMessage("aside"))
                book.log.kick()
            else:
                await book.write(ev.UserMessage(str(number)))

    async def shorten(book: Book) -> None:
        for _ in range(chance.randrange(1, 6)):
            await book.snapshot(chance.choice([None, "archive", "archive", "disabled"]))

    async def mingle() -> Book:
        book = Book(FileStore(tmp_path)).create()
        await book.write(EVENTS[0])
        tasks = [asyncio.ensure_future(work(book)) for work in (say, say, shorten, say, shorten)]
        if chance.random() < 0.5:
            await asyncio.sleep(0)
            chance.choice(tasks).cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await book.log.release()
        return book

    book = run(mingle())
    assert book.delivered == seqs(tmp_path) == list(range(1, book.log.seq + 1))
    stored = FileStore(tmp_path).read(ID)
    assert (stored.session, stored.notes) == (book.session, ())


def test_a_second_process_is_refused_and_told_who_holds_the_session(tmp_path: Path) -> None:
    keep(tmp_path)
    store = FileStore(tmp_path)
    command = (sys.executable, "-c", HOLDER, str(tmp_path), ID)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"held\n"
            for refused in (lambda: store.open(ID, nothing), lambda: store.delete(ID)):
                with pytest.raises(
                    Conflict, match=rf"{ID} is held by process {process.pid} \(http://127\.0\.0\.1:4000\)"
                ):
                    refused()
            holder = store.holder(ID)
            assert holder is not None and (holder.pid, holder.address) == (process.pid, "http://127.0.0.1:4000")
            assert store.read(ID).session.seq == 8, "reading needs no lock"
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
    assert store.holder(ID) is None
    log, _ = store.open(ID, nothing)
    run(log.release())


def test_one_process_does_not_open_a_session_twice(tmp_path: Path) -> None:
    keep(tmp_path)
    log, _ = FileStore(tmp_path).open(ID, nothing)
    with pytest.raises(Conflict, match=f"held by process {os.getpid()}"):
        FileStore(tmp_path).open(ID, nothing)
    run(log.release())
    log, _ = FileStore(tmp_path).open(ID, nothing)
    run(log.release())
    run(log.release())
    assert (tmp_path / ID / "lock").read_bytes() == b"", "nobody is named who does not hold it"


def test_looking_who_holds_a_session_refuses_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks has the lock for a moment; whoever opens meanwhile waits for that moment to pass."""
    fd = os.open(keep(tmp_path) / "lock", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    waited: list[float] = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        fcntl.flock(fd, fcntl.LOCK_UN)

    monkeypatch.setattr("duragent.store.files.time.sleep", pause)
    log, _ = FileStore(tmp_path).open(ID, nothing)
    run(log.release())
    os.close(fd)
    assert len(waited) == 1


def test_a_session_that_cannot_be_opened_is_not_left_locked(tmp_path: Path) -> None:
    path = keep(tmp_path) / "events.jsonl"
    good = path.read_bytes()
    path.write_bytes(good.replace(b"user_message", b"User_message"))
    for _ in range(2):
        with pytest.raises(Exception, match=r"events\.jsonl:2"):
            FileStore(tmp_path).open(ID, nothing)
    path.write_bytes(good)
    log, _ = FileStore(tmp_path).open(ID, nothing)
    run(log.release())


def test_files_are_for_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        root = tmp_path / "data" / "sessions"
        folder = keep(root, snapshot=True)
        with (folder / "events.jsonl").open("ab") as file:
            file.write(b"torn")

        async def write() -> None:
            book = Book(FileStore(root)).open()
            await book.write(*chat(2))
            await book.snapshot("archive")
            await book.log.release()

        run(write())
        FileStore(root).fork(ID, 10, OTHER)
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "data", *(tmp_path / "data").rglob("*"))}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    assert len(names(folder)) == 5 and len(names(root / OTHER)) == 1


def test_deleted_sessions_leave_nothing_and_come_back_never(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = FileStore(tmp_path)
    keep(tmp_path)
    keep(tmp_path, session_id=OTHER)
    store.delete(ID)
    assert names(tmp_path) == {OTHER}
    with pytest.raises(NotFound):
        store.open(ID, nothing)

    def crash(path: str, **given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("duragent.store.files.shutil.rmtree", crash)
        with pytest.raises(KeyboardInterrupt):
            store.delete(OTHER)
    assert names(tmp_path) == {f".deleted-{OTHER}"}, "out of sight at once"
    assert store.ids() == []
    assert names(tmp_path) == set(), "and off the disk when somebody looks again"


def test_a_log_whose_folder_was_deleted_under_it_writes_no_ghost(tmp_path: Path) -> None:
    keep(tmp_path)

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        (tmp_path / ID).rename(tmp_path / "elsewhere")
        with pytest.raises(Exception, match="No such file"):
            await book.snapshot()
        with pytest.raises(Exception, match="No such file"):
            await book.write(ev.UserMessage("hello"))
        await book.log.release()

    run(write())
    assert FileStore(tmp_path).ids() == []
    assert not (tmp_path / ID).exists()
    assert len(entries_in(tmp_path / "elsewhere")) == 8


def entries_in(folder: Path) -> list[bytes]:
    return (folder / "events.jsonl").read_bytes().splitlines()


def test_entries_are_the_same_however_they_are_read(tmp_path: Path) -> None:
    keep(tmp_path)
    assert [entry.event for entry in entries(tmp_path)] == list(EVENTS)


def test_what_is_kicked_is_in_the_file_at_once_and_told_once_it_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, EVENTS[:1])
    synced: list[int] = []
    real = disk.sync
    monkeypatch.setattr(disk, "sync", lambda fd: (synced.append(1), real(fd)))

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        synced.clear()
        book.log.stage(ev.UserMessage("eager"), NOW)
        book.log.stage(ev.ModelCalled("m"), NOW, lazy=True)
        book.log.kick()
        assert (seqs(tmp_path), synced, book.delivered) == ([1, 2, 3], [], [])
        await book.log.flush()
        assert (len(synced), book.delivered) == (1, [2, 3])
        await book.log.release()

    run(write())


def test_what_is_kicked_is_synced_soon_even_if_nobody_waits_for_it(tmp_path: Path) -> None:
    keep(tmp_path, EVENTS[:1])

    async def write() -> None:
        told = asyncio.Event()
        store = FileStore(tmp_path)
        log, _ = store.open(ID, lambda entries: told.set())
        log.stage(ev.UserMessage("eager"), NOW)
        log.kick()
        await asyncio.wait_for(told.wait(), 10)
        await log.release()

    run(write())


def test_what_is_only_lazy_waits_for_the_next_flush(tmp_path: Path) -> None:
    keep(tmp_path, EVENTS[:1])

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        book.log.stage(ev.ModelCalled("m"), NOW, lazy=True)
        book.log.kick()
        assert seqs(tmp_path) == [1]
        await book.log.release()
        assert seqs(tmp_path) == [1, 2]

    run(write())


def where_jobs_run(owners: list[int], monkeypatch: pytest.MonkeyPatch, seconds: float = 0.0) -> list[str]:
    """For each job in its turn: did it run in the loop or in a thread? Each takes so long, by a clock of our own."""
    time = [0.0]
    monkeypatch.setattr("duragent.store.writers.perf_counter", lambda: time[0])

    def work() -> str:
        time[0] += seconds
        return "loop" if threading.current_thread() is threading.main_thread() else "thread"

    async def submit() -> list[str]:
        writers, ran = Writers(), []
        for owner in owners:
            done = asyncio.get_running_loop().create_future()
            writers.submit(asyncio.get_running_loop(), work, lambda place, _, done=done: done.set_result(place), owner)
            ran.append(await done)
        writers.close()
        return ran

    return run(submit())


def test_a_session_that_is_alone_is_written_in_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert where_jobs_run([7] * 7, monkeypatch) == ["thread"] * 4 + ["loop"] * 3


def test_sessions_that_take_turns_are_written_in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert where_jobs_run([7, 8] * 10, monkeypatch) == ["thread"] * 20


def test_on_a_slow_disk_a_session_is_written_in_threads_even_if_it_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert where_jobs_run([7] * 20, monkeypatch, seconds=0.1) == ["thread"] * 4 + ["loop"] + ["thread"] * 15
