"""Looking on at a session: every event once, and what is being said from its beginning, however slow one looks."""

import asyncio
from pathlib import Path

import pytest

from duragent.agent import Agent
from duragent.cli.following import watching
from duragent.core import events as ev
from duragent.core.session import Session
from duragent.errors import StorageFailed
from duragent.models.scripted import Line, ScriptedModel
from duragent.runtime import Runtime, Settings


class Seen:
    """A view that remembers."""

    def __init__(self) -> None:
        self.entries: list[ev.Entry] = []
        self.text = ""
        self.forgot = 0

    def entry(self, entry: ev.Entry) -> None:
        self.entries.append(entry)

    def delta(self, text: str) -> None:
        self.text += text

    def forget(self, why: str) -> None:
        self.text = ""
        self.forgot += 1


async def talk(folder: Path, buffer: int, *answers: Line) -> tuple[Seen, Session]:
    agent = Agent(name="a")
    models = [ScriptedModel(answers=answers, marker="")]
    settings = Settings(follower_buffer=buffer)
    async with Runtime(folder, agents=[agent], models=models, settings=settings) as runtime:
        session_id = await runtime.open_session(agent)
        seen = Seen()
        async with watching(runtime, session_id, seen, 0) as follower:
            for _ in answers:
                await runtime.post(session_id, "Go on.")
                session = await follower.settled()
        return seen, session


def test_everything_is_seen_once_and_in_order(tmp_path: Path) -> None:
    seen, session = asyncio.run(talk(tmp_path, 8192, Line("one two three"), Line("four five")))
    assert [entry.seq for entry in seen.entries] == list(range(1, session.seq + 1))
    assert (seen.text, seen.forgot) == ("one two threefour five", 0)


def test_who_looks_too_slowly_begins_again_and_misses_no_event(tmp_path: Path) -> None:
    seen, session = asyncio.run(talk(tmp_path, 1, Line("word " * 500), Line("the end")))
    assert [entry.seq for entry in seen.entries] == list(range(1, session.seq + 1))
    assert seen.forgot > 0


def test_whoever_waits_hears_why_looking_failed(tmp_path: Path) -> None:
    class Broken(Seen):
        def entry(self, entry: ev.Entry) -> None:
            raise StorageFailed("the screen is full")

    async def look() -> None:
        agent = Agent(name="a")
        models = [ScriptedModel(answers=[Line("one")], marker="")]
        async with Runtime(tmp_path, agents=[agent], models=models) as runtime:
            session_id = await runtime.open_session(agent)
            async with watching(runtime, session_id, Broken(), 0) as follower:
                await runtime.post(session_id, "Go on.")
                await follower.settled()

    with pytest.raises(StorageFailed, match="the screen is full"):
        asyncio.run(look())
