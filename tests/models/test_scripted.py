"""A model that speaks from a script and remembers nothing."""

import asyncio
from pathlib import Path

import pytest

from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage
from duragent.core.session import Call, Message
from duragent.errors import ModelFailed
from duragent.models import Answer
from duragent.models.scripted import Call as Asks
from duragent.models.scripted import Failure, Line, Rule, Script, ScriptedModel, Tokens, load, parse

HELLO = Path(__file__).parents[2] / "examples" / "companion" / "script.yaml"


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def delta(self, text: str) -> None:
        self.heard.append(text)

    def restart(self, why: str) -> None:
        self.heard.append(f"<{why}>")


def user(text: str, seq: int) -> Message:
    return Message("user", text, seq)


def said(text: str, seq: int, *results: str) -> Message:
    calls = tuple(Call(ToolCall(f"c{index}", "t", {}), "done", content=each) for index, each in enumerate(results))
    return Message("assistant", text, seq, calls)


def ask(model: ScriptedModel, *messages: Message, ear: Ear | None = None, timeout_seconds: float = 5.0) -> Answer:
    return asyncio.run(model.answer(Request("", list(messages)), ear or Ear(), timeout_seconds))


def test_it_says_that_it_is_a_script_in_its_name_and_in_its_first_words_only() -> None:
    model = ScriptedModel(answers=[Line("One."), Line("Two.")])
    assert model.name == "scripted/answers"
    assert ask(model, user("a", 2)).content == "[script]\nOne."
    assert ask(model, user("a", 2), said("[script]\nOne.", 3), user("b", 4)).content == "Two."


def test_the_marker_waits_for_the_first_words_when_a_session_begins_with_a_call() -> None:
    model = ScriptedModel(answers=[Line(calls=(Asks("t"),)), Line("Done.")])
    assert ask(model, user("a", 2)) == Answer("", (ToolCall("call_2_1", "t", {}),), None, 0.0)
    assert ask(model, user("a", 2), said("", 3, "ok")).content == "[script]\nDone."


def test_text_is_heard_word_by_word() -> None:
    ear = Ear()
    ask(ScriptedModel(answers=[Line("It is  late.\nGood night")], marker=""), user("a", 2), ear=ear)
    assert ear.heard == ["It ", "is  ", "late.\n", "Good ", "night"]


def test_a_stream_can_break_and_begin_again() -> None:
    ear = Ear()
    answer = ask(ScriptedModel(answers=[Line("a b c", restart_after=2)], marker=""), user("x", 2), ear=ear)
    assert (answer.content, ear.heard) == (
        "a b c",
        ["a ", "b ", "<the script breaks its stream here>", "a ", "b ", "c"],
    )


def test_a_line_has_calls_usage_and_cost() -> None:
    line = Line("Both.", (Asks("t", {"n": 1}), Asks("u", id="mine")), usage=Tokens(10, 5, 2), cost_usd=0.25)
    assert ask(ScriptedModel(answers=[line], marker=""), user("a", 7)) == Answer(
        "Both.",
        (ToolCall("call_7_1", "t", {"n": 1}), ToolCall("mine", "u", {})),
        Usage(10, 5, 15, 2),
        0.25,
    )


def test_the_same_request_gets_the_same_answer_from_another_process() -> None:
    lines = [Line("One.", (Asks("t"),)), Line("Two.")]
    request = (user("a", 2), said("One.", 3, "ok"))
    first, second = ScriptedModel(answers=lines), ScriptedModel(answers=lines)
    ask(first, user("a", 2))
    assert ask(first, *request) == ask(second, *request) == Answer("Two.", (), None, 0.0)


def test_what_tools_gave_back_and_the_message_can_be_spoken_of() -> None:
    line = Line("{result} | {results} | {message} | {other}", (Asks("t", {"in": ["{result}", 1]}),))
    model = ScriptedModel(answers=[Line("go"), line], marker="")
    assert ask(model, user("Hi", 2), said("go", 3, "one", "two")) == Answer(
        "two | one\ntwo | Hi | {other}", (ToolCall("call_3_1", "t", {"in": ["two", 1]}),), None, 0.0
    )


def test_arguments_can_be_malformed_as_those_of_a_real_model() -> None:
    model = ScriptedModel(answers=[Line(calls=(Asks("t", malformed="{oops"),))])
    assert ask(model, user("a", 2)).tool_calls == (ToolCall("call_2_1", "t", None, "{oops"),)


def test_a_rule_is_chosen_by_the_newest_message_and_counts_the_answers_since() -> None:
    rules = [Rule("*time*", (Line("Asking."), Line("It is late."))), Rule("*", (Line("What?"),))]
    model = ScriptedModel(rules=rules, marker="")
    assert ask(model, user("What TIME is it?", 2)).content == "Asking."
    assert ask(model, user("What TIME is it?", 2), said("Asking.", 3, "ok")).content == "It is late."
    assert ask(model, user("time", 2), said("Asking.", 3), user("Hm", 4)).content == "What?"
    assert ask(model, user("Hm", 2), said("What?", 3), user("time", 4)).content == "Asking."


def test_answers_in_order_are_not_used_up_by_messages_that_a_rule_takes() -> None:
    model = ScriptedModel(answers=[Line("First."), Line("Second.")], rules=[Rule("ping", (Line("pong"),))], marker="")
    session = [user("ping", 2), said("pong", 3), user("a", 4)]
    assert ask(model, *session).content == "First."
    assert ask(model, *session, said("First.", 5), user("ping", 6), said("pong", 7), user("b", 8)).content == "Second."


def test_answers_and_rules_can_repeat() -> None:
    model = ScriptedModel(answers=[Line("a"), Line("b")], rules=[Rule("r", (Line("x"),), repeat=True)], repeat=True)
    session = [user("1", 1), said("a", 2), user("2", 3), said("b", 4), user("3", 5)]
    assert ask(model, *session).content == "a"
    assert ask(model, user("r", 1), said("x", 2, "ok"), said("x", 3, "ok")).content == "x"


def test_the_default_speaks_when_nothing_is_left() -> None:
    model = ScriptedModel(answers=[Line("a")], default=Line("No line for {message}."), marker="")
    assert ask(model, user("1", 1), said("a", 2), user("2", 3)).content == "No line for 2."


def test_a_script_with_nothing_left_to_say_says_where_and_what_to_add() -> None:
    with pytest.raises(ModelFailed) as caught:
        ask(ScriptedModel(answers=[Line("a")]), user("1", 1), said("a", 2), user("2", 3))
    assert (str(caught.value), caught.value.lasting, caught.value.billed) == (
        "scripted/answers: nothing is left in `answers` to say to '2' (answer 2 of 1). Add a line, a `default`, or `repeat: true`",
        True,
        False,
    )


def test_an_error_is_raised_after_its_text_was_heard() -> None:
    ear, failure = Ear(), Failure("overloaded", 529, lasting=False, billed=True)
    with pytest.raises(ModelFailed) as caught:
        ask(ScriptedModel(answers=[Line("half a", error=failure)], marker=""), user("1", 1), ear=ear)
    error = caught.value
    assert (str(error), error.status, error.lasting, error.billed) == ("scripted/answers: overloaded", 529, False, True)
    assert ear.heard == ["half ", "a"]


def test_an_error_counts_as_said_once_the_person_has_gone_on() -> None:
    model = ScriptedModel(answers=[Line("a"), Line(error=Failure()), Line("b")], marker="")
    session = [user("1", 1), said("a", 2), user("2", 3)]
    with pytest.raises(ModelFailed):
        ask(model, *session)
    assert ask(model, *session, user("3", 5)).content == "b"


def test_a_delay_longer_than_the_time_limit_is_a_failure_that_may_be_tried_again() -> None:
    with pytest.raises(ModelFailed) as caught:
        ask(ScriptedModel(answers=[Line("a", delay_seconds=3600)]), user("1", 1), timeout_seconds=0.01)
    assert (str(caught.value), caught.value.lasting) == ("scripted/answers: no answer within 0.01 seconds", False)


def test_it_can_be_cancelled_while_it_speaks() -> None:
    async def run() -> list[str]:
        ear = Ear()
        model = ScriptedModel(answers=[Line("one two", piece_seconds=3600)], marker="")
        task = asyncio.create_task(model.answer(Request("", [user("a", 1)]), ear, 7200))
        while not ear.heard:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await model.close()
        return ear.heard

    assert asyncio.run(run()) == ["one "]


def test_the_example_plays_a_tool_call_an_error_and_a_default() -> None:
    model = ScriptedModel(HELLO)
    assert model.name == "scripted/script.yaml"
    assert ask(model, user("What time is it?", 2)) == Answer(
        "[script]\nI will ask the clock.", (ToolCall("call_2_1", "bash", {"command": "date -u"}),), None, 0.0
    )
    assert ask(model, user("What time is it?", 2), said("…", 3, "Sunday")).content == "The clock says: Sunday"
    with pytest.raises(ModelFailed, match="the provider is overloaded"):
        ask(model, user("Please fail", 2))


def test_a_script_says_the_same_in_yaml_and_in_python() -> None:
    text = """
rules:
  - when: "*x*"
    repeat: true
    answers:
      - calls: [{tool: t, arguments: {a: [1]}, id: c}, {tool: u, malformed: "{"}]
        usage: {prompt_tokens: 1, completion_tokens: 2, cached_tokens: 3}
        cost_usd: 1
answers:
  - {text: a, delay_seconds: 1, piece_seconds: 0.5, restart_after: 1}
  - error: {message: m, status: 500, lasting: false, billed: true}
default: {text: d}
repeat: true
"""
    calls = (Asks("t", {"a": [1]}, "c"), Asks("u", malformed="{"))
    assert parse(text, "s.yaml") == Script(
        (Line("a", delay_seconds=1, piece_seconds=0.5, restart_after=1), Line(error=Failure("m", 500, False, True))),
        (Rule("*x*", (Line(calls=calls, usage=Tokens(1, 2, 3), cost_usd=1),), True),),
        Line("d"),
        True,
    )


LINE = "There can be: text, calls, error, delay_seconds, piece_seconds, restart_after, usage, cost_usd"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("answers: [", "s.yaml:1: this is not YAML: expected the node content, but found '<stream end>'. Check indents and quotes"),
        ("", "s.yaml:1: the script: Expected `object`, got `null`. There can be: answers, rules, default, repeat"),
        (
            "answers:\n  - text: a\n  - text: b\n    tool: c\n",
            f"s.yaml:4: answers[1]: Object contains unknown field `tool`. {LINE}",
        ),
        ("answers:\n  - text: 3\n", f"s.yaml:2: answers[0].text: Expected `str`, got `int`. {LINE}"),
        (
            "rules:\n  - answers: []\n",
            "s.yaml:2: rules[0]: Object missing required field `when`. There can be: when, answers, repeat",
        ),
        (
            "answers:\n  - calls:\n      - arguments: {}\n",
            "s.yaml:3: answers[0].calls[0]: Object missing required field `tool`. "
            "There can be: tool, arguments, id, malformed",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_script_is_shown_with_its_line_and_a_hint(text: str, message: str) -> None:
    with pytest.raises(ModelFailed) as caught:
        parse(text, "s.yaml")
    assert (str(caught.value), caught.value.lasting, caught.value.billed) == (message, True, False)


def test_a_script_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ModelFailed) as caught:
        load(tmp_path / "none.yaml")
    assert str(caught.value) == (
        f"scripted/{tmp_path}/none.yaml: the script cannot be read: No such file or directory. Give the path of a YAML file"
    )


def test_the_documentation_names_everything_a_script_can_say() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    fields = {name for kind in (Script, Rule, Line, Asks, Failure, Tokens) for name in kind.__struct_fields__}
    assert sorted(name for name in fields if f"`{name}`" not in page and f"`{name}: " not in page) == []
