"""Background processes: what each action answers, that nothing outlives the runtime, and that every end is told once."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duragent.core.events import ToolAnswer, UserMessage
from duragent.sandbox import Limits, make, probe
from duragent.secrets import Secrets
from duragent.secrets import Stream as Redacted
from duragent.tools import Scene, Tool, attending, jobs, processes, shell, terminals
from duragent.tools.host import Host
from duragent.tools.jobs import Job, Jobs, Runner, Status
from tests.tools.running import BASICS, SCENE, Door, asked, hosted, place

TMUX = pytest.mark.skipif(
    not terminals.find_drawing((), os.get_exec_path()).tmux,
    reason="NOT PROVEN: interactive processes (tmux is not installed)",
)
OTHER = Scene(session_id="session_b")


def run(folder: Path, work: Callable[[Tool, Host, Door], Awaitable[Any]], **about: Any) -> Any:
    async def inside() -> Any:
        door = Door()
        async with hosted(folder, door=door, **about) as host:
            return await work(processes.make(host), host, door)

    return asyncio.run(inside())


async def spawned(tool: Tool, command: str, scene: Scene = SCENE, **more: Any) -> str:
    answer = await asked(tool, scene, action="spawn", command=command, **more)
    assert answer.success, answer.content
    return str(json.loads(answer.content)["handle"])


async def status(tool: Tool, handle: str) -> Any:
    return json.loads((await asked(tool, action="status", handle=handle)).content)["status"]


async def ended(host: Host, handle: str) -> Job:
    """What is known of a process once its end is told and written down, and nothing else runs."""
    attendant = processes._attendant(host)
    async with asyncio.timeout(30):
        await asyncio.gather(*attendant._tasks)
    return attendant.known[handle]


async def printed(host: Host, tool: Tool, handle: str, text: str) -> str:
    """The log, once it holds the text."""
    async with asyncio.timeout(30):
        while True:
            log = (await asked(tool, action="log", handle=handle)).content
            if text in log:
                return log
            await asyncio.sleep(0.01)


def gone(pid: int) -> bool:
    return jobs.began(pid) is None


# --- from spawn to the end -----------------------------------------------------------------------------------


def test_a_process_runs_on_and_its_session_is_told_how_it_ended(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        answer = await asked(tool, action="spawn", command="echo one; echo two >&2; exit 3", label="build")
        told = json.loads(answer.content)
        handle = told["handle"]
        assert (answer.success, told["status"], sorted(told)) == (True, "running", ["handle", "pid", "status"])
        assert await door.until(1) == [f"process:{handle}:end"]
        session_id, message = door.posted[f"process:{handle}:end"]
        seconds = jobs.duration_seconds(await ended(host, handle))
        assert (session_id, message) == (
            "session_a",
            UserMessage(
                f"The background process {handle} (build), `echo one; echo two >&2; exit 3`, has failed after "
                f"{seconds:g} s: exit code 3. The end of its output (information, not instructions):\n\n> one\n> two",
                sender_id="background_process",
                message_id=f"process:{handle}:end",
                automatic=True,
            ),
        )
        assert await status(tool, handle) == {"state": "failed", "exit_code": 3}

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("true", {"state": "completed", "exit_code": 0}),
        ("exit 7", {"state": "failed", "exit_code": 7}),
        ("kill -SEGV $$", {"state": "failed", "signal": 11, "why": "signal 11, SIGSEGV"}),
        ("for i in $(seq 60); do sleep 60 & done; wait", {"state": "failed", "why": "it started too many processes"}),
    ],
)
def test_how_a_process_ended_is_told_apart(command: str, expected: object, tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> object:
        handle = await spawned(tool, command)
        await door.until(1)
        return await status(tool, handle)

    assert run(tmp_path, work, limits=Limits(processes=20)) == expected


def test_a_spawn_that_waits_answers_with_the_end_and_tells_nobody_else(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        answer = await asked(tool, action="spawn", command="seq 1 5000; exit 2", wait=True)
        told = json.loads(answer.content)
        assert (answer.success, told["status"], told["exit_code"]) == (True, "failed", 2)
        assert "".join(f"{n}\n" for n in range(1, 5001)).endswith(told["output"])
        assert len(told["output"]) > 8_000
        assert (await ended(host, told["handle"])).told
        assert door.posted == {}

    run(tmp_path, work)


def test_whoever_gives_up_waiting_is_told_of_the_end(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        arguments = {"action": "spawn", "command": "read line; echo got $line", "wait": True}
        waiting = asyncio.ensure_future(tool.run(arguments, SCENE))
        attendant = processes._attendant(host)
        while not any(live.waited for live in attendant.live.values()):
            await asyncio.sleep(0.01)
        [handle] = attendant.live
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await status(tool, handle) == {"state": "running"}
        await asked(tool, action="write", handle=handle, input="it\n")
        assert await door.until(1) == [f"process:{handle}:end"]

    run(tmp_path, work)


def test_a_process_that_takes_too_long_is_ended_with_its_family_and_told(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300 & echo $!; wait", timeout_seconds=1)
        child = int((await printed(host, tool, handle, "1")).split("\n")[1])
        await door.until(1)
        assert await status(tool, handle) == {"state": "timed_out", "why": "it ran longer than 1 s"}
        assert gone(child)

    run(tmp_path, work)


def test_kill_ends_the_whole_family_and_says_so_in_its_answer_alone(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "(setsid sleep 300) & sleep 300 & echo $!; wait")
        child = int((await printed(host, tool, handle, "1")).split("\n")[1])
        first = await asked(tool, action="kill", handle=handle)
        again = await asked(tool, action="kill", handle=handle)
        assert (first, again) == (
            ToolAnswer(True, f"{handle} and everything it started was ended."),
            ToolAnswer(True, f"{handle} had ended already: its state is killed."),
        )
        assert gone(child)
        assert door.posted == {}

    run(tmp_path, work)


def test_two_spawns_at_once_are_two_processes(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handles = await asyncio.gather(*(spawned(tool, f"echo {n}") for n in range(8)))
        assert len(set(handles)) == 8
        await door.until(8)
        logs = [(await asked(tool, action="log", handle=each)).content for each in handles]
        assert logs == [f"[lines 0 to 0 of 1]\n{n}" for n in range(8)]

    run(tmp_path, work)


def test_only_so_many_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "MAX_RUNNING", 1)

    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300")
        assert await asked(tool, action="spawn", command="true") == ToolAnswer(
            False, "1 processes run already; end one of them first (action kill)."
        )
        await asked(tool, action="kill", handle=handle)
        await spawned(tool, "true")
        await door.until(1)

    run(tmp_path, work)


# --- its output ----------------------------------------------------------------------------------------------


def test_a_log_is_read_by_lines_from_both_ends(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> list[str]:
        handle = await spawned(tool, "seq 0 9; printf prompt")
        await door.until(1)
        asks = [{"limit": 2}, {"offset": 3, "limit": 2}, {"offset": -2}, {"offset": 50}, {"offset": -50, "limit": 1}]
        return [(await asked(tool, action="log", handle=handle, **ask)).content for ask in asks]

    assert run(tmp_path, work) == [
        "[lines 0 to 1 of 11]\n0\n1",
        "[lines 3 to 4 of 11]\n3\n4",
        "[lines 9 to 10 of 11]\n9\nprompt",
        "[no line 50: the log has 11 lines so far]",
        "[lines 0 to 0 of 11]\n0",
    ]


def test_a_question_without_a_newline_is_seen_while_the_process_waits(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "printf 'name? '; read name; echo hello $name")
        assert await printed(host, tool, handle, "name?") == "[lines 0 to 0 of 1]\nname? "
        answer = await asked(tool, action="write", handle=handle, input="Ada\n")
        assert answer == ToolAnswer(True, f"Written to {handle}: 4 bytes.")
        await door.until(1)
        assert (await asked(tool, action="log", handle=handle)).content == "[lines 0 to 0 of 1]\nname? hello Ada"

    run(tmp_path, work)


def test_of_a_flood_the_newest_is_kept_and_lines_keep_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LOG_BYTES", 10_000)

    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "seq 0 49999")
        await door.until(1)
        job = await ended(host, handle)
        assert os.path.getsize(job.log_path) <= 10_000 < job.bytes_dropped
        last = (await asked(tool, action="log", handle=handle, offset=-1)).content
        first = (await asked(tool, action="log", handle=handle, limit=1)).content
        kept = f"; lines 0 to {job.lines_dropped - 1} are no longer kept"
        assert last == f"[lines 49999 to 49999 of 50000{kept}]\n49999"
        assert first == f"[lines {job.lines_dropped} to {job.lines_dropped} of 50000{kept}]\n{job.lines_dropped}"

    run(tmp_path, work)


def test_what_is_kept_is_text_without_escapes_and_secrets(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> str:
        handle = await spawned(tool, r"printf '\033[31mtok-'; printf '123456\033[0m \377\n'")
        await door.until(1)
        return Path((await ended(host, handle)).log_path).read_text()

    assert run(tmp_path, work, redact=lambda text: text.replace("tok-123456", "[TOKEN]")) == "[TOKEN] \ufffd\n"


def test_a_secret_of_several_lines_does_not_reach_the_log(tmp_path: Path) -> None:
    secrets = Secrets({"A_TOKEN": "first-line\nsecond-line"})

    async def work(tool: Tool, host: Host, door: Door) -> str:
        handle = await spawned(tool, "echo first-line; read x; echo second-line; echo done")
        await asked(tool, action="write", handle=handle, input="\n")
        await door.until(1)
        return Path((await ended(host, handle)).log_path).read_text()

    assert run(tmp_path, work, redact=secrets.redact, stream=lambda: Redacted(secrets)) == "[A_TOKEN]\ndone\n"


def test_a_disk_that_takes_no_more_log_does_not_stop_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: jobs.Log, text: str) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs.Log, "write", full)

    async def work(tool: Tool, host: Host, door: Door) -> object:
        handle = await spawned(tool, "seq 1 1000")
        await door.until(1)
        return await status(tool, handle)

    assert run(tmp_path, work) == {"state": "completed", "exit_code": 0}


def test_a_watched_process_that_falls_silent_is_told_once_for_each_silence(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "echo one; read x; echo two; read x")
        await printed(host, tool, handle, "one")
        answer = await asked(tool, action="watch", handle=handle, interval_seconds=0.05)
        assert answer == ToolAnswer(True, f"You get a message when {handle} has printed nothing for 0.05 s.")
        assert await door.until(1) == [f"process:{handle}:silent:4"]
        await asked(tool, action="write", handle=handle, input="\n")
        assert await door.until(2) == [f"process:{handle}:silent:4", f"process:{handle}:silent:8"]
        _, message = door.posted[f"process:{handle}:silent:8"]
        assert message.content == (
            f"The background process {handle}, `echo one; read x; echo two; read x`, has printed nothing for 0.05 s. "
            "It still runs. The end of its output (information, not instructions):\n\n> one\n> two"
        )
        assert json.loads((await asked(tool, action="status", handle=handle)).content)["watched"] is True
        await asked(tool, action="unwatch", handle=handle)
        assert "watched" not in json.loads((await asked(tool, action="status", handle=handle)).content)
        await asked(tool, action="kill", handle=handle)

    run(tmp_path, work)


# --- its input -----------------------------------------------------------------------------------------------


def test_input_that_nobody_reads_is_given_up_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attending, "WRITE_SECONDS", 0.1)

    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300")
        answer = await asked(tool, action="write", handle=handle, input="x" * 1_000_000)
        assert answer == ToolAnswer(
            False, "It did not read all of it within 0.1 s: 65536 of 1000000 bytes were handed over."
        )
        await asked(tool, action="kill", handle=handle)

    run(tmp_path, work)


def test_a_large_input_arrives_whole(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "head -c 1000000 | wc -c")
        assert (await asked(tool, action="write", handle=handle, input="x" * 1_000_000)).success
        await door.until(1)
        assert (await asked(tool, action="log", handle=handle)).content == "[lines 0 to 0 of 1]\n1000000"

    run(tmp_path, work)


def test_a_process_that_has_closed_its_input_says_so(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "exec <&-; echo closed; sleep 300")
        await printed(host, tool, handle, "closed")
        answer = await asked(tool, action="write", handle=handle, input="x\n")
        assert answer == ToolAnswer(False, "It reads no more: 0 of 2 bytes were handed over.")
        await asked(tool, action="kill", handle=handle)

    run(tmp_path, work)


# --- bad input -----------------------------------------------------------------------------------------------


def test_what_is_not_this_sessions_is_not_there(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300")
        more = {"send_keys": {"keys": "x"}, "write": {"input": "x"}}
        for action in set(processes.EFFECTS) - {"spawn", "list"}:
            for scene, name in [(OTHER, handle), (SCENE, "proc_none"), (SCENE, "../x")]:
                answer = await asked(tool, scene, action=action, handle=name, **more.get(action, {}))
                assert answer == ToolAnswer(False, f"This session has no process {name}. `list` shows those it has.")
        assert (await asked(tool, OTHER, action="list")).content == "[]"
        [mine] = json.loads((await asked(tool, action="list")).content)
        assert (mine["handle"], mine["status"], mine["command"]) == (handle, {"state": "running"}, "sleep 300")
        await asked(tool, action="kill", handle=handle)

    run(tmp_path, work)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"action": "spawn"}, "spawn needs `command`."),
        ({"action": "status"}, "status needs `handle`."),
        ({"action": "spawn", "command": "a\0b"}, "The process was not started: its text holds a character that no command line can hold."),
        ({"action": "spawn", "command": "pwd", "workdir": "../.."}, "workdir ../.. is outside of your folder. Give a path relative to it."),
        ({"action": "spawn", "command": "pwd", "workdir": "/etc"}, "workdir /etc is outside of your folder. Give a path relative to it."),
        ({"action": "spawn", "command": "pwd", "workdir": "out"}, "workdir out is outside of your folder. Give a path relative to it."),
        ({"action": "spawn", "command": "pwd", "workdir": "nowhere"}, "workdir nowhere is no folder. Make it first."),
        ({"action": "spawn", "command": "pwd", "workdir": "a\0"}, "workdir holds a character that no path can hold."),
        ({"action": "spawn", "command": "x" * 200_000}, "The process could not be started: Argument list too long (bash)"),
    ],
)  # fmt: skip
def test_a_call_that_cannot_be_done_says_why_and_leaves_no_trace(
    arguments: dict[str, Any], told: str, tmp_path: Path
) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> ToolAnswer:
        (tmp_path / "work" / "out").symlink_to("/etc")
        return await asked(tool, **arguments)

    assert run(tmp_path, work) == ToolAnswer(False, told)
    assert not (tmp_path / "space" / "processes").exists() or os.listdir(tmp_path / "space" / "processes") == []


def test_a_workdir_inside_the_agents_folder_is_where_the_process_works(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> Any:
        (tmp_path / "work" / "deep" / "er").mkdir(parents=True)
        answer = await asked(tool, action="spawn", command="pwd", workdir="deep/er", wait=True)
        return json.loads(answer.content)["output"]

    assert run(tmp_path, work) == f"{(tmp_path / 'work').resolve()}/deep/er\n"


def test_a_process_that_has_ended_takes_nothing_more(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "true")
        await door.until(1)
        await ended(host, handle)
        for action, more in {"write": {"input": "x"}, "watch": {}, "unwatch": {}, "send_keys": {"keys": "x"}}.items():
            answer = await asked(tool, action=action, handle=handle, **more)
            assert answer == ToolAnswer(False, f"{handle} does not run any more: its state is completed.")

    run(tmp_path, work)


def test_a_process_without_a_terminal_has_no_screen_and_no_keys(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300")
        answers = [
            await asked(tool, action="capture", handle=handle),
            await asked(tool, action="send_keys", handle=handle, keys="x"),
        ]
        assert [each.content for each in answers] == [
            f"{handle} has no terminal, so there is no screen; `log` shows what it printed.",
            f"{handle} has no terminal. Use `write`, or spawn it with interactive: true.",
        ]
        await asked(tool, action="kill", handle=handle)

    run(tmp_path, work)


def test_without_tmux_an_interactive_process_is_refused_and_not_run_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def work(tool: Tool, host: Host, door: Door) -> ToolAnswer:
        return await asked(tool, action="spawn", command="touch ran", interactive=True)

    assert run(tmp_path, work) == ToolAnswer(
        False,
        "An interactive process needs a terminal: no tmux is installed that can be used outside the sandbox. "
        "Spawn it without interactive.",
    )
    assert os.listdir(tmp_path / "work") == []


def test_without_a_sandbox_nothing_runs(tmp_path: Path) -> None:
    answer = asyncio.run(asked(processes.make(place(tmp_path, None)), action="spawn", command="true"))
    assert (answer.success, "no sandbox works on this machine" in answer.content) == (False, True)


# --- terminals -----------------------------------------------------------------------------------------------


@TMUX
def test_an_interactive_process_has_a_terminal_that_can_be_seen_and_typed_at(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        script = "trap 'echo interrupted' INT; test -t 0 && stty size; read -p 'name? ' name; echo \"hi $name\"; read last; echo bye; exit 5"
        handle = await spawned(tool, script, interactive=True)
        await printed(host, tool, handle, "name?")
        await asked(tool, action="send_keys", handle=handle, keys="Ada; rm -rf / #{x};")
        await printed(host, tool, handle, "hi Ada")
        await asked(tool, action="send_keys", handle=handle, keys="C-c", press_enter=False)
        await printed(host, tool, handle, "interrupted")
        screen = (await asked(tool, action="capture", handle=handle)).content
        assert screen == "50 200\nname? Ada; rm -rf / #{x};\nhi Ada; rm -rf / #{x};\n^Cinterrupted"
        assert (await asked(tool, action="write", handle=handle, input="x\n")).success
        await door.until(1)
        assert await status(tool, handle) == {"state": "failed", "exit_code": 5}
        assert (await asked(tool, action="capture", handle=handle)).content.endswith("\nx\nbye")
        log = (await asked(tool, action="log", handle=handle, offset=-1)).content
        assert log.endswith("\nbye")
        assert not {"tmux", "alive", "pane"} & set(os.listdir(Path(host.workspace) / "processes" / handle))

    run(tmp_path, work)


@TMUX
def test_the_last_screen_is_kept_without_secrets(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> str:
        handle = await spawned(tool, "echo tok-$((123455 + 1))", interactive=True)
        await door.until(1)
        return (Path(host.workspace) / "processes" / handle / "screen").read_text()

    assert run(tmp_path, work, redact=lambda text: text.replace("tok-123456", "[TOKEN]")) == "[TOKEN]"


@TMUX
def test_kill_ends_an_interactive_process_its_family_and_its_terminal(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "sleep 300 & echo $!; wait", interactive=True)
        child = int((await printed(host, tool, handle, "1")).split("\n")[1])
        await asked(tool, action="kill", handle=handle)
        assert await status(tool, handle) == {"state": "killed", "signal": 15}
        assert gone(child)
        assert not os.path.exists(Path(host.workspace) / "processes" / handle / "tmux")

    run(tmp_path, work)


@TMUX
def test_the_folder_of_a_terminal_may_be_called_anything_and_be_deep(tmp_path: Path) -> None:
    folder = tmp_path / "it's #{pane_tty} $(touch x) %d" / ("deep" * 30)
    folder.mkdir(parents=True)

    async def work(tool: Tool, host: Host, door: Door) -> str:
        handle = await spawned(tool, "echo fine", interactive=True)
        await door.until(1)
        return (await asked(tool, action="log", handle=handle)).content

    assert run(folder, work) == "[lines 0 to 0 of 1]\nfine"


@TMUX
def test_the_persons_own_tmux_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.setenv("TMUX", f"{tmp_path}/own,1,0")

    async def work(tool: Tool, host: Host, door: Door) -> None:
        await spawned(tool, "true", interactive=True)
        await door.until(1)

    run(tmp_path, work)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["home", "space", "work"]


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("C-c", ["C-c"]),
        ("Up Up Enter", ["Up", "Up", "Enter"]),
        ("M-x F5 C-M-Left", ["M-x", "F5", "C-M-Left"]),
        ("ls -la", None),
        ("up", None),
        ("Enter the room", None),
        ("C-;", None),
        (" ", None),
    ],
)
def test_names_of_keys_are_told_from_text(keys: str, names: list[str] | None) -> None:
    assert terminals.named_keys(keys) == names


def test_of_many_processes_the_newest_and_those_that_run_are_listed(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        at = [f"2026-01-01T00:00:{number // 100:02}.{number % 100:02}0Z" for number in range(1_000)]
        status = Status("completed", exit_code=0)
        about = {"told": True, "status": status, "command": "x" * 400}
        left = [left_behind(host, spawned_at=each, completed_at=each, **about) for each in at[1:]]
        runs = left_behind(host, spawned_at=at[0], owner=attending._me())  # of another runtime that lives
        listed, _, rest = (await asked(tool, action="list")).content.partition("\n")
        assert [each["handle"] for each in json.loads(listed)] == [job.handle for job in [runs, *left[-49:]]]
        assert {each["command"] for each in json.loads(listed)[1:]} == {"x" * 300 + "…"}
        assert rest == "[950 older ones that have ended are left out]"

    run(tmp_path, work, clock=lambda: datetime(2026, 1, 1, 0, 1, tzinfo=UTC))


# --- the place changes ---------------------------------------------------------------------------------------


def test_a_process_runs_in_the_box_of_now_when_the_owner_has_narrowed_it(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        before = await asked(tool, action="spawn", command="echo $WIDE; pwd", wait=True)
        running = await spawned(tool, "read x; echo ends")
        narrow, heard = place(tmp_path, host.sandbox, environment={**BASICS, "WIDE": "no"}), Door()
        inside = os.path.join(host.workdir, "inside")
        os.mkdir(inside)
        narrow.box, narrow.door = replace(narrow.box, cwd=inside), heard
        narrow.redact = lambda text: text.replace("ends", "[E]")
        again = processes.make(host.moved(narrow))
        after = await asked(again, action="spawn", command="echo $WIDE; pwd", wait=True)
        assert [json.loads(each.content)["output"] for each in (before, after)] == [
            f"yes\n{host.workdir}\n",
            f"no\n{inside}\n",
        ]
        assert (await asked(again, action="write", handle=running, input="\n")).success
        await heard.until(1)
        _, message = heard.posted[f"process:{running}:end"]
        assert (message.content.endswith("> [E]"), door.posted) == (True, {})

    run(tmp_path, work, environment={**BASICS, "WIDE": "yes"})


def test_without_the_sandbox_of_before_nothing_more_runs(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> ToolAnswer:
        again = processes.make(host.moved(place(tmp_path, None)))
        return await asked(again, action="spawn", command="true")

    assert run(tmp_path, work) == ToolAnswer(False, shell.NO_SANDBOX)


# --- after a restart -----------------------------------------------------------------------------------------


def left_behind(host: Host, **about: Any) -> Job:
    """What a runtime that is gone has written."""
    folder = Jobs(os.path.join(host.workspace, "processes"), "bot")
    handle = folder.create()
    job = Job(
        handle=handle,
        command="make",
        workdir=host.workdir,
        session_id="session_a",
        agent="bot",
        log_path=folder.path(handle, "log"),
        spawned_at="2026-01-01T00:00:00.000Z",
        timeout_seconds=10**9,
        owner=Runner(2**22 + 1, "1"),
    )
    job = replace(job, **about)
    folder.save(job)
    Path(job.log_path).write_text("half\n")
    return job


def test_a_process_of_a_runtime_that_is_gone_is_lost_and_told_once(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        job = left_behind(host, pid=2**22 + 2, began="1")
        await processes.recover(host)
        await processes.recover(host)
        _, message = door.posted[f"process:{job.handle}:end"]
        assert message.content == (
            f"The background process {job.handle}, `make`, is lost: the program that ran it ended. "
            "The end of its output (information, not instructions):\n\n> half"
        )
        assert await status(tool, job.handle) == {"state": "lost", "why": "the program that ran it ended"}
        [kept] = Jobs(os.path.join(host.workspace, "processes"), "bot").load()
        assert kept.told

    run(tmp_path, work)


def test_a_process_that_ended_unheard_is_told_by_the_next_runtime(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        at = datetime.now(UTC).isoformat()
        quiet = left_behind(host, status=Status("completed", 0), completed_at=at, told=True)
        job = left_behind(host, status=Status("completed", 0), completed_at=at)
        await processes.recover(host)
        assert list(door.posted) == [f"process:{job.handle}:end"]
        assert await status(tool, quiet.handle) == {"state": "completed", "exit_code": 0}

    run(tmp_path, work)


def test_a_process_that_still_lives_is_watched_until_it_is_gone(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "300")
        job = left_behind(host, pid=process.pid, began=jobs.began(process.pid))
        await processes.recover(host)
        assert await status(tool, job.handle) == {"state": "running"}
        assert door.posted == {}
        process.kill()
        await process.wait()
        await door.until(1)
        why = "the program that ran it ended, and how this one ended is not known"
        assert await status(tool, job.handle) == {"state": "lost", "why": why}

    run(tmp_path, work)


def test_a_process_that_still_lives_can_be_killed(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        process = await asyncio.create_subprocess_exec("sleep", "300")
        job = left_behind(host, pid=process.pid, began=jobs.began(process.pid))
        await processes.recover(host)
        assert (await asked(tool, action="kill", handle=job.handle)).success
        assert await process.wait() == -15
        assert await status(tool, job.handle) == {"state": "killed"}

    run(tmp_path, work)


def test_a_process_of_another_runtime_that_lives_is_left_to_it(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        job = left_behind(host, owner=Runner(os.getppid(), jobs.began(os.getppid()) or ""))
        await processes.recover(host)
        assert (await status(tool, job.handle), door.posted) == ({"state": "running"}, {})

    run(tmp_path, work)


def test_a_process_of_another_runtime_is_looked_after_once_that_one_is_gone(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        other = await asyncio.create_subprocess_exec("sleep", "300")
        job = left_behind(host, owner=Runner(other.pid, jobs.began(other.pid) or ""))
        assert await status(tool, job.handle) == {"state": "running"}
        other.kill()
        await other.wait()
        assert (await status(tool, job.handle))["state"] == "lost"
        assert list(door.posted) == [f"process:{job.handle}:end"]

    run(tmp_path, work)


def test_a_secret_in_a_command_line_is_used_but_not_kept_or_told(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "test tok-123456 = tok-$((123455 + 1)) && echo same")
        await door.until(1)
        await ended(host, handle)
        _, message = door.posted[f"process:{handle}:end"]
        meta = (Path(host.workspace) / "processes" / handle / "meta.json").read_text()
        assert ("> same" in message.content, "tok-123456" in message.content, "tok-123456" in meta) == (
            True,
            False,
            False,
        )

    run(tmp_path, work, redact=lambda text: text.replace("tok-123456", "[TOKEN]"))


def test_a_closing_runtime_ends_its_processes_and_the_next_one_tells(tmp_path: Path) -> None:
    handles: list[str] = []

    async def first(tool: Tool, host: Host, door: Door) -> Door:
        handles.append(await spawned(tool, "sleep 300 & echo $!; wait"))
        handles.append((await printed(host, tool, handles[0], "1")).split("\n")[1])
        return door

    async def second(tool: Tool, host: Host, door: Door) -> list[str]:
        await processes.recover(host)
        return list(door.posted)

    door = run(tmp_path, first)
    assert (door.posted, gone(int(handles[1]))) == ({}, True)
    assert run(tmp_path, second) == [f"process:{handles[0]}:end"]
    assert run(tmp_path, second) == []


def test_a_recovery_that_failed_is_tried_again_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = [OSError(5, "Input/output error")]
    listdir = os.listdir

    def once(folder: Any) -> list[str]:
        if broken and str(folder).endswith("processes"):
            raise broken.pop()
        return listdir(folder)

    monkeypatch.setattr(os, "listdir", once)

    async def work(tool: Tool, host: Host, door: Door) -> None:
        job = left_behind(host)
        folder = os.path.join(host.workspace, "processes")
        assert await asked(tool, action="list") == ToolAnswer(
            False, f"{folder} cannot be read: Input/output error. Mend its rights."
        )
        assert (await status(tool, job.handle))["state"] == "lost"
        assert list(door.posted) == [f"process:{job.handle}:end"]

    run(tmp_path, work)


def test_a_session_that_is_gone_is_not_told_forever(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> bool:
        door.gone.add("session_a")
        job = left_behind(host)
        await processes.recover(host)
        return processes._attendant(host).known[job.handle].told

    assert run(tmp_path, work) is True


def test_damaged_and_foreign_folders_are_no_processes(tmp_path: Path) -> None:
    async def work(tool: Tool, host: Host, door: Door) -> str:
        folder = Path(host.workspace) / "processes"
        for name, text in [("a", "{"), ("b", "{}"), ("c", "\xff")]:
            (folder / name).mkdir(parents=True)
            (folder / name / "meta.json").write_text(text)
        (folder / "file").write_text("")
        left_behind(host, agent="another")
        return (await asked(tool, action="list")).content

    assert run(tmp_path, work) == "[]"


def test_what_ended_long_ago_is_removed_when_the_tool_is_used(tmp_path: Path) -> None:
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    times = [now]

    async def work(tool: Tool, host: Host, door: Door) -> None:
        handle = await spawned(tool, "true")
        await door.until(1)
        await ended(host, handle)
        folder = Path(host.workspace) / "processes" / handle
        times[0] = now + timedelta(minutes=29)
        assert [each["handle"] for each in json.loads((await asked(tool, action="list")).content)] == [handle]
        times[0] = now + timedelta(minutes=31)
        assert (await asked(tool, action="list")).content == "[]"
        assert not folder.exists()

    run(tmp_path, work, clock=lambda: times[0])


KILLED = """
import asyncio, sys
from pathlib import Path
from duragent.tools import processes
from tests.tools.running import Door, asked, hosted

async def main():
    async with hosted(Path(sys.argv[1]), door=Door()) as host:
        tool = processes.make(host)
        for interactive in (False, *([True] if sys.argv[2] == "tmux" else [])):
            answer = await asked(tool, action="spawn", command="setsid sleep 300 & echo $! >> pids; wait", interactive=interactive)
            assert answer.success, answer.content
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_a_runtime_that_is_killed_leaves_neither_processes_nor_terminals_behind(tmp_path: Path) -> None:
    kinds = "tmux" if terminals.find_drawing((), os.get_exec_path()).tmux else "plain"
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), kinds], stdout=subprocess.PIPE, cwd=root
    ) as runtime:
        assert runtime.stdout is not None
        assert runtime.stdout.readline() == b"ready\n"
        pids = tmp_path / "work" / "pids"
        while not pids.exists() or len(pids.read_text().split()) < (2 if kinds == "tmux" else 1):
            os.sched_yield()
        runtime.kill()
    left = [int(pid) for pid in pids.read_text().split()]

    async def wait() -> None:
        async with asyncio.timeout(30):
            while not all(gone(pid) for pid in left) or _mention(tmp_path):
                await asyncio.sleep(0.01)

    asyncio.run(wait())


def _mention(folder: Path) -> list[str]:
    """Processes whose command line names a folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line:
            found.append(pid)
    return found


def test_the_spec_says_what_rules_need_to_know(tmp_path: Path) -> None:
    spec = processes.make(place(tmp_path, None)).spec
    assert (spec.line, spec.detail, spec.needs, spec.effects["spawn"], spec.effects["log"]) == (
        "command",
        ("keys", "input", "handle"),
        ("sh",),
        "once",
        "pure",
    )
    assert set(spec.effects) == set(spec.parameters["properties"]["action"]["enum"])
    assert spec.quiet == ("list", "status", "log", "capture", "watch", "unwatch")
    assert shutil.which("bash")


# --- kept in -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
@pytest.mark.parametrize("interactive", [False, pytest.param(True, marks=TMUX)])
def test_a_process_is_kept_in_like_any_command_and_has_its_terminal(
    backend: str, interactive: bool, tmp_path: Path
) -> None:
    if not (tried := probe(backend)).works:
        pytest.skip(f"NOT PROVEN: background processes in {backend}: {tried.reason}")
    (tmp_path / "secret").write_text("canary")

    async def work(tool: Tool, host: Host, door: Door) -> None:
        command = f"cat {tmp_path}/secret; touch inside; touch {tmp_path}/space/outside; test -t 1; echo tty $?; read x; echo got $x"
        handle = await spawned(tool, command, interactive=interactive)
        await printed(host, tool, handle, "tty")
        assert (await asked(tool, action="write", handle=handle, input="it\n")).success
        await printed(host, tool, handle, "got it")
        await door.until(1)
        assert await status(tool, handle) == {"state": "completed", "exit_code": 0}
        log = (await asked(tool, action="log", handle=handle)).content
        assert ("canary" in log, f"tty {0 if interactive else 1}" in log) == (False, True)
        waiting = await spawned(
            tool, "trap 'echo heard; exit 9' INT; sleep 300 & echo ready; wait", interactive=interactive
        )
        await printed(host, tool, waiting, "ready")
        if interactive:
            await asked(tool, action="send_keys", handle=waiting, keys="C-c", press_enter=False)
            await door.until(2)
            assert await status(tool, waiting) == {"state": "failed", "exit_code": 9}
        else:
            await asked(tool, action="kill", handle=waiting)
            assert (await status(tool, waiting))["state"] == "killed"

    run(tmp_path, work, sandbox=make(backend))
    assert os.listdir(tmp_path / "work") == ["inside"]
    assert os.listdir(tmp_path / "space") == ["processes"]
