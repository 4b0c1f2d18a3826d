"""Where repositories are found, what of them is protected, and that there is no end of looking past which all is open."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from duragent.sandbox import BACKENDS, Box, make, repositories
from duragent.sandbox.repositories import Found, look
from tests.sandbox.boxing import box_at, opened, require, sh, told

PARTS = ("hooks", "config", "commondir")


def repository(folder: Path, config: str = "") -> Path:
    for name in ("objects", "refs"):
        (folder / name).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(config)
    return folder


def found(folder: Path) -> tuple[list[str], list[str]]:
    seen = look(str(folder))
    return tuple(sorted(os.path.relpath(path, folder) for path in each) for each in (seen.protected, seen.unseen))  # type: ignore[return-value]


def parts(*places: str) -> list[str]:
    return sorted(f"{place}/{name}" for place in places for name in PARTS)


def test_repositories_are_found_at_any_depth_bare_ones_and_submodules_with_a_slash_in_their_name(
    tmp_path: Path,
) -> None:
    repository(tmp_path / ".git")
    repository(tmp_path / ".git/modules/libs/one")
    repository(tmp_path / ".git/modules/libs/one/modules/two")
    repository(tmp_path / "a/b/c/d/e/f/.git")
    repository(tmp_path / "node_modules/dependency/.git")
    repository(tmp_path / "server.git")
    places = (".git", ".git/modules/libs/one", ".git/modules/libs/one/modules/two", "a/b/c/d/e/f/.git")
    assert found(tmp_path) == (parts(*places, "node_modules/dependency/.git", "server.git"), [])


def test_what_a_repository_s_settings_name_is_protected_when_it_lies_inside(tmp_path: Path) -> None:
    config = """
[core]
	bare = false
	hooksPath = .husky ; ours
[include]
	path = ../shared.gitconfig
[include]
	path = ~/.gitconfig
[extensions] worktreeConfig = true
[remote "path"]
	path = elsewhere
"""
    repository(tmp_path / ".git", config)
    (tmp_path / ".git/worktrees/w").mkdir(parents=True)
    (tmp_path / ".git/worktrees/w/commondir").write_text("../..\n")
    named = [".git/config.worktree", ".git/worktrees/w/commondir", ".husky", "shared.gitconfig"]
    assert found(tmp_path) == (sorted([*parts(".git"), *named]), [])


@pytest.mark.parametrize("value", [".", "/", "/etc/hooks"])
def test_hooks_that_lie_elsewhere_or_everywhere_are_left_alone(tmp_path: Path, value: str) -> None:
    repository(tmp_path / ".git", f"[core]\nhooksPath = {value}\n")
    assert found(tmp_path) == (parts(".git"), [])


def test_a_folder_that_only_looks_like_a_repository_does_not_count_but_is_kept_at_the_top(tmp_path: Path) -> None:
    for number in range(100):
        (tmp_path / f"a{number}/.git").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    repository(tmp_path / "z/.git")
    assert found(tmp_path) == ([".git", *parts("z/.git")], [])


def test_a_link_instead_of_hooks_keeps_the_whole_repository_and_where_it_leads(tmp_path: Path) -> None:
    repository(tmp_path / "a/.git")
    (tmp_path / "scripts").mkdir()
    (tmp_path / "a/.git/hooks").symlink_to(tmp_path / "scripts")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/.git").symlink_to(tmp_path / "a/.git")
    assert found(tmp_path) == (
        sorted(["a/.git", "a/.git/commondir", "a/.git/config", "b", "scripts"]),
        [],
    )


def test_a_link_on_the_way_to_a_submodule_or_another_working_folder_keeps_the_folder_with_the_link(
    tmp_path: Path,
) -> None:
    git = repository(tmp_path / "a/.git")
    repository(tmp_path / "elsewhere/m")
    (git / "modules").symlink_to(tmp_path / "elsewhere")
    (git / "worktrees/w").mkdir(parents=True)
    (git / "worktrees/w/commondir").symlink_to("/etc/passwd")
    expected = ["a/.git", "a/.git/worktrees/w", *parts("a/.git", "elsewhere/m")]
    assert found(tmp_path) == (sorted(expected), [])


def test_more_repositories_than_are_kept_in_detail_are_kept_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "PARTS", 2)
    for name in "abcd":
        repository(tmp_path / name / ".git")
    assert found(tmp_path) == (parts("a/.git", "b/.git"), ["c/.git", "d/.git"])


def test_what_was_not_looked_into_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "FOLDERS", 4)
    monkeypatch.setattr(repositories, "WHOLE", 2)
    for name in ("a", "b/1", "b/2", "c/1", "c/2"):
        (tmp_path / name).mkdir(parents=True)
    assert found(tmp_path) == ([], ["b", "c"])


def test_a_folder_is_looked_through_again_when_something_near_its_top_has_changed(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert look(str(tmp_path)) == Found((), (), ())
    repository(tmp_path / "a/.git")
    assert found(tmp_path) == (parts("a/.git"), [])


# --- in a box -----------------------------------------------------------------------------------------------


@pytest.fixture(params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    require(request.param, "that repositories are protected in it")
    return str(request.param)


def run(name: str, box: Box, line: str) -> str:
    async def go() -> str:
        async with opened(name) as sandbox:
            return told(await sh(sandbox, f"({line}) 2>/dev/null", box))[2]

    return asyncio.run(go())


def test_a_repository_that_appears_between_two_commands_is_protected_from_the_second(name: str, tmp_path: Path) -> None:
    async def go() -> str:
        sandbox, box = make(name), box_at(tmp_path)
        try:
            await sandbox.run(["true"], box)
            subprocess.run(["git", "init", "-q", str(tmp_path / "later")], check=True)
            return told(await sh(sandbox, "echo evil 2>/dev/null > later/.git/hooks/pre-commit || echo no", box))[2]
        finally:
            await sandbox.close()

    assert asyncio.run(go()) == "no\n"
    assert not (tmp_path / "later/.git/hooks/pre-commit").exists()


def test_what_nobody_looked_into_can_be_read_but_not_written_and_it_is_said_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "FOLDERS", 2)
    for each in ("a", "b"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "file").write_text(each)

    async def go() -> list[str]:
        async with opened(name) as sandbox:
            line = "cat b/file; (echo x > a/file; echo x > b/file) 2>/dev/null"
            return [told(await sh(sandbox, line, box_at(tmp_path)))[2] for _ in range(2)]

    remark = f"\n[there are too many folders to look for repositories in: {tmp_path}/b can be read, but not written]\n"
    assert asyncio.run(go()) == [f"b{remark}", "b"]
    assert [(tmp_path / each / "file").read_text() for each in "ab"] == ["x\n", "b"]


def test_settings_elsewhere_that_a_repository_is_led_to_are_taken_away(name: str, tmp_path: Path) -> None:
    git = repository(tmp_path / ".git")
    (git / "commondir").write_text("objects/elsewhere\n")
    said = run(name, box_at(tmp_path), "true")
    kept = Path(said.strip().removesuffix("]").split(" moved to ")[1])
    assert ((git / "commondir").exists(), kept.read_text()) == (False, "objects/elsewhere\n")
    assert said.startswith(f"\n[{git}/commondir leads git to settings that may be anybody's;")
    kept.unlink()
    kept.parent.rmdir()


def test_a_repository_that_a_command_makes_is_its_own_to_change_and_to_take_away(name: str, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()

    async def go() -> list[tuple[str, int, str]]:
        async with opened(name) as sandbox:
            lines = (
                "git init -q sub/mine",
                "cd sub/mine && git config user.name me && git config user.name",
                "rm -rf sub/mine",
            )
            return [told(await sh(sandbox, line, box_at(tmp_path))) for line in lines]

    quiet = ("exited", 0, "")
    assert asyncio.run(go()) == [quiet, ("exited", 0, "me\n"), quiet]
    subprocess.run(["git", "init", "-q", str(tmp_path / "sub/mine")], check=True)
    assert run(name, box_at(tmp_path), "echo evil > sub/mine/.git/config || echo no") == "no\n"


def test_where_a_repository_was_nothing_stands_in_when_it_is_gone(name: str, tmp_path: Path) -> None:
    repository(tmp_path / "sub/.git")

    async def go() -> str:
        async with opened(name) as sandbox:
            await sh(sandbox, "true", box_at(tmp_path))
            subprocess.run(["rm", "-rf", str(tmp_path / "sub")], check=True)
            return told(await sh(sandbox, "ls -A; mkdir sub", box_at(tmp_path)))[2]

    assert (asyncio.run(go()), (tmp_path / "sub").is_dir()) == ("", True)
