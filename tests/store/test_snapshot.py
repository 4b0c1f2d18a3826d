"""state.yaml saves reading; it never decides what happened. Whatever becomes of it, the session is the same."""

from pathlib import Path
from zlib import crc32

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from duragent.core import events as ev
from duragent.core.session import fold
from duragent.errors import CorruptLog
from duragent.store import disk, snapshot
from duragent.store.files import FileStore
from tests.core.logs import logs
from tests.store.kept import EVENTS, ID, Book, add, chat, entries, keep, names, run, seqs

CHANGED = [*EVENTS, *chat(3)]


def read(folder: Path) -> tuple[object, tuple[str, ...]]:
    stored = FileStore(folder).read(ID)
    return stored.session, stored.notes


def sealed(text: bytes) -> bytes:
    body = text.rpartition(b"checksum: ")[0]
    return body + b'checksum: "%08x"\n' % crc32(body)


def test_with_and_without_its_snapshot_a_session_is_the_same(tmp_path: Path) -> None:
    folder = keep(tmp_path, EVENTS[:5], snapshot=True)
    add(tmp_path, *EVENTS[5:])
    with_it = read(tmp_path)
    (folder / "state.yaml").unlink()
    assert read(tmp_path) == with_it
    assert with_it == (fold(entries(tmp_path)), ())


def test_a_snapshot_saves_reading_what_it_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = keep(tmp_path, CHANGED, snapshot=True)
    size = (folder / "events.jsonl").stat().st_size
    add(tmp_path, ev.UserMessage("one more"))
    real, asked = disk.read, list[tuple[str, int]]()

    def recorded(path: str, offset: int = 0) -> bytes:
        asked.append((Path(path).name, offset))
        return real(path, offset)

    store = FileStore(tmp_path)
    monkeypatch.setattr("duragent.store.files.FIRST_LINE", 1)
    monkeypatch.setattr("duragent.store.opening.LAST_LINE", 300)
    monkeypatch.setattr(disk, "read", recorded)
    assert store.read(ID).session.messages[-1].content == "one more"
    assert asked == [("state.yaml", 0), ("events.jsonl", size - 300)]


def test_an_old_snapshot_is_carried_on_by_the_log(tmp_path: Path) -> None:
    folder = keep(tmp_path, EVENTS, snapshot=True)
    old = (folder / "state.yaml").read_bytes()
    add(tmp_path, *chat(5), compaction="disabled")
    assert (folder / "state.yaml").read_bytes() != old
    (folder / "state.yaml").write_bytes(old)
    assert read(tmp_path) == (fold(entries(tmp_path)), ())


@pytest.mark.parametrize("part", [1, 30, 200, -2])
def test_half_a_snapshot_is_none(part: int, tmp_path: Path) -> None:
    folder = keep(tmp_path, snapshot=True)
    path = folder / "state.yaml"
    path.write_bytes(path.read_bytes()[:part])
    session, notes = read(tmp_path)
    assert session == fold(entries(tmp_path))
    assert notes == ("state.yaml was not used: it is incomplete or damaged: its checksum does not fit.",)


def test_no_changed_byte_of_a_snapshot_goes_unnoticed(tmp_path: Path) -> None:
    folder = keep(tmp_path, snapshot=True)
    data, whole = (folder / "state.yaml").read_bytes(), fold(entries(tmp_path))
    for place in range(len(data)):
        (folder / "state.yaml").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        assert read(tmp_path)[0] == whole, place


def test_an_empty_snapshot_and_no_snapshot_are_the_same(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    (folder / "state.yaml").write_bytes(b"")
    assert read(tmp_path) == (fold(entries(tmp_path)), ())


def test_a_snapshot_of_a_newer_version_is_not_used(tmp_path: Path) -> None:
    folder = keep(tmp_path, snapshot=True)
    path = folder / "state.yaml"
    path.write_bytes(sealed(path.read_bytes().replace(b'schema_version: "3"', b'schema_version: "4"')))
    session, notes = read(tmp_path)
    assert session == fold(entries(tmp_path))
    assert notes == ('state.yaml was not used: it is of schema "4", and this version reads 3.',)


def test_where_the_log_needs_a_snapshot_that_cannot_be_used_it_is_said_why(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    add(tmp_path, *chat(2), compaction="discard")
    path = folder / "state.yaml"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(
        CorruptLog, match=r"events\.jsonl:1: it begins with entry 12, .*checksum does not fit.*Put state"
    ):
        read(tmp_path)
    path.unlink()
    with pytest.raises(CorruptLog, match=r"events\.jsonl:1: entries 1 to 11 are missing .*state\.yaml"):
        read(tmp_path)


def test_a_snapshot_ahead_of_a_whole_log_is_not_believed(tmp_path: Path) -> None:
    folder = keep(tmp_path, EVENTS)
    older = (folder / "events.jsonl").read_bytes()
    before = read(tmp_path)[0]
    add(tmp_path, *chat(2), compaction="disabled")
    (folder / "events.jsonl").write_bytes(older)
    assert read(tmp_path) == (before, ("state.yaml was not used: it is ahead of the log, which is the truth.",))


def test_a_snapshot_ahead_of_a_log_without_its_beginning_stops_the_session(tmp_path: Path) -> None:
    folder = keep(tmp_path, EVENTS)
    add(tmp_path, *chat(2), compaction="discard")
    older = (folder / "events.jsonl").read_bytes()
    add(tmp_path, *chat(2), compaction="discard")
    (folder / "events.jsonl").write_bytes(older)
    with pytest.raises(CorruptLog, match=r"events\.jsonl:1: it ends with entry 12, but state\.yaml holds 16"):
        read(tmp_path)


def test_a_log_that_was_lost_is_reported_and_the_session_goes_on_from_its_snapshot(tmp_path: Path) -> None:
    folder = keep(tmp_path, EVENTS, snapshot=True)
    whole = read(tmp_path)[0]
    (folder / "events.jsonl").unlink()
    note = "events.jsonl was missing or empty; the session goes on from state.yaml, entry 8."
    assert read(tmp_path) == (whole, (note,))
    assert add(tmp_path, ev.UserMessage("on")) == (note,)
    session, notes = read(tmp_path)
    assert (session.messages[-1].content, session.seq, notes) == ("on", 9, ())


def test_a_snapshot_never_holds_what_the_log_does_not(tmp_path: Path) -> None:
    """Something is said while the snapshot waits for the log: it must be on disk before it is in state.yaml."""
    folder = keep(tmp_path)

    async def write() -> int:
        book = Book(FileStore(tmp_path)).open()
        book.stage(ev.UserMessage("first"))
        real, left = book.log.flush, [ev.UserMessage("second"), ev.UserMessage("third")]

        async def flush() -> None:
            await real()
            if left:
                book.stage(left.pop(0))

        book.log.flush = flush  # type: ignore[method-assign]
        await book.snapshot()
        covered = snapshot.parse((folder / "state.yaml").read_bytes()).session.seq
        assert covered == len((folder / "events.jsonl").read_bytes().splitlines()) == book.log.seq
        await book.log.release()
        return covered

    assert run(write()) == 11
    assert seqs(tmp_path) == list(range(1, 12))


def test_the_snapshot_of_an_earlier_state_does_not_hide_what_came_later(tmp_path: Path) -> None:
    keep(tmp_path)
    earlier = FileStore(tmp_path).read(ID).session

    async def write() -> None:
        book = Book(FileStore(tmp_path)).open()
        await book.write(*chat(2))
        await book.log.snapshot(earlier)
        await book.log.release()

    run(write())
    assert read(tmp_path) == (fold(entries(tmp_path)), ())


def test_a_snapshot_left_aside_by_a_crash_is_taken_over_by_the_next(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    (folder / "state.yaml.tmp").write_bytes(b"half a sna")
    add(tmp_path, compaction="disabled")
    assert names(folder) == {"events.jsonl", "lock", "state.yaml"}


def test_people_and_programs_can_read_it_as_yaml(tmp_path: Path) -> None:
    folder = keep(tmp_path, snapshot=True)
    found = yaml.safe_load((folder / "state.yaml").read_text(encoding="utf-8"))
    assert (found["agent"], found["status"], found["last_event_seq"]) == ("bot", "active", 8)
    assert [said["content"] for said in found["conversation"]] == ["größer 🦉\nsecond line", "I will.", "It is made."]


@settings(max_examples=150)
@given(logs(), st.data())
def test_any_session_taken_up_from_a_snapshot_goes_on_as_if_it_had_never_left(
    log: list[ev.Entry], data: st.DataObject
) -> None:
    written = [entry for entry in log if not isinstance(entry.event, ev.Unknown)]
    log = [
        ev.parse_entry(ev.seal(seq, entry.timestamp, entry.event)[1]) for seq, entry in enumerate(written, 1)
    ]  # as a reader sees them
    place = data.draw(st.integers(0, len(log)))
    kept = snapshot.parse(snapshot.render(ID, fold(log[:place]), 7))
    assert kept.offset == 7
    assert fold(log[place:], kept.session) == fold(log)
