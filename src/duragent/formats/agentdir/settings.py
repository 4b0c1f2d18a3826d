"""What `agent.acl` says, and where it goes in the model.

What the model has no place for is kept as plain data in `Agent.extra["agentdir"]`: whole items under
"acl", the rest of each provider under "providers". Writing puts it back.
"""

import re
from collections.abc import Mapping

from duragent.agent import Json, McpServer, ModelRef, Origin, Provider
from duragent.formats.agentdir.acl import Item, env_name, parse_acl, to_json
from duragent.formats.agentdir.keys import ALIASES, KEYS, MODELLED, PROVIDER, STRICT
from duragent.formats.agentdir.tools import SERVER, as_warning, read_server
from duragent.formats.fields import Section
from duragent.formats.places import places
from duragent.formats.reader import Reader, did_you_mean
from duragent.formats.yaml import Node

FILE = "agent.acl"
TOOL_ROUNDS = 25
TIMEOUT_SECONDS = 300
_MCP = Section(SERVER)
_NAMED_BY_AUTHOR = {"headers", "env", "engine", "lane_handlers", "lane_timeouts"}


class Settings:
    """What an `agent.acl` says, for the folder's parser to put into an Agent."""

    def __init__(self) -> None:
        self.reader = Reader(FILE, unknown="warning", number_as_text=None)
        self.texts: dict[str, str] = {}
        self.numbers: dict[str, int] = {}
        self.model: ModelRef | None = None
        self.window: dict[str, int] = {}
        self.providers: dict[str, Provider] = {}
        self.servers: list[tuple[McpServer, Reader, Node]] = []
        self.declared: dict[str, Item] = {}
        self.kept: list[Json] = []
        self.provider_rest: dict[str, dict[str, Json]] = {}
        self.origins: dict[str, Origin] = {}

    def keep(self, item: Item) -> None:
        """Set aside an item that the model has no place for."""
        self.origins |= _item_places(item, to_json(item), f"extra.agentdir.acl[{len(self.kept)}]")
        self.kept.append(to_json(item))


def _origin(place: Item | Node) -> Origin:
    """Where a value stands; for a block, where it begins."""
    if isinstance(place, Item) and place.value is not None:
        place = place.value
    return Origin(FILE, place.line, place.column)


def _item_places(item: Item, kept: Mapping[str, Json], path: str) -> dict[str, Origin]:
    """Where the parts of an item stand of which `kept` is what is left."""
    found = {path: Origin(FILE, item.line, item.column)}
    if item.value is not None:
        return found | places(kept["value"], item.value, f"{path}.value", FILE)
    attributes = kept.get("attributes", {})
    inner = places(attributes, item.attributes, f"{path}.attributes", FILE)
    found |= {where: origin for where, origin in inner.items() if where != f"{path}.attributes"}
    waiting = iter(item.blocks)
    for index, block in enumerate(kept.get("blocks", ())):
        same = (each for each in waiting if (each.name, each.labels) == (block["name"], block.get("labels", [])))
        if (own := next(same, None)) is not None:
            found |= _item_places(own, block, f"{path}.blocks[{index}]")
    return found


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
    for label, rest in settings.provider_rest.items():
        settings.origins |= _item_places(settings.declared[label], rest, f"extra.agentdir.providers.{label}")
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
        settings.origins[name] = _origin(item)
        return
    if type(value) not in (int, float) or value < 1:  # type: ignore[operator]
        reader.warning(
            _at(item), name, f"{item.name} must be a number from 1 up; it is left out", "write a whole number"
        )
        settings.keep(item)
        return
    number = int(value)  # type: ignore[arg-type]
    if number != value:
        reader.warning(_at(item), name, f"{item.name} is cut to {number}", "write a whole number")
    if name == "llm_api_timeout_ms":
        if number % 1000:
            settings.origins[f"extra.agentdir.acl[{len(settings.kept)}]"] = _origin(item)
            settings.kept.append({"name": name, "value": number})
        number = -(-number // 1000)
    settings.numbers[name] = number
    settings.origins[MODELLED[name]] = _origin(item)


def _keep(item: Item, name: str, settings: Settings) -> None:
    """A setting that nothing is done with: checked as far as it is known, reported once, and kept."""
    settings.keep(item)
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


def _node(item: Item, *, inside: bool = False) -> Node:
    """A block as one map: attributes, and the blocks inside it by name and label."""
    if item.value is not None:
        return _snake(item.value)
    found = Node(dict(item.attributes.value), item.line, item.column)
    found.keys = dict(item.attributes.keys)
    for block in item.blocks:
        inner = _node(block, inside=True)
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
    if item.labels and not found.value and not inside:
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
    unnamed = [each for each in item.blocks if each.name == "models" and not each.labels]
    for each in unnamed if item.labels else [item, *unnamed]:
        text = f"`{each.name}` needs a name in quotes before its `{{`"
        reader.error(_at(each), each.name, text, f'write {each.name} "…" {{ … }}')
    item.blocks = [each for each in item.blocks if each not in unnamed]
    if not item.labels:
        _check_provider(item, "providers", reader)
        return
    label, rest = item.labels[0], to_json(item)
    if label in settings.provider_rest:
        text = f"the provider {label!r} stands here twice; the first one counts"
        reader.warning(_at(item), f"providers.{label}", text, "remove one of them")
        settings.keep(item)
        return
    _check_provider(item, f"providers.{label}", reader)
    # `null` says nothing, and what says nothing must not stand in the way of its other spelling.
    attributes = {name: value for name, value in rest.get("attributes", {}).items() if value is not None}
    rest["attributes"] = attributes
    provider = Provider(
        key_from=_key(item, attributes, reader),
        base_url=_take(attributes, str, "base_url", "baseUrl"),
        headers=_take_headers(item, attributes, reader),
    )
    settings.declared[label] = item
    settings.provider_rest[label] = {key: rest[key] for key in ("attributes", "blocks") if rest.get(key)}
    if provider != Provider():
        settings.providers[label] = provider
        settings.origins |= _provider_places(provider, item, f"auth.providers.{label}")


def _check_provider(item: Item, path: str, reader: Reader) -> None:
    inner = Reader(FILE, unknown="warning", number_as_text=None)
    PROVIDER.read(_as_map(item), path, inner)
    reader.problems += [as_warning(problem) for problem in inner.problems]


def _provider_places(provider: Provider, item: Item, path: str) -> dict[str, Origin]:
    found = {path: Origin(FILE, item.line, item.column)}
    if provider.key_from is not None:
        found[f"{path}.key_from"] = _written(item, "api_key", "apiKey")
    if provider.base_url is not None:
        found[f"{path}.base_url"] = _written(item, "base_url", "baseUrl")
    if provider.headers:
        found |= places(provider.headers, item.attributes.value["headers"], f"{path}.headers", FILE)
    return found


def _written(item: Item, *names: str) -> Origin:
    """Where the attribute stands that `_take` takes: of two spellings the first that says something."""
    values = item.attributes.value
    return _origin(next((values[each] for each in names if each in values and values[each].value is not None), item))


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
        settings.keep(item)
        return
    rest = settings.provider_rest.get(provider, {})
    blocks = rest.get("blocks", [])
    own: dict[str, Json] = next((each for each in blocks if each["name"] == "models" and each["labels"][0] == name), {})
    home = settings.declared.get(provider, item)
    written = next((each for each in home.blocks if each.name == "models" and each.labels[0] == name), item)
    base_url = _take(own.get("attributes", {}), str, "base_url", "baseUrl")
    _take_window(own, written, settings)
    _prune(own)
    if own and not own.keys() - {"name", "labels"}:
        blocks.remove(own)
    _prune(rest)
    known = settings.providers.get(provider, Provider())
    settings.model = ModelRef(provider, name, base_url or known.base_url)
    settings.origins["model.candidates[0]"] = _origin(item)
    if settings.model.base_url is not None:
        place = _written(written if base_url else home, "base_url", "baseUrl")
        settings.origins["model.candidates[0].base_url"] = place


def _take_window(model: dict[str, Json], item: Item, settings: Settings) -> None:
    """`limit { context output }` of the default model, as a block or as a value."""
    blocks = [each for each in model.get("blocks", []) if each["name"] == "limit"]
    limits = [each["attributes"] for each in blocks if each.get("attributes")]
    value = model.get("attributes", {}).get("limit")
    nodes = [each.attributes for each in item.blocks if each.name == "limit" and each.attributes.value]
    if type(value) is dict and value:
        limits.insert(0, value)
        nodes.insert(0, item.attributes.value["limit"])
    for limit, node in zip(limits[:1], nodes, strict=False):
        for name, home in (("context", "model.max_input_tokens"), ("output", "model.max_output_tokens")):
            if type(limit.get(name)) is int and limit[name] >= 0:
                size = limit.pop(name)
                if size:
                    settings.window[name] = size
                    settings.origins[home] = _origin(node.value[name])


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
        settings.keep(item)
        return
    node = _with_env(_as_map(item))
    if item.labels:
        node.value["name"] = Node(item.labels[0], item.line, item.column, item.labels[0])
        node.keys["name"] = _at(item)
    reader = Reader(FILE, unknown="warning", number_as_text=None)
    values = _MCP.read(node, "", reader)
    server = read_server(node, values, reader)
    settings.reader.problems += reader.problems
    if server is not None:
        settings.servers.append((server, reader, node))


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
