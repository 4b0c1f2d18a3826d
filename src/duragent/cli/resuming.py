"""session resume, session approve: turns that stopped on the way are carried to their end, without a terminal."""

import click

from duragent.cli import clean, echo_json, output_format, say
from duragent.cli.following import cancelling, watching
from duragent.cli.opening import in_loop, open_runtime, person
from duragent.cli.running import (
    ANSWERED,
    FAILED,
    INTERRUPTED,
    WAITING,
    SilentView,
    TextView,
    as_json,
    conclude,
    note,
    outcome,
)
from duragent.cli.sessions import Known, find_session, look, look_all, open_store, question, refuse_ended
from duragent.cli.telling import UNFINISHED, block, line
from duragent.config import Config, load_config
from duragent.core.events import Decision
from duragent.errors import Conflict, DuragentError
from duragent.runtime import Runtime


@click.command("resume")
@click.argument("session_id", metavar="[ID]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every session whose turn was interrupted.")
@click.option("--model", metavar="PROVIDER/NAME", help="Use this model, whatever the agent says.")
@output_format("text")
def session_resume_command(session_id: str | None, everything: bool, model: str | None, form: str) -> None:
    """Carry the interrupted turn of the session ID, or those of all sessions, to its end and print the answers.

    Nothing runs twice by itself: a tool that was cut off is reported to the model, or asked about. The exit code
    is 0 when all were answered, 1 when one failed, 3 when one waits for a person.

    \b
    duragent session resume 4VQ8
    duragent session resume --all --format json
    """
    if bool(session_id) == everything:
        raise click.UsageError("Name a session, or say --all.")
    config = load_config()
    store = open_store(config)
    if session_id:
        known = look(store, find_session(store, session_id))
        refuse_ended(store, known)
        chosen = [known]
    else:
        chosen = [each for each in look_all(store) if each.standing in UNFINISHED][::-1]
    code, reports = in_loop(_resume_all(config, chosen, model, form))
    if form == "json":
        echo_json(reports)
    if code:
        raise click.exceptions.Exit(code)


async def _resume_all(
    config: Config, chosen: list[Known], model: str | None, form: str
) -> tuple[int, list[dict[str, object]]]:
    codes, reports = [ANSWERED], []
    if not chosen and form == "text":
        say("Nothing was interrupted.")
    async with open_runtime(config, override=model, tell=note) as (runtime, _, _hosts):
        for known in chosen:
            try:
                code, report = await _resume(runtime, known, form, model, alone=len(chosen) == 1)
            except DuragentError as error:
                code, report = FAILED, {"session_id": known.session_id, "status": "failed", "problem": str(error)}
                if form == "text":
                    say(f"{click.style('error', fg='red', bold=True)}  {clean(str(error), lines=True)}", err=True)
            codes.append(code)
            reports.append(report)
            if code == INTERRUPTED:
                break
    return next((each for each in (INTERRUPTED, FAILED, WAITING) if each in codes), ANSWERED), reports


async def _resume(
    runtime: Runtime, known: Known, form: str, model: str | None, *, alone: bool
) -> tuple[int, dict[str, object]]:
    """Carry one session on. What is told is only what happened since."""
    session_id = known.session_id
    if form == "text":
        words = f"{known.session.agent}: {_last_request(known)}"
        say(click.style(f"{session_id}  {clean(words)}", dim=True), err=True)
    view = TextView(session_id) if form == "text" else SilentView(session_id)
    seen = (await runtime.session(session_id)).seq
    async with watching(runtime, session_id, view, min(seen, known.session.seq)) as follower:
        with cancelling(runtime, session_id) as pressed:
            await runtime.recover([session_id])
            if session_id in runtime.problems:
                raise runtime.problems[session_id]
            session = await follower.settled()
    turn = follower.turn
    if not turn.events and alone and form == "text" and not session.waiting:
        say("Nothing was interrupted: the last message has its answer.")
    if form == "json":
        code = outcome(session, turn, cancelled=bool(pressed.count))
        return code, as_json(session_id, session, turn, code)
    return conclude(session_id, session, turn, view, form, cancelled=bool(pressed.count), model=model), {}


def _last_request(known: Known) -> str:
    asked = [message.content for message in known.session.messages if message.role == "user"]
    return line(asked[-1], 60) if asked else ""


@click.command("approve")
@click.argument("session_id", metavar="ID")
@click.argument("call_id", metavar="[CALL_ID]", required=False)
@click.option("--deny", is_flag=True, help="Say no.")
@click.option("--for-session", is_flag=True, help="Also for the same call later in this session.")
@click.option("--always", is_flag=True, help="Also in all sessions: a rule is written to the agent's local policy.")
@click.option("--reason", metavar="TEXT", help="Why; the agent is told.")
@click.option("--model", metavar="PROVIDER/NAME", help="Use this model, whatever the agent says.")
@output_format("text")
def session_approve_command(
    session_id: str,
    call_id: str | None,
    deny: bool,
    for_session: bool,
    always: bool,
    reason: str | None,
    model: str | None,
    form: str,
) -> None:
    """Decide what the session ID asks, let the agent go on, and print its answer.

    CALL_ID may be left out where only one thing is asked. What is asked: `duragent session show ID`.

    \b
    duragent session approve 4VQ8
    duragent session approve 4VQ8 call_1 --for-session
    duragent session approve 4VQ8 call_1 --always
    duragent session approve 4VQ8 call_1 --deny --reason "use the test database"
    """
    if deny + for_session + always > 1:
        raise click.UsageError("--deny, --for-session and --always say different things; give one of them.")
    config = load_config()
    store = open_store(config)
    known = look(store, find_session(store, session_id))
    refuse_ended(store, known)
    wanted = _asked(known, call_id)
    decision: Decision = "allow_session" if for_session else "allow_always" if always else "allow_once"
    if deny:
        decision = "deny"
    code = in_loop(_approve(config, known, wanted, decision, reason, model, form))
    if code:
        raise click.exceptions.Exit(code)


def _asked(known: Known, call_id: str | None) -> str:
    """The thing that is decided: the one that was named, or the only one there is."""
    waiting = known.session.waiting
    if not waiting:
        raise Conflict(f"{known.session_id} asks for nothing; it is {known.standing}")
    if call_id is None and len(waiting) == 1:
        return waiting[0]
    if call_id in waiting:
        return str(call_id)
    listed = "\n".join(f"  {clean(each)}  {block(question(known.session, each), '  ')}" for each in waiting)
    raise Conflict(f"{known.session_id} asks about these; name one of them:\n{listed}")


async def _approve(
    config: Config, known: Known, call_id: str, decision: Decision, reason: str | None, model: str | None, form: str
) -> int:
    session_id = known.session_id
    view = TextView(session_id) if form == "text" else SilentView(session_id)
    call = known.session.open_calls.get(call_id)
    async with open_runtime(config, override=model, tell=note) as (runtime, _, _hosts):
        seen = (await runtime.session(session_id)).seq
        async with watching(runtime, session_id, view, seen) as follower:
            with cancelling(runtime, session_id) as pressed:
                digest = call.digest if call else None
                try:
                    await runtime.decide(session_id, call_id, decision, digest=digest, by=person(), reason=reason)
                except Conflict as error:  # it came too late: what the agent makes of that is still wanted
                    if call_id in (session := await follower.settled()).waiting:
                        raise
                    note(str(error))
                session = await follower.settled()
    return conclude(session_id, session, follower.turn, view, form, cancelled=bool(pressed.count), model=model)
