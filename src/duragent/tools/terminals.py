"""A terminal for one background process: a tmux server of its own, with one pane and nothing else.

tmux only draws: it runs outside the sandbox, on a private socket, without anybody's settings, and never sees the
command. Its pane belongs to a holder that gives up the terminal and waits; the process itself is started by the
sandbox with the pane's device as its standard files, so it is kept in like any other. The holder listens at a pipe
that the runtime keeps open: when the runtime is gone, however it went, the holder ends, and tmux with it.

What runs outside the sandbox must not come from where commands can write: `find_drawing` sees to that.
"""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from secrets import token_hex

from msgspec import Struct

from duragent.errors import Conflict
from duragent.sandbox.places import within
from duragent.tools.pipes import readable

NAME = "job"
COLUMNS, ROWS = 200, 50
PATIENCE_SECONDS = 10.0
MAX_LINKS = 40
_HOLDER = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_IGN)
alive = os.open(sys.argv[1], os.O_RDONLY)
fcntl.ioctl(0, termios.TIOCNOTTY)
pane = os.open(sys.argv[2], os.O_WRONLY)
os.write(pane, b"\\0")
os.close(pane)
os.read(alive, 1)
"""
_NAMED = (
    "Up|Down|Left|Right|Enter|Escape|Tab|BTab|Space|BSpace|Home|End|PageUp|PgUp|PPage|PageDown|PgDn|NPage|IC|Insert"
    "|DC|Delete|F[1-9]|F1[0-2]"
)
_KEY = re.compile(rf"(?:[CMS]-)*(?:{_NAMED})|(?:[CMS]-)+[^\s;\x00-\x1f]")


def named_keys(keys: str) -> list[str] | None:
    """The keys that a text names (`C-c`, `Up Up Enter`); None where it is text to type."""
    words = keys.split()
    return words if words and all(_KEY.fullmatch(word) for word in words) else None


class Drawing(Struct, frozen=True):
    """The programs behind every terminal, by their real paths; `fault` says why there are none."""

    tmux: str = ""
    python: str = ""  # for the holder
    fault: str = ""


def find_drawing(writable: Sequence[str], folders: Sequence[str]) -> Drawing:
    """tmux and a Python that commands cannot have put there or led to. `folders` is the PATH, `writable` the box's.

    The interpreter that runs us may be one of the agent's own folder (a `.venv` in it); then that one's base will do.
    """
    base = os.path.join(sys.base_exec_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    pythons = [sys.executable, base, *_on_path("python3", folders)]
    found: list[str] = []
    for name, paths in (("tmux", _on_path("tmux", folders)), ("Python", pythons)):
        programs = [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]
        safe = next((path for path in programs if not _is_steered(path, writable)), None)
        if safe is None:
            where = f"; the one at {programs[0]} is where commands can write" if programs else ""
            return Drawing(fault=f"no {name} is installed that can be used outside the sandbox{where}.")
        found.append(os.path.realpath(safe))
    return Drawing(*found)


def _on_path(name: str, folders: Sequence[str]) -> list[str]:
    return [os.path.join(folder, name) for folder in folders if os.path.isabs(folder)]


def _is_steered(path: str, writable: Sequence[str]) -> bool:
    """Whether somebody who writes in these folders decides what this path is."""
    try:
        return any(within(step, folder) for step in _way(path) for folder in writable)
    except OSError:
        return True


def _way(path: str) -> Iterator[str]:
    """Every place that a path leads through, links one by one."""
    here, left, links = "/", path.split("/"), 0
    while left:
        name = left.pop(0)
        if name in ("", ".", ".."):
            here = os.path.dirname(here) if name == ".." else here
            continue
        step = os.path.join(here, name)
        yield step
        if not os.path.islink(step):
            here = step
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(f"{path} leads through too many links")
        target = os.readlink(step)
        here = "/" if os.path.isabs(target) else here
        left = [*target.split("/"), *left]


class Terminal:
    """`output` is where the pane's bytes are read; `device` is what the process gets as its standard files."""

    def __init__(self, drawing: Drawing, folder: str) -> None:
        self._drawing, self._folder = drawing, folder
        self._alive = self._held = self.output = -1
        self.device = ""

    async def open(self) -> None:
        """Have tmux draw an empty pane. Raises `Conflict` saying what tmux said."""
        for name in ("alive", "pane"):
            os.mkfifo(os.path.join(self._folder, name), 0o600)
        alive, pane = (os.path.join(self._folder, name) for name in ("alive", "pane"))
        try:
            self._alive = os.open(alive, os.O_RDWR | os.O_CLOEXEC)
            self.output = os.open(pane, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            self._held = os.open(pane, os.O_WRONLY | os.O_CLOEXEC)  # without a writer, a reader finds an end
            holder = [self._drawing.python, "-I", "-S", "-c", _HOLDER, alive, pane]
            size = ["-x", str(COLUMNS), "-y", str(ROWS)]
            self.device = (
                await self._ask("new-session", "-d", "-s", NAME, *size, "-P", "-F", "#{pane_tty}", *holder)
            ).strip()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await readable(self.output)
            os.read(self.output, 1)
            await self._ask("set-option", "-g", "status", "off")
            copy = f"exec cat >{shlex.quote(pane)}".replace("#", "##").replace("%", "%%")  # tmux fills those in
            await self._ask("pipe-pane", "-t", NAME, copy)
        except (OSError, TimeoutError) as error:
            await self.close()
            raise Conflict(f"tmux gave no terminal: {error or 'it took too long'}") from None
        except BaseException:
            await self.close()
            raise

    async def capture(self) -> str:
        """What the screen shows, in whole lines: one that the screen breaks, or whose beginning has scrolled away, is
        shown as it was printed, since half a secret is not recognised."""
        border = token_hex(16)
        joined = ["capture-pane", "-p", "-J", "-t", NAME]
        said = await self._ask(*joined, ";", "display-message", "-p", border, ";", *joined, "-S", str(-ROWS))
        screen, _, whole = said.partition(f"{border}\n")
        lines = whole.split("\n")[-(screen.count("\n") + 1) :]
        return "\n".join(line.rstrip() for line in lines).rstrip("\n")

    async def type(self, text: str) -> None:
        """Type a text as it is; a newline is the Enter key. It is pasted, since tmux reads what its keys are called."""
        if text:
            await self._ask("load-buffer", "-", given=text)
            await self._ask("paste-buffer", "-d", "-t", NAME)

    async def press(self, keys: Sequence[str]) -> None:
        await self._ask("send-keys", "-t", NAME, *keys)

    async def settle(self) -> None:
        """Wait until tmux has looked at everything that was printed before now."""
        with suppress(Conflict):
            await self._ask("display-message", "-p", "-t", NAME, "")

    def release(self) -> None:
        """Let the pane end by itself: what it still holds is read first."""
        for fd in (self._alive, self._held):
            if fd >= 0:
                os.close(fd)
        self._alive = self._held = -1

    async def close(self) -> None:
        """End tmux. Safe to call at any time."""
        self.release()
        if os.path.exists(os.path.join(self._folder, "tmux")):
            with suppress(Conflict):
                await self._ask("kill-server")
        if self.output >= 0:
            os.close(self.output)
            self.output = -1
        for name in ("alive", "pane", "tmux"):
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, name))

    async def _ask(self, *words: str, given: str | None = None) -> str:
        """One word to the tmux server. The socket's name is relative: whole paths can be too long for one."""
        try:
            process = await asyncio.create_subprocess_exec(
                "tmux",
                *("-u", "-S", "tmux", "-f", os.devnull),
                *words,
                executable=self._drawing.tmux,
                cwd=self._folder,
                env={"PATH": os.defpath, "LANG": "C.UTF-8", "TERM": "screen", "SHELL": "/bin/sh"},
                stdin=asyncio.subprocess.DEVNULL if given is None else asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise Conflict(f"tmux could not be started: {error.strerror}") from None
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                out, wrong = await process.communicate(None if given is None else given.encode("utf-8", "replace"))
        except BaseException as error:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if isinstance(error, TimeoutError):
                raise Conflict(f"tmux did not answer within {PATIENCE_SECONDS:g} s") from None
            raise
        if process.returncode:
            raise Conflict(f"tmux refused: {wrong.decode('utf-8', 'replace').strip() or process.returncode}")
        return out.decode("utf-8", "replace")
