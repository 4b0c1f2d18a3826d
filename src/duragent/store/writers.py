"""Threads that write and sync, so that no session waits for the disk of another.

Jobs of different sessions run side by side; the caller sees to it that one log has only one job at a time. While one
session alone is at work on a quick disk, its jobs run in the loop: waking a thread would take as long as the sync.
"""

import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")
Job = Callable[[], None]
THREADS = 8
ALONE = 4  # so many jobs in a row of one session, and it counts as alone
SLOW_SECONDS = 0.002  # a job in the loop that took longer, and
PATIENCE = 1000  # so many jobs go to the threads again


class Writers:
    """A few threads that are started when they are needed."""

    def __init__(self, threads: int = THREADS) -> None:
        self._most = threads
        self._started = 0
        self._busy = 0
        self._last = 0  # whose job the last one was,
        self._row = 0  # and how many in a row were theirs; below zero after a slow one
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(
        self,
        loop: AbstractEventLoop,
        work: Callable[[], Result],
        done: Callable[[Result | None, OSError | None], None],
        owner: int = 0,
    ) -> None:
        """Do the work and call `done` in the loop, with the result or with what the disk said. `owner` is a number for
        the session whose job this is, if it may run in the loop."""
        if self._alone(owner):
            start = perf_counter()
            try:
                result, error = _tried(work)
            except BaseException:  # an interrupt in the middle of a write: whoever waits must hear of it
                loop.call_soon(done, None, OSError("interrupted"))
                raise
            if perf_counter() - start > SLOW_SECONDS:
                self._row = -PATIENCE
            loop.call_soon(done, result, error)
            return

        def job() -> None:
            result, error = _tried(work)
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more, and the thread serves the next
                loop.call_soon_threadsafe(self._finish, done, result, error)

        self._busy += 1
        if self._started < min(self._busy, self._most):
            self._started += 1
            threading.Thread(target=self._serve, name=f"duragent-writer-{self._started}", daemon=True).start()
        self._jobs.put(job)

    def _alone(self, owner: int) -> bool:
        if not owner or (owner != self._last and self._row >= 0):
            self._row = min(self._row, 0)
        self._last = owner
        self._row += 1
        return bool(owner) and self._row > ALONE and not self._busy

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


def _tried(work: Callable[[], Result]) -> tuple[Result | None, OSError | None]:
    """What the work gave, or why it did not; nothing else gets out, or its log would wait for ever."""
    try:
        return work(), None
    except OSError as failed:
        return None, failed
    except Exception as failed:  # noqa: BLE001 - see above
        return None, OSError(f"{type(failed).__name__}: {failed}")
