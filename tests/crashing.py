"""A person's conversation with an agent, in a process that dies at a chosen touch of the disk.

`python -m tests.crashing` is the nursery: for each line on its input (JSON: folder, compaction, and where to die) it
forks one process that begins the conversation, or goes on with it, and answers with that process's exit status. The
process writes down, in a file of its own, everything that was acknowledged to it, the moment it was.
"""

import asyncio
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from duragent.agent import Agent, SessionRules
from duragent.core import events as ev
from duragent.core.context import Request
from duragent.models import Answer, Listener
from duragent.runtime import Runtime, Settings
from duragent.store import disk
from duragent.tools import Tool, function_tool
from tests.acting import decide

ROOT = Path(__file__).resolve().parents[1]
KILLED = 77
ACKS, EFFECTS, SESSIONS = "acks.jsonl", "effects.txt", "sessions"
CALLS = (ev.ToolCall("c1", "count", {"call": "c1"}), ev.ToolCall("c2", "deploy", {"call": "c2"}))
SAID = (("m1", "deploy"), ("m2", "thanks"), ("m3", "bye"))


class Planner:
    """Answers from what it is shown alone: the first message gets two calls, every other one a sentence."""

    name = "test/planner"

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        asked = sum(message.role == "user" for message in request.messages)
        if asked == 1:
            called = any(message.calls for message in request.messages)
            return Answer("Deployed.") if called else Answer("I will count and deploy.", CALLS)
        return Answer(f"Answer {asked}.")

    async def close(self) -> None: ...


def toolbox(folder: Path, dies_in: str) -> dict[str, Tool]:
    async def count(call: str) -> str:
        _line(folder / EFFECTS, call)
        if call == dies_in:
            os._exit(KILLED)
        return "done"

    return {"count": function_tool(count), "deploy": function_tool(count, name="deploy", ask=True)}


def _line(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def open_runtime(folder: Path, compaction: Any, snapshot_every: int, dies_in: str) -> Runtime:
    agent = Agent(name="bot", session=SessionRules(on_disconnect="continue"))
    return Runtime(
        folder / SESSIONS,
        agents=[agent],
        models=[Planner()],
        tools=toolbox(folder, dies_in),
        settings=Settings(compaction=compaction, snapshot_every=snapshot_every),
    )


async def converse(folder: Path, compaction: str, snapshot_every: int, dies_in: str) -> None:
    """Say each thing (again, if nobody acknowledged it), and approve when asked."""
    async with open_runtime(folder, compaction, snapshot_every, dies_in) as runtime:

        def acknowledged(kind: str, what: str, seq: int) -> None:
            _line(folder / ACKS, json.dumps([kind, what, seq]))

        found = runtime.store.ids()
        if found:
            session_id = found[0]
        else:
            session_id = await runtime.open_session(Agent(name="bot", session=SessionRules(on_disconnect="continue")))
            acknowledged("session_start", session_id, 1)
        await runtime.recover()
        for message_id, text in SAID:
            if seq := await runtime.post(session_id, ev.UserMessage(text, message_id=message_id)):
                acknowledged("user_message", message_id, seq)
            session = await runtime.settled(session_id)
            for call_id in session.waiting:
                seq = await decide(runtime, session_id, call_id, "allow_once")
                acknowledged("approval_decision", call_id, seq)
            await runtime.settled(session_id)


class Dying:
    """Stands before the calls through which a session's files are changed, counts them, and dies at one of them."""

    def __init__(self, real: Any, kind: str, nth: int, how: str) -> None:
        self.real, self.kind, self.nth, self.how, self.seen = real, kind, nth, how, 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name in ("fsync", "fdatasync"):  # the kernel outlives the process: to write is enough here
            return self._counted(lambda fd: None, None) if self.kind == "any" else lambda fd: None
        if self.kind == "any" and name in ("write", "replace", "ftruncate", "mkdir", "unlink"):
            return self._counted(real, self._half_write if name == "write" else None)
        if self.kind == "any" and name == "open":
            return lambda path, flags, *mode: (self._counted(real, None) if flags & os.O_CREAT else real)(
                path, flags, *mode
            )
        return real

    def _half_write(self, fd: int, data: bytes) -> None:
        self.real.write(fd, data[: len(data) // 2])

    def _counted(self, real: Callable[..., Any], half: Callable[..., None] | None) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            self.seen += 1
            if self.seen != self.nth:
                return real(*given)
            if self.how == "during" and half is not None:
                half(*given)
            if self.how == "after":
                real(*given)
            os._exit(KILLED)

        return call


def _half_append(path: str, data: bytes, size: int, durable: bool = True) -> None:
    with open(path, "ab") as file:
        file.write(data[: len(data) // 2])


def run(folder: str, compaction: str, snapshot_every: int, kind: str, nth: int, how: str, dies_in: str) -> None:
    dying = Dying(os, kind, nth, how)
    disk.os = dying  # type: ignore[attr-defined]
    if kind == "append":
        disk.append = dying._counted(disk.append, _half_append)
    asyncio.run(converse(Path(folder), compaction, snapshot_every, dies_in))


def nursery() -> None:
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if not pid:
            try:
                run(**json.loads(line))
                os._exit(0)
            except BaseException:  # noqa: BLE001 - the child must never go on as a second nursery
                traceback.print_exc()
                os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


class Nursery:
    """The warm process from outside."""

    def __enter__(self) -> "Nursery":
        self.process = subprocess.Popen(
            (sys.executable, "-m", "tests.crashing"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.communicate()

    def run(
        self,
        folder: Path,
        compaction: str = "archive",
        snapshot_every: int = 200,
        *,
        kind: str = "append",
        nth: int = 0,
        how: str = "before",
        dies_in: str = "",
    ) -> int:
        """Talk in `folder`, and die at the nth touch of this kind, or in the middle of a call. Gives the exit status:
        0, `KILLED`, or a failure."""
        given = {"folder": str(folder), "compaction": compaction, "snapshot_every": snapshot_every}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({**given, "kind": kind, "nth": nth, "how": how, "dies_in": dies_in}) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


if __name__ == "__main__":
    nursery()
