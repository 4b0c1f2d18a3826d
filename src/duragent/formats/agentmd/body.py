"""The body of an `.agent.md` file: which headings mean something, and whether the header contradicts them."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from duragent.agent import Json, Origin
from duragent.formats.agentmd.headings import Fence, Heading, Outline, outline
from duragent.formats.markdown import Page
from duragent.formats.reader import Reader, did_you_mean

ORDER = ("title", "description", "system", "rules", "tools")
"""The order in which the known pieces are written when the author gave no other."""
_SOURCES = {
    "title": "in the first `# heading`",
    "description": "in the first paragraph below the title",
    "avatar": "in the image under `# Avatar`",
    "system": "under `## System`",
    "rules": "under `## Rules`",
}
_RETURN = re.compile(r"\breturn\b")


class Said(Struct, frozen=True):
    """A text and where it stands in the file."""

    text: str
    line: int
    column: int

    def origin(self, file: str) -> Origin:
        return Origin(file, self.line, self.column)


class Body(Struct, frozen=True):
    """What header and headings say together. `layout` is None when the plain order says it all.

    Otherwise it lists the body from top to bottom: a text stands for itself, `{"slot": "system"}` for
    the section that is written from the model.
    """

    title: Said | None
    description: Said | None
    avatar: Said | None
    system: Said | None
    rules: Said | None
    tools: Said | None
    layout: list[Json] | None


def read_body(page: Page, header: Mapping[str, Any], reader: Reader) -> Body:
    found = outline(page.body)
    if found.too_deep is not None:
        text = "lists and quotes are nested so deep here that what follows cannot be told apart"
        reader.error((page.body_line + found.too_deep, 1), "", text, "nest them less")
    said, slots = _headings(found, page.body_line, reader)
    tools = _tools(found, page.body_line, header, slots, reader)
    for key in ("title", "description", "avatar", "system", "rules"):
        text = header.get(key, "").strip()
        if not text:
            continue
        place = reader.position(key)
        _compare(key, Said(text, *place), said.get(key), reader)
        if key in ("title", "description", "avatar"):
            said[key] = Said(text, *place)  # the header's spelling
        elif key not in said:
            hint = f"write it in the body, below a heading `## {key.title()}`"
            reader.warning(place, key, f"{key} in the header is kept but not used", hint)
    return Body(
        title=said.get("title"),
        description=said.get("description"),
        avatar=said.get("avatar"),
        system=said.get("system"),
        rules=said.get("rules"),
        tools=tools,
        layout=_layout(found, slots),
    )


Slots = list[tuple[int, int, dict[str, Json]]]


def _headings(found: Outline, first_line: int, reader: Reader) -> tuple[dict[str, Said], Slots]:
    """What the headings say, and which lines say it."""
    said: dict[str, Said] = {}
    slots: Slots = []

    def at(text: str, line: int) -> Said:
        return Said(text, first_line + line, found.column(line))

    title = found.title()
    if title:
        said["title"] = at(title.text, title.start)
        slots.append((title.start, title.end, {"slot": "title"}))
        lead = found.lead(title)
        if lead:
            said["description"] = at(lead.text, lead.start)
            slots.append((lead.start, lead.end, {"slot": "description"}))
    avatar = _first(found, 1, "Avatar", first_line, reader)
    if avatar:
        image = found.image(avatar.end, found.end_of(avatar))
        if image:
            said["avatar"] = at(*image)
        else:
            place = (first_line + avatar.start, found.column(avatar.start))
            reader.warning(place, "avatar", "there is no image under `# Avatar`", "write ![what it shows](address)")
    for key in ("system", "rules"):
        heading = _first(found, 2, key.title(), first_line, reader)
        if heading is None:
            continue
        end = found.end_of(heading)
        text = found.slice(heading.end, end)
        if text:
            said[key] = at(text, heading.start)
            slots.append((heading.start, end, {"slot": key}))
        else:
            place = (first_line + heading.start, found.column(heading.start))
            reader.warning(
                place, key, f"there is nothing under `## {heading.text}`", "write a text, or remove the heading"
            )
    _check_others(found, first_line, reader)
    return said, slots


def _check_others(found: Outline, first_line: int, reader: Reader) -> None:
    """Headings that are nearly one of ours: what stands under them would never reach the model."""
    for heading in found.headings[:1000]:
        name = heading.text.strip().title()
        if heading.depth == 2 and name not in _OURS:
            hint = did_you_mean(name, _OURS) if len(name) <= 8 else ""
        elif heading.depth == 1 and name in _OURS:
            hint = f"write `## {name}`"
        else:
            continue
        if hint:
            place = (first_line + heading.start, found.column(heading.start))
            text = f"`{'#' * heading.depth} {heading.text}` means nothing here; what stands under it is not used"
            reader.warning(place, name.lower(), text, hint)


_OURS = ("System", "Rules", "Tools")


def _first(found: Outline, depth: int, name: str, first_line: int, reader: Reader) -> Heading | None:
    """The first heading of this name; each further one is reported."""
    headings = found.named(depth, name)
    for each in headings[1:]:
        place = (first_line + each.start, found.column(each.start))
        text = (
            f"a second `{'#' * depth} {each.text}`; only the first, in line {first_line + headings[0].start}, is used"
        )
        reader.warning(place, name.lower(), text, "put both texts under one heading")
    return headings[0] if headings else None


def _compare(key: str, header: Said, heading: Said | None, reader: Reader) -> None:
    if heading is None or header.text.casefold() == heading.text.strip().casefold():
        return
    text = (
        f"{key} is given twice and differs: {_short(header.text)} in the header ({reader.file}:{header.line}), "
        f"{_short(heading.text)} {_SOURCES[key]} ({reader.file}:{heading.line})"
    )
    reader.error((header.line, header.column), key, text, "remove one of the two, or make them the same")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _tools(found: Outline, first_line: int, header: Mapping[str, Any], slots: Slots, reader: Reader) -> Said | None:
    """The JavaScript under `## Tools`; checked as far as text can tell."""
    startup = header.get("required", {}).get("startup", "").strip()
    heading = _first(found, 2, "Tools", first_line, reader)
    if heading is None:
        if startup:
            said = f"required.startup is {startup!r}, but there is no `## Tools` section"
            reader.error(reader.position("required.startup"), "required.startup", said, "define the tool there")
        return None
    place = (first_line + heading.start, found.column(heading.start))
    end = found.end_of(heading)
    fences = [
        each for each in found.fences if heading.end <= each.start < end and each.language in ("js", "javascript")
    ]
    if not fences:
        said = "there is no JavaScript under `## Tools`" + (f", but required.startup is {startup!r}" if startup else "")
        reader.problem("error" if startup else "warning", place, "tools", said, "begin the code with a line ```js")
        return None
    for each in fences[1:]:
        said = f"a second block of JavaScript under `## Tools`; the first is in line {first_line + fences[0].start}"
        where = (first_line + each.start, found.column(each.start))
        reader.error(where, "tools", said, "put all tools into one block that returns them together")
    fence = fences[0]
    place = (first_line + fence.start, found.column(fence.start))
    _check_code(fence, place, startup, reader)
    slot: dict[str, Json] = {"slot": "tools"}
    around = {"before": found.slice(heading.end, fence.start), "after": found.slice(fence.end, end)}
    slots.append((heading.start, end, slot | {key: text for key, text in around.items() if text}))
    return Said(fence.code, *place)


def _check_code(fence: Fence, place: tuple[int, int], startup: str, reader: Reader) -> None:
    if not _RETURN.search(fence.code):
        hint = "end it with: return { name: { fn, scheme } };"
        reader.error(place, "tools", "the code under `## Tools` returns nothing", hint)
    elif startup and not names_tool(fence.code, startup):
        said = f"required.startup is {startup!r}, but the code under `## Tools` (line {place[0]}) has no such tool"
        where = reader.position("required.startup")
        reader.error(
            where, "required.startup", said, "tool names are compared in any case, but must otherwise be the same"
        )


def names_tool(code: str, name: str) -> bool:
    """Whether the code mentions `name` as a whole word, in any case."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", code, re.IGNORECASE) is not None


def _layout(found: Outline, slots: Slots) -> list[Json] | None:
    """The body from top to bottom; None when it is no more than the known pieces in the plain order."""
    layout: list[Json] = []
    line = 0
    for start, end, slot in [*sorted(slots, key=lambda each: each[0]), (len(found.lines), 0, {})]:
        text = found.slice(line, start)
        if text:
            layout.append(text)
        if slot:
            layout.append(slot)
        line = end
    plain: list[Json] = [{"slot": key} for key in ORDER]
    if layout == [each for each in plain if each in layout]:
        return None
    return layout
