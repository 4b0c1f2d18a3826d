"""Sessions that Duragent itself kept open here as they are, and go on. The folders are in tests/data."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent
from duragent.core import events as ev
from duragent.core.session import Session
from duragent.errors import CorruptLog
from duragent.runtime import Runtime
from duragent.store.files import FileStore
from tests.acting import NOW, Clock, Gate, Speaker, Watcher, call, calling, decide, play, results, runtime_at, tool

KEPT = Path(__file__).parent.parent / "data" / "duragent_sessions"
HELPER = Agent(name="helper")
SAID = ["What is here?", "Let me look", "One file: a.txt"]


def name(case: str) -> str:
    """The id of a kept session. Letters that no ULID has are written as others."""
    return "session_01KHR" + case.upper().translate(str.maketrans("OU", "ZV")).ljust(21, "0")


CASES = {
    name(case): case
    for case in [
        "plain",
        "legacy",
        "schema1",
        "check",
        "stateonly",
        "runcont",
        "runpause",
        "runchkcont",
        "runchkpause",
        "pending",
        "pendingchk",
        "decided",
        "dangling",
        "danglingchk",
        "over",
        "chat",
        "torn",
    ]
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(KEPT, tmp_path / "sessions")
    return tmp_path / "sessions"


def opened(folder: Path, case: str) -> Session:
    return FileStore(folder).read(name(case)).session


def said(session: Session) -> list[str]:
    return [message.content for message in session.messages]


def outcomes(session: Session) -> dict[str, Any]:
    return {call.call.call_id: call.outcome for message in session.messages for call in message.calls}


def helping(folder: Path, model: Speaker, *, ran: list[str] | None = None, **more: Any) -> Runtime:
    """A runtime whose bash only remembers what it was asked to run."""

    async def bash(command: str) -> str:
        (ran if ran is not None else []).append(command)
        return "ran it"

    return runtime_at(folder, model, agent=HELPER, tools=[tool(bash, "bash")], clock=Clock(NOW), **more)


def test_every_kept_session_is_found(folder: Path) -> None:
    assert FileStore(folder).ids() == sorted(CASES)


@pytest.mark.parametrize(
    ("case", "status", "texts", "calls"),
    [
        (
            "plain",
            "active",
            ["What is here?", "", "One file: a.txt 📄", "Thanks", "You are welcome"],
            {"call_ls": "ok"},
        ),
        (
            "legacy",
            "active",
            ["What is here?", "Let me look", "Leave the rest", "One file: a.txt"],
            {"call_ls": "ok", "call_rm": "skipped"},
        ),
        ("schema1", "active", [*SAID, "Thanks", "You are welcome"], {"call_ls": "ok", "call_bad": "ok"}),
        ("check", "active", [*SAID, "Thanks", "You are welcome"], {"call_ls": "ok", "call_bad": "ok"}),
        ("stateonly", "active", SAID, {"call_ls": "ok", "call_bad": "ok"}),
        ("runcont", "active", ["Write a long story"], {}),
        ("runpause", "paused", ["Write a long story"], {}),
        ("runchkcont", "active", [*SAID, "Write a long story"], {"call_ls": "ok", "call_bad": "ok"}),
        ("runchkpause", "paused", [*SAID, "Write a long story"], {"call_ls": "ok", "call_bad": "ok"}),
        ("pending", "paused", ["Clean up", ""], {"call_rm": None, "call_ls": "skipped"}),
        ("pendingchk", "paused", ["Clean up", ""], {"call_rm": None}),
        ("decided", "paused", ["Clean up", ""], {"call_rm": None, "call_ls": "skipped"}),
        ("dangling", "active", ["Clean up", ""], {"call_rm": "ok", "call_ls": None}),
        ("danglingchk", "active", ["Clean up", ""], {"call_rm": "interrupted"}),
        ("over", "completed", ["Hello", "Hi"], {}),
        ("chat", "active", ["Hello", "Hi"], {}),
        ("torn", "active", ["Hello", "Hi"], {}),
    ],
)
def test_what_is_in_a_kept_session(
    folder: Path, case: str, status: str, texts: list[str], calls: dict[str, Any]
) -> None:
    session = opened(folder, case)
    assert (session.agent, session.status, said(session), outcomes(session)) == ("helper", status, texts, calls)
    assert session.created_at == "2026-02-18T10:00:01.123456789Z"


def test_calls_and_results_are_read_whole(folder: Path) -> None:
    first = opened(folder, "check").messages[1]
    assert [(each.call, each.success, each.content) for each in first.calls] == [
        (ev.ToolCall("call_ls", "bash", {"command": "ls"}), True, "a.txt"),
        (ev.ToolCall("call_bad", "bash", None, '{"command":'), True, "bad arguments"),
    ]


def test_what_was_used_and_who_spoke_is_read(folder: Path) -> None:
    plain, chat = opened(folder, "plain"), opened(folder, "chat")
    assert (plain.spent.prompt_tokens, plain.spent.completion_tokens, plain.messages[3].sender) == (36, 9, "Ada")
    assert (chat.gateway, chat.gateway_chat_id) == ("telegram", "-100")
    assert chat.silent == [("2026-02-18T10:00:02Z", "Bob: lunch?")]


def test_what_waited_for_a_person_waits(folder: Path) -> None:
    assert opened(folder, "pending").waiting == ("call_rm",)
    assert opened(folder, "pendingchk").waiting == ("call_rm",)
    assert opened(folder, "pendingchk").open_calls["call_rm"].command == "rm -r build"


@pytest.mark.parametrize("case", sorted(set(CASES.values()) - {"over"}))
@pytest.mark.parametrize("compaction", ["disabled", "archive", "discard"])
def test_one_goes_on_chatting_and_everything_stays_readable(folder: Path, case: str, compaction: str) -> None:
    async def main() -> None:
        log, state = folder / name(case) / "events.jsonl", folder / name(case) / "state.json"
        lines = log.read_bytes().rpartition(b"\n")[0].splitlines() if log.exists() else []
        before, texts = state.read_bytes(), said(opened(folder, case))
        model = Speaker("Of course")
        async with helping(folder, model, compaction=compaction, snapshot_every=2) as runtime:
            for text in ("And now?", "And then?"):
                await runtime.post(name(case), text)
                session = await runtime.settled(name(case))
                await runtime.sweep()
            assert said(session) == [*texts, "And now?", "Of course", "And then?", "Of course"]
            assert session.status == "active"
        assert said(opened(folder, case)) == [*texts, "And now?", "Of course", "And then?", "Of course"]
        assert None not in outcomes(opened(folder, case)).values()
        assert state.read_bytes() == before
        if compaction == "disabled":
            assert log.read_bytes().splitlines()[: len(lines)] == lines
        kept = list(FileStore(folder).entries(name(case)))
        assert [entry.seq for entry in kept] == list(range(kept[0].seq, kept[-1].seq + 1))

    play(main())


@pytest.mark.parametrize("case", ["pending", "pendingchk"])
@pytest.mark.parametrize(
    ("decision", "ran", "outcome"), [("allow_once", ["rm -r build"], "ok"), ("deny", [], "refused")]
)
def test_what_waited_can_be_decided(folder: Path, case: str, decision: Any, ran: list[str], outcome: str) -> None:
    async def main() -> None:
        done: list[str] = []
        async with helping(folder, Speaker("Done"), ran=done) as runtime:
            assert await runtime.recover() != []
            await decide(runtime, name(case), "call_rm", decision)
            session = await runtime.settled(name(case))
            assert (done, outcomes(session)["call_rm"], said(session)[-1]) == (ran, outcome, "Done")

    play(main())


@pytest.mark.parametrize(
    ("case", "call_id"), [("dangling", "call_ls"), ("decided", "call_rm"), ("danglingchk", "call_rm")]
)
def test_a_call_that_may_have_run_does_not_run_again(folder: Path, case: str, call_id: str) -> None:
    """Duragent does not write down that a tool starts, so any call without a result may have had its effect."""

    async def main() -> None:
        done: list[str] = []
        async with helping(folder, Speaker("I see"), ran=done) as runtime:
            await runtime.recover([name(case)])
            await runtime.settled(name(case))
            await runtime.post(name(case), "Well?")
            session = await runtime.settled(name(case))
            assert (done, outcomes(session)[call_id], said(session)[-1]) == ([], "interrupted", "I see")

    play(main())


def test_a_call_that_is_made_here_is_ours_and_runs(folder: Path) -> None:
    async def main() -> None:
        gate, done = Gate(), []

        async def bash(command: str) -> None:
            done.append(command)
            if len(done) == 1:
                await gate.pass_through()

        model = Speaker(calling(call("c1", "bash", command="one")), "Done")
        looking = [tool(bash, "bash", effect="pure")]
        async with runtime_at(folder, model, agent=HELPER, tools=looking, clock=Clock(NOW)) as runtime:
            await runtime.post(name("dangling"), "Go on")
            await gate.reached.wait()
        async with runtime_at(folder, model, agent=HELPER, tools=looking, clock=Clock(NOW)) as runtime:
            await runtime.recover([name("dangling")])
            await runtime.settled(name("dangling"))
        assert done == ["one", "one"]
        events = [entry.event for entry in FileStore(folder).entries(name("dangling"))]
        assert results(events) == {"call_rm": "ok", "call_ls": "interrupted", "c1": "ok"}

    play(main())


def test_work_without_a_listener_goes_on_by_itself_only_if_its_owner_wants_that(folder: Path) -> None:
    async def main() -> None:
        async with helping(folder, Speaker("Once upon a time")) as runtime:
            carried = await runtime.recover()
            assert (name("runcont") in carried, name("runchkcont") in carried) == (True, True)
            assert (name("runpause") in carried, name("runchkpause") in carried) == (False, False)
            assert said(await runtime.settled(name("runcont"))) == ["Write a long story", "Once upon a time"]
            watcher = Watcher(runtime, name("runpause"))
            await watcher.until(lambda items: any(isinstance(event, ev.AssistantResponse) for event in watcher.events))
            await watcher.leave()
            assert said(await runtime.settled(name("runpause"))) == ["Write a long story", "Once upon a time"]

    play(main())


def test_what_was_torn_is_kept_aside(folder: Path) -> None:
    async def main() -> None:
        async with helping(folder, Speaker("Hi again")) as runtime:
            await runtime.post(name("torn"), "Hello again")
            await runtime.settled(name("torn"))
        (aside,) = (folder / name("torn")).glob("events.jsonl.torn-*")
        assert aside.read_text() == '{"seq":4,"timestamp":"2026-02-18T10:00:04Z","type":"user_mess'

    play(main())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "it is no state of a Duragent session"),
        ('{"schema_version": "3"}', "its schema_version is '3'; 1 and 2 can be read"),
        ('{"schema_version": "2", "conversation": 5}', "it is no state of a Duragent session"),
    ],
)
def test_a_state_that_cannot_be_read_stops_only_a_session_that_needs_it(folder: Path, text: str, why: str) -> None:
    for case in ("plain", "check"):
        (folder / name(case) / "state.json").write_text(text)
    assert said(opened(folder, "plain"))[-1] == "You are welcome"
    with pytest.raises(CorruptLog, match=f"state.json: {why}"):
        opened(folder, "check")


def test_a_message_that_was_never_answered_is_answered_here(folder: Path) -> None:
    log = folder / name("plain") / "events.jsonl"
    log.write_bytes(b"\n".join(log.read_bytes().splitlines()[:6]) + b"\n")

    async def main() -> None:
        async with helping(folder, Speaker("You are welcome, late")) as runtime:
            assert name("plain") in await runtime.recover()
            assert said(await runtime.settled(name("plain")))[-1] == "You are welcome, late"

    play(main())
