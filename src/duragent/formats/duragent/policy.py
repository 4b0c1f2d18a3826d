"""One policy file: policy.yaml or policy.local.yaml. A broken one is an error, never an absent one."""

import re
from typing import Any

from msgspec import convert

from duragent.agent import Notify, PolicyTier
from duragent.formats.duragent.fields import POLICY
from duragent.formats.reader import BAD, Reader, read_yaml
from duragent.formats.shape import Absent, Entry, File, absence

_RULE = re.compile(r"(?:bash|builtin|cli|mcp|script|\*):.*", re.DOTALL)


def read_policy(entry: Entry, reader: Reader) -> PolicyTier | None:
    """The rules in a file, or None with the reasons in `reader`."""
    if not isinstance(entry, File):
        why = entry if isinstance(entry, Absent) else Absent("folder")
        reader.problems.append(absence("error", reader.file, why, file=reader.file, line=1, column=1, at=""))
        return None
    node = read_yaml(reader, entry.text, "1.2")
    if node is None and reader.ok():
        reader.warning((1, 1), "", "the policy is empty: it decides nothing", "add `mode:`, `allow:` or `deny:`")
    said: Any = POLICY.read(node, "", reader) if node is not None else {}
    if said is BAD:
        return None
    for kind in ("allow", "deny"):
        for index, rule in enumerate(said.get(kind, ())):
            if not _RULE.fullmatch(rule):
                at = f"{kind}[{index}]"
                text = f"the rule {rule!r} names no sort of tool; it matches any"
                reader.warning(reader.position(at), at, text, "begin with bash:, builtin:, cli:, mcp: or *:")
    if not reader.ok():
        return None
    notify = said.get("notify")
    return PolicyTier(
        mode=said.get("mode"),
        allow=tuple(said.get("allow", ())),
        deny=tuple(said.get("deny", ())),
        notify=convert(notify, Notify) if notify is not None else None,
    )
