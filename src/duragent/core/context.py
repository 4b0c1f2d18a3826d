"""What the model is shown: the prompt, as much of the history as fits, and the turn it is in.

Total: whatever a log holds, `build` gives a request in which an answer and its results are never parted. Knows no
provider's dialect (`models/`): ids, roles and empty texts are put right there. Counts bytes / 4 as tokens and keeps a
tenth of the window free, because that count is a guess.

What has been worked out about a session stays in `session.sums` (a `Totals`), so that a turn touches only what it
shows. A message is replaced by a copy only where something was cut or left out; the copy is found again as long as
it is shown, so that its encoding, too, is made once. Another layer: a function from messages to messages in `build`.
"""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct, structs
from msgspec.json import Encoder

from duragent.agent import Agent, ContextRules, Json
from duragent.core.events import ToolCall
from duragent.core.policy import ToolSpec
from duragent.core.prompt import Prepared, Side, cut, group_context, moment, prepare, size, stamp_of, values_at
from duragent.core.session import Call, Message, Session
from duragent.core.skills import told, triggered

STEPS = 8
"""The beginning of what is shown moves by this part of the budget at once, so that provider caches hit in between."""
MARK = 24
"""Tokens that the line in a cut text takes at most."""
_OVERHEAD = 4
_encode = Encoder().encode


class Request(Struct):
    """Everything a model is shown, before a provider's dialect. `system` and `tools` stay the same from call to
    call, so that provider caches hit; `stamp` (date and time) changes and goes last."""

    system: str
    messages: list[Message]
    tools: tuple[ToolSpec, ...] = ()
    notice: str = ""  # how many earlier messages are not shown
    stamp: str = ""
    tokens: int = 0  # estimate of the whole request, with its margin
    temperature: float | None = None
    max_output_tokens: int | None = None
    pay_once: bool = False  # a try that may have cost money is not repeated: whoever asks counts it first


class Shorter(Struct, gc=False):
    """A copy that is shown in the place of a message, and what it was made from."""

    source: Message
    calls: tuple[Call, ...]
    masked: int  # a bit for every result that is left out
    copy: Message


class Totals(list[int]):
    """`session.sums`: the tokens of all messages up to each, counted as they are shown under `rules`.

    `session.py` cuts the list where a message was put in or changed. `odd` are the seqs of messages that are not
    shown as they are; `copies` what is shown instead, for those that were shown last."""

    __slots__ = ("copies", "odd", "rules")

    def __init__(self, rules: tuple[int, Side]) -> None:
        super().__init__()
        self.rules = rules
        self.odd: set[int] = set()
        self.copies: dict[int, Shorter] = {}


def build(
    agent: Agent,
    session: Session,
    now: datetime,
    tools: tuple[ToolSpec, ...] = (),
    model_name: str = "",
    prepared: Prepared | None = None,
) -> Request:
    """What to ask a model next. Pass what `prepare` gave for this agent, and nothing is assembled again."""
    if prepared is None or not _fits(prepared, agent, tools, model_name):
        prepared = prepare(agent, tools, model_name, prepared.known if prepared else None)
    at = moment(session.turn_at, now)
    totals = _count(session, (prepared.max_result, agent.session.context.tool_result_truncation))
    first = _turn_start(session, len(totals))
    system, system_tokens = _system(prepared, session, at, first)
    stamp = stamp_of(at)
    room = prepared.room - system_tokens - prepared.tools_tokens - size(stamp) // 4 - 2 * MARK
    room = max(room, prepared.window // 16)  # a prompt as large as the window is refused by the provider, not by us

    turn, turn_tokens, dropped = _turn(session, first, totals, agent.session.context, room)
    budget = min(prepared.history, room - turn_tokens)
    start = _window_start(totals, first, budget, max(prepared.history // STEPS, 1))
    messages = _history(session, start, first, totals)
    shown_tokens = turn_tokens + (totals[first - 1] if first else 0) - (totals[start - 1] if start else 0)
    _forget(totals, messages, turn)
    messages += turn

    hidden = start + dropped
    notice = f"[{hidden} earlier {'message is' if hidden == 1 else 'messages are'} not shown.]" if hidden else ""
    tokens = system_tokens + prepared.tools_tokens + shown_tokens + (size(stamp) + size(notice)) // 4
    return Request(
        system,
        messages,
        tools,
        notice,
        stamp,
        tokens + tokens // 10,
        agent.model.temperature,
        agent.model.max_output_tokens,
    )


def _fits(prepared: Prepared, agent: Agent, tools: tuple[ToolSpec, ...], model_name: str) -> bool:
    same_model = not model_name or prepared.model_name == model_name
    return prepared.agent is agent and same_model and (prepared.tools is tools or prepared.tools == tools)


def _system(prepared: Prepared, session: Session, at: datetime, first: int) -> tuple[str, int]:
    """The system prompt and its tokens. Bootstrap files are shown until an answer of another turn is there."""
    template = prepared.first if session.steps == session.rounds else prepared.later
    skill = triggered(prepared.agent, session) if prepared.agent.triggers else None
    if len(template.pieces) == 1 and not session.silent and skill is None:
        return template.pieces[0], template.tokens
    sender = session.messages[first].sender if first < len(session.messages) else None
    text = template.fill(values_at(at, sender))
    heard = group_context(prepared.agent, session.silent, at, prepared.window // 16) if session.silent else ""
    text = "\n\n".join(each for each in (text, told(skill) if skill else "", heard) if each)
    return text, size(text) // 4


def _count(session: Session, rules: tuple[int, Side]) -> Totals:
    """The running totals, continued up to the first message that has an open call."""
    totals = session.sums
    if not isinstance(totals, Totals) or totals.rules != rules:
        totals = session.sums = Totals(rules)
    total = totals[-1] if totals else 0
    messages, opened = session.messages, session.open_calls
    for at in range(len(totals), len(messages)):
        message = messages[at]
        if opened and any(opened.get(call.call.call_id) is call for call in message.calls):
            break
        message.tokens, odd = _weigh(message, rules[0])
        if odd:
            totals.odd.add(message.seq)
        total += message.tokens
        totals.append(total)
    return totals


def _weigh(message: Message, max_result: int) -> tuple[int, bool]:
    """The tokens of a message as it is shown, 0 where there is nothing to show, and whether it is shown otherwise than
    it stands."""
    content = message.content
    if not message.calls:
        if _blank(message):
            return 0, True
        return (size(content) + size(message.sender or "")) // 4 + _OVERHEAD, False
    tokens, odd = size(content) // 4 + _OVERHEAD, False
    for call in message.calls:
        result = size(call.content) // 4
        if result > max_result:
            result, odd = max_result + MARK, True
        tokens += _call_tokens(call.call) + result + _OVERHEAD
    return tokens, odd


def _call_tokens(call: ToolCall) -> int:
    return (len(_json(call)) + size(call.call_id)) // 4


def _json(value: Json) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:  # half of a character, which no file can hold but a caller's text can
        return repr(value).encode("utf-8", "replace")


def _blank(message: Message) -> bool:
    return not message.calls and (not message.content or message.content.isspace())


def _turn_start(session: Session, counted: int) -> int:
    """Where the turn begins: the message it answers, or the newest one where no turn is under way. A turn that begins
    with nothing takes what was said before it along, so that a request is never empty when anything was said."""
    messages, at = session.messages, len(session.messages)
    while session.turn_seq and at and messages[at - 1].seq >= session.turn_seq:
        at -= 1
    at = max(min(at, len(messages) - 1, counted), 0)
    while at and _blank(messages[at]):
        at -= 1
    return at


def _window_start(totals: Totals, first: int, budget: int, step: int) -> int:
    """The first message of earlier turns that is shown, so that those from it on fit in the budget."""
    total = totals[first - 1] if first else 0
    if total <= budget:
        return 0
    drop = -(-(total - budget) // step) * step
    return first if drop >= total else bisect_left(totals, drop, 0, first) + 1


def _history(session: Session, start: int, first: int, totals: Totals) -> list[Message]:
    messages = session.messages[start:first]
    if not totals.odd:
        return messages
    odd = totals.odd
    return [
        message if message.seq not in odd else _shorter(message, totals, 0, True)
        for message in messages
        if message.tokens
    ]


def _turn(
    session: Session, first: int, totals: Totals, rules: ContextRules, room: int
) -> tuple[list[Message], int, int]:
    """The messages of this turn as they are shown, their tokens, and how many are left out."""
    shown: list[Message] = []
    messages = session.messages[first:]
    results = sum([len(message.calls) for message in messages])
    left, right = _middle(messages, results, rules)
    seen = tokens = 0
    for at, message in enumerate(messages, first):
        count = len(message.calls)
        masked = _bits(right - seen, count) & ~_bits(left - seen, count) if right else 0
        seen += count
        settled = at < len(totals)
        if not settled:
            message.tokens, odd = _weigh(message, totals.rules[0])
        else:
            odd = bool(totals.odd) and message.seq in totals.odd
        if odd or masked:
            if not message.tokens:
                continue
            message = _shorter(message, totals, masked, settled)
        tokens += message.tokens
        shown.append(message)
    if tokens <= room:
        return shown, tokens, 0
    fitting = _fit(shown, tokens, room)
    return fitting, sum(message.tokens for message in fitting), len(shown) - len(fitting)


def _bits(upto: int, count: int) -> int:
    return (1 << max(min(upto, count), 0)) - 1


def _middle(messages: Sequence[Message], results: int, rules: ContextRules) -> tuple[int, int]:
    """Which results of the turn are masked: from one number to before another. Results that the model has not seen
    yet are never among them, however many came at once."""
    first, last = rules.tool_result_keep_first, rules.tool_result_keep_last
    if results <= first + last or not (first or last):
        return 0, 0
    newest = next(len(message.calls) for message in reversed(messages) if message.calls)
    return first, max(results - max(last, newest), first)


def _shorter(message: Message, totals: Totals, masked: int, keep: bool) -> Message:
    """The copy that is shown in the place of a message; the message itself where that comes to the same."""
    known = totals.copies.get(message.seq)
    if known and known.source is message and known.calls is message.calls and known.masked == masked:
        return known.copy
    max_result, side = totals.rules
    calls = tuple([_shown(call, max_result, side, bool(masked >> at & 1)) for at, call in enumerate(message.calls)])
    if all(new is old for new, old in zip(calls, message.calls, strict=True)):
        copy = message
    else:
        copy = Message(message.role, message.content, message.seq, calls, message.sender)
        copy.tokens = _weigh(copy, max_result + MARK)[0]
    if keep:
        totals.copies[message.seq] = Shorter(message, message.calls, masked, copy)
    return copy


def _shown(call: Call, max_result: int, side: Side, masked: bool) -> Call:
    content = call.content
    if masked:
        content = f"[This result of about {size(content) // 4} tokens is left out to save room.]"
        if len(content) >= size(call.content):
            return call
    elif size(content) // 4 > max_result:
        content = cut(content, max_result, side)
    else:
        return call
    return structs.replace(call, content=content)


def _forget(totals: Totals, *shown: Sequence[Message]) -> None:
    """Let go of the copies that are no longer shown, once they are more than those that are."""
    if len(totals.copies) > 8 + 2 * sum(map(len, shown)):
        seqs = {message.seq for messages in shown for message in messages}
        totals.copies = {seq: each for seq, each in totals.copies.items() if seq in seqs}


def _fit(shown: list[Message], tokens: int, room: int) -> list[Message]:
    """The last resort when a turn alone is larger than the window: answers with their results go, the oldest first,
    then what people said in between; what the turn is about and its newest message stay, and are cut if they must."""
    newest = len(shown) - 1
    asked = 0 if shown[0].role == "user" else newest
    step = max(room // STEPS, 1)
    excess = -(-(tokens - room) // step) * step
    gone: set[int] = set()
    for role in ("assistant", "user"):
        for at, message in enumerate(shown):
            if tokens <= room and excess <= 0:
                break
            if message.role == role and at not in (asked, newest):
                gone.add(at)
                tokens -= message.tokens
                excess -= message.tokens
        if tokens <= room:
            break
    kept = [message for at, message in enumerate(shown) if at not in gone]
    if tokens <= room:
        return kept
    if len(kept) > 1:
        question = kept[0] if kept[0].tokens <= room // 4 else _squeeze(kept[0], room // 4)
        kept = [question, *kept[1:]]
        room -= question.tokens
    return [*kept[:-1], kept[-1] if kept[-1].tokens <= room else _squeeze(kept[-1], room)]


def _squeeze(message: Message, room: int) -> Message:
    """A copy of a message that alone is larger than the window: its largest texts are cut to one length."""
    arguments = [_json(call.call.arguments) for call in message.calls]
    sizes = [size(message.content) // 4, *[len(each) // 4 for each in arguments]]
    sizes += [size(call.content) // 4 for call in message.calls]
    level = _level(sizes, room - (message.tokens - sum(sizes)))
    calls = []
    for call, written in zip(message.calls, arguments, strict=True):
        inner = call.call
        if len(written) // 4 > level:
            # The text stands in JSON once more, where every quote and backslash takes two bytes.
            inner = structs.replace(inner, arguments={"cut": cut(written.decode(), max(level - MARK, 0) // 2)})
        calls.append(structs.replace(call, call=inner, content=_cut_to(call.content, level)))
    copy = Message(message.role, _cut_to(message.content, level), message.seq, tuple(calls), message.sender)
    copy.tokens = _weigh(copy, room + MARK)[0]
    return copy


def _cut_to(text: str, tokens: int) -> str:
    return text if size(text) // 4 <= tokens else cut(text, max(tokens - MARK, 0), "both")


def _level(sizes: Sequence[int], room: int) -> int:
    """The length to which the larger ones must be cut so that all fit."""
    left = len(sizes)
    for each in sorted(sizes):
        if each * left > room:
            break
        room -= each
        left -= 1
    return max(room // left, 0) if left else room
