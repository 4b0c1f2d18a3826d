"""A place for tools that touch only files: folders below one, a clock that stands still, no sandbox."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from duragent.agent import Agent, Memory
from duragent.core.events import ToolAnswer
from duragent.sandbox import Box
from duragent.tools import NOWHERE, Scene, Tool
from duragent.tools.host import Door, Host

NOW = datetime(2026, 2, 18, 10, 32, tzinfo=UTC)


def host(root: Path, name: str = "bot", *, now: datetime = NOW, shared: bool = False, door: Door | None = None) -> Host:
    return Host(
        Agent(name=name, memory=Memory(long_term="filesystem", shared=shared)),
        home=str(root / "agents" / name),
        workdir=str(root / "work"),
        workspace=str(root),
        memory_dir=str(root / "agents" / name / "memory"),
        world_dir=str(root / "memory" / "world"),
        box=Box(cwd=str(root)),
        redact=lambda text: text.replace("sk-secret", "[redacted]"),
        clock=lambda: now,
        door=door,
    )


def ask(tool: Tool, scene: Scene = NOWHERE, **arguments: Any) -> ToolAnswer:
    async def call() -> str | ToolAnswer:
        return await tool.run(arguments, scene)

    answer = asyncio.run(call())
    assert isinstance(answer, ToolAnswer)
    return answer
