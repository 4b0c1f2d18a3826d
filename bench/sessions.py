"""What a session costs: our runtime and the floor, in turns, each time in a fresh process.

Every figure with a limit is a ratio between two things of the same run, or a count of bytes. Each workload is its own
name for `--only`; `sessions` stands for all of them.
"""

from collections.abc import Callable, Iterator

from bench import kills, opening
from bench.fake_model import DELTAS, ROUNDS, serving
from bench.first_turn import run as first_turn
from bench.measure import Figures, Options, in_turns, least, measure, middle, most
from bench.table import Row, at_least, at_most
from msgspec.structs import replace


def _sides(
    workload: str, options: Options, floor: Options | None = None, module: str = "ours"
) -> dict[str, Callable[[], Figures]]:
    return {
        "floor": lambda: measure("floor", workload, floor or options),
        "ours": lambda: measure(module, workload, options),
    }


def plain(quick: bool) -> Iterator[Row]:
    """A message, one call of the model, its answer. Also how many bytes that leaves on the disk."""
    with serving() as url:
        options = Options(url=f"{url}/plain", sessions=10, turns=10, rounds=3 if quick else 8)
        found = in_turns(_sides("plain", options), 2 if quick else 5)
    ours, floor = least(found["ours"], "cpu"), least(found["floor"], "cpu")
    yield at_most("plain turn, CPU", _ms(ours), _ms(floor), ours / floor, 3.0)
    size, bare = middle(found["ours"], "bytes"), middle(found["floor"], "bytes")
    yield Row("bytes of log per plain turn", f"{size:.0f}", f"{bare:.0f}", "", "<= 700", size <= 700, size / 700)
    whole = middle(found["ours"], "folder_bytes")
    yield Row("the same with snapshot and lock, sessions of 10 turns", f"{whole:.0f}")


def tools(quick: bool) -> Iterator[Row]:
    """Five rounds of one call each of a function that does nothing, then the answer."""
    with serving() as url:
        options = Options(url=f"{url}/tools", sessions=10, turns=2, rounds=3 if quick else 8)
        found = in_turns(_sides("tools", options), 2 if quick else 5)
    ours, floor = least(found["ours"], "cpu"), least(found["floor"], "cpu")
    yield at_most(f"turn with {ROUNDS} tool calls, CPU", _ms(ours), _ms(floor), ours / floor, 2.4)


def concurrent(quick: bool) -> Iterator[Row]:
    """Many sessions at once, every event of each on the disk before it counts."""
    with serving() as url:
        options = Options(url=f"{url}/plain", sessions=64, turns=20, rounds=1 if quick else 3)
        sides = _sides("concurrent", options, floor=replace(options, sync=True))
        sides["bare"] = lambda: measure("floor", "concurrent", options)
        found = in_turns(sides, 2 if quick else 5)
    ours, floor = most(found["ours"], "turns_per_second"), most(found["floor"], "turns_per_second")
    title = f"{options.sessions} sessions x {options.turns} turns at once, durable"
    yield at_least(title, f"{ours:,.0f} turns/s", f"{floor:,.0f} turns/s, synced", ours / floor, 0.8)
    bare = most(found["bare"], "turns_per_second")
    yield Row(
        "the same against a floor that never syncs",
        f"{ours:,.0f} turns/s",
        f"{bare:,.0f} turns/s",
        f"{ours / bare:.2f}x",
    )
    used, bare_used = least(found["ours"], "cpu"), least(found["floor"], "cpu")
    yield Row("the same, CPU per turn", _ms(used), f"{_ms(bare_used)}, synced", f"{used / bare_used:.2f}x")


def relay(quick: bool) -> Iterator[Row]:
    """One long answer, from the provider's stream to a follower of the session."""
    with serving() as url:
        options = Options(url=f"{url}/deltas", rounds=3 if quick else 10)
        found = in_turns(_sides("relay", options), 2 if quick else 5)
    ours, floor = (most(found[side], "deltas_per_cpu_second") for side in ("ours", "floor"))
    title = f"relaying {DELTAS:,} deltas, per CPU second"
    yield at_least(title, f"{ours:,.0f}", f"{floor:,.0f}", ours / floor, 0.4)
    ours, floor = (most(found[side], "deltas_per_second") for side in ("ours", "floor"))
    yield Row("the same, per second of wall time", f"{ours:,.0f}", f"{floor:,.0f}", f"{ours / floor:.2f}x")


def growth(quick: bool) -> Iterator[Row]:
    """Whether a turn costs more because many came before it."""
    turns = 1_000 if quick else 3_000
    with serving() as url:
        options = Options(url=f"{url}/plain", turns=turns)
        sides = _sides("growth", options)
        whole = replace(options, whole=True)
        sides["whole"] = lambda: measure("ours", "growth", whole)
        found = in_turns(sides, 1 if quick else 3)
    title = f"turn {turns:,} / turn 10, CPU"
    said, ratio = _grown(found["ours"])
    yield Row(f"{title}, default history budget", said, "", f"{ratio:.2f}x", "<= 1.5x", ratio <= 1.5, ratio / 1.5)
    said, ratio = _grown(found["whole"])
    other, limit = _grown(found["floor"])
    yield at_most(f"{title}, whole history shown", said, f"{other}: {limit:.2f}x", ratio, limit)


def _grown(figures: list[Figures]) -> tuple[str, float]:
    """The best late and the best early turn of all processes, in words and as a ratio."""
    late, early = least(figures, "late"), least(figures, "early")
    return f"{_ms(late)} / {_ms(early)}", late / early


def memory(quick: bool) -> Iterator[Row]:
    """What sessions that are open and at rest hold, and what is left of it once they have been idle."""
    with serving() as url:
        options = Options(url=f"{url}/plain", sessions=500 if quick else 2_000, turns=5)
        found = in_turns(_sides("memory", options), 1)
    ours, floor = least(found["ours"], "each"), least(found["floor"], "each")
    title = f"{options.sessions:,} open sessions of {2 * options.turns} messages, memory each"
    yield Row(title, _kb(ours), _kb(floor), f"{ours / floor:.1f}x", "<= 12 kB", ours <= 12_000, ours / 12_000)
    left = least(found["ours"], "idle")
    yield Row("held by each after idling out", _kb(left), "", "", "<= 1 kB", left <= 1_000, left / 1_000)
    yield Row("pages the allocator keeps for the next sessions, each", _kb(least(found["ours"], "pages")))


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms"


def _kb(size: float) -> str:
    return f"{size / 1e3:.1f} kB"


WORKLOADS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "plain": plain,
    "tools": tools,
    "concurrent": concurrent,
    "relay": relay,
    "growth": growth,
    "memory": memory,
    "first-turn": first_turn,
    "opening": opening.opening,
    "appends": opening.appends,
    "kills": kills.run,
}
