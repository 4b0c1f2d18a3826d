"""What only namespaces can do: mounts over what is protected, a private /tmp, a network of its own, certain hosts."""

import asyncio
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from duragent.errors import NotAllowed
from duragent.sandbox import Box, bwrap
from duragent.sandbox.bubblewrap import Bubblewrap
from tests.sandbox.boxing import PYTHON, box_at, opened, require, sh, told


@pytest.fixture(autouse=True)
def works() -> None:
    require("bubblewrap", "mounts, a private /tmp, certain hosts")


def run(folder: Path, line: str, box: Box | None = None) -> tuple[str, int, str]:
    async def go() -> tuple[str, int, str]:
        async with opened("bubblewrap") as sandbox:
            return told(await sh(sandbox, line, box or box_at(folder)))

    return asyncio.run(go())


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_stand_ins_for_missing_paths_are_there_for_the_command_and_gone_afterwards(tmp_path: Path) -> None:
    protected = tuple(str(tmp_path / name) for name in (".git", ".envrc", "deep/er/file.txt"))
    line = "ls -A; mkdir .git/x; echo > .envrc; mkdir deep/er; rmdir .git deep; rm -f .envrc; mv .git g"
    ended = run(tmp_path, f"({line}) 2>/dev/null", box_at(tmp_path, protected=protected))
    assert (ended, names(tmp_path)) == (("exited", 1, ".envrc\n.git\ndeep\n"), [])


def test_a_stand_in_that_a_killed_runtime_left_is_taken_away_by_the_next_command(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    os.utime(tmp_path / ".git", (0, 0))
    assert run(tmp_path, "touch .git/x", box_at(tmp_path, protected=(str(tmp_path / ".git"),)))[:2] == ("exited", 1)
    assert names(tmp_path) == []


def test_an_empty_folder_of_a_person_is_no_stand_in(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    run(tmp_path, "true", box_at(tmp_path, protected=(str(tmp_path / ".git"),)))
    assert names(tmp_path) == [".git"]


def test_two_commands_share_a_stand_in_and_the_last_one_takes_it_away(tmp_path: Path) -> None:
    async def go() -> tuple[list[str], tuple[str, int, str]]:
        async with opened("bubblewrap") as sandbox:
            box = box_at(tmp_path, protected=(str(tmp_path / ".git"),))
            going = asyncio.Event()
            line = "echo going; until test -e go; do :; done; touch .git/x 2>/dev/null; echo $?"
            first = asyncio.create_task(sh(sandbox, line, box, heard=lambda _: going.set()))
            await going.wait()
            await sh(sandbox, "true", box)
            between = names(tmp_path)
            (tmp_path / "go").touch()
            return between, told(await first)

    assert asyncio.run(go()) == ([".git"], ("exited", 0, "going\n1\n"))
    assert names(tmp_path) == ["go"]


def test_a_folder_on_the_way_to_what_is_protected_cannot_be_replaced_but_written(tmp_path: Path) -> None:
    (tmp_path / "a/b/kept").mkdir(parents=True)
    line = "mv a x; mv a/b a/x; touch a/b/kept/y; touch a/b/new a/new; ls a a/b"
    ended = run(tmp_path, f"({line}) 2>/dev/null", box_at(tmp_path, protected=(str(tmp_path / "a/b/kept"),)))
    assert ended == ("exited", 0, "a:\nb\nnew\n\na/b:\nkept\nnew\n")


def test_what_is_writable_below_what_is_protected_is_writable(tmp_path: Path) -> None:
    (tmp_path / "state/work").mkdir(parents=True)
    box = box_at(tmp_path, protected=(str(tmp_path / "state"),), writable=(str(tmp_path), str(tmp_path / "state/work")))
    assert run(tmp_path, "touch state/work/x; touch state/x 2>/dev/null || echo no", box) == ("exited", 0, "no\n")
    assert names(tmp_path / "state/work") == ["x"]


def test_a_protected_path_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".vscode").symlink_to("/etc")
    with pytest.raises(NotAllowed, match="cannot be protected: a symbolic link leads from it to /etc"):
        run(tmp_path, "true", box_at(tmp_path, protected=(str(tmp_path / ".vscode"),)))


def test_a_git_config_that_is_not_there_cannot_be_made(tmp_path: Path) -> None:
    config = tmp_path / ".git/config"
    config.parent.mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main")
    ended = run(tmp_path, f"echo evil > {config}; cat {config}", box_at(tmp_path, protected=(str(config),)))
    assert (ended[:2], "Read-only" in ended[2], names(tmp_path / ".git")) == (("exited", 0), True, ["HEAD"])


def test_outside_of_what_is_granted_a_folder_is_hidden_or_only_readable(tmp_path: Path) -> None:
    work, shown = tmp_path / "work", tmp_path / "shown"
    for folder in (work, shown / "hidden"):
        folder.mkdir(parents=True)
    (shown / "file").write_text("readable")
    (shown / "hidden/file").write_text("secret")
    box = box_at(work, readable=(str(shown),), hidden=(str(shown / "hidden"),))
    line = f"ls {tmp_path}; cat {shown}/file; ls {shown}/hidden; touch {shown}/new || touch ~/x /tmp/y && ls /tmp"
    assert run(work, f"({line}) 2>/dev/null", box) == (
        "exited",
        0,
        f"shown\nwork\nreadablehome\n{tmp_path.parts[2]}\ny\n",
    )


def test_each_command_has_a_tmp_of_its_own_with_an_end_to_it(tmp_path: Path) -> None:
    box = box_at(tmp_path)
    box = replace(box, limits=replace(box.limits, tmp_bytes=1 << 20))
    line = "head -c 2M /dev/zero > /tmp/big || stat -c %s /tmp/big"
    assert run(tmp_path, f"({line}) 2>/dev/null", box) == ("exited", 0, f"{1 << 20}\n")


def test_a_scope_hides_the_rest_of_the_folder_it_lies_in(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "secret").write_text("")
    box = box_at(tmp_path, writable=(str(tmp_path / "src"),), hidden=(str(tmp_path),))
    assert run(tmp_path, "pwd; ls; touch src/x; touch y 2>/dev/null || echo no", box) == (
        "exited",
        0,
        f"{tmp_path}\nsrc\nno\n",
    )
    assert names(tmp_path) == ["secret", "src"]


def test_with_the_whole_disk_all_is_writable_but_what_is_protected(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "kept").write_text("")
    box = Box(
        cwd=str(tmp_path / "work"),
        whole_disk=True,
        protected=(str(tmp_path / "kept"),),
        environment={"PATH": os.defpath},
    )
    assert run(tmp_path, "touch ../new; echo x > ../kept || mv .. ../../y || echo no", box)[:2] == ("exited", 0)
    assert (names(tmp_path), (tmp_path / "kept").read_text()) == (["kept", "new", "work"], "")


def test_a_folder_that_is_hidden_cannot_be_where_a_command_works(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.raises(NotAllowed, match="is hidden from it"):
        run(tmp_path, "true", box_at(tmp_path, cwd=str(tmp_path / "other"), writable=()))


def test_nothing_of_the_environment_reaches_the_program_that_builds_the_box(tmp_path: Path) -> None:
    """A library that is loaded by everything must not be loaded by bwrap, which works outside."""

    async def go() -> tuple[dict[str, str], bool]:
        async with opened("bubblewrap") as sandbox:
            box = box_at(tmp_path, environment={"PATH": os.defpath, "LD_PRELOAD": "evil.so", "SECRET": "s3cret"})
            prepared = await sandbox.prepare(["true"], box)  # type: ignore[attr-defined]
            prepared.close()
            return dict(prepared.order.environment), "s3cret" in " ".join(prepared.order.argv)

    assert asyncio.run(go()) == ({}, False)


# --- certain hosts ------------------------------------------------------------------------------------------


@contextmanager
def server() -> Iterator[tuple[int, list[bytes]]]:
    """Answers every connection, and keeps what was asked."""
    heard: list[bytes] = []
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1], heard
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


_FETCH = """
import os, sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as error:
        print(error)
"""


async def _lookup(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"] if host == "good.test" else ["10.0.0.1"]


def test_a_command_reaches_the_hosts_it_may_and_no_other_way_out(tmp_path: Path) -> None:
    async def go(port: int) -> tuple[str, int, str]:
        sandbox = Bubblewrap(bwrap(), lookup=_lookup, public=lambda address: address == "127.0.0.1")
        box = box_at(tmp_path, network="hosts", hosts=(f"good.test:{port}", f"private.test:{port}"))
        urls = [f"http://{name}:{port}/" for name in ("good.test", "private.test", "bad.test")]
        try:
            ended = await sandbox.run([PYTHON, "-I", "-c", _FETCH, *urls], box)
            return told(ended)
        finally:
            await sandbox.close()

    with server() as (port, heard):
        ended = asyncio.run(go(port))
    assert ended == ("exited", 0, "hello\nHTTP Error 403: Refused\nHTTP Error 403: Refused\n")
    assert [each.split(b"\r\n")[:2] for each in heard] == [[b"GET / HTTP/1.1", b"Host: good.test:%d" % port]]


def test_behind_the_bridge_a_program_is_kept_as_without_it(tmp_path: Path) -> None:
    async def go() -> list[tuple[str, int, str]]:
        async with opened("bubblewrap") as sandbox:
            box = box_at(tmp_path, network="hosts", hosts=())
            unix = "import socket; socket.socket(socket.AF_UNIX)"
            return [
                (*told(await sandbox.run([PYTHON, "-I", "-S", "-c", unix], box))[:2], "AF_UNIX"),
                told(await sh(sandbox, "kill -9 $$", box)),
                told(await sh(sandbox, "wait; exit 5", box)),
            ]

    assert asyncio.run(go()) == [("exited", 1, "AF_UNIX"), ("signalled", 9, ""), ("exited", 5, "")]
