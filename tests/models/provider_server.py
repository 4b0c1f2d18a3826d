"""A provider on loopback that speaks both wire formats, well and badly, by a script: one behaviour per request.

    async with Provider([refuse(429, after="2"), chat(["Hel", "lo"])]) as provider: ...

A behaviour is an async function of a `Connection`, or one of those made here. When the script is at its end, the
last behaviour is repeated. What was asked is kept in `provider.asked`.
"""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from aiohttp import web

Json = Any


class Asked:
    """One request as it came in. `connection` is the same for requests on the same TCP connection."""

    def __init__(self, path: str, headers: Mapping[str, str], body: bytes, connection: int) -> None:
        self.path, self.headers, self.body, self.connection = path, dict(headers), body, connection

    @property
    def json(self) -> Json:
        return json.loads(self.body)


class Connection:
    """What a behaviour answers with."""

    def __init__(self, request: web.Request, provider: "Provider") -> None:
        self.request, self.provider = request, provider

    async def stream(
        self, pieces: Iterable[bytes], *, content_type: str = "text/event-stream", finish: bool = True
    ) -> web.StreamResponse:
        """Send the pieces, each in a packet of its own."""
        response = web.StreamResponse(headers={"Content-Type": content_type})
        await response.prepare(self.request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0)
        if finish:
            await response.write_eof()
        return response

    def reset(self) -> None:
        """Break the connection as a crash does."""
        assert self.request.transport is not None
        self.request.transport.abort()


Behaviour = Callable[[Connection], Awaitable[web.StreamResponse]]


class Provider:
    """The server. `hung` is set while a behaviour hangs, `left` when its client has gone away."""

    def __init__(self, script: Sequence[Behaviour], tls: ssl.SSLContext | None = None) -> None:
        self.script, self._tls = list(script), tls
        self.asked: list[Asked] = []
        self.hung, self.left, self.go = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._connections: dict[int, object] = {}

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=2**28)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.address = f"http{'s' if self._tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.go.set()
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        assert request.transport is not None
        self._connections[id(request.transport)] = request.transport  # kept, so that no id is used twice
        self.asked.append(Asked(request.path, request.headers, body, id(request.transport)))
        behaviour = self.script[min(len(self.asked), len(self.script)) - 1]
        return await behaviour(Connection(request, self))


def event(data: Json, name: str = "", end: bytes = b"\n") -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    head = b"event: " + name.encode() + end if name else b""
    return head + b"data: " + text.encode() + end + end


def sending(pieces: Iterable[bytes], *, content_type: str = "text/event-stream") -> Behaviour:
    """Send exactly these bytes, piece by piece."""
    kept = list(pieces)

    async def behave(connection: Connection) -> web.StreamResponse:
        return await connection.stream(kept, content_type=content_type)

    return behave


def breaking(pieces: Iterable[bytes]) -> Behaviour:
    """Send these bytes and reset the connection."""
    kept = list(pieces)

    async def behave(connection: Connection) -> web.StreamResponse:
        response = await connection.stream(kept, finish=False)
        connection.reset()
        return response

    return behave


def hanging(pieces: Iterable[bytes] = ()) -> Behaviour:
    """Send these bytes, then say nothing until the client leaves or `provider.go` is set; then close."""
    kept = list(pieces)

    async def behave(connection: Connection) -> web.StreamResponse:
        response = await connection.stream(kept, finish=False)
        connection.provider.hung.set()
        try:
            await connection.provider.go.wait()
        except asyncio.CancelledError:
            connection.provider.left.set()
            raise
        return response

    return behave


def refuse(status: int, body: Json = None, *, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Refuse with this status. A body that is bytes is sent as it is."""

    async def behave(connection: Connection) -> web.StreamResponse:
        if isinstance(body, bytes):
            return web.Response(status=status, body=body, headers=headers)
        said = {"error": {"message": f"refused with {status}"}} if body is None else body
        return web.json_response(said, status=status, headers=headers)

    return behave


def refuse_half(status: int) -> Behaviour:
    """Refuse, and break the connection before the reason is out."""

    async def behave(connection: Connection) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers={"Content-Length": "100"})
        await response.prepare(connection.request)
        await response.write(b"because")
        connection.reset()
        return response

    return behave


def document(body: Json) -> Behaviour:
    """Answer with one JSON document, as a server does that ignores `stream`."""

    async def behave(connection: Connection) -> web.StreamResponse:
        return web.json_response(body)

    return behave


# Chat Completions


def delta(**fields: Json) -> Json:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def finish(reason: str = "stop") -> Json:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}


def chat_usage(prompt: int = 10, completion: int = 5, cached: int = 0, **more: Json) -> Json:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"choices": [], "usage": usage | {"prompt_tokens_details": {"cached_tokens": cached}} | more}


def chat_events(chunks: Iterable[Json], *, done: bool = True, end: bytes = b"\n") -> list[bytes]:
    return [event(chunk, end=end) for chunk in chunks] + ([event("[DONE]", end=end)] if done else [])


def chat_pieces(texts: Iterable[str], *, reason: str = "stop", usage: Json = None, end: bytes = b"\n") -> list[bytes]:
    chunks = [delta(role="assistant", content=""), *(delta(content=text) for text in texts), finish(reason)]
    return chat_events([*chunks, usage or chat_usage()], end=end)


def chat(texts: Iterable[str], *, reason: str = "stop", usage: Json = None) -> Behaviour:
    """A good answer in the Chat Completions format."""
    return sending(chat_pieces(texts, reason=reason, usage=usage))


def chat_calls(*pieces: Json, reason: str = "tool_calls") -> Behaviour:
    """An answer whose deltas hold these pieces of tool calls, one each."""
    return sending(chat_events([*(delta(tool_calls=[piece]) for piece in pieces), finish(reason), chat_usage()]))


# Messages


def message_start(**usage: int) -> Json:
    usage = {"input_tokens": 10, "output_tokens": 1} | usage
    return {"type": "message_start", "message": {"id": "msg_1", "type": "message", "content": [], "usage": usage}}


def block_start(index: int, **block: Json) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(index: int, **fields: Json) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def block_stop(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def message_end(reason: str = "end_turn", **usage: int) -> list[Json]:
    usage = {"output_tokens": 5} | usage
    ended = {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}
    return [ended, {"type": "message_stop"}]


def text_block(index: int, texts: Iterable[str]) -> list[Json]:
    deltas = [block_delta(index, type="text_delta", text=text) for text in texts]
    return [block_start(index, type="text", text=""), *deltas, block_stop(index)]


def call_block(index: int, id: str, name: str, pieces: Iterable[str]) -> list[Json]:
    deltas = [block_delta(index, type="input_json_delta", partial_json=piece) for piece in pieces]
    return [block_start(index, type="tool_use", id=id, name=name, input={}), *deltas, block_stop(index)]


def message_events(events: Iterable[Json], end: bytes = b"\n") -> list[bytes]:
    return [event(each, each["type"], end) for each in events]


def message_pieces(texts: Iterable[str], *, reason: str = "end_turn", end: bytes = b"\n") -> list[bytes]:
    blocks = text_block(0, texts)
    return message_events([message_start(), {"type": "ping"}, *blocks, *message_end(reason)], end)


def message(texts: Iterable[str], *, reason: str = "end_turn") -> Behaviour:
    """A good answer in the Messages format."""
    return sending(message_pieces(texts, reason=reason))
