"""How every backend runs a command: its output in bounded memory, its time, its end.

A backend is one function, `prepare`, that turns a command and a box into an order for the keeper and says what has
to be tidied up afterwards. Everything else is here: standard input, output with its head and its tail kept, the time
limit, and cancellation that returns only when nothing of the command is left.
"""

import asyncio
import os
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from duragent.sandbox import Box, Ended, Ending
from duragent.sandbox.keeper import Command, Keeper, Order
from duragent.sandbox.placeholders import strayed, sweep, take_away
from duragent.sandbox.places import PRIVATE_HOME, PRIVATE_TMP
from duragent.sandbox.repositories import claim, seen

_CHUNK = 65_536
_DRAIN_SECONDS = 2.0  # for output that somebody outside of the command keeps open


class Prepared(Protocol):
    """A command that is ready to start."""

    order: Order
    files: Sequence[int]  # beyond the standard three
    litter: str  # a folder that is still to be taken away after `close`; nothing in most cases

    def verdict(self, ending: Ending, code: int) -> tuple[Ending, int]:
        """How the program ended, told from how the order ended. Raises `OSError` where it never started."""

    def close(self) -> bytes:
        """Tidy up; called once, when nothing runs any more. What it returns is added to the output."""


class Plain:
    """What is tidied up in the simplest case: the private folder and our copies of the files."""

    def __init__(self, order: Order, *, files: Sequence[int] = ()) -> None:
        self.order, self.files, self.litter = order, files, order.private

    def verdict(self, ending: Ending, code: int) -> tuple[Ending, int]:
        return ending, code

    def close(self) -> bytes:
        for file in self.files:
            os.close(file)
        self.files = ()
        if self.litter and remove(self.litter):
            self.litter = ""
        return b""


class Runner(ABC):
    """What all backends share. A backend gives itself a name and says how it prepares a command."""

    name = ""
    keeps = True  # whether it keeps anything in at all

    def __init__(self) -> None:
        self._keeper = Keeper()
        self._swept: set[str] = set()

    @abstractmethod
    async def prepare(self, argv: Sequence[str], box: Box) -> Prepared:
        """How this backend wants a command to be started."""

    async def run(
        self,
        argv: Sequence[str],
        box: Box,
        *,
        stdin: bytes = b"",
        heard: Callable[[bytes], None] | None = None,
    ) -> Ended:
        began = time.monotonic()
        prepared = await self.prepare(argv, box)
        before = seen(box) if self.keeps else set()
        output = Output(box.limits.output_bytes, heard)
        try:
            with _Standard(stdin) as files:
                command = await self._keeper.start(prepared.order, [*files.given, *prepared.files])
                output.listen(files.begin())
                ending, code = await _wait(command, box.limits.seconds)
            await output.finish()
            if ending not in ("timeout", "processes"):
                ending, code = prepared.verdict(ending, code)
        except OSError as error:
            raise _explained(error, output) from error
        finally:
            output.stop()
            remarks, cleared = _tidied(prepared)
        await cleared
        if self.keeps:
            claim(seen(box) - before)
        output.add(remarks)
        return Ended(ending, code, output.kept(), output.size, time.monotonic() - began)

    async def start(self, argv: Sequence[str], box: Box, *, stdin: int, stdout: int, stderr: int) -> "Running":
        prepared = await self.prepare(argv, box)
        try:
            command = await self._keeper.start(prepared.order, [stdin, stdout, stderr, *prepared.files])
        except BaseException:
            _tidied(prepared)
            raise
        return Running(command, prepared)

    def tidied(self, box: Box, unseen: Sequence[str]) -> bytes:
        """Take away what is in the way of keeping this box. Returns what a person should know of it."""
        news = [folder for folder in box.writable if folder not in self._swept]
        sweep(news)
        self._swept.update(news)
        said = take_away(strayed(box.protected), "leads git to settings that may be anybody's")
        fresh = [path for path in unseen if path not in self._swept]
        self._swept.update(fresh)
        if fresh:
            shown = ", ".join(fresh[:3]) + (f" and {len(fresh) - 3} more" if len(fresh) > 3 else "")
            text = f"there are too many folders to look for repositories in: {shown} can be read, but not written"
            said += f"\n[{text}]\n".encode("utf-8", "surrogateescape")
        return said

    async def close(self) -> None:
        await self._keeper.close()


class Running:
    """A command that runs on by itself."""

    def __init__(self, command: Command, prepared: Prepared) -> None:
        self.pid = command.pid
        self._command, self._prepared = command, prepared
        self._told: asyncio.Future[tuple[Ending, int]] = asyncio.get_running_loop().create_future()
        command.ended.add_done_callback(self._tidy)

    async def wait(self) -> tuple[Ending, int]:
        return await asyncio.shield(self._told)

    async def kill(self, grace_seconds: float = 5.0) -> None:
        self._command.tell(b"T")
        await asyncio.wait([self._command.ended], timeout=grace_seconds)
        await _end(self._command)

    def _tidy(self, ended: asyncio.Future[tuple[Ending, int]]) -> None:
        """Tidied up when it ends, whether or not anybody waits for it."""
        try:
            ending, code = ended.result()
            self._told.set_result((ending, code) if ending == "processes" else self._prepared.verdict(ending, code))
        except OSError as error:
            self._told.set_exception(error)
            self._told.exception()  # nobody has to ask
        finally:
            _tidied(self._prepared)


def _tidied(prepared: Prepared) -> tuple[bytes, asyncio.Future[None]]:
    """Tidy up at once what can be, and the rest beside the event loop."""
    remarks = prepared.close()
    loop = asyncio.get_running_loop()
    if prepared.litter:
        return remarks, loop.run_in_executor(None, clear, prepared.litter)
    nothing: asyncio.Future[None] = loop.create_future()
    nothing.set_result(None)
    return remarks, nothing


async def _wait(command: Command, seconds: float) -> tuple[Ending, int]:
    try:
        done, _ = await asyncio.wait([command.ended], timeout=seconds)
    except asyncio.CancelledError:
        await _end(command)
        raise
    if done:
        return await command.ended
    await _end(command)
    return "timeout", 9


async def _end(command: Command) -> None:
    """Kill, and come back when it is true. A second cancellation must not leave anything half ended."""
    command.tell(b"K")
    cancelled: asyncio.CancelledError | None = None
    while not command.ended.done():
        try:
            await asyncio.wait([command.ended])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def _explained(error: OSError, output: "Output") -> OSError:
    said = output.kept().decode("utf-8", "replace").strip()
    if error.errno is None and said:
        return OSError(f"{error}: {said}")
    return error


class Output:
    """What a command prints: all of it is heard, its beginning and its end are kept."""

    def __init__(self, most: int, heard: Callable[[bytes], None] | None) -> None:
        self.size = 0
        self._head, self._tail = bytearray(), bytearray()
        self._first, self._last = most - most // 2, most // 2
        self._heard = heard
        self._reader = -1
        self._ended: asyncio.Future[None] | None = None

    def add(self, data: bytes) -> None:
        if not data:
            return
        self.size += len(data)
        if self._heard is not None:
            self._heard(data)
        room = self._first - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * self._last + _CHUNK:  # now and then, so that no byte is moved often
            del self._tail[: len(self._tail) - self._last]

    def kept(self) -> bytes:
        return bytes(self._head + (self._tail[-self._last :] if self._last else b""))

    def listen(self, reader: int) -> None:
        loop = asyncio.get_running_loop()
        self._reader, self._ended = reader, loop.create_future()
        loop.add_reader(reader, self._read)

    async def finish(self) -> None:
        """Until the last byte. Nothing of the command lives any more, so that this is not a matter of time."""
        if self._ended is not None:
            await asyncio.wait([self._ended], timeout=_DRAIN_SECONDS)

    def stop(self) -> None:
        if self._reader >= 0:
            asyncio.get_running_loop().remove_reader(self._reader)
            os.close(self._reader)
            self._reader = -1

    def _read(self) -> None:
        try:
            data = os.read(self._reader, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.add(data)
        else:
            self.stop()
            if self._ended is not None and not self._ended.done():
                self._ended.set_result(None)


class _Standard:
    """The standard files of a command: one pipe for what it is given, one for all that it prints."""

    def __init__(self, stdin: bytes) -> None:
        if stdin:
            source, feeder = os.pipe2(os.O_CLOEXEC)
        else:
            source, feeder = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), -1
        reader, sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(reader, False)
        self.given = [source, sink, sink]
        self._theirs, self._reader = [source, sink], reader
        self._feeder, self._left = feeder, memoryview(stdin)

    def __enter__(self) -> "_Standard":
        return self

    def __exit__(self, *_: object) -> None:
        self._close_theirs()
        if self._reader >= 0:
            os.close(self._reader)
        self._starve()

    def begin(self) -> int:
        """The command has its files: let go of ours, feed it, and give the end that is to be read."""
        self._close_theirs()
        if self._feeder >= 0:
            os.set_blocking(self._feeder, False)
            asyncio.get_running_loop().add_writer(self._feeder, self._feed)
        reader, self._reader = self._reader, -1
        return reader

    def _close_theirs(self) -> None:
        for file in self._theirs:
            os.close(file)
        self._theirs = []

    def _feed(self) -> None:
        try:
            self._left = self._left[os.write(self._feeder, self._left) :]
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]  # nobody reads it
        if not self._left:
            self._starve()

    def _starve(self) -> None:
        if self._feeder >= 0:
            asyncio.get_running_loop().remove_writer(self._feeder)
            os.close(self._feeder)
            self._feeder = -1


# --- private folders ----------------------------------------------------------------------------------------


def private_folder() -> str:
    """A folder for one command alone, with a home in it."""
    folder = tempfile.mkdtemp(prefix="duragent-")
    os.mkdir(os.path.join(folder, "home"), 0o700)
    return folder


def moved(box: Box, folder: str) -> tuple[str, dict[str, str]]:
    """The box's folder and environment, with what it calls /tmp being the private folder."""
    home = os.path.join(folder, "home")
    environment = dict(box.environment)
    if environment.get("TMPDIR") == PRIVATE_TMP:
        environment["TMPDIR"] = folder
    if environment.get("HOME") == PRIVATE_HOME:
        environment["HOME"] = home
    return {PRIVATE_TMP: folder, PRIVATE_HOME: home}.get(box.cwd, box.cwd), environment


def remove(folder: str) -> bool:
    """Take a private folder away if it is empty, as it mostly is."""
    with suppress(OSError):
        os.rmdir(os.path.join(folder, "home"))
        os.rmdir(folder)
        return True
    return False


def clear(folder: str) -> None:
    """Take a folder away whatever is in it: without permissions, deeper than any path is long. Takes its time."""
    for command in (["rm", "-rf"], ["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
        if os.path.lexists(folder):
            subprocess.run([*command, "--", folder], check=False, stdin=subprocess.DEVNULL, capture_output=True)
