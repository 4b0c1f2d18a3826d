"""The skill tool: what it loads, reads and runs, and what it does not."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duragent.agent import Abilities, Agent, Schedule, Skill, Source, Trigger, Trust
from duragent.agentfiles import examine, load
from duragent.core.events import ToolAnswer
from duragent.sandbox import Box, Ended, Limits
from duragent.sandbox.none import NoSandbox
from duragent.tools import NOWHERE
from duragent.tools.host import Host
from duragent.tools.skills import make

HEADER = "---\nname: tasks\ndescription: Finds tasks.\n---\n\n"
MANIFEST = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata: {name: bot}
spec:
  model: {provider: openai, name: gpt-4o-mini}
"""


class Watched(NoSandbox):
    """Remembers in which boxes it ran what."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes: list[Box] = []
        self.commands: list[list[str]] = []

    async def run(
        self,
        argv: Sequence[str],
        box: Box,
        *,
        stdin: bytes = b"",
        heard: Callable[[bytes], None] | None = None,
    ) -> Ended:
        self.boxes.append(box)
        self.commands.append(list(argv))
        return await super().run(argv, box, stdin=stdin, heard=heard)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An agent with one skill that has a reference."""
    folder = tmp_path / "bot"
    skill = folder / "skills" / "tasks"
    (skill / "scripts").mkdir(parents=True)
    (skill / "references").mkdir()
    (folder / "agent.yaml").write_text(MANIFEST)
    (skill / "SKILL.md").write_text(f"{HEADER}List every task.\n")
    (skill / "references" / "examples.md").write_text("One example.\n")
    return folder


def script(home: Path, text: str, name: str = "go.sh", mode: int = 0o755) -> Path:
    path = home / "skills" / "tasks" / "scripts" / name
    path.write_text(text)
    path.chmod(mode)
    return path


def box(home: Path, seconds: float = 30, output_bytes: int = 262_144) -> Box:
    path = os.environ.get("PATH", os.defpath)
    return Box(str(home), environment={"PATH": path}, limits=Limits(seconds=seconds, output_bytes=output_bytes))


def host(home: Path, agent: Agent | None = None, **more: Any) -> Host:
    place = str(home)
    settings: dict[str, Any] = {"box": box(home), "sandbox": None, **more}
    return Host(
        agent or load(home), home=place, workdir=place, workspace=place, memory_dir=place, world_dir=place, **settings
    )


def call(place: Host, **arguments: object) -> ToolAnswer:
    """One call; the sandbox is closed behind it."""

    async def once() -> ToolAnswer:
        tool = make(place)
        assert tool is not None
        try:
            answer = await tool.run(arguments, NOWHERE)
        finally:
            if place.sandbox is not None:
                await place.sandbox.close()
        return answer if isinstance(answer, ToolAnswer) else ToolAnswer(True, answer)

    return asyncio.run(once())


def running(home: Path, **arguments: object) -> ToolAnswer:
    given = {"action": "run", "name": "tasks", "script": "go.sh", **arguments}
    return call(host(home, sandbox=NoSandbox()), **given)


# --- which tool there is ---------------------------------------------------------------------------------


def test_an_agent_without_a_skill_for_the_model_has_no_skill_tool(home: Path) -> None:
    hidden, persona = Skill("a", model_may_invoke=False), Skill("b", kind="persona")
    remote = Skill("c", path="https://example.com/c")
    assert make(host(home, Agent(name="bot"))) is None
    assert make(host(home, Agent(name="bot", skills=(hidden, persona, remote)))) is None


def test_the_tool_says_what_its_actions_do_and_which_skills_there_are(home: Path) -> None:
    tool = make(host(home, sandbox=NoSandbox()))
    assert tool is not None
    spec = tool.spec
    assert (spec.name, spec.kind, spec.needs, spec.detail) == ("skill", "builtin", (), ("script", "name"))
    assert spec.effects == {"load": "pure", "read": "pure", "unload": "pure", "run": "unknown"}
    assert spec.quiet == ("load", "read", "unload")
    assert spec.parameters["properties"]["name"]["enum"] == ["tasks"]
    assert spec.parameters["properties"]["action"]["enum"] == ["load", "read", "run", "unload"]


@pytest.mark.parametrize(
    ("change", "sandbox", "why"),
    [
        ({}, False, "Nothing here may run a program: no sandbox works on this machine."),
        ({"trust": Trust(exec="none")}, True, "the agent's trust says exec: none"),
        ({"abilities": Abilities(deny=("sh",))}, True, "the agent is not allowed to run commands (sh)"),
        ({"abilities": Abilities(allow=("fs", "sh:git"))}, True, "the agent is not allowed to run commands (sh)"),
    ],
)
def test_where_nothing_may_run_running_is_neither_offered_nor_done(
    change: dict[str, Any], sandbox: bool, why: str, home: Path
) -> None:
    script(home, "#!/bin/sh\ntouch ran\n")
    agent = replace(load(home), **change)
    tool = make(host(home, agent, sandbox=NoSandbox() if sandbox else None))
    assert tool is not None
    assert set(tool.spec.parameters["properties"]) == {"action", "name", "file", "offset"}
    assert tool.spec.parameters["properties"]["action"]["enum"] == ["load", "read", "unload"]
    place = host(home, agent, sandbox=NoSandbox() if sandbox else None)
    answer = call(place, action="run", name="tasks", script="go.sh")
    assert (answer.success, why in answer.content) == (False, True)
    assert not (home / "ran").exists()


# --- load ------------------------------------------------------------------------------------------------


def test_load_gives_the_instructions_and_what_comes_with_them(home: Path) -> None:
    script(home, "#!/bin/sh\n")
    expected = """\
List every task.

Files of this skill; read one with skill {"action": "read", "name": "tasks", "file": …}:
- references/examples.md (13 bytes)

Scripts of this skill; run one with skill {"action": "run", "name": "tasks", "script": …}:
- scripts/go.sh (10 bytes)"""
    assert call(host(home), action="load", name="tasks") == ToolAnswer(True, expected)


def test_a_file_that_is_gone_is_listed_without_a_size(home: Path) -> None:
    place = host(home)
    (home / "skills/tasks/references/examples.md").unlink()
    assert call(place, action="load", name="tasks").content.endswith("\n- references/examples.md")


def test_an_unknown_skill_is_answered_with_those_that_there_are(home: Path) -> None:
    answer = call(host(home), action="load", name="task")
    assert answer == ToolAnswer(False, "There is no skill 'task'; there are tasks.")
    assert call(host(home), action="load") == ToolAnswer(False, "Which skill? Give its name: tasks.")


def test_an_unknown_action_is_answered_with_those_that_there_are(home: Path) -> None:
    assert call(host(home), action="eat") == ToolAnswer(
        False, "There is no action 'eat'; there are load, read, unload."
    )


def test_unload_needs_no_name(home: Path) -> None:
    assert call(host(home), action="unload") == ToolAnswer(True, "No skill is loaded any more.")


def test_a_skill_that_only_a_person_may_start_is_not_loaded_by_the_model(home: Path) -> None:
    agent = load(home)
    hidden = replace(agent.skills[0], name="private", model_may_invoke=False)
    place = host(home, replace(agent, skills=(*agent.skills, hidden)))
    refusal = ToolAnswer(False, "The skill private is not for you to load: only a person can start it.")
    assert call(place, action="load", name="private") == refusal
    assert call(place, action="read", name="private", file="SKILL.md") == refusal


@pytest.mark.parametrize("by", ["trigger", "schedule"])
def test_the_files_of_a_skill_that_a_message_or_the_clock_activates_can_be_read(by: str, home: Path) -> None:
    agent = load(home)
    hidden = (replace(agent.skills[0], model_may_invoke=False),)
    if by == "trigger":
        agent = replace(agent, skills=hidden, triggers=(Trigger("tasks *", "tasks"),))
    else:
        agent = replace(agent, skills=hidden, schedules=(Schedule("0 8 * * *", skill="tasks"),))
    place = host(home, agent)
    read = call(place, action="read", name="tasks", file="references/examples.md")
    assert read == ToolAnswer(True, "One example.\n")
    assert not call(place, action="load", name="tasks").success


def test_a_skill_with_a_broken_header_is_named_and_the_agent_goes_on_without_it(home: Path) -> None:
    (home / "skills/tasks/SKILL.md").write_text("---\nname: [tasks\n---\n")
    found = examine(home)
    assert found.agent is not None and "tasks" not in [skill.name for skill in found.agent.skills]
    assert {problem.file for problem in found.problems} == {str(home / "skills/tasks/SKILL.md")}


def test_a_skill_whose_header_breaks_while_a_session_runs_stays_as_it_was(home: Path) -> None:
    place = host(home)
    (home / "skills/tasks/SKILL.md").write_text("---\nname: [tasks\n---\n")
    assert call(place, action="load", name="tasks").content.startswith("List every task.")


# --- read ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "file",
    [
        "../../agent.yaml",
        "../tasks/SKILL.md",
        "references/../../../agent.yaml",
        "/etc/passwd",
        "..",
        ".",
        "references/a\x00b",
        "out.md",
        "out/agent.yaml",
    ],
)
def test_nothing_outside_of_the_skill_is_read(file: str, home: Path) -> None:
    skill = home / "skills" / "tasks"
    place = host(home)
    (skill / "out.md").symlink_to(home / "agent.yaml")
    (skill / "out").symlink_to(home)
    answer = call(place, action="read", name="tasks", file=file)
    assert answer == ToolAnswer(False, f"{file!r} is not inside the skill tasks.")


def test_a_link_within_the_skill_is_followed(home: Path) -> None:
    (home / "skills/tasks/alias.md").symlink_to("references/examples.md")
    assert call(host(home), action="read", name="tasks", file="alias.md") == ToolAnswer(True, "One example.\n")


def test_a_missing_file_is_answered_with_those_that_there_are(home: Path) -> None:
    assert call(host(home), action="read", name="tasks", file="references/none.md") == ToolAnswer(
        False, "The skill tasks has no file 'references/none.md'; there are: references/examples.md."
    )


def test_a_folder_and_a_pipe_are_no_files_to_read(home: Path) -> None:
    place = host(home)
    os.mkfifo(home / "skills/tasks/pipe")
    for file in ("references", "pipe"):
        answer = call(place, action="read", name="tasks", file=file)
        assert answer == ToolAnswer(False, f"{file} is no file that can be read.")


def test_a_huge_file_is_read_piece_by_piece(home: Path) -> None:
    text = "ü" * (5 << 20)  # 10 MiB; the pieces end within characters
    (home / "skills/tasks/references/huge.md").write_text("x" + text)
    place = host(home)
    where = {"action": "read", "name": "tasks", "file": "references/huge.md"}
    cut = "\n[Cut here: bytes 0 to 65,535 of 10,485,761. Go on with offset 65535.]"
    assert call(place, **where) == ToolAnswer(True, "x" + "ü" * 32_767 + cut)
    cut = "\n[Cut here: bytes 65,535 to 131,071 of 10,485,761. Go on with offset 131071.]"
    assert call(place, **where, offset=65_535) == ToolAnswer(True, "ü" * 32_768 + cut)
    assert call(place, **where, offset=10_485_758) == ToolAnswer(True, "ü")
    nothing = "references/huge.md has 10,485,761 bytes: there is nothing at"
    assert call(place, **where, offset=10_485_760) == ToolAnswer(True, f"{nothing} 10,485,760.")
    assert call(place, **where, offset=1 << 40) == ToolAnswer(True, f"{nothing} 1,099,511,627,776.")


def test_an_empty_file_says_so(home: Path) -> None:
    (home / "skills/tasks/nothing.md").touch()
    assert call(host(home), action="read", name="tasks", file="nothing.md") == ToolAnswer(True, "nothing.md is empty.")


def test_an_offset_must_be_a_number_of_bytes(home: Path) -> None:
    answer = call(host(home), action="read", name="tasks", file="SKILL.md", offset=-1)
    assert answer == ToolAnswer(False, "The offset is a number of bytes from the beginning: 0 or more.")


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n\x00\x00", b"caf\xe9 and more", b"a\x00b"])
def test_a_binary_file_is_not_shown(data: bytes, home: Path) -> None:
    (home / "skills/tasks/picture.png").write_bytes(data)
    answer = call(host(home), action="read", name="tasks", file="picture.png")
    assert answer == ToolAnswer(False, f"picture.png is no text ({len(data)} bytes). A script may be able to use it.")


def test_secrets_and_escapes_do_not_pass(home: Path) -> None:
    (home / "skills/tasks/note.md").write_text("\x1b[31mkey: sk-123\u202e\n")
    place = host(home, redact=lambda text: text.replace("sk-123", "***"))
    assert call(place, action="read", name="tasks", file="note.md") == ToolAnswer(True, "key: ***\n")


def test_a_single_markdown_file_has_no_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "skills"
    folder.mkdir()
    (folder / "one.md").write_text("One.\n")
    (folder / "two.md").write_text("Two.\n")
    agent = Agent(name="bot", skills=(Skill("one", body="One.", path="skills/one.md"),), source=Source(path="."))
    place = host(tmp_path, agent)
    assert call(place, action="read", name="one", file="one.md") == ToolAnswer(True, "One.\n")
    answer = call(place, action="read", name="one", file="two.md")
    assert answer == ToolAnswer(False, "'two.md' is not inside the skill one.")


# --- run -------------------------------------------------------------------------------------------------


def test_a_script_gets_its_arguments_one_by_one_and_its_input_as_json(home: Path) -> None:
    script(home, '#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\ncat\n')
    given = {"b": ["ü", 1]}
    answer = running(home, args=["a b", "$(touch x)", ";"], input=given)
    head, _, rest = answer.content.rpartition("\n")
    assert (answer.success, head, json.loads(rest)) == (True, "<a b>\n<$(touch x)>\n<;>", given)


def test_a_script_runs_in_the_agents_box_with_its_own_folder_to_read(home: Path) -> None:
    path = script(home, "#!/bin/sh\npwd\n")
    sandbox = Watched()
    place = host(home, sandbox=sandbox, box=replace(box(home), readable=("/opt",)))
    answer = call(place, action="run", name="tasks", script="scripts/go.sh")
    assert answer == ToolAnswer(True, f"{os.path.realpath(home)}\n")
    assert sandbox.commands == [[os.path.realpath(path)]]
    assert [each.readable for each in sandbox.boxes] == [("/opt", os.path.realpath(home / "skills/tasks"))]
    assert [each.cwd for each in sandbox.boxes] == [str(home)]


def test_a_script_that_is_not_executable_runs_by_the_interpreter_it_names(home: Path) -> None:
    script(home, "#!/usr/bin/env -S sh -e\necho fine\n", mode=0o644)
    assert running(home) == ToolAnswer(True, "fine\n")


@pytest.mark.parametrize("text", ["echo no\n", "#!/usr/bin/env frobnicate\n", "#!\n", ""])
def test_a_script_that_cannot_be_started_is_answered_with_what_its_owner_can_do(text: str, home: Path) -> None:
    path = script(home, text, mode=0o644)
    hint = f"go.sh is not executable. Its owner can mend that: chmod +x {os.path.realpath(path)}"
    assert running(home) == ToolAnswer(False, hint)


@pytest.mark.parametrize("name", ["none.sh", "scripts/none.sh"])
def test_a_missing_script_is_named(name: str, home: Path) -> None:
    assert running(home, script=name) == ToolAnswer(
        False, "The skill tasks has no file 'scripts/none.sh'; there are: references/examples.md."
    )


@pytest.mark.parametrize("name", ["../references/examples.md", "/bin/sh", "../../../agent.yaml"])
def test_nothing_outside_of_the_scripts_is_run(name: str, home: Path) -> None:
    answer = running(home, script=name)
    assert (answer.success, "is not inside the skill tasks." in answer.content) == (False, True)


@pytest.mark.parametrize("args", ["-x", [1], {"a": 1}, ["a\x00b"]])
def test_arguments_that_are_no_list_of_texts_are_refused(args: object, home: Path) -> None:
    script(home, "#!/bin/sh\n")
    expected = "The arguments are not as they should be: args is a list of texts."
    assert running(home, args=args) == ToolAnswer(False, expected)


def test_a_script_that_fails_says_how_it_ended(home: Path) -> None:
    script(home, "#!/bin/sh\necho half; exit 3\n")
    assert running(home) == ToolAnswer(False, "half\n[go.sh ended with exit code 3]")


def test_a_script_that_hangs_is_ended(home: Path) -> None:
    script(home, "#!/bin/sh\nexec sleep 600\n")
    place = host(home, sandbox=NoSandbox(), box=box(home, seconds=0.3))
    answer = call(place, action="run", name="tasks", script="go.sh")
    expected = "[go.sh took longer than 0.3 s and was ended with everything it had started]"
    assert answer == ToolAnswer(False, expected)


def test_a_script_has_as_long_as_the_owner_gave(home: Path) -> None:
    script(home, "#!/bin/sh\n")
    watched = Watched()
    call(host(home, sandbox=watched, box=box(home, seconds=3_600)), action="run", name="tasks", script="go.sh")
    assert [each.limits.seconds for each in watched.boxes] == [3_600]


def test_a_script_that_floods_is_cut(home: Path) -> None:
    script(
        home,
        "#!/bin/sh\ni=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done\n",
    )
    place = host(home, sandbox=NoSandbox(), box=box(home, output_bytes=20_000))
    answer = call(place, action="run", name="tasks", script="go.sh")
    assert (answer.success, len(answer.content) < 21_000) == (True, True)
    assert "bytes left out]" in answer.content


def test_what_a_script_prints_is_free_of_secrets(home: Path) -> None:
    script(home, "#!/bin/sh\necho key sk-123\n")
    place = host(home, sandbox=NoSandbox(), redact=lambda text: text.replace("sk-123", "***"))
    assert call(place, action="run", name="tasks", script="go.sh") == ToolAnswer(True, "key ***\n")
