"""state.json: the snapshot that Duragent itself writes, in its schemas 1 and 2.

Read only. The session goes on with our own log and snapshot; this file is left as it is.
"""

from typing import Annotated, Any

from msgspec import DecodeError, Meta, Struct, field
from msgspec.json import Decoder
from msgspec.json import decode as decode_json

from duragent.core.events import ToolCall
from duragent.core.session import Call, Message, Session, Status

Json = Any


class _Function(Struct):
    name: str = ""
    arguments: str = ""


class _Call(Struct):
    id: str = ""
    function: _Function = field(default_factory=_Function)


class _Message(Struct):
    role: str
    content: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _Pending(Struct):
    call_id: str = ""
    command: str = ""


class _Settings(Struct):
    on_disconnect: str = "pause"
    gateway: str | None = None
    gateway_chat_id: str | None = None
    pending_approval: _Pending | None = None


class _State(Struct):
    schema_version: str
    agent: str = ""
    status: str = "active"
    created_at: str = ""
    snapshot_at: str = ""
    last_event_seq: Annotated[int, Meta(ge=0)] = 0
    checkpoint_seq: Annotated[int, Meta(ge=0)] = 0
    conversation: list[_Message] = []
    config: _Settings = field(default_factory=_Settings)


_decode = Decoder(_State, strict=False).decode


def parse(data: bytes) -> Session:
    """The session in a state.json, up to the entry from which its log must be replayed."""
    try:
        state = _decode(data)
    except (DecodeError, RecursionError) as error:
        raise ValueError(f"it is no state of a Duragent session ({error})") from None
    if state.schema_version not in ("1", "2"):
        raise ValueError(f"its schema_version is {state.schema_version!r}; 1 and 2 can be read")
    session = Session(
        agent=state.agent,
        on_disconnect="continue" if state.config.on_disconnect == "continue" else "pause",
        gateway=state.config.gateway,
        gateway_chat_id=state.config.gateway_chat_id,
        created_at=state.created_at,
        updated_at=state.snapshot_at,
        seq=state.last_event_seq if state.schema_version == "1" else state.checkpoint_seq,
        status=_status(state),
    )
    for said in state.conversation:
        _add(session, said)
    _close(session, state.config.pending_approval)
    return session


def _status(state: _State) -> Status:
    """`running` was cut off by the end of that process; what it becomes is what its owner asked for."""
    if state.status in ("paused", "completed"):
        return "paused" if state.status == "paused" else "completed"
    return "paused" if state.status == "running" and state.config.on_disconnect != "continue" else "active"


def _add(session: Session, said: _Message) -> None:
    text = said.content or ""
    if said.role == "assistant":
        calls = tuple(Call(_call(call)) for call in said.tool_calls or ())
        session.messages.append(Message("assistant", text, 0, calls))
        session.open_calls = {call.call.call_id: call for call in calls}
    elif said.role == "tool":
        call = session.open_calls.pop(said.tool_call_id or "", None)
        if call is not None:
            call.stage, call.outcome, call.success, call.content = "done", "ok", True, text
    elif said.role in ("user", "steering"):
        session.messages.append(Message("user", text, 0))


def _call(call: _Call) -> ToolCall:
    try:
        arguments: Json = decode_json(call.function.arguments or "{}")
    except (DecodeError, RecursionError):
        return ToolCall(call.id, call.function.name, None, call.function.arguments)
    return ToolCall(call.id, call.function.name, arguments)


def _close(session: Session, pending: _Pending | None) -> None:
    """Calls without a result were lost with that process, except the one that waits for a person."""
    for call_id, call in list(session.open_calls.items()):
        if pending is not None and pending.call_id == call_id:
            call.stage, call.command = "asked", pending.command
            session.owes_answer = True
        else:
            call.stage, call.outcome = "done", "interrupted"
            call.content = "The outcome of this call is unknown."
            del session.open_calls[call_id]
