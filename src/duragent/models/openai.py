"""Models that speak Chat Completions: OpenAI, OpenRouter, Ollama, and every server with the same wire format.

Owns how a request is written and how a stream is understood. Messages are encoded once and joined ever after.
What a model refuses to be sent (a temperature, say) is left out from then on. Knows nothing of connections and
retries: `http.py` does. Another provider of this format needs a line in `ADDRESSES` at most.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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
DIALECT = "openai"
ADDRESSES: Mapping[str, str] = {
    "openai": "https://api.openai.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "ollama": "http://localhost:11434/v1",
}
_STRANGE = re.compile("nsupported|not supported|nrecogni[sz]ed|nknown|not permitted|not allowed|xtra ")


class OpenAIModel:
    """One model behind a Chat Completions server."""

    def __init__(
        self,
        name: str,
        *,
        provider: str = "openai",
        base_url: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
    ) -> None:
        """Connections are those of `transport`; a model that is given none keeps its own."""
        self.name = f"{provider}/{name}"
        self._model, self._provider = name, provider
        self._transport, self._owned = transport or Transport(), transport is None
        usual = ADDRESSES.get(provider, "")
        base = (base_url or usual).rstrip("/")
        if not base:
            text = f"{self.name}: no address is known for {provider}. Set base_url"
            raise ModelFailed(text, lasting=True, billed=False)
        # Only these two are known to take system messages anywhere; the templates of many local models refuse them.
        self._strict = provider not in ("openai", "openrouter") or base != usual
        key = (key or "").strip()
        auth = {"Authorization": f"Bearer {key}"} if key else {}
        self._endpoint = Endpoint(self.name, f"{base}/chat/completions", key, auth, headers or {})
        self._limit = "max_completion_tokens" if provider == "openai" and not self._strict else "max_tokens"
        self._amended: set[str] = set()
        self._tools = ToolsMemo(_tool)

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        tools = self._tools(request.tools)
        deadline = self._transport.deadline(timeout_seconds)
        while True:
            body, before = self.body(request), frozenset(self._amended)
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
                if not self._amend(failure, request, before):
                    raise
            else:
                return reader.answer(request.messages)

    async def close(self) -> None:
        """Close what is this model's own. A transport that was given is closed by whoever made it."""
        if self._owned:
            await self._transport.close()

    def _amend(self, failure: ModelFailed, request: Request, before: frozenset[str]) -> bool:
        """Whether leaving out what this model does not take may help. `before` had been amended in what was sent:
        another session may have learned the same in the meantime."""
        if failure.status not in (400, 422):
            return False
        text = str(failure)
        for word, sent in (
            ("temperature", request.temperature is not None),
            (self._limit, request.max_output_tokens is not None and _STRANGE.search(text) is not None),
            ("stream_options", True),
            ("reasoning_effort", bool(request.tools)),
        ):
            if sent and word in text and word not in before:
                self._amended.add(word)
                return True
        return False

    def body(self, request: Request) -> bytes:
        """The request as it is sent."""
        amended = self._amended
        head: dict[str, Json] = {"model": self._model, "stream": True}
        if "stream_options" not in amended:
            head["stream_options"] = {"include_usage": True}
        if self._provider == "openrouter":
            head["usage"] = {"include": True}
        if request.temperature is not None and "temperature" not in amended:
            head["temperature"] = request.temperature
        if request.max_output_tokens is not None:
            other = "max_tokens" if self._limit == "max_completion_tokens" else "max_completion_tokens"
            head[other if self._limit in amended else self._limit] = request.max_output_tokens
        if request.tools and "reasoning_effort" in amended:
            head["reasoning_effort"] = "none"
        tools = b',"tools":[%b]' % self._tools(request.tools).encoded if request.tools else b""
        messages = b",".join(self._messages(request))
        return b'%b%b,"messages":[%b]}' % (encode(head)[:-1], tools, messages)

    def _messages(self, request: Request) -> list[bytes]:
        told = [text.strip() for text in (request.system, request.notice) if text.strip()]
        stamp = request.stamp.strip()
        history = with_fresh_ids(request.messages) if repeated_ids(request.messages) else request.messages
        if self._strict:
            told, history = ["\n\n".join(told)] if told else [], _in_turns(history, stamp)
        wires = [m.wire if m.wire and m.dialect == DIALECT else _encode_message(m) for m in history]
        last = next((m for m, wire in zip(reversed(history), reversed(wires), strict=True) if wire), None)
        wires = [wire for wire in wires if wire]
        if last is None or (last.role == "assistant" and not last.calls):
            wires.append(_text("user", GO_ON))
        if stamp and not self._strict:
            wires.append(_text("system", stamp))
        return [*(_text("system", text) for text in told), *wires]


def _in_turns(history: Sequence[Message], stamp: str) -> list[Message]:
    """The history for servers whose templates are strict: who speaks twice in a row speaks once, and the stamp, which
    no template has a place for, ends the newest word of the person."""
    turns = list(history) if _takes_turns(history) else _merged(history)
    newest = next((n for n in range(len(turns) - 1, -1, -1) if turns[n].role == "user" and said(turns[n])), None)
    if stamp and newest is not None:
        turns[newest] = Message("user", f"{said(turns[newest])}\n\n({stamp})", turns[newest].seq)
    return turns


def _merged(history: Sequence[Message]) -> list[Message]:
    turns: list[Message] = []
    for message in history:
        before = turns[-1] if turns else None
        if before is None or message.role != before.role or before.calls or not said(before):
            turns.append(message)
        elif said(message) or message.calls:
            both = "\n\n".join(text for text in (said(before), said(message)) if text)
            turns[-1] = Message(message.role, both, message.seq, message.calls)
    return turns


def _takes_turns(history: Sequence[Message]) -> bool:
    """Whether nobody speaks twice in a row, and nobody says nothing: as almost always."""
    role = ""
    for message in history:
        if message.role == role or not (message.calls or message.content.strip()):
            return False
        role = "" if message.calls else message.role
    return True


def _text(role: str, content: str) -> bytes:
    return encode({"role": role, "content": content})


def _encode_message(message: Message) -> bytes:
    """The message and the results of its calls, comma between; empty where nothing was said."""
    if message.role == "user":
        text = said(message)
        wire = _text("user", text) if text else b""
    elif message.calls:
        wire = _encode_group(message)
    else:
        wire = _text("assistant", message.content) if message.content.strip() else b""
    if settled(message):
        message.wire, message.dialect = wire, DIALECT
    return wire


def _encode_group(message: Message) -> bytes:
    calls = [
        {
            "id": wire_id(call.call.call_id),
            "type": "function",
            "function": {
                "name": wire_name(call.call.tool_name),
                "arguments": encode(arguments_of(call.call)).decode(),
            },
        }
        for call in message.calls
    ]
    content = message.content if message.content.strip() else None
    results = [
        {"role": "tool", "tool_call_id": wire_id(call.call.call_id), "content": outcome(call)} for call in message.calls
    ]
    return encode([{"role": "assistant", "content": content, "tool_calls": calls}, *results])[1:-1]


def _tool(name: str, spec: ToolSpec) -> Json:
    function = {"name": name, "description": spec.description, "parameters": parameters_of(spec)}
    return {"type": "function", "function": function}


class _Function(Struct):
    name: str | None = None
    arguments: Json = None


class _Piece(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | list[Json] | None = None
    refusal: str | None = None
    tool_calls: list[_Piece] | None = None
    function_call: _Function | None = None


class _Choice(Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None  # in answers that are not streamed
    finish_reason: str | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: Json = None
    error: Json = None


_decode: Callable[[bytes], _Chunk] = Decoder(_Chunk).decode


class _Reader:
    """One answer while it arrives."""

    __slots__ = ("_calls", "_choices", "_delta", "_endpoint", "_finish", "_parts", "_tools", "_usage", "ended", "spoke")

    def __init__(self, endpoint: Endpoint, listener: Listener, tools: Tools) -> None:
        self._endpoint, self._delta, self._tools = endpoint, listener.delta, tools
        self.ended = self.spoke = False
        self._parts: list[str] = []
        self._calls: list[tuple[int | None, CallPieces]] = []
        self._choices, self._finish = False, ""
        self._usage: Json = None

    def event(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.ended = True
            if not self._choices:
                raise self._endpoint.failed("the answer holds nothing: no choice was given")
            return
        try:
            chunk = _decode(data)
        except ValidationError as error:
            text = f"the answer is not in the Chat Completions format ({error}). Is base_url right?"
            raise self._endpoint.failed(text, lasting=True) from None
        except (DecodeError, UnicodeError, RecursionError):
            raise self._endpoint.failed("the stream holds what is no JSON") from None
        if chunk.choices:
            choice = chunk.choices[0]
            if choice.index == 0:
                self._choice(choice)
        if chunk.error:
            raise self._broken(chunk.error)
        if chunk.usage:
            self._usage = chunk.usage

    def document(self, body: bytes) -> None:
        self.event(body.strip())
        if not self._choices:
            raise self._endpoint.failed("the answer holds nothing: no choice was given")
        self._finish = self._finish or "stop"

    def complete(self) -> bool:
        return self.ended or self._finish != ""

    def _choice(self, choice: _Choice) -> None:
        self._choices = True
        delta = choice.delta or choice.message
        if delta is not None:
            text = delta.content
            if text.__class__ is str and text:
                self.spoke = True
                self._parts.append(text)
                self._delta(text)
            elif text or delta.refusal:
                self._say(_plain(text) or delta.refusal or "")
            for piece in delta.tool_calls or ():
                self._piece(piece)
            if delta.function_call is not None:
                self._piece(_Piece(0, None, delta.function_call))
        if choice.finish_reason:
            self._finish = choice.finish_reason

    def _say(self, text: str) -> None:
        if text:
            self.spoke = True
            self._parts.append(text)
            self._delta(text)

    def _piece(self, piece: _Piece) -> None:
        function = piece.function or _Function()
        call = self._call_of(piece, bool(function.name))
        if function.name:
            call.add_name(function.name, self._tools.names)
        if function.arguments is not None and function.arguments != "":
            text = function.arguments
            call.text.append(text if isinstance(text, str) else encode(text).decode())

    def _call_of(self, piece: _Piece, named: bool) -> CallPieces:
        """The call a piece belongs to. Some servers number all calls 0, or none; then a new id begins a new call."""
        known = None
        if piece.index is not None:
            known = next((call for index, call in reversed(self._calls) if index == piece.index), None)
        elif self._calls and (not named or (piece.id and piece.id == self._calls[-1][1].id)):
            known = self._calls[-1][1]
        if known is None or (piece.id and known.id and piece.id != known.id and named):
            known = CallPieces()
            self._calls.append((piece.index, known))
        known.id = known.id or piece.id or ""
        return known

    def _broken(self, error: Json) -> ModelFailed:
        """An error in the middle of a stream. Codes are HTTP's where they are numbers."""
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        lasting = status is not None and status < 500 and status not in (408, 429)
        return self._endpoint.failed(message_of(error), lasting=lasting, status=status)

    def answer(self, history: list[Message]) -> Answer:
        calls = finish_calls((call for _, call in self._calls), self._tools, history)
        text = "".join(self._parts)
        if not calls and not text and self._finish not in ("", "stop", "tool_calls", "function_call"):
            raise self._endpoint.failed(_stopped(self._finish), lasting=True)
        usage = self._usage if isinstance(self._usage, dict) else {}
        cost = usage.get("cost")
        cost_usd = float(cost) if isinstance(cost, int | float) and 0 <= cost < 10**9 else None
        return Answer(text, calls, _usage(usage), cost_usd)


def _stopped(reason: str) -> str:
    text = f"the model stopped without a word ({reason})"
    return f"{text}. Raise max_output_tokens" if reason == "length" else text


def _plain(content: str | list[Json] | None) -> str:
    """The text of content that comes in typed parts; thoughts are not part of it."""
    if not isinstance(content, list):
        return content or ""
    texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
    return "".join(text for text in texts if isinstance(text, str))


def _usage(usage: Mapping[str, Json]) -> Usage | None:
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    if not prompt and not completion:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    return Usage(prompt, completion, count(usage.get("total_tokens")) or prompt + completion, count(cached))
