"""A person's word: about exactly what was shown, once, in time, and never the agent's own. And what nobody may read."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Agent, Notify, Origin, Policy, PolicyTier, Skill, Trigger
from duragent.core import events as ev
from duragent.core.policy import ToolSpec
from duragent.core.session import Session, apply
from duragent.core.skills import active
from duragent.engine import Place
from duragent.errors import Conflict, ModelFailed, NotAllowed, StorageFailed
from duragent.following import Delta, Output
from duragent.models import Answer
from duragent.runtime import Runtime
from duragent.secrets import Secrets, Stream
from duragent.tools import Scene, Tool
from duragent.tools.host import Door
from tests.acting import (
    AGENT,
    Clock,
    Speaker,
    Watcher,
    call,
    calling,
    decide,
    nothing,
    play,
    results,
    runtime_at,
    said,
    stored,
    tool,
)

PAY = tool(nothing, "pay", ask=True)


def shell(ran: list[str] | None = None) -> Tool:
    """Something like bash: its command is what rules speak of."""

    async def run(arguments: dict[str, Any], scene: Scene) -> str:
        (ran if ran is not None else []).append(arguments["command"])
        return "done"

    schema = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
    return Tool(ToolSpec("bash", "Runs.", schema, line="command", needs=("sh",)), run)


def placed(runtime: Runtime, **place: Any) -> Runtime:
    runtime._place = lambda agent: Place(**place)
    return runtime


def test_a_decision_needs_the_digest_of_what_was_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "pay")), "ok"), tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            with pytest.raises(Conflict, match="without the digest"):
                await runtime.decide(session_id, "c1", "allow_once")
            with pytest.raises(Conflict, match="other arguments"):
                await runtime.decide(session_id, "c1", "allow_once", digest="0" * 16)
        assert results(stored(tmp_path, session_id)) == {}

    play(main())


def test_who_wrote_the_message_that_led_to_a_question_is_written_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "pay"))), tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, ev.UserMessage("go", sender_id="42", sender_name="Ada"))
            await runtime.settled(session_id)
        (asked,) = [event for event in stored(tmp_path, session_id) if isinstance(event, ev.ApprovalRequired)]
        assert (asked.call_id, asked.asked_by, len(asked.digest)) == ("c1", "42", 16)

    play(main())


def test_a_question_that_nobody_answers_in_time_counts_as_refused(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        runtime = runtime_at(tmp_path, Speaker(calling(call("c1", "pay")), "I see."), tools=[PAY], clock=clock)
        async with placed(runtime, patience=timedelta(hours=1)):
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            clock.forward(minutes=59)
            assert await runtime.recover([session_id]) == []
            clock.forward(minutes=1)
            with pytest.raises(Conflict, match="in time"):
                await decide(runtime, session_id, "c1", "allow_once")
            await runtime.settled(session_id)
        events = stored(tmp_path, session_id)
        assert results(events) == {"c1": "refused"} and said(events) == ["go", "", "I see."]
        assert not any(isinstance(event, ev.ApprovalDecision) for event in events)

    play(main())


def test_a_question_expires_by_itself_also_after_a_restart(tmp_path: Path) -> None:
    async def main() -> None:
        clock, patience = Clock(), timedelta(hours=1)
        speaker = Speaker(calling(call("c1", "pay")), "I see.")
        async with placed(runtime_at(tmp_path, speaker, tools=[PAY], clock=clock), patience=patience) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        clock.forward(hours=2)
        async with placed(runtime_at(tmp_path, speaker, tools=[PAY], clock=clock), patience=patience) as runtime:
            assert await runtime.recover() == [session_id]
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "refused"}

    play(main())


def test_always_is_kept_as_the_exact_rule_and_holds_at_once_in_every_session(tmp_path: Path) -> None:
    async def main() -> None:
        ran: list[str] = []
        kept: list[str] = []

        def keep(rule: str) -> Origin:
            kept.append(rule)
            return Origin("policy.local.yaml", 3, 5)

        push = calling(call("c1", "bash", command="git push origin *"))
        other = calling(call("c2", "bash", command="git push origin main"))
        speaker = Speaker(push, "pushed", push, "again", other)
        async with placed(runtime_at(tmp_path, speaker, tools=[shell(ran)]), remember=keep) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            await decide(runtime, session_id, "c1", "allow_always")
            await runtime.settled(session_id)
            second = await runtime.open_session(AGENT)
            await runtime.post(second, "go")
            assert (await runtime.settled(second)).waiting == ()
            await runtime.post(second, "and this")
            assert (await runtime.settled(second)).waiting == ("c2",)  # what was allowed is not what looks like it
        assert kept == ["bash:git push origin \\*"]
        assert ran == ["git push origin *"] * 2

    play(main())


def test_a_process_that_ends_withdraws_no_question_and_asks_in_nobodys_name(tmp_path: Path) -> None:
    async def main() -> None:
        speaker = Speaker(calling(call("c1", "pay")), "paid", "seen")
        async with runtime_at(tmp_path, speaker, tools=[PAY]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, ev.UserMessage("go", sender_id="42"))
            await runtime.settled(session_id)
            await runtime.post(session_id, ev.UserMessage("The build ended.", "background_process", automatic=True))
            assert (await runtime.settled(session_id)).waiting == ("c1",)
            await decide(runtime, session_id, "c1", "allow_once")
            session = await runtime.settled(session_id)
            assert (session.turn_by, session.owes_answer) == ("42", False)
        assert results(stored(tmp_path, session_id)) == {"c1": "ok"}
        assert speaker.requests[-1][-1] == ("user", "The build ended.")

    play(main())


def test_a_process_that_ends_while_the_model_speaks_gets_its_own_turn_and_stops_no_call(tmp_path: Path) -> None:
    async def main() -> None:
        async def late(request: Any, listener: Any) -> Answer:
            await runtime.post(session_id, ev.UserMessage("The build ended.", automatic=True))
            return calling(call("c1", "pay"))

        free = tool(nothing, "pay")
        async with runtime_at(tmp_path, Speaker(late, "done"), tools=[free]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "ok"}

    play(main())


def test_what_a_process_prints_starts_no_skill() -> None:
    skill = Skill("deploy", "Deploys.", "Deploy.", "skills/deploy/SKILL.md", model_may_invoke=False)
    agent = Agent(name="a", skills=(skill,), triggers=(Trigger("*deploy*", "deploy"),))
    for automatic, used in ((False, (skill,)), (True, ())):
        session = Session()
        apply(session, ev.Entry(1, "2026-02-18T10:00:00Z", ev.UserMessage("deploy it", automatic=automatic)))
        assert active(agent, session) == used


def test_a_rule_that_is_added_to_a_file_holds_in_sessions_that_are_open(tmp_path: Path) -> None:
    async def main() -> None:
        ran: list[str] = []
        rules = [Policy(PolicyTier("dangerous")), Policy(PolicyTier("dangerous", deny=("bash:echo two",)))]
        calls = [calling(call(f"c{n}", "bash", command=f"echo {word}")) for n, word in enumerate(("one", "two"))]
        now = Agent(name="a", policy=rules[0])

        def agents(name: str, source: str) -> Agent:
            return now

        speaker = Speaker(calls[0], "ok", calls[1], "ok")
        runtime = Runtime(tmp_path, agents=agents, models=[speaker], tools={"bash": shell(ran)}, clock=Clock())
        async with runtime:
            session_id = await runtime.open_session(now)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            now = Agent(name="a", policy=rules[1])
            await runtime.post(session_id, "and now")
            await runtime.settled(session_id)
        assert ran == ["echo one"] and results(stored(tmp_path, session_id)) == {"c0": "ok", "c1": "refused"}

    play(main())


def test_always_that_cannot_be_kept_decides_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        def keep(rule: str) -> Origin:
            raise StorageFailed("the disk is full")

        speaker = Speaker(calling(call("c1", "bash", command="ls")), "ok")
        async with placed(runtime_at(tmp_path, speaker, tools=[shell()]), remember=keep) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            with pytest.raises(StorageFailed, match="full"):
                await decide(runtime, session_id, "c1", "allow_always")
            assert (await runtime.session(session_id)).waiting == ("c1",)
            await decide(runtime, session_id, "c1", "allow_session")
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "ok"}

    play(main())


def test_what_was_approved_is_still_denied_where_the_policy_now_forbids_it(tmp_path: Path) -> None:
    async def main() -> None:
        ran: list[str] = []
        speaker = Speaker(calling(call("c1", "bash", command="rm x")), "ok")
        async with runtime_at(tmp_path, speaker, tools=[shell(ran)]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            live = await runtime._lives.open(session_id)
            live.work.record(ev.ApprovalDecision("c1", "allow_once"))
            await live.log.flush()
        strict = Agent(name="a", policy=Policy(local=PolicyTier(deny=("bash:rm *",))))
        async with runtime_at(tmp_path, speaker, tools=[shell(ran)], agent=strict) as runtime:
            await runtime.recover()
            await runtime.settled(session_id)
        assert ran == [] and results(stored(tmp_path, session_id)) == {"c1": "refused"}

    play(main())


def test_the_door_of_the_tools_has_no_verb_that_decides_anything() -> None:
    assert {name for name in vars(Door) if not name.startswith("_")} == {"post", "siblings", "session", "reload"}


def test_wrong_arguments_are_told_to_the_model_whole_and_asked_of_nobody(tmp_path: Path) -> None:
    async def main() -> None:
        wrong = call("c1", "bash", command=7, more=1)
        async with runtime_at(tmp_path, Speaker(calling(wrong), "ok"), tools=[shell()]) as runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            assert (await runtime.settled(session_id)).waiting == ()
        (result,) = [event for event in stored(tmp_path, session_id) if isinstance(event, ev.ToolResult)]
        assert result.outcome == "error" and "command" in result.result.content

    play(main())


def test_no_value_of_a_key_is_written_down_whoever_says_it(tmp_path: Path) -> None:
    async def main() -> None:
        async def leak(arguments: str = "") -> str:
            return f"KEY=sk-canary {arguments}"

        async def fail() -> str:
            raise RuntimeError("no access with sk-canary")

        tools = [tool(leak, "leak"), tool(fail, "fail")]
        wrong = Speaker(ModelFailed("401: no such key: sk-canary", lasting=True), name="test/wrong")
        speaker = Speaker(calling(call("c1", "leak", arguments="sk-canary"), call("c2", "fail")), "It is sk-canary.")
        secrets = Secrets({"CANARY_API_KEY": "sk-canary"})
        runtime = runtime_at(tmp_path, wrong, speaker, tools=tools)
        async with placed(runtime, redact=secrets.redact, stream=partial(Stream, secrets)):
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until(lambda items: bool(items))
            await runtime.post(session_id, "My key is sk-canary")
            await runtime.settled(session_id)
            shown = speaker.requests
            await watcher.leave()
            assert "sk-canary" not in repr(watcher.items)
            assert "".join(item.text for item in watcher.items if isinstance(item, Delta)) == "It is [CANARY_API_KEY]."
        files = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert b"sk-canary" not in files and files.count(b"[CANARY_API_KEY]") > 5
        assert "sk-canary" not in repr(shown)

    play(main())


def test_no_rule_holds_a_secret(tmp_path: Path) -> None:
    async def main() -> None:
        kept: list[str] = []
        speaker = Speaker(calling(call("c1", "bash", command="deploy --token s3cr3t")), "ok")
        runtime = runtime_at(tmp_path, speaker, tools=[shell()])
        async with placed(runtime, remember=kept.append):
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
            runtime._actors[("a", "")].place = Place(
                remember=kept.append, redact=lambda text: text.replace("s3cr3t", "*")
            )
            runtime._lives.all()[0].work.actor = runtime._actors[("a", "")]
            with pytest.raises(NotAllowed, match="secret"):
                await decide(runtime, session_id, "c1", "allow_always")
        assert kept == []

    play(main())


def test_a_tool_that_goes_away_while_it_is_about_to_run_still_runs(tmp_path: Path) -> None:
    async def main() -> None:
        boxes: list[dict[str, Tool]] = [{"act": tool(nothing, "act")}]
        newest: Callable[[Agent], dict[str, Tool]] = lambda agent: boxes[-1]  # noqa: E731 - a toolbox by agent
        runtime = Runtime(
            tmp_path, agents=[AGENT], models=[Speaker(calling(call("c1", "act")), "ok")], tools=newest, clock=Clock()
        )
        async with runtime:
            session_id = await runtime.open_session(AGENT)
            live = await runtime._lives.open(session_id)
            flush = live.log.flush

            async def flushing() -> None:
                if live.session.open_calls and boxes[-1]:
                    boxes.append({})
                    await runtime.reload(AGENT)
                await flush()

            live.log.flush = flushing  # type: ignore[method-assign]
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "ok"}

    play(main())


def test_what_a_tool_prints_reaches_those_who_follow_and_nobody_else(tmp_path: Path) -> None:
    async def main() -> None:
        async def run(arguments: dict[str, Any], scene: Scene) -> str:
            scene.say("one\n")
            await asyncio.sleep(0)
            scene.say("two\n")
            assert (scene.session_id, scene.call_id, scene.sender) == (session_id, "c1", "42")
            return "one\ntwo\n"

        printing = Tool(ToolSpec("print", unruled="allow"), run)
        async with runtime_at(tmp_path, Speaker(calling(call("c1", "print")), "ok"), tools=[printing]) as runtime:
            session_id = await runtime.open_session(AGENT)
            watcher = Watcher(runtime, session_id)
            await watcher.until(lambda items: bool(items))
            await runtime.post(session_id, ev.UserMessage("go", sender_id="42"))
            await runtime.settled(session_id)
            heard = [item for item in watcher.items if isinstance(item, Output)]
            assert heard == [Output("c1", "one\n"), Output("c1", "two\n")]
            await watcher.leave()
        assert results(stored(tmp_path, session_id)) == {"c1": "ok"}

    play(main())


def test_calls_that_the_policy_wants_told_are_told_after_they_ran(tmp_path: Path) -> None:
    async def main() -> None:
        told: list[tuple[Any, Any]] = []

        def notify(deliveries: Any, about: Any) -> None:
            told.append((deliveries, about))

        loud = Notify(True, ("bash:git *",), ({"type": "log"},))
        agent = Agent(name="a", policy=Policy(PolicyTier("dangerous", notify=loud)))
        calls = calling(call("c1", "bash", command="ls"), call("c2", "bash", command="git push"))
        runtime = runtime_at(tmp_path, Speaker(calls, "ok"), tools=[shell()], agent=agent)
        async with placed(runtime, notify=notify):
            session_id = await runtime.open_session(agent)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        expected = {"session_id": session_id, "agent": "a", "command": "git push", "success": True}
        assert [(each, {key: about[key] for key in expected}) for each, about in told] == [
            (({"type": "log"},), expected)
        ]

    play(main())


def test_tools_that_were_loaded_again_serve_the_session_that_asked_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        boxes: list[dict[str, Tool]] = []

        async def again() -> str:
            boxes.append({"again": tool(again, "again"), "late": tool(late, "late")})
            await runtime.reload(AGENT)
            return "there is one more"

        async def late() -> str:
            return "here I am"

        boxes.append({"again": tool(again, "again")})
        speaker = Speaker(calling(call("c1", "again")), calling(call("c2", "late")), "ok")
        newest: Callable[[Agent], dict[str, Tool]] = lambda agent: boxes[-1]  # noqa: E731 - a toolbox by agent
        runtime = Runtime(tmp_path, agents=[AGENT], models=[speaker], tools=newest, clock=Clock())
        async with runtime:
            session_id = await runtime.open_session(AGENT)
            await runtime.post(session_id, "go")
            await runtime.settled(session_id)
        assert results(stored(tmp_path, session_id)) == {"c1": "ok", "c2": "ok"}

    play(main())


def test_the_sessions_of_one_agent_are_listed_newest_first(tmp_path: Path) -> None:
    async def main() -> None:
        other = Agent(name="b")
        runtime = Runtime(tmp_path, agents=[AGENT, other], models=[Speaker("hi")], clock=(clock := Clock()))
        async with runtime:
            ids = []
            for agent in (AGENT, other, AGENT):
                clock.forward(seconds=1)
                ids.append(await runtime.open_session(agent))
            assert [session_id for session_id, _ in await runtime.siblings("a")] == [ids[2], ids[0]]

    play(main())
