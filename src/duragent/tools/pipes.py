"""Between the runtime and its processes: reading what they print, writing what they read, waiting for one to be gone.

Knows file descriptors and the event loop, and nothing of what the bytes mean.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import suppress

from duragent.sandbox import Ending

_BURST_BYTES = 1 << 20  # a flood is read at about 10 MiB a second: it waits, not the rest of the program
_PAUSE_SECONDS = 0.1


class Pump:
    """Reads what a process prints, as fast as it should be read."""

    def __init__(self, fd: int, hear: Callable[[bytes], None]) -> None:
        self.fd, self._hear, self._burst = fd, hear, 0
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None
        self.ended = asyncio.Event()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def _read(self) -> None:
        if not self._take():
            return
        if self._burst > _BURST_BYTES:
            self._loop.remove_reader(self.fd)
            self._again = self._loop.call_later(_PAUSE_SECONDS, self._resume)

    def _resume(self) -> None:
        self._burst, self._again = 0, None
        self._loop.add_reader(self.fd, self._read)

    def _take(self) -> bool:
        try:
            data = os.read(self.fd, 65_536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self.fd)
            self.ended.set()
            return False
        self._burst += len(data)
        self._hear(data)
        return True

    def close(self) -> None:
        """Read what is there, and no more."""
        if self._again is not None:
            self._again.cancel()
        left = 64
        while left and not self.ended.is_set() and self._take():
            left -= 1
        self._loop.remove_reader(self.fd)
        self.ended.set()


class Orphan:
    """A process that another runtime started: it can be watched and ended, but how it ends is not known."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd = os.pidfd_open(pid)

    async def wait(self) -> tuple[Ending, int]:
        copy = os.dup(self._fd)  # an event loop knows one waiter for each file, and here may be two
        try:
            await readable(copy)
        finally:
            os.close(copy)
        return "exited", -1

    async def kill(self, grace_seconds: float = 5.0) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    await self.wait()
                return

    def close(self) -> None:
        os.close(self._fd)


async def readable(fd: int) -> None:
    """Until there is something to read, or an end."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def send(pipe: Callable[[], int], data: bytes, seconds: float) -> tuple[int, bool]:
    """How many bytes a pipe took in this time, and whether somebody still reads it. `pipe` is -1 once it is closed."""
    sent = 0
    try:
        async with asyncio.timeout(seconds):
            while sent < len(data) and (fd := pipe()) >= 0:
                os.set_blocking(fd, False)
                try:
                    sent += os.write(fd, data[sent : sent + 65_536])
                except BlockingIOError:
                    await _writable(fd)
    except TimeoutError:
        return sent, True
    except OSError:
        return sent, False
    return sent, pipe() >= 0


async def _writable(fd: int) -> None:
    """Until a pipe takes more or has no reader left. Its owner may close it meanwhile: a copy is waited at."""
    loop, copy, ready = asyncio.get_running_loop(), os.dup(fd), asyncio.Event()
    loop.add_writer(copy, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(copy)
        os.close(copy)
