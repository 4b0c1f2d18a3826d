"""What a Duragent agent.yaml and policy.yaml may say: every field of both format documents, planned ones too."""

import re
from typing import Any

from duragent.agent import BUILTINS, Json
from duragent.formats.fields import (
    Anything,
    Field,
    Flag,
    Integer,
    Kind,
    ListOf,
    MapOf,
    Number,
    OneOf,
    Section,
    Tagged,
    Text,
    document,
)
from duragent.formats.reader import BAD, Reader
from duragent.formats.yaml import Node

PROVIDERS = ("openrouter", "openai", "anthropic", "ollama", "local", "scripted")
VERSIONS = ("duragent/v1alpha1", "duragent/v1beta1", "duragent/v1")

_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


class Duration(Kind):
    """`30m`, `2h`, `1h30m`; read as seconds."""

    wanted = "a duration such as 30m or 2h"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        match = _DURATION.fullmatch(node.value) if type(node.value) is str and node.value else None
        if match is None or len(node.value) > 20:
            hint = f"write {node.text}s for seconds" if type(node.value) is int else ""
            return reader.wrong(node, path, self.wanted, hint)
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds

    def schema(self) -> dict[str, Json]:
        return {"type": "string", "pattern": r"^(\d+d)?(\d+h)?(\d+m)?(\d+s)?$", "minLength": 2}


def write_duration(seconds: int) -> str:
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if seconds >= size:
            parts.append(f"{seconds // size}{unit}")
            seconds %= size
    return "".join(parts) or "0s"


class ProsePath(Text):
    """A path to a Markdown file. People often write the text itself; say so."""

    wanted = "the path of a Markdown file"

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        value = super().read(node, path, reader)
        if value is not BAD and ("\n" in value or len(value) > 200):
            return reader.wrong(
                node, path, self.wanted, "put the text into a file and name it, e.g. ./SYSTEM_PROMPT.md"
            )
        return value


_path = Text(empty=False)
_gate = OneOf("open", "disabled", "allowlist")
_sender = OneOf("allow", "passive", "silent", "block")

METADATA = Section(
    {
        "name": Field(
            Text(pattern=r"[A-Za-z0-9][A-Za-z0-9-]*", rule="letters, digits and hyphens", longest=128),
            "Unique identifier: letters, digits and hyphens.",
            required=True,
        ),
        "description": Field(Text(), "What the agent is for."),
        "version": Field(Text(), "Semantic version."),
        "labels": Field(MapOf(Text()), "Key-value labels for filtering."),
        "a2a": Field(MapOf(Anything()), "Fields that replace those of the generated A2A agent card."),
    }
)

MODEL = Section(
    {
        "provider": Field(OneOf(*PROVIDERS), "Who serves the model.", required=True),
        "name": Field(Text(empty=False), "Model name.", required=True),
        "temperature": Field(Number(0, 2), "Sampling temperature, 0 to 2.", default=0.7),
        "max_input_tokens": Field(Integer(1), "Cap on the input."),
        "max_output_tokens": Field(Integer(1), "Cap on the answer."),
        "max_tokens": Field(Integer(1), "Older name of max_output_tokens."),
        "base_url": Field(
            Text(pattern=r"https?://\S+", rule="an http(s) address"), "Address to use instead of the provider's."
        ),
    }
)

CONTEXT = Section(
    {
        "max_history_tokens": Field(Integer(0), "Cap on history; 0 = no cap.", default=20_000),
        "max_tool_result_tokens": Field(Integer(1), "Cap on one tool result.", default=8_000),
        "tool_result_truncation": Field(OneOf("head", "tail", "both"), "Which end is kept.", default="head"),
        "tool_result_keep_first": Field(Integer(0), "First results kept visible.", default=2),
        "tool_result_keep_last": Field(Integer(0), "Last results kept visible.", default=5),
    }
)

SESSION = Section(
    {
        "on_disconnect": Field(OneOf("pause", "continue"), "What happens when the client goes away.", default="pause"),
        "max_tool_iterations": Field(Integer(1), "Tool rounds per request.", default=10),
        "llm_timeout_seconds": Field(Integer(1), "Patience with one model call.", default=300),
        "ttl_hours": Field(Integer(0), "Idle sessions end after this; default: the workspace's."),
        "compaction": Field(OneOf("discard", "archive", "disabled"), "What compaction does; default: the workspace's."),
        "max_background_runtime": Field(Duration(), "How long it may run without a client, e.g. 30m or 2h."),
        "output_buffer_size": Field(Integer(1), "Events kept for a client that is away."),
        "context": Field(CONTEXT, "How history and results are cut."),
    }
)

ACCESS = Section(
    {
        "dm": Field(
            Section(
                {
                    "policy": Field(_gate, "Who may write directly.", default="open"),
                    "allowlist": Field(ListOf(Text()), "Sender ids; a trailing * matches any ending."),
                }
            ),
            "Direct messages.",
        ),
        "groups": Field(
            Section(
                {
                    "policy": Field(_gate, "In which groups it takes part.", default="open"),
                    "allowlist": Field(ListOf(Text()), "channel:chat_id; a trailing * matches any ending."),
                    "sender_default": Field(_sender, "How senders are treated.", default="allow"),
                    "sender_overrides": Field(MapOf(_sender), "How single senders are treated."),
                    "activation": Field(OneOf("mention", "always"), "When it answers.", default="mention"),
                    "context_buffer": Field(
                        Section(
                            {
                                "mode": Field(OneOf("silent", "passive"), "How the rest is kept.", default="silent"),
                                "max_messages": Field(Integer(0), "Messages shown.", default=100),
                                "max_age_hours": Field(Integer(0), "Oldest message shown.", default=24),
                            }
                        ),
                        "Messages that do not call for an answer.",
                    ),
                    "queue": Field(
                        Section(
                            {
                                "mode": Field(OneOf("batch", "sequential", "drop"), "What waits.", default="batch"),
                                "max_pending": Field(Integer(1), "How many may wait.", default=10),
                                "overflow": Field(
                                    OneOf("drop_old", "drop_new", "reject"), "When too many wait.", default="drop_old"
                                ),
                                "reject_message": Field(Text(), "What a rejected sender is told."),
                                "debounce": Field(
                                    Section(
                                        {
                                            "enabled": Field(Flag(), "Wait for more.", default=True),
                                            "window_ms": Field(Integer(0), "How long.", default=1_500),
                                        }
                                    ),
                                    "Quick messages of one sender.",
                                ),
                            }
                        ),
                        "Messages that arrive while it works.",
                    ),
                }
            ),
            "Groups and channels.",
        ),
    }
)

MEMORY = Section(
    {
        "backend": Field(OneOf("filesystem", "external"), "Where it remembers.", default="filesystem"),
        "short_term": Field(
            Section(
                {
                    "backend": Field(OneOf("buffer", "external"), "Where.", default="buffer"),
                    "max_tokens": Field(Integer(1), "How much of it is shown."),
                }
            ),
            "Memory within a conversation.",
        ),
        "long_term": Field(
            Section({"backend": Field(OneOf("filesystem", "external"), "Where.", default="filesystem")}),
            "Memory across conversations.",
        ),
    }
)

_type = Field(Text(), "Which sort of tool.", required=True)
_tool_name = Field(Text(empty=False), "What the model calls it.", required=True)
TOOLS = ListOf(
    Tagged(
        "type",
        {
            "builtin": Section({"type": _type, "name": Field(OneOf(*BUILTINS), "Which builtin.", required=True)}),
            "cli": Section(
                {
                    "type": _type,
                    "name": _tool_name,
                    "command": Field(Text(empty=False), "What is run, relative to the agent.", required=True),
                    "description": Field(Text(), "Shown to the model."),
                    "readme": Field(_path, "Read by the model on demand."),
                }
            ),
            "mcp": Section(
                {
                    "type": _type,
                    "name": _tool_name,
                    "server": Field(Text(empty=False), "Command, path or address of the server.", required=True),
                    "config": Field(MapOf(Anything()), "Settings for the server."),
                }
            ),
        },
    )
)

SPEC = Section(
    {
        "model": Field(MODEL, "Which model it runs on."),
        "soul": Field(ProsePath(empty=False), "Markdown: who the agent is."),
        "system_prompt": Field(ProsePath(empty=False), "Markdown: what the agent does."),
        "instructions": Field(ProsePath(empty=False), "Markdown: how it works in detail; an AGENTS.md will do."),
        "bootstrap": Field(
            ListOf(
                Section(
                    {
                        "path": Field(_path, "Markdown file.", required=True),
                        "max_tokens": Field(Integer(1), "Cut it after this many."),
                        "required": Field(Flag(), "Whether it must be there.", default=False),
                    }
                )
            ),
            "Files shown on the first turn of a session.",
        ),
        "session": Field(SESSION, "How sessions run."),
        "access": Field(ACCESS, "Who may speak with it in chats."),
        "memory": Field(MEMORY, "What it remembers."),
        "tools": Field(TOOLS, "What it may use."),
        "skills_dir": Field(_path, "Folder with skill packages.", default="./skills/"),
        "skills": Field(
            ListOf(
                Section({"path": Field(_path, "A skill's folder."), "url": Field(_path, "A skill's https address.")})
            ),
            "Further skills.",
        ),
        "triggers": Field(
            ListOf(
                Section(
                    {
                        "pattern": Field(Text(empty=False), "Glob that a message matches."),
                        "schedule": Field(Text(empty=False), "Cron expression."),
                        "skill": Field(Text(empty=False), "The skill to activate.", required=True),
                    }
                )
            ),
            "What activates a skill by itself.",
        ),
        "hooks": Field(MapOf(Anything()), "Checks around tool calls.", acted=False),
    }
)

MANIFEST = Section(
    {
        "apiVersion": Field(Text(), "duragent/v1alpha1", required=True, default=VERSIONS[0]),
        "kind": Field(OneOf("Agent"), "Agent", required=True),
        "metadata": Field(METADATA, "Who it is.", required=True),
        "spec": Field(SPEC, "What it does.", required=True),
    }
)

POLICY = Section(
    {
        "apiVersion": Field(Text(), "duragent/v1alpha1"),
        "kind": Field(OneOf("Policy"), "Policy"),
        "mode": Field(OneOf("dangerous", "ask", "restrict"), "What happens to a call no rule names."),
        "deny": Field(ListOf(Text(empty=False)), "Patterns that are never run."),
        "allow": Field(ListOf(Text(empty=False)), "Patterns that run without a question."),
        "notify": Field(
            Section(
                {
                    "enabled": Field(Flag(), "Whether anybody is told.", default=False),
                    "patterns": Field(ListOf(Text(empty=False)), "Of which calls; empty: all."),
                    "deliveries": Field(
                        ListOf(
                            Tagged(
                                "type",
                                {
                                    "log": Section({"type": _type}),
                                    "webhook": Section(
                                        {"type": _type, "url": Field(_path, "Where to.", required=True)}
                                    ),
                                },
                            )
                        ),
                        "How they are told; empty: log.",
                    ),
                }
            ),
            "Who is told of a call.",
        ),
    }
)

SCHEMAS = {
    "agent": document(MANIFEST, name="agent", title="Duragent agent.yaml", about="An agent in the Duragent format."),
    "policy": document(POLICY, name="policy", title="policy.yaml", about="What an agent's tools may do."),
}
SCHEMAS["agent"]["properties"]["apiVersion"]["enum"] = list(VERSIONS)
