"""session list, show, log: what is on disk about sessions, read without holding any of them."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime

import click
from msgspec import Struct
from msgspec.structs import replace

from duragent.agentfiles import load
from duragent.cli import clean, count, echo_json, output_format, say
from duragent.cli.places import aligned, shown
from duragent.cli.telling import (
    UNFINISHED,
    age,
    block,
    clock,
    command_line,
    cost,
    ending,
    has_price,
    kind,
    line,
    spent,
    standing,
    told,
)
from duragent.config import Config, load_config
from duragent.core import events as ev
from duragent.core.session import Session, too_old
from duragent.errors import Conflict, DuragentError, FetchFailed, NotFound
from duragent.store.files import FileStore

_COLOURS = {
    "running": "cyan",
    "waits for you": "yellow",
    "interrupted": "red",
    "paused": "yellow",
    "resting": "green",
    "expired": None,
    "ended": None,
}


class Known(Struct, frozen=True):
    """A session on disk. `fault` says why it cannot be read; then `session` is empty. `priced`: somebody knows what
    its last model costs."""

    session_id: str
    session: Session
    standing: str
    holder: str | None = None
    fault: str = ""
    notes: tuple[str, ...] = ()
    priced: bool = True


def open_store(config: Config) -> FileStore:
    return FileStore(config.sessions_dir)


def find_session(store: FileStore, wanted: str) -> str:
    """The one session that a person means: its id, or a beginning or an end of it that no other has."""
    ids = store.ids()
    if wanted in ids:
        return wanted
    short = wanted.removeprefix("session_").upper()
    keys = {session_id: session_id.removeprefix("session_").upper() for session_id in ids}
    found = [each for each, key in keys.items() if short and (key.startswith(short) or key.endswith(short))]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(found[-5:]) + (", …" if len(found) > 5 else "")
        raise click.UsageError(f"{wanted!r} fits {len(found)} sessions: {listed}. Give more of the id.")
    hint = "See: duragent session list --all" if ids else "There are none yet. Try: duragent chat --agent NAME"
    raise NotFound(f"there is no session {wanted!r} in {shown(store.folder)}. {hint}")


def look(store: FileStore, session_id: str) -> Known:
    """How a session stands now; one that cannot be read says why and hinders no other."""
    try:
        stored = store.read(session_id)
        holder = store.holder(session_id)
    except DuragentError as error:
        return Known(session_id, Session(), "unreadable", fault=str(error))
    held = str(holder) if holder else None
    return Known(session_id, stored.session, standing(stored.session, held=bool(held)), held, "", stored.notes)


def look_all(store: FileStore, *, ended: bool = False, agent: str | None = None) -> list[Known]:
    """All sessions, those in which something happened last first."""
    found = [look(store, session_id) for session_id in store.ids()]
    kept = [
        each for each in found if (ended or each.standing != "ended") and (agent is None or each.session.agent == agent)
    ]
    return sorted(kept, key=lambda each: (each.session.updated_at, each.session_id), reverse=True)


def examined(config: Config, store: FileStore, found: Sequence[Known]) -> list[Known]:
    """The same sessions with what only the settings and the agents know: which are too old, and which have a price."""
    now, hours = datetime.now(UTC), dict[str, int | None]()
    return [
        replace(
            each,
            standing="expired" if _too_old(config, each, now, hours) else each.standing,
            priced=_priced(config, store, each),
        )
        for each in found
    ]


def _too_old(config: Config, known: Known, now: datetime, hours: dict[str, int | None]) -> bool:
    """Whether a session that rests will be ended by the next who opens it. An hour is the least; `hours` remembers
    what agents say about theirs."""
    source = known.session.source
    if known.standing != "resting" or not too_old(known.session, 1, now):
        return False
    if source not in hours:
        hours[source] = None
        with suppress(DuragentError, OSError):
            hours[source] = load(source, fetch=_no_fetch).session.ttl_hours if source else None
    said = hours[source]
    return too_old(known.session, config.ttl_hours if said is None else said, now)


def _no_fetch(url: str) -> bytes:
    raise FetchFailed(f"{url} is not read for a list")


def _priced(config: Config, store: FileStore, known: Known) -> bool:
    """Whether what a session cost is known. Its log is read only where that could be in doubt."""
    if known.fault or cost(known.session.spent, priced=False) is not None:
        return True
    models = [e.event.model for e in store.entries(known.session_id) if isinstance(e.event, ev.ModelCalled)]
    return has_price(models[-1] if models else "", config.prices)


def refuse_ended(store: FileStore, known: Known) -> None:
    """An ended session takes no messages; say why it ended and how to go on from it."""
    if known.standing != "ended":
        return
    last = next((e.event for e in store.entries(known.session_id) if isinstance(e.event, ev.SessionEnd)), None)
    go_on = command_line("session", "fork", f"{known.session_id}@{max(1, known.session.seq - 1)}")
    raise Conflict(f"{known.session_id} has ended because {ending(last)}. To go on from it in a new session: {go_on}")


@click.command("list")
@click.option("--all", "everything", is_flag=True, help="Also those that have ended.")
@click.option("--agent", help="Only sessions with the agent of this name.")
@output_format("text")
def session_list_command(everything: bool, agent: str | None, form: str) -> None:
    """List the sessions of the workspace, the newest first: id, agent, how it stands, and how it began.

    \b
    duragent session list
    duragent session list --all --agent assistant
    duragent session list --format json
    """
    config = load_config()
    store = open_store(config)
    found = examined(config, store, look_all(store, ended=everything, agent=agent))
    if form == "json":
        echo_json([as_json(each) for each in found])
        return
    if not found:
        more = "" if everything or not store.ids() else " Those that have ended: duragent session list --all"
        say(f"There are no sessions in {shown(config.sessions_dir)}.{more}")
        return
    print_list(found)


def print_list(found: list[Known], *, numbered: bool = False) -> None:
    """Sessions under each other, with their first words."""
    now = datetime.now(UTC)
    rows = [
        [
            *([f"{number})"] if numbered else []),
            each.session_id,
            each.session.agent or "–",
            each.standing,
            age(each.session.updated_at, now),
        ]
        for number, each in enumerate(found, 1)
    ]
    for each, row in zip(found, aligned(rows), strict=True):
        colour = _COLOURS.get(each.standing, "red")
        text = row.replace(each.standing, click.style(each.standing, fg=colour), 1) if colour else row
        say(f"{text}  {click.style((each.fault and clean(each.fault)) or _first_words(each.session), dim=True)}")


def _first_words(session: Session) -> str:
    return next((line(message.content, 50) for message in session.messages if message.role == "user"), "")


def as_json(known: Known) -> dict[str, object]:
    session = known.session
    return {
        "session_id": known.session_id,
        "agent": session.agent,
        "status": known.standing,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "events": session.seq,
        "messages": len(session.messages),
        "waiting": [{"call_id": each, "command": question(session, each)} for each in session.waiting],
        "prompt_tokens": session.spent.prompt_tokens,
        "completion_tokens": session.spent.completion_tokens,
        "cost_usd": cost(session.spent, priced=known.priced),
        "forked_from": session.forked_from,
        "held_by": known.holder,
        "problem": known.fault or None,
    }


def question(session: Session, call_id: str) -> str:
    """What a person is asked under this id, word for word."""
    if call_id in session.open_calls:
        return session.open_calls[call_id].command
    return session.question.command if session.question and session.question.id == call_id else ""


def why_asked(session: Session, call_id: str) -> str:
    """Which rule asks, in a line; "" where it is no call."""
    call = session.open_calls.get(call_id)
    return line(call.rule, 300) if call is not None else ""


@click.command("show")
@click.argument("session_id", metavar="ID")
@output_format("text")
def session_show_command(session_id: str, form: str) -> None:
    """Say how the session ID stands: its agent, what it cost, what it waits for, who holds it.

    ID may be shortened to a beginning or an end that no other session has.

    \b
    duragent session show 4VQ8
    """
    config = load_config()
    store = open_store(config)
    (known,) = examined(config, store, [look(store, find_session(store, session_id))])
    if form == "json":
        echo_json(as_json(known) | {"path": store.path(known.session_id), "source": known.session.source or None})
        return
    for name, value in _facts(store, known):
        say(f"{click.style(f'{name:<9}', dim=True)}  {value}")
    if known.fault:
        raise click.exceptions.Exit(1)


def _facts(store: FileStore, known: Known) -> Iterator[tuple[str, str]]:
    session, now = known.session, datetime.now(UTC)
    yield "session", known.session_id
    yield "folder", shown(store.path(known.session_id))
    if known.fault:
        yield "problem", clean(known.fault)
        return
    yield "agent", clean(session.agent) + (f"  ({shown(session.source)})" if session.source else "")
    yield "status", known.standing
    if known.holder:
        yield "held by", clean(known.holder)
    yield "began", f"{clock(session.created_at)} UTC, {age(session.created_at, now)}"
    yield "last", f"{clock(session.updated_at)} UTC, {age(session.updated_at, now)}"
    yield "size", f"{count(len(session.messages), 'message')}, {count(session.seq, 'event')}"
    yield "used", spent(session.spent, priced=known.priced)
    if session.forked_from:
        yield "forked", clean(session.forked_from)
    for note in (*known.notes, *session.warnings):
        yield "note", clean(note)
    for call_id in session.waiting:
        yield "waits for", block(question(session, call_id), " " * 11)
        yield "", command_line("session", "approve", known.session_id, call_id)
    if known.standing in UNFINISHED:
        yield "go on", command_line("session", "resume", known.session_id)


@click.command("log")
@click.argument("session_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "jsonl"]),
    default="text",
    show_default=True,
    help="For people, or the lines as they are stored.",
)
@click.option("--after", metavar="SEQ", type=click.IntRange(0), default=0, help="Only what came after this event.")
def session_log_command(session_id: str, form: str, after: int) -> None:
    """Print what happened in the session ID, event by event: its number, when, what kind, and what was said.

    \b
    duragent session log 4VQ8
    duragent session log 4VQ8 --after 20
    duragent session log 4VQ8 --format jsonl
    """
    store, last = open_store(load_config()), after
    for entry in store.entries(find_session(store, session_id), after):
        missing, last = entry.seq - last - 1, entry.seq
        if form == "jsonl":
            click.echo(ev.render_entry(entry))
            continue
        if missing > 0:
            say(click.style(f"       ({count(missing, 'event')} before this: no longer kept)", dim=True))
        first, *rest = told(entry.event).split("\n")
        say(
            f"{entry.seq:>5}  {click.style(clock(entry.timestamp), dim=True)}  "
            f"{click.style(f'{kind(entry.event):<18}', fg='cyan')}  {first}".rstrip()
        )
        for each in rest:
            say(f"{'':48}{each}".rstrip())
