"""What models cost: one dated table, what the owner says over it, and the sums that follow.

Prices are USD per million tokens, for the standard service and prompts of ordinary length. The longest name that
a model's name begins with holds. A model without a price has none: nobody guesses. What a provider itself reports
wins, and is not our business. To add a price: a line in `_MAKERS`, and the month in `PRICES_OF`.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from duragent.core.events import Usage
from duragent.errors import NotAllowed

Json = Any
PRICES_OF = "2026-11"
MILLION = 1_000_000


class Price(Struct, frozen=True):
    """USD per million tokens. `cached` is for tokens of the prompt that the provider had kept, `written` is added for
    those that it keeps now."""

    input: float
    output: float
    cached: float
    written: float = 0.0


FREE = Price(0.0, 0.0, 0.0)
FREE_PROVIDERS = ("ollama", "local", "scripted")

_MAKERS: Mapping[str, Price] = {
    # Anthropic
    "claude-fable-5": Price(10.0, 50.0, 1.0),
    "claude-fable-5-1": Price(10.0, 50.0, 0.25),
    "claude-opus-5-5": Price(4.0, 20.0, 0.2),
    "claude-opus-5": Price(5.0, 25.0, 0.5),
    "claude-opus-4-8": Price(5.0, 25.0, 0.5),
    "claude-opus-4-7": Price(5.0, 25.0, 0.5),
    "claude-opus-4-6": Price(5.0, 25.0, 0.5),
    "claude-opus-4-5": Price(5.0, 25.0, 0.5),
    "claude-opus-4": Price(15.0, 75.0, 1.5),
    "claude-3-opus": Price(15.0, 75.0, 1.5),
    "claude-sonnet-5-5": Price(2.0, 10.0, 0.1),
    "claude-sonnet-5": Price(2.0, 10.0, 0.2),
    "claude-sonnet-4": Price(3.0, 15.0, 0.3),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3),
    "claude-3-5-sonnet": Price(3.0, 15.0, 0.3),
    "claude-haiku-5-5": Price(0.5, 2.5, 0.05),  # of prompts above 100,000 tokens; shorter ones cost a fifth
    "claude-haiku-4-5": Price(1.0, 5.0, 0.1),
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08),
    "claude-3-haiku": Price(0.25, 1.25, 0.03),
    # OpenAI
    "gpt-6-astra": Price(10.0, 50.0, 1.0),
    "gpt-6-sol": Price(2.0, 10.0, 0.2),
    "gpt-6-luna": Price(0.1, 0.5, 0.01),
    "gpt-5.6": Price(4.0, 20.0, 0.4),
    "gpt-5.6-sol": Price(4.0, 20.0, 0.4),
    "gpt-5.6-terra": Price(2.0, 12.0, 0.2),
    "gpt-5.6-luna": Price(0.2, 1.2, 0.02),
    "gpt-5.5": Price(5.0, 30.0, 0.5),
    "gpt-5.5-pro": Price(30.0, 180.0, 30.0),
    "gpt-5.4": Price(2.5, 15.0, 0.25),
    "gpt-5.4-pro": Price(30.0, 180.0, 30.0),
    "gpt-5.4-mini": Price(0.75, 4.5, 0.075),
    "gpt-5.4-nano": Price(0.2, 1.25, 0.02),
    "gpt-5.3": Price(1.75, 14.0, 0.175),
    "gpt-5.2": Price(1.75, 14.0, 0.175),
    "gpt-5.2-pro": Price(21.0, 168.0, 21.0),
    "gpt-5.1": Price(1.25, 10.0, 0.125),
    "gpt-5": Price(1.25, 10.0, 0.125),
    "gpt-5-pro": Price(15.0, 120.0, 15.0),
    "gpt-5-mini": Price(0.25, 2.0, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-4.1": Price(2.0, 8.0, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "gpt-4o": Price(2.5, 10.0, 1.25),
    "gpt-4o-mini": Price(0.15, 0.6, 0.075),
    "gpt-4-turbo": Price(10.0, 30.0, 10.0),
    "gpt-4": Price(30.0, 60.0, 30.0),
    "gpt-3.5-turbo": Price(0.5, 1.5, 0.5),
    "o4-mini": Price(1.1, 4.4, 0.275),
    "o3": Price(2.0, 8.0, 0.5),
    "o3-pro": Price(20.0, 80.0, 20.0),
    "o3-mini": Price(1.1, 4.4, 0.55),
    "o1": Price(15.0, 60.0, 7.5),
    # Google
    "gemini-3.8-flash": Price(0.75, 3.75, 0.075),
    "gemini-3.7-flash": Price(0.75, 3.75, 0.075),
    "gemini-3.6-flash": Price(0.75, 3.75, 0.075),
    "gemini-3.5-flash": Price(1.5, 9.0, 0.15),
    "gemini-3.1-pro": Price(2.0, 12.0, 0.2),
    "gemini-3-pro": Price(2.0, 12.0, 0.2),
    "gemini-3-flash": Price(0.5, 3.0, 0.05),
    "gemini-2.5-pro": Price(1.25, 10.0, 0.125),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    # DeepSeek: its price in the busy hours, which is twice the other
    "deepseek-flash": Price(0.3, 1.2, 0.006),
    "deepseek-chat": Price(0.3, 1.2, 0.006),
    "deepseek-v4-flash": Price(0.3, 1.2, 0.006),
    "deepseek-v4-pro": Price(1.32, 3.96, 0.044),
    "deepseek-reasoner": Price(1.32, 3.96, 0.044),
    # Mistral
    "mistral-large-4": Price(0.68, 2.09, 0.68),
    "mistral-medium": Price(1.5, 7.5, 1.5),
    "codestral": Price(0.3, 0.9, 0.3),
    # xAI
    "grok-4.6": Price(2.0, 6.0, 0.5),
    "grok-4.5": Price(2.0, 6.0, 0.5),
    # Moonshot
    "kimi-k3": Price(3.0, 15.0, 0.3),
    "kimi-k2.7": Price(0.95, 4.0, 0.19),
}
# Anthropic takes a quarter more for what it is told to keep.
TABLE: Mapping[str, Price] = {
    name: replace(price, written=price.input / 4) if name.startswith("claude") else price
    for name, price in _MAKERS.items()
}


def find_price(provider: str, name: str, overrides: Mapping[str, Json] | None = None) -> Price | None:
    """The price of a model, or None where nobody knows it. `overrides` is `prices:` of duragent.yaml."""
    names = _spellings(name)
    for spelling in (f"{provider}/{name}", *names):
        if overrides and spelling in overrides:
            return read_price(spelling, overrides[spelling])
    if provider in FREE_PROVIDERS:
        return FREE
    return _listed(names)


@lru_cache(maxsize=256)
def _listed(names: tuple[str, ...]) -> Price | None:
    for name in names:
        fitting = [prefix for prefix in TABLE if _begins(name, prefix)]
        if fitting:
            return TABLE[max(fitting, key=len)]
    return None


def _spellings(name: str) -> tuple[str, ...]:
    """A router writes the maker before the name, and dots where the maker has dashes."""
    plain = name.rpartition("/")[2].partition(":")[0]
    return tuple(dict.fromkeys((name, plain, plain.replace(".", "-"))))


def _begins(name: str, prefix: str) -> bool:
    """Whether the name is this one, or this one with a date or a variant after it: gpt-4o is no gpt-4."""
    rest = name.removeprefix(prefix) if name.startswith(prefix) else "?"
    return rest == "" or rest[0] in "-:@"


def read_price(model: str, said: Json) -> Price:
    """The price an owner wrote: `{input, output, cached}` or `[input, output, cached]`; `cached` may be left out."""
    where = f"prices: {model} in duragent.yaml"
    if isinstance(said, list | tuple) and 2 <= len(said) <= 3:
        said = dict(zip(("input", "output", "cached"), said, strict=False))
    if not isinstance(said, Mapping):
        raise NotAllowed(f"{where} is no price. Write {{input: 2.5, output: 10}}, in USD per million tokens")
    unknown = [str(key) for key in said if key not in ("input", "output", "cached")]
    if unknown:
        raise NotAllowed(f"{where} has {', '.join(unknown)}, which means nothing. Write input, output and cached")
    for key in ("input", "output"):
        if key not in said:
            raise NotAllowed(f"{where} lacks {key}. Write {{input: 2.5, output: 10}}, in USD per million tokens")
    for key, value in said.items():
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or value < 0:
            raise NotAllowed(f"{where}: {key} is {value!r}. Write a number of USD per million tokens, 0 or more")
    return Price(float(said["input"]), float(said["output"]), float(said.get("cached", said["input"])))


def cost(price: Price, usage: Usage) -> float:
    """What an answer cost, in USD."""
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    fresh = usage.prompt_tokens - cached
    prompt = fresh * price.input + cached * price.cached + usage.written_tokens * price.written
    return (prompt + usage.completion_tokens * price.output) / MILLION


def reserve(price: Price, tokens_in: int, max_output_tokens: int) -> float:
    """The most a call can cost, in USD: nothing was kept, everything will be, and all that may be said is said."""
    return (tokens_in * (price.input + price.written) + max_output_tokens * price.output) / MILLION
