"""Reaching models: events out of any bytes, trying again within reason, and keys that stay where they belong."""

import asyncio
import itertools
import socket
import ssl
from email.utils import formatdate
from typing import Any

import pytest
import trustme

from duragent.errors import ModelFailed
from duragent.models import Answer
from duragent.models.http import MAX_TEXT, TRIES, Endpoint, Events, Transport, explain, place, retry_after
from duragent.models.openai import OpenAIModel
from tests.models.asking import KEY, Heard, Make, anthropic, ask, hello, openai, user
from tests.models.provider_server import (
    Behaviour,
    Provider,
    breaking,
    chat,
    chat_events,
    chat_pieces,
    delta,
    finish,
    hanging,
    message,
    message_pieces,
    refuse,
    refuse_half,
    sending,
)

BOTH = pytest.mark.parametrize(
    ("make", "good", "pieces", "called"),
    [(openai(), chat, chat_pieces, "openai/m"), (anthropic(), message, message_pieces, "anthropic/m")],
    ids=["openai", "anthropic"],
)


def until(pieces: list[bytes], word: bytes) -> list[bytes]:
    """A stream that ends right after this word."""
    return pieces[: next(at for at, piece in enumerate(pieces) if word in piece) + 1]


def events(*chunks: bytes) -> list[bytes]:
    told: list[bytes] = []
    reader = Events(told.append)
    for chunk in chunks:
        reader.feed(chunk)
    reader.close()
    return told


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_are_the_same_wherever_their_bytes_are_cut(end: bytes) -> None:
    lines = [
        b": hello",
        b"event: x",
        "data: ä".encode(),
        b"",
        b"data:one",
        b"data: two",
        b"id: 7",
        b"",
        b"retry: 1",
        b"",
    ]
    whole = end.join([*lines, b"data: [DONE]", b"", b""])
    expected = ["ä".encode(), b"one\ntwo", b"[DONE]"]
    assert events(whole) == expected
    assert events(*[whole[at : at + 1] for at in range(len(whole))]) == expected
    for cut, other in itertools.combinations(range(len(whole)), 2):
        assert events(whole[:cut], whole[cut:other], whole[other:]) == expected


def test_the_last_event_counts_without_an_empty_line_after_it() -> None:
    assert events(b"data: a\n\ndata: b") == [b"a", b"b"]
    assert events(b"data: a\n\ndata: b\r") == [b"a", b"b"]


def test_lines_that_are_no_data_make_no_event() -> None:
    assert events(b"\n\n: nothing\n\nevent: x\n\ndata\n\nnonsense\n\n") == []


def test_a_long_line_in_many_pieces_is_put_together_once() -> None:
    assert events(b"data: ", *[b"x" * 10] * 10_000, b"\n\n") == [b"x" * 100_000]


@BOTH
@pytest.mark.parametrize("status", [429, 500, 502, 503, 529])
def test_a_passing_refusal_is_tried_again(make: Make, good: Any, pieces: Any, called: str, status: int) -> None:
    outcome = ask([refuse(status), good(["yes"])], make)
    assert (outcome.answer.content, len(outcome.asked), outcome.waits) == ("yes", 2, [1.0])
    assert outcome.heard.restarts == []
    assert outcome.asked[0].body == outcome.asked[1].body


@BOTH
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
def test_a_lasting_refusal_is_told_at_once(make: Make, good: Any, pieces: Any, called: str, status: int) -> None:
    outcome = ask([refuse(status, {"error": {"type": "x", "message": "no such thing"}})], make)
    assert outcome.fate == (f"{called}: {status} no such thing", True, False, status)
    assert (len(outcome.asked), outcome.waits) == (1, [])


@BOTH
def test_tries_come_to_an_end_with_the_last_word_of_the_provider(
    make: Make, good: Any, pieces: Any, called: str
) -> None:
    outcome = ask([refuse(500), refuse(429, {"error": {"message": "slow down"}})], make)
    assert outcome.fate == (f"{called}: 429 slow down", False, False, 429)
    assert (len(outcome.asked), outcome.waits) == (TRIES, [1.0, 2.0, 4.0, 8.0, 16.0])


def test_waits_are_drawn_by_chance() -> None:
    assert ask([refuse(429), refuse(429), chat(["x"])], openai(), random=0.25).waits == [0.25, 0.5]


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "Retry-After": "9"}, 1.5),
        ({"Retry-After": formatdate(1_000_030, usegmt=True)}, 30.0),
        ({"Retry-After": formatdate(900_000, usegmt=True)}, 0.0),
    ],
)
def test_the_provider_says_how_long_to_wait(headers: dict[str, str], wait: float) -> None:
    outcome = ask(
        [refuse(429, headers=headers), chat(["x"])], openai(), random=0.0, timeout=100, now=lambda: 1_000_000.0
    )
    assert outcome.waits == [wait]


@pytest.mark.parametrize("said", ["soon", "-5", "nan", "1e99", "", "Mon, 99 Foo 2026 99:99:99 GMT"])
def test_a_wait_that_makes_no_sense_is_no_wait(said: str) -> None:
    assert retry_after({"retry-after": said}, 0.0) is None


@BOTH
def test_a_wait_that_does_not_fit_is_not_begun(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([refuse(429, {"error": "busy until noon"}, headers={"Retry-After": "60"})], make, timeout=59)
    assert outcome.fate == (f"{called}: 429 busy until noon", False, False, 429)
    assert (len(outcome.asked), outcome.waits) == (1, [])


def test_an_empty_account_is_not_asked_again() -> None:
    body = {"error": {"code": "insufficient_quota", "message": "You have nothing left."}}
    outcome = ask([refuse(429, body)], openai())
    assert outcome.fate == ("openai/m: 429 You have nothing left.", True, False, 429)
    assert len(outcome.asked) == 1


@BOTH
def test_a_stream_that_breaks_is_begun_again_and_the_listener_forgets(
    make: Make, good: Any, pieces: Any, called: str
) -> None:
    cut = until(pieces(["wrong ", "start"]), b"wrong")
    outcome = ask([breaking(cut), good(["right"])], make)
    assert outcome.answer.content == "right"
    assert outcome.heard.texts == ["right"]
    assert outcome.heard.restarts == [f"{called}: the connection broke in the middle of the answer"]


@BOTH
def test_a_connection_that_breaks_before_any_word_needs_no_forgetting(
    make: Make, good: Any, pieces: Any, called: str
) -> None:
    outcome = ask([breaking([]), good(["right"])], make)
    assert (outcome.answer.content, outcome.heard.restarts) == ("right", [])


@BOTH
def test_a_stream_without_its_end_is_begun_again(make: Make, good: Any, pieces: Any, called: str) -> None:
    half = sending(until(pieces(["half"]), b"half"))
    outcome = ask([half, good(["whole"])], make)
    assert (outcome.answer.content, outcome.heard.texts) == ("whole", ["whole"])
    failed = ask([half], make)
    assert failed.fate == (f"{called}: the answer ended before it was whole", False, True, 200)
    assert len(failed.asked) == TRIES


@BOTH
def test_a_connection_that_breaks_after_the_last_word_changes_nothing(
    make: Make, good: Any, pieces: Any, called: str
) -> None:
    sent = pieces(["all ", "said"])
    for kept in (sent, sent[:-1]):
        outcome = ask([breaking(kept)], make)
        assert (outcome.answer.content, len(outcome.asked)) == ("all said", 1)


@BOTH
def test_an_answer_that_does_not_come_in_time_is_given_up(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([hanging(until(pieces(["part"]), b"part"))], make, timeout=0.5)
    why = "gave no whole answer in time. Try again, or raise llm_timeout_seconds"
    assert outcome.fate == (f"{called}: {why}", False, True, None)


@BOTH
def test_a_stream_that_stays_open_after_its_last_word_is_left(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([hanging(pieces(["done"]))], make, grace=0.01)
    assert outcome.answer.content == "done"


def test_an_answer_that_is_whole_when_time_runs_out_is_taken() -> None:
    said = chat_events([delta(content="all"), finish()], done=False)
    assert ask([hanging(said)], openai(), timeout=0.5).answer.content == "all"


def test_a_refusal_that_breaks_off_is_still_a_refusal() -> None:
    assert ask([refuse_half(400)], openai()).fate == ("openai/m: 400 because", True, False, 400)


def test_a_certificate_that_nobody_vouches_for_is_not_trusted() -> None:
    async def run() -> ModelFailed:
        server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("127.0.0.1").configure_cert(server_side)
        transport = Transport()
        async with Provider([chat(["x"])], server_side) as server:
            with pytest.raises(ModelFailed) as failed:
                await openai()(server, transport).answer(hello(), Heard(), 30)
            await transport.close()
        assert server.asked == []
        return failed.value

    failure = asyncio.run(run())
    assert "/v1/chat/completions is not to be trusted: " in str(failure)
    assert (failure.lasting, failure.billed) == (True, False)


def test_a_provider_that_nobody_runs_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    nowhere: Make = lambda server, transport: OpenAIModel(  # noqa: E731
        "m", base_url=f"http://127.0.0.1:{port}/v1", transport=transport
    )
    outcome = ask([chat(["never"])], nowhere)
    where = f"http://127.0.0.1:{port}/v1/chat/completions"
    why = f"{where} cannot be reached (connection refused). Is it running, and is the address right?"
    assert outcome.fate == (f"openai/m: {why}", False, False, None)
    assert outcome.waits == [1.0, 2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize("address", ["nonsense", "ftp://host/x", "http://", "http://[::1"])
def test_an_address_that_is_none_is_said_to_be_none(address: str) -> None:
    make: Make = lambda server, transport: OpenAIModel("m", base_url=address, key=KEY, transport=transport)  # noqa: E731
    outcome = ask([chat(["never"])], make)
    assert "is no address. Mend base_url" in str(outcome.failure)
    assert (outcome.failure.lasting, outcome.failure.billed) == (True, False)


@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed_and_says_where_it_points(
    make: Make, good: Any, pieces: Any, called: str, status: int
) -> None:
    to = f"https://elsewhere.test/v2?token={KEY}"
    outcome = ask([refuse(status, headers={"Location": to})], make)
    text, lasting, billed, code = outcome.fate
    assert "points to https://elsewhere.test/v2 (" in text
    assert (lasting, billed, code, len(outcome.asked), KEY in text) == (True, False, status, 1, False)


@BOTH
def test_cookies_are_neither_kept_nor_sent(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([refuse(500, headers={"Set-Cookie": "a=b; Path=/"}), good(["x"])], make)
    assert "Cookie" not in outcome.asked[1].headers


@BOTH
def test_one_connection_serves_one_answer_after_another(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([good(["x"])], make, times=5)
    assert len(outcome.asked) == 5
    assert len({asked.connection for asked in outcome.asked}) == 1


@BOTH
def test_a_refusal_leaves_the_connection_in_use(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([refuse(500), good(["x"])], make)
    assert len({asked.connection for asked in outcome.asked}) == 1


@BOTH
def test_an_answer_of_ten_megabytes_is_taken(make: Make, good: Any, pieces: Any, called: str) -> None:
    words = ["ü" * 2**19] * 10
    outcome = ask([sending(pieces(words))], make)
    assert len(outcome.answer.content.encode()) == 10 * 2**20


@BOTH
def test_an_answer_without_end_is_given_up(make: Make, good: Any, pieces: Any, called: str) -> None:
    endless = sending([*pieces(["x" * 2**20] * 3)[:-2]])
    outcome = ask([endless], make, max_answer=2 * 2**20)
    assert outcome.fate == (f"{called}: the answer is longer than 2 MB and was given up", True, True, None)
    assert len(outcome.asked) == 1


@BOTH
def test_a_page_instead_of_an_answer_is_no_answer(make: Make, good: Any, pieces: Any, called: str) -> None:
    outcome = ask([sending([b"<html><title>Log in</title>"], content_type="text/html")], make)
    text, lasting, billed, status = outcome.fate
    assert "answered with text/html, not with a model's words. Is base_url right?" in text
    assert (lasting, billed, status, len(outcome.asked)) == (True, True, 200, 1)


@BOTH
def test_a_wrong_content_type_does_not_matter(make: Make, good: Any, pieces: Any, called: str) -> None:
    for content_type in ("text/plain", "application/json", "application/octet-stream"):
        behaviour: Behaviour = sending(pieces(["x"]), content_type=content_type)
        assert ask([behaviour], make).answer.content == "x"


@BOTH
def test_garbage_is_tried_again(make: Make, good: Any, pieces: Any, called: str) -> None:
    for garbage in (b"data: {half\n\n", b"data: \xff\xfe\n\n", b""):
        outcome = ask([sending([garbage]), good(["x"])], make)
        assert (outcome.answer.content, len(outcome.asked)) == ("x", 2)


@BOTH
@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_a_key_is_in_no_error(make: Make, good: Any, pieces: Any, called: str, status: int) -> None:
    outcome = ask([refuse(status, {"error": {"message": f"the key {KEY} is wrong"}})], make)
    assert str(outcome.failure) == f"{called}: {status} the key [key] is wrong"
    assert KEY not in repr(outcome.failure)


def test_keys_in_the_owners_headers_and_addresses_are_kept_out_as_well() -> None:
    headers = {"Authorization": "Bearer other-secret", "X-Key": "third-secret"}
    echo = "other-secret third-secret Bearer other-secret"
    outcome = ask([refuse(401, {"error": {"message": echo}})], openai(headers=headers))
    assert str(outcome.failure) == "openai/m: 401 [key] [key] [key]"
    assert outcome.asked[0].headers["Authorization"] == "Bearer other-secret"
    endpoint = Endpoint("m", f"https://user:{KEY}@host.test/v1?key={KEY}", None, {}, {})
    assert (repr(endpoint), endpoint.host) == ("<Endpoint of m>", "https://host.test/v1")
    assert str(endpoint.failed(f"x {KEY}")) == "m: x [key]"


@BOTH
def test_a_key_that_cannot_be_sent_is_told_without_the_key(make: Make, good: Any, pieces: Any, called: str) -> None:
    kind = openai if called.startswith("openai") else anthropic
    outcome = ask([good(["x"])], kind(key="sk-one\nsk-two"))
    why = "the key or a header holds a character that HTTP forbids. Mend it where it is set"
    assert outcome.fate == (f"{called}: {why}", True, False, None)
    assert outcome.asked == []
    assert ask([good(["x"])], kind(key=f" {KEY}\n")).answer.content == "x"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":{"message":"a  b"}}', "a b"),
        (b'{"error":"plain"}', "plain"),
        (b'{"type":"error","error":{"type":"x","message":"m"}}', "m"),
        (b'{"message":"m"}', "m"),
        (b'{"detail":[{"msg":"m"}]}', "m"),
        (b'[{"error":{"message":"m"}}]', "m"),
        (b"upstream is  gone\n", "upstream is gone"),
        (b"<html>x</html>", "without a reason"),
        (b"", "without a reason"),
        (b"{}", "without a reason"),
        (b"[[[[]]]]", "without a reason"),
        (b'{"error":{"message":7}}', "without a reason"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"[" * 10_000, "[" * 10_000),
    ],
)
def test_the_reason_for_a_refusal_is_found(body: bytes, message: str) -> None:
    assert explain(body) == (message, False)


def test_a_long_refusal_is_read_in_part() -> None:
    outcome = ask([refuse(400, b"x" * 2**22)], openai())
    assert str(outcome.failure) == f"openai/m: 400 {'x' * (MAX_TEXT - 4)}"


def test_no_half_of_a_key_is_left_where_a_text_is_cut() -> None:
    outcome = ask([refuse(400, {"error": "x" * (MAX_TEXT - 10) + KEY})], openai())
    assert str(outcome.failure) == f"openai/m: 400 {'x' * (MAX_TEXT - 10)}[key]"[: MAX_TEXT + 10]


def test_a_refusal_does_not_steer_the_terminal() -> None:
    outcome = ask([refuse(400, {"error": {"message": "a\u001b[2Jb\u202ec"}})], openai())
    assert str(outcome.failure) == "openai/m: 400 a [2Jb c"


def test_the_owners_headers_win_however_they_are_spelled() -> None:
    headers = ask([chat(["x"])], openai(headers={"authorization": "Basic mine", "USER-AGENT": "me"})).asked[0].headers
    lowered = {name.lower(): value for name, value in headers.items()}
    assert (lowered["authorization"], lowered["user-agent"], len(lowered)) == ("Basic mine", "me", len(headers))


def test_running_out_of_time_does_not_hide_what_the_provider_said() -> None:
    outcome = ask([refuse(503, {"error": "too busy"}), hanging()], openai(), timeout=1, random=0.0)
    assert str(outcome.failure).endswith("raise llm_timeout_seconds. Before that: 503 too busy")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a:b@host:8/p?q=1#f", "https://host:8/p"),
        ("/v2/x", "/v2/x"),
        ("http://host:99999/", "the address"),
        ("http://[::1", "the address"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert place(url) == shown


@BOTH
def test_cancelling_closes_the_connection(make: Make, good: Any, pieces: Any, called: str) -> None:
    async def run() -> None:
        transport = Transport()
        async with Provider([hanging(until(pieces(["part"]), b"part"))]) as server:
            model = make(server, transport)
            task = asyncio.create_task(model.answer(hello(), Heard(), 30))
            await server.hung.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.left.wait(), 10)
            await transport.close()

    asyncio.run(run())


def test_a_transport_can_be_closed_twice_and_used_again() -> None:
    async def run() -> Answer:
        transport = Transport()
        await transport.close()
        async with Provider([chat(["x"])]) as server:
            model = openai()(server, transport)
            await model.answer(hello(), Heard(), 30)
            await transport.close()
            answer = await model.answer(hello(), Heard(), 30)
            await transport.close()
            await transport.close()
        return answer

    assert asyncio.run(run()).content == "x"


def test_a_model_without_a_transport_keeps_and_closes_its_own() -> None:
    async def run() -> Answer:
        async with Provider([chat(["x"])]) as server:
            model = OpenAIModel("m", base_url=server.address)
            answer = await model.answer(hello(), Heard(), 30)
            await model.close()
        return answer

    assert asyncio.run(run()).content == "x"


def test_a_history_of_megabytes_is_sent() -> None:
    outcome = ask([chat(["x"])], openai(), hello(user("y" * 3 * 2**20)))
    assert len(outcome.sent["messages"][1]["content"]) == 3 * 2**20


def test_a_failure_that_is_not_the_providers_is_not_hidden() -> None:
    class Deaf(Heard):
        def delta(self, text: str) -> None:
            raise LookupError("nobody listens")

    async def run() -> None:
        transport = Transport()
        async with Provider([chat(["x"])]) as server:
            with pytest.raises(LookupError, match="nobody listens"):
                await openai()(server, transport).answer(hello(), Deaf(), 30)
        await transport.close()

    asyncio.run(run())


def test_money_that_may_be_gone_stays_gone() -> None:
    outcome = ask([breaking([]), refuse(401)], openai())
    assert isinstance(outcome.failure, ModelFailed)
    assert outcome.fate == ("openai/m: 401 refused with 401", True, True, 401)
