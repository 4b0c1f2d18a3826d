"""Broken manifests are refused with a reason and a place, or read; never with an exception. Long form: `make bench`."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.fuzz import case, drive, fuzz
from bench.samples import FORMATS, SAMPLES, Sample

from duragent.formats import FORMATS as ALL
from duragent.formats import open_format
from duragent.formats.shape import File, Files, Need, Parsed

CASES = 300


def test_every_format_is_fuzzed() -> None:
    assert set(FORMATS) == set(ALL)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: f"{each.format}-{each.manifest}")
def test_what_the_fuzzer_starts_from_is_valid(sample: Sample) -> None:
    parsed = drive(sample, {name: File(text) for name, text in sample.files.items()})
    assert parsed.agent is not None
    assert [str(problem) for problem in parsed.problems if problem.level == "error"] == []


def test_the_same_seed_breaks_the_same_way() -> None:
    assert case("agentspec", 7) == case("agentspec", 7)
    assert case("agentspec", 7) != case("agentspec", 8)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda each: f"{each.format}-{each.manifest}")
def test_a_format_says_the_same_when_it_goes_on_as_when_it_starts_over(sample: Sample) -> None:
    tree = {name: File(text) for name, text in sample.files.items()}
    assert drive(sample, tree) == drive(sample, tree, resume=False)


def test_the_fuzzer_goes_on_from_where_a_format_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SAMPLES[0]
    asked: list[str] = []

    def parse(files: Files) -> Parsed | Need:
        asked.append("start")
        return Need(files=frozenset({"x"}), then=go_on)

    def go_on(files: Files) -> Parsed | Need:
        asked.append("on")
        return Parsed(None)

    monkeypatch.setattr(open_format(sample.format), "parse", parse)
    drive(sample, {name: File(text) for name, text in sample.files.items()})
    assert asked == ["start", "on"]


@pytest.mark.parametrize("format", FORMATS)
def test_no_broken_manifest_raises_hangs_or_is_refused_without_a_place(format: str) -> None:
    outcome = fuzz(format, CASES)
    assert [(finding.seed, finding.what) for finding in outcome.findings] == []
    assert outcome.accepted > 0
    assert outcome.refused > 0
