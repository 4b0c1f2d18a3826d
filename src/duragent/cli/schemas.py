"""schema: JSON Schemas for editors."""

import click

from duragent.cli import echo_json
from duragent.schemas import NAMES, schema


@click.command("schema")
@click.argument("name", metavar="NAME", type=click.Choice(NAMES))
def schema_command(name: str) -> None:
    """Print the JSON Schema called NAME.

    NAME is agent, policy, config, agentspec, agentdir-schedule, agentdir-tool, agentmd or skill.

    Point your editor at it with a first line like
    `# yaml-language-server: $schema=./schemas/agent.schema.json`.

    \b
    duragent schema agent > agent.schema.json
    """
    echo_json(schema(name))
