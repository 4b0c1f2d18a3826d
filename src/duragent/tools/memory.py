"""The `memory` tool: what an agent keeps from one session to the next, as Markdown that its owner can read and edit.

Owns which notes a caller may see. Sessions at the terminal and over HTTP are the owner's and use the agent's own
folder; every chat has a folder of its own, so that a group never recalls a direct conversation and
neither recalls the owner's notes. World memory belongs to all agents of a workspace; a chat writes its own, and reads
the common one only if the agent says `memory.shared`. Each place has its own search index: nothing is filtered out
afterwards, since nothing else was ever in it.

How files are written is `notes.py`, how they are searched `finding.py`. Another action: a name in `_PARAMETERS` and
`_EFFECTS`, and a function in `_ACTIONS`.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime, timedelta
from hashlib import sha256
from typing import Any

from msgspec import Struct

from duragent.agent import Json
from duragent.core.events import ToolAnswer
from duragent.core.policy import Effect, ToolSpec
from duragent.errors import DuragentError, StorageFailed
from duragent.tools import Scene, Tool
from duragent.tools.finding import Embedder, Source, search
from duragent.tools.host import Host
from duragent.tools.notes import (
    MAX_NOTE_BYTES,
    MAX_TOPIC,
    Folder,
    append,
    files,
    is_day,
    read,
    replace,
    safe_name,
    topic_name,
)
from duragent.tools.strays import stray

LONG_TERM = "MEMORY.md"
WORLD_BYTES, LONG_TERM_BYTES, DAYS_BYTES = 24 << 10, 16 << 10, 24 << 10
"""What `recall` shows of each kind: together 64 KiB, so that many facts about the world never hide today's notes."""
FILE_BYTES = 8 << 10  # of one fact or one day, when it is recalled
THREADS = 2

_DESCRIPTION = """\
Your memory across sessions, kept as Markdown files.
recall: the facts about the world, your long-term memory and the notes of the last `days` days (3).
remember: add `content` to today's notes.
reflect: without `content` read your long-term memory; with `content` replace all of it.
update_world: replace what is known about one `topic` by `content`.
search: find notes by the words of `query`, the best first."""
_PARAMETERS: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "action": {"enum": ["recall", "remember", "reflect", "update_world", "search"]},
        "days": {
            "type": "integer",
            "minimum": 1,
            "maximum": 365,
            "description": "recall: how many days; 3 if left out",
        },
        "content": {"type": "string", "description": "remember, reflect, update_world: the text to keep, up to 64 KiB"},
        "topic": {"type": "string", "description": "update_world: a short name, e.g. `home address`"},
        "query": {"type": "string", "maxLength": 1000, "description": "search: words to look for"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "search: how many; 10 if left out"},
    },
    "required": ["action"],
    "additionalProperties": False,
}
_PERMITTED: Mapping[str, tuple[str, ...]] = {
    "recall": ("days",),
    "remember": ("content",),
    "reflect": ("content",),
    "update_world": ("topic", "content"),
    "search": ("query", "limit"),
}
_EFFECTS: Mapping[str, Effect] = {
    "recall": "pure",
    "search": "pure",
    "remember": "once",
    "reflect": "repeatable",
    "update_world": "repeatable",
}


class Place(Struct, frozen=True):
    """What one caller may see and change."""

    home: Folder  # MEMORY.md, daily/ and the index
    world: Folder
    common: Folder | None = None  # facts that are read here and written elsewhere
    days: Folder | None = None  # notes by date that the owner or another program writes; only read

    @property
    def daily(self) -> Folder:
        return self.home.inside("daily")


class _Call(Struct, frozen=True):
    """One call, with the local time it happens at."""

    place: Place
    arguments: Mapping[str, Any]
    now: datetime
    embedder: Callable[[], Embedder | None]

    def text(self, name: str) -> str:
        """An argument; one that is only space is as good as none."""
        return str(self.arguments.get(name) or "").strip()


def make(host: Host, embedder: Callable[[], Embedder | None] = lambda: None) -> Tool:
    """The tool of one agent. `embedder` is asked at the first search, since what it loads is large."""
    # Threads of its own: a writer can wait long for another process, and sessions are written by the common ones.
    threads = host.keep("memory threads", lambda: ThreadPoolExecutor(THREADS, "memory"), _end)

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        if wrong := stray(_PERMITTED, _PARAMETERS, arguments):
            return ToolAnswer(False, wrong)
        given = {name: _clean(host, each) if isinstance(each, str) else each for name, each in arguments.items()}
        call = _Call(place_of(host, scene), given, host.clock().astimezone(), embedder)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, _ACTIONS[given["action"]], call)
        except DuragentError as error:
            return ToolAnswer(False, str(error))

    spec = ToolSpec(
        name="memory",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        kind="builtin",
        effects=_EFFECTS,
        quiet=("*",),
        detail=("topic", "query"),
    )
    return Tool(spec, run)


async def _end(threads: ThreadPoolExecutor) -> None:
    await asyncio.to_thread(threads.shutdown, cancel_futures=True)


def _clean(host: Host, text: str) -> str:
    """A text that can be written down: no secret of the owner's, and no half of a character."""
    return host.redact(text.encode("utf-8", "replace").decode())


def place_of(host: Host, scene: Scene) -> Place:
    """The notes of whoever speaks in this session."""
    if scene.gateway is None:
        return Place(Folder(host.memory_dir), Folder(host.world_dir), days=Folder(host.workspace, ("memory",)))
    home = Folder(host.chats_dir, (chat_name(scene.gateway, scene.chat_id or ""),))
    return Place(home, home.inside("world"), Folder(host.world_dir) if host.agent.memory.shared else None)


def chat_name(gateway: str, chat_id: str) -> str:
    """The folder of a chat: readable, and by its digest never that of another chat."""
    exactly = sha256(f"{len(gateway)}:{gateway}:{chat_id}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{safe_name(gateway)}-{safe_name(chat_id)}-{exactly}".lower()


def _remember(call: _Call) -> ToolAnswer:
    if wrong := _unfit(call, "the text to remember"):
        return wrong
    name, at = f"{call.now.date().isoformat()}.md", f"{call.now:%H:%M}"
    append(call.place.daily, name, f"## {at}\n{call.text('content')}\n")
    return ToolAnswer(True, f"Remembered in daily/{name} under {at}.")


def _reflect(call: _Call) -> ToolAnswer:
    if not call.text("content"):
        found = read(call.place.home, LONG_TERM, MAX_NOTE_BYTES)
        if found is None or not found.text.strip():
            return ToolAnswer(True, f"{LONG_TERM} is empty. Reflect with content to write it.")
        return ToolAnswer(True, found.text + _cut_note(found.size, MAX_NOTE_BYTES))
    if wrong := _unfit(call, "the new text"):
        return wrong
    replace(call.place.home, LONG_TERM, call.text("content"))
    return ToolAnswer(True, f"{LONG_TERM} holds this text now, and nothing else.")


def _update_world(call: _Call) -> ToolAnswer:
    topic = call.text("topic")
    name = topic_name(topic)
    if name is None:
        rule = f"A topic is a short name with letters or digits, at most {MAX_TOPIC} characters long."
        return ToolAnswer(False, f"update_world needs a topic, and {topic[:100]!r} is none. {rule}")
    if wrong := _unfit(call, f"what is to be known about {name}"):
        return wrong
    replace(call.place.world, f"{name}.md", call.text("content"))
    return ToolAnswer(True, f"world/{name}.md holds this text now, and nothing else.")


def _unfit(call: _Call, what: str) -> ToolAnswer | None:
    """Why the content cannot be kept."""
    content, action = call.text("content"), call.arguments["action"]
    if not content:
        return ToolAnswer(False, f"{action} needs content: {what}.")
    size = len(content.encode())
    if size > MAX_NOTE_BYTES:
        text = f"The content has {size:,} bytes; at most {MAX_NOTE_BYTES:,} are kept at once. Shorten it, or divide it."
        return ToolAnswer(False, text)
    return None


def _recall(call: _Call) -> ToolAnswer:
    today = call.now.date()
    dates = [today - timedelta(days=back) for back in range(call.arguments.get("days", 3))]
    parts = [*_world(call.place), *_long_term(call.place), *_days(call.place, dates)]
    return ToolAnswer(True, "\n\n".join(parts) or "Nothing is remembered yet.")


def _world(place: Place) -> Iterator[str]:
    """All facts by name; those that do not fit are named."""
    room, unseen = WORLD_BYTES, []
    for kind, folder in (("Shared world", place.common), ("World", place.world)):
        for found in files(folder) if folder else []:
            shown = _shown(folder, found.name, min(room, FILE_BYTES)) if folder and room > 200 else None
            if shown is None:
                unseen.append(found.stem)
            elif shown:
                room -= len(shown.encode())
                yield f"# {kind}: {found.stem}\n\n{shown}"
    if unseen:
        names = ", ".join(unseen)
        yield f"[Not shown: {len(unseen)} more facts about the world ({names[:1000]}). Search finds them.]"


def _long_term(place: Place) -> Iterator[str]:
    if shown := _shown(place.home, LONG_TERM, LONG_TERM_BYTES):
        yield f"# {LONG_TERM}\n\n{shown}"


def _days(place: Place, dates: list[date]) -> list[str]:
    """The days in their order. The newest are sure to be there; of a long day, its end."""
    room = DAYS_BYTES
    parts: list[str] = []
    for day in dates:
        for heading, folder in ((day.isoformat(), place.daily), (f"{day} (memory/)", place.days)):
            if folder is None:
                continue
            if room <= 200:
                return [f"[Days before {day} are not shown. Search finds them.]", *reversed(parts)]
            if shown := _shown(folder, f"{day}.md", min(room, FILE_BYTES), tail=True):
                room -= len(shown.encode())
                parts.append(f"# {heading}\n\n{shown}")
    return parts[::-1]


def _shown(folder: Folder, name: str, most: int, *, tail: bool = False) -> str:
    """A file as it is recalled; one that cannot be read says so and hides none of the others."""
    try:
        found = read(folder, name, most, tail=tail)
    except StorageFailed as error:
        return f"[{error}]"
    if found is None or not found.text.strip():
        return ""
    return found.text.strip("\n") + _cut_note(found.size, most, tail)


def _cut_note(size: int, most: int, tail: bool = False) -> str:
    end = "last" if tail else "first"
    return f"\n[cut: these are the {end} {most:,} of {size:,} bytes]" if size > most else ""


def _search(call: _Call) -> ToolAnswer:
    query = call.text("query")
    hits = search(call.place.home, _sources(call.place), query, call.arguments.get("limit", 10), call.embedder())
    if hits is None:
        return ToolAnswer(False, "search needs a query with at least one word.")
    if not hits:
        return ToolAnswer(True, "No note matches. Try other words, or recall.")
    lines = [
        f"{at}. {hit.file}{f' · {hit.heading}' if hit.heading else ''}\n   {hit.text}" for at, hit in enumerate(hits, 1)
    ]
    return ToolAnswer(True, "\n".join(lines))


def _sources(place: Place) -> list[Source]:
    """Every file the caller may see, by the name it has in answers."""
    found = [Source(f"world/{each.name}", each) for each in files(place.world)]
    found += [Source(f"shared world/{each.name}", each) for each in (files(place.common) if place.common else [])]
    found += [Source(LONG_TERM, each) for each in files(place.home) if each.name == LONG_TERM]
    found += [Source(f"daily/{each.name}", each) for each in files(place.daily) if is_day(each.stem)]
    days = files(place.days) if place.days else []
    return found + [Source(f"memory/{each.name}", each) for each in days if is_day(each.stem)]


_ACTIONS: Mapping[str, Callable[[_Call], ToolAnswer]] = {
    "recall": _recall,
    "remember": _remember,
    "reflect": _reflect,
    "update_world": _update_world,
    "search": _search,
}
