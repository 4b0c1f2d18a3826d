"""state.yaml: a session as it was after an entry, for fast opening and for people to read.

Knows the text, not the disk. The file is YAML that is also one JSON value a line, so it is read as fast as the log:
a few settings, `state`, then one message a line, and at the end a checksum over everything before it. A file that
does not fit its checksum is no snapshot.
"""

import re
from zlib import crc32

from msgspec import DecodeError, Struct, structs
from msgspec.json import Decoder, Encoder

from duragent.core.session import Message, Session

SCHEMA = "3"
_HEAD = """\
# A snapshot of a Duragent session: for fast opening, and for you to read. The log beside it is the truth; while
# that begins with entry 1, this file can be deleted and nothing is lost.
"""
_encode = Encoder().encode
_decode_state = Decoder(Session).decode
_decode_message = Decoder(Message).decode
_decode_text = Decoder(str).decode
_decode_places = Decoder(list[tuple[int, int]]).decode
_ODD = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")


class Snapshot(Struct, frozen=True):
    """`offset` is where the entry after the session's last one begins in the log it was taken with."""

    session: Session
    offset: int


def render(session_id: str, session: Session, offset: int) -> bytes:
    plain = structs.replace(session, messages=[], open_calls={}, sums=[])
    rows = [
        f"schema_version: {_json(SCHEMA)}",
        f"session_id: {_json(session_id)}",
        f"agent: {_json(session.agent)}",
        f"status: {session.status}",
        f"created_at: {_json(session.created_at)}",
        f"updated_at: {_json(session.updated_at)}",
        f"last_event_seq: {session.seq}",
        f"log_offset: {offset}",
        f"open_calls: {_json(_places(session))}",
        f"state: {_json(plain)}",
        "conversation:" if session.messages else "conversation: []",
        *(f"- {_json(_bare(message))}" for message in session.messages),
    ]
    text = (_HEAD + "\n".join(rows) + "\n").encode()
    return text + b'checksum: "%08x"\n' % crc32(text)


def _json(value: object) -> str:
    """JSON that YAML accepts too: a few characters it does not take are written as escapes."""
    text = _encode(value).decode()
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _bare(message: Message) -> Message:
    """A message without what was only worked out from it."""
    return structs.replace(message, wire=b"", dialect="") if message.wire or message.dialect else message


def parse(data: bytes) -> Snapshot:
    """The snapshot in a file's bytes. Raises `ValueError` saying why it is none."""
    body, _, last = data.rpartition(b"checksum: ")
    if last != b'"%08x"\n' % crc32(body):
        raise ValueError("it is incomplete or damaged: its checksum does not fit")
    head, _, conversation = body.partition(b"\nconversation:")
    rows = dict(line.split(b": ", 1) for line in head.split(b"\n") if b": " in line and not line.startswith(b"#"))
    try:
        if _decode_text(rows[b"schema_version"]) != SCHEMA:
            raise ValueError(f"it is of schema {rows[b'schema_version'].decode()}, and this version reads {SCHEMA}")
        session = _decode_state(rows[b"state"])
        session.messages = [_decode_message(line[2:]) for line in conversation.split(b"\n") if line.startswith(b"- ")]
        offset = int(rows[b"log_offset"])
        calls = [session.messages[message].calls[call] for message, call in _decode_places(rows[b"open_calls"])]
        session.open_calls = {call.call.call_id: call for call in calls}
    except (DecodeError, LookupError, RecursionError) as error:
        raise ValueError(f"it does not hold what it should ({error})") from None
    return Snapshot(session, offset)


def _places(session: Session) -> list[tuple[int, int]]:
    """Which calls are still open: message and place in it. Not by id, which a foreign log may use twice."""
    wanted = [id(call) for call in session.open_calls.values()]
    found: dict[int, tuple[int, int]] = {}
    index = len(session.messages)
    while index and not found.keys() >= set(wanted):  # they are in the newest answer: this does not go far
        index -= 1
        found |= {id(call): (index, place) for place, call in enumerate(session.messages[index].calls)}
    return [found[call] for call in wanted if call in found]
