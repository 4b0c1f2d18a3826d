"""Web servers on loopback for the tests of the web tool: pages by path, byte for byte, and two search servers.

    async with Site({"/": page("hello")}) as site: ...

An answer is a function that gets the connection; `page`, `redirect` and `raw` make the usual ones. What was asked is
kept in `site.asked`, how much was sent in `site.sent`.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from aiohttp import web


class Connection:
    """One request. `send` says by an error when the other side has hung up."""

    def __init__(self, site: "Site", reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.site, self.reader, self.writer = site, reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        self.site.sent += len(data)

    async def hang(self) -> None:
        """Say nothing more until the other side goes or the test is over."""
        await self.reader.read()

    def reset(self) -> None:
        self.writer.transport.abort()


Answer = Callable[[Connection], Awaitable[None]]


def raw(data: bytes) -> Answer:
    async def answer(connection: Connection) -> None:
        await connection.send(data)

    return answer


def page(body: str | bytes, kind: str | None = "text/html", status: str = "200 OK", **headers: str) -> Answer:
    data = body.encode() if isinstance(body, str) else body
    said = {name.replace("_", "-"): value for name, value in headers.items()} | {"Content-Length": str(len(data))}
    if kind is not None:
        said["Content-Type"] = kind
    head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    return raw(f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data)


def redirect(to: str, status: int = 302) -> Answer:
    return raw(f"HTTP/1.1 {status} Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())


def endless(head: str, piece: bytes, times: int) -> Answer:
    """A body that is sent until it is whole or nobody listens."""

    async def answer(connection: Connection) -> None:
        await connection.send(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
        for _ in range(times):
            await connection.send(piece)

    return answer


class Site:
    """A server that answers by path. `{port}` in a redirect is its own."""

    def __init__(self, answers: Mapping[str, Answer], tls: ssl.SSLContext | None = None) -> None:
        self.answers, self.tls = answers, tls
        self.asked: list[str] = []
        self.heads: list[str] = []
        self.sent = 0
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    def url(self, path: str = "/", host: str = "site.test", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                path = head.split(" ")[1]
                self.asked.append(path)
                self.heads.append(head)
                await self.answers[path](Connection(self, reader, writer))
                writer.close()
                await writer.wait_closed()
        except asyncio.CancelledError:
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)


class SearchServer:
    """Answers as Brave does below /brave and as SearXNG does below /searx: well, and as they refuse."""

    KEY = "BSA-good-key-1234"

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.formats = ["html", "json"]
        self.limited = False
        self.results = [
            {
                "title": f"Result <strong>{number}</strong> &amp; more\x1b[31m",
                "url": f"https://example.com/{number}",
                "description": f"About <strong>number</strong> {number}&#x27;s\u202e page",
            }
            for number in range(1, 31)
        ]

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_get("/brave", self._brave)
        app.router.add_get("/searx/search", self._searx)
        app.router.add_get("/nonsense/search", self._nonsense)
        app.router.add_get("/moved/search", self._moved)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.base = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._runner.cleanup()

    def _refuse(self, status: int, code: str, detail: str, headers: dict[str, str] | None = None) -> web.Response:
        error = {"id": "1", "status": status, "code": code, "detail": detail, "meta": {"component": "authentication"}}
        return web.json_response({"type": "ErrorResponse", "error": error, "time": 1}, status=status, headers=headers)

    async def _brave(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, dict(request.query)))
        key = request.headers.get("X-Subscription-Token")
        if key is None:
            return self._refuse(422, "VALIDATION", "Unable to validate request parameter(s)")
        if key == "expired-key-1234":
            return self._refuse(401, "UNAUTHORIZED", "The subscription has expired.")
        if key != self.KEY:
            return self._refuse(422, "SUBSCRIPTION_TOKEN_INVALID", "The provided subscription token is invalid.")
        if self.limited:
            return self._refuse(429, "RATE_LIMITED", "Request rate limit exceeded for plan.", {"Retry-After": "7"})
        query, count = request.query["q"], int(request.query["count"])
        if len(query) > 400 or not 1 <= count <= 20:
            return self._refuse(422, "VALIDATION", "Unable to validate request parameter(s)")
        found = [] if query == "nothing" else self.results[:count]
        body = {"type": "search", "query": {"original": query}, "web": {"type": "search", "results": found}}
        response = web.json_response(body if found else {"type": "search"})
        response.enable_compression(web.ContentCoding.gzip)
        return response

    async def _searx(self, request: web.Request) -> web.Response:
        self.asked.append((request.path, dict(request.query)))
        if request.query.get("format") not in self.formats:
            return web.Response(status=403, text="<html>Forbidden</html>", content_type="text/html")
        found = [{**each, "content": each["description"], "engine": "x"} for each in self.results]
        for each in found:
            del each["description"]
        body = {"query": request.query["q"], "number_of_results": 0, "results": found, "answers": [], "infoboxes": []}
        return web.Response(text=json.dumps(body), content_type="application/json")

    async def _nonsense(self, request: web.Request) -> web.Response:
        return web.Response(text="[" * 100_000, content_type="application/json")

    async def _moved(self, request: web.Request) -> web.Response:
        raise web.HTTPFound("/searx/search")
