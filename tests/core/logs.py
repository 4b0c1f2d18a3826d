"""Logs of every shape: what a good engine writes, what an older version wrote, and what nobody should write."""

from hypothesis import strategies as st

from duragent.core import events as ev

AT = "2026-02-18T10:00:00.000000Z"

_texts = st.one_of(
    st.sampled_from(["", " ", "\n\t", "hello", "größer 🦉", "x" * 400, "ü" * 900, "🦉" * 2_500, "word " * 4_000]),
    st.text(max_size=40),
)
_ids = st.one_of(st.sampled_from(["c1", "c2", "c3", "", "a b", "ö", "i" * 80]), st.text(max_size=8))
_names = st.sampled_from(["bash", "web", "", "functions.bash", "mcp__a__b", "n" * 90, "ä"])
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_arguments = st.one_of(
    st.just({"command": "ls"}), _json, st.dictionaries(st.text(max_size=5), _texts, max_size=2), st.none()
)
_calls = st.builds(ev.ToolCall, _ids, _names, _arguments, st.none() | st.sampled_from(["", "{", "[1]"]))
_usages = st.none() | st.just(ev.Usage(10, 5, 15, 3))
_outcomes = st.sampled_from(["ok", "error", "refused", "interrupted", "skipped"])
_senders = st.none() | st.sampled_from(["", "Ada", "a\nb"])
_timestamps = st.sampled_from([AT, "2026-02-18T09:00:00Z", "2020-01-01T00:00:00+02:00", "", "yesterday"])

events: st.SearchStrategy[ev.Event] = st.one_of(
    st.builds(ev.SessionStart, st.just("a"), gateway=st.none() | st.just("telegram")),
    st.builds(
        ev.UserMessage,
        _texts,
        _senders,
        _senders,
        st.none() | st.sampled_from(["m1", "m2"]),
        wants_answer=st.booleans(),
    ),
    st.builds(ev.UserMessage, _texts),
    st.builds(ev.SilentMessage, _texts),
    st.builds(ev.ModelCalled, st.just("openai/gpt-5")),
    st.builds(ev.AssistantResponse, st.just("a"), _texts, st.lists(_calls, max_size=4).map(tuple), _usages),
    st.builds(ev.AssistantResponse, st.just("a"), _texts),
    st.builds(ev.ApprovalRequired, _ids, _texts),
    st.builds(ev.ApprovalDecision, _ids, st.sampled_from(["allow_once", "allow_session", "allow_always", "deny"])),
    st.builds(ev.ToolStarted, _ids),
    st.builds(ev.ToolResult, _ids, st.builds(ev.ToolAnswer, st.booleans(), _texts), _outcomes),
    st.builds(ev.TurnStopped, st.sampled_from(["rounds", "cost", "cancelled", "model_failed"]), _texts, partial=_texts),
    st.builds(ev.ReplyDelivered, st.integers(0, 20)),
    st.builds(ev.StatusChange, st.just("active"), st.sampled_from(["active", "paused", "running", "completed", "odd"])),
    st.builds(ev.ErrorNoted, _texts, _texts),
    st.builds(ev.SessionEnd),
    st.builds(ev.AssistantMessage, _texts),
    st.builds(ev.ToolCalled, _ids, _names, _arguments),
    st.builds(ev.ToolsSkipped, st.lists(_ids, max_size=3).map(tuple), _texts),
    st.just(ev.Unknown("from_tomorrow", b"{}")),
)
"""Every kind of event, with contents that fit nowhere as well as everywhere."""


@st.composite
def _rounds(draw: st.DrawFn) -> list[ev.Event]:
    """An answer with calls, and the results of all of them, as a good engine writes it; ids come again and again."""
    calls = draw(st.lists(_calls, min_size=1, max_size=3, unique_by=lambda call: call.call_id).map(tuple))
    results = [ev.ToolResult(call.call_id, ev.ToolAnswer(True, draw(_texts))) for call in calls]
    return [ev.ModelCalled("openai/gpt-5"), ev.AssistantResponse("a", draw(_texts), calls), *results]


_pieces: st.SearchStrategy[list[ev.Event]] = st.one_of(
    events.map(lambda event: [event]),
    _rounds(),
    _texts.map(lambda text: [ev.UserMessage(text)]),
    _texts.map(lambda text: [ev.ModelCalled("openai/gpt-5"), ev.AssistantResponse("a", text)]),
)


@st.composite
def logs(draw: st.DrawFn, max_size: int = 20) -> list[ev.Entry]:
    """Any events in any order, with stretches of sense in between, numbered as a log numbers them."""
    happened = [event for piece in draw(st.lists(_pieces, max_size=max_size)) for event in piece]
    times = draw(st.lists(_timestamps, min_size=len(happened), max_size=len(happened)))
    return [ev.Entry(seq, at, event) for seq, (at, event) in enumerate(zip(times, happened, strict=True), 1)]


def log(*happened: ev.Event, at: str = AT, after: int = 0) -> list[ev.Entry]:
    """These events as a log, all at the same time."""
    return [ev.Entry(seq, at, event) for seq, event in enumerate(happened, after + 1)]


def chat(turns: int, text: str = "x" * 100) -> list[ev.Event]:
    """So many questions, each with its answer."""
    out: list[ev.Event] = [ev.SessionStart("a")]
    for number in range(turns):
        out += [
            ev.UserMessage(f"question {number} {text}"),
            ev.ModelCalled("openai/gpt-5"),
            ev.AssistantResponse("a", f"answer {number} {text}"),
        ]
    return out


def used(call_id: str, result: str, tool: str = "bash") -> list[ev.Event]:
    """An answer that calls a tool, and what came of it."""
    return [
        ev.AssistantResponse("a", "", (ev.ToolCall(call_id, tool, {"command": "ls"}),)),
        ev.ToolStarted(call_id),
        ev.ToolResult(call_id, ev.ToolAnswer(True, result)),
    ]
