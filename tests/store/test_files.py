"""What is in a folder of sessions: what counts as one, what is left alone, and what time it is there."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from duragent.agent import Agent, SessionRules
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.core.session import fold
from duragent.errors import NotFound, StorageFailed
from duragent.models import Answer, Listener
from duragent.runtime import Runtime, Settings
from duragent.store import disk
from duragent.store.files import FileStore
from tests.store.kept import EVENTS, ID, NOW, OTHER, Book, add, chat, entries, keep, names, run, seqs


def nothing(entries: object) -> None: ...


def test_there_are_no_sessions_where_there_is_no_folder(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "nowhere")
    assert store.ids() == []
    assert names(tmp_path) == set()
    for refused in (lambda: store.read(ID), lambda: store.open(ID, nothing), lambda: list(store.entries(ID))):
        with pytest.raises(NotFound, match=f"There is no session {ID}"):
            refused()


def test_what_is_no_session_is_left_alone(tmp_path: Path) -> None:
    keep(tmp_path)
    (tmp_path / "session_01 copy").mkdir()
    (tmp_path / "session_01.bak").mkdir()
    (tmp_path / "session_file").write_text("a file, no folder")
    (tmp_path / "session_empty").mkdir()
    (tmp_path / "session_begun").mkdir()
    (tmp_path / "session_begun" / "events.jsonl").touch()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / ID / "notes.txt").write_text("mine")
    before = names(tmp_path)
    assert FileStore(tmp_path).ids() == [ID]
    add(tmp_path, ev.UserMessage("on"), compaction="archive")
    assert names(tmp_path) == before
    assert (tmp_path / ID / "notes.txt").read_text() == "mine"
    for name in ("session_file", "session_empty", "session_begun"):
        with pytest.raises(NotFound):
            FileStore(tmp_path).open(name, nothing)


def test_a_file_in_the_place_of_the_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("not a folder")
    with pytest.raises(StorageFailed, match=r"sessions: Not a directory"):
        FileStore(tmp_path / "sessions").ids()


@pytest.mark.parametrize(
    "session_id",
    [
        *("", "session", "../x", "session_../../etc", "session_a/b", "session_a\0b", "session_a\n", "/session_a"),
        *("session_" + "x" * 400, "session_ä", "session_a b", "Session_a", ".deleted-session_a", "session_a."),
    ],
)
def test_an_id_never_leads_out_of_the_folder(session_id: str, tmp_path: Path) -> None:
    store = FileStore(tmp_path / "sessions")
    for refused in (
        lambda: store.read(session_id),
        lambda: store.open(session_id, nothing),
        lambda: store.create(session_id, nothing),
        lambda: store.delete(session_id),
        lambda: store.holder(session_id),
        lambda: list(store.entries(session_id)),
    ):
        with pytest.raises(NotFound, match="is no id of a session"):
            refused()
    assert names(tmp_path) == set()


def test_a_session_is_not_created_over_another(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    before = (folder / "events.jsonl").read_bytes()
    with pytest.raises(StorageFailed, match="File exists"):
        FileStore(tmp_path).create(ID, nothing)
    assert (folder / "events.jsonl").read_bytes() == before
    add(tmp_path, ev.UserMessage("still open to all"))


def test_a_clock_that_jumps_back_does_not_turn_the_log_back(tmp_path: Path) -> None:
    async def write(now: datetime) -> None:
        book = Book(FileStore(tmp_path)).open() if (tmp_path / ID).exists() else Book(FileStore(tmp_path)).create()
        book.stage(*(EVENTS[:1] if not book.session.seq else ()), ev.UserMessage("hello"), now=now)
        book.stage(ev.UserMessage("again"), now=now - timedelta(days=400))
        await book.log.flush()
        await book.log.release()

    run(write(NOW))
    run(write(NOW - timedelta(days=1)))
    run(write(NOW + timedelta(seconds=1)))
    stamps = [entry.timestamp for entry in entries(tmp_path)]
    assert stamps == ["2026-03-01T12:00:00.000Z"] * 5 + ["2026-03-01T12:00:01.000Z"] * 2
    assert seqs(tmp_path) == list(range(1, 8))


def test_opening_a_session_does_not_make_it_younger(tmp_path: Path) -> None:
    keep(tmp_path)
    for _ in range(2):
        add(tmp_path, compaction="disabled")
    assert FileStore(tmp_path).read(ID).session.updated_at == "2026-03-01T12:00:00.000Z"


class Echo:
    name = "test/echo"

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        return Answer("Yes.")

    async def close(self) -> None: ...


AGENT = Agent(name="bot", session=SessionRules(on_disconnect="continue"))


@pytest.mark.parametrize("jump", [timedelta(days=-30), timedelta(seconds=-1), timedelta(days=30)])
def test_a_turn_is_answered_whatever_the_clock_does(jump: timedelta, tmp_path: Path) -> None:
    times = [datetime(2026, 3, 1, tzinfo=UTC)]

    async def talk() -> list[str]:
        async with Runtime(
            tmp_path, agents=[AGENT], models=[Echo()], settings=Settings(ttl_hours=0), clock=lambda: times[-1]
        ) as runtime:
            session_id = await runtime.open_session(AGENT)
            for _ in range(3):
                times.append(times[-1] + jump)
                await runtime.post(session_id, "hello")
                await runtime.settled(session_id)
                await runtime.sweep()
            return [message.content for message in (await runtime.session(session_id)).messages]

    assert run(talk()) == ["hello", "Yes."] * 3


def test_a_fork_is_the_beginning_of_another_session(tmp_path: Path) -> None:
    keep(tmp_path)
    store = FileStore(tmp_path)
    store.fork(ID, 3, OTHER)
    assert [entry.event for entry in store.entries(OTHER)][1:] == list(EVENTS[1:3])
    forked = store.read(OTHER).session
    assert (forked.seq, forked.forked_from) == (3, f"{ID}@3")
    assert store.read(ID).session.forked_from is None
    for seq in (0, 9):
        with pytest.raises(NotFound, match=f"has no entry {seq} in its log; its last one is 8"):
            store.fork(ID, seq, "session_never")
    assert store.ids() == [ID, OTHER]


def test_a_fork_of_a_session_whose_beginning_is_gone_takes_the_snapshot_along(tmp_path: Path) -> None:
    start = ev.SessionStart("bot", gateway="telegram", gateway_chat_id="7", version=1)
    keep(tmp_path, [start, *EVENTS[1:]])
    add(tmp_path, *chat(2), compaction="discard")
    add(tmp_path, *chat(2, 2))
    store = FileStore(tmp_path)
    store.fork(ID, 14, OTHER)
    forked, whole = store.read(OTHER), store.read(ID).session
    assert forked.notes == ()
    assert forked.session.messages == whole.messages[:-2]
    assert (forked.session.gateway, forked.session.undelivered) == (None, {}), "the chat belongs to the first one"
    add(tmp_path, ev.UserMessage("on"), session_id=OTHER)
    assert store.read(OTHER).session.seq == 15
    with pytest.raises(NotFound, match="has no entry 11"):
        store.fork(ID, 11, "session_never")


def test_a_fork_at_the_very_entry_of_the_snapshot_opens_without_a_word(tmp_path: Path) -> None:
    keep(tmp_path)
    add(tmp_path, *chat(2), compaction="discard")
    store = FileStore(tmp_path)
    store.fork(ID, 12, OTHER)
    assert store.read(OTHER).notes == ()
    assert store.read(OTHER).session.messages == store.read(ID).session.messages


@pytest.mark.parametrize("schema", ["1", "2"])
def test_a_damaged_state_json_harms_no_session_whose_log_is_whole(schema: str, tmp_path: Path) -> None:
    folder = keep(tmp_path)
    whole = FileStore(tmp_path).read(ID)
    (folder / "state.json").write_text(f'{{"schema_version": "{schema}", "conv')
    assert FileStore(tmp_path).read(ID) == whole


def test_a_session_without_any_snapshot_is_listed_and_opens(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    assert names(folder) == {"events.jsonl", "lock"}
    assert FileStore(tmp_path).ids() == [ID]
    assert FileStore(tmp_path).read(ID).session == fold(entries(tmp_path))


def test_a_kind_of_event_from_tomorrow_stays_in_the_file_and_is_counted(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    line = b'{"seq":9,"timestamp":"2026-03-01T12:00:00.000Z","type":"mood_changed","mood":"good"}'
    with (folder / "events.jsonl").open("ab") as file:
        file.write(line + b"\n")
    add(tmp_path, ev.UserMessage("on"), compaction="archive")
    assert FileStore(tmp_path).read(ID).session.seq == 10
    assert line in (folder / "events.archive.jsonl").read_bytes().splitlines()


def test_names_are_synced_before_a_session_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file whose folder was not synced may be gone after a loss of power, however well it was synced itself."""
    real, synced = disk.sync_folder, list[tuple[str, bool]]()

    def sync_folder(path: str) -> None:
        synced.append((Path(path).name, (tmp_path / "sessions" / ID / "events.jsonl").exists()))
        real(path)

    monkeypatch.setattr(disk, "sync_folder", sync_folder)
    keep(tmp_path / "sessions")
    assert synced == [(tmp_path.name, False), ("sessions", False), (ID, True)]


@pytest.mark.parametrize("busy", [False, True], ids=["at rest", "in the middle of a turn"])
def test_a_session_deleted_while_it_lives_leaves_no_file(busy: bool, tmp_path: Path) -> None:
    class Slow(Echo):
        async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
            return await asyncio.Event().wait() and Answer("never") if busy else Answer("Yes.")

    async def talk() -> None:
        async with Runtime(tmp_path, agents=[AGENT], models=[Slow()]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "hello")
            if not busy:
                await runtime.settled(session_id)
            await runtime.delete(session_id)

    run(talk())
    assert names(tmp_path) == set()
