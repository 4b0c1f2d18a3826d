"""`tools/*.md` of an agent directory, and the MCP servers of `agent.acl`, which take the same keys."""

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from duragent.agent import Json, McpServer, Origin, ScriptLimits, ScriptTool
from duragent.formats.fields import Either, Field, Flag, Integer, Kind, ListOf, MapOf, OneOf, Section, Tagged, Text
from duragent.formats.reader import BAD, Reader, homes
from duragent.formats.shape import Problem, leaves, normal
from duragent.formats.write import laid_over, said
from duragent.formats.yaml import Node

MAX_SCRIPT_TIMEOUT = 600_000


class Ignored(Kind):
    """A value that the reference leaves out when it has the wrong type: a warning here, not an error."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.wanted = kind.wanted

    def read(self, node: Node, path: str, reader: Reader) -> Json:
        inner = Reader(reader.file, unknown=reader.unknown, number_as_text=reader.number_as_text)
        value = self.kind.read(node, path, inner)
        reader.problems += [as_warning(problem) for problem in inner.problems]
        reader.at |= inner.at
        return value

    def schema(self) -> dict[str, Json]:
        return self.kind.schema()


def as_warning(problem: Problem) -> Problem:
    if problem.level == "warning":
        return problem
    return replace(problem, level="warning", text=f"{problem.text}; it is left out")


_TRANSPORT = "How to reach it: stdio, http (HTTP with SSE) or streamable-http; or a section with `type` and its keys."
_WAY: dict[str, Field] = {
    "command": Field(Text(empty=False), "Program to start (stdio)."),
    "args": Field(Ignored(ListOf(Text())), "Its arguments (stdio)."),
    "url": Field(Text(empty=False), "Address (http, streamable-http)."),
    "headers": Field(Ignored(MapOf(Text())), "HTTP headers (http, streamable-http)."),
}
OAUTH = Section(
    {
        "auth_url": Field(Text(empty=False), "Where a person signs in.", required=True),
        "token_url": Field(Text(empty=False), "Where tokens are fetched.", required=True),
        "client_id": Field(Text(empty=False), "Who asks.", required=True),
        "redirect_uri": Field(Text(empty=False), "Where the answer goes.", required=True),
        "client_secret": Field(Text(), "Secret of the client."),
        "access_token": Field(Text(), "A token that is already there."),
        "scopes": Field(ListOf(Text()), "What is asked for."),
    }
)
SERVER: dict[str, Field] = {
    "name": Field(Text(empty=False), "Name of the server; its tools are called mcp__<name>__<tool>.", required=True),
    "transport": Field(
        Either(text=Text(), map=Section({"type": Field(Text(), "As `transport`.", required=True)} | _WAY)),
        _TRANSPORT,
        required=True,
    ),
    **_WAY,
    "env": Field(Ignored(MapOf(Text())), "Environment of the program."),
    "enabled": Field(Flag(), "false: keep it, do not start it.", default=True),
    "tool_timeout_secs": Field(Integer(1), "Seconds a call may take.", default=60),
    "oauth": Field(OAUTH, "Sign-in."),
}
LIMITS = Section(
    {
        "timeoutMs": Field(
            Integer(1, MAX_SCRIPT_TIMEOUT), "Milliseconds a run may take; 600000 if `task` is allowed.", default=30_000
        ),
        "maxToolCalls": Field(Integer(1, 1_000), "Tool calls in one run.", default=20),
        "maxOutputBytes": Field(
            Integer(1, 16_777_216), "Bytes of each tool's output that the script sees.", default=65_536
        ),
    }
)
MCP = Section({"kind": Field(OneOf("mcp"), "mcp", required=True)} | SERVER)
SCRIPT = Section(
    {
        "kind": Field(OneOf("script"), "script", required=True),
        "name": Field(Text(empty=False), "Name of the tool; without one, the name of the file."),
        "path": Field(Text(empty=False), "The .js or .mjs file, relative to the workspace.", required=True),
        "description": Field(Text(), "What it does; without one, the text below the header."),
        "allowed_tools": Field(ListOf(Text()), "All the tools that the script may call.", default=[]),
        "limits": Field(LIMITS, "Limits of one run."),
    }
)
TOOL = Tagged("kind", {"mcp": MCP, "script": SCRIPT})
_HOMES = {
    **{name: name for name in (*SERVER, *SCRIPT.fields) if name != "kind"},
    "tool_timeout_secs": "timeout_seconds",
    "limits.timeoutMs": "limits.timeout_ms",
    "limits.maxToolCalls": "limits.max_tool_calls",
    "limits.maxOutputBytes": "limits.max_output_bytes",
    "transport.type": "transport",
    **{f"transport.{name}": name for name in _WAY},
}


def read_tool(node: Node, stem: str, body: str, reader: Reader) -> tuple[McpServer | ScriptTool | None, str]:
    """The tool that a header describes, and the text below it when that says nothing else."""
    values = TOOL.read(node, "", reader)
    if values is BAD:
        return None, ""
    if values.get("kind") == "mcp":
        return read_server(node, values, reader), body
    own = values.get("description", "").strip()
    tool = _script(node, values, stem, own or body, reader)
    return tool, body if own else ""


def tool_origins(reader: Reader, index: int, start: tuple[int, int]) -> dict[str, Origin]:
    """Where the parts of a tool stand that begins at `start`."""
    table = {path: f"tools[{index}].{home}" for path, home in _HOMES.items()}
    flat = {path: origin for path, origin in reader.at.items() if not path.startswith("transport.")}
    nested = {path: origin for path, origin in reader.at.items() if path.startswith("transport.")}
    return {f"tools[{index}]": Origin(reader.file, *start)} | homes(flat, table) | homes(nested, table)


def read_server(node: Node, values: Mapping[str, Json], reader: Reader) -> McpServer | None:
    """An MCP server from values that `SERVER` has read; None if they, or what they say together, are wrong."""
    transport = values.get("transport")
    nested = transport if isinstance(transport, dict) else {}
    told = {**values, **nested}
    kind = nested.get("type") if isinstance(transport, dict) else transport
    kind = kind.replace("streamable_http", "streamable-http") if kind is not None else None
    if kind in ("stdio", "http", "streamable-http"):
        _check_way(kind, told, node, reader)
    elif kind is not None:
        hint = (
            "http is the old HTTP with SSE, streamable-http the current one"
            if kind == "sse"
            else "stdio, http or streamable-http"
        )
        reader.error(node.value["transport"], "transport", f"the transport {kind[:40]!r} is not known", hint)
    for secret in ("client_secret", "access_token"):
        if values.get("oauth", {}).get(secret):
            place = reader.position(f"oauth.{secret}")
            reader.warning(
                place, f"oauth.{secret}", f"oauth.{secret} is a secret in a file", "whoever reads the file has it"
            )
    if not reader.ok():
        return None
    return McpServer(
        name=values["name"],
        transport=kind,
        command=told.get("command"),
        args=tuple(told.get("args", ())),
        url=told.get("url"),
        env=values.get("env", {}),
        headers=told.get("headers", {}),
        timeout_seconds=values.get("tool_timeout_secs", 60),
        enabled=values.get("enabled", True),
        oauth=values.get("oauth", {}),
    )


def _check_way(kind: str, told: Mapping[str, Json], node: Node, reader: Reader) -> None:
    """Whether what a transport needs is there, and nothing that it has no use for."""
    wanted = "command" if kind == "stdio" else "url"
    faulty = any(
        problem.path in (wanted, f"transport.{wanted}") for problem in reader.problems if problem.level == "error"
    )
    if wanted not in told and not faulty:
        reader.error(node, wanted, f"{wanted} is missing", f"the transport {kind} needs it")
    for name in ("url", "headers") if kind == "stdio" else ("command", "args"):
        if name in told:
            place = reader.position(name if name in reader.at else f"transport.{name}")
            reader.warning(place, name, f"{name} means nothing with the transport {kind}", "remove it")


def script_path(node: Node) -> str | None:
    """The file that a script's header names, if it names one that it may."""
    said_kind, path = (node.value.get(name) for name in ("kind", "path")) if type(node.value) is dict else (None, None)
    if said_kind is None or said_kind.value != "script" or path is None or type(path.value) is not str:
        return None
    return normal(path.value) if path.value.strip() and not _wrong_path(path.value) else None


def _script(node: Node, values: Mapping[str, Json], stem: str, description: str, reader: Reader) -> ScriptTool | None:
    raw = values.get("path")
    wrong = _wrong_path(raw) if raw is not None else None
    if raw is not None and wrong:
        reader.error(
            node.value["path"],
            "path",
            f"path is {raw[:60]!r}, which {wrong}",
            "name a .js or .mjs file inside the workspace",
        )
    if raw is None or not reader.ok():
        return None
    allowed = tuple(values.get("allowed_tools", ()))
    limits = values.get("limits", {})
    return ScriptTool(
        name=values.get("name", stem),
        path=normal(raw),
        description=description,
        allowed_tools=allowed,
        limits=ScriptLimits(
            timeout_ms=limits.get("timeoutMs", _default_timeout(allowed)),
            max_tool_calls=limits.get("maxToolCalls", 20),
            max_output_bytes=limits.get("maxOutputBytes", 65_536),
        ),
    )


def _default_timeout(allowed: Iterable[str]) -> int:
    return MAX_SCRIPT_TIMEOUT if "task" in allowed else 30_000


def _wrong_path(raw: str) -> str | None:
    path = raw.replace("\\", "/")
    if path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "is absolute"
    if ".." in path.split("/") or leaves(normal(raw)):
        return "leads out of the workspace"
    if not path.endswith((".js", ".mjs")):
        return "is no JavaScript file"
    return None


def server_header(server: McpServer, extra: Mapping[str, Json]) -> dict[str, Json]:
    """The keys of an MCP server, without its defaults."""
    header: dict[str, Json] = {
        "name": server.name,
        "transport": server.transport or ("stdio" if server.command else "streamable-http"),
        "command": server.command,
        "args": list(server.args),
        "url": server.url,
        "headers": dict(server.headers),
        "env": dict(server.env),
        "enabled": False if not server.enabled else None,
        "tool_timeout_secs": server.timeout_seconds if server.timeout_seconds != 60 else None,
        "oauth": dict(server.oauth),
    }
    if isinstance(extra.get("transport"), Mapping):
        header["transport"] = {"type": header["transport"]}
    return laid_over(said(header), extra)


def script_header(tool: ScriptTool, extra: Mapping[str, Json]) -> dict[str, Json]:
    limits = {
        "timeoutMs": (tool.limits.timeout_ms, _default_timeout(tool.allowed_tools)),
        "maxToolCalls": (tool.limits.max_tool_calls, 20),
        "maxOutputBytes": (tool.limits.max_output_bytes, 65_536),
    }
    header: dict[str, Json] = {
        "name": tool.name,
        "path": tool.path,
        "description": tool.description or None,
        "allowed_tools": list(tool.allowed_tools),
        "limits": {name: value for name, (value, default) in limits.items() if value != default},
    }
    return laid_over(said(header), extra)
