"""A thousand agents of all formats below one folder, examined in one process."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path

from bench.samples import SAMPLES, Sample
from bench.table import Row

from duragent.agentfiles import examine, find

AGENTS = 1_000
TARGET = 300


def build(root: Path, count: int) -> None:
    """At least `count` agents, the formats in turn. A lone .json file is not looked for below a folder."""
    made = 0
    for sample in cycle(each for each in SAMPLES if each.entry != "agent.json"):
        _write(root / f"{sample.format}-{made:04}", sample.files)
        made += _agents(sample)
        if made >= count:
            return


def _agents(sample: Sample) -> int:
    return sum(1 for name in sample.files if name == sample.manifest or (name.endswith(".agent") and sample.entry))


def _write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(0o755)


def validate_all(root: Path) -> tuple[int, int]:
    """How many agents were found, and how many of them are not ok."""
    found = [examine(path) for path in find(root)]
    wrong = [each for each in found if not each.ok]
    for each in wrong[:3]:
        print(each.path, *each.problems, sep="\n  ")
    return len(found), len(wrong)


def run(quick: bool) -> Iterator[Row]:
    """CPU seconds decide: it is one process that waits for nothing, and the neighbours' load is not ours."""
    count = 200 if quick else AGENTS
    wall = cpu = float("inf")
    with tempfile.TemporaryDirectory(prefix="duragent-bench-") as folder:
        build(Path(folder), count)
        for _ in range(2 if quick else 5):
            start, used = time.perf_counter(), time.process_time()
            found, wrong = validate_all(Path(folder))
            wall, cpu = min(wall, time.perf_counter() - start), min(cpu, time.process_time() - used)
    assert found >= count, f"only {found} of {count} agents were found"
    assert wrong == 0, f"{wrong} agents are not ok"
    rate = found / cpu
    ours, other = f"{rate:,.0f} agents per CPU second", f"{found / wall:,.0f} per second of wall time"
    yield Row(f"validate {found:,} agents", ours, other, "", f">= {TARGET}/s", rate >= TARGET)
