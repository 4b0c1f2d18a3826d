"""Which system calls a command may make: a filter program for the kernel, built by hand.

Refuses what no command of an agent needs and what leads out of a box that is built of files: looking into other
processes, mounting, namespaces, kernel keys and modules, io_uring (which would pass this filter by), sockets to
programs on this machine, input pushed into a terminal, files that run as somebody else. Everything else is allowed.

Pure: settings in, bytes out. A new call: its number for both machines in `_NUMBERS`, its rule in `_rules`.
"""

import errno
import platform
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

Instruction = tuple[int, int, int, int]

_X32 = 0x4000_0000
_MACHINES: Mapping[str, tuple[int, int]] = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
"""How the kernel names a machine, and which column of `_NUMBERS` is its own."""

# For x86_64 and aarch64; -1 where there is no such call. Calls from 424 on have one number everywhere.
_NUMBERS: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chmod": (90, -1),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "creat": (85, -1),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioctl": (16, 29),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "migrate_pages": (256, 238),
    "mknod": (133, -1),
    "mknodat": (259, 33),
    "modify_ldt": (154, -1),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "nfsservctl": (180, 42),
    "open": (2, -1),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "prlimit64": (302, 261),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "truncate": (76, 45),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "uselib": (134, -1),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
# Ruled by what they are called with; all others in the table are refused always.
_RULED = {"chmod", "clone", "clone3", "creat", "fchmod", "fchmodat", "fchmodat2", "ioctl", "mknod", "mknodat"}
_RULED |= {"open", "openat", "openat2", "personality", "prlimit64", "socket", "socketpair", "truncate", "unshare"}

_NAMESPACES = 0x7E02_0000
_NEW_TIME = 0x80
_RUNS_AS_OWNER = 0o4000
_DEVICES = (0o020000, 0o060000)
_TERMINAL_INPUT = (0x5412, 0x541C, 0x541D)  # TIOCSTI, TIOCLINUX, TIOCCONS
_PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFF_FFFF)
_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_STREAM, _SEQPACKET = 1, 5
_CREATES = 0x40 | 0x40_0000  # O_CREAT, O_TMPFILE
_ACCESS_OR_TRUNCATES, _TRUNCATES = 0x203, 0x200

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_ALLOW: Instruction = (_RETURN, 0, 0, 0x7FFF_0000)
_KILL: Instruction = (_RETURN, 0, 0, 0x8000_0000)


def supported() -> bool:
    return platform.machine() in _MACHINES


@lru_cache
def build(*, sockets: bool, truncation: bool = True, machine: str = "") -> bytes:
    """The filter. `sockets`: to the internet, if there is one; none at all otherwise.

    `truncation` is False where Landlock is too old to keep a command from emptying files it may only read.
    """
    architecture, column = _MACHINES[machine or platform.machine()]
    program: list[Instruction] = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, architecture), _KILL, (_LOAD, 0, 0, 0)]
    if column == 0:
        program += [(_AT_LEAST, 0, 1, _X32), _refuse(errno.ENOSYS)]
    rules = dict(_rules(sockets, truncation))
    for name, numbers in _NUMBERS.items():
        body = rules.get(name, []) if name in _RULED else [_refuse()]
        if numbers[column] >= 0 and body:
            program += [(_EQUAL, 0, len(body), numbers[column]), *body]
    program.append(_ALLOW)
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in program)


def _rules(sockets: bool, truncation: bool) -> Iterator[tuple[str, list[Instruction]]]:
    """What is done about calls that are refused only with certain arguments. Each list ends by returning."""
    for name, argument in (("chmod", 1), ("fchmod", 1), ("fchmodat", 2), ("fchmodat2", 2), ("creat", 1)):
        yield name, _unless_bits(argument, _RUNS_AS_OWNER)
    for name, argument in (("mknod", 1), ("mknodat", 2)):
        bits = [_load(argument), (_ANY_BIT, 0, 1, _RUNS_AS_OWNER), _refuse()]
        kinds = [(_AND, 0, 0, 0o170000), *_unless_equal(_DEVICES)]
        yield name, [*bits, *kinds]
    for name, argument in (("open", 1), ("openat", 2)):
        yield name, _opening(argument, truncation)
    yield "openat2", [_refuse(errno.ENOSYS)]  # its flags are in memory, where a filter cannot see them
    if not truncation:
        yield "truncate", [_refuse()]
    yield "clone", _unless_bits(0, _NAMESPACES)
    yield "clone3", [_refuse(errno.ENOSYS)]  # as above; everybody falls back to clone
    yield "unshare", _unless_bits(0, _NAMESPACES | _NEW_TIME)
    yield "ioctl", [_load(1), *_unless_equal(_TERMINAL_INPUT)]
    yield "personality", [_load(0), *_only(_PERSONALITIES)]
    yield "prlimit64", [_load(0), *_only((0,))]  # its own limits, not those of the runtime
    yield "socket", _socket(sockets)
    # A pair of datagram sockets could still send to any address; streams are connected for good.
    pair = [_load(0), (_EQUAL, 1, 0, _UNIX), _refuse(), _load(1), (_AND, 0, 0, 0xF)]
    yield "socketpair", [*pair, *_only((_STREAM, _SEQPACKET))]


def _opening(flags: int, truncation: bool) -> list[Instruction]:
    reading = [_load(flags), (_AND, 0, 0, _ACCESS_OR_TRUNCATES), (_EQUAL, 0, 1, _TRUNCATES), _refuse()]
    mode = [_load(flags + 1), (_ANY_BIT, 0, 1, _RUNS_AS_OWNER), _refuse()]
    creating = [_load(flags), (_ANY_BIT, 0, len(mode), _CREATES), *mode, _ALLOW]
    return creating if truncation else [*reading, *creating]


def _socket(allowed: bool) -> list[Instruction]:
    if not allowed:
        return [_refuse()]
    routes = [_load(2), (_EQUAL, 0, 1, 0), _ALLOW, _refuse()]  # netlink tells names their addresses
    return [
        _load(0),
        (_EQUAL, 0, 1, _INET),
        _ALLOW,
        (_EQUAL, 0, 1, _INET6),
        _ALLOW,
        (_EQUAL, 0, len(routes), _NETLINK),
        *routes,
        _refuse(errno.EAFNOSUPPORT),
    ]


def _load(argument: int) -> Instruction:
    return _LOAD, 0, 0, 16 + 8 * argument


def _refuse(number: int = errno.EPERM) -> Instruction:
    return _RETURN, 0, 0, 0x0005_0000 | number


def _unless_bits(argument: int, bits: int) -> list[Instruction]:
    return [_load(argument), (_ANY_BIT, 0, 1, bits), _refuse(), _ALLOW]


def _unless_equal(values: Iterable[int]) -> list[Instruction]:
    return [each for value in values for each in ((_EQUAL, 0, 1, value), _refuse())] + [_ALLOW]


def _only(values: Iterable[int]) -> list[Instruction]:
    return [each for value in values for each in ((_EQUAL, 0, 1, value), _ALLOW)] + [_refuse()]
