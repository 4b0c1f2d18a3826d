"""Hands broken manifests to every format and looks for what must never happen.

An exception; an answer that takes more than a second of CPU time; a refusal without an error; a problem that stands
nowhere or cannot be printed; another answer when a format goes on from where it stopped than when it starts over.
Everything happens in memory. One case again: `python -m bench.fuzz agentspec 1234`.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random

from bench.mutate import broken
from bench.samples import FORMATS, SAMPLES, Sample
from bench.table import Row

from duragent.formats import open_format
from duragent.formats.shape import Absent, Blob, Entry, File, Files, Folder, Need, Parsed, Why

CASES = 20_000
SLOW_SECONDS = 1.0
HANG_SECONDS = 20
WRITTEN = 10
"""Of so many cases one is also read from the start each time, and written: both cost more than reading."""

_WHYS: tuple[Why, ...] = ("outside", "folder", "special", "unreadable", "encoding", "nul", "large", "refused")


@dataclass(frozen=True)
class Finding:
    format: str
    seed: int
    what: str
    text: str

    @property
    def kind(self) -> str:
        """What makes two findings the same one: where it was raised, not the values in it."""
        lines = [line for line in self.what.split("\n") if line.startswith("  File ")]
        return "".join(lines) or self.what.split(":")[0]


@dataclass(frozen=True)
class Outcome:
    """`accepted` and `refused` together are the cases; both must occur, or the fuzzer misses the format."""

    accepted: int
    refused: int
    seconds: float
    slowest: float
    findings: tuple[Finding, ...]


def case(format: str, seed: int) -> tuple[Sample, dict[str, Entry], str]:
    """The files of one case, and the text that was broken."""
    rng = Random(f"{format}:{seed}")
    sample = rng.choice([each for each in SAMPLES if each.format == format])
    target = sample.manifest if rng.random() < 0.6 else rng.choice(list(sample.files))
    tree: dict[str, Entry] = {name: File(text) for name, text in sample.files.items()}
    text = broken(rng, sample.files[target])
    tree[target] = File(text)
    if rng.random() < 0.1 and (others := [name for name in tree if name != sample.manifest]):
        tree[rng.choice(others)] = Absent(rng.choice(_WHYS))
    return sample, tree, f"# {target}\n{text}"


def look(tree: Mapping[str, Entry], need: Need) -> dict[str, Entry]:
    """What `need` asks for, as `agentfiles` would find it on a disk that holds only `tree`."""
    found = {path: tree.get(path, Absent("missing")) for path in need.files | need.elsewhere}
    for path in need.blobs | need.attached:
        entry = tree.get(path, Absent("missing"))
        found[path] = Blob("digest") if isinstance(entry, File) else entry
    for path in need.folders | {each for each in need.elsewhere if each.endswith("/**")}:
        found[path] = _folder(tree, path)
    return found


def _folder(tree: Mapping[str, Entry], path: str) -> Entry:
    plain = path.removesuffix("/**")
    prefix = f"{plain}/" if plain else ""
    below = {name[len(prefix) :] for name in tree if name.startswith(prefix)}
    if not below:
        return Absent("special" if plain in tree else "missing")
    folders = {f"{name[: at + 1]}" for name in below for at, letter in enumerate(name) if letter == "/"}
    names = below | folders if path != plain else {each for each in below | folders if "/" not in each[:-1]}
    return Folder(tuple(sorted(names)))


def drive(sample: Sample, tree: Mapping[str, Entry], *, resume: bool = True) -> Parsed:
    """What the format says in the end; asked as `agentfiles.examine` does, or, without `resume`, always anew."""
    format = open_format(sample.format)
    found: dict[str, Entry] = {"": _folder(tree, ""), sample.manifest: tree[sample.manifest]}
    if sample.format == "agentdir" and "agent.acl" in tree:
        found["agent.acl"] = tree["agent.acl"]
    files = Files(sample.entry, found, "sample")
    format.claims(files)
    again: Callable[[Files], Parsed | Need] = format.parse
    for _ in range(100):
        answer = again(files)
        if isinstance(answer, Parsed):
            return answer
        missing = answer.without(found)
        assert missing, f"it asks again for what it has: {answer}"
        found |= look(tree, missing)
        again = (answer.then if resume else None) or format.parse
    raise AssertionError("it never stops asking")


def check(parsed: Parsed) -> None:
    for problem in parsed.problems:
        shown = str(problem).encode().decode()  # it must be possible to print it
        assert " object at 0x" not in shown, f"this says nothing to a person: {shown}"
        assert problem.line >= 1 and problem.column >= 1, f"this problem stands nowhere: {problem!r}"
    assert parsed.agent is not None or errors(parsed), "refused without saying why"


def errors(parsed: Parsed) -> bool:
    return any(problem.level == "error" for problem in parsed.problems)


def try_one(format: str, seed: int) -> tuple[Parsed | None, float, Finding | None]:
    sample, tree, text = case(format, seed)
    start = time.process_time()
    try:
        parsed = drive(sample, tree)
        check(parsed)
        if seed % WRITTEN == 0:
            anew = drive(sample, tree, resume=False)
            assert repr(anew) == repr(parsed), "it says something else when it starts over"  # no NaN is itself
            if parsed.agent is not None and not errors(parsed):
                open_format(format).render(parsed.agent)
    except Exception:  # noqa: BLE001 - finding them is what this is for
        return None, time.process_time() - start, Finding(format, seed, traceback.format_exc(limit=-3), text)
    took = time.process_time() - start
    slow = Finding(format, seed, f"slow: {took:.1f} seconds", text) if took > SLOW_SECONDS else None
    return parsed, took, slow


def fuzz(format: str, cases: int, first: int = 0) -> Outcome:
    accepted = refused = 0
    slowest = 0.0
    findings: list[Finding] = []
    start = time.process_time()
    for seed in range(first, first + cases):
        parsed, took, finding = try_one(format, seed)
        slowest = max(slowest, took)
        if finding is not None:
            findings.append(finding)
        if parsed is not None:
            accepted += parsed.agent is not None
            refused += parsed.agent is None
    return Outcome(accepted, refused, time.process_time() - start, slowest, tuple(findings))


def _worker(format: str, cases: int) -> Outcome:
    """Like `fuzz`, in slices that may not hang: an alarm turns a hang into a finding."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"no answer after {HANG_SECONDS} seconds")

    signal.signal(signal.SIGALRM, ring)
    outcomes = []
    for seed in range(cases):
        signal.alarm(HANG_SECONDS)
        outcomes.append(fuzz(format, 1, seed))
    signal.alarm(0)
    return Outcome(
        sum(each.accepted for each in outcomes),
        sum(each.refused for each in outcomes),
        sum(each.seconds for each in outcomes),
        max(each.slowest for each in outcomes),
        tuple(finding for each in outcomes for finding in each.findings),
    )


def run(quick: bool) -> Iterator[Row]:
    cases = 2_000 if quick else CASES
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        waiting = {format: pool.submit(_worker, format, cases) for format in FORMATS}
        for format, future in waiting.items():
            outcome = future.result()
            report(outcome.findings)
            said = f"{outcome.accepted:,} accepted, {outcome.refused:,} refused"
            other = f"{cases / outcome.seconds:,.0f}/s, slowest {outcome.slowest * 1e3:.0f} ms"
            bad = len(outcome.findings)
            yield Row(f"fuzz {format}, {cases:,} cases", said, other, f"{bad} findings", "0 findings", not bad)


def report(findings: tuple[Finding, ...]) -> None:
    kinds: dict[str, list[Finding]] = {}
    for finding in findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for same in kinds.values():
        first = min(same, key=lambda each: len(each.text))
        print(f"\n{len(same)} like this: {first.format}, seed {first.seed}\n{first.what}", file=sys.stderr)
        print(first.text if len(first.text) < 4_000 else first.text[:4_000] + "…", file=sys.stderr)


def _again(format: str, seed: int) -> int:
    sample, _, text = case(format, seed)
    print(f"# {sample.format}, pointing at {sample.entry or 'the folder'}\n{text}")
    parsed, took, finding = try_one(format, seed)
    print(f"\n{took * 1e3:.1f} ms", *(parsed.problems if parsed else ()), finding.what if finding else "fine", sep="\n")
    return 1 if finding else 0


if __name__ == "__main__":
    sys.exit(_again(sys.argv[1], int(sys.argv[2])))
