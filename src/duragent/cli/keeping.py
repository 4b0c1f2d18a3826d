"""session fork, export, delete: what becomes of a session when nobody talks in it."""

import re
import sys
from collections.abc import Iterator
from json import dumps

import click

from duragent.cli import clean, count, echo_json, on_terminal, say
from duragent.cli.opening import in_loop, open_runtime
from duragent.cli.places import shown, write_new
from duragent.cli.running import note
from duragent.cli.sessions import Known, examined, find_session, look, open_store
from duragent.cli.telling import called, clock, command_line, cost, spent
from duragent.config import Config, load_config
from duragent.core.events import SessionEnd
from duragent.core.session import Call
from duragent.errors import Conflict
from duragent.store.files import FileStore


@click.command("fork")
@click.argument("place", metavar="ID[@SEQ]")
def session_fork_command(place: str) -> None:
    """Start a new session that begins as ID did, up to and with its event SEQ, and print the new session's id.

    Without @SEQ it is all that happened. The old session stays as it is.

    \b
    duragent session fork 4VQ8@12
    duragent chat --session $(duragent session fork 4VQ8@12)
    """
    wanted, at, number = place.partition("@")
    if at and not number.isdecimal():
        raise click.UsageError(f"{place!r}: after the @ comes the number of an event, as `session log` shows it.")
    config = load_config()
    store = open_store(config)
    session_id = find_session(store, wanted)
    seq = int(number) if at else _last(store, session_id)
    new = in_loop(_fork(config, session_id, seq))
    say(new)
    if on_terminal():
        say(click.style(f"({command_line('attach', new)})", dim=True), err=True)


def _last(store: FileStore, session_id: str) -> int:
    """The newest event; where the session has ended, the one before its end."""
    end = next((e.seq for e in store.entries(session_id) if isinstance(e.event, SessionEnd)), None)
    return end - 1 if end else store.read(session_id).session.seq


async def _fork(config: Config, session_id: str, seq: int) -> str:
    async with open_runtime(config, tell=note) as (runtime, _, _hosts):
        return await runtime.fork(session_id, seq)


@click.command("export")
@click.argument("session_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json"]),
    default="markdown",
    show_default=True,
    help="For people, or for programs.",
)
@click.option("--output", type=click.Path(dir_okay=False), help="The file to write; it must not be there yet.")
def session_export_command(session_id: str, form: str, output: str | None) -> None:
    """Write the session ID, all that was said and done in it, as Markdown or as JSON.

    \b
    duragent session export 4VQ8 > talk.md
    duragent session export 4VQ8 --format json --output talk.json
    """
    config = load_config()
    store = open_store(config)
    (known,) = examined(config, store, [look(store, find_session(store, session_id))])
    if known.fault:
        raise Conflict(known.fault)
    if output is None:
        echo_json(_document(known)) if form == "json" else say(_markdown(known), nl=False)
        return
    text = dumps(_document(known), indent=2, ensure_ascii=False) + "\n" if form == "json" else _markdown(known)
    try:
        # What was said is private until its owner says otherwise.
        write_new(output, text.encode("utf-8", "backslashreplace"), 0o600)
    except FileExistsError:
        raise Conflict(f"{shown(output)} exists already; name another file") from None
    say(f"{click.style('written', fg='green', bold=True)}  {shown(output)}")


def _document(known: Known) -> dict[str, object]:
    session = known.session
    return {
        "session_id": known.session_id,
        "agent": session.agent,
        "status": known.standing,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "forked_from": session.forked_from,
        "prompt_tokens": session.spent.prompt_tokens,
        "completion_tokens": session.spent.completion_tokens,
        "cost_usd": cost(session.spent, priced=known.priced),
        "messages": [
            {
                "seq": message.seq,
                "role": message.role,
                "sender": message.sender,
                "content": message.content,
                "calls": [_call(call) for call in message.calls],
            }
            for message in session.messages
        ],
    }


def _call(call: Call) -> dict[str, object]:
    return {
        "call_id": call.call.call_id,
        "tool_name": call.call.tool_name,
        "arguments": call.call.arguments,
        "outcome": call.outcome,
        "success": call.success,
        "content": call.content,
    }


def _markdown(known: Known) -> str:
    return clean("\n\n".join(_paragraphs(known)) + "\n", lines=True)


def _paragraphs(known: Known) -> Iterator[str]:
    session = known.session
    yield f"# A session with {session.agent}"
    size, used = count(len(session.messages), "message"), spent(session.spent, priced=known.priced)
    yield f"`{known.session_id}`, begun {clock(session.created_at)} UTC, {size}, {used}."
    for message in session.messages:
        yield f"## {message.sender or 'You'}" if message.role == "user" else f"## {session.agent}"
        if message.content.strip():
            yield _quoted(message.content.strip())
        for call in message.calls:
            yield f"**{called(call.call, 300)}** ({call.outcome or 'open'})"
            if call.content.strip():
                yield _fenced(call.content.strip())


def _quoted(text: str) -> str:
    """What somebody said, apart from what we say about it: a heading in it is no heading of ours."""
    return "\n".join(f"> {each}".rstrip() for each in text.splitlines())


def _fenced(text: str) -> str:
    """A block that nothing inside can close."""
    longest = max((len(ticks) for ticks in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"


@click.command("delete")
@click.argument("session_id", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask.")
def session_delete_command(session_id: str, yes: bool) -> None:
    """Delete the session ID with everything that was said in it. There is no way back.

    \b
    duragent session delete 4VQ8
    duragent session delete 4VQ8 --yes
    """
    config = load_config()
    store = open_store(config)
    known = look(store, find_session(store, session_id))
    if not yes:
        if not (on_terminal() and on_terminal(sys.stdin)):
            raise click.UsageError("Deleting a session needs --yes where nobody can be asked.")
        size = count(len(known.session.messages), "message")
        click.confirm(f"Delete {known.session_id} ({clean(known.session.agent)}, {size}) for good?", abort=True)
    in_loop(_delete(config, known.session_id))
    say(f"{click.style('deleted', fg='green', bold=True)}  {known.session_id}")


async def _delete(config: Config, session_id: str) -> None:
    async with open_runtime(config, tell=note) as (runtime, _, _hosts):
        await runtime.delete(session_id)
