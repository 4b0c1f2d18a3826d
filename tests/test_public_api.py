"""What the package promises: these names and no others."""

import subprocess
import sys
from pathlib import Path

import duragent
from duragent import agent_hash, convert_agent, load_agent, validate

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_public_names_are_exactly_these() -> None:
    assert duragent.__all__ == [
        "Agent",
        "Conflict",
        "Converted",
        "CorruptLog",
        "DuragentError",
        "Examined",
        "FetchFailed",
        "InvalidAgent",
        "Loss",
        "LossRefused",
        "ModelFailed",
        "NotFound",
        "Origin",
        "Problem",
        "Runtime",
        "Settled",
        "StorageFailed",
        "__version__",
        "agent_hash",
        "convert_agent",
        "function_tool",
        "load_agent",
        "validate",
    ]
    assert all(getattr(duragent, name) is not None for name in duragent.__all__)


def test_importing_the_package_loads_none_of_its_parts() -> None:
    code = "import sys, duragent; print([name for name in sys.modules if name.startswith('duragent.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_agent_is_loaded_checked_hashed_and_converted_from_python(tmp_path: Path) -> None:
    agent = load_agent(EXAMPLES / "researcher.agent")
    assert agent.source.format == "agentspec"
    assert agent_hash(agent).startswith("ag1:")
    assert validate(EXAMPLES / "code-reviewer").ok
    written = convert_agent(EXAMPLES / "code-reviewer", "duragent", tmp_path / "copy")
    assert written.losses == ()
    assert load_agent(written.entry).name == "code-reviewer"
