"""The settings of `agent.acl`: one table for checking, for the documentation and for its test."""

from collections.abc import Mapping

from duragent.agent import Json
from duragent.formats.agentdir.tools import SERVER
from duragent.formats.fields import Either, Field, Flag, Integer, Kind, ListOf, MapOf, Number, OneOf, Section, Text
from duragent.formats.reader import Reader
from duragent.formats.yaml import Node, plain


class Setting(Kind):
    """A text, or a call such as env("NAME") that stands for one."""

    wanted = "a text"
    text = Text()

    def read(self, node: Node, path: str, reader: Reader) -> Json:
        if type(node.value) is dict and any(key.endswith("()") for key in node.value):
            return plain(node)
        return self.text.read(node, path, reader)

    def schema(self) -> dict[str, Json]:
        return self.text.schema()


_TEXT, _FLAG, _COUNT, _SHARE = Setting(), Flag(), Integer(), Number(0, 1)
_TEXTS = ListOf(_TEXT, single=True)


def _kept(kind: Kind, about: str, default: Json = None) -> Field:
    return Field(kind, about, default=default, acted=False)


def _section(**kinds: Kind) -> Section:
    return Section({name: Field(kind, "") for name, kind in kinds.items()})


MODEL = Section(
    {
        "name": _kept(_TEXT, "Name to show."),
        "family": _kept(_TEXT, "Family of models."),
        "api_key": _kept(_TEXT, "A key for this model only."),
        "base_url": Field(_TEXT, "Address for this model, in place of the provider's."),
        "session_id_header": _kept(_TEXT, "Header that carries the session."),
        "headers": _kept(MapOf(_TEXT), "HTTP headers for this model."),
        "attachment": _kept(_FLAG, "Takes attachments.", False),
        "reasoning": _kept(_FLAG, "Reasons.", False),
        "tool_call": _kept(_FLAG, "Calls tools.", True),
        "temperature": _kept(_FLAG, "Takes a temperature.", True),
        "release_date": _kept(_TEXT, "When it was released."),
        "modalities": _kept(_section(input=_TEXTS, output=_TEXTS), "What goes in and out."),
        "cost": _kept(
            _section(input=Number(0), output=Number(0), cache_read=Number(0), cache_write=Number(0)),
            "Prices per million tokens.",
        ),
        "limit": Field(_section(context=_COUNT, output=_COUNT), "Tokens that fit in, and that may come out."),
        "max_tokens": _kept(_COUNT, "Old form of `limit.output`."),
        "context_tokens": _kept(_COUNT, "Old form of `limit.context`."),
    }
)
PROVIDER = Section(
    {
        "api_key": Field(_TEXT, 'Where the key is: env("NAME").'),
        "base_url": Field(_TEXT, "Address of the provider."),
        "headers": Field(MapOf(_TEXT), "HTTP headers to send."),
        "session_id_header": _kept(_TEXT, "Header that carries the session."),
        "models": Field(MapOf(MODEL), 'Its models: models "id" { … }.'),
    }
)
_MEMORY = _section(
    max_short_term=_COUNT,
    max_working=_COUNT,
    prune_interval_secs=_COUNT,
    llm_extraction=_FLAG,
    llm_extraction_max_items=_COUNT,
    llm_extraction_max_input_chars=_COUNT,
    relevance=_section(decay_days=Number(0.1), importance_weight=Number(0), recency_weight=Number(0)),
    prune=_section(max_age_days=_COUNT, min_importance_to_keep=_SHARE, max_items=_COUNT),
    prune_policy=_section(max_age_days=_COUNT, min_importance_to_keep=_SHARE, max_items=_COUNT),
)
_HANDLER = Section(
    {
        "mode": Field(OneOf("internal", "external", "hybrid"), "", required=True),
        "timeout_ms": Field(_COUNT, "", required=True),
    }
)
_QUEUE = Section(
    {f"{lane}_max_concurrency": Field(_COUNT, "") for lane in ("control", "query", "execute", "generate")}
    | {
        "enable_dlq": Field(_FLAG, ""),
        "enable_metrics": Field(_FLAG, ""),
        "enable_alerts": Field(_FLAG, ""),
        "dlq_max_size": Field(_COUNT, ""),
        "default_timeout_ms": Field(_COUNT, ""),
        "storage_path": Field(_TEXT, ""),
        "pressure_threshold": Field(Number(0), ""),
        "lane_handlers": Field(MapOf(_HANDLER), ""),
        "lane_timeouts": Field(MapOf(_COUNT), ""),
        "retry_policy": Field(
            Section(
                {
                    "strategy": Field(OneOf("exponential", "fixed", "none"), "", required=True),
                    "max_retries": Field(_COUNT, ""),
                    "initial_delay_ms": Field(_COUNT, ""),
                    "fixed_delay_ms": Field(_COUNT, ""),
                }
            ),
            "",
        ),
        "rate_limit": Field(
            Section(
                {
                    "limit_type": Field(OneOf("per_second", "per_minute", "per_hour", "unlimited"), "", required=True),
                    "max_operations": Field(_COUNT, ""),
                }
            ),
            "",
        ),
        "priority_boost": Field(
            Section(
                {
                    "strategy": Field(OneOf("standard", "aggressive", "disabled"), "", required=True),
                    "deadline_ms": Field(_COUNT, ""),
                }
            ),
            "",
        ),
    }
)
_ENGINE = _section(enabled=_FLAG, weight=Number(0), timeout=_COUNT, api_key=_TEXT, project=_TEXT)
_SEARCH = _section(
    timeout=_COUNT,
    health=_section(max_failures=_COUNT, suspend_seconds=_COUNT),
    cascade_order=ListOf(OneOf("headless", "http", "api")),
    engine=MapOf(_ENGINE),
    headless=_section(
        backend=OneOf("moli", "chrome", "chromium", "lightpanda"),
        max_tabs=_COUNT,
        browser_path=_TEXT,
        auto_download_moli=_FLAG,
        launch_args=_TEXTS,
        proxy_url=_TEXT,
    ),
)
_DELEGATION = _section(
    enabled=_FLAG,
    auto_parallel=_FLAG,
    parallel=_FLAG,
    allow_manual_delegation=_FLAG,
    manual_delegation=_FLAG,
    min_confidence=_SHARE,
    max_tasks=Integer(1),
)
KEYS = Section(
    {
        "name": Field(Text(empty=False), "Name of the agent; without it, the name of the folder. Our addition."),
        "description": Field(Text(), "What the agent is for. Our addition."),
        "version": Field(Text(), "Version of the agent. Our addition."),
        "default_model": Field(Text(), "provider/model, split at the first slash."),
        "providers": Field(MapOf(PROVIDER), 'Model providers: providers "name" { … }.'),
        "mcp_servers": Field(
            MapOf(Section(SERVER)), 'MCP servers: mcp_servers "name" { … }, with the keys of `kind: mcp`.'
        ),
        "max_tool_rounds": Field(Integer(1), "Rounds of tool calls in one turn.", default=25),
        "max_parallel_tasks": Field(Integer(1), "Tasks at the same time."),
        "llm_api_timeout_ms": Field(Integer(1), "Milliseconds that a model may take to answer.", default=300_000),
        "storage_backend": _kept(OneOf("memory", "file", "custom", fold=True), "Where sessions are kept.", "file"),
        "sessions_dir": _kept(_TEXT, "Folder for sessions."),
        "storage_url": _kept(_TEXT, "Address of the storage."),
        "memory_dir": _kept(_TEXT, "Folder for memories."),
        "memory": _kept(_MEMORY, "How memories are kept."),
        "queue": _kept(_QUEUE, "Lanes for the work."),
        "task_scheduler": _kept(_section(max_active=Integer(1), aging_interval_ms=Integer(1)), "How tasks take turns."),
        "search": _kept(_SEARCH, "Web search."),
        "document_parser": _kept(
            _section(enabled=_FLAG, max_file_size_mb=_COUNT, cache=_section(enabled=_FLAG, directory=_TEXT)),
            "Reading documents.",
        ),
        "skill_dirs": _kept(_TEXTS, "More folders with skills."),
        "agent_dirs": _kept(_TEXTS, "Folders with sub-agents."),
        "user_instructions_dir": _kept(_TEXT, "Folder with the user's own instructions."),
        "project_doc_max_bytes": _kept(_COUNT, "Bytes of project documents to read.", 32_768),
        "project_doc_fallback_filenames": _kept(_TEXTS, "Names to look for."),
        "thinking_budget": _kept(_COUNT, "Tokens for thinking."),
        "auto_parallel": _kept(_FLAG, "As `auto_delegation.auto_parallel`."),
        "auto_delegation": _kept(_DELEGATION, "Giving work to sub-agents."),
        "os": _kept(
            Either(text=_TEXT, map=_section(address=_TEXT, url=_TEXT, base_url=_TEXT)), "Address of the A3S platform."
        ),
    }
)
ALIASES: Mapping[str, str] = {
    "memoryDir": "memory_dir",
    "taskScheduler": "task_scheduler",
    "documentParser": "document_parser",
    "mcpServers": "mcp_servers",
    "mcp_server": "mcp_servers",
    "skills": "skill_dirs",
    "userInstructionsDir": "user_instructions_dir",
    "global_instructions_dir": "user_instructions_dir",
    "globalInstructionsDir": "user_instructions_dir",
    "projectDocMaxBytes": "project_doc_max_bytes",
    "projectDocFallbackFilenames": "project_doc_fallback_filenames",
    "auto_parallel_enabled": "auto_parallel",
    "api_timeout_ms": "llm_api_timeout_ms",
    "model_api_timeout_ms": "llm_api_timeout_ms",
}
"""Other spellings that the reference accepts."""
MODELLED: Mapping[str, str] = {
    "name": "name",
    "description": "description",
    "version": "version",
    "default_model": "model.candidates[0]",
    "max_tool_rounds": "limits.tool_iterations",
    "max_parallel_tasks": "limits.parallel_tasks",
    "llm_api_timeout_ms": "session.llm_timeout_seconds",
}
"""Plain settings with a place in the model."""
STRICT = frozenset({"queue", "task_scheduler", "search", "document_parser"})
"""Blocks whose mistakes make the reference refuse the folder."""
