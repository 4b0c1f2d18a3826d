"""Language models: one shape for all of them, and the one place that loads them by name.

A model is asked with a `Request` and gives an `Answer`, or raises `ModelFailed`. While it speaks it tells a
`Listener`. It keeps nothing between two answers but its connections. Adding one: a module here with a class
that has `name`, `answer` and `close`, and a line in `open_model`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage


class Answer(Struct, frozen=True):
    """What a model said. `cost_usd` only where the provider itself reports it."""

    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    cost_usd: float | None = None


class Listener(Protocol):
    """Who hears a model while it speaks. Both are plain calls: they must be quick."""

    def delta(self, text: str) -> None: ...

    def restart(self, why: str) -> None:
        """The stream broke and is tried again: forget what was said so far."""


class Model(Protocol):
    name: str  # provider/name, as the log says it

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer: ...

    async def close(self) -> None: ...
