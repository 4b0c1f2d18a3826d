"""Workspace settings (duragent.yaml): where things live, keys by the name of their variable, what to serve.

Knows what the file may say and how `${NAME}` is filled in. Does not act on any of it.
"""

import os
import re
from collections.abc import Mapping
from functools import partial

from duragent.formats.fields import Anything, Field, Flag, Integer, ListOf, MapOf, OneOf, Section, Text, document
from duragent.formats.reader import Reader, read_yaml
from duragent.formats.shape import Absent, File, Problem, absence
from duragent.reading import Disk

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
                {"mode": Field(OneOf("auto", "bubblewrap", "landlock", "trust"), "Where commands run.", default="auto")}
            ),
            "The sandbox.",
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
        "prices": Field(MapOf(Anything()), "USD per million tokens by model, over the built-in table."),
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


def examine_config(path: str, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """Everything that is wrong with the duragent.yaml at `path`."""
    disk = Disk(os.path.dirname(path) or ".")
    entry = disk.text(os.path.basename(path), inside=False)
    if not isinstance(entry, File):
        why = entry if isinstance(entry, Absent) else Absent("folder")
        return (absence("error", path, why, file=path, line=1, column=1, at=""),)
    return check_config(path, entry.text, environment)


def check_config(file: str, text: str, environment: Mapping[str, str]) -> tuple[Problem, ...]:
    """Everything that is wrong with a duragent.yaml."""
    reader = Reader(file)
    node = read_yaml(reader, interpolate(text, environment, reader), "1.2")
    if node is not None:
        CONFIG.read(node, "", reader)
    return tuple(reader.problems)
