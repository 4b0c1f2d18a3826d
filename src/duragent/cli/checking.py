"""validate: everything that is wrong with agent files."""

import os
from collections.abc import Iterable, Iterator

import click
from msgspec import to_builtins

from duragent.agentfiles import Examined, agent_hash, examine, find
from duragent.cli import clean, config_problems, count, echo_json, existing, output_format, say
from duragent.errors import NotFound
from duragent.formats.shape import Problem, failed

_CONFIG = "duragent.yaml"
_COLOURS = {"error": "red", "warning": "yellow"}


@click.command("validate")
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@output_format("text")
def validate_command(paths: tuple[str, ...], strict: bool, form: str) -> None:
    """Say everything that is wrong with the agents at PATHS.

    A path is an agent file, an agent's folder, a folder with agents somewhere below it, or a workspace's
    duragent.yaml.

    \b
    duragent validate researcher.agent
    duragent validate .duragent/agents --strict
    duragent validate examples --format json
    """
    for path in paths:
        existing(path)
    found = [each for path in paths for each in _examine_all(path)]
    wrong = [each for each in found if failed(each.problems) or (strict and each.problems)]
    if form == "json":
        echo_json({"ok": not wrong, "agents": [_as_json(each) for each in found]})
    else:
        for each in found:
            _print(each)
        _print_summary(found)
    if wrong:
        raise click.exceptions.Exit(1)


def _examine_all(path: str) -> Iterator[Examined]:
    if os.path.basename(path) == _CONFIG:
        yield _examine_config(path)
        return
    settings = os.path.join(path, _CONFIG)
    if os.path.isfile(settings):
        yield _examine_config(settings)
    yield from (_examine(agent) for agent in find(path))


def _examine_config(path: str) -> Examined:
    return Examined(path, "config", "the name is duragent.yaml", None, config_problems(path))


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
        place = f"{clean(problem.file)}:{problem.line}:{problem.column}"
        level = click.style(problem.level, fg=_COLOURS[problem.level], bold=True)
        hint = click.style(f" ({clean(problem.hint)})", dim=True) if problem.hint else ""
        say(f"{place}  {level}  {clean(problem.text)}{hint}")
    if not found.format:
        return
    wrong = failed(found.problems)
    verdict = click.style("invalid", fg="red", bold=True) if wrong else click.style("ok", fg="green", bold=True)
    name = f" {clean(found.agent.name)}" if found.agent else ""
    say(f"{clean(found.path)}  {verdict}  {found.format}{name}{click.style(f'  ({found.why})', dim=True)}")


def _print_summary(found: Iterable[Examined]) -> None:
    levels = [problem.level for each in found for problem in each.problems]
    agents = sum(1 for each in found if each.format != "config")
    counts = (
        count(agents, "agent"),
        count(levels.count("error"), "error"),
        count(levels.count("warning"), "warning"),
    )
    say(", ".join(counts))
