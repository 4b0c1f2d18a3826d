"""Every event is written as one line and read back as it was; a line that was changed is found out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.core import events as ev

AT = "2026-02-18T10:00:00.000Z"
DAMAGE = "its checksum does not fit: the line was changed or damaged"

texts = st.one_of(
    st.sampled_from(["", "hello", 'a "quoted" \\ word', "\0\x01\x1f\x7f", "größer 🦉", "a\nb\r\u2028c"]), st.text()
)
ids = st.text(min_size=1, max_size=12)
maybe = st.none() | texts
counts = st.integers(0, 2**62)
dollars = st.none() | st.floats(0, 1e6)
json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)
usages = st.none() | st.builds(ev.Usage, counts, counts, counts, counts)
calls = st.builds(ev.ToolCall, ids, ids, json, maybe)
answers = st.builds(ev.ToolAnswer, st.booleans(), texts)

EVERY_KIND: dict[type, st.SearchStrategy[ev.Event]] = {
    ev.SessionStart: st.builds(
        ev.SessionStart, texts, st.sampled_from(["pause", "continue"]), texts, texts, maybe, maybe, maybe, counts
    ),
    ev.UserMessage: st.builds(ev.UserMessage, texts, maybe, maybe, maybe, st.booleans()),
    ev.SilentMessage: st.builds(ev.SilentMessage, texts, texts, maybe),
    ev.ModelCalled: st.builds(ev.ModelCalled, texts, dollars, maybe, st.booleans()),
    ev.AssistantResponse: st.builds(
        ev.AssistantResponse, texts, texts, st.lists(calls, max_size=3).map(tuple), usages, dollars
    ),
    ev.ApprovalRequired: st.builds(ev.ApprovalRequired, ids, texts, texts, maybe),
    ev.ApprovalDecision: st.builds(
        ev.ApprovalDecision, ids, st.sampled_from(["allow_once", "allow_session", "allow_always", "deny"]), maybe, maybe
    ),
    ev.ToolStarted: st.builds(ev.ToolStarted, ids),
    ev.ToolResult: st.builds(
        ev.ToolResult, ids, answers, st.sampled_from(["ok", "error", "refused", "interrupted", "skipped"])
    ),
    ev.TurnStopped: st.builds(
        ev.TurnStopped,
        st.sampled_from(
            [
                "rounds",
                "session_steps",
                "cost",
                "price_unknown",
                "background",
                "cancelled",
                "model_failed",
                "tool_failed",
            ]
        ),
        texts,
        texts,
        st.booleans(),
    ),
    ev.ReplyDelivered: st.builds(ev.ReplyDelivered, counts, maybe, maybe),
    ev.StatusChange: st.builds(ev.StatusChange, texts, texts),
    ev.ErrorNoted: st.builds(ev.ErrorNoted, texts, texts),
    ev.SessionEnd: st.builds(ev.SessionEnd, st.sampled_from(["completed", "terminated", "timeout", "error"])),
    ev.AssistantMessage: st.builds(ev.AssistantMessage, texts, texts, usages),
    ev.ToolCalled: st.builds(ev.ToolCalled, ids, ids, json),
    ev.ToolsSkipped: st.builds(ev.ToolsSkipped, st.lists(ids, max_size=3).map(tuple), texts),
}
entries = st.builds(ev.Entry, st.integers(1, 2**53), st.just(AT), st.one_of(*EVERY_KIND.values()))


def line(event: ev.Event, seq: int = 7) -> bytes:
    return ev.render_entry(ev.Entry(seq, AT, event))


def test_these_tests_know_every_kind_of_event() -> None:
    assert {kind.__struct_config__.tag for kind in EVERY_KIND} == ev.KINDS


@given(entries)
def test_every_entry_is_read_back_as_it_was_written(entry: ev.Entry) -> None:
    written = ev.render_entry(entry)
    assert ev.parse_entry(written) == entry
    assert b"\n" not in written
    assert b"\0" not in written


def test_a_line_looks_as_the_documents_say() -> None:
    assert line(ev.ToolStarted("c1")) == (
        b'{"seq":7,"timestamp":"2026-02-18T10:00:00.000Z","type":"tool_started","call_id":"c1","crc":"566bf206"}'
    )


@given(entries, st.data())
def test_a_changed_byte_is_found_or_changes_nothing(entry: ev.Entry, data: st.DataObject) -> None:
    written = ev.render_entry(entry)
    at = data.draw(st.integers(0, len(written) - 1))
    byte = data.draw(st.integers(0, 255))
    for changed in (
        written[:at] + bytes([byte]) + written[at + 1 :],
        written[:at] + bytes([byte]) + written[at:],
        written[:at] + written[at + 1 :],
    ):
        assert _read(changed) in (entry, None)


def _read(changed: bytes) -> ev.Entry | None:
    try:
        return ev.parse_entry(changed)
    except ValueError:
        return None


def test_every_byte_before_the_checksum_is_covered_by_it() -> None:
    written = line(ev.ToolResult("c1", ev.ToolAnswer(True, "größer\0")))
    found = []
    for at in range(len(written) - len(',"crc":"00000000"}')):
        for byte in (written[at] ^ 1, written[at] ^ 0x20, 0, 255):
            changed = written[:at] + bytes([byte]) + written[at + 1 :]
            with pytest.raises(ValueError, match=DAMAGE):
                ev.parse_entry(changed)
            found.append(at)
    assert len(found) == 4 * (len(written) - 18)


def test_a_line_without_a_checksum_is_read_because_duragents_own_have_none() -> None:
    said = b'{"seq":3,"timestamp":"2026-02-18T10:00:05.123456789Z","type":"user_message","content":"hi"}'
    assert ev.parse_entry(said) == ev.Entry(3, "2026-02-18T10:00:05.123456789Z", ev.UserMessage("hi"))


@pytest.mark.parametrize(
    "said",
    [
        b'{"seq":9,"timestamp":"t","type":"from_tomorrow","content": [1, 2.50, {"b":1,"a":2}],  "x":null}',
        b'{"type":"","timestamp":"","seq":9}',
        b'{"seq":9,"timestamp":"t","type":"from_tomorrow","crc":"f3a5aa1d"}',
    ],
)
def test_a_kind_of_event_that_is_not_known_stays_byte_for_byte(said: bytes) -> None:
    kind = b"" if b"tomorrow" not in said else b"from_tomorrow"
    if b"crc" in said:
        said = _sealed(said)
    entry = ev.parse_entry(said)
    assert entry == ev.Entry(9, entry.timestamp, ev.Unknown(kind.decode(), said))
    assert ev.render_entry(entry) == said
    assert ev.seal(1, AT, entry.event)[1] == said


def _sealed(said: bytes) -> bytes:
    body = said[: -len(',"crc":"00000000"}')]
    return body + b',"crc":"%08x"}' % ev.crc32(body)


def test_a_line_of_an_unknown_kind_that_was_changed_is_found_too() -> None:
    said = _sealed(b'{"seq":9,"timestamp":"t","type":"from_tomorrow","n":1,"crc":"00000000"}')
    with pytest.raises(ValueError, match=DAMAGE):
        ev.parse_entry(said.replace(b'"n":1', b'"n":2'))


def test_a_field_that_a_newer_version_added_is_no_hindrance() -> None:
    said = b'{"seq":1,"timestamp":"t","type":"tool_started","call_id":"c1","on":"moon"}'
    assert ev.parse_entry(said) == ev.Entry(1, "t", ev.ToolStarted("c1"))


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"{}",
        b"\xff\xfe",
        b'{"seq":"1","timestamp":"t","type":"session_end"}',
        b'{"seq":1,"timestamp":"t","type":"user_message"}',
        b'{"seq":1,"timestamp":"t","type":"user_message","content":null}',
        b'{"seq":1,"timestamp":"t","type":"user_message","content":"\xff"}',
        b'{"seq":1,"timestamp":"t","type":"tool_call","call_id":"c","tool_name":"t","arguments":'
        + b"[" * 5_000
        + b"]" * 5_000
        + b"}",
    ],
)
def test_what_is_no_entry_is_refused_with_a_reason(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"it is no entry of a session log \(.+\)"):
        ev.parse_entry(said)


@given(st.binary(max_size=60))
def test_no_bytes_whatever_make_reading_fail_otherwise(said: bytes) -> None:
    _read(said)


def test_half_a_surrogate_pair_is_replaced_and_the_rest_stays() -> None:
    call = ev.ToolCall("c1", "say", {"text\udfff": ["a\ud800b", 1, None]})
    entry, written = ev.seal(3, AT, ev.AssistantResponse("a", "x\ud83dy", (call,)))
    whole = ev.AssistantResponse("a", "x\ufffdy", (ev.ToolCall("c1", "say", {"text\ufffd": ["a\ufffdb", 1, None]}),))
    assert entry == ev.Entry(3, AT, whole)
    assert ev.parse_entry(written) == entry


def test_two_halves_of_a_surrogate_pair_become_their_character() -> None:
    assert ev.seal(1, AT, ev.UserMessage("\ud83e\udd89"))[0].event == ev.UserMessage("🦉")


@given(st.text(alphabet=st.characters(), max_size=20), st.sampled_from(["\ud800", "\udfff", "\udc80\ud800"]))
def test_what_was_sealed_is_exactly_what_will_be_read(text: str, half: str) -> None:
    entry, written = ev.seal(1, AT, ev.UserMessage(text + half + text, message_id=half))
    assert ev.parse_entry(written) == entry


def test_a_huge_text_and_huge_arguments_go_through() -> None:
    event = ev.AssistantResponse(
        "a", "ü" * 2_000_000, (ev.ToolCall("c", "t", {"n": list(range(100_000)), "big": 2**64 + 1}),)
    )
    assert ev.parse_entry(line(event)) == ev.Entry(7, AT, event)


def test_arguments_a_hundred_levels_deep_go_through() -> None:
    deep: object = "bottom"
    for _ in range(50):
        deep = {"in": [deep]}
    event = ev.ToolCalled("c", "t", deep)
    assert ev.parse_entry(line(event)) == ev.Entry(7, AT, event)


def test_an_odd_timestamp_of_a_foreign_log_does_not_break_a_line() -> None:
    entry = ev.Entry(1, 'the "day"\n', ev.SessionEnd())
    assert ev.parse_entry(ev.render_entry(entry)) == entry
