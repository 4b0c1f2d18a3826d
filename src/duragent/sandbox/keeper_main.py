"""The keeper: a small process beside the runtime that starts its commands and leaves nothing behind.

Run as `python -I -S keeper_main.py FD`; standard library only, one thread, so that forking is safe. Each order that
comes through the socket is taken by a warden, and the warden's only child becomes the command. One such pair always
stands by, so that no command waits for a fork. A warden is the reaper of everything its command starts, also of
daemons; it ends them all when the command ends, when it is told to, and when its control socket closes, which is what
happens when the runtime dies in whatever way.

Knows no boxes and no backends: an order says exactly which limits, filters and files a command gets.
"""

import contextlib
import ctypes
import errno
import fcntl
import gc
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

HEADER = struct.Struct("!II")  # the size of an order, and how many open files come with it
TICK_MS, LONGEST_TICK_MS = 50, 500  # how often a command's processes are counted: less while they stay the same
PATIENCE_SECONDS = 10.0  # for a process that does not even die of SIGKILL

_PDEATHSIG, _SECCOMP, _CAPBSET_DROP, _SUBREAPER, _NO_NEW_PRIVS, _CAP_AMBIENT = 1, 22, 24, 36, 38, 47
_ROUND_MS = 5
_PID = struct.Struct("=i")
_HIGH = 100  # file numbers from here on are in nobody's way
_RESTRICT_SELF = 446
_CAPABILITY_VERSION = 0x20080522
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Have a warden stand by until the runtime is gone."""
    gc.disable()  # collecting would touch the pages that are shared with every warden
    door = socket.socket(fileno=int(sys.argv[1]))
    _prctl(_SUBREAPER, 1)
    wake, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    taken, taker = os.pipe2(os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    poller = select.poll()
    poller.register(door.fileno(), 0)  # only its end: orders are read by whoever stands by
    for each in (wake, taken):
        poller.register(each, select.POLLIN)
    wardens = {spare := _spare(door, taker)}
    while True:
        ready = dict(poller.poll())
        if door.fileno() in ready:
            return  # every warden sees the same and ends its command
        if taken in ready and _PID.unpack(os.read(taken, _PID.size))[0] == spare:
            wardens.add(spare := _spare(door, taker))
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            _reap(wardens)
            if spare not in wardens and not select.select([taken], [], [], 0)[0]:
                return  # it may have read half an order: the runtime gets a new keeper, and nobody reads the rest


def _spare(door: socket.socket, taker: int) -> int:
    """Fork a warden that stands by; its process id. It says so when it has taken an order."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _stand_by(door, taker)
        finally:
            os._exit(1)
    return pid


def _receive(door: socket.socket) -> tuple[bytes, list[int]]:
    """The next order and the files that came with it; nothing at the end."""
    try:
        head, files, _, _ = socket.recv_fds(door, HEADER.size, 64)
        while head and len(head) < HEADER.size:
            head += door.recv(HEADER.size - len(head))
        if not head:
            return b"", []
        size, expected = HEADER.unpack(head)
        body = bytearray()
        while len(body) < size:
            part = door.recv(min(size - len(body), 65_536))
            if not part:
                return b"", []
            body += part
    except ConnectionError:
        return b"", []
    return (bytes(body), files) if len(files) == expected else (b"", files)


def send(door: socket.socket, body: bytes, files: Sequence[int]) -> None:
    """What `_receive` gets."""
    socket.send_fds(door, [HEADER.pack(len(body), len(files))], files)
    door.sendall(body)


def _reap(wardens: set[int]) -> None:
    """Forget wardens that ended. What a killed warden left behind comes to us, and is ended."""
    with contextlib.suppress(ChildProcessError):
        while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
            wardens.discard(pid)
    for orphan in set(children(os.getpid())) - wardens:
        for pid in [orphan, *(each for each, _ in below(orphan))]:
            _kill(pid, signal.SIGKILL)


# --- the warden of one command ------------------------------------------------------------------------------


def _stand_by(door: socket.socket, taker: int) -> None:
    """Wait for an order, together with the process that is to be its command."""
    _prctl(_SUBREAPER, 1)
    near, far = socket.socketpair()
    report, low = os.pipe2(os.O_CLOEXEC)
    reporter = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _HIGH)
    warden, command = os.getpid(), os.fork()
    if command == 0:
        near.close()
        door.close()
        _become(far, reporter, warden)
    for file in (far.detach(), low, reporter):
        os.close(file)
    _rehearse()
    body, files = _receive(door)
    if body:
        with near, contextlib.suppress(OSError):  # it was killed: so it will be told
            send(near, body, files[1:])
        os.write(taker, _PID.pack(warden))  # after the command has begun: the next pair is in nobody's way
        door.close()
        _guard(json.loads(body), files, command, report)


def _rehearse() -> None:
    """Touch what is needed to begin: its pages are copied now, and not while somebody waits for a command."""
    json.loads('{"argv": ["", ""], "environment": {}, "limits": {"CORE": 0}, "processes": 1}')
    os.listdir("/proc/self/fd")
    resource.getrlimit(resource.RLIMIT_CORE)


def _guard(order: dict[str, Any], files: list[int], command: int, report: int) -> NoReturn:
    """Watch the command, end what it leaves behind, say how it ended."""
    alone = False
    try:
        control = socket.socket(fileno=files[0])
        for file in files[1:]:
            os.close(file)
        fault = os.read(report, 4096)
        if fault:
            os.waitpid(command, 0)
            control.send(b"failed " + fault)
        else:
            control.send(b"started %d" % command)
            ending, code = _watch(control, command, order)
            control.send(f"{ending} {code}".encode())
    except OSError:
        alone = True
    finally:
        with contextlib.suppress(BaseException):
            _sweep({})
            if alone:  # nobody else is there any more to tidy up
                _tidy(order)
        os._exit(int(alone))


def _tidy(order: dict[str, Any]) -> None:
    for path, device, inode in order["stand_ins"]:
        with contextlib.suppress(OSError):
            handle = open_stand_in(path)
            about = os.fstat(handle)
            if (about.st_dev, about.st_ino) == (device, inode):
                remove_stand_in(path, handle)
            os.close(handle)
    if order["private"]:
        os.execvp("rm", ["rm", "-rf", "--", order["private"]])


def open_stand_in(path: str) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)


def is_stand_in(path: str, handle: int) -> bool:
    """Whether the file at the path is the open one, with what a stand-in holds and as old as one is made."""
    with contextlib.suppress(OSError):
        there, held = os.lstat(path), os.fstat(handle)
        if (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino) and there.st_mtime_ns == 0:
            if stat.S_ISDIR(held.st_mode):
                return not os.listdir(handle)
            return stat.S_ISREG(held.st_mode) and os.pread(handle, 16, 0) == content_of(path)
    return False


def content_of(path: str) -> bytes:
    """What a stand-in holds: nothing, except where git wants to read something. A repository may be its own common
    one, and that is what this says."""
    return b".\n" if os.path.basename(path) == "commondir" else b""


def remove_stand_in(path: str, handle: int) -> None:
    """Take a stand-in away, unless somebody else's command still needs it or it has become somebody's own."""
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_stand_in(path, handle):
            (os.rmdir if stat.S_ISDIR(os.fstat(handle).st_mode) else os.unlink)(path)


def _watch(control: socket.socket, command: int, order: dict[str, Any]) -> tuple[str, int]:
    """Wait for the command. Ends with nothing left of it."""
    ended: dict[int, int] = {}
    poller, tick, longest, known = select.poll(), TICK_MS, LONGEST_TICK_MS, 0
    poller.register(control.fileno(), select.POLLIN)
    try:
        poller.register(os.pidfd_open(command), select.POLLIN)
    except OSError:
        tick = longest = 5  # an old kernel: look more often
    most, skipped = order["processes"], order["skipped"]
    why = ""
    while command not in ended and not why:
        ready = dict(poller.poll(tick))
        _collect(ended)
        ended = {command: ended[command]} if command in ended else {}  # the others' do not matter, and may be many
        if control.fileno() in ready:
            said = control.recv(16)
            if said == b"T":
                for pid, depth in list(below(os.getpid())):
                    if depth >= skipped:
                        _kill(pid, signal.SIGTERM)
            else:
                break  # told to kill, or nobody is there any more
        if not ready:
            count = sum(1 for _ in below(os.getpid()))
            why = "processes" if count > most + skipped else ""
            tick, known = min(longest, next_tick(tick, known, count)), count
    _sweep(ended)
    status = ended.get(command, signal.SIGKILL)
    if why:
        return why, int(signal.SIGKILL)
    code = os.waitstatus_to_exitcode(status)
    return ("signalled", -code) if code < 0 else ("exited", code)


def next_tick(tick: int, known: int, count: int) -> int:
    """When to count again: soon while there are more and more processes, seldom while there are not."""
    return TICK_MS if count > known else min(2 * tick, LONGEST_TICK_MS)


def _collect(ended: dict[int, int]) -> bool:
    """Take the status of everything that ended; False when no child is left at all."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        ended[pid] = status


def _sweep(ended: dict[int, int]) -> None:
    """Kill until nothing is left. Whole groups first: the kernel lets nobody fork out of a group that is killed."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while _collect(ended) and time.monotonic() < deadline:
        pids = [pid for pid, _ in below(os.getpid())]
        for group in {_group(pid) for pid in pids} - {0, os.getpgid(0)}:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        for pid in pids:
            _kill(pid, signal.SIGKILL)
        _await_any(list(children(os.getpid())))


def _await_any(pids: list[int]) -> None:
    """Until one of these has ended, and not for long: there may be new ones to kill."""
    poller, files = select.poll(), []
    for pid in pids[:16]:
        with contextlib.suppress(OSError):
            files.append(os.pidfd_open(pid))
            poller.register(files[-1], select.POLLIN)
    poller.poll(_ROUND_MS if files else 1)
    for file in files:
        os.close(file)


def _group(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _kill(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


def children(pid: int) -> Iterator[int]:
    """The processes that this one started and that are still there."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for task in tasks:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
            yield from map(int, file.read().split())


def below(pid: int) -> Iterator[tuple[int, int]]:
    """Every process below this one, and how far below it is; 0 for its own children."""
    queue = [(child, 0) for child in children(pid)]
    for child, depth in queue:
        yield child, depth
        queue += [(each, depth + 1) for each in children(child)]


# --- becoming the command -------------------------------------------------------------------------------------


def _become(orders: socket.socket, reporter: int, warden: int) -> NoReturn:
    """Give up everything that the order does not grant, then be the program. What fails is told to the warden."""
    step = "prepare"
    try:
        os.setsid()
        _prctl(_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != warden:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores them; programs count on them
        _rehearse()
        body, files = _receive(orders)
        if not body:
            os._exit(0)
        order = json.loads(body)
        _place(files, reporter)
        _limit(order["limits"])
        step = "cwd"
        os.chdir(order["cwd"])
        step = "confine"
        _confine(order)
        step = "exec"
        _execute(order["argv"], order["environment"])
    except OSError as error:
        os.write(reporter, f"{error.errno or errno.EINVAL} {step}".encode())
    except BaseException as error:  # noqa: BLE001 - whatever it is, this process must not go on as a second warden
        os.write(reporter, f"{errno.EINVAL} {step}: {error!r}"[:4000].encode())
    os._exit(127)


def _place(files: Sequence[int], reporter: int) -> None:
    """These files become 0, 1, 2 and so on; no other file stays open but the reporter's, which closes by itself."""
    high = [fcntl.fcntl(file, fcntl.F_DUPFD, _HIGH) for file in files]
    for number, file in enumerate(high):
        os.dup2(file, number)
    for file in map(int, os.listdir("/proc/self/fd")):
        if file >= len(files) and file != reporter:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(file)


def _limit(limits: dict[str, int]) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("500")  # when memory runs out, commands go before the runtime
    for name, wanted in limits.items():
        which = getattr(resource, f"RLIMIT_{name}")
        _, hard = resource.getrlimit(which)
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (most, most))


def _confine(order: dict[str, Any]) -> None:
    if not order["confined"]:
        return
    _checked(_prctl(_NO_NEW_PRIVS, 1))
    if order["ruleset"]:
        _checked(_libc.syscall(_RESTRICT_SELF, order["ruleset"], 0))
        os.close(order["ruleset"])
    if order["powerless"]:
        _drop_capabilities()
    if order["seccomp"]:
        apply_filter(bytes.fromhex(order["seccomp"]))


def _drop_capabilities() -> None:
    """No capability now, and none to be gained by executing anything, also for root."""
    for capability in range(64):
        if _prctl(_CAPBSET_DROP, capability) != 0:
            break  # past the last one, or not root: nothing to lose
    _prctl(_CAP_AMBIENT, 4)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    _checked(_libc.capset(header, bytes(24)))


def apply_filter(program: bytes) -> None:
    """Put this process and all it starts under a seccomp filter."""
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _checked(_libc.prctl(_SECCOMP, 2, header, 0, 0))


def _execute(argv: list[str], environment: dict[str, str]) -> None:
    name = argv[0]
    if "/" in name:
        os.execve(name, argv, environment)
    fault = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in environment.get("PATH", os.defpath).split(":"):
        try:
            os.execve(os.path.join(folder, name) if folder else f"./{name}", argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                fault = error
    raise fault


def _prctl(option: int, value: int) -> int:
    result: int = _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    return result


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
