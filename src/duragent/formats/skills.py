"""Skill packages: `skills/<name>/SKILL.md` as agentskills.io describes them, and A3S's `skills/<name>.md`.

Shared by the formats that have a skills folder. Strict where the packages are ours to judge; lenient
(warnings) for agentdir, whose own documents accept any name and an empty description.
"""

import posixpath
import re

from msgspec.structs import replace

from duragent.agent import Json, Level, Skill
from duragent.formats.fields import Either, Field, Flag, ListOf, MapOf, OneOf, Section, Text, document
from duragent.formats.markdown import Page, cut, read_header, with_header
from duragent.formats.reader import BAD, Reader, did_you_mean
from duragent.formats.shape import Absent, File, Files, Folder, Need, Problem, absence
from duragent.formats.yaml import Node, plain

_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")

HEADER = Section(
    {
        "name": Field(Text(empty=False), "1 to 64 of a-z, 0-9 and single hyphens; the name of the folder."),
        "description": Field(Text(), "What the skill does and when to use it, 1 to 1024 characters."),
        "license": Field(Text(), "Licence of the skill."),
        "compatibility": Field(Text(), "What the skill needs around it, up to 500 characters."),
        "metadata": Field(MapOf(Text()), "Any further texts by name."),
        "allowed-tools": Field(
            Either(text=Text(), list=ListOf(Text())), "Tools that may be used while the skill is active."
        ),
        "disable-model-invocation": Field(Flag(), "true: only a person may start it.", default=False),
        "kind": Field(OneOf("instruction", "persona", "tool"), "What sort of skill (agentdir).", default="instruction"),
        "tags": Field(ListOf(Text()), "Words to find it by (agentdir)."),
        "version": Field(Text(), "Version of the skill."),
    }
)
SCHEMA = document(HEADER, name="skill", title="SKILL.md header", about="The YAML header of a skill package.")


def needs(folder: str, files: Files, *, loose: bool = False, elsewhere: bool = False) -> Need | None:
    """What must be read to know the skills below `folder`; None when all of it has been."""
    listing = f"{folder}/**"
    if listing not in files.found:
        asked = frozenset({listing})
        return Need(elsewhere=asked) if elsewhere else Need(folders=asked)
    pages = frozenset(_pages(files, folder, loose))
    bundled = frozenset(posixpath.join(folder, name) for page in pages for name in _bundle(files, folder, page))
    need = Need(elsewhere=pages, attached=bundled) if elsewhere else Need(files=pages, blobs=bundled)
    need = need.without(files.found)
    return need if need else None


def read_all(
    folder: str, files: Files, problems: list[Problem], *, loose: bool = False, level: Level = "error"
) -> tuple[Skill, ...]:
    """The skills below `folder`, by path. A name that appears twice is reported."""
    listing = files.found.get(f"{folder}/**")
    if isinstance(listing, Absent) and listing.why != "missing":
        problems.append(absence("error", folder, listing, file=folder, line=1, column=1, at="skills"))
    found: dict[str, Skill] = {}
    for page in _pages(files, folder, loose):
        skill = read_one(page, files, problems, level=level)
        if skill is None:
            continue
        for name in _bundle(files, folder, page):
            where = posixpath.join(folder, name)
            if isinstance(entry := files.found.get(where), Absent):
                problems.append(absence("error", where, entry, file=where, line=1, column=1, at="skills"))
        skill_files = tuple(name[len(posixpath.dirname(page)) - len(folder) :] for name in _bundle(files, folder, page))
        if skill.name in found:
            text = f"two skills are called {skill.name!r}: {found[skill.name].path} and {page}"
            problems.append(Problem(level, page, 1, 1, "name", text, "rename one; the later one wins"))
        found[skill.name] = replace(skill, files=skill_files)
    return tuple(found.values())


def bundled(names: tuple[str, ...]) -> tuple[str, ...]:
    """The files of a skill's own folder beside SKILL.md."""
    return tuple(name for name in names if not name.endswith("/") and name != "SKILL.md")


def read_one(page: str, files: Files, problems: list[Problem], *, level: Level = "error") -> Skill | None:
    """One skill file. None, with a problem, when it cannot be used."""
    entry = files.found.get(page)
    if not isinstance(entry, File):
        why = entry if isinstance(entry, Absent) else Absent("missing")
        problems.append(absence("error", page, why, file=page, line=1, column=1, at="skills"))
        return None
    reader = Reader(page, unknown="warning", number_as_text=None)
    cut_page = cut(entry.text, leading_space=level == "warning")
    node = read_header(cut_page, reader)
    if node is None or type(node.value) is not dict:
        text = "a skill needs a header: `---`, then `name:` and `description:`, then `---`"
        if reader.problems:
            text = "its header cannot be read"
        reader.warning((1, 1), "", text, "the agent runs without this skill until it is mended")
        problems.extend(_at_most(reader.problems, "warning"))  # one broken skill must not end every session
        return None
    skill = _skill(page, cut_page, node, reader, level)
    problems.extend(_at_most(reader.problems, level))
    return skill


def _skill(page: str, cut_page: Page, node: Node, reader: Reader, level: Level) -> Skill | None:
    extra = _take_unknown(node, reader)
    values = HEADER.read(node, "", reader)
    if values is BAD:
        return None
    folder_name = posixpath.basename(posixpath.dirname(page))
    packaged = posixpath.basename(page) == "SKILL.md"
    default = folder_name if packaged else posixpath.basename(page).removesuffix(".md")
    if "name" not in values and packaged:
        reader.warning(
            node, "name", f"the skill has no name; {default!r}, its folder, is used", f"add `name: {default}`"
        )
    name = values.get("name", default)
    if packaged or level == "error":
        _check_name(name, folder_name if packaged else name, node, reader, level)
    _check_lengths(values, node, reader, level)
    tools = values.get("allowed-tools")
    return Skill(
        name=name,
        description=values.get("description", ""),
        body=cut_page.body.strip("\n"),
        path=page,
        license=values.get("license"),
        compatibility=values.get("compatibility"),
        metadata=values.get("metadata", {}),
        allowed_tools=None if tools is None else _tool_list(tools),
        kind=values.get("kind", "instruction"),
        tags=tuple(values.get("tags", ())),
        version=values.get("version"),
        model_may_invoke=not values.get("disable-model-invocation", False),
        extra=extra,
    )


def _check_name(name: str, folder: str, node: Node, reader: Reader, level: Level) -> None:
    place = node.keys.get("name", (node.line, node.column))
    if not _NAME.fullmatch(name) or len(name) > 64:
        rule = "1 to 64 of a-z, 0-9 and single hyphens, not at either end"
        reader.problem(level, place, "name", f"{name[:80]!r} is not a skill name", rule)
    elif name != folder:
        text = f"the skill is called {name!r} but its folder {folder!r}"
        reader.problem(level, place, "name", text, "make both the same")


def _check_lengths(values: dict[str, Json], node: Node, reader: Reader, level: Level) -> None:
    description = values.get("description", "")
    if not len(description.strip()) >= 1 or len(description) > 1024:
        place = node.keys.get("description", (node.line, node.column))
        said = f"has {len(description):,} characters" if description.strip() else "is missing"
        reader.problem(level, place, "description", f"the skill's description {said}", "1 to 1024 characters")
    if len(values.get("compatibility", "")) > 500:
        text = f"compatibility has {len(values['compatibility']):,} characters"
        reader.problem(level, node.keys["compatibility"], "compatibility", text, "at most 500")


def _take_unknown(node: Node, reader: Reader) -> dict[str, Json]:
    """Keys agentskills.io does not know are the author's own: kept, and mentioned only when they look like typos."""
    extra = {}
    for name in [name for name in node.value if name not in HEADER.fields]:
        extra[str(name)] = plain(node.value[name])
        if hint := did_you_mean(name, HEADER.fields):
            reader.warning(node.keys[name], str(name), f"unknown field `{name}`", hint)
        del node.value[name]
    return extra


def _tool_list(tools: str | list[str]) -> tuple[str, ...]:
    """`Bash(git *), Read` and `Bash Read` and lists. A bracket keeps its spaces and commas together."""
    if isinstance(tools, list):
        return tuple(tools)
    pieces = re.findall(r"[^\s,(]+(?:\([^)]*\))?", tools)
    return tuple(pieces)


def _at_most(problems: list[Problem], level: Level) -> list[Problem]:
    if level == "error":
        return problems
    return [Problem(level, p.file, p.line, p.column, p.path, p.text, p.hint) for p in problems]


def _pages(files: Files, folder: str, loose: bool) -> list[str]:
    entry = files.found.get(f"{folder}/**")
    names = entry.names if isinstance(entry, Folder) else ()
    return [
        posixpath.join(folder, name)
        for name in names
        if (name.count("/") == 1 and name.endswith("/SKILL.md")) or (loose and "/" not in name and name.endswith(".md"))
    ]


def _bundle(files: Files, folder: str, page: str) -> list[str]:
    """The other files of a skill package, relative to `folder`."""
    if posixpath.basename(page) != "SKILL.md":
        return []
    entry = files.found[f"{folder}/**"]
    assert isinstance(entry, Folder)
    home = posixpath.dirname(page)[len(folder) + 1 :] + "/"
    own = home + "SKILL.md"
    return [name for name in entry.names if name.startswith(home) and not name.endswith("/") and name != own]


def package_name(name: str) -> str:
    """The nearest name that a skill package may have."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].strip("-") or "skill"


def render_skill(skill: Skill) -> str:
    """The text of a SKILL.md that reads back as this skill."""
    header: dict[str, Json] = {"name": skill.name, "description": skill.description}
    optional = {
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
        "allowed-tools": list(skill.allowed_tools) if skill.allowed_tools is not None else None,
        "disable-model-invocation": True if not skill.model_may_invoke else None,
        "kind": skill.kind if skill.kind != "instruction" else None,
        "tags": list(skill.tags),
        "version": skill.version,
    }
    header |= {
        key: value
        for key, value in optional.items()
        if value not in (None, {}) and (value != [] or key == "allowed-tools")
    }
    return with_header(header | dict(skill.extra), skill.body)
