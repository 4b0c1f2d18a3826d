"""What of this machine a command sees and what it never sees, whatever its box says; for all backends.

Owns the lists and the checks of a box that every backend makes before a command runs. Paths that only look real are
refused: a link in the path of what is writable or protected would lead out of the box.
"""

import glob
import os
import pwd
from collections.abc import Iterable
from functools import lru_cache

from duragent.errors import NotAllowed
from duragent.sandbox import Box

PRIVATE_TMP, PRIVATE_HOME = "/tmp", "/tmp/home"
"""What a box calls the folder of its own that each command gets, and the home in it."""

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap")
"""Where programs and their settings are."""

FACTS = ("/proc", "/sys/devices/system", "/sys/fs/cgroup", "/sys/kernel/mm", "/var/lib/dpkg", "/var/cache/fontconfig")

_HOMES = ("/root", "/home")
_SECRETS = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers", "/etc/sudoers.d", "/etc/security/opasswd"),
    *("/etc/ssh/*_key", "/etc/ssl/private", "/etc/pki/tls/private", "/etc/krb5.keytab", "/etc/wireguard"),
    *("/etc/NetworkManager/system-connections", "/etc/kubernetes", "/etc/rancher", "/etc/docker", "/etc/letsencrypt"),
    *("/var/spool/cron", "/var/spool/mail", "/var/mail", "/var/backups", "/var/lib/docker", "/var/lib/containerd"),
    *("/var/lib/kubelet", "/var/lib/cloud", "/var/lib/private", "/var/log/audit", "/sys/kernel/debug"),
    *("/sys/kernel/tracing", "/sys/firmware/efi", "/sys/fs/bpf", "/boot/efi"),
)
_SECRET_PLACES = tuple(sorted({os.path.dirname(path) for path in _SECRETS}))


def homes() -> tuple[str, ...]:
    """The folders in which people keep what is theirs."""
    return _homes(os.environ.get("HOME", ""))


@lru_cache(4)
def _homes(said: str) -> tuple[str, ...]:
    own = {os.path.realpath(place) for place in (_own_home(), said) if len(place) > 1}
    return tuple(sorted(path for path in {*_HOMES, *own} if os.path.isdir(path) and path != "/"))


def _own_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def secrets() -> tuple[str, ...]:
    """Files and folders that hold keys of this machine, as far as this process could read them."""
    return _secrets(stamps(_SECRET_PLACES))


def stamps(folders: Iterable[str]) -> tuple[int, ...]:
    """When something was last added to, or taken from, each of these folders: cheap to compare."""
    return tuple(os.stat(folder).st_mtime_ns if os.path.isdir(folder) else 0 for folder in folders)


@lru_cache(4)
def _secrets(changed: tuple[int, ...]) -> tuple[str, ...]:
    found = {os.path.realpath(path) for pattern in _SECRETS for path in glob.glob(pattern)}
    return tuple(sorted(path for path in found if os.access(path, os.R_OK)))


def resolver() -> str:
    """The file that says whom to ask for addresses, where it is a link to something in /run; else nothing."""
    real = os.path.realpath("/etc/resolv.conf")
    return real if real.startswith("/run/") and os.path.exists(real) else ""


def within(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies in it. Both are whole and real."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def nearest(path: str, folders: Iterable[str]) -> str:
    """The innermost of these folders that holds the path; nothing where none does."""
    return max((folder for folder in folders if within(path, folder)), key=len, default="")


def check(box: Box) -> None:
    """Refuse a box that cannot be kept: paths that are not whole or not real, a folder that cannot be seen."""
    for kind in ("readable", "writable", "hidden", "protected"):
        for path in getattr(box, kind):
            if not path.startswith("/") or os.path.normpath(path) != path:
                raise NotAllowed(f"{path!r} cannot be {kind}: it is not a whole path. Name it from / on, without ..")
            if kind != "hidden" and (real := os.path.realpath(path)) != path:
                raise NotAllowed(
                    f"{path} cannot be {kind}: a symbolic link leads from it to {real}. "
                    f"Put a real file or folder there, or name {real} itself"
                )
    for path in box.writable:
        if not box.whole_disk and (path == "/" or path in ("/proc", "/sys", "/dev")):
            raise NotAllowed(f"{path} cannot be writable: that would be the whole machine. Name a folder of your own")
    if box.cwd in (PRIVATE_TMP, PRIVATE_HOME):
        return
    if os.path.realpath(box.cwd) != box.cwd:
        raise NotAllowed(f"{box.cwd} cannot be where a command works: it is not a real path. Name the real folder")
    if not os.path.isdir(box.cwd):
        raise FileNotFoundError(2, "No such file or directory", box.cwd)
    covered = nearest(box.cwd, (*homes(), *box.hidden, "/tmp", "/run")) if not box.whole_disk else ""
    seen = (*box.readable, *box.writable)
    if covered and len(nearest(box.cwd, seen)) < len(covered) and not any(within(path, box.cwd) for path in seen):
        raise NotAllowed(f"{box.cwd} cannot be where a command works: {covered} is hidden from it. Make it readable")
