"""Programs beside the agent as tools: those it declares (`type: cli`) and those found in `tools/<name>/run*`.

The program gets its arguments as a list, never through a shell, an environment without the owner's keys, no standard
input, a time limit, and room for so much output. It runs in its own process group, which is ended as a whole when the
call is cancelled or takes too long. Every call is asked about unless a policy allows it.
"""

import asyncio
import os
import shlex
import signal
from contextlib import suppress
from typing import Any

from duragent.agent import Agent, CliTool, DiscoveredTool
from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.tools import Scene, Tool

TIMEOUT_SECONDS = 120.0
MAX_OUTPUT_BYTES = 262_144
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "TMPDIR", "USER", "LOGNAME")
_PARAMETERS = {
    "type": "object",
    "properties": {"args": {"type": "array", "items": {"type": "string"}, "description": "Arguments of the program."}},
}


def make(agent: Agent, tool: CliTool | DiscoveredTool) -> Tool:
    """The tool that runs one program."""
    folder = home(agent)
    command = shlex.split(tool.command)
    about = getattr(tool, "description", "") or f"Runs the program {tool.name}."

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        return await _execute([*command, *arguments.get("args", [])], folder)

    return Tool(ToolSpec(tool.name, about, _PARAMETERS, kind="cli"), run)


def home(agent: Agent) -> str:
    """The folder an agent was read from."""
    path = os.path.abspath(agent.source.path or ".")
    return path if os.path.isdir(path) else os.path.dirname(path)


async def _execute(command: list[str], folder: str) -> ToolAnswer:
    program = os.path.join(folder, command[0]) if os.sep in command[0] else command[0]
    environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *command[1:],
            cwd=folder,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except PermissionError:
        return ToolAnswer(False, f"{command[0]} is not executable. Its owner can mend that: chmod +x {command[0]}")
    except OSError as error:
        return ToolAnswer(False, f"{command[0]} cannot be started: {error.strerror}")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            output, size = await _read(process)
            code = await process.wait()
    except TimeoutError:
        return ToolAnswer(False, f"{command[0]} took longer than {TIMEOUT_SECONDS:g} s and was ended.")
    finally:
        await _end(process)
    text = output.decode("utf-8", "replace")
    if size > len(output):
        text += f"\n[cut: {size:,} bytes in all]"
    return ToolAnswer(code == 0, text or f"It printed nothing and ended with {code}.")


async def _read(process: asyncio.subprocess.Process) -> tuple[bytes, int]:
    """The beginning of what a program prints, and how much it was. The rest is read and thrown away."""
    kept, size = bytearray(), 0
    assert process.stdout is not None
    while chunk := await process.stdout.read(65_536):
        size += len(chunk)
        kept += chunk[: MAX_OUTPUT_BYTES - len(kept)]
    return bytes(kept), size


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the program and everything it started, and wait until it is gone."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    process._transport.close()  # type: ignore[attr-defined]  # what a child that ran away still holds is not read
