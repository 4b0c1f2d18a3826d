"""Searching notes: what is found, in any script, whatever the query looks like and whatever became of the index."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from duragent.core.events import ToolAnswer
from duragent.tools import Tool, finding, memory, notes
from duragent.tools.finding import Hit, Source, pieces, search
from duragent.tools.notes import Folder
from tests.tools.places import ask, host

NOTES = {
    "kitchen": "Anna drinks her coffee black.\n\nThe grinder is broken.",
    "body": "# Health\n\n## Teeth\nThe dentist has appointments on Tuesdays.",
    "kyoto": "我喜欢咖啡，不喜欢茶。\n\n東京タワーで会いました",
    "thai": "ผมชอบกาแฟเย็น",
    "seoul": "내일 서울에서 회의가 있습니다",
    "party": "The party🎉 is on Friday 🎂🕯️",
    "accents": "Der Schlüssel liegt im Café.",
    "signs": "C++ and foo-bar_baz cost 3.5 € (AND not OR)",
}
NONE = ToolAnswer(True, "No note matches. Try other words, or recall.")


@pytest.fixture
def tool(tmp_path: Path) -> Tool:
    for name, text in NOTES.items():
        put(tmp_path, name, text)
    (tmp_path / "agents/bot/memory").mkdir(parents=True)
    return memory.make(host(tmp_path))


def put(root: Path, name: str, text: str) -> None:
    folder = root / "memory/world"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)


def index(root: Path) -> Path:
    return root / "agents/bot/memory/.index.sqlite"


def found(tool: Tool, query: str) -> list[str]:
    """The names of the facts that were found, the best first."""
    lines = ask(tool, action="search", query=query).content.splitlines()
    return [line.split("world/")[1].split(".md")[0] for line in lines if "world/" in line]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("coffee", ["kitchen"]),
        ("COFFEES drinking", ["kitchen"]),
        ("appointment", ["body"]),
        ("teeth", ["body"]),
        ("schlussel", ["accents"]),
        ("cafe", ["accents"]),
        ("咖啡", ["kyoto"]),
        ("喜欢 茶", ["kyoto"]),
        ("東京タワー", ["kyoto"]),
        ("啡咖", []),
        ("กาแฟ", ["thai"]),
        ("서울", ["seoul"]),
        ("🎉", ["party"]),
        ("🎂 friday", ["party"]),
        ("foo-bar", ["signs"]),
        ("the grinder", ["kitchen"]),
        ("the grinder of a neighbour", ["kitchen", "body", "party"]),
        ("nothing-like-it", []),
    ],
)
def test_words_are_found_in_any_form_and_script(query: str, names: list[str], tool: Tool) -> None:
    assert found(tool, query) == names


@pytest.mark.parametrize(
    "query",
    [
        '" OR NEAR(',
        "coffee AND",
        "NEAR(coffee black, 2)",
        "text:coffee",
        "-coffee",
        "coff*",
        "{heading} : x",
        '"""',
        "^coffee + black",
        "'; DROP TABLE pieces; --",
        "a\0b",
        "\ud800 x",
        "→ ∑ ⅷ ½ ⓐ",
        "x " * 400,
    ],
)
def test_no_query_is_ever_syntax(query: str, tool: Tool) -> None:
    assert isinstance(ask(tool, action="search", query=query), ToolAnswer)
    assert found(tool, "coffee") == ["kitchen"]


def test_words_that_look_like_syntax_are_searched_as_words(tool: Tool) -> None:
    assert found(tool, "AND OR") == ["signs"]
    assert found(tool, '" OR NEAR(') == ["signs"]


def test_an_answer_names_the_file_the_heading_and_the_paragraph_the_best_first(tool: Tool, tmp_path: Path) -> None:
    put(tmp_path, "long", "word " * 200 + "the dentist moved " + "word " * 200)
    ask(tool, action="remember", content="dentist dentist")
    middle = "word " * 14
    assert len(ask(tool, action="search", query="dentist", limit=2).content.splitlines()) == 4
    lines = ask(tool, action="search", query="dentist").content.splitlines()
    assert lines[:4] == [
        "1. daily/2026-02-18.md · 10:32",
        "   dentist dentist",
        "2. world/body.md · Teeth",
        "   The dentist has appointments on Tuesdays.",
    ]
    assert lines[4] == "3. world/long.md" and lines[5].startswith(f"   …{middle}the dentist moved word")
    assert len(lines[5]) <= 3 + finding.SNIPPET + 2 and lines[5].endswith("…")


def test_where_not_all_words_are_together_any_of_them_counts_but_common_ones_hide_nothing(
    tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_COMMON", 2)
    assert found(tool, "when will the grinder work") == ["kitchen"]
    assert len(found(tool, "the")) == 2  # only the newest of very many


def test_changed_new_and_deleted_files_are_seen_by_the_next_search(tool: Tool, tmp_path: Path) -> None:
    assert found(tool, "coffee") == ["kitchen"]
    put(tmp_path, "kitchen", "Anna drinks tea now.")
    put(tmp_path, "new", "The new coffee shop opens at nine.")
    assert found(tool, "coffee") == ["new"]
    assert ask(tool, action="search", query="grinder") == NONE
    (tmp_path / "memory/world/new.md").unlink()
    assert (found(tool, "coffee shop"), found(tool, "kitchen tea")) == ([], ["kitchen"])


def damaged(path: Path, how: str) -> None:
    match how:
        case "garbage":
            path.write_bytes(b"not a database at all " * 500)
        case "cut":
            path.write_bytes(path.read_bytes()[:5000])
        case "flipped":
            data = bytearray(path.read_bytes())
            data[4096:] = bytes(each ^ 0x5A for each in data[4096:])
            path.write_bytes(bytes(data))
        case "empty":
            path.write_bytes(b"")
        case "deleted":
            path.unlink()
        case "another database":
            path.unlink()
            base = sqlite3.connect(path)
            base.execute("CREATE TABLE files (x)")
            base.execute(f"PRAGMA user_version = {finding.VERSION}")
            base.commit()
            base.close()
        case "another version":
            base = sqlite3.connect(path)
            base.execute("PRAGMA user_version = 999")
            base.close()


@pytest.mark.parametrize(
    "how", ["garbage", "cut", "flipped", "empty", "deleted", "another database", "another version"]
)
def test_a_damaged_index_is_built_again(how: str, tool: Tool, tmp_path: Path) -> None:
    assert found(tool, "coffee") == ["kitchen"]
    damaged(index(tmp_path), how)
    assert (found(tool, "coffee"), found(tool, "dentist")) == (["kitchen"], ["body"])
    base = sqlite3.connect(index(tmp_path))
    kept = base.execute("SELECT count(*) FROM files").fetchone()
    base.close()
    assert kept == (len(NOTES),)


@pytest.mark.parametrize("how", ["a folder", "a link", "locked"])
def test_an_index_that_cannot_be_kept_is_made_in_memory(
    how: str, tool: Tool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "BUSY_SECONDS", 0.0)
    path, other = index(tmp_path), tmp_path / "other"
    base = sqlite3.connect(path if how == "locked" else other, timeout=0)
    match how:
        case "a folder":
            path.mkdir()
        case "a link":
            path.symlink_to(other)
        case "locked":
            base.execute("BEGIN EXCLUSIVE")
    names = found(tool, "coffee")
    base.close()
    assert names == ["kitchen"]
    assert how != "a link" or (path.is_symlink() and not (other.exists() and other.stat().st_size))


def test_a_file_that_goes_between_listing_and_reading_is_no_hit_and_no_error(tmp_path: Path) -> None:
    put(tmp_path, "gone", "coffee")
    folder = Folder(str(tmp_path / "memory/world"))
    sources = [Source("gone", each) for each in notes.files(folder)]
    (tmp_path / "memory/world/gone.md").unlink()
    assert search(Folder(str(tmp_path)), sources, "coffee", 10) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("a\nb\n\n\nc", [("", "a\nb"), ("", "c")]),
        ("# One\ntext\n## Two ##\n\nmore\n\n#tag", [("One", "text"), ("Two", "more"), ("Two", "#tag")]),
        ("# Bare\n# Also bare\n", [("Bare", ""), ("Also bare", "")]),
        ("# A\n\n# B\nx\n# C", [("A", ""), ("B", "x"), ("C", "")]),
        ("x" * 4500, [("", "x" * 2000), ("", "x" * 2000), ("", "x" * 500)]),
        ("#" + " " * 100_000 + "x", [("x", "")]),
    ],
)
def test_a_text_is_searched_by_paragraphs_with_their_headings(text: str, expected: list[tuple[str, str]]) -> None:
    assert list(pieces(text)) == expected


class Synonyms:
    """An embedder that knows one thing: to have teeth looked at is to go to the dentist."""

    name = "synonyms"

    def encode(self, texts: Sequence[str]) -> bytes:
        return bytes("dentist" in text for text in texts)

    def nearest(self, query: str, stored: Sequence[tuple[int, bytes]], most: int) -> list[int]:
        if "mouth" not in query:
            return []
        return [first + at for first, run in stored for at, near in enumerate(run) if near][:most]


def test_an_embedder_adds_what_is_near_in_meaning_and_words_still_count(tool: Tool, tmp_path: Path) -> None:
    both = memory.make(host(tmp_path), Synonyms)
    assert found(tool, "mouth") == []
    assert found(both, "mouth") == ["body"]
    assert found(both, "coffee") == ["kitchen"]
    assert sorted(found(both, "mouth coffee")) == ["body", "kitchen"]
    put(tmp_path, "body", "Moved away.")
    assert found(both, "mouth") == []
    assert found(tool, "coffee") == ["kitchen"]  # the same index, without the vectors


def test_the_word_table_of_the_extra_finds_paraphrases_offline(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="the embeddings extra is not installed")
    meaning = pytest.importorskip("duragent.tools.meaning", reason="the embeddings extra is not installed")
    embedder = meaning.embedder()
    if embedder is None:
        pytest.skip("the embeddings extra is not installed")
    put(tmp_path, "car", "The car needs new winter tyres before November.")
    put(tmp_path, "teeth", "The dentist appointment is on Tuesday at nine.")
    put(tmp_path, "empty", "")
    folder = Folder(str(tmp_path / "memory/world"))
    sources = [Source(each.stem, each) for each in notes.files(folder)]

    def best(query: str) -> list[Hit] | None:
        return search(Folder(str(tmp_path)), sources, query, 1, embedder)

    assert best("vehicle wheels for snow") == [Hit("car", "", "The car needs new winter tyres before November.")]
    assert best("visit to have my mouth checked") == [
        Hit("teeth", "", "The dentist appointment is on Tuesday at nine.")
    ]
    assert best("quantum chromodynamics") == []
    assert embedder.nearest("x", [], 5) == []
