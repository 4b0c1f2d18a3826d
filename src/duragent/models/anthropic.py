"""Models that speak Anthropic's Messages format.

Owns how a request is written (turns alternate, results come first, what stays the same is marked for the
provider's cache) and how a stream is understood. Messages are encoded once and joined ever after. Thoughts are
neither kept nor sent back. Knows nothing of connections and retries: `http.py` does.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import DecodeError, Struct, ValidationError
from msgspec.json import Decoder

from duragent.core.context import Request
from duragent.core.events import Usage
from duragent.core.policy import ToolSpec
from duragent.core.session import Message
from duragent.errors import ModelFailed
from duragent.models import Answer, Listener
from duragent.models.http import Endpoint, Transport, message_of
from duragent.models.wire import (
    GO_ON,
    NOT_SHOWN,
    CallPieces,
    Tools,
    ToolsMemo,
    arguments_of,
    count,
    encode,
    finish_calls,
    outcome,
    parameters_of,
    repeated_ids,
    said,
    settled,
    wire_id,
    wire_name,
    with_fresh_ids,
)

Json = Any
T = TypeVar("T")
DIALECT = "anthropic"
ADDRESS = "https://api.anthropic.com"
VERSION = "2023-06-01"
MAX_TOKENS = 4096
_MARK = b',"cache_control":{"type":"ephemeral"}'
# A turn ends in a space or a tab, which JSON allows there and our encoder writes nowhere: neighbours of one role are
# found by it and joined. No text can forge it, because the quotes that follow are escaped in every text.
_USER, _USER_END = b'{"role":"user","content":[', b"] }"
_ASSISTANT, _ASSISTANT_END = b'{"role":"assistant","content":[', b"]\t}"
_PASSING = ("overloaded_error", "api_error", "rate_limit_error", "timeout_error")


class AnthropicModel:
    """One model behind a Messages server."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Connections are those of `transport`; a model that is given none keeps its own."""
        self.name = f"anthropic/{name}"
        self._model = name
        self._transport, self._owned = transport or Transport(), transport is None
        base = (base_url or ADDRESS).rstrip("/").removesuffix("/v1")
        key = (key or "").strip()
        auth = {"anthropic-version": VERSION} | ({"x-api-key": key} if key else {})
        self._endpoint = Endpoint(self.name, f"{base}/v1/messages", key, auth, headers or {})
        self._takes_temperature = True
        self._tools = ToolsMemo(_tool)

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        tools = self._tools(request.tools)
        deadline = self._transport.deadline(timeout_seconds)
        while True:
            body, sent = self.body(request), self._takes_temperature and request.temperature is not None
            try:
                reader = await self._transport.ask(
                    self._endpoint,
                    body,
                    lambda: _Reader(self._endpoint, listener, tools),
                    listener,
                    deadline,
                    request.pay_once,
                )
            except ModelFailed as failure:
                if not sent or failure.status != 400 or "temperature" not in str(failure):
                    raise
                self._takes_temperature = False  # newer models refuse it
            else:
                return reader.answer(request.messages)

    async def close(self) -> None:
        """Close what is this model's own. A transport that was given is closed by whoever made it."""
        if self._owned:
            await self._transport.close()

    def body(self, request: Request) -> bytes:
        """The request as it is sent. What stays the same comes first: tools, system, then the messages."""
        head: dict[str, Json] = {
            "model": self._model,
            "stream": True,
            "max_tokens": MAX_TOKENS if request.max_output_tokens is None else request.max_output_tokens,
        }
        if request.temperature is not None and self._takes_temperature:
            head["temperature"] = min(max(request.temperature, 0.0), 1.0)
        parts = [encode(head)[:-1]]
        system = request.system.strip()
        if request.tools:
            tools = self._tools(request.tools).encoded
            parts.append(b',"tools":[%b]' % (tools if system else tools[:-1] + _MARK + b"}"))
        if system:
            parts.append(b',"system":[%b%b}]' % (_text(system)[:-1], _MARK))
        parts.append(b',"messages":[%b]}' % _messages(request))
        return b"".join(parts)


def _messages(request: Request) -> bytes:
    history = with_fresh_ids(request.messages) if repeated_ids(request.messages) else request.messages
    wires = [m.wire if m.wire and m.dialect == DIALECT else _encode_message(m) for m in history]
    wires = [wire for wire in wires if wire]
    _mark_history(wires)
    if request.notice.strip():
        wires.insert(0, _user(request.notice.strip()))
    elif wires and not wires[0].startswith(_USER):
        wires.insert(0, _user(NOT_SHOWN))
    if not wires or not wires[-1].endswith(_USER_END):
        wires.append(_user(GO_ON))
    if request.stamp.strip():
        wires.append(_user(request.stamp.strip()))
    joined = b",".join(wires)
    return joined.replace(_USER_END + b"," + _USER, b",").replace(_ASSISTANT_END + b"," + _ASSISTANT, b",")


def _mark_history(wires: list[bytes]) -> None:
    """Mark the end of the newest turn but one of the user: the next call begins with the same bytes up to there."""
    users = 0
    for at in range(len(wires) - 1, -1, -1):
        if wires[at].endswith(_USER_END):
            users += 1
            if users == 2:
                cut = len(_USER_END) + 1
                wires[at] = wires[at][:-cut] + _MARK + wires[at][-cut:]
                return


def _text(text: str) -> bytes:
    return encode({"type": "text", "text": text})


def _user(text: str) -> bytes:
    return _USER + _text(text) + _USER_END


def _encode_message(message: Message) -> bytes:
    """The turn, and a user's turn with the results of its calls; empty where nothing was said."""
    if message.role == "user":
        text = said(message)
        wire = _user(text) if text else b""
    else:
        blocks = [_text(message.content.rstrip())] if message.content.strip() else []
        blocks += [
            encode(_call(call.call.call_id, call.call.tool_name, arguments_of(call.call))) for call in message.calls
        ]
        wire = _ASSISTANT + b",".join(blocks) + _ASSISTANT_END if blocks else b""
        if message.calls:
            results = [_result(call.call.call_id, outcome(call), call.success) for call in message.calls]
            wire += b"," + _USER + b",".join(map(encode, results)) + _USER_END
    if settled(message):
        message.wire, message.dialect = wire, DIALECT
    return wire


def _call(call_id: str, name: str, arguments: Mapping[str, Json]) -> Json:
    return {"type": "tool_use", "id": wire_id(call_id), "name": wire_name(name), "input": arguments}


def _result(call_id: str, content: str, success: bool) -> Json:
    result = {"type": "tool_result", "tool_use_id": wire_id(call_id), "content": content}
    return result if success else result | {"is_error": True}


def _tool(name: str, spec: ToolSpec) -> Json:
    return {"name": name, "description": spec.description, "input_schema": parameters_of(spec)}


class _Block(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    input: Json = None


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Message(Struct):
    usage: Json = None
    content: list[_Block] = []
    stop_reason: str | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: Json = None
    error: Json = None


class _Document(_Message):
    type: str = ""
    error: Json = None


_decode: Callable[[bytes], _Event] = Decoder(_Event).decode
_decode_document: Callable[[bytes], _Document] = Decoder(_Document).decode


class _Reader:
    """One answer while it arrives."""

    __slots__ = ("_calls", "_delta", "_endpoint", "_parts", "_started", "_stop", "_tools", "_usage", "ended", "spoke")

    def __init__(self, endpoint: Endpoint, listener: Listener, tools: Tools) -> None:
        self._endpoint, self._delta, self._tools = endpoint, listener.delta, tools
        self.ended = self.spoke = self._started = False
        self._parts: list[str] = []
        self._calls: dict[int, CallPieces] = {}
        self._stop = ""
        self._usage: dict[str, Json] = {}

    def event(self, data: bytes) -> None:
        event = self._decoded(_decode, data)
        delta = event.delta
        if event.type == "content_block_delta" and delta is not None:
            if delta.text:
                self._say(delta.text)
            elif delta.partial_json and (call := self._calls.get(event.index)):
                call.text.append(delta.partial_json)
        elif event.type == "content_block_start" and event.content_block is not None:
            self._block(event.index, event.content_block)
        elif event.type == "message_start" and event.message is not None:
            self._started = True
            self._count(event.message.usage)
        elif event.type == "message_delta":
            self._stop = (delta.stop_reason if delta else None) or self._stop
            self._count(event.usage)
        elif event.type == "message_stop":
            self.ended = True
            if not self._started:
                raise self._endpoint.failed("the answer holds nothing: it ended before it began")
        elif event.type == "error":
            raise self._broken(event.error)

    def document(self, body: bytes) -> None:
        whole = self._decoded(_decode_document, body)
        if whole.error:
            raise self._broken(whole.error)
        for index, block in enumerate(whole.content):
            self._block(index, block)
        self._count(whole.usage)
        self._stop = whole.stop_reason or ("end_turn" if whole.content else "")

    def complete(self) -> bool:
        return self.ended or self._stop != ""

    def _decoded(self, decode: Callable[[bytes], T], data: bytes) -> T:
        try:
            return decode(data)
        except ValidationError as error:
            text = f"the answer is not in the Messages format ({error}). Is base_url right?"
            raise self._endpoint.failed(text, lasting=True) from None
        except (DecodeError, UnicodeError, RecursionError):
            raise self._endpoint.failed("the stream holds what is no JSON") from None

    def _say(self, text: str) -> None:
        self.spoke = True
        self._parts.append(text)
        self._delta(text)

    def _block(self, index: int, block: _Block) -> None:
        if block.type == "tool_use":
            call = self._calls[index] = CallPieces(block.id or "")
            call.name = block.name or ""
            if block.input:
                call.text.append(encode(block.input).decode())
        elif block.type == "text" and block.text:
            self._say(block.text)

    def _count(self, usage: Json) -> None:
        """Counts are totals so far: a later one stands."""
        if isinstance(usage, dict):
            self._usage |= {key: count(value) for key, value in usage.items() if isinstance(value, int | float)}

    def _broken(self, error: Json) -> ModelFailed:
        kind = error.get("type") if isinstance(error, dict) else None
        text = message_of(error)
        return self._endpoint.failed(f"{text} ({kind})" if kind else text, lasting=kind not in (None, *_PASSING))

    def answer(self, history: list[Message]) -> Answer:
        calls = finish_calls(self._calls.values(), self._tools, history)
        text = "".join(self._parts)
        if not calls and not text and self._stop not in ("", "end_turn", "stop_sequence", "tool_use"):
            advice = ". Raise max_output_tokens" if self._stop == "max_tokens" else ""
            raise self._endpoint.failed(f"the model stopped without a word ({self._stop}){advice}", lasting=True)
        return Answer(text, calls, _usage(self._usage))


def _usage(usage: Mapping[str, int]) -> Usage | None:
    cached = usage.get("cache_read_input_tokens", 0)
    written = usage.get("cache_creation_input_tokens", 0)
    prompt = usage.get("input_tokens", 0) + written + cached
    completion = usage.get("output_tokens", 0)
    return Usage(prompt, completion, prompt + completion, cached, written) if prompt or completion else None
