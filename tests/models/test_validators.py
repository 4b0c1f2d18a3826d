"""The validators find what they are there for: each planted fault, and nothing in a good request."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest

from tests.models.validators import valid_anthropic, valid_openai

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
OPENAI: Any = {
    "messages": [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
    ],
    "tools": [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}}],
}
USE = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "ok"}
ANTHROPIC: Any = {
    "max_tokens": 9,
    "system": [{"type": "text", "text": "Be good."}],
    "messages": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "well"}, USE]},
        {"role": "user", "content": [RESULT, {"type": "text", "text": "and?"}]},
    ],
    "tools": [{"name": "bash", "input_schema": {"type": "object"}}],
}
Fault = Callable[[Any], object]


def test_good_requests_have_no_fault() -> None:
    assert (valid_openai(OPENAI), valid_anthropic(ANTHROPIC)) == ([], [])


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda r: r["messages"].clear(), "there are no messages"),
        (lambda r: r["messages"].pop(), "calls without a result: ['c1']"),
        (lambda r: r["messages"].append(r["messages"][3]), "messages[4]: a result for 'c1', which nobody called"),
        (lambda r: r["messages"].insert(3, r["messages"][1]), "messages[3]: user comes before the results of ['c1']"),
        (lambda r: r["messages"][1].update(content=" "), "messages[1].content: empty"),
        (lambda r: r["messages"][3].update(content=""), "messages[3].content: empty"),
        (lambda r: r["messages"][3].update(content=7), "messages[3].content: 7 is no text"),
        (lambda r: r["messages"][2]["tool_calls"][0].update(id="a b"), "messages[2]: 'a b' is no id"),
        (lambda r: r["messages"].extend(r["messages"][2:4]), "messages[4]: the id 'c1' is used twice"),
        (lambda r: r["messages"].append({"role": "assistant", "content": "x"}), "the last message is from assistant"),
        (lambda r: r["messages"].insert(0, {"role": "robot"}), "messages[0]: unknown role 'robot'"),
        (lambda r: r.update(tools=[]), "tools is an empty list"),
        (lambda r: r["messages"][2].update(tool_calls=[]), "messages[2]: tool_calls is an empty list"),
    ],
)
def test_a_planted_fault_is_found_in_chat_completions(plant: Fault, found: str) -> None:
    request = deepcopy(OPENAI)
    plant(request)
    assert found in valid_openai(request)


@pytest.mark.parametrize(
    ("plant", "found"),
    [
        (lambda r: r["messages"].clear(), "there are no messages"),
        (lambda r: r.pop("max_tokens"), "max_tokens is missing"),
        (lambda r: r["messages"].pop(0), "the first message is not from the user"),
        (lambda r: r["messages"].pop(), "calls without a result: ['c1']"),
        (lambda r: r["messages"].pop(), "the last message is not from the user"),
        (lambda r: r["messages"].insert(0, r["messages"][0]), "messages[1]: user follows user"),
        (lambda r: r["messages"][2]["content"].pop(0), "messages[2]: no result for ['c1']"),
        (lambda r: r["messages"][2]["content"].reverse(), "messages[2]: a result comes after text"),
        (
            lambda r: r["messages"][2]["content"].insert(0, RESULT),
            "messages[2]: a result for 'c1', which nobody called",
        ),
        (lambda r: r["messages"][1]["content"].append(USE), "messages[1]: the id 'c1' is used twice"),
        (lambda r: r["messages"][1]["content"][0].update(text=""), "messages[1].text: empty"),
        (lambda r: r["messages"][2].update(content=[]), "messages[2]: no content"),
        (lambda r: r["messages"][1]["content"].append({"type": "image"}), "messages[1]: the assistant says a 'image'"),
        (lambda r: r["system"][0].update(text=" "), "system: empty"),
        (lambda r: r.update(tools=[]), "tools is an empty list"),
        (
            lambda r: r.update(
                tools=[{"name": str(at), "input_schema": {"type": "object"}, "cache_control": {}} for at in range(5)]
            ),
            "5 places are marked for the cache, and four are allowed",
        ),
    ],
)
def test_a_planted_fault_is_found_in_messages(plant: Fault, found: str) -> None:
    request = deepcopy(ANTHROPIC)
    plant(request)
    assert found in valid_anthropic(request)
