"""`reload_tools`: look again at which programs there are, and have every session of the agent use them.

Looks with the eyes of `cli.py` and asks the runtime to build the toolboxes again; the model is told what was found.
"""

import asyncio
from typing import Any

from msgspec.json import Encoder

from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.tools import Scene, Tool
from duragent.tools.cli import find
from duragent.tools.host import Host

_encode = Encoder().encode


def make(host: Host) -> Tool:
    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        found = await asyncio.to_thread(find, host, host.agent.tools)
        if host.door is None:
            return ToolAnswer(False, "The tools cannot be loaded again here: no runtime is there to do it.")
        await host.door.reload(host.agent)
        programs = [each for each in found.programs if each.source != "declared"]
        said: dict[str, object] = {
            "discovered_tools": [{"name": each.name, "description": each.description} for each in programs],
            "count": len(programs),
            "directories_scanned": list(found.folders),
        }
        if found.notes:
            said["notes"] = list(found.notes)
        return ToolAnswer(True, host.redact(_encode(said).decode()))

    spec = ToolSpec(
        "reload_tools",
        "Look again for programs in the tools folders, after one was added, changed or removed there. "
        "What is found can be called from your next step on.",
        {"type": "object", "properties": {}, "additionalProperties": False},
        effect="repeatable",
    )
    return Tool(spec, run)
