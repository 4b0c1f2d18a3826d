"""The `session` tool: an agent looks at its other conversations in the same place.

Owns what of a session another one may see. The same place is the same chat: a group never reads a direct
conversation, and the owner's sessions (terminal, HTTP) see only each other. Sessions come from the runtime through
`Host.door`; nothing here reads a log, and nothing here can change one. What may not be seen is answered like what is
not there.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.json import encode

from duragent.agent import Json
from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.core.session import Session
from duragent.errors import DuragentError
from duragent.tools import Scene, Tool
from duragent.tools.host import Door, Host
from duragent.tools.strays import stray

LISTED = 10
CHARACTERS = 500
_DESCRIPTION = """\
Your other sessions in this same chat (or, at the terminal, your other sessions there).
list: the 10 newest that have not ended.
read: the last `limit` messages of `session_id` (20), each cut at 500 characters."""
_PERMITTED: Mapping[str, tuple[str, ...]] = {"list": (), "read": ("session_id", "limit")}
_PARAMETERS: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "action": {"enum": ["list", "read"]},
        "session_id": {"type": "string", "maxLength": 200, "description": "read: which session, as `list` names it"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50, "description": "read: how many; 20 if left out"},
    },
    "required": ["action"],
    "additionalProperties": False,
}


class Listed(Struct, frozen=True, omit_defaults=True):
    """One line of `list`. `begins` is what was said first."""

    session_id: str
    status: str
    created_at: str
    updated_at: str
    messages: int
    begins: str
    this: bool = False


def make(host: Host) -> Tool:
    """The tool of one agent."""

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        if wrong := stray(_PERMITTED, _PARAMETERS, arguments):
            return ToolAnswer(False, wrong)
        if host.door is None:
            return ToolAnswer(False, "There are no sessions to look at here.")
        if arguments["action"] == "list":
            return _list(await host.door.siblings(host.agent.name, scene.gateway, scene.chat_id, LISTED), scene)
        session_id = arguments.get("session_id") or ""
        if not session_id:
            return ToolAnswer(False, "read needs session_id: take one that `list` names.")
        session = await _seen(host.door, session_id, host.agent.name, scene)
        if session is None:
            text = f"There is no session {session_id[:100]!r} that can be read from here. `list` names those that can."
            return ToolAnswer(False, text)
        return _read(session, arguments.get("limit", 20))

    spec = ToolSpec(
        name="session",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        kind="builtin",
        effect="pure",
        parallel_safe=True,
        quiet=("*",),
        detail=("session_id",),
    )
    return Tool(spec, run)


async def _seen(door: Door, session_id: str, agent: str, scene: Scene) -> Session | None:
    """A session, if it is this agent's and at this place."""
    try:
        session = await door.session(session_id)
    except DuragentError:  # also a damaged one: whose it is cannot be known
        return None
    mine = (agent, scene.gateway, scene.chat_id)
    return session if (session.agent, session.gateway, session.gateway_chat_id) == mine else None


def _list(found: list[tuple[str, Session]], scene: Scene) -> ToolAnswer:
    lines = [
        Listed(
            session_id,
            session.status,
            session.created_at,
            session.updated_at,
            len(session.messages),
            _cut(session.messages[0].content, 100) if session.messages else "",
            this=session_id == scene.session_id,
        )
        for session_id, session in found
    ]
    return ToolAnswer(True, encode(lines).decode())


def _read(session: Session, limit: int) -> ToolAnswer:
    said = [message for message in session.messages if message.content.strip()][-limit:]
    lines = [f"{message.sender or message.role}: {_cut(message.content, CHARACTERS)}" for message in said]
    return ToolAnswer(True, "\n\n".join(lines) or "Nothing has been said in this session.")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"
