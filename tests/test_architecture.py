"""Who may import whom. The tree is the architecture, and this is what keeps it so."""

import ast
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "duragent"

# Each part may import itself and what is listed here; nothing else of ours.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "agent": set(),
    "formats": {"agent", "errors"},
    "core": {"agent", "errors"},
    "config": {"formats", "errors"},
    "fetch": {"errors"},
    "reading": {"formats", "agent", "errors"},
    "agentfiles": {"formats", "reading", "fetch", "agent", "errors"},
    "conversion": {"agentfiles", "formats", "reading", "agent", "errors"},
    "schemas": {"formats", "config", "agent", "errors"},
    "agentspec": {"formats", "reading", "agent", "errors"},
    "cli": {
        "agentfiles",
        "agentspec",
        "conversion",
        "schemas",
        "core",
        "config",
        "formats",
        "agent",
        "errors",
        "__version__",
    },
    "__main__": {"cli", "__version__"},
    "__init__": {"agent", "agentfiles", "conversion", "errors", "formats"},
}
# In the pure parts, not even these. The clock, chance and the world arrive as arguments.
IMPURE = {
    *("aiohttp", "anyio", "asyncio", "glob", "http", "io", "multiprocessing", "os", "pathlib", "random", "requests"),
    *("secrets", "shutil", "signal", "socket", "ssl", "subprocess", "sys", "tempfile", "threading", "time", "uuid"),
    *("zoneinfo",),
}
PURE_PARTS = {"agent", "core", "formats"}
# The loaders: the only places where an import may stand in a function.
LOADERS = {"__main__.py"}
FILES = sorted(SRC.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def imports(source: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {"." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names}
    return found


def faults(path: Path, source: str) -> list[str]:
    """Every rule that the text `source`, standing at `path`, breaks."""
    part = part_of(path)
    tree = ast.parse(source)
    used = imports(source)
    found = [f"relative import {name}" for name in used if name.startswith(".")]
    ours = {name.split(".")[1] for name in used if name.startswith("duragent.")}
    found += [f"{part} must not import {name}" for name in ours - MAY_IMPORT[part] - {part}]
    if part in PURE_PARTS:
        found += [f"{part} is pure: no {name}" for name in {name.split(".")[0] for name in used} & IMPURE]
        if any(isinstance(node, ast.AsyncFunctionDef | ast.Await) for node in ast.walk(tree)):
            found.append(f"{part} is pure: nothing to wait for")
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        found += [f"{part} is pure: no {name}()" for name in calls & {"open", "print", "input", "exec", "eval"}]
    if path.name not in LOADERS:
        for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
            if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function)):
                found.append(f"an import is hidden in {function.name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SRC)))
def test_a_file_keeps_the_rules_of_its_place(path: Path) -> None:
    assert faults(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("place", "line", "fault"),
    [
        ("formats/x.py", "from duragent.core import context", "formats must not import core"),
        ("core/x.py", "from duragent.formats import shape", "core must not import formats"),
        ("agent.py", "import duragent.errors", "agent must not import errors"),
        ("reading.py", "from duragent.agentfiles import load", "reading must not import agentfiles"),
        ("formats/x/y.py", "from pathlib import Path", "formats is pure: no pathlib"),
        ("core/x.py", "import os.path", "core is pure: no os"),
        ("core/x.py", "async def f(): ...", "core is pure: nothing to wait for"),
        ("formats/x.py", "text = open('x')", "formats is pure: no open()"),
        ("cli/x.py", "from .checking import x", "relative import .checking.x"),
        ("cli/x.py", "def f():\n    import json", "an import is hidden in f"),
    ],
)
def test_a_planted_violation_is_found(place: str, line: str, fault: str) -> None:
    assert faults(SRC / place, line) == [fault]


def test_the_table_names_every_part_and_nothing_else() -> None:
    assert {part_of(path) for path in FILES} == set(MAY_IMPORT)


def test_no_file_outgrows_its_reader() -> None:
    long = {str(path.relative_to(SRC)): len(path.read_text().splitlines()) for path in FILES}
    assert {name: lines for name, lines in long.items() if lines > 450} == {}
