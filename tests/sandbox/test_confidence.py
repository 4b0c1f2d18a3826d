"""What was said elsewhere stays there: no command reads or changes it, in whatever layout it is kept."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from duragent.agent import Agent, Source
from duragent.sandbox import BACKENDS, Box
from duragent.sandbox.boxes import Places, box_of
from tests.sandbox.boxing import opened, require, sh, told

SECRET = "said-in-confidence"
OF_THE_WORKSPACE = (
    *("sessions/1/events.jsonl", "chat_history", "notifications.jsonl", "processes/1/output", "policies/a.yaml"),
    *("schedules/s.yaml", "memory/world/note.md", "agents/b/agent.yaml", "agents/b/memory/note.md"),
    *("agents/c.agent.md", "skills/quarantine/1/SKILL.md", "work/b/file", "something/new"),
)
UNDER_GIT = ("agents/b/agent.yaml", "agents/c.agent.md", "something/new")
LAYOUTS = ("beside the folder", "in the folder", "around the folder")


@pytest.fixture(params=BACKENDS)
def name(request: pytest.FixtureRequest) -> str:
    require(request.param, "that commands do not read what was said elsewhere")
    return str(request.param)


def put(path: Path, text: str = SECRET) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def lay_out(root: Path, layout: str) -> Places:
    """A workspace beside the folder where commands work, inside of it, or around it."""
    work, state = {
        "beside the folder": (root / "project", root / "state"),
        "in the folder": (root / "project", root / "project/.duragent"),
        "around the folder": (root / "state/work/a", root / "state"),
    }[layout]
    put(work / "mine", "mine")
    home = state / "agents/a"
    put(home / "agent.yaml", "name: a")
    for program in (home / "tools/own", state / "tools/shared", state / "skills/approved/run"):
        put(program, "#!/bin/bash\necho ${0##*/}\n").chmod(0o755)
    return Places(
        workdir=str(work),
        home=str(home),
        workspace=str(state),
        sessions_dir=str(state / "sessions"),
        agents_dir=str(state / "agents"),
    )


def boxed(places: Places) -> Box:
    agent = Agent(name="a", source=Source(path=places.home, files=("agent.yaml",)))
    return box_of(agent, places, environ={"PATH": "/usr/bin:/bin"})


def attempt(name: str, box: Box, line: str) -> str:
    async def go() -> str:
        async with opened(name) as sandbox:
            return told(await sh(sandbox, f"({line}) 2>/dev/null", box))[2]

    return asyncio.run(go())


def attacked(name: str, box: Box, canaries: list[Path]) -> tuple[str, list[str]]:
    """What a command read of these files, and what is in them after it has tried to write, move and delete them."""
    lines = [f"cat {path}; echo x > {path}; mv {path} {box.cwd}/stolen; rm -f {path}" for path in canaries]
    lines += [f"mv {path.parent} {box.cwd}/taken" for path in canaries if str(path.parent) != box.cwd]
    said = attempt(name, box, "; ".join([*lines, f"cat {box.cwd}/stolen {box.cwd}/taken/*"]))
    return said, [path.read_text() for path in canaries if path.exists()]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_of_the_workspace_is_read_or_changed(name: str, layout: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, layout)
    hidden = [each for each in OF_THE_WORKSPACE if layout != "in the folder" or each not in UNDER_GIT]
    canaries = [put(Path(places.workspace, each)) for each in hidden]
    assert attacked(name, boxed(places), canaries) == ("", [SECRET] * len(canaries))


def test_what_people_keep_under_git_in_a_workspace_is_read_and_not_changed(name: str, tmp_path: Path) -> None:
    """To git, what is hidden looks deleted: the next commit of an agent would take it out."""
    places = lay_out(tmp_path, "in the folder")
    kept = [put(Path(places.workspace, each)) for each in UNDER_GIT]
    said, after = attacked(name, boxed(places), kept)
    assert (said.count(SECRET) >= len(kept), after) == (True, [SECRET] * len(kept))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    "place", ["{home}/memory", "{workspace}/memory/chats", "{workdir}/notes/of/memory", "{root}/m"]
)
def test_memory_is_not_read_or_changed_wherever_it_is(name: str, layout: str, place: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, layout)
    folder = place.format(home=places.home, workspace=places.workspace, workdir=places.workdir, root=tmp_path)
    canary = put(Path(folder, "note.md"))
    assert attacked(name, boxed(replace(places, memory_dirs=(folder,))), [canary]) == ("", [SECRET])


@pytest.mark.parametrize("place", ["{home}/memory", "{workdir}/notes"])
def test_memory_that_is_made_while_a_command_runs_is_not_seen_by_it(name: str, place: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, "in the folder")
    folder = Path(place.format(home=places.home, workdir=places.workdir))
    box = boxed(replace(places, memory_dirs=(str(folder),)))
    put(tmp_path / "project/go", "")

    async def go() -> str:
        async with opened(name) as sandbox:
            going = asyncio.Event()
            line = f"echo going; until test -s go; do :; done; cat {folder}/note.md; echo x > {folder}/new"
            task = asyncio.create_task(sh(sandbox, f"({line}) 2>/dev/null", box, heard=lambda _: going.set()))
            await going.wait()
            put(folder / "note.md")
            put(tmp_path / "project/go", "now")
            return told(await task)[2]

    assert asyncio.run(go()) == "going\n"
    assert [(each.name, each.read_text()) for each in folder.iterdir()] == [("note.md", SECRET)]


def test_a_command_leaves_the_folder_of_its_agent_untouched_also_where_there_is_no_memory_yet(
    name: str, tmp_path: Path
) -> None:
    places = lay_out(tmp_path, "beside the folder")
    home = Path(places.home)
    before = home.stat().st_mtime_ns
    said = attempt(
        name, boxed(places), f"ls {home}/tools; cat {home}/agent.yaml; cat {home}/memory/*; touch {home}/new"
    )
    assert (said, home.stat().st_mtime_ns == before) == ("own\nname: a", True)


@pytest.mark.parametrize("more", ["a link", "many files"])
def test_memory_is_not_seen_where_the_agent_s_folder_is_shown_as_a_whole(name: str, more: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, "beside the folder")
    home = Path(places.home)
    if more == "a link":
        (home / "link").symlink_to(put(tmp_path / "state/sessions/1"))
    for number in range(20 if more == "many files" else 0):
        put(home / f"{number}.md", "")

    async def go() -> str:
        async with opened(name) as sandbox:
            going = asyncio.Event()
            line = f"echo going; until test -s mine; do :; done; cat {home}/link {home}/memory/note.md; echo end"
            task = asyncio.create_task(sh(sandbox, f"({line}) 2>/dev/null", boxed(places), heard=lambda _: going.set()))
            await going.wait()
            put(home / "memory/note.md")
            put(Path(places.workdir, "mine"))
            return told(await task)[2]

    Path(places.workdir, "mine").write_text("")
    assert (asyncio.run(go()), (home / "memory/note.md").read_text()) == ("going\nend\n", SECRET)


def test_a_file_with_tokens_in_it_is_not_read(name: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, "in the folder")
    canary = put(Path(places.workdir, "duragent.yaml"))
    box = boxed(replace(places, config_file=str(canary), secret_files=(str(canary),)))
    assert attacked(name, box, [canary]) == ("", [SECRET])


def test_settings_without_tokens_are_read_but_not_changed(name: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, "in the folder")
    canary = put(Path(places.workdir, "duragent.yaml"), "plain")
    said = attempt(name, boxed(replace(places, config_file=str(canary))), f"echo x > {canary} || cat {canary}")
    assert (said, canary.read_text()) == ("plain", "plain")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_agent_s_programs_still_run_and_its_folder_is_still_its_own(name: str, layout: str, tmp_path: Path) -> None:
    places = lay_out(tmp_path, layout)
    programs = (
        f"{places.home}/tools/own",
        f"{places.workspace}/tools/shared",
        f"{places.workspace}/skills/approved/run",
    )
    line = "; ".join([*programs, f"cat {places.home}/agent.yaml; echo; cat mine; echo more >> mine"])
    said = attempt(name, boxed(places), line)
    assert (said, Path(places.workdir, "mine").read_text()) == ("own\nshared\nrun\nname: a\nmine", "minemore\n")
