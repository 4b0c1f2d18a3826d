"""show: an agent as YAML or JSON, with the origin of each value, or as its prompt."""

import json
from collections.abc import Iterator
from typing import Any

import click
from msgspec import NODEFAULT, Struct, structs, to_builtins

from duragent.agent import META, Agent, Json, Origin
from duragent.agentfiles import load
from duragent.cli import clean, echo_json, existing, masked, output_format, say
from duragent.core.prompt import assemble
from duragent.formats.write import dump_yaml


@click.command("show")
@click.argument("path", type=click.Path())
@output_format("yaml")
@click.option("--origins", is_flag=True, help="Say where each value came from: file:line:column, or default.")
@click.option("--prompt", is_flag=True, help="Print the assembled system prompt, its parts marked.")
def show_command(path: str, form: str, origins: bool, prompt: bool) -> None:
    """Print the agent at PATH as it is after inheritance and defaults.

    \b
    duragent show researcher.agent
    duragent show researcher --origins
    duragent show code-reviewer --prompt
    """
    if origins and prompt:
        raise click.UsageError("--origins and --prompt show different things; give one of them.")
    agent = load(existing(path))
    if prompt:
        print_prompt(agent, form)
    elif origins:
        print_origins(agent, form)
    else:
        print_agent(agent, form)


def print_agent(agent: Agent, form: str) -> None:
    plain = masked(to_builtins(agent))
    for name in META:
        del plain[name]
    said = {"format": agent.source.format, **without_empty(plain)}
    echo_json(said) if form == "json" else say(dump_yaml(said), nl=False)


def print_origins(agent: Agent, form: str) -> None:
    rows = [(path, value, str(origin) if origin else "default") for path, value, origin in origins(agent)]
    if form == "json":
        echo_json({path: {"value": value, "origin": origin} for path, value, origin in rows})
        return
    for path, value, origin in rows:
        text = " ".join((value if isinstance(value, str) else json.dumps(value, default=str)).split())
        shown = text[:60] + "…" if len(text) > 61 else text
        say(f"{clean(path)}: {clean(shown)}  {click.style(clean(origin), dim=True)}")


def print_prompt(agent: Agent, form: str) -> None:
    blocks = assemble(agent)
    if form == "json":
        echo_json(to_builtins(blocks))
        return
    for block in blocks:
        source = f"  {block.path}" if block.path else ""
        say(click.style(f"--- {block.kind}{source}", fg="cyan", bold=True))
        say(clean(block.text, lines=True))


def without_empty(value: Json) -> Json:
    """What is said or defaulted, without the long list of what is not."""
    if isinstance(value, dict):
        kept = {name: without_empty(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each is not None and each not in ([], {}, ())}
    if isinstance(value, list | tuple):
        return [without_empty(each) for each in value]
    return value


def origins(agent: Agent) -> Iterator[tuple[str, Json, Origin | None]]:
    """Every value of the agent with where it was written; None for a default."""
    for field in structs.fields(agent):
        if field.name not in META:
            yield from _walk(agent, getattr(agent, field.name), field.name, None, field, entry=False)


def _walk(
    agent: Agent, value: Any, path: str, near: Origin | None, field: Any, *, entry: bool
) -> Iterator[tuple[str, Json, Origin | None]]:
    origin = agent.origins.get(path)
    if isinstance(value, Struct):
        # A section's own place says nothing about the fields it leaves out; an entry of a list or map is one thing.
        inner = origin or near if entry else near
        for each in structs.fields(value):
            yield from _walk(agent, getattr(value, each.name), f"{path}.{each.name}", inner, each, entry=False)
    elif isinstance(value, tuple | list) and value:
        for index, item in enumerate(value):
            yield from _walk(agent, item, f"{path}[{index}]", origin or near, None, entry=True)
    elif isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _walk(agent, item, f"{path}.{name}", origin or near, None, entry=True)
    elif not (value is None or value in ([], (), {})) or origin:
        yield (
            path,
            masked(to_builtins(value), _name(path)),
            origin or (near if not _default(value, field) else None),
        )


def _name(path: str) -> str:
    """The word that says whether a value is a secret: all of an environment or of headers may be one."""
    inside = any(f".{each}." in path for each in ("env", "headers"))
    return "secret" if inside else path.rpartition(".")[2]


def _default(value: Any, field: Any) -> bool:
    if field is None:
        return False
    default = field.default if field.default is not NODEFAULT else None
    return bool(value == default)
