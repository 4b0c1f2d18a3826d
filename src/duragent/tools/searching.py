"""Searching the web: one question to one search server, a short list of results back.

Knows two servers: SearXNG at an address of the owner's, and Brave with the owner's key. Neither is checked for being
public, since the owner chose it; redirects are not followed, so that the key goes nowhere else. What goes wrong is
`FetchFailed` with a sentence for the model. Another server: a function from a question to `Result`s, and a line in
`search`.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import TypeVar

import aiohttp
from msgspec import DecodeError, Struct, field
from msgspec.json import decode
from yarl import URL

from duragent.errors import FetchFailed
from duragent.tools.pages import SECONDS, because, open_session, read_body, user_agent, within
from duragent.tools.plain import in_one_line

BRAVE = "https://api.search.brave.com/res/v1/web/search"
MAX_QUERY = 2_000
_MAX_BYTES = 2 << 20
Answer = TypeVar("Answer")


class Engines(Struct, frozen=True):
    """What there is to search with. A SearXNG server that the owner set up is asked rather than Brave."""

    searxng: str | None = None
    brave_key: str = ""
    brave: str = BRAVE
    hosts: tuple[str, ...] | None = None  # the only ones that may be reached, where the owner named any
    seconds: float = SECONDS


class Result(Struct, frozen=True):
    title: str
    url: str
    description: str


class _Hit(Struct, frozen=True):
    url: str | None = None
    title: str | None = None
    description: str | None = None
    content: str | None = None


class _Hits(Struct, frozen=True):
    results: tuple[_Hit, ...] = ()


class _Brave(Struct, frozen=True):
    web: _Hits | None = None


class _Why(Struct, frozen=True):
    code: str | None = None
    detail: str | None = None


class _Refusal(Struct, frozen=True):
    error: _Why = field(default_factory=_Why)


async def search(query: str, count: int, engines: Engines) -> list[Result]:
    """At most `count` results. Raises `FetchFailed`."""
    if not query.strip():
        raise FetchFailed("A search needs a `query` that says something.")
    if len(query) > MAX_QUERY:
        raise FetchFailed(f"The query is longer than {MAX_QUERY:,} characters. Ask in fewer words.")
    try:
        async with asyncio.timeout(engines.seconds):
            if engines.searxng:
                hits = await _searxng(engines.searxng, query, engines)
            elif engines.brave_key:
                hits = await _brave(query, count, engines)
            else:
                raise FetchFailed(
                    "There is nothing to search with. The owner can set BRAVE_API_KEY, or web.search_url in "
                    "duragent.yaml to the address of a SearXNG server. Pages whose address is known can still be "
                    "fetched."
                )
    except TimeoutError:
        raise FetchFailed(f"The search server gave no whole answer within {engines.seconds:g} seconds.") from None
    return [_result(hit) for hit in hits.results if hit.url][:count]


def _result(hit: _Hit) -> Result:
    about = hit.description or hit.content or ""
    return Result(in_one_line(hit.title or "", 200), in_one_line(hit.url or "", 500), in_one_line(about, 500))


async def _searxng(address: str, query: str, engines: Engines) -> _Hits:
    base = address.rstrip("/").removesuffix("/search")
    status, _, body = await _ask(f"{base}/search", {"q": query, "format": "json"}, {}, engines)
    if status == 403:
        raise FetchFailed(
            "The SearXNG server refuses to answer in JSON: its settings.yml must list json in `search.formats`."
        )
    if status == 429:
        raise FetchFailed("The SearXNG server says that it was asked too often (429). Wait before you search again.")
    if status != 200:
        raise FetchFailed(f"The SearXNG server answered with status {status}.")
    return _read(body, _Hits, "SearXNG")


async def _brave(query: str, count: int, engines: Engines) -> _Hits:
    key = engines.brave_key
    if not re.fullmatch(r"[!-~]+", key):
        raise FetchFailed("BRAVE_API_KEY holds a character that no key has. The owner must mend it.")
    status, headers, body = await _ask(
        engines.brave, {"q": query, "count": str(count)}, {"X-Subscription-Token": key}, engines
    )
    if status == 200:
        return _read(body, _Brave, "Brave").web or _Hits()
    try:
        why = decode(body, type=_Refusal).error
    except DecodeError:
        why = _Why()
    detail = in_one_line(why.detail or why.code or "", 300)
    if status == 429:
        after = in_one_line(headers.get("Retry-After", ""), 20)
        wait = f" for {after} seconds" if after.isdigit() else ""
        raise FetchFailed(f"Brave says that it was asked too often (429 {detail}). Wait{wait} before you search again.")
    if status in (401, 403) or "TOKEN" in (why.code or ""):
        raise FetchFailed(f"Brave does not accept BRAVE_API_KEY ({status} {detail}). The owner must set a good one.")
    if status == 422:
        raise FetchFailed(f"Brave does not take this query (422 {detail}). Ask in fewer words: at most 400 characters.")
    raise FetchFailed(f"Brave answered with status {status} {detail}".rstrip() + ".")


async def _ask(
    address: str, query: Mapping[str, str], headers: Mapping[str, str], engines: Engines
) -> tuple[int, Mapping[str, str], bytes]:
    try:
        url = URL(address)
        host = url.raw_host
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https"):
        raise FetchFailed(
            "The address of the search server is no http address. The owner must mend web.search_url in duragent.yaml."
        )
    if engines.hosts is not None and not within(host.lower().rstrip("."), engines.hosts, url.port or 0):
        raise FetchFailed(f"The search server {host} is not among the hosts this agent may reach.")
    said = {"User-Agent": user_agent(), "Accept": "application/json", "Accept-Encoding": "gzip, deflate", **headers}
    try:
        async with (
            open_session() as session,
            session.get(url.update_query(query), headers=said, allow_redirects=False) as response,
        ):
            try:
                body, cut = await read_body(response, _MAX_BYTES)
            finally:
                response.close()
            if cut:
                raise FetchFailed(f"The answer of {host} is larger than {_MAX_BYTES:,} bytes.")
            return response.status, response.headers, body
    except TimeoutError:
        raise  # all the time there was is over: said where that is known
    except (aiohttp.ClientError, OSError) as error:
        raise FetchFailed(f"The search server {host} cannot be reached: {because(error)}.") from None


def _read(body: bytes, kind: type[Answer], who: str) -> Answer:
    try:
        return decode(body, type=kind)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise FetchFailed(f"What {who} answered is no list of results. Is the address right?") from None
