"""The proxy: names it knows, addresses it refuses, requests it understands."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from duragent.sandbox.proxy import Proxy, common, is_allowed


@pytest.mark.parametrize(
    ("host", "hosts", "expected"),
    [
        ("a.org", ("a.org",), True),
        ("A.ORG.", ("a.org",), True),
        ("b.a.org", ("a.org",), False),
        ("b.a.org", ("*.a.org",), True),
        ("c.b.a.org", ("*.a.org",), True),
        ("a.org", ("*.a.org",), False),
        ("xa.org", ("*.a.org",), False),
        ("a.org.evil.com", ("a.org", "*.a.org"), False),
        ("anything", ("*",), False),
        ("anything", ("*.",), False),
        ("", ("",), False),
        ("a.org", (), False),
    ],
)
def test_a_name_is_on_the_list_or_not(host: str, hosts: tuple[str, ...], expected: bool) -> None:
    assert is_allowed(host, hosts) is expected


@pytest.mark.parametrize(
    ("entry", "ports"),
    [("a.org", [80, 443]), ("a.org:443", [443]), ("*.org:8080", [8080]), ("a.org:x", []), ("a.org:", [80, 443])],
)
def test_a_host_alone_means_the_ports_of_the_web_and_one_with_a_port_that_port(entry: str, ports: list[int]) -> None:
    assert [port for port in (22, 80, 443, 8080) if is_allowed("a.org", (entry,), port)] == ports


def test_what_is_on_two_lists_is_what_both_allow() -> None:
    mine = ("a.org", "b.org:22", "x.c.org", "d.org:443", "*.e.org", "f.org")
    assert common(mine, ("a.org:443", "b.org", "*.c.org", "d.org", "*.e.org")) == (
        *("a.org:443", "x.c.org", "d.org:443", "*.e.org"),
    )


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    data = await reader.read(65536)
    writer.write(b"got " + data)
    writer.close()


def ask(
    request: bytes, *, hosts: Sequence[str] = ("good.test:{port}",), addresses: Sequence[str] = ("127.0.0.1",)
) -> bytes:
    """What the proxy answers, with a server behind `good.test`. {port} in the request is that server's."""

    async def lookup(host: str, port: int) -> Sequence[str]:
        return addresses

    async def go() -> bytes:
        server = await asyncio.start_server(_echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        listed = [each.replace("{port}", str(port)) for each in hosts]
        proxy = await Proxy.open(listed, lookup=lookup, public=lambda address: address == "127.0.0.1")
        try:
            reader, writer = await asyncio.open_unix_connection(proxy.path)
            writer.write(request.replace(b"{port}", b"%d" % port))
            answer = b""
            with suppress(ConnectionError):  # it need not listen to the end of what it refuses
                if request.startswith(b"CONNECT"):
                    answer = await reader.read(65536)
                    writer.write(b"through" if b" 200 " in answer else b"")
                writer.write_eof()
                answer += await reader.read()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            return answer.replace(b"%d" % port, b"{port}")
        finally:
            await proxy.close()
            server.close()
            await server.wait_closed()

    return asyncio.run(go())


def test_a_tunnel_carries_whatever_is_said() -> None:
    assert (
        ask(b"CONNECT good.test:{port} HTTP/1.1\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\ngot through"
    )


def test_a_plain_request_is_sent_on_for_the_host_it_names_and_once() -> None:
    request = (
        b"GET http://good.test:{port}/a?b HTTP/1.1\r\nHost: other.test\r\nProxy-Connection: x\r\nAccept: */*\r\n\r\n"
    )
    assert (
        ask(request) == b"got GET /a?b HTTP/1.1\r\nHost: good.test:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    )


@pytest.mark.parametrize(
    ("request_", "hosts", "addresses", "status", "why"),
    [
        (b"CONNECT bad.test:443 HTTP/1.1", ("good.test",), ("127.0.0.1",), 403, b"bad.test is not among the hosts"),
        (b"CONNECT good.test:443 HTTP/1.1", (), ("127.0.0.1",), 403, b"may reach: none"),
        (b"CONNECT good.test:443 HTTP/1.1", ("good.test",), ("169.254.169.254",), 403, b"not on the open internet"),
        (
            b"CONNECT good.test:443 HTTP/1.1",
            ("good.test",),
            ("127.0.0.1", "10.0.0.1"),
            403,
            b"good.test is at 10.0.0.1",
        ),
        (b"CONNECT good.test:443 HTTP/1.1", ("good.test",), (), 502, b"it has no address"),
        (b"CONNECT good.test:1 HTTP/1.1", ("good.test:1",), ("127.0.0.1",), 502, b"good.test cannot be reached"),
        (b"CONNECT good.test:22 HTTP/1.1", ("good.test",), ("127.0.0.1",), 403, b"port 22 of good.test is not among"),
        (b"GET http://good.test/ HTTP/1.1", ("good.test:443",), ("127.0.0.1",), 403, b"port 80 of good.test"),
        (b"CONNECT 127.0.0.1:80 HTTP/1.1", ("good.test",), ("127.0.0.1",), 403, b"127.0.0.1 is not among the hosts"),
        (b"GET https://good.test/ HTTP/1.1", ("good.test",), ("127.0.0.1",), 400, b"it names no host"),
        (b"GET / HTTP/1.1", ("good.test",), ("127.0.0.1",), 400, b"it names no host"),
        (b"GET http://good.test@bad.test/ HTTP/1.1", ("good.test",), ("127.0.0.1",), 400, b"it names no host"),
        (b"CONNECT good.test:99999 HTTP/1.1", ("good.test",), ("127.0.0.1",), 400, b"no request to a proxy"),
        (b"nonsense", ("good.test",), ("127.0.0.1",), 400, b"no request to a proxy"),
        (b"\xff\xfe good HTTP/1.1", ("good.test",), ("127.0.0.1",), 400, b"no request to a proxy"),
    ],
)
def test_what_is_not_allowed_or_not_understood_is_refused_with_a_reason(
    request_: bytes, hosts: tuple[str, ...], addresses: tuple[str, ...], status: int, why: bytes
) -> None:
    answer = ask(request_ + b"\r\n\r\n", hosts=hosts, addresses=addresses)
    assert (answer.split(b"\r\n")[0], why in answer) == (b"HTTP/1.1 %d Refused" % status, True)


def test_a_request_without_an_end_is_cut_off() -> None:
    assert ask(b"GET http://good.test/ HTTP/1.1\r\nX: " + b"x" * 200_000) == b""


def test_nothing_is_left_on_disk_when_it_is_closed() -> None:
    async def go() -> tuple[bool, bool]:
        proxy = await Proxy.open(())
        folder = Path(proxy.path).parent
        before = folder.exists()
        await proxy.close()
        return before, folder.exists()

    assert asyncio.run(go()) == (True, False)
