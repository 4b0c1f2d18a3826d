"""duragent doctor."""

import json
from collections.abc import AsyncIterator, Sequence

import pytest

from duragent import sandbox
from duragent.cli import doctoring
from duragent.sandbox import Sandbox, Tried
from duragent.sandbox.escapes import ATTEMPTS, Attempt, Outcome
from tests.cli.workspace import Program

HELD, OUT = (Outcome(ATTEMPTS[0], True, "no such file"), Outcome(ATTEMPTS[1], False, "outside/new was made"))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Tried]:
    """A machine on which both backends work, unless a test says otherwise."""
    found = {name: Tried(name, True) for name in ("bubblewrap", "landlock")}
    monkeypatch.setattr(sandbox, "_found", found)
    return found


def attempts(monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome) -> list[str]:
    """Let every backend come out like this. Returns which were tried."""
    tried: list[str] = []

    async def pretend(backend: Sandbox, given: Sequence[Attempt] = (), *, promised: str) -> AsyncIterator[Outcome]:
        tried.append(promised)
        for outcome in outcomes:
            yield outcome

    monkeypatch.setattr(doctoring, "try_escapes", pretend)
    return tried


def test_it_says_which_sandbox_is_used_and_why(program: Program, machine: dict[str, Tried]) -> None:
    machine["bubblewrap"] = Tried("bubblewrap", False, "bwrap is not installed")
    done = program("doctor")
    lines = done.out.splitlines()
    assert (done.code, lines[0].startswith("duragent "), lines[1], lines[3]) == (
        0,
        True,
        "  bubblewrap  no     bwrap is not installed",
        "sandbox.mode auto: landlock; it is the strongest that works here",
    )


def test_the_settings_of_the_workspace_count(program: Program, machine: dict[str, Tried]) -> None:
    (program.folder / "duragent.yaml").write_text("sandbox: {mode: bubblewrap}\n")
    machine["bubblewrap"] = Tried("bubblewrap", False, "no namespaces")
    done = program("doctor", "--format", "json")
    assert (done.code, json.loads(done.out)["sandbox"]) == (
        0,
        {
            "mode": "bubblewrap",
            "name": "",
            "why": "sandbox.mode is bubblewrap, which does not work here: no namespaces",
            "tried": [
                {"name": "bubblewrap", "works": False, "reason": "no namespaces"},
                {"name": "landlock", "works": True, "reason": ""},
            ],
        },
    )


def test_an_escape_that_succeeds_is_shouted_and_is_the_exit_code(
    program: Program, machine: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = attempts(monkeypatch, HELD, OUT)
    done = program("doctor", "--sandbox")
    unpromised = ", ".join(each.name for each in ATTEMPTS if "bubblewrap" not in each.kept_by)
    assert (done.code, tried) == (1, ["bubblewrap"])
    assert done.out.splitlines()[5:] == [
        "held    bubblewrap  write outside   append to a file outside of its folder",
        "FAILED  bubblewrap  create outside  make a file outside of its folder       outside/new was made",
        "",
        f"bubblewrap: 2 attempts, 1 held, 1 failed; it does not keep: {unpromised}",
    ]


def test_all_backends_that_work_can_be_tried_for_a_program_to_read(
    program: Program, machine: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = attempts(monkeypatch, HELD)
    done = program("doctor", "--sandbox", "--backend", "all", "--format", "json")
    told = json.loads(done.out)
    assert (done.code, tried, told["held"], told["failed"]) == (0, ["bubblewrap", "landlock"], 2, 0)
    assert told["escapes"][1] == {
        "backend": "landlock",
        "name": "write outside",
        "about": "append to a file outside of its folder",
        "held": True,
        "evidence": "no such file",
    }


def test_a_machine_without_any_sandbox_does_not_pass(
    program: Program, machine: dict[str, Tried], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine |= {name: Tried(name, False, "broken") for name in machine}
    tried = attempts(monkeypatch, HELD)
    done = program("doctor", "--sandbox")
    assert (done.code, tried) == (1, [])
    assert done.out.splitlines()[-1] == (
        "sandbox.mode auto: no sandbox; no sandbox works here (bubblewrap: broken; landlock: broken)"
    )
