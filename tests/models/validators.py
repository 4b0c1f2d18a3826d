"""What the two wire formats demand of a request. A validator gives back everything that is wrong, in words."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Json = Any
_ID = re.compile(r"^[a-zA-Z0-9_-]{1,64}$")


def valid_openai(request: Mapping[str, Json]) -> list[str]:
    """Everything a Chat Completions server would refuse this request for; empty when it is fine."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["there are no messages"]
    found: list[str] = []
    waiting: list[str] = []  # ids of calls whose results must come next
    seen: set[str] = set()
    for at, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            found += _openai_result(at, message, waiting)
            continue
        if waiting:
            found.append(f"messages[{at}]: {role} comes before the results of {waiting}")
            waiting = []
        if role == "assistant":
            waiting = _openai_answer(at, message, seen, found)
        elif role in ("system", "user"):
            found += _text(f"messages[{at}].content", message.get("content"))
        else:
            found.append(f"messages[{at}]: unknown role {role!r}")
    if waiting:
        found.append(f"calls without a result: {waiting}")
    last = next((m.get("role") for m in reversed(messages) if m.get("role") != "system"), None)
    if last not in ("user", "tool"):
        found.append(f"the last message is from {last}")
    return found + _openai_tools(request.get("tools"))


def _openai_answer(at: int, message: Mapping[str, Json], seen: set[str], found: list[str]) -> list[str]:
    calls = message.get("tool_calls")
    content = message.get("content")
    if calls is None:
        found += _text(f"messages[{at}].content", content)
        return []
    if not calls:
        found.append(f"messages[{at}]: tool_calls is an empty list")
    if content is not None:
        found += _text(f"messages[{at}].content", content)
    for call in calls:
        function = call.get("function", {})
        if call.get("type") != "function" or not function.get("name"):
            found.append(f"messages[{at}]: a call is not of a named function: {call}")
        if not isinstance(function.get("arguments"), str):
            found.append(f"messages[{at}]: the arguments of a call are no text")
        found += _fresh(f"messages[{at}]", call.get("id"), seen)
    return [call.get("id") for call in calls]


def _openai_result(at: int, message: Mapping[str, Json], waiting: list[str]) -> list[str]:
    found = []
    if message.get("tool_call_id") in waiting:
        waiting.remove(message["tool_call_id"])
    else:
        found.append(f"messages[{at}]: a result for {message.get('tool_call_id')!r}, which nobody called")
    return found + _text(f"messages[{at}].content", message.get("content"))


def _openai_tools(tools: Json) -> list[str]:
    if tools is None:
        return []
    if not tools:
        return ["tools is an empty list"]
    return [
        f"tools: {tool} is no function with parameters of type object"
        for tool in tools
        if tool.get("type") != "function"
        or not tool.get("function", {}).get("name")
        or tool["function"].get("parameters", {}).get("type") != "object"
    ]


def takes_turns(request: Mapping[str, Json]) -> list[str]:
    """What a strict chat template refuses: a system message that is not the first, or one who speaks twice in a row."""
    roles = [message.get("role") for message in request["messages"]]
    found = [f"messages[{at}]: a system message" for at, role in enumerate(roles) if role == "system" and at]
    pairs = enumerate(pairwise(roles), 1)
    return found + [f"messages[{at}]: {b} speaks again" for at, (a, b) in pairs if a == b in ("user", "assistant")]


def valid_anthropic(request: Mapping[str, Json]) -> list[str]:
    """Everything a Messages server would refuse this request for; empty when it is fine."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["there are no messages"]
    found = [] if isinstance(request.get("max_tokens"), int) else ["max_tokens is missing"]
    if messages[0].get("role") != "user":
        found.append("the first message is not from the user")
    if messages[-1].get("role") != "user":
        found.append("the last message is not from the user")
    waiting: list[str] = []
    seen: set[str] = set()
    role_before = None
    for at, message in enumerate(messages):
        role = message.get("role")
        if role not in ("user", "assistant") or role == role_before:
            found.append(f"messages[{at}]: {role} follows {role_before}")
        role_before = role
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not blocks:
            found.append(f"messages[{at}]: no content")
            continue
        if role == "assistant":
            waiting = _anthropic_calls(at, blocks, seen, found)
        else:
            found += _anthropic_results(at, blocks, waiting)
            waiting = []
    if waiting:
        found.append(f"calls without a result: {waiting}")
    return found + _marks(request) + _anthropic_system(request.get("system")) + _anthropic_tools(request.get("tools"))


def _anthropic_calls(at: int, blocks: Sequence[Mapping[str, Json]], seen: set[str], found: list[str]) -> list[str]:
    waiting = []
    for block in blocks:
        if block.get("type") == "text":
            found += _text(f"messages[{at}].text", block.get("text"))
        elif block.get("type") == "tool_use":
            found += _fresh(f"messages[{at}]", block.get("id"), seen)
            waiting.append(block.get("id"))
            if not block.get("name") or not isinstance(block.get("input"), dict):
                found.append(f"messages[{at}]: a call without a name or an input object: {block}")
        else:
            found.append(f"messages[{at}]: the assistant says a {block.get('type')!r}")
    return waiting


def _anthropic_results(at: int, blocks: Sequence[Mapping[str, Json]], waiting: list[str]) -> list[str]:
    found = []
    left, text_came = list(waiting), False
    for block in blocks:
        if block.get("type") == "text":
            text_came = True
            found += _text(f"messages[{at}].text", block.get("text"))
        elif block.get("type") != "tool_result":
            found.append(f"messages[{at}]: the user says a {block.get('type')!r}")
        elif text_came:
            found.append(f"messages[{at}]: a result comes after text")
        elif block.get("tool_use_id") not in left:
            found.append(f"messages[{at}]: a result for {block.get('tool_use_id')!r}, which nobody called")
        else:
            left.remove(block["tool_use_id"])
            found += _text(f"messages[{at}].result", block.get("content"))
    return found + ([f"messages[{at}]: no result for {left}"] if left else [])


def _anthropic_system(system: Json) -> list[str]:
    if system is None:
        return []
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    if not blocks:
        return ["system is an empty list"]
    return [problem for block in blocks for problem in _text("system", block.get("text"))]


def _anthropic_tools(tools: Json) -> list[str]:
    if tools is None:
        return []
    if not tools:
        return ["tools is an empty list"]
    return [
        f"tools: {tool} has no name or no input_schema of type object"
        for tool in tools
        if not tool.get("name") or tool.get("input_schema", {}).get("type") != "object"
    ]


def _marks(value: Json) -> list[str]:
    """At most four places may be marked for the cache."""

    def count(part: Json) -> int:
        if isinstance(part, dict):
            return ("cache_control" in part) + sum(count(each) for each in part.values())
        return sum(count(each) for each in part) if isinstance(part, list) else 0

    marks = count(value.get("messages")) + count(value.get("tools")) + count(value.get("system"))
    return [f"{marks} places are marked for the cache, and four are allowed"] if marks > 4 else []


def _text(where: str, content: Json) -> list[str]:
    if isinstance(content, list):
        content = "".join(block.get("text", "") for block in content)
    if not isinstance(content, str):
        return [f"{where}: {content!r} is no text"]
    return [] if content.strip() else [f"{where}: empty"]


def _fresh(where: str, call_id: Json, seen: set[str]) -> list[str]:
    if not isinstance(call_id, str) or not _ID.match(call_id):
        return [f"{where}: {call_id!r} is no id"]
    if call_id in seen:
        return [f"{where}: the id {call_id!r} is used twice"]
    seen.add(call_id)
    return []
