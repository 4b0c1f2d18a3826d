"""Which skill is in use, what a trigger's pattern fits, and what the model is shown of a skill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duragent.agent import Agent, Skill, Trigger
from duragent.core import events as ev
from duragent.core.session import Session, fold
from duragent.core.skills import MAX_BODY, MAX_LISTED, active, fitting, offered, page, told

AT = "2026-02-18T10:00:00.000Z"
TASKS = Skill("task-extraction", "Finds tasks.", "List every task.", "skills/task-extraction/SKILL.md")
REVIEW = Skill("weekly-review", "Looks back.", "Look back.", "skills/weekly-review/SKILL.md")
AGENT = Agent(
    name="bot",
    skills=(TASKS, REVIEW),
    triggers=(Trigger("extract tasks from *", "task-extraction"), Trigger("*review*", "weekly-review")),
)


def session(*happened: ev.Event) -> Session:
    return fold(ev.Entry(seq, AT, event) for seq, event in enumerate(happened, 1))


def asked(text: str) -> ev.UserMessage:
    return ev.UserMessage(text)


def calling(**arguments: str) -> ev.AssistantResponse:
    return ev.AssistantResponse("bot", "", (ev.ToolCall("c1", "skill", arguments),))


# --- patterns ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("extract tasks from *", "extract tasks from my mail"),
        ("extract tasks from *", "  Extract TASKS from\nthese lines\nplease  "),
        ("*review*", "the weekly review, please"),
        ("*review*", "review"),
        ("*", ""),
        ("**", "anything"),
        ("a*b*c", "aXbbXbc"),
        ("a*ab", "aab"),
        ("note: ?", "note: x"),
        ("no?e", "NOTE"),
        ("[draft] (a+b).*", "[draft] (a+b).txt"),
        ("grüße *", "GRÜSSE".replace("SS", "ß") + " an alle"),
        (" hello ", "hello"),
        ("good  morning", "Good\nmorning"),
        ("", "   "),
    ],
)
def test_a_pattern_fits_a_whole_message(pattern: str, text: str) -> None:
    assert fitting(pattern, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("extract tasks from *", "please extract tasks from my mail"),
        ("extract tasks", "extract tasks from my mail"),
        ("a*b*c", "acb"),
        ("a*ab", "ab"),
        ("aa*aa", "aaa"),
        ("note: ?", "note: xy"),
        ("note: ?", "note:"),
        ("[abc]", "a"),
        ("hello", ""),
        ("", "hello"),
        ("*.md", "README.md.exe"),
    ],
)
def test_a_pattern_that_does_not_fit_the_whole_message_does_not_fit(pattern: str, text: str) -> None:
    assert not fitting(pattern, text)


@given(st.text("ab*?", max_size=7), st.text("abAB", max_size=8))
def test_a_pattern_fits_what_trying_every_way_finds(pattern: str, text: str) -> None:
    def tried(glob: str, rest: str) -> bool:
        if not glob:
            return not rest
        if glob[0] == "*":
            return any(tried(glob[1:], rest[at:]) for at in range(len(rest) + 1))
        return bool(rest) and (glob[0] in ("?", rest[0].lower())) and tried(glob[1:], rest[1:])

    assert fitting(pattern, text) == tried(pattern, text)


def test_a_hostile_message_is_matched_without_trying_every_way() -> None:
    assert not fitting("*a" * 40 + "*b", "a" * 200_000)  # trying every way would outlive the test


# --- which skill is in use -------------------------------------------------------------------------------


def test_the_first_trigger_that_fits_the_message_of_the_turn_decides() -> None:
    assert active(AGENT, session(asked("extract tasks from this review"))) == (TASKS,)
    assert active(AGENT, session(asked("a review, please"))) == (REVIEW,)
    assert active(AGENT, session(asked("hello"))) == ()


def test_a_message_of_an_earlier_turn_activates_nothing() -> None:
    happened = [asked("a review, please"), ev.AssistantResponse("bot", "There."), asked("thanks")]
    assert active(AGENT, session(*happened)) == ()
    assert active(AGENT, session(*happened[:2])) == (REVIEW,)  # until then the turn is the one that was answered


def test_a_loaded_skill_is_in_use_beside_the_one_of_a_trigger_until_it_is_unloaded() -> None:
    begun = [asked("a review, please"), calling(action="load", name="task-extraction")]
    done = ev.ToolResult("c1", ev.ToolAnswer(True, "List every task."))
    assert active(AGENT, session(*begun, done)) == (REVIEW, TASKS)
    unloaded = [calling(action="unload"), ev.ToolResult("c1", ev.ToolAnswer(True, ""))]
    assert active(AGENT, session(*begun, done, *unloaded)) == (REVIEW,)


def test_a_skill_that_could_not_be_loaded_is_not_in_use() -> None:
    begun = [asked("hello"), calling(action="load", name="task-extraction")]
    assert active(AGENT, session(*begun, ev.ToolResult("c1", ev.ToolAnswer(False, "no")))) == ()


def test_a_loaded_skill_ends_with_its_turn() -> None:
    begun = [asked("hello"), calling(action="load", name="task-extraction")]
    done = [ev.ToolResult("c1", ev.ToolAnswer(True, "")), ev.AssistantResponse("bot", "Done."), asked("and now?")]
    assert active(AGENT, session(*begun, *done)) == ()


def test_a_skill_that_is_gone_or_only_known_by_its_address_is_not_in_use() -> None:
    remote = Skill("weekly-review", path="https://example.com/weekly-review")
    agent = Agent(name="bot", skills=(remote,), triggers=AGENT.triggers)
    assert active(agent, session(asked("extract tasks from it, then a review"))) == ()


def test_a_session_without_messages_has_no_skill_in_use() -> None:
    assert active(AGENT, Session()) == ()


def test_offered_is_what_a_model_may_load() -> None:
    hidden = Skill("secret", model_may_invoke=False)
    persona = Skill("pirate", kind="persona")
    remote = Skill("far", path="https://example.com/far")
    assert offered(Agent(name="bot", skills=(TASKS, hidden, persona, remote, REVIEW))) == (TASKS, REVIEW)


# --- what the model is shown -----------------------------------------------------------------------------


def test_a_skill_is_shown_with_its_files_and_how_to_use_them() -> None:
    skill = Skill("tasks", body="Do it.\n", files=("assets/t.txt", "references/a.md", "scripts/run.py"))
    expected = """\
Do it.

Files of this skill; read one with skill {"action": "read", "name": "tasks", "file": …}:
- assets/t.txt
- references/a.md (1,200 bytes)

Scripts of this skill; run one with skill {"action": "run", "name": "tasks", "script": …}:
- scripts/run.py (40 bytes)"""
    assert page(skill, {"references/a.md": 1200, "scripts/run.py": 40}) == expected


def test_an_activated_skill_is_told_with_a_heading() -> None:
    assert told(TASKS) == (
        "## Skill in use: task-extraction\nThe message you answer calls for this skill. Follow it.\n\nList every task."
    )


def test_a_skill_without_instructions_says_so() -> None:
    assert page(Skill("empty", body="\n \n")) == "(This skill has no instructions.)"


def test_a_huge_skill_is_cut() -> None:
    files = tuple(f"references/{number:03}.md" for number in range(MAX_LISTED + 5))
    shown = page(Skill("huge", body="x" * (MAX_BODY + 7), files=files))
    assert "\n[Cut here: 7 further characters are not shown.]\n" in shown
    assert shown.endswith("\n- references/099.md\n- and 5 more")
