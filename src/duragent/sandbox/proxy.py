"""The way out of a box that may reach certain hosts only: a proxy that knows names.

Speaks HTTP CONNECT and plain HTTP on a socket that is shown inside the box. A host must be named by the owner; its
addresses are looked up here, those that are not on the open internet are refused, and the connection is made to the
very address that was checked. An empty list allows nothing. It does not look into what is encrypted.
"""

import asyncio
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from duragent.core.addresses import is_public
from duragent.errors import NotAllowed
from duragent.sandbox.places import homes, nearest

Lookup = Callable[[str, int], Awaitable[Sequence[str]]]
_BRIDGE = Path(__file__).with_name("bridge_main.py")
_PORT = 3128
_WEB = (80, 443)
_HEAD_BYTES = 65_536
_SECONDS = 20.0
_CONNECTIONS = 128
_CHUNK = 65_536


async def lookup(host: str, port: int) -> Sequence[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in found]


def is_allowed(host: str, hosts: Sequence[str], port: int | None = None) -> bool:
    """Whether a name is on the list: as it is, or as a part of `*.name`. A lone `*` allows nothing.

    An entry with a port is about that port alone, one without about the two of the web. Without a `port`, any will do.
    """
    name = host.lower().rstrip(".")
    for entry in hosts:
        named, ports = _entry(entry)
        if (port is None or port in ports) and _is_named(name, named):
            return True
    return False


def common(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """What is on both lists: entries of the first as far as the second allows them."""
    found = []
    for entry in some:
        name, ports = _entry(entry)
        left = [port for port in ports if is_allowed(name, others, port)]
        found += [entry] if len(left) == len(ports) else [f"{name}:{port}" for port in left]
    return tuple(found)


def _entry(entry: str) -> tuple[str, tuple[int, ...]]:
    name, _, port = entry.lower().partition(":")
    return name.rstrip("."), (int(port),) if port.isdecimal() else () if port else _WEB


def _is_named(name: str, entry: str) -> bool:
    if entry.startswith("*."):
        return len(entry) > 2 and name.endswith(entry[1:]) and len(name) > len(entry) - 1
    return bool(entry) and entry == name


class Proxy:
    """A proxy for one list of hosts. All boxes with that list share it."""

    def __init__(self, hosts: Sequence[str], folder: str, lookup: Lookup, public: Callable[[str], bool]) -> None:
        self._hosts, self._lookup, self._public = tuple(hosts), lookup, public
        self._folder = folder
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(
        cls, hosts: Sequence[str], *, lookup: Lookup = lookup, public: Callable[[str], bool] = is_public
    ) -> "Proxy":
        proxy = cls(hosts, tempfile.mkdtemp(prefix="duragent-proxy-"), lookup, public)
        shutil.copy(_BRIDGE, proxy._folder)
        proxy._server = await asyncio.start_unix_server(proxy._meet, proxy.path, limit=_HEAD_BYTES)
        return proxy

    @property
    def path(self) -> str:
        return os.path.join(self._folder, "proxy.sock")

    @property
    def shown(self) -> list[str]:
        """What a box must be able to see for the bridge in it to work."""
        python = os.path.realpath(sys.executable)
        hidden = nearest(python, (*homes(), "/tmp"))
        return [self._folder, *([os.path.realpath(sys.base_prefix)] if hidden else [])]

    @property
    def environment(self) -> Mapping[str, str]:
        url = f"http://127.0.0.1:{_PORT}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        return {each: url for name in names for each in (name, name.lower())} | {"NO_PROXY": "", "no_proxy": ""}

    def inside(self, argv: Sequence[str], rules: bytes) -> list[str]:
        """The command as it is started in the box: behind the bridge, under the filter."""
        python = os.path.realpath(sys.executable)
        bridge = os.path.join(self._folder, _BRIDGE.name)
        return [python, "-I", "-S", bridge, self.path, str(_PORT), rules.hex(), *argv]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) > _CONNECTIONS:
                await _refuse(writer, 503, "too many connections at once")
            else:
                await self._handle(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, asyncio.CancelledError):
            pass  # one end is gone, or we are closing
        finally:
            self._tasks.discard(task)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            host, port, first = _request(head)
        except ValueError as error:
            await _refuse(writer, 400, f"this is no request to a proxy: {error}")
            return
        try:
            far_reader, far_writer = await self._connect(host, port)
        except NotAllowed as error:
            await _refuse(writer, 403, str(error))
            return
        except OSError as error:
            await _refuse(writer, 502, f"{host} cannot be reached: {error or 'it did not answer'}")
            return
        try:
            if first:
                far_writer.write(first)
            else:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.close()

    async def _connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        listed = ", ".join(self._hosts) or "none"
        if not is_allowed(host, self._hosts):
            raise NotAllowed(f"{host} is not among the hosts this agent may reach: {listed}")
        if not is_allowed(host, self._hosts, port):
            raise NotAllowed(
                f"port {port} of {host} is not among those this agent may reach: {listed}. A host alone means ports 80 "
                f"and 443; others are named as {host}:{port}"
            )
        fault: OSError = OSError("it has no address")
        async with asyncio.timeout(_SECONDS):
            addresses = await self._lookup(host, port)
            for address in addresses:
                if not self._public(address):
                    raise NotAllowed(f"{host} is at {address}, which is not on the open internet")
            for address in addresses:
                try:
                    return await asyncio.open_connection(address, port)
                except OSError as error:
                    fault = error
        raise fault


def _request(head: bytes) -> tuple[str, int, bytes]:
    """Host, port, and what is sent on first; nothing for a tunnel. Raises `ValueError`."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("ascii").split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ValueError(f"{line[:80]!r}")
    method, target, version = words
    parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
    if not parts.hostname or "@" in parts.netloc or (method != "CONNECT" and parts.scheme != "http"):
        raise ValueError("it names no host")
    if method == "CONNECT":
        return parts.hostname, parts.port or 443, b""
    place = parts._replace(scheme="", netloc="").geturl() or "/"
    kept = [each for each in rest.split(b"\r\n") if each and not each.lower().startswith(_HOP)]
    fields = [f"{method} {place} {version}".encode(), b"Host: " + parts.netloc.encode(), *kept, b"Connection: close"]
    return parts.hostname, parts.port or 80, b"\r\n".join(fields) + b"\r\n\r\n"


_HOP = (b"host:", b"connection:", b"proxy-", b"keep-alive:", b"upgrade:")


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _refuse(writer: asyncio.StreamWriter, status: int, why: str) -> None:
    body = f"{why}\n".encode("utf-8", "replace")
    head = f"HTTP/1.1 {status} Refused\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()
