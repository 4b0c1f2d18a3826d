"""The list of escapes, tried on this machine: every backend that works here holds, and without one most get out."""

import asyncio

import pytest

from duragent.sandbox import BACKENDS
from duragent.sandbox.escapes import ATTEMPTS, Outcome, not_kept, try_escapes
from tests.sandbox.boxing import opened, require


async def _try(name: str, promised: str) -> list[Outcome]:
    async with opened(name) as sandbox:
        return [outcome async for outcome in try_escapes(sandbox, promised=promised)]


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_holds_against_everything_it_promises_to(name: str) -> None:
    promised = [attempt.name for attempt in ATTEMPTS if name in attempt.kept_by]
    require(name, f"that it holds against {len(promised)} escapes ({', '.join(promised)})")
    outcomes = asyncio.run(_try(name, promised=name))
    assert [each.attempt.name for each in outcomes] == promised
    assert [(each.attempt.name, each.evidence) for each in outcomes if not each.held] == []


def test_without_a_sandbox_most_of_them_get_out() -> None:
    outcomes = asyncio.run(_try("none", promised=""))
    out = {each.attempt.name for each in outcomes if not each.held}
    # What no ordinary person may do fails without a sandbox too; these need no privileges at all.
    assert out >= {
        *("write outside", "link out", "hard link out", "agent file", "policy", "new local policy", "git hook"),
        *("move .git away", "session log", "read outside", "read hidden", "its environment", "its memory", "its files"),
        *("read across", "signal runtime", "kill", "TCP", "UDP", "abstract socket", "socket inside", "datagram pair"),
        *(
            "other settings",
            "submodule config",
            "hooks elsewhere",
            "bare hook",
            "deep config",
            "crowd out",
            "become bare",
        ),
        *("its interpreter", "its environment's name", "shared memory"),
        *("shell settings", "own folder", "runs as owner", "write to parent", "gain privileges"),
    }
    assert len(out) > len(ATTEMPTS) / 2
    assert [each.evidence for each in outcomes if "broken" in each.evidence] == []


def test_what_a_backend_does_not_keep_is_named() -> None:
    named = {name: {attempt.name for attempt in not_kept(name)} for name in BACKENDS}
    assert named == {
        "bubblewrap": {"write to parent"},
        "landlock": {"permissions outside", "shared memory", "see processes", "fill /tmp"},
    }


def test_there_are_enough_attempts_and_each_has_its_own_name() -> None:
    names = [attempt.name for attempt in ATTEMPTS]
    assert (len(names) == len(set(names)), len(names) >= 30) == (True, True)
