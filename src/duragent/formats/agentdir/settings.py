"""What `agent.acl` may say, where it goes in the model, and how it is written.

What the model has no place for is kept as plain data in `Agent.extra["agentdir"]`: whole items under
"acl", the rest of each provider under "providers". Writing puts it back.
"""

import re
from collections.abc import Mapping

from duragent.agent import Agent, Json, McpServer, ModelRef, Origin, Provider
from duragent.formats.agentdir.acl import Item, can_be_key, env_name, parse_acl, to_json, write_acl
from duragent.formats.agentdir.keys import ALIASES, KEYS, MODELLED, PROVIDER, STRICT
from duragent.formats.agentdir.tools import SERVER, as_warning, read_server, server_header
from duragent.formats.fields import Section
from duragent.formats.reader import Reader, did_you_mean
from duragent.formats.yaml import Node

FILE = "agent.acl"
TOOL_ROUNDS = 25
TIMEOUT_SECONDS = 300
_MCP = Section(SERVER)
_NAMED_BY_AUTHOR = {"headers", "env", "engine", "lane_handlers", "lane_timeouts"}
_ENV_TEXT = re.compile(r"\$\{([^\W\d]\w*)\}")


class Settings:
    """What an `agent.acl` says, for the folder's parser to put into an Agent."""

    def __init__(self) -> None:
        self.reader = Reader(FILE, unknown="warning", number_as_text=None)
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.model: ModelRef | None = None
        self.window: dict[str, int] = {}
        self.providers: dict[str, Provider] = {}
        self.servers: list[tuple[McpServer, Reader]] = []
        self.kept: list[Json] = []
        self.provider_rest: dict[str, dict[str, Json]] = {}
        self.origins: dict[str, Origin] = {}


def read_settings(text: str) -> Settings:
    settings = Settings()
    items, findings = parse_acl(text)
    for found in findings:
        settings.reader.problem(found.level, (found.line, found.column), "", found.text, found.hint)
    last = {ALIASES.get(item.name, item.name): item for item in items}
    default: Item | None = None
    for item in items:
        name = ALIASES.get(item.name, item.name)
        if name == "providers":
            _provider(item, settings)
        elif name == "mcp_servers":
            _server(item, settings)
        elif name not in MODELLED:
            _keep(item, name, settings)
        elif last[name] is not item:
            settings.reader.warning(
                _at(item), item.name, f"`{item.name}` is set again below, and that wins", "remove one of them"
            )
        elif name == "default_model":
            default = item
        else:
            _single(item, name, settings)
    if default is not None:
        _default_model(default, settings)
    settings.provider_rest = {
        label: rest for label, rest in settings.provider_rest.items() if rest or _declared(items, label) > 1
    }
    return settings


def _at(item: Item) -> tuple[int, int]:
    return item.line, item.column


def _declared(items: list[Item], label: str) -> int:
    return sum(item.name == "providers" and item.labels[:1] == [label] for item in items)


def _single(item: Item, name: str, settings: Settings) -> None:
    """One of the plain settings that the model has a place for."""
    reader = settings.reader
    value = item.value.value if item.value is not None else None
    if name in ("name", "description", "version"):
        if type(value) is not str or (name == "name" and not value.strip()):
            reader.error(_at(item), name, f"{name} must be a text in quotes", f'write {name} = "…"')
            return
        settings.texts[name] = value
        settings.origins[name] = Origin(FILE, item.line, item.column)
        return
    if type(value) not in (int, float) or value < 1:  # type: ignore[operator]
        reader.warning(
            _at(item), name, f"{item.name} must be a number from 1 up; it is left out", "write a whole number"
        )
        settings.kept.append(to_json(item))
        return
    number = int(value)  # type: ignore[arg-type]
    if number != value:
        reader.warning(_at(item), name, f"{item.name} is cut to {number}", "write a whole number")
    if name == "llm_api_timeout_ms":
        if number % 1000:
            settings.kept.append({"name": name, "value": number})
        number = -(-number // 1000)
    settings.numbers[name] = number
    settings.origins[MODELLED[name]] = Origin(FILE, item.line, item.column)


def _keep(item: Item, name: str, settings: Settings) -> None:
    """A setting that nothing is done with: checked as far as it is known, reported once, and kept."""
    settings.kept.append(to_json(item))
    reader = settings.reader
    field = KEYS.fields.get(name)
    if field is None:
        hint = did_you_mean(item.name, [*KEYS.fields, *ALIASES]) or "the reference ignores it, too"
        reader.warning(_at(item), item.name, f"unknown setting `{item.name}`; it is kept", hint)
        return
    reader.warning(_at(item), item.name, f"{item.name} is read and kept, but nothing is done with it")
    inner = Reader(FILE, unknown="warning", number_as_text=None)
    field.kind.read(_node(item), name, inner)
    reader.problems += inner.problems if name in STRICT else [as_warning(problem) for problem in inner.problems]


def _node(item: Item) -> Node:
    """A block as one map: attributes, and the blocks inside it by name and label."""
    if item.value is not None:
        return _snake(item.value)
    found = Node(dict(item.attributes.value), item.line, item.column)
    found.keys = dict(item.attributes.keys)
    for block in item.blocks:
        inner = _node(block)
        for label in reversed(block.labels):
            named = Node({label: inner}, block.line, block.column)
            named.keys[label] = _at(block)
            inner = named
        here = found.value.get(block.name)
        if block.labels and here is not None and type(here.value) is dict:
            here.value.update(inner.value)
            here.keys.update(inner.keys)
        else:
            found.value[block.name] = inner
            found.keys[block.name] = _at(block)
    if item.labels and not found.value:
        return Node(item.labels[0], item.line, item.column, item.labels[0])
    return _snake(found)


def _snake(node: Node) -> Node:
    """camelCase keys in snake_case, except below keys whose content the author names."""
    if type(node.value) is not dict:
        return node
    found = Node({}, node.line, node.column)
    for key, child in node.value.items():
        name = re.sub(r"(?<=[a-z0-9])[A-Z]", lambda upper: "_" + upper[0].lower(), key)
        found.value[name] = child if name in _NAMED_BY_AUTHOR else _snake(child)
        found.keys[name] = node.keys.get(key, (child.line, child.column))
    return found


def _provider(item: Item, settings: Settings) -> None:
    reader = settings.reader
    unnamed = [item] if not item.labels else [each for each in item.blocks if each.name == "models" and not each.labels]
    for each in unnamed:
        text = f"`{each.name}` needs a name in quotes before its `{{`"
        reader.error(_at(each), each.name, text, f'write {each.name} "…" {{ … }}')
    if unnamed:
        return
    label, rest = item.labels[0], to_json(item)
    if label in settings.provider_rest:
        text = f"the provider {label!r} stands here twice; the first one counts"
        reader.warning(_at(item), f"providers.{label}", text, "remove one of them")
        settings.kept.append(rest)
        return
    inner = Reader(FILE, unknown="warning", number_as_text=None)
    PROVIDER.read(_as_map(item), f"providers.{label}", inner)
    reader.problems += [as_warning(problem) for problem in inner.problems]
    # `null` says nothing, and what says nothing must not stand in the way of its other spelling.
    attributes = {name: value for name, value in rest.get("attributes", {}).items() if value is not None}
    rest["attributes"] = attributes
    provider = Provider(
        key_from=_key(item, attributes, reader),
        base_url=_take(attributes, str, "base_url", "baseUrl"),
        headers=_take_headers(item, attributes, reader),
    )
    settings.provider_rest[label] = {key: rest[key] for key in ("attributes", "blocks") if rest.get(key)}
    if provider != Provider():
        settings.providers[label] = provider
        settings.origins[f"auth.providers.{label}"] = Origin(FILE, item.line, item.column)


def _as_map(item: Item) -> Node:
    node = _node(item)
    return node if type(node.value) is dict else Node({}, item.line, item.column)


def _take(attributes: dict[str, Json], kind: type, *names: str) -> Json:
    """Move a value out of what is kept, if it is of this kind. Of two spellings the first that is there counts."""
    name = next((each for each in names if each in attributes), None)
    return attributes.pop(name) if name is not None and type(attributes[name]) is kind else None


def _key(item: Item, attributes: dict[str, Json], reader: Reader) -> str | None:
    name = next((each for each in ("api_key", "apiKey") if each in attributes), "api_key")
    value = attributes.get(name)
    variable = env_name(value)
    if variable is not None and len(value["env()"]) == 1:  # type: ignore[index]
        del attributes[name]
        return f"env.{variable}"
    if type(value) is str:
        node = item.attributes.value[name]
        path = f"providers.{item.labels[0]}.{name}"
        text = "a key stands in the file itself, and is not used"
        reader.warning(node, path, text, f'write {name} = env("NAME")')
    return None


def _take_headers(item: Item, attributes: dict[str, Json], reader: Reader) -> dict[str, str]:
    value = attributes.get("headers")
    if type(value) is not dict or not value:
        return {}
    if not all(type(each) is str for each in value.values()):
        path = f"providers.{item.labels[0]}.headers"
        reader.warning(
            item.attributes.value["headers"], path, "headers must be texts; these are kept, but not sent", "write texts"
        )
        return {}
    del attributes["headers"]
    return value


def _default_model(item: Item, settings: Settings) -> None:
    value = item.value.value if item.value is not None else None
    provider, slash, name = value.partition("/") if type(value) is str else ("", "", "")
    if not (provider and slash and name):
        text = "default_model must be a text with the provider and the model; it is left out"
        settings.reader.warning(_at(item), "default_model", text, 'write default_model = "provider/model"')
        settings.kept.append(to_json(item))
        return
    rest = settings.provider_rest.get(provider, {})
    blocks = rest.get("blocks", [])
    own: dict[str, Json] = next((each for each in blocks if each["name"] == "models" and each["labels"][0] == name), {})
    base_url = _take(own.get("attributes", {}), str, "base_url", "baseUrl")
    _take_window(own, settings)
    _prune(own)
    if own and not own.keys() - {"name", "labels"}:
        blocks.remove(own)
    _prune(rest)
    known = settings.providers.get(provider, Provider())
    settings.model = ModelRef(provider, name, base_url or known.base_url)
    settings.origins["model.candidates[0]"] = Origin(FILE, item.line, item.column)


def _take_window(model: dict[str, Json], settings: Settings) -> None:
    """`limit { context output }` of the default model, as a block or as a value."""
    blocks = [each for each in model.get("blocks", []) if each["name"] == "limit"]
    limits = [each["attributes"] for each in blocks if each.get("attributes")]
    value = model.get("attributes", {}).get("limit")
    if type(value) is dict and value:
        limits.insert(0, value)
    for limit in limits[:1]:
        for name in ("context", "output"):
            if type(limit.get(name)) is int and limit[name] >= 0:
                size = limit.pop(name)
                settings.window |= {name: size} if size else {}


def _prune(block: dict[str, Json]) -> None:
    """Drop what has become empty by taking values out."""
    attributes = block.get("attributes", {})
    if attributes.get("limit") == {}:
        del attributes["limit"]
    blocks = [
        each
        for each in block.get("blocks", [])
        if each != {"name": "limit"} and each != {"name": "limit", "attributes": {}}
    ]
    for key, value in (("attributes", attributes), ("blocks", blocks)):
        if value:
            block[key] = value
        else:
            block.pop(key, None)


def _server(item: Item, settings: Settings) -> None:
    if item.value is not None:
        text = f"`{item.name}` is not a block; it is kept, but nothing is done with it"
        settings.reader.warning(_at(item), item.name, text, f'write {item.name} "name" {{ … }}')
        settings.kept.append(to_json(item))
        return
    node = _with_env(_as_map(item))
    if item.labels:
        node.value["name"] = Node(item.labels[0], item.line, item.column, item.labels[0])
        node.keys["name"] = _at(item)
    reader = Reader(FILE, unknown="warning", number_as_text=None)
    values = _MCP.read(node, "", reader)
    server = read_server(node, values, reader) if reader.ok() else None
    settings.reader.problems += reader.problems
    if server is not None:
        settings.servers.append((server, reader))


def _with_env(node: Node) -> Node:
    """env("X") as the text `${X}`, which the model holds in its place."""
    if type(node.value) is list:
        return Node([_with_env(child) for child in node.value], node.line, node.column)
    if type(node.value) is not dict:
        return node
    call = node.value.get("env()")
    if call is not None and len(call.value) == 1 and type(call.value[0].value) is str:
        text = f"${{{call.value[0].value}}}"
        return Node(text, node.line, node.column, text)
    found = Node({key: _with_env(child) for key, child in node.value.items()}, node.line, node.column)
    found.keys = dict(node.keys)
    return found


def uses_env(server: McpServer) -> bool:
    """Whether a server should be written in agent.acl: only there is `${X}` the environment's X."""
    texts = [server.command, server.url, *server.args, *server.env.values(), *server.headers.values()]
    return any(_ENV_TEXT.fullmatch(text) for text in texts if text)


def can_hold(value: Json) -> bool:
    """Whether ACL has words for a value: its keys are names, never quoted texts."""
    if isinstance(value, Mapping):
        return all(can_be_key(key) and can_hold(each) for key, each in value.items())
    return all(can_hold(each) for each in value) if isinstance(value, list) else True


def write_settings(agent: Agent, servers: list[McpServer], kept: Mapping[str, Json]) -> str:
    """The text of agent.acl. `kept` is the agent's `extra["agentdir"]`."""
    singles: dict[str, Json] = {"name": agent.name, "description": agent.description, "version": agent.version}
    model = agent.model.candidates[0] if agent.model.candidates else None
    if model is not None:
        singles["default_model"] = f"{model.provider}/{model.name}"
    rounds = agent.limits.tool_iterations if agent.limits.steps is None else agent.limits.steps
    if rounds is not None and rounds > 0 and rounds != TOOL_ROUNDS:
        singles["max_tool_rounds"] = rounds
    singles["max_parallel_tasks"] = agent.limits.parallel_tasks
    seconds = agent.session.llm_timeout_seconds
    raw = [each for each in kept.get("acl", ()) if "value" in each]
    exact = [each["value"] for each in raw if each["name"] == "llm_api_timeout_ms" and type(each["value"]) is int]
    if seconds != TIMEOUT_SECONDS and not any(-(-value // 1000) == seconds for value in exact):
        singles["llm_api_timeout_ms"] = seconds * 1000
    singles = {name: value for name, value in singles.items() if value is not None}
    items: list[Mapping[str, Json]] = [{"name": name, "value": value} for name, value in singles.items()]
    labels = dict.fromkeys([*agent.auth.providers, *kept.get("providers", {}), *([model.provider] if model else [])])
    items += [_provider_item(agent, label, kept.get("providers", {}).get(label, {})) for label in labels]
    items += [_server_item(server, kept.get("tools", {}).get(server.name, {})) for server in servers]
    items += [each for each in kept.get("acl", ()) if ALIASES.get(each["name"], each["name"]) not in singles]
    return write_acl(items)


def _provider_item(agent: Agent, label: str, rest: Mapping[str, Json]) -> dict[str, Json]:
    provider = agent.auth.providers.get(label, Provider())
    attributes: dict[str, Json] = {}
    if provider.key_from and provider.key_from.startswith("env."):
        attributes["api_key"] = {"env()": [provider.key_from.removeprefix("env.")]}
    if provider.base_url is not None:
        attributes["base_url"] = provider.base_url
    headers = {name: value for name, value in provider.headers.items() if can_be_key(name)}
    if headers:
        attributes["headers"] = headers
    blocks = list(rest.get("blocks", ()))
    model = agent.model.candidates[0] if agent.model.candidates else None
    if model is not None and model.provider == label:
        blocks = _with_model(blocks, agent, model, provider)
    return {
        "name": "providers",
        "labels": [label],
        "attributes": attributes | rest.get("attributes", {}),
        "blocks": blocks,
    }


def _with_model(blocks: list[Json], agent: Agent, model: ModelRef, provider: Provider) -> list[Json]:
    """The provider's models, the agent's own among them with what the model says about it."""
    fresh: dict[str, Json] = {"name": "models", "labels": [model.name]}
    own = next((each for each in blocks if each["name"] == "models" and each["labels"][0] == model.name), None)
    window = {"context": agent.model.max_input_tokens, "output": agent.model.max_output_tokens}
    window = {name: size for name, size in window.items() if size}
    attributes = dict((own or fresh).get("attributes", {}))
    inner = list((own or fresh).get("blocks", ()))
    if model.base_url and model.base_url != provider.base_url:
        attributes = {"base_url": model.base_url} | attributes
    limit = next((each for each in inner if each["name"] == "limit"), None)
    if window and type(attributes.get("limit")) is dict:
        attributes["limit"] = window | attributes["limit"]
    elif window and limit is not None:
        inner[inner.index(limit)] = limit | {"attributes": window | limit.get("attributes", {})}
    elif window:
        inner.append({"name": "limit", "attributes": window})
    merged = (own or fresh) | {"attributes": attributes, "blocks": inner}
    return [merged if each is own else each for each in blocks] if own else [merged, *blocks]


def _server_item(server: McpServer, extra: Mapping[str, Json]) -> dict[str, Json]:
    header = server_header(server, extra)
    name = header.pop("name")
    return {"name": "mcp_servers", "labels": [name], "attributes": _as_calls(header)}


def _as_calls(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {key: _as_calls(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_calls(each) for each in value]
    found = _ENV_TEXT.fullmatch(value) if type(value) is str else None
    return {"env()": [found[1]]} if found else value
