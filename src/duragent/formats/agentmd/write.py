"""Writes an agent as `.agent.md`: the header first, then the body from the model.

Texts from other formats may hold headings or leave a fence open, either of which would tear the file
apart when it is read; they are changed as little as keeps it whole, and a note says so.
"""

import re
from collections.abc import Mapping

from duragent.agent import Agent, InlineTools, Json, ModelRef, sentence, spoken
from duragent.formats.agentmd.abilities import render_abilities
from duragent.formats.agentmd.body import ORDER, names_tool
from duragent.formats.agentmd.commands import render_commands
from duragent.formats.agentmd.headings import deepen, fenced, outline, seal, trim
from duragent.formats.markdown import with_header
from duragent.formats.shape import Rendered, is_address
from duragent.formats.write import laid_over, said

_UNSAFE = re.compile(r'[\x00-\x1f\x7f/\\<>:"|?*]+')
_OWN = ("body", "commands")


def build(agent: Agent, kept: Mapping[str, Json]) -> Rendered:
    """The files of an agent. `kept` is `extra["agentmd"]`, or as much of it as may be used."""
    notes: dict[str, str] = {}
    layout: list[Json] = list(kept.get("body", [{"slot": slot} for slot in ORDER]))
    pieces = _pieces(agent, layout, notes)
    entries, files, unsaid = render_commands(agent.commands, kept.get("commands", {}))
    if unsaid:
        notes["commands"] = f"not a name that a command can have here: {', '.join(unsaid)}"
    header = _header(agent, pieces, notes)
    if entries:
        header["commands"] = entries
    header |= render_abilities(agent.abilities)
    header = laid_over(header, {key: value for key, value in kept.items() if key not in _OWN})
    text = with_header(header, _body(layout, pieces, notes))
    if not header and text.lstrip().startswith("---"):  # the text's own rule would be taken for a header
        text = f"---\n---\n\n{text}"
    entry = file_name(agent)
    return Rendered(entry, {entry: text} | files, notes=notes)


def file_name(agent: Agent) -> str:
    category = _UNSAFE.sub("-", agent.labels.get("category", "")).replace("_", "-") or "general"
    return f"{category[:80]}_{_UNSAFE.sub('-', agent.name)[:120] or 'agent'}.agent.md"


def _pieces(agent: Agent, layout: list[Json], notes: dict[str, str]) -> dict[str, str]:
    """The known pieces of the body that can be written there, by slot."""
    slots = [each["slot"] for each in layout if isinstance(each, Mapping)]
    pieces: dict[str, str] = {}
    if agent.title and "title" in slots and _is_heading(agent.title):
        pieces["title"] = f"# {agent.title}"
        if agent.description and "description" in slots and _is_lead(pieces["title"], agent.description):
            pieces["description"] = agent.description
    parts = spoken(agent.prompt)
    system = "\n\n".join(sentence(part) for part in parts if part.kind != "rules")
    rules = "\n\n".join(sentence(part) for part in parts if part.kind == "rules")
    # What the format falls back to need not be said again.
    said_anyway = trim(system.split("\n")) == (agent.description or agent.title)
    if said_anyway and ("system" not in slots or slots == list(ORDER)):
        system = ""
    for slot, text in (("system", system), ("rules", rules)):
        if trim(text.split("\n")):
            pieces[slot] = _section(text, notes)
    if len([part for part in parts if part.kind != "rules"]) > 1:
        notes.setdefault("prompt", "all parts but the rules are joined under ## System")
    code = next((tool for tool in agent.tools if isinstance(tool, InlineTools) and tool.language == "js"), None)
    if code is not None:
        pieces["tools"] = code.source
    return pieces


def _section(text: str, notes: dict[str, str]) -> str:
    text = trim(text.split("\n"))
    deeper = deepen(text, 3)
    if deeper != text:
        notes["prompt"] = "headings are moved below ## System and ## Rules, which are headings themselves"
    return deeper


def _is_heading(title: str) -> bool:
    found = outline(f"# {title}")
    heading = found.title()
    return heading is not None and len(found.lines) == 1 and heading.text == title


def _is_lead(heading: str, description: str) -> bool:
    """Whether the description, written below the title, is read back as it is."""
    found = outline(f"{heading}\n\n{description}\n\n# end")
    title = found.title()
    lead = found.lead(title) if title else None
    end = len(found.lines) - 1
    whole = lead is not None and lead.start == 2 and lead.end == end - 1 and lead.text == description
    return whole and len(found.headings) == 2 and found.headings[1].start == end


def _body(layout: list[Json], pieces: Mapping[str, str], notes: dict[str, str]) -> str:
    parts: list[str] = []
    written = set()
    slots: list[Json] = [{"slot": slot} for slot in ORDER if slot not in ("title", "description")]
    for each in [*layout, *slots]:
        if isinstance(each, str):
            parts.append(each)
            continue
        slot = each["slot"]
        if slot in written or slot not in pieces:
            continue
        written.add(slot)
        if slot == "tools":
            code = [each.get("before"), fenced(pieces["tools"], "js"), each.get("after")]
            parts += ["## Tools", *(part for part in code if part)]
        elif slot in ("system", "rules"):
            parts += [f"## {slot.title()}", pieces[slot]]
        else:
            parts.append(pieces[slot])
    closed = [seal(part, last=index == len(parts) - 1) for index, part in enumerate(parts)]
    if closed != parts:
        notes["prompt"] = "a text that leaves a block open is closed, so that the sections after it are found"
    return "\n\n".join(closed)


def _header(agent: Agent, pieces: Mapping[str, str], notes: dict[str, str]) -> dict[str, Json]:
    models = [_model(each) for each in agent.model.candidates]
    recommended = {"models": models, "capabilities": list(agent.model.capabilities)}
    required: dict[str, Json] = {"env": list(agent.startup.env)}
    tool = agent.startup.tool
    if tool and names_tool(pieces.get("tools", ""), tool):
        required["startup"] = tool
    elif tool:
        notes["startup.tool"] = "the tool that runs at the start must be written in JavaScript under ## Tools"
    header: dict[str, Json] = {
        "version": agent.version if agent.version != "0.1.0" else None,
        "icon": agent.icon if agent.icon != "🤖" else None,
        "title": agent.title if "title" not in pieces else None,
        "description": agent.description if "description" not in pieces else None,
        "status": agent.status if agent.status != "active" else None,
        "avatar": agent.avatar,
        "templateEngine": "" if _no_templates(agent) else None,
        "input": agent.input,
        "recommended": said(recommended) or None,
        "required": said(required) or None,
    }
    return {key: value for key, value in header.items() if value is not None}


def _model(model: ModelRef) -> str:
    return f"{model.provider}/{model.name}" if model.provider or "/" in model.name else model.name


def _no_templates(agent: Agent) -> bool:
    """Whether the texts hold what looks like a template but must be left alone."""
    texts = [part.text for part in agent.prompt] + [each.body for each in agent.commands]
    fetched = any(each.source and is_address(each.source) for each in agent.commands)
    return agent.templates != "hbs" and (fetched or any("{{" in text for text in texts))
