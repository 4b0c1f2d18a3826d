"""Stand-ins are in nobody's way: ordinary programs work beside them, git leaves them out, and none is left behind."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from duragent.errors import NotAllowed
from duragent.sandbox import Box
from duragent.sandbox.bubblewrap import Bubblewrap
from duragent.sandbox.placeholders import Placeholders, is_leftover, sweep, take_away
from tests.sandbox.boxing import box_at, opened, require, sh, told

PROTECTED = (".git/commondir", ".envrc", ".vscode", ".claude", ".mcp.json", "duragent.yaml", "policy.local.yaml")


def run(box: Box, line: str) -> tuple[str, int, str]:
    require("bubblewrap", "that ordinary programs work beside stand-ins")

    async def go() -> tuple[str, int, str]:
        async with opened("bubblewrap") as sandbox:
            return told(await sh(sandbox, line, box))

    return asyncio.run(go())


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A fresh repository with one file that is not added yet."""
    for words in (["init", "-q", "."], ["config", "user.name", "n"], ["config", "user.email", "n@example.org"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "a.yaml").write_text("mine\n")
    return tmp_path


def boxed(folder: Path, **more: object) -> Box:
    return box_at(folder, protected=tuple(str(folder / name) for name in PROTECTED), **more)


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


@pytest.mark.parametrize("whole", [False, True])
def test_git_adds_stashes_and_commits_what_is_a_person_s_and_nothing_that_stands_in(project: Path, whole: bool) -> None:
    line = (
        "git status --short && git add -A && git commit -qm one && echo more > b && git stash -qu && git stash pop >/dev/null "
        "&& git add -A && git commit -qm two && git ls-files && git fsck --no-dangling && git worktree list | wc -l"
    )
    box = boxed(project, whole_disk=True, writable=(), readable=()) if whole else boxed(project)
    assert run(box, line) == ("exited", 0, "?? a.yaml\na.yaml\nb\n1\n")
    assert names(project) == [".git", "a.yaml", "b"]


def test_what_is_hidden_is_not_added_either(project: Path) -> None:
    (project / "kept [x]").mkdir()
    for name in ("kept [x]/file", "token"):
        (project / name).write_text("secret")
    box = boxed(project, hidden=(str(project / "kept [x]"), str(project / "token")))
    assert run(box, "git add -A && git ls-files; cat token 2>/dev/null || echo no") == ("exited", 0, "a.yaml\nno\n")


def test_everything_can_be_copied_searched_and_read(project: Path) -> None:
    line = "cp -r . /tmp/copy && ls -A /tmp/copy | wc -l && grep -r mine --include='*.yaml' . && cat *.yaml .envrc && ls .vscode"
    assert run(boxed(project), line) == ("exited", 0, "8\n./a.yaml:mine\nmine\n")


def test_a_missing_file_that_is_hidden_looks_empty_also_when_it_appears(project: Path) -> None:
    box = box_at(project, hidden=(str(project / "log.jsonl"),))
    assert run(box, "cat log.jsonl && stat -c '%F %s' log.jsonl && (echo x > log.jsonl) 2>/dev/null || echo no") == (
        "exited",
        0,
        "regular empty file 0\nno\n",
    )


def test_git_works_for_the_owner_while_something_stands_in(project: Path) -> None:
    holders = Placeholders()
    assert holders.make([str(project / ".git/commondir")]) == [str(project / ".git/commondir")]
    try:
        for line in ("git add -A", "git commit -qm x", "git branch other", "git checkout -q other", "git gc -q"):
            subprocess.run(line.split(), cwd=project, check=True)
        said = subprocess.run(["git", "status", "--short", "-b"], cwd=project, check=True, capture_output=True)
    finally:
        holders.close()
    assert (said.stdout, (project / ".git/commondir").exists()) == (b"## other\n", False)


def test_leftovers_are_swept_by_name_and_nothing_else_is(tmp_path: Path) -> None:
    for name in (".envrc", "policy.yaml", "empty", "duragent.yaml", "HEAD"):
        (tmp_path / name).write_text("own" if name == "HEAD" else "")
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / "duragent.yaml")
    (tmp_path / ".vscode").mkdir()
    os.utime(tmp_path / ".vscode", (0, 0))
    sweep([str(tmp_path)])
    assert names(tmp_path) == ["HEAD", "duragent.yaml", "empty"]


def test_what_still_stands_in_for_a_command_is_not_swept(tmp_path: Path) -> None:
    holders = Placeholders()
    holders.make([str(tmp_path / ".envrc"), str(tmp_path / ".vscode")])
    sweep([str(tmp_path)])
    between = names(tmp_path), is_leftover(str(tmp_path / ".envrc"))
    holders.close()
    assert (between, names(tmp_path)) == (([".envrc", ".vscode"], True), [])


def test_a_new_sandbox_sweeps_the_folder_it_works_in(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("")
    os.utime(tmp_path / "policy.yaml", (0, 0))
    assert (run(box_at(tmp_path), "ls -A"), names(tmp_path)) == (("exited", 0, ""), [])


@pytest.mark.parametrize("place", ["/dev/shm", "tmp"])
def test_what_is_taken_away_is_renamed_whatever_it_is(place: str, tmp_path: Path) -> None:
    """/dev/shm is another file system than the one for temporary files, as a person's folder may be."""
    folder = Path(place) / f"duragent-test-{os.getpid()}" if place != "tmp" else tmp_path
    folder.mkdir(exist_ok=True)
    kept: list[Path] = []
    try:
        (folder / ".vscode/deep").mkdir(parents=True)
        os.mkfifo(folder / ".vscode/deep/pipe")
        os.mkfifo(folder / ".envrc")
        (folder / ".vscode/sparse").touch()
        os.truncate(folder / ".vscode/sparse", 1 << 40)
        (folder / ".vscode").chmod(0o500)
        said = take_away([str(folder / name) for name in (".vscode", ".envrc", "missing")]).decode()
        kept += [Path(line.removesuffix("]").split(" moved to ")[1]) for line in said.split("\n") if line]
        assert [names(kept[0]), kept[1].is_fifo()] == [["deep", "sparse"], True]
        assert [(folder / name).exists() for name in (".vscode", ".envrc")] == [False, False]
    finally:
        for path in (folder, *(each.parent for each in kept)):
            subprocess.run(["rm", "-rf", "--", str(path)], check=True)


def test_a_bwrap_that_commands_could_have_made_does_not_keep_them_in(tmp_path: Path) -> None:
    program = tmp_path / "bin/bwrap"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")

    async def go(box: Box) -> None:
        sandbox = Bubblewrap(str(program))
        try:
            prepared = await sandbox.prepare(["true"], box)
            prepared.close()
        finally:
            await sandbox.close()

    with pytest.raises(NotAllowed, match="lies where this agent's commands can write"):
        asyncio.run(go(box_at(tmp_path)))
    asyncio.run(go(box_at(tmp_path, protected=(str(program.parent),))))
