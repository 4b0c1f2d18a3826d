"""The bytes of a log, taken apart: what is good, what a crash tore, and what nobody can explain.

Pure. A crash can tear only the end: the last line lacks its end, or what never reached the disk reads as zeros up
to the end of the file. That is cut off and kept aside. Anything else, zeros in the middle too, stops this session,
with file and line, and no other one: what was acknowledged is never cut off without a person.
"""

from collections.abc import Iterator

from msgspec import Struct

from duragent.core.events import Entry, parse_entry
from duragent.errors import CorruptLog


class Torn(Struct, frozen=True):
    """Where the good part ends. `tail` is what comes after it."""

    size: int
    tail: bytes


def tear(data: bytes) -> Torn:
    """Find the torn tail, which may be empty."""
    written = len(data.rstrip(b"\0")) if data.endswith(b"\0") else len(data)
    end = data.rfind(b"\n", 0, written) + 1
    return Torn(end, data[end:])


def parse(path: str, data: bytes, after: int, *, gaps: bool = False) -> Iterator[Entry]:
    """Every entry behind `after`. Raises `CorruptLog` at the first line that is damaged or out of order.

    `gaps` allows what an archive may have: lines are missing that were thrown away while it was not kept.
    """
    expected, first, lines = after + 1, True, data.split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entry = parse_entry(line)
        except ValueError as error:
            raise CorruptLog(f"{path}:{number}: this line cannot be read: {error}. {_REMEDY}") from None
        if entry.seq < expected:
            if first or line in lines[: number - 1]:
                continue  # it is known already, or an older writer, whose write had failed half-way, wrote it again
            raise CorruptLog(f"{path}:{number}: entry {entry.seq} comes again where {expected} should be. {_REMEDY}")
        if entry.seq > expected and not gaps:
            raise CorruptLog(f"{path}:{number}: {_missing(expected, entry.seq - 1)}. {_REMEDY}")
        expected, first = entry.seq + 1, False
        yield entry


_REMEDY = "Put the file back from a copy, or cut it before this line"


def _missing(first: int, last: int) -> str:
    what = f"entry {first} is" if first == last else f"entries {first} to {last} are"
    return f"{what} missing before it (they may have been compacted into state.yaml)"
