"""What Landlock grants, how it goes around what is protected, and what it refuses to promise."""

import asyncio
import shutil
from pathlib import Path

import pytest

from duragent.errors import NotAllowed
from duragent.sandbox import Box
from tests.sandbox.boxing import PYTHON, box_at, opened, require, sh, told


@pytest.fixture(autouse=True)
def works() -> None:
    require("landlock", "what it grants and what it goes around")


def run(folder: Path, line: str, box: Box | None = None) -> tuple[str, int, str]:
    async def go() -> tuple[str, int, str]:
        async with opened("landlock") as sandbox:
            return told(await sh(sandbox, line, box or box_at(folder)))

    return asyncio.run(go())


def test_certain_hosts_are_refused_rather_than_all_or_none(tmp_path: Path) -> None:
    with pytest.raises(NotAllowed, match="Landlock cannot tell hosts apart"):
        run(tmp_path, "true", box_at(tmp_path, network="hosts", hosts=("a.org",)))


def test_everything_beside_what_is_protected_is_writable_but_nothing_new_can_be_put_there(tmp_path: Path) -> None:
    for name in ("a/kept", "a/other", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/file").write_text("")
    line = "for each in a/kept/x a/other/x a/x b/x x; do touch $each && echo $each; done; echo x > a/file; mv a c; ls a/kept"
    ended = run(tmp_path, f"({line}) 2>/dev/null", box_at(tmp_path, protected=(str(tmp_path / "a/kept"),)))
    assert ended == ("exited", 0, "a/other/x\nb/x\n")
    assert (tmp_path / "a/file").read_text() == "x\n"


def test_what_is_protected_and_missing_is_moved_aside_when_a_command_makes_it(tmp_path: Path) -> None:
    ending, code, said = run(
        tmp_path, "echo evil > .envrc; touch mine", box_at(tmp_path, protected=(str(tmp_path / ".envrc"),))
    )
    kept = Path(said.strip().removesuffix("]").split(" moved to ")[1])
    assert (ending, code, kept.read_text()) == ("exited", 0, "evil\n")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine"]
    shutil.rmtree(kept.parent)


def test_what_is_hidden_in_a_readable_folder_is_hidden(tmp_path: Path) -> None:
    work, shown = tmp_path / "work", tmp_path / "shown"
    for folder in (work, shown / "hidden", shown / "more"):
        folder.mkdir(parents=True)
    (shown / "more/file").write_text("readable")
    (shown / "hidden/file").write_text("secret")
    box = box_at(work, readable=(str(shown),), hidden=(str(shown / "hidden"),))
    line = f"cat {shown}/hidden/file; cat {shown}/more/file; touch {shown}/more/new"
    assert run(work, f"({line}) 2>/dev/null", box) == ("exited", 1, "readable")


def test_with_the_network_allowed_only_sockets_to_this_machine_s_programs_are_refused(tmp_path: Path) -> None:
    box = box_at(tmp_path, network="all")
    line = "exec 3<>/dev/udp/127.0.0.1/9 && echo udp; perl -MIO::Socket::UNIX -e 'socket(my $s, 1, 1, 0) or print \"none\\n\"'"
    assert run(tmp_path, line, box) == ("exited", 0, "udp\nnone\n")


_MESS = """
import os
folder = os.environ["TMPDIR"]
os.makedirs(folder + "/a/b")
os.chmod(folder + "/a/b", 0)
os.chmod(folder + "/a", 0)
os.chdir(folder)
for _ in range(3000):
    os.mkdir("deep")
    os.chdir("deep")
print(folder, end="")
"""


def test_the_private_folder_is_gone_afterwards_whatever_a_command_did_to_it(tmp_path: Path) -> None:
    async def go() -> tuple[str, int, str]:
        async with opened("landlock") as sandbox:
            return told(await sandbox.run([PYTHON, "-I", "-S", "-c", _MESS], box_at(tmp_path)))

    ending, code, folder = asyncio.run(go())
    found = (ending, code, Path(folder).name.startswith("duragent-"), Path(folder).exists())
    assert found == ("exited", 0, True, False)
