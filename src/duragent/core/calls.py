"""One call of a tool, as rules speak of it and as a person reads it. What a tool is stands in its `ToolSpec`.

Pure text: nothing here decides. `command` shows everything a call says, since whoever approves it approves all of it;
`exactly` is a rule's text for this call and no other.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from hashlib import sha256
from shlex import join
from typing import Literal

from msgspec import Struct
from msgspec.json import Encoder

from duragent.agent import Json
from duragent.core.events import ToolCall
from duragent.core.lines import Line, denied_texts

Effect = Literal["pure", "repeatable", "once", "unknown"]
RUNS = "spawn"
"""The action that runs the line of a tool with several actions."""


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


_encode = Encoder(order="deterministic").encode
_ACTION = re.compile(r"[A-Za-z0-9_-]*")
_QUOTES = re.compile(r"['\"\\]")
_BARE = re.compile(r"[A-Za-z0-9_@%+:,./-]+")
HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\xa0\u00ad\u034f\u0600-\u0605\u061c\u115f\u1160\u1680\u17b4\u17b5"
                    r"\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\udfff"
                    r"\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U0001d173-\U0001d17a\U000e0000-\U000e007f"
                    r"\U000e0100-\U000e01ef]")  # fmt: skip
"""Letters that cannot be seen, or that pass for a blank."""


def needs_of(spec: ToolSpec) -> set[str]:
    """The abilities a tool needs, also those its kind implies."""
    implied = {"cli": "tool", "mcp": "mcp"}.get(spec.kind)
    return {*spec.needs, *((implied,) if implied else ()), *(("sh",) if spec.line else ())}


def kind_of(spec: ToolSpec) -> str:
    return "builtin" if spec.kind == "function" else spec.kind


def arguments_of(call: ToolCall) -> Mapping[str, Json]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def action_of(call: ToolCall) -> str:
    action = arguments_of(call).get("action")
    return action if isinstance(action, str) and _ACTION.fullmatch(action) else ""


def runs_line(spec: ToolSpec, call: ToolCall) -> bool:
    """Whether a call hands a line to a shell. Of a tool with several actions only one does."""
    if not spec.line or spec.line not in arguments_of(call):
        return False
    return not _acts(spec) or arguments_of(call).get("action", RUNS) == RUNS


def _acts(spec: ToolSpec) -> bool:
    """Whether a tool has several actions."""
    return bool(spec.quiet or spec.effects)


def text_of_line(spec: ToolSpec, call: ToolCall) -> str:
    """The line that a call hands to a shell; "" where it hands none."""
    text = arguments_of(call).get(spec.line) if runs_line(spec, call) else None
    return text if isinstance(text, str) else ""


def beside_line(spec: ToolSpec, call: ToolCall) -> dict[str, Json]:
    """All that a call says beside its line."""
    silent = {spec.line, "action"} if _acts(spec) else {spec.line}
    return {name: value for name, value in arguments_of(call).items() if name not in silent}


def detail_of(spec: ToolSpec, call: ToolCall) -> str:
    arguments = arguments_of(call)
    return next((str(arguments[name]) for name in spec.detail if arguments.get(name) not in (None, "")), "")


def _named(spec: ToolSpec) -> str:
    """The tool as rules name it, without its type."""
    return spec.subject.partition(":")[2] if spec.subject else spec.name


def subjects(spec: ToolSpec, call: ToolCall, loosely: bool = False) -> tuple[str, ...]:
    """What rules speak of: the tool, its action, and either with what the call says. Deny rules look `loosely`."""
    name, action = _named(spec), action_of(call) if spec.kind in ("builtin", "function") else ""
    if spec.kind == "cli":
        line = words(call)
        more = not arguments_of(call).keys() <= {"args"}  # what is said beside the words, the words do not cover
        said = [join(line), *((" ".join(line),) if loosely else ())] if line and (loosely or not more) else []
        said += [as_json(call)] if more or not line else []
        return (name, *(f"{name} {each}" for each in dict.fromkeys(said)))
    detail = detail_of(spec, call)
    detail = "" if detail[:1] == "{" and not loosely else detail  # or it could pass for the whole of another call
    said = list(dict.fromkeys(each for each in (detail, as_json(call)) if each))
    names = [name, f"{name}:{action}"] if action else [name]
    return (*names, *(f"{each} {text}" for each in names for text in said))


def exactly(spec: ToolSpec, call: ToolCall) -> str:
    """The text of a rule that means this call alone: all it says, since a part of it may stand in others too."""
    name, action = _named(spec), action_of(call) if spec.kind in ("builtin", "function") else ""
    if spec.kind == "cli" and (line := words(call)) and arguments_of(call).keys() <= {"args"}:
        return f"{name} {join(line)}"
    return f"{name}:{action} {as_json(call)}" if action else f"{name} {as_json(call)}"


def as_json(call: ToolCall) -> str:
    return _encode(call.arguments or {}).decode()


def seen(line: Line, quotes: bool = True) -> tuple[str, ...]:
    """Every text of a line that a deny rule may have meant."""
    commands = [text for command in line.commands for text in denied_texts(command, quotes)]
    redirects = [f" {sign} {each.target}" for each in line.redirects for sign in {each.operator, ">"}]
    return (*commands, *redirects)


def raw_texts(spec: ToolSpec, call: ToolCall) -> tuple[str, ...]:
    """What is written, for tools that hand text to a shell: as it is, without look-alikes and odd blanks, and without
    quotes, which somebody else may take away."""
    if not spec.line:
        return ()
    found: dict[str, None] = {}
    for name, value in arguments_of(call).items():
        for text in () if name == "action" else _texts(value):
            plain = _plain(text)
            found[text] = found[plain] = None
            if _QUOTES.search(plain):
                found[_QUOTES.sub("", plain)] = None
    return tuple(found)


def _texts(value: Json) -> Iterator[str]:
    """Every text in a value, and lists of texts also as one."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
        parts = [each for each in value if isinstance(each, str)]
        yield from (" ".join(parts), "".join(parts)) if len(parts) > 1 else ()


def _plain(text: str) -> str:
    shown = text if text.isascii() and text.isprintable() else _unhidden(text)
    return " ".join(shown.split())


def _unhidden(text: str) -> str:
    """Odd blanks become plain ones before all that cannot be seen goes."""
    return HIDDEN.sub("", unicodedata.normalize("NFKC", text).replace("\u1680", " "))


def words(call: ToolCall) -> tuple[str, ...] | None:
    """The arguments of a program, one by one: what is judged is what runs. None where they are no list of texts."""
    given = call.arguments.get("args", []) if isinstance(call.arguments, dict) else None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return None
    return tuple(given)


def effect_of(spec: ToolSpec, call: ToolCall) -> Effect:
    """What a call that was cut off means."""
    return spec.effects.get(action_of(call), spec.effect) if spec.effects else spec.effect


def digest(call: ToolCall) -> str:
    """A short name for exactly this call: an approval is for these arguments and no others."""
    return sha256(_encode([call.tool_name, call.arguments])).hexdigest()[:16]


def command(spec: ToolSpec, call: ToolCall) -> str:
    """The call as a person reads it when asked: whole, and with nothing in it that cannot be seen. What it says beside
    a line stands in brackets on a last line of its own, which no line of a script can pass for."""
    text = text_of_line(spec, call)
    if text:
        others = " ".join(f"{name}={_value(value)}" for name, value in sorted(beside_line(spec, call).items()))
        imitates = text.rstrip().rpartition("\n")[2].lstrip().startswith("[") and "\n" in text.strip()
        text += f"\n[{others}]" if others else "\n[nothing else]" if imitates else ""
    elif spec.kind == "cli" and (line := words(call)) is not None and arguments_of(call).keys() <= {"args"}:
        text = join((spec.name, *line))
    else:
        text = f"{call.tool_name} {as_json(call)}"
    return HIDDEN.sub(_escaped, text)


def _value(value: Json) -> str:
    return value if isinstance(value, str) and _BARE.fullmatch(value) else _encode(value).decode()


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
