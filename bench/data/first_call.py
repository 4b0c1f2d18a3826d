"""One call of the model by a process that does nothing else: the floor of `duragent run`."""

import asyncio
import json
import sys

import aiohttp


async def main(url: str, path: str) -> None:
    messages = [{"role": "system", "content": "You are brief."}, {"role": "user", "content": "How do you do today?"}]
    text = ""
    async with aiohttp.ClientSession() as http:
        asked = {"model": "fake", "messages": messages, "stream": True}
        async with http.post(f"{url}/plain/v1/chat/completions", json=asked) as response:
            async for line in response.content:
                if line.startswith(b"data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["delta"].get("content") or ""
    with open(path, "a", encoding="utf-8") as file:
        for message in (messages[-1], {"role": "assistant", "content": text}):
            file.write(json.dumps(message) + "\n")
    print(text)


asyncio.run(main(*sys.argv[1:]))
