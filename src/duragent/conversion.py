"""Converts an agent to another format and says exactly what did not come along.

The loss report is not a claim but a measurement: what was written is read back, and every difference
between the two agents is named. What protects the owner (trust, policy, access, limits, abilities) is
never lost unless that is accepted.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs, to_builtins

from duragent.agent import META, PROTECTED, Agent, Command, Json, PromptPart, Skill
from duragent.agentfiles import examine, load
from duragent.errors import DuragentError, InvalidAgent, LossRefused
from duragent.formats import open_format
from duragent.formats.shape import Absent, Rendered, is_address, leaves, normal
from duragent.reading import Disk

TARGETS = ("duragent", "agentspec", "agentdir", "agentmd", "openagentspec")


class Loss(Struct, frozen=True):
    """One difference between an agent and what another format made of it."""

    path: str
    kind: Literal["lost", "changed", "added"]
    before: Json
    after: Json
    protected: bool
    why: str = ""

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        shown = [_short(value) for value in (self.before, self.after) if not _empty(value)]
        return f"{self.kind:<8} {self.path}: {' → '.join(shown)}{why}"


class Converted(Struct, frozen=True):
    """What a conversion wrote. `entry` is the file or folder to point at."""

    entry: str
    files: tuple[str, ...]
    losses: tuple[Loss, ...]


def convert(
    path: str | os.PathLike[str], to: str, output: str | os.PathLike[str], *, accept_loss: bool = False
) -> Converted:
    """Write the agent at `path` in the format `to` into the folder `output`."""
    return write(load(path), to, output, accept_loss=accept_loss)


def write(agent: Agent, to: str, output: str | os.PathLike[str], *, accept_loss: bool = False) -> Converted:
    """Write an agent that was loaded before. Nothing appears in `output` unless all of it is right."""
    rendered = open_format(to).render(agent)
    target = Path(output)
    _check_free(target, rendered)
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        _fill(stage, rendered, agent)
        found = examine(stage / rendered.entry if rendered.entry else stage)
        if found.agent is None:
            errors = [structs.replace(each, file=os.path.relpath(each.file, stage)) for each in found.problems]
            raise InvalidAgent(f"{agent.name}, written as {to},", [each for each in errors if each.level == "error"])
        losses = tuple(differences(agent, found.agent, rendered.notes))
        refused = [loss for loss in losses if loss.protected]
        if refused and not accept_loss:
            listed = "\n".join(f"  {loss}" for loss in refused)
            raise LossRefused(f"{to} cannot say what protects the owner; nothing was written:\n{listed}", losses)
        files = _move(stage, target)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return Converted(str(target / rendered.entry) if rendered.entry else str(target), files, losses)


def _check_free(target: Path, rendered: Rendered) -> None:
    if target.exists() and not target.is_dir():
        raise DuragentError(f"{target} is a file; name a folder to write into")
    for name in (*rendered.files, *rendered.copies):
        if leaves(normal(name)):
            raise DuragentError(f"{name!r} would be written outside of {target}")
        if os.path.lexists(target / name):
            raise DuragentError(f"{target / name} exists already; choose another folder or remove it")
        if any((target / folder).is_symlink() for folder in Path(name).parents if folder.name):
            raise DuragentError(f"{target / name} would be written through a link; choose another folder")


def _fill(stage: Path, rendered: Rendered, agent: Agent) -> None:
    source = agent.source.path
    disk = Disk(source if os.path.isdir(source) else os.path.dirname(source) or ".")
    for name, text in rendered.files.items():
        place = stage / name
        place.parent.mkdir(parents=True, exist_ok=True)
        # NUL and lone surrogates, which only escapes in YAML can make, have no place in a text file; reading back
        # will name the change.
        place.write_bytes(text.replace("\x00", "\ufffd").encode("utf-8", "backslashreplace"))
    for name, origin in rendered.copies.items():
        found = disk.raw(origin, inside=not leaves(normal(origin)))
        if isinstance(found, Absent):
            continue  # reading back will name it
        place = stage / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(found[0])
        if found[1]:
            place.chmod(0o755)


def _move(stage: Path, target: Path) -> tuple[str, ...]:
    stage.chmod(0o755)
    names = tuple(sorted(str(path.relative_to(stage)) for path in stage.rglob("*") if path.is_file()))
    if not target.exists():
        stage.rename(target)
        return names
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, target / name)
    return names


# --- comparing two agents --------------------------------------------------------------------------------


def differences(before: Agent, after: Agent, notes: Mapping[str, str] | None = None) -> Iterator[Loss]:
    """Everything that `after` does not say as `before` did. Where things were written does not count."""
    for path, old, new in _compare("", comparable(before), comparable(after)):
        kind: Literal["lost", "changed", "added"] = "lost" if _empty(new) else "added" if _empty(old) else "changed"
        # An empty list of what is allowed allows nothing, which protects as much as anything.
        protected = (not _empty(old) or path == "abilities.allow") and _protects(path, old, new, after)
        yield Loss(path, kind, old, new, protected, _why(path, notes or {}))


def _protects(path: str, old: Json, new: Json, after: Agent) -> bool:
    """Whether the owner was protected by what stood at `path` and is so no longer."""
    if not any(path == each or path.startswith((f"{each}.", f"{each}[")) for each in PROTECTED):
        return False
    if path == "status":
        return bool(old != "active")
    if not isinstance(old, int | float) or isinstance(old, bool) or not path.startswith(("limits.", "model.")):
        return True
    if path in ("limits.tool_iterations", "limits.steps"):
        return after.limits.rounds is None or after.limits.rounds > old
    return new is None or new > old


def comparable(agent: Agent) -> dict[str, Json]:
    """An agent as plain values, without where it came from."""
    plain: dict[str, Json] = to_builtins(agent)
    for name in META:
        del plain[name]
    plain["prompt"] = _prompt(agent.prompt)
    plain["tools"] = _by_name(agent.tools)
    plain["skills"] = _by_name([structs.replace(skill, path=_address(skill)) for skill in agent.skills])
    plain["commands"] = _by_name([structs.replace(each, source=_address(each)) for each in agent.commands])
    plain["schedules"] = [
        {k: v for k, v in each.items() if k != "name" or not each["skill"]} for each in plain["schedules"]
    ]
    return plain


def _address(each: Skill | Command) -> Any:
    """A path on disk is where something was; an address is what it is."""
    place = each.path if isinstance(each, Skill) else each.source or ""
    return place if is_address(place) else "" if isinstance(each, Skill) else None


def _prompt(parts: tuple[PromptPart, ...]) -> list[Json]:
    """Parts in order; neighbours of one kind are one text, however many files they stood in."""
    found: list[dict[str, Json]] = []
    for part in parts:
        plain = {"kind": part.kind, "text": part.text, "max_tokens": part.max_tokens, "required": part.required}
        if found and part.kind == found[-1]["kind"] and part.kind not in ("trait", "bootstrap"):
            found[-1]["text"] += "\n\n" + part.text
        else:
            found.append(plain)
    return list(found)


def _by_name(values: Any) -> Json:
    """Named things by name, so that one that is missing does not make all others look different."""
    named: dict[str, Json] = {}
    for value in values:
        plain = to_builtins(value)
        name = f"{plain['type']}:{plain.get('name', '')}" if "type" in plain else plain["name"]
        while name in named:
            name += "'"
        named[name] = plain
    return named


def _compare(path: str, old: Json, new: Json) -> Iterator[tuple[str, Json, Json]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict) and old and new:
        for name in (*old, *(name for name in new if name not in old)):
            yield from _compare(f"{path}.{name}" if path else str(name), old.get(name), new.get(name))
        return
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and old:
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from _compare(f"{path}[{index}]", one, other)
        return
    if isinstance(old, dict) and old and not new and path in ("extra", "tools", "skills", "commands"):
        for name, value in old.items():
            yield f"{path}.{name}", value, None
        return
    yield path, old, new


def _empty(value: Json) -> bool:
    return value is None or value in ("", [], (), {})


def _why(path: str, notes: Mapping[str, str]) -> str:
    while path:
        if path in notes:
            return notes[path]
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return ""


def _short(value: Json) -> str:
    """A value in a few words: texts quoted, what has a name by its name."""
    if isinstance(value, dict):
        named = value.get("name") or value.get("text")
        shown = [f"{key} {_short(each)}" for key, each in value.items() if not _empty(each) and key != "type"]
        return _short(named) if named else ", ".join(shown[:4]) + (", …" if len(shown) > 4 else "")
    elif isinstance(value, list | tuple):
        return ", ".join(_short(each) for each in value[:4]) + (", …" if len(value) > 4 else "") or "nothing"
    text = " ".join(str(value).split())
    text = text[:50] + "…" if len(text) > 51 else text
    return f"“{text}”" if isinstance(value, str) else text
