"""Asking a model in tests: against a scripted provider, with waits that are noted instead of waited for."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from duragent.core.context import Request
from duragent.core.events import ToolCall
from duragent.core.policy import ToolSpec
from duragent.core.session import Call, Message
from duragent.errors import ModelFailed
from duragent.models import Answer, Model
from duragent.models.anthropic import AnthropicModel
from duragent.models.http import Transport
from duragent.models.openai import OpenAIModel
from tests.models.provider_server import Asked, Behaviour, Provider

KEY = "sk-secret-0123456789"
BASH = ToolSpec("bash", "Runs a command.", {"type": "object", "properties": {"command": {"type": "string"}}})
CLOCK = ToolSpec("clock")
Make = Callable[[Provider, Transport], Model]


class Heard:
    """A listener that notes everything."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.restarts: list[str] = []

    def delta(self, text: str) -> None:
        self.texts.append(text)

    def restart(self, why: str) -> None:
        self.texts.clear()
        self.restarts.append(why)


class Outcome:
    """All that came of asking. Looking at `answer` raises the failure if there was one."""

    def __init__(self, result: Answer | ModelFailed, heard: Heard, asked: list[Asked], waits: list[float]) -> None:
        self._result, self.heard, self.asked, self.waits = result, heard, asked, waits

    @property
    def answer(self) -> Answer:
        if isinstance(self._result, ModelFailed):
            raise self._result
        return self._result

    @property
    def failure(self) -> ModelFailed:
        assert isinstance(self._result, ModelFailed), self._result
        return self._result

    @property
    def fate(self) -> tuple[str, bool, bool, int | None]:
        return str(self.failure), self.failure.lasting, self.failure.billed, self.failure.status

    @property
    def sent(self) -> Any:
        return self.asked[-1].json


def openai(
    provider: str = "openai", headers: Mapping[str, str] | None = None, path: str = "/v1", key: str = KEY
) -> Make:
    return lambda server, transport: OpenAIModel(
        "m", provider=provider, base_url=server.address + path, key=key, headers=headers, transport=transport
    )


def anthropic(headers: Mapping[str, str] | None = None, path: str = "", key: str = KEY) -> Make:
    return lambda server, transport: AnthropicModel(
        "m", base_url=server.address + path, key=key, headers=headers, transport=transport
    )


def ask(
    script: Sequence[Behaviour],
    make: Make,
    request: Request | None = None,
    *,
    timeout: float = 30,
    times: int = 1,
    random: float = 1.0,
    **options: Any,
) -> Outcome:
    """Ask once, or several times with the same connections; the last answer counts."""

    async def run() -> Outcome:
        waits: list[float] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        heard = Heard()
        transport = Transport(sleep=sleep, random=lambda: random, **options)
        result: Answer | ModelFailed = ModelFailed("never asked")
        async with Provider(script) as server:
            model = make(server, transport)
            try:
                for _ in range(times):
                    result = await model.answer(request or hello(), heard, timeout)
            except ModelFailed as failure:
                result = failure
            finally:
                await model.close()
                await transport.close()
        return Outcome(result, heard, server.asked, waits)

    return asyncio.run(run())


def user(text: str, seq: int = 1, sender: str | None = None) -> Message:
    return Message("user", text, seq, sender=sender)


def said(text: str, *calls: Call, seq: int = 2) -> Message:
    return Message("assistant", text, seq, calls)


def called(id: str, result: str | None = "ok", name: str = "bash", arguments: Any = None, success: bool = True) -> Call:
    call = ToolCall(id, name, {"command": "ls"} if arguments is None else arguments)
    if result is None:
        return Call(call)
    return Call(call, "done", outcome="ok", success=success, content=result)


def hello(*messages: Message, **fields: Any) -> Request:
    return Request(**{"system": "You help.", "messages": list(messages or (user("hi"),))} | fields)
