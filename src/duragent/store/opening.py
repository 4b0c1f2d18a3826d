"""Reads a session's folder: snapshot, log, archive, and Duragent's own state.json; and shortens the log.

The log is the truth. A snapshot only saves reading its beginning; it is believed where it fits the log, and
needed where compaction took that beginning away. Reads without holding the session; mending is the holder's.
"""

import os
from collections.abc import Iterator
from contextlib import suppress

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from duragent.core.events import KINDS, Entry
from duragent.core.session import Session, fold
from duragent.errors import CorruptLog
from duragent.store import Compaction, disk, foreign, lines, snapshot

LOG, STATE, ARCHIVE, FOREIGN = "events.jsonl", "state.yaml", "events.archive.jsonl", "state.json"
NEWLINE = b"\n"
LAST_LINE = 65_536  # so much before a snapshot's place is looked at; a longer line makes opening slower, not wrong


class Loaded(Struct, frozen=True):
    """A session and its log's good size. `torn` is what follows that; `covered` the snapshot's last entry."""

    session: Session
    size: int
    torn: bytes
    covered: int
    notes: tuple[str, ...]


class _Numbered(Struct):
    seq: int


class _Typed(Struct):
    type: str = ""


_decode_seq = Decoder(_Numbered).decode
_decode_type = Decoder(_Typed).decode


def load(folder: str) -> Loaded:
    """The session in a folder. Raises `CorruptLog` naming file and line."""
    notes: list[str] = []
    path = os.path.join(folder, LOG)
    kept = snapshot_in(folder, notes)
    if kept is not None and (rest := _behind(path, kept)) is not None:
        torn, covered = lines.tear(rest), kept.session.seq
        with suppress(CorruptLog):  # reading the whole log, below, finds the same and knows the number of the line
            later = list(lines.parse(path, rest[: torn.size], covered))
            return Loaded(fold(later, kept.session), kept.offset + torn.size, torn.tail, covered, tuple(notes))
    data = _bytes(path)
    torn = lines.tear(data)
    good = data[: torn.size]
    session = _begin(folder, good, kept, notes)
    covered = session.seq
    if _first_seq(good) > covered + 1:
        fold(_archived(folder, covered), session)
        if notes and _first_seq(good) > session.seq + 1:
            raise CorruptLog(
                f"{path}:1: it begins with entry {_first_seq(good)}, and what came before cannot be had: {notes[0]} "
                f"Put {STATE} back from a copy."
            )
    fold(lines.parse(path, good, session.seq), session)
    return Loaded(session, torn.size, torn.tail, covered, tuple(notes))


def _begin(folder: str, good: bytes, kept: snapshot.Snapshot | None, notes: list[str]) -> Session:
    """What stands before the first entry of the log that still has to be read."""
    complete = bool(good) and _first_seq(good) == 1
    if kept is not None:
        last = _last_seq(good, kept.session.seq)
        if not good:
            notes.append(f"{LOG} was missing or empty; the session goes on from {STATE}, entry {kept.session.seq}.")
            return kept.session
        if last >= kept.session.seq:
            return kept.session
        if not complete:
            raise CorruptLog(
                f"{os.path.join(folder, LOG)}:{good.count(NEWLINE)}: it ends with entry {last}, but {STATE} holds "
                f"{kept.session.seq}. Put the log back from a copy."
            )
        notes.append(f"{STATE} was not used: it is ahead of the log, which is the truth.")
    state = b"" if complete else _bytes(os.path.join(folder, FOREIGN))
    if not state:
        return Session()
    try:
        return foreign.parse(state)
    except ValueError as error:
        raise CorruptLog(f"{os.path.join(folder, FOREIGN)}: {error}") from None


def snapshot_in(folder: str, notes: list[str] | None = None) -> snapshot.Snapshot | None:
    data = _bytes(os.path.join(folder, STATE))
    if not data:
        return None
    try:
        return snapshot.parse(data)
    except ValueError as error:
        if notes is not None:
            notes.append(f"{STATE} was not used: {error}.")
        return None


def _behind(path: str, kept: snapshot.Snapshot) -> bytes | None:
    """The log's bytes behind a snapshot, if it is still the log the snapshot was taken with."""
    if kept.offset <= 0:
        return None
    start = max(0, kept.offset - LAST_LINE)
    try:
        data = disk.read(path, start)
    except FileNotFoundError:
        return None
    before, data = data[: kept.offset - start], data[kept.offset - start - 1 :]
    if _last_seq(before, 0) != kept.session.seq:
        return None
    next_line = b'{"seq":%d,' % (kept.session.seq + 1)
    fits = data[:1] == b"\n" and (len(data) == 1 or data[1:].startswith(next_line[: len(data) - 1]))
    return data[1:] if fits else None


def _archived(folder: str, after: int, *, gaps: bool = False) -> Iterator[Entry]:
    path = os.path.join(folder, ARCHIVE)
    data = _bytes(path)
    return lines.parse(path, data[: lines.tear(data).size], after, gaps=gaps)


def entries(folder: str, after: int) -> Iterator[Entry]:
    """What the archive and the log hold after `after`."""
    path = os.path.join(folder, LOG)
    data = _bytes(path)
    good = data[: lines.tear(data).size]
    last = after
    if not good or after < _first_seq(good) - 1:
        for entry in _archived(folder, after, gaps=True):
            last = entry.seq
            yield entry
    yield from lines.parse(path, good, max(last, _first_seq(good) - 1))


def first_seq(folder: str) -> int:
    """The number of the first entry in the log; 1 for an empty one."""
    path = os.path.join(folder, LOG)
    try:
        with open(path, "rb") as file:
            return _first_seq(file.readline())
    except FileNotFoundError:
        return 1


def compact(folder: str, seq: int, compaction: Compaction | None) -> int:
    """Take the lines before `seq` out of the log; a snapshot on disk covers them. Gives the log's new size.

    The line of `seq` itself stays, so that a log whose beginning is gone never looks like an empty one. What a newer
    version has written and this one does not know is in no snapshot: it goes to the archive, whatever the mode.
    """
    path = os.path.join(folder, LOG)
    data = _bytes(path)
    cut = _line_of(data, seq)
    if cut <= 0:
        return len(data)
    taken = data[:cut] if compaction == "archive" else _strange(data[:cut])
    if taken:
        _archive(folder, taken)
    disk.replace(path, data[cut:])
    return len(data) - cut


def _strange(data: bytes) -> bytes:
    """The lines of events that this version does not know."""
    return b"".join(line for line in data.splitlines(keepends=True) if _type_of(line) not in KINDS)


def _type_of(line: bytes) -> str:
    try:
        return _decode_type(line).type
    except DecodeError:
        return ""


def _line_of(data: bytes, seq: int) -> int:
    """Where the line of an entry begins; -1 where there is none."""
    mark = b'{"seq":%d,' % seq
    if data.startswith(mark):
        return 0
    if (found := data.find(NEWLINE + mark)) >= 0:
        return found + 1
    place = 0
    for line in data.split(NEWLINE):  # another writer's lines may be spaced in another way
        if _seq_of(line, 0) == seq:
            return place
        place += len(line) + 1
    return -1


def _archive(folder: str, data: bytes) -> None:
    """Add lines to the archive, except those that an earlier try, which did not finish, has put there."""
    path = os.path.join(folder, ARCHIVE)
    there = _bytes(path)
    good = lines.tear(there).size
    if not os.path.exists(path):
        disk.create(path, b"")
        disk.sync_folder(folder)
    elif good < len(there):
        disk.cut(path, good)
    if new := data[_unarchived(there[:good], data) :]:
        disk.append(path, new, good)


def _unarchived(there: bytes, data: bytes) -> int:
    """Where in `data` the lines begin that the archive does not hold. In doubt that is all of them."""
    last = _last_seq(there, 0)
    if last + 1 <= _first_seq(data):
        return 0
    start = _line_of(data, last + 1)
    return start if start >= 0 else len(data) if last >= _last_seq(data, last + 1) else 0


def _first_seq(data: bytes) -> int:
    return _seq_of(data[: data.find(NEWLINE) if NEWLINE in data else len(data)], 1)


def _last_seq(data: bytes, unknown: int) -> int:
    return _seq_of(data[data.rfind(NEWLINE, 0, len(data) - 1) + 1 :], unknown)


def _seq_of(line: bytes, unknown: int) -> int:
    try:
        return _decode_seq(line).seq
    except DecodeError:
        return unknown


def _bytes(path: str) -> bytes:
    try:
        return disk.read(path)
    except FileNotFoundError:
        return b""
