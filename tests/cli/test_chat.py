"""Talking with an agent: on a real terminal, and through a pipe."""

import os
import signal
import stat
from pathlib import Path

import pytest

from duragent.cli.screen import ending, finished
from duragent.core import events as ev
from tests.cli.terminals import CTRL_C, CTRL_D, ENTER, Terminal
from tests.cli.workspace import Program, without_marker

CHAT = ["-m", "duragent", "chat", "--agent", "assistant"]
ATTACH = ["-m", "duragent", "attach"]
PROMPT = "Ctrl-D leaves"
WITH_TOOLS = """\
import asyncio
import os
from duragent.cli import opening, run
from duragent.tools import function_tool

async def note(text: str) -> str:
    open("notes.txt", "a").write(text + "\\n")
    return "written"

async def hold() -> str:
    while not os.path.exists("go"):
        await asyncio.sleep(0.01)
    return "held"

opening.toolbox = lambda hosts, agent: {"note": function_tool(note, ask=True), "hold": function_tool(hold)}
run()
"""
WITH_SLOW_TOOL = """\
import asyncio
from duragent.cli import opening, run
from duragent.tools import function_tool

async def wait(text: str) -> str:
    await asyncio.sleep(600)
    return "never"

opening.toolbox = lambda hosts, agent: {"wait": function_tool(wait)}
run()
"""
NOTE = {"text": "I note it.", "calls": [{"tool": "note", "arguments": {"text": "buy milk"}, "id": "c1"}]}
AGAIN = {"calls": [{"tool": "note", "arguments": {"text": "buy milk"}, "id": "c2"}]}


@pytest.fixture
def tooled(workspace: Program) -> list[str]:
    """A chat with an agent that has a tool which is asked about."""
    (workspace.folder / "tooled.py").write_text(WITH_TOOLS)
    return ["tooled.py", "chat", "--agent", "assistant"]


def notes(folder: Path) -> str:
    place = folder / "notes.txt"
    return place.read_text() if place.exists() else ""


def test_an_answer_streams_and_its_markdown_is_rendered(workspace: Program) -> None:
    answer = {
        "text": "# Folding\n\nIt is **simple**:\n\n- one\n- two\n\n```python\nx = 1\n\ny = 2\n```\n\nThe end.",
        "usage": {"prompt_tokens": 1200, "completion_tokens": 34},
        "cost_usd": 0.0042,
    }
    with Terminal([*CHAT, "--model", workspace.script(answer)], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Explain" + ENTER)
        terminal.until("Folding")
        terminal.until("It is simple:")
        terminal.until("• one")
        terminal.until("The end.")
        terminal.until("1,200 in, 34 out, $0.0042")
        assert "**simple**" not in terminal.plain
        terminal.type(CTRL_D)
        terminal.until(f"Come back with: duragent attach {workspace.sessions()[0]} --model scripted/script.yaml")
        assert terminal.ended() == 0


def test_nothing_of_a_long_answer_is_lost(workspace: Program) -> None:
    lines = [f"value_{number} = {number}" for number in range(800)]
    model = workspace.script("```python\n" + "\n".join(lines) + "\n```\n\nThe end.")
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("The end.")
        terminal.until(PROMPT)
        shown = terminal.plain
    assert [text for text in lines if text not in shown] == []


def test_words_are_shown_while_they_are_spoken(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("[script]")
        terminal.until("Ctrl-C cancels")


def test_ctrl_c_cancels_the_turn_and_the_talk_goes_on(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600}, "Quick.")
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("[script]")
        terminal.type(CTRL_C)
        terminal.until("The turn was cancelled.")
        terminal.until(PROMPT)
        terminal.type("Again" + ENTER)
        terminal.until("Quick.")
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert "turn_stopped" in workspace.kinds(workspace.sessions()[0])


def test_ctrl_c_at_the_prompt_says_how_to_leave(workspace: Program) -> None:
    with Terminal([*CHAT, "--model", workspace.script("x")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type(CTRL_C)
        terminal.until("Ctrl-D leaves; the session stays.")
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    assert workspace.sessions() == []


def test_ctrl_d_during_a_turn_leaves_and_attach_goes_on_with_it(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Count" + ENTER)
        terminal.until("[script]")
        terminal.type(CTRL_D)
        terminal.until("The turn is not finished; it goes on when you come back.")
        terminal.until("Come back with: duragent attach")
        assert terminal.ended() == 0
    with Terminal([*ATTACH, "--model", workspace.script("Here I am.")], workspace.folder) as terminal:
        terminal.until("› Count")
        terminal.until("This session was paused; it goes on now.")
        terminal.until("Here I am.")
        terminal.until(PROMPT)


def test_a_killed_talk_goes_on_where_it_was(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Count" + ENTER)
        terminal.until("[script]")
        terminal.kill()
    with Terminal([*ATTACH, "--model", workspace.script("Here I am.")], workspace.folder) as terminal:
        terminal.until("This session was interrupted; it goes on now.")
        terminal.until("Here I am.")


def test_the_commands_that_begin_with_a_slash(workspace: Program) -> None:
    model = workspace.script({"text": "Hi.", "usage": {"prompt_tokens": 7, "completion_tokens": 2}}, repeat=True)
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("/help" + ENTER)
        terminal.until("/reset   begin a new session")
        terminal.until(PROMPT)
        terminal.type("/nothing" + ENTER)
        terminal.until("There is no /nothing; /help lists what there is.")
        terminal.until(PROMPT)
        terminal.type("Hello" + ENTER)
        terminal.until("Hi.")
        terminal.until(PROMPT)
        (first,) = workspace.sessions()
        terminal.type("/status" + ENTER)
        terminal.until(f"session  {first}")
        terminal.until(PROMPT)
        terminal.type("/cost" + ENTER)
        terminal.until("shown    7 tokens, 0 of them cached")
        terminal.until(PROMPT)
        terminal.type("/reset" + ENTER)
        terminal.until(f"A new session. The old one stays: duragent attach {first}")
        terminal.until(PROMPT)
        terminal.type("Hello" + ENTER)
        terminal.until("Hi.")
        terminal.until(PROMPT)
        terminal.type("/exit" + ENTER)
        terminal.until("Come back with: duragent attach")
        assert terminal.ended() == 0
    assert len(workspace.sessions()) == 2


def test_what_needs_approval_is_asked_with_the_exact_command(workspace: Program, tooled: list[str]) -> None:
    model = workspace.script(NOTE, AGAIN, "All noted.")
    with Terminal([*tooled, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("I note it.")
        terminal.until("It asks to run:")
        terminal.until('note {"text":"buy milk"}')
        terminal.until("[y] yes, once   [s] in this session   [a] always   [n] no")
        assert notes(workspace.folder) == ""
        terminal.type("s" + ENTER)
        terminal.until("✓ note  text=buy milk")
        terminal.until("✓ note  text=buy milk")
        terminal.until("All noted.")
        terminal.until(PROMPT)
    assert notes(workspace.folder) == "buy milk\nbuy milk\n"


def test_a_refused_call_is_not_run(workspace: Program, tooled: list[str]) -> None:
    with Terminal([*tooled, "--model", workspace.script(NOTE, "As you wish.")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("[n] no")
        terminal.type("n" + ENTER)
        terminal.until("✗ note")
        terminal.until("As you wish.")
    assert notes(workspace.folder) == ""


def test_what_was_being_typed_when_a_question_appears_is_a_message_and_no_answer(
    workspace: Program, tooled: list[str]
) -> None:
    model = workspace.script({"calls": [{"tool": "hold", "id": "c0"}]}, NOTE, "You asked: {message}")
    with Terminal([*tooled, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("hold")
        terminal.type("y")
        terminal.until("› y")
        (workspace.folder / "go").touch()
        terminal.until("[n] no")
        terminal.type(ENTER)
        terminal.until("You asked: y")
        terminal.until(PROMPT)
    assert notes(workspace.folder) == ""
    assert "approval_decision" not in workspace.kinds(workspace.sessions()[0])


def test_a_line_that_is_no_answer_is_a_message_that_withdraws_the_question(
    workspace: Program, tooled: list[str]
) -> None:
    with Terminal([*tooled, "--model", workspace.script(NOTE, "You said: {message}")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("[n] no")
        terminal.type(ENTER)
        terminal.until("[n] no")
        terminal.type("is this wise?" + ENTER)
        terminal.until("You said: is this wise?")
        terminal.until(PROMPT)
    assert notes(workspace.folder) == ""


def test_leaving_a_question_keeps_it_and_attach_asks_again(workspace: Program, tooled: list[str]) -> None:
    model = workspace.script(NOTE, "Done.")
    with Terminal([*tooled, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("[n] no")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
    with Terminal(["tooled.py", "attach", "--model", model], workspace.folder) as terminal:
        terminal.until("It asks to run:")
        terminal.until("[n] no")
        terminal.type("yes" + ENTER)
        terminal.until("✓ note")
        terminal.until("Done.")
    assert notes(workspace.folder) == "buy milk\n"
    assert workspace.kinds(workspace.sessions()[0]).count("approval_required") == 1


def test_ctrl_c_at_a_question_cancels_the_turn(workspace: Program, tooled: list[str]) -> None:
    with Terminal([*tooled, "--model", workspace.script(NOTE, "Done.")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Note it" + ENTER)
        terminal.until("[n] no")
        terminal.type(CTRL_C)
        terminal.until("The turn was cancelled.")
        terminal.until(PROMPT)
    assert notes(workspace.folder) == ""


def test_a_line_typed_while_the_agent_works_reaches_it(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Count" + ENTER)
        terminal.until("[script]")
        terminal.type("rather not\x7f\x7f\x7fyes" + ENTER)
        terminal.until("› rather yes")
        terminal.type(CTRL_C)
        terminal.until("The turn was cancelled.")
    kinds = workspace.kinds(workspace.sessions()[0])
    assert kinds.count("user_message") == 2


def test_a_command_typed_while_the_agent_works_is_no_message(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Count" + ENTER)
        terminal.until("[script]")
        terminal.type("/status" + ENTER)
        terminal.until("/status can be sent when the turn is over.")
        terminal.type("\x15/exit" + ENTER)
        terminal.until("Come back with: duragent attach")
        assert terminal.ended() == 0
    assert workspace.kinds(workspace.sessions()[0]).count("user_message") == 1


def test_no_escape_sequence_of_a_model_reaches_the_terminal(workspace: Program) -> None:
    model = workspace.script("a \x1b]0;owned\x07 b \x1b[2J c \x9b31m d \u202e e")
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("a \\x1b]0;owned\\x07 b \\x1b[2J c \\x9b31m d")
        terminal.until(PROMPT)
        assert b"\x1b]0;owned" not in terminal.raw
        assert "\x9b31m" not in terminal.raw.decode()
        assert "\u202e" not in terminal.raw.decode()


def test_what_looks_like_html_is_shown_and_links_say_where_they_lead(workspace: Program) -> None:
    model = workspace.script(
        "A List<String> in <div>one</div>.\n\n<p>two</p>\n\n[this](https://a.example/x) &#x202e;&rlm;&lt;b&gt;"
    )
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("A List<String> in <div>one</div>.")
        terminal.until("<p>two</p>")
        terminal.until("this (https://a.example/x) \\x202e\\x200f<b>")
        assert "\u202e" not in terminal.raw.decode()


def test_an_empty_answer_is_said_to_be_one(workspace: Program) -> None:
    with Terminal([*CHAT, "--model", workspace.script("Hi.", "")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("Hi.")
        terminal.until(PROMPT)
        terminal.type("On" + ENTER)
        terminal.until("(an empty answer)")


def test_a_history_that_cannot_be_kept_disturbs_nobody(workspace: Program) -> None:
    (workspace.folder / ".duragent/chat_history").mkdir()
    with Terminal([*CHAT, "--model", workspace.script("Hi.")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("Hi.")
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.plain


def test_a_disk_that_refuses_is_one_sentence_and_the_talk_goes_on(workspace: Program) -> None:
    (workspace.folder / ".duragent/sessions").write_text("no folder")
    with Terminal([*CHAT, "--model", workspace.script("Hi.")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("Not a directory")
        terminal.until(PROMPT)
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        assert "Traceback" not in terminal.plain


def test_a_talk_that_is_told_to_end_leaves_the_terminal_as_it_was(workspace: Program) -> None:
    model = workspace.script({"text": "one two three", "piece_seconds": 600})
    with Terminal([*CHAT, "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Go" + ENTER)
        terminal.until("[script]")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 143
        assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l")
        assert "Traceback" not in terminal.plain


def test_a_cancelled_call_is_named(workspace: Program) -> None:
    (workspace.folder / "slow.py").write_text(WITH_SLOW_TOOL)
    model = workspace.script({"calls": [{"tool": "wait", "arguments": {"text": "long"}, "id": "c1"}]}, "Done.")
    with Terminal(["slow.py", "chat", "--agent", "assistant", "--model", model], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("Wait" + ENTER)
        terminal.until("wait  text=long")
        terminal.type("and then?" + ENTER)
        terminal.until("› and then?")
        terminal.type(CTRL_C)
        terminal.until("? wait  text=long was cut off")
        terminal.until("The turn was cancelled.")
        terminal.until("1 message had not reached the model and got no answer.")
        terminal.until(PROMPT)


def test_attach_marks_an_answer_that_was_cancelled(workspace: Program) -> None:
    session_id = workspace.session(
        ev.UserMessage("Count"), ev.ModelCalled("x"), ev.TurnStopped("cancelled", "The turn was cancelled.", "one two")
    )
    with Terminal([*ATTACH, session_id, "--model", workspace.script("x")], workspace.folder) as terminal:
        terminal.until("one two")
        terminal.until("(cancelled)")
        terminal.until(PROMPT)


def test_what_was_typed_is_kept_for_its_owner_alone(workspace: Program) -> None:
    with Terminal([*CHAT, "--model", workspace.script("Hi.")], workspace.folder) as terminal:
        terminal.until(PROMPT)
        terminal.type("remember me" + ENTER)
        terminal.until("Hi.")
        terminal.until(PROMPT)
    history = workspace.folder / ".duragent/chat_history"
    assert "+remember me\n" in history.read_text()
    assert stat.S_IMODE(os.stat(history).st_mode) == 0o600


def test_in_ci_a_terminal_is_treated_as_a_pipe(workspace: Program) -> None:
    with Terminal([*CHAT, "--model", workspace.script("Hi.")], workspace.folder, CI="true") as terminal:
        terminal.type("Hello\n")
        terminal.until("Hi.")
        terminal.type(CTRL_D)
        assert terminal.ended() == 0
        assert b"\x1b" not in terminal.raw


def test_attach_asks_which_one_where_there_are_more(workspace: Program) -> None:
    workspace.session(ev.UserMessage("First talk", wants_answer=False), session_id="session_01A")
    workspace.session(ev.UserMessage("Second talk", wants_answer=False), session_id="session_01B")
    with Terminal([*ATTACH, "--model", workspace.script("Hi.")], workspace.folder) as terminal:
        terminal.until("1)  session_01B")
        terminal.until("2)  session_01A")
        terminal.until("Which one [1]")
        terminal.type("2" + ENTER)
        terminal.until("› First talk")
        terminal.until(PROMPT)


# --- through a pipe --------------------------------------------------------------------------------------


def test_in_a_pipe_every_line_is_a_message_and_answers_are_plain(workspace: Program) -> None:
    model = workspace.script("# One", "**Two**")
    done = workspace("chat", "--agent", "assistant", "--model", model, stdin="first\n\nsecond\n")
    assert (done.code, without_marker(done.out), done.err) == (0, "# One\n**Two**\n", "")
    assert len(workspace.sessions()) == 1


def test_a_piped_talk_goes_on_with_a_session_and_first_with_what_was_interrupted(workspace: Program) -> None:
    session_id = workspace.session(ev.UserMessage("Are you there?"))
    model = workspace.script("Yes.", "More.")
    done = workspace("chat", "--session", session_id, "--model", model, stdin="And now?\n")
    assert (done.code, without_marker(done.out)) == (0, "Yes.\nMore.\n")
    assert done.err == f"note  {session_id} was interrupted; going on\n"


def test_a_piped_talk_stops_where_a_person_must_decide(workspace: Program) -> None:
    (workspace.folder / "limited.agent").write_text("name: limited\nobservability: {step_limit: 1, on_exceed: ask}\n")
    model = workspace.script({"calls": [{"tool": "nothing", "id": "c1"}]}, "Never said.")
    done = workspace("chat", "--agent", "./limited.agent", "--model", model, stdin="one\ntwo\n")
    assert (done.code, done.out) == (3, "")
    assert "approval needed  A limit is reached" in done.err
    assert done.err.endswith("note  1 line was not sent: decide first\n")
    assert workspace.kinds(workspace.sessions()[0]).count("user_message") == 1


def test_a_piped_talk_ends_with_1_where_any_answer_failed(workspace: Program) -> None:
    model = workspace.script({"error": {"message": "broken"}}, "Better.")
    done = workspace("chat", "--agent", "assistant", "--model", model, stdin="one\ntwo\n")
    assert (done.code, without_marker(done.out)) == (1, "Better.\n")


def test_a_piped_talk_ends_with_1_where_the_last_answer_failed(workspace: Program) -> None:
    model = workspace.script({"error": {"message": "broken"}})
    done = workspace("chat", "--agent", "assistant", "--model", model, stdin="one\n")
    assert (done.code, done.out, done.err) == (1, "", "model_failed  scripted/script.yaml: broken\n")


def test_chat_wants_an_agent_or_a_session(workspace: Program) -> None:
    done = workspace("chat")
    assert (done.code, done.out) == (2, "")
    assert "Whom? Give --agent NAME (there are: assistant), or --session ID" in done.err


def test_attach_says_how_many_sessions_it_does_not_show(workspace: Program) -> None:
    for number in range(12):
        workspace.session(session_id=f"session_01{number:02}")
    done = workspace("attach")
    assert (done.code, len(done.out.splitlines())) == (2, 9)
    assert done.err.startswith("(3 more: duragent attach --list)\n")


def test_attach_without_a_terminal_lists_and_wants_a_name(workspace: Program) -> None:
    assert "there is no session to come back to" in workspace("attach").err
    workspace.session(session_id="session_01A")
    workspace.session(session_id="session_01B")
    done = workspace("attach")
    assert (done.code, len(done.out.splitlines())) == (2, 2)
    assert "name the one you mean" in done.err
    assert workspace("attach", "--list").out.count("session_01") == 2


def test_the_agent_of_a_session_may_have_moved_within_the_workspace(workspace: Program) -> None:
    session_id = workspace.session(ev.UserMessage("Hi", wants_answer=False))
    agents = workspace.folder / ".duragent/agents"
    (agents / "assistant").rename(agents / "renamed")
    done = workspace("attach", session_id, "--model", workspace.script("Still me."), stdin="You?\n")
    assert (done.code, without_marker(done.out)) == (0, "Still me.\n")


def test_an_agent_that_is_gone_is_named(workspace: Program) -> None:
    session_id = workspace.session(ev.UserMessage("Hi", wants_answer=False))
    (workspace.folder / ".duragent/agents/assistant/agent.yaml").unlink()
    (workspace.folder / ".duragent/agents/assistant").rmdir()
    done = workspace("attach", session_id)
    assert (done.code, done.out) == (1, "")
    assert "no agent in .duragent/agents is called 'assistant'" in done.err


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", ""),
        ("one", ""),
        ("one\n", ""),
        ("one\n\n", "one\n\n"),
        ("one\n\ntwo", "one\n\n"),
        ("one\n\n```py\nx\n\ny\n", "one\n\n"),
        ("```py\nx\n\ny\n```\n\nend", "```py\nx\n\ny\n```\n\n"),
        ("````\n```\n\n```\n````\n\n", "````\n```\n\n```\n````\n\n"),
        ("~~~\n```\n\n~~~\n\nend", "~~~\n```\n\n~~~\n\n"),
        ("```\nx\n```not the end\n\ny\n", ""),
    ],
)
def test_only_whole_paragraphs_are_rendered_for_good(text: str, whole: str) -> None:
    assert text[: finished(text)] == whole


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("a\nb\n", "a\nb\n"),
        ("a\nb\nc\n", "b\nc\n"),
        ("```py\na\nb\nc\n", "```py\nb\nc\n"),
        ("```py\na\n```\nb\nc\n", "b\nc\n"),
    ],
)
def test_the_end_of_a_long_text_stays_in_its_code_block(text: str, end: str) -> None:
    assert ending(text, 2) == end


def test_a_piped_talk_takes_bytes_that_are_no_text(workspace: Program) -> None:
    model = workspace.script("You said: {message}")
    done = workspace("chat", "--agent", "assistant", "--model", model, stdin=b"a\xff\n")
    assert (done.code, without_marker(done.out)) == (0, "You said: a\ufffd\n")


def test_attach_takes_the_one_session_that_is_unfinished(workspace: Program) -> None:
    workspace.session(ev.UserMessage("Left"), session_id="session_01A")
    workspace.session(ev.UserMessage("Done", wants_answer=False), session_id="session_01B")
    done = workspace("attach", "--model", workspace.script("Back."))
    assert (done.code, without_marker(done.out)) == (0, "Back.\n")
    assert workspace.kinds("session_01A")[-1] == "assistant_response"
