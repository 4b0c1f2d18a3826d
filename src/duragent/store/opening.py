"""Reads a session's folder: snapshot, log, archive, and Duragent's own state.json; and shortens the log.

The log is the truth. A snapshot only saves reading its beginning; it is believed where it fits the log, and
needed where compaction took that beginning away. Reads without holding the session; mending is the holder's.
"""

import os
from collections.abc import Iterator

from msgspec import DecodeError, Struct
from msgspec.json import Decoder

from duragent.core.events import Entry
from duragent.core.session import Session, fold
from duragent.errors import CorruptLog
from duragent.store import Compaction, disk, foreign, lines, snapshot

LOG, STATE, ARCHIVE, FOREIGN = "events.jsonl", "state.yaml", "events.archive.jsonl", "state.json"


class Loaded(Struct, frozen=True):
    """A session and its log's good size. `torn` is what follows that; `covered` the snapshot's last entry."""

    session: Session
    size: int
    torn: bytes
    covered: int
    notes: tuple[str, ...]


class _Numbered(Struct):
    seq: int


_decode_seq = Decoder(_Numbered).decode


def load(folder: str) -> Loaded:
    """The session in a folder. Raises `CorruptLog` naming file and line."""
    notes: list[str] = []
    path = os.path.join(folder, LOG)
    kept = snapshot_in(folder, notes)
    if kept is not None and (rest := _behind(path, kept)) is not None:
        torn, covered = lines.tear(rest), kept.session.seq
        session = fold(lines.parse(path, rest[: torn.size], kept.session.seq), kept.session)
        return Loaded(session, kept.offset + torn.size, torn.tail, covered, tuple(notes))
    data = _bytes(path)
    torn = lines.tear(data)
    good = data[: torn.size]
    session = _begin(folder, good, kept, notes)
    covered = session.seq
    if _first_seq(good) > covered + 1:
        fold(_archived(folder, covered), session)
    fold(lines.parse(path, good, session.seq), session)
    return Loaded(session, torn.size, torn.tail, covered, tuple(notes))


def _begin(folder: str, good: bytes, kept: snapshot.Snapshot | None, notes: list[str]) -> Session:
    """What stands before the first entry of the log that still has to be read."""
    complete = bool(good) and _first_seq(good) == 1
    if kept is not None:
        if not good or _last_seq(good) >= kept.session.seq:
            return kept.session
        if not complete:
            raise CorruptLog(
                f"{os.path.join(folder, LOG)}: it ends with entry {_last_seq(good)}, but {STATE} holds "
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
    try:
        data = disk.read(path, kept.offset - 1)
    except FileNotFoundError:
        return None
    next_line = b'{"seq":%d,' % (kept.session.seq + 1)
    fits = data[:1] == b"\n" and (len(data) == 1 or data[1:].startswith(next_line[: len(data) - 1]))
    return data[1:] if fits else None


def _archived(folder: str, after: int) -> Iterator[Entry]:
    path = os.path.join(folder, ARCHIVE)
    data = _bytes(path)
    good = data[: lines.tear(data).size]
    return lines.parse(path, good, max(after, _first_seq(good) - 1))


def entries(folder: str, after: int) -> Iterator[Entry]:
    """What the archive and the log hold after `after`."""
    path = os.path.join(folder, LOG)
    data = _bytes(path)
    good = data[: lines.tear(data).size]
    last = after
    if after < _first_seq(good) - 1:
        for entry in _archived(folder, after):
            last = entry.seq
            yield entry
    yield from lines.parse(path, good, max(last, _first_seq(good) - 1))


def compact(folder: str, seq: int, compaction: Compaction | None) -> int:
    """Take the lines before `seq` out of the log; a snapshot on disk covers them. Gives the log's new size.

    The line of `seq` itself stays, so that a log whose beginning is gone never looks like an empty one.
    """
    path = os.path.join(folder, LOG)
    data = _bytes(path)
    cut = _line_of(data, seq)
    if cut <= 0:
        return len(data)
    if compaction == "archive":
        _archive(folder, data[:cut])
    disk.replace(path, data[cut:])
    return len(data) - cut


def _line_of(data: bytes, seq: int) -> int:
    """Where the line of an entry begins; -1 where there is none."""
    mark = b'{"seq":%d,' % seq
    if data.startswith(mark):
        return 0
    return data.find(b"\n" + mark) + 1 or -1


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
    start = _line_of(data, _last_seq(there[:good]) + 1) if good else 0
    if start >= 0 and data[start:]:
        disk.append(path, data[start:], good)


def _first_seq(data: bytes) -> int:
    return _seq_of(data[: data.find(b"\n") if b"\n" in data else len(data)], 1)


def _last_seq(data: bytes) -> int:
    return _seq_of(data[data.rfind(b"\n", 0, len(data) - 1) + 1 :], 0)


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
