"""The Duragent format: agent.yaml with `apiVersion: duragent/…`, and what lies beside it.

Prose files, policy.yaml and policy.local.yaml, skills/*/SKILL.md, tools/*/run*. The fields are in
`fields.py`, writing in `write.py`.
"""

import posixpath
import re
import shlex
from functools import partial
from typing import Any

from msgspec import convert
from msgspec.structs import replace

from duragent.agent import (
    Access,
    Agent,
    BuiltinTool,
    CliTool,
    DiscoveredTool,
    Level,
    Limits,
    McpServer,
    Memory,
    ModelChoice,
    ModelRef,
    Origin,
    Policy,
    PolicyTier,
    PromptPart,
    Schedule,
    SessionRules,
    Skill,
    Tool,
    Trigger,
)
from duragent.formats import skills as skill_files
from duragent.formats.cron import check_cron
from duragent.formats.duragent.fields import MANIFEST, SCHEMAS, VERSIONS
from duragent.formats.duragent.needs import PROSE, needs, script_of, skills_dir
from duragent.formats.duragent.policy import read_policy
from duragent.formats.duragent.variables import check_variables
from duragent.formats.duragent.write import render
from duragent.formats.reader import BAD, Reader, did_you_mean, homes, parent, read_yaml
from duragent.formats.shape import Absent, Blob, File, Files, Folder, Need, Parsed, Problem, absence, failed, normal
from duragent.formats.sniff import top

__all__ = ["SCHEMAS", "claims", "parse", "render"]

_SEMVER = re.compile(r"\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?")

_HOMES = {
    "metadata": "",
    "spec.model.provider": "model.candidates[0].provider",
    "spec.model.name": "model.candidates[0].name",
    "spec.model.base_url": "model.candidates[0].base_url",
    "spec.model.max_tokens": "model.max_output_tokens",
    "spec.model": "model",
    "spec.session.max_tool_iterations": "limits.tool_iterations",
    "spec.session.max_background_runtime": "limits.background_seconds",
    "spec.session": "session",
    "spec.access": "access",
    "spec.memory.backend": "memory.long_term",
    "spec.memory.short_term.backend": "memory.short_term",
    "spec.memory.short_term.max_tokens": "memory.short_term_max_tokens",
    "spec.memory.long_term.backend": "memory.long_term",
    "spec.tools": "tools",
    "spec.skills_dir": "skills_dir",
}


def manifest_path(files: Files) -> str:
    if files.entry:
        return files.entry
    return "agent.yaml" if "agent.yaml" in files.names() else "agent.yml"


def claims(files: Files) -> str | None:
    path = manifest_path(files)
    said = top(files.text(path) or "")
    version = said.get("apiVersion", "")
    if version.startswith("duragent/"):
        return f"apiVersion duragent/… in {path}"
    if ("metadata" in said or "spec" in said) and not version.startswith("agent/") and "component_type" not in said:
        return f"`metadata:` or `spec:` in {path}"
    return None


def parse(files: Files) -> Parsed | Need:
    path = manifest_path(files)
    reader = Reader(path)
    text = files.text(path)
    assert text is not None
    node = read_yaml(reader, text, "1.2")
    said: Any = MANIFEST.read(node, "", reader) if node is not None else BAD
    if node is None and reader.ok():
        reader.error((1, 1), "", f"{path} is empty", "begin with `apiVersion: duragent/v1alpha1`")
    if said is BAD:
        return Parsed(None, tuple(reader.problems))
    return _go_on(reader, said, files)


def _go_on(reader: Reader, said: dict[str, Any], files: Files) -> Parsed | Need:
    """The manifest has been read; read what it names, then build the agent."""
    if need := needs(said.get("spec", {}), files):
        return replace(need, then=partial(_go_on, reader, said))
    return _Folder(files, reader, said).parsed()


# --- from what was read to an Agent ----------------------------------------------------------------------


class _Folder:
    """One agent folder with everything it needs in hand."""

    def __init__(self, files: Files, reader: Reader, said: dict[str, Any]) -> None:
        self.files, self.reader, self.said = files, reader, said
        self.spec: dict[str, Any] = said.get("spec", {})
        self.metadata: dict[str, Any] = said.get("metadata", {})
        self.problems: list[Problem] = []
        self.origins: dict[str, Origin] = {}

    def parsed(self) -> Parsed:
        self.check_head()
        prompt = self.prompt()
        tools = self.tools()
        skills = self.skills()
        triggers, schedules = self.triggers(skills)
        policy = Policy(agent=self.policy("policy.yaml", "agent"), local=self.policy("policy.local.yaml", "local"))
        model, memory = self.model(), self.memory()
        problems = (*self.reader.problems, *self.problems)
        if failed(problems):
            return Parsed(None, problems)
        session = dict(self.spec.get("session", {}))
        agent = Agent(
            name=self.metadata["name"],
            description=self.metadata.get("description"),
            version=self.metadata.get("version"),
            labels=self.metadata.get("labels", {}),
            a2a=self.metadata.get("a2a", {}),
            model=model,
            prompt=prompt,
            templates="variables" if "templates" in self.origins else "none",
            tools=tools,
            skills_dir=self.spec.get("skills_dir"),
            skills=skills,
            memory=memory,
            limits=Limits(
                tool_iterations=session.pop("max_tool_iterations", Limits().tool_iterations),
                background_seconds=session.pop("max_background_runtime", None),
            ),
            session=convert(session, SessionRules),
            access=convert(self.spec["access"], Access) if "access" in self.spec else None,
            policy=policy,
            schedules=schedules,
            triggers=triggers,
            extra=self.extra(),
            origins={key.removeprefix("."): o for key, o in self.all_origins().items()},
        )
        return Parsed(agent, problems)

    def all_origins(self) -> dict[str, Origin]:
        kept = {f"extra.duragent.{path}": origin for path, origin in self.reader.kept_at.items()}
        hooks = {f"extra.duragent.{path}": origin for path, origin in self.reader.at.items() if path == "spec.hooks"}
        found = homes(self.reader.at, _HOMES) | kept | hooks | self.origins
        if "memory" in self.spec:
            found.setdefault("memory.long_term", self.reader.at["spec.memory"])
        return found

    def place(self, path: str) -> tuple[int, int]:
        return self.reader.position(path)

    def check_head(self) -> None:
        version = self.said.get("apiVersion")
        if version is not None and version not in VERSIONS:
            hint = did_you_mean(version, VERSIONS) or f"write {VERSIONS[0]}"
            self.reader.error(self.place("apiVersion"), "apiVersion", f"apiVersion {version!r} is not known", hint)
        elif version not in (None, VERSIONS[0]):
            self.reader.warning(
                self.place("apiVersion"),
                "apiVersion",
                f"{version} is read as {VERSIONS[0]}",
                "no later version is published",
            )
        release = self.metadata.get("version")
        if release is not None and not _SEMVER.fullmatch(release):
            self.reader.warning(
                self.place("metadata.version"),
                "metadata.version",
                f"{release!r} is not a semantic version",
                "e.g. 1.0.0",
            )

    def model(self) -> ModelChoice:
        said = dict(self.spec.get("model", {}))
        told = any(problem.path == "spec.model" for problem in self.reader.problems)  # it is there, but wrong
        if not said and not told and "spec" in self.said and "model" not in self.spec:
            text = "the agent names no model; the default of the machine is used"
            self.reader.warning(self.place("spec"), "spec.model", text, "add `model:` with provider and name")
        if "max_tokens" in said:
            older = said.pop("max_tokens")
            said.setdefault("max_output_tokens", older)
            self.reader.warning(
                self.place("spec.model.max_tokens"),
                "spec.model.max_tokens",
                "max_tokens is the older name",
                "write max_output_tokens",
            )
        ref = {key: said.pop(key, None) for key in ("provider", "name", "base_url")}
        candidates = (
            (ModelRef(ref["provider"], ref["name"], ref["base_url"]),) if ref["provider"] and ref["name"] else ()
        )
        return ModelChoice(candidates=candidates, **said)

    def prompt(self) -> tuple[PromptPart, ...]:
        parts: list[PromptPart] = []
        for key in PROSE:
            if key in self.spec:
                self.add_part(parts, PromptPart(key, "", self.spec[key], required=True), f"spec.{key}")  # type: ignore[arg-type]
        for index, each in enumerate(self.spec.get("bootstrap", ())):
            if "path" in each:
                part = PromptPart(
                    "bootstrap",
                    "",
                    each["path"],
                    max_tokens=each.get("max_tokens"),
                    required=each.get("required", False),
                )
                self.add_part(parts, part, f"spec.bootstrap[{index}].path")
        return tuple(parts)

    def add_part(self, parts: list[PromptPart], part: PromptPart, at: str) -> None:
        path = normal(part.path or "")
        entry = self.files.found.get(path)
        if not isinstance(entry, File):
            self.absent(path, entry, at, "error" if part.required else "warning")
            if part.kind != "bootstrap":
                return
        text = entry.text.strip() if isinstance(entry, File) else ""
        if isinstance(entry, File):
            if not text:
                self.problems.append(Problem("warning", path, 1, 1, at, f"{path} is empty", "write something into it"))
            used, doubts = check_variables(entry.text)
            if used:
                self.origins.setdefault("templates", Origin(path, 1, 1))
            for line, column, name, hint in doubts:
                problem = Problem("warning", path, line, column, at, f"unknown variable {name}", hint)
                self.problems.append(problem)
        here = f"prompt[{len(parts)}]"
        self.origins[here] = Origin(path, 1, 1)
        for name in ("path", "max_tokens", "required"):
            if origin := self.reader.at.get(f"{parent(at)}.{name}" if part.kind == "bootstrap" else at):
                self.origins[f"{here}.{name}"] = origin
        kept = replace(part, text=text)
        parts.append(kept if part.kind == "bootstrap" else replace(kept, required=False))

    def absent(self, path: str, entry: object, at: str, level: Any) -> None:
        why = entry if isinstance(entry, Absent) else Absent("missing")
        line, column = self.place(at)
        self.problems.append(absence(level, path, why, file=self.reader.file, line=line, column=column, at=at))

    def tools(self) -> tuple[Tool, ...]:
        found: list[Tool] = []
        for index, said in enumerate(self.spec.get("tools", ())):
            if (tool := self.tool(said, f"spec.tools[{index}]")) is not None:
                found.append(tool)
        names: set[str] = set()
        for index, tool in enumerate(found):
            name = getattr(tool, "name", "")
            if name in names:
                at = f"spec.tools[{index}]"
                self.reader.error(self.place(at), at, f"two tools are called {name!r}", "rename one")
            names.add(name)
        return (*found, *self.discovered(names, len(found)))

    def tool(self, said: dict[str, Any], at: str) -> Tool | None:
        if "name" not in said:
            return None
        name = said["name"]
        if said["type"] == "builtin":
            return BuiltinTool(name)
        if said["type"] == "mcp":
            if "server" not in said:
                return None
            server = said["server"]
            if server.startswith(("http://", "https://")):
                return McpServer(name, url=server, config=said.get("config", {}))
            if script := script_of(server):
                self.check_script(normal(script), f"{at}.server")
            return self.mcp_program(name, server, said.get("config", {}), f"{at}.server")
        command = said.get("command", "")
        if script := script_of(command):
            self.check_script(normal(script), f"{at}.command", "warning")  # the agent runs without this one
        if "readme" in said and not isinstance(self.files.found.get(normal(said["readme"])), Blob | File):
            path = normal(said["readme"])
            entry = self.files.found.get(path)
            missing = not isinstance(entry, Absent) or entry.why == "missing"
            self.absent(path, entry, f"{at}.readme", "warning" if missing else "error")
        return CliTool(name, command, said.get("description", ""), said.get("readme"))

    def mcp_program(self, name: str, server: str, config: dict[str, Any], at: str) -> McpServer | None:
        """`server: npx -y some-server` is a program and its arguments."""
        try:
            words = shlex.split(server)
        except ValueError:
            words = []
        if not words:
            self.reader.error(self.place(at), at, f"{server!r} is no command line", "close its quotes")
            return None
        return McpServer(name, command=words[0], args=tuple(words[1:]), config=config)

    def check_script(self, path: str, at: str, level: Level = "error") -> None:
        entry = self.files.found.get(path)
        if not isinstance(entry, Blob | File):
            missing = not isinstance(entry, Absent) or entry.why == "missing"
            self.absent(path, entry, at, level if missing else "error")
        elif not entry.executable:
            self.reader.warning(self.place(at), at, f"{path} is not executable", f"chmod +x {path}")

    def discovered(self, taken: set[str], index: int) -> list[Tool]:
        """`tools/<name>/run` or `run.*`. A declared tool of the same name wins."""
        listing = self.files.found.get("tools/**")
        if isinstance(listing, Absent) and listing.why != "missing":
            self.problems.append(absence("error", "tools", listing, file="tools", line=1, column=1, at="tools"))
        names = listing.names if isinstance(listing, Folder) else ()
        for name in names:
            if isinstance(entry := self.files.found.get(f"tools/{name}"), Absent):
                path = f"tools/{name}"
                self.problems.append(absence("error", path, entry, file=path, line=1, column=1, at="tools"))
        found: list[Tool] = []
        for folder in (name[:-1] for name in names if name.endswith("/") and name.count("/") == 1):
            runs = [n for n in names if re.fullmatch(re.escape(folder) + r"/run(?:\.[^/]+)?", n)]
            if not runs or folder in taken:
                continue
            path = f"tools/{runs[0]}"
            entry = self.files.found.get(path)
            if isinstance(entry, Blob) and not entry.executable:
                problem = Problem("warning", path, 1, 1, "tools", f"{path} is not executable", f"chmod +x {path}")
                self.problems.append(problem)
            readme = f"tools/{folder}/README.md" if f"{folder}/README.md" in names else None
            self.origins[f"tools[{index + len(found)}]"] = Origin(path, 1, 1)
            found.append(DiscoveredTool(folder, f"./{path}", f"./{readme}" if readme else None))
        return found

    def skills(self) -> tuple[Skill, ...]:
        found = list(skill_files.read_all(skills_dir(self.spec), self.files, self.problems))
        if "skills_dir" in self.spec and f"{skills_dir(self.spec)}/**" in self.files.found:
            entry = self.files.found[f"{skills_dir(self.spec)}/**"]
            if isinstance(entry, Absent) and entry.why == "missing":
                self.absent(skills_dir(self.spec), entry, "spec.skills_dir", "warning")
        for index, said in enumerate(self.spec.get("skills", ())):
            at = f"spec.skills[{index}]"
            if ("path" in said) == ("url" in said):
                self.reader.error(self.place(at), at, f"{at} needs `path` or `url`, and not both")
            elif "url" in said:
                self.origins[f"skills[{len(found)}]"] = self.reader.at[f"{at}.url"]
                found += self.remote_skill(said["url"], at)
            else:
                folder = normal(said["path"])
                page = self.files.found.get(f"{folder}/SKILL.md")
                if not isinstance(page, File):
                    self.absent(f"{folder}/SKILL.md", page, f"{at}.path", "error")
                    continue
                skill = skill_files.read_one(f"{folder}/SKILL.md", self.files, self.problems)
                names = skill_files.bundled(self.files.names(f"{folder}/**"))
                found += [replace(skill, files=names)] if skill else []
        for index, skill in enumerate(found):
            if any(skill.name == other.name for other in found[:index]):
                text = f"two skills are called {skill.name!r}"
                self.problems.append(Problem("error", skill.path, 1, 1, "name", text, "rename one"))
        return tuple(found)

    def remote_skill(self, url: str, at: str) -> list[Skill]:
        if not url.startswith("https://"):
            self.reader.error(self.place(at), f"{at}.url", f"{url!r} is not an https address", "use https://")
            return []
        place = url.partition("#")[0].removesuffix("/SKILL.md").rstrip("/")
        return [Skill(name=posixpath.basename(place), path=url)]

    def triggers(self, skills: tuple[Skill, ...]) -> tuple[tuple[Trigger, ...], tuple[Schedule, ...]]:
        known = [skill.name for skill in skills]
        triggers: list[Trigger] = []
        schedules: list[Schedule] = []
        for index, said in enumerate(self.spec.get("triggers", ())):
            at = f"spec.triggers[{index}]"
            if ("pattern" in said) == ("schedule" in said):
                self.reader.error(self.place(at), at, f"{at} needs `pattern` or `schedule`, and not both")
                continue
            skill = said.get("skill", "")
            if skill and skill not in known:
                hint = did_you_mean(skill, known) or (
                    "known: " + ", ".join(known) if known else "the agent has no skills"
                )
                self.reader.error(self.place(f"{at}.skill"), f"{at}.skill", f"there is no skill {skill!r}", hint)
            if "pattern" in said:
                self.origins[f"triggers[{len(triggers)}]"] = self.reader.at[at]
                triggers.append(Trigger(said["pattern"], skill))
                continue
            if wrong := check_cron(said["schedule"]):
                place, where = self.place(f"{at}.schedule"), f"{at}.schedule"
                self.reader.error(place, where, f"{where} {wrong}", 'e.g. "0 20 * * FRI"')
            self.origins[f"schedules[{len(schedules)}]"] = self.reader.at[at]
            schedules.append(Schedule(cron=said["schedule"], skill=skill))
        return tuple(triggers), tuple(schedules)

    def memory(self) -> Memory:
        notes = self.files.notes()
        if "memory" not in self.spec:
            return Memory(notes=notes)
        said = self.spec["memory"]
        short, long = said.get("short_term"), said.get("long_term", {})
        backends = {value for value in (said.get("backend"), long.get("backend")) if value is not None}
        if len(backends) > 1:
            at = "spec.memory.long_term.backend"
            text = "spec.memory.backend and spec.memory.long_term.backend say different things"
            self.reader.error(self.place(at), at, text, "keep one of them")
        return Memory(
            short_term=short.get("backend", "buffer") if short is not None else None,
            short_term_max_tokens=(short or {}).get("max_tokens"),
            long_term=max(backends, default="filesystem"),
            notes=notes,
        )

    def policy(self, name: str, tier: str) -> PolicyTier | None:
        entry = Folder(()) if f"{name}/" in self.files.names() else self.files.found.get(name)
        if entry is None:
            self.check_policy_name(name)
            return None
        reader = Reader(name)
        found = read_policy(entry, reader)
        self.problems += reader.problems
        self.origins |= {f"policy.{tier}.{path}": origin for path, origin in reader.at.items()}
        if reader.extra:
            self.reader.extra[name] = reader.extra
        return found

    def check_policy_name(self, name: str) -> None:
        """A policy that is not read because its name is a little off protects nobody."""
        for other in self.files.names():
            if other != name and other.lower().replace(".yml", ".yaml") == name:
                text = f"{other} is not read; policies are called {name}"
                self.problems.append(Problem("error", other, 1, 1, "policy", text, f"rename it to {name}"))

    def extra(self) -> dict[str, Any]:
        kept = dict(self.reader.extra)
        if "hooks" in self.spec:
            kept["spec"] = {**kept.get("spec", {}), "hooks": self.spec["hooks"]}
        return {"duragent": kept} if kept else {}
