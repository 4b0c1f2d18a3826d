"""init, agent create, agent list: a workspace and the agents in it."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

import click

from duragent.agentfiles import Examined
from duragent.cli import clean, count, echo_json, output_format, say
from duragent.cli.places import aligned, examined, named_agents, shown, write_new
from duragent.cli.templates import IGNORED, MODELS, SETTINGS, TEMPLATES, filled, likely_provider
from duragent.config import NAME, Config, load_config
from duragent.errors import Conflict, NotFound
from duragent.schemas import schema

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,127}")
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@+-]*")
FIRST = "assistant"


@click.command("init")
@click.argument("path", type=click.Path(file_okay=False), default=".")
def init_command(path: str) -> None:
    """Make PATH (this folder, if none is given) a workspace: settings, a first agent, and what git shall ignore.

    Nothing that is there already is changed.

    \b
    duragent init
    duragent init my-agents
    """
    root = Path(path)
    root.mkdir(parents=True, exist_ok=True)
    if not (root / NAME).exists():
        _write(root, {NAME: SETTINGS.format(schemas="./.duragent/schemas")})
    else:
        _kept(root / NAME)
    config = load_config(root)
    _write(config.workspace, {".gitignore": IGNORED, "schemas/config.schema.json": _schema("config")})
    provider = likely_provider(os.environ)
    _create(config, FIRST, "duragent", provider, MODELS[provider][0], quiet=False)
    go = f"cd {clean(path)} && " if path != "." else ""
    say(f"\nNext: {click.style(f'{go}duragent chat --agent {FIRST}', bold=True)}")
    key = MODELS[provider][1]
    if not os.environ.get(key):
        say(f"Set {key} first, or name another model in its agent.yaml; without one, chat takes a small local model.")


@click.command("create")
@click.argument("name")
@click.option(
    "--format",
    "form",
    type=click.Choice(list(TEMPLATES)),
    default="duragent",
    show_default=True,
    help="The format to write it in.",
)
@click.option("--provider", type=click.Choice(list(MODELS)), help="Whose model it runs on; default: whose key is set.")
@click.option("--model", help="Which model, as its provider calls it; default: a good one of the provider.")
def agent_create_command(name: str, form: str, provider: str | None, model: str | None) -> None:
    """Write a new agent called NAME into the workspace, ready to be talked with and to be changed.

    \b
    duragent agent create reviewer
    duragent agent create reviewer --provider anthropic --model claude-sonnet-4-5
    duragent agent create helper --format agentmd
    """
    if not _NAME.fullmatch(name):
        raise click.UsageError(f"{name!r} cannot be the name of an agent: letters, digits and hyphens only.")
    if model is not None and not _MODEL.fullmatch(model):
        raise click.UsageError(f"{model!r} cannot be the name of a model.")
    if model and not provider and model.partition("/")[0] in MODELS:
        provider, _, model = model.partition("/")
    provider = provider or likely_provider(os.environ)
    config = load_config()
    taken = [each for each, path in named_agents(config.agents_dir) if each == name]
    if taken:
        raise Conflict(f"there is an agent called {name} in {shown(config.agents_dir)} already; choose another name")
    entry = _create(config, name, form, provider, model or MODELS[provider][0])
    say(f"\nNext: {click.style(f'duragent chat --agent {name}', bold=True)}, or change {shown(entry)} first.")


@click.command("list")
@output_format("text")
def agent_list_command(form: str) -> None:
    """List the agents of the workspace: name, format, model, how many problems, and where each is.

    \b
    duragent agent list
    duragent agent list --format json
    """
    config = load_config()
    rows = sorted((_row(found) for found in examined(config.agents_dir)), key=lambda row: str(row["name"] or "~"))
    if form == "json":
        echo_json(rows)
        return
    if not rows:
        say(f"There are no agents in {shown(config.agents_dir)}. Try: duragent agent create NAME")
        return
    texts = [[str(row[key] or "–") for key in ("name", "format", "model")] for row in rows]
    for row, line in zip(rows, aligned(texts), strict=True):
        problems = row["problems"]
        fault = click.style(f"  {count(int(str(problems)), 'problem')}", fg="yellow") if problems else ""
        say(f"{line}  {click.style(clean(str(row['path'])), dim=True)}{fault}")
    if any(row["problems"] for row in rows):
        say(f"See: duragent validate {shown(config.agents_dir)}")


def _row(found: Examined) -> dict[str, object]:
    agent = found.agent
    candidates = agent.model.candidates if agent else ()
    model = (
        f"{candidates[0].provider}/{candidates[0].name}" if candidates else agent.model.capability if agent else None
    )
    return {
        "name": agent.name if agent else None,
        "format": found.format or None,
        "model": model,
        "path": os.path.relpath(found.path),
        "problems": len(found.problems),
    }


def _schema(name: str) -> str:
    return json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n"


def _create(config: Config, name: str, form: str, provider: str, model: str, *, quiet: bool = True) -> Path:
    """Write an agent's files, and the schema that its first line names."""
    template = TEMPLATES[form]
    schemas = os.path.relpath(config.workspace / "schemas", config.agents_dir)
    named = {f"schemas/{each}.schema.json": _schema(each) for each in template.schemas}
    if named:
        _write(config.workspace, named, quiet=quiet)
    _write(config.agents_dir, filled(template, name=name, provider=provider, model=model, schemas=schemas))
    return config.agents_dir / template.entry.format(name=name)


def _write(folder: Path, files: Mapping[str, str], *, quiet: bool = False) -> None:
    """Write what is not there yet; nothing is overwritten, also not what appeared a moment ago."""
    for name, text in files.items():
        place = folder / name
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_new(place, text.encode())
        except FileExistsError:
            if not quiet:
                _kept(place)
            continue
        except NotADirectoryError:
            raise NotFound(f"{place}: a file stands where a folder is needed; move it away") from None
        say(f"{click.style('written', fg='green', bold=True)}  {shown(place)}")


def _kept(place: Path) -> None:
    say(f"{click.style('kept', dim=True)}     {shown(place)}")
