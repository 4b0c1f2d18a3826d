"""May a call run? Trust and abilities first, deny beats allow, the owner's word beats the agent's, the mode decides."""

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duragent.agent import Abilities, Agent, Notify, Origin, Policy, PolicyTier, Skill, Trust
from duragent.cli.policies import BUILTINS
from duragent.core.events import ToolCall
from duragent.core.lines import Shelf, Simple
from duragent.core.patterns import compile_rule, escape
from duragent.core.policy import Judge, ToolSpec, Verdict, command, digest, effect_of, words

TOOL = ToolSpec("lookup")
CALL = ToolCall("c1", "lookup", {"for": "x"})
BASH = ToolSpec("bash", line="command", needs=("sh",))
WEB = ToolSpec("web", detail=("url", "query"), needs=("network",))
PROCESS = ToolSpec(
    "background_process", line="command", detail=("keys", "input", "handle"), quiet=("list",), needs=("sh",)
)
LEDGER = ToolSpec("ledger", kind="cli")
ISSUES = ToolSpec("mcp__github__issues", kind="mcp", subject="mcp:github:issues")


def judge(
    mode: Any = None, allow: tuple[str, ...] = (), deny: tuple[str, ...] = (), *, workdir: str = "", **more: Any
) -> Judge:
    tier = PolicyTier(mode, allow, deny)
    return Judge(Agent(name="a", policy=Policy(agent=tier), **more), workdir=workdir)


def sh(line: str, **more: Any) -> ToolCall:
    return ToolCall("c1", "bash", {"command": line, **more})


def call(spec: ToolSpec, **arguments: Any) -> ToolCall:
    return ToolCall("c1", spec.name, arguments)


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
        (PolicyTier("restrict", allow=("lookup",)), None, Verdict("allow", "lookup")),
        (PolicyTier("dangerous", deny=("lookup",)), None, Verdict("deny", "lookup")),
        (PolicyTier("ask", allow=("*",), deny=("l*",)), None, Verdict("deny", "l*")),
        (PolicyTier(deny=("lookup",)), PolicyTier(allow=("lookup",)), Verdict("deny", "lookup")),
        (PolicyTier(allow=("lookup",)), PolicyTier(deny=("builtin:*",)), Verdict("deny", "builtin:*")),
        (PolicyTier("ask", deny=("web", "LOOKUP", "look")), None, Verdict("ask", "mode: ask")),
        (PolicyTier("ask", allow=("cli:lookup", "bash:lookup")), None, Verdict("ask", "mode: ask")),
    ],
)
def test_who_decides(agent: PolicyTier | None, local: PolicyTier | None, expected: Verdict) -> None:
    assert Judge(Agent(name="a", policy=Policy(agent, local))).verdict(TOOL, CALL) == expected


def test_the_workspace_speaks_last_about_the_mode_and_as_loudly_as_the_others_about_rules() -> None:
    workspace = PolicyTier("restrict", ("builtin:web",), ("builtin:lookup",))
    found = Judge(Agent(name="a", policy=Policy(PolicyTier("ask"), None, workspace)))
    assert found.verdict(TOOL, CALL) == Verdict("deny", "builtin:lookup")
    assert found.verdict(WEB, call(WEB)) == Verdict("allow", "builtin:web")
    assert found.verdict(LEDGER, call(LEDGER)) == Verdict("ask", "mode: ask")
    assert Judge(Agent(name="a", policy=Policy(workspace=workspace))).verdict(LEDGER, call(LEDGER)).verdict == "deny"


def test_a_verdict_says_where_its_rule_was_written() -> None:
    at = {
        "policy.agent.mode": Origin("policy.yaml", 1, 7),
        "policy.agent.allow[1]": Origin("policy.yaml", 4, 5),
        "policy.local.deny[0]": Origin("policy.local.yaml", 2, 5),
        "trust.network": Origin("x.agent", 9, 3),
    }
    policy = Policy(PolicyTier("ask", ("cli:x", "cli:ledger")), PolicyTier(deny=("bash:rm *",)))
    found = Judge(Agent(name="a", policy=policy, origins=at, trust=Trust(exec="full", filesystem="full")))
    assert found.verdict(LEDGER, call(LEDGER)) == Verdict("allow", "cli:ledger", at["policy.agent.allow[1]"])
    assert found.verdict(BASH, sh("rm x")) == Verdict("deny", "bash:rm *", at["policy.local.deny[0]"])
    assert found.verdict(TOOL, CALL) == Verdict("ask", "mode: ask", at["policy.agent.mode"])
    assert found.verdict(WEB, call(WEB)) == Verdict("deny", "trust.network: none", at["trust.network"])


def test_a_tool_that_needs_no_asking_says_so_where_no_policy_says_a_mode() -> None:
    add = ToolSpec("add", kind="function", unruled="allow")
    assert Judge(Agent(name="a")).verdict(add, CALL) == Verdict("allow", "no policy says a mode")
    assert judge("ask").verdict(add, CALL) == Verdict("ask", "mode: ask")


@pytest.mark.parametrize(
    ("mode", "action", "expected"),
    [
        (None, "list", "allow"),
        ("ask", "list", "allow"),
        ("restrict", "list", "deny"),
        ("dangerous", "list", "allow"),
        (None, "kill", "ask"),
        ("ask", "kill", "ask"),
    ],
)
def test_what_touches_only_the_agents_own_is_asked_about_in_no_mode(mode: Any, action: str, expected: str) -> None:
    assert judge(mode).verdict(PROCESS, call(PROCESS, action=action)).verdict == expected
    assert judge(mode, deny=("builtin:background_process",)).verdict(PROCESS, call(PROCESS, action=action)).verdict == (
        "deny"
    )


@pytest.mark.parametrize(
    ("kind", "pattern", "fits"),
    [
        ("builtin", "builtin:lookup", True),
        ("function", "builtin:lookup", True),
        ("cli", "cli:lookup", True),
        ("cli", "builtin:lookup", False),
        ("mcp", "mcp:*", True),
        ("mcp", "lookup", True),
        ("script", "script:lookup", True),
        ("script", "*:lookup", True),
    ],
)
def test_a_pattern_may_say_which_kind_of_tool_it_means(kind: Any, pattern: str, fits: bool) -> None:
    verdict = judge("ask", deny=(pattern,)).verdict(ToolSpec("lookup", kind=kind), CALL)
    assert (verdict.verdict == "deny") is fits


@pytest.mark.parametrize(
    ("spec", "arguments", "rule", "allowed"),
    [
        (WEB, {"action": "fetch", "url": "https://x/y"}, "builtin:web", True),
        (WEB, {"action": "fetch", "url": "https://x/y"}, "builtin:web:fetch", True),
        (WEB, {"action": "fetch", "url": "https://x/y"}, "builtin:web:search", False),
        (WEB, {"action": "fetch", "url": "https://x/y"}, "builtin:web:fetch https://x/*", True),
        (WEB, {"action": "fetch", "url": "https://z/y"}, "builtin:web:fetch https://x/*", False),
        (WEB, {"action": "fetch", "url": "https://x/y"}, "web:fetch *", True),
        (TOOL, {"for": "x"}, 'builtin:lookup {"for":"x"}', True),
        (TOOL, {"for": "y"}, 'builtin:lookup {"for":"x"}', False),
        (LEDGER, {"args": ["add", "5"]}, "cli:ledger", True),
        (LEDGER, {"args": ["add", "5"]}, "cli:ledger add *", True),
        (LEDGER, {"args": ["add 5"]}, "cli:ledger add 5", False),
        (LEDGER, {"args": ["add 5"]}, "cli:ledger 'add 5'", True),
        (LEDGER, {"args": ["del", "5"]}, "cli:ledger add *", False),
        (LEDGER, {"input": {"sum": 5}}, 'cli:ledger {"input":{"sum":5}}', True),
        (ISSUES, {"n": 1}, "mcp:github:issues", True),
        (ISSUES, {"n": 1}, "mcp:github:*", True),
        (ISSUES, {"n": 1}, 'mcp:github:issues {"n":1}', True),
        (ISSUES, {"n": 1}, "mcp:gitlab:*", False),
    ],
)
def test_what_a_rule_about_a_tool_speaks_of(spec: ToolSpec, arguments: Any, rule: str, allowed: bool) -> None:
    verdict = judge("ask", (rule,)).verdict(spec, call(spec, **arguments))
    assert verdict == (Verdict("allow", rule) if allowed else Verdict("ask", "mode: ask"))


def test_a_deny_rule_sees_arguments_however_they_are_cut_into_words() -> None:
    found = judge("dangerous", deny=("cli:git push --force*",))
    git = ToolSpec("git", kind="cli")
    assert found.verdict(git, call(git, args=["push", "--force"])).verdict == "deny"
    assert found.verdict(git, call(git, args=["push --force"])).verdict == "deny"
    assert found.verdict(git, call(git, args=["status"])).verdict == "allow"


def test_a_line_in_the_background_is_judged_like_any_other() -> None:
    spawn = call(PROCESS, action="spawn", command="make watch")
    assert judge("ask", ("builtin:background_process*", "builtin:*")).verdict(PROCESS, spawn).verdict == "ask"
    assert judge("ask", ("bash:make watch",)).verdict(PROCESS, spawn) == Verdict("allow", "bash:make watch")
    assert judge("ask", ("bash:*",), ("builtin:background_process:spawn",)).verdict(PROCESS, spawn).verdict == "deny"
    assert judge("dangerous", deny=("bash:make *",)).verdict(PROCESS, spawn).verdict == "deny"


def test_in_another_folder_a_relative_redirection_is_not_permitted() -> None:
    spawn = call(PROCESS, action="spawn", command="ls > pre-commit", workdir=".git/hooks")
    assert judge("ask", ("bash:ls",)).verdict(PROCESS, spawn).verdict == "ask"


def test_text_typed_into_a_program_needs_a_rule_of_its_own() -> None:
    typed = call(PROCESS, action="write", handle="h", input="rm -rf x\n")
    assert judge("ask", ("builtin:background_process", "builtin:*", "bash:*")).verdict(PROCESS, typed).verdict == "ask"
    assert judge("ask", ("builtin:background_process:write",)).verdict(PROCESS, typed).verdict == "allow"
    assert judge("ask", ("builtin:background_process:write",), ("bash:rm *",)).verdict(PROCESS, typed) == Verdict(
        "deny", "bash:rm *"
    )


@pytest.mark.parametrize(
    ("action", "more"), [("write", {"input": "rm x\n"}), ("send_keys", {"keys": "rm x"}), ("kill", {}), ("wait", {})]
)
def test_a_line_counts_only_for_the_action_that_runs_it(action: str, more: Any) -> None:
    decoy = call(PROCESS, action=action, handle="h", command="ls", **more)
    found = judge("ask", ("bash:ls", "bash:*", 'builtin:bash {"command":"ls"}'))
    assert found.verdict(PROCESS, decoy) == Verdict("ask", "mode: ask")
    assert judge("ask", (f"builtin:background_process:{action}",)).verdict(PROCESS, decoy).verdict == "allow"
    assert judge("dangerous", deny=("bash:ls",)).verdict(PROCESS, decoy).verdict == "deny"


def test_a_deny_rule_for_bash_sees_every_text_of_a_call() -> None:
    typed = call(PROCESS, action="send_keys", handle="h", keys=["rm", "x"], note={"why": ["sudo y"]})
    for rule in ("bash:rm *", "bash:sudo *"):
        assert judge("dangerous", deny=(rule,)).verdict(PROCESS, typed) == Verdict("deny", rule)


def test_an_action_means_nothing_to_a_tool_that_has_none() -> None:
    assert judge("ask", ("builtin:bash",)).verdict(BASH, sh("rm x", action="list")).verdict == "ask"


def test_a_program_with_a_terminal_needs_a_rule_that_names_the_action() -> None:
    asked = call(PROCESS, action="spawn", command="git log", interactive=True)
    why = "it gets a terminal, where many programs can run others; a rule must name that action"
    for rules in (("bash:*",), ("bash:git log", "builtin:background_process"), ("bash:git log", "*")):
        assert judge("ask", rules).verdict(PROCESS, asked) == Verdict("ask", "mode: ask", None, why)
    named = "builtin:background_process:spawn*"
    assert judge("ask", ("bash:git log", named)).verdict(PROCESS, asked) == Verdict("allow", "bash:git log")
    assert judge("ask", (named,)).verdict(PROCESS, asked).verdict == "ask"
    quiet = call(PROCESS, action="spawn", command="git log", interactive=False)
    assert judge("ask", ("bash:git log",)).verdict(PROCESS, quiet).verdict == "allow"


def test_another_folder_is_judged_like_a_line_that_goes_there() -> None:
    asked = call(PROCESS, action="spawn", command="make", workdir="web")
    assert judge("ask", ("bash:make",)).verdict(PROCESS, asked) == Verdict(
        "ask", "mode: ask", None, "`cd web` is not allowed by any rule"
    )
    assert judge("ask", ("bash:make", "bash:cd web")).verdict(PROCESS, asked).verdict == "allow"
    assert judge("dangerous", deny=("bash:cd web",)).verdict(PROCESS, asked).verdict == "deny"


def test_a_line_that_is_no_text_is_never_allowed() -> None:
    odd = ToolCall("c1", "bash", {"command": ["rm", "x"]})
    assert judge("ask", ("bash:*", "builtin:bash", "*")).verdict(BASH, odd).verdict == "ask"


@pytest.mark.parametrize(
    ("trust", "spec", "rule"),
    [
        (Trust(filesystem="full", network="allowed"), BASH, "trust.exec: none"),
        (Trust(filesystem="full", network="allowed"), LEDGER, "trust.exec: none"),
        (Trust(filesystem="full", network="allowed"), ToolSpec("s", kind="script"), "trust.exec: none"),
        (Trust(filesystem="full", exec="full"), WEB, "trust.network: none"),
        (Trust(network="allowed", exec="full"), ToolSpec("files", needs=("fs",)), "trust.filesystem: none"),
    ],
)
def test_no_rule_gives_more_than_trust(trust: Trust, spec: ToolSpec, rule: str) -> None:
    assert judge("dangerous", ("*", "bash:*"), trust=trust).verdict(spec, call(spec)) == Verdict("deny", rule)


@pytest.mark.parametrize(
    ("abilities", "spec", "line", "rule"),
    [
        (Abilities(("fs",)), BASH, "ls", "abilities: no sh"),
        (Abilities(("sh",)), BASH, "ls", None),
        (Abilities(("*",)), BASH, "ls", None),
        (Abilities(("*",), ("sh",)), BASH, "ls", "abilities: deny sh"),
        (Abilities(("sh",)), LEDGER, "", "abilities: no tool"),
        (Abilities(("sh",)), ISSUES, "", "abilities: no mcp"),
        (Abilities(("sh",)), WEB, "", "abilities: no network"),
        (Abilities(("sh:git",)), BASH, "git status", None),
        (Abilities(("sh:git",)), BASH, "git status; ls", "abilities: no sh:ls"),
        (Abilities(("sh:git",)), BASH, "/tmp/git status", "abilities: no sh:/tmp/git"),
        (Abilities(("sh:git",)), BASH, "git log | sh", "abilities: no sh:sh"),
        (Abilities(("sh:git",)), BASH, "$x status", "abilities: no sh:…"),
        (Abilities(("sh:git",)), BASH, "git status 'x", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "git -c alias.x='!rm y' x", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "GIT_SSH_COMMAND=rm git fetch", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "PATH=/tmp; git status", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "git x/evil", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "git status > .git/hooks/x", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "git status > ../x", "abilities: single programs only"),
        (Abilities(("sh:git",)), BASH, "git status > x 2>&1", None),
        (Abilities(("sh:git",)), BASH, "git commit -m x && git log -n 3", None),
        (Abilities(("sh",), ("sh:rm",)), BASH, "find . -delete", "abilities: single programs only"),
        (Abilities(("sh",), ("sh:rm",)), BASH, "X=1 ls", "abilities: single programs only"),
        (Abilities(("sh",), ("sh:rm",)), BASH, "ls", None),
        (Abilities(("sh",), ("sh:rm",)), BASH, "ls; /bin/rm x", "abilities: deny sh:rm"),
        (Abilities(("sh",), ("sh:rm",)), BASH, "$x", "abilities: single programs only"),
    ],
)
def test_no_rule_gives_more_than_the_abilities(
    abilities: Abilities, spec: ToolSpec, line: str, rule: str | None
) -> None:
    asked = sh(line) if spec is BASH else call(spec)
    found = judge("dangerous", abilities=abilities).verdict(spec, asked)
    assert (found.verdict, found.rule) == (("deny", rule) if rule else ("allow", "mode: dangerous"))


@pytest.mark.parametrize(
    ("allowed", "spec", "arguments", "fits"),
    [
        (("Bash(git *)",), BASH, {"command": "git status"}, True),
        (("Bash(git:*)",), BASH, {"command": "git"}, True),
        (("Bash(git:*)",), BASH, {"command": "git status && git log"}, True),
        (("Bash(git:*)",), BASH, {"command": "gitk"}, False),
        (("Bash(git *)",), BASH, {"command": "git status; rm x"}, False),
        (("Bash(git *)",), BASH, {"command": "git -c a=b log"}, False),
        (("Bash(git *)",), BASH, {"command": "git $(x"}, False),
        (("bash",), BASH, {"command": "rm x; $y"}, True),
        (("Web",), WEB, {"action": "fetch"}, True),
        (("Web(fetch)",), WEB, {"action": "fetch"}, True),
        (("Web(fetch)",), WEB, {"action": "search"}, False),
        (("Web",), BASH, {"command": "ls"}, False),
        (("ledger",), LEDGER, {"args": []}, True),
        (("mcp__github__issues",), ISSUES, {}, True),
        (("mcp__github__pulls",), ISSUES, {}, False),
        ((), LEDGER, {}, False),
        ((), ToolSpec("skill"), {}, True),
        ((), ToolSpec("tool_help"), {}, True),
    ],
)
def test_a_skill_narrows_what_may_be_called(
    allowed: tuple[str, ...], spec: ToolSpec, arguments: Any, fits: bool
) -> None:
    found = judge("dangerous").verdict(spec, call(spec, **arguments), Skill("review", allowed_tools=allowed))
    listed = ", ".join(allowed) or "no tools"
    assert (found.verdict, found.rule) == (
        ("allow", "mode: dangerous") if fits else ("deny", f"skill review allows only {listed}")
    )


def test_a_skill_only_narrows() -> None:
    skill = Skill("review", allowed_tools=("bash",))
    assert judge("ask").verdict(BASH, sh("ls"), skill) == Verdict(
        "ask", "mode: ask", None, "`ls` is not allowed by any rule"
    )
    assert judge("dangerous").verdict(LEDGER, call(LEDGER), Skill("free")) == Verdict("allow", "mode: dangerous")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ls $(rm x)", "`rm x` is not allowed by any rule"),
        ("X=1 ls", "no rule writes out `X=` for `X=1 ls`"),
        ("git -c a=b log", "`-c` in `git -c a=b log` can do more than the rule says; a rule must write it out"),
        ("ls > /etc/x", "`> /etc/x` is outside the working folder"),
        ("cd x && ls > y", "`> y` is after a change of folder"),
        ("ls > $x", "where `> …` leads is only known when it runs"),
        ("ls > .git/config", "`> .git/config` is a file that decides what runs"),
        ("ls | sh", "this line cannot be read with certainty: a shell takes its commands from its input"),
        ("$x", "this line cannot be read with certainty: which program runs is only known when it runs"),
        ("ls 'x", "this line cannot be read with certainty: it is not a whole and plain shell line"),
        ("ls\u200b", "this line cannot be read with certainty: it holds a letter that cannot be seen (U+200B)"),
    ],
)
def test_a_person_is_told_what_no_rule_allows(line: str, why: str) -> None:
    found = judge("ask", ("bash:ls", "bash:ls *", "bash:git *", "bash:cd *", "bash:sh"), workdir="/w")
    assert found.verdict(BASH, sh(line)) == Verdict("ask", "mode: ask", None, why)


@pytest.mark.parametrize(
    ("spec", "arguments", "rule"),
    [
        (BASH, {"command": "git push origin main"}, "bash:git push origin main"),
        (BASH, {"command": "ls *.py | wc -l"}, "bash:ls \\*.py | wc -l"),
        (BASH, {"command": "ls", "timeout_seconds": 5}, 'builtin:bash {"command":"ls","timeout_seconds":5}'),
        (WEB, {"action": "fetch", "url": "https://x"}, 'builtin:web:fetch {"action":"fetch","url":"https://x"}'),
        (WEB, {"action": "search", "query": "a*b"}, 'builtin:web:search {"action":"search","query":"a\\*b"}'),
        (WEB, {"action": "search", "query": "a", "count": 3}, 'builtin:web:search {"action":"search","count":3,"query":"a"}'),
        (LEDGER, {"args": ["add", "5 €"]}, "cli:ledger add '5 €'"),
        (LEDGER, {}, "cli:ledger {}"),
        (LEDGER, {"args": ["add"], "input": {"n": 1}}, 'cli:ledger {"args":["add"],"input":{"n":1}}'),
        (PROCESS, {"command": "make watch", "action": "spawn"}, "bash:make watch"),
        (PROCESS, {"command": "vi", "action": "spawn", "interactive": True},
         'builtin:background_process:spawn {"action":"spawn","command":"vi","interactive":true}'),
        (PROCESS, {"command": "make", "action": "spawn", "workdir": "web"},
         'builtin:background_process:spawn {"action":"spawn","command":"make","workdir":"web"}'),
        (ToolSpec("transfer", kind="function"), {"amount": 5}, 'builtin:transfer {"amount":5}'),
        (ISSUES, {"n": 1}, 'mcp:github:issues {"n":1}'),
        (PROCESS, {"action": "kill", "handle": "h1"},
         'builtin:background_process:kill {"action":"kill","handle":"h1"}'),
        (PROCESS, {"action": "write", "handle": "h1", "input": "y\n"},
         'builtin:background_process:write {"action":"write","handle":"h1","input":"y\\n"}'),
    ],
)  # fmt: skip
def test_an_exact_rule_allows_this_call_at_once_and_no_other(spec: ToolSpec, arguments: Any, rule: str) -> None:
    found, asked = judge("restrict"), call(spec, **arguments)
    assert found.exact(spec, asked) == rule
    found.allow(rule, Origin("policy.local.yaml", 3, 5))
    assert found.verdict(spec, asked) == Verdict("allow", rule, Origin("policy.local.yaml", 3, 5))
    name = next(iter(arguments), "args")
    other = call(spec, **{**arguments, name: ["more"] if spec is LEDGER else f"{arguments.get(name)} more"})
    assert found.verdict(spec, other).verdict == "deny"


NAMES = ("action", "command", "url", "query", "name", "args", "input", "handle", "keys", "workdir", "count", "topic")
VALUES = st.sampled_from(
    ["fetch", "run", "spawn", "x", "x y", "5", "", 5, True, None, ["x"], ["x", "y"], {"x": 1}, "*"]
)
ARGUMENTS = st.dictionaries(
    st.sampled_from(NAMES), VALUES | st.sampled_from(['{"action":"x"}', "x [y=1]", "{}"]), max_size=4
)
KNOWN = [*BUILTINS.values(), LEDGER, ISSUES, ToolSpec("transfer", kind="function")]


@settings(max_examples=400)
@given(st.sampled_from(KNOWN), ARGUMENTS, ARGUMENTS, st.booleans())
def test_what_an_exact_rule_allows_is_the_very_call(spec: ToolSpec, one: Any, other: Any, near: bool) -> None:
    other = {**one, **other} if near else other
    found = judge("restrict")
    found.allow(found.exact(spec, call(spec, **one)))
    assert found.verdict(spec, call(spec, **one)).verdict == "allow" or not isinstance(one.get(spec.line, ""), str)
    if found.verdict(spec, call(spec, **other)).verdict == "allow":
        assert other == one or (bool(spec.line) and same_line(one, other))


def same_line(one: Any, other: Any) -> bool:
    """Rules for bash speak of lines: of one that runs here without a terminal, what else is said changes nothing."""
    said = {"command", "workdir", "interactive"}
    runs = one.get("action", "spawn") == other.get("action", "spawn") == "spawn"
    return runs and {k: v for k, v in one.items() if k in said} == {k: v for k, v in other.items() if k in said and v}


def test_a_rule_holds_at_once_for_a_command_that_was_judged_before() -> None:
    found = judge("ask", ("bash:git log *",))
    assert found.verdict(BASH, sh("ls x && git log -3")).verdict == "ask"
    found.allow("bash:ls *")
    assert found.verdict(BASH, sh("ls x && git log -3")) == Verdict("allow", "bash:ls *")
    assert found.verdict(BASH, sh("ls y")) == Verdict("allow", "bash:ls *")


def test_of_several_rules_the_first_one_written_decides() -> None:
    rules = ("bash:l*", "bash:ls *", "bash:* x", "bash:ls x", "bash:git *", "bash:cat *")
    for order in permutations(rules, len(rules)):
        shelf = Shelf([compile_rule(each) for each in order])
        near = [each for each in order if each not in ("bash:git *", "bash:cat *")]
        assert [rule.text for rule in shelf.near(Simple(("ls", "x")))] == near
        assert (found := shelf.covering(Simple(("ls", "x")))) is not None
        assert found.text == near[0]
        assert shelf.covering(Simple(("ls", "x"))) is found


@given(st.text())
def test_an_escaped_text_is_a_pattern_for_itself_alone(text: str) -> None:
    rule = compile_rule(f"bash:{escape(text)}")
    assert (rule.literal, rule.matches(text), rule.matches(text + "x")) == (text, True, False)


@given(st.lists(st.text(st.sampled_from("ab *"), max_size=3), min_size=1, max_size=5), st.text(st.sampled_from("ab *")))
def test_a_pattern_matches_what_its_pieces_say(pieces: list[str], text: str) -> None:
    rule = compile_rule("bash:" + "*".join(map(escape, pieces)))
    assert rule.matches(text) is naive(pieces, text)


def naive(pieces: list[str], text: str) -> bool:
    """The same by trying every split."""
    if len(pieces) == 1:
        return text == pieces[0]
    return text.startswith(pieces[0]) and any(
        naive(pieces[1:], text[at:]) for at in range(len(pieces[0]), len(text) + 1)
    )


def test_a_pattern_of_many_stars_is_matched_in_linear_time() -> None:
    assert not compile_rule("bash:" + "*a" * 2_000 + "b").matches("a" * 20_000)


def test_who_is_told_of_a_call() -> None:
    log, hook = {"type": "log"}, {"type": "webhook", "url": "https://x"}
    workspace = PolicyTier("ask", notify=Notify(True, ("bash:rm *",), (hook,)))
    local = PolicyTier(notify=Notify(True))
    off = PolicyTier(notify=Notify(False, (), (hook,)))
    found = Judge(Agent(name="a", policy=Policy(off, local, workspace)))
    assert found.notified(BASH, sh("ls; rm x")) == (log, hook)
    assert found.notified(BASH, sh("ls")) == (log,)
    assert Judge(Agent(name="a", policy=Policy(workspace=workspace))).notified(TOOL, CALL) == ()


def test_an_agents_own_file_has_nobody_called_on_the_network() -> None:
    log, hook = {"type": "log"}, {"type": "webhook", "url": "https://x"}
    own = PolicyTier("ask", notify=Notify(True, (), (hook, log)))
    only = PolicyTier("ask", notify=Notify(True, (), (hook,)))
    assert Judge(Agent(name="a", policy=Policy(own))).notified(TOOL, CALL) == (log,)
    assert Judge(Agent(name="a", policy=Policy(only))).notified(TOOL, CALL) == (log,)
    assert Judge(Agent(name="a", policy=Policy(own, only))).notified(TOOL, CALL) == (hook, log)


def test_how_long_a_question_waits_is_kept_for_whoever_asks() -> None:
    assert Judge(Agent(name="a"), patience=timedelta(hours=1)).patience == timedelta(hours=1)


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


@pytest.mark.parametrize(
    ("spec", "arguments", "read"),
    [
        (ToolSpec("pay"), {"to": "Ada\nBob", "sum": 5}, 'pay {"sum":5,"to":"Ada\\nBob"}'),
        (ToolSpec("look"), None, "look {}"),
        (BASH, {"command": "ls -l | wc"}, "ls -l | wc"),
        (BASH, {"command": "ls -l | wc", "timeout_seconds": 5}, "ls -l | wc\n[timeout_seconds=5]"),
        (PROCESS, {"action": "spawn", "command": "npm test"}, "npm test"),
        (PROCESS, {"action": "spawn", "command": "npm test", "workdir": "evil", "interactive": True},
         "npm test\n[interactive=true workdir=evil]"),
        (PROCESS, {"action": "spawn", "command": "ls", "label": "a ]\u202e"}, 'ls\n[label="a ]\\u202e"]'),
        (PROCESS, {"action": "write", "handle": "h", "input": "rm x", "command": "ls"},
         'background_process {"action":"write","command":"ls","handle":"h","input":"rm x"}'),
        (LEDGER, {"args": ["add"], "input": {"n": 1}}, 'ledger {"args":["add"],"input":{"n":1}}'),
        (BASH, {"command": "ls \u202etxt\x1b[2K\u200b"}, "ls \\u202etxt\\x1b[2K\\u200b"),
        (BASH, {"command": "ls\r\nrm x"}, "ls\\x0d\nrm x"),
        (BASH, {"command": "ls  [timeout_seconds=5]"}, "ls  [timeout_seconds=5]"),
        (BASH, {"command": "ls\n[timeout_seconds=5]"}, "ls\n[timeout_seconds=5]\n[nothing else]"),
        (BASH, {"command": "ls\n [a=5] \n", "b": 1}, "ls\n [a=5] \n\n[b=1]"),
        (BASH, {"command": "a\u00a0b\ufe0f\u034f\u3000\U000e0100"}, "a\\xa0b\\ufe0f\\u034f\\u3000\\U000e0100"),
        (LEDGER, {"args": ["add", "5 €"]}, "ledger add '5 €'"),
        (LEDGER, {"input": {"sum": 5}}, 'ledger {"input":{"sum":5}}'),
        (PROCESS, {"action": "list"}, 'background_process {"action":"list"}'),
    ],
)  # fmt: skip
def test_a_person_reads_the_whole_call_and_nothing_in_it_is_hidden(spec: ToolSpec, arguments: Any, read: str) -> None:
    assert command(spec, ToolCall("c1", spec.name, arguments)) == read


def test_a_long_call_is_not_cut() -> None:
    line = "echo " + "x" * 10_000 + "; rm y"
    assert command(BASH, sh(line)) == line


def test_the_arguments_of_a_program_are_a_list_of_texts() -> None:
    assert words(call(LEDGER, args=["a", "b c"])) == ("a", "b c")
    assert words(call(LEDGER)) == ()
    assert words(call(LEDGER, args="a b")) is None
    assert words(call(LEDGER, args=[1])) is None


def test_actions_of_one_tool_may_differ_in_their_effect() -> None:
    spec = ToolSpec("memory", effect="unknown", effects={"recall": "pure"})
    assert [effect_of(spec, call(spec, action=each)) for each in ("recall", "remember")] == ["pure", "unknown"]
    assert effect_of(ToolSpec("pay", effect="once"), CALL) == "once"
