"""Escapes, as data: what a hostile command would try, each as a small program.

An attempt has succeeded when it says so, when a secret of the stage is in what it printed, or when something on the
stage is damaged afterwards. `duragent doctor --sandbox` tries all of them on this very machine; the tests do too, and
show that without a sandbox most of them get out. Adding one: a line in `ATTEMPTS`.
"""

import os
import re
import shutil
import sys
from collections.abc import AsyncIterator, Sequence

from msgspec import Struct

from duragent.sandbox import Sandbox
from duragent.sandbox.stage import Stage

BOTH = ("bubblewrap", "landlock")
NAMESPACES = ("bubblewrap",)  # what only namespaces can keep
_OUT = "ESCAPED"
_BROKEN = ("NameError", "SyntaxError", "AttributeError", "TypeError", "ImportError", "ModuleNotFoundError")
_ASIDE = re.compile(r"moved to (\S+/\.?duragent-quarantine-[^/\s]+)")
_PRELUDE = """
import errno, os, sys
E = {name[6:]: value for name, value in os.environ.items() if name.startswith("STAGE_")}
OUT, WORK, VICTIM = E["OUTSIDE"], E["WORK"], int(E["VICTIM"])
X86 = os.uname().machine == "x86_64"
def escaped(yes=True):
    if yes: print("ESC" + "APED", flush=True)
def show(path):
    with open(path, "rb") as file: print(file.read(65536))
def write(path, mode="a"):
    with open(path, mode) as file: file.write("evil")
def opens(path, flags=os.O_WRONLY):
    os.close(os.open(path, flags)); escaped()
"""
_KERNEL = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(*numbers):
    done = libc.syscall(*[ctypes.c_long(each) if isinstance(each, int) else each for each in numbers])
    if done < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
"""
_MODULES = ("fcntl", "socket", "struct", "time")


class Attempt(Struct, frozen=True):
    """One way out. `kept_by` names the backends that promise to close it."""

    name: str
    about: str
    program: str
    kept_by: tuple[str, ...] = BOTH


class Outcome(Struct, frozen=True):
    attempt: Attempt
    held: bool
    evidence: str


def _a(name: str, about: str, program: str, kept_by: tuple[str, ...] = BOTH) -> Attempt:
    return Attempt(name, about, program, kept_by)


_CROWD = """
for n in range(40): os.makedirs(f"sub/a{n}/.git", exist_ok=True)
d = "deep/er/and/deep/er/.git/hooks"
os.makedirs(d, exist_ok=True); write(d + "/pre-commit")
"""

ATTEMPTS: tuple[Attempt, ...] = (
    # --- writing
    _a("write outside", "append to a file outside of its folder", 'write(OUT + "/file")'),
    _a("create outside", "make a file outside of its folder", 'write(OUT + "/new")'),
    _a("delete outside", "delete a file outside of its folder", 'os.unlink(OUT + "/file")'),
    _a("empty outside", "cut a file outside to nothing", 'os.truncate(OUT + "/file", 0)'),
    _a("empty by opening", "open for reading, but cut", 'os.open(OUT + "/file", os.O_RDONLY | os.O_TRUNC)'),
    _a("climb out", "reach a file outside by ..", 'write("../outside/file")'),
    _a("climb by /proc", "reach a file by /proc/self/cwd", 'write("/proc/self/cwd/../outside/file")'),
    _a("link out", "write through a symbolic link", 'os.symlink(OUT + "/file", "sub/l1"); write("sub/l1")'),
    _a("hard link out", "write through a hard link", 'os.link(OUT + "/file", "sub/l2"); write("sub/l2")'),
    _a("bring in", "move a file from outside into its folder", 'os.rename(OUT + "/file", WORK + "/sub/got")'),
    _a("permissions outside", "change permissions outside", 'os.chmod(OUT + "/file", 0o707)', NAMESPACES),
    _a("agent file", "change the agent's own file", 'write("agents/a/agent.yaml")'),
    _a("swap agent file", "put another file in its place", 'write("sub/x"); os.rename("sub/x", "agents/a/agent.yaml")'),
    _a("move agents away", "rename the folder of the agents", 'os.rename("agents", "b"); os.makedirs("agents/a")'),
    _a("policy", "change the policy", 'write("policy.yaml")'),
    _a("delete policy", "delete the policy", 'os.unlink("policy.yaml")'),
    _a("new local policy", "make a policy that is not there yet", 'write("policy.local.yaml")'),
    _a("git hook", "add a hook that runs outside", 'write(".git/hooks/pre-commit"); escaped()'),
    _a("git config", "change what git runs", 'write(".git/config")'),
    _a("move .git away", "rename the repository and make another", 'os.rename(".git", "g"); os.makedirs(".git/hooks")'),
    _a("nested hook", "add a hook to a repository below", 'write("nested/.git/hooks/pre-commit"); escaped()'),
    _a("nested away", "rename the folder that holds it", 'os.rename("nested", "n2"); os.makedirs("nested/.git/hooks")'),
    _a("nested config", "make a git config that is not there yet", 'write("nested/.git/config")'),
    _a("other settings", "lead git to other settings", 'write(".git/commondir", "w")'),
    _a("other settings by renaming", "the same", 'write("sub/c"); os.rename("sub/c", ".git/commondir")'),
    _a("submodule config", "change what git runs in a submodule", 'write(".git/modules/a/b/config")'),
    _a(
        "submodule hook",
        "add a hook to it",
        'os.makedirs(".git/modules/a/b/hooks"); write(".git/modules/a/b/hooks/pre-commit")',
    ),
    _a("hooks elsewhere", "add a hook to the folder that git's settings name", 'write(".husky/pre-commit")'),
    _a("bare hook", "add a hook to a bare repository", 'os.makedirs("bare/hooks"); write("bare/hooks/post-receive")'),
    _a("bare config", "change what git runs there", 'write("bare/config")'),
    _a("deep config", "change what git runs in a repository far below", 'write("deep/er/and/deep/er/.git/config")'),
    _a("crowd out", "hide a repository among many", _CROWD),
    _a("become bare", "make a plain folder a repository", 'write("plain/HEAD")'),
    _a("its interpreter", "replace a program that runs outside", 'os.unlink(".venv/bin/python")'),
    _a("its environment's name", "put another in its place", 'os.rename(".venv", "v"); os.makedirs(".venv/bin")'),
    _a("shell settings", "make .envrc", 'write(".envrc")'),
    _a("link as settings", "make .envrc a link", 'os.symlink("/etc/passwd", ".envrc")'),
    _a("editor settings", "make .vscode", 'os.mkdir(".vscode")'),
    _a("server settings", "make .mcp.json by renaming", 'write("sub/y"); os.rename("sub/y", ".mcp.json")'),
    _a("session log", "add to the log of a session", 'write("state/sessions/1/events.jsonl")'),
    _a("lock file", "delete a lock", 'os.unlink("state/lock")'),
    _a("own folder", "move the folder itself away", 'os.rename(WORK, WORK + "2")'),
    _a("installed programs", "put a program where all find it", 'opens("/usr/local/bin", os.O_TMPFILE | os.O_WRONLY)'),
    _a("system settings", "put a file into /etc", 'opens("/etc", os.O_TMPFILE | os.O_WRONLY)'),
    _a("the program itself", "change duragent", 'opens(E["PACKAGE"] + "/__init__.py", os.O_WRONLY | os.O_APPEND)'),
    _a("runs as owner", "make a file that runs as its owner", 'write("sub/s1"); os.chmod("sub/s1", 0o4755); escaped()'),
    _a("born as owner", "the same at birth", 'os.open("sub/s2", os.O_CREAT | os.O_WRONLY, 0o4755); escaped()'),
    # --- reading
    _a("read outside", "read a file outside of its folder", 'show(OUT + "/secret")'),
    _a("read hidden", "read what the owner hid", 'show(OUT + "/hidden/secret")'),
    _a("read home", "read a file in the home folder", 'show(E["HOME_CANARY"])'),
    _a(
        "list home",
        "list the home folder",
        'escaped(os.path.basename(E["HOME_CANARY"]) in os.listdir(os.path.dirname(E["HOME_CANARY"])))',
    ),
    _a("link to home", "read home through a link", 'os.symlink(E["HOME_CANARY"], "sub/l3"); show("sub/l3")'),
    _a("shared memory file", "read another program's /dev/shm", 'show(E["SHM_CANARY"])'),
    _a(
        "shared memory",
        "attach another program's segment",
        "libc.shmat.restype = ctypes.c_void_p; "
        'at = libc.shmat(int(E["SEGMENT"]), None, 0o10000); print(ctypes.string_at(at, 64))',
        NAMESPACES,
    ),
    _a("password hashes", "read /etc/shadow", 'opens("/etc/shadow", os.O_RDONLY)'),
    _a("raw memory", "open /dev/mem", 'opens("/dev/mem", os.O_RDONLY)'),
    _a("kernel messages", "open /dev/kmsg", 'opens("/dev/kmsg", os.O_RDONLY)'),
    _a(
        "by handle",
        "open a file by its handle",
        "libc.syscall(304 if X86 else 265, -100, bytes(24), 0); "
        "escaped(ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS))",
    ),
    # --- other processes
    _a("its environment", "read another process's environment", 'show(f"/proc/{VICTIM}/environ")'),
    _a("its root", "walk through another process's root", 'show(f"/proc/{VICTIM}/root{OUT}/secret")'),
    _a("its folder", "walk through another process's folder", 'show(f"/proc/{VICTIM}/cwd/secret")'),
    _a(
        "its files",
        "open what another process has open",
        '[show(f"/proc/{VICTIM}/fd/{each}") for each in os.listdir(f"/proc/{VICTIM}/fd") if int(each) > 2]',
    ),
    _a(
        "its memory",
        "read another process's memory",
        'f = open(f"/proc/{VICTIM}/mem", "rb", 0); f.seek(int(E["ADDRESS"])); print(f.read(64))',
    ),
    _a(
        "read across",
        "process_vm_readv",
        "buffer = ctypes.create_string_buffer(64); "
        'ours = struct.pack("QQ", ctypes.addressof(buffer), 64); theirs = struct.pack("QQ", int(E["ADDRESS"]), 64); '
        "call(310 if X86 else 270, VICTIM, ours, 1, theirs, 1, 0); print(buffer.raw)",
    ),
    _a("trace", "attach as a debugger", "escaped(libc.ptrace(16, VICTIM, 0, 0) == 0); libc.ptrace(17, VICTIM, 0, 0)"),
    _a("take a file", "pidfd_getfd", "escaped(call(438, os.pidfd_open(VICTIM), 3, 0) >= 0)"),
    _a("write to parent", "open the memory of its parent", 'opens(f"/proc/{os.getppid()}/mem")', ("landlock",)),
    _a("the runtime", "read the runtime's environment", 'opens("/proc/" + E["RUNTIME"] + "/environ", os.O_RDONLY)'),
    _a(
        "signal runtime",
        "send the runtime a signal",
        'os.kill(int(E["RUNTIME"]), 0); '
        'escaped(b"STAGE_WORK" not in open("/proc/" + E["RUNTIME"] + "/environ", "rb").read())',
    ),
    _a("kill", "kill another process", "os.kill(VICTIM, 9)"),
    _a(
        "strangle",
        "take another process's files away",
        'escaped(call(302 if X86 else 261, VICTIM, 7, struct.pack("QQ", 64, 64), 0) == 0)',
    ),
    _a(
        "see processes",
        "see the command lines of others",
        'escaped(b"CANARY" in open(f"/proc/{VICTIM}/cmdline", "rb").read())',
        NAMESPACES,
    ),
    # --- sockets
    _a("TCP", "reach a server on this machine", 'socket.create_connection(("127.0.0.1", int(E["TCP"])), 2)'),
    _a("TCP by IPv6", "the same by IPv6", 'socket.create_connection(("::1", int(E["TCP6"])), 2)'),
    _a("UDP", "send a datagram", 'socket.socket(2, 2).sendto(b"x", ("127.0.0.1", int(E["UDP"])))'),
    _a(
        "DNS",
        "ask the machine's resolver",
        's = socket.socket(2, 2); s.settimeout(1); s.connect(("127.0.0.1", int(E["UDP"]))); s.send(bytes(12))',
    ),
    _a("raw packets", "open a raw socket", "socket.socket(2, 3, 1); escaped()"),
    _a("packets", "listen to all packets", "socket.socket(17, 3, 0); escaped()"),
    _a("abstract socket", "reach a socket without a file", 'socket.socket(1).connect("\\0" + E["ABSTRACT"])'),
    _a("socket outside", "reach a socket outside", 'socket.socket(1).connect(OUT + "/s")'),
    _a("socket inside", "reach another program's socket in its folder", 'socket.socket(1).connect("s")'),
    _a("datagram pair", "send to a socket from a pair", 'socket.socketpair(1, 2)[0].sendto(b"x", "d")'),
    _a("virtual machine", "open a socket to the host of this machine", "socket.socket(40, 1); escaped()"),
    _a("io_uring", "make system calls past the filter", "escaped(call(425, 4, bytes(120)) >= 0)"),
    # --- the kernel
    _a("user namespace", "become root in a namespace", "escaped(libc.unshare(0x10020000) == 0)"),
    _a(
        "namespace by fork",
        "the same when forking",
        "pid = call(56 if X86 else 220, 0x10000011, 0, 0, 0, 0)\nescaped(pid > 0)\nif pid == 0: os._exit(0)",
    ),
    _a(
        "clone3",
        "the same by the newer call",
        'pid = call(435, struct.pack("11Q", 0x10000000, 0, 0, 0, 17, *[0] * 6), 88)\n'
        "escaped(pid > 0)\nif pid == 0: os._exit(0)",
    ),
    _a(
        "mount",
        "mount something",
        'os.mkdir("sub/m"); done = libc.mount(b"x", b"sub/m", b"tmpfs", 0, None) == 0; '
        'escaped(done); libc.umount2(b"sub/m", 2) if done else None; os.rmdir("sub/m")',
    ),
    _a(
        "uncover",
        "take away what covers a hidden folder",
        'libc.umount2((OUT + "/hidden").encode(), 2); show(OUT + "/hidden/secret")',
    ),
    _a("new mount calls", "open a file system", 'escaped(call(430, b"tmpfs", 0) >= 0)'),
    _a("chroot", "change the root", 'os.chroot("."); escaped()'),
    _a(
        "enter namespace",
        "enter the namespaces of another process",
        'fd = os.open(f"/proc/{VICTIM}/ns/mnt", os.O_RDONLY); escaped(libc.setns(fd, 0) == 0)',
    ),
    _a("device", "make a device", 'os.mknod("sub/dev", 0o20600, os.makedev(1, 1)); escaped()'),
    _a(
        "capabilities",
        "have power over the machine",
        'lines = open("/proc/self/status").read().split("CapPrm:")[1]; escaped(int(lines.split()[0], 16) != 0)',
    ),
    _a("gain privileges", "be able to gain privileges", "escaped(libc.prctl(39, 0, 0, 0, 0) == 0)"),
    _a("kernel settings", "change a setting of the kernel", 'opens("/proc/sys/kernel/core_pattern")'),
    _a("magic keys", "restart the machine", 'opens("/proc/sysrq-trigger")'),
    _a(
        "cgroups",
        "leave or make a control group",
        'os.mkdir("/sys/fs/cgroup/duragent-x"); os.rmdir("/sys/fs/cgroup/duragent-x"); escaped()',
    ),
    _a(
        "keyring",
        "use the kernel's keyring",
        'escaped(call(248 if X86 else 217, b"user", b"duragent", b"x", 1, -2) > 0)',
    ),
    _a(
        "bpf",
        "load a program into the kernel",
        'escaped(call(321 if X86 else 280, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128) >= 0)',
    ),
    _a(
        "perf",
        "watch the kernel",
        'escaped(call(298 if X86 else 241, struct.pack("IIQ", 1, 112, 0) + bytes(96), 0, -1, -1, 0) >= 0)',
    ),
    _a("page faults", "hold up the kernel", "escaped(call(323 if X86 else 282, 0) >= 0)"),
    _a(
        "module",
        "load a kernel module",
        "libc.syscall(175 if X86 else 105, bytes(8), 8, b''); escaped(ctypes.get_errno() == errno.ENOEXEC)",
    ),
    _a("terminal", "type into a terminal", "a, b = os.openpty(); fcntl.ioctl(b, 0x5412, b'x'); escaped()"),
    _a(
        "host name",
        "rename the machine",
        "name = os.uname().nodename.encode(); escaped(libc.sethostname(name, len(name)) == 0)",
    ),
    # --- how much
    _a(
        "fork bomb",
        "start processes without end",
        "n = 0\ntry:\n  while n < 400:\n    n += 1\n    if os.fork() == 0:\n"
        "      time.sleep(60); os._exit(0)\nexcept OSError: sys.exit(1)\nescaped()",
    ),
    _a("memory bomb", "take memory without end", "x = bytearray(900 << 20); escaped()"),
    _a(
        "huge file",
        "write a file without end",
        'f = open("sub/big", "wb")\nfor _ in range(16): f.write(bytes(1 << 20)); f.flush()\nescaped()',
    ),
    _a(
        "fill /tmp",
        "fill its private folder",
        "for n in range(8):\n"
        '  with open(os.environ["TMPDIR"] + f"/f{n}", "wb") as f: f.write(bytes(4 << 20))\nescaped()',
        NAMESPACES,
    ),
    _a(
        "outlive",
        "leave a daemon behind",
        'f = open("daemon.lock"); fcntl.flock(f, 2)\nif os.fork() == 0:\n  os.setsid()\n'
        "  if os.fork() == 0:\n    time.sleep(60)\n  os._exit(0)",
    ),
)


def not_kept(backend: str) -> tuple[Attempt, ...]:
    """What a backend does not promise to close, and which is therefore not tried on it."""
    return tuple(attempt for attempt in ATTEMPTS if backend not in attempt.kept_by)


async def try_escapes(
    sandbox: Sandbox, attempts: Sequence[Attempt] = ATTEMPTS, *, promised: str = ""
) -> AsyncIterator[Outcome]:
    """Every attempt in turn, with what came of it. `promised`: only those that this backend says to close."""
    with Stage() as stage:
        for attempt in attempts:
            if not promised or promised in attempt.kept_by:
                yield await _try(sandbox, stage, attempt)
                stage.repair()


async def _try(sandbox: Sandbox, stage: Stage, attempt: Attempt) -> Outcome:
    python = os.path.realpath(sys.executable)
    ended = await sandbox.run([python, "-I", "-S", "-c", _source(attempt.program)], stage.box)
    said = ended.output.decode("utf-8", "replace")
    if any(f"\n{name}:" in said for name in _BROKEN):
        evidence = f"the attempt itself is broken: {said.strip().splitlines()[-1]}"
    elif stage.secret in said:
        evidence = "it read a secret"
    elif _OUT in said:
        evidence = "it said so"
    else:
        evidence = stage.damage()
    for place in _ASIDE.findall(said):  # what was moved aside is of no use to anybody here
        shutil.rmtree(place, ignore_errors=True)
    return Outcome(attempt, not evidence, evidence or _last(said) or f"{ended.ending} {ended.code}")


def _source(program: str) -> str:
    """With what it uses and no more: importing takes longer than most attempts."""
    used = "".join(f"import {name}\n" for name in _MODULES if f"{name}." in program)
    kernel = _KERNEL if "libc." in program or "call(" in program else ""
    return f"{_PRELUDE}{used}{kernel}{program}"


def _last(said: str) -> str:
    lines = said.strip().splitlines()
    return lines[-1][:200] if lines else ""
