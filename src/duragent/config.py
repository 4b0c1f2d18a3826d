"""Workspace settings (duragent.yaml): where things live, keys by the name of their variable, what to serve.

Knows what the file may say, how `${NAME}` is filled in and where the file is looked for. Does not act on any of
it: `load_config` gives the settings as one frozen value, and whoever composes a program uses them.

Adding a setting: a line in `CONFIG`, a field in `Config` as soon as something acts on it, docs/configuration.md.
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from duragent.errors import InvalidAgent, NotFound
from duragent.formats.fields import (
    Either,
    Field,
    Flag,
    Integer,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Section,
    Text,
    document,
)
from duragent.formats.reader import BAD, Reader, read_yaml
from duragent.formats.shape import Absent, Entry, File, Problem, absence
from duragent.formats.yaml import Node
from duragent.reading import Disk, is_stand_in

NAME = "duragent.yaml"

_service = {
    "path": Field(Text(empty=False), "Folder, for files."),
    "url": Field(Text(empty=False), "Database address."),
}
_gateway = Section(
    {
        "enabled": Field(Flag(), "Whether it is started.", default=True),
        "bot_token": Field(Text(empty=False), "Its token, as ${NAME}.", required=True),
    }
)


class _Prices(ListOf):
    """Input, output, and what is cached, in this order."""

    wanted = "two or three numbers"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        found = super().read(node, path, reader)
        return found if found is BAD or len(found) in (2, 3) else reader.wrong(node, path, self.wanted)

    def schema(self) -> dict[str, Any]:
        return super().schema() | {"minItems": 2, "maxItems": 3}


CONFIG = Section(
    {
        "workspace": Field(Text(empty=False), "Folder for everything that is kept.", default=".duragent"),
        "agents_dir": Field(Text(empty=False), "Folder with agents; default: agents in the workspace."),
        "services": Field(
            Section(
                {
                    "session": Field(
                        Section(
                            {
                                "backend": Field(OneOf("files", "postgres"), "Where sessions are.", default="files"),
                                **_service,
                            }
                        ),
                        "Session logs.",
                    ),
                    "memory": Field(
                        Section(
                            {
                                "backend": Field(OneOf("files", "postgres"), "Where memory is.", default="files"),
                                **_service,
                            }
                        ),
                        "Memory.",
                    ),
                    "artifacts": Field(
                        Section(
                            {
                                "backend": Field(OneOf("files", "s3"), "Where artifacts are.", default="files"),
                                **_service,
                                "bucket": Field(Text(empty=False), "S3 bucket."),
                                "region": Field(Text(empty=False), "S3 region."),
                                "endpoint": Field(Text(empty=False), "S3 address, if not Amazon's."),
                            }
                        ),
                        "Artifacts.",
                    ),
                }
            ),
            "Where state is kept.",
        ),
        "world_memory": Field(Section({"path": Field(Text(empty=False), "Folder.")}), "Memory all agents share."),
        "server": Field(
            Section(
                {
                    "host": Field(Text(empty=False), "Address to listen on.", default="127.0.0.1"),
                    "port": Field(Integer(0, 65_535), "Port to listen on.", default=8080),
                    "request_timeout_seconds": Field(Integer(1), "Longest request.", default=300),
                    "idle_timeout_seconds": Field(Integer(1), "Longest silence in a stream.", default=60),
                    "keep_alive_interval_seconds": Field(Integer(1), "Sign of life in a stream.", default=15),
                    "max_connections": Field(Integer(1), "Requests at once.", default=1024),
                    "admin_token": Field(Text(empty=False), "Token for administration, as ${NAME}."),
                    "api_token": Field(Text(empty=False), "Token for everything else, as ${NAME}."),
                }
            ),
            "The HTTP server.",
        ),
        "sessions": Field(
            Section(
                {
                    "ttl_hours": Field(Integer(0), "Idle sessions end after this; 0 = never.", default=168),
                    "compaction": Field(
                        OneOf("discard", "archive", "disabled"), "What compaction does.", default="discard"
                    ),
                }
            ),
            "What holds for all sessions.",
        ),
        "sandbox": Field(
            Section(
                {
                    "mode": Field(
                        OneOf("auto", "bubblewrap", "landlock", "trust"),
                        "What keeps commands in; trust: nothing does.",
                        default="auto",
                    ),
                    "workdir": Field(
                        Text(empty=False),
                        "The folder commands work in and may change; default: the folder of this file.",
                    ),
                    "files": Field(
                        OneOf("workdir", "full"),
                        "The most that commands may touch; full: the whole disk, where the agent's trust asks for it.",
                        default="workdir",
                    ),
                    "network": Field(
                        OneOf("trust", "none", "scoped", "allowed"),
                        "What commands may reach; trust: what the agent's trust says, else nothing.",
                        default="trust",
                    ),
                    "hosts": Field(
                        ListOf(Text(empty=False)), "Names that scoped commands may reach; *.name for all below."
                    ),
                    "environment": Field(
                        ListOf(Text(empty=False)),
                        "Variables that commands of agents which name them get although they look like keys.",
                    ),
                    "limits": Field(
                        Section(
                            {
                                "seconds": Field(Integer(1), "Longest command.", default=120),
                                "memory_mb": Field(Integer(16), "Memory of one process.", default=4096),
                                "processes": Field(Integer(1), "Processes of one command.", default=256),
                                "file_mb": Field(Integer(1), "Largest file it writes.", default=1024),
                            }
                        ),
                        "How much one command may use.",
                    ),
                }
            ),
            "The sandbox.",
        ),
        "approvals": Field(
            Section(
                {"expire_hours": Field(Number(0), "A question counts as refused after this; 0 = never.", default=168)}
            ),
            "Questions to a person.",
        ),
        "web": Field(
            Section(
                {
                    "search_url": Field(Text(empty=False), "A SearXNG server; else Brave, with BRAVE_API_KEY."),
                    "private_hosts": Field(
                        ListOf(Text(empty=False)), "host or host:port that may be fetched though it is not public."
                    ),
                }
            ),
            "The web tool.",
        ),
        "gateways": Field(
            Section(
                {
                    "telegram": Field(_gateway, "Telegram bot."),
                    "discord": Field(_gateway, "Discord bot."),
                    "external": Field(
                        ListOf(
                            Section(
                                {
                                    "name": Field(Text(empty=False), "What it is called.", required=True),
                                    "command": Field(Text(empty=False), "Program to start.", required=True),
                                    "args": Field(ListOf(Text()), "Its arguments."),
                                    "env": Field(MapOf(Text()), "Its environment."),
                                    "restart": Field(
                                        OneOf("always", "on_failure", "never"),
                                        "When it is started again.",
                                        default="on_failure",
                                    ),
                                }
                            )
                        ),
                        "Further gateways, as programs.",
                    ),
                }
            ),
            "Chats.",
        ),
        "routes": Field(
            ListOf(
                Section(
                    {
                        "match": Field(
                            Section(
                                {
                                    name: Field(Text(), f"The {name.replace('_', ' ')}.")
                                    for name in ("gateway", "chat_type", "chat_id", "sender_id")
                                }
                            ),
                            "Which messages.",
                        ),
                        "agent": Field(Text(empty=False), "Who answers them.", required=True),
                    }
                )
            ),
            "Which agent answers which chat; the first that matches.",
        ),
        "prices": Field(
            MapOf(
                Either(
                    map=Section(
                        {
                            "input": Field(Number(0), "Of what the model is shown.", required=True),
                            "output": Field(Number(0), "Of what it says.", required=True),
                            "cached": Field(Number(0), "Of what the provider had kept; default: as input."),
                        }
                    ),
                    list=_Prices(Number(0)),
                )
            ),
            "USD per million tokens by model, over the built-in table.",
        ),
    }
)

SCHEMA = document(CONFIG, name="config", title="duragent.yaml", about="Settings of a workspace.")

_VARIABLE = re.compile(r"\$(?:\$|\{(?P<name>[^}:\n]*)(?::-(?P<default>[^}\n]*))?(?P<end>\}?))")


def interpolate(text: str, environment: Mapping[str, str], reader: Reader) -> str:
    """`${NAME}` and `${NAME:-default}` filled in; `$$` is a dollar. Comment lines are left alone."""
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if "$" in line and not line.lstrip().startswith("#"):
            fill = partial(_fill, environment=environment, reader=reader, line=index + 1)
            lines[index] = _VARIABLE.sub(fill, line)
    return "\n".join(lines)


def _fill(match: re.Match[str], *, environment: Mapping[str, str], reader: Reader, line: int) -> str:
    name = match["name"]
    place = (line, match.start() + 1)
    if name is None:
        return "$"
    if not match["end"]:
        reader.error(place, "", f"`${{{name}` is never closed", "add `}`")
        return ""
    if name in environment:
        return environment[name]
    if match["default"] is None:
        reader.error(place, "", f"the environment variable {name} is not set", f"set it, or write ${{{name}:-default}}")
        return ""
    return match["default"]


class SandboxSettings(Struct, frozen=True):
    """What keeps commands in. `workdir` is None where the file names none."""

    mode: Literal["auto", "bubblewrap", "landlock", "trust"] = "auto"
    workdir: Path | None = None
    files: Literal["workdir", "full"] = "workdir"
    network: Literal["trust", "none", "scoped", "allowed"] = "trust"
    hosts: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    seconds: int = 120
    memory_mb: int = 4096
    processes: int = 256
    file_mb: int = 1024


class Config(Struct, frozen=True):
    """The settings of a workspace, paths made whole. `file` is None where there is no duragent.yaml."""

    workspace: Path
    agents_dir: Path
    sessions_dir: Path
    file: Path | None = None
    ttl_hours: int = 168
    compaction: Literal["discard", "archive", "disabled"] = "discard"
    prices: Mapping[str, Any] = {}
    sandbox: SandboxSettings = SandboxSettings()
    approval_hours: float = 168
    search_url: str | None = None
    private_hosts: tuple[str, ...] = ()
    memory_dir: Path | None = None  # of all agents, each in a folder of its own; None: beside each agent
    world_dir: Path | None = None
    secrets: Mapping[str, str] = {}  # what the file itself holds that nobody may read


def load_config(start: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """The settings for whoever works in `start`: of the nearest duragent.yaml there or above, else the defaults.

    Raises `InvalidAgent` with every problem of the file.
    """
    here = Path(os.path.abspath(start or Path.cwd()))
    environment = os.environ if environ is None else environ
    file = find_config(here, environment)
    if file is None:
        return _settings({}, here, None)
    shown = file.name if file.parent == here else str(file)
    entry = Disk(str(file.parent)).text(file.name, inside=False)
    if not isinstance(entry, File):
        raise InvalidAgent(shown, _unreadable(shown, entry))
    found, reader = _read(shown, entry.text, environment)
    for kind, what in (("session", "sessions"), ("memory", "memory")):
        if found.get("services", {}).get(kind, {}).get("backend") == "postgres":
            at = f"services.{kind}.backend"
            text = f"this build keeps {what} in files; postgres comes with a later version"
            reader.error(reader.position(at), at, text, "write `backend: files`")
    if errors := [problem for problem in reader.problems if problem.level == "error"]:
        raise InvalidAgent(shown, errors)
    return _settings(found, file.parent, file)


def find_config(here: Path, environment: Mapping[str, str]) -> Path | None:
    """The duragent.yaml of this folder or of the nearest one above; never from above the home folder."""
    home = environment.get("HOME")
    for folder in (here, *here.parents):
        if os.path.lexists(folder / NAME) and not is_stand_in(str(folder / NAME)):
            return folder / NAME
        if home and folder == Path(home):
            break
    return None


def _settings(found: Mapping[str, Any], root: Path, file: Path | None) -> Config:
    workspace = _place(root, found.get("workspace", CONFIG.fields["workspace"].default))
    session = found.get("services", {}).get("session", {})
    rules = found.get("sessions", {})
    agents, sessions = found.get("agents_dir"), session.get("path")
    memory, world = found.get("services", {}).get("memory", {}).get("path"), found.get("world_memory", {}).get("path")
    web = found.get("web", {})
    return Config(
        workspace,
        _place(root, agents) if agents else workspace / "agents",
        _place(root, sessions) if sessions else workspace / "sessions",
        file,
        rules.get("ttl_hours", 168),
        rules.get("compaction", "discard"),
        found.get("prices", {}),
        _sandbox(found.get("sandbox", {}), root),
        found.get("approvals", {}).get("expire_hours", 168),
        web.get("search_url"),
        tuple(web.get("private_hosts", ())),
        _place(root, memory) if memory else None,
        _place(root, world) if world else None,
        _secrets(found),
    )


def _sandbox(found: Mapping[str, Any], root: Path) -> SandboxSettings:
    said = {name: found[name] for name in ("mode", "files", "network") if name in found} | found.get("limits", {})
    workdir = _place(root, found["workdir"]) if "workdir" in found else None
    hosts, environment = tuple(found.get("hosts", ())), tuple(found.get("environment", ()))
    return SandboxSettings(workdir=workdir, hosts=hosts, environment=environment, **said)


def _secrets(found: Mapping[str, Any]) -> dict[str, str]:
    """The tokens that the file holds, by where they stand."""
    server = {f"server.{name}": found.get("server", {}).get(name) for name in ("admin_token", "api_token")}
    bots = {
        f"gateways.{name}.bot_token": found.get("gateways", {}).get(name, {}).get("bot_token")
        for name in ("telegram", "discord")
    }
    return {name: value for name, value in (server | bots).items() if value}


def _place(root: Path, path: str) -> Path:
    """A path as it was meant: relative to the file that says it, with `~` for the home folder."""
    try:
        return Path(os.path.normpath(root / Path(path).expanduser()))
    except RuntimeError:
        raise NotFound(f"{path}: nobody knows whose home folder this is; write the whole path") from None


def examine_config(path: str, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """Everything that is wrong with the duragent.yaml at `path`."""
    disk = Disk(os.path.dirname(path) or ".")
    entry = disk.text(os.path.basename(path), inside=False)
    if not isinstance(entry, File):
        return _unreadable(path, entry)
    return check_config(path, entry.text, environment)


def _unreadable(path: str, entry: Entry) -> tuple[Problem, ...]:
    why = entry if isinstance(entry, Absent) else Absent("folder")
    return (absence("error", path, why, file=path, line=1, column=1, at=""),)


def check_config(file: str, text: str, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """Everything that is wrong with a duragent.yaml."""
    return tuple(_read(file, text, environment)[1].problems)


def _read(file: str, text: str, environment: Mapping[str, str]) -> tuple[Mapping[str, Any], Reader]:
    reader = Reader(file)
    node = read_yaml(reader, interpolate(text, environment, reader), "1.2")
    found = CONFIG.read(node, "", reader) if node is not None else {}
    return (found if isinstance(found, dict) else {}), reader
