"""hash: the fingerprints of an agent."""

import click

from duragent.agentfiles import examine
from duragent.agentspec import agent_hash, load_agent
from duragent.cli import clean, existing, say
from duragent.errors import InvalidAgent


@click.command("hash")
@click.argument("path", type=click.Path())
def hash_command(path: str) -> None:
    """Print the fingerprints of the agent at PATH.

    agentspec manifests have an `ag1:` fingerprint, computed as the reference does: over the manifest as it was
    declared, whatever becomes of its base. Every agent that can be used has a full `sha256:` over all files that
    belong to it, its bases included.

    \b
    duragent hash researcher.agent
    """
    found = examine(existing(path))
    if found.agent is not None:
        hashes = (found.agent.source.manifest_hash, found.agent.source.fingerprint)
        say("\n".join(each for each in hashes if each))
        return
    errors = [problem for problem in found.problems if problem.level == "error"]
    if found.format != "agentspec":
        raise InvalidAgent(path, errors)
    say(agent_hash(load_agent(path)))
    listed = "\n".join(f"  {problem}" for problem in errors)
    say(f"no sha256, since the agent cannot be used:\n{clean(listed, lines=True)}", err=True)
