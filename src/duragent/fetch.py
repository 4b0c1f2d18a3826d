"""Reads a text from an https URL that a stranger may have written.

Only https, only public addresses, and it connects to the very address it checked, so that a name cannot
change its mind between the check and the call. Every redirect is checked again. Bounded in size and time.
`#sha256=<hex>` at the end of a URL pins the content.
"""

import hashlib
import http.client
import io
import socket
import ssl
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

from duragent.core.addresses import is_public
from duragent.errors import FetchFailed

MAX_BYTES = 1 << 20
MAX_SECONDS = 10.0
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)

Resolve = Callable[[str, int], list[str]]
Allowed = Callable[[str], bool]


def resolve(host: str, port: int) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def fetch(
    url: str,
    *,
    resolve: Resolve = resolve,
    allowed: Allowed = is_public,
    tls: ssl.SSLContext | None = None,
    max_bytes: int = MAX_BYTES,
    max_seconds: float = MAX_SECONDS,
) -> bytes:
    """The bytes behind `url`. Raises `FetchFailed` with a sentence that says what and why."""
    address, _, pin = url.partition("#")
    tls = tls or ssl.create_default_context()
    deadline = time.monotonic() + max_seconds
    for _hop in range(MAX_REDIRECTS + 1):
        try:
            status, location, body = _get(address, resolve, allowed, tls, max_bytes, deadline)
        except TimeoutError:
            raise FetchFailed(f"{address} did not answer within {max_seconds:g} seconds") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise FetchFailed(f"{address} cannot be read: {error or type(error).__name__}") from None
        if status == 200:
            _check_pin(address, pin, body)
            return body
        if status not in _REDIRECTS or not location:
            raise FetchFailed(f"{address} answered with status {status}")
        try:
            address = urljoin(address, location)
        except ValueError:
            raise FetchFailed(f"{address} redirects to {location!r}, which is no address") from None
    raise FetchFailed(f"{url} redirects more than {MAX_REDIRECTS} times")


def _get(
    url: str, resolve: Resolve, allowed: Allowed, tls: ssl.SSLContext, max_bytes: int, deadline: float
) -> tuple[int, str | None, bytes]:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise FetchFailed(f"{url} is not an https address")
    if parts.username is not None:
        raise FetchFailed("an address with a user name or password is not fetched")
    port = parts.port or 443
    connection = http.client.HTTPSConnection(parts.hostname, port, context=tls)
    try:
        connection.sock = wire = _connect(parts.hostname, port, resolve, allowed, tls, deadline)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"User-Agent": "duragent", "Accept-Encoding": "identity"})
        with http.client.HTTPResponse(_Timed(wire, deadline), method="GET") as answer:  # type: ignore[arg-type]
            answer.begin()
            return answer.status, answer.headers.get("Location"), _body(answer, url, max_bytes)
    finally:
        connection.close()


def _resolved(host: str, port: int, resolve: Resolve, deadline: float) -> list[str]:
    """Addresses of a name, within the time that is left. The system's own lookup knows no deadline."""
    answer: list[list[str] | Exception] = []

    def ask() -> None:
        try:
            answer.append(resolve(host, port))
        except Exception as error:  # noqa: BLE001 - raised again below, in the thread that waits
            answer.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_left(deadline))
    if not answer:
        raise TimeoutError
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def _connect(
    host: str, port: int, resolve: Resolve, allowed: Allowed, tls: ssl.SSLContext, deadline: float
) -> ssl.SSLSocket:
    addresses = _resolved(host, port, resolve, deadline)
    for address in addresses:
        if not allowed(address):
            raise FetchFailed(f"{host} is at {address}, which is not a public address; it is not fetched")
    if not addresses:
        raise FetchFailed(f"{host} has no address")
    raw = socket.create_connection((addresses[0], port), timeout=_left(deadline))
    try:
        return tls.wrap_socket(raw, server_hostname=host)
    except BaseException:
        raw.close()
        raise


class _Timed(io.RawIOBase):
    """What a socket sends, headers too: every read has only what is left of the time, however slow the drip."""

    def __init__(self, wire: ssl.SSLSocket, deadline: float) -> None:
        self.wire, self.deadline = wire, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        self.wire.settimeout(_left(self.deadline))
        return self.wire.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def _body(answer: http.client.HTTPResponse, url: str, max_bytes: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while True:
        piece = answer.read1(65_536)
        if not piece:
            return b"".join(pieces)
        size += len(piece)
        if size > max_bytes:
            raise FetchFailed(f"{url} is larger than {max_bytes:,} bytes")
        pieces.append(piece)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _check_pin(url: str, pin: str, body: bytes) -> None:
    if not pin:
        return
    name, _, wanted = pin.partition("=")
    if name != "sha256" or len(wanted) != 64:
        raise FetchFailed(f"{url}: the pin `#{pin}` is not understood; write #sha256= and 64 hex digits")
    found = hashlib.sha256(body).hexdigest()
    if found != wanted.lower():
        raise FetchFailed(f"{url} has changed: its content is sha256={found}, not {wanted}")
