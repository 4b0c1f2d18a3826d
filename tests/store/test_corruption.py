"""Whatever is done to the last records of a log: it opens with the right beginning, or refuses and says where."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from duragent.core import events as ev
from duragent.core.session import Session, fold
from duragent.errors import CorruptLog, NotFound
from duragent.store.files import FileStore
from tests.store.kept import EVENTS, ID, OTHER, Book, add, entries, keep, run, seqs

LAST = 3


def good_prefixes(folder: Path) -> dict[int, Session]:
    """The session after each entry, as the undamaged log has it."""
    whole = entries(folder.parent)
    return {entry.seq: fold(whole[: entry.seq]) for entry in whole}


def open_and_close(folder: Path) -> tuple[Session, tuple[str, ...], bytes]:
    """What opening gives: the session, the notes, and what was kept aside."""
    before = {path.name for path in folder.iterdir()}

    book = Book(FileStore(folder.parent)).open()
    run(book.log.release())
    aside = [path for path in folder.iterdir() if path.name not in before and ".torn-" in path.name]
    return book.session, book.notes, b"".join(path.read_bytes() for path in aside)


def reset(folder: Path, data: bytes) -> None:
    for path in folder.iterdir():
        if ".torn-" in path.name:
            path.unlink()
    (folder / "events.jsonl").write_bytes(data)


def last_records(data: bytes) -> range:
    lines = data.splitlines(keepends=True)
    return range(sum(map(len, lines[:-LAST])), len(data))


def spoiled(data: bytes) -> Iterator[tuple[int, bytes]]:
    for place in last_records(data):
        for value in {data[place] ^ 1, 0, ord("\n"), 0xFF} - {data[place]}:
            yield place, data[:place] + bytes([value]) + data[place + 1 :]


@pytest.mark.parametrize("snapshot", [False, True], ids=["log alone", "with a snapshot"])
def test_cut_at_any_byte_the_log_opens_with_every_whole_line_and_keeps_the_rest_aside(
    snapshot: bool, tmp_path: Path
) -> None:
    folder = keep(tmp_path, EVENTS[:5], snapshot=snapshot)
    add(tmp_path, *EVENTS[5:])
    data, prefixes = (folder / "events.jsonl").read_bytes(), good_prefixes(folder)
    for size in last_records(data):
        reset(folder, data[:size])
        session, notes, aside = open_and_close(folder)
        whole = data.rfind(b"\n", 0, size) + 1
        assert session == prefixes[data[:size].count(b"\n")], size
        assert (aside, len(notes)) == (data[whole:size], int(whole < size)), size
        assert (folder / "events.jsonl").read_bytes() == data[:whole], size


@pytest.mark.parametrize("snapshot", [False, True], ids=["log alone", "with a snapshot"])
def test_any_byte_changed_the_log_opens_with_a_right_beginning_or_names_the_line(
    snapshot: bool, tmp_path: Path
) -> None:
    folder = keep(tmp_path, EVENTS[:5], snapshot=snapshot)
    add(tmp_path, *EVENTS[5:])
    data, prefixes = (folder / "events.jsonl").read_bytes(), good_prefixes(folder)
    refused = 0
    for place, bad in spoiled(data):
        reset(folder, bad)
        number = data[:place].count(b"\n") + 1
        try:
            session, notes, aside = open_and_close(folder)
        except CorruptLog as error:
            refused += 1
            assert re.match(rf"{re.escape(str(folder))}/events\.jsonl:({number}|{number + 1}): ", str(error)), (
                place,
                error,
            )
            assert (folder / "events.jsonl").read_bytes() == bad, "a log that is refused is left as it is"
            continue
        if session == prefixes[len(EVENTS)]:
            assert (notes, aside) == ((), b""), place  # the byte was part of a checksum's name: nothing is said wrongly
        else:
            assert place == len(data) - 1, "only the end of the last line makes a torn tail"
            assert session == prefixes[len(EVENTS) - 1]
            assert (len(notes), aside) == (1, bad[data.rfind(b"\n", 0, -1) + 1 :]), place
    assert refused > 400


def test_damage_in_one_session_leaves_all_others_as_they_were(tmp_path: Path) -> None:
    folder, other = keep(tmp_path), keep(tmp_path, session_id=OTHER)
    path = folder / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b"It is made", b"It is fake"))
    untouched = {each.name: each.read_bytes() for each in other.iterdir()}
    with pytest.raises(CorruptLog, match=r"events\.jsonl:8: .*checksum"):
        FileStore(tmp_path).open(ID, lambda entries: None)
    assert FileStore(tmp_path).ids() == [ID, OTHER]
    assert FileStore(tmp_path).read(OTHER).session.seq == len(EVENTS)
    assert {each.name: each.read_bytes() for each in other.iterdir()} == untouched


def test_a_line_taken_out_of_the_middle_is_missed(tmp_path: Path) -> None:
    path = keep(tmp_path) / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    with pytest.raises(CorruptLog, match=r"events\.jsonl:4: entry 4 is missing"):
        FileStore(tmp_path).read(ID)


def test_two_lines_in_the_wrong_order_are_not_accepted(tmp_path: Path) -> None:
    path = keep(tmp_path) / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[4], lines[3], *lines[5:]]))
    with pytest.raises(CorruptLog, match=r"events\.jsonl:4: "):
        FileStore(tmp_path).read(ID)


def test_another_entry_with_a_number_that_was_used_is_not_accepted(tmp_path: Path) -> None:
    path = keep(tmp_path) / "events.jsonl"
    again = ev.render_entry(ev.Entry(8, "2026-03-01T12:00:00.000Z", ev.AssistantResponse("bot", "Something else.")))
    path.write_bytes(path.read_bytes() + again + b"\n")
    with pytest.raises(CorruptLog, match=r"events\.jsonl:9: entry 8 comes again"):
        FileStore(tmp_path).read(ID)


def test_lines_that_an_older_writer_wrote_twice_after_a_failed_write_count_once(tmp_path: Path) -> None:
    path = keep(tmp_path) / "events.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    whole = FileStore(tmp_path).read(ID).session
    path.write_bytes(b"".join([*lines[:5], *lines[3:5], *lines[3:]]))
    assert FileStore(tmp_path).read(ID).session == whole
    assert seqs(tmp_path) == list(range(1, 9))


@pytest.mark.parametrize("zeros", [1, 511, 4096])
def test_zeros_where_the_end_never_reached_the_disk_are_cut_off_and_kept(zeros: int, tmp_path: Path) -> None:
    folder = keep(tmp_path)
    data = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_bytes(data + b'{"seq":9,"ti' + bytes(zeros))
    session, notes, aside = open_and_close(folder)
    assert (session.seq, len(notes), aside) == (8, 1, b'{"seq":9,"ti' + bytes(zeros))
    assert (folder / "events.jsonl").read_bytes() == data


def test_after_a_torn_tail_the_next_entry_is_not_glued_to_it(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"seq":9,"timestamp":"2026-03-0')
    (note,) = add(tmp_path, ev.UserMessage("next"))
    assert note.startswith("The last 31 bytes were torn by a crash; they are kept in ")
    assert entries(tmp_path)[-1].event == ev.UserMessage("next")
    assert seqs(tmp_path) == list(range(1, 10))


def test_two_crashes_at_the_same_place_keep_both_tails(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    kept = []
    for tail in (b'{"seq":9,"first', b'{"seq":9,"second', b'{"seq":9,"first'):
        with (folder / "events.jsonl").open("ab") as file:
            file.write(tail)
        (note,) = open_and_close(folder)[1]
        kept.append(Path(note.split(" kept in ")[1].removesuffix(".")))
    assert [path.read_bytes() for path in kept] == [b'{"seq":9,"first', b'{"seq":9,"second', b'{"seq":9,"first']
    assert len(set(kept)) == 2


def test_a_session_whose_first_line_is_torn_never_began(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    data = (folder / "events.jsonl").read_bytes()
    (folder / "events.jsonl").write_bytes(data[:40])
    store = FileStore(tmp_path)
    assert store.ids() == []
    with pytest.raises(NotFound):
        store.open(ID, lambda entries: None)


def test_reading_without_holding_mends_nothing(tmp_path: Path) -> None:
    folder = keep(tmp_path)
    torn = (folder / "events.jsonl").read_bytes()[:-5]
    (folder / "events.jsonl").write_bytes(torn)
    before = {path.name for path in folder.iterdir()}
    assert FileStore(tmp_path).read(ID).session.seq == 7
    assert seqs(tmp_path) == list(range(1, 8))
    assert (folder / "events.jsonl").read_bytes() == torn
    assert {path.name for path in folder.iterdir()} == before
