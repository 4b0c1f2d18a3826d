"""`background_process`: programs that run on while the agent goes on. The tool's ten actions and their arguments.

Owns what the model may say and what it is told. The processes themselves are `attending.py`, their files `jobs.py`, the
terminals of interactive ones `terminals.py`. Every action sees the processes of its own session only; for all others,
also those that exist, the answer is the same as for none.

`recover` is for whoever starts the runtime: processes that were running when an earlier one died are told lost.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.json import Encoder
from msgspec.structs import replace

from duragent.core.events import ToolAnswer
from duragent.core.policy import Effect, ToolSpec
from duragent.errors import Conflict, DuragentError
from duragent.tools import Scene, Tool, jobs
from duragent.tools.attending import Attendant, Live
from duragent.tools.host import Host
from duragent.tools.jobs import Job, Status, duration_seconds
from duragent.tools.printed import ROOM, plain, shortened
from duragent.tools.shell import surroundings
from duragent.tools.strays import stray
from duragent.tools.terminals import Drawing, find_drawing, named_keys

TIMEOUT_SECONDS = 1_800
MAX_TIMEOUT_SECONDS = 86_400
WAIT_BYTES = 8_192
LISTED = 50
LISTED_CHARS = 300
EFFECTS: Mapping[str, Effect] = {
    "spawn": "once",
    "list": "pure",
    "status": "pure",
    "log": "pure",
    "capture": "pure",
    "send_keys": "once",
    "write": "once",
    "kill": "repeatable",
    "watch": "repeatable",
    "unwatch": "repeatable",
}
PERMITTED: Mapping[str, tuple[str, ...]] = {
    "spawn": ("command", "workdir", "wait", "interactive", "label", "timeout_seconds"),
    "list": (),
    "status": ("handle",),
    "log": ("handle", "offset", "limit"),
    "capture": ("handle",),
    "send_keys": ("handle", "keys", "press_enter"),
    "write": ("handle", "input"),
    "kill": ("handle",),
    "watch": ("handle", "interval_seconds"),
    "unwatch": ("handle",),
}
"""Which arguments an action has."""
_encode = Encoder().encode


def _text(about: str, most: int) -> dict[str, object]:
    return {"type": "string", "minLength": 1, "maxLength": most, "description": about}


PARAMETERS: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": list(EFFECTS), "description": "What to do."},
        "command": _text("spawn: the command line, as bash reads it.", 100_000),
        "workdir": _text("spawn: the folder to work in, relative to yours and inside it.", 4_096),
        "wait": {
            "type": "boolean",
            "default": False,
            "description": "spawn: come back when it has ended, with the end of its output.",
        },
        "interactive": {
            "type": "boolean",
            "default": False,
            "description": "spawn: give it a terminal, for programs that want one; needed by capture and send_keys.",
        },
        "label": _text("spawn: a short name for people.", 200),
        "timeout_seconds": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_TIMEOUT_SECONDS,
            "default": TIMEOUT_SECONDS,
            "description": "spawn: after so many seconds it is ended.",
        },
        "handle": _text("All but spawn and list: which process, as spawn has told.", 64),
        "offset": {
            "type": "integer",
            "default": 0,
            "description": "log: the first line wanted, counted from 0; a negative one counts from the end.",
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 2_000,
            "default": 100,
            "description": "log: how many lines.",
        },
        "keys": _text("send_keys: a text to type, or names of keys such as `C-c`, `Escape`, `Up Up`.", 10_000),
        "press_enter": {"type": "boolean", "default": True, "description": "send_keys: press Enter afterwards."},
        "input": _text("write: a text for its standard input, exactly as it is: end a line with a newline.", 65_536),
        "interval_seconds": {
            "type": "number",
            "minimum": 1,
            "maximum": 3_600,
            "default": 5,
            "description": "watch: after so much silence you get a message, once for each silence.",
        },
    },
    "required": ["action"],
    "additionalProperties": False,
}


class Shown(Struct, frozen=True):
    """A process as the model is told of it."""

    handle: str
    status: Status
    command: str
    interactive: bool
    spawned_at: str
    duration_seconds: float
    timeout_seconds: int
    label: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    completed_at: str | UnsetType = UNSET
    watched: bool | UnsetType = UNSET


def make(host: Host) -> Tool:
    attendant = _attendant(host)
    drawing = find_drawing(host.box.writable, os.get_exec_path(host.environ or None))

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        if wrong := stray(PERMITTED, PARAMETERS, arguments):
            return ToolAnswer(False, wrong)
        try:
            await attendant.begin()
            await attendant.sweep()
            answer = await _ACTIONS[arguments["action"]](_Call(host, attendant, scene, arguments, drawing))
        except DuragentError as error:
            return ToolAnswer(False, plain(host.redact(str(error))))
        return ToolAnswer(True, shortened(host.redact(answer), ROOM))

    spec = ToolSpec(
        "background_process",
        "Run programs that go on while you do other things: servers, builds, watchers, and programs that want a "
        f"terminal. {surroundings(host)} You get a message when one ends. They end with the program that runs you.",
        PARAMETERS,
        effects=EFFECTS,
        line="command",
        detail=("keys", "input", "handle"),
        quiet=("list", "status", "log", "capture", "watch", "unwatch"),
        needs=("sh",),
    )
    return Tool(spec, run)


async def recover(host: Host) -> None:
    """Tell the sessions of processes that did not survive an earlier runtime. The door must be there."""
    await _attendant(host).begin()


def _attendant(host: Host) -> Attendant:
    attendant = host.keep("processes", lambda: Attendant(host), lambda kept: kept.close())
    attendant.host = host  # it is kept when the place is made anew, and must not keep the old one
    return attendant


class _Call:
    """One call, and what it asks for."""

    def __init__(
        self, host: Host, attendant: Attendant, scene: Scene, arguments: dict[str, Any], drawing: Drawing
    ) -> None:
        self.host, self.attendant, self.scene, self.arguments = host, attendant, scene, arguments
        self.drawing = drawing

    def text(self, name: str) -> str:
        value = self.arguments.get(name)
        if not value:
            raise Conflict(f"{self.arguments['action']} needs `{name}`.")
        return str(value)

    def job(self) -> Job:
        handle = self.text("handle")
        job = self.attendant.known.get(handle)
        if job is None or job.session_id != self.scene.session_id:
            raise Conflict(f"This session has no process {handle}. `list` shows those it has.")
        live = self.attendant.live.get(handle)
        return live.job if live is not None else job

    def live(self) -> Live:
        """The process, if it runs."""
        job = self.job()
        live = self.attendant.live.get(job.handle)
        if live is None:
            raise Conflict(f"{job.handle} does not run any more: its state is {job.status.state}.")
        return live

    def shown(self, job: Job) -> Shown:
        live = self.attendant.live.get(job.handle)
        return Shown(
            handle=job.handle,
            status=job.status,
            command=job.command,
            interactive=job.backend == "tmux",
            spawned_at=job.spawned_at,
            duration_seconds=duration_seconds(job, self.host.clock()),
            timeout_seconds=job.timeout_seconds,
            label=job.label or UNSET,
            pid=UNSET if live is None or job.pid is None else job.pid,
            completed_at=job.completed_at or UNSET,
            watched=True if live is not None and live.watch_seconds else UNSET,
        )


async def _spawn(call: _Call) -> str:
    said = call.arguments
    waited = bool(said.get("wait", False))
    live = await call.attendant.spawn(
        call.host,
        call.text("command"),
        call.scene,
        workdir=_workdir(call.host, said.get("workdir")),
        seconds=int(said.get("timeout_seconds", TIMEOUT_SECONDS)),
        label=said.get("label"),
        drawing=call.drawing if said.get("interactive", False) else None,
        waited=waited,
    )
    if waited:
        return await _wait(live)
    started: dict[str, object] = {"handle": live.job.handle, "status": "running", "pid": live.job.pid}
    if live.job.tmux_session:
        started["tmux_session"] = live.job.tmux_session
    return _encode(started).decode()


async def _wait(live: Live) -> str:
    """Until it has ended. Whoever gives up waiting is told of the end like everybody else."""
    try:
        await live.done.wait()
    except asyncio.CancelledError:
        live.waited = False
        raise
    job = live.job
    ended = {
        "handle": job.handle,
        "status": job.status.state,
        "exit_code": job.status.exit_code,
        "output": await asyncio.to_thread(jobs.tail, job.log_path, WAIT_BYTES),
        "duration_seconds": duration_seconds(job),
    }
    return _encode({**ended, "why": job.status.why} if job.status.why else ended).decode()


def _workdir(host: Host, given: str | None) -> str:
    """Where a process works: a folder inside the agent's own, wherever links lead."""
    if given is None:
        return host.box.cwd
    root = os.path.realpath(host.workdir)
    try:
        path = os.path.realpath(os.path.join(root, given))
    except ValueError:
        raise Conflict("workdir holds a character that no path can hold.") from None
    if os.path.isabs(given) or os.path.commonpath([root, path]) != root:
        raise Conflict(f"workdir {plain(given)} is outside of your folder. Give a path relative to it.")
    if not os.path.isdir(path):
        raise Conflict(f"workdir {plain(given)} is no folder. Make it first.")
    return path


async def _list(call: _Call) -> str:
    live = {handle: each.job for handle, each in call.attendant.live.items()}
    mine = [
        live.get(job.handle, job) for job in call.attendant.known.values() if job.session_id == call.scene.session_id
    ]
    ended = [job.handle for job in mine if job.status.state != "running"]
    left_out = set(ended[: max(len(mine) - LISTED, 0)])
    shown = [call.shown(replace(job, command=_cut(job.command))) for job in mine if job.handle not in left_out]
    text = _encode(shown).decode()
    return f"{text}\n[{len(left_out)} older ones that have ended are left out]" if left_out else text


def _cut(command: str) -> str:
    return command if len(command) <= LISTED_CHARS else f"{command[:LISTED_CHARS]}…"


async def _status(call: _Call) -> str:
    return _encode(call.shown(call.job())).decode()


async def _log(call: _Call) -> str:
    job = call.job()
    live = call.attendant.live.get(job.handle)
    waiting = live.stream.waiting if live is not None and live.stream is not None else ""
    offset, limit = int(call.arguments.get("offset", 0)), int(call.arguments.get("limit", 100))
    return await asyncio.to_thread(jobs.page, job, offset, limit, waiting)


async def _capture(call: _Call) -> str:
    job = call.job()
    if job.backend != "tmux":
        raise Conflict(f"{job.handle} has no terminal, so there is no screen; `log` shows what it printed.")
    live = call.attendant.live.get(job.handle)
    if live is not None and live.terminal is not None:
        return plain(await live.terminal.capture()) or "[the screen is empty]"
    screen = await asyncio.to_thread(jobs.tail, call.attendant.jobs.path(job.handle, "screen"), ROOM)
    return plain(screen) or "[the screen was empty]"


async def _send_keys(call: _Call) -> str:
    live, keys = call.live(), call.text("keys")
    if live.terminal is None:
        raise Conflict(f"{live.job.handle} has no terminal. Use `write`, or spawn it with interactive: true.")
    async with live.writing:
        named = named_keys(keys)
        if named is not None:
            await live.terminal.press(named)
        else:
            await live.terminal.type(keys)
        if call.arguments.get("press_enter", True):
            await live.terminal.press(["Enter"])
    return f"Sent to {live.job.handle}. `capture` shows its screen."


async def _write(call: _Call) -> str:
    live, text = call.live(), call.text("input")
    wrong = await call.attendant.write(live, text)
    if wrong:
        raise Conflict(wrong)
    return f"Written to {live.job.handle}: {len(text.encode('utf-8', 'replace'))} bytes."


async def _kill(call: _Call) -> str:
    job = call.job()
    live = call.attendant.live.get(job.handle)
    if live is None:
        return f"{job.handle} had ended already: its state is {job.status.state}."
    await call.attendant.kill(live)
    return f"{job.handle} and everything it started was ended."


async def _watch(call: _Call) -> str:
    live, seconds = call.live(), float(call.arguments.get("interval_seconds", 5))
    call.attendant.watch(live, seconds)
    return f"You get a message when {live.job.handle} has printed nothing for {seconds:g} s."


async def _unwatch(call: _Call) -> str:
    live = call.live()
    call.attendant.watch(live, 0)
    return f"{live.job.handle} is no longer watched."


_ACTIONS: Mapping[str, Callable[[_Call], Awaitable[str]]] = {
    "spawn": _spawn,
    "list": _list,
    "status": _status,
    "log": _log,
    "capture": _capture,
    "send_keys": _send_keys,
    "write": _write,
    "kill": _kill,
    "watch": _watch,
    "unwatch": _unwatch,
}
