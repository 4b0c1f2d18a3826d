"""The commands of an `.agent.md` file."""

import pytest

from duragent.agent import Command, Origin
from duragent.formats import agentmd
from duragent.formats.shape import File, Files, Need
from tests.formats.agentmd_driver import NAME, agent, place, problem, read, read_all

POLICY = """---
commands:
  - https://example.com/commands/
  - name: test
    description: Generates unit tests for a specific function or file.
    argument-hint: [target-name] [framework]
    body: |
      Create unit tests for $1 using the $2 framework.
      argument-hint: [a] [b] is text here.
---
# Tester
"""


def listed(*items: str) -> str:
    lines = "".join(f"  - {item}\n" for item in items)
    return f"---\ncommands:\n{lines}---\n# T\n"


def inline(name: str, rest: str = "body: b") -> str:
    return "{" + f"name: {name}, description: d, {rest}" + "}"


def test_the_example_of_the_policy_is_read_although_its_hint_is_not_yaml() -> None:
    parsed = read(POLICY)
    hint, folder = parsed.problems
    assert (hint.level, place(hint)) == ("warning", (6, 20))
    assert "'[target-name] [framework]'" in hint.hint
    assert (folder.level, place(folder)) == ("warning", (3, 5))
    assert "cannot be listed" in folder.text
    assert parsed.agent is not None
    (command,) = parsed.agent.commands
    assert command.argument_hint == "[target-name] [framework]"
    assert command.body.splitlines()[1] == "argument-hint: [a] [b] is text here."


def test_hints_may_be_a_text_or_a_list() -> None:
    hints = ["hint", "[one, two]", "[[one], '[two]']", "''", "[]"]
    text = listed(*(inline(f"c{index}", f"body: b, argument-hint: {hint}") for index, hint in enumerate(hints)))
    found = [each.argument_hint for each in agent(text).commands]
    assert found == ["hint", ("one", "two"), ("[one]", "[two]"), "", ""]


def test_a_folder_gives_its_markdown_files_in_order_and_nothing_below() -> None:
    files = {
        NAME: listed("./cmds"),
        "cmds/b.md": "Do $1.\n",
        "cmds/a.md": "---\ndescription: About a\nArgument-Hint: [x] [y]\n---\n\nDo it.\n",
        "cmds/notes.txt": "no",
        "cmds/.hidden.md": "no",
        "cmds/deep/c.md": "no",
    }
    parsed = read_all(files)
    assert [(each.level, each.file, place(each)) for each in parsed.problems] == [("warning", "cmds/a.md", (3, 16))]
    assert parsed.agent is not None
    assert parsed.agent.commands == (
        Command("a", "About a", "Do it.", "[x] [y]", "cmds/a.md"),
        Command("b", "", "Do $1.", "", "cmds/b.md"),
    )
    assert parsed.agent.origins["commands[0]"] == Origin("cmds/a.md", 1, 1)


def test_paths_are_relative_to_the_file_and_asked_for_by_what_they_look_like() -> None:
    text = listed("./c/one.md", "more")
    answer = agentmd.parse(Files("agents/a_b.agent.md", {"agents/a_b.agent.md": File(text)}))
    assert isinstance(answer, Need)
    assert (answer.files, answer.folders) == ({"agents/c/one.md"}, {"agents/more"})


def test_the_agents_own_folder_gives_commands_but_not_the_agent() -> None:
    assert [each.name for each in read_all({NAME: listed("."), "go.md": "Go."}).agent.commands] == ["go"]  # type: ignore[union-attr]


def test_a_url_is_remembered_and_not_fetched() -> None:
    url = "https://example.com/commands/fix-bug.md?x=1"
    assert agent(listed(url)).commands == (Command("fix-bug", source=url),)


def test_the_same_file_named_twice_is_one_command() -> None:
    assert len(agent(listed("./cmds", "./cmds/a.md", "cmds/../cmds/a.md"), cmds__a="A").commands) == 1


@pytest.mark.parametrize(
    ("items", "line", "words"),
    [
        ([inline("go"), inline("GO")], 4, "two commands are called 'GO'"),
        (["./cmds", inline("a")], 4, "two commands are called 'a'"),
        (["https://x.y/a.md", "./cmds/a.md"], 4, "two commands are called 'a'"),
        (["./nothing.md"], 3, "nothing.md is not there"),
        (["./nowhere"], 3, "nowhere is not there"),
        (["./cmds/list.txt"], 3, "neither a folder nor a .md file"),
        (["http://x.y/a.md"], 3, "not an https address"),
        (["ftp://x.y/a.md"], 3, "not an https address"),
        (["ag1:abc"], 3, "not an https address"),
        (["https://x.y/a%20b.md"], 3, "a command cannot have"),
        (['"a\\0b.md"'], 3, "control character"),
        (["''"], 3, "must be a text"),
        (["null"], 3, "must be a text"),
        (["5: 6"], 3, "commands[0].name is missing"),
        (["{name: a, description: b}"], 3, "commands[0].body is missing"),
        (["{name: a, body: b}"], 3, "commands[0].description is missing"),
        ([inline("a b")], 3, "not allowed"),
        ([inline("_a")], 3, "not allowed"),
        ([inline("a", "body: ''")], 3, "must be a text"),
        ([inline("a", "body: b, Body: c")], 3, "the same key"),
    ],
)
def test_commands_that_cannot_be_used_are_refused(items: list[str], line: int, words: str) -> None:
    parsed = read_all({NAME: listed(*items), "cmds/a.md": "A", "cmds/list.txt": "x"})
    assert parsed.agent is None
    found = next(each for each in parsed.problems if each.level == "error")
    assert words in found.text
    assert found.line == line


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("---\ndescription: [a]\n---\nx", (2, 14), "must be a text"),
        ("---\nname: other\n---\nx", (2, 7), "'other' here and 'a' by its file"),
        ("---\nbody: other\n---\nx", (2, 1), "below its header"),
        ("---\ndescription: x\n", (1, 1), "never ends"),
        ("---\n- x\n---\n", (2, 1), "a list"),
    ],
)
def test_a_broken_command_file_is_refused_at_its_own_place(text: str, where: tuple[int, int], words: str) -> None:
    parsed = read(listed("a.md"), a=text)
    assert parsed.agent is None
    found = next(each for each in parsed.problems if each.level == "error")
    assert (found.file, place(found)) == ("a.md", where)
    assert words in found.text


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("---\ndescription: x\n---\n\nCosts $0.50 and $$0.\n  Use $0.\n", (6, 7), "$0 stands for nothing"),
        ("first $0", (1, 7), "$0 stands for nothing"),
        ("---\nmodel: big\n---\nx", (2, 1), "unknown field `model`"),
        ("---\nname: A\n---\n", (4, 1), "has no text"),
    ],
)
def test_odd_command_files_are_reported_at_their_place(text: str, where: tuple[int, int], words: str) -> None:
    found = problem(read(listed("a.md"), a=text), "warning")
    assert (found.file, place(found)) == ("a.md", where)
    assert words in found.text


def test_what_a_command_says_beyond_the_known_is_kept() -> None:
    parsed = read(listed("a.md", inline("b", "body: b, x-y: 2"), "https://x.y/z/"), a="---\nmodel: big\n---\nx")
    assert parsed.agent is not None
    kept = {"fields": {"a": {"model": "big"}, "b": {"x-y": 2}}, "folders": ["https://x.y/z/"]}
    assert parsed.agent.extra == {"agentmd": {"commands": kept}}
