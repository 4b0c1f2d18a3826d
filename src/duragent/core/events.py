"""What can have happened in a session: one frozen class per kind of event, in the past tense, and one JSON codec.

A session is its list of entries and nothing else: state, waiting approvals and what the model is shown are
folded from it (`session.py`). A line is `{"seq":7,"timestamp":"…Z","type":"tool_started",…,"crc":"0f1e2d3c"}`;
the checksum covers everything before it, so that a changed byte is found even where the JSON is still good.
Names and shapes follow Duragent's log where the meaning is the same; its lines have no checksum and open here.

Adding a kind: add the class, list it in `Event`, fold it in `session.py`, document it in docs/sessions.md.
Never change the meaning of a field that has been released. A kind that a newer version wrote is `Unknown`:
it stays in the file, counts in `seq`, and changes nothing.
"""

from datetime import UTC, datetime
from typing import Any, Literal
from zlib import crc32

from msgspec import DecodeError, Struct, convert, to_builtins
from msgspec.json import Decoder, Encoder

Json = Any
LOG_VERSION = 1
Outcome = Literal["ok", "error", "refused", "interrupted", "skipped"]
Decision = Literal["allow_once", "allow_session", "allow_always", "deny"]
StopReason = Literal[
    "rounds", "session_steps", "cost", "price_unknown", "background", "cancelled", "model_failed", "tool_failed"
]


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens of one answer. Of the prompt, `cached_tokens` had been kept by the provider, `written_tokens` are now."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int = 0
    written_tokens: int = 0


class ToolCall(Struct, frozen=True, omit_defaults=True, gc=False):
    """One call a model asked for. `malformed` is the text of arguments that are no JSON object."""

    call_id: str
    tool_name: str
    arguments: Json = None
    malformed: str | None = None


class ToolAnswer(Struct, frozen=True, gc=False):
    """What a tool gave back. `success` is the tool's own word: a program that ends with 1 has run, and failed."""

    success: bool
    content: str


class _Event(Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    pass


class SessionStart(_Event, frozen=True, tag="session_start"):
    agent: str
    on_disconnect: Literal["pause", "continue"] = "pause"
    fingerprint: str = ""
    source: str = ""  # the path the agent was read from, so that the session finds it again
    gateway: str | None = None
    gateway_chat_id: str | None = None
    forked_from: str | None = None
    version: int = 0  # of the log's rules; Duragent's own has none


class UserMessage(_Event, frozen=True, tag="user_message"):
    content: str
    sender_id: str | None = None
    sender_name: str | None = None
    message_id: str | None = None  # the platform's own, so that a message delivered twice is answered once
    wants_answer: bool = True
    automatic: bool = False  # no person wrote it: a process that ended, a clock


class SilentMessage(_Event, frozen=True, tag="silent_message"):
    content: str
    sender_id: str = ""
    sender_name: str | None = None


class ModelCalled(_Event, frozen=True, tag="model_called"):
    model: str
    reserved_usd: float | None = None
    after: str | None = None  # why the candidate before this one was given up
    refunded: bool = False  # the call before this one was turned away, so it cost nothing


class AssistantResponse(_Event, frozen=True, tag="assistant_response"):
    agent: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    cost_usd: float | None = None


class ApprovalRequired(_Event, frozen=True, tag="approval_required"):
    call_id: str
    command: str
    digest: str = ""
    rule: str | None = None
    asked_by: str | None = None  # who wrote the message that led to this


class ApprovalDecision(_Event, frozen=True, tag="approval_decision"):
    call_id: str
    decision: Decision
    by: str | None = None
    reason: str | None = None


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    call_id: str


class ToolResult(_Event, frozen=True, tag="tool_result"):
    call_id: str
    result: ToolAnswer
    outcome: Outcome = "ok"


class TurnStopped(_Event, frozen=True, tag="turn_stopped"):
    """A turn ended without its answer. `partial` is what the model had said when it was cut off."""

    reason: StopReason
    message: str
    partial: str = ""
    refunded: bool = False  # the last model call was turned away, so it cost nothing
    until: int = 0  # the newest message when it was cancelled: what came later was not meant


class ReplyDelivered(_Event, frozen=True, tag="reply_delivered"):
    reply_seq: int
    gateway: str | None = None
    chat_id: str | None = None


class StatusChange(_Event, frozen=True, tag="status_change", rename={"from_": "from"}):
    from_: str
    to: str


class ErrorNoted(_Event, frozen=True, tag="error"):
    code: str
    message: str


class SessionEnd(_Event, frozen=True, tag="session_end"):
    reason: Literal["completed", "terminated", "timeout", "error"] = "completed"


class AssistantMessage(_Event, frozen=True, tag="assistant_message"):
    """Only read: an older Duragent's answer without calls."""

    content: str
    agent: str = ""
    usage: Usage | None = None


class ToolCalled(_Event, frozen=True, tag="tool_call"):
    """Only read: an older Duragent's call, which belongs to the answer before it."""

    call_id: str
    tool_name: str
    arguments: Json = None


class ToolsSkipped(_Event, frozen=True, tag="tools_skipped"):
    """Only read: Duragent's word for calls that will not run."""

    call_ids: tuple[str, ...]
    reason: str = ""


class Unknown(Struct, frozen=True, gc=False):
    """An event of a kind this version does not know. Its line stays as it is."""

    type: str
    line: bytes


Known = (
    SessionStart
    | UserMessage
    | SilentMessage
    | ModelCalled
    | AssistantResponse
    | ApprovalRequired
    | ApprovalDecision
    | ToolStarted
    | ToolResult
    | TurnStopped
    | ReplyDelivered
    | StatusChange
    | ErrorNoted
    | SessionEnd
    | AssistantMessage
    | ToolCalled
    | ToolsSkipped
)
Event = Known | Unknown
KINDS = frozenset(str(kind.__struct_config__.tag) for kind in Known.__args__)


class Entry(Struct, frozen=True, gc=False):
    """One event and its place in the log."""

    seq: int
    timestamp: str
    event: Event


def moment(timestamp: str) -> datetime | None:
    """The time a log says, in UTC; None where it says none."""
    try:
        at = datetime.fromisoformat(timestamp)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


class _Head(Struct, gc=False):
    seq: int
    timestamp: str
    type: str


_encode = Encoder().encode
_decode_head = Decoder(_Head).decode
_decode_event = Decoder(Known).decode
_MARK = b',"crc":"'
_TAIL = len(_MARK) + 10  # the mark, eight digits, a quote and a brace


def render_entry(entry: Entry) -> bytes:
    """The entry as one line, without the line's end."""
    event = entry.event
    if isinstance(event, Unknown):
        return event.line
    body = b'{"seq":%d,"timestamp":%b,%b' % (entry.seq, _encode(entry.timestamp), _encode(event)[1:-1])
    return b'%b,"crc":"%08x"}' % (body, crc32(body))


def seal(seq: int, timestamp: str, event: Event) -> tuple[Entry, bytes]:
    """An event with its place, and its line. Raises `ValueError` for what could not be read again: nothing gets into a
    log that does not get out of it. Half a surrogate pair, which no file can hold, becomes `\ufffd`."""
    try:
        line = render_entry(Entry(seq, timestamp, event))
    except UnicodeEncodeError:
        event = convert(_mended(to_builtins(event)), type(event))
        line = render_entry(Entry(seq, timestamp, event))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"this {type(event).__name__} cannot be written: {error}") from None
    if not isinstance(event, ToolStarted | ModelCalled | Unknown):  # those hold only words of our own
        try:
            _decode_event(line)
        except (DecodeError, RecursionError) as error:
            raise ValueError(f"this {type(event).__name__} could not be read again: {error}") from None
    return Entry(seq, timestamp, event), line


def _mended(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_mended(name): _mended(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_mended(each) for each in value]
    return value


def parse_entry(line: bytes) -> Entry:
    """The entry a line holds. Raises `ValueError` saying what is wrong with it."""
    if line[-_TAIL:-10] == _MARK and line[-10:-2] != b"%08x" % crc32(line[:-_TAIL]):
        raise ValueError("its checksum does not fit: the line was changed or damaged")
    try:
        head = _decode_head(line)
        if head.type in KINDS:
            return Entry(head.seq, head.timestamp, _decode_event(line))
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is no entry of a session log ({error})") from None
    return Entry(head.seq, head.timestamp, Unknown(head.type, line))
