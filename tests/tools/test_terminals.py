"""What draws terminals runs outside the sandbox: it never comes from where commands can write, and hides no secret."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from duragent.core.events import ToolAnswer
from duragent.tools import processes
from duragent.tools.terminals import Drawing, find_drawing
from tests.tools.running import Door, asked, hosted, program

PYTHON = os.path.realpath(sys.executable)
TMUX = pytest.mark.skipif(
    not find_drawing((), os.get_exec_path()).tmux, reason="NOT PROVEN: interactive processes (tmux is not installed)"
)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return (tmp_path / "work").resolve()


def test_tmux_is_taken_from_the_first_folder_that_commands_cannot_write(work: Path, tmp_path: Path) -> None:
    program(work / "bin" / "tmux", "exit 1")
    system = program(tmp_path / "system" / "tmux", "exit 0")
    folders = ["", "bin", str(work / "bin"), str(tmp_path / "system")]
    assert find_drawing([str(work)], folders) == Drawing(str(system.resolve()), PYTHON)


def test_a_link_is_followed_once_to_what_it_really_is(work: Path, tmp_path: Path) -> None:
    system = program(tmp_path / "system" / "tmux-3", "exit 0")
    (tmp_path / "system" / "tmux").symlink_to("./tmux-3")
    (tmp_path / "bin").symlink_to(tmp_path / "system")
    assert find_drawing([str(work)], [str(tmp_path / "bin")]) == Drawing(str(system.resolve()), PYTHON)


def test_a_way_that_commands_can_turn_elsewhere_is_not_gone(work: Path, tmp_path: Path) -> None:
    program(tmp_path / "system" / "tmux", "exit 0")
    (work / "door").symlink_to(tmp_path / "system")  # the file is safe, the way to it is not
    (tmp_path / "bin").symlink_to(work / "door")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    found = find_drawing([str(work)], [str(tmp_path / "bin"), str(tmp_path / "round")])
    fault = (
        "no tmux is installed that can be used outside the sandbox; "
        f"the one at {tmp_path / 'bin' / 'tmux'} is where commands can write."
    )
    assert found == Drawing(fault=fault)


def test_of_an_interpreter_in_the_agents_folder_its_base_is_used(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmux = program(tmp_path / "system" / "tmux", "exit 0").resolve()
    (work / ".venv" / "bin").mkdir(parents=True)
    (work / ".venv" / "bin" / "python").symlink_to(sys.executable)
    base = program(tmp_path / "base" / "bin" / f"python3.{sys.version_info.minor}", "exit 0").resolve()
    monkeypatch.setattr(sys, "executable", str(work / ".venv" / "bin" / "python"))
    monkeypatch.setattr(sys, "base_exec_prefix", str(tmp_path / "base"))
    assert find_drawing([str(work)], [str(tmp_path / "system")]) == Drawing(str(tmux), str(base))
    monkeypatch.setattr(sys, "base_exec_prefix", str(work))
    python = program(tmp_path / "system" / "python3", "exit 0").resolve()
    assert find_drawing([str(work)], [str(tmp_path / "system")]) == Drawing(str(tmux), str(python))
    python.unlink()
    fault = (
        "no Python is installed that can be used outside the sandbox; "
        f"the one at {sys.executable} is where commands can write."
    )
    assert find_drawing([str(work)], [str(tmp_path / "system")]) == Drawing(fault=fault)


def test_a_tmux_of_the_agents_own_is_never_run(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = program(work / "bin" / "tmux", f"touch {tmp_path}/escaped")
    monkeypatch.setenv("PATH", str(work / "bin"))

    async def spawn() -> ToolAnswer:
        async with hosted(tmp_path) as host:
            return await asked(processes.make(host), action="spawn", command="true", interactive=True)

    assert asyncio.run(spawn()) == ToolAnswer(
        False,
        "An interactive process needs a terminal: no tmux is installed that can be used outside the sandbox; "
        f"the one at {own} is where commands can write. Spawn it without interactive.",
    )
    assert not (tmp_path / "escaped").exists()


@TMUX
def test_programs_that_appear_later_are_not_looked_at(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def spawn() -> bool:
        async with hosted(tmp_path, door=Door()) as host:
            tool = processes.make(host)
            program(work / "bin" / "tmux", f"touch {tmp_path}/escaped")
            monkeypatch.setenv("PATH", f"{work}/bin:{os.environ['PATH']}")
            return (await asked(tool, action="spawn", command="true", interactive=True, wait=True)).success

    assert (asyncio.run(spawn()), (tmp_path / "escaped").exists()) == (True, False)


@TMUX
@pytest.mark.parametrize(
    ("script", "shown"),
    [
        ("printf '%195s' x; echo tok-$((123455 + 1)) after", f"{'x':>195}[TOKEN] after"),
        # the line begins above the screen: 49 lines follow its second half
        (
            "printf '%195s' x; echo tok-$((123455 + 1)); seq 48; printf 49",
            "\n".join([f"{'x':>195}[TOKEN]", *map(str, range(1, 50))]),
        ),
    ],
)
def test_a_secret_that_the_screen_breaks_in_two_is_recognised(script: str, shown: str, tmp_path: Path) -> None:
    async def screens() -> list[str]:
        door = Door()
        about = {"door": door, "redact": lambda text: text.replace("tok-123456", "[TOKEN]")}
        async with hosted(tmp_path, **about) as host:
            tool = processes.make(host)
            spawned = await asked(tool, action="spawn", command=f"{script}; read -s end", interactive=True)
            handle = json.loads(spawned.content)["handle"]
            live = ""
            async with asyncio.timeout(30):
                while not live.endswith(shown[-5:]):
                    live = (await asked(tool, action="capture", handle=handle)).content
            await asked(tool, action="send_keys", handle=handle, keys="Enter", press_enter=False)
            await door.until(1)
            return [live, (Path(host.workspace) / "processes" / handle / "screen").read_text()]

    assert asyncio.run(screens()) == [shown, shown]
