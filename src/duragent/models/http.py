"""How models are reached over HTTP: one session of kept connections, server-sent events, and trying again.

Owns connections, retries, time limits and the words of a failure, in which no key ever appears. Redirects are
never followed, so that a key reaches the host it was meant for and no other. Refuses to know what an event
means: a `Reader` of a provider's module does. A new provider needs an `Endpoint` and a `Reader`.
"""

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import aiohttp
from msgspec import DecodeError, Struct
from msgspec.json import decode

from duragent.errors import ModelFailed
from duragent.models import Listener

Json = Any
MAX_ANSWER = 64 * 2**20
MAX_REFUSAL = 64 * 2**10
MAX_TEXT = 1000  # letters of a failure
TRIES = 6
FIRST_WAIT, LONGEST_WAIT = 0.5, 20.0
GRACE = 0.5  # seconds for a stream to close after its last word, so that its connection can be used again


class Endpoint:
    """Where a provider is asked, and how. Its keys are known here so that they can be kept out of every text."""

    __slots__ = ("_secrets", "headers", "url", "who")

    def __init__(self, who: str, url: str, key: str | None, headers: Mapping[str, str], own: Mapping[str, str]) -> None:
        """`headers` are the protocol's; the owner's `own` ones win and are treated as secrets."""
        self.who, self.url = who, url
        given = {name.lower() for name in own}
        usual = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "duragent", **headers}
        self.headers = {name: value for name, value in usual.items() if name.lower() not in given} | dict(own)
        words = [word for value in own.values() for word in (value, value.rpartition(" ")[2])]
        userinfo = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
        secrets = {word for word in (key, *words, userinfo, userinfo.partition(":")[2]) if word and len(word) > 3}
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"<Endpoint of {self.who}>"

    @property
    def unsendable(self) -> bool:
        return any(not text.isprintable() for header in self.headers.items() for text in header)

    @property
    def host(self) -> str:
        return place(self.url)

    def failed(
        self, text: str, *, lasting: bool = False, billed: bool = True, status: int | None = None
    ) -> ModelFailed:
        """The failure in words that are safe to log."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        # Cut only now, so that no half of a key is left; and a stranger's text must not steer a terminal.
        text = "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])
        return ModelFailed(f"{self.who}: {text}", lasting=lasting, billed=billed, status=status)


class Reader(Protocol):
    """What one attempt's answer is read into."""

    ended: bool  # its last word has come
    spoke: bool  # the listener has heard some of it

    def event(self, data: bytes) -> None:
        """One event's data. Raises `ModelFailed`, which is tried again unless it is lasting."""

    def document(self, body: bytes) -> None:
        """The whole answer at once, from a server that does not stream."""

    def complete(self) -> bool:
        """Whether this is an answer, also if nothing more comes."""


R = TypeVar("R", bound=Reader)


class _Setback(Struct):
    """Why an attempt failed, and how long the provider asks us to wait."""

    failure: ModelFailed
    after: float | None = None


class Transport:
    """The connections of all models of one runtime. Chance, clocks and sleep can be given, for tests."""

    def __init__(
        self,
        *,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        random: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        max_answer: int = MAX_ANSWER,
        grace: float = GRACE,
    ) -> None:
        self._sleep, self._random, self._clock, self._now = sleep, random, clock, now
        self._max_answer, self._grace = max_answer, grace
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def deadline(self, timeout_seconds: float) -> float:
        return self._clock() + timeout_seconds

    async def ask(
        self,
        endpoint: Endpoint,
        body: bytes,
        begin: Callable[[], R],
        listener: Listener,
        deadline: float,
        pay_once: bool = False,
    ) -> R:
        """Post `body` until an answer is complete, trying again within the deadline. `begin` makes a new reader. With
        `pay_once` a try that may have cost money is the last."""
        if endpoint.unsendable:
            text = "the key or a header holds a character that HTTP forbids. Mend it where it is set"
            raise endpoint.failed(text, lasting=True, billed=False)
        billed, tries, before = False, 0, ""
        while True:
            reader = begin()
            setback = await self._try(endpoint, body, reader, deadline, before)
            if setback is None:
                return reader
            tries += 1
            failure = setback.failure
            billed = failure.billed = failure.billed or billed
            wait = self._wait(tries, setback.after)
            spent = pay_once and failure.billed
            if failure.lasting or spent or tries == TRIES or self._clock() + wait >= deadline:
                raise failure
            if reader.spoke:
                listener.restart(str(failure))
            before = f". Before that: {str(failure).removeprefix(f'{endpoint.who}: ')}"
            await self._sleep(wait)

    def _wait(self, tries: int, after: float | None) -> float:
        """Full jitter, so that many sessions do not come back at once; on top of what the provider asks for."""
        if after is not None:
            return after + self._random() * FIRST_WAIT
        return self._random() * min(LONGEST_WAIT, FIRST_WAIT * (1 << tries))

    async def _try(
        self, endpoint: Endpoint, body: bytes, reader: Reader, deadline: float, before: str
    ) -> _Setback | None:
        left = max(deadline - self._clock(), 0.001)
        try:
            async with asyncio.timeout(left):
                return await self._post(endpoint, body, reader)
        except ModelFailed as failure:
            return _Setback(failure)
        except aiohttp.ConnectionTimeoutError:
            return _Setback(endpoint.failed(f"{endpoint.host} cannot be reached (it does not answer)", billed=False))
        except TimeoutError:
            if reader.complete():
                return None
            text = "gave no whole answer in time. Try again, or raise llm_timeout_seconds"
            return _Setback(endpoint.failed(f"{text}{before}"))
        except aiohttp.ClientConnectorCertificateError as error:
            text = f"the certificate of {endpoint.host} is not to be trusted: {error.certificate_error}"
            return _Setback(endpoint.failed(text, lasting=True, billed=False))
        except aiohttp.ClientConnectorError as error:
            refused = isinstance(error.os_error, ConnectionRefusedError)
            why = "connection refused" if refused else error.os_error.strerror or str(error.os_error)
            text = f"{endpoint.host} cannot be reached ({why})"
            return _Setback(endpoint.failed(f"{text}. Is it running, and is the address right?", billed=False))
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            text = f"{endpoint.host} is no address. Mend base_url"
            return _Setback(endpoint.failed(text, lasting=True, billed=False))
        except (aiohttp.ClientError, OSError) as error:
            if reader.complete():
                return None  # all was said before the line went dead
            begun = isinstance(error, aiohttp.ClientPayloadError)
            return _Setback(
                endpoint.failed(f"the connection broke {'in the middle of' if begun else 'before'} the answer")
            )

    async def _post(self, endpoint: Endpoint, body: bytes, reader: Reader) -> _Setback | None:
        session = self._open()
        # A long history is sent in pieces, so that it does not hold up the other sessions.
        data = body if len(body) < 2**20 else io.BytesIO(body)
        async with session.post(endpoint.url, data=data, headers=endpoint.headers, allow_redirects=False) as response:
            try:
                if 200 <= response.status < 300:
                    await self._read(endpoint, response, reader)
                    return None
                return await self._refused(endpoint, response)
            except BaseException:
                response.close()  # nobody will read on: whoever cancels must not leave the provider talking
                raise

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
                read_bufsize=2**18,
            )
        return self._session

    async def _read(self, endpoint: Endpoint, response: aiohttp.ClientResponse, reader: Reader) -> None:
        """A stream begins with a field or a comment, never with a brace: what does is one whole document."""
        events = Events(reader.event)
        size, begun, document = 0, False, []
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._max_answer:
                text = f"the answer is longer than {self._max_answer // 2**20} MB and was given up"
                raise endpoint.failed(text, lasting=True)
            if not begun:
                start = chunk.lstrip()[:1]
                begun = start != b""  # empty lines may come first, as a sign of life
                if start in (b"{", b"["):
                    document.append(b"")
            if document:
                document.append(chunk)
                continue
            events.feed(chunk)
            if reader.ended:
                await _drain(response, self._grace)
                return
        if document:
            reader.document(b"".join(document))
        else:
            events.close()
        if not reader.complete():
            raise self._unreadable(endpoint, response, events.count, size)

    def _unreadable(self, endpoint: Endpoint, response: aiohttp.ClientResponse, events: int, size: int) -> ModelFailed:
        if events or not size:
            return endpoint.failed("the answer ended before it was whole", status=response.status)
        text = f"{endpoint.host} answered with {response.content_type}, not with a model's words. Is base_url right?"
        return endpoint.failed(text, lasting=True, status=response.status)

    async def _refused(self, endpoint: Endpoint, response: aiohttp.ClientResponse) -> _Setback:
        status = response.status
        if status < 400:
            where = place(response.headers.get("Location", "nowhere"))
            text = (
                f"{endpoint.host} points to {where} ({status}), and keys are not sent on. Set base_url to what answers"
            )
            return _Setback(endpoint.failed(text, lasting=True, billed=False, status=status))
        body = b""
        try:
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) >= MAX_REFUSAL:
                    response.close()
                    break
        except (aiohttp.ClientError, OSError):
            response.close()  # the status says enough
        why, spent = explain(body[:MAX_REFUSAL])
        lasting = status < 500 and (status != 429 or spent)
        failure = endpoint.failed(f"{status} {why}", lasting=lasting, billed=False, status=status)
        return _Setback(failure, retry_after(response.headers, self._now()))


async def _drain(response: aiohttp.ClientResponse, grace: float) -> None:
    """Let a stream that has said its last word come to its end, so that the connection can be used again."""
    try:
        async with asyncio.timeout(grace):
            async for _ in response.content.iter_any():
                pass
    except (TimeoutError, aiohttp.ClientError, OSError):
        response.close()


class Events:
    """Server-sent events out of bytes that may be cut anywhere. Tells the data of each whole event."""

    __slots__ = ("_data", "_pieces", "_return", "_tell", "count")

    def __init__(self, tell: Callable[[bytes], None]) -> None:
        self._tell = tell
        self._pieces: list[bytes] = []  # of the line that has not ended yet
        self._data: list[bytes] = []
        self._return = False  # the last byte was a carriage return: a line feed right after it is no second line
        self.count = 0

    def feed(self, chunk: bytes) -> None:
        if self._return or b"\r" in chunk:
            if self._return and chunk.startswith(b"\n"):
                chunk = chunk[1:]
                self._return = False
                if not chunk:
                    return
            self._return = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        end = chunk.rfind(b"\n")
        if end < 0:
            self._pieces.append(chunk)
            return
        self._pieces.append(chunk[:end])
        lines = b"".join(self._pieces).split(b"\n")
        self._pieces = [chunk[end + 1 :]] if end + 1 < len(chunk) else []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    self.count += 1
                    self._tell(data[0] if len(data) == 1 else b"\n".join(data))
                    data.clear()
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b" ", 5) else line[5:])

    def close(self) -> None:
        """The stream ended: the last event counts, also without the empty line after it."""
        self._return = False
        self.feed(b"\n\n")


def place(url: str) -> str:
    """The address without what may be secret in it."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{parts.hostname}{port}{parts.path}" if parts.hostname else parts.path


def explain(body: bytes) -> tuple[str, bool]:
    """What a provider says about a refusal, and whether it says that the account has nothing left to spend."""
    try:
        said: Json = decode(body)
    except (DecodeError, UnicodeError, RecursionError):
        text = " ".join(body.decode("utf-8", "replace").split())
        return (text if text and not text.startswith("<") else "without a reason"), False
    return message_of(said), b"insufficient_quota" in body


def message_of(said: Json) -> str:
    """The sentence in an error object, wherever this provider puts it."""
    for key in ("error", "message", "detail", "msg"):
        if isinstance(said, dict) and said.get(key):
            return message_of(said[key])
    if isinstance(said, list) and said:
        return message_of(said[0])
    text = said if isinstance(said, str) else ""
    return " ".join(text.split()) or "without a reason"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds the provider asks us to wait: in milliseconds, in seconds, or until a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        return seconds if 0 <= seconds < 1e9 else None
    try:
        return max(0.0, parsedate_to_datetime(headers.get("retry-after", "")).timestamp() - now)
    except (ValueError, OverflowError):
        return None
