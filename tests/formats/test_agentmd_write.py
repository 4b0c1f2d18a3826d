"""Writing `.agent.md`: what is read back is the same agent."""

from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from duragent.agent import Abilities, Agent, Command, InlineTools, ModelChoice, ModelRef, PromptPart, Startup
from duragent.formats import agentmd
from duragent.formats.fields import inner_paths
from duragent.formats.write import dump_yaml
from duragent.formats.yaml import parse_yaml, plain
from tests.formats.agentmd_driver import NAME, agent, essence, read_all, read_back

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "policy-writer"

PIECES = [
    "# Helper", "# helper #", "Helper\n===", "# Avatar", "## System", "## system", "Rules\n---", "## Rules", "## Tools",
    "## Other", "### Deeper", "#", "# Second", "Helps with *things*.", "two\nlines", "![me](a.png)", "- a\n- b",
    "- a\n\n  ```js\n  return 1\n  ```", "```js\nreturn {go: 1}\n```", "~~~\n## System\n~~~", "```\nopen", "<!-- open",
    "<div>\n\n## Rules\n\n</div>", "    code", "---", "{{x}}", "> ## quoted", "[a]: b", "text  ", "\t", "a\n    b",
]  # fmt: skip
COMMANDS: list[object] = [
    "./c.md", "./many", "https://x.y/z.md", "https://x.y/",
    {"name": "go", "description": "d", "body": " a\n\nb\n", "argument-hint": ["[a]", "b"], "x-y": 1},
    {"name": "Stop", "description": " d ", "body": "{{x}}"},
]  # fmt: skip
BESIDE = {
    "c.md": "---\nmodel: big\n---\n---\nx: 1\n---\n", "many/e.md": "", "many/f.md": "F $1"
}  # fmt: skip
WORDS = st.text(alphabet="ab #-*`:'\"{}[]>!\n\t.0é🤖\\", max_size=12)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "version": st.sampled_from(["1.0", "yes", "0.1.0", "1e3"]),
        "icon": st.sampled_from(["🤖", "x", ""]),
        "title": st.just("helper") | WORDS,
        "description": st.just("Helps with *things*.") | WORDS,
        "status": st.sampled_from(["active", "DISABLED"]),
        "avatar": st.just("a.png") | WORDS,
        "templateEngine": st.sampled_from(["hbs", ""]),
        "input": st.sampled_from([0, "", [1, {"a": None}], 1.5, "1.5", "a\n b "]),
        "recommended": st.just({"models": ["a/b", "c", "/d/e"], "temperature": 1}),
        "required": st.sampled_from([{"env": "A,B"}, {"env": ["A"], "startup": "go", "More": {}}]),
        "commands": st.lists(st.sampled_from(COMMANDS), unique_by=str, max_size=4),
        "allow": st.sampled_from(["*", "", "fs,SH:git", ["sh"], False]),
        "deny": st.sampled_from(["", ["sh:rm"], "network"]),
        "system": st.just("{{x}}") | WORDS,
        "rules": WORDS,
        "tags": st.sampled_from([["a"], "b\n", {"c.d": "1"}]),
        "x-a": WORDS,
    },
)


@settings(max_examples=120, deadline=None)
@given(HEADERS, st.lists(st.sampled_from(PIECES), max_size=9), st.booleans())
def test_what_was_written_is_read_back_as_the_same_agent(
    header: dict[str, object], body: list[str], bare: bool
) -> None:
    head = "" if bare else f"---\n{dump_yaml(header)}---\n"
    text = head + "\n\n".join(body) + "\n"
    first = read_all(BESIDE | {NAME: text})
    if first.agent is None:
        return
    again = read_back(first.agent)
    assert again.agent is not None, again.problems
    assert essence(again.agent) == essence(first.agent)


def test_writing_keeps_the_authors_order_and_every_other_text() -> None:
    text = "intro\n\n# T\n\n- list\n\nD\n\nafter\n\n## Rules\n\nr\n\n## Notes\n\nn\n\n## System\n\ns\n"
    written = agentmd.render(agent(text))
    assert written.files == {NAME: text}


def test_an_agent_in_the_plain_order_needs_no_extra() -> None:
    text = "# T\n\nD\n\n## System\n\ns\n\n## Rules\n\nr\n"
    found = agent(text)
    assert found.extra == {}
    assert agentmd.render(found).files == {NAME: text}


def test_a_changed_agent_is_still_written_whole() -> None:
    found = agent("# T\n\nD\n\n# Avatar\n\n![](old.png)\n\n## Notes\n\nn\n\n## System\n\ns\n")
    for change in (
        {"avatar": "new.png"},
        {"title": None},
        {"description": None},
        {"prompt": ()},
        {"description": "- x"},
    ):
        changed = replace(found, **change)
        written = agentmd.render(changed)
        again = read_all(written.files, written.entry).agent
        assert again is not None
        assert (again.title, again.description, again.avatar) == (changed.title, changed.description, changed.avatar)
    assert "left out" in agentmd.render(replace(found, avatar="new.png")).notes["extra.agentmd"]


TEXTS = [
    "# One\n\ntext\n\n## Two\n\nmore", "Title\n=====\n\ntext\n\nSub\n---\n\nmore", "```\nnever closed",
    "<!-- never closed", "<script>\nnever", "- " * 60 + "x", "> a\nlazy", "~~~~js\nx\n~~~", "<![CDATA[", "<!X", "<?php",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_a_prompt_from_another_format_cannot_tear_the_file_apart(text: str) -> None:
    parts = (PromptPart("soul", text), PromptPart("instructions", "after"), PromptPart("rules", "- r"))
    written = agentmd.render(Agent(name="x", title="X", prompt=parts, tools=(InlineTools("return {}"),)))
    again = read_all(written.files, written.entry)
    assert again.problems == () and again.agent is not None
    system, rules = again.agent.prompt
    for line in text.replace("=====", "").split("\n"):
        assert line.strip(" -") in system.text
    assert "after" in system.text
    assert rules.text == "- r"
    assert again.agent.tools == (InlineTools("return {}"),)
    assert "prompt" in written.notes


@pytest.mark.parametrize(
    "text", ["avatar", "C #", "a\nb", "# x", "", "`", "- x", "a  b", "1. x\n\ny", "![](x)", "x\n==="]
)
def test_any_title_and_description_come_back(text: str) -> None:
    found = read_back(Agent(name="x", title=text, description=text)).agent
    assert found is not None
    assert (found.title or "", found.description or "") == (text, text)


@pytest.mark.parametrize(
    ("name", "labels", "path"),
    [
        ("a", {}, "general_a.agent.md"),
        ("a_b", {"category": "c_d"}, "c-d_a_b.agent.md"),
        ("../../etc/x", {"category": "../.."}, "..-.._..-..-etc-x.agent.md"),
        ("", {}, "general_agent.agent.md"),
        ("x" * 999, {}, f"general_{'x' * 120}.agent.md"),
    ],
)
def test_the_file_name_is_made_of_category_and_name_and_stays_in_its_folder(
    name: str, labels: dict[str, str], path: str
) -> None:
    written = agentmd.render(Agent(name=name, labels=labels))
    assert written.entry == path
    assert list(written.files) == [path]


def test_what_the_format_cannot_say_leaves_a_file_that_can_be_read() -> None:
    odd = Agent(
        name="x",
        templates="variables",
        prompt=(PromptPart("system", "{{x}}"),),
        startup=Startup(("A",), "gone"),
        commands=(Command("not a name", "d", "b"), Command("ok")),
        model=ModelChoice((ModelRef("p", "m", "http://x"),), temperature=0.1),
        abilities=Abilities(("*",)),
    )
    written = agentmd.render(odd)
    assert set(written.notes) == {"startup.tool", "commands"}
    again = read_all(written.files, written.entry).agent
    assert again is not None
    assert again.templates == "none"
    assert again.commands == (Command("ok", source="commands/ok.md"),)
    assert again.abilities == Abilities(("*",))
    assert again.model.candidates == (ModelRef("p", "m"),)


def test_the_example_has_nothing_wrong_with_it_and_comes_back_the_same() -> None:
    files = {path.relative_to(EXAMPLE).as_posix(): path.read_text("utf-8") for path in EXAMPLE.rglob("*.md")}
    parsed = read_all(files, "writing_policy-writer.agent.md")
    assert parsed.problems == () and parsed.agent is not None
    assert [each.name for each in parsed.agent.commands] == ["draft", "review", "shorten"]
    assert parsed.agent.extra == {}
    again = read_back(parsed.agent)
    assert again.problems == () and again.agent is not None
    assert essence(again.agent) == essence(parsed.agent)


def test_the_schema_accepts_the_example_and_refuses_a_wrong_status() -> None:
    header = (EXAMPLE / "writing_policy-writer.agent.md").read_text("utf-8").split("---\n")[1]
    node, _ = parse_yaml(header, "1.2")
    assert node is not None
    schema = agentmd.SCHEMAS["agentmd"]
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(plain(node), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"status": "gone"}, schema)


def test_every_field_is_documented() -> None:
    page = (ROOT / "docs" / "formats" / "agentmd.md").read_text("utf-8")
    missing = [path for path in inner_paths(agentmd.HEADER, "") if f"`{path}`" not in page]
    assert missing == []
