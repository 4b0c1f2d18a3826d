"""A real pseudo-terminal with the program in it: type, and wait for what is shown."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import TracebackType

from tests.cli.workspace import environment

PATIENCE_SECONDS = 30
_CONTROL = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][0-9A-B]|[=>78DEMc])|[\r\x07\x08]")
ENTER, CTRL_C, CTRL_D = "\r", "\x03", "\x04"


class Terminal:
    """`raw` is every byte that was written to the terminal; `plain` the same without what only steers it."""

    def __init__(self, command: list[str], folder: Path, **extra: str) -> None:
        self.raw = b""
        self._from = 0
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        self.process = subprocess.Popen(
            [sys.executable, *command],
            cwd=folder,
            env=environment(folder, list(extra.items())),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.kill()
        os.close(self._master)

    @property
    def plain(self) -> str:
        return _CONTROL.sub("", self.raw.decode("utf-8", "replace"))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def until(self, wanted: str) -> None:
        """Wait until `wanted` is shown, after what was waited for before."""
        while (place := self.plain.find(wanted, self._from)) < 0:
            if not self._read():
                raise AssertionError(f"{wanted!r} was never shown; there is:\n{self.plain}")
        self._from = place + len(wanted)

    def ended(self) -> int:
        """Wait for the end of the program; its exit code."""
        while self._read():
            pass
        return self.process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(PATIENCE_SECONDS)

    def _read(self) -> bool:
        ready, _, _ = select.select([self._master], [], [], PATIENCE_SECONDS)
        try:
            more = os.read(self._master, 65536) if ready else b""
        except OSError:  # the program has closed its side
            more = b""
        self.raw += more
        if b"\x1b[6n" in more:
            self.type("\x1b[1;1R")  # where the cursor is; the prompt asks for it, as it does in every terminal
        return bool(more)
