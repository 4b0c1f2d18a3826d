"""Which skill is in use, and how the model is told of one.

Pure: an agent and its session in, a skill or a text out. Owns what a trigger's pattern means and how a skill's page
looks to the model. Knows no files: sizes come as an argument, and packages are read by `tools/skills.py`.

A new way to activate a skill: a line in `active`.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from duragent.agent import Agent, Skill
from duragent.core.session import Message, Session

MAX_BODY = 65_536
"""Characters of a skill's instructions that the model is shown at once."""
MAX_LISTED = 100


def active(agent: Agent, session: Session) -> tuple[Skill, ...]:
    """The skills in use now: the one that the message of this turn calls for, and the one that was loaded since. All
    of them narrow what may be called, so that loading another one is no way out."""
    called = triggered(agent, session) if agent.triggers else None
    loaded = find(agent, session.skill) if session.skill else None
    return tuple(skill for skill in (called, loaded) if skill is not None)


def triggered(agent: Agent, session: Session) -> Skill | None:
    """The skill whose trigger fits the message that this turn answers; of several triggers the first one."""
    message = _answered(session)
    if message is None or message.automatic:  # what a process printed calls for nothing
        return None
    for trigger in agent.triggers:
        if fitting(trigger.pattern, message.content) and (skill := find(agent, trigger.skill)) is not None:
            return skill
    return None


def find(agent: Agent, name: str) -> Skill | None:
    """The skill of this name, if it is here: one behind an address is not until it was approved and read."""
    return next((skill for skill in agent.skills if skill.name == name and not absent(skill)), None)


def absent(skill: Skill) -> bool:
    """Whether only the address of a skill is known."""
    return "://" in skill.path


def offered(agent: Agent) -> tuple[Skill, ...]:
    """The skills that a model may load by itself."""
    return tuple(s for s in agent.skills if s.model_may_invoke and s.kind != "persona" and not absent(s))


def _answered(session: Session) -> Message | None:
    """The message this turn answers. Looked for from the end, so that a long session costs no more than a short one."""
    for message in reversed(session.messages):
        if message.role == "user" and message.seq <= session.turn_seq:
            return message if message.seq == session.turn_seq else None
    return None


def fitting(pattern: str, text: str) -> bool:
    """Whether a glob fits a whole message: `*` is any text, `?` one character, upper and lower case are the same, white
    space around either does not count, and inside any of it is one space. Each piece between stars is taken where it
    first occurs, and never again: the time grows with the text and not with the ways to fit it."""
    first, middle, last = _pieces(" ".join(pattern.split()))
    text = " ".join(text.split())
    if last is None:
        return first.fullmatch(text) is not None
    found = first.match(text)
    if found is None:
        return False
    at = found.end()
    for piece in middle:
        if (found := piece.search(text, at)) is None:
            return False
        at = found.end()
    rest, piece = last
    return len(text) - rest >= at and piece.fullmatch(text, len(text) - rest) is not None


_Piece = re.Pattern[str]


@lru_cache(maxsize=256)
def _pieces(pattern: str) -> tuple[_Piece, tuple[_Piece, ...], tuple[int, _Piece] | None]:
    """A glob, cut at its stars: its beginning, what lies between, and the length and text of its end. A glob without a
    star has no end."""
    parts = pattern.split("*")
    made = [re.compile("".join("." if c == "?" else re.escape(c) for c in p), re.I | re.S) for p in parts]
    return made[0], tuple(made[1:-1]), (len(parts[-1]), made[-1]) if len(parts) > 1 else None


def told(skill: Skill) -> str:
    """What the model is shown of a skill that the person's message activated."""
    return f"## Skill in use: {skill.name}\nThe message you answer calls for this skill. Follow it.\n\n{page(skill)}"


def page(skill: Skill, sizes: Mapping[str, int] | None = None) -> str:
    """A skill's instructions, and the files that come with it. `sizes` are the bytes of those whose size is known."""
    body = skill.body.strip() or "(This skill has no instructions.)"
    if len(body) > MAX_BODY:
        body = f"{body[:MAX_BODY]}\n[Cut here: {len(body) - MAX_BODY:,} further characters are not shown.]"
    scripts = [name for name in skill.files if name.startswith("scripts/")]
    others = [name for name in skill.files if not name.startswith("scripts/")]
    parts = [body]
    if others:
        how = f'Files of this skill; read one with skill {{"action": "read", "name": "{skill.name}", "file": …}}:'
        parts.append(_listed(how, others, sizes or {}))
    if scripts:
        how = f'Scripts of this skill; run one with skill {{"action": "run", "name": "{skill.name}", "script": …}}:'
        parts.append(_listed(how, scripts, sizes or {}))
    return "\n\n".join(parts)


def _listed(how: str, names: list[str], sizes: Mapping[str, int]) -> str:
    lines = [f"- {name} ({sizes[name]:,} bytes)" if name in sizes else f"- {name}" for name in names[:MAX_LISTED]]
    more = [f"- and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
    return "\n".join([how, *lines, *more])
