"""Sessions and their events in words: how one stands, what happened, what it cost.

Gives texts that are safe to print: what a model, a tool or a person said has lost everything that could move the
cursor or colour the terminal. Knows no disk and no runtime. A new kind of event gets a line in `_WORDS`.
"""

import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.json import encode

from duragent.cli import clean, count
from duragent.core import events as ev
from duragent.core.session import Session, Spent
from duragent.models.prices import find_price

UNFINISHED = ("interrupted", "paused")
"""How sessions stand whose turn somebody must carry on."""


def standing(session: Session, *, held: bool) -> str:
    """How a session stands, in a word or two. `held`: a process has it open."""
    if session.ended:
        return "ended"
    if session.waiting:
        return "waits for you"
    if session.owes_answer or session.open_calls:
        return "running" if held else "paused" if session.status == "paused" else "interrupted"
    return "resting"


def ending(event: ev.SessionEnd | None) -> str:
    """Why a session has ended."""
    words = {
        "completed": "it was completed",
        "terminated": "it was terminated",
        "timeout": "it had rested for too long",
        "error": "of an error",
    }
    return words[event.reason] if event else "it was completed"


def line(text: str, longest: int = 100) -> str:
    """A stranger's text on one line, its end cut off where it is long."""
    flat = clean(" ".join(text.split()))
    return flat if len(flat) <= longest else f"{flat[: longest - 1]}…"


def block(text: str, indent: str, most: int | None = None) -> str:
    """A stranger's text on as many lines as it has, indented, and cut after `most` of them."""
    lines = clean(text.strip(), lines=True).split("\n")
    if most is not None and len(lines) > most:
        lines = [*lines[:most], f"… {count(len(lines) - most, 'more line')}"]
    return f"\n{indent}".join(lines)


def called(call: ev.ToolCall, longest: int = 100) -> str:
    """A call as one line: the tool and its arguments, shortened."""
    if call.malformed is not None:
        return f"{clean(call.tool_name)}  {line(call.malformed, longest)}"
    if not isinstance(call.arguments, dict) or not call.arguments:
        return clean(call.tool_name)
    said = "  ".join(f"{name}={_value(value)}" for name, value in call.arguments.items())
    return f"{clean(call.tool_name)}  {line(said, longest)}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def usd(amount: float) -> str:
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


def spent(used: Spent, *, priced: bool = True) -> str:
    """Tokens and money of a session, short enough for a status line. `priced`: somebody knows what its model costs."""
    money = "price unknown" if cost(used, priced=priced) is None else usd(used.committed_usd)
    return f"{tokens(used.prompt_tokens)} in, {tokens(used.completion_tokens)} out, {money}"


def cost(used: Spent, *, priced: bool) -> float | None:
    """What a session has cost; None where something was used that has no known price."""
    if not priced and not used.committed_usd and used.prompt_tokens + used.completion_tokens:
        return None
    return used.committed_usd


def has_price(model: str, prices: Mapping[str, Any]) -> bool:
    """Whether anybody knows what a model costs; one that has no name costs nothing."""
    provider, _, name = model.partition("/")
    return not model or find_price(provider, name, prices) is not None


def tokens(number: int) -> str:
    return f"{number:,}" if number < 10_000 else f"{number / 1000:.0f}k" if number < 1e6 else f"{number / 1e6:.1f}M"


def age(timestamp: str, now: datetime) -> str:
    """How long ago, in one unit."""
    then = ev.moment(timestamp)
    if then is None:
        return "–"
    seconds = max(0, int((now - then).total_seconds()))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return "just now" if seconds < 10 else f"{seconds} s ago"


def clock(timestamp: str) -> str:
    found = ev.moment(timestamp)
    return found.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if found else clean(timestamp)


def command_line(*words: str) -> str:
    """A command of ours that a person can copy."""
    return " ".join(("duragent", *(shlex.quote(word) for word in words)))


def told(event: ev.Event) -> str:
    """What an event says beyond its kind. The text may have more than one line."""
    words = _WORDS.get(type(event))
    return words(event) if words else ""


def kind(event: ev.Event) -> str:
    return clean(event.type) if isinstance(event, ev.Unknown) else str(event.__struct_config__.tag)


def _start(event: ev.SessionStart) -> str:
    said = clean(event.agent)
    if event.forked_from:
        said += f", forked from {clean(event.forked_from)}"
    if event.gateway:
        said += f", through {clean(event.gateway)} {clean(event.gateway_chat_id or '')}".rstrip()
    return said


def _user(event: ev.UserMessage) -> str:
    sender = event.sender_name or event.sender_id
    return (f"{clean(sender)}: " if sender else "") + block(event.content, "")


def _model(event: ev.ModelCalled) -> str:
    after = f", after {line(event.after)}" if event.after else ""
    reserved = f", {usd(event.reserved_usd)} set aside" if event.reserved_usd else ""
    return f"{clean(event.model)}{reserved}{after}"


def _answer(event: ev.AssistantResponse) -> str:
    lines = [block(event.content, "")] if event.content.strip() else []
    lines += [f"→ {called(call)}  ({clean(call.call_id)})" for call in event.tool_calls]
    cost = f", {usd(event.cost_usd)}" if event.cost_usd is not None else ""
    if event.usage is not None:
        lines.append(f"({tokens(event.usage.prompt_tokens)} in, {tokens(event.usage.completion_tokens)} out{cost})")
    return "\n".join(lines)


def _result(event: ev.ToolResult) -> str:
    failed = ", failed" if event.outcome == "ok" and not event.result.success else ""
    return f"{clean(event.call_id)}  {event.outcome}{failed}\n{block(event.result.content, '', 10)}".rstrip()


def _asked(event: ev.ApprovalRequired) -> str:
    rule = f"  ({clean(event.rule)})" if event.rule else ""
    return f"{clean(event.call_id)}  {clean(event.command)}{rule}"


def _decided(event: ev.ApprovalDecision) -> str:
    who = f" by {clean(event.by)}" if event.by else ""
    why = f": {line(event.reason)}" if event.reason else ""
    return f"{clean(event.call_id)}  {event.decision}{who}{why}"


def _stopped(event: ev.TurnStopped) -> str:
    partial = f"\n{block(event.partial, '', 10)}" if event.partial else ""
    return f"{event.reason}: {line(event.message, 500)}{partial}"


_WORDS: Mapping[type, Callable[[Any], str]] = {
    ev.SessionStart: _start,
    ev.UserMessage: _user,
    ev.SilentMessage: lambda event: block(event.content, ""),
    ev.ModelCalled: _model,
    ev.AssistantResponse: _answer,
    ev.AssistantMessage: lambda event: block(event.content, ""),
    ev.ApprovalRequired: _asked,
    ev.ApprovalDecision: _decided,
    ev.ToolStarted: lambda event: clean(event.call_id),
    ev.ToolResult: _result,
    ev.ToolCalled: lambda event: called(ev.ToolCall(event.call_id, event.tool_name, event.arguments)),
    ev.ToolsSkipped: lambda event: clean(", ".join(event.call_ids)),
    ev.TurnStopped: _stopped,
    ev.ReplyDelivered: lambda event: f"entry {event.reply_seq} to {clean(event.gateway or 'its chat')}",
    ev.StatusChange: lambda event: f"{clean(event.from_)} → {clean(event.to)}",
    ev.ErrorNoted: lambda event: f"{clean(event.code)}: {line(event.message, 500)}",
    ev.SessionEnd: lambda event: event.reason,
}
