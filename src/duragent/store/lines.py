"""The bytes of a log, taken apart: what is good, what a crash tore, and what nobody can explain.

Pure. A crash can tear only the end: the last line lacks its end, or blocks that never reached the disk read as
zeros. That is cut off and kept aside. Anything else stops this session, with file and line, and no other one.
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
    end = len(data)
    zero = data.find(b"\0")
    if zero >= 0:
        end = data.rfind(b"\n", 0, zero) + 1
    elif not data.endswith(b"\n"):
        end = data.rfind(b"\n") + 1
    return Torn(end, data[end:])


def parse(path: str, data: bytes, after: int) -> Iterator[Entry]:
    """Every entry behind `after`. Raises `CorruptLog` at the first line that is damaged or out of order."""
    expected, previous, first = after + 1, b"", True
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip() or (line == previous and not first):
            continue  # an empty line, or one that an older writer wrote twice
        try:
            entry = parse_entry(line)
        except ValueError as error:
            raise CorruptLog(f"{path}:{number}: this line cannot be read: {error}. {_REMEDY}") from None
        if entry.seq < expected and not first:
            raise CorruptLog(f"{path}:{number}: entry {entry.seq} comes again where {expected} should be. {_REMEDY}")
        if entry.seq > expected:
            raise CorruptLog(f"{path}:{number}: {_missing(expected, entry.seq - 1)}. {_REMEDY}")
        previous = line
        if entry.seq == expected:
            expected, first = entry.seq + 1, False
            yield entry


_REMEDY = "Put the file back from a copy, or cut it before this line"


def _missing(first: int, last: int) -> str:
    what = f"entry {first} is" if first == last else f"entries {first} to {last} are"
    return f"{what} missing before it (they may have been compacted into state.yaml)"
