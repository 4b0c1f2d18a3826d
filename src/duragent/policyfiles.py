"""The policy files around an agent: the one of the workspace, and the local one that keeps a person's `always`.

Reads tiers that are no part of the agent's own files, and adds a rule to a file without touching anything else in it.
A broken file is an error that stops the agent, never an absent one. What a rule means is `core/policy.py`.
"""

import fcntl
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import yaml
from msgspec.structs import replace

from duragent.agent import Agent, Origin, PolicyTier
from duragent.errors import InvalidAgent, StorageFailed
from duragent.formats.duragent.policy import read_policy
from duragent.formats.reader import Reader
from duragent.formats.shape import File, Problem
from duragent.reading import Disk, is_stand_in

NAME = "policy.yaml"
LOCAL = "policy.local.yaml"
FOLDER = "policies"
_HEADER = "# What a person chose to allow always. Edit it as you like: your words and comments are kept.\n"


def with_policies(agent: Agent, workspace: Path) -> Agent:
    """The agent under every policy file that concerns it. Raises `InvalidAgent` where one of them is broken."""
    origins = dict(agent.origins)
    policy = replace(agent.policy, workspace=_tier(workspace / NAME, "workspace", origins))
    if policy.local is None:
        policy = replace(policy, local=_tier(local_file(agent, workspace), "local", origins))
    return agent if policy == agent.policy else replace(agent, policy=policy, origins=origins)


def local_file(agent: Agent, workspace: Path) -> Path:
    """Where the owner's own rules for this agent are: beside a Duragent agent, in the workspace for all others, whose
    formats know no such file."""
    source = os.path.abspath(agent.source.path)
    if agent.source.format == "duragent":
        return Path(source if os.path.isdir(source) else os.path.dirname(source)) / LOCAL
    plain = re.sub(r"[^a-z0-9]+", "-", agent.name.lower()).strip("-")[:40] or "agent"
    return workspace / FOLDER / f"{plain}-{sha256(source.encode()).hexdigest()[:8]}.yaml"


def _tier(file: Path, tier: str, origins: dict[str, Origin]) -> PolicyTier | None:
    for near in (file.with_suffix(".yml"), file.with_name(file.name.capitalize())):
        if near.exists() and not file.exists():
            text = f"{near.name} is not read; policies are called {file.name}"
            raise InvalidAgent(near, [Problem("error", str(near), 1, 1, "policy", text, f"rename it to {file.name}")])
    if not os.path.lexists(file) or is_stand_in(str(file)):
        return None
    found, reader = read_tier(file)
    if found is None:
        raise InvalidAgent(file, [problem for problem in reader.problems if problem.level == "error"])
    origins |= {f"policy.{tier}.{path}": origin for path, origin in reader.at.items()}
    return found


def read_tier(file: Path) -> tuple[PolicyTier | None, Reader]:
    """One policy file, or None with the reasons in the reader."""
    reader = Reader(str(file))
    return read_policy(Disk(str(file.parent)).text(file.name, inside=False), reader), reader


def remember(file: Path, rule: str) -> Origin:
    """Add a rule to the `allow` list of a file. The rest of the file stays as it is, letter by letter."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.parent):
            there = file.exists() and not is_stand_in(str(file))
            before = file.read_bytes().decode() if there else _HEADER
            after = _checked(file, before, rule)
            if after != before:
                _write(Path(os.path.realpath(file)), after)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8"
        raise StorageFailed(f"{file}: the rule {rule!r} could not be kept: {why}. Allow it for this session") from None
    _, reader = read_tier(file)
    line = next((at for path, at in reversed(reader.at.items()) if path.startswith("allow[")), None)
    return line or Origin(str(file), 1, 1)


def _checked(file: Path, before: str, rule: str) -> str:
    """The text with the rule in it, read again to see that it says what it said and this one thing more."""
    old = _said(file, before)
    if rule in old.allow:
        return before
    after = _added(before, rule)
    try:
        fits = _said(file, after) == replace(old, allow=(*old.allow, rule))
    except InvalidAgent:
        fits = False
    if not fits:
        raise StorageFailed(f"{file}: the rule could not be added to this file; write it there yourself: {rule!r}")
    return after


def _said(file: Path, text: str) -> PolicyTier:
    reader = Reader(str(file))
    found = read_policy(File(text.removeprefix("\ufeff").replace("\r\n", "\n")), reader)
    if found is None:
        raise InvalidAgent(file, reader.problems)
    return found


def _added(text: str, rule: str) -> str:
    """The text with one rule more, put where a person would put it."""
    bom = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix("\ufeff")
    end = "\r\n" if "\r\n" in text else "\n"
    written = _quoted(rule)
    place = _place(text)
    match place:
        case None:
            text += "" if not text or text.endswith("\n") else end
            text += f"allow:{end}  - {written}{end}"
        case ("map", at, empty):
            text = f"{text[:at]}{'' if empty else ', '}allow: [{written}]{text[at:]}"
        case ("flow", at, empty):
            head = text[:at].rstrip()
            comma = "" if empty or head.endswith(",") else ","
            text = f"{text[:at]}{comma}{'' if empty else ' '}{written}{text[at:]}"
        case ("block", at, indent):
            line_end = text.find("\n", at)
            at = at if at and text[at - 1] == "\n" else len(text) if line_end < 0 else line_end + 1
            before = text[:at] if not at or text[at - 1] == "\n" else text[:at] + end
            text = f"{before}{' ' * indent}- {written}{end}{text[at:]}"
    return bom + text


def _place(text: str) -> tuple[str, int, int] | None:
    """Where in the text the next rule belongs: in the list that is there, or None for a list of its own at the end."""
    depth, key, last = 0, "", 0
    inside: yaml.events.SequenceStartEvent | None = None
    flow = empty = False
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.events.MappingEndEvent | yaml.events.SequenceEndEvent):
            depth -= 1
            if depth == 0 and flow:
                return "map", _index(event) - 1, int(empty)
            if depth == 1 and inside is not None:
                at = _index(event) - 1
                nothing = last == 0
                return ("flow", at, int(nothing)) if inside.flow_style else ("block", last, _column(inside))
        elif depth == 1 and inside is None and isinstance(event, yaml.events.ScalarEvent):
            empty = False
            if key == "allow":
                return "block", _index(event), 2  # `allow:` with nothing behind it
            key = "" if key else event.value
        elif depth == 2 and inside is not None and isinstance(event, yaml.events.ScalarEvent):
            last = _index(event)
        if isinstance(event, yaml.events.MappingStartEvent | yaml.events.SequenceStartEvent):
            depth += 1
            if depth == 1:
                flow, empty = bool(event.flow_style), True
            elif depth == 2:
                inside = event if key == "allow" and isinstance(event, yaml.events.SequenceStartEvent) else None
                key, last = "", 0
    return None


def _index(event: yaml.events.Event) -> int:
    return event.end_mark.index if event.end_mark else 0


def _column(event: yaml.events.Event) -> int:
    return event.start_mark.column if event.start_mark else 0


def _quoted(rule: str) -> str:
    if rule.isprintable():
        return "'" + rule.replace("'", "''") + "'"
    return json.dumps(rule)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process at a time adds a rule."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _write(file: Path, text: str) -> None:
    """Put a text in place of a file: the old one or the new one is there, never half of it."""
    there = file.exists() and not is_stand_in(str(file))
    mode = stat.S_IMODE(file.stat().st_mode) if there else 0o600
    new = file.with_name(f".{file.name}.{os.getpid()}.new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        with open(handle, "w", encoding="utf-8", newline="") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
