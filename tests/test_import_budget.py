"""Which modules a command may load. Not a clock: what is not imported cannot make a command slow to start."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = ROOT / "bench" / "data"

_RUN = """
import sys
from duragent.__main__ import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("loaded", *sys.modules)
"""

NETWORK = {"duragent.fetch", "ssl", "http", "http.client", "email", "urllib.request", "asyncio", "aiohttp", "httpx"}
HEAVY = {"pydantic", "rich", "jsonschema", "importlib.metadata", "importlib.resources", "multiprocessing", "sqlite3"}
HEAVY |= {"dataclasses", "logging", "unittest", "pyagentspec", "agentspec", "zoneinfo"}
UNUSED = {"duragent.conversion", "duragent.core", "duragent.cli.showing", "duragent.cli.converting"}
DURAGENT = {"duragent.formats.duragent"}
AGENTSPEC = {"duragent.formats.agentspec"}
AGENTDIR = {"duragent.formats.agentdir"}
AGENTMD = {"duragent.formats.agentmd", "markdown_it"}
OPENAGENTSPEC = {"duragent.formats.openagentspec"}
CRON = {"cronsim", "duragent.formats.cron"}

CHECKING = NETWORK | HEAVY | UNUSED | {"duragent.config", "duragent.schemas"}
STARTING = {"click", "yaml", "msgspec", "json", "dataclasses", "inspect", "hashlib", "pathlib", "datetime", "decimal"}
STARTING |= {"duragent.cli", "duragent.agent", "duragent.agentfiles", "duragent.formats", "duragent.errors"}
MARKDOWN_NEEDS = {"dataclasses", "logging"}  # markdown-it-py imports both

BUDGET = [
    (["--version"], CHECKING | STARTING),
    (["validate", "seed.agent"], CHECKING | DURAGENT | AGENTDIR | AGENTMD | OPENAGENTSPEC | CRON),
    (["hash", "seed.agent"], CHECKING | DURAGENT | AGENTDIR | AGENTMD | OPENAGENTSPEC | CRON),
    # agent.yaml may be of three formats, and each is asked whether it is.
    (["validate", "duragent"], CHECKING | AGENTDIR | AGENTMD),
    # Its schedule names a time zone, which is looked up.
    (
        ["validate", "../../examples/release-agent"],
        (CHECKING | DURAGENT | AGENTSPEC | AGENTMD | OPENAGENTSPEC) - {"zoneinfo"},
    ),
    (
        ["validate", "../../examples/policy-writer/writing_policy-writer.agent.md"],
        (CHECKING | DURAGENT | AGENTSPEC | AGENTDIR | OPENAGENTSPEC | CRON) - MARKDOWN_NEEDS,
    ),
    (["schema", "agent"], NETWORK | HEAVY | UNUSED | AGENTSPEC | AGENTDIR | AGENTMD | OPENAGENTSPEC),
]


def loaded(arguments: list[str], place: Path = DATA) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(("arguments", "forbidden"), BUDGET, ids=[" ".join(each) for each, _ in BUDGET])
def test_a_command_loads_only_what_it_needs(arguments: list[str], forbidden: set[str]) -> None:
    assert loaded(arguments) & forbidden == set()


SCREEN = {"rich", "prompt_toolkit", "pygments"}
CLIENT = {"aiohttp", "yarl", "multidict", "duragent.models.http", "duragent.models.openai", "xllamacpp", "numpy"}
COMPANION = str(ROOT / "examples" / "companion")
SCRIPT = f"scripted/{COMPANION}/script.yaml"


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["run", COMPANION, "hi", "--model", SCRIPT], SCREEN | CLIENT),  # a script needs no network and no terminal
        (["session", "list"], SCREEN | CLIENT | {"uvloop"}),
        (["agent", "list"], SCREEN | CLIENT | {"uvloop", "asyncio"}),
        (["init"], SCREEN | CLIENT | {"uvloop", "asyncio"}),
    ],
    ids=["run", "session list", "agent list", "init"],
)
def test_a_command_of_a_workspace_loads_only_what_it_needs(
    arguments: list[str], forbidden: set[str], tmp_path: Path
) -> None:
    assert loaded(arguments, tmp_path) & forbidden == set()
