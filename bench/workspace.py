"""A thousand agents of all formats below one folder, examined in one process."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from bench import samples
from bench.table import Row
from duragent.agentfiles import examine, find

AGENTS = 1_000
TARGET = 300


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def build(root: Path, count: int) -> None:
    """Equal parts of the five formats, each agent with a name of its own."""
    makers: list[Callable[[], samples.Sample]] = list(samples.ALL.values())
    for index in range(count):
        sample = makers[index % len(makers)]()
        folder = root / f"{sample.format}-{index:04}"
        write(folder, {name: text.replace("sample-agent", f"agent-{index}") for name, text in sample.files.items()})


def validate_all(root: Path) -> tuple[int, int]:
    """How many agents were found, and how many of them are not ok."""
    found = [examine(path) for path in find(root)]
    wrong = [each for each in found if not each.ok]
    for each in wrong[:3]:
        print(each.path, *each.problems, sep="\n  ")
    return len(found), len(wrong)


def run(quick: bool) -> Iterator[Row]:
    count = 200 if quick else AGENTS
    best = float("inf")
    with tempfile.TemporaryDirectory(prefix="duragent-bench-") as folder:
        build(Path(folder), count)
        for _ in range(2 if quick else 5):
            start = time.perf_counter()
            found, wrong = validate_all(Path(folder))
            best = min(best, time.perf_counter() - start)
    assert (found, wrong) == (count, 0), f"{found} of {count} agents were found, {wrong} are not ok"
    rate = count / best
    yield Row(f"validate {count:,} agents", f"{rate:,.0f} agents/s", "", "", f">= {TARGET} agents/s", rate >= TARGET)
