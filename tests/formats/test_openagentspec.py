"""Open Agent Specification: what pyagentspec writes we read, what we write pyagentspec loads."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from pyagentspec.agent import Agent as OasAgent
from pyagentspec.flows.edges import ControlFlowEdge
from pyagentspec.flows.flow import Flow
from pyagentspec.flows.nodes import EndNode, StartNode
from pyagentspec.llms import (
    LlmConfig,
    LlmGenerationConfig,
    OciGenAiConfig,
    OllamaConfig,
    OpenAiCompatibleConfig,
    OpenAiConfig,
    VllmConfig,
)
from pyagentspec.llms.ociclientconfig import OciClientConfigWithInstancePrincipal
from pyagentspec.mcp import MCPTool, MCPToolBox, SSETransport, StdioTransport, StreamableHTTPTransport
from pyagentspec.property import StringProperty
from pyagentspec.serialization import AgentSpecDeserializer, AgentSpecSerializer
from pyagentspec.tools import BuiltinTool as OasBuiltinTool
from pyagentspec.tools import ClientTool, RemoteTool, ServerTool
from pyagentspec.versioning import AgentSpecVersionEnum

from duragent.agent import (
    Agent,
    BuiltinTool,
    CliTool,
    InlineTools,
    Limits,
    McpServer,
    ModelChoice,
    ModelRef,
    PromptPart,
    Skill,
    Source,
    Trust,
)
from duragent.formats import detect
from duragent.formats.openagentspec import claims, parse, render
from duragent.formats.shape import Absent, File, Files, Folder, Need, Parsed

HEAD = "component_type: Agent\nagentspec_version: 25.4.2\nname: a\nsystem_prompt: hi\n"
LLM = "llm_config: {component_type: OpenAiConfig, name: m, model_id: gpt}\n"
STDIO = StdioTransport(name="files", command="npx", args=["-y", "server"], env={"TOKEN": "t"})
HTTP = StreamableHTTPTransport(name="web", url="https://example.org/mcp", headers={"X-A": "b"})
OPENAI = OpenAiConfig(name="m", model_id="gpt-4o")


def files(contents: dict[str, str], entry: str = "") -> Files:
    found: dict[str, Any] = {path: File(text) for path, text in contents.items()}
    return Files(entry, found | {"": Folder(tuple(sorted(contents)))})


def look(text: str, path: str = "a.yaml") -> Parsed:
    answer = parse(files({path: text}, path))
    assert type(answer) is Parsed
    return answer


def read(text: str, path: str = "a.yaml") -> Agent:
    answer = look(text, path)
    assert answer.agent is not None, [str(problem) for problem in answer.problems]
    return answer.agent


def errors(text: str, path: str = "a.yaml") -> list[str]:
    return [str(each) for each in look(text, path).problems if each.level == "error"]


def bare(agent: Agent) -> Agent:
    """The agent without where it came from."""
    return replace(agent, origins={}, source=Source())


def written(agent: Agent) -> str:
    (text,) = render(agent).files.values()
    return text


def again(agent: Agent) -> Agent:
    return bare(read(written(agent)))


def load(text: str) -> Any:
    return AgentSpecDeserializer().from_yaml(text)


def export(agent: OasAgent) -> str:
    return str(AgentSpecSerializer().to_yaml(agent))


def everything(component: Any) -> dict[str, Any]:
    """All that a component says, its tools in the order of their names."""
    found = AgentSpecSerializer().to_dict(component, agentspec_version=AgentSpecVersionEnum.current_version)
    by_name = {key: sorted(found.get(key, ()), key=lambda each: str(each["name"])) for key in ("tools", "toolboxes")}
    inputs = sorted(found.get("inputs", ()), key=lambda each: str(each["title"]))
    return {**found, **by_name, "inputs": inputs, "$referenced_components": None}


def oas(**fields: Any) -> OasAgent:
    return OasAgent(**({"name": "a", "llm_config": OPENAI, "system_prompt": "Be kind."} | fields))


# Claims


def test_a_file_that_says_it_is_an_agent_is_claimed() -> None:
    assert claims(files({"x.yaml": HEAD + LLM}, "x.yaml")) is not None
    assert claims(files({"x.json": AgentSpecSerializer().to_json(oas())}, "x.json")) is not None
    assert list(detect(files({"x.yaml": HEAD}, "x.yaml"))) == ["openagentspec"]


def test_a_folder_is_claimed_if_exactly_one_file_in_it_is_an_agent() -> None:
    assert claims(files({"x.yaml": HEAD, "other.yaml": "a: 1"})) is not None
    assert claims(files({"agent.yaml": HEAD})) is not None
    assert claims(files({"agent.yaml": "kind: Agent"})) is None
    assert claims(files({"x.yaml": HEAD, "y.yaml": HEAD})) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: [",
        "component_type: Flow\nagentspec_version: 25.4.2",
        "component_type: Agent",
        "x:\n  " + HEAD.replace("\n", "\n  "),
        '{"component_type": "Flow", "agentspec_version": "1", "x": {"component_type": "Agent"}}',
    ],
)
def test_other_files_are_not_claimed(text: str) -> None:
    assert claims(files({"x.yaml": text}, "x.yaml")) is None


def test_a_file_that_has_not_been_read_is_asked_for() -> None:
    assert parse(Files("x.yaml", {})) == Need(files=frozenset({"x.yaml"}))
    assert parse(Files("", {"": Folder(("a.json", "b.md"))})) == Need(files=frozenset({"a.json"}))


def test_a_file_that_cannot_be_had_is_a_problem() -> None:
    for given_files in (Files("x.yaml", {"x.yaml": Absent("missing")}), Files("", {"": Folder(())})):
        answer = parse(given_files)
        assert type(answer) is Parsed and answer.agent is None and len(answer.problems) == 1


# From pyagentspec


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize(
    ("config", "ref"),
    [
        (OPENAI, ModelRef("openai", "gpt-4o")),
        (OllamaConfig(name="m", url="http://host:1", model_id="l"), ModelRef("ollama", "l", "http://host:1")),
        (VllmConfig(name="m", url="http://host:1", model_id="l"), ModelRef("vllm", "l", "http://host:1")),
        (
            OpenAiCompatibleConfig(name="m", url="http://u", model_id="l"),
            ModelRef("openai-compatible", "l", "http://u"),
        ),
        (LlmConfig(name="m", model_id="c", provider="anthropic"), ModelRef("anthropic", "c")),
        (
            LlmConfig(name="m", model_id="c", provider="meta", api_provider="groq", url="http://g"),
            ModelRef("groq", "c", "http://g"),
        ),
        (
            OciGenAiConfig(
                name="m",
                model_id="o",
                compartment_id="c",
                client_config=OciClientConfigWithInstancePrincipal(name="c", service_endpoint="e"),
            ),
            ModelRef("oci", "o"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_kind_of_model_is_read_and_written_back(form: str, config: Any, ref: ModelRef) -> None:
    source = oas(llm_config=config)
    serializer = AgentSpecSerializer()
    text = serializer.to_yaml(source) if form == "yaml" else serializer.to_json(source)
    agent = read(text, f"a.{form}")
    assert agent.model.candidates == (ref,)
    assert everything(load(written(agent))) == everything(source)
    assert again(agent) == bare(agent)


def test_an_agent_is_read_with_its_positions() -> None:
    generation = LlmGenerationConfig(temperature=0.25, max_tokens=99, top_p=0.5)
    config = OpenAiConfig(name="m", model_id="gpt", default_generation_parameters=generation)
    agent = read(export(oas(description="D", metadata={"team": {"x": None}}, llm_config=config)))
    assert (agent.name, agent.description) == ("a", "D")
    assert agent.prompt == (PromptPart("system_prompt", "Be kind."),)
    assert agent.model == ModelChoice((ModelRef("openai", "gpt"),), temperature=0.25, max_output_tokens=99)
    assert agent.extra["openagentspec"]["metadata"] == {"team": {"x": None}}
    assert str(agent.origins["name"]) == "a.yaml:3:7"
    assert {"description", "model.temperature", "model.candidates[0].name", "prompt[0]"} <= agent.origins.keys()


def test_mcp_servers_and_tools_are_read() -> None:
    agent = read(
        export(
            oas(
                tools=[ServerTool(name="bash"), ClientTool(name="web"), ServerTool(name="lookup", description="d")],
                toolboxes=[
                    MCPToolBox(name="files", client_transport=STDIO),
                    MCPToolBox(name="net", client_transport=HTTP, tool_filter=["a"]),
                ],
            )
        )
    )
    assert agent.tools == (
        BuiltinTool("bash"),
        BuiltinTool("web"),
        McpServer("files", "stdio", command="npx", args=("-y", "server"), env={"TOKEN": "t"}),
        McpServer(
            "net",
            "streamable-http",
            url="https://example.org/mcp",
            headers={"X-A": "b"},
            config={"tool_filter": ["a"]},
        ),
    )
    assert agent.extra["openagentspec"]["tools"]["lookup"]["description"] == "d"
    assert "tools[2]" in agent.origins


def rich() -> OasAgent:
    return oas(
        description="D",
        metadata={"team": "x"},
        system_prompt="Hi {{who}}, {{ what }}",
        inputs=[StringProperty(title="who", default="you"), StringProperty(title="what", description="w")],
        outputs=[StringProperty(title="answer", default="")],
        tools=[
            ServerTool(name="bash", description="d", inputs=[StringProperty(title="c")], requires_confirmation=True),
            ClientTool(name="foo"),
            RemoteTool(name="r", url="https://a/{{b}}", http_method="GET"),
            OasBuiltinTool(name="search", tool_type="x"),
            MCPTool(name="one", client_transport=STDIO, inputs=[StringProperty(title="q")]),
        ],
        toolboxes=[
            MCPToolBox(name="files", client_transport=STDIO),
            MCPToolBox(name="net", client_transport=HTTP),
            MCPToolBox(name="sse", client_transport=SSETransport(name="s", url="http://s")),
            MCPToolBox(name="sse2", client_transport=SSETransport(name="s2", url="http://s")),
        ],
        human_in_the_loop=False,
    )


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_writing_a_file_back_loses_nothing(form: str) -> None:
    source = rich()
    serializer = AgentSpecSerializer()
    agent = read(serializer.to_yaml(source) if form == "yaml" else serializer.to_json(source), f"a.{form}")
    assert everything(load(written(agent))) == everything(source)
    assert again(agent) == bare(agent)
    assert written(again(agent)) == written(again(again(agent)))


def test_components_that_are_kept_keep_what_they_refer_to() -> None:
    sse = SSETransport(name="s", url="http://s")
    source = oas(toolboxes=[MCPToolBox(name=name, client_transport=sse) for name in ("x", "y")])
    assert everything(load(written(read(export(source))))) == everything(source)


def test_a_reference_to_a_secret_is_kept_and_a_secret_is_not() -> None:
    text = export(oas(llm_config=OpenAiConfig(name="m", model_id="g", api_key="sk-1")))
    assert "$component_ref" in written(read(text))
    plain_key = HEAD + "llm_config: {component_type: OpenAiConfig, name: m, model_id: g, api_key: sk-1}\n"
    assert "sk-1" not in written(read(plain_key))
    assert any("api_key" in str(problem) for problem in look(plain_key).problems)


def test_emoji_in_json_are_read() -> None:
    text = AgentSpecSerializer().to_json(oas(system_prompt="😀 \\ud83d \\\\ok", description="é"))
    assert read(text, "a.json").prompt[0].text == "😀 \\ud83d \\\\ok"


# What is wrong


def test_components_other_than_agents_are_refused() -> None:
    start, end = StartNode(name="s"), EndNode(name="e")
    edge = ControlFlowEdge(name="x", from_node=start, to_node=end)
    flow = Flow(
        name="f", start_node=start, nodes=[start, end], control_flow_connections=[edge], data_flow_connections=[]
    )
    (error,) = errors(AgentSpecSerializer().to_yaml(flow))
    assert "only Agent components are read, not Flow" in error


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("[]", "only Agent"),
        ("a: [", "not valid YAML"),
        (HEAD, "llm_config is missing"),
        (HEAD + "llm_config: 5", "llm_config must be"),
        (HEAD + "llm_config: {$component_ref: x}", "a.yaml:5:30  error  $component_ref 'x' refers to nothing"),
        (HEAD + "llm_config: {$component_ref: [x]}", "refers to nothing"),
        (
            HEAD + "llm_config: {$component_ref: x}\n$referenced_components:\n  x: {$component_ref: x}",
            "a.yaml:7:6  error  components that contain themselves: x → x",
        ),
        (HEAD + LLM + "tools: 5", "tools must be a list"),
        (HEAD + LLM + "tools: [5]", "tools[0] must be"),
        (HEAD + LLM + "tools: [{name: x}]", "tools[0].component_type is missing"),
        (HEAD + LLM + "tools: [{component_type: Odd}]", "tools[0].name is missing"),
        (HEAD + LLM + "tools: [{component_type: ServerTool, name: [x]}]", "tools[0].name must be"),
        (HEAD + LLM + "toolboxes: [{component_type: MCPToolBox, name: x}]", "client_transport is missing"),
        (
            HEAD + LLM + "toolboxes: [{component_type: MCPToolBox, name: x, client_transport: {name: t, "
            "component_type: StdioTransport}}]",
            "client_transport.command is missing",
        ),
        (
            HEAD + LLM + "tools: [{component_type: ServerTool, name: x}, {component_type: ServerTool, name: x}]",
            "a second tool is called 'x'",
        ),
        (HEAD + LLM + "metadata: {duragent: 5}", "metadata.duragent must be"),
        (HEAD + LLM + "metadata: {duragent: {status: odd}}", "metadata.duragent.status must be"),
    ],
)
def test_a_mistake_is_an_error_at_its_place(text: str, said: str) -> None:
    assert look(text).agent is None
    assert any(said in error for error in errors(text)), errors(text)


def test_every_problem_is_said_at_once_also_when_a_reference_leads_nowhere() -> None:
    text = """\
component_type: Agent
agentspec_version: 25.4.2
name: a
name: b
system_prompt: [x]
llm_config: {$component_ref: nowhere}
human_in_the_loop: 5
tools:
  - {$component_ref: lost}
  - {component_type: ServerTool, name: 5.5e, requires_confirmation: odd}
  - component_type: MCPTool
    name: m
    client_transport: {$component_ref: gone}
toolboxes:
  - {component_type: MCPToolBox, name: n, client_transport: {$component_ref: x.client_transport}}
"""
    found = [(problem.line, problem.path) for problem in look(text).problems if problem.level == "error"]
    assert sorted(found) == [
        (4, ""),
        (5, "system_prompt"),
        (6, "$component_ref"),
        (7, "human_in_the_loop"),
        (9, "$component_ref"),
        (10, "tools[1].requires_confirmation"),
        (13, "$component_ref"),
        (15, "toolboxes[0].client_transport"),
    ]


@pytest.mark.parametrize("declared", ["{type: string}", "{title: null}"])
def test_an_input_without_a_title_answers_no_placeholder(declared: str) -> None:
    agent = read(HEAD.replace("hi", "'x {{None}}'") + LLM + f"inputs: [{declared}]\n")
    assert agent.extra["openagentspec"]["inputs"] == [{"title": "None", "type": "string"}]


def test_an_unknown_field_is_a_warning_and_is_kept() -> None:
    text = HEAD + LLM + "sistem_prompt: x\n"
    (problem,) = look(text).problems
    assert (problem.level, problem.line, problem.hint) == ("warning", 6, "did you mean `system_prompt`?")
    assert "sistem_prompt: x" in written(read(text))


def test_an_input_that_no_placeholder_asks_for_is_dropped_with_a_warning() -> None:
    text = HEAD + LLM + "inputs: [{title: x, type: string}]\n"
    (problem,) = look(text).problems
    assert (problem.level, problem.path) == ("warning", "inputs")
    assert load(written(read(text))).inputs == []


def test_references_cannot_be_used_to_fill_the_memory() -> None:
    bomb = HEAD + LLM + "toolboxes:\n"
    bomb += "".join(
        f"- {{component_type: MCPToolBox, name: t{n}, client_transport: {{$component_ref: x}}}}\n" for n in range(300)
    )
    args = ",".join("x" * 2000)
    bomb += f"$referenced_components: {{x: {{component_type: StdioTransport, name: x, command: x, args: [{args}]}}}}\n"
    assert any("expand to more" in error for error in errors(bomb))


NAMES = (
    *("component_type", "name", "client_transport", "metadata", "duragent", "tools", "$component_ref", "x", "title"),
    *("temperature", "url", "env", "default_generation_parameters", "session_parameters", "read_timeout_seconds"),
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "x", "Agent", "MCPTool", "ServerTool", "a.b"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
KEYS = (
    "name",
    "llm_config",
    "system_prompt",
    "tools",
    "toolboxes",
    "inputs",
    "metadata",
    "$referenced_components",
    "id",
)


@settings(deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(KEYS, JSON)))
def test_no_file_makes_it_fall_over(fields: dict[str, Any]) -> None:
    base = {"component_type": "Agent", "agentspec_version": "25.4.2", "name": "a", "system_prompt": "{{x}}"}
    llm = {"component_type": "LlmConfig", "name": "m", "model_id": "m"}
    answer = look(json.dumps(base | {"llm_config": llm} | fields), "a.json")
    if answer.agent is not None:
        assert again(answer.agent) == bare(answer.agent)


# To pyagentspec

FULL = Agent(
    name="My agent/é",
    title="T",
    description="D",
    version="1.0",
    author="A",
    license="MIT",
    labels={"team": "yes"},
    tags=("a", "b"),
    icon="🦉",
    status="deprecated",
    templates="variables",
    model=ModelChoice((ModelRef("ollama", "llama3"),), temperature=0.7, max_output_tokens=10),
    prompt=(PromptPart("system_prompt", "On {{date}} at {{ time }} {{agent.name}}:\n\n  - be {{date}}\n"),),
    tools=(
        McpServer("files", "stdio", command="npx", args=("1", "yes"), env={"A": "1"}, timeout_seconds=5),
        BuiltinTool("bash"),
        McpServer("h", "http", url="https://h", headers={"A": "b"}, config={"k": 1, "tool_filter": []}),
        BuiltinTool("odd"),
        McpServer("c", command="c"),
        McpServer("u", url="https://u"),
    ),
)


@pytest.mark.parametrize("agent", [FULL, Agent(name="a", model=ModelChoice((ModelRef("x", "y"),))), Agent(name="a")])
def test_an_agent_comes_back_whole(agent: Agent) -> None:
    assert load(written(agent)).name == agent.name
    assert again(agent) == agent


def test_the_file_has_a_safe_name_and_the_same_content_every_time() -> None:
    assert render(FULL).entry == "My-agent.oas.yaml"
    assert list(render(Agent(name="../..")).files) == ["agent.oas.yaml"]
    assert render(FULL) == render(FULL)


@pytest.mark.parametrize(
    ("ref", "kind"),
    [
        (ModelRef("openai", "g"), "OpenAiConfig"),
        (ModelRef("openai", "g", "http://u"), "LlmConfig"),
        (ModelRef("ollama", "g"), "OllamaConfig"),
        (ModelRef("ollama", "g", "http://u"), "OllamaConfig"),
        (ModelRef("ollama", "g", "http://localhost:11434"), "OllamaConfig"),
        (ModelRef("vllm", "g", "http://u"), "VllmConfig"),
        (ModelRef("vllm", "g"), "LlmConfig"),
        (ModelRef("anthropic", "g"), "LlmConfig"),
        (ModelRef("openai-compatible", "g", "http://u"), "OpenAiCompatibleConfig"),
    ],
)
def test_a_model_is_written_as_the_closest_configuration(ref: ModelRef, kind: str) -> None:
    agent = Agent(name="a", model=ModelChoice((ref,)))
    config = load(written(agent)).llm_config
    assert (type(config).__name__, config.model_id) == (kind, "g")
    assert config.default_generation_parameters.temperature == 0.7
    assert again(agent) == agent


def test_a_placeholder_stays_as_it_is_when_a_runtime_fills_it_in() -> None:
    loaded = load(written(FULL))
    assert {each.title: each.default for each in loaded.inputs} == {"date": "{{date}}", "time": "{{time}}"}


def test_all_parts_of_the_prompt_are_joined() -> None:
    agent = Agent(name="a", prompt=(PromptPart("soul", "S"), PromptPart("instructions", "I")))
    assert load(written(agent)).system_prompt == "S\n\nI"
    assert "prompt" in render(agent).notes


def test_what_cannot_be_said_is_noted_and_not_written() -> None:
    agent = Agent(
        name="a",
        trust=Trust(),
        limits=Limits(steps=5),
        skills=(Skill("s"),),
        model=ModelChoice((ModelRef("openai", "g"), ModelRef("openai", "h"))),
        tools=(
            CliTool("c", "c"),
            InlineTools("x"),
            McpServer("known"),
            McpServer("off", command="c", enabled=False),
            McpServer("twice", command="c"),
            McpServer("twice", command="d"),
        ),
    )
    assert set(render(agent).notes) == {"trust", "limits", "skills", "model.candidates"} | {
        f"tools[{index}]" for index in (0, 1, 2, 3, 5)
    }
    assert [each.name for each in load(written(agent)).toolboxes] == ["twice"]
    assert again(agent).tools == (McpServer("twice", command="c"),)


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\t"), max_size=30)
WORDS = TEXT.filter(str.strip)
PROMPTS = st.lists(TEXT | st.sampled_from(["{{x}}", "{{ y_1 }}", "{{{z}}}", "{{", "}}", "{{a.b}}", "\n"])).map("".join)
SERVERS = st.builds(
    McpServer,
    WORDS,
    st.sampled_from(["stdio", None]),
    command=WORDS,
    args=st.lists(TEXT).map(tuple),
    env=st.dictionaries(TEXT, TEXT, max_size=2),
    config=st.dictionaries(TEXT, TEXT, max_size=2),
    timeout_seconds=st.integers(1, 10**6),
) | st.builds(
    McpServer,
    WORDS,
    st.sampled_from(["http", "streamable-http", None]),
    url=WORDS,
    headers=st.dictionaries(TEXT, TEXT, max_size=2),
)
AGENTS = st.builds(
    Agent,
    name=WORDS,
    title=st.none() | TEXT,
    description=st.none() | TEXT,
    version=st.none() | st.sampled_from(["1.0", "2", "yes"]),
    labels=st.dictionaries(TEXT, TEXT, max_size=2),
    tags=st.lists(TEXT, max_size=3).map(tuple),
    model=st.builds(
        ModelChoice,
        st.builds(ModelRef, st.sampled_from(["openai", "ollama", "vllm", "x"]), WORDS, st.none() | WORDS).map(
            lambda ref: (ref,)
        ),
        temperature=st.floats(0, 2),
        max_output_tokens=st.none() | st.integers(1, 10**6),
    ),
    prompt=PROMPTS.map(lambda text: (PromptPart("system_prompt", text),) if text else ()),
    tools=st.lists(SERVERS | st.builds(BuiltinTool, WORDS), max_size=4, unique_by=lambda tool: tool.name).map(tuple),
)


@settings(deadline=None)
@given(AGENTS)
def test_whatever_we_write_loads_and_comes_back(agent: Agent) -> None:
    text = written(agent)
    assert load(text).system_prompt == "".join(part.text for part in agent.prompt)
    assert again(agent) == agent
