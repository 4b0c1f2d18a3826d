"""skill list, add, approve, remove: the skills of an agent, and those from elsewhere that a person let in."""

import os
import sys
from collections.abc import Mapping

import click

from duragent.agent import Agent
from duragent.agentfiles import load
from duragent.cli import clean, count, echo_json, on_terminal, output_format, say
from duragent.cli.places import aligned, named_agents, shown
from duragent.config import Config, load_config
from duragent.errors import DuragentError, NotFound
from duragent.fetch import fetch
from duragent.formats.shape import is_address
from duragent.skillfiles import Added, Standing, add, address, approve, lint, remove, standings, suspicions, waiting

_COLOURS: Mapping[str, str] = {"local": "green", "approved": "green", "quarantined": "yellow"}


@click.command("list")
@click.argument("agent")
@output_format("text")
def skill_list_command(agent: str, form: str) -> None:
    """List the skills of AGENT (a name in the workspace, or a path): state, where each is from, and what looks odd.

    A skill is local, or from an address and then approved, quarantined (nobody approved it yet), missing (never
    fetched), changed (not what was approved, or not what the agent pins) or broken.

    \b
    duragent skill list assistant
    duragent skill list ./agents/assistant --format json
    """
    config = load_config()
    found = _agent(config, agent)
    rows = [(each, suspicions(found, each)) for each in standings(found, config.workspace)]
    if form == "json":
        echo_json([_said(each, warnings) for each, warnings in rows])
        return
    if not rows:
        say(f"{clean(found.name)} has no skills.")
        return
    for (each, warnings), line in zip(rows, aligned([[each.name, each.state] for each, _ in rows]), strict=True):
        say(f"{click.style(line, fg=_COLOURS.get(each.state, 'red'))}  {click.style(clean(each.place), dim=True)}")
        if each.note:
            say(f"    {clean(each.note)}")
        _warn(warnings)


def _said(each: Standing, warnings: list[str]) -> dict[str, object]:
    return {
        "name": each.name,
        "state": each.state,
        "place": each.place,
        "description": each.skill.description if each.skill else None,
        "note": each.note or None,
        "warnings": warnings,
    }


@click.command("add")
@click.argument("source", metavar="AGENT|URL")
def skill_add_command(source: str) -> None:
    """Fetch the skill at URL, or all skills that AGENT names by their address, and keep them in quarantine.

    Only https, only one SKILL.md per address. `#sha256=` and 64 digits at the end of an address pin its content.
    No agent uses what is in quarantine; `duragent skill approve` lets it out. What was approved and has not changed
    since stays approved.

    \b
    duragent skill add https://example.com/skills/weekly-review/SKILL.md
    duragent skill add assistant
    """
    config = load_config()
    if is_address(source):
        _told(add(source, config.workspace, fetch))
        return
    found = _agent(config, source)
    urls = [skill.path for skill in found.skills if is_address(skill.path)]
    if not urls:
        say(f"{clean(found.name)} names no skill by its address.")
        return
    failures = 0
    for url in urls:
        try:
            _told(add(url, config.workspace, fetch))
        except DuragentError as error:  # one address that does not answer keeps no other from being fetched
            failures += 1
            say(f"{click.style('error', fg='red', bold=True)}  {clean(str(error), lines=True)}", err=True)
    if failures:
        raise click.exceptions.Exit(1)


def _told(added: Added) -> None:
    before, locked = added.before, added.locked
    word = "kept" if before is not None and before.sha256 == locked.sha256 else "fetched"
    say(f"{click.style(word, fg='green', bold=True)}  {clean(locked.name)}  {clean(added.url)}")
    say(f"    sha256={locked.sha256}")
    if before is not None and before.approved and not locked.approved:
        say(f"    It has changed since it was approved (sha256={before.sha256}).")
    _warn(added.warnings)
    say("    approved" if locked.approved else f"    Next: duragent skill approve {clean(added.url)}")


@click.command("approve")
@click.argument("url")
@click.option("--digest", help="The sha256 you looked at; nothing else is approved. At least its first 12 digits.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def skill_approve_command(url: str, digest: str | None, yes: bool) -> None:
    """Let agents use the skill that was fetched from URL, in exactly the form that it has now.

    \b
    duragent skill approve https://example.com/skills/weekly-review/SKILL.md
    duragent skill approve https://example.com/skills/weekly-review/SKILL.md --digest 9f86d081884c --yes
    """
    workspace = load_config().workspace
    known, text, place = waiting(url, workspace)
    warnings = lint(text)
    say(f"{clean(known.name)}: {clean(known.description)}")
    say(f"    {len(text):,} characters, {count(text.count(chr(10)) + 1, 'line')}, sha256={known.sha256}")
    say(f"    Read it: {shown(place)}")
    _warn(warnings)
    if not yes and not known.approved:
        if not (on_terminal() and on_terminal(sys.stdin)):
            raise click.UsageError("Approving a skill needs --yes where nobody can be asked.")
        odd = f", with {count(len(warnings), 'warning')}" if warnings else ""
        click.confirm(f"Let agents use {clean(known.name)} from {clean(address(url))}{odd}?", abort=True)
    approve(url, workspace, digest or known.sha256)
    say(f"{click.style('approved', fg='green', bold=True)}  {clean(address(url))}")


@click.command("remove")
@click.argument("url")
def skill_remove_command(url: str) -> None:
    """Forget the skill that was fetched from URL, approved or not. Agents that name it do without it.

    \b
    duragent skill remove https://example.com/skills/weekly-review/SKILL.md
    """
    known = remove(url, load_config().workspace)
    say(f"{click.style('removed', fg='green', bold=True)}  {clean(known.name)}  {clean(address(url))}")


def _warn(warnings: list[str]) -> None:
    for each in warnings:
        say(f"    {click.style('look', fg='yellow', bold=True)}  {clean(each)}")


def _agent(config: Config, wanted: str) -> Agent:
    """The agent a person means, whether or not it could run here now."""
    path = next((path for name, path in named_agents(config.agents_dir) if name == wanted), wanted)
    if not os.path.lexists(path):
        names = ", ".join(sorted(name for name, _ in named_agents(config.agents_dir)))
        there = f"There are: {names}." if names else f"There are none in {shown(config.agents_dir)} yet."
        raise NotFound(f"no agent is called {wanted!r}, and there is no such path. {there}")
    return load(path)
