"""Nothing outlives the runtime, in whatever way it dies."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from duragent.sandbox.keeper_main import children, next_tick
from tests.sandbox.boxing import ALL, box_at, opened, require, sh, told

_RUNTIME = """
import asyncio, sys
from pathlib import Path
from tests.sandbox.boxing import box_at, opened, sh

DAEMON = "(setsid flock -s held sleep 600 </dev/null >/dev/null 2>&1 &); until test -e held; do :; done; "

async def main():
    async with opened(sys.argv[1]) as sandbox:
        folder = Path(sys.argv[2])
        box = box_at(folder, protected=tuple(str(folder / name) for name in sys.argv[3:]))
        heard = lambda data: print(sandbox._keeper._process.pid, data.decode().strip(), flush=True)
        await sh(sandbox, DAEMON + "echo $TMPDIR; exec flock -s held sleep 600", box, heard=heard)

asyncio.run(main())
"""


@pytest.mark.parametrize("name", ALL)
def test_a_runtime_that_is_killed_leaves_no_child_behind(name: str, tmp_path: Path) -> None:
    require(name, "that a killed runtime leaves nothing behind")
    with _runtime(name, tmp_path) as (runtime, pid, private):
        keeper = os.pidfd_open(pid)
        runtime.send_signal(signal.SIGKILL)
    assert _ended(keeper)
    # Whoever still had the lock would keep this waiting.
    assert subprocess.run(["flock", "-x", "-w", "20", str(tmp_path / "held"), "true"], check=False).returncode == 0
    # Its private folder goes last, and is no more than a name in a namespace that is gone.
    assert private == "/tmp" or _gone(private)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_runtime_that_is_killed_leaves_no_stand_in_in_a_person_s_folder(
    tmp_path: Path, number: signal.Signals
) -> None:
    require("bubblewrap", "that a killed runtime leaves no stand-ins")
    (tmp_path / ".idea").mkdir()
    protected = (".git", ".envrc", ".vscode", ".idea", "deep/er")
    with _runtime("bubblewrap", tmp_path, *protected) as (runtime, _, _):
        assert _names(tmp_path) == [".envrc", ".git", ".idea", ".vscode", "deep", "held"]
        (tmp_path / ".git/mine").write_text("made by a person while the command ran")
        runtime.send_signal(number)
        runtime.wait()
    assert [_gone(str(tmp_path / name)) for name in ("deep", ".vscode", ".envrc")] == [True, True, True]
    assert (_names(tmp_path), _names(tmp_path / ".git")) == ([".git", ".idea", "held"], ["mine"])


def test_processes_are_counted_less_often_the_longer_there_are_no_more_of_them() -> None:
    ticks, tick, known = [], 50, 0
    for count in (1, 1, 1, 1, 1, 1, 3, 2, 3):
        tick, known = next_tick(tick, known, count), count
        ticks.append(tick)
    assert ticks == [50, 100, 200, 400, 500, 500, 50, 100, 50]


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


def test_after_a_killed_warden_that_stood_by_commands_run_as_before(tmp_path: Path) -> None:
    async def run() -> list[tuple[str, int, str]]:
        async with opened("none") as sandbox:
            first = told(await sh(sandbox, "echo first", box_at(tmp_path)))
            keeper = sandbox._keeper._process  # type: ignore[attr-defined]
            while keeper.poll() is None:  # it goes too: an order may have been half read
                for pid in children(keeper.pid):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            return [first, told(await sh(sandbox, "echo second", box_at(tmp_path)))]

    assert asyncio.run(run()) == [("exited", 0, "first\n"), ("exited", 0, "second\n")]


def test_a_warden_that_is_killed_takes_its_command_along(tmp_path: Path) -> None:
    async def run() -> None:
        async with opened("none") as sandbox:
            line = "(setsid flock -s held sleep 600 &); until test -e held; do :; done; kill -9 $PPID; sleep 600"
            with pytest.raises(OSError, match="the keeper of commands died"):
                await sh(sandbox, line, box_at(tmp_path))
            waiting = await asyncio.create_subprocess_exec("flock", "-x", "-w", "20", str(tmp_path / "held"), "true")
            assert await waiting.wait() == 0

    asyncio.run(run())


@contextmanager
def _runtime(name: str, folder: Path, *protected: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A runtime with a command and a daemon: itself, its keeper's process id, the command's private folder."""
    runtime = subprocess.Popen(
        [sys.executable, "-c", _RUNTIME, name, str(folder), *protected],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert runtime.stdout is not None
        pid, private = runtime.stdout.readline().split()
        yield runtime, int(pid), private
    finally:
        runtime.kill()
        runtime.communicate()


def _gone(path: str) -> bool:
    wait = ["timeout", "20", "bash", "-c", 'while test -e "$0"; do :; done', path]
    return subprocess.run(wait, check=False).returncode == 0


def _names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def _ended(pidfd: int) -> bool:
    try:
        return bool(select.select([pidfd], [], [], 20)[0])
    finally:
        os.close(pidfd)
