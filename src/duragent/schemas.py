"""Every JSON Schema the project publishes, by name: made from the field tables the checks use."""

from duragent.agent import Json
from duragent.config import SCHEMA as CONFIG
from duragent.formats import open_format
from duragent.formats.skills import SCHEMA as SKILL

_FORMATS = {
    "agent": "duragent",
    "policy": "duragent",
    "agentspec": "agentspec",
    "agentdir-schedule": "agentdir",
    "agentdir-tool": "agentdir",
    "agentmd": "agentmd",
}
NAMES = ("agent", "policy", "config", "agentspec", "agentdir-schedule", "agentdir-tool", "agentmd", "skill")


def schema(name: str) -> dict[str, Json]:
    if name == "config":
        return dict(CONFIG)
    if name == "skill":
        return dict(SKILL)
    return dict(open_format(_FORMATS[name]).SCHEMAS[name])
