"""The plot of a run: how much of what each workload may cost is used. Needs matplotlib, which the `bench` extra brings."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.table import Row

INK, FAINT, MET, MISSED = "#1f2933", "#9aa5b1", "#3b7a57", "#c0392b"


def draw(rows: Sequence[Row], path: Path, machine: str) -> bool:
    """Write the plot to `path`; False where matplotlib is not installed or there is nothing to show."""
    shown = [row for row in rows if row.share is not None]
    try:
        matplotlib = import_module("matplotlib")
    except ImportError:
        return False
    if not shown:
        return False
    matplotlib.use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(figsize=(9, 0.9 + 0.42 * len(shown)), dpi=150)
    shares = [min(row.share or 0.0, 1.6) for row in shown]
    places = range(len(shown))
    axes.barh(places, shares, height=0.6, color=[MET if row.ok else MISSED for row in shown])
    axes.axvline(1, color=INK, linewidth=1.2)
    axes.text(1, -0.85, "limit", ha="center", va="bottom", fontsize=8, color=INK)
    for place, (row, share) in enumerate(zip(shown, shares, strict=True)):
        figure_of = row.ratio if row.target.endswith("x") else row.ours
        said = f"{figure_of}  (must be {row.target})".replace("<=", "≤").replace(">=", "≥")
        behind = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}  # so that the limit does not cross it
        axes.text(share + 0.015, place, said, va="center", fontsize=8, color=INK, bbox=behind)
    axes.set_yticks(list(places), [row.workload for row in shown], fontsize=8.5)
    axes.invert_yaxis()
    axes.set_xlim(0, max(1.75, *(share + 0.6 for share in shares)))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"], fontsize=8)
    axes.set_xlabel("share of what is allowed, less is better", fontsize=8.5, loc="left")
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    figure.text(0.995, 0.01, machine, ha="right", fontsize=6.5, color=FAINT)
    figure.savefig(path, bbox_inches="tight", metadata={"Software": None})
    pyplot.close(figure)
    return True
