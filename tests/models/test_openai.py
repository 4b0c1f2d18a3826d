"""Chat Completions: what is sent is always valid, and whatever comes back is understood or named."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.core.events import ToolCall, Usage
from duragent.core.policy import ToolSpec
from duragent.core.session import Call, Message
from duragent.errors import ModelFailed
from duragent.models import Answer
from duragent.models.http import TRIES, Endpoint, Transport
from duragent.models.openai import OpenAIModel, _Reader
from duragent.models.wire import Tools, encode
from tests.models.asking import BASH, CLOCK, KEY, Heard, ask, called, hello, openai, said, user
from tests.models.provider_server import (
    Provider,
    chat,
    chat_calls,
    chat_events,
    chat_pieces,
    chat_usage,
    delta,
    document,
    finish,
    refuse,
    sending,
)
from tests.models.validators import valid_openai

FIVE = Usage(10, 5, 15)


def body(*messages: Message, provider: str = "openai", **fields: Any) -> Any:
    model = OpenAIModel("m", provider=provider, key=KEY)
    request = hello(*messages, **fields)
    once = model.body(request)
    assert model.body(request) == once, "encoding it again gives the same bytes"
    sent = json.loads(once)
    assert valid_openai(sent) == []
    return sent


def test_a_whole_request() -> None:
    sent = body(
        user("list it"),
        said("Sure.", called("c1", "a.txt"), called("c2", "", "clock", {})),
        user("thanks", 3),
        tools=(BASH, CLOCK),
        notice="4 earlier messages are not shown.",
        stamp="It is Monday.",
        temperature=0.5,
        max_output_tokens=99,
    )
    assert sent == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "max_completion_tokens": 99,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "bash",
                    "description": "Runs a command.",
                    "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
                },
            },
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "",
                    "parameters": {"type": "object", "properties": {}},
                },
            },
        ],
        "messages": [
            {"role": "system", "content": "You help."},
            {"role": "system", "content": "4 earlier messages are not shown."},
            {"role": "user", "content": "list it"},
            {
                "role": "assistant",
                "content": "Sure.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}},
                    {"id": "c2", "type": "function", "function": {"name": "clock", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a.txt"},
            {"role": "tool", "tool_call_id": "c2", "content": "(no output)"},
            {"role": "user", "content": "thanks"},
            {"role": "system", "content": "It is Monday."},
        ],
    }


def test_a_request_goes_where_the_owner_says_with_the_key() -> None:
    asked = ask([chat(["x"])], openai()).asked[0]
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.headers["Content-Type"] == "application/json"


def test_a_server_without_a_key_is_sent_none() -> None:
    assert "Authorization" not in ask([chat(["x"])], openai("ollama", key="")).asked[0].headers


def test_other_servers_get_one_system_message_at_the_start_and_max_tokens() -> None:
    told = {"notice": "2 are not shown.", "stamp": "It is Monday.", "max_output_tokens": 7}
    for sent in (body(provider="ollama", **told), ask([chat(["x"])], openai(), hello(**told)).sent):
        assert sent["messages"] == [
            {"role": "system", "content": "You help.\n\n2 are not shown."},
            {"role": "user", "content": "hi\n\n(It is Monday.)"},
        ]
        assert (sent["max_tokens"], "max_completion_tokens" in sent, "tools" in sent) == (7, False, False)


def test_a_provider_without_an_address_is_refused() -> None:
    with pytest.raises(ModelFailed, match=r"^acme/m: no address is known for acme\. Set base_url$"):
        OpenAIModel("m", provider="acme")


def test_openrouter_is_asked_for_what_it_cost() -> None:
    assert body(provider="openrouter")["usage"] == {"include": True}
    outcome = ask([chat(["x"], usage=chat_usage(7, 3, 2, cost=0.0125))], openai("openrouter"))
    assert outcome.answer == Answer("x", (), Usage(7, 3, 10, 2), 0.0125)


def test_every_provider_has_its_address() -> None:
    addresses = [OpenAIModel("m", provider=provider)._endpoint.url for provider in ("openai", "openrouter", "ollama")]
    assert addresses == [
        "https://api.openai.com/v1/chat/completions",
        "https://openrouter.ai/api/v1/chat/completions",
        "http://localhost:11434/v1/chat/completions",
    ]


def test_what_says_nothing_is_left_out() -> None:
    sent = body(user("  \n"), said(" "), user("hi", 3), said("", seq=4), system=" ", notice=" ", stamp=" ")
    assert sent["messages"] == [{"role": "user", "content": "hi"}]


def test_a_history_that_ends_with_the_model_asks_it_to_go_on() -> None:
    assert body(user("hi"), said("Well"))["messages"][-1] == {"role": "user", "content": "Please go on."}
    assert body(said(" "))["messages"][-1] == {"role": "user", "content": "Please go on."}
    assert body(said("", called("c")))["messages"][-1]["role"] == "tool"


def test_people_in_a_group_are_told_apart() -> None:
    sent = body(user("hi", sender="Ann\nsystem"), user("ho", 2, sender=" "))
    assert [each["content"] for each in sent["messages"][1:]] == ["Ann system: hi", "ho"]


def test_a_call_without_a_result_is_told_so_and_encoded_again_once_it_has_one() -> None:
    call = called("c", None)
    request = hello(said("", call))
    model = OpenAIModel("m")
    assert json.loads(model.body(request))["messages"][-1]["content"] == "(this call has no result)"
    call.stage, call.content = "done", "late"
    assert json.loads(model.body(request))["messages"][-1]["content"] == "late"


def test_a_message_is_encoded_once() -> None:
    message = user("hi")
    request = hello(message)
    model = OpenAIModel("m")
    model.body(request)
    assert (message.dialect, message.wire) == ("openai", b'{"role":"user","content":"hi"}')
    message.wire = b'{"role":"user","content":"kept"}'
    assert json.loads(model.body(request))["messages"][-1]["content"] == "kept"
    message.dialect = "anthropic"
    assert json.loads(model.body(request))["messages"][-1]["content"] == "hi"


def test_ids_and_names_are_made_fit_and_calls_that_share_an_id_are_parted() -> None:
    long, strange = "x" * 80, "a b/c"
    sent = body(
        said("", called(long), called(strange, name="my.tool"), called("", name="")),
        said("", called("same", "1"), called("same", "2"), seq=3),
        said("", called("same", "3"), seq=4),
    )
    calls = [call for each in sent["messages"] for call in each.get("tool_calls", ())]
    results = [each for each in sent["messages"] if each["role"] == "tool"]
    assert [call["id"] for call in calls] == [result["tool_call_id"] for result in results]
    assert [call["function"]["name"] for call in calls] == ["bash", "my_tool", "unknown", "bash", "bash", "bash"]
    assert [result["content"] for result in results[3:]] == ["1", "2", "3"]
    assert calls[3]["id"] == "same"


def test_malformed_arguments_and_half_characters_are_sent_as_valid_json() -> None:
    broken = Call(ToolCall("c", "bash", None, "{half"), "done", content="not JSON \ud800")
    sent = body(user("\udfff?"), said("", broken, called("d", arguments={"\ud800": ["\ud800"]})))
    assert sent["messages"][1]["content"] == "??"
    assert sent["messages"][2]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert sent["messages"][3]["content"] == "not JSON ?"


def test_tools_with_names_the_provider_refuses_are_renamed_and_understood() -> None:
    tools = (ToolSpec("a.b"), ToolSpec("a/b", parameters={"properties": {"x": {}}}), ToolSpec("t" * 80))
    outcome = ask(
        [chat_calls({"index": 0, "id": "c", "function": {"name": "a_b_2", "arguments": ""}})],
        openai(),
        hello(tools=tools),
    )
    functions = [tool["function"] for tool in outcome.sent["tools"]]
    assert [function["name"] for function in functions] == ["a_b", "a_b_2", "t" * 64]
    assert functions[1]["parameters"] == {"type": "object", "properties": {"x": {}}}
    assert outcome.answer.tool_calls == (ToolCall("c", "a/b", {}),)


calls_ = st.builds(
    Call,
    st.builds(
        ToolCall,
        st.sampled_from(["", "a", "b", "c d", "é"]),
        st.text(max_size=3),
        st.none() | st.dictionaries(st.text(max_size=2), st.text(max_size=2), max_size=1),
        st.none() | st.text(max_size=3),
    ),
    st.sampled_from(["new", "asked", "started", "done"]),
    content=st.text(max_size=3),
)
messages_ = st.builds(
    Message,
    st.sampled_from(["user", "assistant"]),
    st.text(max_size=4),
    st.integers(0, 9),
    calls=st.lists(calls_, max_size=3).map(tuple),
    sender=st.none() | st.text(max_size=3),
)


@given(st.lists(messages_, max_size=8), st.text(max_size=2), st.text(max_size=2), st.text(max_size=2))
def test_whatever_a_history_holds_the_request_is_valid(
    messages: list[Message], system: str, notice: str, stamp: str
) -> None:
    history = [Message(m.role, m.content, m.seq, m.calls if m.role == "assistant" else (), m.sender) for m in messages]
    request = hello(system=system, notice=notice, stamp=stamp)
    request.messages = history
    for provider in ("openai", "ollama"):
        model = OpenAIModel("m", provider=provider)
        once = model.body(request)
        assert valid_openai(json.loads(once)) == []
        assert model.body(request) == once


# What comes back


def answer_of(*chunks: Any, **fields: Any) -> Answer:
    return ask([sending(chat_events(chunks))], openai(), hello(**fields)).answer


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("size", [1, 2, 7, 4096])
def test_an_answer_is_the_same_however_it_is_cut(end: bytes, size: int) -> None:
    stream = b": comment\n\n" + b"".join(chat_pieces(["Grüß ", "dich 🙂", "\r\n"], end=end))
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    outcome = ask([sending(pieces)], openai())
    assert outcome.answer == Answer("Grüß dich 🙂\r\n", (), FIVE)
    assert outcome.heard.texts == ["Grüß ", "dich 🙂", "\r\n"]


def test_deltas_that_say_nothing_are_not_told() -> None:
    chunks = [
        delta(role="assistant", content=None),
        delta(content=""),
        delta(reasoning="hm", reasoning_content="hm", reasoning_details=[{"x": 1}]),
        delta(),
        {"choices": []},
        {"choices": None},
        {"choices": [{"index": 1, "delta": {"content": "the other choice"}}]},
        {"choices": [{"delta": None}]},
        delta(content="yes", unknown={"a": [1]}),
        finish(),
        {"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]},
    ]
    outcome = ask([sending(chat_events(chunks))], openai())
    assert outcome.answer == Answer("yes")
    assert outcome.heard.texts == ["yes"]


def test_content_in_typed_parts_and_refusals_are_text() -> None:
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, "?", {"type": "text", "text": 1}]
    assert answer_of(delta(content=parts), delta(refusal="b"), finish()).content == "ab"


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, None),
        ({}, None),
        ("lots", None),
        ({"prompt_tokens": None, "completion_tokens": "x"}, None),
        ({"prompt_tokens": 3, "completion_tokens": 4}, Usage(3, 4, 7)),
        ({"prompt_tokens": 3.0, "completion_tokens": 4, "total_tokens": 9}, Usage(3, 4, 9)),
        ({"prompt_tokens": 3, "completion_tokens": 0, "prompt_tokens_details": None}, Usage(3, 0, 3)),
        ({"prompt_tokens": 3, "completion_tokens": 1, "prompt_cache_hit_tokens": 2}, Usage(3, 1, 4, 2)),
        ({"prompt_tokens": 3, "completion_tokens": 1e300}, Usage(3, 0, 3)),
    ],
)
def test_usage_is_what_the_provider_says_or_nothing(usage: Any, expected: Usage | None) -> None:
    assert answer_of(delta(content="x"), finish(), {"choices": [], "usage": usage}).usage == expected
    assert answer_of(delta(content="x"), {**finish(), "usage": usage}).usage == expected


def test_a_stream_may_end_without_its_marker_once_it_said_why_it_stopped() -> None:
    assert ask([sending(chat_events([delta(content="x"), finish()], done=False))], openai()).answer == Answer("x")
    assert ask([sending(chat_events([delta(content="x")]))], openai()).answer == Answer("x")


def test_arguments_come_in_single_bytes() -> None:
    text = '{"command": "echo ü"}'
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "bash", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": letter}} for letter in text]
    assert ask([chat_calls(first, *rest)], openai()).answer == Answer(
        "", (ToolCall("c1", "bash", {"command": "echo ü"}),), FIVE
    )


def test_several_calls_are_put_together_by_their_index() -> None:
    outcome = ask(
        [
            chat_calls(
                {"index": 0, "id": "a", "function": {"name": "bash", "arguments": '{"com'}},
                {"index": 1, "id": "b", "function": {"name": "clock", "arguments": ""}},
                {"index": 0, "function": {"arguments": 'mand":"ls"}'}},
                {"index": 1, "id": "b", "function": {"name": None, "arguments": "{}"}},
                {"index": 2, "id": "c", "function": {"name": "clock"}},
            )
        ],
        openai(),
    )
    assert outcome.answer.tool_calls == (
        ToolCall("a", "bash", {"command": "ls"}),
        ToolCall("b", "clock", {}),
        ToolCall("c", "clock", {}),
    )


@pytest.mark.parametrize(
    "pieces",
    [
        [{"index": 0, "id": "a", "function": {"name": "ba"}}, {"index": 0, "function": {"name": "sh"}}],
        [{"index": 0, "id": "a", "function": {"name": "bash"}}, {"index": 0, "id": "a", "function": {"name": "bash"}}],
        [{"index": 0, "id": "a", "function": {"name": "ba"}}, {"index": 0, "function": {"name": "bash"}}],
        [{"index": 0, "id": "a", "function": {"name": ""}}, {"index": 0, "function": {"name": "bash"}}],
        [{"id": "a", "function": {"name": "bash", "arguments": {}}}],
        [{"id": "a", "function": {"name": "bash", "arguments": "{"}}, {"function": {"arguments": "}"}}],
        [{"index": 0, "id": "a"}, {"index": 0, "function": {"name": "bash"}}],
    ],
)
def test_a_name_comes_whole_in_pieces_or_again_and_again(pieces: list[Any]) -> None:
    outcome = ask([chat_calls(*pieces)], openai(), hello(tools=(BASH,)))
    assert outcome.answer.tool_calls == (ToolCall("a", "bash", {}),)


def test_calls_without_a_number_of_their_own_are_told_apart_by_their_ids() -> None:
    same = [{"index": 0, "id": id, "function": {"name": "bash", "arguments": "{}"}} for id in "ab"]
    none = [{"id": id, "function": {"name": "bash", "arguments": "{}"}} for id in "ab"]
    expected = (ToolCall("a", "bash", {}), ToolCall("b", "bash", {}))
    assert ask([chat_calls(*same)], openai()).answer.tool_calls == expected
    assert ask([chat_calls(*none)], openai()).answer.tool_calls == expected


def test_calls_without_an_id_or_with_a_known_one_get_a_new_one() -> None:
    history = (user("x"), said("", called("call_1"), called("mine")))
    pieces = [{"index": at, "id": id, "function": {"name": "bash"}} for at, id in enumerate(["", None, "mine", "new"])]
    outcome = ask([chat_calls(*pieces)], openai(), hello(*history))
    assert [call.call_id for call in outcome.answer.tool_calls] == ["call_2", "call_3", "call_4", "new"]


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("", ToolCall("c", "bash", {})),
        (" \n", ToolCall("c", "bash", {})),
        ("{}", ToolCall("c", "bash", {})),
        ("{half", ToolCall("c", "bash", None, "{half")),
        ("[1]", ToolCall("c", "bash", None, "[1]")),
        ("null", ToolCall("c", "bash", None, "null")),
        ('"x"', ToolCall("c", "bash", None, '"x"')),
        ("[" * 5000, ToolCall("c", "bash", None, "[" * 5000)),
    ],
)
def test_arguments_that_are_no_object_are_kept_as_they_are(text: str, call: ToolCall) -> None:
    outcome = ask([chat_calls({"index": 0, "id": "c", "function": {"name": "bash", "arguments": text}})], openai())
    assert outcome.answer.tool_calls == (call,)


def test_the_old_form_of_a_call_is_understood() -> None:
    chunks = [delta(function_call={"name": "bash", "arguments": '{"a"'}), delta(function_call={"arguments": ":1}"})]
    assert answer_of(*chunks, finish("function_call")).tool_calls == (ToolCall("call_1", "bash", {"a": 1}),)


def test_a_cut_answer_keeps_its_text_and_an_empty_one_is_named() -> None:
    assert ask([chat(["so far"], reason="length")], openai()).answer.content == "so far"
    outcome = ask([chat([], reason="length")], openai())
    why = "the model stopped without a word (length). Raise max_output_tokens"
    assert outcome.fate == (f"openai/m: {why}", True, True, None)
    outcome = ask([chat([], reason="content_filter")], openai())
    assert outcome.fate == ("openai/m: the model stopped without a word (content_filter)", True, True, None)
    assert len(outcome.asked) == 1


def test_a_model_may_say_nothing() -> None:
    assert ask([chat([])], openai()).answer == Answer("", (), FIVE)


@pytest.mark.parametrize(
    ("error", "fate", "tries"),
    [
        ({"message": "busy", "code": 503}, ("openai/m: busy", False, True, 503), TRIES),
        ({"message": "busy", "code": 429}, ("openai/m: busy", False, True, 429), TRIES),
        ({"message": "busy"}, ("openai/m: busy", False, True, None), TRIES),
        ("busy", ("openai/m: busy", False, True, None), TRIES),
        ({"message": "no", "code": 400}, ("openai/m: no", True, True, 400), 1),
    ],
)
def test_an_error_inside_the_stream_is_an_error(error: Any, fate: tuple[Any, ...], tries: int) -> None:
    outcome = ask([sending(chat_events([delta(content="x"), {"error": error}]))], openai())
    assert (outcome.fate, len(outcome.asked), len(outcome.heard.restarts)) == (fate, tries, tries - 1)


def test_an_answer_that_is_not_streamed_is_understood() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"a":1}'}}
    choice = {"message": {"role": "assistant", "content": "hi", "tool_calls": [call]}, "finish_reason": "tool_calls"}
    outcome = ask([document(chat_usage() | {"choices": [choice]})], openai())
    assert outcome.answer == Answer("hi", (ToolCall("c", "bash", {"a": 1}),), FIVE)
    assert outcome.heard.texts == ["hi"]
    late = sending([b"\n", b"\n\n", json.dumps({"choices": [choice]}).encode()], content_type="application/json")
    assert ask([late], openai()).answer.content == "hi"


def test_an_error_with_a_good_status_is_an_error() -> None:
    outcome = ask([document({"error": {"message": "no credits", "code": 402}})], openai())
    assert outcome.fate == ("openai/m: no credits", True, True, 402)


@pytest.mark.parametrize("body", [{"choices": []}, {}, {"hello": "world"}])
def test_an_answer_without_a_choice_is_none(body: Any) -> None:
    for behaviour in (document(body), sending(chat_events([body]))):
        outcome = ask([behaviour], openai())
        assert outcome.fate == ("openai/m: the answer holds nothing: no choice was given", False, True, None)
        assert len(outcome.asked) == TRIES


def test_an_answer_in_another_format_is_named() -> None:
    outcome = ask([sending(chat_events([{"choices": "x"}]))], openai())
    assert "the answer is not in the Chat Completions format" in str(outcome.failure)
    assert (outcome.failure.lasting, len(outcome.asked)) == (True, 1)


@pytest.mark.parametrize(
    ("complaint", "gone", "come"),
    [
        ("'temperature' does not support 0.5 with this model.", {"temperature"}, set()),
        ("Unrecognized request argument: stream_options", {"stream_options"}, set()),
        ("'max_tokens' is not supported with this model.", {"max_tokens"}, {"max_completion_tokens"}),
        ("Function tools need reasoning_effort none here.", set(), {"reasoning_effort"}),
    ],
)
def test_what_a_model_refuses_to_be_sent_is_left_out_from_then_on(
    complaint: str, gone: set[str], come: set[str]
) -> None:
    request = hello(tools=(BASH,), temperature=0.5, max_output_tokens=9)
    outcome = ask([refuse(400, {"error": {"message": complaint}}), chat(["x"])], openai(), request, times=2)
    assert outcome.answer.content == "x"
    first, second, third = (set(asked.json) for asked in outcome.asked)
    assert (first - second, second - first, third) == (gone, come, second)


def test_a_refusal_that_leaving_out_does_not_help_is_told() -> None:
    outcome = ask([refuse(400, {"error": {"message": "bad temperature"}})], openai(), hello(temperature=0.5))
    assert outcome.fate == ("openai/m: 400 bad temperature", True, False, 400)
    assert len(outcome.asked) == 2
    assert len(ask([refuse(400, {"error": {"message": "bad temperature"}})], openai()).asked) == 1
    large = refuse(400, {"error": {"message": "max_tokens is too large"}})
    assert len(ask([large], openai(), hello(max_output_tokens=9)).asked) == 1


json_ = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "text", "code", "message"]), inner)
    ),
    max_leaves=4,
)


def mostly(good: Any) -> st.SearchStrategy[Any]:
    return good | json_


function_ = mostly(st.fixed_dictionaries({}, optional={"name": mostly(st.text(max_size=2)), "arguments": json_}))
piece_ = mostly(
    st.fixed_dictionaries({}, optional={"index": mostly(st.integers(0, 2)), "id": json_, "function": function_})
)
delta_ = mostly(
    st.fixed_dictionaries(
        {}, optional={"content": json_, "tool_calls": mostly(st.lists(piece_, max_size=2)), "function_call": function_}
    )
)
choice_ = mostly(st.fixed_dictionaries({}, optional={"delta": delta_, "message": delta_, "finish_reason": json_}))
chunk_ = mostly(
    st.fixed_dictionaries(
        {}, optional={"choices": mostly(st.lists(choice_, max_size=2)), "usage": json_, "error": json_}
    )
)


@given(st.lists(chunk_.map(encode) | st.binary(max_size=4) | st.just(b"[DONE]"), max_size=4), st.booleans())
def test_whatever_a_server_says_is_an_answer_or_a_failure_of_the_model(chunks: list[bytes], streamed: bool) -> None:
    reader = _Reader(Endpoint("m", "http://h", None, {}, {}), Heard(), Tools(b"", {}))
    try:
        for chunk in chunks:
            (reader.event if streamed else reader.document)(chunk)
        reader.complete()
        assert isinstance(reader.answer([]), Answer)
    except ModelFailed as failure:
        assert str(failure).startswith("m: ")


def test_sessions_that_are_refused_at_the_same_moment_all_learn_from_it() -> None:
    async def run() -> list[str]:
        transport = Transport()
        refused = refuse(400, {"error": {"message": "no temperature here"}})
        async with Provider([refused, refused, refused, chat(["x"])]) as server:
            model = openai()(server, transport)
            answers = await asyncio.gather(*(model.answer(hello(temperature=0.5), Heard(), 30) for _ in range(3)))
            await transport.close()
        return [answer.content for answer in answers]

    assert asyncio.run(run()) == ["x", "x", "x"]


def test_many_answers_at_once_do_not_mix() -> None:
    async def run() -> list[str]:
        transport = Transport()
        async with Provider([chat([str(at), "!"]) for at in range(20)]) as server:
            model = openai()(server, transport)
            answers = await asyncio.gather(*(model.answer(hello(), Heard(), 30) for _ in range(20)))
            await transport.close()
        return sorted(answer.content for answer in answers)

    assert asyncio.run(run()) == sorted(f"{at}!" for at in range(20))


def test_a_model_shows_no_key() -> None:
    model = OpenAIModel("m", key=KEY, headers={"X": KEY})
    assert model.name == "openai/m"
    assert KEY not in repr(model) + str(model) + repr(model._endpoint)
