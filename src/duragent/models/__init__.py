"""Language models: one shape for all of them, and the one place that loads them by name.

A model is asked with a `Request` and gives an `Answer`, or raises `ModelFailed`. While it speaks it tells a
`Listener`. It keeps nothing between two answers but its connections. Adding one: a module here with a class
that has `name`, `answer` and `close`, and a line in `open_model`.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Protocol

from msgspec import Struct

from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage
from duragent.core.resolve import Candidate, ollama_url
from duragent.errors import ModelFailed


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


class Closing(Protocol):
    """Connections that must be closed by whoever opened them."""

    async def close(self) -> None: ...


def open_transport() -> Closing:
    """The connections that models over HTTP share. Loading the client takes longer than most programs run."""
    transport: Closing = import_module("duragent.models.http").Transport()
    return transport


_MODULES: Mapping[str, tuple[str, str]] = {
    "openai": ("openai", "OpenAIModel"),
    "openrouter": ("openai", "OpenAIModel"),
    "ollama": ("openai", "OpenAIModel"),
    "anthropic": ("anthropic", "AnthropicModel"),
    "scripted": ("scripted", "ScriptedModel"),
    "local": ("local", "LocalModel"),
}


def open_model(candidate: Candidate, *, environ: Mapping[str, str], transport: object = None) -> Model:
    """The model of a plan, ready to be asked. Nothing is sent yet.

    `transport` is the `models.http.Transport` that all models of a process share; those that need no network need
    none. A provider's module is loaded here and only here, so that nobody waits for those that are not used.
    """
    if candidate.provider not in _MODULES and not candidate.base_url:
        known = ", ".join(_MODULES)
        raise ModelFailed(f"{candidate}: no such provider. There are {known}", lasting=True, billed=False)
    module, kind = _MODULES.get(candidate.provider, _MODULES["openai"])
    make = getattr(import_module(f"duragent.models.{module}"), kind)
    said = {} if module in ("scripted", "local") else _connection(candidate, environ) | {"transport": transport}
    model: Model = make(candidate.name, **said)
    return model


def _connection(candidate: Candidate, environ: Mapping[str, str]) -> dict[str, object]:
    """How a model is reached over HTTP. A missing key is found here, before anything is sent."""
    key = environ.get(candidate.key_env, "").strip() if candidate.key_env else ""
    if candidate.key_env and not key:
        text = f"{candidate}: {candidate.key_env} is not set. Put the provider's key into it"
        raise ModelFailed(text, lasting=True, billed=False)
    said: dict[str, object] = {"base_url": candidate.base_url, "key": key or None, "headers": candidate.headers}
    if candidate.provider != "anthropic":
        said["provider"] = candidate.provider
    if candidate.provider == "ollama" and not candidate.base_url:
        said["base_url"] = f"{ollama_url(environ.get('OLLAMA_HOST', ''))}/v1"
    return said
