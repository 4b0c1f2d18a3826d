"""Tells the owner what an agent has run: lines in a file, and posts to addresses the owner wrote into a policy.

Owns the shape of a notification, its signature, and that nobody ever waits for one: `notify` only puts it into a
bounded line, one for each address, and a task of its own works that off. What is lost (a line that is full, an
address that does not answer) is noted in the same file. Knows no policy and no session: which calls are told of is
decided elsewhere. Addresses are the owner's, so they may be private; redirects are not followed.

Another way to deliver: a branch in `_lane`.
"""

import asyncio
import hashlib
import hmac
import json
import os
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp

TIMEOUT_SECONDS = 5.0
RETRIES = 2
MAX_WAITING = 100
MAX_COMMAND = 8_192
CLOSE_SECONDS = 5.0
SIGNATURE = "X-Duragent-Signature"
_FIRST_WAIT = 0.5

Json = Any
Post = Callable[[str, bytes, Mapping[str, str]], Awaitable[int]]
"""Sends a body to an address and gives the status; raises `OSError` or `aiohttp.ClientError` when it cannot."""
Deliver = Callable[[Mapping[str, Json]], Awaitable[None]]


class _Lane:
    """What waits for one place, and the task that delivers it in order."""

    def __init__(self, deliver: Deliver) -> None:
        self.deliver = deliver
        self.waiting: deque[Mapping[str, Json]] = deque()
        self.under_way = 0
        self.dropped = 0
        self.task: asyncio.Task[None] | None = None


class Notifier:
    """Delivers notifications. One for a workspace; `close` it when the program ends."""

    def __init__(
        self,
        log_file: str,
        secret: str | None = None,
        post: Post | None = None,
        *,
        redact: Callable[[str], str] = lambda text: text,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._log_file, self._secret = log_file, secret
        self._poster = _Poster()
        self._post = post or self._poster.post
        self._redact, self._clock, self._sleep = redact, clock, sleep
        self._lanes: dict[str, _Lane] = {}
        self._closed = False

    def __repr__(self) -> str:
        return f"<Notifier: {self._log_file}>"

    def notify(self, deliveries: Iterable[Mapping[str, Json]], about: Mapping[str, Json]) -> None:
        """Tell of a call that has run: `about` says session_id, agent, command and success. Returns at once and
        never raises; no deliveries mean the log."""
        with suppress(Exception):  # nothing that is wrong with a notification may stop the work it tells of
            body = self._body(about)
            for delivery in tuple(deliveries) or ({"type": "log"},):
                match delivery.get("type"):
                    case "log":
                        self._put("log", body)
                    case "webhook":
                        self._webhook(str(delivery.get("url", "")), body)
                    case other:
                        self._note("notification_failed", to=str(other)[:100], reason="there is no such delivery")

    async def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait a little for what is under way. What is not delivered then is noted."""
        self._closed = True
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for place, lane in list(self._lanes.items()):
            count = len(lane.waiting) + lane.under_way + lane.dropped
            if place != "log" and count:
                self._note("notifications_dropped", to=_shown(place), count=count, reason="the program ended")
        if (log := self._lanes.pop("log", None)) is not None:
            _append(self._log_file, log.waiting)
        self._lanes.clear()
        await self._poster.close()

    def _body(self, about: Mapping[str, Json]) -> Mapping[str, Json]:
        said = {name: self._redact(value) if isinstance(value, str) else value for name, value in about.items()}
        command = str(said.get("command", ""))
        return {
            "event": "command_notification",
            "session_id": said.get("session_id", ""),
            "agent": said.get("agent", ""),
            "command": command if len(command) <= MAX_COMMAND else f"{command[:MAX_COMMAND]}…",
            "success": bool(said.get("success")),
            "timestamp": said.get("timestamp") or self._now(),
        }

    def _now(self) -> str:
        return self._clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def _webhook(self, url: str, body: Mapping[str, Json]) -> None:
        try:
            parts = urlsplit(url)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
        except ValueError:
            good = False
        if good:
            self._put(url, body)
        else:
            self._note("notification_failed", to=_shown(url), reason="only http and https addresses are posted to")

    def _note(self, event: str, **said: Json) -> None:
        """Leave a line about what was not delivered."""
        self._put("log", {"event": event, **said, "timestamp": self._now()})

    def _put(self, place: str, body: Mapping[str, Json]) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None or self._closed:
            self._put_late(place, body)
            return
        lane = self._lanes.setdefault(place, self._lane(place))
        if len(lane.waiting) == MAX_WAITING:
            lane.waiting.popleft()  # the newest are what the owner wants to know
            lane.dropped += 1
        lane.waiting.append(body)
        if lane.task is None:
            lane.task = loop.create_task(self._work(place, lane))

    def _put_late(self, place: str, body: Mapping[str, Json]) -> None:
        """Nobody is there to work it off: the file is written at once, and a post becomes a line that says so."""
        if place != "log":
            reason = "the program is ending"
            body = {"event": "notification_failed", "to": _shown(place), "reason": reason, "timestamp": self._now()}
        if "log" in self._lanes:
            self._lanes["log"].waiting.append(body)  # `close` writes it, after what came before
        else:
            _append(self._log_file, [body])

    def _lane(self, place: str) -> _Lane:
        async def write(body: Mapping[str, Json]) -> None:
            await asyncio.to_thread(_append, self._log_file, [body])

        async def send(body: Mapping[str, Json]) -> None:
            await self._send(place, body)

        return _Lane(write if place == "log" else send)

    async def _work(self, place: str, lane: _Lane) -> None:
        try:
            while lane.waiting:
                if lane.dropped:
                    count, lane.dropped = lane.dropped, 0
                    self._note("notifications_dropped", to=_shown(place), count=count, reason="too many were waiting")
                body, lane.under_way = lane.waiting.popleft(), 1
                with suppress(Exception):  # one that cannot be delivered does not hold up the next
                    await lane.deliver(body)
                lane.under_way = 0
        finally:
            lane.task = None

    async def _send(self, url: str, body: Mapping[str, Json]) -> None:
        data = json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json", "User-Agent": "Duragent"}
        if self._secret:
            headers[SIGNATURE] = f"sha256={sign(self._secret, data)}"
        reason = ""
        for attempt in range(RETRIES + 1):
            if attempt:
                await self._sleep(_FIRST_WAIT * 4 ** (attempt - 1))
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    status = await self._post(url, data, headers)
            except TimeoutError:
                reason = f"no answer within {TIMEOUT_SECONDS:g} seconds"
                continue
            except (aiohttp.ClientError, OSError, ValueError) as error:
                reason = f"it cannot be reached ({type(error).__name__})"
                continue
            if 200 <= status < 300:
                return
            reason = f"it answered with status {status}"
            if status != 429 and status < 500:
                break
        self._note("notification_failed", to=_shown(url), reason=reason)


def sign(secret: str, body: bytes) -> str:
    """The HMAC-SHA256 of a body, in hexadecimal: who knows the secret can tell that it comes from here."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _shown(url: str) -> str:
    """An address without what may be secret in it: many hooks have their key in the path."""
    if url == "log":
        return url
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "no address"
    return f"{parts.scheme}://{parts.hostname}{port}" if parts.hostname else "no address"


def _append(path: str, bodies: Iterable[Mapping[str, Json]]) -> None:
    """One line for each. A line that a crash has torn is ended first. What the disk refuses is lost: nobody can be
    told of it here."""
    lines = [json.dumps(body, ensure_ascii=False, default=str).encode("utf-8", "replace") + b"\n" for body in bodies]
    if not lines:
        return
    with suppress(OSError):
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            size = os.fstat(file).st_size
            torn = size > 0 and os.pread(file, 1, size - 1) != b"\n"
            os.write(file, (b"\n" if torn else b"") + b"".join(lines))
        finally:
            os.close(file)


class _Poster:
    """Posts with one client, which is opened when it is first needed."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
            )
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            response.close()  # nobody reads what is answered, however long it is
            return response.status

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
