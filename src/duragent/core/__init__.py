"""Decisions: pure functions over values. No clock, disk, network or chance in here.

What is heavy to load and seldom needed is loaded here by its name: a grammar for shell lines, a validator for JSON.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def load_shell() -> Callable[[str], Any]:
    """The reader of shell lines: a line in, a `lines.Line` out."""
    read: Callable[[str], Any] = import_module("duragent.core.shell").read
    return read


def load_arguments() -> Any:
    """The class that checks arguments against one schema: `Checked(schema).faults(arguments)`."""
    return import_module("duragent.core.arguments").Checked
