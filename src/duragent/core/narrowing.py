"""What narrows an agent before any rule is asked: its trust, its abilities, and the skill it works under.

All three only ever forbid. Each gives the text of what forbade it with a reason for a person, or None. Knows the
three shapes, not the tiers of policy files.
"""

import posixpath
import re
from collections.abc import Collection

from msgspec import Struct

from duragent.agent import Abilities, Agent, Skill, Trust
from duragent.core.lines import Line, Simple, covering, is_free, readable, refused
from duragent.core.patterns import Rule, compile_rule, escape
from duragent.core.programs import risky

_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_ALWAYS = ("skill", "tool_help")


class Barred(Struct, frozen=True):
    """What forbids a call, and where that was written (a key of the agent's origins)."""

    rule: str
    key: str = ""
    why: str = ""


def withheld(agent: Agent, kind: str, needs: Collection[str]) -> str:
    """Why a tool of this kind is not for this agent at all, whatever it is called with; "" where it may be. An ability
    to run one program is an ability to run something: which, is judged line by line."""
    if agent.trust is not None and (found := barred_by_trust(agent.trust, kind, needs)) is not None:
        return found.rule
    if agent.abilities is None:
        return ""
    single = "sh" not in agent.abilities.deny and any(each.startswith("sh:") for each in agent.abilities.allow)
    asked = [need for need in needs if need != "sh" or not single]
    barred = barred_by_abilities(agent.abilities, asked, None)
    return barred.rule if barred is not None else ""


def barred_by_trust(trust: Trust, kind: str, needs: Collection[str]) -> Barred | None:
    if trust.exec == "none" and (kind in ("cli", "script") or "sh" in needs):
        return Barred("trust.exec: none", "trust.exec")
    if trust.network == "none" and "network" in needs:
        return Barred("trust.network: none", "trust.network")
    if trust.filesystem == "none" and "fs" in needs:
        return Barred("trust.filesystem: none", "trust.filesystem")
    return None


def barred_by_abilities(
    abilities: Abilities, needs: Collection[str], line: Line | None, workdir: str = ""
) -> Barred | None:
    for need in sorted(needs):
        if need in abilities.deny:
            return Barred(f"abilities: deny {need}", "abilities.deny")
        granted = "*" in abilities.allow or need in abilities.allow
        if need == "sh":
            if (found := _barred_programs(abilities, line, granted, workdir)) is not None:
                return found
        elif not granted:
            return Barred(f"abilities: no {need}", "abilities.allow")
    return None


def _barred_programs(abilities: Abilities, line: Line | None, granted: bool, workdir: str) -> Barred | None:
    """Single programs: `sh:git` in allow or deny."""
    allowed = {each[3:] for each in abilities.allow if each.startswith("sh:")}
    denied = {each[3:] for each in abilities.deny if each.startswith("sh:")}
    if not granted and not allowed:
        return Barred("abilities: no sh", "abilities.allow")
    if granted and not denied:
        return None
    if line is None:
        return None if granted else Barred("abilities: no sh", "abilities.allow")
    for command in line.commands:
        name = posixpath.basename(command.program).lower()
        if name in denied:
            return Barred(f"abilities: deny sh:{name}", "abilities.deny")
        if not granted and command.words and not is_free(command) and command.program not in allowed:
            shown = readable(command.program)
            return Barred(f"abilities: no sh:{shown}", "abilities.allow", f"`{shown}` is none of its programs")
    why = _way_out(line, workdir)
    if why:
        return Barred("abilities: single programs only", "abilities.deny" if granted else "abilities.allow", why)
    return None


def _way_out(line: Line, workdir: str) -> str:
    """How a line of single programs may run others: what is not certain, variables, flags, files that decide."""
    if line.doubts:
        return f"this line cannot be read with certainty: {line.doubts[0]}"
    for command in line.commands:
        if command.names:
            return f"`{command.names[0]}` is set, which may change what runs"
        if risks := risky(command.words):
            return f"`{readable(risks[0])}` in `{_said(command)}` can do more than `{readable(command.program)}` alone"
    return next(filter(None, (refused(each, workdir, line.moves) for each in line.redirects)), "")


def _said(command: Simple) -> str:
    return readable(command.source or " ".join(command.words))


class Narrowed:
    """The tools a skill may use while it is active."""

    def __init__(self, skill: Skill) -> None:
        self.skill = skill
        self.names: set[str] = set()
        self.lines: list[Rule] = []
        self.details: list[tuple[str, Rule]] = []
        for entry in skill.allowed_tools or ():
            found = _ENTRY.fullmatch(entry.strip())
            if found is None:
                continue
            name, inner = found[1].lower(), found[2]
            if inner is None or inner.strip() in ("", "*"):
                self.names.add(name)
            elif name == "bash":
                self.lines += _rules(inner.strip())
            else:
                self.details += [(name, rule) for rule in _rules(inner.strip())]

    def bars(self, names: Collection[str], subjects: tuple[str, ...], line: Line | None) -> Barred | None:
        """Why a call of the tool of these names is outside the skill. A detail may speak of `subjects`."""
        names = {name.lower() for name in names if name}
        if names & self.names or names.intersection(_ALWAYS):
            return None
        allowed = ", ".join(self.skill.allowed_tools or ()) or "no tools"
        bar = Barred(f"skill {self.skill.name} allows only {allowed}", "")
        if line is not None:
            return self._bars_line(bar, line, "bash" in self.names)
        fits = any(name in names and any(map(rule.matches, subjects)) for name, rule in self.details)
        return None if fits else bar

    def _bars_line(self, bar: Barred, line: Line, free: bool) -> Barred | None:
        if free:
            return None
        if not self.lines or line.doubts or not line.commands:
            why = f"this line cannot be read with certainty: {line.doubts[0]}" if self.lines and line.doubts else ""
            return Barred(bar.rule, why=why)
        for command in line.commands:
            if not is_free(command) and covering(self.lines, command) is None:
                return Barred(bar.rule, why=f"`{_said(command)}` is not among them")
        return None


def _rules(inner: str) -> list[Rule]:
    """`git:*` means git with anything after it; everything else is a pattern."""
    if inner.endswith(":*"):
        return [compile_rule(f"bash:{escape(inner[:-2])}"), compile_rule(f"bash:{escape(inner[:-2])} *")]
    return [compile_rule(f"bash:{inner}")]
