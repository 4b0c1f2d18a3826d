"""Threads that write and sync, so that the event loop never waits for a disk.

Jobs of different sessions run side by side; the caller sees to it that one log has only one job at a time.
"""

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

Result = TypeVar("Result")
Job = Callable[[], None]
THREADS = 8


class Writers:
    """A few threads that are started when they are needed."""

    def __init__(self, threads: int = THREADS) -> None:
        self._most = threads
        self._started = 0
        self._busy = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(
        self, loop: AbstractEventLoop, work: Callable[[], Result], done: Callable[[Result | None, OSError | None], None]
    ) -> None:
        """Do the work in a thread and call `done` in the loop, with the result or with what the disk said."""

        def job() -> None:
            result: Result | None = None
            error: OSError | None = None
            try:
                result = work()
            except OSError as failed:
                error = failed
            except Exception as failed:  # noqa: BLE001 - a thread that died here would leave its log waiting for ever
                error = OSError(f"{type(failed).__name__}: {failed}")
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more, and the thread serves the next
                loop.call_soon_threadsafe(self._finish, done, result, error)

        self._busy += 1
        if self._started < min(self._busy, self._most):
            self._started += 1
            threading.Thread(target=self._serve, name=f"duragent-writer-{self._started}", daemon=True).start()
        self._jobs.put(job)

    def _finish(
        self, done: Callable[[Result | None, OSError | None], None], result: Result | None, error: OSError | None
    ) -> None:
        self._busy -= 1
        done(result, error)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # while it waits, a thread must not hold the session it last wrote

    def close(self) -> None:
        """Let the threads end once what was submitted is done."""
        for _ in range(self._started):
            self._jobs.put(None)
        self._started = 0
