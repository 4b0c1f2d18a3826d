"""One session at work: what is said to it gets on disk, wakes it, and it takes steps until it rests or waits.

Knows the sessions in memory and the engine; the verbs that doors use are in `runtime.py`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from duragent.core import events as ev
from duragent.core.turn import Rest, Wait, WaitUntil
from duragent.engine import advance
from duragent.errors import DuragentError
from duragent.following import Settled
from duragent.living import Live, Lives

STUBBORN_SECONDS = 10.0


class Worker:
    """Lets sessions work, each in a task of its own."""

    def __init__(self, lives: Lives, clock: Callable[[], datetime]) -> None:
        self._lives, self._clock = lives, clock
        lives.rouse = self.wake

    async def say(self, live: Live, event: ev.Event) -> int:
        """Record an event, wait until it is on disk, and see to it that the session is worked on."""
        try:
            seq = live.work.record(event).seq
            await live.log.flush()
        except DuragentError as error:
            live.failure = error
            await self.halt(live)  # its tools must have stopped before the session is opened anew
            await self._lives.discard(live, error)
            raise
        except asyncio.CancelledError:
            self.wake(live)  # whoever said it has gone, but it was said
            raise
        self.wake(live)
        return seq

    def wake(self, live: Live) -> None:
        if live.wake is not None:
            live.wake.set()
        if not self._lives.holds(live):
            return  # it has been let go; what was said is on disk, and `recover` carries it on
        if live.task is None and live.failure is None and not isinstance(live.work.next(), Rest | Wait):
            live.task = asyncio.get_running_loop().create_task(self._run(live))

    async def _run(self, live: Live) -> None:
        """Work until the session rests or waits for a person."""
        stopped = False
        try:
            while True:
                step = await advance(live.work)
                live.partial.clear()
                await self._keep(live)
                if isinstance(step, WaitUntil):
                    await self._sleep(live, step.at)
                elif isinstance(live.work.next(), Rest | Wait):  # a message may have come while the last was written
                    return
        except asyncio.CancelledError:
            if not live.cancelling:
                raise
            stopped = True
            with suppress(DuragentError):
                await self._write_cancelled(live)
        except DuragentError as error:
            await self._lives.discard(live, error)
        except Exception as error:  # noqa: BLE001 - a defect stops this session alone, and whoever waits hears of it
            failure = DuragentError(f"{live.id} could not go on: {type(error).__name__}: {error}")
            failure.__cause__ = error
            await self._lives.discard(live, failure)
        finally:
            live.partial.clear()
            live.task, live.cancelling = None, False
            live.touched = asyncio.get_running_loop().time()
            if stopped:
                self.wake(live)  # what was said while the end of the turn was written down
            if live.failure is None and live.task is None:
                live.tell(Settled(live.session.seq, live.session.waiting))

    async def _write_cancelled(self, live: Live) -> None:
        """Write down that a person stopped the turn, unless its answer was already there."""
        if live.session.owes_answer:
            live.work.record(self.cancelled(live))
        await live.log.flush()

    def cancelled(self, live: Live) -> ev.TurnStopped:
        return ev.TurnStopped("cancelled", "The turn was cancelled.", live.spoken, until=live.until)

    async def _sleep(self, live: Live, until: datetime) -> None:
        live.wake = asyncio.Event()
        try:
            await asyncio.wait_for(live.wake.wait(), max(0.0, (until - self._clock()).total_seconds()))
        except TimeoutError:
            pass
        finally:
            live.wake = None

    async def _keep(self, live: Live) -> None:
        """Write a snapshot, and shorten the log, once enough has happened: rarer the longer a session is."""
        if self._lives.grown(live):
            with suppress(DuragentError):
                await self._lives.keep(live)

    async def halt(self, live: Live) -> None:
        while (task := live.task) is not None:
            task.cancel()
            await self.over(live, task)

    async def done(self, live: Live) -> None:
        while (task := live.task) is not None:
            await self.over(live, task)

    async def over(self, live: Live, task: asyncio.Task[None]) -> None:
        seconds = STUBBORN_SECONDS if task.cancelling() else None
        done, _ = await asyncio.wait({task}, timeout=seconds)
        if not done:  # a tool that will not be cancelled holds nobody up: its session is given up as a crash leaves it
            live.task = None
            await self._lives.discard(
                live, DuragentError(f"{live.id}: a tool or a model does not let itself be stopped")
            )
        if live.task is task:  # it was cancelled before it began, so it could not say so itself
            live.task = None
