"""policy test and policy replay: which rule decides, where it stands, and what another policy would change."""

import json
from pathlib import Path

import pytest

from duragent.core import events as ev
from tests.cli.workspace import Program

POLICY = """\
mode: ask
allow:
  - "bash:git status"
  - "builtin:web:fetch https://example.com/*"
  - "cli:ledger add *"
deny:
  - "bash:rm *"
"""


@pytest.fixture
def ruled(workspace: Program) -> Program:
    """A workspace whose agent has a policy."""
    (agent_of(workspace) / "policy.yaml").write_text(POLICY, encoding="utf-8")
    return workspace


def agent_of(workspace: Program) -> Path:
    return workspace.folder / ".duragent" / "agents" / "assistant"


@pytest.mark.parametrize(
    ("subject", "verdict", "rule", "line"),
    [
        ("bash:git status", "allow", "bash:git status", 3),
        ("bash:git push", "ask", "mode: ask", 1),
        ("bash:git status; rm x", "deny", "bash:rm *", 7),
        ("builtin:web:fetch https://example.com/x", "allow", "builtin:web:fetch https://example.com/*", 4),
        ("builtin:web:search x", "ask", "mode: ask", 1),
        ("builtin:background_process:spawn git status", "allow", "bash:git status", 3),
        ("builtin:background_process:spawn rm x", "deny", "bash:rm *", 7),
        ("cli:ledger add 5", "allow", "cli:ledger add *", 5),
        ("cli:ledger remove 5", "ask", "mode: ask", 1),
        ("mcp:github:issues", "ask", "mode: ask", 1),
        ('script:tidy {"x": 1}', "ask", "mode: ask", 1),
    ],
)
def test_a_question_is_answered_with_the_rule_and_its_place(
    ruled: Program, subject: str, verdict: str, rule: str, line: int
) -> None:
    done = ruled("policy", "test", "assistant", subject, "--format", "json")
    assert (done.code, json.loads(done.out)) == (
        0,
        {"verdict": verdict, "rule": rule, "file": str(agent_of(ruled) / "policy.yaml"), "line": line},
    )


@pytest.mark.parametrize("path", ["./agent", "agent/agent.yaml", "../{here}/agent"])
def test_the_place_can_be_opened_however_the_agent_was_named(ruled: Program, path: str) -> None:
    agent_of(ruled).rename(ruled.folder / "agent")
    done = ruled("policy", "test", path.format(here=ruled.folder.name), "bash:rm x", "--format", "json")
    file = ruled.folder / "agent" / "policy.yaml"
    assert json.loads(done.out) == {"verdict": "deny", "rule": "bash:rm *", "file": str(file), "line": 7}


def test_a_person_reads_the_verdict_the_place_and_why(ruled: Program) -> None:
    done = ruled("policy", "test", "assistant", "bash:git status | sh")
    assert (done.code, done.out.splitlines()) == (
        0,
        [
            "ask  mode: ask  (.duragent/agents/assistant/policy.yaml:1)",
            "      this line cannot be read with certainty: a shell takes its commands from its input",
        ],
    )


def test_without_a_policy_a_person_is_asked(workspace: Program) -> None:
    done = workspace("policy", "test", "assistant", "bash:ls", "--format", "json")
    assert json.loads(done.out) == {"verdict": "ask", "rule": "no policy says a mode", "file": None, "line": None}


def test_the_policy_of_the_workspace_counts(workspace: Program) -> None:
    file = workspace.folder / ".duragent" / "policy.yaml"
    file.write_text('deny: ["bash:curl *"]\n', encoding="utf-8")
    done = workspace("policy", "test", "assistant", "bash:curl x", "--format", "json")
    assert json.loads(done.out) == {"verdict": "deny", "rule": "bash:curl *", "file": str(file), "line": 1}


@pytest.mark.parametrize(
    "subject", ["git push", "bash:", "web:fetch", "cli:x 'y", "mcp:a:b {", "mcp:a:b []", "builtin:tool_help x"]
)
def test_what_says_no_call_is_wrong_usage(ruled: Program, subject: str) -> None:
    done = ruled("policy", "test", "assistant", subject)
    assert (done.code, done.out) == (2, "")
    assert repr(subject) in done.err or repr(subject.partition(" ")[2]) in done.err


def test_a_broken_policy_stops_everything(workspace: Program) -> None:
    (agent_of(workspace) / "policy.yaml").write_text("mode: perhaps\n", encoding="utf-8")
    assert workspace("policy", "test", "assistant", "bash:ls").code == 1


def calls(*lines: str) -> ev.AssistantResponse:
    made = tuple(ev.ToolCall(f"c{at}", "bash", {"command": line}) for at, line in enumerate(lines, 1))
    return ev.AssistantResponse("assistant", "", made)


def test_a_changed_policy_is_tried_on_every_past_call(ruled: Program) -> None:
    ruled.session(ev.UserMessage("Go"), calls("git status", "ls", "git push"), session_id="session_01A")
    ruled.session(ev.UserMessage("Go"), calls("rm x"), session_id="session_01B")
    new = ruled.folder / "new.yaml"
    new.write_text('mode: ask\nallow: ["bash:ls"]\ndeny:\n  - "bash:git *"\n', encoding="utf-8")
    done = ruled("policy", "replay", "assistant", "--policy", "new.yaml", "--format", "json")
    shared = {"seq": 3, "file": str(new)}
    a = shared | {"session_id": "session_01A"}
    assert (done.code, json.loads(done.out)) == (
        0,
        {
            "calls": 4,
            "changes": [
                a
                | {
                    "call_id": "c1",
                    "command": "git status",
                    "before": "allow",
                    "after": "deny",
                    "rule": "bash:git *",
                    "line": 4,
                },
                a | {"call_id": "c2", "command": "ls", "before": "ask", "after": "allow", "rule": "bash:ls", "line": 2},
                a
                | {
                    "call_id": "c3",
                    "command": "git push",
                    "before": "ask",
                    "after": "deny",
                    "rule": "bash:git *",
                    "line": 4,
                },
                shared
                | {
                    "session_id": "session_01B",
                    "call_id": "c1",
                    "command": "rm x",
                    "before": "deny",
                    "after": "ask",
                    "rule": "mode: ask",
                    "line": 1,
                },
            ],
        },
    )
    text = ruled("policy", "replay", "assistant", "--policy", "new.yaml").out.splitlines()
    assert text[:2] == ["session_01A  3  allow → deny  git status", "    bash:git *  (new.yaml:4)"]
    assert text[-1] == "4 verdicts of 4 calls would change."


def test_programs_of_the_workspace_are_judged_as_programs(ruled: Program) -> None:
    program = ruled.folder / ".duragent" / "tools" / "ledger" / "run"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    made = (ev.ToolCall("c1", "ledger", {"args": ["add", "5"]}), ev.ToolCall("c2", "unknown", {"args": ["add"]}))
    ruled.session(ev.UserMessage("Go"), ev.AssistantResponse("assistant", "", made), session_id="session_01A")
    (ruled.folder / "new.yaml").write_text('mode: ask\ndeny: ["cli:*"]\n', encoding="utf-8")
    done = ruled("policy", "replay", "assistant", "--policy", "new.yaml", "--format", "json")
    changes = [(each["call_id"], each["before"], each["after"]) for each in json.loads(done.out)["changes"]]
    assert changes == [("c1", "allow", "deny")]


def test_the_same_policy_changes_nothing_and_other_agents_are_left_out(ruled: Program) -> None:
    ruled.session(ev.UserMessage("Go"), calls("git status"), session_id="session_01A")
    other = agent_of(ruled).parent / "other"
    other.mkdir()
    (other / "agent.yaml").write_text((agent_of(ruled) / "agent.yaml").read_text().replace("assistant", "other"))
    same = str(agent_of(ruled) / "policy.yaml")
    assert ruled("policy", "replay", "assistant", "--policy", same).out == "0 verdicts of 1 call would change.\n"
    assert ruled("policy", "replay", "other", "--policy", same).out == "0 verdicts of 0 calls would change.\n"


def test_a_damaged_session_is_told_and_hinders_no_other(ruled: Program) -> None:
    ruled.session(ev.UserMessage("Go"), calls("git status"), session_id="session_01A")
    ruled.session(ev.UserMessage("Go"), calls("git status"), session_id="session_01B")
    log = ruled.folder / ".duragent/sessions/session_01A/events.jsonl"
    log.write_bytes(log.read_bytes().replace(b"status", b"st4tus", 1))
    done = ruled("policy", "replay", "assistant", "--policy", str(agent_of(ruled) / "policy.yaml"))
    assert (done.code, done.out) == (0, "0 verdicts of 1 call would change.\n")
    assert "events.jsonl" in done.err


def test_a_policy_that_is_not_there_or_broken_is_told(ruled: Program) -> None:
    assert ruled("policy", "replay", "assistant", "--policy", "missing.yaml").code == 2
    (ruled.folder / "new.yaml").write_text("allow: 5\n", encoding="utf-8")
    done = ruled("policy", "replay", "assistant", "--policy", "new.yaml")
    assert done.code == 1
    assert "new.yaml" in done.err
