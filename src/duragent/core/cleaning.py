"""Events without the values of the owner's keys: what is written down is cleaned first, whoever said it."""

from collections.abc import Callable

from msgspec.structs import replace

from duragent.core import events as ev

Redact = Callable[[str], str]


def without_secrets(event: ev.Event, redact: Redact) -> ev.Event:
    """The event as it may be written: wherever somebody's own words stand, `redact` was asked about them."""
    match event:
        case ev.ToolResult(result=answer) if (text := redact(answer.content)) != answer.content:
            return replace(event, result=ev.ToolAnswer(answer.success, text))
        case ev.AssistantResponse(content=said, tool_calls=calls):
            cleaned = tuple(_call(call, redact) for call in calls)
            return replace(event, content=redact(said), tool_calls=cleaned)
        case ev.UserMessage() | ev.SilentMessage() if (text := redact(event.content)) != event.content:
            return replace(event, content=text)
        case ev.TurnStopped(message=why, partial=said):
            return replace(event, message=redact(why), partial=redact(said))
        case ev.ErrorNoted() if (text := redact(event.message)) != event.message:
            return replace(event, message=text)
        case ev.ApprovalRequired() if (text := redact(event.command)) != event.command:
            return replace(event, command=text)
        case ev.ApprovalDecision(reason=str(why)):
            return replace(event, reason=redact(why))
        case ev.ModelCalled(after=str(why)):
            return replace(event, after=redact(why))
    return event


def _call(call: ev.ToolCall, redact: Redact) -> ev.ToolCall:
    malformed = redact(call.malformed) if call.malformed is not None else None
    return replace(call, arguments=_cleaned(call.arguments, redact), malformed=malformed)


def _cleaned(value: ev.Json, redact: Redact) -> ev.Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(name): _cleaned(each, redact) for name, each in value.items()}
    return [_cleaned(each, redact) for each in value] if isinstance(value, list) else value
