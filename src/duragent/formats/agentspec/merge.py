"""agentspec inheritance: a chain of manifests, nearest ancestor last, becomes one.

What a child says wins, key by key; what it does not say is inherited. Trust can only narrow. The rules of
all ancestors accumulate, the soul is the nearest one. The reference differs (it drops the child's model,
wipes behaviour by omission and lets a child replace the rules); docs/formats/agentspec.md says where.
"""

import json
import posixpath
from collections.abc import Sequence
from typing import Any

from duragent.agent import Json, Origin
from duragent.formats.agentspec.manifest import Manifest, Values
from duragent.formats.reader import parent as section_of
from duragent.formats.shape import Problem

_ORDER = {
    "filesystem": ("none", "read-only", "scoped", "full"),
    "network": ("none", "scoped", "allowed"),
    "exec": ("none", "sandboxed", "full"),
}
_OWN = ("apiVersion", "name", "version", "base", "merge", "soul", "rules")
_MAPS = ("agents", "extensions")


class Merged:
    """The effective manifest. `rules` are those of every ancestor, the oldest first, with where they stand."""

    def __init__(self, first: Manifest) -> None:
        self.values: Values = dict(first.values)
        self.at: dict[str, Origin] = dict(first.at)
        self.extra: dict[str, Json] = dict(first.extra)
        self.kept_at: dict[str, Origin] = dict(first.kept_at)
        self.rules: list[tuple[str, Origin]] = []
        self.soul: tuple[str, Origin] | None = None
        # Where this round's child replaces what stood there, and where it only adds to it.
        self.taken: set[str] = set()
        self.joined: set[str] = set()
        self.added: dict[str, Origin] = {}
        self.take_prose(first)

    def take_prose(self, manifest: Manifest) -> None:
        rules, soul = ((manifest.values[name] or "").lstrip("\ufeff").strip() for name in ("rules", "soul"))
        if rules:
            self.rules.append((rules, manifest.where("rules")))
        if soul:
            self.soul = (soul, manifest.where("soul"))


def merge_chain(chain: Sequence[Manifest], problems: list[Problem]) -> Merged:
    """`chain` begins with the agent itself and ends with its oldest ancestor."""
    merged = Merged(chain[-1])
    for child in reversed(chain[:-1]):
        _check_trust(merged, child, problems)
        _merge(merged, child, problems)
    return merged


def _merge(merged: Merged, child: Manifest, problems: list[Problem]) -> None:
    parent = merged.values
    values: Values = {name: child.values[name] for name in _OWN}
    for name in child.values:
        if name in _OWN:
            continue
        if name == "skills":
            values[name] = _merge_skills(merged, child)
        elif name == "tools":
            values[name] = _merge_tools(merged, child, problems)
        elif name in _MAPS:
            values[name] = _union(parent[name], child.values[name])
            merged.joined.add(name)
        elif type(parent[name]) is dict:
            values[name] = _merge_section(merged, child, name)
        else:
            values[name] = child.values[name] if child.said(name) else parent[name]
            if child.said(name):
                merged.taken.add(name)
    for name in _OWN:
        merged.taken.add(name)
    merged.values = values
    merged.extra = _union(merged.extra, child.extra)
    merged.kept_at |= child.kept_at
    merged.take_prose(child)
    _settle_places(merged, child)


def _merge_section(merged: Merged, child: Manifest, name: str) -> Values:
    """Key by key. `behavior: append` adds traits to the parent's; `auth.providers` are joined by name."""
    parent, mine = merged.values[name], child.values[name]
    found: Values = {}
    for key in mine:
        path = f"{name}.{key}"
        if not child.said(path):
            found[key] = parent[key]
            continue
        if path == "auth.providers":
            found[key] = {**parent[key], **mine[key]}
            merged.joined.add(path)
        elif path == "behavior.traits" and child.values["merge"]["behavior"] == "append":
            found[key] = _append(merged, child, path, parent[key], mine[key])
        else:
            found[key] = mine[key]
            merged.taken.add(path)
    return found


def _merge_skills(merged: Merged, child: Manifest) -> list[Json]:
    parent, mine = merged.values["skills"], child.values["skills"]
    if not child.said("skills"):
        return list(parent)
    match child.values["merge"]["skills"]:
        case "append":
            return _append(merged, child, "skills", parent, mine)
        case "restrict":
            known = {_same(skill) for skill in parent}
            return _keep(merged, child, "skills", mine, lambda skill: _same(skill) in known)
        case _:
            merged.taken.add("skills")
            return list(mine)


def _merge_tools(merged: Merged, child: Manifest, problems: list[Problem]) -> Values:
    parent, mine = merged.values["tools"], child.values["tools"]
    how = child.values["merge"]["tools"]
    found: Values = {}
    for key in ("mcp", "native"):
        path = f"tools.{key}"
        if not child.said(path):
            found[key] = list(parent[key])
        elif how == "override":
            merged.taken.add(path)
            found[key] = list(mine[key])
        elif how == "restrict":
            named = {entry_name(entry): entry for entry in reversed(parent[key])}
            kept = _keep(merged, child, path, mine[key], lambda entry, known=named: entry_name(entry) in known)
            found[key] = [_parents_own(entry, named, child, path, problems) for entry in kept]
            places = {entry_name(entry): index for index, entry in reversed(list(enumerate(parent[key])))}
            for index, entry in enumerate(found[key]):
                own = f"{path}[{places[entry_name(entry)]}]"
                merged.added[f"{path}[{index}]"] = merged.at.get(own) or child.where(path)
        else:
            named = {entry_name(entry): entry for entry in reversed(parent[key])}
            new = [entry for entry in mine[key] if _is_new(entry, named, child, path, problems)]
            found[key] = _append(merged, child, path, parent[key], new)
    return found


def _is_new(entry: Json, parents: dict[str, Json], child: Manifest, path: str, problems: list[Problem]) -> bool:
    if entry_name(entry) not in parents:
        return True
    _parents_own(entry, parents, child, path, problems)
    return False


def _parents_own(entry: Json, parents: dict[str, Json], child: Manifest, path: str, problems: list[Problem]) -> Json:
    """The parent's entry of the same name: neither appending nor restricting may change its settings."""
    name = entry_name(entry)
    own = parents[name]
    if isinstance(entry, dict) and entry != own:
        where = child.where(path)
        text = f"the base already sets up {name!r}; its settings stay"
        hint = "use `merge: {tools: override}` to replace them"
        problems.append(Problem("warning", where.file, where.line, where.column, path, text, hint))
    return own


def entry_name(entry: Json) -> str:
    """What an MCP entry is called: itself, its `name`, or its first key."""
    if isinstance(entry, dict):
        named = entry.get("name")
        return named if isinstance(named, str) else next(iter(entry), "")
    return str(entry)


def _append(merged: Merged, child: Manifest, path: str, parent: list[Json], mine: list[Json]) -> list[Json]:
    found: dict[str, Json] = {}
    for value in parent:
        found.setdefault(_same(value), value)
    places = {_same(value): index for index, value in reversed(list(enumerate(_list_at(child, path))))}
    for value in mine:
        if (key := _same(value)) not in found:
            merged.added[f"{path}[{len(found)}]"] = child.at.get(f"{path}[{places[key]}]") or child.where(path)
            found[key] = value
    merged.added.setdefault(path, merged.at.get(path) or child.where(path))
    return list(found.values())


def _same(value: Json) -> str:
    """Equal for equal values, and quick to look up."""
    return json.dumps(value, sort_keys=True)


def _keep(merged: Merged, child: Manifest, path: str, mine: list[Json], allowed: Any) -> list[Json]:
    merged.taken.add(path)
    kept = [value for value in mine if allowed(value)]
    places = {_same(value): index for index, value in reversed(list(enumerate(mine)))}
    for index, value in enumerate(kept):
        merged.added[f"{path}[{index}]"] = child.at.get(f"{path}[{places[_same(value)]}]") or child.where(path)
    return kept


def _list_at(manifest: Manifest, path: str) -> list[Json]:
    value: Any = manifest.values
    for name in path.split("."):
        value = value[name]
    return list(value)


def _union(parent: Json, mine: Json) -> Json:
    if isinstance(parent, dict) and isinstance(mine, dict):
        return {
            name: _union(parent[name], mine[name])
            if name in parent and name in mine
            else mine.get(name, parent.get(name))
            for name in (*parent, *(name for name in mine if name not in parent))
        }
    return mine


def _settle_places(merged: Merged, child: Manifest) -> None:
    """What the child replaced now stands where the child says it."""
    mine = merged.taken | merged.joined
    merged.at = {
        **{path: origin for path, origin in merged.at.items() if not _covered(path, merged.taken)},
        **{path: origin for path, origin in child.at.items() if _covered(path, mine)},
        **merged.added,
    }
    merged.taken, merged.joined, merged.added = set(), set(), {}


def _covered(path: str, sections: set[str]) -> bool:
    while path:
        if path in sections:
            return True
        path = section_of(path)
    return False


def _check_trust(merged: Merged, child: Manifest, problems: list[Problem]) -> None:
    parent, mine = merged.values["trust"], child.values["trust"]
    for axis, order in _ORDER.items():
        path = f"trust.{axis}"
        if child.said(path) and order.index(mine[axis]) > order.index(parent[axis]):
            text = f"{path} is {mine[axis]}, wider than the {parent[axis]} that"
            hint = f"at most {parent[axis]}"
            problems.append(_wider(merged, child, path, f"{text} {_there(merged, path)} allows", hint))
    if child.said("trust.scope") and parent["filesystem"] != "full":
        allowed = {posixpath.normpath(wide) for wide in parent["scope"]}
        for index, scope in enumerate(mine["scope"]):
            if not _within(scope, allowed):
                text = f"the scope {scope!r} is outside the scope of {_there(merged, 'trust.scope')}"
                hint = (
                    "allowed: paths below " + ", ".join(parent["scope"]) if parent["scope"] else "the base allows none"
                )
                problems.append(_wider(merged, child, f"trust.scope[{index}]", text, hint))


def _there(merged: Merged, path: str) -> str:
    found = merged.at.get(path) or merged.at.get("trust") or merged.at.get("name")
    said = f"its base ({found})" if found else "its base"
    return said if path in merged.at else f"{said[:-1]}, by default)" if found else said


def _wider(merged: Merged, child: Manifest, path: str, text: str, hint: str) -> Problem:
    where = child.where(path)
    return Problem("error", where.file, where.line, where.column, path, text, hint)


def _within(path: str, allowed: set[str]) -> bool:
    """Whether `path` is one of the allowed ones or below one.

    What climbs out with `..`, or becomes known only when it runs (`~`, `$HOME`), is below nothing but itself.
    """
    inner = posixpath.normpath(path)
    if inner in allowed:
        return True
    if inner == ".." or inner.startswith(("../", "~")) or "$" in inner:
        return False
    steps = inner.split("/")
    above = ("/".join(steps[:count]) or "/" for count in range(1, len(steps)))
    return any(each in allowed for each in above) or ("." in allowed and not posixpath.isabs(inner))
