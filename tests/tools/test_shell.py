"""`bash`: what a command line gets, what becomes of its output, and that nothing outlives its call."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from duragent.core.events import ToolAnswer
from duragent.sandbox import Box, Limits
from duragent.secrets import Secrets
from duragent.secrets import Stream as Redacted
from duragent.tools import NOWHERE, Scene, printed, shell
from duragent.tools.host import Wordwise
from duragent.tools.printed import Stream, plain, shortened
from tests.tools.running import asked, hosted, place


def call(folder: Path, command: str, scene: Scene = NOWHERE, seconds: float | None = None, **about: Any) -> ToolAnswer:
    async def run() -> ToolAnswer:
        async with hosted(folder, **about) as host:
            timed = {} if seconds is None else {"timeout_seconds": seconds}
            return await asked(shell.make(host), scene, command=command, **timed)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("echo out; echo err >&2", ToolAnswer(True, "out\nerr\n")),
        ("printf partial; exit 3", ToolAnswer(False, "partial\n[The command ended with exit code 3]")),
        ("exit 4", ToolAnswer(False, "[The command ended with exit code 4]")),
        ("true", ToolAnswer(True, "The command printed nothing and ended with exit code 0.")),
        ("kill -9 $$", ToolAnswer(False, "[The command was ended by signal 9 (SIGKILL)]")),
        ("cat; echo end", ToolAnswer(True, "end\n")),
        (r"printf 'caf\303\251 \377|'", ToolAnswer(True, "café \ufffd|")),
        (
            r"printf '\033[31mred\033[0m \033]0;title\007\033]52;c;AAAA\033\\ok \342\200\256x'",
            ToolAnswer(True, "red ok x"),
        ),
        (
            "nosuchprogram_",
            ToolAnswer(
                False, "bash: line 1: nosuchprogram_: command not found\n[The command ended with exit code 127]"
            ),
        ),
    ],
)
def test_what_a_line_prints_and_how_it_ends_is_the_answer(command: str, expected: ToolAnswer, tmp_path: Path) -> None:
    assert call(tmp_path, command) == expected


def test_a_line_works_in_the_agents_folder_with_the_owners_variables_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    answer = call(tmp_path, 'pwd; echo "key: ${OPENAI_API_KEY:-none}"', environment={"PATH": "/usr/bin:/bin"})
    assert answer == ToolAnswer(True, f"{(tmp_path / 'work').resolve()}\nkey: none\n")


def test_a_line_that_takes_too_long_is_ended_with_everything_it_started(tmp_path: Path) -> None:
    answer = call(tmp_path, "echo begun; sleep 300 & echo $! > pid; wait", seconds=0.5)
    assert answer == ToolAnswer(
        False, "begun\n[The command took longer than 0.5 s and was ended with everything it had started]"
    )
    assert not Path(f"/proc/{(tmp_path / 'work' / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(("owner", "usual", "most"), [(5, 5, 600), (120, 120, 600), (3_600, 3_600, 3_600)])
def test_the_owners_limit_is_what_a_line_has_unless_the_call_says_otherwise(
    owner: int, usual: int, most: int, tmp_path: Path
) -> None:
    spec = shell.make(place(tmp_path, None, limits=Limits(seconds=float(owner)))).spec
    timed = spec.parameters["properties"]["timeout_seconds"]
    assert (timed["default"], timed["minimum"], timed["maximum"]) == (usual, 1, most)
    assert f"({usual} unless you say otherwise, {most} at most)" in spec.description


def test_a_line_that_takes_longer_than_the_owner_gave_is_ended(tmp_path: Path) -> None:
    answer = call(tmp_path, "echo begun; exec sleep 300", limits=Limits(seconds=0.3))
    assert answer == ToolAnswer(
        False, "begun\n[The command took longer than 0.3 s and was ended with everything it had started]"
    )


def test_a_cancelled_call_leaves_nothing_behind(tmp_path: Path) -> None:
    async def cut_off() -> int:
        async with hosted(tmp_path) as host:
            said: asyncio.Queue[str] = asyncio.Queue()
            line = {"command": "sleep 300 & echo $!; wait"}
            running = asyncio.ensure_future(shell.make(host).run(line, Scene(say=said.put_nowait)))
            pid = int(await said.get())
            running.cancel()
            outcome = (await asyncio.gather(running, return_exceptions=True))[0]
            assert isinstance(outcome, asyncio.CancelledError)
            return pid

    assert not Path(f"/proc/{asyncio.run(cut_off())}").exists()


def test_too_many_processes_end_the_line(tmp_path: Path) -> None:
    answer = call(tmp_path, "for i in $(seq 60); do sleep 60 & done; wait", limits=Limits(processes=20))
    assert answer == ToolAnswer(False, "[The command started too many processes and was ended with all of them]")


def test_of_a_flood_head_and_tail_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    answer = call(tmp_path, "seq 1 200000")
    whole = "".join(f"{n}\n" for n in range(1, 200_001))
    head, line, tail = answer.content.partition("[")[0], *answer.content.partition("[")[2].split("]\n", 1)
    missing = len(whole) - len(head) - len(tail)
    assert (answer.success, line, whole.startswith(head), whole.endswith(tail)) == (
        True,
        f"{missing:,} bytes left out",
        True,
        True,
    )
    assert len(head) > 100_000 < len(tail)
    assert len(answer.content.encode()) <= printed.MAX_BYTES


def test_a_flood_of_bytes_that_are_no_text_stays_within_the_limit(tmp_path: Path) -> None:
    answer = call(tmp_path, r"head -c 2000000 /dev/zero | tr '\0' '\377'")
    assert len(answer.content.encode()) <= printed.MAX_BYTES
    assert "bytes left out]" in answer.content


def test_output_is_heard_while_the_line_runs_without_secrets_and_escapes(tmp_path: Path) -> None:
    said: list[str] = []
    command = r"printf 'tok-'; printf '123456 \033[1mbold'; echo; echo next"
    answer = call(tmp_path, command, Scene(say=said.append), redact=lambda text: text.replace("tok-123456", "[TOKEN]"))
    assert answer == ToolAnswer(True, "[TOKEN] bold\nnext\n")
    assert "".join(said) == "[TOKEN] bold\nnext\n"


def test_a_secret_that_lies_across_the_cut_is_not_shown_in_part(tmp_path: Path) -> None:
    # The secret stands exactly where the sandbox cuts: half of it would not be recognised.
    half = 20_000 // 2
    command = f"head -c {half - 5} /dev/zero | tr '\\0' x; printf 'tok-123456'; head -c 50000 /dev/zero | tr '\\0' y"
    answer = call(
        tmp_path,
        command,
        limits=Limits(output_bytes=20_000),
        redact=lambda text: text.replace("tok-123456", "[TOKEN]"),
    )
    assert "tok" not in answer.content
    assert answer.content.startswith("xxx")
    assert answer.content.endswith("yyy")


@pytest.mark.parametrize("command", ["echo \0", "echo \ud800"])
def test_a_line_that_no_program_can_be_given_is_refused_with_a_reason(command: str, tmp_path: Path) -> None:
    assert call(tmp_path, command) == ToolAnswer(
        False, "The command was not started: its text holds a character that no command line can hold."
    )


def test_a_line_longer_than_the_system_takes_is_refused_with_a_reason(tmp_path: Path) -> None:
    assert call(tmp_path, "true " + "x" * 200_000) == ToolAnswer(
        False, "The command could not be started: Argument list too long (bash)"
    )


def test_without_a_sandbox_nothing_runs(tmp_path: Path) -> None:
    tool = shell.make(place(tmp_path, None))
    assert asyncio.run(asked(tool, command="touch ran")) == ToolAnswer(False, shell.NO_SANDBOX)
    assert os.listdir(tmp_path / "work") == []


class Boxed:
    """Only a name: what the model is told depends on it."""

    name = "bubblewrap"


@pytest.mark.parametrize(
    ("box", "told"),
    [
        (Box("/w", writable=("/w",)), "Programs work in /w; only /w and /tmp are writable, /tmp is empty each time, home and keys are hidden. There is no network."),
        (Box("/tmp", network="all"), "Programs work in /tmp; nothing but /tmp is writable, /tmp is empty each time, home and keys are hidden. There is network."),
        (Box("/w", whole_disk=True, network="hosts", hosts=("a.example", "*.b.example")), "Programs work in /w; the disk is writable. Of the network only these hosts are reached: a.example, *.b.example."),
    ],
)  # fmt: skip
def test_the_model_is_told_where_it_works_and_what_it_can_reach(box: Box, told: str, tmp_path: Path) -> None:
    host = place(tmp_path, Boxed())  # type: ignore[arg-type]
    host.box = box
    assert shell.surroundings(host) == told
    assert told in shell.make(host).spec.description


def test_a_box_that_keeps_nothing_in_is_called_that(tmp_path: Path) -> None:
    host = place(tmp_path, Boxed())  # type: ignore[arg-type]
    host.sandbox.name = "none"  # type: ignore[union-attr]
    assert "run without a sandbox" in shell.make(host).spec.description


def test_the_spec_says_what_rules_need_to_know(tmp_path: Path) -> None:
    spec = shell.make(place(tmp_path, None)).spec
    assert (spec.name, spec.kind, spec.line, spec.needs, spec.effect) == (
        "bash",
        "builtin",
        "command",
        ("sh",),
        "unknown",
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("\x1b[2J\x1b[1;1Hx\x1b(B", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bP1$r\x1b\\y\x9b31mz", "yz"),
        ("unended \x1b]0;title", "unended 0;title"),
        ("a\x00\x08\x7f\u202eb\u2066c\u200bd\ufeff\U000e0041", "abcd"),
        ("tab\tkept é 漢 👩‍👧", "tab\tkept é 漢 👩‍👧"),
    ],
)
def test_a_text_is_freed_of_what_would_move_a_terminal(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_a_stream_is_not_fooled_by_borders_between_chunks() -> None:
    said: list[str] = []
    stream = Stream(Wordwise(lambda text: text.replace("secret", "[S]")), said.append)
    data = "é secret\r\nprogress\rmore sec".encode()
    for at in range(len(data)):
        stream.feed(data[at : at + 1])
    assert ("".join(said), stream.waiting) == ("é [S]\nprogress\n", "more ")
    stream.feed(b"ret")
    stream.end()
    assert "".join(said) == "é [S]\nprogress\nmore [S]"


def test_a_stream_holds_back_only_the_end_of_a_line_that_does_not_end() -> None:
    said: list[str] = []
    stream = Stream(Wordwise(lambda text: text.replace("secret", "[S]")), said.append)
    for _ in range(100):
        stream.feed(b"x" * 995 + b"secre")
        stream.feed(b"t")
    assert "secret" not in "".join(said)
    assert 100 * 998 - len("".join(said)) <= 3 * printed.HELD_CHARS
    stream.end()
    assert "".join(said) == ("x" * 995 + "[S]") * 100


def test_a_secret_of_several_lines_is_recognised_in_a_stream_and_its_beginning_is_not_shown() -> None:
    said: list[str] = []
    stream = Stream(Redacted(Secrets({"A_TOKEN": "first-line\nsecond-line"})), said.append)
    stream.feed(b"key: first")
    assert (said, stream.waiting) == ([], "key: ")
    stream.feed(b"-line\nsecond")
    assert (said, stream.waiting) == (["key: "], "")
    stream.feed(b"-line done\nname? ")
    assert ("".join(said), stream.waiting) == ("key: [A_TOKEN] done\n", "name? ")
    stream.end()
    assert "".join(said) == "key: [A_TOKEN] done\nname? "


def test_an_escape_is_not_cut_in_two_where_a_line_does_not_end() -> None:
    said: list[str] = []
    stream = Stream(Wordwise(lambda text: text), said.append)
    data = ("x" * 97 + "\x1b[31m" + "yy ").encode() * 300
    for at in range(0, len(data), 7):
        stream.feed(data[at : at + 7])
    assert len("".join(said)) > len(data) // 2
    stream.end()
    assert "".join(said) == ("x" * 97 + "yy ") * 300


def test_a_text_is_shortened_in_its_middle_at_whole_characters() -> None:
    assert shortened("short", 10) == "short"
    assert shortened("é" * 10, 9) == "éé\n[11 bytes left out]\néé"
    assert shortened("head\ntail\n", 20, left_out=7, at=5) == "head\n[7 bytes left out]\ntail\n"
