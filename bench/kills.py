"""Kills a working process with SIGKILL at random moments, again and again, and looks from outside at what is left.

What must hold: every message that was acknowledged is in its log at its place; no call has had its effect twice, unless
its tool says that it may be repeated; every call that is reported as done has had its effect; every session opens. A call
that was cut off is reported as interrupted: that is counted, not forbidden. This is about losing the process; what the
kernel holds survives. `run_kills` is also used, with fewer kills, by tests/e2e.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.table import Row

ROOT = Path(__file__).resolve().parents[1]
EFFECTS, SESSIONS, REPEATABLE = "effects.txt", "sessions", "count_again"
FROM_START_SECONDS, FROM_ACKNOWLEDGEMENT_SECONDS = 0.08, 0.01
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class Report:
    """`lost`, `duplicates`, `unreadable` and `unfinished` must be 0; `faults` says what they are in words."""

    kills: int
    acknowledged: int
    lost: int
    duplicates: int
    unreadable: int
    in_doubt: int
    unfinished: int = 0
    turns: int = 0
    effects: int = 0
    repeated: int = 0  # effects that came again, of the tool that allows it
    seconds: float = 0.0
    faults: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        return not (self.lost or self.duplicates or self.unreadable or self.unfinished)


@dataclass
class _Heard:
    """What the workers have said."""

    acknowledged: dict[str, tuple[str, int]] = field(default_factory=dict)  # text → session and place
    opened: list[str] = field(default_factory=list)
    faults: dict[str, list[str]] = field(default_factory=lambda: {"unreadable": [], "unfinished": []})
    kills: int = 0


class _Nursery:
    """The warm process that forks workers, and what comes out of it, line by line."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.errors = (folder / "stderr.txt").open("wb")
        self.process = subprocess.Popen(
            (sys.executable, "-m", "bench.kill_worker"),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
        )
        assert self.process.stdin is not None and self.process.stdout is not None
        self.input, self.output, self.buffer = self.process.stdin, self.process.stdout, b""

    def start(self, mode: str, seed: str) -> int:
        self.input.write(f"{self.folder} {mode} {seed}\n".encode())
        self.input.flush()
        return int(self.line(PATIENCE_SECONDS).removeprefix("start "))

    def line(self, seconds: float) -> str:
        """The next line; "" when none has come in so long."""
        until = time.monotonic() + seconds
        while b"\n" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.output], [], [], left)[0]:
                return ""
            read = os.read(self.output.fileno(), 65536)
            if not read:
                raise RuntimeError(f"the nursery ended: {self.said()}")
            self.buffer += read
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode()

    def said(self) -> str:
        return (self.folder / "stderr.txt").read_text(encoding="utf-8", errors="replace")[-3000:]

    def close(self) -> None:
        self.input.close()
        self.process.wait(PATIENCE_SECONDS)
        self.output.close()
        self.errors.close()


def run_kills(count: int, seed: int, folder: Path) -> Report:
    """Start and kill `count` workers in `folder`, let a last one finish, and look at what is there."""
    folder = folder.resolve()
    (folder / SESSIONS).mkdir(parents=True, exist_ok=True)
    heard, chance, begun = _Heard(), Random(seed), time.monotonic()
    nursery = _Nursery(folder)
    try:
        for number in range(count):
            pid = nursery.start("work", f"{seed}-{number}")
            _await_the_moment(nursery, heard, chance)
            os.kill(pid, signal.SIGKILL)
            if _until_gone(nursery, heard, PATIENCE_SECONDS) != -signal.SIGKILL:
                raise RuntimeError(f"worker {number} ended by itself: {nursery.said()}")
            heard.kills += 1
        nursery.start("finish", f"{seed}-end")
        if _until_gone(nursery, heard, 10 * PATIENCE_SECONDS):
            raise RuntimeError(f"the last worker failed: {nursery.said()}")
    finally:
        nursery.close()
    return _inspect(folder, heard, time.monotonic() - begun)


def _await_the_moment(nursery: _Nursery, heard: _Heard, chance: Random) -> None:
    """Every other time a moment counted from the start, which may be while it opens or recovers; else one that is
    counted from some acknowledgement, so that a slow machine is hit in the middle of its turns as well."""
    if chance.random() < 0.5:
        _listen(nursery, heard, chance.random() * FROM_START_SECONDS)
        return
    wanted = len(heard.acknowledged) + chance.randint(1, 8)
    while len(heard.acknowledged) < wanted:
        line = nursery.line(PATIENCE_SECONDS)
        if not line or line.startswith("gone"):
            raise RuntimeError(f"a worker got stuck or ended by itself ({line}): {nursery.said()}")
        _note(heard, line)
    _listen(nursery, heard, chance.random() * FROM_ACKNOWLEDGEMENT_SECONDS)


def _listen(nursery: _Nursery, heard: _Heard, seconds: float) -> None:
    """Take in what is said until the moment comes, or the worker is gone by itself."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        line = nursery.line(left)
        if line.startswith("gone"):
            raise RuntimeError(f"a worker ended by itself ({line}): {nursery.said()}")
        _note(heard, line)


def _until_gone(nursery: _Nursery, heard: _Heard, seconds: float) -> int:
    while line := nursery.line(seconds):
        if line.startswith("gone"):
            return int(line.split()[2])
        _note(heard, line)
    raise RuntimeError(f"a worker has said nothing for {seconds} s: {nursery.said()}")


def _note(heard: _Heard, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if kind == "ack":
        session_id, seq, text = rest.split()
        heard.acknowledged[text] = (session_id, int(seq))
    elif kind == "opened":
        heard.opened.append(rest)
    elif kind in heard.faults and rest not in heard.faults[kind]:
        heard.faults[kind].append(rest)


def _inspect(folder: Path, heard: _Heard, seconds: float) -> Report:
    """Only json and the files: what the runtime thinks of them is not asked."""
    found: dict[str, list[tuple[str, int]]] = {}
    calls: dict[str, str] = {}
    outcomes: dict[str, str] = {}
    begun: set[str] = set()
    turns = 0
    for path in sorted((folder / SESSIONS).glob("session_*")):
        session_id = path.name
        for event in _events(path, heard):
            kind = event["type"]
            if kind == "session_start":
                begun.add(session_id)
            elif kind == "user_message":
                found.setdefault(event["content"], []).append((session_id, event["seq"]))
            elif kind == "assistant_response":
                turns += not event.get("tool_calls")
                calls |= {call["call_id"]: call["tool_name"] for call in event.get("tool_calls", ())}
            elif kind == "tool_result":
                outcomes[event["call_id"]] = event.get("outcome", "ok")
    path = folder / EFFECTS
    effects = Counter(path.read_text(encoding="ascii").split() if path.exists() else ())
    lost = [
        f"acknowledged and not there: {text} {where}"
        for text, where in heard.acknowledged.items()
        if where not in found.get(text, ())
    ]
    lost += [f"opened, and without a beginning: {each}" for each in heard.opened if each not in begun]
    lost += [f"done, and without effect: {call}" for call, how in outcomes.items() if how == "ok" and not effects[call]]
    twice = [f"{times} effects: {call}" for call, times in effects.items() if times > 1]
    repeated = sum(effects[call] - 1 for call in effects if calls.get(call) == REPEATABLE)
    double = [each for each in twice if calls.get(each.split()[-1]) != REPEATABLE]
    double += [f"said once, kept {len(places)} times: {text}" for text, places in found.items() if len(places) > 1]
    unreadable, unfinished = heard.faults["unreadable"], heard.faults["unfinished"]
    return Report(
        kills=heard.kills,
        acknowledged=len(heard.acknowledged) + len(heard.opened),
        lost=len(lost),
        duplicates=len(double),
        unreadable=len(unreadable),
        in_doubt=sum(how == "interrupted" for how in outcomes.values()),
        unfinished=len(unfinished),
        turns=turns,
        effects=effects.total(),
        repeated=repeated,
        seconds=seconds,
        faults=(*lost, *double, *unreadable, *unfinished),
    )


def _events(folder: Path, heard: _Heard) -> list[dict[str, Any]]:
    """What the log and its archive hold. A line may stand in both: the archive is written first. A last line without
    its end was being written when its process died, and never counted."""
    found: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("events*.jsonl")):
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                event = json.loads(line)
                found[event["seq"]] = event
            except (ValueError, KeyError) as error:
                heard.faults["unreadable"].append(f"{folder.name} {path.name}:{number}: {error}")
    if sorted(found) != list(range(1, len(found) + 1)):
        heard.faults["unreadable"].append(f"{folder.name}: its entries are not 1 to {len(found)}")
    return list(found.values())


def run(quick: bool) -> Iterator[Row]:
    count = 100 if quick else 1_000
    with tempfile.TemporaryDirectory(prefix="duragent-kills-") as folder:
        report = run_kills(count, seed=int(time.time()), folder=Path(folder))
    for fault in report.faults[:20]:
        print(fault, file=sys.stderr)
    ours = f"{report.acknowledged:,} acknowledged, {report.effects:,} effects, {report.in_doubt:,} in doubt"
    bad = (
        f"{report.lost} lost, {report.duplicates} twice, {report.unreadable} unreadable, {report.unfinished} unfinished"
    )
    title = f"kill -9 at {report.kills:,} random moments"
    yield Row(title, ours, f"{report.seconds:.0f} s", bad, "all 0", report.clean and report.kills == count)


def main() -> int:
    """`python -m bench.kills COUNT SEED`"""
    count, seed = (int(each) for each in (*sys.argv[1:], "50", "1")[:2])
    with tempfile.TemporaryDirectory(prefix="duragent-kills-") as folder:
        report = run_kills(count, seed, Path(folder))
    print(report)
    return 0 if report.clean else 1


if __name__ == "__main__":
    sys.exit(main())
