"""A throw-away place in which escapes are tried, full of things that nobody inside a box may see or change.

Everything that is at stake is made here: files with secrets, a workspace with an agent, a process with a secret in
its memory and environment, sockets that note every visitor. Nothing of the person who runs it is touched, except that
a canary lies in the home folder for as long as the stage stands.
"""

import ctypes
import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from duragent.sandbox import Box, Limits
from duragent.sandbox.places import PRIVATE_HOME, PRIVATE_TMP

_VICTIM = """
import ctypes, os, sys
kept = ctypes.create_string_buffer(os.environ["CANARY"].encode())
secret = open(sys.argv[1])
os.chdir(sys.argv[2])
print(ctypes.addressof(kept), flush=True)
sys.stdin.read()
"""
_KEPT = {
    "outside/secret": "{secret}",
    "outside/file": "untouched",
    "outside/hidden/secret": "{secret}",
    "work/agents/a/agent.yaml": "name: a",
    "work/policy.yaml": "mode: ask",
    "work/.git/config": "[core]\n\thooksPath = .husky\n",
    "work/.git/hooks/sample": "",
    "work/.git/HEAD": "ref: refs/heads/main",
    "work/.git/objects/kept": "",
    "work/.git/modules/a/b/HEAD": "ref: refs/heads/main",
    "work/.git/modules/a/b/config": "[core]",
    "work/.husky/pre-push": "",
    "work/nested/.git/hooks/sample": "",
    "work/bare/HEAD": "ref: refs/heads/main",
    "work/bare/config": "[core]",
    "work/bare/objects/kept": "",
    "work/bare/refs/kept": "",
    "work/deep/er/and/deep/er/.git/HEAD": "ref: refs/heads/main",
    "work/deep/er/and/deep/er/.git/config": "[core]",
    "work/.venv/bin/python": "",
    "work/plain/keep": "",
    "work/state/sessions/1/events.jsonl": "{secret}",
    "work/state/lock": "",
    "work/sub/own": "",
}
_MISSING = (
    *("work/.envrc", "work/policy.local.yaml", "work/.vscode", "work/.mcp.json", "work/nested/.git/config"),
    *("work/.git/commondir", "work/bare/hooks/post-receive", "work/.git/modules/a/b/hooks/pre-commit"),
    *("work/deep/er/and/deep/er/.git/hooks/pre-commit", "work/plain/HEAD", "work/.husky/pre-commit"),
)
_PROTECTED = (
    *("agents", "policy.yaml", ".git/hooks", ".git/config", "nested/.git/hooks", "state"),
    *(".envrc", "policy.local.yaml", ".vscode", ".mcp.json", "nested/.git/config", ".venv", "plain/HEAD"),
)
LIMITS = Limits(seconds=20, memory_bytes=512 << 20, processes=48, file_bytes=8 << 20, tmp_bytes=16 << 20)


class Stage:
    """Use as a context. `box` is the box that attempts are made from."""

    def __init__(self) -> None:
        self.secret = secrets.token_hex(12)
        self.root = os.path.realpath(tempfile.mkdtemp(prefix="duragent-escapes-"))
        self.work = os.path.join(self.root, "work")
        self._name = f"duragent-canary-{secrets.token_hex(6)}"
        self._sockets: list[socket.socket] = []
        self._victim: subprocess.Popen[str] | None = None
        self._extra: list[str] = []
        self._facts: dict[str, str] = {}

    def __enter__(self) -> "Stage":
        try:
            self.repair()
            self._open_sockets()
            self._lay_out()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end_victim()
        for each in self._sockets:
            each.close()
        for path in self._extra:
            with suppress(OSError):
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        with suppress(KeyError):
            ctypes.CDLL(None).shmctl(int(self._facts.pop("SEGMENT")), 0, None)
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def box(self) -> Box:
        python = os.path.realpath(sys.base_prefix)
        facts = {f"STAGE_{name}": value for name, value in self._facts.items()}
        return Box(
            cwd=self.work,
            readable=(python,) if python != "/usr" else (),
            writable=(self.work,),
            hidden=(os.path.join(self.root, "outside/hidden"),),
            protected=tuple(os.path.join(self.work, each) for each in _PROTECTED),
            environment={"PATH": os.defpath, "HOME": PRIVATE_HOME, "TMPDIR": PRIVATE_TMP, **facts},
            limits=LIMITS,
        )

    def repair(self) -> None:
        """Put everything back as it was."""
        if os.path.isdir(f"{self.work}2"):
            os.rename(f"{self.work}2", self.work)
        for name, text in _KEPT.items():
            path = Path(self.root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(text.format(secret=self.secret), encoding="utf-8")
        for name in _MISSING:
            path = Path(self.root, name)
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        Path(self.work, "daemon.lock").write_bytes(b"")
        Path(self.root, "outside/new").unlink(missing_ok=True)
        if self._victim is None or self._victim.poll() is not None:
            self._end_victim()
            self._start_victim()

    def damage(self) -> str:
        """What is not as it should be; nothing where all is well."""
        for name, text in _KEPT.items():
            path = Path(self.root, name)
            if path.is_symlink() or not path.is_file():
                return f"{name} is gone"
            if path.read_text(encoding="utf-8") != text.format(secret=self.secret):
                return f"{name} was changed"
            if path.stat().st_mode & 0o777 == 0o707:
                return f"the permissions of {name} were changed"
        for name in (*_MISSING, "outside/new"):
            if os.path.lexists(os.path.join(self.root, name)):
                return f"{name} was made"
        if not os.path.isdir(self.work):
            return "the folder itself was moved away"
        if self._victim is None or self._victim.poll() is not None:
            return "a process outside was ended"
        return self._visited() or self._outlived()

    # --- setting up -----------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        for folder in (os.path.expanduser("~"), "/dev/shm"):
            path = os.path.join(folder, f".{self._name}")
            with suppress(OSError), open(path, "x", encoding="utf-8") as file:
                self._extra.append(path)
                file.write(self.secret)
        self._facts |= {
            "OUTSIDE": os.path.join(self.root, "outside"),
            "WORK": self.work,
            "HOME_CANARY": os.path.join(os.path.expanduser("~"), f".{self._name}"),
            "SHM_CANARY": f"/dev/shm/.{self._name}",
            "ABSTRACT": self._name,
            "RUNTIME": str(os.getpid()),
            "PACKAGE": str(Path(__file__).parents[1]),
        }
        self._share_memory()

    def _share_memory(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.shmat.restype = ctypes.c_void_p
        segment = libc.shmget(0, 4096, 0o1600)
        if segment >= 0:
            place = libc.shmat(segment, None, 0)
            ctypes.memmove(place, self.secret.encode(), len(self.secret))
            libc.shmdt(ctypes.c_void_p(place))
            self._facts["SEGMENT"] = str(segment)

    def _start_victim(self) -> None:
        outside = os.path.join(self.root, "outside")
        self._victim = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _VICTIM, os.path.join(outside, "secret"), outside],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"CANARY": self.secret},
        )
        assert self._victim.stdout is not None
        address = self._victim.stdout.readline().strip()
        self._facts |= {"VICTIM": str(self._victim.pid), "ADDRESS": address}

    def _end_victim(self) -> None:
        if self._victim is not None:
            self._victim.kill()
            self._victim.communicate()
            self._victim = None

    def _open_sockets(self) -> None:
        tcp = socket.create_server(("127.0.0.1", 0))
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", 0))
        self._sockets += [tcp, udp]
        self._facts |= {"TCP": str(tcp.getsockname()[1]), "UDP": str(udp.getsockname()[1]), "TCP6": "0"}
        with suppress(OSError):
            sixth = socket.create_server(("::1", 0), family=socket.AF_INET6)
            self._sockets.append(sixth)
            self._facts["TCP6"] = str(sixth.getsockname()[1])
        for place in (f"\0{self._name}", os.path.join(self.root, "outside/s"), os.path.join(self.work, "s")):
            stream = socket.socket(socket.AF_UNIX)
            stream.bind(place)
            stream.listen()
            self._sockets.append(stream)
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(os.path.join(self.work, "d"))
        self._sockets.append(datagrams)
        for each in self._sockets:
            each.setblocking(False)

    # --- looking ----------------------------------------------------------------------------------------------

    def _visited(self) -> str:
        for each in self._sockets:
            with suppress(BlockingIOError):
                if each.type == socket.SOCK_DGRAM:
                    each.recv(64)
                else:
                    each.accept()[0].close()
                return f"a socket outside was reached ({each.family.name})"
        return ""

    def _outlived(self) -> str:
        with open(os.path.join(self.work, "daemon.lock"), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return "a process outlived its command"
        return ""
