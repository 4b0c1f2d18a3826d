"""Skills behind an address: fetched on request, kept apart until a person approved them, then pinned by digest.

`<workspace>/skills.lock` says which address has which content and whether it may be used; the content lies in
`skills/<sha256>/SKILL.md`, before its approval in `skills/quarantine/<sha256>/SKILL.md`. `resolve` gives an agent the
skills that it may use now, and never fetches: only `add` does, with the function it is given (`fetch.fetch`).

Refuses to know what a skill is used for, and to unpack anything: one address is one SKILL.md.
A new sign of a bad skill: a line in `_SIGNS`.
"""

import hashlib
import json
import os
import posixpath
import re
import shlex
from bisect import bisect_left
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import DecodeError, Meta, Struct, field, to_builtins
from msgspec.json import Decoder
from msgspec.structs import replace

from duragent.agent import Agent, Skill
from duragent.errors import Conflict, FetchFailed, InvalidAgent, NotFound, StorageFailed
from duragent.formats.shape import Absent, Entry, File, Files, Problem, absence, is_address
from duragent.formats.skills import package_name, read_one
from duragent.reading import Disk

LOCK = "skills.lock"
State = Literal["local", "approved", "quarantined", "missing", "changed", "broken"]
Place = str | os.PathLike[str]
Fetch = Callable[[str], bytes]
MAX_WARNINGS = 30
_PAGE = "SKILL.md"
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2", ".7z", ".skill")
_MAGIC = (b"PK\x03\x04", b"\x1f\x8b", b"\xfd7zXZ", b"BZh", b"7z\xbc\xaf")


class Locked(Struct, frozen=True):
    """What is known about one address. `at` is when it was fetched, or else approved."""

    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
    approved: bool
    at: str
    name: str = ""
    description: str = ""


class _LockFile(Struct, frozen=True):
    version: Literal[1]
    skills: dict[str, Locked] = field(default_factory=dict)


class Standing(Struct, frozen=True):
    """One skill of an agent and whether it may be used. `text` is the stored page of one behind an address."""

    name: str
    place: str
    state: State
    note: str = ""
    skill: Skill | None = None
    text: str = ""


class Added(Struct, frozen=True):
    """What `add` fetched; `before` is what the lock said of this address until now."""

    url: str
    locked: Locked
    warnings: list[str]
    before: Locked | None


# --- what an agent may use ---------------------------------------------------------------------------------


def resolve(agent: Agent, workspace: Place) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """The agent's skills, those behind an address read where they were approved; and why others stay addresses, which
    nobody can load."""
    if not any(is_address(skill.path) for skill in agent.skills):
        return agent.skills, ()
    try:
        found = standings(agent, workspace)
    except Conflict as error:
        return agent.skills, (str(error),)
    skills = tuple(each.skill or skill for skill, each in zip(agent.skills, found, strict=True))
    return skills, tuple(each.note for each in found if each.note)


def standings(agent: Agent, workspace: Place) -> tuple[Standing, ...]:
    """How each skill of an agent stands, in its order. Raises `Conflict` where the lock file is damaged."""
    lock = read_lock(workspace)
    taken = {skill.name for skill in agent.skills if not is_address(skill.path)}
    found: list[Standing] = []
    for skill in agent.skills:
        if not is_address(skill.path):
            found.append(Standing(skill.name, skill.path, "local", skill=skill))
            continue
        each = _standing(skill, lock, workspace)
        if each.skill is not None:
            if each.name in taken:
                why = f"another skill of this agent has its name; remove one of them ({each.place})"
                each = replace(_unusable(each, "broken", why), skill=None)
            taken.add(each.name)
        found.append(each)
    return tuple(found)


def _standing(skill: Skill, lock: Mapping[str, Locked], workspace: Place) -> Standing:
    url = address(skill.path)
    each = Standing(skill.name, url, "missing")
    known = lock.get(url)
    if known is None:
        return _unusable(
            each, "missing", f"it was never fetched; fetch it: duragent skill add {shlex.quote(skill.path)}"
        )
    pin = _pin(skill.path)
    if pin and pin != known.sha256:
        why = f"the agent pins sha256={pin}, but what was fetched is sha256={known.sha256}; fetch it again"
        return _unusable(each, "changed", f"{why}: duragent skill add {shlex.quote(skill.path)}")
    entry, fits = _stored(workspace, known)
    each = replace(each, text=entry.text if isinstance(entry, File) else "")
    if not fits:
        why = "its stored text is missing" if isinstance(entry, Absent) else "its stored text was changed"
        return _unusable(each, "changed", f"{why}; fetch it again: duragent skill add {shlex.quote(skill.path)}")
    if not known.approved:
        how = f"look at it and approve it: duragent skill approve {shlex.quote(url)}"
        return _unusable(each, "quarantined", f"nobody has approved it yet; {how}")
    read, problems = _parsed(url, entry)
    if read is None:
        why = problems[0].text if problems else "it is no skill"
        return _unusable(each, "broken", f"{why}; remove it: duragent skill remove {shlex.quote(url)}")
    name = skill.name if package_name(skill.name) == skill.name else read.name
    page = os.path.join(os.path.abspath(workspace), _place(known), _PAGE)
    return replace(each, name=name, state="approved", skill=replace(read, name=name, path=page))


def _unusable(each: Standing, state: State, why: str) -> Standing:
    return replace(each, state=state, note=f"The skill {each.name} is not loaded: {why}")


def suspicions(agent: Agent, each: Standing) -> list[str]:
    """What `lint` says of a skill, of a local one also of its scripts."""
    if each.state != "local":
        return lint(each.text)
    path = os.path.abspath(agent.source.path or ".")
    disk = Disk(path if os.path.isdir(path) else os.path.dirname(path))
    folder = posixpath.dirname(each.place)
    scripts = [name for name in (each.skill.files if each.skill else ()) if name.startswith("scripts/")]
    found: list[str] = []
    for name in (posixpath.basename(each.place), *scripts):
        entry = disk.text(posixpath.join(folder, name), inside=False)
        found += [f"{name}: {one}" for one in lint(entry.text)] if isinstance(entry, File) else []
    return found


# --- fetching, approving, removing -------------------------------------------------------------------------


def add(url: str, workspace: Place, fetch: Fetch, *, now: datetime | None = None) -> Added:
    """Fetch the skill at an address and keep it in quarantine. The very content that was approved stays approved.

    Raises `FetchFailed`, or `InvalidAgent` with what is wrong with the page."""
    key = address(url)
    _refuse_archive(key, b"")
    lock = read_lock(workspace)
    data = fetch(url)
    _refuse_archive(key, data)
    entry = Disk(".").decode(key, data)
    skill, problems = _parsed(key, entry)
    if skill is None:
        raise InvalidAgent(key, problems)
    assert isinstance(entry, File)
    digest = hashlib.sha256(data).hexdigest()
    before = lock.get(key)
    keeps = before is not None and before.approved and before.sha256 == digest
    at = before.at if keeps and before is not None else _time(now)
    locked = Locked(digest, keeps, at, skill.name, skill.description)
    _write(workspace, os.path.join(_place(locked), _PAGE), data)
    _write_lock(workspace, {**lock, key: locked})
    if before is not None and _place(before) != _place(locked):
        _discard(workspace, before, {**lock, key: locked})
    return Added(key, locked, lint(entry.text), before)


def waiting(url: str, workspace: Place) -> tuple[Locked, str, str]:
    """What the lock says of an address, its stored text, and the file this is in. Raises `NotFound`, `Conflict`."""
    key = address(url)
    known = read_lock(workspace).get(key)
    if known is None:
        raise NotFound(f"{key} was never fetched. Try: duragent skill add {shlex.quote(url)}")
    entry, fits = _stored(workspace, known)
    if not fits or not isinstance(entry, File):
        why = "is missing" if isinstance(entry, Absent) else "was changed"
        raise Conflict(f"the stored text of {key} {why}. Fetch it again: duragent skill add {shlex.quote(url)}")
    return known, entry.text, os.path.join(os.fspath(workspace), _place(known), _PAGE)


def approve(url: str, workspace: Place, digest: str, *, now: datetime | None = None) -> Locked:
    """Let agents use the skill at an address: exactly the content that has this digest, or begins with these 12 or more
    digits of it. Raises `Conflict` where that is not what waits."""
    known, _, _ = waiting(url, workspace)
    wanted = digest.lower().removeprefix("sha256=").removeprefix("sha256:")
    if len(wanted) < 12 or not known.sha256.startswith(wanted):
        raise Conflict(
            f"{address(url)} has sha256={known.sha256}, not {digest}. Look at it again before you approve it"
        )
    if known.approved:
        return known
    approved = replace(known, approved=True, at=_time(now))
    found = Disk(os.fspath(workspace)).raw(os.path.join(_place(known), _PAGE))
    assert not isinstance(found, Absent)
    if hashlib.sha256(found[0]).hexdigest() != known.sha256:
        raise Conflict(f"the stored text of {address(url)} changed a moment ago. Fetch it again")
    _write(workspace, os.path.join(_place(approved), _PAGE), found[0])
    lock = {**read_lock(workspace), address(url): approved}
    _write_lock(workspace, lock)
    _discard(workspace, known, lock)
    return approved


def remove(url: str, workspace: Place) -> Locked:
    """Forget the skill at an address and its content. Raises `NotFound`."""
    lock = read_lock(workspace)
    known = lock.pop(address(url), None)
    if known is None:
        listed = f" There are: {', '.join(sorted(lock))}." if lock else " There are none."
        raise NotFound(f"{LOCK} has no skill from {address(url)}.{listed}")
    _write_lock(workspace, lock)
    _discard(workspace, known, lock)
    return known


def address(url: str) -> str:
    """An address without its pin: what the lock file knows it by."""
    return url.partition("#")[0]


def _pin(url: str) -> str:
    return url.partition("#")[2].removeprefix("sha256=").lower()


def _refuse_archive(url: str, data: bytes) -> None:
    if address(url).partition("?")[0].lower().endswith(_ARCHIVES) or data.startswith(_MAGIC):
        raise FetchFailed(f"{url} is an archive, which this version does not take. Name the address of one SKILL.md")


def _parsed(url: str, entry: Entry) -> tuple[Skill | None, list[Problem]]:
    """The skill that a fetched page holds, or everything that is wrong with it."""
    if not isinstance(entry, File):
        return None, [_absence(url, entry)]
    if entry.text.lstrip().startswith("<"):
        hint = "name the address of the SKILL.md itself, as plain text"
        return None, [Problem("error", url, 1, 1, "", "this is a web page, and no skill", hint)]
    # An address need not end in the skill's name: read once to learn it, then again as strictly as any package.
    called, problems = _called(url), list[Problem]()
    for level in ("warning", "error"):
        page = f"{called}/{_PAGE}"
        problems = []
        skill = read_one(page, Files(page, {page: entry}, called), problems, level=level)
        called = skill.name if skill else called
    grave = [problem for problem in problems if problem.level == "error" or skill is None]
    errors = [replace(problem, file=url, level="error") for problem in grave]
    return (None if errors else skill), errors


def _absence(where: str, entry: Entry) -> Problem:
    why = entry if isinstance(entry, Absent) else Absent("special")
    return absence("error", where, why, file=where, line=1, column=1, at="")


def _called(url: str) -> str:
    """What a skill is called whose header does not say it."""
    parts = [part for part in url.partition("?")[0].rstrip("/").split("/")[3:] if part != _PAGE]
    return package_name(parts[-1].removesuffix(".md")) if parts else "skill"


# --- the lock file and what it speaks of -------------------------------------------------------------------


def read_lock(workspace: Place) -> dict[str, Locked]:
    """What is known by address. Raises `Conflict` where the file is damaged: then nothing of it can be believed."""
    entry = Disk(os.fspath(workspace)).text(LOCK)
    if isinstance(entry, Absent) and entry.why == "missing":
        return {}
    where = os.path.join(os.fspath(workspace), LOCK)
    remedy = (
        "No skill behind an address is used. Bring the file back, or delete it and add and approve its skills again"
    )
    if not isinstance(entry, File):
        raise Conflict(f"{_absence(where, entry).text}. {remedy}")
    try:
        return Decoder(_LockFile).decode(entry.text).skills
    except (DecodeError, RecursionError) as error:
        raise Conflict(f"{where} is damaged ({error}). {remedy}") from None


def _write_lock(workspace: Place, lock: Mapping[str, Locked]) -> None:
    said = {"version": 1, "skills": {url: to_builtins(lock[url]) for url in sorted(lock)}}
    _write(workspace, LOCK, (json.dumps(said, indent=2, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


def _place(known: Locked) -> str:
    """The folder of a content, below the workspace."""
    return os.path.join("skills", known.sha256 if known.approved else os.path.join("quarantine", known.sha256))


def _stored(workspace: Place, known: Locked) -> tuple[Entry, bool]:
    """The stored page, and whether it is the one that the lock speaks of."""
    disk = Disk(os.fspath(workspace))
    found = disk.raw(os.path.join(_place(known), _PAGE))
    if isinstance(found, Absent):
        return found, False
    return disk.decode(_PAGE, found[0]), hashlib.sha256(found[0]).hexdigest() == known.sha256


def _write(workspace: Place, name: str, data: bytes) -> None:
    """Write a file below the workspace, all of it or nothing."""
    path = os.path.join(os.fspath(workspace), name)
    draft = f"{path}.{os.getpid()}.draft"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            with open(draft, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft)
            raise
    except OSError as error:
        raise StorageFailed(f"{path} cannot be written: {error.strerror or error}") from None


def _discard(workspace: Place, known: Locked, lock: Mapping[str, Locked]) -> None:
    """Delete a content that no address speaks of any more. What cannot be deleted is only left over."""
    if any(_place(other) == _place(known) for other in lock.values()):
        return
    folder = os.path.join(os.fspath(workspace), _place(known))
    with suppress(OSError):
        os.unlink(os.path.join(folder, _PAGE))
        os.rmdir(folder)


def _time(now: datetime | None) -> str:
    return (now or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- signs of a bad skill ----------------------------------------------------------------------------------

_GETS = r"\b(?:curl|wget|iwr|irm|invoke-webrequest|invoke-restmethod)\b"
_SHELL = r"(?:sudo\s+)?(?:[\w./-]{0,60}/)?(?:(?:ba|z|da|k|fi)?sh|python[\d.]{0,5}|node|perl|ruby|php|iex)\b"
_DECODES = r"(?:\bbase64\s+(?:-d|--decode)|\bopenssl\s[^\n|]{0,40}-d|\bxxd\s+-r)\b"
_SECRET = r"(?:api[ _-]?keys?|tokens?|passwords?|secrets?|credentials?|private keys?|seed phrases?)\b"
_HOMES = r"~/\.ssh|\bid_(?:rsa|ed25519)\b|\.aws/|\.gnupg|\.netrc|\.kube/config|/etc/shadow|\bkeychain\b|wallet\.dat"
_PERSON = r"(?:the\s+)?(?:user|person|owner|human)\b"
_SIGNS: tuple[tuple[str, str], ...] = (
    ("it pipes a download into a program", rf"{_GETS}[^\n]{{0,300}}?\|\s*{_SHELL}"),
    ("it runs a download", rf"(?:\b(?:ba|z|da)?sh|\beval|\bsource|\biex)\b[^\n]{{0,80}}?(?:\(|`)\s*{_GETS}"),
    ("it runs a download", rf"{_GETS}[^\n]{{0,300}}?(?:&&|;)\s*(?:chmod\s+\S{{0,9}}x|\./|{_SHELL}\s)"),
    ("it runs text that is hidden by an encoding", rf"{_DECODES}[^\n]{{0,200}}?\|\s*{_SHELL}"),
    ("it runs text that is hidden by an encoding", r"\b(?:eval|exec)\b[^\n]{0,80}(?:b64decode|atob|base64 )"),
    ("it holds a long encoded text", r"[A-Za-z0-9+/]{300}"),
    ("it deletes whole folders", r"\brm\s+(?:-\S{1,20}\s+){0,5}(?:-\w{0,9}r\w{0,9}f|-\w{0,9}f\w{0,9}r|--recursive)"),
    ("it deletes whole folders", r"\brm\s+-r\s+-f\b|\brm\s+-f\s+-r\b"),
    ("it speaks of places where keys are kept", _HOMES),
    (
        "it asks for keys or passwords",
        rf"\b(?:read|print|cat|send|copy|upload|echo|collect)\b[^\n.]{{0,60}}\b{_SECRET}",
    ),
    ("it opens a way in from outside", r"/dev/tcp/|\b(?:nc|ncat|netcat)\s[^\n]{0,60}-[a-z]{0,4}e\b"),
    ("it turns off a safeguard", r"com\.apple\.quarantine|\bxattr\s+-c|\bspctl\s+--|\bset-executionpolicy\b"),
    ("it asks for the rights of the administrator", r"\bsudo\s"),
    ("it tells the model to set instructions aside", r"\bignore\s+(?:\w+\s+){0,3}(?:instructions|rules)\b"),
    (
        "it tells the model to keep something from the person",
        rf"(?:\bnot|\bnever|n['’]t)\s+(?:tell|ask|inform)\s+{_PERSON}",
    ),
    ("it holds a comment, which a person does not see on a web page", r"<!--"),
    (
        "it holds invisible characters, or some that turn the writing around",
        "[\u00ad\u061c\u180e\u200b\u200e\u200f"
        "\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e01ef]|(?<![^\x00-\x7f])[\u200c\u200d]",
    ),
)
_BEFORE = re.compile(
    r"^.{0,40}\b(?:prerequisites?|before you (?:begin|start|use)|required first|setup required)\b", re.I
)
_DOES = re.compile(r"\b(?:run|execute|install|download|paste|terminal|powershell|npx|pip|npm|brew|curl|wget)\b", re.I)


def lint(text: str) -> list[str]:
    """What about a skill's text should make its reader look twice, line by line. No warning is no proof of anything."""
    joined = text.replace("\\\n", "  ")  # a command that goes on in the next line; every place stays where it is
    ends = [match.start() for match in re.finditer("\n", text)]
    found: set[tuple[int, str]] = set()
    for what, pattern in _SIGNS:
        for match in re.compile(pattern, re.IGNORECASE).finditer(joined):
            found.add((bisect_left(ends, match.start()) + 1, what))
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if _BEFORE.search(line) and any(_DOES.search(each) for each in lines[index : index + 10]):
            found.add((index + 1, "it wants something run or installed before it works"))
    listed = [f"line {line}: {what}" for line, what in sorted(found)]
    return listed if len(listed) <= MAX_WARNINGS else [*listed[:MAX_WARNINGS], f"and {len(listed) - MAX_WARNINGS} more"]
