"""May a call run? Deny beats allow, the owner's own word beats the agent's, and the mode decides the rest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.agent import Policy, PolicyTier
from duragent.core.events import ToolCall
from duragent.core.policy import ToolSpec, Verdict, command, digest, judge

BASH = ToolSpec("bash", unruled="ask")
CALL = ToolCall("c1", "bash", {"command": "ls"})


@pytest.mark.parametrize(
    ("agent", "local", "expected"),
    [
        (None, None, Verdict("ask", "no policy says a mode")),
        (PolicyTier(), None, Verdict("ask", "no policy says a mode")),
        (PolicyTier("dangerous"), None, Verdict("allow", "mode: dangerous")),
        (PolicyTier("ask"), None, Verdict("ask", "mode: ask")),
        (PolicyTier("restrict"), None, Verdict("deny", "mode: restrict")),
        (PolicyTier("restrict"), PolicyTier("dangerous"), Verdict("allow", "mode: dangerous")),
        (PolicyTier("dangerous"), PolicyTier("restrict"), Verdict("deny", "mode: restrict")),
        (PolicyTier("dangerous"), PolicyTier(), Verdict("allow", "mode: dangerous")),
        (PolicyTier("restrict", allow=("bash",)), None, Verdict("allow", "bash")),
        (PolicyTier("dangerous", deny=("bash",)), None, Verdict("deny", "bash")),
        (PolicyTier("ask", allow=("*",), deny=("b*",)), None, Verdict("deny", "b*")),
        (PolicyTier(deny=("bash",)), PolicyTier(allow=("bash",)), Verdict("deny", "bash")),
        (PolicyTier(allow=("bash",)), PolicyTier(deny=("builtin:*",)), Verdict("deny", "builtin:*")),
        (PolicyTier("ask", deny=("web", "BASH", "ba")), None, Verdict("ask", "mode: ask")),
        (PolicyTier("ask", allow=("cli:bash",)), None, Verdict("ask", "mode: ask")),
    ],
)
def test_who_decides(agent: PolicyTier | None, local: PolicyTier | None, expected: Verdict) -> None:
    assert judge(Policy(agent, local), BASH, CALL) == expected


@pytest.mark.parametrize(
    ("kind", "pattern", "fits"),
    [
        ("builtin", "builtin:bash", True),
        ("function", "builtin:bash", True),
        ("cli", "cli:bash", True),
        ("cli", "builtin:bash", False),
        ("mcp", "mcp:*", True),
        ("mcp", "bash", True),
    ],
)
def test_a_pattern_may_say_which_kind_of_tool_it_means(kind: Any, pattern: str, fits: bool) -> None:
    policy = Policy(PolicyTier("ask", deny=(pattern,)))
    assert (judge(policy, ToolSpec("bash", kind=kind), CALL).verdict == "deny") is fits


def test_a_tool_that_needs_no_asking_says_so_where_no_policy_says_a_mode() -> None:
    assert judge(Policy(), ToolSpec("add", unruled="allow"), CALL) == Verdict("allow", "no policy says a mode")


def test_a_digest_is_of_the_tool_and_its_exact_arguments() -> None:
    same = [ToolCall(str(at), "pay", arguments) for at, arguments in enumerate([{"a": 1, "b": 2}, {"b": 2, "a": 1}])]
    others = [
        ToolCall("c", "pay", {"a": 1}),
        ToolCall("c", "pay", {"a": "1", "b": 2}),
        ToolCall("c", "pay", {"a": 1, "b": 2.5}),
        ToolCall("c", "play", {"a": 1, "b": 2}),
        ToolCall("c", "pay", None),
        ToolCall("c", "pay", {"a": [1], "b": 2}),
    ]
    assert digest(same[0]) == digest(same[1])
    assert len({digest(each) for each in [same[0], *others]}) == 7


@given(st.text(), st.text())
def test_two_calls_have_one_digest_only_if_they_are_alike(one: str, other: str) -> None:
    alike = digest(ToolCall("x", "say", {"text": one})) == digest(ToolCall("y", "say", {"text": other}))
    assert alike is (one == other)


def test_a_person_reads_the_call_in_one_line() -> None:
    call = ToolCall("c1", "pay", {"to": "Ada\nBob", "sum": 5})
    assert command(call) == 'pay {"sum":5,"to":"Ada\\nBob"}'
    assert command(ToolCall("c1", "look")) == "look {}"


def test_rules_about_a_program_see_its_arguments() -> None:
    git = ToolSpec("git", kind="cli")
    push, look = ToolCall("c1", "git", {"args": ["push", "--force"]}), ToolCall("c1", "git", {"args": ["status"]})
    policy = Policy(PolicyTier("ask", allow=("cli:git status",), deny=("cli:git push*",)))
    assert judge(policy, git, push) == Verdict("deny", "cli:git push*")
    assert judge(policy, git, look) == Verdict("allow", "cli:git status")
    assert judge(Policy(PolicyTier("ask", allow=("cli:git",))), git, push) == Verdict("allow", "cli:git")
