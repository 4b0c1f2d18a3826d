"""What a Duragent manifest makes it necessary to read: prose, policies, tools, skills, memory."""

from typing import Any

from msgspec.structs import replace

from duragent.formats import skills as skill_files
from duragent.formats.shape import Files, Need, normal

PROSE = ("soul", "system_prompt", "instructions")


def needs(spec: dict[str, Any], files: Files) -> Need | None:
    texts = {normal(spec[key]) for key in PROSE if key in spec}
    texts |= {normal(each["path"]) for each in spec.get("bootstrap", ()) if "path" in each}
    texts |= {name for name in ("policy.yaml", "policy.local.yaml") if name in files.names()}
    blobs = {normal(path) for path in _tool_files(spec)}
    shared = [normal(each["path"]) for each in spec.get("skills", ()) if "path" in each]
    need = Need(
        files=frozenset(texts),
        folders=frozenset({"tools/**", "memory/**", f"{skills_dir(spec)}/**"}),
        blobs=frozenset(blobs - texts),
        elsewhere=frozenset(f"{folder}/SKILL.md" for folder in shared),
    ).without(files.found)
    if need:
        return need
    # Only a folder that is a skill is listed; a path such as /usr is none.
    shared = [folder for folder in shared if files.text(f"{folder}/SKILL.md") is not None]
    if need := Need(elsewhere=frozenset(f"{folder}/**" for folder in shared)).without(files.found):
        return need
    found = frozenset(f"tools/{name}" for name in files.names("tools/**") if not name.endswith("/"))
    attached = {f"{folder}/{name}" for folder in shared for name in skill_files.bundled(files.names(f"{folder}/**"))}
    skills = skill_files.needs(skills_dir(spec), files) or Need()
    need = replace(skills, blobs=skills.blobs | found, attached=frozenset(attached)).without(files.found)
    return need if need else None


def skills_dir(spec: dict[str, Any]) -> str:
    return normal(spec.get("skills_dir", "./skills/")) or "."


def _tool_files(spec: dict[str, Any]) -> list[str]:
    """Files that declared tools name: scripts and their READMEs."""
    found = []
    for tool in spec.get("tools", ()):
        found += [tool["readme"]] if "readme" in tool else []
        if script := script_of(tool.get("command", tool.get("server", ""))):
            found.append(script)
    return found


def script_of(command: str) -> str | None:
    """The file a command names, if it is one beside the agent: `./tools/x.sh --fast` → `./tools/x.sh`."""
    first = command.split(maxsplit=1)[0] if command.strip() else ""
    if "://" in first:
        return None
    return first if first.startswith(("./", "../")) or ("/" in first and not first.startswith("/")) else None
