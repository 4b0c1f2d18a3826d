"""One measured row, and how rows are printed and kept. Knows nothing about what was measured."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"
_HEAD = ("workload", "ours", "other", "ratio", "target", "verdict")
FLOOR_HEAD = ("workload", "ours", "floor", "ratio", "must reach", "ok")


@dataclass(frozen=True)
class Row:
    """`ok` is None for what is only reported, or could not be compared. `share` is how much of what is allowed was
    used, for the plot: 1 is the limit, and less is better."""

    workload: str
    ours: str
    other: str = ""
    ratio: str = ""
    target: str = ""
    ok: bool | None = None
    share: float | None = None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: "-"}[self.ok]

    def cells(self) -> tuple[str, ...]:
        return (self.workload, self.ours, self.other, self.ratio, self.target, self.verdict)


def at_least(workload: str, ours: str, other: str, ratio: float, target: float) -> Row:
    return Row(workload, ours, other, f"{ratio:.2f}x", f">= {target:g}x", ratio >= target, target / ratio)


def at_most(workload: str, ours: str, other: str, ratio: float, target: float) -> Row:
    return Row(workload, ours, other, f"{ratio:.2f}x", f"<= {target:.3g}x", ratio <= target, ratio / target)


def as_markdown(rows: Sequence[Row], head: tuple[str, ...] = _HEAD) -> str:
    table = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(head))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]) + "\n"


def machine() -> str:
    """What it was measured on: Python, system, processor and its cores."""
    parts = [f"Python {platform.python_version()}", f"{platform.system()} {platform.machine()}"]
    return ", ".join([*parts, f"{os.cpu_count()} cores{_processor()}"])


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f" ({names[0]})" if names else ""


def keep(
    rows: Sequence[Row], *, quick: bool, name: str = "results", title: str = "", head: tuple[str, ...] = _HEAD
) -> None:
    """The rows as Markdown, beginning with `title` if there is one, and as JSON."""
    OUT.mkdir(exist_ok=True)
    note = " (quick run: fewer rounds, figures are rough)" if quick else ""
    text = f"{title}{machine()}{note}\n\n{as_markdown(rows, head)}"
    (OUT / f"{name}.md").write_text(text, encoding="utf-8")
    found = {"machine": machine(), "quick": quick, "rows": [asdict(row) | {"verdict": row.verdict} for row in rows]}
    (OUT / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
