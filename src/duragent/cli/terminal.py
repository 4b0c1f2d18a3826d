"""A talk on a terminal: the prompt, the commands that begin with a slash, the questions that only a person answers.

Uses the runtime's verbs and shows what comes back on a `Screen`. Ctrl-C cancels the turn, Ctrl-D leaves and says
how to come back; a line typed while the agent works reaches it with its next step.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Always
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from duragent.agent import Agent
from duragent.cli import clean, count, plain
from duragent.cli.following import Follower, cancelling
from duragent.cli.opening import person
from duragent.cli.prompting import history, sending
from duragent.cli.running import ANSWERED, post
from duragent.cli.screen import Keys, Screen
from duragent.cli.sessions import Known, open_store, question, why_asked
from duragent.cli.telling import UNFINISHED, command_line, cost, has_price, line, spent, tokens, usd
from duragent.config import Config
from duragent.core.events import Decision, Entry, TurnStopped, UserMessage
from duragent.core.session import Message, Session
from duragent.errors import DuragentError
from duragent.runtime import Runtime

SHOWN_MESSAGES = 4
_STYLE = Style.from_dict({"bottom-toolbar": "noreverse fg:ansibrightblack", "prompt": "bold"})
_COMMAND = re.compile(r"/[a-z]+")
_CALL_WORDS = "[y] yes, once   [s] in this session   [a] always   [n] no, or n and why   then Enter"
_LIMIT_WORDS = "[y] go on   [n] stop   then Enter"
_DECISIONS: Mapping[str, Decision] = {
    "y": "allow_once",
    "yes": "allow_once",
    "s": "allow_session",
    "a": "allow_always",
    "always": "allow_always",
    "n": "deny",
    "no": "deny",
}


class _Stirred(Exception):
    """A message came that was not typed here, from a process or through another door."""

    def __init__(self, typed: str) -> None:
        super().__init__()
        self.typed = typed


class Chat:
    """One person, one agent, one session at a time. A session begins with its first message."""

    def __init__(
        self,
        config: Config,
        runtime: Runtime,
        agent: Agent,
        model: str,
        *,
        override: str | None = None,
        redact: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.config, self.runtime, self.agent, self.model = config, runtime, agent, model
        self.override = override
        self.session_id = ""
        self.session = Session()
        self.gone = self.unfinished = False
        self.screen = Screen(self.status)
        self.follower: Follower | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._prompt: PromptSession[str] = PromptSession(
            history=history(config, redact),
            key_bindings=sending(),
            multiline=True,
            prompt_continuation="  ",
            reserve_space_for_menu=0,
            bottom_toolbar=lambda: FormattedText([("", f" {self.status()} · /help · Ctrl-D leaves")]),
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if plain() else None,
        )
        self._prompt.layout.current_window.dont_extend_height = Always()  # the status line stays next to the prompt
        self._asking: PromptSession[str] = PromptSession(
            key_bindings=sending(), multiline=True, prompt_continuation="  ", style=_STYLE, erase_when_done=True
        )

    def status(self) -> str:
        return f"{clean(self.model)} · {spent(self.session.spent, priced=self._priced())}"

    def _priced(self) -> bool:
        return has_price(self.model, self.config.prices)

    async def run(self, known: Known | None, notes: list[str]) -> int:
        """Talk until the person leaves."""
        self._greet(notes)
        if known is not None:
            await self._come_back(known)
        while not self.gone:
            await self._hear(await self._ask())
        if self.follower is not None:
            await self.follower.stop()
        if self.unfinished:
            self.screen.print("The turn is not finished; it goes on when you come back.", "yellow")
        if self.session_id:
            self.screen.print(f"Come back with: {self._back()}", "dim", whole=True)
        return ANSWERED

    def _back(self) -> str:
        """The command that comes back to this session as it is."""
        return command_line("attach", self.session_id, *(("--model", self.override) if self.override else ()))

    def _greet(self, notes: list[str]) -> None:
        about = f"  {line(self.agent.description, 200)}" if self.agent.description else ""
        self.screen.print(f"{clean(self.agent.icon)} {clean(self.agent.title or self.agent.name)}{about}", "bold")
        for text in notes:
            self.screen.print(clean(text), "yellow")
        self.screen.print("")

    async def _come_back(self, known: Known) -> None:
        """Show where the talk was, and go on with what was left undone."""
        self._enter(known.session_id, known.session)
        said = [message for message in known.session.messages if message.content.strip()]
        if len(said) > SHOWN_MESSAGES:
            self.screen.print(f"({count(len(said) - SHOWN_MESSAGES, 'earlier message')})\n", "dim")
        cancelled = self._cancelled(said[-SHOWN_MESSAGES:])
        for message in said[-SHOWN_MESSAGES:]:
            self.screen.said(message.content) if message.role == "user" else self.screen.markdown(message.content)
            if message.seq in cancelled:
                self.screen.print("(cancelled)\n", "dim")
        if known.standing in UNFINISHED:
            self.screen.print(f"This session was {known.standing}; it goes on now.\n", "yellow")
            await self._turn(self._recover())
        elif known.session.waiting:
            await self._turn(self._recover())

    def _cancelled(self, shown: Sequence[Message]) -> set[int]:
        """Which of these messages are answers that were cut off."""
        first = shown[0].seq if shown else self.session.seq
        entries = open_store(self.config).entries(self.session_id, first - 1)
        return {e.seq for e in entries if isinstance(e.event, TurnStopped) and e.event.reason == "cancelled"}

    async def _recover(self) -> None:
        await self.runtime.recover([self.session_id])
        if self.session_id in self.runtime.problems:
            raise self.runtime.problems[self.session_id]

    def _enter(self, session_id: str, session: Session) -> None:
        self.session_id, self.session = session_id, session
        self.screen.know(call.call for call in session.open_calls.values())
        self.follower = Follower(self.runtime, session_id, self.screen, session.seq)

    async def _ask(self) -> str:
        """What the person types; nothing, where they leave. A turn that somebody else begins meanwhile is shown."""
        typed, self.screen.typed = self.screen.typed, ""
        if self.follower is not None:
            await self.follower.stop()  # what it would print now would stand in the middle of the line
        while True:
            stirring = asyncio.ensure_future(self._until_stirred()) if self.session_id else None
            try:
                text = await self._prompt.prompt_async("› ", default=typed)
            except _Stirred as stirred:
                typed = stirred.typed
                await self._turn(self._nothing())
                typed, self.screen.typed = typed + self.screen.typed, ""
                if self.gone:
                    return ""
                if self.follower is not None:
                    await self.follower.stop()
                continue
            except EOFError:
                self.gone = True
                return ""
            except KeyboardInterrupt:
                self.screen.print("Ctrl-D leaves; the session stays.", "dim")
                typed = ""
                continue
            finally:
                if stirring is not None:
                    stirring.cancel()
                    await asyncio.wait({stirring})
            self.screen.print("")
            return text

    async def _until_stirred(self) -> None:
        """Wait until a message comes that was not typed here, and leave the prompt for it."""
        seen = self.follower.seen if self.follower is not None else 0
        async with aclosing(self.runtime.follow(self.session_id, after=seen)) as items:
            async for item in items:
                if isinstance(item, Entry) and isinstance(item.event, UserMessage):
                    app = self._prompt.app
                    app.exit(exception=_Stirred(self._prompt.default_buffer.text))
                    return

    async def _hear(self, text: str) -> None:
        word = text.strip().partition(" ")[0]
        if not word:
            return
        if not _COMMAND.fullmatch(word) or text.startswith(" "):
            await self._say(text)
            return
        command = COMMANDS.get(word)
        if command is None:
            self.screen.print(f"There is no {word}; /help lists what there is. A space before it sends it.\n", "yellow")
            return
        await command[1](self)

    async def _say(self, text: str) -> None:
        if not self.session_id:
            try:
                session_id = await self.runtime.open_session(self.agent)
            except DuragentError as error:
                self._fail(error)
                return
            self._enter(session_id, Session())
        await self._turn(self._post(text))

    def _fail(self, error: DuragentError) -> None:
        self.screen.print(f"{clean(str(error), lines=True)}\n", "red")

    async def _post(self, text: str) -> None:
        await post(self.config, self.runtime, self.session_id, text)

    # A turn.

    async def _turn(self, begin: Coroutine[Any, Any, None]) -> None:
        """Let the agent work until it rests; what it asks on the way is put to the person."""
        try:
            await self._work(begin)
            while self.session.waiting and not self.gone:
                await self._decide(self.session.waiting[0])
        except DuragentError as error:
            self._fail(error)
        if self.follower is not None and self.follower.turn.model:
            self.model = self.follower.turn.model

    async def _work(self, begin: Coroutine[Any, Any, None]) -> None:
        """Do `begin`, and show the session until nothing runs any more, or the person leaves."""
        leaving = asyncio.Event()
        keys = Keys(self.screen, lambda text: self._steer(text, leaving.set), leaving.set)
        with self.screen.working(), keys.listening(), cancelling(self.runtime, self.session_id):
            working = asyncio.ensure_future(self._until_settled(begin))
            left = asyncio.ensure_future(leaving.wait())
            try:
                await asyncio.wait((working, left), return_when=asyncio.FIRST_COMPLETED)
                if not working.done():
                    self.gone = self.unfinished = True
            finally:
                left.cancel()
                working.cancel()
                await asyncio.wait((working,))
        if not self.gone:
            self.session = working.result()

    async def _until_settled(self, begin: Coroutine[Any, Any, None]) -> Session:
        assert self.follower is not None  # a turn has a session
        self.follower.start()
        await begin
        session = await self.follower.settled()
        while self._posts:  # a line that was typed at the last moment begins another turn
            await asyncio.wait(self._posts)
            session = await self.follower.settled()
        return session

    def _steer(self, text: str, leave: Callable[[], None]) -> None:
        """What is typed while the agent works reaches it with its next step; a command waits for the prompt."""
        word = text.strip()
        if word == "/exit":
            leave()
            return
        if word in COMMANDS:
            self.screen.print(f"{word} can be sent when the turn is over.", "dim")
            self.screen.typed = word
            return
        self.screen.said(text)
        task = asyncio.ensure_future(self._post(text))
        self._posts.add(task)
        task.add_done_callback(self._posted)

    def _posted(self, task: asyncio.Task[None]) -> None:
        self._posts.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.screen.print(clean(str(error)), "red")

    # What only a person decides.

    async def _decide(self, call_id: str) -> None:
        """Put a question to the person, and go on with what they say. Ctrl-C cancels the turn.

        Only a line of its own decides: whoever was writing a message when the question appeared goes on writing it.
        """
        began = self._typed_before()
        if self.gone or self._posts:
            await self._work(self._nothing())
            return
        about_call = call_id in self.session.open_calls
        self.screen.print("It asks to run:" if about_call else "It asks:", "bold yellow")
        self.screen.quoted(question(self.session, call_id))
        if why := why_asked(self.session, call_id):
            self.screen.print(f"  ({why})", "dim")
        words = _CALL_WORDS if about_call else _LIMIT_WORDS
        try:
            text = await self._asking.prompt_async(f"{words}\n› ", default=began)
        except EOFError:
            self.gone = True
            return
        except KeyboardInterrupt:
            await self._work(self._cancel())
            return
        word, _, reason = text.strip().partition(" ")
        decision = _DECISIONS.get(word.lower())
        if reason and decision != "deny":
            decision, reason = None, ""  # a message that happens to begin with such a word
        if not text.strip() or (decision in ("allow_session", "allow_always") and not about_call):
            return  # it is asked again
        if decision is not None and not began.strip():
            self.screen.print(f"{words}: {text.strip()}\n", "dim")
            await self._work(self._decided(call_id, decision, reason.strip() or None))
        elif text.strip() in COMMANDS:
            await COMMANDS[text.strip()][1](self)
        else:
            self.screen.said(text)
            await self._work(self._post(text))

    def _typed_before(self) -> str:
        """What was typed before the question could be read: it is a message, or the beginning of one."""
        keys = Keys(self.screen, lambda text: self._steer(text, self._leave_now), self._leave_now)
        keys.drain()
        typed, self.screen.typed = self.screen.typed, ""
        return typed

    def _leave_now(self) -> None:
        self.gone = True

    async def _nothing(self) -> None:
        """What was sent meanwhile is on its way already."""

    async def _cancel(self) -> None:
        await self.runtime.cancel(self.session_id)

    async def _decided(self, call_id: str, decision: Decision, reason: str | None) -> None:
        call = self.session.open_calls.get(call_id)
        digest = call.digest if call else None
        await self.runtime.decide(self.session_id, call_id, decision, digest=digest, by=person(), reason=reason)

    # Commands.

    async def show_help(self) -> None:
        for name, (about, _) in COMMANDS.items():
            self.screen.print(f"  {name:<8} {about}")
        self.screen.print("  Enter sends, Alt-Enter begins a new line, Ctrl-C cancels, Ctrl-D leaves.\n", "dim")

    async def show_status(self) -> None:
        rows = {
            "session": self.session_id or "begins with your first message",
            "agent": clean(self.agent.name),
            "model": clean(self.model),
            "size": f"{count(len(self.session.messages), 'message')}, {count(self.session.seq, 'event')}",
            "used": spent(self.session.spent, priced=self._priced()),
        }
        for name, value in rows.items():
            self.screen.print(f"  {name:<8} {value}")
        self.screen.print("")

    async def show_cost(self) -> None:
        used = self.session.spent
        self.screen.print(
            f"  shown    {tokens(used.prompt_tokens)} tokens, {tokens(used.cached_tokens)} of them cached"
        )
        self.screen.print(f"  said     {tokens(used.completion_tokens)} tokens")
        self.screen.print(f"  asked    {count(used.model_calls, 'time')}")
        money = "price unknown" if cost(used, priced=self._priced()) is None else usd(used.usd)
        aside = f", {usd(used.reserved_usd)} set aside" if used.reserved_usd else ""
        self.screen.print(f"  cost     {money}{aside}")
        self.screen.print("")

    async def reset(self) -> None:
        """Begin anew; what was said stays where it is."""
        if self.follower is not None:
            await self.follower.stop()
        if self.session_id:
            self.screen.print(f"A new session. The old one stays: {self._back()}\n", "dim", whole=True)
        self.session_id, self.session, self.follower = "", Session(), None

    async def leave(self) -> None:
        self.gone = True


COMMANDS: Mapping[str, tuple[str, Callable[[Chat], Awaitable[None]]]] = {
    "/help": ("this list", Chat.show_help),
    "/status": ("session, agent, model, what was used", Chat.show_status),
    "/cost": ("tokens and money of this session", Chat.show_cost),
    "/reset": ("begin a new session", Chat.reset),
    "/exit": ("leave; the session stays", Chat.leave),
}
