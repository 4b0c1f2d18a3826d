"""Sessions from the command line: list, show, log, resume, fork, export, delete; and that all of it is documented."""

import asyncio
import json
import os
import resource
import signal
import stat
from pathlib import Path

import click
import pytest

from duragent import cli
from duragent.core import events as ev
from duragent.store.files import FileStore
from tests.cli.workspace import Program, stamp, without_marker

ROOT = Path(__file__).parents[2]
TALK = (
    ev.UserMessage("What is a fold?"),
    ev.ModelCalled("openai/gpt-4o-mini"),
    ev.AssistantResponse(
        "assistant",
        "Let me look.",
        (ev.ToolCall("c1", "search", {"for": "fold"}),),
        ev.Usage(100, 10, 110),
        0.5,
    ),
    ev.ToolStarted("c1"),
    ev.ToolResult("c1", ev.ToolAnswer(True, "a ``` fence\nand \x1b[31mmore")),
    ev.ModelCalled("openai/gpt-4o-mini"),
    ev.AssistantResponse("assistant", "A *fold* is\na sum.", usage=ev.Usage(120, 20, 140), cost_usd=0.25),
)
ASKED = (
    ev.UserMessage("Delete it"),
    ev.AssistantResponse("assistant", "", (ev.ToolCall("c1", "shell", {"command": "rm -r x"}),)),
    ev.ApprovalRequired("c1", 'shell {"command":"rm -r x"}', "d"),
)
CUT = (ev.UserMessage("Are you there?"), ev.ModelCalled("openai/gpt-4o-mini"))


def test_sessions_are_listed_the_newest_first_with_how_they_stand(workspace: Program) -> None:
    workspace.session(*TALK, session_id="session_01A")
    workspace.session(*ASKED, session_id="session_01B")
    workspace.session(*CUT, session_id="session_01C")
    workspace.session(ev.SessionEnd(), session_id="session_01D")
    lines = [line.split("  ") for line in workspace("session", "list").out.splitlines()]
    assert [(words[0], words[2].strip(), words[-1]) for words in lines] == [
        ("session_01A", "resting", "What is a fold?"),
        ("session_01B", "waits for you", "Delete it"),
        ("session_01C", "interrupted", "Are you there?"),
    ]
    everything = json.loads(workspace("session", "list", "--all", "--format", "json").out)
    assert [each["session_id"] for each in everything] == ["session_01A", "session_01B", "session_01C", "session_01D"]
    assert everything[1] == {
        "session_id": "session_01B",
        "agent": "assistant",
        "status": "waits for you",
        "created_at": stamp(1),
        "updated_at": stamp(4),
        "events": 4,
        "messages": 2,
        "waiting": [{"call_id": "c1", "command": 'shell {"command":"rm -r x"}'}],
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "cost_usd": 0.0,
        "forked_from": None,
        "held_by": None,
        "problem": None,
    }


def test_a_list_may_be_of_one_agent_only(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    assert session_id in workspace("session", "list", "--agent", "assistant").out
    assert workspace("session", "list", "--agent", "other").out.startswith("There are no sessions")


def test_a_damaged_session_is_told_and_hinders_no_other(workspace: Program) -> None:
    workspace.session(*TALK, session_id="session_01A")
    workspace.session(*TALK, session_id="session_01B")
    log = workspace.folder / ".duragent/sessions/session_01B/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"fold?", b"f0ld?", 1))
    done = workspace("session", "list")
    assert done.code == 0
    assert sorted(line.split()[0] for line in done.out.splitlines()) == ["session_01A", "session_01B"]
    assert "unreadable" in done.out
    shown = workspace("session", "show", "01B")
    assert shown.code == 1
    assert "events.jsonl" in shown.out


def test_show_says_how_a_session_stands_and_what_it_waits_for(workspace: Program) -> None:
    session_id = workspace.session(*ASKED)
    lines = workspace("session", "show", session_id).out.splitlines()
    assert lines[3] == "status     waits for you"
    assert lines[-2:] == [
        'waits for  shell {"command":"rm -r x"}',
        f"           duragent session approve {session_id} c1",
    ]


def test_show_says_how_an_interrupted_session_goes_on(workspace: Program) -> None:
    session_id = workspace.session(*CUT)
    assert workspace("session", "show", session_id).out.splitlines()[-1] == (
        f"go on      duragent session resume {session_id}"
    )


def test_an_id_may_be_shortened_where_only_one_fits(workspace: Program) -> None:
    workspace.session(session_id="session_01AAXY")
    workspace.session(session_id="session_01ABZZ")
    assert "session_01AAXY" in workspace("session", "show", "01aa").out
    assert "session_01ABZZ" in workspace("session", "show", "zz").out
    both = workspace("session", "show", "01a")
    assert both.code == 2
    assert "'01a' fits 2 sessions: session_01AAXY, session_01ABZZ. Give more of the id." in both.err
    none = workspace("session", "show", "nothing")
    assert none.code == 1
    assert "there is no session 'nothing'" in none.err


@pytest.mark.parametrize("wanted", ["../../etc", "session_../x", "*", "session_"])
def test_an_id_cannot_leave_the_folder(wanted: str, workspace: Program) -> None:
    workspace.session()
    done = workspace("session", "delete", wanted, "--yes")
    assert done.code == 1
    assert "there is no session" in done.err


def test_the_log_is_readable_and_harmless(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    done = workspace("session", "log", session_id)
    assert "\x1b" not in done.out
    assert done.out.splitlines() == [
        "    1  2126-01-01 00:00:01  session_start       assistant",
        "    2  2126-01-01 00:00:02  user_message        What is a fold?",
        "    3  2126-01-01 00:00:03  model_called        openai/gpt-4o-mini",
        "    4  2126-01-01 00:00:04  assistant_response  Let me look.",
        f"{'':48}→ search  for=fold  (c1)",
        f"{'':48}(100 in, 10 out, $0.5000)",
        "    5  2126-01-01 00:00:05  tool_started        c1",
        "    6  2126-01-01 00:00:06  tool_result         c1  ok",
        f"{'':48}a ``` fence",
        f"{'':48}and \\x1b[31mmore",
        "    7  2126-01-01 00:00:07  model_called        openai/gpt-4o-mini",
        "    8  2126-01-01 00:00:08  assistant_response  A *fold* is",
        f"{'':48}a sum.",
        f"{'':48}(120 in, 20 out, $0.2500)",
    ]


def test_the_raw_log_is_the_file_and_may_begin_later(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    stored = (workspace.folder / ".duragent/sessions" / session_id / "events.jsonl").read_text()
    assert workspace("session", "log", session_id, "--format", "jsonl").out == stored
    later = workspace("session", "log", session_id, "--format", "jsonl", "--after", "6").out
    assert later.splitlines() == stored.splitlines()[6:]


def test_every_kind_of_event_has_words(workspace: Program) -> None:
    events: list[ev.Event] = [
        ev.SilentMessage("psst", "1"),
        ev.ErrorNoted("mended", "a torn line was cut"),
        ev.StatusChange("active", "paused"),
        ev.ReplyDelivered(3, "telegram"),
        ev.AssistantMessage("old words"),
        ev.ToolCalled("c7", "old_tool", {"a": 1}),
        ev.ToolsSkipped(("c7",)),
        ev.ApprovalRequired("q", "Go on?"),
        ev.ApprovalDecision("q", "deny", "me", "enough"),
        ev.TurnStopped("cost", "Too dear.", "so far"),
        ev.Unknown("from_tomorrow", b'{"seq":12,"timestamp":"2126-01-01T00:00:12.000Z","type":"from_tomorrow"}'),
        ev.SessionEnd("terminated"),
    ]
    lines = workspace("session", "log", workspace.session(*events)).out.splitlines()
    assert [" ".join(line.split()[3:]) for line in lines if line[4] != " "] == [
        "session_start assistant",
        "silent_message psst",
        "error mended: a torn line was cut",
        "status_change active → paused",
        "reply_delivered entry 3 to telegram",
        "assistant_message old words",
        "tool_call old_tool a=1",
        "tools_skipped c7",
        "approval_required q Go on?",
        "approval_decision q deny by me: enough",
        "turn_stopped cost: Too dear.",
        "from_tomorrow",
        "session_end terminated",
    ]


def test_resume_carries_an_interrupted_turn_to_its_end(workspace: Program) -> None:
    session_id = workspace.session(*CUT)
    done = workspace("session", "resume", session_id, "--model", workspace.script("I am."))
    assert (done.code, without_marker(done.out)) == (0, "I am.\n")
    assert done.err == f"{session_id}  assistant: Are you there?\n"
    again = workspace("session", "resume", session_id, "--model", workspace.script("Twice?"))
    assert (again.code, again.out) == (0, "Nothing was interrupted: the last message has its answer.\n")


def test_resume_all_takes_every_interrupted_session_and_no_other(workspace: Program) -> None:
    workspace.session(*CUT, session_id="session_01A")
    workspace.session(*TALK, session_id="session_01B")
    workspace.session(*CUT, ev.StatusChange("active", "paused"), session_id="session_01C")
    done = workspace("session", "resume", "--all", "--model", workspace.script("Yes."), "--format", "json")
    assert done.code == 0
    assert [(each["session_id"], each["status"], each["answer"]) for each in json.loads(done.out)] == [
        ("session_01A", "answered", "[script]\nYes."),
        ("session_01C", "answered", "[script]\nYes."),
    ]
    assert workspace("session", "resume", "--all").out == "Nothing was interrupted.\n"


def test_resume_ends_with_1_where_one_fails_and_goes_on_with_the_others(workspace: Program) -> None:
    workspace.session(*CUT, session_id="session_01A")
    workspace.session(ev.UserMessage("Bye?"), session_id="session_01B")
    rules = [{"when": "are you*", "answers": [{"error": {"message": "broken"}}]}]
    done = workspace("session", "resume", "--all", "--model", workspace.script("Bye.", rules=rules))
    assert (done.code, without_marker(done.out)) == (1, "Bye.\n")
    assert "model_failed  scripted/script.yaml: broken" in done.err


def test_resume_ends_with_3_where_a_person_must_decide(workspace: Program) -> None:
    session_id = workspace.session(*ASKED)
    done = workspace("session", "resume", session_id, "--model", workspace.script("x"))
    assert (done.code, done.out) == (3, "")
    assert f"yes: duragent session approve {session_id} c1" in done.err


def test_resume_says_who_holds_a_session_and_once(workspace: Program) -> None:
    session_id = workspace.session(*CUT)
    store = FileStore(workspace.folder / ".duragent/sessions")
    log, _ = store.open(session_id, lambda entries: None)
    done = workspace("session", "resume", session_id, "--model", workspace.script("x"))
    assert "running" in workspace("session", "list").out
    assert workspace("session", "resume", "--all").out == "Nothing was interrupted.\n"
    asyncio.run(log.release())
    store.close()
    assert (done.code, done.out) == (1, "")
    assert done.err.count(f"is held by process {os.getpid()}") == 1


def test_resume_wants_one_session_or_all(workspace: Program) -> None:
    assert workspace("session", "resume").code == 2
    assert workspace("session", "resume", "x", "--all").code == 2


def test_fork_begins_a_new_session_from_a_prefix_and_prints_its_id(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    done = workspace("session", "fork", f"{session_id}@2")
    (forked,) = set(workspace.sessions()) - {session_id}
    assert done == (0, f"{forked}\n", "")
    assert workspace.kinds(forked) == ["session_start", "user_message"]
    answered = workspace("session", "resume", forked, "--model", workspace.script("Another answer."))
    assert (answered.code, without_marker(answered.out)) == (0, "Another answer.\n")
    assert workspace.kinds(session_id)[-1] == "assistant_response"


def test_a_fork_of_an_ended_session_stops_before_its_end(workspace: Program) -> None:
    session_id = workspace.session(*TALK, ev.SessionEnd())
    forked = workspace("session", "fork", session_id).out.strip()
    assert workspace.kinds(forked)[-1] == "assistant_response"


@pytest.mark.parametrize(("place", "code"), [("01TEST@x", 2), ("01TEST@", 2), ("01TEST@99", 1), ("gone@1", 1)])
def test_a_place_that_is_none_cannot_be_forked(place: str, code: int, workspace: Program) -> None:
    workspace.session(*TALK)
    assert workspace("session", "fork", place).code == code
    assert len(workspace.sessions()) == 1


def test_export_writes_markdown_that_nothing_inside_can_break(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    assert workspace("session", "export", session_id).out == (
        "# A session with assistant\n\n"
        f"`{session_id}`, begun 2126-01-01 00:00:01 UTC, 3 messages, 220 in, 30 out, $0.7500.\n\n"
        "## You\n\n> What is a fold?\n\n"
        "## assistant\n\n> Let me look.\n\n**search  for=fold** (ok)\n\n"
        "````\na ``` fence\nand \\x1b[31mmore\n````\n\n"
        "## assistant\n\n> A *fold* is\n> a sum.\n"
    )


def test_an_export_that_could_not_be_written_leaves_no_file(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        done = workspace("session", "export", session_id, "--output", "talk.md")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert done == (1, "", "error  talk.md: File too large\n")
    assert not (workspace.folder / "talk.md").exists()


def test_a_session_that_has_rested_for_too_long_is_listed_as_expired(workspace: Program) -> None:
    workspace.session(*TALK, session_id="session_01A", year=2020)
    workspace.session(*CUT, session_id="session_01B", year=2020)
    listed = json.loads(workspace("session", "list", "--format", "json").out)
    assert {each["session_id"]: each["status"] for each in listed} == {
        "session_01A": "expired",
        "session_01B": "interrupted",
    }
    (workspace.folder / "duragent.yaml").write_text("sessions: {ttl_hours: 0}\n")
    assert "resting" in workspace("session", "show", "01A").out


def test_what_has_no_known_price_is_not_free(workspace: Program) -> None:
    session_id = workspace.session(
        ev.UserMessage("Hi"),
        ev.ModelCalled("openai/nobody-knows"),
        ev.AssistantResponse("assistant", "Hello.", usage=ev.Usage(100, 10, 110)),
    )
    assert "used       100 in, 10 out, price unknown" in workspace("session", "show", session_id).out
    assert json.loads(workspace("session", "show", session_id, "--format", "json").out)["cost_usd"] is None
    (workspace.folder / "duragent.yaml").write_text("prices: {nobody-knows: [0, 0]}\n")
    assert "used       100 in, 10 out, $0.00" in workspace("session", "show", session_id).out


def test_the_log_says_where_events_are_no_longer_kept(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    (workspace.folder / "duragent.yaml").write_text("sessions: {ttl_hours: 0}\n")

    async def compact() -> None:
        store = FileStore(workspace.folder / ".duragent/sessions")
        log, stored = store.open(session_id, lambda entries: None)
        await log.snapshot(stored.session, "discard")
        await log.release()
        store.close()

    asyncio.run(compact())
    workspace("run", "assistant", "More", "--session", session_id, "--model", workspace.script("Here."))
    lines = workspace("session", "log", session_id).out.splitlines()
    assert lines[0] == "       (7 events before this: no longer kept)"
    assert lines[1].split()[0] == "8"


def test_export_writes_json_into_a_file_of_its_owner(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    done = workspace("session", "export", session_id, "--format", "json", "--output", "talk.json")
    assert done == (0, "written  talk.json\n", "")
    found = json.loads((workspace.folder / "talk.json").read_text())
    assert [message["role"] for message in found["messages"]] == ["user", "assistant", "assistant"]
    assert found["messages"][1]["calls"] == [
        {
            "call_id": "c1",
            "tool_name": "search",
            "arguments": {"for": "fold"},
            "outcome": "ok",
            "success": True,
            "content": "a ``` fence\nand \x1b[31mmore",
        }
    ]
    assert stat.S_IMODE(os.stat("talk.json").st_mode) == 0o600
    again = workspace("session", "export", session_id, "--output", "talk.json")
    assert again == (1, "", "error  talk.json exists already; name another file\n")


def test_delete_takes_a_session_away_only_with_yes_where_nobody_can_be_asked(workspace: Program) -> None:
    session_id = workspace.session(*TALK)
    refused = workspace("session", "delete", session_id)
    assert (refused.code, workspace.sessions()) == (2, [session_id])
    assert "needs --yes" in refused.err
    assert workspace("session", "delete", session_id, "--yes") == (0, f"deleted  {session_id}\n", "")
    assert workspace.sessions() == []


def commands() -> list[tuple[str, click.Command]]:
    """Every command with its whole name, those in groups too."""
    found: list[tuple[str, click.Command]] = []
    context = click.Context(cli.main)
    for name in cli.COMMANDS:
        command = cli.main.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            inner = [(f"{name} {each}", command.get_command(context, each)) for each in command.list_commands(context)]
            found += [(whole, each) for whole, each in inner if each is not None]
        else:
            found.append((name, command))
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=lambda each: each if isinstance(each, str) else "")
def test_a_command_is_documented_with_all_its_options_and_has_an_example(name: str, command: click.Command) -> None:
    text = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
    assert f"duragent {name}" in text
    section = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    options = [each for option in command.params for each in option.opts if each.startswith("--")]
    assert [option for option in options if option not in section] == []
    assert f"duragent {name}" in str(command.help)
