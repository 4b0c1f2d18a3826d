"""Load and fingerprint the published agentspec example: ours, the reference, and libyaml alone, in turns."""

import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from bench.table import Row, at_least
from yaml._yaml import CParser
from yaml.events import StreamEndEvent

from duragent.agentfiles import load
from duragent.agentspec import agent_hash, load_agent
from duragent.formats import agentspec
from duragent.formats.shape import File, Files
from duragent.formats.yaml import parse_yaml

DATA = Path(__file__).parent / "data"
SEED, PARENT = DATA / "seed.agent", DATA / "parent.agent"
FINGERPRINT = "ag1:3237f6d540af"
TARGET = 3.5
_FILES = Files(SEED.name, {path.name: File(path.read_text(encoding="utf-8")) for path in (SEED, PARENT)})


def ours() -> str:
    """The effective agent: the manifest, its base, inheritance, origins. More than the reference's load does."""
    return agent_hash(load(SEED))


def declared() -> str:
    """The manifest alone, which is what the reference loads."""
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
    for path in (SEED, PARENT):
        parser = CParser(path.read_text(encoding="utf-8"))
        while type(parser.get_event()) is not StreamEndEvent:
            count += 1
    return count


def nodes_only() -> None:
    """The same events as values with positions: our YAML layer."""
    for path in (SEED, PARENT):
        parse_yaml(path.read_text(encoding="utf-8"), "1.1")


def format_only() -> object:
    """The format without the disk: YAML, fields, inheritance, fingerprint, the agent."""
    return agentspec.parse(_FILES)


def best_in_turns(works: dict[str, Callable[[], object]], rounds: int, calls: int) -> dict[str, float]:
    """CPU seconds per call of each, A B A B …, the best round of each: noise only ever adds."""
    best = dict.fromkeys(works, float("inf"))
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            for _ in range(calls):
                work()
            best[name] = min(best[name], (time.process_time() - start) / calls)
    return best


def run(quick: bool) -> Iterator[Row]:
    assert ours() == FINGERPRINT, f"the fingerprint of {SEED} is {ours()}, not {FINGERPRINT}"
    parts = {"libyaml's events": events_only, "YAML with positions": nodes_only, "the format": format_only}
    works: dict[str, Callable[[], object]] = {"ours": ours, "declared": declared, **parts}
    theirs = reference()
    if theirs is not None:
        assert theirs() == FINGERPRINT, f"the reference gives {theirs()}, not {FINGERPRINT}"
        works["reference"] = theirs
    best = best_in_turns(works, *((8, 5) if quick else (60, 10)))
    for name, shown in (("ours", "load + fingerprint"), ("declared", "the same, without its base")):
        said = f"{best[name] * 1e3:.2f} ms"
        if theirs is None:
            yield Row(shown, said, "agentspec is not installed", "skipped", f">= {TARGET:g}x")
        else:
            other = f"reference {best['reference'] * 1e3:.2f} ms"
            yield at_least(shown, said, other, best["reference"] / best[name], TARGET)
    for name in parts:
        yield Row(f"of which {name}", f"{best[name] * 1e3:.2f} ms", "", f"{best[name] / best['ours']:.0%}")
