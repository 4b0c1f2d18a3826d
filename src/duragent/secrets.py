"""Keeps the values of keys, tokens and passwords out of everything that is written or shown.

Owns which variables hold secrets, the forms in which a value shows up, and putting `[NAME]` in its place. Knows
nothing of tools, logs or doors: whoever writes a text hands it through `redact`, or a stream of pieces through
`Stream`. It guards against accidents and plain copying: a program that means to smuggle a secret out can spell it in
a way that nobody recognises, which is why tools never get the keys at all.

Another form of a value: add it to `_forms`. Another name of variables: add it to `_NAMES`.
"""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote, urlsplit

MIN_LENGTH = 8
MAX_HELD = 65_536
_NAMES = re.compile(
    r"(?:(?:^|_)(?:KEYS?|PASS|PAT|DSN|AUTH|COOKIE|CREDENTIALS?)|API_?KEYS?|TOKENS?|SECRETS?|PASSWORDS?|PASSWD"
    r"|PASSPHRASE|MYSQL_PWD)$",
    re.IGNORECASE,
)
_HARMLESS_NAMES = re.compile(r"PUBLIC_KEYS?$|PUBLISHABLE_KEYS?$", re.IGNORECASE)
_PATH = re.compile(r"(?:~?|\.{1,2})/[^\s]*")
# Values that people put where a secret belongs and that stand in ordinary texts too.
_COMMON = frozenset(
    (
        *("changeme", "disabled", "development", "localhost", "password", "passw0rd", "production", "required"),
        *("undefined", "username", "your-api-key", "your_api_key", "placeholder", "not-needed", "postgres"),
        *("12345678", "123456789", "1234567890"),
    )
)


class Secrets:
    """The values that must not be seen. `values` are secrets by name wherever they came from; `names` are variables
    that hold one although their name does not tell."""

    __slots__ = ("_by_first", "_count", "_longest", "_needles")

    def __init__(
        self, environ: Mapping[str, str], names: Iterable[str] = (), values: Mapping[str, str] | None = None
    ) -> None:
        marks: dict[str, str] = {}
        count = 0
        for name, value in _found(environ, frozenset(names), values or {}):
            count += 1
            for form in _forms(value):
                marks.setdefault(form, f"[{name}]")
        self._count = count
        self._needles = sorted(marks.items(), key=lambda each: (-len(each[0]), each[0]))
        self._longest = max(map(len, marks), default=0)
        self._by_first: dict[str, list[str]] = {}
        for form in marks:
            self._by_first.setdefault(form[0], []).append(form)

    def __repr__(self) -> str:
        return f"<Secrets: {self._count} values>"

    def redact(self, text: str) -> str:
        """The text with `[NAME]` wherever a value stood."""
        # Plain searches: with nothing to find, each runs at the speed of memory. One expression of all would not.
        present = [each for each in self._needles if each[0] in text]
        if not present:
            return text
        pieces: list[str] = []
        done = 0
        for start, end, mark in _spans(text, present):
            pieces += (text[done:start], mark)
            done = end
        return "".join([*pieces, text[done:]])

    def _safe(self, text: str) -> int:
        """How much of the beginning can be shown now: what follows may be the beginning of a value, or belongs to one
        that overlaps what may be."""
        cut = len(text)
        for at in range(max(len(text) - self._longest + 1, 0), len(text)):
            forms = self._by_first.get(text[at])
            if forms and _begins(text[at:], forms):
                cut = at
                break
        present = [each for each in self._needles if each[0] in text]
        for start, end, _ in reversed(_spans(text, present)):
            if start < cut < end:
                cut = start
        return cut


class Stream:
    """A text that comes in pieces, redacted as if it were whole. Holds back only what may be the beginning of a
    value; `end` gives the rest."""

    __slots__ = ("_held", "_secrets")

    def __init__(self, secrets: Secrets) -> None:
        self._secrets, self._held = secrets, ""

    def feed(self, text: str) -> str:
        text = self._held + text
        cut = self._secrets._safe(text)
        if len(text) - cut > MAX_HELD:  # values that overlap without end: nobody is kept waiting for that
            cut = len(text)
        self._held = text[cut:]
        return self._secrets.redact(text[:cut])

    def end(self) -> str:
        held, self._held = self._held, ""
        return self._secrets.redact(held)


def _begins(rest: str, forms: Iterable[str]) -> bool:
    return any(len(form) > len(rest) and form.startswith(rest) for form in forms)


def _spans(text: str, needles: Iterable[tuple[str, str]]) -> list[tuple[int, int, str]]:
    """Where values stand, those that overlap as one: half a secret is not left over beside another."""
    found: list[tuple[int, int, str]] = []
    for needle, mark in needles:
        at = text.find(needle)
        while at >= 0:
            found.append((at, at + len(needle), mark))
            at = text.find(needle, at + 1)
    found.sort(key=lambda each: (each[0], -each[1]))
    merged: list[tuple[int, int, str]] = []
    for start, end, mark in found:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), merged[-1][2])
        else:
            merged.append((start, end, mark))
    return merged


def _found(environ: Mapping[str, str], names: frozenset[str], values: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Every secret with its name; where two names have one value, the first counts, and given ones come first."""
    seen: set[str] = set()
    for name, value in [*sorted(values.items()), *_of_environment(environ, names)]:
        stripped = value.strip()
        if stripped not in seen and _is_worth_hiding(stripped):
            seen.add(stripped)
            yield name, stripped


def _of_environment(environ: Mapping[str, str], names: frozenset[str]) -> Iterator[tuple[str, str]]:
    for name, value in sorted(environ.items()):
        if name in names:
            yield name, value
        elif _NAMES.search(name) and not _HARMLESS_NAMES.search(name):
            # Credentials are often the path of a file: that is no secret, and stands in many messages.
            if not (name.upper().endswith(("CREDENTIAL", "CREDENTIALS")) and _PATH.fullmatch(value)):
                yield name, value
        elif "://" in value and (password := _password(value)):
            yield name, password


def _password(url: str) -> str | None:
    try:
        return unquote(urlsplit(url).password or "") or None
    except ValueError:
        return None


def _is_worth_hiding(value: str) -> bool:
    """Not so short or so common that ordinary texts would be full of holes."""
    return len(value) >= MIN_LENGTH and value.lower() not in _COMMON and len(set(value)) > 2


def _forms(value: str) -> set[str]:
    """A value as it is, and as it stands in a URL, in JSON and in base64, alone or within more; and its long lines."""
    plain = value.encode("utf-8", "surrogatepass")
    escaped = json.dumps(value)[1:-1]
    forms = {value, escaped, escaped.replace("/", "\\/"), json.dumps(value, ensure_ascii=False)[1:-1]}
    for address in (quote(plain, safe=""), quote(plain, safe="/"), quote_plus(plain)):
        forms |= {address, re.sub("%..", lambda found: found[0].lower(), address)}
    forms |= set(_base64_forms(plain))
    forms |= {line for each in value.splitlines() if len(line := each.strip()) >= 16 and "-----" not in line}
    return {form for form in forms if len(form) >= MIN_LENGTH}


def _base64_forms(plain: bytes) -> Iterator[str]:
    """`user:token` is encoded as one: a value may begin at any of three places in a group. Only the characters that
    depend on nothing but the value are looked for, and the whole where it stands alone."""
    for before, first in ((0, 0), (1, 2), (2, 3)):
        code = b64encode(b"\0" * before + plain).decode()
        for each in {code, code.replace("+", "-").replace("/", "_")}:
            yield each[first : (before + len(plain)) * 8 // 6]
            if not before and code.endswith("="):
                yield each
