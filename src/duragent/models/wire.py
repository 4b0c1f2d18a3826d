"""What both wire formats need of a history before it becomes bytes: names, ids, texts that are never empty.

Every function here is total: whatever a session holds, a provider gets something it accepts. Knows no provider's
shapes (`openai.py`, `anthropic.py`) and no network (`http.py`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import Encoder, decode

from duragent.core.events import ToolCall
from duragent.core.policy import ToolSpec
from duragent.core.session import Call, Message

Json = Any
GO_ON = "Please go on."
NOT_SHOWN = "(earlier messages are not shown)"
NO_RESULT = "(this call has no result)"
NO_OUTPUT = "(no output)"
_MADE = re.compile(r"call_\d+")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NO_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_encode = Encoder().encode


def encode(value: Json) -> bytes:
    """The value as JSON. Half characters, which no JSON can hold, become question marks."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(_mended(value))


def _mended(value: Json) -> Json:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {_mended(key): _mended(each) for key, each in value.items()}
    return [_mended(each) for each in value] if isinstance(value, list | tuple) else value


def said(message: Message) -> str:
    """What a person said, with their name where there is one; empty where they said nothing."""
    if not message.content.strip():
        return ""
    sender = " ".join((message.sender or "").split())
    return f"{sender}: {message.content}" if sender else message.content


def outcome(call: Call) -> str:
    """What the model is told came of a call."""
    if call.content.strip():
        return call.content
    return NO_OUTPUT if call.stage == "done" else NO_RESULT


def settled(message: Message) -> bool:
    """Whether this message can never be encoded differently from now on."""
    return all(call.stage == "done" for call in message.calls)


def arguments_of(call: ToolCall) -> Mapping[str, Json]:
    """The arguments as an object. What was malformed is told in the call's result."""
    return call.arguments if isinstance(call.arguments, dict) else {}


def wire_id(call_id: str) -> str:
    """The id as every provider takes it: left alone where it is plain and short, the same new one each time else."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'replace')).hexdigest()[:24]}"


def wire_name(name: str) -> str:
    return _NO_NAME.sub("_", name)[:64] or "unknown"


def repeated_ids(messages: Iterable[Message]) -> bool:
    """Whether two calls of this history have the same id, which providers refuse."""
    ids = [call.call.call_id for message in messages if message.calls for call in message.calls]
    return len(set(ids)) != len(ids)


def with_fresh_ids(messages: Iterable[Message]) -> list[Message]:
    """The history with a new id for every call whose id was used before. Copies, and only what it changes."""
    seen: set[str] = set()
    out = []
    for message in messages:
        ids = [call.call.call_id for call in message.calls]
        if len(set(ids)) == len(ids) and seen.isdisjoint(ids):
            out.append(message)
            seen.update(ids)
            continue
        calls = []
        for at, call in enumerate(message.calls):
            new = call.call.call_id
            if new in seen:
                new = wire_id(f"{message.seq} {at} {len(seen)} {new}")
            seen.add(new)
            one = ToolCall(new, call.call.tool_name, call.call.arguments, call.call.malformed)
            calls.append(Call(one, call.stage, outcome=call.outcome, success=call.success, content=call.content))
        out.append(Message(message.role, message.content, message.seq, tuple(calls), message.sender))
    return out


def count(value: Json) -> int:
    """A number of tokens; 0 for what is none."""
    return int(value) if isinstance(value, int | float) and 0 < value < 10**15 else 0


class Tools(Struct, frozen=True):
    """The tools on offer, encoded once. `names` leads from a name on the wire back to the tool's own."""

    encoded: bytes
    names: Mapping[str, str]


class ToolsMemo:
    """Encodes a tuple of tools when it is first seen. Agents rarely have more than a few of them."""

    def __init__(self, shape: Callable[[str, ToolSpec], Json]) -> None:
        self._shape = shape
        self._known: list[tuple[tuple[ToolSpec, ...], Tools]] = []

    def __call__(self, specs: tuple[ToolSpec, ...]) -> Tools:
        for known, tools in self._known:
            if known is specs or known == specs:
                return tools
        names: dict[str, str] = {}
        for spec in specs:
            name, count = wire_name(spec.name), 2
            while name in names:
                name, count = f"{wire_name(spec.name)[:60]}_{count}", count + 1
            names[name] = spec.name
        shaped = [self._shape(name, spec) for name, spec in zip(names, specs, strict=True)]
        tools = Tools(b",".join(map(encode, shaped)), names)
        self._known = [(specs, tools), *self._known[:15]]
        return tools


def parameters_of(spec: ToolSpec) -> Mapping[str, Json]:
    """The schema of a tool's arguments. Providers insist on an object, also of a tool that takes nothing."""
    if spec.parameters.get("type") == "object":
        return spec.parameters
    return {"type": "object", "properties": {}} | dict(spec.parameters) | {"type": "object"}


class CallPieces:
    """One call while its pieces arrive."""

    __slots__ = ("id", "name", "text")

    def __init__(self, id: str = "") -> None:
        self.id, self.name = id, ""
        self.text: list[str] = []

    def add_name(self, piece: str, known: Collection[str]) -> None:
        """Names come whole, in pieces, or whole again with every piece; the tools on offer tell which."""
        longer = self.name + piece
        if piece.startswith(self.name) and not any(name.startswith(longer) for name in known):
            self.name = piece
        else:
            self.name = longer


def finish_calls(pieces: Iterable[CallPieces], tools: Tools, history: Iterable[Message]) -> tuple[ToolCall, ...]:
    """The calls of a whole answer, each with an id that this history does not have yet."""
    named = [piece for piece in pieces if piece.name or piece.text]
    if not named:
        return ()
    taken = {call.call.call_id for message in history for call in message.calls}
    made = sum(1 for id in taken if _MADE.fullmatch(id))
    calls = []
    for piece in named:
        id = piece.id
        while not id or id in taken:
            made += 1
            id = f"call_{made}"
        taken.add(id)
        calls.append(finish_call(id, tools.names.get(piece.name, piece.name), "".join(piece.text)))
    return tuple(calls)


def finish_call(call_id: str, name: str, text: str) -> ToolCall:
    if not text.strip():
        return ToolCall(call_id, name, {})
    try:
        arguments = decode(text)
    except (DecodeError, UnicodeError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return ToolCall(call_id, name, arguments)
    return ToolCall(call_id, name, None, text)
