"""What a tool gets of the place it works in: folders, the sandbox, the clock, and a narrow way to the sessions.

One `Host` for each agent. Tools import this instead of the runtime, the settings or each other; whoever composes the
program fills it in. `door` is there once the runtime is: a tool is not asked to run before that.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from duragent.agent import Agent
from duragent.core.events import UserMessage
from duragent.core.session import Session
from duragent.sandbox import Box, Sandbox

Kept = TypeVar("Kept")
_HELD_CHARS = 4_096


class Door(Protocol):
    """What tools may ask of the runtime. No verb that decides anything: an agent cannot answer its own question."""

    async def post(self, session_id: str, message: UserMessage) -> int: ...

    async def siblings(
        self, agent: str, gateway: str | None, chat_id: str | None, most: int = 10
    ) -> list[tuple[str, Session]]:
        """The sessions of an agent at one place that have not ended, the newest first."""

    async def session(self, session_id: str) -> Session:
        """One session, whoever's it is: the tool looks whether it may be seen. Raises `NotFound`."""

    async def reload(self, agent: Agent) -> None:
        """Have every session of this agent use its tools as they are on disk now."""


class Redacting(Protocol):
    """A text that comes in pieces, without secrets: `feed` gives what can be shown now, `end` the rest."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...


class Wordwise:
    """Pieces of a text, redacted by a function that knows whole texts only: a word that may go on is held back."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact, self._held = redact, ""

    def feed(self, text: str) -> str:
        text = self._held + text
        cut = max(text.rfind("\n"), text.rfind(" ")) + 1
        if len(text) - cut > _HELD_CHARS:  # a word without an end: what was recognised in it stays so
            text = self._redact(text)
            cut = max(len(text) - _HELD_CHARS, 0)
        self._held = text[cut:]
        return self._redact(text[:cut])

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._redact(held)


class Host:
    """The place of one agent."""

    def __init__(
        self,
        agent: Agent,
        *,
        home: str,
        workdir: str,
        workspace: str,
        memory_dir: str,
        world_dir: str,
        chats_dir: str = "",
        box: Box,
        sandbox: Sandbox | None = None,
        environ: Mapping[str, str] | None = None,
        redact: Callable[[str], str] = lambda text: text,
        stream: Callable[[], Redacting] | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        search_url: str | None = None,
        private_hosts: tuple[str, ...] = (),
        door: Door | None = None,
    ) -> None:
        self.agent = agent
        self.home = home  # the folder of the agent's own files
        self.workdir = workdir  # where its commands work
        self.workspace = workspace  # where the program keeps state: schedules/, processes/, tools/, skills/
        self.memory_dir, self.world_dir = memory_dir, world_dir  # MEMORY.md and daily/; <topic>.md
        self.chats_dir = chats_dir or f"{memory_dir}/chats"  # the same for each chat, apart from the agent's own files
        self.box, self.sandbox = box, sandbox  # no sandbox: nothing here may run a program
        self.environ = environ or {}  # the person's own; never handed on as it is
        self.redact, self.clock = redact, clock
        self.stream = stream or (lambda: Wordwise(redact))  # a new one for each program whose output is heard
        self.search_url = search_url  # a SearXNG server
        self.private_hosts = private_hosts  # `host` or `host:port` the web tool may reach although it is not public
        self.door = door
        self._kept: dict[str, Any] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []

    def keep(self, name: str, make: Callable[[], Kept], close: Callable[[Kept], Awaitable[None]] | None = None) -> Kept:
        """Something that outlives a toolbox that is built again; `close` is called when the program ends."""
        if name not in self._kept:
            made = self._kept[name] = make()
            if close is not None:
                self._closing.append(lambda: close(made))
        kept: Kept = self._kept[name]
        return kept

    def moved(self, fresh: "Host") -> "Host":
        """This place as it is now that the agent's files have changed: what it keeps goes along."""
        fresh._kept, fresh._closing = self._kept, self._closing
        return fresh

    async def close(self) -> None:
        closing, self._closing = self._closing, []
        for close in reversed(closing):
            await close()
        self._kept.clear()
