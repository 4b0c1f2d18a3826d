"""`tool_help`: the README of a program that is offered as a tool, read when the model asks for it.

So a tool costs the model one sentence until it is needed. Which tools have one is known when the toolbox is built; a
name outside that list does not get past the schema.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.tools import Scene, Tool
from duragent.tools.host import Host
from duragent.tools.printed import decoded

MAX_BYTES = 65_536


def make(host: Host, readmes: Mapping[str, str]) -> Tool:
    parameters = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": sorted(readmes), "description": "The tool whose manual is wanted."}
        },
        "required": ["name"],
        "additionalProperties": False,
    }

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        path = readmes.get(arguments["name"])
        if path is None:
            return ToolAnswer(False, f"No manual for {arguments['name']}; there are: {', '.join(sorted(readmes))}.")
        try:
            text = await asyncio.to_thread(_read, path)
        except OSError as error:
            return ToolAnswer(False, f"The manual of {arguments['name']} cannot be read: {error.strerror}.")
        return ToolAnswer(True, host.redact(text))

    spec = ToolSpec(
        "tool_help",
        "Read the manual (README) of one of your tools: what its arguments mean, with examples.",
        parameters,
        effect="pure",
        parallel_safe=True,
        quiet=("*",),
    )
    return Tool(spec, run)


def _read(path: str) -> str:
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    text = decoded(data[:MAX_BYTES])
    return text if len(data) <= MAX_BYTES else f"{text}\n[cut after {MAX_BYTES:,} bytes]"
