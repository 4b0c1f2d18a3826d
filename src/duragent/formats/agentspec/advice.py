"""What an agentspec manifest may say but hardly can mean. The format accepts it; people should hear of it."""

import math
from collections.abc import Iterator

from duragent.agent import Origin
from duragent.formats.agentspec.merge import Merged
from duragent.formats.reader import did_you_mean
from duragent.formats.shape import Problem

_TIERS = ("reasoning-low", "reasoning-mid", "reasoning-high", "reasoning-max")
_SERVER = ("name", "url", "transport", "command", "args", "env", "headers", "requires")
_WINDOWS = ("full", "128k", "32k", "8k")

Doubt = tuple[str, str, str]


def advise(merged: Merged) -> Iterator[Problem]:
    for path, text, hint in (*_model(merged), *_limits(merged), *_trust(merged), *_keys(merged), *_servers(merged)):
        where = merged.at.get(path) or Origin("", 1, 1)
        yield Problem("warning", where.file, where.line, where.column, path, text, hint)


def _model(merged: Merged) -> Iterator[Doubt]:
    model, behavior = merged.values["model"], merged.values["behavior"]
    if not merged.values["name"].strip():
        yield "name", "the name is empty", "give it one"
    for index, wanted in enumerate(model["preferred"]):
        if "/" not in wanted:
            path = f"model.preferred[{index}]"
            yield path, f"{wanted!r} names no provider and model", "write provider/model, e.g. openai/o3"
    if model["fallback"] is not None and model["fallback"] not in _TIERS:
        hint = did_you_mean(model["fallback"], _TIERS) or "one of " + ", ".join(_TIERS)
        yield "model.fallback", f"{model['fallback']!r} is no capability tier", hint
    if model["context"] not in _WINDOWS:
        yield "model.context", f"{model['context']!r} is no window", "one of " + ", ".join(_WINDOWS)
    if not 0 <= behavior["temperature"] <= 2:
        yield "behavior.temperature", f"no model takes a temperature of {behavior['temperature']:g}", "0 to 2"


def _limits(merged: Merged) -> Iterator[Doubt]:
    watch = merged.values["observability"]
    if merged.values["behavior"]["max_steps"] < 1:
        yield "behavior.max_steps", "with less than one step the agent can do nothing", "at least 1"
    if watch["step_limit"] < 1:
        yield "observability.step_limit", "with less than one step the agent can do nothing", "at least 1"
    cost = watch["cost_limit"]
    if cost is not None and (math.isnan(cost) or cost < 0):
        yield "observability.cost_limit", "a limit that is no amount of money is read as 0", "USD, e.g. 0.50"
    elif cost is not None and math.isinf(cost):
        yield "observability.cost_limit", "an infinite limit is none", "USD, e.g. 0.50, or remove the line"


def _trust(merged: Merged) -> Iterator[Doubt]:
    trust = merged.values["trust"]
    scope, files = merged.at.get("trust.scope"), merged.at.get("trust.filesystem")
    together = scope is not None and (files is None or files.file == scope.file)
    if trust["scope"] and trust["filesystem"] in ("none", "full") and together:
        text = f"the scope has no effect while filesystem is {trust['filesystem']}"
        yield "trust.scope", text, "write `filesystem: scoped` or `read-only`"
    if trust["filesystem"] == "scoped" and not trust["scope"]:
        yield "trust.filesystem", "filesystem is scoped, but no scope is given", "add `scope:` with paths"


def _keys(merged: Merged) -> Iterator[Doubt]:
    for name, provider in merged.values["auth"]["providers"].items():
        source = provider["from_"]
        if source is not None and not source.startswith("env."):
            path = f"auth.providers.{name}"
            yield path, f"where the key of {name} comes from is not understood", "write env.NAME; never the key itself"


def _servers(merged: Merged) -> Iterator[Doubt]:
    for index, entry in enumerate(merged.values["tools"]["mcp"]):
        path = f"tools.mcp[{index}]"
        if not isinstance(entry, dict):
            continue
        if not isinstance(entry.get("name"), str):
            if len(entry) != 1 or "name" in entry:
                yield path, "which server this is cannot be told", "write its name, `name: {settings}` or `{name: …}`"
            continue
        for key in sorted(entry.keys() - set(_SERVER)):
            hint = did_you_mean(key, _SERVER) or "known here: " + ", ".join(_SERVER)
            yield path, f"unknown setting `{key}` of the server {entry['name']!r}", hint
        if entry.get("transport", "stdio") not in ("stdio", "http", "streamable-http"):
            yield path, f"the transport {entry['transport']!r} is not spoken", "stdio, http or streamable-http"


def usable_cost(cost: float | None) -> float | None:
    """A limit that compares: NaN would never be reached."""
    return cost if cost is None or cost >= 0 else 0.0
