"""What it costs to act inside what the owner allowed: judging a line, a command in each sandbox, memory, the toolbox.

The limits are absolute, since they are what a person feels; what they are compared with is measured in the same run.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.table import Row

from duragent.agent import Agent, DiscoveredTool, Memory, Policy, PolicyTier
from duragent.core.events import ToolCall
from duragent.core.policy import Judge, ToolSpec
from duragent.errors import DuragentError
from duragent.sandbox import Box, Sandbox, open_sandbox
from duragent.tools import NOWHERE, stamp_of, tools_of
from duragent.tools.host import Host
from duragent.tools.memory import make as make_memory

RULES = PolicyTier(
    "ask",
    allow=("bash:git status*", "bash:git log *", "bash:ls*", "bash:cat *", "bash:grep *", "bash:wc *", "bash:head *"),
    deny=("bash:rm *", "bash:*curl*", "bash:sudo *", "bash:git push*"),
)
LINES = {
    "judging `git status src`": "git status src{n}",
    "judging a typical line: two commands, a quoted word": "grep -rn 'fix{n}' src{n} | head -{n}",
    "judging a line of four commands": "git log --oneline -{n} | grep -i 'fix{n}' | head -{n} && ls -la src{n}",
    "judging a line with $( ), redirections and quotes": (
        'cat "$(git log -{n} --format=%H).txt{n}" 2>/dev/null | wc -l a{n} > out{n}.txt'
    ),
}
"""The number is in every command, so that nothing can be remembered from the line before."""


def policy(quick: bool) -> Iterator[Row]:
    """One verdict about a line that has not been seen before."""
    spec = ToolSpec("bash", line="command", needs=("sh",))
    judge = Judge(Agent(name="a", policy=Policy(RULES)), workdir="/work")
    judge.verdict(spec, ToolCall("c", "bash", {"command": "true"}))  # the grammar is loaded once
    rounds = 300 if quick else 3000
    for title, line in LINES.items():
        calls = [ToolCall("c", "bash", {"command": line.replace("{n}", str(n))}) for n in range(rounds)]
        micros = _micros(lambda call: judge.verdict(spec, call), calls)
        if "typical" in title:
            yield Row(title, f"{micros:.0f} µs", "", "", "<= 100 µs", micros <= 100, micros / 100)
        else:
            yield Row(title, f"{micros:.0f} µs")
    plain = ToolSpec("note", kind="function", unruled="allow")
    free = Judge(Agent(name="a"))
    micros = _micros(lambda call: free.verdict(plain, call), [ToolCall("c", "note", {"n": n}) for n in range(rounds)])
    yield Row("judging a function where no policy is", f"{micros:.1f} µs")


def _micros(judged: Callable[[ToolCall], object], calls: list[ToolCall]) -> float:
    times = []
    for call in calls:
        start = time.perf_counter()
        judged(call)
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


def sandbox(quick: bool) -> Iterator[Row]:
    """`bash -c true` in each sandbox that works here, against the same without any, in turns."""
    rounds = 20 if quick else 100
    with TemporaryDirectory() as folder:
        box = Box(cwd=folder, writable=(folder,), environment={"PATH": "/usr/bin:/bin"})
        for mode in ("trust", "bubblewrap", "landlock"):
            try:
                found, choice = open_sandbox(mode)
            except DuragentError as error:
                yield Row(f"a command in {mode}", f"not measured: {error}")
                continue
            assert found is not None
            ours, bare = asyncio.run(_commands(found, box, rounds))
            more = (ours - bare) * 1e3
            title = f"`bash -c true` in {choice.name}, over the same without"
            yield Row(title, f"{more:+.1f} ms", f"{bare * 1e3:.1f} ms", "", "<= 15 ms", more <= 15, max(more, 0) / 15)


async def _commands(sandbox: Sandbox, box: Box, rounds: int) -> tuple[float, float]:
    ours, bare = [], []
    await sandbox.run(["bash", "-c", "true"], box)  # what is started once is not counted
    for _ in range(rounds):
        start = time.perf_counter()
        process = await asyncio.create_subprocess_exec("bash", "-c", "true", stdout=subprocess.PIPE)
        await process.communicate()
        bare.append(time.perf_counter() - start)
        start = time.perf_counter()
        await sandbox.run(["bash", "-c", "true"], box)
        ours.append(time.perf_counter() - start)
    await sandbox.close()
    return median(ours), median(bare)


WORDS = [
    "ledger",
    "harbour",
    "violin",
    "copper",
    "meadow",
    "signal",
    "planet",
    "winter",
    "garden",
    "lantern",
    "bridge",
    "thunder",
    "marble",
    "orchid",
]


def notes(quick: bool) -> Iterator[Row]:
    """10,000 notes in daily files; a search when the index is there, and the first one, which builds it."""
    with TemporaryDirectory() as folder:
        host = _host(folder, Agent(name="a", memory=Memory(long_term="filesystem")))
        daily = Path(host.memory_dir) / "daily"
        daily.mkdir(parents=True)
        for day in range(250):
            text = "".join(
                f"## {n // 60:02}:{n % 60:02}\n{WORDS[(day + n) % 14]} {WORDS[(day * n) % 14]} number {day * 40 + n}\n\n"
                for n in range(40)
            )
            (daily / f"{2020 + day // 336}-{day % 336 // 28 + 1:02}-{day % 28 + 1:02}.md").write_text(text)
        first, later = asyncio.run(_searches(host, 5 if quick else 50))
        yield Row("10,000 notes: the first search, which builds the index", f"{first * 1e3:.0f} ms")
        yield Row("10,000 notes: a search", f"{later * 1e3:.1f} ms", "", "", "<= 20 ms", later <= 0.02, later / 0.02)


async def _searches(host: Host, rounds: int) -> tuple[float, float]:
    tool, times = make_memory(host), []
    for n in range(rounds + 1):
        start = time.perf_counter()
        found = await tool.run({"action": "search", "query": f"{WORDS[n % 14]} number"}, NOWHERE)
        times.append(time.perf_counter() - start)
        assert "number" in str(found), found
    return times[0], median(times[1:])


def toolbox(quick: bool) -> Iterator[Row]:
    """An agent with 50 discovered tools: its toolbox from nothing, and the question whether a file has changed."""
    with TemporaryDirectory() as folder:
        found = []
        for n in range(50):
            place = Path(folder) / "agent" / "tools" / f"tool-{n}"
            place.mkdir(parents=True)
            (place / "run").write_text("#!/bin/sh\n")
            (place / "run").chmod(0o755)
            (place / "README.md").write_text(f"# tool-{n}\n\nDoes the thing number {n}.\n" + "More.\n" * 50)
            found.append(DiscoveredTool(f"tool-{n}", f"./tools/tool-{n}/run", f"./tools/tool-{n}/README.md"))
        agent = Agent(name="a", tools=tuple(found))
        host = _host(folder, agent, open_sandbox("trust")[0])
        tools_of(agent, host)  # modules are loaded once
        built, asked = [], []
        for _ in range(5 if quick else 30):
            start = time.perf_counter()
            offered, _notes = tools_of(agent, host)
            built.append(time.perf_counter() - start)
            start = time.perf_counter()
            stamp_of(host)
            asked.append(time.perf_counter() - start)
        assert len(offered) >= 50, sorted(offered)
        spent = median(built) * 1e3
        yield Row(
            "toolbox of an agent with 50 discovered tools",
            f"{spent:.1f} ms",
            "",
            "",
            "<= 10 ms",
            spent <= 10,
            spent / 10,
        )
        yield Row("the same when nothing has changed", f"{median(asked) * 1e3:.2f} ms")


def _host(folder: str, agent: Agent, sandbox: Sandbox | None = None) -> Host:
    return Host(
        agent,
        home=f"{folder}/agent",
        workdir=folder,
        workspace=f"{folder}/.duragent",
        memory_dir=f"{folder}/memory",
        world_dir=f"{folder}/world",
        box=Box(cwd=folder),
        sandbox=sandbox,
    )


WORKLOADS = {"policy": policy, "sandbox": sandbox, "notes": notes, "toolbox": toolbox}

if __name__ == "__main__":
    for each in WORKLOADS.values():
        for row in each("--quick" in sys.argv):
            print(" | ".join(filter(None, row.cells())))
