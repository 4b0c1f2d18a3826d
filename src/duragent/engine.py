"""The imperative shell: ask `next_step`, do it, write down what happened, ask again.

An event is folded when it is staged, and on disk before anything depends on it: `flush` stands before every tool
runs, before a call that reserves money is made, and before anybody is told. Where the disk refuses, the log is over
and with it this state; the session is opened again from what is on disk.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from math import isfinite
from typing import Any, Protocol, assert_never

from msgspec import Struct

from duragent.agent import Agent, Origin
from duragent.core import events as ev
from duragent.core.cleaning import without_secrets
from duragent.core.context import build
from duragent.core.policy import Judge, ToolSpec, command, effect_of
from duragent.core.prompt import RESERVE, Prepared, prepare
from duragent.core.session import Session, apply
from duragent.core.turn import (
    AskApproval,
    CallModel,
    CloseCall,
    Rest,
    RunTools,
    Step,
    StopTurn,
    Wait,
    WaitUntil,
    next_step,
    reached,
)
from duragent.errors import ModelFailed
from duragent.models import Answer, Listener, Model
from duragent.models.prices import Price, cost, reserve
from duragent.store import SessionLog
from duragent.tools import Scene, Tool, Toolbox

MAX_RESULT_CHARS = 262_144
PAID_TRIES = 3
MAX_DEPTH = 100
"""How deeply arguments may be nested: what is written down must be readable wherever it is read."""


class Redacting(Protocol):
    """A text that comes in pieces, without secrets. What may be the beginning of one is held back until `end`."""

    def feed(self, text: str) -> str: ...

    def end(self) -> str: ...


class Place(Struct, frozen=True):
    """What holds for an agent where it runs: the folder its commands work in, how long a question waits for its answer,
    which texts are never written down, who hears of calls that the policy wants told, and who keeps new rules."""

    workdir: str = ""
    patience: timedelta | None = None
    redact: Callable[[str], str] | None = None
    stream: Callable[[], Redacting] | None = None  # the same for a text that comes in pieces
    notify: Callable[[Sequence[Mapping[str, Any]], Mapping[str, Any]], None] | None = None
    remember: Callable[[str], Origin | None] | None = None  # keeps a rule that a person wants to hold always


NOWHERE = Place()


class Ear(Listener, Protocol):
    """Who hears a session at work: what its model says, and what its tools print."""

    def output(self, call_id: str, text: str) -> None: ...


class Actor:
    """An agent with everything it needs to act. Shared by all its sessions."""

    def __init__(
        self,
        agent: Agent,
        models: Sequence[Model],
        tools: Toolbox,
        price: Callable[[str], Price | None],
        known: Mapping[str, str],
        place: Place = NOWHERE,
    ) -> None:
        self.agent, self.models, self.tools, self.price, self.place = agent, models, tools, price, place
        self.judge = Judge(agent, workdir=place.workdir, patience=place.patience)
        self.specs: Mapping[str, ToolSpec] = {name: tool.spec for name, tool in tools.items()}
        offered = tuple(self.specs.values())
        self.prepared: Mapping[str, Prepared] = {
            model.name: prepare(agent, offered, model.name, known) for model in models
        }


class Work:
    """One session at work: its actor, its state and its log."""

    def __init__(
        self,
        session_id: str,
        actor: Actor,
        session: Session,
        log: SessionLog,
        listener: Ear,
        clock: Callable[[], datetime],
        alone_since: Callable[[], datetime | None],
    ) -> None:
        self.id, self.actor, self.session, self.log = session_id, actor, session, log
        self.listener, self.clock, self.alone_since = listener, clock, alone_since
        self.due = 0  # the newest entry that followers must hear of before anything else is said

    def record(self, event: ev.Event, *, lazy: bool = False) -> ev.Entry:
        """Let an event have happened. It is not on disk until the log is flushed."""
        if self.actor.place.redact is not None:
            event = without_secrets(event, self.actor.place.redact)
        entry = self.log.stage(event, self.clock(), lazy=lazy)
        apply(self.session, entry)
        if not lazy:
            self.due = entry.seq
        return entry

    def next(self) -> Step:
        actor = self.actor
        return next_step(actor.agent, self.session, self.clock(), actor.specs, self.alone_since(), actor.judge)


class _Cleaned:
    """Hands on what a model says, without secrets."""

    def __init__(self, listener: Listener, place: Place) -> None:
        self._listener, self._place = listener, place
        self._stream = place.stream() if place.stream is not None else None

    def delta(self, text: str) -> None:
        if safe := self._stream.feed(text) if self._stream is not None else text:
            self._listener.delta(safe)

    def restart(self, why: str) -> None:
        self._stream = self._place.stream() if self._place.stream is not None else None
        self._listener.restart(self._place.redact(why) if self._place.redact is not None else why)

    def end(self) -> None:
        if self._stream is not None and (rest := self._stream.end()):
            self._listener.delta(rest)


async def advance(work: Work) -> Rest | Wait | WaitUntil:
    """Take steps until the session rests, or waits for someone or for a time."""
    while not isinstance(step := work.next(), Rest | Wait | WaitUntil):
        await perform(work, step)
    await work.log.flush()
    return step


async def perform(work: Work, step: Step) -> None:
    match step:
        case CallModel():
            await _call_model(work)
        case RunTools(calls):
            await _run_tools(work, calls)
        case AskApproval(call_id, asked, digest, rule, by):
            work.record(ev.ApprovalRequired(call_id, asked, digest, rule, by))
            await work.log.flush()
        case CloseCall(call_id, outcome, content):
            work.record(ev.ToolResult(call_id, ev.ToolAnswer(False, content), outcome))
        case StopTurn(reason, message):
            work.record(ev.TurnStopped(reason, message))
        case Rest() | Wait() | WaitUntil():
            return
        case _:
            assert_never(step)


async def _call_model(work: Work) -> None:
    """Ask the candidates in their order. The next one is asked when one fails for good."""
    failure: ModelFailed | None = None
    hopeless: set[int] = set()
    actor = work.actor  # files may change, and with them the actor, while a model thinks or a tool runs
    again = 2 if actor.agent.limits.on_error == "retry" else 1
    for model in [model for _ in range(again) for model in actor.models]:
        tries = 0
        while id(model) not in hopeless and tries < PAID_TRIES:
            failed = await _ask(work, actor, model, failure)
            if failed is None:
                return
            failure = failed
            _Cleaned(work.listener, actor.place).restart(str(failure))
            if failure.lasting:
                hopeless.add(id(model))
            # Where money is limited each try that may have cost some is a call of its own, with its own reservation.
            tries = tries + 1 if failure.billed and actor.agent.limits.cost_usd is not None else PAID_TRIES
    text = str(failure) if failure else "This agent names no model that can be used here."
    work.record(ev.TurnStopped("model_failed", text, refunded=failure is not None and not failure.billed))


async def _ask(work: Work, actor: Actor, model: Model, before: ModelFailed | None) -> ModelFailed | None:
    """Ask one model. None when there is nothing more to ask: it has answered, or a limit forbids the call."""
    prepared, price = actor.prepared[model.name], actor.price(model.name)
    request = build(prepared.agent, work.session, work.clock(), prepared.tools, model.name, prepared)
    why, refunded = (str(before), not before.billed) if before else (None, False)
    reserved: float | None = None
    if actor.agent.limits.cost_usd is not None:
        request.max_output_tokens = request.max_output_tokens or RESERVE  # what may be said is what is reserved
        request.pay_once = True
        reserved = reserve(price, request.tokens, request.max_output_tokens) if price else None
        if (step := _unaffordable(work, model, reserved, refunded)) is not None:
            await _stop_before(work, step, refunded)
            return None
    work.record(ev.ModelCalled(model.name, reserved, why, refunded), lazy=reserved is None)
    if reserved is None:
        work.log.kick()
    else:
        await work.log.flush()
    listener = _Cleaned(work.listener, actor.place) if actor.place.redact is not None else None
    try:
        timeout = float(actor.agent.session.llm_timeout_seconds)
        answer = await model.answer(request, listener or work.listener, timeout)
        if listener is not None:
            listener.end()
        response = _response(work, answer, price)
    except ModelFailed as error:
        return error
    except BaseException as error:  # noqa: BLE001 - foreign code: it failed, the session goes on
        _pass_on(error)
        return ModelFailed(f"{model.name} broke: {_told(error)}")
    try:
        work.record(response)
    except ValueError as error:  # it holds what no log can: that is the model's failure, too
        return ModelFailed(f"{model.name} broke: {error}")
    _stop_if_cancelled()
    return None


def _pass_on(error: BaseException) -> None:
    """Raise the cancellation that is meant for us, and the person's own interrupt. What else foreign code comes up
    with, be it `sys.exit()`, is its failure."""
    task = asyncio.current_task()
    ours = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
    if ours or isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error


def _stop_if_cancelled() -> None:
    """A cancellation that foreign code has swallowed holds all the same."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _told(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot even say what it is
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def _stop_before(work: Work, step: Step, refunded: bool) -> None:
    """Do not make the call. What the one before it had set aside comes back if that was turned away."""
    if isinstance(step, StopTurn):
        work.record(ev.TurnStopped(step.reason, step.message, refunded=refunded))
    else:
        await perform(work, step)


def _unaffordable(work: Work, model: Model, reserved: float | None, refunded: bool) -> Step | None:
    """Why a call must not be made by an agent that may spend only so much."""
    if reserved is not None:
        returned = work.session.spent.reserved_usd if refunded else 0.0
        return reached(work.actor.agent, work.session, reserved, returned)
    text = (
        f"This agent may spend ${work.actor.agent.limits.cost_usd:g}, and what {model.name} costs is not known. "
        f"Set its price in duragent.yaml, in USD per million tokens: prices: {{{model.name}: {{input: 1, output: 2}}}}"
    )
    return StopTurn("price_unknown", text)


def _response(work: Work, answer: Answer, price: Price | None) -> ev.AssistantResponse:
    """The answer as it is written down. What it cannot be made of raises: it is the model's failure."""
    if not isinstance(answer, Answer) or not isinstance(answer.content, str):
        raise TypeError(f"it answered with a {type(getattr(answer, 'content', answer)).__name__} in place of a text")
    usd = answer.cost_usd if answer.cost_usd is not None and isfinite(answer.cost_usd) else None
    if usd is None and price is not None and answer.usage is not None:
        usd = cost(price, answer.usage)
    if not usd and not work.session.spent.reserved_usd:
        usd = None  # nothing was set aside and nothing was spent: not worth a word
    if usd is not None:
        usd = max(usd, 0.0)
    calls = _distinct(answer.tool_calls, work.session)
    return ev.AssistantResponse(work.session.agent, _text(answer.content), calls, answer.usage, usd)


def _distinct(calls: Sequence[ev.ToolCall], session: Session) -> tuple[ev.ToolCall, ...]:
    """Some providers number calls anew in each answer: an id that is missing or comes twice gets a new one."""
    seen: set[str] = set()
    named: list[ev.ToolCall] = []
    for index, call in enumerate(calls):
        call_id, arguments, malformed = call.call_id, call.arguments, call.malformed
        while not call_id or call_id in seen:
            call_id = f"{call_id or 'call'}_{session.seq + 1}_{index}"
        if malformed is None and not _is_json(arguments):
            arguments, malformed = None, f"they hold what JSON cannot, or are nested deeper than {MAX_DEPTH} levels"
        seen.add(call_id)
        named.append(ev.ToolCall(call_id, call.tool_name, arguments, malformed))
    return tuple(named)


def _is_json(value: ev.Json, depth: int = MAX_DEPTH) -> bool:
    if isinstance(value, float):
        return isfinite(value)
    if value is None or isinstance(value, str | int):
        return True
    if not depth:
        return False
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(each, depth - 1) for name, each in value.items())
    return isinstance(value, list) and all(_is_json(each, depth - 1) for each in value)


async def _run_tools(work: Work, calls: Sequence[ev.ToolCall]) -> None:
    """Write down that they start; only then run them."""
    actor = work.actor
    for call in calls:
        work.record(ev.ToolStarted(call.call_id))
    await work.log.flush()
    if len(calls) == 1:
        await _run_tool(work, actor, calls[0])
        return
    try:
        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(_run_tool(work, actor, call))
    except BaseExceptionGroup as failed:  # tools raise nothing, so this is the log's own word: the disk refused
        raise failed.exceptions[0] from None


async def _run_tool(work: Work, actor: Actor, call: ev.ToolCall) -> None:
    tool = actor.tools[call.tool_name]
    answer, outcome = await _try_tool(work, tool, call)
    may_repeat = actor.agent.limits.on_error == "retry" and effect_of(tool.spec, call) in ("pure", "repeatable")
    if outcome == "error" and may_repeat:
        work.record(ev.ToolStarted(call.call_id))
        await work.log.flush()
        answer, outcome = await _try_tool(work, tool, call)
    work.record(ev.ToolResult(call.call_id, answer, outcome))
    work.log.kick()
    if actor.place.notify is not None and (deliveries := actor.judge.notified(tool.spec, call)):
        at = work.clock().isoformat().replace("+00:00", "Z")
        told = {"session_id": work.id, "agent": actor.agent.name, "command": command(tool.spec, call)}
        actor.place.notify(deliveries, {**told, "success": answer.success, "timestamp": at})
    _stop_if_cancelled()


async def _try_tool(work: Work, tool: Tool, call: ev.ToolCall) -> tuple[ev.ToolAnswer, ev.Outcome]:
    session = work.session
    say = partial(work.listener.output, call.call_id)
    scene = Scene(work.id, call.call_id, session.gateway, session.gateway_chat_id, session.turn_by, say)
    try:
        said = await tool.run(call.arguments, scene)
        answer = said if isinstance(said, ev.ToolAnswer) else ev.ToolAnswer(True, said)
        return ev.ToolAnswer(bool(answer.success), _short(_text(answer.content))), "ok"
    except BaseException as error:  # noqa: BLE001 - foreign code: what it raises is its result
        _pass_on(error)
        return ev.ToolAnswer(False, _short(_told(error))), "error"


def _text(said: object) -> str:
    if isinstance(said, str):
        return str.__str__(said)  # not one of its children, which no codec knows
    return "" if said is None else str(said)


def _short(text: str) -> str:
    if len(text) <= MAX_RESULT_CHARS:
        return text
    return f"{text[:MAX_RESULT_CHARS]}\n[cut: {len(text):,} characters in all]"
