"""What programs print, made fit for a model, a log and a terminal: bounded, decoded, without escapes or secrets.

Knows bytes and texts. Does not know which program printed them or who reads. Every tool that hands on the output of a
program uses `answer` for the whole of it and `Stream` for what is heard while it runs. Escapes are taken out before
secrets are looked for, so that a secret cannot hide behind one.
"""

import codecs
import copy
import re
import signal
from collections.abc import Callable

from duragent.core.events import ToolAnswer
from duragent.sandbox import Ended
from duragent.tools.host import Redacting

MAX_BYTES = 262_144
"""The most that one result holds, its closing line included."""
ROOM = MAX_BYTES - 1_024
HELD_CHARS = 4_096
"""How much of a line without an end is held back: an escape or a secret that is cut in two is not recognised."""

_SEQUENCES = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    "|(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\\\|\x9c)"  # OSC, DCS and their like: titles
    "|\x9b[0-?]*[ -/]*[@-~]"
    "|\x1b[ -/]*[0-~]"
)
_RETURNS = re.compile("\r+\n?|[\x85\u2028\u2029]")
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"
    "\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_ODD = re.compile("[^\t\n\x20-\x7e\xa0-\u0600]")


def plain(text: str) -> str:
    """A text without terminal escapes, control, direction and invisible characters; lines end with a newline."""
    if not _ODD.search(text):
        return text
    return _INVISIBLE.sub("", _RETURNS.sub("\n", _SEQUENCES.sub("", text)))


def decoded(output: bytes) -> str:
    return plain(output.decode("utf-8", "replace"))


def shortened(text: str, limit: int = MAX_BYTES, left_out: int = 0, at: int | None = None) -> str:
    """A text of at most about `limit` bytes: its head and its tail, and between them how many bytes are missing.

    `left_out` bytes are missing already, at the position `at`.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= limit and not left_out:
        return text
    border = len(data) // 2 if at is None else len(text[:at].encode("utf-8", "replace"))
    head, tail = data[:border], data[border:]
    half = limit // 2
    head = head[: max(half, limit - len(tail))]
    tail = tail[-max(limit - len(head), 0) :] if len(tail) > limit - len(head) else tail
    missing = left_out + len(data) - len(head) - len(tail)
    before, after = head.decode("utf-8", "ignore"), tail.decode("utf-8", "ignore")
    return f"{before}{'' if not before or before.endswith(chr(10)) else chr(10)}[{missing:,} bytes left out]\n{after}"


def told(output: bytes, size: int, kept_bytes: int, redact: Callable[[str], str], limit: int = ROOM) -> str:
    """The output of a program, of which a sandbox kept `kept_bytes`, half from each end."""
    if size <= len(output):
        return shortened(redact(decoded(output)), limit)
    half = kept_bytes - kept_bytes // 2
    head, tail = _back_to_line(output[:half]), _on_to_line(output[half:])
    before, after = redact(decoded(head)), redact(decoded(tail))
    return shortened(before + after, limit, size - len(head) - len(tail), len(before))


def answer(ended: Ended, kept_bytes: int, redact: Callable[[str], str], name: str, seconds: float) -> ToolAnswer:
    """How a program ended and what it printed, as the result of a call."""
    text = told(ended.output, ended.size, kept_bytes, redact)
    line = ending_line(ended, name, seconds)
    if not line:
        return ToolAnswer(True, text or f"{name} printed nothing and ended with exit code 0.")
    return ToolAnswer(False, f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}")


def ending_line(ended: Ended, name: str, seconds: float) -> str:
    """What is to be said about the end of a program; nothing where all went well."""
    match ended.ending:
        case "timeout":
            return f"[{name} took longer than {seconds:g} s and was ended with everything it had started]"
        case "processes":
            return f"[{name} started too many processes and was ended with all of them]"
        case "signalled":
            return f"[{name} was ended by signal {ended.code} ({signal_name(ended.code)})]"
        case "exited":
            return f"[{name} ended with exit code {ended.code}]" if ended.code else ""


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


class Stream:
    """Output as it comes, in whole lines; of a line without an end, all but the last part. What may be the beginning
    of a secret waits for what follows, also over the ends of lines: that is `redacting`."""

    def __init__(self, redacting: Redacting, say: Callable[[str], None]) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._redacting, self._say, self._rest = redacting, say, ""

    def feed(self, data: bytes, last: bool = False) -> None:
        self._rest += self._decode(data, last)
        # A return alone ends a line, too (progress bars), unless a newline may follow it.
        ends = max(self._rest.rfind("\n"), self._rest.rfind("\r", 0, -1))
        border = len(self._rest) if last else ends + 1
        if len(self._rest) - border > 2 * HELD_CHARS:
            border = len(self._rest) - HELD_CHARS
            escape = self._rest.rfind("\x1b", border - HELD_CHARS, border)
            border = escape if escape >= 0 else border  # the cut is not within an escape
        ready, self._rest = self._rest[:border], self._rest[border:]
        clean = self._redacting.feed(plain(ready)) if ready else ""
        if last:
            clean += self._redacting.end()
        if clean:
            self._say(clean)

    def end(self) -> None:
        self.feed(b"", last=True)

    @property
    def waiting(self) -> str:
        """What has come and is not said yet, but for what may be the beginning of a secret."""
        return copy.copy(self._redacting).feed(plain(self._rest))  # a copy: the line itself is yet to be fed


def _back_to_line(head: bytes) -> bytes:
    at = head.rfind(b"\n", max(len(head) - HELD_CHARS, 0))
    return head[: at + 1] if at >= 0 else head[:-HELD_CHARS]


def _on_to_line(tail: bytes) -> bytes:
    at = tail.find(b"\n", 0, HELD_CHARS)
    return tail[at + 1 :] if at >= 0 else tail[HELD_CHARS:]
