"""What the model is shown of a session, and that a long session costs what a short one does."""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, SupportsIndex, cast

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import json, structs

from duragent.agent import (
    Access,
    Agent,
    ContextRules,
    ModelChoice,
    ModelRef,
    PromptPart,
    SessionRules,
    Skill,
)
from duragent.core import events as ev
from duragent.core.context import MARK, Request, Totals, build
from duragent.core.policy import ToolSpec
from duragent.core.prompt import prepare
from duragent.core.session import Message, Session, apply, fold
from duragent.models.anthropic import AnthropicModel
from duragent.models.http import Transport
from duragent.models.openai import OpenAIModel
from tests.core.logs import AT, chat, log, logs, used
from tests.models.validators import takes_turns, valid_anthropic, valid_openai

NOW = datetime(2026, 2, 18, 10, 0, tzinfo=UTC)
TOOLS = (ToolSpec("bash", "Runs a command.", {"type": "object"}), ToolSpec("time"))
NOWHERE = cast(Transport, None)  # writing a request needs no connection
OPENAI = [OpenAIModel("m", provider=provider, transport=NOWHERE) for provider in ("openai", "ollama")]
ANTHROPIC = AnthropicModel("m", transport=NOWHERE)
MANY = settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def agent(window: int | None = None, **rules: Any) -> Agent:
    """An agent on a model that takes `window` tokens."""
    return Agent(
        name="a",
        prompt=(PromptPart("soul", "Be kind."),),
        model=ModelChoice((ModelRef("openai", "gpt-4o"),), max_input_tokens=window),
        session=SessionRules(context=ContextRules(**rules)),
    )


agents = st.builds(
    lambda window, with_more, **rules: structs.replace(
        agent(window, **rules),
        skills=(Skill("notes", "Takes notes."),) if with_more else (),
        access=Access() if with_more else None,
        templates="variables" if with_more else "none",
    ),
    st.sampled_from([4_000, 8_192, None]),
    st.booleans(),
    max_history_tokens=st.sampled_from([0, 60, 1_000, 20_000]),
    max_tool_result_tokens=st.sampled_from([1, 50, 8_000]),
    tool_result_truncation=st.sampled_from(["head", "tail", "both"]),
    tool_result_keep_first=st.integers(0, 2),
    tool_result_keep_last=st.integers(0, 2),
)


def shown(request: Request) -> list[tuple[str, list[str]]]:
    """Every message with the results it carries."""
    return [(message.content, [call.content for call in message.calls]) for message in request.messages]


def go_on(session: Session, *happened: ev.Event) -> None:
    for event in happened:
        apply(session, ev.Entry(session.seq + 1, AT, event))


def says_something(message: Message) -> bool:
    return bool(message.calls or message.content.strip())


# ── Whatever the log holds ──────────────────────────────────────────────────────────────────────────────────────────


@MANY
@given(logs(), agents)
@example([], agent())
@example(log(ev.UserMessage(""), ev.UserMessage(" ")), agent())
def test_every_log_becomes_a_request_that_every_provider_takes(entries: list[ev.Entry], agent: Agent) -> None:
    request = build(agent, fold(entries), NOW, TOOLS)
    for model in OPENAI:
        sent = json.decode(model.body(request))
        assert valid_openai(sent) == []
        if model.name.startswith("ollama/"):
            assert takes_turns(sent) == []
    assert valid_anthropic(json.decode(ANTHROPIC.body(request))) == []


@MANY
@given(logs(), agents)
def test_what_is_shown_is_what_was_said_in_its_order_and_whole_groups_only(
    entries: list[ev.Entry], agent: Agent
) -> None:
    session = fold(entries)
    request = build(agent, session, NOW)
    said = {message.seq: message for message in session.messages}
    order = [message.seq for message in session.messages]
    places = [order.index(message.seq) for message in request.messages]
    assert places == sorted(set(places))
    assert all(map(says_something, request.messages))
    for message in request.messages:
        source = said[message.seq]
        assert (message.role, message.sender) == (source.role, source.sender)
        assert [call.call.call_id for call in message.calls] == [call.call.call_id for call in source.calls]


@MANY
@given(logs(), agents)
def test_the_newest_thing_that_was_said_is_always_shown_and_everything_fits(
    entries: list[ev.Entry], agent: Agent
) -> None:
    session = fold(entries)
    request = build(agent, session, NOW, TOOLS)
    newest = [message.seq for message in session.messages if says_something(message)][-1:]
    assert [message.seq for message in request.messages][-1:] == newest
    assert request.tokens <= prepare(agent, TOOLS).room * 1.1


@MANY
@given(logs(), agents)
def test_nothing_that_was_said_is_changed_by_showing_it(entries: list[ev.Entry], agent: Agent) -> None:
    session, untouched = fold(entries), fold(entries)
    build(agent, session, NOW)
    said = [(message.content, message.seq, repr(message.calls)) for message in session.messages]
    assert said == [(message.content, message.seq, repr(message.calls)) for message in untouched.messages]


@MANY
@given(logs(), agents)
def test_asking_after_every_entry_shows_in_the_end_what_asking_once_shows(
    entries: list[ev.Entry], agent: Agent
) -> None:
    prepared, session = prepare(agent), Session()
    for entry in entries:
        apply(session, entry)
        build(agent, session, NOW, prepared=prepared)
    assert repr(build(agent, session, NOW, prepared=prepared)) == repr(build(agent, fold(entries), NOW))


@given(logs(), agents, agents)
def test_an_agent_that_was_changed_is_shown_what_its_new_rules_say(
    entries: list[ev.Entry], old: Agent, new: Agent
) -> None:
    session = fold(entries)
    build(old, session, NOW)
    assert repr(build(new, session, NOW)) == repr(build(new, fold(entries), NOW))


def test_half_a_character_from_a_caller_is_no_reason_to_fail() -> None:
    calls = (ev.ToolCall("c1", "bash", {"command": "\ud800"}),)
    happened = log(ev.UserMessage("\udfff" * 40_000), ev.AssistantResponse("a", "", calls))
    request = build(agent(4_000), fold(happened), NOW)
    assert [message.seq for message in request.messages] == [1, 2]


# ── The request ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_request_says_what_is_asked_with_which_tools_and_when() -> None:
    helper = agent()
    request = build(helper, fold(log(ev.UserMessage("hello"))), NOW, TOOLS)
    question = Message("user", "hello", 1, tokens=5)
    assert request == Request(
        system="Be kind.",
        messages=[question],
        tools=TOOLS,
        stamp="Current date and time: Wednesday 2026-02-18 10:00 UTC",
        tokens=request.tokens,
        temperature=0.7,
    )


def test_an_estimate_counts_a_token_for_four_bytes_and_adds_a_tenth() -> None:
    session = fold(log(ev.UserMessage("ä" * 200), *used("c1", "x" * 400)))
    request = build(agent(), session, NOW)
    call = len(json.encode(ev.ToolCall("c1", "bash", {"command": "ls"})))
    sizes = [100 + 4, 0 + 4 + (call + 2) // 4 + 100 + 4]
    stamp = len(request.stamp) // 4
    raw = len("Be kind.") // 4 + sum(sizes) + stamp
    assert [message.tokens for message in request.messages] == sizes
    assert request.tokens == raw + raw // 10


def test_the_time_stays_the_same_within_a_turn() -> None:
    session = fold(log(ev.UserMessage("hello"), *used("c1", "ok"), at="2026-02-18T10:59:59Z"))
    later = datetime(2026, 2, 19, 11, 0, tzinfo=UTC)
    assert build(agent(), session, later).stamp == "Current date and time: Wednesday 2026-02-18 10:59 UTC"


def test_an_answer_whose_call_is_open_is_shown_with_it() -> None:
    happened = log(ev.UserMessage("hello"), ev.AssistantResponse("a", "", (ev.ToolCall("c1", "bash", {}),)))
    session = fold(happened)
    assert shown(build(agent(), session, NOW)) == [("hello", []), ("", [""])]
    assert list(session.sums) == [5]
    go_on(session, ev.ToolResult("c1", ev.ToolAnswer(True, "done")))
    assert shown(build(agent(), session, NOW)) == [("hello", []), ("", ["done"])]


# ── Earlier turns: the history budget ───────────────────────────────────────────────────────────────────────────────


def test_history_beyond_its_budget_is_left_out_from_the_oldest_on_and_counted() -> None:
    request = build(agent(max_history_tokens=100), fold(log(*chat(5), ev.UserMessage("and now?"))), NOW)
    assert [message.content[:10] for message in request.messages] == [
        "answer 3 x",
        "question 4",
        "answer 4 x",
        "and now?",
    ]
    assert request.notice == "[7 earlier messages are not shown.]"


def test_one_message_that_is_not_shown_is_counted_in_the_singular() -> None:
    happened = log(ev.UserMessage("x" * 400), ev.AssistantResponse("a", "short"), ev.UserMessage("go"))
    request = build(agent(max_history_tokens=60), fold(happened), NOW)
    assert (shown(request), request.notice) == ([("short", []), ("go", [])], "[1 earlier message is not shown.]")


def test_no_cap_shows_all_that_the_window_holds() -> None:
    session = fold(log(*chat(1_000), ev.UserMessage("and now?")))
    request = build(agent(max_history_tokens=0), session, NOW)
    assert (len(request.messages), request.notice) == (2_001, "")
    narrow = build(agent(8_192, max_history_tokens=0), session, NOW)
    assert 8_192 * 0.6 < narrow.tokens < 8_192


def test_a_budget_smaller_than_the_last_answer_shows_the_question_alone() -> None:
    request = build(agent(max_history_tokens=5), fold(log(*chat(3), ev.UserMessage("and now?"))), NOW)
    assert shown(request) == [("and now?", [])]


def test_the_beginning_of_what_is_shown_stays_for_many_turns_and_the_budget_is_kept() -> None:
    helper = agent(max_history_tokens=4_000)
    prepared, session = prepare(helper), fold(log(*chat(300)))
    beginnings: list[int] = []
    for _ in range(100):
        _, asked, called, answered = chat(1)
        go_on(session, asked)
        request = build(helper, session, NOW, prepared=prepared)
        go_on(session, called, answered)
        beginnings.append(request.messages[0].seq)
        history = sum(message.tokens for message in request.messages[:-1])
        assert 4_000 - 500 - 60 <= history <= 4_000
    tokens_a_turn = 2 * 32
    assert len(set(beginnings)) <= 100 * tokens_a_turn // (4_000 // 8) + 2
    assert beginnings == sorted(beginnings)


def test_the_beginning_stays_while_tools_run_even_when_the_window_is_what_binds() -> None:
    helper = agent(16_000, max_history_tokens=0, tool_result_keep_first=0, tool_result_keep_last=0)
    session = fold(log(*chat(300), ev.UserMessage("go")))
    beginnings = []
    for number in range(20):
        go_on(session, ev.ModelCalled("m"), *used(f"c{number}", "x" * 400))
        request = build(helper, session, NOW)
        assert request.tokens <= 16_000
        beginnings.append(request.messages[0].seq)
    assert beginnings == sorted(beginnings)
    assert len(set(beginnings)) <= 3


# ── Results: cut, masked, dropped ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("side", "result"),
    [
        ("head", "aaaa\n[Cut here: only the first 1 of about 3 tokens are shown.]"),
        ("tail", "[Cut here: only the last 1 of about 3 tokens are shown.]\ncccc"),
        ("both", "aa\n[Cut here: only the first and last 1 of about 3 tokens are shown.]\ncc"),
    ],
)
def test_a_result_that_is_too_large_is_cut_where_the_agent_says(side: str, result: str) -> None:
    helper = agent(max_tool_result_tokens=1, tool_result_truncation=side)
    session = fold(log(ev.UserMessage("go"), *used("c1", "aaaabbbbcccc")))
    assert shown(build(helper, session, NOW)) == [("go", []), ("", [result])]
    assert session.messages[1].calls[0].content == "aaaabbbbcccc"


def test_a_result_takes_a_quarter_of_a_small_window_at_most() -> None:
    request = build(agent(4_000), fold(log(ev.UserMessage("go"), *used("c1", "x" * 100_000))), NOW)
    assert request.messages[1].calls[0].content.startswith("x" * 4_000 + "\n[Cut here: only the first 1000 of")


def test_a_message_is_the_same_object_each_time_it_is_shown_so_that_it_is_encoded_once() -> None:
    helper = agent(max_tool_result_tokens=1)
    session = fold(log(ev.UserMessage("go"), *used("c1", "aaaabbbbcccc"), ev.AssistantResponse("a", "done")))
    first = build(helper, session, NOW).messages
    go_on(session, ev.UserMessage("again"))
    second = build(helper, session, NOW).messages
    assert [old is new for old, new in zip(first, second, strict=False)] == [True, True, True]
    assert [message is source for message, source in zip(second, session.messages, strict=True)] == [
        True,
        False,
        True,
        True,
    ]


def test_copies_of_messages_that_are_no_longer_shown_are_let_go() -> None:
    helper = agent(max_tool_result_tokens=10, max_history_tokens=200)
    session = Session()
    for number in range(100):
        go_on(session, ev.UserMessage("go"), *used(f"c{number}", "x" * 100), ev.AssistantResponse("a", "done"))
        request = build(helper, session, NOW)
    assert isinstance(session.sums, Totals)
    assert len(session.sums.copies) <= 8 + 2 * len(request.messages)


def results(count: int, **rules: int) -> list[str]:
    """What is shown of so many results of one turn; masked ones as a dash."""
    happened = [event for number in range(count) for event in used(f"c{number}", f"{number}" + "x" * 100)]
    request = build(agent(**rules), fold(log(ev.UserMessage("go"), *happened)), NOW)
    texts = [call.content for message in request.messages for call in message.calls]
    assert {text for text in texts if text[0] == "["} <= {"[This result of about 25 tokens is left out to save room.]"}
    return ["-" if text[0] == "[" else text[0] for text in texts]


def test_results_in_the_middle_of_a_turn_are_masked() -> None:
    assert results(7) == ["0", "1", "2", "3", "4", "5", "6"]
    assert results(9) == ["0", "1", "-", "-", "4", "5", "6", "7", "8"]
    assert results(4, tool_result_keep_first=1, tool_result_keep_last=0) == ["0", "-", "-", "3"]
    assert results(4, tool_result_keep_first=0, tool_result_keep_last=2) == ["-", "-", "2", "3"]
    assert results(9, tool_result_keep_first=0, tool_result_keep_last=0) == [*"012345678"]


def test_a_result_that_was_cut_first_is_masked_when_it_comes_to_stand_in_the_middle() -> None:
    helper = agent(max_tool_result_tokens=50, tool_result_keep_first=0, tool_result_keep_last=1)
    session = fold(log(ev.UserMessage("go"), *used("c1", "x" * 300)))
    first = build(helper, session, NOW).messages[1].calls[0].content
    go_on(session, ev.ModelCalled("m"), *used("c2", "ok"))
    second = build(helper, session, NOW).messages[1].calls[0].content
    assert (first, second) == (
        "x" * 200 + "\n[Cut here: only the first 50 of about 75 tokens are shown.]",
        "[This result of about 75 tokens is left out to save room.]",
    )


def test_results_that_the_model_has_not_seen_yet_are_never_masked() -> None:
    calls = tuple(ev.ToolCall(f"c{number}", "bash", {}) for number in range(10))
    answers = [ev.ToolResult(call.call_id, ev.ToolAnswer(True, "x" * 100)) for call in calls]
    session = fold(log(ev.UserMessage("go"), ev.AssistantResponse("a", "", calls), *answers))
    assert shown(build(agent(), session, NOW)) == [("go", []), ("", ["x" * 100] * 10)]


def test_a_result_shorter_than_what_would_be_said_in_its_place_is_not_masked() -> None:
    happened = [event for number in range(9) for event in used(f"c{number}", "ok")]
    session = fold(log(ev.UserMessage("go"), *happened))
    request = build(agent(), session, NOW)
    assert all(message is source for message, source in zip(request.messages, session.messages, strict=True))


def test_results_of_earlier_turns_are_not_masked() -> None:
    happened = [event for number in range(9) for event in used(f"c{number}", "x" * 100)]
    session = fold(log(ev.UserMessage("go"), *happened, ev.AssistantResponse("a", "done"), ev.UserMessage("on")))
    request = build(agent(), session, NOW)
    assert [call.content for message in request.messages for call in message.calls] == ["x" * 100] * 9


def test_a_turn_larger_than_the_window_loses_its_oldest_answers_but_not_what_it_is_about() -> None:
    helper = agent(4_000, tool_result_keep_first=0, tool_result_keep_last=0)
    happened = [event for number in range(8) for event in used(f"c{number}", f"{number}" + "x" * 1_999)]
    request = build(helper, fold(log(ev.UserMessage("the task"), *happened)), NOW)
    assert [message.content or message.calls[0].content[0] for message in request.messages] == [
        "the task",
        "4",
        "5",
        "6",
        "7",
    ]
    assert request.notice == "[4 earlier messages are not shown.]"


def test_what_people_said_in_between_is_dropped_after_the_answers() -> None:
    helper = agent(4_000)
    happened = [
        event for number in range(4) for event in [*used(f"c{number}", "x" * 2_000), ev.UserMessage("u" * 2_000)]
    ]
    request = build(helper, fold(log(ev.UserMessage("the task"), *happened)), NOW)
    assert [message.role for message in request.messages] == ["user", "user", "user", "user", "user"]


def test_a_newest_message_larger_than_the_window_is_cut_and_never_dropped() -> None:
    request = build(agent(4_000), fold(log(*chat(3), ev.UserMessage("begin " + "x" * 50_000 + " end"))), NOW)
    (message,) = request.messages
    assert message.content.startswith("begin xxx") and message.content.endswith("xxx end")
    assert "[Cut here: only the first and last" in message.content
    assert 4_000 * 0.6 < request.tokens <= 4_000


def test_a_newest_answer_larger_than_the_window_keeps_its_calls_and_the_question() -> None:
    written = {"path": "a.txt", "text": 'x"\\' * 20_000}
    calls = (ev.ToolCall("c1", "write", written), ev.ToolCall("c2", "bash", {"command": "ls"}))
    results = [ev.ToolResult(call.call_id, ev.ToolAnswer(True, "y" * 9_000)) for call in calls]
    session = fold(log(ev.UserMessage("q" * 9_000), ev.AssistantResponse("a", "I write.", calls), *results))
    request = build(agent(4_000), session, NOW)
    question, answer = request.messages
    assert question.content.startswith("qqq")
    assert (answer.content, [call.call.call_id for call in answer.calls]) == ("I write.", ["c1", "c2"])
    assert answer.calls[0].call.arguments["cut"].startswith('{"path":"a.txt"')
    assert answer.calls[1].call.arguments == {"command": "ls"}
    assert question.tokens <= 4_000 // 4
    assert request.tokens <= prepare(agent(4_000)).room * 1.1
    assert session.messages[1].calls[0].call.arguments == written


def test_what_was_said_before_nothing_is_shown_even_when_it_is_too_large() -> None:
    happened = log(ev.UserMessage("x" * 8_000, wants_answer=False), ev.UserMessage(" ", wants_answer=False))
    request = build(agent(max_history_tokens=60), fold(happened), NOW)
    assert shown(request) == [("x" * 8_000, [])]


def test_a_prompt_larger_than_the_window_still_leaves_the_question() -> None:
    helper = structs.replace(agent(4_000), prompt=(PromptPart("soul", "x" * 40_000),))
    request = build(helper, fold(log(ev.UserMessage("hello"))), NOW)
    assert (len(request.system), shown(request)) == (40_000, [("hello", [])])


# ── The cost ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Watched(list[Message]):
    """A list that remembers which of its items were looked at."""

    def __init__(self, items: list[Message]) -> None:
        super().__init__(items)
        self.touched: set[int] = set()

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        self.touched |= set(range(len(self))[key]) if isinstance(key, slice) else {range(len(self))[key]}
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[Message]:
        self.touched |= set(range(len(self)))
        return super().__iter__()


def test_a_turn_of_a_long_session_touches_only_what_it_shows() -> None:
    helper = agent()
    session = fold(log(*chat(3_000)))
    build(helper, session, NOW)
    session.messages = watched = Watched(session.messages)
    called = ev.ModelCalled("m")
    for event in (
        ev.UserMessage("and now?"),
        called,
        *used("c1", "x" * 100),
        called,
        ev.AssistantResponse("a", "this"),
    ):
        go_on(session, event)
        request = build(helper, session, NOW)
        oldest = len(watched) - len(request.messages)
        assert watched.touched <= set(range(oldest - 1, len(watched)))
        watched.touched.clear()
    assert len(request.messages) < 700


def test_tokens_are_counted_once_for_each_message() -> None:
    session = fold(log(*chat(3_000)))
    build(agent(), session, NOW)
    before = copy.copy(list(session.sums))
    for message in session.messages[:5_000]:
        message.tokens = -1  # whoever counts again puts this right
    go_on(session, ev.UserMessage("and now?"))
    build(agent(), session, NOW)
    assert list(session.sums) == [*before, before[-1] + 6]
    assert {message.tokens for message in session.messages[:5_000]} == {-1}


def test_an_answer_put_before_a_later_message_is_counted_where_it_stands() -> None:
    happened = log(
        ev.UserMessage("one"), ev.ModelCalled("m"), ev.UserMessage("two " * 10), ev.AssistantResponse("a", "x" * 80)
    )
    session = fold(happened[:3])
    build(agent(), session, NOW)
    apply(session, happened[3])
    request = build(agent(), session, NOW)
    assert [message.content[:3] for message in request.messages] == ["one", "xxx", "two"]
    assert list(session.sums) == [4, 4 + 24, 4 + 24 + 14]


def test_the_line_in_a_cut_text_is_as_short_as_is_counted_for_it() -> None:
    helper = agent(max_tool_result_tokens=9_999, tool_result_truncation="both")
    session = fold(log(ev.UserMessage("go"), *used("c1", "ü" * 5_000_000)))
    (_, answer) = build(helper, session, NOW).messages
    assert answer.tokens <= session.messages[1].tokens
    assert len(answer.calls[0].content.encode()) <= (9_999 + MARK) * 4
