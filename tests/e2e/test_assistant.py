"""The personal assistant of the examples at work on a person's machine: it does its job, and nothing else."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from duragent.cli.templates import IGNORED
from tests.sandbox.working import needs_a_sandbox

ROOT = Path(__file__).resolve().parents[2]
KEY = "-----BEGIN KEY----- canary-3f1c -----END KEY-----"
PAGE = "<html><body><h1>Opening hours</h1><p>The library is open until <b>eight</b>.</p></body></html>"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def library() -> Iterator[int]:
    """A web page on this machine."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


class Home:
    """A person's machine: a home with a key in it, a project under git, and the assistant."""

    def __init__(self, folder: Path, port: int) -> None:
        self.home, self.port = folder / "home", port
        self.project = self.home / "project"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".ssh" / "id_ed25519").write_text(KEY)
        agents = self.project / ".duragent" / "agents"
        shutil.copytree(ROOT / "examples" / "personal-assistant", agents / "personal-assistant")
        settings = f"web:\n  private_hosts: ['127.0.0.1:{port}']\n"
        (self.project / "duragent.yaml").write_text(settings)
        (self.project / "todo.md").write_text("- bread\n")
        (self.project / ".gitignore").write_text(".duragent/\n")
        self.git("init", "-q", "-b", "main", ".")
        self.git("config", "user.email", "me@example.org")
        self.git("config", "user.name", "Me")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "begin")
        subprocess.run(["git", "init", "-q", "--bare", self.project / "shared.git"], check=True)
        self.git("remote", "add", "origin", "shared.git")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.project, capture_output=True, text=True, check=True)
        return done.stdout

    def duragent(self, *words: str) -> dict[str, Any]:
        environ = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        environ |= {"HOME": str(self.home), "OPENROUTER_API_KEY": "sk-or-canary-7777777"}
        done = subprocess.run(
            [sys.executable, "-m", "duragent", *words, "--format", "json"],
            cwd=self.project,
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.stdout, done.stderr
        said: dict[str, Any] = json.loads(done.stdout)
        return said

    def ask(self, *calls: dict[str, Any], agent: str = "personal-assistant") -> dict[str, Any]:
        """What comes of it when the model makes these calls, one after another, and then repeats the last result."""
        lines = [{"calls": [call]} for call in calls]
        script = self.home / "script.yaml"
        script.write_text(json.dumps({"answers": [*lines, {"text": "{results}"}]}))
        return self.duragent("run", agent, "do it", "--model", f"scripted/{script}")


def bash(command: str) -> dict[str, Any]:
    return {"tool": "bash", "arguments": {"command": command}}


@pytest.fixture
def home(tmp_path: Path, library: int) -> Home:
    needs_a_sandbox()
    return Home(tmp_path, library)


def test_it_edits_and_commits_files_in_its_workspace(home: Home) -> None:
    said = home.ask(bash("echo '- milk' >> todo.md && cat todo.md"), bash("git add todo.md && git commit -m milk"))
    assert said["status"] == "answered", said
    assert (home.project / "todo.md").read_text() == "- bread\n- milk\n"
    assert home.git("log", "--format=%s") == "milk\nbegin\n"


def test_a_commit_of_everything_takes_nothing_out_that_is_hidden_from_it(home: Home) -> None:
    (home.project / ".gitignore").unlink()
    (home.project / ".duragent/.gitignore").write_text(IGNORED)
    home.git("add", "-A")
    home.git("commit", "-q", "-m", "all")
    before = set(home.git("ls-files").split())
    assert ".duragent/agents/personal-assistant/agent.yaml" in before
    (home.project / ".duragent/agents/personal-assistant/policy.yaml").write_text("mode: dangerous\n")
    said = home.ask(bash("echo '- tea' >> todo.md; git add -A && git commit -m tea"))
    assert home.git("log", "-1", "--format=%s") == "tea\n", said
    assert before - set(home.git("ls-files").split()) == set()


def test_it_is_asked_before_git_push_and_always_holds_from_then_on(home: Home) -> None:
    said = home.ask(bash("git push origin main"))
    assert [each["command"] for each in said["waiting"]] == ["git push origin main"]
    assert home.git("ls-remote", "origin") == ""

    session, call = said["session_id"], said["waiting"][0]["call_id"]
    home.duragent("session", "approve", session, call, "--always")
    assert "refs/heads/main" in home.git("ls-remote", "origin")
    local = home.project / ".duragent/agents/personal-assistant/policy.local.yaml"
    assert "'bash:git push origin main'" in local.read_text()

    assert home.ask(bash("git push origin main"))["status"] == "answered"
    assert home.ask(bash("git push --force origin main"))["status"] == "waiting"


def test_it_reads_a_page_of_a_server_that_its_owner_named(home: Home) -> None:
    said = home.ask({"tool": "web", "arguments": {"action": "fetch", "url": f"http://127.0.0.1:{home.port}/"}})
    assert "# Opening hours" in said["answer"] and "**eight**" in said["answer"]

    other = home.ask({"tool": "web", "arguments": {"action": "fetch", "url": f"http://localhost:{home.port}/"}})
    assert "Opening hours" not in other["answer"]


def test_what_it_remembers_in_one_session_it_knows_in_the_next(home: Home) -> None:
    note = {"action": "remember", "content": "Tea, never coffee."}
    assert home.ask({"tool": "memory", "arguments": note})["status"] == "answered"
    later = home.ask({"tool": "memory", "arguments": {"action": "recall"}})
    assert "Tea, never coffee." in later["answer"]


@pytest.mark.parametrize(
    "command",
    [
        "cat {home}/.ssh/id_ed25519",
        "cat /proc/*/environ | cat",
        "cat /proc/1/root{home}/.ssh/id_ed25519",
        "ln -s {home}/.ssh/id_ed25519 key; cat key",
        "find {home} /root -name 'id_*' -exec cat {{}} +",
    ],
)
def test_it_cannot_read_a_key_even_when_everything_may_run(home: Home, command: str) -> None:
    (home.project / ".duragent/agents/personal-assistant/policy.yaml").write_text("mode: dangerous\n")
    said = home.ask(bash(command.format(home=home.home)))
    assert said["status"] == "answered"
    assert "canary" not in json.dumps(said)


def test_it_reaches_no_network_from_a_command(home: Home) -> None:
    (home.project / ".duragent/agents/personal-assistant/policy.yaml").write_text("mode: dangerous\n")
    reach = f"exec 3<>/dev/tcp/127.0.0.1/{home.port}; printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    assert "Opening hours" not in home.ask(bash(reach))["answer"]


@pytest.mark.parametrize(
    "file", ["policy.yaml", "policy.local.yaml", "agent.yaml", "tools/new/run", "memory/MEMORY.md"]
)
def test_it_cannot_change_its_own_files(home: Home, file: str) -> None:
    own = home.project / ".duragent/agents/personal-assistant"
    (own / "policy.yaml").write_text("mode: dangerous\n")
    before = sorted((path, path.read_bytes()) for path in own.rglob("*") if path.is_file())
    home.ask(bash(f"mkdir -p {own}/tools/new; echo 'mode: dangerous' > {own}/{file}; mv {own} {own}-2"))
    assert sorted((path, path.read_bytes()) for path in own.rglob("*") if path.is_file()) == before


def test_an_agent_whose_trust_says_none_gets_neither_commands_nor_the_web(home: Home) -> None:
    (home.project / "quiet.agent").write_text(
        "apiVersion: agent/v1\nname: quiet\nversion: 0.1.0\nmodel: {preferred: [openrouter/x]}\n"
        "tools: {native: [bash, web]}\ntrust: {filesystem: none, network: none, exec: none}\n"
    )
    url = f"http://127.0.0.1:{home.port}/"
    said = home.ask(bash("id"), agent="./quiet.agent")
    assert "There is no tool called 'bash'" in said["answer"]
    said = home.ask({"tool": "web", "arguments": {"action": "fetch", "url": url}}, agent="./quiet.agent")
    assert "There is no tool called 'web'" in said["answer"]
