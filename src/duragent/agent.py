"""THE internal model of an agent: one frozen value that can hold everything the formats can say.

Owns the words and the defaults. Knows no file format, no disk and no session, and imports nothing of
ours, so that every part may import it. Defaults here are those of the Duragent documents; a format
whose own document names another default says so in its field table.

Extending: add a field with a default here, then teach the formats that can say it.
"""

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

Json = Any
"""Any JSON value: what an owner wrote and we keep without looking into it."""

Level = Literal["error", "warning"]


class Origin(Struct, frozen=True):
    """Where a value was written. A value without an Origin is a default."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class ModelRef(Struct, frozen=True):
    """One language model an agent may run on."""

    provider: str
    name: str
    base_url: str | None = None


class ModelChoice(Struct, frozen=True):
    """Which models, in which order, and how they are asked."""

    candidates: tuple[ModelRef, ...] = ()
    capability: str | None = None
    fallback: str | None = None
    capabilities: tuple[str, ...] = ()
    temperature: float = 0.7
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context: str = "full"


_Text = Literal["soul", "system_prompt", "instructions", "role", "system", "rules", "bootstrap"]
PartKind = Literal[_Text, "persona", "trait", "override"]


class PromptPart(Struct, frozen=True):
    """One piece of what the model is told about itself, in order. `path` is the file it came from."""

    kind: PartKind
    text: str
    path: str | None = None
    max_tokens: int | None = None
    required: bool = False


BUILTINS = ("bash", "web", "schedule", "background_process", "session", "reload_tools", "memory")
"""The tools that come with the runtime."""


class BuiltinTool(Struct, frozen=True, tag="builtin"):
    name: str


class CliTool(Struct, frozen=True, tag="cli"):
    name: str
    command: str
    description: str = ""
    readme: str | None = None


class McpServer(Struct, frozen=True, tag="mcp"):
    """An MCP server: a command to start, a URL to call, or only a well-known name."""

    name: str
    transport: Literal["stdio", "http", "streamable-http"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    config: Mapping[str, Json] = {}
    timeout_seconds: int = 60
    enabled: bool = True
    oauth: Mapping[str, Json] = {}
    raw: Json = None  # the entry as it was written, where it says more than the fields above


class ScriptLimits(Struct, frozen=True):
    timeout_ms: int = 30_000
    max_tool_calls: int = 20
    max_output_bytes: int = 65_536


class ScriptTool(Struct, frozen=True, tag="script"):
    """A sandboxed JavaScript file; `allowed_tools` is all that it may call."""

    name: str
    path: str
    description: str = ""
    allowed_tools: tuple[str, ...] = ()
    limits: ScriptLimits = ScriptLimits()


class DiscoveredTool(Struct, frozen=True, tag="discovered"):
    """A `tools/<name>/run*` program found beside the agent."""

    name: str
    command: str
    readme: str | None = None


class InlineTools(Struct, frozen=True, tag="inline"):
    """JavaScript that returns `{name: {fn, scheme}}`; which tools it holds is known when it runs."""

    source: str
    language: str = "js"


Tool = BuiltinTool | CliTool | McpServer | ScriptTool | DiscoveredTool | InlineTools


class AbstractSkill(Struct, frozen=True):
    """Something an agent must be able to do; the resolver finds a tool for it."""

    name: str
    requires: Json = None
    raw: Json = None  # the entry as it was written, where its shape is not `{name, requires}`


class Skill(Struct, frozen=True):
    """A skill package: instructions loaded on demand. `path` is its Markdown file or its address."""

    name: str
    description: str = ""
    body: str = ""
    path: str = ""
    files: tuple[str, ...] = ()
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = {}
    allowed_tools: tuple[str, ...] | None = None
    kind: str = "instruction"
    tags: tuple[str, ...] = ()
    version: str | None = None
    model_may_invoke: bool = True
    extra: Mapping[str, Json] = {}


class Memory(Struct, frozen=True):
    """What is remembered and where. A backend is None where the agent wants no such memory."""

    short_term: str | None = None
    short_term_max_tokens: int | None = None
    long_term: str | None = None
    working: Literal["session", "none"] = "session"
    shared: bool = False
    notes: tuple[str, ...] = ()  # files in the agent's memory folder: state, not part of its fingerprint


class ContextRules(Struct, frozen=True):
    """How history and tool results are cut to fit the model's window."""

    max_history_tokens: int = 20_000
    max_tool_result_tokens: int = 8_000
    tool_result_truncation: Literal["head", "tail", "both"] = "head"
    tool_result_keep_first: int = 2
    tool_result_keep_last: int = 5


class SessionRules(Struct, frozen=True):
    on_disconnect: Literal["pause", "continue"] = "pause"
    llm_timeout_seconds: int = 300
    ttl_hours: int | None = None
    compaction: Literal["discard", "archive", "disabled"] | None = None
    output_buffer_size: int | None = None
    context: ContextRules = ContextRules()


Gate = Literal["open", "disabled", "allowlist"]
Disposition = Literal["allow", "passive", "silent", "block"]


class DirectAccess(Struct, frozen=True):
    policy: Gate = "open"
    allowlist: tuple[str, ...] = ()


class ContextBuffer(Struct, frozen=True):
    mode: Literal["silent", "passive"] = "silent"
    max_messages: int = 100
    max_age_hours: int = 24


class Debounce(Struct, frozen=True):
    enabled: bool = True
    window_ms: int = 1_500


class QueueRules(Struct, frozen=True):
    mode: Literal["batch", "sequential", "drop"] = "batch"
    max_pending: int = 10
    overflow: Literal["drop_old", "drop_new", "reject"] = "drop_old"
    reject_message: str | None = None
    debounce: Debounce = Debounce()


class GroupAccess(Struct, frozen=True):
    policy: Gate = "open"
    allowlist: tuple[str, ...] = ()
    sender_default: Disposition = "allow"
    sender_overrides: Mapping[str, Disposition] = {}
    activation: Literal["mention", "always"] = "mention"
    context_buffer: ContextBuffer = ContextBuffer()
    queue: QueueRules = QueueRules()


class Access(Struct, frozen=True):
    """Who may speak with the agent through a chat gateway. An agent without one accepts everybody."""

    dm: DirectAccess = DirectAccess()
    groups: GroupAccess = GroupAccess()


class Notify(Struct, frozen=True):
    enabled: bool = False
    patterns: tuple[str, ...] = ()
    deliveries: tuple[Mapping[str, Json], ...] = ()


class PolicyTier(Struct, frozen=True):
    """One policy file. `mode` is None where the file leaves it to a wider tier."""

    mode: Literal["dangerous", "ask", "restrict"] | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    notify: Notify | None = None


class Policy(Struct, frozen=True):
    """What the tools may do: the agent's own file, the owner's local one, and the one for the whole workspace, which
    is no part of the agent: whoever composes a program adds it."""

    agent: PolicyTier | None = None
    local: PolicyTier | None = None
    workspace: PolicyTier | None = None


class Trust(Struct, frozen=True):
    """The widest an agent may ever be; inheritance can only narrow it."""

    filesystem: Literal["none", "read-only", "scoped", "full"] = "none"
    network: Literal["none", "scoped", "allowed"] = "none"
    exec: Literal["none", "sandboxed", "full"] = "none"
    scope: tuple[str, ...] = ()


class Abilities(Struct, frozen=True):
    """agent.md's allow and deny lists. `allow` is ("*",) where only a deny list was given."""

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()


class Limits(Struct, frozen=True):
    """Hard stops. None means that the agent does not set this one."""

    tool_iterations: int | None = 10
    steps: int | None = None
    session_steps: int | None = None
    cost_usd: float | None = None
    on_exceed: Literal["ask", "abort"] = "abort"
    on_error: Literal["ask", "retry", "fail", "skip"] = "skip"
    background_seconds: int | None = None
    parallel_tasks: int | None = None

    @property
    def rounds(self) -> int | None:
        """How often one turn may go round: iterations and steps count the same loop, and the tighter one holds."""
        return min((each for each in (self.tool_iterations, self.steps) if each is not None), default=None)


class Schedule(Struct, frozen=True):
    """A turn that starts by the clock: with a prompt, or by activating a skill."""

    cron: str
    name: str = ""
    prompt: str = ""
    skill: str | None = None
    enabled: bool = True
    timezone: str | None = None


class Trigger(Struct, frozen=True):
    """A message that matches the glob `pattern` activates a skill."""

    pattern: str
    skill: str


class Command(Struct, frozen=True):
    """A `/name` a person can call. A command behind a URL has no body until it is fetched."""

    name: str
    description: str = ""
    body: str = ""
    argument_hint: str | tuple[str, ...] = ""
    source: str | None = None


class Startup(Struct, frozen=True):
    """What must hold before the agent starts."""

    env: tuple[str, ...] = ()
    tool: str | None = None


class Interface(Struct, frozen=True):
    """A callable surface the agent offers to others."""

    name: str
    description: str | None = None
    input: Mapping[str, str] = {}
    output: str | None = None


class Provider(Struct, frozen=True):
    """Where a model provider is and where its key comes from (`env.NAME`); never the key itself."""

    key_from: str | None = None
    base_url: str | None = None
    headers: Mapping[str, str] = {}


class Auth(Struct, frozen=True):
    strategy: Literal["auto", "explicit", "none"] = "auto"
    providers: Mapping[str, Provider] = {}


class Source(Struct, frozen=True):
    """Where an agent was read from; says nothing about what the agent is."""

    format: str = ""
    path: str = ""
    files: tuple[str, ...] = ()
    ancestors: tuple[str, ...] = ()
    manifest_hash: str | None = None
    fingerprint: str = ""


class Agent(Struct, frozen=True, kw_only=True):
    """An agent, whatever format it was written in, after inheritance and defaults."""

    name: str
    title: str | None = None
    description: str | None = None
    version: str | None = None
    author: str | None = None
    license: str | None = None
    labels: Mapping[str, str] = {}
    tags: tuple[str, ...] = ()
    icon: str = "🤖"
    avatar: str | None = None
    status: Literal["active", "deprecated", "disabled"] = "active"
    model: ModelChoice = ModelChoice()
    prompt: tuple[PromptPart, ...] = ()
    templates: Literal["none", "variables", "hbs"] = "none"
    tools: tuple[Tool, ...] = ()
    abstract_skills: tuple[AbstractSkill, ...] = ()
    skills_dir: str | None = None
    skills: tuple[Skill, ...] = ()
    memory: Memory = Memory()
    session: SessionRules = SessionRules()
    access: Access | None = None
    policy: Policy = Policy()
    trust: Trust | None = None
    abilities: Abilities | None = None
    limits: Limits = Limits()
    trace: bool = False
    schedules: tuple[Schedule, ...] = ()
    triggers: tuple[Trigger, ...] = ()
    commands: tuple[Command, ...] = ()
    startup: Startup = Startup()
    input: Json = None
    expose: tuple[Interface, ...] = ()
    auth: Auth = Auth()
    a2a: Mapping[str, Json] = {}
    extensions: Mapping[str, Json] = {}
    extra: Mapping[str, Mapping[str, Json]] = {}
    origins: Mapping[str, Origin] = field(default_factory=dict)
    source: Source = Source()


TRAITS: Mapping[str, str] = {
    "cite-everything": "Back every factual claim with a source the reader can open.",
    "flag-uncertainty": "Mark whatever you are not sure of with [UNCERTAIN].",
    "never-guess": "When you do not know something, say so; do not fill the gap with a guess.",
    "ask-before-writing": "Before you create, change or delete a file, ask and wait for a yes.",
    "think-step-by-step": "Work through a problem one step at a time before you answer.",
    "be-concise": "Keep answers as short as the matter allows.",
    "self-review": "Read your own answer critically and mend it before you give it.",
    "test-first": "Write the test before the code that makes it pass.",
}
"""What the portable traits say to a model. Any other trait speaks for itself."""


def sentence(part: PromptPart) -> str:
    """What a part says to the model."""
    if part.kind == "persona":
        return f"You are a {part.text}."
    if part.kind == "trait":
        return TRAITS.get(part.text, part.text)
    return part.text


def spoken(prompt: tuple[PromptPart, ...]) -> tuple[PromptPart, ...]:
    """The parts that reach the model: a soul silences persona, traits and override; those two the override."""
    kinds = {part.kind for part in prompt}
    silent: set[str] = set()
    if "soul" in kinds:
        silent |= {"persona", "trait", "override"}
    elif kinds & {"persona", "trait"}:
        silent |= {"override"}
    return tuple(part for part in prompt if part.kind not in silent and part.text)


META = ("origins", "source")
"""Fields of Agent that tell where it came from. Two agents that differ only here are the same."""

_GUARDS = ("trust", "policy", "access", "limits", "abilities", "status")
PROTECTED = (*_GUARDS, "model.max_input_tokens", "model.max_output_tokens")
"""What protects the owner. A conversion that would lose any of it is refused unless it is accepted."""
