"""doctor: what this machine can do, and whether the sandbox holds on it."""

import asyncio
import os
import platform
import sys
from collections.abc import Sequence
from typing import Any, Literal

import click
from msgspec import Struct, to_builtins

from duragent import __version__
from duragent.cli import count, echo_json, output_format, say
from duragent.cli.places import aligned
from duragent.config import load_config
from duragent.errors import NotAllowed
from duragent.sandbox import BACKENDS, Choice, Tried, bwrap, make, open_sandbox, probe
from duragent.sandbox.escapes import Outcome, not_kept, try_escapes
from duragent.sandbox.landlock import version


class Tested(Struct, frozen=True):
    """What came of one attempt to get out of one backend."""

    backend: str
    name: str
    about: str
    held: bool
    evidence: str


@click.command("doctor")
@click.option("--sandbox", "escape", is_flag=True, help="Try to get out of the sandbox, in every way we know.")
@click.option(
    "--backend",
    type=click.Choice([*BACKENDS, "all"]),
    help="Which one to try with --sandbox; without it, the one that would be used here.",
)
@output_format("table")
def doctor_command(escape: bool, backend: str | None, form: Literal["table", "json"]) -> None:
    """Say what this machine can do: which sandbox works, which one is used here, and why.

    --sandbox tries a long list of escapes on this very machine, in a folder of its own and with secrets that it makes
    itself, and says of each whether the sandbox held. The exit code is 1 if one did not, or if no sandbox works.

    \b
    duragent doctor
    duragent doctor --sandbox
    duragent doctor --sandbox --backend all --format json
    """
    mode = load_config(environ=os.environ).sandbox.mode
    choice, tried = _choose(mode), [probe(name) for name in BACKENDS]
    facts = _facts()
    results = asyncio.run(_escapes(_wanted(backend, choice, tried))) if escape else []
    failed = sum(not each.held for each in results)
    if form == "json":
        echo_json(
            {
                "machine": facts,
                "sandbox": {"mode": mode, "name": choice.name, "why": choice.why, "tried": to_builtins(tried)},
                "escapes": to_builtins(results),
                "held": len(results) - failed,
                "failed": failed,
            }
        )
    else:
        _print(facts, mode, choice, tried, results)
    if failed or (escape and not results):
        sys.exit(1)


def _choose(mode: Literal["auto", "bubblewrap", "landlock", "trust"]) -> Choice:
    """What would be used here; a mode that does not hold is an answer too."""
    try:
        return open_sandbox(mode)[1]
    except NotAllowed as error:
        return Choice("", str(error))


def _facts() -> dict[str, Any]:
    return {
        "duragent": __version__,
        "python": platform.python_version(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "bwrap": bwrap() or None,
        "landlock": version() if sys.platform == "linux" else 0,
    }


def _wanted(backend: str | None, choice: Choice, tried: Sequence[Tried]) -> list[str]:
    working = [each.name for each in tried if each.works]
    if backend == "all":
        return working
    name = backend or (choice.name if choice.name in BACKENDS else next(iter(working), ""))
    return [name] if name in working else []


async def _escapes(backends: Sequence[str]) -> list[Tested]:
    found: list[Tested] = []
    for name in backends:
        sandbox = make(name)
        try:
            async for outcome in try_escapes(sandbox, promised=name):
                found.append(_tested(name, outcome))
        finally:
            await sandbox.close()
    return found


def _tested(backend: str, outcome: Outcome) -> Tested:
    attempt = outcome.attempt
    return Tested(backend, attempt.name, attempt.about, outcome.held, outcome.evidence)


def _print(facts: dict[str, Any], mode: str, choice: Choice, tried: Sequence[Tried], results: Sequence[Tested]) -> None:
    say(f"duragent {facts['duragent']}, Python {facts['python']}, {facts['kernel']}")
    for each in tried:
        state = click.style("works", fg="green") if each.works else click.style("no   ", fg="yellow")
        say(f"  {each.name:<10}  {state}  {each.reason or _about(each.name, facts)}")
    say(f"sandbox.mode {mode}: {choice.name or 'no sandbox'}; {choice.why}")
    if not results:
        return
    say("")
    for line, tested in zip(aligned([[each.backend, each.name, each.about] for each in results]), results, strict=True):
        if tested.held:
            say(f"{click.style('held  ', fg='green')}  {line}".rstrip())
        else:
            say(f"{click.style('FAILED', fg='red', bold=True)}  {line}  {tested.evidence}")
    say("")
    for backend in dict.fromkeys(each.backend for each in results):
        mine = [each for each in results if each.backend == backend]
        failed = sum(not each.held for each in mine)
        unpromised = ", ".join(each.name for each in not_kept(backend))
        rest = f"; it does not keep: {unpromised}" if unpromised else ""
        say(f"{backend}: {count(len(mine), 'attempt')}, {len(mine) - failed} held, {failed} failed{rest}")


def _about(name: str, facts: dict[str, Any]) -> str:
    return str(facts["bwrap"]) if name == "bubblewrap" else f"version {facts['landlock']}"
