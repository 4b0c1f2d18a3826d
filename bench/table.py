"""One measured row, and how rows are printed and kept. Knows nothing about what was measured."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

OUT = Path(__file__).parent / "out"
_HEAD = ("workload", "ours", "other", "ratio", "target", "verdict")


@dataclass(frozen=True)
class Row:
    """`ok` is None for what is only reported, or could not be compared."""

    workload: str
    ours: str
    other: str = ""
    ratio: str = ""
    target: str = ""
    ok: bool | None = None

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: "-"}[self.ok]

    def cells(self) -> tuple[str, ...]:
        return (self.workload, self.ours, self.other, self.ratio, self.target, self.verdict)


def at_least(workload: str, ours: str, other: str, ratio: float, target: float) -> Row:
    return Row(workload, ours, other, f"{ratio:.2f}x", f">= {target:g}x", ratio >= target)


def at_most(workload: str, ours: str, other: str, ratio: float, target: float) -> Row:
    return Row(workload, ours, other, f"{ratio:.2f}x", f"<= {target:g}x", ratio <= target)


def as_markdown(rows: Sequence[Row]) -> str:
    table = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEAD))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]]) + "\n"


def machine() -> str:
    return f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"


def keep(rows: Sequence[Row], *, quick: bool) -> None:
    OUT.mkdir(exist_ok=True)
    note = " (quick run: fewer rounds, figures are rough)" if quick else ""
    (OUT / "results.md").write_text(f"{machine()}{note}\n\n{as_markdown(rows)}", encoding="utf-8")
    found = {"machine": machine(), "quick": quick, "rows": [asdict(row) | {"verdict": row.verdict} for row in rows]}
    (OUT / "results.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
