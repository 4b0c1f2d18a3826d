"""The agentspec format: one `.agent` file, or a folder with agent.yaml, SOUL.md, RULES.md and skills/.

Reads a manifest and all it inherits from into one `Agent`. The fields are in `manifest.py`,
inheritance in `merge.py`.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urljoin

from msgspec.structs import replace

from duragent.agent import (
    AbstractSkill,
    Agent,
    Auth,
    BuiltinTool,
    Interface,
    Json,
    Limits,
    McpServer,
    Memory,
    ModelChoice,
    ModelRef,
    Origin,
    PromptPart,
    Provider,
    Skill,
    Source,
    Tool,
    Trust,
)
from duragent.formats import skills as skill_files
from duragent.formats.agentspec.advice import advise, usable_cost
from duragent.formats.agentspec.manifest import SCHEMA, Manifest, Values, fingerprint, read_manifest
from duragent.formats.agentspec.merge import Merged, merge_chain
from duragent.formats.agentspec.write import render
from duragent.formats.reader import Reader, homes
from duragent.formats.shape import Absent, File, Files, Folder, Need, Parsed, Problem, absence, beside, failed
from duragent.formats.sniff import top

__all__ = ["SCHEMAS", "claims", "parse", "render"]

SCHEMAS = {"agentspec": SCHEMA}
MAX_LEVELS = 16

_BASE = re.compile(r"^base:[ ]+[\"']?([^\s\"'#][^\s\"']*)", re.MULTILINE)

_HOMES = {
    "name": "name",
    "version": "version",
    "author": "author",
    "license": "license",
    "description": "description",
    "tags": "tags",
    "model.preferred": "model.candidates",
    "model": "model",
    "auth": "auth",
    "skills": "abstract_skills",
    "memory": "memory",
    "behavior.temperature": "model.temperature",
    "behavior.max_steps": "limits.steps",
    "behavior.on_error": "limits.on_error",
    "expose": "expose",
    "trust": "trust",
    "observability.trace": "trace",
    "observability.cost_limit": "limits.cost_usd",
    "observability.step_limit": "limits.session_steps",
    "observability.on_exceed": "limits.on_exceed",
    "extensions": "extensions",
}


def manifest_path(files: Files) -> str | None:
    """The manifest: the file that was pointed at, or the folder's agent.yaml or only .agent file."""
    if files.entry:
        return files.entry
    names = files.names()
    for name in ("agent.yaml", "agent.yml"):
        if name in names:
            return name
    single = [name for name in names if name.endswith(".agent")]
    return single[0] if len(single) == 1 else None


def claims(files: Files) -> str | None:
    path = manifest_path(files)
    if path is None:
        return None
    if path.endswith(".agent"):
        return "the name ends in .agent"
    said = top(files.text(path) or "")
    if said.get("apiVersion", "").startswith("agent/"):
        return f"apiVersion agent/… in {path}"
    if "name" in said and not _is_other(said):
        return f"a `name:` at the top of {path} and no `metadata:`"
    return None


def _is_other(said: Mapping[str, str]) -> bool:
    """Whether these are the keys of another format's manifest."""
    version = said.get("apiVersion", "")
    return not version.startswith("agent/") and (
        version.startswith("duragent/") or bool(said.keys() & {"kind", "metadata", "spec", "component_type"})
    )


def parse(files: Files) -> Parsed | Need:
    path = manifest_path(files)
    assert path is not None
    problems: list[Problem] = []
    if (text := files.text(path)) and (base := _BASE.search(text)):
        # Asked for before anything is parsed, so that an agent with a base is not parsed twice.
        likely = _base_path(path, base[1], Origin(path, 1, 1), [])
        if likely is not None and likely not in files.found:
            return Need(elsewhere=frozenset({likely}))
    chain = _chain(path, files, problems)
    if isinstance(chain, Need):
        return chain
    for manifest in chain:
        if (place := _skills_of(manifest)) and (
            need := skill_files.needs(place, files, elsewhere=bool(manifest.folder))
        ):
            return need
    if chain and chain[0].folder == "" and "memory/**" not in files.found:
        return Need(folders=frozenset({"memory/**"}))
    packages = _packages(chain, files, problems)
    if failed(problems):
        return Parsed(None, tuple(problems))
    merged = merge_chain(chain, problems)
    if failed(problems):
        return Parsed(None, tuple(problems))
    problems.extend(advise(merged))
    agent = _agent(merged, problems)
    source = Source(
        ancestors=tuple(manifest.file for manifest in chain[1:]), manifest_hash=fingerprint(chain[0].values)
    )
    memory = replace(agent.memory, notes=files.notes())
    return Parsed(replace(agent, skills=packages, memory=memory, source=source), tuple(problems))


def _skills_of(manifest: Manifest) -> str | None:
    return None if manifest.folder is None else posixpath.join(manifest.folder, "skills")


def _packages(chain: list[Manifest], files: Files, problems: list[Problem]) -> tuple[Skill, ...]:
    """Skill packages of the agent and its ancestors, joined as `merge.skills` says; a child's replaces its namesake."""
    found: dict[str, Skill] = {}
    for manifest in reversed(chain):
        place = _skills_of(manifest)
        own = {skill.name: skill for skill in skill_files.read_all(place, files, problems)} if place else {}
        match manifest.values["merge"]["skills"] if own and found else "append":
            case "override":
                found = own
            case "restrict":
                found = {name: skill for name, skill in own.items() if name in found}
            case _:
                found |= own
    return tuple(found.values())


# --- the chain of manifests ------------------------------------------------------------------------------


def _chain(path: str, files: Files, problems: list[Problem]) -> list[Manifest] | Need:
    """The manifest and its ancestors, nearest first, as far as they can be read; or what must be read to go on."""
    chain: list[Manifest] = []
    seen: list[str] = []
    place: Origin | None = None
    while True:
        if path in seen or len(seen) > MAX_LEVELS:
            assert place is not None
            problems.append(_endless(seen, path, place))
            return chain
        seen.append(path)
        manifest = _one(path, files, problems, place)
        if not isinstance(manifest, Manifest):
            return manifest if isinstance(manifest, Need) else chain
        chain.append(manifest)
        base = manifest.values["base"]
        if not base:
            return chain
        place = manifest.where("base")
        step = _base_path(manifest.file, base, place, problems)
        if step is None:
            return chain
        path = step


def _endless(seen: list[str], path: str, place: Origin) -> Problem:
    chain = " → ".join([*seen, path])
    if path in seen:
        text, hint = f"the agent inherits from itself: {chain}", "remove one `base`"
    else:
        text, hint = f"more than {MAX_LEVELS} levels of inheritance: {chain}", "flatten some of them"
    return Problem("error", place.file, place.line, place.column, "base", text, hint)


def _base_path(file: str, base: str, place: Origin, problems: list[Problem]) -> str | None:
    """Where a base is. One that came from a URL or a registry cannot name local files."""

    def refuse(text: str, hint: str) -> None:
        problems.append(Problem("error", place.file, place.line, place.column, "base", text, hint))

    if base.startswith("http://"):
        refuse("a base is only fetched over https", "use https://, or a local path")
        return None
    if base.startswith(("https://", "ag1:")):
        return base
    if file.startswith("https://"):
        try:
            address = urljoin(file.partition("#")[0], base)
        except ValueError:
            address = ""
        if not address.startswith("https://"):
            refuse(f"{base!r} in {file} does not lead to an https address", "name an https or ag1: base")
            return None
        return address
    if file.startswith("ag1:"):
        refuse(
            f"{base!r} is a path, but {file} came from a registry, where paths lead nowhere",
            "name an ag1: or https base",
        )
        return None
    return beside(file, base)


def _one(path: str, files: Files, problems: list[Problem], place: Origin | None) -> Manifest | Need | None:
    """One manifest of the chain, with the prose beside it when it is a folder."""
    found = files.found.get(path)
    if found is None:
        return Need(elsewhere=frozenset({path})) if place else Need(files=frozenset({path}))
    folder: str | None = None if files.entry or place else ""
    if isinstance(found, Folder):
        folder = path
        names = [name for name in ("agent.yaml", "agent.yml") if name in found.names]
        path = f"{folder}/{names[0]}" if names else f"{folder}/agent.yaml"
        found = files.found.get(path)
        if found is None:
            return Need(elsewhere=frozenset({path}))
    if not isinstance(found, File):
        why = found if isinstance(found, Absent) else Absent("missing")
        where = place or Origin(path, 1, 1)
        problems.append(absence("error", path, why, file=where.file, line=where.line, column=where.column, at="base"))
        return None
    return _read(path, found.text, folder, files, problems, elsewhere=place is not None)


def _prose(folder: str, files: Files, problems: list[Problem], path: str) -> dict[str, str] | Need:
    """SOUL.md and RULES.md of a folder, as far as they are there."""
    names = files.names(folder)
    wanted = {name: posixpath.join(folder, name) for name in ("SOUL.md", "RULES.md") if name in names}
    if unseen := frozenset(wanted.values()) - files.found.keys():
        return Need(files=unseen)
    found: dict[str, str] = {}
    for name, where in wanted.items():
        entry = files.found[where]
        if isinstance(entry, File):
            found[name] = "\ufeff" * entry.bom + entry.text  # the reference hashes the mark
        elif isinstance(entry, Absent):
            problems.append(absence("error", where, entry, file=path, line=1, column=1, at=name))
    for name in ("SOUL.md", "RULES.md"):
        if f"{name}/" in names:
            where = posixpath.join(folder, name)
            problems.append(absence("error", where, Absent("folder"), file=where, line=1, column=1, at=name))
    return found


def _read(
    path: str, text: str, folder: str | None, files: Files, problems: list[Problem], *, elsewhere: bool
) -> Manifest | Need | None:
    prose = _prose(folder, files, problems, path) if folder is not None else {}
    if isinstance(prose, Need):
        return replace(prose, elsewhere=prose.files, files=frozenset()) if elsewhere else prose
    reader = Reader(path, unknown="warning")
    if elsewhere and _is_other(top(text)):
        text = f"{path} is not an agentspec manifest"
        problems.append(Problem("error", path, 1, 1, "apiVersion", text, "a base must be one"))
        return None
    manifest = read_manifest(reader, text, soul=prose.get("SOUL.md"), rules=prose.get("RULES.md"))
    if manifest is not None and path.startswith("ag1:") and fingerprint(manifest.values) != path:
        found = fingerprint(manifest.values)
        reader.error((1, 1), "base", f"the registry's copy of {path} is {found}", "store the right manifest again")
    problems.extend(reader.problems)
    if manifest is not None:
        manifest.folder = folder
        for name, key in (("SOUL.md", "soul"), ("RULES.md", "rules")):
            if name in prose:
                manifest.at[key] = Origin(posixpath.join(folder or "", name), 1, 1)
    return manifest


# --- from manifest to Agent ------------------------------------------------------------------------------


def _agent(merged: Merged, problems: list[Problem]) -> Agent:
    values = merged.values
    behavior, watch = values["behavior"], values["observability"]
    origins = homes(merged.at, _HOMES)
    prompt = tuple(_prompt(merged, origins))
    return Agent(
        name=values["name"],
        version=values["version"],
        author=values["author"],
        license=values["license"],
        description=values["description"],
        tags=tuple(values["tags"]),
        model=_model(values),
        prompt=prompt,
        tools=tuple(_tools(merged, origins)),
        abstract_skills=tuple(_skill(entry) for entry in values["skills"]),
        memory=Memory(
            long_term={"none": None, "local": "filesystem"}.get(values["memory"]["long_term"], "external"),
            working=values["memory"]["working"],
            shared=values["memory"]["shared"],
        ),
        trust=Trust(**{**values["trust"], "scope": tuple(values["trust"]["scope"])}),
        limits=Limits(
            tool_iterations=None,
            steps=behavior["max_steps"],
            session_steps=watch["step_limit"],
            cost_usd=usable_cost(watch["cost_limit"]),
            on_exceed=watch["on_exceed"],
            on_error=behavior["on_error"],
        ),
        trace=watch["trace"],
        expose=tuple(Interface(**entry) for entry in values["expose"]),
        auth=Auth(
            strategy=values["auth"]["strategy"],
            providers={name: Provider(key_from=entry["from_"]) for name, entry in values["auth"]["providers"].items()},
        ),
        extensions=values["extensions"],
        extra={"agentspec": extra} if (extra := _extra(merged, problems)) else {},
        origins=origins | {f"extra.agentspec.{path}": origin for path, origin in merged.kept_at.items()},
    )


def _model(values: Values) -> ModelChoice:
    model = values["model"]
    candidates = []
    for wanted in model["preferred"]:
        provider, _, name = wanted.partition("/")
        candidates.append(ModelRef(provider, name))
    return ModelChoice(
        candidates=tuple(candidates),
        capability=model["capability"],
        fallback=model["fallback"],
        temperature=values["behavior"]["temperature"],
        context=model["context"],
    )


def _prompt(merged: Merged, origins: dict[str, Origin]) -> Iterator[PromptPart]:
    behavior = merged.values["behavior"]
    parts: list[tuple[PromptPart, Origin | None]] = []
    if merged.soul:
        parts.append((PromptPart("soul", merged.soul[0], merged.soul[1].file), merged.soul[1]))
    if behavior["persona"]:
        parts.append((PromptPart("persona", behavior["persona"]), merged.at.get("behavior.persona")))
    for index, trait in enumerate(behavior["traits"]):
        where = merged.at.get(f"behavior.traits[{index}]") or merged.at.get("behavior.traits")
        parts.append((PromptPart("trait", trait), where))
    if (behavior["system_override"] or "").strip():
        text = behavior["system_override"].strip()
        parts.append((PromptPart("override", text), merged.at.get("behavior.system_override")))
    for text, where in merged.rules:
        parts.append((PromptPart("rules", text, where.file), where))
    for index, (part, origin) in enumerate(parts):
        if origin:
            origins[f"prompt[{index}]"] = origin
        yield part


def _tools(merged: Merged, origins: dict[str, Origin]) -> Iterator[Tool]:
    tools = merged.values["tools"]
    servers: list[tuple[Tool, str]] = [(_server(entry), f"tools.mcp[{n}]") for n, entry in enumerate(tools["mcp"])]
    native: list[tuple[Tool, str]] = [
        (BuiltinTool(name), f"tools.native[{n}]") for n, name in enumerate(tools["native"])
    ]
    for index, (tool, path) in enumerate(servers + native):
        if origin := merged.at.get(path) or merged.at.get(path.partition("[")[0]):
            origins[f"tools[{index}]"] = origin
        yield tool


_TRANSPORTS = ("stdio", "http", "streamable-http")


def _server(entry: Json) -> McpServer:
    """An MCP entry: a well-known name, `{name: {settings}}`, or `{name: …, command: …}`."""
    if isinstance(entry, str):
        return McpServer(entry)
    if isinstance(entry.get("name"), str):
        return _named_server(entry)
    if len(entry) == 1:
        ((name, settings),) = entry.items()
        if isinstance(settings, dict) and settings:
            return McpServer(name, config=settings)
    return McpServer(next(iter(entry), ""), raw=entry)


def _named_server(entry: dict[str, Any]) -> McpServer:
    """What is understood is read; an entry that says more is also kept as it was written."""
    texts = {key: entry[key] for key in ("command", "url") if isinstance(entry.get(key), str)}
    maps = {key: entry[key] for key in ("env", "headers") if _is_text_map(entry.get(key))}
    args = entry.get("args")
    words = args if isinstance(args, list) and all(isinstance(arg, str) for arg in args) else []
    transport = entry.get("transport")
    known: dict[str, Any] = {**texts, **maps}
    if transport in _TRANSPORTS:
        known["transport"] = transport
    understood = {"name", *known, *(["args"] if words else [])}
    whole = len(entry) > 1 and not (entry.keys() - understood)
    return McpServer(entry["name"], args=tuple(words), raw=None if whole else entry, **known)


def _is_text_map(value: Json) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def _skill(entry: Json) -> AbstractSkill:
    if isinstance(entry, str):
        return AbstractSkill(entry)
    if isinstance(entry.get("name"), str) and entry.keys() == {"name", "requires"} and entry["requires"] is not None:
        return AbstractSkill(entry["name"], requires=entry["requires"])
    name = entry.get("name")
    return AbstractSkill(name if isinstance(name, str) else next(iter(entry), ""), raw=entry)


def _extra(merged: Merged, problems: list[Problem]) -> dict[str, Json]:
    """What the model has no home for."""
    values = merged.values
    kept = dict(merged.extra)
    for name in ("agents", "pipeline"):
        if values[name]:
            kept[name] = values[name]
            where = merged.at[name]
            text = f"{name} is read and kept, but nothing is done with it"
            problems.append(Problem("warning", where.file, where.line, where.column, name, text))
    if values["apiVersion"] != "agent/v1":
        kept["apiVersion"] = values["apiVersion"]
        where = merged.at["apiVersion"]
        text = f"apiVersion is {values['apiVersion']!r}; it is read as agent/v1"
        problems.append(Problem("warning", where.file, where.line, where.column, "apiVersion", text, "write agent/v1"))
    return kept
