"""`.agent.md`: what a file says, what it falls back to, and what is refused."""

import textwrap
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duragent.agent import Abilities, Agent, InlineTools, ModelChoice, ModelRef, Origin, PromptPart, Startup
from duragent.formats import agentmd
from duragent.formats.shape import Absent, Files, Folder, Need, Parsed
from duragent.formats.write import dump_yaml
from tests.formats.agentmd_driver import NAME, agent, place, problem, read, read_all


def md(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


TOOLS = "## Tools\n\n```js\nreturn { ping: { fn: () => 1, scheme: {} } };\n```\n"


def test_a_file_is_claimed_by_its_name_alone() -> None:
    assert agentmd.claims(Files("a_b.agent.md", {})) == "the name ends in .agent.md"
    assert agentmd.claims(Files("a_b.Agent.MD", {})) is None
    assert agentmd.claims(Files("a_b.md", {})) is None


def test_a_folder_is_claimed_when_it_holds_exactly_one_agent() -> None:
    one = Files("", {"": Folder(("README.md", "a_b.agent.md", "commands/"))})
    assert "a_b.agent.md" in (agentmd.claims(one) or "")
    assert agentmd.parse(one) == Need(files=frozenset({"a_b.agent.md"}))
    assert agentmd.claims(Files("", {"": Folder(("a_b.agent.md", "a_c.agent.md"))})) is None
    assert agentmd.claims(Files("", {"": Folder(("a.agent.mdx",))})) is None


def test_a_file_that_cannot_be_read_is_a_problem_and_not_a_crash() -> None:
    parsed = agentmd.parse(Files("a_b.agent.md", {"a_b.agent.md": Absent("encoding", line=3, column=7)}))
    assert isinstance(parsed, Parsed)
    assert place(problem(parsed)) == (3, 7)


def test_everything_a_file_can_say() -> None:
    text = md("""
        ---
        Version: 1.0
        icon: ✍️
        STATUS: Deprecated
        avatar: face.png
        input: {depth: 3}
        recommended:
          Models: [openai/gpt-4o, openrouter/meta/llama, small]
          capabilities: [vision]
        required:
          ENV: [API_KEY, HOME]
          startup: PING
        allow: "fs, sh:git"
        deny: [sh:rm]
        ---
        # Helper

        Helps.

        ## System

        Be kind to {{input.name}}.

        ## Rules

        - one
        """)
    found = agent(text + "\n" + TOOLS)
    assert found == Agent(
        name="helper",
        labels={"category": "writing"},
        title="Helper",
        description="Helps.",
        version="1.0",
        icon="✍️",
        avatar="face.png",
        status="deprecated",
        input={"depth": 3},
        model=ModelChoice(
            (ModelRef("openai", "gpt-4o"), ModelRef("openrouter", "meta/llama"), ModelRef("", "small")),
            capabilities=("vision",),
        ),
        prompt=(
            PromptPart("system", "Be kind to {{input.name}}.", NAME),
            PromptPart("rules", "- one", NAME),
        ),
        templates="hbs",
        tools=(InlineTools("return { ping: { fn: () => 1, scheme: {} } };"),),
        abilities=Abilities(("fs", "sh:git"), ("sh:rm",)),
        startup=Startup(("API_KEY", "HOME"), "PING"),
        origins=found.origins,
    )
    where = {key: (origin.line, origin.column) for key, origin in found.origins.items()}
    assert where["version"] == (2, 10)
    assert where["title"] == (16, 1)
    assert where["description"] == (18, 1)
    assert where["prompt[0]"] == (20, 1)
    assert where["prompt[1]"] == (24, 1)
    assert where["tools[0]"] == (30, 1)
    assert where["startup.env[1]"] == (11, 18)
    assert where["model.candidates[0]"] == (8, 12)
    assert where["abilities.allow"] == (13, 8)


def test_a_file_without_a_header_gets_the_defaults() -> None:
    found = agent("# Helper\n")
    assert (found.version, found.icon, found.status, found.templates) == ("0.1.0", "🤖", "active", "none")
    assert found.prompt == (PromptPart("system", "Helper", NAME),)
    assert found.extra == {}


def test_an_empty_file_is_an_agent_that_says_nothing() -> None:
    parsed = read("")
    assert "does not say what the agent is" in problem(parsed, "warning").text
    assert parsed.agent is not None and parsed.agent.prompt == ()


@pytest.mark.parametrize(
    ("entry", "name", "labels", "warned"),
    [
        ("dev_code-review.agent.md", "code-review", {"category": "dev"}, False),
        ("agents/dev_a_b.agent.md", "a_b", {"category": "dev"}, False),
        ("policy.agent.md", "policy", {}, True),
        ("_x.agent.md", "_x", {}, True),
        ("x_.agent.md", "x_", {}, True),
        (".agent.md", "agent", {}, True),
    ],
)
def test_the_name_comes_from_the_file_name(entry: str, name: str, labels: dict[str, str], warned: bool) -> None:
    parsed = read_all({entry: "# T"}, entry)
    assert parsed.agent is not None
    assert (parsed.agent.name, parsed.agent.labels) == (name, labels)
    assert bool(parsed.problems) == warned


# The header


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("---\ntitle: x\n", (1, 1), "never ends"),
        ("---\njust words\n---\n", (2, 1), "`key: value` lines"),
        ("---\n- a\n---\n", (2, 1), "a list"),
        ("---\na: [\n---\n", (3, 1), "not valid YAML"),
        ("\n\n---\ntitle: x\n---\n", (3, 1), "first line"),
        ("---\ntitle: a\nTitle: a\n---\n", (3, 1), "`title` (line 2) and `Title`"),
        ("---\ntitle: a\ntitle: a\n---\n", (3, 1), "twice"),
        ("---\nrequired:\n  env: []\n  Env: []\n---\n", (4, 3), "`required.env` (line 3) and `required.Env`"),
        ("---\nstatus: retired\n---\n", (2, 9), "one of active, deprecated, disabled"),
        ("---\nstatus: ''\n---\n", (2, 9), "one of active"),
        ("---\ntemplateEngine: jinja\n---\n", (2, 17), 'hbs, or "" for no templates'),
        ("---\nbody: x\n---\n", (2, 1), "not a field"),
        ("---\ntitle: [a]\n---\n", (2, 8), "must be a text"),
        ("---\nrecommended: gpt\n---\n", (2, 14), "must be a section"),
        ("---\nrecommended: {models: [openai/]}\n---\n", (2, 24), "no model"),
        ("---\ninput: !!timestamp 2020-01-01\n---\n", (2, 8), "!!timestamp is not known"),
        ("---\ninput: [.nan]\n---\n", (2, 9), "a value that JSON can hold"),
        ("---\ncommands: ./commands\n---\n", (2, 11), "a list of paths"),
    ],
)
def test_a_broken_header_is_refused_at_its_place(text: str, where: tuple[int, int], words: str) -> None:
    parsed = read(text)
    assert parsed.agent is None
    found = next(each for each in parsed.problems if each.level == "error")
    assert words in found.text
    assert place(found) == where


def test_unknown_fields_are_reported_and_kept_and_x_fields_only_kept() -> None:
    parsed = read("---\ntags: [a]\nx-team: blue\nstatuss: active\nrecommended: {Limits: 3}\na.b: 1\na: 2\n---\n# T\n")
    said = {(each.line, each.column): each for each in parsed.problems}
    assert sorted(said) == [(2, 1), (4, 1), (5, 15), (6, 1), (7, 1)]
    assert "did you mean `status`?" in said[(4, 1)].hint
    assert parsed.agent is not None
    assert parsed.agent.extra["agentmd"] == {
        "tags": ["a"], "x-team": "blue", "statuss": "active", "recommended": {"limits": 3}, "a.b": 1, "a": 2
    }  # fmt: skip


def test_an_icon_that_is_not_one_emoji_is_reported() -> None:
    for icon in ("🤖", "✍️", "👩‍💻", "🇫🇷", "1️⃣", "👍🏽", "❤️", "©️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"):
        agent(f"---\nicon: {icon}\n---\n# T\n")
    for icon in ("AB", "🤖🤖", "robot", "''"):
        assert place(problem(read(f"---\nicon: {icon}\n---\n# T\n"), "warning")) == (2, 7)


def test_env_may_be_a_text_with_commas_and_lines() -> None:
    found = agent("---\nrequired:\n  env: |\n    A, B\n\n    C,\n---\n# T\n")
    assert found.startup.env == ("A", "B", "C")
    assert "variable" in problem(read("---\nrequired: {env: [MY VAR]}\n---\n# T\n"), "warning").text


def test_templates_are_on_only_where_a_text_uses_them() -> None:
    assert agent("# T\n\n## Rules\n\n{{x}}\n").templates == "hbs"
    assert agent("---\ntemplateEngine: ''\n---\n# T\n\n## Rules\n\n{{x}}\n").templates == "none"
    assert agent("---\nTEMPLATEENGINE: HBS\n---\n# {{x}}\n").templates == "hbs"
    assert agent("---\ntitle: t\n---\nelsewhere {{x}}\n").templates == "none"


# Headings


def test_the_system_text_falls_back_to_the_description_and_then_to_the_title() -> None:
    assert agent("# T\n\nD\n\n## System\n\nS\n").prompt[0].text == "S"
    assert agent("# T\n\nD\n").prompt[0].text == "D"
    assert agent("---\ndescription: D\n---\n").prompt[0].text == "D"
    found = agent("# T\n\n## Other\n\nnot a description\n")
    assert (found.prompt[0].text, found.description) == ("T", None)
    assert found.origins["prompt[0]"] == Origin(NAME, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        "## System\n\nS\n",
        "##   sYsTeM  ##\nS\n\n# Next\n",
        "System\n------\n\nS\n\n## Next\n",
        "```\n## System\nno\n```\n\n## System\n\nS",
        "> ## System\n>\n> no\n\n# System\n\nno\n\n## System\n\nS\n",
    ],
)
def test_a_section_is_found_however_its_heading_is_written(text: str) -> None:
    parsed = read(text)
    assert parsed.agent is not None
    assert parsed.agent.prompt[0].text == "S"


def test_nothing_in_a_section_is_lost() -> None:
    text = (
        "    indented\n\n1. *one* `two`\n\n### Deeper\n\n```js\n# no heading\n```\n\n<b id=a>raw</b>\n\n[a]: b\n\n---"
    )
    assert agent(f"## System\n\n{text}\n\n## Rules\n\nr\n").prompt[0].text == text


def test_a_second_system_section_is_reported_and_not_used() -> None:
    parsed = read("## System\n\none\n\n## Other\n\n## system\n\ntwo\n")
    found = problem(parsed, "warning")
    assert place(found) == (7, 1)
    assert "line 1" in found.text
    assert parsed.agent is not None
    assert parsed.agent.prompt == (PromptPart("system", "one", NAME),)
    assert "two" in str(parsed.agent.extra["agentmd"]["body"])


def test_an_empty_section_is_reported_and_the_fallback_used() -> None:
    parsed = read("# T\n\n## System\n\n## Rules\n\nr\n")
    assert place(problem(parsed, "warning")) == (3, 1)
    assert parsed.agent is not None and parsed.agent.prompt[0].text == "T"


def test_the_description_is_the_first_paragraph_that_is_text() -> None:
    text = "before\n\n# T\n\n![x](y.png)\n\n- list\n\n```\ncode\n```\n\nThe *text*\non two lines.\n\nMore.\n"
    assert agent(text).description == "The *text*\non two lines."
    assert agent("# T\n\n## Other\n\ntext\n").description is None


def test_the_avatar_is_the_first_image_under_its_heading_and_never_the_title() -> None:
    found = agent('# avatar\n\n```\n![no](no.png)\n```\n\nSee ![me [2]](<my face.png> "x") ![](b)\n\n# T\n\nD\n')
    assert (found.avatar, found.title, found.description) == ("my face.png", "T", "D")
    assert found.origins["avatar"].line == 7
    assert agent("# T\n\n# Avatar\n\n- ![](https://a.b/c_(d).png)\n").avatar == "https://a.b/c_(d).png"
    assert "no image" in problem(read("# T\n\n# Avatar\n\ntext\n"), "warning").text


@pytest.mark.parametrize(
    ("key", "body", "line"),
    [
        ("title", "# Bbb\n", 4),
        ("description", "# Aaa\n\nBbb\n", 6),
        ("avatar", "# Avatar\n\n![](bbb)\n", 6),
        ("system", "## System\n\nBbb\n", 4),
        ("rules", "## Rules\n\nBbb\n", 4),
    ],
)
def test_header_and_heading_may_not_contradict_each_other(key: str, body: str, line: int) -> None:
    found = problem(read(f"---\n{key}: other\n---\n{body}"))
    assert place(found) == (2, len(key) + 3)
    assert f"{NAME}:2" in found.text and f"{NAME}:{line}" in found.text
    assert "other" in found.text and "bbb" in found.text.lower()
    parsed = read(f"---\n{key}: '  bBB '\n---\n{body}")
    assert not [each for each in parsed.problems if each.level == "error"]


@pytest.mark.parametrize("key", ["system", "rules"])
def test_system_and_rules_in_the_header_alone_are_kept_but_not_used(key: str) -> None:
    parsed = read(f"---\ntitle: T\n{key}: text\n---\n")
    assert place(problem(parsed, "warning")) == (3, len(key) + 3)
    assert parsed.agent is not None
    assert parsed.agent.prompt == (PromptPart("system", "T", NAME),)
    assert parsed.agent.extra == {"agentmd": {key: "text"}}


# Tools


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("## Tools\n\n```js\nconst a = 1\n```\n", (3, 1), "returns nothing"),
        ("## Tools\n\n```js\nreturn {}\n```\n\n```JavaScript\nreturn {}\n```\n", (7, 1), "second block"),
        ("---\nrequired: {startup: go}\n---\n", (2, 21), "no `## Tools`"),
        ("---\nrequired: {startup: go}\n---\n## Tools\n\n```py\nreturn\n```\n", (4, 1), "no JavaScript"),
        ("---\nrequired: {startup: go}\n---\n## Tools\n\n```js\nreturn {gone: 1}\n```\n", (2, 21), "no such tool"),
    ],
)
def test_tools_that_cannot_work_are_refused(text: str, where: tuple[int, int], words: str) -> None:
    found = next(each for each in read(text).problems if each.level == "error")
    assert words in found.text
    assert place(found) == where


def test_tools_are_found_only_under_their_heading() -> None:
    parsed = read("# T\n\n```js\nno\n```\n\n## Tools\n\nSee below.\n\n~~~JavaScript title=x\nreturn {}\n~~~\n\nDone.\n")
    assert parsed.problems == () and parsed.agent is not None
    assert parsed.agent.tools == (InlineTools("return {}"),)
    assert parsed.agent.extra["agentmd"]["body"][-1] == {"slot": "tools", "before": "See below.", "after": "Done."}
    assert "no JavaScript" in problem(read("# T\n\n## Tools\n\nnone yet\n"), "warning").text


def test_the_startup_tool_may_be_a_quoted_key_in_another_case() -> None:
    text = "---\nrequired: {startup: Health-Check}\n---\n# T\n\n## Tools\n\n```js\nreturn {'health-check': {}}\n```\n"
    assert agent(text).startup.tool == "Health-Check"


# Abilities


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("deny: [fs]", Abilities(("*",), ("fs",))),
        ('allow: "*"', Abilities(("*",))),
        ('allow: "*"\ndeny: sh', Abilities(("*",), ("sh",))),
        ('allow: ""', Abilities(())),
        ("allow: false", Abilities(())),
        ("allow: []", Abilities(())),
        ("deny: false", Abilities(("*",))),
        ("allow: FS, Network", Abilities(("fs", "network"))),
        ("allow: |\n  fs\n  SH:Git", Abilities(("fs", "sh:git"))),
        ("allow: [sh]\ndeny: [sh:rm]", Abilities(("sh",), ("sh:rm",))),
        ("allow: [fs, FS]", Abilities(("fs",))),
        ("title: x", None),
    ],
)
def test_ability_lists_that_are_accepted(header: str, wanted: Abilities | None) -> None:
    assert agent(f"---\n{header}\n---\n# X\n").abilities == wanted


@pytest.mark.parametrize(
    ("header", "where", "words"),
    [
        ("allow:", (2, 7), "a list of abilities, not empty"),
        ("deny: null", (2, 7), "not empty"),
        ("allow: true", (2, 8), "truth value"),
        ("allow: *", (2, 8), "without quotes"),
        ('allow: [fs, "*"]', (2, 13), "cannot stand in a list"),
        ('allow: "fs, *"', (2, 8), "cannot stand in a list"),
        ('deny: "*"', (2, 7), "forbid everything"),
        ("allow: [files]", (2, 9), "'files' is not an ability"),
        ("allow: [fs:read]", (2, 9), "only sh can have one"),
        ('allow: ["sh:git push"]', (2, 9), "one plain command"),
        ("allow: [sh:/bin/ls]", (2, 9), "one plain command"),
        ('allow: ["sh:"]', (2, 9), "names no command"),
        ("allow:\n  - sh: git", (3, 5), "is a map"),
        ("allow: [null]", (2, 9), "not empty"),
        ("allow: [fs]\ndeny: [FS]", (3, 8), "overlap"),
        ("allow: [sh:gh]\ndeny: [sh]", (3, 8), "overlap"),
        ("allow: [sh:gh]\ndeny: [SH:GH]", (3, 8), "overlap"),
    ],
)
def test_ability_lists_that_are_refused(header: str, where: tuple[int, int], words: str) -> None:
    found = problem(read(f"---\n{header}\n---\n# X\n"))
    assert words in found.text
    assert place(found) == where


# Hostile input

SIZE = 200_000


@pytest.mark.parametrize(
    "text",
    [">", "> ", "[", "![", "![](", "![a](<", "- ", "`", "#", "*", "![\\", "![a](b", "(a)"],
)
def test_a_large_and_strange_body_is_read_quickly(text: str) -> None:
    long = text * (SIZE // len(text))
    begun = time.perf_counter()
    read(f"# T\n\n{long}\n\n# Avatar\n\n![a](b{long}\n")
    assert time.perf_counter() - begun < 1


def test_nesting_that_hides_what_follows_is_refused() -> None:
    parsed = read("- " * 60 + "x\n\n## System\n\ntext\n")
    assert "nested" in problem(parsed).text
    assert read("> " * 20 + "x\n\n# T\n").agent is not None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["*", "sh:x", "./c"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*agentmd.HEADER.fields, "x-a", "other"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_no_kind_of_value_in_any_field_raises(header: dict[str, object]) -> None:
    parsed = read(f"---\n{dump_yaml(header)}---\n# T\n")
    for each in parsed.problems:
        assert each.line >= 1 and each.column >= 1 and each.text


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="#-=`~>[]!()*:\n\r\t <a\\\x0b\u2028é0.", max_size=60))
def test_no_text_raises(text: str) -> None:
    read(text)
    read(f"---\n{text}\n---\n{text}")


def test_every_problem_is_said_at_once_also_when_the_header_is_broken() -> None:
    below = "---\n\n# T\n\n## System\n\nx\n\n## Tools\n\n```js\nconst a = 1;\n```\n"
    twice = "---\ntitle: T\ntitle: T\nstatus: odd\nallow: [fly]\n" + below
    assert [each.line for each in read(twice).problems if each.level == "error"] == [3, 4, 5, 16]
    broken = "---\ntitle: [\n" + below
    assert [each.line for each in read(broken).problems if each.level == "error"] == [3, 13]
    late = "\n\n---\nstatus: odd\n" + below
    assert [each.line for each in read(late).problems if each.level == "error"] == [3, 4, 15]
