"""Whether a backend works on this very machine, and if not, what a person can do about it.

Looks for the usual reasons first, since they have better words than a failed command; then really runs something.
"""

import asyncio
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from duragent.errors import DuragentError
from duragent.sandbox import Box, Limits, bwrap, make
from duragent.sandbox.landlock import version
from duragent.sandbox.seccomp import supported

_SECONDS = 20.0
_RESTRICTED = Path("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
_SWITCHES = (Path("/proc/sys/kernel/unprivileged_userns_clone"), Path("/proc/sys/user/max_user_namespaces"))


def why_not(name: str) -> str:
    """Nothing where it works."""
    if sys.platform != "linux":
        return "it needs Linux"
    if not supported():
        return f"the filter for system calls is not written for {platform.machine()} processors"
    reason = _known(name)
    if reason:
        return reason
    with ThreadPoolExecutor(1) as elsewhere:  # the caller may be in an event loop of its own
        return elsewhere.submit(asyncio.run, _try(name)).result()


async def _try(name: str) -> str:
    sandbox = make(name)
    box = Box(cwd="/", environment={"PATH": "/usr/local/bin:/usr/bin:/bin"}, limits=Limits(seconds=_SECONDS))
    try:
        ended = await sandbox.run(["true"], box)
    except (OSError, DuragentError) as error:
        return f"{error}{_hint(name, str(error))}"
    finally:
        await sandbox.close()
    if (ended.ending, ended.code) == ("exited", 0):
        return ""
    said = ended.output.decode("utf-8", "replace").strip()
    return f"a first command {ended.ending} with {ended.code}: {said}{_hint(name, said)}"


def _known(name: str) -> str:
    if name == "landlock" and version() == 0:
        return "this kernel has no Landlock; it needs Linux 5.13 or newer, with landlock among its security modules"
    if name == "bubblewrap" and not bwrap():
        return "bwrap is not installed. Try: apt install bubblewrap, or pip install 'duragent[sandbox]'"
    return ""


def _hint(name: str, said: str) -> str:
    """What usually keeps bwrap from making a box."""
    if name != "bubblewrap":
        return ""
    if "Unknown option" in said:
        return f". {bwrap()} is too old: it needs version 0.7. Remove it and try: pip install 'duragent[sandbox]'"
    if _is(_RESTRICTED, "1"):
        return (
            f". AppArmor keeps {bwrap()} from making user namespaces: install Ubuntu's own package bubblewrap with its "
            "profile, or allow them with `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
        )
    if any(_is(switch, "0") for switch in _SWITCHES):
        names = " and ".join(f"/{switch.relative_to('/')}" for switch in _SWITCHES if _is(switch, "0"))
        return f". User namespaces are switched off here: look at {names}"
    return ". bwrap needs user namespaces; inside a container they must be allowed from outside"


def _is(path: Path, value: str) -> bool:
    try:
        return path.read_text(encoding="utf-8").strip() == value
    except OSError:
        return False
