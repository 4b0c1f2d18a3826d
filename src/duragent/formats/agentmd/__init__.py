"""The `.agent.md` format: one Markdown file whose optional header and headings describe an agent.

Owns the field table, the order in which values are looked up, and the rule that header and headings may
not contradict each other. What the model has no place for stays in `extra["agentmd"]`: fields of the
author's own, and under `body` the order of the text when it holds more than the known sections.
"""

import posixpath
import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from duragent.agent import Agent, Command, InlineTools, Json, ModelChoice, ModelRef, Origin, PromptPart, Startup
from duragent.formats.agentmd import write as agentmd_write
from duragent.formats.agentmd.abilities import AbilityList, read_abilities
from duragent.formats.agentmd.body import Body, Said, read_body
from duragent.formats.agentmd.commands import KIND, Commands
from duragent.formats.agentmd.header import Names, fold, read_front, take_unknown
from duragent.formats.fields import Anything, Field, OneOf, Section, Text, document
from duragent.formats.markdown import Page, cut
from duragent.formats.places import places
from duragent.formats.reader import BAD, Reader, homes
from duragent.formats.shape import Absent, File, Files, Need, Parsed, Rendered, absence, is_address
from duragent.formats.yaml import Node, plain

MAX_LINES = 20_000
SUFFIX = ".agent.md"
_ENGINE = OneOf("hbs", "", fold=True)
_ENGINE.wanted = 'hbs, or "" for no templates'

RECOMMENDED = Section(
    {
        "models": Field(Names(), "Models that suit the agent, best first: `provider/name`, or only a name."),
        "capabilities": Field(Names(), "What a model should be able to do."),
    }
)
REQUIRED = Section(
    {
        "env": Field(Names(), "Environment variables that must be set."),
        "startup": Field(Text(), "A tool of `## Tools` that must succeed before the agent starts."),
    }
)
HEADER = Section(
    {
        "version": Field(Text(), "Version of the definition.", default="0.1.0"),
        "icon": Field(Text(), "A single emoji.", default="🤖"),
        "title": Field(Text(), "Name for people. Default: the first `# heading`."),
        "description": Field(Text(), "Short summary. Default: the first paragraph below the title."),
        "status": Field(OneOf("active", "deprecated", "disabled", fold=True), "State of the agent.", default="active"),
        "avatar": Field(Text(), "Picture: a path or an address. Default: the first image under `# Avatar`."),
        "templateEngine": Field(_ENGINE, 'Templates in the texts: hbs, or "" for none.', default="hbs"),
        "input": Field(Anything(), "What the agent starts with: any value."),
        "recommended": Field(RECOMMENDED, "Guidance that is not binding."),
        "required": Field(REQUIRED, "What must hold before the agent starts."),
        "commands": Field(KIND, "Commands: paths, URLs and definitions."),
        "allow": Field(AbilityList(star=True), 'Abilities it may use; "*" for all.', null_is_absent=False),
        "deny": Field(AbilityList(star=False), "Abilities it may not use.", null_is_absent=False),
        "system": Field(Text(), "Only compared with `## System`, which is where the text belongs."),
        "rules": Field(Text(), "Only compared with `## Rules`, which is where the text belongs."),
    }
)
SCHEMAS = {
    "agentmd": document(HEADER, name="agentmd", title=".agent.md header", about="The YAML header of an .agent.md file.")
}
_HOMES = {name: name for name in ("version", "icon", "status", "avatar", "input")} | {
    "templateEngine": "templates",
    "recommended.models": "model.candidates",
    "recommended.capabilities": "model.capabilities",
    "required.env": "startup.env",
    "required.startup": "startup.tool",
    "allow": "abilities.allow",
    "deny": "abilities.deny",
}
_EMOJI_ONE = "[\U0001f000-\U0001faff\u2190-\u2bff\u3030\u303d\u3297\u3299\u203c\u2049\u2122\u2139©®]"
_EMOJI = re.compile(
    rf"{_EMOJI_ONE}[\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d{_EMOJI_ONE}[\ufe0f\U0001f3fb-\U0001f3ff]*)*"
    "|[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|\U0001f3f4[\U000e0020-\U000e007f]+"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Front(Struct, frozen=True):
    """The header after reading: known values, and the author's own fields."""

    values: dict[str, Any]
    unknown: dict[str, Json]
    places: dict[str, Origin]


def claims(files: Files) -> str | None:
    if files.entry:
        return f"the name ends in {SUFFIX}" if files.entry.endswith(SUFFIX) else None
    own = _agents(files)
    return f"the folder holds {own[0]}, the only file whose name ends in {SUFFIX}" if len(own) == 1 else None


def _agents(files: Files) -> list[str]:
    return [name for name in files.names() if name.endswith(SUFFIX)]


def parse(files: Files) -> Parsed | Need:
    path = files.entry or next(iter(_agents(files)), f"agent{SUFFIX}")
    if path not in files.found:
        return Need(files=frozenset({path}))
    entry = files.found[path]
    if not isinstance(entry, File):
        why = entry if isinstance(entry, Absent) else Absent("folder")
        return Parsed(None, (absence("error", path, why, file=path, line=1, column=1, at=""),))
    reader = Reader(path, unknown="warning", number_as_text=None)
    lines = entry.text.count("\n")
    if lines > MAX_LINES:
        reader.error((MAX_LINES, 1), "", f"the file has {lines:,} lines", f"at most {MAX_LINES:,}; split it")
        return Parsed(None, tuple(reader.problems))
    page = _cut(entry.text, reader)
    commands = Commands(reader, files)
    front = _front(page, reader, commands)
    if front is None:
        read_body(page, {}, reader)
        return Parsed(None, tuple(reader.problems))
    return _go_on(path, page, front, commands, reader, files)


def _go_on(path: str, page: Page, front: Front, commands: Commands, reader: Reader, files: Files) -> Parsed | Need:
    """The header has been read; read the commands it names, then build the agent."""
    listed = front.values.get("commands", [])
    commands.files = files
    if need := commands.needs(listed):
        return replace(need, then=partial(_go_on, path, page, front, commands, reader))
    found = commands.read(listed)
    body = read_body(page, front.values, reader)
    agent = _agent(path, front, body, reader, commands.origins, found)
    kept = _kept(front, body, commands)
    where = front.places | {key: reader.at[key] for key in ("system", "rules") if key in kept}
    if "body" in kept:
        blank = len(page.body) - len(page.body.lstrip("\n"))
        where["body"] = Origin(path, page.body_line + blank, 1)
    agent = replace(
        agent,
        extra={"agentmd": kept} if kept else {},
        origins={**agent.origins, **{f"extra.agentmd.{key}": origin for key, origin in where.items()}},
    )
    return Parsed(agent if reader.ok() else None, tuple(reader.problems))


def _cut(text: str, reader: Reader) -> Page:
    page = cut(text)
    late = cut(text, leading_space=True)
    if page.header is not None or late.header is None or not late.closed:
        return page
    said = "the header must begin on the first line; here it would be taken for text"
    reader.error((late.header_line - 1, 1), "", said, "remove what stands above it")
    return late


def _front(page: Page, reader: Reader, commands: Commands) -> Front | None:
    """The header, or None when nobody can tell what it says: its YAML or its frame is broken."""
    before = len(reader.problems)
    node = read_front(page, reader)
    if node is not None:
        return _read(node, reader, commands)
    return Front({}, {}, {}) if len(reader.problems) == before else None


def _read(node: Node, reader: Reader, commands: Commands) -> Front:
    node = fold(node, HEADER, "", reader)
    if "body" in node.value:
        hint = "write the text below the header, and what the model is told under ## System"
        reader.error(node.keys["body"], "body", "`body` is not a field: the body is the text below the header", hint)
    unknown, kept = take_unknown(node, HEADER, "", reader)
    for name, section in (("recommended", RECOMMENDED), ("required", REQUIRED)):
        child = node.value.get(name)
        if child is not None and type(child.value) is dict:
            folded = fold(child, section, name, reader)
            more, where = take_unknown(folded, section, name, reader)
            unknown |= {name: more} if more else {}
            kept |= {f"{name}.{key}": origin for key, origin in where.items()}
            node.value[name] = folded
    if "commands" in node.value:
        commands.fold(node.value["commands"])
    values = HEADER.read(node, "", reader)
    if "input" in node.value:
        reader.at |= places(plain(node.value["input"]), node.value["input"], "input", reader.file)
    return Front({} if values is BAD else values, unknown, kept)


def _kept(front: Front, body: Body, commands: Commands) -> dict[str, Json]:
    """What the model has no place for, and what writing the same file again needs."""
    kept = dict(front.unknown)
    if commands.kept:
        kept["commands"] = commands.kept
    for name, said in (("system", body.system), ("rules", body.rules)):
        if said is None and (text := front.values.get(name, "").strip()):
            kept[name] = text
    if body.layout is not None:
        kept["body"] = body.layout
    return kept


def _agent(
    path: str,
    front: Front,
    body: Body,
    reader: Reader,
    where: Mapping[str, Origin],
    commands: tuple[Command, ...],
) -> Agent:
    values = front.values
    name, labels = _name(path, reader)
    origins = {"name": Origin(path, 1, 1)} | ({"labels.category": Origin(path, 1, 1)} if labels else {})
    origins |= {**where, **homes(reader.at, _HOMES)}
    title, description, avatar = body.title, body.description, body.avatar
    prompt = _prompt(body, path, origins)
    if not prompt:
        hint = "write it under ## System"
        reader.warning(
            (1, 1), "prompt", "the file does not say what the agent is: no system text, description or title", hint
        )
    for key, said in (("title", title), ("description", description), ("avatar", avatar), ("tools[0]", body.tools)):
        if said:
            origins[key] = said.origin(path)
    icon = values.get("icon", "🤖").strip()
    if not _EMOJI.fullmatch(icon):
        reader.warning(reader.position("icon"), "icon", f"icon is {icon[:40]!r}, not a single emoji", "like 🤖 or ✍️")
    templates = _templates(values, prompt, commands, origins)
    startup = values.get("required", {})
    return Agent(
        name=name,
        title=title.text if title else None,
        description=description.text if description else None,
        version=values.get("version", "0.1.0"),
        labels=labels,
        icon=icon,
        avatar=avatar.text if avatar else None,
        status=values.get("status", "active"),
        model=_models(values.get("recommended", {}), reader),
        prompt=prompt,
        templates=templates,
        tools=(InlineTools(body.tools.text),) if body.tools else (),
        abilities=read_abilities(values, reader),
        commands=commands,
        startup=Startup(_env(startup, reader), startup.get("startup", "").strip() or None),
        input=values.get("input"),
        origins=origins,
    )


def _templates(
    values: dict[str, Any], prompt: tuple[PromptPart, ...], commands: tuple[Command, ...], origins: dict[str, Origin]
) -> Literal["none", "hbs"]:
    """Whether the texts are templates: they hold one, or may once they are fetched, and the header allows it."""
    texts = {f"prompt[{index}]": part.text for index, part in enumerate(prompt)}
    texts |= {f"commands[{index}].body": each.body for index, each in enumerate(commands)}
    fetched = [f"commands[{n}]" for n, each in enumerate(commands) if each.source and is_address(each.source)]
    found = [path for path, text in texts.items() if "{{" in text] + fetched
    if not found or not values.get("templateEngine", "hbs"):
        return "none"
    origins.setdefault("templates", origins.get(found[0]) or origins[found[0].removesuffix(".body")])
    return "hbs"


def _name(path: str, reader: Reader) -> tuple[str, dict[str, str]]:
    stem = posixpath.basename(path).removesuffix(SUFFIX)
    category, underscore, name = stem.partition("_")
    if category and underscore and name:
        return name, {"category": category}
    said = f"the file is called {stem + SUFFIX}, not <category>_<agent-name>{SUFFIX}; it has no category"
    reader.warning((1, 1), "name", said, f"rename it, for example general_{stem or 'agent'}{SUFFIX}")
    return stem or "agent", {}


def _prompt(body: Body, path: str, origins: dict[str, Origin]) -> tuple[PromptPart, ...]:
    """`## System`, else the description, else the title; then the rules."""
    parts: list[PromptPart] = []
    system: Said | None = body.system or body.description or body.title
    for kind, said in (("system", system), ("rules", body.rules)):
        if said:
            origins[f"prompt[{len(parts)}]"] = said.origin(path)
            parts.append(PromptPart("rules" if kind == "rules" else "system", said.text, path))
    return tuple(parts)


def _models(recommended: dict[str, Any], reader: Reader) -> ModelChoice:
    candidates = []
    for index, text in enumerate(recommended.get("models", ())):
        provider, slash, name = text.partition("/")
        if not slash:
            provider, name = "", text
        if not name:
            path = f"recommended.models[{index}]"
            reader.error(reader.position(path), path, f"{text!r} names a provider but no model", f"like {text}gpt-4o")
            continue
        candidates.append(ModelRef(provider, name))
    return ModelChoice(tuple(candidates), capabilities=tuple(recommended.get("capabilities", ())))


def _env(required: dict[str, Any], reader: Reader) -> tuple[str, ...]:
    names = tuple(required.get("env", ()))
    for index, name in enumerate(names):
        if not _ENV_NAME.fullmatch(name):
            path = f"required.env[{index}]"
            said = f"{name[:60]!r} does not look like an environment variable"
            reader.warning(reader.position(path), path, said, "letters, digits and underscores, like API_KEY")
    return names


def render(agent: Agent) -> Rendered:
    """One `.agent.md` file, and files for commands that cannot stand in its header.

    The author's own order of the text is used when it still fits the agent, which is found out by
    reading the result; an agent that was changed since may need the plain order.
    """
    kept = agent.extra.get("agentmd", {})
    if not kept.keys() & {"body", "system", "rules"}:
        return agentmd_write.build(agent, kept)
    written = agentmd_write.build(agent, kept)
    again = parse(Files(written.entry, {path: File(text) for path, text in written.files.items()}))
    if isinstance(again, Parsed) and again.agent is not None and _same_text(again.agent, agent):
        return written
    plain = {key: value for key, value in kept.items() if key not in ("body", "system", "rules")}
    written = agentmd_write.build(agent, plain)
    note = "the rest of the text does not fit the agent as it is now, and is left out"
    return replace(written, notes={**written.notes, "extra.agentmd": note})


def _same_text(one: Agent, two: Agent) -> bool:
    """Whether two agents say the same in what the body of a file holds."""
    mine, yours = ([(part.kind, part.text) for part in each.prompt] for each in (one, two))
    sections = ("title", "description", "avatar", "tools")
    return mine == yours and all(getattr(one, name) == getattr(two, name) for name in sections)
