"""Fetching from strangers: over a real TLS server on loopback, and never where it must not go."""

import contextlib
import hashlib
import http.server
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest
import trustme

from duragent.errors import FetchFailed
from duragent.fetch import MAX_REDIRECTS, fetch, is_public

Answer = Callable[[http.server.BaseHTTPRequestHandler, "Server"], None]
BODY = b"name: parent\n"


class Server:
    """An https server for `example.test` whose answers are given by path; remembers what was asked."""

    def __init__(self, authority: trustme.CA) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.closing = threading.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("example.test").configure_cert(context)
        self.tls = ssl.create_default_context()
        authority.configure_trust(self.tls)
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.port = self.http.server_address[1]
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append(self.path)
                self.close_connection = True
                with contextlib.suppress(OSError):  # the client hung up, which is what some tests are about
                    server.answers[self.path](self, server)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def url(self, path: str, host: str = "example.test") -> str:
        return f"https://{host}:{self.port}{path}"

    def get(self, path: str, **options: object) -> bytes:
        """Fetch as usual, except that the name leads to loopback and loopback is allowed."""
        settings = {"resolve": to_loopback, "allowed": anywhere, "tls": self.tls} | options
        return fetch(self.url(path), **settings)  # type: ignore[arg-type]

    def close(self) -> None:
        self.closing.set()
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def to_loopback(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def anywhere(_address: str) -> bool:
    return True


def sends(body: bytes, status: int = 200) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler, _server: Server) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def redirects(location: str, status: int = 302) -> Answer:
    def answer(request: http.server.BaseHTTPRequestHandler, _server: Server) -> None:
        request.send_response(status)
        request.send_header("Location", location)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def drips(head: bytes) -> Answer:
    """Sends `head`, then a byte every now and then until the test is over."""

    def answer(request: http.server.BaseHTTPRequestHandler, server: Server) -> None:
        request.wfile.write(head)
        while not server.closing.wait(0.02):
            request.wfile.write(b"x")
            request.wfile.flush()

    return answer


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def server(authority: trustme.CA) -> Iterator[Server]:
    started = Server(authority)
    yield started
    started.close()


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(FetchFailed) as caught:
        action()
    return str(caught.value)


def test_the_body_of_a_good_answer_is_returned(server: Server) -> None:
    server.answers["/p.agent?v=1"] = sends(BODY)
    assert server.get("/p.agent?v=1") == BODY
    assert server.asked == ["/p.agent?v=1"]


def test_a_body_without_a_length_is_read_to_its_end(server: Server) -> None:
    def chunked(request: http.server.BaseHTTPRequestHandler, _server: Server) -> None:
        request.send_response(200)
        request.send_header("Transfer-Encoding", "chunked")
        request.end_headers()
        request.wfile.write(b"5\r\nname:\r\n3\r\n x\n\r\n0\r\n\r\n")

    server.answers["/"] = chunked
    assert server.get("/") == b"name: x\n"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_followed(server: Server, status: int) -> None:
    server.answers["/old"] = redirects("/new", status)
    server.answers["/new"] = sends(BODY)
    assert server.get("/old") == BODY
    assert server.asked == ["/old", "/new"]


def test_a_redirect_to_plain_http_is_refused(server: Server) -> None:
    server.answers["/"] = redirects("http://example.test/p.agent")
    assert refusal(lambda: server.get("/")) == "http://example.test/p.agent is not an https address"


def test_a_redirect_to_something_that_is_no_address_is_refused(server: Server) -> None:
    server.answers["/"] = redirects("//[oops")
    assert refusal(lambda: server.get("/")) == f"{server.url('/')} redirects to '//[oops', which is no address"


def test_the_address_behind_a_redirect_is_checked_again(server: Server) -> None:
    server.answers["/"] = redirects(server.url("/secret", host="inside.test"))
    server.answers["/secret"] = sends(b"secret")
    places = {"example.test": "127.0.0.1", "inside.test": "10.0.0.7"}
    found = refusal(lambda: server.get("/", resolve=lambda host, _port: [places[host]], allowed="127.0.0.1".__eq__))
    assert found == "inside.test is at 10.0.0.7, which is not a public address; it is not fetched"
    assert server.asked == ["/"]


def test_redirects_come_to_an_end(server: Server) -> None:
    server.answers["/"] = redirects("/")
    assert refusal(lambda: server.get("/")) == f"{server.url('/')} redirects more than 5 times"
    assert server.asked == ["/"] * (MAX_REDIRECTS + 1)


@pytest.mark.parametrize("status", [204, 304, 404, 500])
def test_any_other_status_is_a_failure(server: Server, status: int) -> None:
    server.answers["/"] = sends(b"", status)
    assert refusal(lambda: server.get("/")) == f"{server.url('/')} answered with status {status}"


def test_a_redirect_to_nowhere_is_a_failure(server: Server) -> None:
    server.answers["/"] = sends(b"", 302)
    assert refusal(lambda: server.get("/")) == f"{server.url('/')} answered with status 302"


def test_the_size_is_capped(server: Server) -> None:
    server.answers["/"] = sends(b"x" * 100)
    assert server.get("/", max_bytes=100) == b"x" * 100
    assert refusal(lambda: server.get("/", max_bytes=99)) == f"{server.url('/')} is larger than 99 bytes"


def test_the_cap_holds_while_the_body_is_still_coming(server: Server) -> None:
    server.answers["/"] = drips(b"HTTP/1.1 200 OK\r\n\r\n")
    assert refusal(lambda: server.get("/", max_bytes=3)) == f"{server.url('/')} is larger than 3 bytes"


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Slow: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
    ],
    ids=["status line", "header", "body", "body with a length"],
)
def test_the_deadline_holds_however_slowly_bytes_drip(server: Server, head: bytes) -> None:
    server.answers["/"] = drips(head)
    found = refusal(lambda: server.get("/", max_seconds=0.3))
    assert found == f"{server.url('/')} did not answer within 0.3 seconds"


def test_a_server_that_says_nothing_hits_the_deadline(server: Server) -> None:
    server.answers["/"] = lambda _request, server: server.closing.wait() and None  # type: ignore[func-returns-value]
    found = refusal(lambda: server.get("/", max_seconds=0.2))
    assert found == f"{server.url('/')} did not answer within 0.2 seconds"


def test_an_answer_that_is_not_http_is_a_failure(server: Server) -> None:
    server.answers["/"] = lambda request, _server: request.wfile.write(b"hello\r\n") and None  # type: ignore[func-returns-value]
    assert refusal(lambda: server.get("/")) == f"{server.url('/')} cannot be read: hello\r\n"


def test_a_certificate_of_a_stranger_is_refused(server: Server) -> None:
    server.answers["/"] = sends(BODY)
    assert "certificate verify failed" in refusal(lambda: server.get("/", tls=ssl.create_default_context()))
    assert server.asked == []


def test_a_certificate_for_another_name_is_refused(server: Server) -> None:
    server.answers["/"] = sends(BODY)
    url = server.url("/", host="other.test")
    found = refusal(lambda: fetch(url, resolve=to_loopback, allowed=anywhere, tls=server.tls))
    assert "Hostname mismatch" in found
    assert server.asked == []


def test_the_right_pin_lets_the_content_through(server: Server) -> None:
    server.answers["/"] = sends(BODY)
    digest = hashlib.sha256(BODY).hexdigest()
    assert server.get(f"/#sha256={digest}") == BODY
    assert server.get(f"/#sha256={digest.upper()}") == BODY
    assert server.asked == ["/", "/"]


def test_changed_content_does_not_match_its_pin(server: Server) -> None:
    server.answers["/"] = sends(BODY)
    digest = hashlib.sha256(BODY).hexdigest()
    found = refusal(lambda: server.get(f"/#sha256={'0' * 64}"))
    assert found == f"{server.url('/')} has changed: its content is sha256={digest}, not {'0' * 64}"


@pytest.mark.parametrize("pin", ["sha256=", "sha256=abc", "md5=" + "0" * 64, "section", "sha256"])
def test_a_malformed_pin_is_refused(server: Server, pin: str) -> None:
    server.answers["/"] = sends(BODY)
    wanted = f"{server.url('/')}: the pin `#{pin}` is not understood; write #sha256= and 64 hex digits"
    assert refusal(lambda: server.get(f"/#{pin}")) == wanted


def test_the_pin_holds_behind_a_redirect(server: Server) -> None:
    server.answers["/"] = redirects("/new")
    server.answers["/new"] = sends(BODY)
    assert refusal(lambda: server.get(f"/#sha256={'0' * 64}")).startswith(f"{server.url('/new')} has changed")


def test_the_name_is_looked_up_once_and_that_address_is_connected_to(server: Server) -> None:
    server.answers["/"] = sends(BODY)
    looked_up: list[tuple[str, int]] = []

    def changes_its_mind(host: str, port: int) -> list[str]:
        looked_up.append((host, port))
        return ["127.0.0.1"] if len(looked_up) == 1 else ["10.0.0.7"]

    assert server.get("/", resolve=changes_its_mind) == BODY
    assert looked_up == [("example.test", server.port)]


def test_one_private_address_among_public_ones_is_enough_to_refuse(server: Server) -> None:
    found = refusal(lambda: server.get("/", resolve=lambda *_: ["8.8.8.8", "10.0.0.7"], allowed=is_public))
    assert found == "example.test is at 10.0.0.7, which is not a public address; it is not fetched"


def test_a_name_without_an_address_is_a_failure(server: Server) -> None:
    assert refusal(lambda: server.get("/", resolve=lambda *_: [])) == "example.test has no address"


def test_a_name_that_does_not_resolve_is_a_failure(server: Server) -> None:
    def unknown(_host: str, _port: int) -> list[str]:
        raise socket.gaierror(-2, "Name or service not known")

    found = refusal(lambda: server.get("/", resolve=unknown))
    assert found == f"{server.url('/')} cannot be read: [Errno -2] Name or service not known"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_without_further_settings_loopback_is_refused_before_anything_is_sent(server: Server, host: str) -> None:
    found = refusal(lambda: fetch(server.url("/", host=host)))
    assert found.endswith("which is not a public address; it is not fetched")
    assert server.asked == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://example.test/", "http://example.test/ is not an https address"),
        ("file:///etc/passwd", "file:///etc/passwd is not an https address"),
        ("ftp://example.test/", "ftp://example.test/ is not an https address"),
        ("https://", "https:// is not an https address"),
        ("https:///path", "https:///path is not an https address"),
        ("https://u:p@example.test/", "an address with a user name or password is not fetched"),
        ("https://u@example.test/", "an address with a user name or password is not fetched"),
        ("https://[oops/", "https://[oops/ cannot be read: Invalid IPv6 URL"),
    ],
)
def test_only_plain_https_addresses_are_fetched(url: str, said: str) -> None:
    assert refusal(lambda: fetch(url, resolve=to_loopback, allowed=anywhere)) == said


@pytest.mark.parametrize("url", ["https://example.test:99999/", "https://example.test:x/", "https://example.test/a b"])
def test_an_address_that_cannot_be_asked_for_is_a_failure_not_a_crash(url: str, server: Server) -> None:
    refusal(lambda: fetch(url, resolve=to_loopback, allowed=anywhere, tls=server.tls, max_seconds=1))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("::ffff:8.8.8.8", True),
        ("127.0.0.1", False),
        ("127.255.255.254", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("172.31.255.255", False),
        ("172.32.0.1", True),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("192.0.2.1", False),
        ("::", False),
        ("::1", False),
        ("fc00::1", False),
        ("fd12:3456::1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("ff02::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("2002:7f00:1::", False),
        ("2002:0a00:0001::1", False),
        ("2001:db8::1", False),
        ("fec0::1", False),
        ("::127.0.0.1", False),
        ("::ffff:0:127.0.0.1", False),
        ("5f00::1", False),
        ("3fff::1", False),
        ("192.0.0.8", False),
        ("192.88.99.1", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public
