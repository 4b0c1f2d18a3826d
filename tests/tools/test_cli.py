"""Programs as tools: what they are given, what becomes of their output, and that none outlives its call."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from duragent.agent import Agent, BuiltinTool, CliTool, DiscoveredTool, InlineTools, Source, Trust
from duragent.core.events import ToolAnswer
from duragent.tools import cli, tools_of


def agent(
    folder: Path, *tools: CliTool | DiscoveredTool | BuiltinTool | InlineTools, trust: Trust | None = None
) -> Agent:
    return Agent(name="bot", tools=tools, trust=trust, source=Source(path=str(folder)))


def program(folder: Path, text: str, name: str = "tool.sh", mode: int = 0o755) -> CliTool:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return CliTool("tool", f"./{name}")


def call(folder: Path, text: str, arguments: object = None) -> ToolAnswer:
    tool = cli.make(agent(folder), program(folder, text))
    answer = asyncio.run(tool.run({} if arguments is None else {"args": arguments}))  # type: ignore[arg-type]
    assert isinstance(answer, ToolAnswer)
    return answer


def test_arguments_reach_the_program_one_by_one_and_no_shell(tmp_path: Path) -> None:
    given = ["a b", "$(touch x); `touch x`", "*"]
    answer = call(tmp_path, 'for each in "$@"; do echo "<$each>"; done', given)
    assert answer == ToolAnswer(True, "<a b>\n<$(touch x); `touch x`>\n<*>\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tool.sh"]


def test_it_runs_in_the_agents_folder_without_the_owners_keys_and_without_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    answer = call(tmp_path, 'pwd; echo "key: ${OPENAI_API_KEY:-none}"; cat; echo "path: ${PATH:+there}"')
    assert answer == ToolAnswer(True, f"{os.path.realpath(tmp_path)}\nkey: none\npath: there\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo out; echo err >&2; exit 3", ToolAnswer(False, "out\nerr\n")),
        ("exit 4", ToolAnswer(False, "It printed nothing and ended with 4.")),
        ("true", ToolAnswer(True, "It printed nothing and ended with 0.")),
        ("kill -9 $$", ToolAnswer(False, "It printed nothing and ended with -9.")),
        (r"printf 'caf\303\251 \377'", ToolAnswer(True, "café \ufffd")),
    ],
)
def test_what_a_program_prints_and_how_it_ends_is_the_answer(text: str, expected: ToolAnswer, tmp_path: Path) -> None:
    assert call(tmp_path, text) == expected


def test_a_flood_is_cut_and_its_size_told(tmp_path: Path) -> None:
    answer = call(tmp_path, "head -c 1000000 /dev/zero | tr '\\0' x")
    assert answer.content == "x" * cli.MAX_OUTPUT_BYTES + "\n[cut: 1,000,000 bytes in all]"


def test_a_program_that_cannot_be_started_says_why(tmp_path: Path) -> None:
    async def answers() -> list[object]:
        missing = cli.make(agent(tmp_path), CliTool("gone", "./gone.sh"))
        plain = cli.make(agent(tmp_path), program(tmp_path, "true", "plain.sh", 0o644))
        return [await missing.run({}), await plain.run({})]

    assert asyncio.run(answers()) == [
        ToolAnswer(False, "./gone.sh cannot be started: No such file or directory"),
        ToolAnswer(False, "./plain.sh is not executable. Its owner can mend that: chmod +x ./plain.sh"),
    ]


def started(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "pids").read_text().split()] if (folder / "pids").exists() else []


FAMILY = "sleep 60 & echo $! > pids.new; echo $$ >> pids.new; mv pids.new pids; wait"


def gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has collected yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
@pytest.mark.parametrize("how", ["cancelled", "too slow"])
def test_a_call_that_is_cut_off_takes_the_whole_family_of_the_program_with_it(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = cli.make(agent(tmp_path), program(tmp_path, FAMILY))
    monkeypatch.setattr(cli, "TIMEOUT_SECONDS", 0.5 if how == "too slow" else 60.0)

    async def cut_off() -> object:
        running = asyncio.ensure_future(tool.run({}))
        if how == "too slow":
            return await running
        while not started(tmp_path):
            await asyncio.sleep(0.01)
        running.cancel()
        return (await asyncio.gather(running, return_exceptions=True))[0]

    outcome = asyncio.run(cut_off())
    if how == "too slow":
        assert outcome == ToolAnswer(False, "./tool.sh took longer than 0.5 s and was ended.")
    else:
        assert isinstance(outcome, asyncio.CancelledError)
    for pid in started(tmp_path):
        for _ in range(500):
            if gone(pid):
                break
            os.sched_yield()
        else:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"process {pid} is still there")


def test_an_agent_gets_its_programs_and_is_told_what_else_it_will_not_get(tmp_path: Path) -> None:
    tools, notes = tools_of(
        agent(tmp_path, CliTool("b", "./b"), BuiltinTool("bash"), DiscoveredTool("a", "./a"), InlineTools("return {}"))
    )
    assert (list(tools), notes) == (
        ["a", "b"],
        ("Not offered, since this version does not have them: builtin bash, inline.",),
    )


def test_an_agent_whose_trust_asks_for_isolation_gets_no_programs(tmp_path: Path) -> None:
    tools, notes = tools_of(agent(tmp_path, CliTool("a", "./a"), trust=Trust(exec="sandboxed")))
    assert (dict(tools), notes) == ({}, ("Not offered, since the agent's trust says exec: sandboxed: a.",))
