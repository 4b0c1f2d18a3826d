"""What a shell line runs, as we read it and as bash does: where the two could differ, we must be in doubt."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duragent.agent import Agent, Policy, PolicyTier
from duragent.core.events import ToolCall
from duragent.core.lines import SPLIT, UNKNOWN, Line
from duragent.core.policy import Judge, ToolSpec
from duragent.core.shell import DEEPEST, LONGEST, read

BASH = ToolSpec("bash", line="command")


def words(line: str) -> list[tuple[str, ...]]:
    found = read(line)
    assert found.doubts == ()
    return [(*command.assignments, *command.words) for command in found.commands]


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("ls -la", [("ls", "-la")]),
        ("", []),
        ("# only a comment", []),
        ("ls; a && b || c | d & e", [("ls",), ("a",), ("b",), ("c",), ("d",), ("e",)]),
        (r"""e 'a b' "c d" e\ f g""", [("e", "a b", "c d", "e f", "g")]),
        (r"""e a'b'"c"d""", [("e", "abcd")]),
        (r"""e "a\"b\$c\d" '\n' """, [("e", 'a"b$c\\d', "\\n")]),
        (r"e $'a\tb\x41\101\u0042'", [("e", "a\tbAAB")]),
        ("e ''", [("e", "")]),
        ("e $x ${x} \"$x\" a$x", [("e", SPLIT, SPLIT, UNKNOWN, f"a{SPLIT}")]),
        ('e "$@" "$*" $# "${x:-y}"', [("e", SPLIT, SPLIT, SPLIT, UNKNOWN)]),
        ("e *.py a*.py -*", [("e", f"{SPLIT}.py", f"a{UNKNOWN}.py", f"-{UNKNOWN}")]),
        ("e {a,b} {} HEAD@{1}", [("e", f"{SPLIT}{{a,b}}", "{}", "HEAD@{1}")]),
        ("e ~ a~ b=~/c", [("e", "~", "a~", f"b={UNKNOWN}~/c")]),
        ("X=1 Y='a b' e", [("X=1", "Y=a b", "e")]),
        ("X=1", [("X=1",)]),
        ("e $(a $(b))", [("b",), ("a", SPLIT), ("e", SPLIT)]),
        ("e `a`", [("a",), ("e", SPLIT)]),
        ("e <(a)", [("a",), ("e", f"/dev/fd/{UNKNOWN}")]),
        ("if a; then b; elif c; then d; else e; fi", [("a",), ("b",), ("c",), ("d",), ("e",)]),
        ("for i in 1 $(a); do b; done", [("a",), ("b",)]),
        ("for PATH in x; do b; done", [(f"PATH={UNKNOWN}",), ("b",)]),
        ("while a; do b; done < x", [("a",), ("b",)]),
        ("case $x in a) b;; *) c;; esac", [("b",), ("c",)]),
        ("(a; { b; })", [("a",), ("b",)]),
        ("! a", [("a",)]),
        ("e $((1+2))", [("e", UNKNOWN)]),
        ("sh -c 'a; b'", [("sh", "-c", "a; b"), ("a",), ("b",)]),
        ("sh -ec 'a'", [("sh", "-ec", "a"), ("a",)]),
        ("sh x.sh y", [("sh", "x.sh", "y")]),
        ("env -i X=1 a b", [("env", "-i", "X=1", "a", "b"), ("X=1", "a", "b")]),
        ("timeout -k 1 5 a", [("timeout", "-k", "1", "5", "a"), ("a",)]),
        ("nice -n 5 nohup a", [("nice", "-n", "5", "nohup", "a"), ("nohup", "a"), ("a",)]),
        ("xargs -n 1 a b", [("xargs", "-n", "1", "a", "b"), ("a", "b", SPLIT)]),
        ("find . -exec a x{} {} + -exec b \\;", [
            ("find", ".", "-exec", "a", "x{}", "{}", "+", "-exec", "b", ";"), ("a", f"x{UNKNOWN}", UNKNOWN), ("b",)]),
        ("eval 'a b'", [("eval", "a b"), ("a", "b")]),
        ("sudo -u me a", [("sudo", "-u", "me", "a"), ("a",)]),
        ("su -c 'a' me", [("su", "-c", "a", "me"), ("a",)]),
        ("su me -c 'a'", [("su", "me", "-c", "a"), ("a",)]),
        ("ssh -p 22 host a b", [("ssh", "-p", "22", "host", "a", "b"), ("a", "b")]),
        ("watch -n 5 a b", [("watch", "-n", "5", "a", "b"), ("a", "b")]),
        ("flock x a", [("flock", "x", "a"), ("a",)]),
        ("busybox a b", [("busybox", "a", "b"), ("a", "b")]),
        ("command -v a", [("command", "-v", "a")]),
        ("command a", [("command", "a"), ("a",)]),
        ("export X=1", [("export", "X=1")]),
        ("[ -f x ] && [[ $y == z ]] && a", [("a",)]),
        ("a <<'E'\n$(b)\nE\nc", [("a",), ("c",)]),
        ("a <<E\n$(b)\nE\nc", [("b",), ("a",), ("c",)]),
        ("sh <<'E'\nb\nE", [("sh",), ("b",)]),
        ("a 'x\ny' \\\n z", [("a", "x\ny", "z")]),
    ],
)  # fmt: skip
def test_the_commands_of_a_line(line: str, commands: list[tuple[str, ...]]) -> None:
    assert words(line) == commands


@pytest.mark.parametrize(
    ("line", "redirects"),
    [
        ("a > x 2>> y", [(">", "x"), (">>", "y")]),
        ("a 2>&1 &> 'z w' >&2", [(">&", "1"), ("&>", "z w"), (">&", "2")]),
        ("a <<< 'y' < x", [("<<<", "y"), ("<", "x")]),
        ("(a) > x", [(">", "x")]),
        ("> x", [(">", "x")]),
        ("a > $x", [(">", SPLIT)]),
        ("a 2>&-", [(">&-", "")]),
        ("a $(b > x)", [(">", "x")]),
        ("sh -c 'b > x'", [(">", "x")]),
    ],
)
def test_the_redirections_of_a_line(line: str, redirects: list[tuple[str, str]]) -> None:
    found = read(line)
    assert ([(each.operator, each.target) for each in found.redirects], found.doubts) == (redirects, ())


@pytest.mark.parametrize(
    "line",
    [
        *("a 'b", "a |", "if a", "a)", "$x", "$(a)", "a{b,c}", "{ a", "a; ;", "f() { a; }", "source x", ". x", "alias a=b"),
        *("trap a EXIT", "coproc a", "a | sh", "sh -c $x", "eval $x", "env -S 'a b'", "a ${x@P}", "a ${!x}", "a ${x:=y}"),
        *("a $((x))", "((x))", "[[ a -eq b ]]", "[ -v x ]", "for ((;;)); do a; done", "a $'\\x01'", "a\\\nb", "a\x00"),
        *("a > x y", "a {f}> x", "a <<A <<B\nA\nB", "xargs --unknown a", "timeout --unknown 5 a", "nsenter -t 1 a"),
        *("[[a == b ]]", "[a ]", "{a; }", "{ a; }b", "if a; then b; fi'c'", "time { a; }", "a <<E\n`b`\nE", "a $\"b\"", "a @(b|c)", "a=(b c)", "a[1]=b", "export -f a", "enable -f x y"),
        *("a " * LONGEST, "(" * (DEEPEST + 5) + "a" + ")" * (DEEPEST + 5), "a\n\\\nb'c'", "sh -s", "bash /dev/stdin"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_in_doubt(line: str) -> None:
    assert read(line).doubts != ()


def test_a_line_that_changes_the_folder_says_so() -> None:
    assert [read(line).moves for line in ("cd x && a", "(pushd y)", "a")] == [True, True, False]


def test_scripts_inside_scripts_have_an_end() -> None:
    line = "a"
    for _ in range(12):
        line = f"sh -c {subprocess.list2cmdline([line])}" if "'" in line else f"sh -c '{line}'"
    assert isinstance(read(line), Line)
    assert read("sh -c a;" * 50).doubts == ("it holds too many scripts inside scripts",)


FRAGMENTS = [
    *("a", "b", "c", "d", " ", "\n", "\t", "x y", "'", '"', "`", "$", "$(", ")", "(", "{", "}", " { ", "; }", ";", "&", "|"),
    *("&&", "||", "\\", "\\\n", "#", " # ", "<<E\n", "<<'E'\n", "<<-E\n", "\nE\n", "E", "$((", "))", "((", "[[ ", " ]]"),
    *("if a; then b; fi", "for i in p q; do a $i; done", "while b; do c; done", "case x in x) a;; *) b;; esac", "! "),
    *("time ", "${x:-", "${x", "$'", "\\x63", "<(", ">(", ">o ", "2>&1", "<o", "&>o", "v=1 ", "*", "?", "{a,b}", "{c,d}"),
    *("sh -c ", "'c'", "'a; c'", "xargs ", "echo ", "command ", "$x", '"$x"', "$(a)", "$(c)", "`c`", '"$(c)"', "<(c)"),
    *("a 'q'", "a | b", "a && b", "a; b", "a <<E\nt\nE\n", "a <<'E'\n$(c)\nE\n", "a 'l\nm'", "a \\\n b", "a # c\n"),
]  # fmt: skip
LINES = st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=8).map("".join)


@given(st.text(max_size=200) | LINES)
def test_any_text_can_be_read(line: str) -> None:
    assert isinstance(read(line), Line)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which bash finds no program at all: whatever it would run is written down instead."""
    folder = tmp_path_factory.mktemp("bash")
    (folder / "work").mkdir()
    return folder


def ran(line: str, place: Path) -> set[str]:
    """The names of all programs that bash would have run."""
    log = Path(mkdtemp(dir=place))  # of its own: what a line before this one left running writes elsewhere
    note = '() { builtin printf %s "$1" > "$LOG/$BASHPID.$SRANDOM"; }'
    environ = {"PATH": "/nowhere", "LOG": str(log), "x": "v w", "BASH_FUNC_command_not_found_handle%%": note}
    process = subprocess.Popen(
        ["/bin/bash", "-c", line],
        env=environ,
        cwd=place / "work",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        process.communicate(timeout=30)  # until nothing holds its output any more
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running in the background
        process.wait()
    return {each.read_text() for each in log.iterdir()} - {""}


ALLOWED = {"a", "b", "sh", "xargs", "time"}
RULES = tuple(f"bash:{name}{more}" for name in (*sorted(ALLOWED), "echo", "command") for more in ("", " *"))


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="there is no bash to compare with")
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(LINES)
def test_bash_runs_only_allowed_programs_of_a_line_that_was_allowed(place: Path, line: str) -> None:
    judge = Judge(Agent(name="a", policy=Policy(agent=PolicyTier("ask", RULES))))
    if judge.verdict(BASH, ToolCall("c1", "bash", {"command": line})).verdict == "allow":
        assert ran(line, place) <= ALLOWED


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="there is no bash to compare with")
@pytest.mark.parametrize(
    "line",
    ["a; c", "a $(c)", "a <<E\n$(c)\nE", "a <<E\n`c`\nE", "a l\n\\\nc", "{ c; }", "a 'x' | c", "$'\\x63' x", "a <(c)"],
)  # fmt: skip
def test_the_comparison_would_notice(place: Path, line: str) -> None:
    assert "c" in ran(line, place)
    judge = Judge(Agent(name="a", policy=Policy(agent=PolicyTier("ask", RULES))))
    assert judge.verdict(BASH, ToolCall("c1", "bash", {"command": line})).verdict == "ask"
