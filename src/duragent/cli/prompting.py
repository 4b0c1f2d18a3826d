"""The line a person types at: what was typed before, and which keys send it."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from duragent.config import Config

HISTORY = "chat_history"


class _History(FileHistory):
    """What was typed before, as far as the disk allows: a talk must not suffer from it. Keys are not kept."""

    def __init__(self, filename: str, redact: Callable[[str], str]) -> None:
        self._redact = redact
        super().__init__(filename)

    def load_history_strings(self) -> Iterable[str]:
        try:
            return list(super().load_history_strings())
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(self._redact(string))


def history(config: Config, redact: Callable[[str], str]) -> History:
    """What was typed in this workspace before. Only its owner may read it."""
    path = config.workspace / HISTORY
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return InMemoryHistory()
    return _History(str(path), redact)


def sending() -> KeyBindings:
    """Enter sends; Alt-Enter begins a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def send(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
