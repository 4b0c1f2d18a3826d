"""Generated agents: everything the model can say, with the texts that file formats trip over.

Left out is what only stands for something in the folder it was read from: `DiscoveredTool`, `Skill.files`,
`Memory.notes` and a server's command with a `/` are files there, and `raw` is what a reader could make nothing of.
"""

from hypothesis import strategies as st

from duragent.agent import (
    Abilities,
    AbstractSkill,
    Access,
    Agent,
    Auth,
    BuiltinTool,
    CliTool,
    Command,
    ContextRules,
    DirectAccess,
    GroupAccess,
    InlineTools,
    Interface,
    Limits,
    McpServer,
    Memory,
    ModelChoice,
    ModelRef,
    Notify,
    Policy,
    PolicyTier,
    PromptPart,
    Provider,
    Schedule,
    ScriptLimits,
    ScriptTool,
    SessionRules,
    Skill,
    Startup,
    Tool,
    Trigger,
    Trust,
)

TRICKY = st.sampled_from(
    [
        *("yes", "no", "on", "~", "null", "1.0", "010", "0x1F", "1e5", "12:30:45", "2024-01-01", "=", "<<", ".inf"),
        *("- x", "# heading", "## System", "---", "a: b", "a #b", "{x}", "[x]", "*x", "&x", "!x", "%x", "@x", "`x`"),
        *("{{date}}", "${date}", "${HOME}", "'quoted'", '"quoted"', "tab\there", "back\\slash", "ünïcödé 🤖", " "),
        *(
            "line\nline",
            "a\n\nb",
            "# T\n\ntext\n\n## Rules\n\nx",
            "```js\nreturn {}\n```",
            "text \ntrailing",
            "a\n  b\n",
        ),
        *("trailing:", "x" * 300, "$1 and $ARGUMENTS", "a\u2028b", "\u0085", "env.X"),
    ]
)
TEXT = st.one_of(TRICKY, st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), max_size=40))
LINE = TEXT.map(lambda text: " ".join(text.split()))
SAID = TEXT.map(str.strip).filter(bool)
WORD = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,5})?", fullmatch=True)
NUMBER = st.integers(1, 1_000_000)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(-1e6, 1e6), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORD, inner, max_size=3)),
    max_leaves=6,
)
SETTINGS = st.dictionaries(WORD, JSON, max_size=3)
WORDS = st.dictionaries(WORD, LINE, max_size=3)


def several(each: st.SearchStrategy[object], most: int = 3) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(each, max_size=most).map(tuple)


def named(each: st.SearchStrategy[object], most: int = 3) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(each, max_size=most, unique_by=lambda one: one.name).map(tuple)  # type: ignore[attr-defined]


def maybe(each: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), each)


MODEL_REF = st.builds(
    ModelRef,
    st.sampled_from(["openai", "anthropic", "openrouter", "ollama", "claude", "local"]),
    st.sampled_from(["m", "gpt-4o", "anthropic/claude-sonnet-4", "llama3:70b"]),
    maybe(st.just("https://models.example.com/v1")),
)
MODEL = st.builds(
    ModelChoice,
    several(MODEL_REF),
    maybe(st.sampled_from(["reasoning-low", "reasoning-max"])),
    maybe(st.just("reasoning-mid")),
    several(WORD),
    st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.25, 2.0]),
    maybe(NUMBER),
    maybe(NUMBER),
    st.sampled_from(["full", "32k"]),
)
KINDS = ("soul", "system_prompt", "instructions", "role", "persona", "trait", "override", "system", "rules")
BOOTSTRAP = st.builds(
    PromptPart,
    st.just("bootstrap"),
    SAID,
    WORD.map("./{}.md".format),
    maybe(NUMBER),
    st.booleans(),
)
PROMPT = st.lists(
    st.one_of(st.builds(PromptPart, st.sampled_from(KINDS), SAID), BOOTSTRAP),
    max_size=4,
    unique_by=lambda part: part.path or id(part),
).map(tuple)
OAUTH = {
    "auth_url": "https://id.example.com/",
    "token_url": "https://id.example.com/token",
    "client_id": "x",
    "redirect_uri": "https://example.com/back",
}
TOOL: st.SearchStrategy[Tool] = st.one_of(
    st.builds(BuiltinTool, st.sampled_from(["bash", "web", "memory"])),
    st.builds(CliTool, WORD, st.sampled_from(["git status", "make"]), LINE),
    st.builds(
        McpServer,
        WORD,
        st.just("stdio"),
        SAID.filter(lambda text: text.isprintable() and "/" not in text),
        several(LINE),
        env=WORDS,
        timeout_seconds=NUMBER,
    ),
    st.builds(
        McpServer,
        WORD,
        st.sampled_from(["http", "streamable-http"]),
        url=st.just("https://mcp.example.com/"),
        headers=WORDS,
        oauth=st.sampled_from([{}, OAUTH]),
    ),
    st.builds(McpServer, WORD, config=SETTINGS, enabled=st.booleans()),
    st.builds(
        ScriptTool, WORD, st.just("scripts/x.js"), LINE, several(WORD), st.builds(ScriptLimits, st.integers(1, 600_000))
    ),
    st.builds(InlineTools, st.just("return { a: { fn() {}, scheme: {} } };")),
)
SKILL = st.one_of(
    st.builds(
        Skill,
        WORD,
        SAID,
        TEXT.map(lambda text: text.strip("\n")),
        license=maybe(LINE),
        compatibility=maybe(LINE),
        metadata=WORDS,
        allowed_tools=maybe(several(st.sampled_from(["Read", "Bash(git *)", "mcp:x, y"]))),
        kind=st.sampled_from(["instruction", "persona", "tool"]),
        tags=several(WORD),
        version=maybe(st.sampled_from(["1.0", "2.1.0", "yes"])),
        model_may_invoke=st.booleans(),
        extra=st.dictionaries(WORD.map("x-{}".format), JSON, max_size=1),
    ),
    WORD.map(lambda name: Skill(name, path=f"https://example.com/{name}")),
)
COMMAND = st.one_of(
    st.builds(Command, WORD, LINE.filter(bool), SAID, st.one_of(LINE, several(LINE))),
    WORD.map(lambda name: Command(name, source=f"https://example.com/{name}.md")),
)
OWN = st.dictionaries(WORD.map("x-{}".format), JSON, max_size=2)
EXTRA = st.dictionaries(st.sampled_from(["duragent", "agentspec", "agentmd", "openagentspec"]), OWN, max_size=2)
"""Fields of one's own. Those of an agent directory are kept as ACL, in a shape of its own, and are tested there."""
ACCESS = st.builds(
    Access,
    st.builds(DirectAccess, st.sampled_from(["open", "disabled", "allowlist"]), several(LINE.filter(bool))),
    st.builds(GroupAccess, sender_overrides=st.dictionaries(WORD, st.sampled_from(["allow", "block"]), max_size=2)),
)
TIER = st.builds(
    PolicyTier,
    maybe(st.sampled_from(["dangerous", "ask", "restrict"])),
    several(SAID.map("bash:{}".format)),
    several(SAID.map("*:{}".format)),
    maybe(st.builds(Notify, st.booleans(), several(SAID), st.just(({"type": "log"},)))),
)
TRUST = st.builds(
    Trust,
    st.sampled_from(["none", "read-only", "scoped", "full"]),
    st.sampled_from(["none", "scoped", "allowed"]),
    st.sampled_from(["none", "sandboxed", "full"]),
    several(st.sampled_from(["./workspace", "./data"])),
)
LIMITS = st.builds(
    Limits,
    NUMBER,
    maybe(NUMBER),
    maybe(NUMBER),
    maybe(st.sampled_from([0.5, 1e-07, 100.0])),
    st.sampled_from(["ask", "abort"]),
    st.sampled_from(["ask", "retry", "fail", "skip"]),
    maybe(NUMBER),
    maybe(st.integers(1, 9)),
)
ABILITIES = st.builds(
    Abilities, st.sampled_from([("*",), (), ("fs", "sh:git")]), st.sampled_from([(), ("browser",), ("sh:rm", "env")])
)


@st.composite
def agents(draw: st.DrawFn) -> Agent:
    """An agent that says anything, though no single format can say it all."""
    skills = draw(named(SKILL, 2))
    triggers = tuple(Trigger("do *", skill.name) for skill in skills if draw(st.booleans()))  # type: ignore[attr-defined]
    moment = st.sampled_from(["0 9 * * MON", "*/5 * * * *"])
    zone = maybe(st.sampled_from(["Europe/Paris", "UTC"]))
    clock = st.builds(Schedule, moment, WORD, SAID, enabled=st.booleans(), timezone=zone)
    if skills:
        called = st.sampled_from([skill.name for skill in skills])  # type: ignore[attr-defined]
        by_skill = st.builds(Schedule, moment, WORD, skill=called, enabled=st.booleans(), timezone=zone)
        clock = st.one_of(clock, by_skill)
    fields = {
        "name": WORD,
        "title": maybe(SAID.map(lambda text: " ".join(text.split()))),
        "description": maybe(SAID),
        "version": maybe(st.sampled_from(["0.1.0", "1.2.3"])),
        "author": maybe(LINE),
        "license": maybe(st.just("MIT")),
        "labels": WORDS,
        "tags": several(LINE),
        "icon": st.sampled_from(["🤖", "✍️", "x"]),
        "avatar": maybe(st.sampled_from(["./me.png", "https://example.com/me.png"])),
        "status": st.sampled_from(["active", "deprecated", "disabled"]),
        "model": MODEL,
        "prompt": PROMPT,
        "tools": st.lists(TOOL, max_size=3, unique_by=lambda tool: getattr(tool, "name", "")).map(tuple),
        "abstract_skills": several(st.builds(AbstractSkill, WORD, maybe(SETTINGS.filter(bool)))),
        "skills_dir": maybe(st.sampled_from(["./skills/", "./lib/skills"])),
        "memory": st.builds(
            Memory,
            maybe(st.sampled_from(["buffer", "external"])),
            maybe(NUMBER),
            maybe(st.sampled_from(["filesystem", "external"])),
            st.sampled_from(["session", "none"]),
            st.booleans(),
        ),
        "session": st.builds(
            SessionRules,
            st.sampled_from(["pause", "continue"]),
            NUMBER,
            maybe(NUMBER),
            maybe(st.sampled_from(["discard", "archive"])),
            context=st.builds(ContextRules, st.integers(0, 99_999), NUMBER, st.sampled_from(["head", "tail", "both"])),
        ),
        "access": maybe(ACCESS),
        "policy": st.builds(Policy, maybe(TIER), maybe(TIER)),
        "trust": maybe(TRUST),
        "abilities": maybe(ABILITIES),
        "limits": LIMITS,
        "trace": st.booleans(),
        "schedules": named(clock, 2),
        "commands": named(COMMAND, 2),
        "startup": st.builds(Startup, several(st.sampled_from(["TOKEN", "HOME"]))),
        "input": JSON,
        "expose": several(st.builds(Interface, WORD, maybe(LINE), WORDS, maybe(WORD))),
        "auth": st.builds(
            Auth,
            st.sampled_from(["auto", "explicit"]),
            st.dictionaries(WORD, st.builds(Provider, maybe(st.just("env.KEY"))), max_size=2),
        ),
        "a2a": SETTINGS,
        "extensions": SETTINGS,
        "extra": EXTRA,
    }
    chosen = {name: draw(strategy) for name, strategy in fields.items() if name == "name" or draw(st.booleans())}
    return Agent(skills=skills, triggers=triggers, **chosen)  # type: ignore[arg-type]
