"""The disk says no: nothing is acknowledged, whoever waits is told, and the session goes on once the disk is well."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, SessionRules
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.errors import Conflict, NotFound, StorageFailed
from duragent.models import Answer, Listener
from duragent.runtime import Runtime, Settings
from duragent.store import disk
from duragent.store.files import FileStore
from duragent.tools import function_tool
from tests.store.kept import (
    BROKEN,
    EVENTS,
    ID,
    NO_SPACE,
    NOW,
    OTHER,
    READ_ONLY,
    Book,
    add,
    chat,
    error,
    failing,
    keep,
    names,
    run,
    seqs,
)

AGENT = Agent(name="bot", session=SessionRules(on_disconnect="continue"))


class Echo:
    name = "test/echo"

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        return Answer(f"You said {request.messages[-1].content}.")

    async def close(self) -> None: ...


def open_runtime(folder: Path, **settings: Any) -> Runtime:
    return Runtime(folder, agents=[AGENT], models=[Echo()], settings=Settings(**settings))


def half_then(number: int) -> Any:
    """A write of which a part arrives before the disk refuses."""

    def write(fd: int, data: bytes) -> int:
        if len(data) > 10:
            return os.write(fd, data[:10])
        raise error(number)

    return write


class Disk:
    """`os` for the store, with some of its calls replaced."""

    def __init__(self, **replaced: Any) -> None:
        self.__dict__.update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def refuse(number: int) -> Any:
    def call(*given: Any) -> Any:
        raise error(number)

    return call


FAULTS = {
    "a full disk": {"write": refuse(NO_SPACE)},
    "a disk that gets full half-way": {"write": half_then(NO_SPACE)},
    "a broken disk": {"write": refuse(BROKEN)},
    "a broken disk half-way, that cannot be shortened either": {
        "write": half_then(BROKEN),
        "ftruncate": refuse(BROKEN),
    },
    "a disk that became read-only": {"open": refuse(READ_ONLY)},
    "a sync that fails": {"fdatasync": refuse(BROKEN)},
    "a sync that fails, and a file that cannot be shortened": {
        "fdatasync": refuse(BROKEN),
        "ftruncate": refuse(BROKEN),
    },
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_fails_is_never_acknowledged_and_the_session_opens_again(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "os", Disk(**FAULTS[fault]))
            with pytest.raises(StorageFailed, match=r"events\.jsonl: .*Nothing that was being written counts"):
                await book.write(ev.UserMessage("lost"))
            with pytest.raises(StorageFailed):
                book.log.stage(ev.UserMessage("more"), NOW)
            with pytest.raises(StorageFailed):
                await book.log.flush()
        with pytest.raises(StorageFailed):
            await book.log.flush()  # this log is over, even if the disk is well again: what it numbered is gone
        assert book.delivered == []
        await book.log.release()

    run(write())
    unsure = "cannot be shortened" in fault and "sync" in fault
    assert seqs(tmp_path) == list(range(1, 10 if unsure else 9))
    add(tmp_path, ev.UserMessage("again"))
    assert seqs(tmp_path) == list(range(1, 11 if unsure else 10))
    assert FileStore(tmp_path).read(ID).session.messages[-1].content == "again"


def test_a_durable_write_that_fails_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before\n")
    monkeypatch.setattr(disk, "os", Disk(write=half_then(BROKEN)))
    with pytest.raises(OSError):
        disk.append(str(path), b"a line that is long enough\n", 7)
    assert path.read_bytes() == b"before\n"


def test_a_file_that_something_else_wrote_to_is_not_written_to(tmp_path: Path) -> None:
    folder = keep(tmp_path)

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        with (folder / "events.jsonl").open("ab") as file:
            file.write(b"by hand\n")
        with pytest.raises(StorageFailed, match="something else wrote to it"):
            await book.write(ev.UserMessage("hello"))
        await book.log.release()

    run(write())
    assert (folder / "events.jsonl").read_bytes().endswith(b"by hand\n")


def test_a_write_that_failed_with_nobody_waiting_fails_whoever_waits_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        with failing(monkeypatch, "write", NO_SPACE):
            book.stage(ev.UserMessage("first"))
            book.log.kick()
            while book.log._broken is None:
                await asyncio.sleep(0)
        with pytest.raises(StorageFailed):
            await book.log.flush()
        await book.log.release()

    run(write())


def test_all_who_wait_for_a_write_that_fails_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)

    async def write() -> list[Any]:
        book = Book(FileStore(tmp_path)).open()
        with failing(monkeypatch, "write", NO_SPACE):
            tasks = [asyncio.ensure_future(book.write(ev.UserMessage(str(n)))) for n in range(5)]
            done = await asyncio.gather(*tasks, return_exceptions=True)
        await book.log.release()
        return done

    assert [type(each) for each in run(write())] == [StorageFailed] * 5
    assert seqs(tmp_path) == list(range(1, 9))


def test_other_sessions_keep_working_while_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.append

    async def talk() -> None:
        async with open_runtime(tmp_path) as runtime:
            sick, well = await runtime.open_session(AGENT), await runtime.open_session(AGENT)

            def append(path: str, data: bytes, size: int, durable: bool = True) -> int:
                if sick in path:
                    raise error(NO_SPACE)
                return real(path, data, size, durable)

            with monkeypatch.context() as patch:
                patch.setattr(disk, "append", append)
                with pytest.raises(StorageFailed, match="No space left"):
                    await runtime.post(sick, "lost")
                await runtime.post(well, "hello")
                assert (await runtime.settled(well)).messages[-1].content == "You said hello."
                with pytest.raises(StorageFailed):
                    await runtime.post(sick, "lost, too")
            await runtime.post(sick, "found")
            session = await runtime.settled(sick)
            assert [message.content for message in session.messages] == ["found", "You said found."]

    run(talk())


def test_a_follower_is_told_when_the_disk_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listen(runtime: Runtime, session_id: str, heard: list[object]) -> None:
        async for item in runtime.follow(session_id):
            heard.append(item)

    async def talk() -> None:
        async with open_runtime(tmp_path) as runtime:
            session_id = await runtime.open_session(AGENT)
            heard: list[object] = []
            listening = asyncio.ensure_future(listen(runtime, session_id, heard))
            while len(heard) < 2:  # the first entry, and that nothing runs
                await asyncio.sleep(0)
            with failing(monkeypatch, "write", NO_SPACE):
                with pytest.raises(StorageFailed):
                    await runtime.post(session_id, "lost")
                with pytest.raises(StorageFailed, match="No space left"):
                    await asyncio.wait_for(listening, 5)
            assert not any(isinstance(item, ev.Entry) and item.seq > 1 for item in heard)

    run(talk())


def test_a_disk_that_gets_full_in_the_middle_of_a_turn_stops_it_and_it_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, writes = disk.append, [0]

    def append(path: str, data: bytes, size: int, durable: bool = True) -> int:
        writes[0] += 1
        if b"assistant_response" in data:
            raise error(NO_SPACE)
        return real(path, data, size, durable)

    async def talk() -> None:
        async with open_runtime(tmp_path) as runtime:
            session_id = await runtime.open_session(AGENT)
            with monkeypatch.context() as patch:
                patch.setattr(disk, "append", append)
                await runtime.post(session_id, "hello")
                await asyncio.sleep(0)
                while runtime._lives.get(session_id) is not None:
                    await asyncio.sleep(0)
            assert await runtime.recover() == [session_id]
            session = await runtime.settled(session_id)
            assert [message.content for message in session.messages] == ["hello", "You said hello."]

    run(talk())


@pytest.mark.parametrize("call", ["write", "fdatasync", "replace", "open"])
@pytest.mark.parametrize("compaction", [None, "discard", "archive"])
def test_a_snapshot_that_cannot_be_written_leaves_the_session_as_it_was(
    compaction: Any, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keep(tmp_path, [*EVENTS, *chat(3)])
    before = (folder / "events.jsonl").read_bytes()

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        with failing(monkeypatch, call, NO_SPACE), pytest.raises(StorageFailed):
            await book.snapshot(compaction)
        assert (folder / "events.jsonl").read_bytes() == before
        await book.write(ev.UserMessage("on"))
        await book.snapshot(compaction)
        await book.log.release()

    run(write())
    assert FileStore(tmp_path).read(ID).session.messages[-1].content == "on"
    assert not [name for name in names(folder) if name.endswith(".tmp")], "a full disk gets its space back"


@pytest.mark.parametrize("compaction", ["discard", "archive"])
def test_a_log_that_was_shortened_but_not_synced_is_over_and_opens_again(
    compaction: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, [*EVENTS, *chat(3)])
    synced = [0]

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        whole = book.session

        def sync_folder(path: str) -> None:
            synced[0] += 1
            if synced[0] == (2 if compaction == "discard" else 3):
                raise error(BROKEN)

        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync_folder", sync_folder)
            with pytest.raises(StorageFailed):
                await book.snapshot(compaction)
        with pytest.raises(StorageFailed):
            await book.write(ev.UserMessage("not here"))
        await book.log.release()
        assert FileStore(tmp_path).read(ID).session.messages == whole.messages

    run(write())
    add(tmp_path, ev.UserMessage("on"))
    assert FileStore(tmp_path).read(ID).session.messages[-1].content == "on"


def test_a_full_disk_does_not_keep_a_session_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)
    store = FileStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("duragent.store.files.os.pwrite", refuse(NO_SPACE))
        log, stored = store.open(ID, lambda entries: None)
        assert stored.session.seq == 8
        with pytest.raises(Conflict, match="held by another process"):
            store.open(ID, lambda entries: None)
        run(log.release())
    log, _ = store.open(ID, lambda entries: None)
    run(log.release())


def test_a_torn_tail_that_cannot_be_kept_aside_is_not_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep(tmp_path)
    torn = (folder / "events.jsonl").read_bytes()[:-5]
    (folder / "events.jsonl").write_bytes(torn)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "os", Disk(write=half_then(NO_SPACE)))
        with pytest.raises(StorageFailed):
            FileStore(tmp_path).open(ID, lambda entries: None)
    assert (folder / "events.jsonl").read_bytes() == torn
    assert names(folder) == {"events.jsonl", "lock"}
    (note,) = add(tmp_path)
    kept = Path(note.split(" kept in ")[1].removesuffix("."))
    assert torn.endswith(b"\n" + kept.read_bytes())


def test_a_session_that_cannot_be_created_is_none_and_another_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def talk() -> None:
        async with open_runtime(tmp_path) as runtime:
            for call in ("mkdir", "open", "write", "fsync"):
                with failing(monkeypatch, call, READ_ONLY), pytest.raises(StorageFailed, match="Read-only file system"):
                    await runtime.open_session(AGENT)
            assert runtime.store.ids() == []
            session_id = await runtime.open_session(AGENT)
            assert runtime.store.ids() == [session_id]

    run(talk())


def test_work_that_breaks_in_a_writer_thread_is_a_failure_not_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)

    def broken(path: str, data: bytes, size: int, durable: bool = True) -> int:
        raise MemoryError("no room")

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        monkeypatch.setattr(disk, "append", broken)
        with pytest.raises(StorageFailed, match="MemoryError: no room"):
            await asyncio.wait_for(book.write(ev.UserMessage("hello")), 5)
        await book.log.release()

    run(write())


def test_a_session_folder_that_cannot_be_read_is_reported_and_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)
    keep(tmp_path, session_id=OTHER)
    real = disk.read

    def read(path: str, offset: int = 0) -> bytes:
        if ID in path:
            raise error(BROKEN)
        return real(path, offset)

    async def recover() -> dict[str, str]:
        async with open_runtime(tmp_path, ttl_hours=0) as runtime:
            await runtime.recover()
            return {name: type(problem).__name__ for name, problem in runtime.problems.items()}

    monkeypatch.setattr(disk, "read", read)
    assert FileStore(tmp_path).ids() == [ID, OTHER]
    assert run(recover()) == {ID: "StorageFailed"}
    with pytest.raises(NotFound):
        FileStore(tmp_path).read("session_nowhere")


def test_a_tool_that_runs_when_the_disk_refuses_a_message_is_not_run_a_second_time_beside_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is opened anew for the next message: the old one's tool must not be at work any more by then."""
    running, most = [0], [0]

    async def talk() -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            running[0] += 1
            most[0] = max(running[0], most[0])
            begun.set()
            try:
                await go_on.wait()
            finally:
                running[0] -= 1
            return "done"

        class Caller(Echo):
            async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
                calls = () if any(message.calls for message in request.messages) else (ev.ToolCall("c1", "slow", {}),)
                return Answer("Done.", calls)

        tools = {"slow": function_tool(slow, effect="repeatable")}
        async with Runtime(tmp_path, agents=[AGENT], models=[Caller()], tools=tools) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "begin")
            await begun.wait()
            with failing(monkeypatch, "write", NO_SPACE), pytest.raises(StorageFailed):
                await runtime.post(session_id, "lost")
            begun.clear()
            assert await runtime.recover() == [session_id]
            await begun.wait()
            go_on.set()
            assert (await runtime.settled(session_id)).messages[-1].content == "Done."

    run(talk())
    assert most == [1]
