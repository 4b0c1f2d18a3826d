"""May this call run? Trust and abilities first, then deny, then allow; what is left is decided by the mode.

A `Judge` compiles the rules of one agent once. Tiers from the most to the least specific are the owner's local file,
the agent's own and the workspace's; deny and allow accumulate, and the first tier that says a mode decides it.
Tools that run a shell line are judged by what the line runs (`shell.py`); what cannot be read is never allowed by a
rule with a star. Pure: an agent, what the tool is and one exact call in; a verdict with the rule that decided out.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from shlex import join
from typing import Literal

from msgspec import Struct
from msgspec.json import Encoder

from duragent.agent import Agent, Json, Notify, Origin, PolicyTier, Skill
from duragent.core import load_arguments, load_shell
from duragent.core.events import ToolCall
from duragent.core.lines import Line, Shelf, denied_texts, is_free, obstacle, refused
from duragent.core.narrowing import Barred, Narrowed, barred_by_abilities, barred_by_trust
from duragent.core.patterns import Rule, compile_rule, escape

Effect = Literal["pure", "repeatable", "once", "unknown"]
Mode = Literal["dangerous", "ask", "restrict"]


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
    """`rule` is the pattern, the mode or whatever else decided; `origin` is where it was written."""

    verdict: Literal["allow", "ask", "deny"]
    rule: str
    origin: Origin | None = None
    why: str = ""


_encode = Encoder(order="deterministic").encode
_MODES: Mapping[Mode, Literal["allow", "ask", "deny"]] = {"dangerous": "allow", "ask": "ask", "restrict": "deny"}
_NO_MODE = "no policy says a mode"
_UNRULED = {"allow": Verdict("allow", _NO_MODE), "ask": Verdict("ask", _NO_MODE)}
_OWN = "it touches only what is the agent's own"
_TYPED = ("write", "send_keys")
_REMEMBERED = 256
_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u115f\u1160\u200b-\u200f\u2028-\u202f\u2060-\u206f"
                     r"\u2800\u3164\ufeff\uffa0\ud800-\udfff\U000e0000-\U000e007f]")  # fmt: skip


class Judge:
    """Decides about the calls of one agent. `patience` is how long a question waits; it is only kept here."""

    def __init__(self, agent: Agent, *, workdir: str = "", patience: timedelta | None = None) -> None:
        self.agent, self.workdir, self.patience = agent, workdir, patience
        self._origins = agent.origins
        tiers = [(name, tier) for name, tier in _tiers(agent) if tier is not None]
        self._deny = [rule for name, tier in tiers for rule in self._compiled(name, "deny", tier.deny)]
        self._allow = [rule for name, tier in tiers for rule in self._compiled(name, "allow", tier.allow)]
        self._mode, self._fallen = self._mode_of(tiers)
        self._notify = [(tier.notify, [compile_rule(each) for each in tier.notify.patterns])
                        for _, tier in tiers if tier.notify is not None and tier.notify.enabled]  # fmt: skip
        self._open = not self._deny and not self._allow and agent.trust is None and agent.abilities is None
        self._bash = self._shelved()
        self._denies = {rule.type for rule in self._deny}
        self._denies_quotes = any(rule.quotes for rule in self._deny)
        self._read: Callable[[str], Line] | None = None
        self._literals: dict[str, Rule] = {}
        self._lines: dict[str, Line] = {}
        self._checked: dict[str, tuple[ToolSpec, Json]] = {}
        self._narrowed: dict[str, Narrowed] = {}
        for rule in self._allow:
            self._remember_literal(rule)

    def _shelved(self) -> Shelf:
        return Shelf([rule for rule in self._allow if rule.speaks_of("bash")])

    def _compiled(self, tier: str, kind: str, rules: Sequence[str]) -> Iterator[Rule]:
        for index, text in enumerate(rules):
            yield compile_rule(text, self._origins.get(f"policy.{tier}.{kind}[{index}]"))

    def _mode_of(self, tiers: Sequence[tuple[str, PolicyTier]]) -> tuple[Mode | None, Verdict | None]:
        for name, tier in tiers:
            if tier.mode is not None:
                origin = self._origins.get(f"policy.{name}.mode")
                return tier.mode, Verdict(_MODES[tier.mode], f"mode: {tier.mode}", origin)
        return None, None

    def _remember_literal(self, rule: Rule) -> None:
        """A rule without a star also allows the whole line that it is, letter by letter."""
        if rule.literal is not None and rule.type == "bash":
            self._literals.setdefault(rule.literal, rule)

    def allow(self, rule: str, origin: Origin | None = None) -> None:
        """Add a rule while we run; it holds at once."""
        compiled = compile_rule(rule, origin)
        self._allow.append(compiled)
        self._bash = self._shelved()
        self._remember_literal(compiled)
        self._open = False

    def verdict(self, spec: ToolSpec, call: ToolCall, skill: Skill | None = None) -> Verdict:
        """The verdict about one exact call."""
        if self._open and skill is None:
            return self._by_mode(spec, call, "", False)
        line = self._line(spec, call)
        found = self._barred(spec, call, line, skill)
        if found is not None:
            return Verdict("deny", found.rule, self._origin(found.key), found.why)
        denied = self._denied(spec, call, line)
        if denied is not None:
            return Verdict("deny", denied.text, denied.origin)
        if line is None:
            allowed, why = self._allowed(spec, call), ""
        else:
            moves = line.moves or bool(_arguments(call).get("workdir"))  # then relative paths lead elsewhere
            allowed, why = self._allowed_line(_text(spec, call), line, moves)
        if allowed is not None:
            return Verdict("allow", allowed.text, allowed.origin)
        return self._by_mode(spec, call, why, line is not None and bool(line.doubts))

    def _by_mode(self, spec: ToolSpec, call: ToolCall, why: str, doubtful: bool) -> Verdict:
        mode, fallen = self._mode, self._fallen
        if spec.quiet and mode in (None, "ask") and ("*" in spec.quiet or _action(call) in spec.quiet):
            return Verdict("allow", _OWN)
        if fallen is None:
            return Verdict("ask", _NO_MODE, None, why) if why else _UNRULED[spec.unruled]
        if mode == "dangerous":
            if doubtful and any(rule.speaks_of("bash") for rule in self._deny):
                return Verdict("ask", "deny rules for bash", None, why)  # nobody can say that none of them is meant
            return fallen
        return Verdict(fallen.verdict, fallen.rule, fallen.origin, why) if why else fallen

    def _origin(self, key: str) -> Origin | None:
        """Where a setting was written; formats differ in how deep they note it."""
        while key and key not in self._origins:
            key = key.rpartition(".")[0]
        return self._origins.get(key) if key else None

    def _barred(self, spec: ToolSpec, call: ToolCall, line: Line | None, skill: Skill | None) -> Barred | None:
        agent = self.agent
        if agent.trust is not None and (found := barred_by_trust(agent.trust, spec.kind, _needs(spec))) is not None:
            return found
        if agent.abilities is not None:
            found = barred_by_abilities(agent.abilities, _needs(spec), line)
            if found is not None:
                return found
        if skill is None or skill.allowed_tools is None:
            return None
        narrowed = self._narrowed.get(skill.name)
        if narrowed is None or narrowed.skill.allowed_tools != skill.allowed_tools:
            narrowed = self._narrowed[skill.name] = Narrowed(skill)
        detail = _detail(spec, call)
        action = _action(call)
        names = (spec.name, spec.subject.replace(":", "__"))
        return narrowed.bars(names, tuple(each for each in (action, detail, f"{action} {detail}") if each), line)

    def _line(self, spec: ToolSpec, call: ToolCall) -> Line | None:
        """What the shell line of a call runs; None where it has none."""
        if not spec.line or not isinstance(call.arguments, dict) or spec.line not in call.arguments:
            return None
        text = call.arguments[spec.line]
        if not isinstance(text, str):
            return Line(doubts=(f"{spec.line} is no text",))
        found = self._lines.get(text)
        if found is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            self._read = self._read or load_shell()
            found = self._lines[text] = self._read(text)
        return found

    def _denied(self, spec: ToolSpec, call: ToolCall, line: Line | None) -> Rule | None:
        if not self._deny:
            return None
        kind = _kind(spec)
        subjects = () if self._denies.isdisjoint(("*", kind)) else _subjects(spec, call, loosely=True)
        raw = _raw_texts(spec, call)
        seen = _seen(line, self._denies_quotes) if line is not None else ()
        said = "\n".join((*subjects, *raw, *seen))
        for rule in self._deny:
            if rule.longest not in said:
                continue  # most rules end here, for the price of one look
            if rule.speaks_of(kind) and any(map(rule.matches, subjects)):
                return rule
            if spec.line and rule.speaks_of("bash"):
                if any(map(rule.matches, seen)):
                    return rule
                if (rule.type == "bash" or line is None or line.doubts) and any(map(rule.occurs_in, raw)):
                    return rule
        return None

    def _allowed(self, spec: ToolSpec, call: ToolCall) -> Rule | None:
        if not self._allow:
            return None
        kind, action, subjects = _kind(spec), _action(call), _subjects(spec, call)
        typed = bool(spec.line) and action in _TYPED
        for rule in self._allow:
            explicit = not typed or any(f":{action}" in piece for piece in rule.pieces)
            if explicit and rule.speaks_of(kind) and any(map(rule.matches, subjects)):
                return rule
        return None

    def _allowed_line(self, text: str, line: Line, moves: bool) -> tuple[Rule | None, str]:
        """The rule that allows a whole line, or why none does."""
        if (rule := self._literals.get(text)) is not None and not _HIDDEN.search(text):
            return rule, ""
        if line.doubts:
            return None, f"this line cannot be read with certainty: {line.doubts[0]}"
        shelf = self._bash
        if shelf.everything is not None and line.commands:
            return shelf.everything, ""
        first: Rule | None = None
        for command in line.commands:
            if is_free(command):
                continue
            found = shelf.covering(command)
            if found is None:
                return None, obstacle(shelf.rules, command)
            first = first or found
        for redirect in line.redirects:
            if why := refused(redirect, self.workdir, moves):
                return None, why
        return first, ""

    def faults(self, spec: ToolSpec, call: ToolCall) -> str:
        """All that is wrong with the arguments, in words for a model; "" where nothing is."""
        if not spec.parameters:
            return ""
        known = self._checked.get(spec.name)
        if known is None or known[0].parameters is not spec.parameters:
            known = self._checked[spec.name] = (spec, load_arguments()(spec.parameters))
        found: str = known[1].faults(call.arguments if call.arguments is not None else {})
        return found

    def exact(self, spec: ToolSpec, call: ToolCall) -> str:
        """A rule that allows exactly this call."""
        if spec.line and (text := _text(spec, call)):
            return f"bash:{escape(text)}"
        return escape(f"{_kind(spec)}:{_exactly(spec, call)}")

    def notified(self, spec: ToolSpec, call: ToolCall) -> tuple[Mapping[str, Json], ...]:
        """Who is told of this call."""
        if not self._notify:
            return ()
        found: list[Mapping[str, Json]] = []
        for notify, rules in self._notify:
            if not rules or any(self._speaks_of(rule, spec, call) for rule in rules):
                found += [each for each in _deliveries(notify) if each not in found]
        return tuple(found)

    def _speaks_of(self, rule: Rule, spec: ToolSpec, call: ToolCall) -> bool:
        if rule.speaks_of(_kind(spec)) and any(map(rule.matches, _subjects(spec, call, loosely=True))):
            return True
        line = self._line(spec, call) if rule.speaks_of("bash") else None
        return line is not None and any(map(rule.matches, (_text(spec, call), *_seen(line))))


def _tiers(agent: Agent) -> tuple[tuple[str, PolicyTier | None], ...]:
    policy = agent.policy
    return ("local", policy.local), ("agent", policy.agent), ("workspace", policy.workspace)


def _deliveries(notify: Notify) -> tuple[Mapping[str, Json], ...]:
    return notify.deliveries or ({"type": "log"},)


def _needs(spec: ToolSpec) -> set[str]:
    """The abilities a tool needs, also those its kind implies."""
    implied = {"cli": "tool", "mcp": "mcp"}.get(spec.kind)
    return {*spec.needs, *((implied,) if implied else ()), *(("sh",) if spec.line else ())}


def _kind(spec: ToolSpec) -> str:
    return "builtin" if spec.kind == "function" else spec.kind


def _arguments(call: ToolCall) -> Mapping[str, Json]:
    return call.arguments if isinstance(call.arguments, dict) else {}


def _action(call: ToolCall) -> str:
    action = _arguments(call).get("action")
    return action if isinstance(action, str) else ""


def _text(spec: ToolSpec, call: ToolCall) -> str:
    text = _arguments(call).get(spec.line)
    return text if isinstance(text, str) else ""


def _detail(spec: ToolSpec, call: ToolCall) -> str:
    arguments = _arguments(call)
    return next((str(arguments[name]) for name in spec.detail if arguments.get(name) not in (None, "")), "")


def _named(spec: ToolSpec) -> str:
    """The tool as rules name it, without its type."""
    return spec.subject.partition(":")[2] if spec.subject else spec.name


def _subjects(spec: ToolSpec, call: ToolCall, loosely: bool = False) -> tuple[str, ...]:
    """What rules speak of: the tool, its action, and either with what the call says."""
    name, action = _named(spec), _action(call) if spec.kind in ("builtin", "function") else ""
    if spec.kind == "cli":
        line = words(call)
        said = [join(line), *((" ".join(line),) if loosely else ())] if line else [_json(call)]
        return (name, *(f"{name} {each}" for each in dict.fromkeys(said)))
    said = list(dict.fromkeys(each for each in (_detail(spec, call), _json(call)) if each))
    names = [name, f"{name}:{action}"] if action else [name]
    return (*names, *(f"{each} {text}" for each in names for text in said))


def _exactly(spec: ToolSpec, call: ToolCall) -> str:
    name, action = _named(spec), _action(call) if spec.kind in ("builtin", "function") else ""
    if spec.kind == "cli":
        line = words(call)
        return f"{name} {join(line)}" if line else f"{name} {_json(call)}"
    name = f"{name}:{action}" if action else name
    detail = _detail(spec, call)
    others = [each for each in _arguments(call) if each != "action" and str(_arguments(call)[each]) != detail]
    return f"{name} {_json(call) if others or not detail else detail}"


def _json(call: ToolCall) -> str:
    return _encode(call.arguments or {}).decode()


def _seen(line: Line, quotes: bool = True) -> tuple[str, ...]:
    """Every text of a line that a deny rule may have meant."""
    commands = [text for command in line.commands for text in denied_texts(command, quotes)]
    redirects = [f" {sign} {each.target}" for each in line.redirects for sign in {each.operator, ">"}]
    return (*commands, *redirects)


def _raw_texts(spec: ToolSpec, call: ToolCall) -> tuple[str, ...]:
    """What is written, for tools that hand text to a shell: as it is, and without look-alikes and odd blanks."""
    if not spec.line:
        return ()
    given = [text for name, text in _arguments(call).items() if isinstance(text, str) and name != "action"]
    return tuple(dict.fromkeys((*given, *map(_plain, given))))


def _plain(text: str) -> str:
    seen = text if text.isascii() and text.isprintable() else _HIDDEN.sub("", unicodedata.normalize("NFKC", text))
    return " ".join(seen.split())


def words(call: ToolCall) -> tuple[str, ...] | None:
    """The arguments of a program, one by one: what is judged is what runs. None where they are no list of texts."""
    given = call.arguments.get("args", []) if isinstance(call.arguments, dict) else None
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        return None
    return tuple(given)


def effect_of(spec: ToolSpec, call: ToolCall) -> Effect:
    """What a call that was cut off means."""
    return spec.effects.get(_action(call), spec.effect) if spec.effects else spec.effect


def digest(call: ToolCall) -> str:
    """A short name for exactly this call: an approval is for these arguments and no others."""
    return sha256(_encode([call.tool_name, call.arguments])).hexdigest()[:16]


def command(spec: ToolSpec, call: ToolCall) -> str:
    """The call as a person reads it when asked: whole, and with nothing in it that cannot be seen."""
    text = _text(spec, call) if spec.line else ""
    if spec.kind == "cli" and (line := words(call)) is not None and set(_arguments(call)) <= {"args"}:
        text = join((spec.name, *line))
    elif not text:
        text = f"{call.tool_name} {_json(call)}"
    return _HIDDEN.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
