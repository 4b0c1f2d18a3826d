"""May this call run? Deny beats allow; what matches neither is decided by the mode.

Pure: a policy, what the tool is, and one exact call in, a verdict with the rule that decided out.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Literal

from msgspec import Struct
from msgspec.json import Encoder

from duragent.agent import Json, Policy
from duragent.core.events import ToolCall

Effect = Literal["pure", "repeatable", "once", "unknown"]


class ToolSpec(Struct, frozen=True):
    """What a tool is, as far as deciding about its calls and telling a model of it needs.

    `effect` says what a call that was cut off means: `pure` and `repeatable` ones may run again by themselves,
    `once` ones only when a person says so, of all others the model is told that the outcome is unknown.
    `unruled` is the verdict where no policy file says a mode.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Json] = {}  # a JSON Schema; {} for a tool without parameters
    kind: Literal["builtin", "cli", "mcp", "function", "script"] = "builtin"
    effect: Effect = "unknown"
    parallel_safe: bool = False
    unruled: Literal["allow", "ask"] = "ask"
    effects: Mapping[str, Effect] = {}  # by `action`, where its actions differ
    line: str = ""  # the argument that is a command line for a shell: bash rules speak of it
    detail: tuple[str, ...] = ()  # arguments whose text a rule may speak of; the first that is given counts
    quiet: tuple[str, ...] = ()  # actions ("*": all) that touch only the agent's own: asked about in no mode
    needs: tuple[Literal["sh", "network", "fs", "tool", "mcp", "browser"], ...] = ()
    subject: str = ""  # how rules name it, where that is not `kind:name`: `mcp:server:tool`


class Verdict(Struct, frozen=True):
    """`rule` is the pattern, or the mode, that decided."""

    verdict: Literal["allow", "ask", "deny"]
    rule: str


_encode = Encoder(order="deterministic").encode
_MODES: Mapping[str, Literal["allow", "ask", "deny"]] = {"dangerous": "allow", "ask": "ask", "restrict": "deny"}


def judge(policy: Policy, spec: ToolSpec, call: ToolCall) -> Verdict:
    """The verdict about one exact call."""
    tiers = [tier for tier in (policy.local, policy.agent) if tier is not None]
    subjects = _subjects(spec, call)
    for tier in tiers:
        for pattern in tier.deny:
            if _matches(pattern, subjects):
                return Verdict("deny", pattern)
    for tier in tiers:
        for pattern in tier.allow:
            if _matches(pattern, subjects):
                return Verdict("allow", pattern)
    mode = next((tier.mode for tier in tiers if tier.mode is not None), None)
    if mode is None:
        return Verdict(spec.unruled, "no policy says a mode")
    return Verdict(_MODES[mode], f"mode: {mode}")


def words(call: ToolCall) -> tuple[str, ...] | None:
    """The arguments of a program, one by one: what is judged is what runs. None where they are no list of texts."""
    given = call.arguments.get("args", []) if isinstance(call.arguments, dict) else None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return None
    return tuple(given)


def _subjects(spec: ToolSpec, call: ToolCall) -> tuple[str, ...]:
    """What rules speak of: the tool, and for a program also the whole line."""
    tool = f"{'builtin' if spec.kind == 'function' else spec.kind}:{spec.name}"
    line = words(call) if spec.kind == "cli" else None
    return (tool, " ".join([tool, *line])) if line else (tool,)


def _matches(pattern: str, subjects: tuple[str, ...]) -> bool:
    whole = pattern if ":" in pattern else f"*:{pattern}"
    return any(fnmatchcase(subject, whole) for subject in subjects)


def digest(call: ToolCall) -> str:
    """A short name for exactly this call: an approval is for these arguments and no others."""
    return sha256(_encode([call.tool_name, call.arguments])).hexdigest()[:16]


def command(call: ToolCall) -> str:
    """The call as a person reads it when asked."""
    return f"{call.tool_name} {_encode(call.arguments or {}).decode()}"
