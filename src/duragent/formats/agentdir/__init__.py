"""A3S agent directories: `instructions.md`, and beside it `agent.acl`, skills/, schedules/ and tools/.

Reads the folder and writes it. What `agent.acl` says is in `settings.py`, what a tool says in
`tools.py`. Settings with no place in the model live in `Agent.extra["agentdir"]`.
"""

import posixpath
import re
from collections.abc import Mapping

from duragent.agent import (
    Agent,
    Auth,
    Json,
    Level,
    Limits,
    McpServer,
    ModelChoice,
    Origin,
    PromptPart,
    Schedule,
    ScriptTool,
    SessionRules,
    Tool,
)
from duragent.formats import skills
from duragent.formats.agentdir.settings import FILE as ACL
from duragent.formats.agentdir.settings import TIMEOUT_SECONDS, TOOL_ROUNDS, Settings, read_settings
from duragent.formats.agentdir.tools import TOOL, read_tool, script_path, tool_origins
from duragent.formats.agentdir.write import INSTRUCTIONS, render
from duragent.formats.cron import check_cron, numeric_weekday
from duragent.formats.fields import Field, Flag, Section, Text, document
from duragent.formats.markdown import Page, cut, read_header
from duragent.formats.places import places
from duragent.formats.reader import BAD, Reader, homes
from duragent.formats.shape import Absent, File, Files, Need, Parsed, Problem, absence, failed
from duragent.formats.yaml import Node, position

__all__ = ["SCHEMAS", "claims", "parse", "render"]

MAX_FILE_BYTES = 262_144
_ZONE = r"UTC|GMT|[A-Z][A-Za-z_]+(?:/[A-Za-z0-9_+-]+){1,2}"

SCHEDULE = Section(
    {
        "cron": Field(Text(empty=False), 'When: five crontab fields in quotes, e.g. "0 9 * * MON".', required=True),
        "name": Field(Text(empty=False), "Name of the schedule; without one, the name of the file."),
        "enabled": Field(Flag(), "false: keep it, do not run it.", default=True),
        "timezone": Field(
            Text(pattern=_ZONE, rule="an IANA name such as Europe/Paris, or UTC"),
            "Time zone of `cron`; the reference always takes UTC.",
            default="UTC",
        ),
    }
)
SCHEMAS: Mapping[str, Mapping[str, Json]] = {
    "agentdir-schedule": document(
        SCHEDULE,
        name="agentdir-schedule",
        title="Header of schedules/*.md",
        about="When an agent directory starts a turn; the text below the header is what it is asked.",
    ),
    "agentdir-tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:duragent:schema:agentdir-tool",
        "title": "Header of tools/*.md",
        "description": "An MCP server or a sandboxed script of an agent directory.",
    }
    | TOOL.schema(),
}


def claims(files: Files) -> str | None:
    names = files.names() if files.entry == "" else ()
    if ACL in names:
        return f"{ACL} in the folder"
    if INSTRUCTIONS in names and not {"agent.yaml", "agent.yml"} & set(names):
        return f"{INSTRUCTIONS} in the folder"
    return None


def parse(files: Files) -> Parsed | Need:
    need = _needs(files)
    return need if need else _Folder(files).parsed()


def _needs(files: Files) -> Need:
    first = Need(files=frozenset({INSTRUCTIONS, ACL}), folders=frozenset({"schedules", "tools"}))
    if need := _all_of(first.without(files.found), skills.needs("skills", files, loose=True)):
        return need
    pages = frozenset(page for folder in ("schedules", "tools") for page in _pages(files, folder))
    if need := Need(files=pages).without(files.found):
        return need
    return Need(blobs=frozenset(_scripts(files))).without(files.found)


def _all_of(one: Need, other: Need | None) -> Need:
    if other is None:
        return one
    return Need(one.files | other.files, one.folders | other.folders, one.blobs | other.blobs)


def _pages(files: Files, folder: str) -> list[str]:
    return [f"{folder}/{name}" for name in sorted(files.names(folder)) if name.endswith(".md") and name != ".md"]


def _scripts(files: Files) -> list[str]:
    """The script files that tools name."""
    found = []
    for page in _pages(files, "tools"):
        text = files.text(page)
        if text is not None and len(text) <= MAX_FILE_BYTES:
            node = _header(cut(text, leading_space=True), Reader(page), "kind")
            found += [path] if node is not None and (path := script_path(node)) else []
    return found


def _body_start(page: Page) -> tuple[int, int]:
    """Where the text below a header begins."""
    line, column = position(page.body, len(page.body) - len(page.body.lstrip()))
    return page.body_line + line - 1, column


def _stem(page: str) -> str:
    return posixpath.basename(page).removesuffix(".md")


def _header(page: Page, reader: Reader, first_key: str) -> Node | None:
    node = read_header(page, reader)
    if page.header is None or not page.closed:
        said = "has no header" if page.header is None else "has a header that never ends"
        reader.problems.clear()
        reader.error(
            (1, 1), "", f"the file {said}", f"write `---`, then `{first_key}: …`, then `---`, each on its own line"
        )
        return None
    if reader.problems and (star := re.search(r"^cron:[ \t]*\*", page.header, re.MULTILINE)):
        line, column = position(page.header, star.end() - 1)
        reader.problems.clear()
        text = "an unquoted `*` means something else in YAML"
        reader.error((line + page.header_line - 1, column), "cron", text, 'write cron: "* * * * *" in quotes')
        return None
    if node is None and reader.ok():
        reader.error((page.header_line, 1), first_key, f"{first_key} is missing", "the header is empty")
    return node


class _Folder:
    """Reads one folder; everything it needs has been found."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.problems: list[Problem] = []
        self.origins: dict[str, Origin] = {}
        self.extra: dict[str, Json] = {}

    def parsed(self) -> Parsed:
        prompt = self.instructions()
        settings = self.settings()
        found_skills = skills.read_all("skills", self.files, self.problems, loose=True, level="warning")
        schedules = self.schedules()
        tools = self.tools(settings)
        if failed(self.problems):
            return Parsed(None, tuple(self.problems))
        self.keep("acl", settings.kept)
        self.keep("providers", settings.provider_rest)
        model = ModelChoice(
            candidates=(settings.model,) if settings.model else (),
            max_input_tokens=settings.window.get("context"),
            max_output_tokens=settings.window.get("output"),
        )
        agent = Agent(
            name=settings.texts.get("name", self.files.name),
            description=settings.texts.get("description"),
            version=settings.texts.get("version"),
            model=model,
            prompt=prompt,
            tools=tools,
            skills=found_skills,
            session=SessionRules(llm_timeout_seconds=settings.numbers.get("llm_api_timeout_ms", TIMEOUT_SECONDS)),
            limits=Limits(
                tool_iterations=settings.numbers.get("max_tool_rounds", TOOL_ROUNDS),
                parallel_tasks=settings.numbers.get("max_parallel_tasks"),
            ),
            schedules=schedules,
            auth=Auth(providers=settings.providers),
            extra={"agentdir": self.extra} if self.extra else {},
            origins=self.origins,
        )
        return Parsed(agent, tuple(self.problems))

    def keep(self, name: str, value: Json) -> None:
        if value:
            self.extra[name] = value

    def error(self, page: str, path: str, text: str, hint: str) -> None:
        self.problems.append(Problem("error", page, 1, 1, path, text, hint))

    def text(self, page: str, at: str) -> str | None:
        """A file's text; None, with a problem, if it cannot be used."""
        entry = self.files.found.get(page, Absent("missing"))
        if not isinstance(entry, File):
            why = entry if isinstance(entry, Absent) else Absent("special")
            self.problems.append(absence("error", page, why, file=page, line=1, column=1, at=at))
            return None
        size = len(entry.text.encode("utf-8", "replace"))
        if size > MAX_FILE_BYTES:
            self.error(page, at, f"{page} has {size:,} bytes", f"at most {MAX_FILE_BYTES:,}; shorten it")
            return None
        return entry.text

    def instructions(self) -> tuple[PromptPart, ...]:
        text = self.text(INSTRUCTIONS, "prompt")
        if text is None:
            return ()
        if not text.strip():
            self.warn(
                INSTRUCTIONS, "prompt", "the file is empty: the agent has no role", "say who it is and what it does"
            )
            return ()
        if cut(text, leading_space=True).header is not None:
            hint = "remove it; settings belong in agent.acl"
            self.warn(INSTRUCTIONS, "prompt", "a header is not read here; the model sees it as text", hint)
        self.origins["prompt[0]"] = Origin(INSTRUCTIONS, *position(text, len(text) - len(text.lstrip())))
        return (PromptPart(kind="role", text=text.strip(), path=INSTRUCTIONS),)

    def warn(self, page: str, path: str, text: str, hint: str) -> None:
        self.problems.append(Problem("warning", page, 1, 1, path, text, hint))

    def settings(self) -> Settings:
        entry = self.files.found.get(ACL)
        if isinstance(entry, Absent) and entry.why == "folder":
            self.warn(ACL, "", f"{ACL} is a folder and is not read", "make it a file, or remove it")
        if isinstance(entry, Absent) and entry.why in ("missing", "folder"):
            return Settings()
        text = self.text(ACL, "")
        settings = read_settings(text) if text is not None else Settings()
        self.problems += settings.reader.problems
        self.origins |= settings.origins
        return settings

    def pages(self, folder: str) -> list[str]:
        entry = self.files.found.get(folder)
        if isinstance(entry, Absent) and entry.why != "missing":
            self.problems.append(absence("error", folder, entry, file=folder, line=1, column=1, at=folder))
        for name in self.files.names(folder):
            if name.endswith(".md/"):
                page = f"{folder}/{name[:-1]}"
                self.problems.append(absence("error", page, Absent("folder"), file=page, line=1, column=1, at=folder))
        return _pages(self.files, folder)

    def schedules(self) -> tuple[Schedule, ...]:
        found: list[Schedule] = []
        unknown: dict[str, Json] = {}
        for page in self.pages("schedules"):
            text = self.text(page, "schedules")
            if text is None:
                continue
            reader = Reader(page, unknown="warning", number_as_text=None)
            cut_page = cut(text, leading_space=True)
            node = _header(cut_page, reader, "cron")
            schedule = _schedule(node, _stem(page), cut_page.body.strip(), reader) if node is not None else None
            self.problems += reader.problems
            if schedule is None or node is None:
                continue
            twin = next((each for each in found if each.enabled and each.name == schedule.name), None)
            if twin is not None and schedule.enabled:
                self.error(
                    page, "name", f"another enabled schedule is called {schedule.name!r}", "rename or disable one"
                )
            at = f"schedules[{len(found)}]"
            self.origins |= {at: Origin(page, 1, 1)} | homes(reader.at, {key: f"{at}.{key}" for key in SCHEDULE.fields})
            if schedule.prompt:
                self.origins[f"{at}.prompt"] = Origin(page, *_body_start(cut_page))
            if reader.extra:
                self.origins |= places(reader.extra, node, f"extra.agentdir.schedules.{len(found)}", page)
                unknown[str(len(found))] = reader.extra
            found.append(schedule)
        self.keep("schedules", unknown)
        return tuple(found)

    def tools(self, settings: Settings) -> tuple[Tool, ...]:
        found: dict[str, Tool] = {}
        unknown: dict[str, Json] = {}
        bodies: dict[str, str] = {}
        for server, reader, node in settings.servers:
            self.add(server, reader, node, (node.line, node.column), found, unknown)
        for page in self.pages("tools"):
            text = self.text(page, "tools")
            if text is None:
                continue
            reader = Reader(page, unknown="warning", number_as_text=None)
            cut_page = cut(text, leading_space=True)
            header = _header(cut_page, reader, "kind")
            if header is None:
                self.problems += reader.problems
                continue
            tool, body = read_tool(header, _stem(page), cut_page.body.strip(), reader)
            self.problems += reader.problems
            self.script(header, reader)
            index, start = len(found), Origin(page, *_body_start(cut_page))
            if tool is None or not self.add(tool, reader, header, (1, 1), found, unknown):
                continue
            if body:
                bodies[tool.name] = body
                self.origins[f"extra.agentdir.bodies.{tool.name}"] = start
            elif isinstance(tool, ScriptTool) and tool.description:
                self.origins[f"tools[{index}].description"] = start
        self.keep("tools", unknown)
        self.keep("bodies", bodies)
        return tuple(found.values())

    def add(
        self,
        tool: McpServer | ScriptTool,
        reader: Reader,
        node: Node,
        start: tuple[int, int],
        found: dict[str, Tool],
        unknown: dict[str, Json],
    ) -> bool:
        if tool.name in found:
            line, column = reader.position("name")
            text = f"another tool is called {tool.name!r}"
            self.problems.append(Problem("error", reader.file, line, column, "name", text, "rename one of them"))
            return False
        self.origins |= tool_origins(reader, len(found), start)
        found[tool.name] = tool
        if reader.extra:
            unknown[tool.name] = reader.extra
            self.origins |= places(reader.extra, node, f"extra.agentdir.tools.{tool.name}", reader.file)
        return True

    def script(self, node: Node, reader: Reader) -> None:
        """Say so if the file that a script's header names cannot be had."""
        path = script_path(node)
        entry = self.files.found.get(path) if path is not None else None
        if path is not None and isinstance(entry, Absent):
            line, column = reader.position("path")
            level: Level = "warning" if entry.why == "missing" else "error"
            self.problems.append(absence(level, path, entry, file=reader.file, line=line, column=column, at="path"))


def _schedule(node: Node, stem: str, prompt: str, reader: Reader) -> Schedule | None:
    values: Json = SCHEDULE.read(node, "", reader)
    if values is BAD:
        return None
    sound, cron, enabled = reader.ok(), values.get("cron"), values.get("enabled", True)
    if cron is not None:
        _check_time(cron, enabled, node.value["cron"], reader)
    if not prompt:
        reader.warning((1, 1), "prompt", "the schedule asks nothing", "write below the header what is to be done")
    if cron is None or not sound:
        return None
    return Schedule(
        name=values.get("name", stem),
        cron=cron,
        prompt=prompt,
        enabled=enabled,
        timezone=values.get("timezone"),
    )


def _check_time(cron: str, enabled: bool, place: Node, reader: Reader) -> None:
    wrong = check_cron(cron)
    if wrong:
        hint = 'for example "0 9 * * MON": every Monday at nine'
        reader.problem("error" if enabled else "warning", place, "cron", f"cron {wrong}", hint)
    elif numeric_weekday(cron):
        text = "the weekday is a number: 1 is Monday here, as in crontab, but Sunday for A3S"
        reader.warning(place, "cron", text, "write MON, TUE, … to mean the same everywhere")
