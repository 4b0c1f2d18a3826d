"""Open Agent Specification (Oracle's pyagentspec): one YAML or JSON file that holds an `Agent` component.

Owns the mapping to and from the model. What the file says and the model cannot is kept under
`Agent.extra["openagentspec"]`, as the difference between the file and what we would write for the same
agent; `render` lays it over again, so writing this format back loses nothing. What the model says and the
specification cannot goes below `metadata.duragent` if it protects nobody, or is noted and left out.
Does not know pyagentspec, which only the tests use. Flows, swarms and remote agents are refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from duragent.agent import (
    BUILTINS,
    Agent,
    BuiltinTool,
    Json,
    McpServer,
    ModelChoice,
    ModelRef,
    Origin,
    PromptPart,
    Source,
    Tool,
)
from duragent.formats.fields import Anything, Field, Flag, Integer, Kind, ListOf, MapOf, Number, OneOf, Section, Text
from duragent.formats.openagentspec.refs import inline
from duragent.formats.openagentspec.write import (
    CONFIGS,
    DETAILS,
    TRANSPORTS,
    as_map,
    declared_inputs,
    document,
    left_over,
    ours_in,
    piece,
)
from duragent.formats.openagentspec.write import render as render
from duragent.formats.places import places
from duragent.formats.reader import BAD, Reader, describe, homes, read_yaml
from duragent.formats.shape import Absent, Files, Need, Parsed, absence
from duragent.formats.yaml import Node, plain

SCHEMAS: Mapping[str, Mapping[str, Json]] = {}
"""None: pyagentspec publishes the schema of its own format."""

_PROVIDERS = {config: provider for provider, config in CONFIGS.items()} | {
    "OpenAiConfig": "openai",
    "GeminiConfig": "google",
    "OciGenAiConfig": "oci",
}
_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_YAML_TYPE = re.compile(r"^([\"']?)component_type\1[ ]*:[ ]*[\"']?(\w+)", re.MULTILINE)
_YAML_VERSION = re.compile(r"^([\"']?)agentspec_version\1[ ]*:", re.MULTILINE)
_JSON_TYPE = re.compile(r'("?)component_type"\s*:\s*"(\w+)"')


class _Maybe(Kind):
    """A value that pyagentspec writes as `null` where there is none."""

    def __init__(self, kind: Kind) -> None:
        self.kind, self.wanted = kind, kind.wanted

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        return BAD if node.value is None else self.kind.read(node, path, reader)

    def schema(self) -> dict[str, Json]:
        return {"anyOf": [self.kind.schema(), {"type": "null"}]}


class _Part(Kind):
    """A component inside another. A reference that still stands here leads nowhere we can follow."""

    def __init__(self, section: Section) -> None:
        self.section, self.wanted = section, section.wanted

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        ref = node.value.get("$component_ref") if type(node.value) is dict else None
        if ref is None:
            return self.section.read(node, path, reader)
        if not any((each.line, each.column) == (ref.line, ref.column) for each in reader.problems):
            reader.error(ref, path, f"{path} refers to something that is not in the file", "put it into the file")
        return BAD

    def schema(self) -> dict[str, Json]:
        return self.section.schema()


def _may(kind: Kind, *names: str) -> dict[str, Field]:
    return {name: Field(_Maybe(kind), "", null_is_absent=False) for name in names}


def _must(kind: Kind, name: str, about: str) -> dict[str, Field]:
    return {name: Field(kind, about, required=True, null_is_absent=False)}


_COMPONENT = (
    _must(Text(), "component_type", "the kind of component")
    | _must(Text(empty=False), "name", "what the component is called")
    | _may(Text(), "id", "description")
    | _may(MapOf(Anything()), "metadata")
)
_MINE = Section(
    _may(Text(), "title", "version", "author", "license", "icon", "avatar")
    | _may(ListOf(Text()), "tags", "tools")
    | _may(MapOf(Text()), "labels")
    | _may(OneOf("active", "deprecated", "disabled"), "status")
    | _may(OneOf("none", "variables", "hbs"), "templates")
)
_GENERATION = Section(
    _may(Number(), "temperature")
    | _may(Integer(1), "max_tokens")
    | _may(Anything(), "top_p", "stop", "seed", "frequency_penalty", "presence_penalty")
)
_LLM = Section(
    _COMPONENT
    | _must(Text(), "model_id", "the model, as its provider calls it")
    | _may(Text(), "provider", "api_provider", "url")
    | _may(_GENERATION, "default_generation_parameters")
    | _may(Anything(), "api_type", "api_key", "retry_policy", "key_file", "cert_file", "ca_file", "auth", "host")
    | _may(Anything(), "compartment_id", "serving_mode", "client_config", "conversation_store_id", "credential_name")
)
_TRANSPORT = Section(
    _COMPONENT
    | _may(Section(_may(Number(0), "read_timeout_seconds")), "session_parameters")
    | _may(Text(), "command", "url")
    | _may(ListOf(Text()), "args")
    | _may(MapOf(Text()), "env", "headers")
    | _may(Anything(), "cwd", "sensitive_headers", "auth", "retry_policy", "key_file", "cert_file", "ca_file")
)
_TOOL = Section(
    _COMPONENT
    | _may(Flag(), "requires_confirmation")
    | _may(ListOf(MapOf(Anything())), "inputs", "outputs")
    | _may(Anything(), "tool_type", "configuration", "executor_name", "tool_version")
)
_MCP = Section(
    dict(_TOOL.fields)
    | _must(_Part(_TRANSPORT), "client_transport", "how the server is reached")
    | _may(Anything(), "tool_filter", "retry_policy")
)
_TABLES = {"MCPTool": _MCP, "MCPToolBox": _MCP, "ServerTool": _TOOL, "ClientTool": _TOOL, "BuiltinTool": _TOOL}
_AGENT = Section(
    _COMPONENT
    | _must(_Part(_LLM), "llm_config", "the model the agent runs on")
    | _must(Text(), "system_prompt", "what the model is told")
    | _may(Text(), "agentspec_version")
    | _may(ListOf(MapOf(Anything())), "inputs", "outputs")
    | _may(ListOf(Anything()), "tools", "toolboxes", "transforms")
    | _may(Flag(), "human_in_the_loop")
    | _may(MapOf(Anything()), "$referenced_components")
)
_HOMES = {
    **{name: name for name in ("name", "description")},
    **{f"metadata.duragent.{name}": name for name in DETAILS},
    "system_prompt": "prompt[0]",
    "llm_config.model_id": "model.candidates[0].name",
    "llm_config.url": "model.candidates[0].base_url",
    "llm_config.default_generation_parameters.temperature": "model.temperature",
    "llm_config.default_generation_parameters.max_tokens": "model.max_output_tokens",
}


_TOOL_HOMES = {
    "name": "name",
    "client_transport.component_type": "transport",
    "client_transport.session_parameters.read_timeout_seconds": "timeout_seconds",
    **{f"client_transport.{name}": name for name in ("command", "args", "url", "env", "headers")},
}


class _Listed(NamedTuple):
    """One entry of `tools` or `toolboxes`; `tool` is None where the model has nothing like it."""

    where: str
    at: str
    name: str
    node: Node
    raw: dict[str, Json]
    tool: Tool | None


def claims(files: Files) -> str | None:
    found = [path for path in _candidates(files) if _is_agent(files.text(path) or "")]
    return f"{found[0]} holds an Agent component of the Open Agent Specification" if len(found) == 1 else None


def _candidates(files: Files) -> list[str]:
    names = (files.entry,) if files.entry else files.names()
    return [name for name in names if name.endswith((".yaml", ".yml", ".json"))]


def _is_agent(text: str) -> bool:
    if text.lstrip().startswith("{"):  # a component names its own type before those of its parts
        kind, version = _JSON_TYPE.search(text), '"agentspec_version"' in text
    else:
        kind, version = _YAML_TYPE.search(text), _YAML_VERSION.search(text) is not None
    return kind is not None and kind[2] == "Agent" and version


def parse(files: Files) -> Parsed | Need:
    names = [files.entry] if files.entry else _candidates(files)
    if need := Need(files=frozenset(names)).without(files.found):
        return need
    path = next((name for name in names if _is_agent(files.text(name) or "")), names[0] if names else "")
    text, found = files.text(path), files.found.get(path)
    if text is None:
        why = found if type(found) is Absent else Absent("missing")
        return Parsed(None, (absence("error", path or "*.yaml", why, file=path, line=1, column=1, at=""),))
    if path.endswith(".json"):  # JSON may write one character as two escapes, which YAML does not know
        text = _SURROGATES.sub(lambda pair: pair[1] + _character(int(pair[2], 16), int(pair[3], 16)), text)
    reader = Reader(path, unknown="warning")
    root = read_yaml(reader, text, "1.2")
    if root is None and not reader.problems:
        reader.error((1, 1), "", "the file is empty", "it must hold one Agent component")
    agent = _agent(root, reader) if root is not None else None
    return Parsed(agent if reader.ok() else None, tuple(reader.problems))


def _character(high: int, low: int) -> str:
    return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00)


def _agent(root: Node, reader: Reader) -> Agent | None:
    kind = root.value.get("component_type") if type(root.value) is dict else None
    if kind is None or kind.value != "Agent":
        text = (
            f"only Agent components are read, not {kind.value if type(kind.value) is str else describe(kind)}"
            if kind
            else "only Agent components are read"
        )
        reader.error(kind or root, "component_type", text, "export the agent by itself")
        return None
    tree = inline(root, reader)
    if tree is None:
        return None
    found = _AGENT.read(tree, "", reader)
    metadata = tree.value.get("metadata")
    mine = metadata.value.get("duragent") if metadata is not None and type(metadata.value) is dict else None
    ours = _MINE.read(mine, "metadata.duragent", reader) if mine is not None else {}
    listed = list(_listed(tree, reader))
    raw = plain(tree)
    inputs = _spare(raw, found, reader)
    if not reader.ok():
        return None
    order = ours.pop("tools", [])
    tools = [each for each in listed if each.tool is not None]
    tools.sort(key=lambda each: order.index(each.name) if each.name in order else len(order))
    agent = Agent(
        name=found["name"],
        description=found.get("description"),
        model=_model(found["llm_config"]),
        prompt=(PromptPart("system_prompt", found["system_prompt"]),) if found["system_prompt"] else (),
        tools=tuple(each.tool for each in tools if each.tool is not None),
        source=Source(format="openagentspec", path=reader.file, files=(reader.file,)),
    )
    agent = replace(agent, **{name: tuple(value) if name == "tags" else value for name, value in ours.items()})
    origins = _origins(found["llm_config"], tools, reader)
    kept = _kept(raw, replace(agent, origins=origins), listed, inputs)
    origins |= _kept_origins(kept, tree, listed, reader)
    return replace(agent, extra={"openagentspec": kept} if kept else {}, origins=origins)


def _origins(llm: Mapping[str, Any], tools: list[_Listed], reader: Reader) -> dict[str, Origin]:
    """Where the values of the model were written."""
    kind = llm["component_type"]
    names = ("component_type",) if kind in _PROVIDERS else ("api_provider", "provider", "component_type")
    provider = next((name for name in names if llm.get(name)), "component_type")
    table = _HOMES | {f"llm_config.{provider}": "model.candidates[0].provider"}
    found: dict[str, Origin] = {}
    for index, each in enumerate(tools):
        home = f"tools[{index}]"
        found[home] = Origin(reader.file, each.node.line, each.node.column)
        table |= {f"{each.at}.{name}": f"{home}.{field}" for name, field in _TOOL_HOMES.items()}
        if each.raw["component_type"] == "MCPTool":
            found[f"{home}.config.tool_filter"] = reader.at[f"{each.at}.name"]
        if type(each.tool) is McpServer:
            found |= _server_places(each.tool, each.node, home, reader.file)
    return homes(reader.at, table) | found


def _server_places(server: McpServer, node: Node, home: str, file: str) -> dict[str, Origin]:
    """Where that of a server stands which is not simply a field of its transport."""
    found: dict[str, Origin] = {}
    if "tool_filter" in node.value:
        found |= places(server.config.get("tool_filter"), node.value["tool_filter"], f"{home}.config.tool_filter", file)
    if ours := ours_in(plain(node)):
        mine = node.value["metadata"].value["duragent"].value
        if "config" in ours:
            found |= places(server.config, mine["config"], f"{home}.config", file)
            found.pop(f"{home}.config")
        if "transport" in ours and ours["transport"] == server.transport:
            found |= places(server.transport, mine["transport"], f"{home}.transport", file)
    return found


def _kept_origins(kept: Mapping[str, Json], tree: Node, listed: list[_Listed], reader: Reader) -> dict[str, Origin]:
    """Where that was written which the model has no place for."""
    home = "extra.openagentspec"
    rest = {name: value for name, value in kept.items() if name not in ("tools", "toolboxes", "inputs")}
    found = places(rest, tree, home, reader.file) if rest else {}
    found.pop(home, None)
    for each in listed:
        if left := as_map(kept.get(each.where)).get(each.name):
            found |= places(left, each.node, f"{home}.{each.where}.{each.name}", reader.file)
    declared = tree.value.get("inputs")
    for index, each in enumerate(kept.get("inputs", ())):
        listed_inputs = declared.value if declared is not None and type(declared.value) is list else []
        same = [node for node in listed_inputs if plain(node) == each]
        found |= places(each, same[0] if same else tree.value["system_prompt"], f"{home}.inputs[{index}]", reader.file)
    return found


def _model(llm: Mapping[str, Any]) -> ModelChoice:
    kind, asked = llm["component_type"], llm.get("default_generation_parameters", {})
    provider = _PROVIDERS.get(kind) or llm.get("api_provider") or llm.get("provider") or ""
    if kind not in _PROVIDERS and kind != "LlmConfig":
        provider = provider or kind
    url = None if kind == "OpenAiConfig" or ours_in(llm).get("default_url") is True else llm.get("url")
    named = provider or llm["model_id"]
    return ModelChoice(
        candidates=(ModelRef(provider, llm["model_id"], url),) if named else (),
        temperature=asked.get("temperature", ModelChoice().temperature),
        max_output_tokens=asked.get("max_tokens"),
    )


def _listed(tree: Node, reader: Reader) -> Iterator[_Listed]:
    taken: set[tuple[str, str]] = set()
    for where in ("tools", "toolboxes"):
        node = tree.value.get(where)
        for index, item in enumerate(node.value if node is not None and type(node.value) is list else ()):
            at = f"{where}[{index}]"
            found = _read_tool(item, at, reader)
            if found is None:
                continue
            tool = _tool(found, item, at, reader)
            keys = {(where, found["name"])} | ({("mcp", found["name"])} if type(tool) is McpServer else set())
            if keys & taken:
                reader.error(item, at, f"a second tool is called {found['name']!r}", "rename one of them")
            taken |= keys
            yield _Listed(where, at, found["name"], item, plain(item), tool)


def _read_tool(node: Node, at: str, reader: Reader) -> Mapping[str, Any] | None:
    """What a tool says, checked as far as its kind is known. None if it is unusable."""
    kind = node.value.get("component_type") if type(node.value) is dict else None
    table = _TABLES.get(str(kind.value)) if kind is not None else _TOOL
    if table is not None:
        found = _Part(table).read(node, at, reader)
        complete = found is not BAD and all(name in found for name in table.required)
        return found if complete else None
    name = node.value.get("name")
    if name is None or type(name.value) is not str:
        reader.error(name or node, f"{at}.name", f"{at}.name is missing or not a text", "what the tool is called")
        return None
    return as_map(plain(node))


def _tool(found: Mapping[str, Any], node: Node, at: str, reader: Reader) -> Tool | None:
    name, kind = found["name"], found["component_type"]
    if found.get("requires_confirmation") is True:
        reader.warning(node, at, f"{at}.requires_confirmation is kept, but nobody is asked", "write a policy")
    if _TABLES.get(str(kind)) is _MCP:
        server = _server(found, node, at, reader)
        if server is not None:
            return server
    elif _TABLES.get(str(kind)) is _TOOL and (name in BUILTINS or ours_in(found).get("builtin") is True):
        return BuiltinTool(name)
    reader.warning(node, at, f"the {kind} {name!r} is kept, but cannot be used here")
    return None


def _server(found: Mapping[str, Any], node: Node, at: str, reader: Reader) -> McpServer | None:
    link, ours = found["client_transport"], ours_in(found)
    transport = TRANSPORTS.get(link.get("component_type"))
    target = "command" if transport == "stdio" else "url"
    if transport is None:
        return None
    if target not in link:
        reader.error(node, f"{at}.client_transport.{target}", f"{at}.client_transport.{target} is missing")
        return None
    config = dict(as_map(ours.get("config")))
    if found["component_type"] == "MCPTool":
        config["tool_filter"] = [found["name"]]
    elif "tool_filter" in found:
        config["tool_filter"] = found["tool_filter"]
    if "tool_filter" in config:
        reader.warning(
            node, at, f"{at} offers only some tools of its server; here all of them can be used", "write a policy"
        )
    seconds = link.get("session_parameters", {}).get("read_timeout_seconds", 60.0)
    plainly = "transport" in ours and ours["transport"] in ((None,) if transport == "stdio" else (None, "http"))
    return McpServer(
        found["name"],
        ours["transport"] if plainly else transport,
        command=link.get("command") if target == "command" else None,
        args=tuple(link.get("args", ())) if target == "command" else (),
        url=link.get("url") if target == "url" else None,
        env=link.get("env", {}) if target == "command" else {},
        headers=link.get("headers", {}) if target == "url" else {},
        config=config,
        timeout_seconds=int(seconds) if seconds == int(seconds) else 60,
    )


def _spare(raw: dict[str, Json], found: Mapping[str, Any], reader: Reader) -> list[Json]:
    """The inputs that are kept. Takes a key out of `raw`, and says what nothing is done with."""
    key = as_map(raw.get("llm_config")).get("api_key")
    if type(key) is str:  # pyagentspec does not write keys either, only references to them
        del raw["llm_config"]["api_key"]
        text = "llm_config.api_key is not taken over; keys do not belong in agent files"
        reader.warning(reader.position("llm_config.api_key"), "llm_config.api_key", text, "set it in the environment")
    if "system_prompt" not in found or ("inputs" in raw and raw["inputs"] and "inputs" not in found):
        return []
    inputs, unasked = declared_inputs(raw)
    if unasked:
        text = f"{unasked} of the inputs have no placeholder in system_prompt and are dropped"
        reader.warning(reader.position("inputs"), "inputs", text, "pyagentspec refuses them")
    if inputs:
        text = "inputs are kept, but nothing fills in the placeholders of system_prompt here"
        reader.warning(reader.position("inputs"), "inputs", text)
    return inputs


def _kept(raw: dict[str, Json], agent: Agent, listed: list[_Listed], inputs: list[Json]) -> dict[str, Json]:
    """What the file says beyond what we would write for the same agent."""
    rest = {name: value for name, value in raw.items() if name not in ("tools", "toolboxes", "inputs")}
    kept = left_over(rest, document(agent)) | ({"inputs": inputs} if inputs else {})
    for each in listed:
        left = each.raw if each.tool is None else left_over(each.raw, piece(each.tool, agent.name) or {})
        if left:
            kept.setdefault(each.where, {})[each.name] = left
    return kept
