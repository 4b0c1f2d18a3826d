"""What should happen next? One pure function; the engine does whatever it answers.

There is no other way to resume. After a crash the engine folds the log and asks the same question: a call that
is `started` here was started by a process that is gone, because a live engine never asks while a tool runs.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from duragent.agent import Agent
from duragent.core.events import Outcome, StopReason, ToolCall, moment
from duragent.core.policy import Judge, ToolSpec, Verdict, command, digest, effect_of, words
from duragent.core.session import AUTOMATIC_TURNS, Call, Question, Session
from duragent.core.skills import active

MAX_RETRIES = 3
Limit = Literal["rounds", "session_steps", "cost", "background"]


class CallModel(Struct, frozen=True):
    """Ask the model."""


class RunTools(Struct, frozen=True):
    """Run these calls, at the same time if there is more than one."""

    calls: tuple[ToolCall, ...]


class AskApproval(Struct, frozen=True):
    """Put a question to the person."""

    call_id: str
    command: str
    digest: str = ""
    rule: str | None = None
    asked_by: str | None = None


class CloseCall(Struct, frozen=True):
    """Give a call its result without running it."""

    call_id: str
    outcome: Outcome
    content: str


class StopTurn(Struct, frozen=True):
    reason: StopReason
    message: str


class Wait(Struct, frozen=True):
    """Somebody outside must act first: decide these, or come back."""

    call_ids: tuple[str, ...]


class WaitUntil(Struct, frozen=True):
    at: datetime


class Rest(Struct, frozen=True):
    """Nothing is owed to anyone."""


Step = CallModel | RunTools | AskApproval | CloseCall | StopTurn | Wait | WaitUntil | Rest
_REST, _CALL_MODEL = Rest(), CallModel()
_NEW_TURN = "Write again to go on in a new turn."
_NEW_SESSION = "Raise the limit in the agent's file, or begin a new session."
_REMEDIES: Mapping[Limit, str] = {
    "rounds": _NEW_TURN,
    "background": _NEW_TURN,
    "session_steps": _NEW_SESSION,
    "cost": _NEW_SESSION,
}


def next_step(
    agent: Agent,
    session: Session,
    now: datetime,
    tools: Mapping[str, ToolSpec] | None = None,
    alone_since: datetime | None = None,
    judge: Judge | None = None,
) -> Step:
    """The next step. `alone_since` is when the last follower left, if nobody has been looking since; `judge` what
    `Judge(agent)` gave once."""
    if session.status == "completed":
        return _REST
    if session.status == "paused" and (session.owes_answer or session.open_calls):
        return Wait(session.waiting)
    if session.open_calls:
        return _Calls(agent, session, now, tools or {}, judge or Judge(agent)).step()
    if session.question is not None:
        if session.question.stage == "asked" and not _late(session.question.asked_at, now, judge):
            return Wait((session.question.id,))
        return _refused(session.question)
    if not session.owes_answer:
        return _REST
    if session.failed and (step := _after_failure(agent, session)):
        return step
    if session.automatic_turns > AUTOMATIC_TURNS:
        text = f"Stopped at a limit: {AUTOMATIC_TURNS} turns have begun since a person wrote last. {_NEW_TURN}"
        return StopTurn("rounds", text)
    if (step := reached(agent, session)) or (step := _alone_too_long(agent, session, now, alone_since)):
        return step
    return _debounced(agent, session, now) or _CALL_MODEL


class _Calls:
    """What the open calls of a session need. They are worked off in their order; those that may all run, and side by
    side, go together."""

    def __init__(
        self, agent: Agent, session: Session, now: datetime, tools: Mapping[str, ToolSpec], judge: Judge
    ) -> None:
        self.agent, self.session, self.now, self.tools, self.judge = agent, session, now, tools, judge
        self.skills = active(agent, session) if agent.skills else ()

    def step(self) -> Step:
        calls = self.session.open_calls
        for call in calls.values():
            if call.stage == "started":
                return _cut_off(self.session, call, self.tools.get(call.call.tool_name))
        first: Call = next(iter(calls.values()))
        if self.session.interrupted_by and first.stage in ("new", "asked", "approved"):
            text = "This call was not run: the person wrote a new message first."
            return CloseCall(first.call.call_id, "skipped", text)
        steps = self.ahead()
        step = steps[first.call.call_id]
        together = [step.calls[0] for step in steps.values() if isinstance(step, RunTools)]
        side_by_side = len(together) == len(steps) > 1 and all(self.parallel(call) for call in together)
        if side_by_side and not self.session.interrupted_by:
            return RunTools(tuple(together[: self.agent.limits.parallel_tasks or len(together)]))
        return step

    def parallel(self, call: ToolCall) -> bool:
        return self.tools[call.tool_name].parallel_safe

    def ahead(self) -> dict[str, Step]:
        """What each open call needs, up to the first that does not simply run or must run alone."""
        steps: dict[str, Step] = {}
        for call_id, call in self.session.open_calls.items():
            steps[call_id] = step = self.about(call, self.tools.get(call.call.tool_name))
            if not isinstance(step, RunTools) or not self.parallel(call.call):
                break
        return steps

    def verdict(self, spec: ToolSpec, call: ToolCall) -> Verdict:
        """What the judge says, under every skill in use."""
        verdict = self.judge.verdict(spec, call, self.skills[0] if self.skills else None)
        for skill in self.skills[1:]:
            verdict = verdict if verdict.verdict == "deny" else self.judge.verdict(spec, call, skill)
        return verdict

    def about(self, opened: Call, spec: ToolSpec | None) -> Step:
        call = opened.call
        if opened.stage == "asked":
            if _late(opened.asked_at, self.now, self.judge):
                return CloseCall(call.call_id, "refused", "Nobody answered in time, so this call was refused.")
            return Wait((call.call_id,))
        if opened.stage == "denied":
            return CloseCall(call.call_id, "interrupted" if opened.in_doubt else "refused", _denial(opened))
        if spec is None:
            return CloseCall(call.call_id, "error", _no_such_tool(call.tool_name, self.tools))
        if call.malformed is not None or not isinstance(call.arguments, dict):
            text = f"The arguments are no JSON object: {(call.malformed or 'nothing')[:500]}"
            return CloseCall(call.call_id, "error", text)
        if spec.kind == "cli" and "args" in call.arguments and words(call) is None:  # what is judged is what runs
            return CloseCall(call.call_id, "error", "The arguments are not as they should be: args is a list of texts.")
        if faults := self.judge.faults(spec, call):
            return CloseCall(call.call_id, "error", faults)
        verdict = self.verdict(spec, call)
        if verdict.verdict == "deny":
            why = f" {verdict.why}" if verdict.why else ""
            return CloseCall(call.call_id, "refused", f"The owner's policy forbids this call ({verdict.rule}).{why}")
        allowed = verdict.verdict == "allow" or opened.stage == "approved"
        if allowed or (exactly := digest(call)) in self.session.grants:
            return RunTools((call,))
        rule = f"{verdict.rule}: {verdict.why}" if verdict.why else verdict.rule
        return AskApproval(call.call_id, command(spec, call), exactly, rule, self.session.turn_by)


def _no_such_tool(name: str, tools: Mapping[str, ToolSpec]) -> str:
    offered = f" There are: {', '.join(tools)}." if tools else " No tools are offered."
    return f"There is no tool called {name[:100]!r}.{offered}"


def _late(asked_at: str, now: datetime, judge: Judge | None) -> bool:
    """Whether a question has waited for longer than questions may."""
    if judge is None or judge.patience is None:
        return False
    at = moment(asked_at)
    return at is not None and now - at >= judge.patience


def _denial(opened: Call) -> str:
    reason = f": {opened.reason}" if opened.reason else "."
    if opened.in_doubt:
        return f"This call was cut off and its outcome is unknown. The person chose not to run it again{reason}"
    return f"The person refused this call{reason}"


def _cut_off(session: Session, opened: Call, spec: ToolSpec | None) -> Step:
    """A call that was running when the process ended. One that may run again does, but not for ever: it may be the
    reason why the process ends."""
    call = opened.call
    effect = effect_of(spec, call) if spec is not None else "unknown"
    if effect in ("pure", "repeatable") and session.retries < MAX_RETRIES:
        return RunTools((call,))
    if spec is not None and effect == "once":
        text = f"{command(spec, call)} was cut off; it may have happened. Run it again?"
        return AskApproval(call.call_id, text, digest(call), "outcome unknown", session.turn_by)
    text = "The runtime stopped while this tool ran. Its outcome is unknown: look before you try again."
    return CloseCall(call.call_id, "interrupted", text)


def _after_failure(agent: Agent, session: Session) -> Step | None:
    """A tool broke. What happens then is the agent's `on_error`; `retry` has been tried by the engine."""
    if agent.limits.on_error == "fail":
        return StopTurn("tool_failed", "A tool failed, and this agent stops when one does.")
    if agent.limits.on_error == "ask":
        return AskApproval(f"failed:{session.failed}", "A tool failed. Let the agent go on?")
    return None


def reached(agent: Agent, session: Session, next_usd: float = 0.0, returned_usd: float = 0.0) -> Step | None:
    """The limit that forbids another model call which may cost `next_usd`, if there is one. `returned_usd` was set
    aside for a call that was turned away, and is free again."""
    limits = agent.limits
    if _spent(session, "rounds", session.rounds, limits.rounds):
        return _exceeded(agent, session, "rounds", f"it has asked the model {session.rounds} times in this turn")
    if _spent(session, "session_steps", session.steps, limits.session_steps):
        return _exceeded(agent, session, "session_steps", f"this session has taken {session.steps} steps")
    if limits.cost_usd is not None:
        allowed = limits.cost_usd * (1 + session.granted.get("cost", 0))
        used = session.spent.committed_usd - returned_usd
        if used + next_usd > allowed or used >= allowed > 0:  # nothing to spend is enough for what costs nothing
            what = f"this session has used ${used:.4f} of ${allowed:.4f}"
            more = f", and the next call may cost ${next_usd:.4f}" if next_usd else ""
            return _exceeded(agent, session, "cost", what + more)
    return None


def _spent(session: Session, limit: str, used: int, allowed: int | None) -> bool:
    return allowed is not None and used >= allowed * (1 + session.granted.get(limit, 0))


def _exceeded(agent: Agent, session: Session, limit: Limit, what: str) -> Step:
    if agent.limits.on_exceed == "ask":
        return AskApproval(f"{limit}:{session.seq}", f"A limit is reached: {what}. Go on?")
    return StopTurn(limit, f"Stopped at a limit: {what}. {_REMEDIES[limit]}")


def _refused(question: Question) -> Step:
    kind = question.id.partition(":")[0]
    why = "the person chose to stop" if question.stage == "denied" else "nobody answered in time"
    if kind == "failed":
        return StopTurn("tool_failed", f"A tool failed, and {why}.")
    stop: dict[str, StopReason] = {"session_steps": "session_steps", "cost": "cost", "background": "background"}
    return StopTurn(stop.get(kind, "rounds"), f"Stopped at a limit: {why}.")


def _alone_too_long(agent: Agent, session: Session, now: datetime, alone_since: datetime | None) -> Step | None:
    seconds = agent.limits.background_seconds
    if seconds is None or alone_since is None:
        return None
    allowed = timedelta(seconds=seconds * (1 + session.granted.get("background", 0)))
    if now - max(alone_since, moment(session.turn_at) or alone_since) < allowed:
        return None
    return _exceeded(agent, session, "background", f"it has run for {seconds} s with nobody there")


def _debounced(agent: Agent, session: Session, now: datetime) -> Step | None:
    """In a chat, wait until the person has stopped typing."""
    if session.gateway is None or session.rounds or agent.access is None:
        return None
    debounce, at = agent.access.groups.queue.debounce, moment(session.wanted_at)
    if not debounce.enabled or at is None:
        return None
    quiet = at + timedelta(milliseconds=debounce.window_ms)
    return WaitUntil(quiet) if at <= now < quiet else None
