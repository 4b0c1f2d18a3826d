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
    "models": {"core", "agent", "errors"},
    "sandbox": {"core", "agent", "errors"},
    "tools": {"core", "sandbox", "agent", "errors"},
    "store": {"core", "agent", "errors"},
    "engine": {"core", "models", "tools", "store", "agent", "errors"},
    "following": {"core", "errors"},
    "living": {"engine", "following", "core", "store", "agent", "errors"},
    "working": {"living", "following", "engine", "core", "errors"},
    "runtime": {"working", "living", "following", "engine", "core", "models", "tools", "store", "agent", "errors"},
    "config": {"formats", "reading", "errors"},
    "fetch": {"core", "errors"},
    "notifying": {"agent", "errors"},
    "hosting": {
        *("agent", "config", "core", "engine", "errors", "policyfiles", "sandbox", "secrets", "skillfiles", "tools"),
        "notifying",
    },
    "policyfiles": {"core", "formats", "reading", "agent", "errors"},
    "secrets": {"agent", "errors"},
    "skillfiles": {"formats", "reading", "agent", "errors"},
    "reading": {"formats", "agent", "errors"},
    "agentfiles": {"formats", "reading", "fetch", "agent", "errors"},
    "conversion": {"agentfiles", "formats", "reading", "agent", "errors"},
    "schemas": {"formats", "config", "agent", "errors"},
    "agentspec": {"formats", "reading", "agent", "errors"},
    "cli": {
        "agentfiles",
        "agentspec",
        "conversion",
        "fetch",
        "schemas",
        "core",
        "config",
        "formats",
        "models",
        "hosting",
        "policyfiles",
        "sandbox",
        "skillfiles",
        "tools",
        "store",
        "following",
        "runtime",
        "agent",
        "errors",
        "__version__",
    },
    "__main__": {"cli", "__version__"},
    "__init__": {"agent", "agentfiles", "conversion", "errors", "following", "formats", "runtime", "tools"},
}
PURE_PARTS = {"agent", "core", "formats"}
# All that the pure parts may import beside what is ours. The clock, chance and the world arrive as arguments.
PURE = {
    *(
        "abc",
        "collections",
        "difflib",
        "fnmatch",
        "functools",
        "graphlib",
        "hashlib",
        "ipaddress",
        "itertools",
        "json",
        "math",
    ),
    *("bisect", "datetime", "posixpath", "re", "shlex", "typing", "urllib.parse", "zlib"),
    *("cronsim", "jsonschema_rs", "markdown_it", "msgspec", "tree_sitter", "tree_sitter_bash", "unicodedata", "yaml"),
}
PURE_HERE = {"formats/__init__.py": {"importlib"}, "core/__init__.py": {"importlib"}}
# What would be reached without an import.
WORLD = {"open", "print", "input", "exec", "eval", "compile", "breakpoint", "__builtins__", "__loader__", "__spec__"}
CLOCK = {"now", "today", "utcnow"}
DISK = {
    *("abspath", "exists", "expanduser", "expandvars", "getatime", "getctime", "getmtime", "getsize", "isdir"),
    *("isfile", "islink", "ismount", "lexists", "os", "realpath", "samefile"),
}
"""Names in posixpath that look at the disk; the others only look at texts."""
# The only places that may load a module by its name.
LOADERS = {"__init__.py", "formats/__init__.py", "cli/__init__.py", "agentfiles.py"}
LOADERS |= {"hosting.py", "models/__init__.py", "tools/__init__.py", "sandbox/__init__.py", "core/__init__.py"}
# The only place where an import may stand in a function.
HIDING = {"__main__.py"}
FILES = sorted(SRC.rglob("*.py"))


def part_of(path: Path) -> str:
    return path.relative_to(SRC).with_suffix("").parts[0]


def imports(tree: ast.AST) -> set[str]:
    """Every name that is imported, also by a text that is handed to `import_module`."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {"." * node.level + f"{node.module or ''}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
            found.add(loaded(node))
    return found


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def loaded(node: ast.Call) -> str:
    """What `import_module` is called with: a text, or what an f-string begins with; "?" where nobody can see it."""
    first = node.args[0] if node.args else None
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    text = first.value if isinstance(first, ast.Constant) else "?"
    return "?" if text == "duragent." else str(text).rstrip(".")


def within(name: str, modules: set[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def faults(path: Path, source: str) -> list[str]:
    """Every rule that the text `source`, standing at `path`, breaks."""
    part, here, tree = part_of(path), path.relative_to(SRC).as_posix(), ast.parse(source)
    used = imports(tree)
    found = [f"relative import {name}" for name in used if name.startswith(".")]
    found += ["`import duragent` hides what is used of it" for name in used if name == "duragent"]
    ours = {name.split(".")[1] for name in used if name.startswith("duragent.")}
    found += [f"{part} must not import {name}" for name in ours - MAY_IMPORT[part] - {part}]
    if here not in LOADERS:
        named = {called(node) for node in ast.walk(tree) if isinstance(node, ast.Call)} & {
            "import_module",
            "__import__",
        }
        found += [f"{here} is no loader: no {name}()" for name in named]
    if part in PURE_PARTS:
        others = {name for name in used if not within(name, {"duragent", *PURE, *PURE_HERE.get(here, set())})}
        found += [f"{part} is pure: no {name}" for name in others if not name.startswith(".")]
        found += [f"{part} is pure: {what}" for what in impure(tree)]
    if here not in HIDING:
        for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
            if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function)):
                found.append(f"an import is hidden in {function.name}")
    return found


def impure(tree: ast.AST) -> set[str]:
    """What reaches the world without importing anything that is not on the list."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef | ast.Await):
            found.add("nothing to wait for")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in WORLD:
            found.add(f"no {node.id}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CLOCK:
            found.add(f"no .{node.func.attr}()")
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == "posixpath" and node.attr in DISK:
            found.add(f"no posixpath.{node.attr}")
        elif isinstance(node, ast.ImportFrom) and node.module == "posixpath":
            found |= {f"no posixpath.{alias.name}" for alias in node.names if alias.name in DISK}
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
        ("formats/x/y.py", "from pathlib import Path", "formats is pure: no pathlib.Path"),
        ("core/x.py", "import os.path", "core is pure: no os.path"),
        ("core/x.py", "import urllib.request", "core is pure: no urllib.request"),
        ("core/x.py", "from urllib import request", "core is pure: no urllib.request"),
        ("core/x.py", "import concurrent.futures", "core is pure: no concurrent.futures"),
        ("core/x.py", "import sqlite3", "core is pure: no sqlite3"),
        ("core/x.py", "import builtins\nbuiltins.open('x')", "core is pure: no builtins"),
        ("core/x.py", "import time", "core is pure: no time"),
        ("core/x.py", "from datetime import datetime\ndatetime.now()", "core is pure: no .now()"),
        ("store/x.py", "from duragent.models import Model", "store must not import models"),
        ("models/x.py", "from duragent.tools import Tool", "models must not import tools"),
        ("engine.py", "from duragent.runtime import Runtime", "engine must not import runtime"),
        ("formats/cron.py", "from datetime import datetime\ndatetime.now()", "formats is pure: no .now()"),
        ("formats/cron.py", "import datetime\ndatetime.date.today()", "formats is pure: no .today()"),
        ("formats/cron.py", "import datetime as d\nd.datetime.utcnow()", "formats is pure: no .utcnow()"),
        ("core/x.py", "async def f(): ...", "core is pure: nothing to wait for"),
        ("formats/x.py", "text = open('x')", "formats is pure: no open"),
        ("formats/x.py", "door = open", "formats is pure: no open"),
        ("formats/x.py", "__builtins__['open']('x')", "formats is pure: no __builtins__"),
        ("formats/x.py", "import posixpath\nposixpath.exists('x')", "formats is pure: no posixpath.exists"),
        ("formats/x.py", "from posixpath import realpath", "formats is pure: no posixpath.realpath"),
        ("formats/__init__.py", "import_module('duragent.core')", "formats must not import core"),
        ("formats/__init__.py", "import_module(f'duragent.core.{x}')", "formats must not import core"),
        ("formats/__init__.py", "import_module('socket')", "formats is pure: no socket"),
        ("formats/__init__.py", "import_module(name)", "formats is pure: no ?"),
        ("formats/__init__.py", "import_module(f'duragent.{name}')", "formats is pure: no ?"),
        ("agentfiles.py", "import_module('duragent')", "`import duragent` hides what is used of it"),
        ("agentfiles.py", "import_module('duragent.conversion')", "agentfiles must not import conversion"),
        ("reading.py", "import_module('json')", "reading.py is no loader: no import_module()"),
        ("cli/x.py", "import importlib\nimportlib.import_module('json')", "cli/x.py is no loader: no import_module()"),
        ("cli/x.py", "__import__('json')", "cli/x.py is no loader: no __import__()"),
        ("config.py", "import duragent", "`import duragent` hides what is used of it"),
        ("cli/x.py", "import duragent as d", "`import duragent` hides what is used of it"),
        ("agent.py", "import duragent", "`import duragent` hides what is used of it"),
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
