"""What the same work costs with nothing around it: a bare aiohttp loop that asks the same fake model with streaming and
appends JSON lines. `floor-sync` is the same with an fdatasync after every line.

It keeps no promise that a session keeps: no recovery, no policy, no limits, no followers, one growing list of messages.
`python -m bench.floor WORKLOAD '{"url": …}'` is one fresh process and prints its figures as JSON (see `measure.py`).
"""

import asyncio
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
from bench.fake_model import DELTAS, ROUNDS, TOOL
from bench.measure import PROMPT, TOOL_TEXT, Figures, Options, Turn, best_cpu, cpu_of_turns, resident, wall_of, worker

Messages = list[dict[str, Any]]
_TOOL_PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
_TOOLS = [
    {
        "type": "function",
        "function": {"name": TOOL, "description": "Count one more.", "parameters": _TOOL_PARAMETERS},
    }
]


async def count(n: int) -> str:
    return TOOL_TEXT


class Floor:
    """A conversation is a list of messages and a file; a turn is a loop around `ask`."""

    def __init__(self, http: aiohttp.ClientSession, url: str, folder: Path, *, sync: bool = False) -> None:
        self.http, self.url, self.folder, self.sync = http, f"{url}/v1/chat/completions", folder, sync

    def open(self, name: str) -> tuple[Messages, int]:
        file = os.open(self.folder / f"{name}.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        return [{"role": "system", "content": "You are brief."}], file

    def keep(self, messages: Messages, file: int, message: dict[str, Any]) -> None:
        messages.append(message)
        os.write(file, json.dumps(message).encode() + b"\n")
        if self.sync:
            os.fdatasync(file)

    async def turn(self, messages: Messages, file: int, prompt: str, tools: bool = False) -> str:
        self.keep(messages, file, {"role": "user", "content": prompt})
        while True:
            answer = await self.ask(messages, tools)
            self.keep(messages, file, answer)
            if not answer.get("tool_calls"):
                return str(answer["content"])
            for call in answer["tool_calls"]:
                said = await count(**json.loads(call["function"]["arguments"]))
                self.keep(messages, file, {"role": "tool", "tool_call_id": call["id"], "content": said})

    async def ask(
        self, messages: Messages, tools: bool = False, heard: Callable[[str], None] | None = None
    ) -> dict[str, Any]:
        asked = {"model": "fake", "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
        if tools:
            asked["tools"] = _TOOLS
        text: list[str] = []
        calls: list[dict[str, Any]] = []
        async with self.http.post(self.url, json=asked, headers={"Authorization": "Bearer key"}) as response:
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                for choice in json.loads(line[6:])["choices"]:
                    delta = choice["delta"]
                    if content := delta.get("content"):
                        text.append(content)
                        if heard is not None:
                            heard(content)
                    for piece in delta.get("tool_calls", ()):
                        if "id" in piece:
                            calls.append(piece)
                        else:
                            calls[piece["index"]]["function"]["arguments"] += piece["function"]["arguments"]
        answer: dict[str, Any] = {"role": "assistant", "content": "".join(text)}
        return answer | {"tool_calls": calls} if calls else answer


async def _turns(options: Options, tools: bool) -> Figures:
    async with aiohttp.ClientSession() as http:
        floor = Floor(http, options.url, options.folder, sync=options.sync)

        async def conversation(name: str) -> Turn:
            messages, file = floor.open(name)

            async def turn() -> None:
                await floor.turn(messages, file, PROMPT, tools)

            return turn

        cpu = await best_cpu(conversation, options)
        lines = (options.folder / "1-0.jsonl").read_bytes()
    assert lines.count(b'"role": "tool"') == (options.turns * ROUNDS if tools else 0)
    return {"cpu": cpu, "bytes": len(lines) / options.turns}


async def plain(options: Options) -> Figures:
    return await _turns(options, tools=False)


async def tools(options: Options) -> Figures:
    return await _turns(options, tools=True)


async def concurrent(options: Options) -> Figures:
    """`sessions` conversations of `turns` turns, all at once."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        floor = Floor(http, options.url, options.folder, sync=options.sync)

        async def conversation(messages: Messages, file: int) -> None:
            for _ in range(options.turns):
                await floor.turn(messages, file, PROMPT)
            os.close(file)

        async def ready(round: int) -> Turn:
            opened = [floor.open(f"{round}-{number}") for number in range(options.sessions)]
            return lambda: asyncio.gather(*(conversation(*each) for each in opened))

        wall, cpu = await wall_of(ready, options)
    turns = options.sessions * options.turns
    return {"turns_per_second": turns / wall, "cpu": cpu / turns}


async def relay(options: Options) -> Figures:
    """The stream goes through a queue to somebody who reads it."""
    async with aiohttp.ClientSession() as http:
        floor = Floor(http, options.url, options.folder)

        async def once() -> None:
            queue: asyncio.Queue[str | None] = asyncio.Queue()
            messages, file = floor.open("relay")

            async def follow() -> int:
                seen = 0
                while await queue.get() is not None:
                    seen += 1
                return seen

            follower = asyncio.create_task(follow())
            floor.keep(messages, file, {"role": "user", "content": PROMPT})
            floor.keep(messages, file, await floor.ask(messages, heard=queue.put_nowait))
            queue.put_nowait(None)
            assert await follower == DELTAS
            os.close(file)

        await once()
        best = wall = float("inf")
        for _ in range(options.rounds):
            start, used = time.perf_counter(), time.process_time()
            await once()
            best, wall = min(best, time.process_time() - used), min(wall, time.perf_counter() - start)
    return {"deltas_per_cpu_second": DELTAS / best, "deltas_per_second": DELTAS / wall}


async def growth(options: Options) -> Figures:
    """One conversation that is shown whole at every turn: json encodes it all, each time."""
    async with aiohttp.ClientSession() as http:
        floor = Floor(http, options.url, options.folder)

        async def conversation(name: str) -> Turn:
            messages, file = floor.open(name)
            return lambda: floor.turn(messages, file, PROMPT)

        return await cpu_of_turns(conversation, options)


async def memory(options: Options) -> Figures:
    """The bare lists of messages, every text its own."""
    before = resident()
    kept: list[Messages] = []
    for session in range(options.sessions):
        messages: Messages = []
        for turn in range(options.turns):
            messages.append({"role": "user", "content": f"{PROMPT} {session} {turn}"})
            messages.append({"role": "assistant", "content": f"Fine, thank you. {session} {turn}"})
        kept.append(messages)
    return {"each": (resident() - before) / len(kept)}


WORKLOADS = {
    "plain": plain,
    "tools": tools,
    "concurrent": concurrent,
    "relay": relay,
    "growth": growth,
    "memory": memory,
}

if __name__ == "__main__":
    worker(WORKLOADS)
