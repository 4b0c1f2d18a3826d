"""`python -m bench`: everything that is promised about speed, measured here and now.

Every figure with a target is a ratio between two things measured in the same run, in turns, or a count.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __package__ in (None, ""):  # `python bench`
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import fuzz, loading, startup, table, workspace

WORKLOADS: dict[str, Callable[[bool], Iterator[table.Row]]] = {
    "loading": loading.run,
    "workspace": workspace.run,
    "startup": startup.run,
    "fuzz": fuzz.run,
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds: a minute instead of several")
    parser.add_argument("--only", choices=list(WORKLOADS), action="append", help="run one workload (may be repeated)")
    options = parser.parse_args(arguments)
    rows: list[table.Row] = []
    for name in options.only or WORKLOADS:
        print(f"{name} …", file=sys.stderr, flush=True)
        rows.extend(WORKLOADS[name](options.quick))
    table.keep(rows, quick=options.quick)
    print(table.as_markdown(rows), end="")
    return 1 if any(row.ok is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
