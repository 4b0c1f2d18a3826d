"""What a person waits for: whole processes, in turns, with everything compiled beforehand."""

import compileall
import contextlib
import io
import os
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.loading import SEED
from bench.table import Row, at_most

import duragent

VERSION_TARGET = 4.0
VALIDATE_TARGET = 0.8

Times = tuple[float, float]
"""Wall and CPU seconds of one process."""


def script(name: str) -> str | None:
    path = Path(sysconfig.get_path("scripts")) / name
    return str(path) if path.exists() else None


def compile_all() -> None:
    """PYTHONDONTWRITEBYTECODE may be set here; a program that is parsed anew each time measures nothing."""
    folders = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    folders.add(str(Path(duragent.__file__).parent))
    with contextlib.redirect_stdout(io.StringIO()):
        for folder in sorted(folders):
            compileall.compile_dir(folder, quiet=2)


def spawn(command: Sequence[str]) -> Times:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    assert process.stderr is not None
    said = process.stderr.read().decode(errors="replace")
    process.stderr.close()
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{' '.join(command)} ended with {process.returncode}: {said}"
    return wall, usage.ru_utime + usage.ru_stime


def medians(commands: dict[str, Sequence[str]], rounds: int) -> dict[str, Times]:
    for command in commands.values():
        spawn(command)  # once to warm the file cache
    times: dict[str, list[Times]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            times[name].append(spawn(command))
    return {
        name: (statistics.median(wall for wall, _ in each), statistics.median(cpu for _, cpu in each))
        for name, each in times.items()
    }


def run(quick: bool) -> Iterator[Row]:
    ours, theirs = script("duragent"), script("agentspec")
    if ours is None:
        yield Row("start-up", "the duragent command is not installed beside this interpreter", ok=False)
        return
    compile_all()
    commands: dict[str, Sequence[str]] = {
        "python": (sys.executable, "-c", "pass"),
        "version": (ours, "--version"),
        "validate": (ours, "validate", str(SEED)),
    }
    if theirs is not None:
        commands["reference"] = (theirs, "validate", str(SEED))
    found = medians(commands, 5 if quick else 31)
    yield from compare("duragent --version", found, "version", "python", "python -c pass", VERSION_TARGET)
    if theirs is None:
        said = f"{found['validate'][0] * 1e3:.0f} ms"
        yield Row("duragent validate, wall", said, "agentspec is not installed", "skipped", f"<= {VALIDATE_TARGET:g}x")
    else:
        yield from compare("duragent validate", found, "validate", "reference", "agentspec validate", VALIDATE_TARGET)


def compare(title: str, found: dict[str, Times], name: str, other: str, shown: str, target: float) -> Iterator[Row]:
    for index, clock in enumerate(("wall", "CPU")):
        mine, yours = found[name][index], found[other][index]
        said = f"{shown} {yours * 1e3:.1f} ms"
        yield at_most(f"{title}, {clock}", f"{mine * 1e3:.1f} ms", said, mine / yours, target)
