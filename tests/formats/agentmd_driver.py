"""Feeds `.agent.md` texts to the format from a dict, as `agentfiles` does from a disk."""

from collections.abc import Mapping

from msgspec.structs import replace

from duragent.agent import Agent, Source
from duragent.formats import agentmd
from duragent.formats.shape import Absent, Entry, File, Files, Folder, Need, Parsed, Problem, is_address

NAME = "writing_helper.agent.md"


def look(texts: Mapping[str, str], need: Need) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for path in need.files:
        inside = any(each.startswith(path + "/") for each in texts)
        found[path] = File(texts[path]) if path in texts else Absent("folder" if inside else "missing")
    for path in need.folders:
        prefix = path + "/" if path else ""
        below = {each[len(prefix) :] for each in texts if each.startswith(prefix)}
        names = {each.partition("/")[0] + "/" * ("/" in each) for each in below}
        missing = Absent("special" if path in texts else "missing")
        found[path] = Folder(tuple(sorted(names))) if names else missing
    return found


def read_all(texts: Mapping[str, str], entry: str = NAME) -> Parsed:
    found: dict[str, Entry] = {entry: File(texts[entry])}
    for _ in range(5):
        answer = agentmd.parse(Files(entry, found))
        if isinstance(answer, Parsed):
            return answer
        assert answer.without(found), "asked again for what it has"
        found |= look(texts, answer)
    raise AssertionError("it never stops asking")


def read(text: str, **beside: str) -> Parsed:
    """Reads a text; further files by name, with `__` for `/` and without their `.md`."""
    return read_all({NAME: text} | {name.replace("__", "/") + ".md": each for name, each in beside.items()})


def agent(text: str, **beside: str) -> Agent:
    """The agent of a text that has nothing wrong with it."""
    parsed = read(text, **beside)
    assert parsed.problems == ()
    assert parsed.agent is not None
    return parsed.agent


def problem(parsed: Parsed, level: str = "error") -> Problem:
    """The only problem of this level; an agent exists exactly if there is no error."""
    (found,) = [each for each in parsed.problems if each.level == level]
    errors = any(each.level == "error" for each in parsed.problems)
    assert (parsed.agent is None) == errors
    return found


def place(found: Problem) -> tuple[int, int]:
    return found.line, found.column


def essence(one: Agent) -> Agent:
    """Without what only tells where things stood."""
    return replace(
        one,
        origins={},
        source=Source(),
        prompt=tuple(replace(part, path=None) for part in one.prompt),
        commands=tuple(
            each if each.source and is_address(each.source) else replace(each, source=None) for each in one.commands
        ),
    )


def read_back(one: Agent) -> Parsed:
    written = agentmd.render(one)
    return read_all(written.files, written.entry)
