"""Template variables in Duragent prose: `${date}` of the format document and `{{date}}` of later versions.

Recognised and checked here; filled in when a prompt is built. Text that merely looks like a variable
(`${HOME}` in a shell example) is left alone.
"""

import re

from duragent.formats.reader import did_you_mean
from duragent.formats.yaml import position

DOLLAR = ("user.name", "user.timezone", "date", "time", "duragent.data_dir")
BRACES = ("date", "time", "agent.name", "agent.home")
_OURS = ("user", "duragent", "agent")
_VARIABLE = re.compile(r"\$\{([^}\n]{1,60})\}|\{\{([^}\n]{1,60})\}\}")

Doubt = tuple[int, int, str, str]


def check_variables(text: str) -> tuple[bool, list[Doubt]]:
    """Whether the text uses a variable, and every near miss as (line, column, as written, hint)."""
    used = False
    doubts: list[Doubt] = []
    for found in _VARIABLE.finditer(text):
        dollar, braces = found.groups()
        name = (dollar or braces).strip()
        known = DOLLAR if dollar else BRACES
        if name in known:
            used = True
        elif name.partition(".")[0] in _OURS or did_you_mean(name, known):
            hint = did_you_mean(name, known) or "known: " + ", ".join(known)
            doubts.append((*position(text, found.start()), found[0], hint))
    return used, doubts
