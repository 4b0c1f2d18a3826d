"""Nothing outlives the runtime, in whatever way it dies."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sandbox.boxing import ALL, box_at, opened, require, sh, told

_RUNTIME = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.boxing import box_at, opened, sh

DAEMON = "(setsid flock -s held sleep 600 </dev/null >/dev/null 2>&1 &); until test -e held; do :; done; "

async def main():
    async with opened(sys.argv[1]) as sandbox:
        box = box_at(Path(sys.argv[2]))
        heard = lambda data: print(sandbox._keeper._process.pid, data.decode().strip(), flush=True)
        await sh(sandbox, DAEMON + "echo $TMPDIR; exec flock -s held sleep 600", box, heard=heard)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ALL)
def test_a_runtime_that_is_killed_leaves_no_child_behind(name: str, tmp_path: Path) -> None:
    require(name, "that a killed runtime leaves nothing behind")
    runtime = subprocess.Popen(
        [sys.executable, "-c", _RUNTIME, name, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert runtime.stdout is not None
    pid, private = runtime.stdout.readline().split()
    keeper = os.pidfd_open(int(pid))
    runtime.send_signal(signal.SIGKILL)
    runtime.communicate()
    assert _ended(keeper)
    # Whoever still had the lock would keep this waiting.
    assert subprocess.run(["flock", "-x", "-w", "20", str(tmp_path / "held"), "true"], check=False).returncode == 0
    # Its private folder goes last, and is no more than a name in a namespace that is gone.
    wait = ["timeout", "20", "bash", "-c", f"while test {private} != /tmp -a -e {private}; do :; done"]
    assert subprocess.run(wait, check=False).returncode == 0


@pytest.mark.parametrize("name", ALL)
def test_a_keeper_that_is_killed_is_replaced_and_its_commands_go_on(name: str, tmp_path: Path) -> None:
    require(name, "that it survives its keeper")

    async def run() -> tuple[tuple[str, int, str], tuple[str, int, str]]:
        async with opened(name) as sandbox:
            going = asyncio.Event()
            box = box_at(tmp_path)
            line = "echo going; until test -e go; do :; done; echo went"
            task = asyncio.create_task(sh(sandbox, line, box, heard=lambda _: going.set()))
            await going.wait()
            process = sandbox._keeper._process  # type: ignore[attr-defined]
            process.kill()
            process.wait()
            second = told(await sh(sandbox, "touch go; echo second", box))
            return told(await task), second

    assert asyncio.run(run()) == (("exited", 0, "going\nwent\n"), ("exited", 0, "second\n"))


def test_a_warden_that_is_killed_takes_its_command_along(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened("none") as sandbox:
            line = "(setsid flock -s held sleep 600 &); until test -e held; do :; done; kill -9 $PPID; sleep 600"
            with pytest.raises(OSError, match="the keeper of commands died"):
                await sh(sandbox, line, box_at(tmp_path))
            waiting = await asyncio.create_subprocess_exec("flock", "-x", "-w", "20", str(tmp_path / "held"), "true")
            assert await waiting.wait() == 0

    asyncio.run(run())


def _ended(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 20)[0])
    finally:
        os.close(pidfd)
