"""No sandbox: limits, an environment, and an end for everything that was started. It keeps nothing in.

For owners who trust an agent with all they have (`sandbox.mode: trust`), and for what they start by themselves.
"""

from collections.abc import Sequence

from duragent.sandbox import Box
from duragent.sandbox.keeper import Order, rlimits
from duragent.sandbox.running import Plain, Runner, moved, private_folder


class NoSandbox(Runner):
    name = "none"
    keeps = False

    async def prepare(self, argv: Sequence[str], box: Box) -> Plain:
        folder = private_folder()
        cwd, environment = moved(box, folder)
        return Plain(Order(argv, cwd, environment, rlimits(box.limits), box.limits.processes, private=folder))
