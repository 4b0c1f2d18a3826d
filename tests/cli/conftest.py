"""What the tests of the command line share."""

from pathlib import Path

import pytest

from tests.cli.workspace import AGENT, KEYS, Program


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """The program in an empty folder, on a machine without keys."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in (*KEYS, "CI"):
        monkeypatch.delenv(name, raising=False)
    return Program(tmp_path, monkeypatch, capsys)


@pytest.fixture
def workspace(program: Program) -> Program:
    """The program in a workspace with one agent called assistant."""
    agent = program.folder / ".duragent" / "agents" / "assistant"
    agent.mkdir(parents=True)
    (agent / "agent.yaml").write_text(AGENT, encoding="utf-8")
    return program
