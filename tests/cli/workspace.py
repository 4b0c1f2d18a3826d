"""A workspace for the tests of the command line: agents, scripts for the scripted model, sessions, and the program.

`Program` runs the whole program in this process, as `__main__` does; tests that need signals or a terminal start it.
"""

import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from duragent import cli
from duragent.core import events as ev

AGENT = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata: {name: assistant}
spec:
  model: {provider: openai, name: gpt-4o-mini}
"""
KEYS = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "OLLAMA_HOST")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Program:
    """`duragent` in this process. `stdin` is what is piped in."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._patch, self._capsys = folder, monkeypatch, capsys

    def __call__(self, *args: object, stdin: str | bytes = "") -> Done:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        self._patch.setattr(sys, "argv", ["duragent", *map(str, args)])
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        self._patch.setattr(sys, "excepthook", sys.excepthook)
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            cli.run()
        out, err = self._capsys.readouterr()
        return Done(int(end.value.code or 0), out, err)

    def sessions(self) -> list[str]:
        """The ids of all sessions, the oldest first."""
        place = self.folder / ".duragent" / "sessions"
        return sorted(each.name for each in place.iterdir()) if place.is_dir() else []

    def script(self, *answers: object, name: str = "script.yaml", **more: object) -> str:
        """What the scripted model will say, as the value of --model."""
        lines = [{"text": each} if isinstance(each, str) else each for each in answers]
        (self.folder / name).write_text(yaml.safe_dump({"answers": lines, **more}), encoding="utf-8")
        return f"scripted/{name}"

    def session(
        self, *events: ev.Event, session_id: str = "session_01TEST0000000000000000000A", year: int = 2126
    ) -> str:
        """A session as a process that ended left it."""
        place = self.folder / ".duragent" / "sessions" / session_id
        place.mkdir(parents=True)
        start = ev.SessionStart("assistant", source=str(self.folder / ".duragent/agents/assistant"), version=1)
        entries = [ev.Entry(seq, stamp(seq, year), event) for seq, event in enumerate([start, *events], 1)]
        (place / "events.jsonl").write_bytes(b"".join(ev.render_entry(entry) + b"\n" for entry in entries))
        return session_id

    def kinds(self, session_id: str) -> list[str]:
        """The kinds of a session's events."""
        lines = (self.folder / ".duragent/sessions" / session_id / "events.jsonl").read_bytes().splitlines()
        return [str(ev.parse_entry(line).event.__struct_config__.tag) for line in lines]


def stamp(seq: int, year: int = 2126) -> str:
    return f"{year}-01-01T00:00:{seq:02}.000Z"


def without_marker(text: str) -> str:
    """What the scripted model said, without its confession that it is one."""
    return text.replace("[script]\n", "")


def environment(folder: Path, extra: Sequence[tuple[str, str]] = ()) -> dict[str, str]:
    """The environment for a program that is started: no keys, no CI, its home where the workspace is."""
    kept = {name: value for name, value in os.environ.items() if name not in (*KEYS, "CI", "NO_COLOR")}
    return {**kept, "HOME": str(folder), "TERM": "xterm-256color", **dict(extra)}
