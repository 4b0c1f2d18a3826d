"""How figures are taken: a fresh process for each, ours and the floor in turns, CPU time of the working process alone.

The best of several rounds counts: whatever else the machine does can only add to it.
"""

import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from bench.fake_model import run_loop
from msgspec import Struct, convert, to_builtins

ROOT = Path(__file__).resolve().parents[1]
PROMPT = "How do you do today?"
TOOL_TEXT = "counted"
PAGE = resource.getpagesize()

Figures = dict[str, float]
Turn = Callable[[], Awaitable[object]]


class Options(Struct, frozen=True, kw_only=True):
    """What a working process is told. `place` is a folder of its own, and empty."""

    url: str = ""
    place: str = ""
    sync: bool = False
    rounds: int = 5
    turns: int = 20
    sessions: int = 1
    whole: bool = False
    quick: bool = False

    @property
    def folder(self) -> Path:
        return Path(self.place)


def worker(workloads: Mapping[str, Callable[[Options], Coroutine[Any, Any, Figures]]]) -> None:
    """The main program of a working process: `WORKLOAD OPTIONS`."""
    options = convert(json.loads(sys.argv[2]), Options)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    async def main() -> None:
        figures = await workloads[sys.argv[1]](options)
        print(json.dumps(figures), flush=True)

    run_loop(main())


def measure(module: str, workload: str, options: Options) -> Figures:
    """The figures of one fresh process with a folder of its own, on the disk that holds the project."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=scratch()) as folder:
        told = to_builtins(options) | {"place": folder}
        command = (sys.executable, "-m", f"bench.{module}", workload, json.dumps(told))
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{module} {workload} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def scratch() -> Path:
    """A folder on a real disk: many machines hold /tmp in memory, where a sync costs nothing."""
    folder = ROOT / "bench" / "out" / "scratch"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def in_turns(sides: Mapping[str, Callable[[], Figures]], rounds: int) -> dict[str, list[Figures]]:
    """Floor, ours, floor, ours … so that a busy moment hits both."""
    found: dict[str, list[Figures]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            found[name].append(side())
    return found


def least(figures: list[Figures], name: str) -> float:
    return min(each[name] for each in figures)


def most(figures: list[Figures], name: str) -> float:
    return max(each[name] for each in figures)


def middle(figures: list[Figures], name: str) -> float:
    return statistics.median(each[name] for each in figures)


async def best_cpu(conversation: Callable[[str], Awaitable[Turn]], options: Options) -> float:
    """CPU seconds per turn: each round opens `sessions` conversations and has `turns` turns in each. The best round
    counts, after one to warm up; opening is not counted."""
    best = float("inf")
    for round in range(options.rounds + 1):
        opened = [await conversation(f"{round}-{number}") for number in range(options.sessions)]
        gc.collect()
        used = time.process_time()
        for turn in opened:
            for _ in range(options.turns):
                await turn()
        if round:
            best = min(best, (time.process_time() - used) / options.turns / options.sessions)
    return best


async def wall_of(ready: Callable[[int], Awaitable[Turn]], options: Options) -> tuple[float, float]:
    """Wall and CPU seconds of the best of `rounds`, after one to warm up. What `ready` does is not counted."""
    wall = cpu = float("inf")
    for round in range(options.rounds + 1):
        work = await ready(round)
        gc.collect()
        start, used = time.perf_counter(), time.process_time()
        await work()
        if round:
            wall, cpu = min(wall, time.perf_counter() - start), min(cpu, time.process_time() - used)
    return wall, cpu


EARLY = slice(5, 15)
"""The turns around turn 10."""
WINDOW, WINDOWS = 20, 5


async def cpu_of_turns(conversation: Callable[[str], Awaitable[Turn]], options: Options) -> Figures:
    """CPU seconds of turn 10 and of turn `turns` of one conversation: the best of five medians, of five short
    conversations and of the last hundred turns of a long one. One short one before that is to warm up."""
    early = [await _costs(await conversation(f"early-{number}"), EARLY.stop) for number in range(WINDOWS + 1)]
    late = await _costs(await conversation("late"), options.turns)
    first = min(statistics.median(costs[EARLY]) for costs in early[1:])
    ends = range(len(late), len(late) - WINDOW * WINDOWS, -WINDOW)
    last = min(statistics.median(late[end - WINDOW : end]) for end in ends)
    return {"early": first, "late": last}


async def _costs(turn: Turn, turns: int) -> list[float]:
    costs: list[float] = []
    for _ in range(turns):
        used = time.process_time()
        await turn()
        costs.append(time.process_time() - used)
    return costs


def resident() -> int:
    """Bytes of memory this process really holds, after everything that is garbage has gone."""
    for _ in range(3):
        gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE


def folder_size(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.rglob("*") if path.is_file())
