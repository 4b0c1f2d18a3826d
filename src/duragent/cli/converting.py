"""convert: an agent in another format, and what did not come along."""

from collections.abc import Iterable

import click
from msgspec import to_builtins
from msgspec.structs import replace

from duragent.cli import clean, count, echo_json, existing, masked, output_format, say
from duragent.conversion import TARGETS, Loss, convert
from duragent.errors import LossRefused


@click.command("convert")
@click.argument("path", type=click.Path())
@click.option("--to", required=True, type=click.Choice(TARGETS), help="The format to write.")
@click.option("--output", required=True, type=click.Path(file_okay=False), help="The folder to write into.")
@click.option("--accept-loss", is_flag=True, help="Convert even if trust, policy, access or limits are lost.")
@output_format("text")
def convert_command(path: str, to: str, output: str, accept_loss: bool, form: str) -> None:
    """Write the agent at PATH in another format, and say what did not come along.

    What was written is read back; every difference is listed. Trust, policy, access and limits are never
    lost unless you say --accept-loss.

    \b
    duragent convert researcher.agent --to duragent --output out --accept-loss
    duragent convert code-reviewer --to agentmd --output out --format json
    """
    try:
        done = convert(existing(path), to, output, accept_loss=accept_loss)
    except LossRefused as refused:
        if form == "json":
            echo_json(
                {"ok": False, "to": to, "output": None, "files": [], "losses": masked(to_builtins(refused.losses))}
            )
        else:
            _print_losses([loss for loss in refused.losses if isinstance(loss, Loss)])
            say(f"{click.style('refused', fg='red', bold=True)}  {_refusal(to)}", err=True)
        raise click.exceptions.Exit(1) from None
    if form == "json":
        echo_json(
            {
                "ok": True,
                "to": to,
                "output": done.entry,
                "files": list(done.files),
                "losses": masked(to_builtins(done.losses)),
            }
        )
        return
    _print_losses(done.losses)
    say(f"{click.style('written', fg='green', bold=True)}  {done.entry}  ({count(len(done.files), 'file')})")


def _refusal(to: str) -> str:
    return f"{to} cannot hold what protects you (marked !); nothing was written. Use --accept-loss to convert anyway."


def _print_losses(losses: Iterable[Loss]) -> None:
    for loss in losses:
        mark = click.style("!", fg="red", bold=True) if loss.protected else " "
        name = loss.path.rpartition(".")[2]
        hidden = replace(loss, before=masked(loss.before, name), after=masked(loss.after, name))
        say(f"{mark} {clean(str(hidden))}")
