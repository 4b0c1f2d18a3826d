"""chat, attach: a talk with an agent, on a terminal or through a pipe."""

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import click

from duragent.agent import Agent
from duragent.cli import clean, count, on_terminal, put, say
from duragent.cli.following import cancelling, watching
from duragent.cli.opening import find_agent, in_loop, missing_tools, open_runtime, reopen_agent
from duragent.cli.places import named_agents
from duragent.cli.running import (
    ANSWERED,
    INTERRUPTED,
    NOTHING_SAID,
    WAITING,
    SilentView,
    note,
    outcome,
    post,
    tell_missing,
    tell_waiting,
)
from duragent.cli.sessions import Known, examined, find_session, look, look_all, open_store, print_list, refuse_ended
from duragent.cli.telling import UNFINISHED, line
from duragent.cli.terminal import Chat
from duragent.config import Config, load_config
from duragent.errors import Conflict, NotFound
from duragent.runtime import Runtime

TERMINATED = 143
PATIENCE_SECONDS = 0.5  # for the end of what is piped in, before what is left of it is counted


@click.command("chat")
@click.option("--agent", help="Whom to talk with: a name in the workspace, or a path to any format.")
@click.option("--session", "session_id", metavar="ID", help="Go on with this session.")
@click.option("--model", metavar="PROVIDER/NAME", help="Use this model, whatever the agent says.")
def chat_command(agent: str | None, session_id: str | None, model: str | None) -> None:
    """Talk with an agent. Nothing that was said is lost: leave with Ctrl-D, come back with `duragent attach`.

    Ctrl-C cancels the answer that is being given. /help lists what else can be typed. In a pipe every line is a
    message, and the answers are printed plainly.

    \b
    duragent chat --agent assistant
    duragent chat --agent ./researcher.agent --model openai/gpt-4o
    duragent chat --session 4VQ8
    echo "What is a fold?" | duragent chat --agent assistant
    """
    config = load_config()
    if not agent and not session_id:
        names = ", ".join(sorted(name for name, _ in named_agents(config.agents_dir))[:10])
        there = f" (there are: {clean(names)})" if names else ""
        raise click.UsageError(f"Whom? Give --agent NAME{there}, or --session ID to go on with a session.")
    known = _known(config, session_id) if session_id else None
    found = find_agent(config, agent) if agent else _agent_of(config, known)
    if known and known.session.agent and known.session.agent != found.name:
        raise Conflict(f"{known.session_id} is a session with {known.session.agent}, not with {found.name}")
    _talk(config, found, known, model)


@click.command("attach")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--list", "listed", is_flag=True, help="Only list the sessions one can come back to.")
@click.option("--model", metavar="PROVIDER/NAME", help="Use this model, whatever the agent says.")
def attach_command(session_id: str | None, listed: bool, model: str | None) -> None:
    """Come back to the session ID. A turn that was interrupted goes on by itself.

    Without ID it is the only session in the middle of a turn, or the only one there is; else you are asked.

    \b
    duragent attach
    duragent attach 4VQ8
    duragent attach --list
    """
    config = load_config()
    if listed:
        _list(config)
        return
    known = _known(config, session_id) if session_id else _choose(config)
    _talk(config, _agent_of(config, known), known, model)


def _list(config: Config) -> None:
    store = open_store(config)
    found = examined(config, store, look_all(store))
    print_list(found)
    say("Come back with: duragent attach ID" if found else "There is no session to come back to.", err=True)


def _known(config: Config, wanted: str) -> Known:
    store = open_store(config)
    known = look(store, find_session(store, wanted))
    if known.fault:
        raise Conflict(known.fault)
    refuse_ended(store, known)
    return known


def _choose(config: Config) -> Known:
    """The session to come back to: the only one that is unfinished, or that there is; else the one that is chosen."""
    store = open_store(config)
    looked = examined(config, store, look_all(store))
    found = [each for each in looked if not each.fault and each.standing != "expired"]
    if not found:
        raise NotFound("there is no session to come back to. Try: duragent chat --agent NAME")
    unfinished = [each for each in found if each.standing in (*UNFINISHED, "waits for you")]
    if len(found) == 1 or len(unfinished) == 1:
        return (unfinished or found)[0]
    shown = found[:9]
    print_list(shown, numbered=True)
    if len(found) > len(shown):
        say(f"({len(found) - len(shown)} more: duragent attach --list)", err=True)
    if not (on_terminal() and on_terminal(sys.stdin)):
        raise click.UsageError("There is more than one session; name the one you mean: duragent attach ID")
    number = click.prompt("Which one", type=click.IntRange(1, len(shown)), default=1)
    return shown[number - 1]


def _agent_of(config: Config, known: Known | None) -> Agent:
    if known is None:
        raise NotFound("no session is named")
    return reopen_agent(config)(known.session.agent, known.session.source)


def _talk(config: Config, agent: Agent, known: Known | None, model: str | None) -> None:
    interactive = on_terminal() and on_terminal(sys.stdin)
    talk = _terminal if interactive else _piped
    code = in_loop(talk(config, agent, known, model), keyboard=interactive)
    if code:
        raise click.exceptions.Exit(code)


async def _terminal(config: Config, agent: Agent, known: Known | None, model: str | None) -> int:
    notes: list[str] = []
    async with open_runtime(config, override=model, embedded=True, tell=notes.append) as (runtime, models, hosts):
        chosen = await models(agent)
        chat = Chat(config, runtime, agent, chosen[0].name, override=model, redact=hosts.secrets.redact)
        return await _until_terminated(chat.run(known, [*notes, *missing_tools(hosts, agent)]))


async def _until_terminated(talk: Coroutine[Any, Any, int]) -> int:
    """Talk; where the program is told to end, leave the terminal as it was found."""
    loop, task, told = asyncio.get_running_loop(), asyncio.ensure_future(talk), asyncio.Event()

    def end() -> None:
        told.set()
        task.cancel()

    loop.add_signal_handler(signal.SIGTERM, end)
    try:
        return await task
    except asyncio.CancelledError:
        if not told.is_set():
            raise
        return TERMINATED
    finally:
        loop.remove_signal_handler(signal.SIGTERM)


async def _piped(config: Config, agent: Agent, known: Known | None, model: str | None) -> int:
    """Every line is a message; the answers follow each other on standard output."""
    async with open_runtime(config, override=model, embedded=True, tell=note) as (runtime, models, hosts):
        await models(agent)
        tell_missing(hosts, agent)
        session_id, codes, lines = known.session_id if known else "", [ANSWERED], _Lines()
        if known and known.standing in UNFINISHED:
            note(f"{session_id} was {known.standing}; going on")
            codes.append(await _answer(config, runtime, session_id, None, model))
        while codes[-1] not in (WAITING, INTERRUPTED) and (text := await lines.next()).strip() not in ("", "/exit"):
            session_id = session_id or await runtime.open_session(agent)
            codes.append(await _answer(config, runtime, session_id, text, model))
        if codes[-1] == WAITING and (left := await lines.left()):
            note(f"{left} not sent: decide first")
    return codes[-1] if codes[-1] in (WAITING, INTERRUPTED) else max(codes)


async def _answer(config: Config, runtime: Runtime, session_id: str, text: str | None, model: str | None) -> int:
    """Post a message, or go on with what was interrupted, and print what comes of it."""
    seen = (await runtime.session(session_id)).seq
    async with watching(runtime, session_id, SilentView(session_id), seen) as follower:
        with cancelling(runtime, session_id) as pressed:
            if text is None:
                await runtime.recover([session_id])
            else:
                await post(config, runtime, session_id, text)
            session = await follower.settled()
    turn = follower.turn
    if turn.answer.strip():
        put(turn.answer)
    elif turn.empty:
        say(f"empty  {NOTHING_SAID}", err=True)
    if turn.stopped is not None:
        say(f"{clean(turn.stopped.reason)}  {line(turn.stopped.message, 2000)}", err=True)
    if session.waiting:
        tell_waiting(session_id, session, model)
    return outcome(session, turn, cancelled=bool(pressed.count))


class _Lines:
    """The lines of standard input that say something. Read aside, so that nobody waits for them to end."""

    def __init__(self) -> None:
        self._loop, self._lines, self._ended = asyncio.get_running_loop(), asyncio.Queue[str](), asyncio.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(RuntimeError):  # the talk is over, and nobody wants the rest
            for data in sys.stdin.buffer:
                if data.strip():
                    text = data.decode("utf-8", "replace").rstrip("\n")
                    self._loop.call_soon_threadsafe(self._lines.put_nowait, text)
            self._loop.call_soon_threadsafe(self._lines.put_nowait, "")
            self._loop.call_soon_threadsafe(self._ended.set)

    async def next(self) -> str:
        """The next line; nothing at the end."""
        return await self._lines.get()

    async def left(self) -> str:
        """How many lines nobody has taken yet, as far as they have come; nothing where there are none."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), PATIENCE_SECONDS)
        number = self._lines.qsize() - (1 if self._ended.is_set() else 0)
        words = f"{count(number, 'line')} {'was' if number == 1 else 'were'}"
        return words if number > 0 else ""
