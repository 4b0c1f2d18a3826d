"""The terminal while an agent works: words as they are spoken, calls as they happen, one status line below.

Finished paragraphs are rendered once and scroll away; only the unfinished end is drawn again and again, so nothing
flickers. Everything a model, a tool or a person said is stripped of control characters before it is rendered.
Knows how things look, not what they mean for the session.
"""

import asyncio
import codecs
import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.markdown import Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.segment import Segment
from rich.text import Text

from duragent.cli import clean, count, plain
from duragent.cli.telling import called, line
from duragent.core import events as ev

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
REFRESH_SECONDS = 0.08
OUTPUT_LINES = 4
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_MARKS = {"ok": ("✓", "green"), "error": ("✗", "red"), "refused": ("✗", "yellow"), "interrupted": ("?", "yellow")}


def finished(text: str) -> int:
    """How many characters from the start are whole paragraphs: up to the last empty line outside of a code block."""
    return _scan(text)[0]


def _scan(text: str) -> tuple[int, str]:
    """Where the last whole paragraph ends, and the line that began the code block in which the text stops."""
    end = place = 0
    fence = opening = ""
    for each in text.splitlines(keepends=True):
        place += len(each)
        mark = _FENCE.match(each)
        if mark and not fence:
            fence, opening = mark[1], each
        elif mark and fence and mark[1].startswith(fence) and not each.strip().strip(fence[0]):
            fence = ""
        elif not fence and not each.strip() and each.endswith("\n"):
            end = place
    return end, opening if fence else ""


def ending(text: str, lines: int) -> str:
    """The last lines of a text, still in the code block they are in: a long one costs no more than a short one."""
    last = text.splitlines(keepends=True)
    return text if len(last) <= lines else _scan(text)[1] + "".join(last[-lines:])


class _Heading(Heading):
    """A heading at the left, where the eye is."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Markdown(Markdown):
    """What looks like HTML is text, links show where they lead, and what entities stand for is cleaned as all else."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _Heading}

    def __init__(self, markup: str) -> None:
        super().__init__("", hyperlinks=False)
        parser = MarkdownIt().enable(["strikethrough", "table"]).disable(["html_block", "html_inline"])
        self.parsed = parser.parse(markup)
        _clean_tokens(self.parsed)


def _clean_tokens(tokens: Iterable[Token]) -> None:
    for token in tokens:
        token.content = clean(token.content, lines=True)
        token.attrs = {name: clean(each) if isinstance(each, str) else each for name, each in token.attrs.items()}
        _clean_tokens(token.children or ())


class Words:
    """What somebody said, rendered: no empty lines around it, and only the last `room` lines where that is set."""

    def __init__(self, text: str, room: int | None = None) -> None:
        self.text, self.room = text, room

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(_Markdown(self.text.strip()), options, pad=False)
        said = [index for index, each in enumerate(lines) if any(part.text.strip() for part in each)]
        kept = lines[said[0] : said[-1] + 1] if said else []
        for each in kept[-self.room :] if self.room else kept:
            yield from each
            yield Segment.line()
        if not self.room:
            yield Segment.line()


class Screen:
    """Shows one session. `status` gives the words for the status line."""

    def __init__(self, status: Callable[[], str]) -> None:
        self.console = Console(highlight=False, no_color=plain() or None)
        self.status = status
        self.typed = ""
        self._pieces: list[str] = []
        self._text = ""
        self._calls: dict[str, ev.ToolCall] = {}
        self._running: dict[str, str] = {}
        self._printed: dict[str, str] = {}  # the end of what running tools have printed
        self._unheard: list[int] = []  # messages that no model call has taken along yet
        self._live: Live | None = None
        self._since = 0.0
        self._spoke = False
        self._listing = False  # the last thing printed was a call

    # What is printed once.

    def print(self, text: str, style: str = "", *, whole: bool = False) -> None:
        """A line of ours. Strangers' words in it must be cleaned already. `whole`: it can be copied in one piece."""
        self._apart()
        self.console.print(Text(text, style=style), soft_wrap=whole)

    def markdown(self, text: str) -> None:
        self.console.print(Words(clean(text, lines=True)), end="")

    def said(self, text: str) -> None:
        """What the person said, where the prompt did not show it."""
        self.console.print(Text(f"› {clean(text.strip(), lines=True)}\n", style="bold"))

    def quoted(self, text: str) -> None:
        """What a person is asked about, word for word and whole."""
        self._apart()
        self.console.print(Padding(Text(clean(text, lines=True)), (0, 0, 0, 2)))

    def _apart(self) -> None:
        """An empty line between what was done and what is said about it."""
        if self._listing:
            self.console.print()
        self._listing = False

    def know(self, calls: Iterable[ev.ToolCall]) -> None:
        """Calls that were made before anybody looked on; their results are still to come."""
        self._calls |= {call.call_id: call for call in calls}

    # What a follower tells.

    def entry(self, entry: ev.Entry) -> None:
        event = entry.event
        if isinstance(event, ev.AssistantResponse):
            self._finish(event.content)
            self.know(event.tool_calls)
            if not event.content.strip() and not event.tool_calls:
                self.print("(an empty answer)\n", "dim")
        elif isinstance(event, ev.UserMessage):
            self._unheard.append(entry.seq)
            if event.automatic:
                self.print(f"({line(event.content, 200)})\n", "dim")
        elif isinstance(event, ev.ToolStarted):
            self._running[event.call_id] = entry.timestamp
        elif isinstance(event, ev.ToolResult):
            self._result(event, entry.timestamp)
        elif isinstance(event, ev.ModelCalled):
            self._unheard.clear()
            if event.after:
                self.print(f"{clean(event.model)} is asked now: {line(event.after, 300)}", "yellow")
        elif isinstance(event, ev.TurnStopped):
            self._stopped(event)
        elif isinstance(event, ev.ErrorNoted):
            self.print(line(event.message, 500), "yellow")

    def _stopped(self, event: ev.TurnStopped) -> None:
        """Say why a turn is over, and what it left: calls in the middle, messages that nobody has heard."""
        self._finish("")
        cut, self._running = self._running, {}
        for call_id in cut:
            call = self._calls.get(call_id)
            shown = called(call, max(20, self.console.width - 60)) if call else clean(call_id)
            self.print(f"? {shown} was cut off; what it did until then is not known.", "yellow")
        missed = [seq for seq in self._unheard if not event.until or seq <= event.until]
        self._unheard = [seq for seq in self._unheard if seq not in missed]
        self.print(line(event.message, 2000), "yellow" if event.reason == "cancelled" else "red")
        if event.reason == "cancelled" and missed:
            self.print(f"{count(len(missed), 'message')} had not reached the model and got no answer.", "yellow")
        self.print("")

    def delta(self, text: str) -> None:
        self._pieces.append(text)

    def output(self, call_id: str, text: str) -> None:
        self._printed[call_id] = (self._printed.get(call_id, "") + text)[-2000:]

    def forget(self, why: str) -> None:
        self._pieces.clear()
        if self._spoke or self._text:
            self.print(f"(that broke off: {line(why, 200)}; once more)", "dim")
        self._text, self._spoke = "", False

    def _result(self, event: ev.ToolResult, at: str) -> None:
        call = self._calls.get(event.call_id)
        self._printed.pop(event.call_id, None)
        began, ended = ev.moment(self._running.pop(event.call_id, "")), ev.moment(at)
        seconds = f"  {(ended - began).total_seconds():.1f} s" if began and ended else ""
        mark, colour = _MARKS.get(event.outcome, ("–", "dim"))
        if event.outcome == "ok" and not event.result.success:
            mark, colour = "✗", "red"
        shown = called(call, max(20, self.console.width - 30)) if call else clean(event.call_id)
        text = Text.assemble((f"{mark} ", colour), (shown, "cyan"), (seconds, "dim"))
        self.console.print(text)
        if event.outcome != "ok" or not event.result.success:
            why = line(event.result.content, max(40, self.console.width * 2 - 10))
            self.console.print(Padding(Text(why, style="dim"), (0, 0, 0, 2)))
        self._listing = True

    def _finish(self, content: str) -> None:
        """The answer is complete: render what is left of it."""
        self._gather()
        if self._spoke or self._text.strip():
            self._commit(len(self._text))
        elif content.strip():
            self._text = clean(content, lines=True)
            self._commit(len(self._text))
        self._text, self._spoke = "", False
        self._draw()

    def _gather(self) -> None:
        if self._pieces:
            self._text += clean("".join(self._pieces), lines=True)
            self._pieces.clear()

    def _commit(self, end: int) -> None:
        ready, self._text = self._text[:end], self._text[end:]
        if ready.strip():
            self._spoke = True
            self._apart()
            self.console.print(Words(ready), end="")

    # What is drawn again and again.

    @contextmanager
    def working(self) -> Iterator[None]:
        """While this lasts a turn runs: the end of what is said and the status line are kept up to date."""
        self._since = time.monotonic()
        with Live(console=self.console, auto_refresh=False, transient=True, redirect_stderr=False) as self._live:
            ticking = asyncio.ensure_future(self._tick())
            try:
                yield
            finally:
                ticking.cancel()
                self._live = None
        if ticking.done() and not ticking.cancelled():
            ticking.result()

    async def _tick(self) -> None:
        while True:
            self._gather()
            if (end := finished(self._text)) > 0:
                self._commit(end)
            self._draw()
            await asyncio.sleep(REFRESH_SECONDS)

    def _draw(self) -> None:
        if self._live is None:
            return
        seconds = time.monotonic() - self._since
        frame = FRAMES[int(seconds / REFRESH_SECONDS) % len(FRAMES)]
        parts: list[Words | Text] = []
        if self._text.strip():
            room = max(3, self.console.height - 4)
            parts.append(Words(ending(self._text, 2 * room), room))
        for call_id in self._running:
            call = self._calls.get(call_id)
            shown = called(call, max(20, self.console.width - 20)) if call else clean(call_id)
            parts.append(Text.assemble((f"{frame} ", "cyan"), (shown, "cyan")))
            last = clean(self._printed.get(call_id, ""), lines=True).rstrip("\n").split("\n")[-OUTPUT_LINES:]
            if any(last):
                text = "\n".join(f"  {each}" for each in last)
                parts.append(Text(text, style="dim", overflow="ellipsis", no_wrap=True))
        if self.typed:
            parts.append(Text(f"› {clean(self.typed)}", style="bold", overflow="ellipsis", no_wrap=True))
        words = f"{frame} {seconds:.0f} s · {self.status()} · Ctrl-C cancels"
        parts.append(Text(words, style="dim", overflow="ellipsis", no_wrap=True))
        self._live.update(Group(*parts), refresh=True)


class Keys:
    """What is typed while a turn runs. A whole line is handed to `sent`; Ctrl-D calls `left`."""

    def __init__(self, screen: Screen, sent: Callable[[str], None], left: Callable[[], None]) -> None:
        self.screen, self.sent, self.left = screen, sent, left
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @contextmanager
    def listening(self) -> Iterator[None]:
        """While this lasts nothing is echoed by the terminal, and Ctrl-C is still a signal."""
        fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSADRAIN)
        loop.add_reader(fd, self._read, fd)
        try:
            yield
        finally:
            loop.remove_reader(fd)
            termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def drain(self) -> None:
        """Take what was typed up to now."""
        fd = sys.stdin.fileno()
        before = termios.tcgetattr(fd)
        tty.setcbreak(fd, termios.TCSADRAIN)
        try:
            while select.select([fd], [], [], 0)[0] and self._read(fd):
                pass
        finally:
            termios.tcsetattr(fd, termios.TCSADRAIN, before)

    def _read(self, fd: int) -> bool:
        try:
            data = os.read(fd, 4096)
        except (BlockingIOError, InterruptedError):
            return False
        text = self._decoder.decode(data) if data else "\x04"
        for each in re.sub(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.|.)?", "", text):
            self._key(each)
        return bool(data)

    def _key(self, key: str) -> None:
        screen = self.screen
        if key in "\r\n":
            typed, screen.typed = screen.typed, ""
            if typed.strip():
                self.sent(typed)
        elif key == "\x04":
            self.left()
        elif key in "\x7f\x08":
            screen.typed = screen.typed[:-1]
        elif key == "\x15":
            screen.typed = ""
        elif key.isprintable():
            screen.typed += key
