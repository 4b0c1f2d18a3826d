"""Pages from the web, fetched so that neither the address nor the answer can do harm.

Owns where a page may come from, the redirects, how much is read, and making Markdown of it. A name is looked up here,
every address it has must be public, and the connection goes to the very addresses that were checked; each redirect
is judged anew. Bodies are unpacked while they come and cut at `MAX_BYTES`, so no page is ever whole in memory that is
larger. Knows no tool and no session; what goes wrong is `FetchFailed` with a sentence for the model.

Another kind of document: teach `render` to read it, and `_is_text` that it can be read.
"""

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable
from importlib.metadata import PackageNotFoundError, version

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct
from yarl import URL

from duragent.core.addresses import is_public
from duragent.errors import FetchFailed
from duragent.tools.plain import clean, decode, in_one_line, read_html

try:
    import html_to_markdown
except ImportError:  # the extra `web` is not installed; `plain` reads pages then
    html_to_markdown = None  # type: ignore[assignment]

MAX_BYTES = 1 << 20
MAX_PACKED = 4 << 20  # what is read of a body that unpacks to less than it is
MAX_REDIRECTS = 5
MAX_URL = 8_192
SECONDS = 30.0
_REFUSAL_BYTES = 16_384
_MEMBERS = 100
_DEPTH = 500
_REDIRECTS = (301, 302, 303, 307, 308)
_HTML = ("text/html", "application/xhtml+xml")
_TEXTS = re.compile(
    r"text/.+|.+\+(?:json|xml|yaml)|application/(?:json|xml|javascript|ecmascript|x-javascript|x-ndjson|jsonl|yaml|x-yaml"
    r"|toml|sql|graphql|x-sh|x-httpd-php|x-latex|x-tex|x-www-form-urlencoded|ld\+json|rtf)"
)
_UNSAID = ("", "application/octet-stream", "binary/octet-stream", "application/unknown")

Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(each[4][0]) for each in found))


class Gate(Struct, frozen=True):
    """Where pages may come from. `hosts` are the only ones, where the owner named any; `private` may be reached
    although they are not public (`host` or `host:port`)."""

    hosts: tuple[str, ...] | None = None
    private: tuple[str, ...] = ()
    resolve: Resolve = resolve
    public: Callable[[str], bool] = is_public
    tls: ssl.SSLContext | None = None
    seconds: float = SECONDS


class Page(Struct, frozen=True):
    """What a server answered. `size` is what it said; `cut` that there was more than `body`."""

    url: str
    status: int
    kind: str
    charset: str | None
    body: bytes
    size: int | None = None
    cut: bool = False


def user_agent() -> str:
    try:
        return f"Duragent/{version('duragent')}"
    except PackageNotFoundError:
        return "Duragent"


async def fetch(address: str, gate: Gate) -> Page:
    """The page at an address, after redirects. Raises `FetchFailed`."""
    url, seen = read_url(address), set[URL]()
    try:
        async with asyncio.timeout(gate.seconds):
            while True:
                seen.add(url)
                found = await _get(url, await _admit(url, gate), gate)
                if isinstance(found, Page):
                    return found
                _check_redirect(url, found, seen)
                url = found
    except TimeoutError:
        raise FetchFailed(f"{url} gave no whole answer within {gate.seconds:g} seconds.") from None


def _check_redirect(url: URL, target: URL, seen: set[URL]) -> None:
    if target in seen:
        raise FetchFailed(f"{url} redirects in a circle, back to {target}.")
    if len(seen) > MAX_REDIRECTS:
        raise FetchFailed(f"{url} is the {MAX_REDIRECTS + 1}th redirect in a row; no more are followed.")
    if url.scheme == "https" and target.scheme == "http":
        raise FetchFailed(
            f"{url} redirects to {target}, which is not encrypted. Fetch that address itself if it is meant."
        )


def read_url(text: str) -> URL:
    """An address that may be fetched as far as its letters tell. The same value is checked and connected to."""
    if len(text) > MAX_URL:
        raise FetchFailed(f"The address is longer than {MAX_URL:,} characters.")
    shown = in_one_line(text, 200)
    if text != text.strip():  # a rule was shown these very letters
        raise FetchFailed(f"{shown!r} has blanks before or after it. Leave them out.")
    try:
        url = URL(text)
        host, port = url.raw_host, url.port
        url = url.with_fragment(None)
    except (ValueError, TypeError, UnicodeError) as error:
        raise FetchFailed(f"{shown!r} is no address: {in_one_line(str(error), 200)}.") from None
    if url.scheme not in ("http", "https"):
        raise FetchFailed(f"{shown!r} is not fetched: only addresses that begin with http:// or https:// are.")
    if not host or port is None or not host.strip("."):
        raise FetchFailed(f"{shown!r} names no server.")
    if url.raw_user is not None or url.raw_password is not None:
        raise FetchFailed("An address with a user name or a password in it is not fetched. Leave them out.")
    return url


async def _admit(url: URL, gate: Gate) -> list[str]:
    """The addresses to connect to, each of which may be."""
    host, port = url.raw_host or "", url.port or 0
    name = host.lower().rstrip(".")
    if gate.hosts is not None and not within(name, gate.hosts, port):
        raise FetchFailed(f"{name} is not among the hosts this agent may reach: {', '.join(gate.hosts) or 'none'}.")
    wished = _is_wished(name, port, gate.private)
    if port < 1024 and port not in (80, 443) and not wished:
        raise FetchFailed(f"{url} is not fetched: port {port} is not one for web pages.")
    try:
        addresses = await gate.resolve(host, port)
    except (OSError, UnicodeError):
        addresses = []
    if not addresses:
        raise FetchFailed(f"{name} has no address. Is the name right?")
    for address in addresses:
        if not wished and not gate.public(address):
            raise FetchFailed(f"{name} is at {address}, which is not a public address; it is not fetched.")
    return addresses


def within(host: str, hosts: tuple[str, ...], port: int) -> bool:
    """Whether a host is one of these names, or below one that is written `*.name`. `name:port` is that port alone."""
    for each in hosts:
        named, colon, wanted = each.lower().partition(":")
        name = named.rstrip(".")
        if colon and wanted != str(port):
            continue
        if host == name or (name.startswith("*.") and host.endswith(name[1:])):
            return True
    return False


def _is_wished(host: str, port: int, private: tuple[str, ...]) -> bool:
    """Whether the owner named exactly this host, with any port or with this one."""
    names = {host, f"{host}:{port}"} if ":" not in host else {host, f"[{host}]", f"[{host}]:{port}"}
    return any(each.lower() in names for each in private)


class _Pinned(AbstractResolver):
    """Knows only the addresses that were checked: a name cannot change its mind between the check and the call."""

    def __init__(self, addresses: list[str]) -> None:
        self._addresses = addresses

    async def resolve(self, host: str, port: int = 0, family: int = socket.AF_UNSPEC) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        pass


async def _get(url: URL, addresses: list[str], gate: Gate) -> Page | URL:
    """One request: a page, or where it is to be found instead."""
    connector = aiohttp.TCPConnector(
        resolver=_Pinned(addresses), use_dns_cache=False, force_close=True, ssl=gate.tls or True
    )
    headers = {
        "User-Agent": user_agent(),
        "Accept": "text/html, text/plain, application/json, text/*;q=0.9, */*;q=0.5",
        "Accept-Encoding": "gzip, deflate",
    }
    try:
        async with (
            open_session(connector) as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            target = response.headers.get("Location")
            if response.status in _REDIRECTS and target:
                return _target(url, target)
            try:
                return await _page(url, response)
            finally:
                response.close()  # what was not read is not waited for
    except TimeoutError:
        raise  # all the time there was is over: said where that is known
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise FetchFailed(f"{url} cannot be read: {because(error)}.") from None


def open_session(connector: aiohttp.TCPConnector | None = None) -> aiohttp.ClientSession:
    """A client that keeps nothing: no cookies, no proxy of the environment, and bodies as they come."""
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        trust_env=False,
    )


def because(error: Exception) -> str:
    """Why a connection failed, in a few words and without anything a server put in."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not to be trusted ({in_one_line(str(error.certificate_error), 200)})"
    if isinstance(error, aiohttp.ClientConnectorError):
        return error.os_error.strerror or "no connection"
    if isinstance(error, aiohttp.ClientPayloadError):
        return "the answer broke off"
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return "the server closed the connection without an answer"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is no good HTTP ({in_one_line(error.message, 120)})"
    return in_one_line(str(error), 200) or type(error).__name__


def _target(url: URL, location: str) -> URL:
    try:
        joined = url.join(URL(location.strip()))
    except (ValueError, TypeError):
        raise FetchFailed(f"{url} redirects to {in_one_line(location, 200)!r}, which is no address.") from None
    return read_url(str(joined))


async def _page(url: URL, response: aiohttp.ClientResponse) -> Page:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()[:100]
    status, size, charset = response.status, response.content_length, response.charset
    if not (_is_text(kind) or kind in _UNSAID) and status < 400:
        return Page(str(url), status, kind, charset, b"", size, cut=size != 0)
    body, cut = await read_body(response, MAX_BYTES if status < 400 else _REFUSAL_BYTES)
    return Page(str(url), status, kind, charset, body, size, cut)


async def read_body(response: aiohttp.ClientResponse, limit: int) -> tuple[bytes, bool]:
    """The first bytes of a body, unpacked, and whether there were more."""
    unpack = _Unpacking(response.headers.get("Content-Encoding", ""))
    pieces: list[bytes] = []
    size = taken = 0
    async for chunk in response.content.iter_any():
        taken += len(chunk)
        piece = unpack.feed(chunk, limit + 1 - size)
        size += len(piece)
        pieces.append(piece)
        if size > limit or taken > max(MAX_PACKED, limit):
            return b"".join(pieces)[:limit], True
    return b"".join(pieces), False


class _Unpacking:
    """A body as it was before it was packed, never more of it than there is room for."""

    def __init__(self, encoding: str) -> None:
        names = [name for each in encoding.lower().split(",") if (name := each.strip()) not in ("", "identity")]
        if len(names) > 1 or (names and names[0] not in ("gzip", "x-gzip", "deflate")):
            raise FetchFailed(f"The body is packed as {in_one_line(encoding, 60)!r}, which was not asked for.")
        self._packed = bool(names)
        self._inflate: zlib._Decompress | None = None
        self._members = 0

    def feed(self, chunk: bytes, room: int) -> bytes:
        """`room` is at least one. What does not fit is thrown away: nobody reads on then."""
        if not self._packed:
            return chunk[:room]
        pieces: list[bytes] = []
        while chunk and room > 0 and self._members <= _MEMBERS:
            if self._inflate is None:
                # Some servers send deflate without the header that it should have.
                self._inflate = zlib.decompressobj(47 if chunk[0] == 0x1F or chunk[0] & 15 == 8 else -15)
            try:
                piece = self._inflate.decompress(chunk, room)
            except zlib.error:
                raise FetchFailed("The body is packed, and the packing is broken.") from None
            pieces.append(piece)
            room -= len(piece)
            chunk = self._inflate.unused_data
            if self._inflate.eof:
                self._inflate, self._members = None, self._members + 1
        return b"".join(pieces)


def _is_text(kind: str) -> bool:
    return _TEXTS.fullmatch(kind) is not None


async def render(page: Page) -> str | None:
    """What a page says: Markdown of HTML, other texts as they are. None where it is no text."""
    if not page.body:
        return "" if _is_text(page.kind) or not page.cut else None
    if not _is_text(page.kind) and not _looks_like_text(page.body):
        return None
    text = decode(page.body, page.charset)
    if page.kind in _HTML or (page.kind in _UNSAID and re.match(r"\s*<(?:!doctype html|html)\b", text, re.IGNORECASE)):
        return await asyncio.to_thread(_markdown, text, page.url)  # a long page must not hold up the other sessions
    return clean(text)


def _looks_like_text(body: bytes) -> bool:
    """Of a body that nobody named: UTF-8 without a NUL at its beginning."""
    begin = body[:4096]
    try:
        begin.decode()
    except UnicodeDecodeError as error:
        return b"\0" not in begin and len(begin) - error.start < 4 and len(begin) == 4096
    return b"\0" not in begin


def _markdown(html: str, base: str) -> str:
    html = clean(html)
    if html_to_markdown is not None:
        options = html_to_markdown.ConversionOptions(
            preprocessing=html_to_markdown.PreprocessingOptions(preset="aggressive"),
            inline_data_media="alt_text_only",
            extract_metadata=False,
            max_input_size=4 * MAX_BYTES,
            max_depth=_DEPTH,
            base_url=base,
        )
        try:
            converted = (html_to_markdown.convert(html, options).content or "").strip()
        except Exception:  # noqa: BLE001 - a page that the converter cannot take is still read, more plainly
            converted = ""
        if converted:
            return clean(converted)
    return clean(read_html(html, base))
