"""May this call run? Trust and abilities first, then deny, then allow; what is left is decided by the mode.

A `Judge` compiles the rules of one agent once. Tiers from the most to the least specific are the owner's local file,
the agent's own and the workspace's; deny and allow accumulate, and the first tier that says a mode decides it.
Tools that run a shell line are judged by what the line runs (`shell.py`); what cannot be read is never allowed by a
rule with a star. Pure: an agent, what the tool is and one exact call in; a verdict with the rule that decided out.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from duragent.agent import Agent, Json, Notify, Origin, PolicyTier, Skill
from duragent.core import load_arguments, load_shell
from duragent.core.calls import (
    HIDDEN,
    RUNS,
    Effect,
    ToolSpec,
    action_of,
    arguments_of,
    beside_line,
    command,
    detail_of,
    digest,
    effect_of,
    exactly,
    kind_of,
    needs_of,
    raw_texts,
    runs_line,
    seen,
    subjects,
    text_of_line,
    words,
)
from duragent.core.events import ToolCall
from duragent.core.lines import Line, Shelf, Simple, denied_ends, evades, is_free, obstacle, refused
from duragent.core.narrowing import Barred, Narrowed, barred_by_abilities, barred_by_trust
from duragent.core.patterns import Rule, compile_rule, escape

__all__ = ["Effect", "Judge", "ToolSpec", "Verdict", "command", "digest", "effect_of", "words"]
Mode = Literal["dangerous", "ask", "restrict"]


class Verdict(Struct, frozen=True):
    """`rule` is the pattern, the mode or whatever else decided; `origin` is where it was written."""

    verdict: Literal["allow", "ask", "deny"]
    rule: str
    origin: Origin | None = None
    why: str = ""


_MODES: Mapping[Mode, Literal["allow", "ask", "deny"]] = {"dangerous": "allow", "ask": "ask", "restrict": "deny"}
_NO_MODE = "no policy says a mode"
_UNRULED = {"allow": Verdict("allow", _NO_MODE), "ask": Verdict("ask", _NO_MODE)}
_OWN = "it touches only what is the agent's own"
_ROUNDABOUT = "it is told in a roundabout way what to run, so that a deny rule may not see it"
_NAMED = ("write", "send_keys", RUNS)
"""Actions that only a rule with their name allows: what is typed or gets a terminal is judged by nobody."""
_REMEMBERED = 256


class Judge:
    """Decides about the calls of one agent. `patience` is how long a question waits; it is only kept here."""

    def __init__(self, agent: Agent, *, workdir: str = "", patience: timedelta | None = None) -> None:
        self.agent, self.workdir, self.patience = agent, workdir, patience
        self._origins = agent.origins
        tiers = [(name, tier) for name, tier in _tiers(agent) if tier is not None]
        self._deny = [rule for name, tier in tiers for rule in self._compiled(name, "deny", tier.deny)]
        self._allow = [rule for name, tier in tiers for rule in self._compiled(name, "allow", tier.allow)]
        self._mode, self._fallen = self._mode_of(tiers)
        self._notify = [(_deliveries(name, tier.notify), [compile_rule(each) for each in tier.notify.patterns])
                        for name, tier in tiers if tier.notify is not None and tier.notify.enabled]  # fmt: skip
        self._open = not self._deny and not self._allow and agent.trust is None and agent.abilities is None
        self._bash = self._shelved()
        self._denies = {rule.type for rule in self._deny}
        self._denies_bash = not self._denies.isdisjoint(("*", "bash"))
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
        """A rule without a star also allows the whole line or call that it is, letter by letter."""
        if rule.literal is not None and rule.type in ("bash", "builtin"):
            self._literals.setdefault(f"{rule.type}:{rule.literal}", rule)

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
        allowed, why = (self._allowed(spec, call), "") if line is None else self._allowed_line(spec, call, line)
        if allowed is not None:
            return Verdict("allow", allowed.text, allowed.origin)
        roundabout = line is not None and any(map(evades, line.commands))
        doubtful = roundabout or (line is not None and bool(line.doubts))
        return self._by_mode(spec, call, _ROUNDABOUT if roundabout and self._denies_bash else why, doubtful)

    def _by_mode(self, spec: ToolSpec, call: ToolCall, why: str, doubtful: bool) -> Verdict:
        mode, fallen = self._mode, self._fallen
        if spec.quiet and mode in (None, "ask") and ("*" in spec.quiet or action_of(call) in spec.quiet):
            return Verdict("allow", _OWN)
        if fallen is None:
            return Verdict("ask", _NO_MODE, None, why) if why else _UNRULED[spec.unruled]
        if mode == "dangerous":
            if doubtful and self._denies_bash:
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
        if agent.trust is not None and (found := barred_by_trust(agent.trust, spec.kind, needs_of(spec))) is not None:
            return found
        if agent.abilities is not None:
            found = barred_by_abilities(agent.abilities, needs_of(spec), line, self.workdir)
            if found is not None:
                return found
        if skill is None or skill.allowed_tools is None:
            return None
        narrowed = self._narrowed.get(skill.name)
        if narrowed is None or narrowed.skill.allowed_tools != skill.allowed_tools:
            narrowed = self._narrowed[skill.name] = Narrowed(skill)
        detail = detail_of(spec, call)
        action = action_of(call)
        names = (spec.name, spec.subject.replace(":", "__"))
        return narrowed.bars(names, tuple(each for each in (action, detail, f"{action} {detail}") if each), line)

    def _line(self, spec: ToolSpec, call: ToolCall) -> Line | None:
        """What the shell line of a call runs; None where it has none. Another folder is one it goes to first."""
        if not runs_line(spec, call):
            return None
        arguments = arguments_of(call)
        text, folder = arguments[spec.line], arguments.get("workdir")
        if not isinstance(text, str):
            return Line(doubts=(f"{spec.line} is no text",))
        found = self._lines.get(text)
        if found is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            self._read = self._read or load_shell()
            found = self._lines[text] = self._read(text)
        if folder in (None, "", "."):
            return found
        return replace(found, commands=(Simple(("cd", str(folder))), *found.commands), moves=True)

    def _denied(self, spec: ToolSpec, call: ToolCall, line: Line | None) -> Rule | None:
        if not self._deny:
            return None
        kind = kind_of(spec)
        named = () if self._denies.isdisjoint(("*", kind)) else subjects(spec, call, loosely=True)
        raw = raw_texts(spec, call)
        texts = seen(line, self._denies_quotes) if line is not None else ()
        said = "\n".join((*named, *raw, *texts))
        for rule in self._deny:
            if rule.longest not in said:
                continue  # most rules end here, for the price of one look
            if rule.speaks_of(kind) and any(map(rule.matches, named)):
                return rule
            if spec.line and rule.speaks_of("bash"):
                if any(map(rule.matches, texts)):
                    return rule
                if line is not None and any(any(map(rule.matches, denied_ends(each))) for each in line.commands):
                    return rule
                if (rule.type == "bash" or line is None or line.doubts) and any(map(rule.occurs_in, raw)):
                    return rule
        return None

    def _allowed(self, spec: ToolSpec, call: ToolCall, action: str = "") -> Rule | None:
        if not self._allow:
            return None
        kind, action, named = kind_of(spec), action or action_of(call), subjects(spec, call)
        typed = bool(spec.line) and action in _NAMED
        for rule in self._allow:
            explicit = not typed or any(f":{action}" in piece for piece in rule.pieces)
            if explicit and rule.speaks_of(kind) and any(map(rule.matches, named)):
                return rule
        return None

    def _allowed_line(self, spec: ToolSpec, call: ToolCall, line: Line) -> tuple[Rule | None, str]:
        """The rule that allows a call with a line, or why none does."""
        text, more = text_of_line(spec, call), beside_line(spec, call)
        literals: Mapping[str, Rule] = {} if HIDDEN.search(text) else self._literals
        if more and (rule := literals.get(f"builtin:{exactly(spec, call)}")) is not None:
            return rule, ""
        if more.get("interactive") and self._allowed(spec, call, RUNS) is None:
            return None, "it gets a terminal, where many programs can run others; a rule must name that action"
        rule = None if more.get("workdir") else literals.get(f"bash:{text}")
        return (rule, "") if rule is not None else self._covered(line)

    def _covered(self, line: Line) -> tuple[Rule | None, str]:
        if line.doubts:
            return None, f"this line cannot be read with certainty: {line.doubts[0]}"
        shelf = self._bash
        if shelf.everything is not None and line.commands:
            if self._denies_bash and any(map(evades, line.commands)):
                return None, _ROUNDABOUT
            return shelf.everything, ""
        first: Rule | None = None
        for each in line.commands:
            if is_free(each):
                continue
            found = shelf.covering(each)
            if found is None:
                return None, obstacle(shelf.rules, each)
            first = first or found
        for redirect in line.redirects:
            if why := refused(redirect, self.workdir, line.moves):
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
        if (text := text_of_line(spec, call)) and not beside_line(spec, call):
            return f"bash:{escape(text)}"
        return escape(f"{kind_of(spec)}:{exactly(spec, call)}")

    def notified(self, spec: ToolSpec, call: ToolCall) -> tuple[Mapping[str, Json], ...]:
        """Who is told of this call."""
        if not self._notify:
            return ()
        found: list[Mapping[str, Json]] = []
        for deliveries, rules in self._notify:
            if not rules or any(self._speaks_of(rule, spec, call) for rule in rules):
                found += [each for each in deliveries if each not in found]
        return tuple(found)

    def _speaks_of(self, rule: Rule, spec: ToolSpec, call: ToolCall) -> bool:
        if rule.speaks_of(kind_of(spec)) and any(map(rule.matches, subjects(spec, call, loosely=True))):
            return True
        line = self._line(spec, call) if rule.speaks_of("bash") else None
        return line is not None and any(map(rule.matches, (text_of_line(spec, call), *seen(line))))


def _tiers(agent: Agent) -> tuple[tuple[str, PolicyTier | None], ...]:
    policy = agent.policy
    return ("local", policy.local), ("agent", policy.agent), ("workspace", policy.workspace)


def _deliveries(tier: str, notify: Notify) -> tuple[Mapping[str, Json], ...]:
    """Where one file has calls told to. An address is the owner's to choose: the agent's own file names none."""
    found = [each for each in notify.deliveries if tier != "agent" or each.get("type") != "webhook"]
    return tuple(found) or ({"type": "log"},)
