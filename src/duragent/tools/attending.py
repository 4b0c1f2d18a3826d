"""Background processes at work: they are started in the sandbox, heard, ended, and their session is told.

Owns every process that this runtime started, from its first byte to its last message. Knows nothing of a tool's
arguments (`processes.py`) or of files (`jobs.py`). A process belongs to one session; how it ended, and that it fell
silent, is posted there under an id of its own, so it is heard once, also after a crash.

Processes die with the runtime. What a crash left on disk as running is marked lost and told; should one still live
for a moment, it is watched until it is gone.
"""

import asyncio
import os
import shutil
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC
from typing import Literal

from msgspec.structs import replace

from duragent.core.events import UserMessage, moment
from duragent.errors import Conflict, DuragentError, NotFound, StorageFailed
from duragent.sandbox import Child
from duragent.tools import Scene, jobs, telling
from duragent.tools.host import Host
from duragent.tools.jobs import Job, Jobs, Log, Runner, Status
from duragent.tools.pipes import Orphan, Pump, send
from duragent.tools.printed import Stream, plain, signal_name
from duragent.tools.shell import NO_SANDBOX, UNPASSABLE, passable, reason
from duragent.tools.terminals import Drawing, Terminal

MAX_RUNNING = 16
GRACE_SECONDS = 5.0
WRITE_SECONDS = 10.0


class Live:
    """One process that runs now."""

    def __init__(self, job: Job, child: Child, log: Log | None, stream: Stream | None) -> None:
        self.job, self.child, self.log, self.stream = job, child, log, stream
        self.pump: Pump | None = None
        self.stdin = -1
        self.writing = asyncio.Lock()
        self.terminal: Terminal | None = None
        self.stopped: Literal["", "killed", "lost"] = ""
        self.waited = False  # the call that started it waits for its end, so nobody else has to be told
        self.done = asyncio.Event()
        self.heard_at = asyncio.get_running_loop().time()
        self.watch_seconds = 0.0
        self.silent = False
        self.timer: asyncio.TimerHandle | None = None


class Attendant:
    """All background processes of one agent. `host` is its place as it is now; a process has the one it began in."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.jobs = Jobs(os.path.join(host.workspace, "processes"), host.agent.name)
        self.live: dict[str, Live] = {}
        self.known: dict[str, Job] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._begun: asyncio.Task[None] | None = None
        self._telling: set[str] = set()
        self._closing = False

    async def begin(self) -> None:
        """Find what an earlier runtime has left. Once that was done, a call does nothing more."""
        if self._begun is None or _has_failed(self._begun):
            self._begun = asyncio.ensure_future(self._recover())
        await asyncio.shield(self._begun)

    async def _recover(self) -> None:
        for job in await asyncio.to_thread(self.jobs.load):
            if job.handle in self.live:  # taken over by an attempt that failed afterwards
                continue
            self.known[job.handle] = job
            if job.status.state != "running":
                if not job.told:
                    await self._tell_end(job)
            elif _is_ownerless(job):
                await self._take_over(job)

    async def _take_over(self, job: Job) -> None:
        if job.pid is not None and job.began is not None and jobs.began(job.pid) == job.began:
            with suppress(OSError):
                live = Live(replace(job, owner=_me()), Orphan(job.pid), None, None)
                self._start(live)
                return
        await self._tell_end(await self._end(job, Status("lost", why="the program that ran it ended")))

    async def spawn(
        self,
        host: Host,
        command: str,
        scene: Scene,
        *,
        workdir: str,
        seconds: int,
        label: str | None,
        drawing: Drawing | None,
        waited: bool,
    ) -> Live:
        """Start a process at the place of the call, with a terminal if it is said what draws one. Raises `Conflict`
        saying why it cannot be."""
        if host.sandbox is None:
            raise Conflict(NO_SANDBOX)
        if not passable([command]):
            raise Conflict(f"The process was not started: {UNPASSABLE}")
        if sum(1 for live in self.live.values() if not live.stopped) >= MAX_RUNNING:
            raise Conflict(f"{MAX_RUNNING} processes run already; end one of them first (action kill).")
        if drawing is not None and drawing.fault:
            raise Conflict(f"An interactive process needs a terminal: {drawing.fault} Spawn it without interactive.")
        handle = await asyncio.to_thread(self.jobs.create)
        job = Job(
            handle=handle,
            command=host.redact(command),
            label=label,
            workdir=workdir,
            session_id=scene.session_id,
            agent=host.agent.name,
            backend="tmux" if drawing else "local",
            tmux_session=handle if drawing else None,
            log_path=self.jobs.path(handle, "log"),
            spawned_at=self._now(),
            timeout_seconds=seconds,
            gateway=scene.gateway,
            chat_id=scene.chat_id,
            owner=_me(),
        )
        try:
            await asyncio.to_thread(self.jobs.save, job)  # the intent first: a crash from here on leaves a trace
            live = await self._open(host, job, command, drawing)
        except BaseException:
            await asyncio.to_thread(self.jobs.remove, handle)
            raise
        live.waited = waited
        try:
            await asyncio.to_thread(self.jobs.save, live.job)
        except BaseException:  # a process that nobody knows the handle of must not run on
            live.stopped = "killed"
            await live.child.kill(GRACE_SECONDS)
            raise
        finally:
            self._start(live)  # only now: from here on its end is what is written down
        return live

    async def _open(self, host: Host, job: Job, command: str, drawing: Drawing | None) -> Live:
        """Start the program with its files: two pipes, or a terminal."""
        assert host.sandbox is not None
        box = host.box
        box = replace(box, cwd=job.workdir, limits=replace(box.limits, seconds=float(job.timeout_seconds)))
        argv = ["bash", "-c", command]
        theirs: list[int] = []
        ours: list[int] = []
        terminal: Terminal | None = None
        log = Log(job.log_path)
        try:
            if drawing is not None:
                terminal = Terminal(drawing, self.jobs.path(job.handle))
                await terminal.open()
                box = replace(box, environment={**box.environment, "TERM": "screen"})
                if shutil.which("setsid", path=box.environment.get("PATH", os.defpath)):
                    argv = ["setsid", "-c", "-w", *argv]  # the terminal is its own: Ctrl-C reaches it
                theirs = [os.open(terminal.device, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)] * 3
                reading = terminal.output
            else:
                (inlet, writing), (reading, outlet) = os.pipe(), os.pipe()
                theirs, ours = [inlet, outlet, outlet], [reading, writing]
            child = await host.sandbox.start(argv, box, stdin=theirs[0], stdout=theirs[1], stderr=theirs[2])
        except BaseException as error:
            log.close()
            for fd in ours:
                os.close(fd)
            if terminal is not None:
                await terminal.close()
            if isinstance(error, OSError):
                raise Conflict(f"The process could not be started: {reason(error)}") from None
            raise
        finally:
            for fd in set(theirs):
                os.close(fd)
        job = replace(job, pid=child.pid, began=jobs.began(child.pid))
        live = Live(job, child, log, None)
        live.stream = Stream(host.stream(), lambda text: self._write(live, text))
        live.terminal, live.stdin = terminal, ours[1] if ours else -1
        live.pump = Pump(reading, lambda data: self._hear(live, data))
        return live

    def _start(self, live: Live) -> None:
        self.live[live.job.handle] = live
        self.known[live.job.handle] = live.job
        self._spawn_task(self._attend(live))

    def _spawn_task(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- what it prints -----------------------------------------------------------------------------------

    def _hear(self, live: Live, data: bytes) -> None:
        live.heard_at = asyncio.get_running_loop().time()
        if live.stream is not None:
            live.stream.feed(data)
        if live.silent and live.watch_seconds:
            self.watch(live, live.watch_seconds)

    def _write(self, live: Live, text: str) -> None:
        if live.log is None:
            return
        try:
            if live.log.write(text):
                live.job = self.known[live.job.handle] = jobs.dropped(live.job, live.log)
        except OSError:  # a full disk: the process goes on, its log does not
            live.log.close()
            live.log = None

    def watch(self, live: Live, seconds: float) -> None:
        """Have the session told when nothing was printed for so long; 0 stops that."""
        if live.timer is not None:
            live.timer.cancel()
        live.watch_seconds, live.silent, live.timer = seconds, False, None
        if seconds:
            self._look_again(live)

    def _look_again(self, live: Live) -> None:
        loop = asyncio.get_running_loop()
        left = live.heard_at + live.watch_seconds - loop.time()
        if left > 0:
            live.timer = loop.call_later(left, self._look_again, live)
            return
        live.silent, live.timer = True, None
        total = live.log.total if live.log is not None else 0
        text = telling.of_silence(live.job, live.watch_seconds, live.stream)
        self._spawn_task(self._tell_silence(live.job, total, text))

    # --- what it is given ---------------------------------------------------------------------------------

    async def write(self, live: Live, text: str) -> str:
        """Hand a text to a process. Returns what went wrong, or nothing."""
        if live.terminal is not None:
            async with live.writing:  # not between the keys of another call and their Enter
                await live.terminal.type(text)
            return ""
        if live.stdin < 0:
            return "Its input is closed."
        data = text.encode("utf-8", "replace")
        async with live.writing:
            sent, heard = await send(lambda: live.stdin, data, WRITE_SECONDS)
        if sent == len(data):
            return ""
        if not heard:
            return f"It reads no more: {sent} of {len(data)} bytes were handed over."
        return f"It did not read all of it within {WRITE_SECONDS:g} s: {sent} of {len(data)} bytes were handed over."

    async def kill(self, live: Live) -> None:
        """End it and everything it started, and wait until that is so."""
        live.stopped = live.stopped or "killed"
        await live.child.kill(GRACE_SECONDS)
        await live.done.wait()

    # --- its end ------------------------------------------------------------------------------------------

    async def _attend(self, live: Live) -> None:
        status = await self._until_end(live)
        if live.timer is not None:
            live.timer.cancel()
        if live.stdin >= 0:
            os.close(live.stdin)
            live.stdin = -1
        with suppress(DuragentError, OSError):  # whatever tmux says: the end is an end
            await self._last_words(live)
        job = live.job if live.log is None else jobs.dropped(live.job, live.log)
        if live.log is not None:
            live.log.close()
        if isinstance(live.child, Orphan):
            live.child.close()
        live.job = await self._end(job, status, quiet=live.waited or live.stopped == "killed")
        self.live.pop(job.handle, None)  # whoever is told that it ended finds it ended
        live.done.set()
        if not live.job.told:
            await self._tell_end(live.job)

    async def _until_end(self, live: Live) -> Status:
        spawned = moment(live.job.spawned_at) or self.host.clock()
        age = (self.host.clock() - spawned).total_seconds() if isinstance(live.child, Orphan) else 0.0
        try:
            async with asyncio.timeout(max(live.job.timeout_seconds - age, 0.0)):
                ending, code = await live.child.wait()
        except TimeoutError:
            await live.child.kill(GRACE_SECONDS)
            return Status("timed_out", why=f"it ran longer than {live.job.timeout_seconds} s")
        except OSError as error:
            return Status("lost", why=str(error))
        if self._closing or live.stopped == "lost":
            return Status("lost", why="the program that ran it ended")
        if live.stopped == "killed":
            return Status("killed", signal=code if ending == "signalled" else None)
        if isinstance(live.child, Orphan):
            return Status("lost", why="the program that ran it ended, and how this one ended is not known")
        if ending == "processes":
            return Status("failed", why="it started too many processes")
        if ending == "signalled":
            return Status("failed", signal=code, why=f"signal {code}, {signal_name(code)}")
        return Status("completed" if code == 0 else "failed", exit_code=code)

    async def _last_words(self, live: Live) -> None:
        """Hear the rest of what it printed, and keep the last screen."""
        terminal, pump = live.terminal, live.pump
        if pump is None:
            return
        if terminal is not None:
            heard_at = -1.0
            while heard_at != live.heard_at:  # what tmux has not passed on when it ends is lost
                heard_at = live.heard_at
                await terminal.settle()
            with suppress(DuragentError, OSError):
                jobs.keep(self.jobs.path(live.job.handle, "screen"), self.host.redact(plain(await terminal.capture())))
            terminal.release()
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await pump.ended.wait()
        pump.close()
        if live.stream is not None:
            live.stream.end()
        if terminal is not None:
            await terminal.close()
        else:
            os.close(pump.fd)

    async def _end(self, job: Job, status: Status, quiet: bool = False) -> Job:
        """Write down how a process ended; `quiet` where nobody has to be told."""
        job = replace(job, status=status, completed_at=self._now(), told=quiet)
        self.known[job.handle] = job
        await asyncio.to_thread(self._save, job)
        return job

    def _save(self, job: Job) -> None:
        with suppress(StorageFailed):  # its session is told all the same
            self.jobs.save(job)

    async def _tell_end(self, job: Job) -> None:
        if job.handle in self._telling:
            return
        self._telling.add(job.handle)
        try:
            if await self._tell(job, "end", telling.of_end(job)):
                self.known[job.handle] = replace(job, told=True)
                await asyncio.to_thread(self._save, self.known[job.handle])
        finally:
            self._telling.discard(job.handle)

    async def _tell_silence(self, job: Job, total: int, text: str) -> None:
        await self._tell(job, f"silent:{total}", text)

    async def _tell(self, job: Job, what: str, text: str) -> bool:
        """Post into the session of a process. False where that has to be tried again later."""
        if self.host.door is None or self._closing:
            return False
        message_id = f"process:{job.handle}:{what}"
        sender, words = "background_process", self.host.redact(text)
        message = UserMessage(words, sender_id=sender, message_id=message_id, automatic=True)
        try:
            await self.host.door.post(job.session_id, message)
        except NotFound:
            return True  # there is nobody to tell any more
        except DuragentError:
            return False
        return True

    async def sweep(self) -> None:
        """Forget what ended long ago, and tell again what could not be told."""
        now = self.host.clock()
        for job in list(self.known.values()):
            if job.handle in self.live or job.handle in self._telling:
                continue
            if job.status.state == "running":
                await self._look_after(job.handle)
            elif jobs.is_old(job, now):
                del self.known[job.handle]
                await asyncio.to_thread(self.jobs.remove, job.handle)
            elif not job.told:
                await self._tell_end(job)

    async def _look_after(self, handle: str) -> None:
        """See what became of a process that another runtime has."""
        job = await asyncio.to_thread(self.jobs.read, handle)
        if job is None:
            del self.known[handle]
            return
        self.known[handle] = job
        if job.status.state == "running" and _is_ownerless(job):
            await self._take_over(job)

    async def close(self) -> None:
        """End every process; their sessions are told by the next runtime."""
        self._closing = True
        if self._begun is not None:
            await asyncio.wait([self._begun])
        for live in self.live.values():
            live.stopped = live.stopped or "lost"
        await asyncio.gather(*(live.child.kill(GRACE_SECONDS) for live in list(self.live.values())))
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _now(self) -> str:
        return self.host.clock().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)


def _is_ownerless(job: Job) -> bool:
    return job.owner is None or jobs.began(job.owner.pid) != job.owner.began


def _me() -> Runner:
    return Runner(os.getpid(), jobs.began(os.getpid()) or "")
