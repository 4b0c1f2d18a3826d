"""The `schedule` tool, and the files it leaves: one YAML file a schedule in `<workspace>/schedules/`.

Owns what a schedule may be and who may see it. Fires nothing: whoever does reads `load_schedules`. A chat sees and
cancels the schedules that speak to it, the owner's own sessions (terminal, HTTP) all of their agent's. The shape of
the file is Duragent's: `schedule` and `payload` name their kind, and the kind holds the fields. Another kind of
schedule: a class, a field in `When`, a branch in `_when` and one in `fault`.
"""

import asyncio
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import yaml
from cronsim import CronSim, CronSimError
from msgspec import Meta, Struct, ValidationError, convert, structs, to_builtins
from msgspec.json import encode

from duragent.agent import Json
from duragent.core.events import ToolAnswer
from duragent.core.policy import ToolSpec
from duragent.errors import DuragentError
from duragent.tools import Scene, Tool
from duragent.tools.host import Host
from duragent.tools.notes import Folder, listed, read, replace
from duragent.tools.strays import stray

MOST_ACTIVE = 100
MOST_TEXT = 16_384
MOST_FILE_BYTES = 128 << 10
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_WEEKDAY_NUMBER = re.compile(r"(?<![#/\w])\d")
_ALIASES = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")

Moment = Annotated[datetime, Meta(tz=True)]


class Destination(Struct, frozen=True):
    gateway: str
    chat_id: str


class At(Struct, frozen=True):
    at: Moment


class Every(Struct, frozen=True, omit_defaults=True):
    """From `anchor` on, in equal steps."""

    every_seconds: int
    anchor: Moment | None = None


class Cron(Struct, frozen=True, omit_defaults=True):
    """`tz` is a name such as Europe/Berlin; without one the fields are UTC."""

    expr: str
    tz: str | None = None


class When(Struct, frozen=True, omit_defaults=True):
    """Exactly one of these."""

    at: At | None = None
    every: Every | None = None
    cron: Cron | None = None


class MessagePayload(Struct, frozen=True):
    message: str


class TaskPayload(Struct, frozen=True):
    task: str


class Payload(Struct, frozen=True, omit_defaults=True):
    """Exactly one of these: a text to send as it is, or something for the agent to do."""

    message: MessagePayload | None = None
    task: TaskPayload | None = None


class Retry(Struct, frozen=True):
    max_retries: int = 3
    initial_delay_ms: int = 1_000
    max_delay_ms: int = 30_000


class StoredSchedule(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A schedule as its file says it. Without a `destination`, the result belongs to `created_by_session`."""

    id: str
    agent: str
    created_by_session: str
    destination: Destination | None = None
    schedule: When
    payload: Payload
    created_at: Moment
    status: Literal["active", "completed", "cancelled"]
    retry: Retry | None = None
    process_handle: str | None = None


class BrokenSchedule(Struct, frozen=True):
    """A file that is no schedule, and why."""

    file: str
    text: str


_TIME = {"type": "integer", "minimum": 0, "maximum": 86_400_000}
_PARAMETERS: Mapping[str, Json] = {
    "type": "object",
    "properties": {
        "action": {"enum": ["create", "list", "cancel"]},
        "at": {
            "type": "string",
            "maxLength": 64,
            "description": "once, at this ISO 8601 time; UTC unless it has an offset",
        },
        "every_seconds": {"type": "integer", "minimum": 1, "maximum": 31_622_400, "description": "again and again"},
        "cron": {
            "type": "string",
            "maxLength": 200,
            "description": "minute hour day month weekday, e.g. `0 9 * * MON-FRI`; six fields have seconds first",
        },
        "timezone": {"type": "string", "maxLength": 64, "description": "for cron, e.g. Europe/Berlin; UTC if left out"},
        "message": {"type": "string", "maxLength": MOST_TEXT, "description": "a text to send as it is"},
        "task": {"type": "string", "maxLength": MOST_TEXT, "description": "something for you to do at that time"},
        "max_retries": {"type": "integer", "minimum": 0, "maximum": 255},
        "retry_delay_ms": _TIME,
        "max_retry_delay_ms": _TIME,
        "process_handle": {"type": "string", "maxLength": 64, "description": "cancel when this process ends"},
        "schedule_id": {"type": "string", "maxLength": 64, "description": "cancel: which one"},
    },
    "required": ["action"],
    "additionalProperties": False,
}
_PERMITTED: Mapping[str, tuple[str, ...]] = {
    "create": (
        *("at", "every_seconds", "cron", "timezone", "message", "task"),
        *("max_retries", "retry_delay_ms", "max_retry_delay_ms", "process_handle"),
    ),
    "list": (),
    "cancel": ("schedule_id",),
}
_DESCRIPTION = """\
Things that happen later, or again and again.
create: exactly one of `at`, `every_seconds`, `cron`, and exactly one of `message`, `task`.
list: the active schedules. cancel: end one by its `schedule_id`."""


def make(host: Host) -> Tool:
    """The tool of one agent."""

    async def run(arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
        if wrong := stray(_PERMITTED, _PARAMETERS, arguments):
            return ToolAnswer(False, wrong)
        action = {"create": _create, "list": _list, "cancel": _cancel}[arguments["action"]]
        given = {name: _clean(host, each) if isinstance(each, str) else each for name, each in arguments.items()}
        try:
            return await asyncio.to_thread(action, host, given, scene)
        except DuragentError as error:
            return ToolAnswer(False, str(error))

    spec = ToolSpec(
        name="schedule",
        description=_DESCRIPTION,
        parameters=_PARAMETERS,
        kind="builtin",
        effects={"create": "once", "list": "pure", "cancel": "repeatable"},
        quiet=("list",),
        detail=("message", "task", "schedule_id"),
    )
    return Tool(spec, run)


def _clean(host: Host, text: str) -> str:
    """A text that can be written down: no secret of the owner's, and no half of a character."""
    return host.redact(text.encode("utf-8", "replace").decode())


def folder_of(workspace: str) -> Folder:
    return Folder(workspace, ("schedules",))


def load_schedules(folder: Folder) -> tuple[list[StoredSchedule], list[BrokenSchedule]]:
    """All schedules by id, whatever their status, and the files that could not be read."""
    good: list[StoredSchedule] = []
    broken: list[BrokenSchedule] = []
    for found in listed(folder, ".yaml"):
        loaded = _load(folder, found.name)
        if isinstance(loaded, StoredSchedule):
            good.append(loaded)
        elif loaded:
            broken.append(BrokenSchedule(os.path.join(folder.path, found.name), loaded))
    return good, broken


def save_schedule(folder: Folder, schedule: StoredSchedule) -> None:
    """Put a schedule on disk, whole."""
    plain = to_builtins(schedule)
    plain = {**plain, "destination": plain.get("destination")}  # that there is none is worth saying
    replace(folder, f"{schedule.id}.yaml", yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))


def fault(schedule: StoredSchedule) -> str | None:
    """What is wrong with a schedule that has the right shape."""
    when, payload = schedule.schedule, schedule.payload
    if sum(each is not None for each in (when.at, when.every, when.cron)) != 1:
        return "schedule needs exactly one of at, every, cron"
    if (payload.message is None) == (payload.task is None):
        return "payload needs exactly one of message, task"
    if when.every is not None and when.every.every_seconds < 1:
        return "every_seconds must be at least 1"
    if when.cron is not None:
        return "; ".join(filter(None, (_zone_fault(when.cron.tz), _cron_fault(when.cron.expr)))) or None
    return None


def _zone_fault(name: str | None) -> str | None:
    if name is None:
        return None
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return f"there is no timezone {name!r}; write a name such as Europe/Berlin"
    return None


def _cron_fault(expr: str) -> str | None:
    if expr.strip().lower() in _ALIASES:
        return None
    fields = expr.split()
    if not 5 <= len(fields) <= 7:
        return f"cron has {len(fields)} fields; write minute hour day month weekday, e.g. 0 9 * * MON-FRI"
    if len(fields) == 7 and fields.pop() != "*":
        return "cron names a year; leave it out, or write * for it"
    if len(fields) == 6 and _WEEKDAY_NUMBER.search(fields[5]):
        return "cron has seconds and a weekday as a number, which programs count differently; write SUN to SAT"
    try:
        CronSim(" ".join("*" if each == "?" else each for each in fields), datetime(2000, 1, 1))
    except (CronSimError, ValueError, AssertionError) as error:
        return f"cron is not an expression for a time ({error}); e.g. 0 9 * * MON-FRI"
    return None


def _create(host: Host, arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
    now = host.clock().astimezone(UTC)
    wrong = [*_when_faults(arguments, now), *_payload_faults(arguments)]
    if wrong:
        told = wrong[0] if len(wrong) == 1 else "".join(f"\n- {each}" for each in wrong)
        return ToolAnswer(False, f"Nothing was scheduled:{'' if len(wrong) > 1 else ' '}{told}")
    made = StoredSchedule(
        id=_new_id(now),
        agent=host.agent.name,
        created_by_session=scene.session_id,
        destination=_destination(scene),
        schedule=_when(arguments, now),
        payload=_payload(arguments),
        created_at=now,
        status="active",
        retry=_retry(arguments),
        process_handle=arguments.get("process_handle") or None,
    )
    folder = folder_of(host.workspace)
    if len(_own(folder, host)) >= MOST_ACTIVE:
        return ToolAnswer(False, f"Nothing was scheduled: this agent has {MOST_ACTIVE} schedules. Cancel one first.")
    save_schedule(folder, made)
    return ToolAnswer(True, encode(made).decode())


def _when_faults(arguments: dict[str, Any], now: datetime) -> Iterator[str]:
    """All that is wrong with the time, in whole sentences."""
    given = [name for name in ("at", "every_seconds", "cron") if arguments.get(name)]
    if len(given) != 1:
        yield f"give exactly one of at, every_seconds, cron, not {' and '.join(given) or 'none'}."
    if "at" in given:
        at = _moment(arguments["at"])
        if at is None:
            yield f"{arguments['at'].strip()!r} is no time. Write it like 2026-03-01T09:30:00+01:00."
        elif at <= now:
            yield f"{at.isoformat()} has passed; it is {now.isoformat(timespec='seconds')} now."
    zone = arguments.get("timezone") or None
    if zone is not None and given and "cron" not in given:  # it would be passed over, and the time be another one
        yield "timezone is for cron alone; a time for `at` has its offset in it, like 2026-03-01T09:30:00+01:00."
    elif wrong := _zone_fault(zone):
        yield f"{wrong}."
    if "cron" in given and (wrong := _cron_fault(arguments["cron"])):
        yield f"{wrong}."


def _payload_faults(arguments: dict[str, Any]) -> Iterator[str]:
    message, task = _said(arguments)
    if bool(message) == bool(task):
        yield f"give exactly one of message, task, not {'both' if message else 'none'}."


def _when(arguments: dict[str, Any], now: datetime) -> When:
    """The time of arguments that have no fault."""
    if arguments.get("every_seconds"):
        return When(every=Every(arguments["every_seconds"], now))
    if arguments.get("cron"):
        return When(cron=Cron(arguments["cron"].strip(), arguments.get("timezone") or None))
    return When(at=At(_moment(arguments["at"]) or now))


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _payload(arguments: dict[str, Any]) -> Payload:
    message, task = _said(arguments)
    return Payload(message=MessagePayload(message)) if message else Payload(task=TaskPayload(task))


def _said(arguments: dict[str, Any]) -> tuple[str, str]:
    message, task = (str(arguments.get(name) or "").strip() for name in ("message", "task"))
    return message, task


def _retry(arguments: dict[str, Any]) -> Retry | None:
    names = {"max_retries": "max_retries", "retry_delay_ms": "initial_delay_ms", "max_retry_delay_ms": "max_delay_ms"}
    given = {field: arguments[name] for name, field in names.items() if arguments.get(name) is not None}
    return Retry(**given) if given else None


def _destination(scene: Scene) -> Destination | None:
    return None if scene.gateway is None else Destination(scene.gateway, scene.chat_id or "")


def _list(host: Host, arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
    return ToolAnswer(True, encode(_seen(host, scene)).decode())


def _cancel(host: Host, arguments: dict[str, Any], scene: Scene) -> ToolAnswer:
    wanted = arguments.get("schedule_id") or ""
    if not wanted:
        return ToolAnswer(False, "cancel needs schedule_id: take one that `list` names.")
    found = next((each for each in _seen(host, scene) if each.id == wanted), None)
    if found is None:
        return ToolAnswer(False, f"There is no active schedule {wanted!r} here. `list` names those there are.")
    save_schedule(folder_of(host.workspace), structs.replace(found, status="cancelled"))
    return ToolAnswer(True, f"Cancelled {found.id}.")


def _own(folder: Folder, host: Host) -> list[StoredSchedule]:
    return [each for each in load_schedules(folder)[0] if each.agent == host.agent.name and each.status == "active"]


def _seen(host: Host, scene: Scene) -> list[StoredSchedule]:
    """The active schedules that this session may know of."""
    here = _destination(scene)
    return [each for each in _own(folder_of(host.workspace), host) if here is None or each.destination == here]


def _load(folder: Folder, name: str) -> StoredSchedule | str | None:
    """A schedule, or why the file is none; None where it has just gone."""
    try:
        found = read(folder, name, MOST_FILE_BYTES)
        if found is None:
            return None
        if found.size > MOST_FILE_BYTES:
            return f"it has {found.size:,} bytes; a schedule has at most {MOST_FILE_BYTES:,}"
        loaded = convert(_plain(found.text), StoredSchedule, strict=False)
    except (yaml.YAMLError, ValidationError, ValueError, DuragentError) as error:
        return " ".join(str(error).split())
    if f"{loaded.id}.yaml" != name:
        return f"it says id {loaded.id!r}, which is not the name of the file"
    return fault(loaded) or loaded


def _plain(text: str) -> Json:
    """YAML without tricks. Depth is looked at first: what builds the values calls itself."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it uses an alias (*name), which no schedule needs")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > 10:
            raise ValueError("it is nested more than 10 deep")
    return yaml.load(text, Loader=yaml.CSafeLoader)


def _new_id(now: datetime) -> str:
    """`sched_` and a ULID: ids sort by the time they were made."""
    number = int(now.timestamp() * 1000) << 80 | secrets.randbits(80)
    return "sched_" + "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
