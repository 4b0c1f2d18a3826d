"""schema: JSON Schemas for editors."""

import click

from duragent.cli import echo_json
from duragent.schemas import NAMES, schema


@click.command("schema")
@click.argument("name", type=click.Choice(NAMES))
def schema_command(name: str) -> None:
    """Print the JSON Schema called NAME.

    Point your editor at it with a first line like
    `# yaml-language-server: $schema=./schemas/agent.schema.json`.

    \b
    duragent schema agent > agent.schema.json
    """
    echo_json(schema(name))
