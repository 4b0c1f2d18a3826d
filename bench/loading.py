"""Load and fingerprint the published agentspec example: ours, the reference, and libyaml alone, in turns."""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import yaml
from bench.table import Row, at_least
from yaml._yaml import CParser
from yaml.events import StreamEndEvent

from duragent.agentspec import agent_hash, load_agent

DATA = Path(__file__).parent / "data"
SEED = DATA / "seed.agent"
FINGERPRINT = "ag1:3237f6d540af"
TARGET = 3.5


def ours() -> str:
    return agent_hash(load_agent(SEED))


def reference() -> Callable[[], str] | None:
    """The published implementation, if the `bench` extra is installed."""
    try:
        theirs = import_module("agentspec")
    except ImportError:
        return None
    return lambda: str(theirs.agent_hash(theirs.load_agent(str(SEED))))


def events_only() -> int:
    """What no reader built on libyaml can go below: its events for both files, thrown away."""
    count = 0
    for path in (SEED, DATA / "parent.agent"):
        parser = CParser(path.read_text(encoding="utf-8"))
        while type(parser.get_event()) is not StreamEndEvent:
            count += 1
    return count


def python_loader() -> object:
    """PyYAML's own safe_load, for scale."""
    return yaml.safe_load(SEED.read_text(encoding="utf-8"))


def best_in_turns(works: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, float]:
    """Seconds per call of each, A B A B …, the best round of each: noise only ever adds."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.perf_counter()
            for _ in range(calls):
                work()
            best[name] = min(best[name], (time.perf_counter() - start) / calls)
    return best


def run(quick: bool) -> Iterator[Row]:
    assert ours() == FINGERPRINT, f"the fingerprint of {SEED} is {ours()}, not {FINGERPRINT}"
    works: dict[str, Callable[[], object]] = {"ours": ours, "libyaml": events_only}
    theirs = reference()
    if theirs is not None:
        assert theirs() == FINGERPRINT, f"the reference gives {theirs()}, not {FINGERPRINT}"
        works["reference"] = theirs
    best = best_in_turns(works, *((8, 5) if quick else (40, 10)))
    said = f"{best['ours'] * 1e3:.2f} ms"
    if theirs is None:
        yield Row("load + fingerprint", said, "agentspec is not installed", "skipped", f">= {TARGET:g}x")
    else:
        other = f"reference {best['reference'] * 1e3:.2f} ms"
        yield at_least("load + fingerprint", said, other, best["reference"] / best["ours"], TARGET)
    share = best["libyaml"] / best["ours"]
    other = f"libyaml events {best['libyaml'] * 1e3:.2f} ms"
    yield Row("load + fingerprint, the bound", said, other, f"{share:.0%} of ours")
