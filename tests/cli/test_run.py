"""One prompt, one answer: what `duragent run` prints, and with which code it ends."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from duragent.cli import opening
from duragent.core import events as ev
from duragent.store.files import FileStore
from duragent.tools import function_tool
from tests.cli.workspace import AGENT, Program, environment, without_marker

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMITED = "name: limited\nobservability: {step_limit: 1, on_exceed: ask}\n"
NOTE = {"calls": [{"tool": "note", "arguments": {"text": "buy milk"}, "id": "c1"}]}


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the tool `note` wrote down; each call of it is asked about."""
    written: list[str] = []

    async def note(text: str) -> str:
        written.append(text)
        return "written"

    monkeypatch.setattr(opening, "toolbox", lambda hosts, agent: {"note": function_tool(note, ask=True)})
    return written


def test_the_answer_alone_is_printed(workspace: Program) -> None:
    model = workspace.script("Good *morning*.")
    assert workspace("run", "assistant", "Hello", "--model", model) == (0, "[script]\nGood *morning*.\n", "")
    assert workspace.kinds(workspace.sessions()[0]) == [
        "session_start",
        "user_message",
        "model_called",
        "assistant_response",
    ]


@pytest.mark.parametrize("args", [[], ["-"]])
def test_the_prompt_may_be_piped_in(args: list[str], workspace: Program) -> None:
    model = workspace.script("You said: {message}")
    done = workspace("run", "assistant", *args, "--model", model, stdin="ünï\xff".encode("latin-1"))
    assert (done.code, without_marker(done.out)) == (0, "You said: \ufffdn\ufffd\ufffd\n")


def test_what_is_piped_in_follows_the_prompt_where_a_dash_says_so(workspace: Program) -> None:
    model = workspace.script("{message}", repeat=True)
    both = workspace("run", "assistant", "Sum up:", "-", "--model", model, stdin="a report")
    assert (both.code, without_marker(both.out), both.err) == (0, "Sum up:\n\na report\n", "")
    alone = workspace("run", "assistant", "Sum up:", "--model", model, stdin="a report")
    assert (alone.code, without_marker(alone.out)) == (0, "Sum up:\n")
    unquoted = workspace("run", "assistant", "Sum", "up", "--model", model)
    assert (unquoted.code, unquoted.out) == (2, "")
    assert "put the prompt in quotes" in unquoted.err


def start(workspace: Program, *args: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duragent", *args],
        cwd=workspace.folder,
        env=environment(workspace.folder),
        text=True,
        timeout=60,
        check=False,
        **({"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams),
    )


def test_a_file_that_is_not_read_is_told(workspace: Program) -> None:
    model = workspace.script("{message}")
    (workspace.folder / "report.txt").write_text("a report")
    with open(workspace.folder / "report.txt", encoding="utf-8") as report:
        done = start(workspace, "run", "assistant", "Sum up:", "--model", model, stdin=report)
    assert (done.returncode, without_marker(done.stdout)) == (0, "Sum up:\n")
    assert done.stderr == ("note  standard input is not read; to let it follow the prompt, write - after the prompt\n")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("command", [["run", "assistant", "Hi"], ["chat", "--agent", "assistant"]])
def test_closed_standard_streams_lead_nowhere(command: list[str], closed: tuple[int, ...], workspace: Program) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    model = workspace.script("Hello.")
    done = start(workspace, *command, "--model", model, stdin=subprocess.DEVNULL, preexec_fn=close)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_piped_out_is_what_the_model_said(workspace: Program) -> None:
    said = "a\tb \x1b[31mred\x1b[0m \u202e\u200b \r\n  end  \n"
    done = workspace("run", "assistant", "Hi", "--model", workspace.script(said))
    assert (done.code, done.out) == (0, f"[script]\n{said}")
    talked = workspace("chat", "--agent", "assistant", "--model", workspace.script(said), stdin="Hi\n")
    assert (talked.code, talked.out) == (0, f"[script]\n{said}")


def test_an_empty_answer_is_none(workspace: Program) -> None:
    model = workspace.script("Hello.", "", "")
    workspace("run", "assistant", "Hi", "--model", model)
    again = ["run", "assistant", "Hi", "--model", model, "--session", workspace.sessions()[0]]
    assert workspace(*again) == (1, "", "empty  the model answered with nothing\n")
    found = json.loads(workspace(*again, "--format", "json").out)
    assert (found["status"], found["answer"], found["stop"]) == (
        "failed",
        None,
        {"reason": "empty", "message": "the model answered with nothing"},
    )


@pytest.mark.parametrize(("args", "stdin"), [([], " \n"), ([""], ""), (["-"], "")])
def test_an_empty_prompt_is_wrong_usage(args: list[str], stdin: str, workspace: Program) -> None:
    done = workspace("run", "assistant", *args, stdin=stdin)
    assert done.code == 2
    assert "The prompt is empty." in done.err


@pytest.mark.parametrize("path", ["code-reviewer", "researcher.agent", "release-agent", "helper.agent.md"])
def test_an_agent_of_any_format_may_be_named_by_its_path(path: str, program: Program) -> None:
    shutil.copytree(EXAMPLES, program.folder / "examples")
    shutil.copytree(EXAMPLES.parent / "schemas", program.folder / "schemas")
    (program.folder / "examples/helper.agent.md").write_text("# Helper\n\nYou help.\n")
    done = program("run", f"examples/{path}", "Hello", "--model", program.script("Here."))
    assert (done.code, without_marker(done.out)) == (0, "Here.\n")
    assert all(line.startswith("note  Not offered, since ") for line in done.err.splitlines())


def test_a_wrong_name_suggests_a_close_one(workspace: Program) -> None:
    assert workspace("run", "asistant", "x") == (
        1,
        "",
        "error  no agent is called 'asistant', and there is no such path. Did you mean assistant?\n",
    )


def test_an_agent_is_found_by_its_name_wherever_it_is_in_the_workspace(workspace: Program) -> None:
    (workspace.folder / ".duragent/agents/deep").mkdir()
    (workspace.folder / ".duragent/agents/deep/x.agent").write_text("name: digger\n")
    assert workspace("run", "digger", "x", "--model", workspace.script("Found.")).code == 0


def test_a_disabled_agent_does_not_speak(workspace: Program) -> None:
    (workspace.folder / ".duragent/agents/general_old.agent.md").write_text("---\nstatus: disabled\n---\n\n# Old\n")
    done = workspace("run", "old", "x", "--model", workspace.script("No."))
    assert (done.code, done.out) == (1, "")
    assert "old is disabled" in done.err


def test_json_is_one_object_with_all_a_program_wants(workspace: Program) -> None:
    answer = {"text": "Four.", "usage": {"prompt_tokens": 12, "completion_tokens": 3}, "cost_usd": 0.25}
    done = workspace("run", "assistant", "2+2?", "--model", workspace.script(answer), "--format", "json")
    assert done.code == 0
    assert json.loads(done.out) == {
        "session_id": workspace.sessions()[0],
        "agent": "assistant",
        "model": "scripted/script.yaml",
        "status": "answered",
        "answer": "[script]\nFour.",
        "stop": None,
        "waiting": [],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "cached_tokens": 0},
        "cost_usd": 0.25,
        "events": 4,
        "last_seq": 4,
    }


def test_jsonl_has_every_event_as_it_is_stored_and_every_piece_of_text(workspace: Program) -> None:
    done = workspace("run", "assistant", "Hi", "--model", workspace.script("One two."), "--format", "jsonl")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert lines[0] == {"type": "session", "session_id": workspace.sessions()[0]}
    assert "".join(line["text"] for line in lines if line["type"] == "delta") == "[script]\nOne two."
    stored = (workspace.folder / ".duragent/sessions" / workspace.sessions()[0] / "events.jsonl").read_text()
    assert [line for line in done.out.splitlines() if '"seq"' in line] == stored.splitlines()


def test_a_stream_that_begins_again_is_told_in_jsonl(workspace: Program) -> None:
    model = workspace.script({"text": "One two three.", "restart_after": 2})
    done = workspace("run", "assistant", "Hi", "--model", model, "--format", "jsonl")
    kinds = [json.loads(line)["type"] for line in done.out.splitlines()]
    assert kinds.count("forget") == 1
    assert kinds.index("delta") < kinds.index("forget") < kinds.index("assistant_response")


def test_a_session_goes_on(workspace: Program) -> None:
    model = workspace.script("First.", "Second.")
    workspace("run", "assistant", "One", "--model", model)
    (session_id,) = workspace.sessions()
    done = workspace("run", "assistant", "Two", "--model", model, "--session", session_id[-6:].lower())
    assert (done.code, done.out) == (0, "Second.\n")
    assert workspace.sessions() == [session_id]


def test_a_session_with_another_agent_is_refused(workspace: Program) -> None:
    (workspace.folder / ".duragent/agents/other").mkdir()
    (workspace.folder / ".duragent/agents/other/agent.yaml").write_text(AGENT.replace("assistant", "other"))
    session_id = workspace.session()
    done = workspace("run", "other", "x", "--session", session_id, "--model", workspace.script("x"))
    assert done == (1, "", f"error  {session_id} is a session with assistant, not with other\n")


def test_a_model_that_fails_ends_with_1_and_its_own_words(workspace: Program) -> None:
    model = workspace.script({"error": {"message": "quota\x1b[2J used up"}}, "Better now.")
    done = workspace("run", "assistant", "Hi", "--model", model)
    assert (done.code, done.out) == (1, "")
    assert done.err == "model_failed  scripted/script.yaml: quota\\x1b[2J used up\n"
    again = workspace("run", "assistant", "Hi", "--model", workspace.script("Better."), "--session", "session_0")
    assert (again.code, without_marker(again.out)) == (0, "Better.\n")


def test_a_missing_key_is_told_before_anything_is_written(workspace: Program) -> None:
    done = workspace("run", "assistant", "Hi")
    assert (done.code, done.out) == (1, "")
    assert "OPENAI_API_KEY is not set" in done.err
    assert workspace.sessions() == []


def test_a_script_that_is_not_there_is_one_line(workspace: Program) -> None:
    done = workspace("run", "assistant", "Hi", "--model", "scripted/gone.yaml")
    assert (done.code, done.out) == (1, "")
    assert "gone.yaml" in done.err
    assert "Traceback" not in done.err


def test_what_needs_approval_ends_with_3_and_the_commands_that_decide(workspace: Program, notes: list[str]) -> None:
    model = workspace.script(NOTE, "Done: {result}")
    done = workspace("run", "assistant", "Note it", "--model", model)
    (session_id,) = workspace.sessions()
    assert done == (
        3,
        "",
        'approval needed  note {"text":"buy milk"}\n'
        "  why: no policy says a mode\n"
        f"  yes: duragent session approve {session_id} c1 --model scripted/script.yaml\n"
        f"  no:  duragent session approve {session_id} c1 --deny --model scripted/script.yaml\n",
    )
    assert notes == []
    yes = workspace("session", "approve", session_id, "c1", "--model", model)
    assert (yes.code, without_marker(yes.out)) == (0, "Done: written\n")
    assert notes == ["buy milk"]


def test_a_refusal_reaches_the_model_with_its_reason(workspace: Program, notes: list[str]) -> None:
    model = workspace.script(NOTE, "{result}")
    workspace("run", "assistant", "Note it", "--model", model)
    done = workspace("session", "approve", "session_0", "--deny", "--reason", "no milk", "--model", model)
    assert (done.code, without_marker(done.out), notes) == (0, "The person refused this call: no milk\n", [])


def test_an_approval_for_the_session_holds_for_the_same_call(workspace: Program, notes: list[str]) -> None:
    again = {"calls": [{"tool": "note", "arguments": {"text": "buy milk"}, "id": "c2"}]}
    model = workspace.script(NOTE, again, "Twice.")
    workspace("run", "assistant", "Note it", "--model", model)
    done = workspace("session", "approve", "session_0", "--for-session", "--model", model)
    assert (done.code, without_marker(done.out), notes) == (0, "Twice.\n", ["buy milk", "buy milk"])


def test_only_what_is_asked_can_be_approved(workspace: Program, notes: list[str]) -> None:
    model = workspace.script(NOTE, "Done.")
    workspace("run", "assistant", "Note it", "--model", model)
    done = workspace("session", "approve", "session_0", "c9", "--model", model)
    assert (done.code, done.err.splitlines()[1:]) == (1, ['  c1  note {"text":"buy milk"}'])
    workspace("session", "approve", "session_0", "--model", model)
    late = workspace("session", "approve", "session_0", "c1", "--model", model)
    assert (late.code, late.err) == (1, f"error  {workspace.sessions()[0]} asks for nothing; it is resting\n")


def test_a_limit_that_asks_ends_with_3_as_json_says(workspace: Program) -> None:
    (workspace.folder / "limited.agent").write_text(LIMITED)
    unknown = {"calls": [{"tool": "nothing", "id": "c1"}]}
    done = workspace("run", "./limited.agent", "x", "--model", workspace.script(unknown), "--format", "json")
    found = json.loads(done.out)
    assert (done.code, found["status"], found["answer"]) == (3, "waiting", None)
    assert found["waiting"][0]["command"] == "A limit is reached: this session has taken 1 steps. Go on?"


def test_an_ended_session_says_why_and_how_to_go_on(workspace: Program) -> None:
    session_id = workspace.session(ev.UserMessage("Hi", wants_answer=False), ev.SessionEnd("timeout"))
    done = workspace("run", "assistant", "x", "--session", session_id, "--model", workspace.script("x"))
    assert done == (
        1,
        "",
        f"error  {session_id} has ended because it had rested for too long. "
        f"To go on from it in a new session: duragent session fork {session_id}@2\n",
    )


def test_a_session_that_rested_for_too_long_has_ended_and_says_so(workspace: Program) -> None:
    session_id = workspace.session(ev.UserMessage("Hi", wants_answer=False), year=2020)
    done = workspace("run", "assistant", "x", "--session", session_id, "--model", workspace.script("x"))
    assert (done.code, done.out) == (1, "")
    assert f"{session_id} has ended because it had rested for too long." in done.err
    forked = workspace("session", "fork", session_id).out.strip()
    (workspace.folder / "duragent.yaml").write_text("sessions: {ttl_hours: 0}\n")
    again = workspace("run", "assistant", "x", "--session", forked, "--model", workspace.script("Here."))
    assert (again.code, without_marker(again.out)) == (0, "Here.\n")


def test_a_session_that_another_process_holds_names_it(workspace: Program) -> None:
    session_id = workspace.session()
    store = FileStore(workspace.folder / ".duragent/sessions")
    log, _ = store.open(session_id, lambda entries: None)
    done = workspace("run", "assistant", "x", "--session", session_id, "--model", workspace.script("x"))
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"error  {session_id} is held by process {os.getpid()} since ")
    asyncio.run(log.release())
    store.close()


def test_settings_that_are_wrong_stop_the_command_where_they_are_wrong(workspace: Program) -> None:
    (workspace.folder / "duragent.yaml").write_text("services:\n  session: {backend: postgres, url: 'postgres://x'}\n")
    done = workspace("run", "assistant", "x")
    assert done == (
        1,
        "",
        "error  duragent.yaml cannot be used:\n  duragent.yaml:2:22  error  this build keeps sessions in files; "
        "postgres comes with a later version (write `backend: files`)\n",
    )


def test_ctrl_c_cancels_the_turn_in_writing(workspace: Program) -> None:
    model = workspace.script({"text": "a b c d e f g h", "piece_seconds": 60})
    command = [sys.executable, "-m", "duragent", "run", "assistant", "Hi", "--model", model, "--format", "jsonl"]
    with subprocess.Popen(
        command, cwd=workspace.folder, env=environment(workspace.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        while b'"delta"' not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (130, b"")
    assert workspace.kinds(workspace.sessions()[0])[-1] == "turn_stopped"


def test_run_loads_neither_a_terminal_nor_an_http_client_it_does_not_need(workspace: Program) -> None:
    model = workspace.script("Hello.")
    code = (
        "import sys\nfrom duragent.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\nprint('loaded', *sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "assistant", "Hi", "--model", model],
        cwd=workspace.folder,
        env=environment(workspace.folder),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split()[1:])
    heavy = {
        "rich",
        "prompt_toolkit",
        "aiohttp",
        "pydantic",
        "markdown_it",
        "duragent.cli.chatting",
        "duragent.schemas",
    }
    assert loaded & heavy == set()


def test_an_agent_whose_conditions_are_not_met_does_not_start(
    workspace: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "---\nname: teller\ndescription: Tells.\nrequired:\n  env: [BANK_TOKEN]\n---\n# Teller\n\n## System\nBe brief.\n"
    place = tmp_path / "teller.agent.md"
    place.write_text(text)
    model = workspace.script("Good morning.")
    code, out, err = workspace("run", str(place), "hi", "--model", model)
    assert (code, out) == (1, "") and "needs variables that are not set: BANK_TOKEN" in err
