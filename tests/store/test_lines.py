"""Where the good part of a log ends, and which entries it holds."""

import pytest

from duragent.core import events as ev
from duragent.errors import CorruptLog
from duragent.store.lines import Torn, parse, tear
from tests.store.kept import STAMP


def line(seq: int, text: str = "hello") -> bytes:
    return ev.render_entry(ev.Entry(seq, STAMP, ev.UserMessage(text))) + b"\n"


def seqs(data: bytes, after: int = 0, *, gaps: bool = False) -> list[int]:
    return [entry.seq for entry in parse("log", data, after, gaps=gaps)]


@pytest.mark.parametrize(
    ("data", "good"),
    [
        (b"", b""),
        (b"a\n", b"a\n"),
        (b"a\nb", b"a\n"),
        (b"a", b""),
        (b"a\n\0", b"a\n"),
        (b"a\nb\0\0", b"a\n"),
        (b"a\nb\n\0\0", b"a\nb\n"),
        (b"\0\0\0", b""),
        (b"a\n\0b\nc\n", b"a\n\0b\nc\n"),
        (b"a\n\0\nb", b"a\n\0\n"),
    ],
)
def test_only_the_end_is_torn(data: bytes, good: bytes) -> None:
    assert tear(data) == Torn(len(good), data[len(good) :])


def test_entries_up_to_a_known_one_are_passed_over() -> None:
    data = line(1) + line(2) + line(3)
    assert [seqs(data, after) for after in (0, 1, 3, 7)] == [[1, 2, 3], [2, 3], [], []]


def test_empty_lines_are_no_entries() -> None:
    assert seqs(line(1) + b"\n \n" + line(2)) == [1, 2]


def test_a_gap_is_damage_except_in_an_archive() -> None:
    data = line(1) + line(2) + line(5)
    with pytest.raises(CorruptLog, match=r"^log:3: entries 3 to 4 are missing before it"):
        seqs(data)
    assert seqs(data, gaps=True) == [1, 2, 5]
    with pytest.raises(CorruptLog, match=r"^log:1: entries 2 to 4 are missing before it"):
        seqs(line(5), 1)


def test_the_same_line_again_counts_once_and_another_with_its_number_is_damage() -> None:
    assert seqs(line(1) + line(2) + line(1) + line(2) + line(3)) == [1, 2, 3]
    with pytest.raises(CorruptLog, match=r"^log:3: entry 1 comes again where 3 should be"):
        seqs(line(1) + line(2) + line(1, "another") + line(3))


def test_a_line_glued_to_a_torn_one_is_damage() -> None:
    with pytest.raises(CorruptLog, match=r"^log:2: this line cannot be read"):
        seqs(line(1) + line(2)[:30] + line(3))


def test_what_came_before_the_damage_is_given_first() -> None:
    found = parse("log", line(1) + line(2) + b"?\n", 0)
    assert [next(found).seq, next(found).seq] == [1, 2]
    with pytest.raises(CorruptLog, match=r"^log:3: this line cannot be read.*Put the file back from a copy"):
        next(found)
