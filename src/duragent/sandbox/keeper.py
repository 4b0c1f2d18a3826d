"""The runtime's side of the keeper: hand over an order with open files, hear how the command ended.

One `Keeper` for each sandbox. Its process starts with the first command and is started again should it die. The
runtime talks with the warden of each command through a socket of its own: as long as that socket is open the command
may live. Knows nothing of output and time; that is `running.py`.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, to_builtins

from duragent.sandbox import Ending, Limits
from duragent.sandbox.keeper_main import send

Value = TypeVar("Value")
_MAIN = Path(__file__).with_name("keeper_main.py")
_PYTHON = os.path.realpath(sys.executable)  # where it is now: a link could lead elsewhere later
_SEND_SECONDS = 10.0
_NEEDED = ("LD_LIBRARY_PATH",)  # for an interpreter that is built of shared parts; commands do not get it
_OPEN_FILES = 16_384
_ENDINGS: Mapping[str, Ending] = {"exited": "exited", "signalled": "signalled", "processes": "processes"}


class Order(Struct, frozen=True):
    """One command, exactly as it is to be started. Extra files of an order become 3, 4 and so on in the command."""

    argv: Sequence[str]
    cwd: str
    environment: Mapping[str, str]
    limits: Mapping[str, int]
    processes: int
    skipped: int = 0  # how many processes stand between the warden and the program; they are not asked to end
    confined: bool = False  # no new privileges, and what follows
    powerless: bool = False  # without capabilities, also as root
    ruleset: int = 0  # the number, in the command, of a Landlock ruleset
    seccomp: str = ""  # a filter program, in hex
    private: str = ""  # a folder that goes with the command, should the runtime be gone by then
    stand_ins: Sequence[tuple[str, int, int]] = ()  # and so do these: path, device and number of each


def rlimits(limits: Limits) -> dict[str, int]:
    """What the kernel itself keeps for each process."""
    return {"DATA": limits.memory_bytes, "FSIZE": limits.file_bytes, "CORE": 0, "NOFILE": _OPEN_FILES}


class Command:
    """A command that was ordered. `ended` is the truth about it; nothing it started is left by then."""

    def __init__(self, control: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.pid = 0
        self.started: asyncio.Future[int] = loop.create_future()
        self.ended: asyncio.Future[tuple[Ending, int]] = loop.create_future()
        self._control, self._loop = control, loop
        loop.add_reader(control.fileno(), self._hear)

    def tell(self, word: bytes) -> None:
        """`T`: ask every process to end; `K`: end them."""
        with suppress(OSError):
            self._control.send(word)

    def drop(self) -> None:
        """Let go of it: whatever still runs is ended by its warden."""
        if self._control.fileno() >= 0:
            self._loop.remove_reader(self._control.fileno())
            self._control.close()
        for future in (self.started, self.ended):
            if not future.done():
                future.set_exception(OSError("the keeper of commands died; the command was ended with it"))
                future.exception()  # nobody has to ask

    def _hear(self) -> None:
        try:
            said = self._control.recv(8192)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        word, _, rest = said.decode("utf-8", "replace").partition(" ")
        if word == "started":
            self.pid = int(rest)
            _settle(self.started, self.pid)
            return
        if word == "failed":
            number, _, step = rest.partition(" ")
            fault = OSError(int(number), os.strerror(int(number)), step)
            self.started.set_exception(fault)
            self.ended.set_exception(fault)
            self.ended.exception()
        elif word in _ENDINGS:
            _settle(self.ended, (_ENDINGS[word], int(rest)))
        self.drop()


def _settle(future: asyncio.Future[Value], value: Value) -> None:
    if not future.done():
        future.set_result(value)


class Keeper:
    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._door: socket.socket | None = None
        self._commands: set[Command] = set()

    async def start(self, order: Order, files: Sequence[int]) -> Command:
        """Start a command with these open files; the caller closes its own copies. Raises `OSError` where it cannot."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        body = json.dumps(to_builtins(order)).encode()  # names on disk need not be Unicode, and this escapes them
        with theirs:
            try:
                self._send(body, [theirs.fileno(), *files])
            except OSError:
                self._end()
                try:
                    self._send(body, [theirs.fileno(), *files])
                except OSError:
                    ours.close()
                    raise
        command = Command(ours, loop)
        self._commands.add(command)
        command.ended.add_done_callback(lambda _: self._commands.discard(command))
        try:
            await asyncio.shield(command.started)
        except asyncio.CancelledError:
            command.tell(b"K")
            with suppress(OSError):
                await asyncio.shield(command.ended)
            raise
        except OSError as fault:
            what = {"cwd": order.cwd, "exec": order.argv[0]}.get(fault.filename, fault.filename)
            raise OSError(fault.errno, fault.strerror or str(fault), what) from None
        return command

    async def close(self) -> None:
        """End every command, then the keeper."""
        left = [command.ended for command in self._commands]
        for command in [*self._commands]:
            command.tell(b"K")
        if left:
            await asyncio.wait(left)
        self._end()

    def _send(self, body: bytes, files: Sequence[int]) -> None:
        send(self._open(), body, files)

    def _open(self) -> socket.socket:
        if self._door is not None and self._process is not None and self._process.poll() is None:
            return self._door
        self._end()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        with theirs:
            self._process = subprocess.Popen(
                [_PYTHON, "-I", "-S", str(_MAIN), str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                cwd="/",
                env={name: os.environ[name] for name in _NEEDED if name in os.environ},
            )
        ours.settimeout(_SEND_SECONDS)
        self._door = ours
        return ours

    def _end(self) -> None:
        if self._door is not None:
            self._door.close()
        if self._process is not None:
            try:
                self._process.wait(_SEND_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._door = self._process = None
