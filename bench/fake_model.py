"""A model server that answers at once: OpenAI chat completions, streamed, over a bare asyncio protocol.

It runs in its own process, so that its CPU time is nobody's figure, and on its own core where there are two. The first
part of the path says what it does: `plain` a short answer, `tools` five rounds of one call each and then an answer,
`deltas` one answer of 5,000 pieces. `python -m bench.fake_model` prints its port and serves until its input ends.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, cast

import msgspec

ROUNDS = 5
DELTAS = 5_000
EVENTS_PER_CHUNK = 5
WORDS = ("Fine", ", thank", " you", ". And", " you", "?")
PLAIN_TEXT = "".join(WORDS)
DELTA_TEXT = " word"
TOOL = "count"
"""What the `tools` script calls, with `{"n": <round>}`."""

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"fake",'
    b'"choices":[{"index":0,"delta":%b,"finish_reason":%b}]}\n\n'
)
_USAGE = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"fake",'
    b'"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":8,"total_tokens":28}}\n\n'
)
_END = b"0\r\n\r\n"


class _Said(msgspec.Struct):
    role: str


class _Asked(msgspec.Struct):
    messages: list[_Said]


_decode = msgspec.json.Decoder(_Asked).decode
_ids = count(1)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _delta(fields: bytes, finish: bytes = b"null") -> bytes:
    return _EVENT % (b"{%b}" % fields, finish)


def _spoken(words: tuple[str, ...], per_chunk: int) -> bytes:
    """A whole answer in chunks of so many events, as a provider sends what has piled up meanwhile."""
    events = [_delta(b'"role":"assistant","content":""')]
    events += [_delta(b'"content":%b' % msgspec.json.encode(word)) for word in words]
    events += [_delta(b"", b'"stop"'), _USAGE, b"data: [DONE]\n\n"]
    groups = (events[start : start + per_chunk] for start in range(0, len(events), per_chunk))
    return _HEAD + b"".join(_chunk(b"".join(group)) for group in groups) + _END


_PLAIN = _spoken(WORDS, 3)
_DELTAS = _spoken((DELTA_TEXT,) * DELTAS, EVENTS_PER_CHUNK)


def _plain(body: bytes) -> bytes:
    return _PLAIN


def _deltas(body: bytes) -> bytes:
    return _DELTAS


def _tools(body: bytes) -> bytes:
    """A call, or the last word once the person's message has been followed by `ROUNDS` results."""
    rounds = 0
    for message in reversed(_decode(body).messages):
        if message.role == "user":
            break
        rounds += message.role == "tool"
    if rounds >= ROUNDS:
        return _PLAIN
    name = b'"index":0,"id":"call_%d","type":"function","function":{"name":"%b","arguments":""}' % (
        next(_ids),
        TOOL.encode(),
    )
    events = [
        _delta(b'"role":"assistant","content":null,"tool_calls":[{%b}]' % name),
        _delta(b'"tool_calls":[{"index":0,"function":{"arguments":"{\\"n\\":"}}]'),
        _delta(b'"tool_calls":[{"index":0,"function":{"arguments":" %d}"}}]' % rounds),
        _delta(b"", b'"tool_calls"'),
        _USAGE,
        b"data: [DONE]\n\n",
    ]
    return _HEAD + _chunk(b"".join(events[:3])) + _chunk(b"".join(events[3:])) + _END


SCRIPTS: dict[bytes, Callable[[bytes], bytes]] = {b"plain": _plain, b"tools": _tools, b"deltas": _deltas}


class Speaker(asyncio.Protocol):
    """One connection, kept alive: a request in, its script's answer out."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.script: Callable[[bytes], bytes] = _plain
        self.body_from = self.body_to = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        while self._head_is_here() and len(self.received) >= self.body_to:
            body = bytes(self.received[self.body_from : self.body_to])
            del self.received[: self.body_to]
            self.body_to = 0
            self.transport.write(self.script(body))

    def _head_is_here(self) -> bool:
        if self.body_to:
            return True
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self.received[:end])
        self.script = SCRIPTS.get(head.split(b"/", 2)[1], _plain)
        _, _, length = head.lower().partition(b"content-length:")
        self.body_from = end + 4
        self.body_to = self.body_from + int(length.split(b"\r\n", 1)[0] or 0)
        return True


async def serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Speaker, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.buffer.read)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run it on the fastest loop that is installed: the same for everything that is compared."""
    try:
        factory = import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main)


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """The address of a server of its own, for as long as the block lasts."""
    root = Path(__file__).resolve().parents[1]
    command = (sys.executable, "-m", "bench.fake_model")
    with subprocess.Popen(command, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()
            process.wait(10)


if __name__ == "__main__":
    if hasattr(os, "sched_setaffinity") and len(os.sched_getaffinity(0)) > 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    run_loop(serve())
