"""`bash`: one command line, run to its end by `bash -c` inside the agent's box.

Where it works, what it may touch and how much it may use is the owner's word (`host.box`); of the model comes the line
and how long it may take: ten minutes at most, or longer where the owner's own limit is. Whether a line may run at all
is decided before, by `core/policy.py`. What it prints is heard by whoever follows the session while it runs, and is
bounded and cleaned before it becomes the result.
"""

import math
import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.sandbox import Box
from duragent.tools import Scene, Tool
from duragent.tools.host import Host
from duragent.tools.printed import MAX_BYTES, Stream, answer

MAX_TIMEOUT_SECONDS = 600
UNPASSABLE = "its text holds a character that no command line can hold."
_HALF = re.compile("[\ud800-\udfff]")
NO_SANDBOX = (
    "Nothing here may run a program: no sandbox works on this machine. `duragent doctor --sandbox` says why; "
    "`sandbox: {mode: trust}` in duragent.yaml runs programs without one."
)


def make(host: Host) -> Tool:
    usual, most = times(host.box)
    parameters = {
        "type": "object",
        "properties": {
            "command": {
                "type": "string",
                "minLength": 1,
                "maxLength": 100_000,
                "description": "The command line, as bash reads it.",
            },
            "timeout_seconds": {
                "type": "integer",
                "minimum": 1,
                "maximum": most,
                "default": usual,
                "description": "After so many seconds it is ended with everything it started.",
            },
        },
        "required": ["command"],
        "additionalProperties": False,
    }

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        seconds = float(arguments.get("timeout_seconds", host.box.limits.seconds))
        box = bounded(host.box, seconds)
        return await execute(host, ["bash", "-c", arguments["command"]], box, scene, "The command")

    spec = ToolSpec("bash", _description(host, usual, most), parameters, line="command", needs=("sh",))
    return Tool(spec, run)


def times(box: Box) -> tuple[int, int]:
    """How many seconds a command has where the call names none, which the owner says, and the most it can ask for."""
    usual = math.ceil(box.limits.seconds)
    return usual, max(usual, MAX_TIMEOUT_SECONDS)


def bounded(box: Box, seconds: float) -> Box:
    """The box of a call that may take so long and print so much."""
    limits = replace(box.limits, seconds=seconds, output_bytes=min(box.limits.output_bytes, MAX_BYTES))
    return replace(box, limits=limits)


async def execute(host: Host, argv: list[str], box: Box, scene: Scene, name: str, stdin: bytes = b"") -> ToolAnswer:
    """Run a program to its end; what it prints is heard at the scene. Whatever goes wrong is the answer."""
    if host.sandbox is None:
        return ToolAnswer(False, NO_SANDBOX)
    if not passable(argv):
        return ToolAnswer(False, f"{name} was not started: {UNPASSABLE}")
    stream = Stream(host.stream(), scene.say)
    try:
        ended = await host.sandbox.run(argv, box, stdin=stdin, heard=stream.feed)
    except OSError as error:
        return ToolAnswer(False, f"{name} could not be started: {reason(error)}")
    stream.end()
    return answer(ended, box.limits.output_bytes, host.redact, name, box.limits.seconds)


def passable(argv: Sequence[str]) -> bool:
    """Whether a system call takes these words: no NUL, and no half of a character."""
    return not any("\0" in word or _HALF.search(word) for word in argv)


def reason(error: OSError) -> str:
    """Why a program could not be started, for the one who wrote the call."""
    return f"{error.strerror or error}{f' ({error.filename})' if error.filename else ''}"


def surroundings(host: Host) -> str:
    """What programs find where they run. The model is told the truth: guessing costs it calls."""
    box = host.box
    network = {
        "none": "There is no network.",
        "hosts": f"Of the network only these hosts are reached: {', '.join(box.hosts) or 'none'}.",
        "all": "There is network.",
    }[box.network]
    if host.sandbox is not None and host.sandbox.name == "none":
        return f"Programs work in {box.cwd} and run without a sandbox, as the person who started this."
    if box.whole_disk:
        return f"Programs work in {box.cwd}; the disk is writable. {network}"
    writable = ", ".join(box.writable)
    where = f"only {writable} and /tmp are writable" if writable else "nothing but /tmp is writable"
    return f"Programs work in {box.cwd}; {where}, /tmp is empty each time, home and keys are hidden. {network}"


def _description(host: Host, usual: int, most: int) -> str:
    return (
        "Run a command line with bash and get what it prints, standard output and errors together. "
        f"{surroundings(host)} Each call is a new shell without input: no folder, variable or program of one call is "
        f"there in the next. It is ended after timeout_seconds ({usual} unless you say otherwise, "
        f"{most} at most); of more than {MAX_BYTES // 1024} KiB of output the middle is left out."
    )
