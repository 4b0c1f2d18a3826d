"""Notifications reach the owner, and nobody waits for them."""

import asyncio
import hashlib
import hmac
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from duragent.notifying import MAX_COMMAND, MAX_WAITING, RETRIES, Notifier, Post

ABOUT = {"session_id": "s1", "agent": "helper", "command": "bash git push", "success": True}
TOLD = {"event": "command_notification", **ABOUT, "timestamp": "2026-01-02T03:04:05.678Z"}
HOOK = {"type": "webhook", "url": "https://hooks.test/T0/secret-path?k=1"}
LOG = {"type": "log"}


def clock() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


class Hook:
    """A place that takes posts, by a script of statuses or errors; the last is repeated."""

    def __init__(self, *script: int | Exception) -> None:
        self.script = list(script) or [200]
        self.got: list[tuple[str, Mapping[str, Any], dict[str, str]]] = []
        self.waits: list[float] = []

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        self.got.append((url, json.loads(body), dict(headers)))
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


def tell(
    path: Path,
    use: Callable[[Notifier], Awaitable[object]],
    hook: Hook | None = None,
    post: Post | None = None,
    **options: Any,
) -> list[dict[str, Any]]:
    """Use a notifier and close it; what stands in its file then."""
    hook = hook or Hook()

    async def run() -> None:
        notifier = Notifier(
            str(path / "notifications.jsonl"), post=post or hook.post, clock=clock, sleep=hook.sleep, **options
        )
        try:
            await use(notifier)
        finally:
            await notifier.close()

    asyncio.run(run())
    return lines(path)


def lines(path: Path) -> list[dict[str, Any]]:
    file = path / "notifications.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def once(*deliveries: Mapping[str, Any], **about: Any) -> Callable[[Notifier], Awaitable[object]]:
    async def use(notifier: Notifier) -> None:
        notifier.notify(deliveries, {**ABOUT, **about})

    return use


@pytest.mark.parametrize("deliveries", [(), (LOG,)])
def test_a_log_delivery_is_one_line_and_none_means_the_log(
    tmp_path: Path, deliveries: tuple[dict[str, str], ...]
) -> None:
    assert tell(tmp_path, once(*deliveries)) == [TOLD]
    assert os.stat(tmp_path / "notifications.jsonl").st_mode & 0o777 == 0o600


def test_a_webhook_gets_the_same_as_json_and_no_signature_without_a_secret(tmp_path: Path) -> None:
    hook = Hook()
    assert tell(tmp_path, once(HOOK), hook) == []
    assert hook.got == [(HOOK["url"], TOLD, {"Content-Type": "application/json", "User-Agent": "Duragent"})]


def test_lines_keep_their_order_and_are_added_to_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "notifications.jsonl").write_text('{"event": "older"}\n')

    async def use(notifier: Notifier) -> None:
        for number in range(50):
            notifier.notify((LOG,), {**ABOUT, "command": f"c{number}"})

    assert [each.get("command") for each in tell(tmp_path, use)] == [None, *[f"c{number}" for number in range(50)]]


def test_a_torn_last_line_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / "notifications.jsonl").write_text('{"event": "to')
    with pytest.raises(json.JSONDecodeError):
        tell(tmp_path, once(LOG))
    torn, whole = (tmp_path / "notifications.jsonl").read_text().splitlines()
    assert (torn, json.loads(whole)) == ('{"event": "to', TOLD)


def test_what_is_told_is_redacted_and_not_endless(tmp_path: Path) -> None:
    hidden = tell(tmp_path, once(LOG, command="curl -H sk-1234"), redact=lambda text: text.replace("sk-1234", "[KEY]"))
    assert hidden == [{**TOLD, "command": "curl -H [KEY]"}]
    assert len(tell(tmp_path, once(LOG, command="x" * 100_000))[-1]["command"]) == MAX_COMMAND + 1


@pytest.mark.parametrize("setback", [500, 503, 429, OSError("no"), TimeoutError()])
def test_a_setback_is_tried_again_twice(tmp_path: Path, setback: int | Exception) -> None:
    hook = Hook(setback, setback, 204)
    assert tell(tmp_path, once(HOOK), hook) == []
    assert (len(hook.got), hook.waits) == (RETRIES + 1, [0.5, 2.0])


@pytest.mark.parametrize(
    ("answer", "tries", "reason"),
    [
        (500, 3, "it answered with status 500"),
        (404, 1, "it answered with status 404"),
        (302, 1, "it answered with status 302"),
        (ConnectionRefusedError(), 3, "it cannot be reached (ConnectionRefusedError)"),
        (TimeoutError(), 3, "no answer within 5 seconds"),
    ],
)
def test_a_notification_that_fails_is_noted_without_the_secret_part_of_its_address(
    tmp_path: Path, answer: int | Exception, tries: int, reason: str
) -> None:
    hook = Hook(answer)
    assert tell(tmp_path, once(HOOK), hook) == [
        {"event": "notification_failed", "to": "https://hooks.test", "reason": reason, "timestamp": TOLD["timestamp"]}
    ]
    assert len(hook.got) == tries


@pytest.mark.parametrize(
    ("delivery", "to", "reason"),
    [
        (
            {"type": "webhook", "url": "file:///etc/passwd"},
            "no address",
            "only http and https addresses are posted to",
        ),
        ({"type": "webhook", "url": "http://[x"}, "no address", "only http and https addresses are posted to"),
        ({"type": "webhook"}, "no address", "only http and https addresses are posted to"),
        ({"type": "pigeon"}, "pigeon", "there is no such delivery"),
    ],
)
def test_a_delivery_that_cannot_be_is_noted(tmp_path: Path, delivery: dict[str, str], to: str, reason: str) -> None:
    assert tell(tmp_path, once(delivery, LOG)) == [
        {"event": "notification_failed", "to": to, "reason": reason, "timestamp": TOLD["timestamp"]},
        TOLD,
    ]


def test_a_hook_that_hangs_holds_up_neither_the_caller_nor_the_others(tmp_path: Path) -> None:
    got: list[str] = []
    quick = asyncio.Event()

    async def post(url: str, body: bytes, headers: Mapping[str, str]) -> int:
        if "slow" in url:
            await asyncio.Event().wait()
        got.append(json.loads(body)["command"])
        if len(got) == 2:
            quick.set()
        return 200

    async def use(notifier: Notifier) -> None:
        for number in range(2):
            deliveries = (
                {"type": "webhook", "url": "http://slow.test/"},
                {"type": "webhook", "url": "http://quick.test/"},
            )
            notifier.notify(deliveries, {**ABOUT, "command": f"c{number}"})
        assert got == []  # nothing was waited for
        await quick.wait()
        await notifier.close(seconds=0)

    assert tell(tmp_path, use, post=post) == [
        {
            "event": "notifications_dropped",
            "to": "http://slow.test",
            "count": 2,
            "reason": "the program ended",
            "timestamp": TOLD["timestamp"],
        }
    ]
    assert got == ["c0", "c1"]


def test_when_too_many_wait_the_oldest_go_and_that_is_noted(tmp_path: Path) -> None:
    hook = Hook()

    async def use(notifier: Notifier) -> None:
        for number in range(MAX_WAITING + 3):
            notifier.notify((HOOK,), {**ABOUT, "command": f"c{number}"})

    assert tell(tmp_path, use, hook) == [
        {
            "event": "notifications_dropped",
            "to": "https://hooks.test",
            "count": 3,
            "reason": "too many were waiting",
            "timestamp": TOLD["timestamp"],
        }
    ]
    assert [body["command"] for _, body, _ in hook.got] == [f"c{number}" for number in range(3, MAX_WAITING + 3)]


def test_nothing_that_is_wrong_with_a_notification_is_raised(tmp_path: Path) -> None:
    def broken(text: str) -> str:
        raise RuntimeError("cannot")

    assert tell(tmp_path, once(LOG), redact=broken) == []
    assert tell(tmp_path / "no-such-folder", once(LOG, HOOK), Hook()) == []
    assert tell(tmp_path, once(LOG, command="half \ud800"))[0]["command"] == "half ?"


def test_a_notifier_outside_a_loop_or_after_its_end_still_leaves_a_line(tmp_path: Path) -> None:
    notifier = Notifier(str(tmp_path / "notifications.jsonl"), clock=clock)
    notifier.notify((LOG, HOOK), ABOUT)
    failed = {"event": "notification_failed", "to": "https://hooks.test", "reason": "the program is ending"}
    assert lines(tmp_path) == [TOLD, {**failed, "timestamp": TOLD["timestamp"]}]

    async def late() -> None:
        await notifier.close()
        notifier.notify((LOG,), ABOUT)

    asyncio.run(late())
    assert len(lines(tmp_path)) == 3


def test_a_notifier_does_not_print_its_secret() -> None:
    assert repr(Notifier("log", "s3cret")) == "<Notifier: log>"


def test_over_a_real_connection_a_post_is_signed_and_no_redirect_is_followed(tmp_path: Path) -> None:
    got: list[tuple[str, bytes, str | None]] = []

    async def take(request: web.Request) -> web.Response:
        got.append((request.path, await request.read(), request.headers.get("X-Duragent-Signature")))
        if request.path == "/moved":
            raise web.HTTPTemporaryRedirect("/elsewhere")
        return web.Response(text="thanks" * 100_000)

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/{any}", take)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        notifier = Notifier(str(tmp_path / "notifications.jsonl"), "s3cret", clock=clock)
        for path in ("/hook", "/moved"):
            notifier.notify(({"type": "webhook", "url": base + path},), ABOUT)
        await notifier.close()
        await runner.cleanup()

    asyncio.run(run())
    assert sorted(path for path, _, _ in got) == ["/hook", "/moved"]
    for _, body, signature in got:
        assert json.loads(body) == TOLD
        assert signature == "sha256=" + hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert [each["reason"] for each in lines(tmp_path)] == ["it answered with status 307"]
