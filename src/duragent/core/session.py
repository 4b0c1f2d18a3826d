"""The state of a session, folded from its log: the same entries in, the same state out.

`apply` changes the session in place and touches only what the event speaks of, so a turn costs the same in a
long session as in a short one. Knows nothing of disks, clocks and models. Whatever the entries are, folding
never fails: an event that fits nowhere changes nothing.
"""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct, field

from duragent.core import events as ev

Stage = Literal["new", "asked", "approved", "denied", "started", "done"]
Status = Literal["active", "paused", "running", "completed"]
REMEMBERED_IDS = 4096
SILENT_MESSAGES = 200
SKILL_TOOL = "skill"
AUTOMATIC_TURNS = 20
"""How many turns processes and clocks may begin after a person has written last: nothing runs on for ever by itself."""


class Call(Struct, omit_defaults=True, gc=False):
    """One call and how far it is. `content` is what the model sees as its result once the stage is `done`."""

    call: ev.ToolCall
    stage: Stage = "new"
    digest: str = ""
    command: str = ""  # what the person was asked about,
    asked_at: str = ""  # when,
    rule: str = ""  # and why
    in_doubt: bool = False  # it was started once already, and nobody knows how that ended
    decision: ev.Decision | None = None
    reason: str | None = None
    outcome: ev.Outcome | None = None
    success: bool = False
    content: str = ""


class Message(Struct, omit_defaults=True, gc=False):
    """One thing that was said. An answer carries its calls, and each call its own result, so that the two
    can never be parted. `wire` keeps the provider's encoding (`dialect` says which), `tokens` the estimate."""

    role: Literal["user", "assistant"]
    content: str
    seq: int
    calls: tuple[Call, ...] = ()
    sender: str | None = None
    automatic: bool = False  # no person wrote it
    tokens: int = 0
    dialect: str = ""
    wire: bytes = b""


class Question(Struct):
    """Something only a person can decide that is no call: going on beyond a limit, or after a failure."""

    id: str
    command: str
    stage: Literal["asked", "denied"] = "asked"
    asked_at: str = ""


class Spent(Struct, omit_defaults=True):
    """What a session has used. A reservation without its answer counts as spent."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    usd: float = 0.0
    reserved_usd: float = 0.0
    model_calls: int = 0

    @property
    def committed_usd(self) -> float:
        return self.usd + self.reserved_usd


class Session(Struct, omit_defaults=True):
    """All that is known about a session after its last entry."""

    agent: str = ""
    source: str = ""
    fingerprint: str = ""
    on_disconnect: Literal["pause", "continue"] = "pause"
    gateway: str | None = None
    gateway_chat_id: str | None = None
    forked_from: str | None = None
    version: int = 0  # of the log's rules; 0 where Duragent itself began it
    created_at: str = ""
    updated_at: str = ""
    seq: int = 0
    status: Status = "active"
    messages: list[Message] = field(default_factory=list)
    open_calls: dict[str, Call] = field(default_factory=dict)  # of the newest answer, in its order
    owes_answer: bool = False
    interrupted_by: int = 0  # seq of a message that arrived while calls were open
    wanted_seq: int = 0  # seq of the newest message that wants an answer
    wanted_at: str = ""
    wanted_by: str | None = None  # the person who wrote last
    automatic_turns: int = 0  # turns that no person began, since one wrote
    person_seq: int = 0  # seq of the newest message of a person that wants an answer
    called_seq: int = 0  # seq of the newest model call: what came later it has not seen
    turn_seq: int = 0  # seq of the message this turn answers
    turn_at: str = ""
    rounds: int = 0  # answers in this turn
    retries: int = 0  # tool calls of this turn that were tried once more
    steps: int = 0  # answers in the whole session
    granted: dict[str, int] = field(default_factory=dict)  # limit → how many times a person let it go on
    question: Question | None = None
    skill: str = ""  # the skill that was loaded in this turn
    turn_by: str | None = None  # who wrote the message that this turn answers
    failed: str = ""  # call id of a call that broke in this turn and that nobody has spoken about
    grants: dict[str, str] = field(default_factory=dict)  # digest of exact arguments → decision for this session
    seen: dict[str, None] = field(default_factory=dict)
    silent: list[tuple[str, str]] = field(default_factory=list)
    undelivered: dict[int, None] = field(default_factory=dict)
    spent: Spent = field(default_factory=Spent)
    warnings: list[str] = field(default_factory=list)
    sums: list[int] = field(default_factory=list)  # running totals of `tokens`, kept by context.py

    @property
    def waiting(self) -> tuple[str, ...]:
        """Ids of everything that a person must decide before this can go on."""
        asked = tuple(id for id, call in self.open_calls.items() if call.stage == "asked" and not self.interrupted_by)
        return (*asked, self.question.id) if self.question and self.question.stage == "asked" else asked

    @property
    def ended(self) -> bool:
        return self.status == "completed"


def too_old(session: Session, hours: int, now: datetime) -> bool:
    """Whether a session has been idle for longer than so many hours; 0 means that none ever is."""
    if not hours or session.ended or session.waiting:  # what waits for a person waits as long as it takes
        return False
    at = ev.moment(session.updated_at)
    return at is not None and now - at > timedelta(hours=hours)


def fold(entries: Iterable[ev.Entry], session: Session | None = None) -> Session:
    """The session after all these entries."""
    session = session or Session()
    for entry in entries:
        apply(session, entry)
    return session


def apply(session: Session, entry: ev.Entry) -> None:
    """Let one more entry have happened."""
    session.seq = entry.seq
    session.updated_at = max(session.updated_at, entry.timestamp)
    handler = _HANDLERS.get(type(entry.event))
    if handler is not None:
        handler(session, entry.event, entry)
    elif isinstance(entry.event, ev.Unknown) and len(session.warnings) < 20:
        session.warnings.append(f"entry {entry.seq} is a {entry.event.type!r}, which this version does not know")


def _session_start(session: Session, event: ev.SessionStart, entry: ev.Entry) -> None:
    session.agent, session.source, session.fingerprint = event.agent, event.source, event.fingerprint
    session.on_disconnect = event.on_disconnect
    session.gateway, session.gateway_chat_id = event.gateway, event.gateway_chat_id
    session.forked_from, session.version = event.forked_from, event.version
    session.created_at = session.created_at or entry.timestamp


def _user_message(session: Session, event: ev.UserMessage, entry: ev.Entry) -> None:
    if event.message_id:
        session.seen[event.message_id] = None
        if len(session.seen) > REMEMBERED_IDS:
            del session.seen[next(iter(session.seen))]
    if session.status != "completed":
        session.status = "active"
    if event.wants_answer:
        session.wanted_seq, session.wanted_at = entry.seq, entry.timestamp
        if not event.automatic:
            session.wanted_by, session.person_seq = event.sender_id or event.sender_name, entry.seq
        if session.open_calls:
            if not event.automatic:  # what a process says waits until the calls are done, and withdraws no question
                session.interrupted_by = entry.seq
        elif (session.question and not event.automatic) or not session.owes_answer:
            _begin_turn(session)
        session.owes_answer = True
    sender = event.sender_name or event.sender_id
    session.messages.append(Message("user", event.content, entry.seq, sender=sender, automatic=event.automatic))


def _begin_turn(session: Session) -> None:
    """A turn answers the newest message that wants an answer."""
    session.turn_seq, session.turn_at, session.turn_by = session.wanted_seq, session.wanted_at, session.wanted_by
    session.automatic_turns = session.automatic_turns + 1 if session.wanted_seq > session.person_seq else 0
    session.skill = ""
    session.rounds = session.retries = 0
    session.granted.pop("rounds", None)
    session.granted.pop("background", None)
    session.failed = ""
    session.question = None


def _silent_message(session: Session, event: ev.SilentMessage, entry: ev.Entry) -> None:
    session.silent.append((entry.timestamp, event.content))
    del session.silent[:-SILENT_MESSAGES]


def _model_called(session: Session, event: ev.ModelCalled, entry: ev.Entry) -> None:
    session.called_seq = entry.seq
    session.spent.model_calls += 1
    _settle(session, None if not event.refunded else 0.0)
    session.spent.reserved_usd = event.reserved_usd or 0.0


def _settle(session: Session, cost_usd: float | None) -> None:
    """What the last call really cost takes the place of what was set aside for it. Where nobody knows, what was
    set aside is gone."""
    session.spent.usd += session.spent.reserved_usd if cost_usd is None else cost_usd
    session.spent.reserved_usd = 0.0


def _assistant_response(session: Session, event: ev.AssistantResponse, entry: ev.Entry) -> None:
    _settle(session, event.cost_usd)
    if event.usage is not None:
        session.spent.prompt_tokens += event.usage.prompt_tokens
        session.spent.completion_tokens += event.usage.completion_tokens
        session.spent.cached_tokens += event.usage.cached_tokens
    _close_all(session, "skipped", "This call was never run.")
    calls = tuple(Call(call) for call in event.tool_calls)
    _place(session, Message("assistant", event.content, entry.seq, calls))
    session.open_calls = {call.call.call_id: call for call in calls}
    session.rounds += 1
    session.steps += 1
    unseen = 0 < session.called_seq < session.wanted_seq  # somebody wrote while the model spoke
    session.interrupted_by = session.person_seq if calls and 0 < session.called_seq < session.person_seq else 0
    session.failed = ""
    if not calls:
        session.owes_answer = unseen
        if unseen:
            _begin_turn(session)
        if session.gateway:
            session.undelivered[entry.seq] = None


def _place(session: Session, answer: Message) -> None:
    """Put an answer where it belongs: before the messages that came after its model had been asked."""
    index = len(session.messages)
    while session.called_seq and index and _unseen(session, session.messages[index - 1]):
        index -= 1
    session.messages.insert(index, answer)
    if index < len(session.messages) - 1:
        _stale(session, index)


def _unseen(session: Session, message: Message) -> bool:
    return message.role == "user" and message.seq > session.called_seq


def _approval_required(session: Session, event: ev.ApprovalRequired, entry: ev.Entry) -> None:
    call = session.open_calls.get(event.call_id)
    if call is None:
        session.question = Question(event.call_id, event.command, asked_at=entry.timestamp)
    else:
        call.in_doubt = call.stage == "started"
        call.stage, call.digest, call.command = "asked", event.digest, event.command
        call.asked_at, call.rule = entry.timestamp, event.rule or ""


def _approval_decision(session: Session, event: ev.ApprovalDecision, entry: ev.Entry) -> None:
    allowed = event.decision in ("allow_once", "allow_session", "allow_always")
    call = session.open_calls.get(event.call_id)
    if call is not None and call.stage == "asked":
        if session.interrupted_by:
            return  # a message came first and withdrew the question
        call.stage = "approved" if allowed else "denied"
        call.decision, call.reason = event.decision, event.reason
        if event.decision in ("allow_session", "allow_always") and call.digest:
            session.grants[call.digest] = event.decision
    elif session.question is not None and session.question.id == event.call_id and session.question.stage == "asked":
        session.question.stage = "denied"
        if allowed:
            kind = event.call_id.partition(":")[0]
            session.granted[kind] = session.granted.get(kind, 0) + 1
            session.question = None
            session.failed = ""
    if session.status == "paused":
        session.status = "active"


def _tool_started(session: Session, event: ev.ToolStarted, entry: ev.Entry) -> None:
    call = session.open_calls.get(event.call_id)
    if call is not None:
        session.retries += call.stage == "started"
        call.stage = "started"


def _tool_result(session: Session, event: ev.ToolResult, entry: ev.Entry) -> None:
    call = session.open_calls.pop(event.call_id, None)
    if call is None:
        return  # a repeated result, or one of a call nobody made: the first word stands
    if event.outcome == "error" and call.stage == "started":
        session.failed = event.call_id
    call.stage, call.outcome = "done", event.outcome
    call.success, call.content = event.result.success, event.result.content
    if call.call.tool_name == SKILL_TOOL and call.success and isinstance(call.call.arguments, dict):
        _use_skill(session, call.call.arguments)


def _use_skill(session: Session, arguments: ev.Json) -> None:
    if arguments.get("action") == "load":
        session.skill = str(arguments.get("name", ""))
    elif arguments.get("action") == "unload":
        session.skill = ""


def _turn_stopped(session: Session, event: ev.TurnStopped, entry: ev.Entry) -> None:
    _settle(session, 0.0 if event.refunded else None)
    _close_all(session, "skipped", "This call was not run: the turn had been stopped.")
    if event.partial:
        _place(session, Message("assistant", event.partial, entry.seq))
    session.owes_answer = _unheard(session, event)
    session.question = None
    session.failed = ""
    session.interrupted_by = 0
    if session.owes_answer:  # a message that came too late for this turn gets its own
        _begin_turn(session)
    if session.gateway:
        session.undelivered[entry.seq] = None


def _unheard(session: Session, event: ev.TurnStopped) -> bool:
    """Whether somebody wrote something that the turn which is over has not seen."""
    if event.reason == "cancelled":
        return 0 < event.until < session.wanted_seq
    limits = ("rounds", "background", "model_failed", "tool_failed")
    newest = session.person_seq if session.automatic_turns > AUTOMATIC_TURNS else session.wanted_seq
    return event.reason in limits and 0 < session.called_seq < newest


def _close_all(session: Session, outcome: ev.Outcome, why: str) -> None:
    """No call may stay open behind the next thing that is said."""
    for call in session.open_calls.values():
        started = call.stage == "started"
        call.outcome = "interrupted" if started else outcome
        call.content = "The outcome of this call is unknown." if started else why
        call.stage = "done"
    session.open_calls = {}


def _reply_delivered(session: Session, event: ev.ReplyDelivered, entry: ev.Entry) -> None:
    session.undelivered.pop(event.reply_seq, None)


def _status_change(session: Session, event: ev.StatusChange, entry: ev.Entry) -> None:
    status = _STATUSES.get(event.to, session.status)
    if status == "running":  # Duragent's word for work without a listener; whoever did that work is gone
        status = "active" if session.on_disconnect == "continue" else "paused"
    session.status = status


def _session_end(session: Session, event: ev.SessionEnd, entry: ev.Entry) -> None:
    _close_all(session, "skipped", "This call was not run: the session had ended.")
    session.status = "completed"
    session.owes_answer = False
    session.question = None


def _assistant_message(session: Session, event: ev.AssistantMessage, entry: ev.Entry) -> None:
    _assistant_response(session, ev.AssistantResponse(event.agent, event.content, (), event.usage), entry)


def _tool_called(session: Session, event: ev.ToolCalled, entry: ev.Entry) -> None:
    call = Call(ev.ToolCall(event.call_id, event.tool_name, event.arguments))
    last = session.messages[-1] if session.messages else None
    if last is None or last.role != "assistant":
        last = Message("assistant", "", entry.seq)
        session.messages.append(last)
    last.calls = (*last.calls, call)
    session.open_calls[event.call_id] = call
    session.owes_answer = True
    _stale(session, len(session.messages) - 1)


def _tools_skipped(session: Session, event: ev.ToolsSkipped, entry: ev.Entry) -> None:
    for call_id in event.call_ids:
        answer = ev.ToolAnswer(False, f"This call was not run: {event.reason or 'it was skipped'}.")
        _tool_result(session, ev.ToolResult(call_id, answer, "skipped"), entry)


def _stale(session: Session, index: int) -> None:
    """Forget what was worked out about the messages from `index` on."""
    del session.sums[index:]
    session.messages[index].wire = b""


_STATUSES: dict[str, Status] = {
    "active": "active",
    "paused": "paused",
    "running": "running",
    "completed": "completed",
}
_HANDLERS: dict[type, Callable[[Session, Any, ev.Entry], None]] = {
    ev.SessionStart: _session_start,
    ev.UserMessage: _user_message,
    ev.SilentMessage: _silent_message,
    ev.ModelCalled: _model_called,
    ev.AssistantResponse: _assistant_response,
    ev.ApprovalRequired: _approval_required,
    ev.ApprovalDecision: _approval_decision,
    ev.ToolStarted: _tool_started,
    ev.ToolResult: _tool_result,
    ev.TurnStopped: _turn_stopped,
    ev.ReplyDelivered: _reply_delivered,
    ev.StatusChange: _status_change,
    ev.SessionEnd: _session_end,
    ev.AssistantMessage: _assistant_message,
    ev.ToolCalled: _tool_called,
    ev.ToolsSkipped: _tools_skipped,
}
