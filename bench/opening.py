"""The store alone: opening a very long session, and how fast events become durable. Reported, without limits.

`python -m bench.opening WORKLOAD '{"place": …}'` is one fresh process and prints its figures as JSON.
"""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bench.fake_model import PLAIN_TEXT
from bench.measure import PROMPT, Figures, Options, in_turns, measure, most, worker
from bench.table import Row

from duragent.core.events import (
    AssistantResponse,
    Entry,
    Event,
    ModelCalled,
    SessionStart,
    Usage,
    UserMessage,
    render_entry,
)
from duragent.store import SessionLog
from duragent.store.files import FileStore

EVENTS = 100_000
AT_ONCE = 64
_LONG = "session_00000000000000000000000001"


def _ignore(entries: object) -> None: ...


def _now() -> datetime:
    return datetime.now(UTC)


async def keep(log: SessionLog, events: Sequence[Event]) -> None:
    """Returns when all of them are on disk."""
    for event in events:
        log.stage(event, _now())
    await log.flush()


def _event(number: int) -> Event:
    match number % 3:
        case 0:
            return UserMessage(PROMPT)
        case 1:
            return ModelCalled("openai/fake")
        case _:
            return AssistantResponse("bench", PLAIN_TEXT, usage=Usage(20, 8, 28))


async def build(folder: Path, events: int) -> None:
    """A session of so many events, with a snapshot of its last one."""
    store = FileStore(folder)
    log = store.create(_LONG, _ignore)
    await keep(log, [SessionStart("bench")])
    for first in range(0, events - 1, 1_000):
        await keep(log, [_event(number) for number in range(first, min(first + 1_000, events - 1))])
    await log.release()
    log, stored = store.open(_LONG, _ignore)
    await log.snapshot(stored.session)
    await log.release()
    store.close()


async def open_long(options: Options) -> Figures:
    await build(options.folder, options.turns)
    state = options.folder / _LONG / "state.yaml"
    figures = {"log_bytes": float((state.parent / "events.jsonl").stat().st_size)}
    figures["snapshot_bytes"] = float(state.stat().st_size)
    for name in ("with", "without"):
        found = []
        for _ in range(options.rounds):
            gc.collect()
            start, used = time.perf_counter(), time.process_time()
            store = FileStore(options.folder)
            log, stored = store.open(_LONG, _ignore)
            found.append((time.perf_counter() - start, time.process_time() - used))
            assert stored.session.seq == options.turns, f"{stored.session.seq} of {options.turns}: {stored.notes}"
            await log.release()
            store.close()
            del log, stored
        figures |= {f"{name}_wall": min(wall for wall, _ in found), f"{name}_cpu": min(cpu for _, cpu in found)}
        state.unlink(missing_ok=True)
    return figures


def opening(quick: bool) -> Iterator[Row]:
    events = 10_000 if quick else EVENTS
    found = measure("opening", "open_long", Options(turns=events, rounds=2 if quick else 5))
    for name, size in (("with", found["snapshot_bytes"]), ("without", found["log_bytes"])):
        said = f"{found[f'{name}_wall'] * 1e3:.0f} ms, {found[f'{name}_cpu'] * 1e3:.0f} ms CPU"
        yield Row(f"opening a session of {events:,} events, {name} snapshot", said, f"{size / 1e6:.1f} MB read")


async def append(options: Options) -> Figures:
    """Events made durable per second: one after the other, in many sessions at once, and many at once in one."""
    store = FileStore(options.folder)
    logs = [store.create(f"session_{number:026}", _ignore) for number in range(2, AT_ONCE + 2)]
    event = UserMessage(PROMPT)

    async def one_by_one(log: SessionLog) -> None:
        for _ in range(options.turns):
            await keep(log, [event])

    async def many_sessions() -> None:
        await asyncio.gather(*(one_by_one(log) for log in logs))

    async def together() -> None:
        for _ in range(options.turns):
            await asyncio.gather(*(keep(logs[0], [event]) for _ in range(AT_ONCE)))

    figures = {
        "serial": await _rate(lambda: one_by_one(logs[0]), options.turns, options.rounds),
        "sessions": await _rate(many_sessions, options.turns * AT_ONCE, options.rounds),
        "together": await _rate(together, options.turns * AT_ONCE, options.rounds),
    }
    for log in logs:
        await log.release()
    store.close()
    return figures


async def append_bare(options: Options) -> Figures:
    """write and fdatasync, and nothing else: what the disk gives right now."""
    line = render_entry(Entry(1, "2026-01-01T00:00:00.000Z", UserMessage(PROMPT))) + b"\n"
    file = os.open(options.folder / "bare.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def bare() -> None:
        for _ in range(options.turns):
            os.write(file, line)
            os.fdatasync(file)

    figures = {"serial": await _rate(bare, options.turns, options.rounds)}
    os.close(file)
    return figures


async def _rate(work: Callable[[], Awaitable[object]], events: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        start = time.perf_counter()
        await work()
        best = min(best, time.perf_counter() - start)
    return events / best


def appends(quick: bool) -> Iterator[Row]:
    options = Options(turns=50 if quick else 200, rounds=2 if quick else 3)
    sides = {"floor": lambda: measure("opening", "append_bare", options)}
    sides["ours"] = lambda: measure("opening", "append", options)
    found = in_turns(sides, 2 if quick else 3)
    floor = most(found["floor"], "serial")
    for name, title in (
        ("serial", "one after the other"),
        ("sessions", f"in {AT_ONCE} sessions at once"),
        ("together", f"{AT_ONCE} waiting at once in one session"),
    ):
        rate = most(found["ours"], name)
        said = f"write + fdatasync {floor:,.0f}/s"
        yield Row(f"events made durable, {title}", f"{rate:,.0f}/s", said, f"{rate / floor:.2f}x")


WORKLOADS = {"open_long": open_long, "append": append, "append_bare": append_bare}

if __name__ == "__main__":
    worker(WORKLOADS)
