"""A place for tools that run programs: folders of its own, a real sandbox, and a door that writes down what is posted."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duragent.agent import Agent, Source
from duragent.core.events import ToolAnswer, UserMessage
from duragent.core.session import Session
from duragent.errors import NotFound
from duragent.sandbox import Box, Limits, Sandbox
from duragent.sandbox.none import NoSandbox
from duragent.tools import Scene, Tool
from duragent.tools.host import Host, Redacting

BASICS = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
LIMITS = Limits()
SCENE = Scene(session_id="session_a", call_id="call_1")


class Door:
    """Takes messages as the runtime does: a message id that was there is not written again."""

    def __init__(self) -> None:
        self.posted: dict[str, tuple[str, UserMessage]] = {}
        self.reloaded: list[str] = []
        self.gone: set[str] = set()
        self._news = asyncio.Event()

    async def post(self, session_id: str, message: UserMessage) -> int:
        if session_id in self.gone:
            raise NotFound(f"no session {session_id}")
        self.posted.setdefault(message.message_id or "", (session_id, message))
        self._news.set()
        return len(self.posted)

    async def siblings(
        self, agent: str, gateway: str | None, chat_id: str | None, most: int = 10
    ) -> list[tuple[str, Session]]:
        return []

    async def session(self, session_id: str) -> Session:
        raise NotFound(f"no session {session_id}")

    async def reload(self, agent: Agent) -> None:
        self.reloaded.append(agent.name)

    async def until(self, number: int) -> list[str]:
        """The ids of what was posted, once there are so many."""
        async with asyncio.timeout(30):
            while len(self.posted) < number:
                self._news.clear()
                await self._news.wait()
        return list(self.posted)


def place(
    folder: Path,
    sandbox: Sandbox | None,
    *,
    tools: tuple[Any, ...] = (),
    limits: Limits = LIMITS,
    redact: Callable[[str], str] = lambda text: text,
    stream: Callable[[], Redacting] | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    environment: Mapping[str, str] = BASICS,
    door: Door | None = None,
) -> Host:
    """A host whose folders are `home`, `work` and `space`."""
    for name in ("home", "work", "space"):
        (folder / name).mkdir(exist_ok=True)
    home, work = (str((folder / name).resolve()) for name in ("home", "work"))
    box = Box(cwd=work, writable=(work,), environment=environment, limits=limits)
    agent = Agent(name="bot", tools=tools, source=Source(format="duragent", path=home))
    memory = str(folder / "memory")
    space = str((folder / "space").resolve())
    return Host(
        agent,
        home=home,
        workdir=work,
        workspace=space,
        memory_dir=memory,
        world_dir=memory,
        box=box,
        sandbox=sandbox,
        redact=redact,
        stream=stream,
        clock=clock,
        door=door,
    )


@asynccontextmanager
async def hosted(folder: Path, sandbox: Sandbox | None = None, **about: Any) -> AsyncIterator[Host]:
    """A host with a sandbox that is really there; both are closed in the end."""
    backend = sandbox or NoSandbox()
    host = place(folder, backend, **about)
    try:
        yield host
    finally:
        await host.close()
        await backend.close()


async def asked(tool: Tool, scene: Scene = SCENE, **arguments: Any) -> ToolAnswer:
    answer = await tool.run(arguments, scene)
    assert isinstance(answer, ToolAnswer)
    return answer


def program(path: Path, text: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path
