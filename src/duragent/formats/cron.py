"""Cron expressions: what they may be, and the form that cronsim takes. Reads no clock.

Ordinary crontab: five fields; six with seconds first; seven with a year last; `@daily` and its kin.
"""

import re
from datetime import datetime

from cronsim import CronSim, CronSimError
from msgspec import Struct

LONGEST = 200
ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * SUN",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIRST_YEAR, LAST_YEAR = 1970, 2100
_ANY_DAY = datetime(2000, 1, 1)  # cronsim wants a moment to count from, also when it only checks
_YEARS = re.compile(r"(?:\*|(\d{4})(?:-(\d{4}))?)(?:/(\d{1,3}))?")
_WEEKDAY_NUMBER = re.compile(r"(?<![#/\w])\d")


class Cron(Struct, frozen=True):
    """An expression as cronsim takes it, and the years it is held to (None: every year)."""

    expression: str
    years: frozenset[int] | None = None


def read_cron(text: str) -> Cron | str:
    """The expression ready for cronsim, or what is wrong with it."""
    if len(text) > LONGEST:
        return f"is {len(text):,} characters long; at most {LONGEST}"
    if text.strip().startswith("@"):
        alias = ALIASES.get(text.strip().lower())
        return Cron(alias) if alias else f"is {text.strip()!r}; known are {', '.join(ALIASES)}"
    fields = text.split()
    if not 5 <= len(fields) <= 7:
        return (
            f"has {len(fields)} fields; it takes 5 (minute hour day month weekday), 6 with seconds first, 7 with a year"
        )
    years = None
    if len(fields) == 7:
        years = _years(fields.pop())
        if years is None:
            return f"has a bad year; years go from {FIRST_YEAR} to {LAST_YEAR}"
    for index in (-3, -1):
        fields[index] = "*" if fields[index] == "?" else fields[index]
    expression = " ".join(fields)
    try:
        CronSim(expression, _ANY_DAY)
    except (CronSimError, ValueError, AssertionError) as error:
        return _said(str(error))
    return Cron(expression, None if years == _ALL_YEARS else years)


def check_cron(text: str) -> str | None:
    """What is wrong with an expression, as the rest of a sentence that begins with its name."""
    found = read_cron(text)
    return found if isinstance(found, str) else None


def numeric_weekday(text: str) -> bool:
    """Whether a weekday is written as a number, which A3S counts from Sunday = 1 and crontab from Sunday = 0."""
    fields = text.split()
    if not 5 <= len(fields) <= 7:
        return False
    return _WEEKDAY_NUMBER.search(fields[4] if len(fields) == 5 else fields[5]) is not None


_ALL_YEARS = frozenset(range(FIRST_YEAR, LAST_YEAR + 1))
_RANGES = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day-of-month": "1 to 31 (and days that the month has)",
    "month": "1 to 12 or JAN to DEC",
    "day-of-week": "0 to 7 or SUN to SAT, ranges going up",
}


def _said(error: str) -> str:
    field = error.removeprefix("Bad ")
    return f"has a bad {field}; it takes {_RANGES[field]}" if field in _RANGES else "is not a cron expression"


def _years(text: str) -> frozenset[int] | None:
    found: set[int] = set()
    for term in text.split(","):
        match = _YEARS.fullmatch(term)
        if match is None:
            return None
        first, last, step = match[1], match[2], int(match[3] or 1)
        start = int(first or FIRST_YEAR)
        end = int(last or (LAST_YEAR if not first or match[3] else first))
        if step == 0 or not FIRST_YEAR <= start <= end <= LAST_YEAR:
            return None
        found.update(range(start, end + 1, step))
    return frozenset(found)
