"""Builds agent folders for tests and says what was found in them, in one value that can be compared."""

import os
from collections.abc import Mapping
from pathlib import Path

from duragent.agent import Agent
from duragent.agentfiles import Examined, examine
from duragent.errors import FetchFailed
from duragent.formats.shape import Problem

HEAD = "apiVersion: duragent/v1alpha1\nkind: Agent\nmetadata:\n  name: helper\n"
MODEL = "spec:\n  model: {provider: openai, name: gpt-5}\n"
MANIFEST = HEAD + MODEL
"""The smallest Duragent manifest without a warning: six lines, `spec:` is the fifth."""

SKILL = "---\nname: notes\ndescription: Takes notes.\n---\nWrite it down.\n"


def write_tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Files by their path below `root`; texts are written as they are, without translating line ends."""
    for name, content in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def agent_at(path: str | os.PathLike[str]) -> Agent:
    """The agent at `path`, which must be usable."""
    found = examine(path, fetch=no_fetch)
    assert found.agent is not None, found.problems
    return found.agent


def look(path: str | os.PathLike[str]) -> Examined:
    """What is said about `path`. Anything that would go to the network is a failure."""
    return examine(path, fetch=no_fetch)


def no_fetch(url: str) -> bytes:
    raise FetchFailed(f"a test tried to fetch {url}")


def said(found: Examined, root: Path) -> list[tuple[str, str, int, int, str]]:
    """(level, file below root, line, column, text) of every problem."""
    return [(p.level, _below(p.file, root), p.line, p.column, p.text.replace(f"{root}/", "")) for p in found.problems]


def only(found: Examined) -> Problem:
    """The one problem there is."""
    (problem,) = found.problems
    return problem


def errors(found: Examined) -> list[Problem]:
    return [problem for problem in found.problems if problem.level == "error"]


def warnings(found: Examined) -> list[Problem]:
    return [problem for problem in found.problems if problem.level == "warning"]


def _below(file: str, root: Path) -> str:
    return os.path.relpath(file, root) if os.path.isabs(file) else file
