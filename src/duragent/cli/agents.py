"""validate, show, hash, convert: what can be said about agent files without running them."""

import os
from collections.abc import Iterable

import click
from msgspec import to_builtins

from duragent.agentfiles import Examined, agent_hash, examine, find, load
from duragent.cli import echo_json
from duragent.conversion import TARGETS, Loss, convert
from duragent.errors import LossRefused, NotFound
from duragent.formats.shape import Problem

_PATH = click.Path(exists=False)
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, type=_PATH)
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def validate_command(paths: tuple[str, ...], strict: bool, form: str) -> None:
    """Say everything that is wrong with the agents at PATHS.

    A path is an agent file, an agent's folder, or a folder with agents somewhere below it.

    \b
    duragent validate researcher.agent
    duragent validate .duragent/agents --strict
    duragent validate examples --format json
    """
    for path in paths:
        if not os.path.lexists(path):
            raise click.UsageError(f"{path}: there is nothing here.")
    found = [_examine(agent) for path in paths for agent in find(path)]
    wrong = [each for each in found if not each.ok or (strict and each.problems)]
    if form == "json":
        echo_json({"ok": not wrong, "agents": [_as_json(each) for each in found]})
    else:
        for each in found:
            _print(each)
        _print_summary(found)
    if wrong:
        raise click.exceptions.Exit(1)


def _examine(path: str) -> Examined:
    try:
        return examine(path)
    except NotFound:
        gone = Problem("error", path, 1, 1, "", "vanished while it was read", "try again")
        return Examined(path, "", "", None, (gone,))


def _as_json(found: Examined) -> dict[str, object]:
    agent = found.agent
    return {
        "path": found.path,
        "format": found.format or None,
        "name": agent.name if agent else None,
        "fingerprint": agent_hash(agent) if agent else None,
        "problems": [to_builtins(problem) for problem in found.problems],
    }


def _print(found: Examined) -> None:
    for problem in found.problems:
        place = f"{problem.file}:{problem.line}:{problem.column}"
        level = click.style(problem.level, fg=_COLOURS[problem.level], bold=True)
        hint = click.style(f" ({problem.hint})", dim=True) if problem.hint else ""
        click.echo(f"{place}  {level}  {problem.text}{hint}")
    if not found.format:
        return
    verdict = click.style("ok", fg="green", bold=True) if found.ok else click.style("invalid", fg="red", bold=True)
    name = f" {found.agent.name}" if found.agent else ""
    click.echo(f"{found.path}  {verdict}  {found.format}{name}{click.style(f'  ({found.why})', dim=True)}")


def _print_summary(found: Iterable[Examined]) -> None:
    levels = [problem.level for each in found for problem in each.problems]
    agents = sum(1 for each in found)
    counts = (
        _count(agents, "agent"),
        _count(levels.count("error"), "error"),
        _count(levels.count("warning"), "warning"),
    )
    click.echo(", ".join(counts))


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


@click.command("show")
@click.argument("path", type=_PATH)
@click.option("--format", "form", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
@click.option("--origins", is_flag=True, help="Say where each value came from: file:line:column, or default.")
@click.option("--prompt", is_flag=True, help="Print the assembled system prompt, its parts marked.")
def show_command(path: str, form: str, origins: bool, prompt: bool) -> None:
    """Print the agent at PATH as it is after inheritance and defaults.

    \b
    duragent show researcher.agent
    duragent show researcher --origins
    duragent show code-reviewer --prompt
    """
    from duragent.cli import showing  # noqa: PLC0415 - validate does without it

    agent = load(path)
    if prompt:
        showing.print_prompt(agent, form)
    elif origins:
        showing.print_origins(agent, form)
    else:
        showing.print_agent(agent, form)


@click.command("hash")
@click.argument("path", type=_PATH)
def hash_command(path: str) -> None:
    """Print the fingerprints of the agent at PATH.

    agentspec manifests have an `ag1:` fingerprint, computed as the reference does. Every agent has a full
    `sha256:` over all files that belong to it.

    \b
    duragent hash researcher.agent
    """
    agent = load(path)
    if agent.source.manifest_hash:
        click.echo(agent.source.manifest_hash)
    click.echo(agent.source.fingerprint)


@click.command("convert")
@click.argument("path", type=_PATH)
@click.option("--to", required=True, type=click.Choice(TARGETS), help="The format to write.")
@click.option("--output", required=True, type=click.Path(file_okay=False), help="The folder to write into.")
@click.option("--accept-loss", is_flag=True, help="Convert even if trust, policy, access or limits are lost.")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
def convert_command(path: str, to: str, output: str, accept_loss: bool, form: str) -> None:
    """Write the agent at PATH in another format, and say what did not come along.

    What was written is read back; every difference is listed. Trust, policy, access and limits are never
    lost unless you say --accept-loss.

    \b
    duragent convert researcher.agent --to duragent --output out --accept-loss
    duragent convert code-reviewer --to agentmd --output out --format json
    """
    try:
        done = convert(path, to, output, accept_loss=accept_loss)
    except LossRefused as refused:
        if form == "json":
            echo_json({"ok": False, "to": to, "output": None, "files": [], "losses": to_builtins(refused.losses)})
        else:
            _print_losses([loss for loss in refused.losses if isinstance(loss, Loss)])
            click.echo(f"{click.style('refused', fg='red', bold=True)}  {_refusal(to)}", err=True)
        raise click.exceptions.Exit(1) from None
    if form == "json":
        echo_json(
            {"ok": True, "to": to, "output": done.entry, "files": list(done.files), "losses": to_builtins(done.losses)}
        )
        return
    _print_losses(done.losses)
    click.echo(f"{click.style('written', fg='green', bold=True)}  {done.entry}  ({_count(len(done.files), 'file')})")


def _refusal(to: str) -> str:
    return f"{to} cannot hold what protects you (marked !); nothing was written. Use --accept-loss to convert anyway."


def _print_losses(losses: Iterable[Loss]) -> None:
    for loss in losses:
        mark = click.style("!", fg="red", bold=True) if loss.protected else " "
        click.echo(f"{mark} {click.style(f'{loss.kind:<8}', fg='yellow')} {loss}")
