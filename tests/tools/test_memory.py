"""The memory tool: where notes lie, who sees which, and that none is lost, torn or read from elsewhere."""

import asyncio
import errno
import fcntl
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from duragent.core.events import ToolAnswer
from duragent.tools import NOWHERE, Scene, Tool, memory, notes
from tests.tools.places import ask, host


@pytest.fixture(autouse=True)
def local_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    return memory.make(host(tmp_path))


def home(root: Path, name: str = "bot") -> Path:
    return root / "agents" / name / "memory"


def tree(root: Path) -> dict[str, str]:
    """What lies below a folder, without locks and indexes."""
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(root)): path.read_text() for path in found}


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_notes_are_added_to_the_day_under_their_time(tool: Tool, tmp_path: Path) -> None:
    assert ask(tool, action="remember", content="Anna likes lilies.") == ToolAnswer(
        True, "Remembered in daily/2026-02-18.md under 10:32."
    )
    ask(tool, action="remember", content="\nTwo lines:\nhere.\n\n")
    assert tree(tmp_path) == {
        "agents/bot/memory/daily/2026-02-18.md": "## 10:32\nAnna likes lilies.\n\n## 10:32\nTwo lines:\nhere.\n"
    }
    assert ask(tool, action="recall").content == (
        "# 2026-02-18\n\n## 10:32\nAnna likes lilies.\n\n## 10:32\nTwo lines:\nhere."
    )


def test_a_day_is_the_persons_day_and_not_that_of_greenwich(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    late = host(tmp_path, now=datetime(2026, 2, 18, 20, 5, tzinfo=UTC))
    assert ask(memory.make(late), action="remember", content="x").content == (
        "Remembered in daily/2026-02-19.md under 05:05."
    )


def test_recall_shows_the_world_then_long_term_memory_then_the_last_days_in_their_order(
    tool: Tool, tmp_path: Path
) -> None:
    put(tmp_path / "memory/world/zoo.md", "closed on Mondays\n")
    put(tmp_path / "memory/world/home.md", "12 Elm Street\n")
    put(tmp_path / "memory/2026-02-17.md", "written by hand\n")
    put(tmp_path / "memory/README.md", "no day\n")
    put(home(tmp_path) / "MEMORY.md", "Prefers tea.\n")
    for day in ("2026-02-15", "2026-02-16", "2026-02-18", "2026-99-99"):
        put(home(tmp_path) / f"daily/{day}.md", f"## 08:00\nnote of {day}\n")
    assert ask(tool, action="recall").content == "\n\n".join(
        [
            "# World: home\n\n12 Elm Street",
            "# World: zoo\n\nclosed on Mondays",
            "# MEMORY.md\n\nPrefers tea.",
            "# 2026-02-16\n\n## 08:00\nnote of 2026-02-16",
            "# 2026-02-17 (memory/)\n\nwritten by hand",
            "# 2026-02-18\n\n## 08:00\nnote of 2026-02-18",
        ]
    )
    assert "2026-02-16" not in ask(tool, action="recall", days=1).content
    assert "note of 2026-02-15" in ask(tool, action="recall", days=365).content


def test_recall_of_nothing_says_so(tool: Tool) -> None:
    assert ask(tool, action="recall") == ToolAnswer(True, "Nothing is remembered yet.")


def test_reflect_reads_and_replaces_and_an_empty_text_wipes_nothing(tool: Tool, tmp_path: Path) -> None:
    assert ask(tool, action="reflect").content == "MEMORY.md is empty. Reflect with content to write it."
    assert ask(tool, action="reflect", content="Old.").success
    assert ask(tool, action="reflect", content="New.") == ToolAnswer(
        True, "MEMORY.md holds this text now, and nothing else."
    )
    assert ask(tool, action="reflect", content="  ") == ToolAnswer(True, "New.\n")
    assert tree(tmp_path) == {"agents/bot/memory/MEMORY.md": "New.\n"}


@pytest.mark.parametrize(
    ("topic", "name"),
    [
        ("../../x", "x"),
        ("/etc/passwd", "etc-passwd"),
        ("a\0b", "a-b"),
        ("Home  Address!", "home-address"),
        ("..\\..\\Windows", "windows"),
        ("Ärger & Größe", "ärger-größe"),
        ("家の住所", "家の住所"),
        ("ｆｕｌｌ", "full"),
        (".hidden", "hidden"),
        ("x" * 80, "x" * 80),
    ],
)
def test_a_topic_becomes_a_plain_file_name_in_its_folder(topic: str, name: str, tool: Tool, tmp_path: Path) -> None:
    assert ask(tool, action="update_world", topic=topic, content="fact") == ToolAnswer(
        True, f"world/{name}.md holds this text now, and nothing else."
    )
    assert tree(tmp_path) == {f"memory/world/{name}.md": "fact\n"}


@pytest.mark.parametrize("topic", ["", "  ", "../..", "\0", "///", "x" * 81, "家" * 80, "🎉"])
def test_a_topic_without_a_usable_name_is_refused(topic: str, tool: Tool, tmp_path: Path) -> None:
    answer = ask(tool, action="update_world", topic=topic, content="fact")
    assert (answer.success, answer.content.endswith("at most 80 characters long."), tree(tmp_path)) == (False, True, {})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"action": "remember"}, "remember needs content: the text to remember."),
        ({"action": "remember", "content": " \n"}, "remember needs content: the text to remember."),
        ({"action": "update_world", "topic": "a"}, "update_world needs content: what is to be known about a."),
        ({"action": "search"}, "search needs a query with at least one word."),
        ({"action": "search", "query": '"*^:()-+'}, "search needs a query with at least one word."),
        (
            {"action": "remember", "content": "x" * 1_000_000},
            "The content has 1,000,000 bytes; at most 65,536 are kept at once. Shorten it, or divide it.",
        ),
        (
            {"action": "reflect", "content": "é" * 40_000},
            "The content has 80,000 bytes; at most 65,536 are kept at once. Shorten it, or divide it.",
        ),
    ],
)
def test_what_a_schema_cannot_say_is_answered_clearly(
    arguments: dict[str, Any], said: str, tool: Tool, tmp_path: Path
) -> None:
    assert ask(tool, **arguments) == ToolAnswer(False, said)
    assert tree(tmp_path) == {}


def test_a_day_that_is_full_takes_no_more_and_keeps_what_it_has(tool: Tool, tmp_path: Path) -> None:
    day = put(home(tmp_path) / "daily/2026-02-18.md", "x" * (notes.MAX_FILE_BYTES - 10))
    assert ask(tool, action="remember", content="one more") == ToolAnswer(
        False, "2026-02-18.md has 1,048,566 bytes and takes no more: a file of notes has at most 1 MiB."
    )
    assert day.stat().st_size == notes.MAX_FILE_BYTES - 10


def test_bytes_that_are_no_text_are_kept_when_a_note_is_added(tool: Tool, tmp_path: Path) -> None:
    day = home(tmp_path) / "daily/2026-02-18.md"
    day.parent.mkdir(parents=True)
    day.write_bytes(b"caf\xe9")
    ask(tool, action="remember", content="more\0\ud800")
    assert day.read_bytes() == b"caf\xe9\n\n## 10:32\nmore\xef\xbf\xbd?\n"
    assert "caf\ufffd" in ask(tool, action="recall").content


def test_a_folder_that_cannot_be_written_to_gives_a_clear_answer(tool: Tool, tmp_path: Path) -> None:
    put(home(tmp_path), "a file where the folder should be")
    assert ask(tool, action="remember", content="x") == ToolAnswer(
        False, f"Nothing was written: {home(tmp_path)}/daily cannot be written to (File exists)."
    )
    assert ask(tool, action="recall") == ToolAnswer(True, "Nothing is remembered yet.")
    assert ask(tool, action="search", query="x") == ToolAnswer(True, "No note matches. Try other words, or recall.")


def test_a_full_disk_leaves_the_old_text_and_nothing_beside_it(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask(tool, action="reflect", content="Old.")

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert ask(tool, action="reflect", content="New.") == ToolAnswer(
        False, f"Nothing was written: {home(tmp_path)} cannot be written to (No space left on device)."
    )
    assert sorted(path.name for path in home(tmp_path).iterdir()) == [".lock", "MEMORY.md"]
    assert ask(tool, action="reflect").content == "Old.\n"


def test_links_are_not_followed_out_of_the_folders(tool: Tool, tmp_path: Path) -> None:
    secret = put(tmp_path / "elsewhere/2026-02-18.md", "canary\n")
    home(tmp_path).mkdir(parents=True)
    (home(tmp_path) / "MEMORY.md").symlink_to(secret)
    (home(tmp_path) / "daily").symlink_to(secret.parent)
    (tmp_path / "memory/world").mkdir(parents=True)
    (tmp_path / "memory/world/x.md").symlink_to(secret)
    (tmp_path / "memory/2026-02-18.md").symlink_to(secret)
    (home(tmp_path) / ".index.sqlite").symlink_to(tmp_path / "elsewhere/index")
    answers = [ask(tool, action=each, query="canary") for each in ("recall", "reflect", "search")]
    assert [answer for answer in answers if "canary" in answer.content] == []
    refused = [
        ask(tool, action="reflect", content="x"),
        ask(tool, action="remember", content="x"),
        ask(tool, action="update_world", topic="x", content="x"),
    ]
    assert [answer.success for answer in refused] == [False, False, False]
    assert tree(tmp_path / "elsewhere") == {"2026-02-18.md": "canary\n"}


def test_a_pipe_in_the_folder_holds_nobody_up(tool: Tool, tmp_path: Path) -> None:
    (tmp_path / "memory/world").mkdir(parents=True)
    home(tmp_path).mkdir(parents=True)
    os.mkfifo(tmp_path / "memory/world/pipe.md")
    os.mkfifo(home(tmp_path) / "MEMORY.md")
    assert ask(tool, action="recall") == ToolAnswer(True, "Nothing is remembered yet.")


def test_recall_is_bounded_and_a_large_world_does_not_hide_today(tool: Tool, tmp_path: Path) -> None:
    for number in range(20):
        put(tmp_path / f"memory/world/fact{number:02}.md", f"{number} " * 20_000)
    put(home(tmp_path) / "MEMORY.md", "m" * 100_000)
    for day in range(1, 19):
        put(home(tmp_path) / f"daily/2026-02-{day:02}.md", "é" * 40_000 + f"\nend of {day}\n")
    said = ask(tool, action="recall", days=30).content
    assert len(said.encode()) < 68 << 10
    assert re.findall(r"^# (.*)$", said, re.MULTILINE) == [
        *("World: fact00", "World: fact01", "World: fact02", "MEMORY.md"),
        *("2026-02-16", "2026-02-17", "2026-02-18"),
    ]
    assert "end of 18" in said and "[cut: these are the last 8,192 of 80,011 bytes]" in said
    assert "[Not shown: 17 more facts about the world (fact03, fact04," in said
    assert "[Days before 2026-02-16 are not shown. Search finds them.]" in said


DM_A, DM_B = Scene(gateway="telegram", chat_id="17"), Scene(gateway="telegram", chat_id="18")
GROUP = Scene(gateway="telegram", chat_id="-17")
DISCORD = Scene(gateway="discord", chat_id="17")
PLACES = {
    "terminal": ("bot", NOWHERE),
    "dm a": ("bot", DM_A),
    "dm b": ("bot", DM_B),
    "group": ("bot", GROUP),
    "same number elsewhere": ("bot", DISCORD),
    "other agent": ("other", NOWHERE),
    "other agent's dm a": ("other", DM_A),
}


@pytest.mark.parametrize(("here", "there"), list(itertools.permutations(PLACES, 2)))
def test_what_is_remembered_in_one_place_is_in_no_answer_elsewhere(here: str, there: str, tmp_path: Path) -> None:
    (name, scene), (other_name, other_scene) = PLACES[here], PLACES[there]
    one, other = memory.make(host(tmp_path, name)), memory.make(host(tmp_path, other_name))
    ask(one, scene, action="remember", content="canary in the notes")
    ask(one, scene, action="reflect", content="canary in the long run")
    common = name != other_name and scene is other_scene is NOWHERE  # the world belongs to all agents of the owner
    if not common:
        ask(one, scene, action="update_world", topic="bird", content="canary about the world")
    asked: list[dict[str, Any]] = [
        {"action": "recall", "days": 365},
        {"action": "reflect"},
        {"action": "search", "query": "canary"},
        {"action": "search", "query": "bird notes world"},
    ]
    for arguments in asked:  # twice: before and after the other place has notes and an index of its own
        assert "canary" not in ask(other, other_scene, **arguments).content
    ask(other, other_scene, action="remember", content="about the world")
    for arguments in asked:
        assert "canary" not in ask(other, other_scene, **arguments).content
        if arguments["action"] != "reflect":
            assert "canary" in ask(one, scene, **arguments).content


def test_the_owners_agents_share_the_world_and_a_chat_reads_it_only_if_the_agent_says_shared(tmp_path: Path) -> None:
    ask(memory.make(host(tmp_path, "one")), action="update_world", topic="Home", content="12 Elm Street")
    other, open_ = memory.make(host(tmp_path, "other")), memory.make(host(tmp_path, "open", shared=True))
    assert ask(other, action="recall").content == "# World: home\n\n12 Elm Street"
    assert ask(other, GROUP, action="recall").content == "Nothing is remembered yet."
    assert ask(open_, GROUP, action="recall").content == "# Shared world: home\n\n12 Elm Street"
    assert ask(open_, GROUP, action="search", query="elm").content == "1. shared world/home.md\n   12 Elm Street"
    ask(open_, GROUP, action="update_world", topic="Home", content="of the group")
    assert ask(open_, GROUP, action="recall").content == (
        "# Shared world: home\n\n12 Elm Street\n\n# World: home\n\nof the group"
    )
    assert ask(other, action="recall").content == "# World: home\n\n12 Elm Street"


@pytest.mark.parametrize("chat_id", ["../../..", "/", "", "a/b", "a-b", "A-B", "x" * 500, "\0", "\ud800"])
def test_a_chat_id_never_leaves_the_folder_and_never_meets_another(chat_id: str, tmp_path: Path) -> None:
    place = memory.place_of(host(tmp_path), Scene(gateway="g", chat_id=chat_id))
    (name,) = place.home.parts
    assert re.fullmatch(r"g-[a-z0-9-]{1,40}-[0-9a-f]{16}", name)
    assert memory.chat_name("g", chat_id) not in {memory.chat_name("g", chat_id + "."), memory.chat_name("g.", chat_id)}


def test_two_processes_that_remember_at_once_lose_nothing(tool: Tool, tmp_path: Path) -> None:
    program = (
        "import sys; from tests.tools.places import ask, host; from duragent.tools import memory; from pathlib import Path\n"
        "tool = memory.make(host(Path(sys.argv[1])))\n"
        "for number in range(25): assert ask(tool, action='remember', content=f'{sys.argv[2]} {number}').success\n"
    )
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name], cwd=root) for name in ("a", "b")]
    assert [each.wait(120) for each in both] == [0, 0]
    (day,) = (home(tmp_path) / "daily").glob("*.md")
    lines = [line for line in day.read_text().splitlines() if line and not line.startswith("##")]
    assert sorted(lines) == sorted(f"{name} {number}" for name in ("a", "b") for number in range(25))
    assert [each.name for each in day.parent.iterdir() if each.name not in (day.name, ".lock")] == []


def test_a_lock_that_another_process_keeps_is_not_waited_for_for_ever(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "LOCK_SECONDS", 0.0)
    with put(home(tmp_path) / ".lock", "").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        answer = ask(tool, action="reflect", content="x")
    path = home(tmp_path) / ".lock"
    assert answer == ToolAnswer(False, f"Nothing was written: another process has held {path} for 0 s.")


HOLDER = """
import fcntl, sys
with open(sys.argv[1], "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


def test_writers_that_wait_for_another_process_take_no_threads_of_others(tmp_path: Path) -> None:
    lock = put(home(tmp_path) / "daily" / ".lock", "")
    place = host(tmp_path)
    tool = memory.make(place)

    async def work(holder: subprocess.Popen[bytes]) -> tuple[object, ...]:
        # As few as memory has itself: were they the same, what comes last would have to wait for all the others.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(memory.THREADS))
        writing = [
            asyncio.ensure_future(tool.run({"action": "remember", "content": str(number)}, NOWHERE))
            for number in range(8)
        ]
        await asyncio.sleep(0)  # all of them have asked for a thread
        other = await asyncio.to_thread(lambda: 1)
        waited = [each.done() for each in writing]
        holder.communicate()
        answers = await asyncio.gather(*writing)
        await place.close()
        return other, waited, answers

    program = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        answers = asyncio.run(work(holder))
    said = ToolAnswer(True, "Remembered in daily/2026-02-18.md under 10:32.")
    assert answers == (1, [False] * 8, [said] * 8)


def test_the_owners_keys_are_not_written_down_and_files_are_his_alone(tool: Tool, tmp_path: Path) -> None:
    ask(tool, action="remember", content="the key is sk-secret")
    ask(tool, action="search", query="key")
    day = home(tmp_path) / "daily/2026-02-18.md"
    assert day.read_text() == "## 10:32\nthe key is [redacted]\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in home(tmp_path).rglob("*")}
    assert modes == {"daily": 0o700, "2026-02-18.md": 0o600, ".lock": 0o600, ".index.sqlite": 0o600}


def test_the_tool_says_what_its_actions_do_to_the_world(tool: Tool) -> None:
    spec = tool.spec
    assert (spec.name, spec.kind, spec.quiet, spec.detail) == ("memory", "builtin", ("*",), ("topic", "query"))
    assert dict(spec.effects) == {
        "recall": "pure",
        "search": "pure",
        "remember": "once",
        "reflect": "repeatable",
        "update_world": "repeatable",
    }
    schema = jsonschema_rs.validator_for(dict(spec.parameters))
    good = [{"action": each} for each in spec.effects]
    bad = [{}, {"action": "forget"}, {"action": "recall", "days": 0}, {"action": "search", "limit": 51}]
    bad += [{"action": "recall", "days": 366}, {"action": "recall", "path": "/etc"}]
    assert [schema.is_valid(each) for each in (*good, *bad)] == [True] * 5 + [False] * 6
