"""Arguments that an action does not have.

Tools with several actions show the model one flat schema, which cannot say which argument belongs to which action. A
rule, and the person who is asked, may see one argument while another one does the work: what means nothing for an
action is therefore refused before anything happens. Owns those words; each tool has its own table.
"""

from collections.abc import Collection, Mapping
from typing import Any

from duragent.agent import Json


def stray(permitted: Mapping[str, Collection[str]], parameters: Mapping[str, Json], arguments: dict[str, Any]) -> str:
    """What is to be said about arguments that do not belong to the action; nothing where all do.

    Some models fill in every field: what is empty, or says what holds anyway, does no harm.
    """
    action = str(arguments.get("action"))
    if action not in permitted:  # what is said about that is the tool's
        return ""
    listed = parameters.get("properties")
    properties = listed if isinstance(listed, dict) else {}
    found = [
        f"`{name}`"
        for name, value in arguments.items()
        if name != "action" and name not in permitted[action] and not _is_idle(value, properties.get(name))
    ]
    if not found:
        return ""
    if len(found) == 1:
        return f"For {action}, {found[0]} means nothing; leave it out."
    return f"For {action}, {', '.join(found[:-1])} and {found[-1]} mean nothing; leave them out."


def _is_idle(value: object, parameter: Json) -> bool:
    default = parameter.get("default") if isinstance(parameter, dict) else None
    return value is None or value == "" or (default is not None and value == default)
