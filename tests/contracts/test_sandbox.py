"""What every sandbox does alike, whatever it keeps in: how commands end, what is heard of them, what is left of them."""

import asyncio
import errno
import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from duragent.errors import NotAllowed
from duragent.sandbox import Limits, make
from tests.sandbox.boxing import ALL, PYTHON, box_at, opened, require, sh, told


@pytest.fixture(params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    require(request.param, "how its commands run and end")
    return str(request.param)


def test_it_goes_by_its_name(name: str) -> None:
    assert make(name).name == name


async def _lines(name: str, folder: Path, *lines: str) -> list[tuple[str, int, str]]:
    async with opened(name) as sandbox:
        return [told(await sh(sandbox, line, box_at(folder))) for line in lines]


def test_an_exit_code_and_both_streams_are_told(name: str, tmp_path: Path) -> None:
    found = asyncio.run(_lines(name, tmp_path, "echo out; echo err >&2; exit 3", "true", "exit 255"))
    assert found == [("exited", 3, "out\nerr\n"), ("exited", 0, ""), ("exited", 255, "")]


def test_a_signal_is_told_as_a_signal(name: str, tmp_path: Path) -> None:
    found = asyncio.run(_lines(name, tmp_path, "kill -9 $$", "kill -TERM $$", "kill -SEGV $$"))
    assert found == [("signalled", 9, ""), ("signalled", 15, ""), ("signalled", 11, "")]


def test_a_command_finds_its_folder_its_environment_and_nothing_else_open(name: str, tmp_path: Path) -> None:
    lines = (
        "pwd -P",
        "env | grep -c .",
        "ls /proc/self/fd | wc -l",
        "echo ~ $TMPDIR | tr -d '\\n'; test -w ~ -a -w $TMPDIR",
    )

    async def run() -> list[tuple[str, int, str]]:
        async with opened(name) as sandbox:
            return [told(await sh(sandbox, line, box_at(tmp_path))) for line in lines]

    where, variables, files, (ending, code, homes) = asyncio.run(run())
    # bash adds PWD, SHLVL and _; ls has one file open itself.
    assert (where, variables, files) == (("exited", 0, f"{tmp_path}\n"), ("exited", 0, "6\n"), ("exited", 0, "4\n"))
    home, folder = homes.split(" ")
    assert (ending, code, home.startswith(folder), home == os.path.expanduser("~")) == ("exited", 0, True, False)


def test_the_standard_files_have_their_usual_names(name: str, tmp_path: Path) -> None:
    line = "echo a > /dev/stderr; cat /dev/stdin > /dev/stdout; echo b > /dev/null; head -c 4 /dev/urandom | wc -c"

    async def run() -> tuple[str, int, str]:
        async with opened(name) as sandbox:
            return told(await sh(sandbox, line, box_at(tmp_path), stdin=b"c\n"))

    assert asyncio.run(run()) == ("exited", 0, "a\nc\n4\n")


def test_standard_input_is_given_whole_and_ends(name: str, tmp_path: Path) -> None:
    async def run() -> list[tuple[str, int, str]]:
        async with opened(name) as sandbox:
            box = box_at(tmp_path)
            return [told(await sh(sandbox, "wc -c; cat", box, stdin=given)) for given in (b"x" * 300_000, b"")]

    assert asyncio.run(run()) == [("exited", 0, "300000\n"), ("exited", 0, "0\n")]


def test_a_flood_keeps_its_head_and_its_tail(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[int, bytes, int]:
        heard: list[int] = []
        async with opened(name) as sandbox:
            box = box_at(tmp_path, limits=Limits(output_bytes=20))
            ended = await sh(
                sandbox,
                "echo beginning; yes | head -c 5000000; echo; printf the-end",
                box,
                heard=lambda data: heard.append(len(data)),
            )
        return ended.size, ended.output, sum(heard)

    assert asyncio.run(run()) == (5_000_018, b"beginning\n" + b"y\n\nthe-end", 5_000_018)


def test_bytes_that_are_no_text_arrive_as_they_are(name: str, tmp_path: Path) -> None:
    async def run() -> bytes:
        async with opened(name) as sandbox:
            return (await sh(sandbox, r"printf '\xff\xfe\x00\xc3'", box_at(tmp_path))).output

    assert asyncio.run(run()) == b"\xff\xfe\x00\xc3"


def test_a_name_that_is_no_text_can_be_an_argument(name: str, tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"na\xffme")).write_text("found")

    async def run() -> bytes:
        async with opened(name) as sandbox:
            return (await sandbox.run(["cat", os.fsdecode(b"na\xffme")], box_at(tmp_path))).output

    assert asyncio.run(run()) == b"found"


def test_a_command_that_takes_too_long_is_ended_with_all_it_started(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[str, int, str]:
        async with opened(name) as sandbox:
            box = box_at(tmp_path, limits=Limits(seconds=0.5))
            return told(await sh(sandbox, f"{HOLD} & echo before; wait; echo after", box))

    assert asyncio.run(run()) == ("timeout", 9, "before\n")
    assert _nobody_holds(tmp_path)


def test_what_a_command_leaves_behind_ends_with_it_also_a_daemon(name: str, tmp_path: Path) -> None:
    line = f"(setsid {HOLD} </dev/null >/dev/null 2>&1 &); until test -e held; do :; done; echo done"
    assert asyncio.run(_lines(name, tmp_path, line)) == [("exited", 0, "done\n")]
    assert _nobody_holds(tmp_path)


def test_a_command_with_too_many_processes_is_ended(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[str, int]:
        async with opened(name) as sandbox:
            box = box_at(tmp_path, limits=Limits(seconds=60, processes=20))
            ended = await sh(sandbox, f"for i in $(seq 40); do {HOLD} & done; wait", box)
            return ended.ending, ended.code

    assert asyncio.run(run()) == ("processes", 9)
    assert _nobody_holds(tmp_path)


def test_a_cancelled_command_has_ended_when_the_cancellation_returns(name: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with opened(name) as sandbox:
            going = asyncio.Event()
            line = f"{HOLD} & until test -e held; do :; done; echo going; wait"
            task = asyncio.create_task(sh(sandbox, line, box_at(tmp_path), heard=lambda _: going.set()))
            await going.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert _nobody_holds(tmp_path)
            assert told(await sh(sandbox, "echo next", box_at(tmp_path))) == ("exited", 0, "next\n")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("make_program", "number"),
    [
        (lambda folder: "no-such-program", errno.ENOENT),
        (lambda folder: str(folder / "missing"), errno.ENOENT),
        (lambda folder: "./plain", errno.EACCES),
    ],
    ids=["not on the path", "not there", "not executable"],
)
def test_a_program_that_cannot_start_is_an_error_that_names_it(
    name: str, tmp_path: Path, make_program: Callable[[Path], str], number: int
) -> None:
    (tmp_path / "plain").write_text("no program")
    program = make_program(tmp_path)

    async def run() -> tuple[int | None, str]:
        async with opened(name) as sandbox:
            with pytest.raises(OSError) as caught:
                await sandbox.run([program], box_at(tmp_path))
        return caught.value.errno, str(caught.value.filename)

    assert asyncio.run(run()) == (number, program)


def test_a_script_whose_interpreter_is_missing_cannot_start(name: str, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)

    async def run() -> str:
        async with opened(name) as sandbox:
            with pytest.raises(OSError, match="No such file or directory") as caught:
                await sandbox.run(["./script"], box_at(tmp_path))
        return str(caught.value)

    assert "./script" in asyncio.run(run())


def test_a_folder_that_is_gone_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")

    async def run() -> tuple[int | None, str]:
        async with opened(name) as sandbox:
            with pytest.raises(OSError) as caught:
                await sandbox.run(["true"], box_at(tmp_path, cwd=gone))
        return caught.value.errno, str(caught.value.filename)

    assert asyncio.run(run()) == (errno.ENOENT, gone)


def test_many_commands_run_at_once_and_keep_their_output_apart(name: str, tmp_path: Path) -> None:
    async def run() -> list[str]:
        async with opened(name) as sandbox:
            box = box_at(tmp_path)
            done = await asyncio.gather(*(sh(sandbox, f"echo {each}; cat", box, stdin=b"in") for each in range(8)))
            return [each.output.decode() for each in done]

    assert asyncio.run(run()) == [f"{each}\nin" for each in range(8)]


def test_memory_and_files_have_limits(name: str, tmp_path: Path) -> None:
    async def run() -> list[tuple[str, int]]:
        async with opened(name) as sandbox:
            box = box_at(tmp_path, limits=Limits(memory_bytes=256 << 20, file_bytes=1 << 20))
            taking = await sandbox.run([PYTHON, "-I", "-S", "-c", "x = bytearray(400 << 20)"], box)
            writing = await sandbox.run(["dd", "if=/dev/zero", "of=big", "bs=1M", "count=3", "status=none"], box)
            return [(taking.ending, taking.code), (writing.ending, writing.code)]

    assert asyncio.run(run()) == [("exited", 1), ("signalled", signal.SIGXFSZ)]
    assert (tmp_path / "big").stat().st_size == 1 << 20


def test_a_started_program_speaks_through_the_files_it_was_given(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[tuple[str, int], bytes]:
        async with opened(name) as sandbox:
            (given, give), (take, taken) = os.pipe(), os.pipe()
            child = await sandbox.start(["cat"], box_at(tmp_path), stdin=given, stdout=taken, stderr=taken)
            os.close(given)
            os.close(taken)
            os.write(give, b"hello")
            os.close(give)
            ended = await child.wait()
            said = os.read(take, 100)
            os.close(take)
            return ended, said

    assert asyncio.run(run()) == (("exited", 0), b"hello")


def test_a_started_program_is_asked_to_end_before_it_is_killed(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[tuple[str, int], bytes]:
        async with opened(name) as sandbox:
            take, taken = os.pipe()
            with open(os.devnull, "rb") as nothing:
                argv = [PYTHON, "-I", "-S", "-c", POLITE]
                child = await sandbox.start(argv, box_at(tmp_path), stdin=nothing.fileno(), stdout=taken, stderr=taken)
            os.close(taken)
            said = await asyncio.to_thread(os.read, take, 100)
            await child.kill(grace_seconds=20)
            said += await asyncio.to_thread(os.read, take, 100)
            os.close(take)
            return await child.wait(), said

    assert asyncio.run(run()) == (("exited", 7), b"ready\nbye\n")


def test_closing_ends_what_was_started(name: str, tmp_path: Path) -> None:
    async def run() -> tuple[str, int]:
        async with opened(name) as sandbox:
            take, taken = os.pipe()
            with open(os.devnull, "rb") as nothing:
                child = await sandbox.start(
                    ["bash", "-c", f"echo ready; exec {HOLD}"],
                    box_at(tmp_path),
                    stdin=nothing.fileno(),
                    stdout=taken,
                    stderr=taken,
                )
            os.close(taken)
            await asyncio.to_thread(os.read, take, 100)
            os.close(take)
        return await child.wait()

    assert asyncio.run(run()) == ("signalled", 9)
    assert _nobody_holds(tmp_path)


def test_a_link_in_the_path_of_what_is_writable_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    async def run() -> None:
        async with opened(name) as sandbox:
            await sandbox.run(["true"], box_at(tmp_path, writable=(str(tmp_path / "link"),)))

    if name == "none":
        asyncio.run(run())  # it keeps nothing in, so that nothing can lead out
    else:
        with pytest.raises(NotAllowed, match="symbolic link leads from it to"):
            asyncio.run(run())


POLITE = """
import os, signal
def bye(*_):
    os.write(1, b"bye\\n")
    os._exit(7)
signal.signal(signal.SIGTERM, bye)
os.write(1, b"ready\\n")
while True:
    signal.pause()
"""
HOLD = "flock -s held sleep 600"
"""Runs for long, and holds a lock that tells whether it is still there, in whatever namespace."""


def _nobody_holds(folder: Path) -> bool:
    with open(folder / "held", "ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
