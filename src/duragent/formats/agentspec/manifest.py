"""An agentspec manifest as it is declared: its fields, its defaults and its `ag1:` fingerprint.

The fingerprint is over the declared manifest, before inheritance, exactly as the reference computes it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from duragent.agent import Json, Origin
from duragent.formats.agentspec.lax import FreeMap, LaxBool, LaxEnum, LaxFloat, LaxInt, LaxText, TextMap, TextOrMap
from duragent.formats.fields import Field, Kind, ListOf, MapOf, Section, document
from duragent.formats.reader import BAD, Reader, read_yaml
from duragent.formats.yaml import Node

Values = dict[str, Any]


class _Lines(Section):
    """A section in which an empty value is a value (and mostly a wrong one), as the reference has it."""

    def __init__(self, fields: Mapping[str, tuple[Kind, Json, str]], *required: str) -> None:
        super().__init__(
            {
                name: Field(kind, about, required=name in required, default=default, null_is_absent=False)
                for name, (kind, default, about) in fields.items()
            }
        )


class _TextKeys(MapOf):
    """A map whose keys must be texts."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        if type(node.value) is dict:
            for name in node.value:
                if type(name) is not str:
                    reader.error(node.keys[name], path, f"the key {name!r} of {path} is not a text", "put it in quotes")
                    return BAD
        return super().read(node, path, reader)


class _Provider(_Lines):
    """`from` says where a key comes from; the reference also takes `from_` and writes that."""

    def read(self, node: Node, path: str, reader: Reader) -> Any:
        found = super().read(node, path, reader)
        if found is BAD:
            return BAD
        return {"from_": found.get("from", found.get("from_"))}


_text, _maybe = LaxText(), LaxText(null=True)
_texts = ListOf(_text)
_merge = LaxEnum("append", "override", "restrict")

MANIFEST = _Lines(
    {
        "apiVersion": (_text, "agent/v1", "Version of the format."),
        "name": (_text, None, "What the agent is called."),
        "version": (_text, "0.1.0", "Version of this agent."),
        "author": (_maybe, None, "Who wrote it."),
        "license": (_maybe, None, "Its licence."),
        "description": (_maybe, None, "What it is for, in a sentence."),
        "tags": (_texts, [], "Words to find it by."),
        "base": (_maybe, None, "The agent this one extends: a path, an `ag1:` fingerprint or an https URL."),
        "merge": (
            _Lines(
                {
                    "skills": (_merge, "append", "How skills join the base's."),
                    "tools": (_merge, "append", "How tools join the base's."),
                    "behavior": (LaxEnum("override", "append"), "override", "Whether traits replace or extend."),
                    "trust": (LaxEnum("restrict"), "restrict", "Always restrict."),
                }
            ),
            {},
            "How this agent joins its base.",
        ),
        "model": (
            _Lines(
                {
                    "capability": (
                        LaxEnum("reasoning-low", "reasoning-mid", "reasoning-high", "reasoning-max"),
                        "reasoning-mid",
                        "How strong a model is wanted.",
                    ),
                    "preferred": (_texts, [], "Models as provider/name; tried in order."),
                    "fallback": (_maybe, None, "Tier to fall back to."),
                    "context": (_text, "full", "Window wanted: full, 128k, 32k or 8k."),
                }
            ),
            {},
            "Which model it runs on.",
        ),
        "auth": (
            _Lines(
                {
                    "strategy": (LaxEnum("auto", "explicit", "none"), "auto", "How keys are found."),
                    "providers": (
                        _TextKeys(
                            _Provider(
                                {
                                    "from": (_maybe, None, "Where the key comes from, e.g. env.OPENAI_API_KEY."),
                                    "from_": (_maybe, None, "The same, as the reference writes it."),
                                }
                            )
                        ),
                        {},
                        "Where each provider's key comes from.",
                    ),
                }
            ),
            {},
            "Keys.",
        ),
        "skills": (ListOf(TextOrMap()), [], "What it must be able to do; matched with tools at run time."),
        "tools": (
            _Lines(
                {
                    "mcp": (ListOf(TextOrMap()), [], "MCP servers, by name or with their settings."),
                    "native": (_texts, [], "Built-in tools."),
                }
            ),
            {},
            "Concrete tools.",
        ),
        "memory": (
            _Lines(
                {
                    "working": (LaxEnum("session", "none"), "session", "Memory within a session."),
                    "long_term": (LaxEnum("none", "local", "external"), "none", "Memory across sessions."),
                    "shared": (LaxBool(), False, "Whether others may read it."),
                }
            ),
            {},
            "What it remembers.",
        ),
        "behavior": (
            _Lines(
                {
                    "persona": (_maybe, None, "Who it is, in a word or two."),
                    "traits": (_texts, [], "How it works."),
                    "temperature": (LaxFloat(), 0.5, "Sampling temperature."),
                    "max_steps": (LaxInt(), 20, "Steps in one run."),
                    "on_error": (LaxEnum("ask", "retry", "fail", "skip"), "ask", "What to do when a step fails."),
                    "system_override": (_maybe, None, "A system prompt of its own, instead of persona and traits."),
                }
            ),
            {},
            "How it behaves.",
        ),
        "expose": (
            ListOf(
                _Lines(
                    {
                        "name": (_text, None, "What the interface is called."),
                        "description": (_maybe, None, "What it does."),
                        "input": (TextMap(), {}, "Inputs: name and type."),
                        "output": (_maybe, None, "Type of the result."),
                    },
                    "name",
                )
            ),
            [],
            "What others may call.",
        ),
        "trust": (
            _Lines(
                {
                    "filesystem": (LaxEnum("none", "read-only", "scoped", "full"), "none", "Files."),
                    "network": (LaxEnum("none", "scoped", "allowed"), "none", "Network."),
                    "exec": (LaxEnum("none", "sandboxed", "full"), "none", "Commands."),
                    "scope": (_texts, [], "Paths, where filesystem is scoped."),
                }
            ),
            {},
            "The widest the agent may be.",
        ),
        "observability": (
            _Lines(
                {
                    "trace": (LaxBool(), False, "Record traces."),
                    "cost_limit": (LaxFloat(null=True), None, "USD; a hard stop."),
                    "step_limit": (LaxInt(), 50, "Steps in a session; a hard stop."),
                    "on_exceed": (LaxEnum("ask", "abort"), "abort", "What happens at a limit."),
                }
            ),
            {},
            "Limits and traces.",
        ),
        "agents": (
            _TextKeys(
                _Lines(
                    {
                        "ref": (_text, None, "The other agent."),
                        "role": (LaxEnum("subagent", "orchestrator", "validator"), "subagent", "Its part."),
                    },
                    "ref",
                )
            ),
            {},
            "Other agents it works with. Read and kept; nothing is done with it.",
        ),
        "pipeline": (
            ListOf(
                _Lines(
                    {"call": (_text, None, "What is called."), "output": (_maybe, None, "Where the result goes.")},
                    "call",
                )
            ),
            [],
            "Calls in order. Read and kept; nothing is done with it.",
        ),
        "extensions": (FreeMap(), {}, "Settings for single runtimes, by name (`x-…`)."),
        "soul": (_maybe, None, "Who it is, in prose. A folder has SOUL.md instead."),
        "rules": (_maybe, None, "Hard rules, in prose. A folder has RULES.md instead."),
    },
    "name",
)

SCHEMA = document(
    MANIFEST, name="agentspec", title="agentspec manifest", about="A .agent file, or agent.yaml in a folder."
)
SCHEMA["additionalProperties"] = True


class Manifest:
    """One declared manifest: `values` with every default filled in, `at` what was really said and where."""

    def __init__(self, file: str, values: Values, at: dict[str, Origin], extra: dict[str, Json]) -> None:
        self.file, self.values, self.at, self.extra = file, values, at, extra
        self.kept_at: dict[str, Origin] = {}
        self.folder: str | None = None
        """The folder whose SOUL.md, RULES.md and skills/ belong to it; None for a single file."""

    def said(self, path: str) -> bool:
        return path in self.at

    def where(self, path: str) -> Origin:
        return self.at.get(path) or self.at.get(path.rpartition(".")[0]) or Origin(self.file, 1, 1)


def read_manifest(reader: Reader, text: str, *, soul: str | None = None, rules: str | None = None) -> Manifest | None:
    """The manifest in `text`, or None if it is no map at all. Files beat inline `soul` and `rules`.

    Where a field is wrong, `reader` says so and its default stands in, so that the rest can be looked at too.
    """
    node = read_yaml(reader, text, "1.1", duplicates="warning")
    if node is None or node.value in (None, False, 0, "", {}, []):
        if reader.ok():
            reader.error((1, 1), "", "the manifest is empty", "it needs at least `name:`")
        return None
    if type(node.value) is dict:
        for name in node.value:
            if type(name) is not str:
                text = f"the key {name!r} is not a text"
                reader.error(
                    node.keys[name], str(name), text, "YAML reads on, off, yes and no as truth values; quote it"
                )
    said = MANIFEST.read(node, "", reader)
    if said is BAD:
        return None
    values = fill(MANIFEST, said)
    for name, prose in (("soul", soul), ("rules", rules)):
        if prose is not None:
            values[name] = prose
    manifest = Manifest(reader.file, values, reader.at, reader.extra)
    manifest.kept_at = reader.kept_at
    return manifest


def fill(section: Section, said: Values) -> Values:
    """Every field of a section: what was said, else its default."""
    found: Values = {}
    for name, field in section.fields.items():
        kind = field.kind
        value: Any = said.get(name, field.default)
        if type(kind) is _Lines:
            value = fill(kind, value or {})
        elif type(kind) is ListOf and type(kind.item) is _Lines:
            value = [fill(kind.item, item) for item in value]
        elif type(kind) is _TextKeys and type(kind.value) is _Lines:
            value = {key: fill(kind.value, item) for key, item in value.items()}
        found[name] = value
    return found


def fingerprint(values: Values) -> str:
    """`ag1:` and twelve hex digits of SHA-256 over the canonical JSON."""
    canonical = json.dumps(values, sort_keys=True)
    return "ag1:" + hashlib.sha256(canonical.encode()).hexdigest()[:12]
