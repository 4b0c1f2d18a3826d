"""Shortening a log never takes a line away before what replaces it is on disk."""

import math
import os
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, SessionRules
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.core.session import fold
from duragent.errors import CorruptLog
from duragent.models import Answer, Listener
from duragent.runtime import Runtime, Settings
from duragent.store import disk
from duragent.store.filelog import FileLog
from duragent.store.files import FileStore
from tests.store.kept import EVENTS, ID, Book, add, chat, entries, keep, names, run, seqs

MODES = ["discard", "archive", "disabled"]
LOG, ARCHIVE, STATE = "events.jsonl", "events.archive.jsonl", "state.yaml"


def record(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Every change of a file, in its order: a rename says what it puts in place."""
    done: list[tuple[str, ...]] = []
    opened: dict[int, str] = {}

    class Os:
        def __getattr__(self, name: str) -> Any:
            real = getattr(os, name)

            def call(*given: Any) -> Any:
                result = real(*given)
                if name == "open":
                    opened[result] = Path(given[0]).name
                elif name in ("write", "fdatasync", "ftruncate"):
                    done.append((name, opened[given[0]]))
                elif name == "fsync":
                    done.append(("sync the folder",))
                elif name == "replace":
                    done.append(("rename", Path(given[0]).name, Path(given[1]).name))
                return result

            return call if name in ("open", "write", "fdatasync", "ftruncate", "fsync", "replace") else real

    monkeypatch.setattr(disk, "os", Os())
    return done


def compacted(folder: Path, compaction: Any, turns: int = 3) -> Path:
    kept = keep(folder)
    add(folder, *chat(turns), compaction=compaction)
    return kept


REPLACE_STATE = [("write", f"{STATE}.tmp"), ("fdatasync", f"{STATE}.tmp"), ("rename", f"{STATE}.tmp", STATE)]
REPLACE_LOG = [("write", f"{LOG}.tmp"), ("fdatasync", f"{LOG}.tmp"), ("rename", f"{LOG}.tmp", LOG)]
SYNC = [("sync the folder",)]


def changes(folder: Path, compaction: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    async def write() -> list[tuple[str, ...]]:
        book = Book(FileStore(folder)).open()
        with monkeypatch.context() as patch:
            done = record(patch)
            await book.snapshot(compaction)
        await book.log.release()
        return done

    return run(write())


def test_discarding_writes_the_snapshot_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tmp_path)
    assert changes(tmp_path, "discard", monkeypatch) == [*REPLACE_STATE, *SYNC, *REPLACE_LOG, *SYNC]


def test_archiving_writes_the_snapshot_then_the_archive_and_only_then_shortens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)
    first = [("fdatasync", ARCHIVE), *SYNC, ("write", ARCHIVE), ("fdatasync", ARCHIVE)]
    assert changes(tmp_path, "archive", monkeypatch) == [*REPLACE_STATE, *SYNC, *first, *REPLACE_LOG, *SYNC]
    add(tmp_path, *chat(2))
    later = [("write", ARCHIVE), ("fdatasync", ARCHIVE)]
    assert changes(tmp_path, "archive", monkeypatch) == [*REPLACE_STATE, *SYNC, *later, *REPLACE_LOG, *SYNC]


@pytest.mark.parametrize("compaction", [None, "disabled"])
def test_without_compaction_the_log_is_never_touched(
    compaction: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path)
    assert changes(tmp_path, compaction, monkeypatch) == [*REPLACE_STATE, *SYNC]


@pytest.mark.parametrize("compaction", MODES)
def test_the_session_is_the_same_before_and_after(compaction: Any, tmp_path: Path) -> None:
    keep(tmp_path, [*EVENTS, *chat(3)])
    before = FileStore(tmp_path).read(ID)
    add(tmp_path, compaction=compaction)
    assert FileStore(tmp_path).read(ID) == before
    add(tmp_path, *chat(3, 3), compaction=compaction)
    assert [message.content for message in FileStore(tmp_path).read(ID).session.messages[-6:]] == [
        text for turn in (3, 4, 5) for text in (f"question {turn}", f"answer {turn}")
    ]


def test_discarding_leaves_the_last_line_so_that_the_log_never_looks_empty(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "discard")
    assert seqs(tmp_path) == [14]
    assert names(folder) == {LOG, STATE, "lock"}
    add(tmp_path, ev.UserMessage("on"))
    assert seqs(tmp_path) == [14, 15]


def test_the_archive_and_the_log_give_every_entry_once(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    for turn in range(5):
        add(tmp_path, *chat(2, turn), compaction="archive")
    assert seqs(tmp_path) == list(range(1, 29))
    assert [seqs(tmp_path, after=after) for after in (0, 5, 27, 28, 99)] == [
        list(range(after + 1, 29)) for after in (0, 5, 27, 28, 99)
    ]
    assert len((folder / ARCHIVE).read_bytes().splitlines()) == 27
    assert len((folder / LOG).read_bytes().splitlines()) == 1


def test_archived_a_session_opens_without_its_snapshot(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "archive")
    before = FileStore(tmp_path).read(ID).session
    (folder / STATE).unlink()
    assert FileStore(tmp_path).read(ID).session == before == fold(entries(tmp_path))


def test_a_crash_between_archive_and_shortening_archives_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = keep(tmp_path, [*EVENTS, *chat(3)])
    real = disk.replace

    def replace(path: str, data: bytes) -> None:
        if path.endswith(LOG):
            raise OSError("the process is gone here")
        real(path, data)

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "replace", replace)
            with pytest.raises(Exception, match="the process is gone here"):
                await book.snapshot("archive")
        await book.log.release()

    run(write())
    assert len((folder / ARCHIVE).read_bytes().splitlines()) == 13
    assert seqs(tmp_path) == list(range(1, 15))
    add(tmp_path, *chat(2), compaction="archive")
    assert [ev.parse_entry(line).seq for line in (folder / ARCHIVE).read_bytes().splitlines()] == list(range(1, 18))
    assert seqs(tmp_path) == list(range(1, 19))


def test_a_crash_in_the_middle_of_archiving_leaves_no_half_line_in_it(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "archive")
    whole = (folder / ARCHIVE).read_bytes()
    add(tmp_path, *chat(3))
    line = (folder / LOG).read_bytes().splitlines()[0]
    (folder / ARCHIVE).write_bytes(whole + line[:20])
    assert seqs(tmp_path) == list(range(1, 21))
    add(tmp_path, compaction="archive")
    assert [ev.parse_entry(line).seq for line in (folder / ARCHIVE).read_bytes().splitlines()] == list(range(1, 20))


def test_what_was_discarded_in_between_does_not_keep_later_lines_out_of_the_archive(tmp_path: Path) -> None:
    """An agent's owner may change the setting and change it back."""
    compacted(tmp_path, "archive")
    add(tmp_path, *chat(2), compaction="discard")
    add(tmp_path, *chat(3), compaction="archive")
    add(tmp_path, *chat(1))
    assert seqs(tmp_path) == [*range(1, 14), *range(18, 27)]
    (tmp_path / ID / STATE).unlink()
    with pytest.raises(CorruptLog, match=r"events\.archive\.jsonl:14: entries 14 to 17 are missing"):
        FileStore(tmp_path).read(ID)


def test_an_archive_without_its_beginning_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "discard")
    add(tmp_path, *chat(3), compaction="archive")
    assert seqs(tmp_path) == list(range(14, 21))
    (folder / STATE).unlink()
    with pytest.raises(CorruptLog, match=r"events\.archive\.jsonl:1: entries 1 to 13 are missing"):
        FileStore(tmp_path).read(ID)


def test_a_damaged_archive_loses_no_further_line(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "archive")
    data = (folder / ARCHIVE).read_bytes()
    (folder / ARCHIVE).write_bytes(data[:-20] + b"?" * 19 + b"\n")
    add(tmp_path, *chat(3), compaction="archive")
    kept = (folder / ARCHIVE).read_bytes().splitlines() + (folder / LOG).read_bytes().splitlines()
    assert [ev.parse_entry(line).seq for line in kept[13:]] == list(range(14, 21))
    with pytest.raises(CorruptLog, match=r"events\.archive\.jsonl:13: "):
        entries(tmp_path)
    assert FileStore(tmp_path).read(ID).session.seq == 20, "its snapshot and its log are whole"


def test_where_the_log_was_lost_the_archive_still_gives_what_it_has(tmp_path: Path) -> None:
    folder = compacted(tmp_path, "archive")
    (folder / LOG).unlink()
    assert seqs(tmp_path) == list(range(1, 14))


def test_lines_spaced_as_another_writer_spaces_them_are_archived_too(tmp_path: Path) -> None:
    folder = tmp_path / ID
    folder.mkdir()
    line = '{"timestamp": "2026-03-01T12:00:00Z", "seq": %d, "type": "user_message", "content": "hello"}\n'
    start = '{"timestamp": "2026-03-01T12:00:00Z", "seq": 1, "type": "session_start", "agent": "bot"}\n'
    (folder / ARCHIVE).write_text(start + line % 2)
    (folder / LOG).write_text("".join(line % seq for seq in (3, 4, 5)))
    add(tmp_path, ev.UserMessage("on"), compaction="archive")
    assert seqs(tmp_path) == [1, 2, 3, 4, 5, 6]
    assert len((folder / ARCHIVE).read_bytes().splitlines()) == 5


def test_a_reader_that_comes_between_snapshot_and_shortening_gets_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot is read, then another process compacts, then the log is read."""
    keep(tmp_path, EVENTS, snapshot=True)
    real, compactions = disk.read, [0]

    def read(path: str, offset: int = 0) -> bytes:
        data = real(path, offset)
        if path.endswith(STATE) and not compactions[0]:
            compactions[0] += 1
            add(tmp_path, *chat(4), compaction="discard")
        return data

    monkeypatch.setattr(disk, "read", read)
    assert FileStore(tmp_path).read(ID).session.messages[-1].content == "answer 3"


class Echo:
    name = "test/echo"

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        return Answer("Yes.")

    async def close(self) -> None: ...


def agent(compaction: Any) -> Agent:
    return Agent(name="bot", session=SessionRules(on_disconnect="continue", compaction=compaction))


def test_an_agents_own_word_about_compaction_holds_after_a_restart_too(tmp_path: Path) -> None:
    async def talk(session_id: str) -> str:
        rules = Settings(compaction="discard", snapshot_every=4)
        async with Runtime(tmp_path, agents=[agent("archive")], models=[Echo()], settings=rules) as runtime:
            session_id = session_id or await runtime.open_session(agent("archive"))
            for _ in range(4):
                await runtime.post(session_id, "hello")
                await runtime.settled(session_id)
            return session_id

    session_id = run(talk(""))
    run(talk(session_id))
    assert len((tmp_path / session_id / LOG).read_bytes().splitlines()) < 12, "it was shortened"
    assert seqs(tmp_path, session_id) == list(range(1, 26))


@pytest.mark.parametrize("compaction", MODES)
def test_the_work_for_snapshots_does_not_grow_with_the_session(
    compaction: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 turns: each snapshot comes after a share of what there is, so their number is a logarithm of it."""
    real, taken = FileLog.snapshot, list[int]()

    async def snapshot(self: FileLog, session: Any, compaction: Any = None) -> None:
        taken.append(session.seq)
        await real(self, session, compaction)

    def quick(path: str, data: bytes, size: int, durable: bool = True) -> int:
        with open(path, "ab") as file:
            file.write(data)
        return size + len(data)

    monkeypatch.setattr(FileLog, "snapshot", snapshot)
    monkeypatch.setattr(disk, "append", quick)

    async def talk() -> int:
        rules = Settings(compaction=compaction, snapshot_every=50)
        async with Runtime(tmp_path, agents=[agent(compaction)], models=[Echo()], settings=rules) as runtime:
            session_id = await runtime.open_session(agent(compaction))
            for _ in range(3000):
                await runtime.post(session_id, "hello")
                await runtime.settled(session_id)
            return (await runtime.session(session_id)).seq

    last = run(talk())
    assert last == 9001
    assert len(taken) <= 50 / 16 + math.log(last / 50, 1.5) + 3
    assert sum(taken) < 4 * last, "all snapshots together cost about as much as the log has entries"
