"""The filter of system calls, run by a small machine of our own, for processors we do not have as well."""

import errno
import struct

import pytest

from duragent.sandbox.seccomp import build

X86, ARM = 0xC000_003E, 0xC000_00B7
ALLOW, KILL = "allow", "kill"


def decide(program: bytes, machine: int, number: int, *arguments: int) -> str | int:
    """What the kernel would do about a call: allow it, kill, or answer with an error number."""
    data = struct.pack("=II8x6Q", number, machine, *[*arguments, *[0] * (6 - len(arguments))])
    at = value = 0
    while True:
        code, yes, no, operand = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            value = struct.unpack_from("=I", data, operand)[0]
        elif code == 0x54:
            value &= operand
        elif code == 0x06:
            action, detail = operand & 0xFFFF_0000, operand & 0xFFFF
            return {0x7FFF_0000: ALLOW, 0x8000_0000: KILL}.get(action, detail)
        else:
            holds = {0x15: value == operand, 0x35: value >= operand, 0x45: value & operand != 0}[code]
            at += yes if holds else no


OPEN = build(sockets=True, machine="x86_64")
SHUT = build(sockets=False, machine="x86_64")
OLD = build(sockets=False, truncation=False, machine="x86_64")
ON_ARM = build(sockets=True, machine="aarch64")


@pytest.mark.parametrize(
    ("program", "machine", "call", "expected"),
    [
        (OPEN, X86, (0, 0), ALLOW),  # read
        (OPEN, X86, (59,), ALLOW),  # execve
        (OPEN, 0x4000_0003, (102,), KILL),  # a 32-bit program's socketcall
        (OPEN, X86, (0x4000_0000 | 41, 2), errno.ENOSYS),  # the same by x32
        (OPEN, X86, (101,), errno.EPERM),  # ptrace
        (OPEN, X86, (425,), errno.EPERM),  # io_uring_setup
        (OPEN, X86, (41, 2, 1, 0), ALLOW),  # socket: internet
        (OPEN, X86, (41, 10, 2, 0), ALLOW),
        (OPEN, X86, (41, 1, 1, 0), errno.EAFNOSUPPORT),  # on this machine
        (OPEN, X86, (41, 16, 3, 0), ALLOW),  # netlink: routes
        (OPEN, X86, (41, 16, 3, 9), errno.EPERM),  # netlink: audit
        (OPEN, X86, (41, 17, 3, 0), errno.EAFNOSUPPORT),
        (SHUT, X86, (41, 2, 1, 0), errno.EPERM),
        (SHUT, X86, (53, 1, 1), ALLOW),  # socketpair: a stream
        (SHUT, X86, (53, 1, 1 | 0o2000000), ALLOW),
        (SHUT, X86, (53, 1, 5), ALLOW),
        (SHUT, X86, (53, 1, 2), errno.EPERM),
        (SHUT, X86, (53, 2, 1), errno.EPERM),
        (OPEN, X86, (56, 0x0100_0011), ALLOW),  # clone: a fork
        (OPEN, X86, (56, 0x1000_0011), errno.EPERM),  # clone: a user namespace
        (OPEN, X86, (435,), errno.ENOSYS),  # clone3
        (OPEN, X86, (272, 0x400), ALLOW),  # unshare: files
        (OPEN, X86, (272, 0x80), errno.EPERM),  # unshare: time
        (OPEN, X86, (16, 0, 0x5401), ALLOW),  # ioctl: is it a terminal
        (OPEN, X86, (16, 0, 0x5412), errno.EPERM),  # ioctl: type into it
        (OPEN, X86, (16, 0, 0xFFFF_FFFF_0000_5412), errno.EPERM),  # the kernel looks at half of it only
        (OPEN, X86, (90, 0, 0o755), ALLOW),  # chmod
        (OPEN, X86, (90, 0, 0o4755), errno.EPERM),
        (OPEN, X86, (257, 0, 0, 0, 0o4755), ALLOW),  # openat, creating nothing: the mode means nothing
        (OPEN, X86, (257, 0, 0, 0x41, 0o4755), errno.EPERM),
        (OPEN, X86, (257, 0, 0, 0x41, 0o644), ALLOW),
        (OPEN, X86, (437,), errno.ENOSYS),  # openat2
        (OPEN, X86, (133, 0, 0o10644), ALLOW),  # mknod: a pipe
        (OPEN, X86, (133, 0, 0o20644), errno.EPERM),  # mknod: a device
        (OPEN, X86, (135, 0xFFFF_FFFF), ALLOW),  # personality: ask
        (OPEN, X86, (135, 0x0040_0000), errno.EPERM),
        (OPEN, X86, (302, 0), ALLOW),  # prlimit64: itself
        (OPEN, X86, (302, 4711), errno.EPERM),
        (OPEN, X86, (76,), ALLOW),  # truncate
        (OLD, X86, (76,), errno.EPERM),
        (OLD, X86, (2, 0, 0x200), errno.EPERM),  # open: read, and cut
        (OLD, X86, (2, 0, 0x201), ALLOW),  # open: write, and cut; Landlock asks about writing
        (OLD, X86, (2, 0, 0x241, 0o4755), errno.EPERM),
        (ON_ARM, ARM, (63,), ALLOW),
        (ON_ARM, ARM, (117,), errno.EPERM),
        (ON_ARM, ARM, (198, 1, 1, 0), errno.EAFNOSUPPORT),
        (ON_ARM, ARM, (220, 0x1000_0011), errno.EPERM),
        (ON_ARM, X86, (0,), KILL),
    ],
)
def test_a_call_is_decided(program: bytes, machine: int, call: tuple[int, ...], expected: str | int) -> None:
    assert decide(program, machine, *call) == expected
