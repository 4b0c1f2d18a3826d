"""Finds notes by their words, and by their meaning where an embedder is given.

Owns an SQLite index beside the notes. It is a cache of what the files say: it may be deleted, damaged or impossible
to write at any time, and is then built again, in memory if need be. Before each search, files whose stamp changed are
read again. Refuses to know who may see what: it searches the sources it is given, and its index holds no others.

Scripts without spaces are split into characters and searched as phrases; so are emoji. Nothing that is searched for
is ever syntax. Another ranking: another list of ids in `_found`, fused with the others by their ranks.
"""

import os
import re
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from typing import Protocol

from msgspec import Struct

from duragent.errors import StorageFailed
from duragent.tools.notes import Folder, Found, read

INDEX = ".index.sqlite"
VERSION = 1
SNIPPET = 300
BUSY_SECONDS = 2.0
_CANDIDATES = 50
_COMMON = 2_000
_MOST_WORDS = 32
_PIECE = 2_000  # characters: a longer paragraph is cut, so that a hit says where
_MEMORY = ":memory:"
_SINGLE = re.compile(
    "([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f"
    "\u2190-\u2bff\U0001f000-\U0001faff\U00020000-\U0003ffff])"
)
_WORD = re.compile(r"[^\W_]|[\u2190-\u2bff\U0001f000-\U0001faff]")
_TABLES = """
CREATE TABLE files (label TEXT PRIMARY KEY, stamp TEXT, first INTEGER, last INTEGER) WITHOUT ROWID;
CREATE TABLE pieces (id INTEGER PRIMARY KEY, label TEXT, heading TEXT, text TEXT);
CREATE TABLE vectors (first INTEGER PRIMARY KEY, data BLOB);
CREATE VIRTUAL TABLE words USING fts5 (
    heading, text, tokenize = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So'"
);
"""


class Embedder(Protocol):
    """Texts as vectors, kept as bytes. `name` changes whenever the vectors would."""

    name: str

    def encode(self, texts: Sequence[str]) -> bytes: ...

    def nearest(self, query: str, stored: Sequence[tuple[int, bytes]], most: int) -> list[int]: ...


class Source(Struct, frozen=True):
    """A file to search, and what it is called in answers."""

    label: str
    found: Found


class Hit(Struct, frozen=True):
    """A paragraph that was found: its file, the heading it stands under, and the part of it that matters."""

    file: str
    heading: str
    text: str


def search(
    home: Folder, sources: Sequence[Source], query: str, limit: int, embedder: Embedder | None = None
) -> list[Hit] | None:
    """The best paragraphs first. None where the query holds no word. The index lies in `home`."""
    words = _words(query)
    if not words:
        return None
    busy = False
    for path in _places(home):
        if busy and path != _MEMORY:
            continue
        try:
            with closing(_opened(path)) as base:
                _update(base, sources, embedder)
                return _hits(base, _found(base, words, query, embedder)[:limit], words)
        except sqlite3.Error as error:
            if path == _MEMORY:
                raise StorageFailed(f"The notes could not be searched: {error}.") from error
            busy = not _dropped(path, error)
    return []


def pieces(text: str) -> Iterator[tuple[str, str]]:
    """A text in paragraphs, each with the heading it stands under. A heading with nothing below it is one, too."""
    heading, bare = "", False
    lines: list[str] = []
    for line in text.split("\n"):
        above = _heading(line)
        if above is None and line.strip():
            lines.append(line)
            continue
        if lines:
            yield from _paragraph(heading, lines)
            lines, bare = [], False
        if above is not None:
            if bare:
                yield heading, ""
            heading, bare = above, True
    if lines:
        yield from _paragraph(heading, lines)
    elif bare:
        yield heading, ""


def _heading(line: str) -> str | None:
    rest = line.lstrip("#")
    level = len(line) - len(rest)
    return rest.strip().rstrip("#").strip() if 1 <= level <= 6 and rest[:1] in (" ", "\t") else None


def _paragraph(heading: str, lines: list[str]) -> Iterator[tuple[str, str]]:
    text = "\n".join(lines).strip()
    for start in range(0, len(text), _PIECE):
        yield heading, text[start : start + _PIECE]


def _words(query: str) -> list[str]:
    """What to look for: the parts between spaces that hold a letter, a digit or a picture."""
    return list(dict.fromkeys(word for word in query.split() if _WORD.search(word)))[:_MOST_WORDS]


def _spaced(text: str) -> str:
    return _SINGLE.sub(r" \1 ", text)


def _phrase(word: str) -> str:
    return '"' + _spaced(word).replace('"', " ").replace("\0", " ") + '"'


def _places(home: Folder) -> Iterator[str]:
    """Where the index may be: twice on disk, since a damaged one is removed in between; then in memory."""
    path = os.path.join(home.path, INDEX)
    if os.path.realpath(home.path) == os.path.join(os.path.realpath(home.base), *home.parts):
        for _ in range(2):
            if _regular(path):
                yield path
    yield _MEMORY


def _regular(path: str) -> bool:
    """Whether there is a file for the index that is no link. Made here, so that only its owner can read it. One that
    is there is not opened: closing it would take away the locks that SQLite holds elsewhere in this process."""
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with suppress(OSError):
        return stat.S_ISREG(os.lstat(path).st_mode)
    return False


def _opened(path: str) -> sqlite3.Connection:
    base = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        if base.execute("PRAGMA user_version").fetchone() != (VERSION,):
            drop = "".join(f"DROP TABLE IF EXISTS {name};" for name in ("files", "pieces", "vectors", "words"))
            base.executescript(f"BEGIN IMMEDIATE; {drop} {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
    except BaseException:
        base.close()
        raise
    return base


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)


def _dropped(path: str, error: sqlite3.Error) -> bool:
    """Remove an index that cannot be used, unless it is good and only not to be had now."""
    if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF in _BUSY:
        return False
    for each in (f"{path}-journal", path):
        with suppress(OSError):
            os.unlink(each)
    return True


def _update(base: sqlite3.Connection, sources: Sequence[Source], embedder: Embedder | None) -> None:
    """Make the index say what the files say."""
    by = f"/{embedder.name}" if embedder else ""
    wanted = {source.label: source.found.stamp + by for source in sources}
    known: dict[str, str] = dict(base.execute("SELECT label, stamp FROM files"))
    if known == wanted:
        return
    changed = [source for source in sources if known.get(source.label) != wanted[source.label]]
    read_now = [(source, _text(source)) for source in changed]
    texts = [(source, list(pieces(text))) for source, text in read_now if text is not None]
    base.execute("BEGIN IMMEDIATE")
    for label in [*(known.keys() - wanted.keys()), *(source.label for source in changed)]:
        for first, last in base.execute("SELECT first, last FROM files WHERE label = ?", (label,)).fetchall():
            base.execute("DELETE FROM words WHERE rowid BETWEEN ? AND ?", (first, last))
            base.execute("DELETE FROM pieces WHERE id BETWEEN ? AND ?", (first, last))
            base.execute("DELETE FROM vectors WHERE first = ?", (first,))
        base.execute("DELETE FROM files WHERE label = ?", (label,))
    (newest,) = base.execute("SELECT coalesce(max(id), 0) FROM pieces").fetchone()
    for source, parts in texts:
        first, newest = newest + 1, newest + len(parts)
        _insert(base, source, wanted[source.label], first, parts, embedder)
    base.execute("COMMIT")


def _text(source: Source) -> str | None:
    """The text of a file. None where it has just gone or cannot be read: the next search tries again."""
    with suppress(StorageFailed):
        found = read(source.found.folder, source.found.name)
        return found.text if found else None
    return None


def _insert(
    base: sqlite3.Connection,
    source: Source,
    stamp: str,
    first: int,
    parts: list[tuple[str, str]],
    embedder: Embedder | None,
) -> None:
    rows = [(first + at, source.label, heading, text) for at, (heading, text) in enumerate(parts)]
    base.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (source.label, stamp, first, first + len(rows) - 1))
    base.executemany("INSERT INTO pieces VALUES (?, ?, ?, ?)", rows)
    base.executemany(
        "INSERT INTO words (rowid, heading, text) VALUES (?, ?, ?)",
        [(id, _spaced(f"{source.found.stem} {heading}"), _spaced(text)) for id, _, heading, text in rows],
    )
    if embedder and rows:
        data = embedder.encode([f"{heading} {text}" for heading, text in parts])
        base.execute("INSERT INTO vectors VALUES (?, ?)", (first, data))


def _found(base: sqlite3.Connection, words: list[str], query: str, embedder: Embedder | None) -> list[int]:
    """Ids of paragraphs, the best first: those with all words, else those with any; and those near in meaning."""
    phrases = [_phrase(word) for word in words]
    lexical = _matching(base, " AND ".join(phrases)) or _matching(base, " OR ".join(_rare(base, phrases)))
    if embedder is None:
        return lexical
    stored = base.execute("SELECT first, data FROM vectors ORDER BY first").fetchall()
    near = embedder.nearest(query, stored, _CANDIDATES)
    score: dict[int, float] = {}
    for ranking in (lexical, near):
        for rank, id in enumerate(ranking):
            score[id] = score.get(id, 0.0) + 1 / (60 + rank)
    return sorted(score, key=lambda id: -score[id])


def _matching(base: sqlite3.Connection, expression: str) -> list[int]:
    """The best of the paragraphs that match; where very many do, of those that were written last."""
    matching = "SELECT rowid FROM words WHERE words MATCH ?"
    beyond = base.execute(f"{matching} ORDER BY rowid DESC LIMIT 1 OFFSET {_COMMON}", (expression,)).fetchone()
    order = "ORDER BY bm25(words, 2.0, 1.0), rowid DESC LIMIT ?"
    rows = base.execute(f"{matching} AND rowid > ? {order}", (expression, beyond[0] if beyond else 0, _CANDIDATES))
    return [id for (id,) in rows]


def _rare(base: sqlite3.Connection, phrases: list[str]) -> list[str]:
    """The words that say something: one that stands in thousands of paragraphs only hides what the others find."""
    counting = f"SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT {_COMMON + 1})"
    counts = {phrase: base.execute(counting, (phrase,)).fetchone()[0] for phrase in phrases}
    return [phrase for phrase, count in counts.items() if 0 < count <= _COMMON] or phrases


def _hits(base: sqlite3.Connection, ids: list[int], words: list[str]) -> list[Hit]:
    hits: list[Hit] = []
    for id in ids:
        row = base.execute("SELECT label, heading, text FROM pieces WHERE id = ?", (id,)).fetchone()
        if row is not None:
            hits.append(Hit(row[0], row[1], _snippet(row[2], words)))
    return hits


def _snippet(text: str, words: list[str]) -> str:
    """The part of a paragraph around the first word that stands in it as it was asked for."""
    plain = " ".join(text.split())
    if len(plain) <= SNIPPET:
        return plain
    lower = plain.lower()
    places = [at for word in words if (at := lower.find(word.lower())) >= 0]
    start = max(min(places, default=0) - SNIPPET // 4, 0)
    end = start + SNIPPET
    return ("…" if start else "") + plain[start:end].strip() + ("…" if end < len(plain) else "")
