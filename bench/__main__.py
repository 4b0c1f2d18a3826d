"""`python -m bench`: everything that is promised about speed, measured here and now.

Every figure with a target is a ratio between two things measured in the same run, in turns, or a count.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):  # `python bench`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import fuzz, hands, loading, plot, sessions, startup, table, workspace

Workload = Callable[[bool], Iterator[table.Row]]
FORMATS: dict[str, Workload] = {
    "loading": loading.run,
    "workspace": workspace.run,
    "startup": startup.run,
    "fuzz": fuzz.run,
}
GROUPS: dict[str, dict[str, Workload]] = {"formats": FORMATS, "sessions": sessions.WORKLOADS, "hands": hands.WORKLOADS}
PLOT = Path(__file__).resolve().parents[1] / "docs" / "performance.png"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    wanted = options.only or list(GROUPS)
    missed = False
    for group, workloads in GROUPS.items():
        names = [name for name in workloads if name in wanted or group in wanted]
        rows: list[table.Row] = []
        for name in names:
            rows.extend(measured(name, workloads[name], options.quick))
        if rows:
            show(group, rows, quick=options.quick, complete=len(names) == len(workloads))
        missed = missed or any(row.ok is False for row in rows)
    return 1 if missed else 0


def measured(name: str, workload: Workload, quick: bool) -> Iterator[table.Row]:
    """The rows of a workload, shown as they come. One that fails is a row, too: the others are still wanted."""
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        for row in workload(quick):
            print("  " + " | ".join(filter(None, row.cells())), file=sys.stderr, flush=True)
            yield row
    except (RuntimeError, AssertionError) as error:
        print(error, file=sys.stderr)
        yield table.Row(name, "it failed, see above", ok=False)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: minutes instead of a quarter of an hour")
    names = [*GROUPS, *(name for group in GROUPS.values() for name in group)]
    parser.add_argument("--only", choices=names, action="append", help="one workload, or a group (may be repeated)")
    return parser


def show(group: str, rows: Sequence[table.Row], *, quick: bool, complete: bool) -> None:
    """Print the rows and keep them; the plot in the documents is only replaced by a full run."""
    if group == "formats":
        table.keep(rows, quick=quick)
        print(table.as_markdown(rows))
        return
    table.keep(rows, quick=quick, name=group, head=table.FLOOR_HEAD)
    print(table.as_markdown(rows, table.FLOOR_HEAD))
    if group != "sessions":
        return
    path = PLOT if complete and not quick else table.OUT / PLOT.name
    if plot.draw(rows, path, table.machine()):
        print(f"{path} shows how much of what is allowed is used.", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
