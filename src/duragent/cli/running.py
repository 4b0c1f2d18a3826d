"""run: one prompt, one answer, for scripts as well as for people. Nothing is asked; what waits is said."""

import os
import stat
import sys
from collections.abc import Callable
from typing import Any

import click
from msgspec.json import encode

from duragent.agent import Agent
from duragent.cli import clean, echo_json, is_terminal, on_terminal, put, say
from duragent.cli.following import Turn, View, cancelling, watching
from duragent.cli.opening import find_agent, in_loop, missing_tools, open_runtime
from duragent.cli.sessions import find_session, look, open_store, question, refuse_ended, why_asked
from duragent.cli.telling import block, called, command_line, line
from duragent.config import Config, load_config
from duragent.core import events as ev
from duragent.core.session import Session
from duragent.errors import Conflict
from duragent.hosting import Hosts
from duragent.runtime import Runtime

ANSWERED, FAILED, WAITING, INTERRUPTED = 0, 1, 3, 130
NOTHING_SAID = "the model answered with nothing"


@click.command("run")
@click.argument("agent")
@click.argument("prompt", nargs=-1, metavar="[PROMPT] [-]")
@click.option("--session", "session_id", metavar="ID", help="Go on with this session instead of a new one.")
@click.option("--model", metavar="PROVIDER/NAME", help="Use this model, whatever the agent says.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "jsonl"]),
    default="text",
    show_default=True,
    help="The answer; one object when all is over; or every event and every piece of text as it comes.",
)
def run_command(agent: str, prompt: tuple[str, ...], session_id: str | None, model: str | None, form: str) -> None:
    """Let AGENT answer PROMPT, and print the answer.

    AGENT is a name in the workspace or a path to an agent in any format. Without PROMPT, the prompt is standard
    input; with `-` after PROMPT, standard input follows it. The exit code is 0 with an answer, 1 without one, and 3
    when a person must approve something first: then what is asked and how to approve it is printed.

    \b
    duragent run assistant "What is a fold?"
    git diff | duragent run ./code-reviewer
    duragent run assistant "Summarise this." - < report.txt
    duragent run assistant "And in one sentence?" --session 4VQ8
    duragent run assistant "Hello" --model scripted/hello.yaml --format json
    """
    config = load_config()
    found = find_agent(config, agent)
    said = _prompt(prompt)
    code = in_loop(_run(config, found, said, session_id, model, form))
    if code:
        raise click.exceptions.Exit(code)


def _prompt(given: tuple[str, ...]) -> str:
    """What is asked. Standard input is read only where nothing or a `-` says so: it may never end, or be the list of
    a loop around us."""
    words = given[:-1] if given[-1:] == ("-",) else given
    if len(words) > 1:
        raise click.UsageError(f"{words[1]!r} is one word too many: put the prompt in quotes.")
    piped = ""
    if words != given or not words:
        if not given and is_terminal(sys.stdin):
            raise click.UsageError("Give a prompt, or pipe one in: duragent run AGENT < question.txt")
        piped = sys.stdin.buffer.read().decode("utf-8", "replace")
    elif _file_waits():
        note("standard input is not read; to let it follow the prompt, write - after the prompt")
    text = "\n\n".join(each for each in (*words, piped) if each.strip())
    if not text:
        raise click.UsageError("The prompt is empty.")
    return text


def _file_waits() -> bool:
    """Whether standard input is a file with something left in it."""
    try:
        about = os.fstat(sys.stdin.fileno())
        return stat.S_ISREG(about.st_mode) and os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR) < about.st_size
    except (OSError, ValueError):
        return False


async def _run(config: Config, agent: Agent, prompt: str, session_id: str | None, model: str | None, form: str) -> int:
    known = _known(config, session_id, agent) if session_id else None
    async with open_runtime(config, override=model, tell=note) as (runtime, models, hosts):
        await models(agent)  # a missing key is told before anything is written
        tell_missing(hosts, agent)
        session_id = known or await runtime.open_session(agent)
        seen = (await runtime.session(session_id)).seq if known else 0
        view = VIEWS[form](session_id)
        async with watching(runtime, session_id, view, seen) as follower:
            with cancelling(runtime, session_id) as pressed:
                await post(config, runtime, session_id, prompt)
                session = await follower.settled()
        return conclude(session_id, session, follower.turn, view, form, cancelled=bool(pressed.count), model=model)


def _known(config: Config, wanted: str, agent: Agent) -> str:
    store = open_store(config)
    known = look(store, find_session(store, wanted))
    refuse_ended(store, known)
    if known.session.agent and known.session.agent != agent.name:
        raise Conflict(f"{known.session_id} is a session with {known.session.agent}, not with {agent.name}")
    return known.session_id


async def post(config: Config, runtime: Runtime, session_id: str, text: str) -> None:
    """Say something; a session that turns out to have ended says why, and how to go on from it."""
    try:
        await runtime.post(session_id, text)
    except Conflict:
        store = open_store(config)
        refuse_ended(store, look(store, session_id))
        raise


def note(text: str) -> None:
    """What a person should know and a program should not read."""
    say(f"{click.style('note', fg='yellow')}  {clean(text)}", err=True)


def tell_missing(hosts: Hosts, agent: Agent) -> None:
    for text in missing_tools(hosts, agent):
        note(text)


class TextView:
    """The answer alone on standard output; on a terminal as it is spoken, with the calls beside it on stderr."""

    def __init__(self, session_id: str) -> None:
        self.live = on_terminal()
        self.told = on_terminal(sys.stderr)
        self.spoken = ""
        self.calls: dict[str, ev.ToolCall] = {}

    def entry(self, entry: ev.Entry) -> None:
        event = entry.event
        if isinstance(event, ev.AssistantResponse):
            self.calls |= {call.call_id: call for call in event.tool_calls}
            if self.live and event.content.strip():
                say("" if self.spoken.strip() else block(event.content, ""))
            self.spoken = ""
        elif isinstance(event, ev.ToolResult) and self.told and event.call_id in self.calls:
            say(click.style(f"  {called(self.calls[event.call_id])}  {event.outcome}", dim=True), err=True)

    def delta(self, text: str) -> None:
        if self.live:
            self.spoken += text
            say(clean(text, lines=True), nl=False)

    def output(self, call_id: str, text: str) -> None: ...

    def forget(self, why: str) -> None:
        if self.live and self.spoken:
            say(click.style(f"\n({line(why)}; once more)", dim=True))
        self.spoken = ""

    def finish(self, turn: Turn) -> None:
        if not self.live and turn.answer.strip():
            put(turn.answer)


class SilentView:
    """Shows nothing: all is said when it is over."""

    def __init__(self, session_id: str) -> None: ...

    def entry(self, entry: ev.Entry) -> None: ...

    def delta(self, text: str) -> None: ...

    def forget(self, why: str) -> None: ...

    def output(self, call_id: str, text: str) -> None: ...


class LinesView:
    """Every event as it is stored, and every piece of text, one JSON object a line."""

    def __init__(self, session_id: str) -> None:
        self._line({"type": "session", "session_id": session_id})

    def _line(self, value: dict[str, Any]) -> None:
        click.echo(encode(value))

    def entry(self, entry: ev.Entry) -> None:
        click.echo(ev.render_entry(entry))

    def delta(self, text: str) -> None:
        self._line({"type": "delta", "text": text})

    def forget(self, why: str) -> None:
        self._line({"type": "forget", "why": why})

    def output(self, call_id: str, text: str) -> None:
        self._line({"type": "output", "call_id": call_id, "text": text})


VIEWS: dict[str, Callable[[str], View]] = {"text": TextView, "json": SilentView, "jsonl": LinesView}


def conclude(
    session_id: str,
    session: Session,
    turn: Turn,
    view: View,
    form: str,
    *,
    cancelled: bool = False,
    model: str | None = None,
) -> int:
    """Say what came of a turn, and with which code the program ends."""
    code = outcome(session, turn, cancelled=cancelled)
    if form == "json":
        echo_json(as_json(session_id, session, turn, code))
        return code
    if isinstance(view, TextView):
        if code == ANSWERED:
            view.finish(turn)
        if turn.stopped is not None:
            say(
                f"{click.style(turn.stopped.reason, fg='red', bold=True)}  {line(turn.stopped.message, 2000)}", err=True
            )
        elif turn.empty and code == FAILED:
            say(f"{click.style('empty', fg='red', bold=True)}  {NOTHING_SAID}", err=True)
    if code == WAITING:
        tell_waiting(session_id, session, model)
    elif on_terminal(sys.stderr) and form == "text":
        again = command_line("attach", session_id, *(("--model", model) if model else ()))
        say(click.style(f"(go on with: {again})", dim=True), err=True)
    return code


def outcome(session: Session, turn: Turn, *, cancelled: bool = False) -> int:
    if session.waiting:
        return WAITING
    if turn.stopped is not None:
        return INTERRUPTED if cancelled and turn.stopped.reason == "cancelled" else FAILED
    return FAILED if session.owes_answer or turn.empty else ANSWERED


def tell_waiting(session_id: str, session: Session, model: str | None = None) -> None:
    """What a person is asked, and the commands that answer it and go on."""
    same = ("--model", model) if model else ()
    for call_id in session.waiting:
        approve = ("session", "approve", session_id, call_id)
        say(f"{click.style('approval needed', fg='yellow', bold=True)}  {question_text(session, call_id)}", err=True)
        if why := why_asked(session, call_id):
            say(click.style(f"  why: {why}", dim=True), err=True)
        say(f"  yes: {command_line(*approve, *same)}", err=True)
        say(f"  no:  {command_line(*approve, '--deny', *same)}", err=True)


def question_text(session: Session, call_id: str) -> str:
    return block(question(session, call_id), " " * 17)


def as_json(session_id: str, session: Session, turn: Turn, code: int) -> dict[str, object]:
    stop = {"reason": "empty", "message": NOTHING_SAID} if turn.empty and code == FAILED else None
    if turn.stopped is not None:
        stop = {"reason": turn.stopped.reason, "message": turn.stopped.message}
    return {
        "session_id": session_id,
        "agent": session.agent,
        "model": turn.model or None,
        "status": {ANSWERED: "answered", WAITING: "waiting", INTERRUPTED: "cancelled"}.get(code, "failed"),
        "answer": turn.answer if code == ANSWERED else None,
        "stop": stop,
        "waiting": [{"call_id": each, "command": question(session, each)} for each in session.waiting],
        "usage": {
            "prompt_tokens": turn.prompt_tokens,
            "completion_tokens": turn.completion_tokens,
            "cached_tokens": turn.cached_tokens,
        },
        "cost_usd": turn.cost,
        "events": turn.events,
        "last_seq": session.seq,
    }
