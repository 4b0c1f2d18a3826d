"""Programs as tools: which are offered and why others are not, what they are given, and what becomes of their output."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import BuiltinTool, CliTool, DiscoveredTool
from duragent.core.events import ToolAnswer
from duragent.sandbox import Limits, make, probe
from duragent.tools import cli, help, reloading
from tests.tools.running import BASICS, Door, asked, hosted, place, program


def offered(folder: Path, *tools: Any) -> tuple[list[str], list[str]]:
    """The names of what is offered, and the notes."""
    made, notes = cli.make_all(place(folder, None, tools=tools), tools)
    return [tool.spec.name for tool in made], notes


def call(folder: Path, text: str, **arguments: Any) -> ToolAnswer:
    """What a program in the agent's own tool folder answers."""

    async def run() -> ToolAnswer:
        program(folder / "home" / "tools" / "probe" / "run.sh", text)
        async with hosted(folder, limits=Limits(seconds=10)) as host:
            return await asked(cli.make_all(host, ())[0][0], **arguments)

    return asyncio.run(run())


def test_arguments_reach_the_program_one_by_one_and_no_shell(tmp_path: Path) -> None:
    given = ["a b", "$(touch x); `touch x`", "*", "'", ""]
    answer = call(tmp_path, 'for each in "$@"; do echo "<$each>"; done', args=given)
    assert answer == ToolAnswer(True, "<a b>\n<$(touch x); `touch x`>\n<*>\n<'>\n<>\n")
    assert os.listdir(tmp_path / "work") == []


def test_an_object_reaches_the_program_as_json_on_its_standard_input(tmp_path: Path) -> None:
    answer = call(tmp_path, 'cat; echo "$#"', input={"text": 'a "b" é', "n": [1, None]})
    assert answer == ToolAnswer(True, '{"text":"a \\"b\\" é","n":[1,null]}\n0\n')


def test_arguments_and_an_object_together_are_refused(tmp_path: Path) -> None:
    assert call(tmp_path, "echo ran", args=["a"], input={}) == ToolAnswer(
        False, "Give either args or input: a program gets the one or the other."
    )


def test_an_empty_list_of_arguments_does_not_stand_in_the_way_of_an_object(tmp_path: Path) -> None:
    assert call(tmp_path, 'cat; echo "$#"', args=[], input={"n": 1}) == ToolAnswer(True, '{"n":1}\n0\n')


def test_a_large_object_arrives_whole(tmp_path: Path) -> None:
    assert call(tmp_path, "wc -c", input={"text": "x" * 1_000_000}) == ToolAnswer(True, "1000012\n")


def test_it_works_where_the_agent_works_and_knows_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    answer = call(tmp_path, 'pwd; echo "$DURAGENT_TOOL_DIR"; echo "${OPENAI_API_KEY:-no key}"; cat')
    root = tmp_path.resolve()
    assert answer == ToolAnswer(True, f"{root}/work\n{root}/home/tools/probe\nno key\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo out; echo err >&2; exit 3", ToolAnswer(False, "out\nerr\n[probe ended with exit code 3]")),
        ("true", ToolAnswer(True, "probe printed nothing and ended with exit code 0.")),
        ("kill -TERM $$", ToolAnswer(False, "[probe was ended by signal 15 (SIGTERM)]")),
        (r"printf 'caf\303\251 \377'", ToolAnswer(True, "café \ufffd")),
    ],
)
def test_what_a_program_prints_and_how_it_ends_is_the_answer(text: str, expected: ToolAnswer, tmp_path: Path) -> None:
    assert call(tmp_path, text) == expected


@pytest.mark.parametrize("words", [["a\0b"], ["\ud800"]])
def test_arguments_that_no_program_can_be_given_are_refused(words: list[str], tmp_path: Path) -> None:
    assert call(tmp_path, "echo ran", args=words) == ToolAnswer(
        False, "probe was not started: its text holds a character that no command line can hold."
    )


def test_a_program_whose_interpreter_is_missing_says_so(tmp_path: Path) -> None:
    async def run() -> ToolAnswer:
        path = program(tmp_path / "home" / "tools" / "probe" / "run", "")
        path.write_text("#!/no/such/interpreter\n")
        async with hosted(tmp_path) as host:
            return await asked(cli.make_all(host, ())[0][0])

    path = (tmp_path / "home" / "tools" / "probe" / "run").resolve()
    assert asyncio.run(run()) == ToolAnswer(False, f"probe could not be started: No such file or directory ({path})")


# --- which are offered ---------------------------------------------------------------------------------------


def test_a_declared_program_wins_over_the_agents_own_and_that_over_the_workspaces(tmp_path: Path) -> None:
    program(tmp_path / "home" / "one.sh", "")
    for place_, name in [("home", "one"), ("home", "two"), ("space", "one"), ("space", "two"), ("space", "three")]:
        program(tmp_path / place_ / "tools" / name / "run", "")
    declared = CliTool("one", "./one.sh")
    found = cli.find(place(tmp_path, None), (declared,))
    root = tmp_path.resolve()
    assert [(each.name, each.source, each.argv) for each in found.programs] == [
        ("one", "declared", (f"{root}/home/one.sh",)),
        ("two", "agent", (f"{root}/home/tools/two/run",)),
        ("three", "workspace", (f"{root}/space/tools/three/run",)),
    ]
    assert (found.notes, found.folders) == ((), (f"{root}/home/tools", f"{root}/space/tools"))


def test_run_alone_comes_before_any_ending_and_those_in_their_order(tmp_path: Path) -> None:
    for name in ["a/run.sh", "a/run", "a/run.py", "b/run.sh", "b/run.py", "c/other", "d/runner.sh", ".hidden/run"]:
        program(tmp_path / name, "")
    program(tmp_path / "file", "")
    (tmp_path / "b" / "README.md").write_text("# b\n")
    assert cli.discover(str(tmp_path)) == [
        DiscoveredTool("a", f"{tmp_path}/a/run", None),
        DiscoveredTool("b", f"{tmp_path}/b/run.py", f"{tmp_path}/b/README.md"),
    ]
    assert cli.discover(str(tmp_path / "nowhere")) == []


def test_what_cannot_be_run_is_not_offered_and_a_note_says_what_to_do(tmp_path: Path) -> None:
    plain = program(tmp_path / "home" / "tools" / "it is" / "run", "").parent
    dull = program(tmp_path / "home" / "tools" / "dull" / "run.sh", "", 0o644)
    program(tmp_path / "space" / "tools" / "bash" / "run", "")
    names, notes = offered(
        tmp_path,
        CliTool("gone", "./gone.sh --fast"),
        CliTool("odd", "echo 'half"),
        CliTool("empty", "   "),
        CliTool("nowhere", "no-such-program-x"),
        CliTool("system", "printf %s"),
    )
    root = tmp_path.resolve()
    assert names == ["system"]
    assert notes == [
        f"Not offered: gone. There is no file {root}/home/gone.sh.",
        "Not offered: odd. Its command cannot be read (no closing quotation): echo 'half",
        "Not offered: empty. Its command is empty: name the program to run.",
        "Not offered: nowhere. There is no program no-such-program-x, neither in the agent's folder nor on the PATH.",
        f"Not offered: dull. {dull.resolve()} is not executable. Try: chmod +x {dull.resolve()}",
        f"Not offered: {plain.resolve()}/run cannot be called it is; use letters, digits, - and _ only.",
        f"Not offered: {root}/space/tools/bash/run cannot be called bash; the name belongs to a builtin tool.",
    ]


def test_a_declared_command_keeps_its_words_and_finds_a_file_of_the_agent_before_the_path(tmp_path: Path) -> None:
    program(tmp_path / "home" / "printf", 'echo "mine: $*"')

    async def run() -> list[ToolAnswer]:
        async with hosted(tmp_path) as host:
            tools = (CliTool("mine", "printf 'a b' c"), CliTool("system", "/usr/bin/printf '<%s>'"))
            return [await asked(tool, args=["x y"]) for tool in cli.make_all(host, tools)[0]]

    assert asyncio.run(run()) == [ToolAnswer(True, "mine: a b c x y\n"), ToolAnswer(True, "<x y>")]


def test_a_tool_may_read_its_own_folder_and_one_beside_the_agents_files_only_itself(tmp_path: Path) -> None:
    program(tmp_path / "home" / "top.sh", "")
    program(tmp_path / "home" / "tools" / "own" / "run", "")
    program(tmp_path / "elsewhere" / "x.sh", "")
    tools = (CliTool("top", "./top.sh"), CliTool("out", "../elsewhere/x.sh"), CliTool("system", "true"))
    found = cli.find(place(tmp_path, None), tools)
    root = tmp_path.resolve()
    assert {each.name: each.own for each in found.programs} == {
        "top": f"{root}/home/top.sh",
        "out": f"{root}/elsewhere/x.sh",
        "system": "",
        "own": f"{root}/home/tools/own",
    }


def test_a_tool_folder_that_is_a_link_out_of_the_agents_folder_is_not_followed(tmp_path: Path) -> None:
    program(tmp_path / "secret" / "run", "")
    (tmp_path / "home" / "tools").mkdir(parents=True)
    (tmp_path / "home" / "tools" / "sly").symlink_to(tmp_path / "secret")
    assert offered(tmp_path) == ([], [])


def test_specs_say_what_rules_need_to_know(tmp_path: Path) -> None:
    program(tmp_path / "home" / "tools" / "own" / "run", "")
    [tool], _ = cli.make_all(place(tmp_path, None), ())
    assert (tool.spec.kind, tool.spec.needs, tool.spec.effect, tool.spec.unruled) == (
        "cli",
        ("tool",),
        "unknown",
        "ask",
    )


def test_another_formats_tools_folder_is_not_searched(tmp_path: Path) -> None:
    program(tmp_path / "home" / "tools" / "own" / "run", "")
    host = place(tmp_path, None)
    host.agent = type(host.agent)(name="bot")
    assert cli.find(host, ()).programs == ()


# --- what the model is told of them --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("readme", "description"),
    [
        ("# Agenda\n\nShows what is planned. Use --day.\n", "Shows what is planned."),
        ("# Only a heading\n", "Only a heading"),
        ("<!-- x -->\n[![badge](x)]\nNo full stop here\nsecond line", "No full stop here"),
        ("", "Runs the program own."),
        ("x" * 1000, "x" * 300),
        ("bad \x1b[31m\u202ebytes.", "bad bytes."),
    ],
)
def test_the_first_sentence_of_a_readme_describes_a_tool(readme: str, description: str, tmp_path: Path) -> None:
    path = program(tmp_path / "home" / "tools" / "own" / "run", "")
    (path.parent / "README.md").write_text(readme)
    assert cli.make_all(place(tmp_path, None), ())[0][0].spec.description == description


def test_a_manual_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    path = program(tmp_path / "home" / "tools" / "own" / "run", "")
    program(tmp_path / "home" / "tools" / "mute" / "run", "")
    (path.parent / "README.md").write_text("# Own\n\nFirst.\n")
    made, _ = cli.make_all(place(tmp_path, None), ())
    assert [tool.spec.name for tool in made] == ["mute", "own", "tool_help"]
    spec = made[-1].spec
    assert (spec.parameters["properties"]["name"]["enum"], spec.effect, spec.quiet) == (["own"], "pure", ("*",))
    (path.parent / "README.md").write_text("# Own\n\nNow it says more.\n")
    assert asyncio.run(asked(made[-1], name="own")) == ToolAnswer(True, "# Own\n\nNow it says more.\n")


def test_a_manual_is_cut_and_one_that_is_gone_is_said_to_be(tmp_path: Path) -> None:
    path = program(tmp_path / "home" / "tools" / "own" / "run", "")
    (path.parent / "README.md").write_text("x" * 100_000)
    [_, manual], _ = cli.make_all(place(tmp_path, None), ())
    long = asyncio.run(asked(manual, name="own"))
    assert long == ToolAnswer(True, "x" * help.MAX_BYTES + "\n[cut after 65,536 bytes]")
    (path.parent / "README.md").unlink()
    gone = asyncio.run(asked(manual, name="own"))
    assert gone == ToolAnswer(False, "The manual of own cannot be read: No such file or directory.")


def test_a_readme_outside_of_the_agents_folder_is_no_manual(tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("a key")
    program(tmp_path / "home" / "top.sh", "")
    path = program(tmp_path / "home" / "tools" / "own" / "run", "")
    (path.parent / "README.md").symlink_to(tmp_path / "secret.md")
    made, _ = cli.make_all(place(tmp_path, None), (CliTool("top", "./top.sh", readme="../secret.md"),))
    assert [(tool.spec.name, tool.spec.description) for tool in made] == [
        ("top", "Runs the program top."),
        ("own", "Runs the program own."),
    ]


# --- looking again -------------------------------------------------------------------------------------------


def test_a_stamp_stays_until_something_changes_that_was_looked_at(tmp_path: Path) -> None:
    path = program(tmp_path / "home" / "tools" / "own" / "run", "")
    declared = (CliTool("top", "./top.sh x", readme="./TOP.md"), BuiltinTool("bash"))
    host = place(tmp_path, None)
    stamps = [cli.stamp(host, declared)]
    (tmp_path / "home" / "unrelated").write_text("")
    assert cli.stamp(host, declared) == stamps[0]
    changes = [
        lambda: path.chmod(0o644),
        lambda: (path.parent / "README.md").write_text("Says something."),
        lambda: program(tmp_path / "space" / "tools" / "new" / "run", ""),
        lambda: program(tmp_path / "home" / "top.sh", ""),
        lambda: (tmp_path / "home" / "TOP.md").write_text("Manual."),
        lambda: path.unlink(),
    ]
    for change in changes:
        change()
        stamps.append(cli.stamp(host, declared))
    assert len(set(stamps)) == len(changes) + 1


def test_reload_tools_tells_what_is_there_now_and_has_the_runtime_use_it(tmp_path: Path) -> None:
    door = Door()
    host = place(tmp_path, None, door=door, tools=(CliTool("top", "true"),))
    tool = reloading.make(host)
    path = program(tmp_path / "space" / "tools" / "late" / "run", "")
    (path.parent / "README.md").write_text("Came later.")
    program(tmp_path / "home" / "tools" / "dull" / "run", "", 0o600)
    answer = asyncio.run(asked(tool))
    root = tmp_path.resolve()
    assert (answer.success, json.loads(answer.content), door.reloaded) == (
        True,
        {
            "discovered_tools": [{"name": "late", "description": "Came later."}],
            "count": 1,
            "directories_scanned": [f"{root}/home/tools", f"{root}/space/tools"],
            "notes": [
                f"Not offered: dull. {root}/home/tools/dull/run is not executable. "
                f"Try: chmod +x {root}/home/tools/dull/run"
            ],
        },
        ["bot"],
    )
    assert (tool.spec.effect, tool.spec.unruled, tool.spec.quiet) == ("repeatable", "ask", ())


def test_the_path_of_the_box_and_not_ours_decides_what_the_system_has(tmp_path: Path) -> None:
    host = place(tmp_path, None, environment={**BASICS, "PATH": str(tmp_path)})
    assert cli.find(host, (CliTool("system", "printf"),)).programs == ()


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_a_program_in_a_sandbox_reads_its_own_folder_and_no_other_tools(backend: str, tmp_path: Path) -> None:
    if not (tried := probe(backend)).works:
        pytest.skip(f"NOT PROVEN: programs as tools in {backend}: {tried.reason}")
    path = program(
        tmp_path / "home" / "tools" / "own" / "run", 'cat "$(dirname "$0")/data"; cat ../home/secret; pwd; touch made'
    )
    (path.parent / "data").write_text("mine\n")
    (tmp_path / "home" / "secret").write_text("canary\n")

    async def run() -> ToolAnswer:
        async with hosted(tmp_path, make(backend)) as host:
            return await asked(cli.make_all(host, ())[0][0])

    answer = asyncio.run(run())
    work = (tmp_path / "work").resolve()
    lines = answer.content.splitlines()
    assert (answer.success, lines[0], lines[-1], "canary" in answer.content) == (True, "mine", str(work), False)
    assert os.listdir(work) == ["made"]
