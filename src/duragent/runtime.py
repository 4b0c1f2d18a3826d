"""The few verbs every door uses: open_session, post, decide, cancel, follow, recover.

HTTP, chats, schedules and the terminal call these and nothing below them. A session lives in memory while it works
or is followed; when it has rested for a while it leaves, and the next message brings it back. `post` and `decide`
return once their event is on disk. Nobody who listens can slow a session down.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from duragent.agent import Agent
from duragent.core import events as ev
from duragent.core.session import Session
from duragent.core.turn import Wait
from duragent.engine import NOWHERE, Actor, Place
from duragent.errors import Conflict, DuragentError, NotAllowed, NotFound
from duragent.following import Delta, Follower, Forget, Gap, Item, Lagged, Output, Settled
from duragent.living import Live, Lives, Settings, new_id
from duragent.models import Model
from duragent.models.chosen import Chosen
from duragent.models.prices import Price, find_price, read_price
from duragent.store.files import FileStore
from duragent.tools import NO_TOOLS, Tool, Toolbox, build_toolbox
from duragent.working import Worker

__all__ = ["Delta", "Forget", "Gap", "Item", "Lagged", "Output", "Runtime", "Settings", "Settled"]

Agents = Callable[[str, str], Agent]
Models = Callable[[Agent], Awaitable[Sequence[Model]]] | Sequence[Model]
Tools = Callable[[Agent], Toolbox] | Mapping[str, Tool | Callable[..., Awaitable[Any]]]
_DEFAULT = Settings()


class Runtime:
    """Sessions of any number of agents in one folder. Use it as `async with Runtime(…) as runtime`.

    Without `models` each agent gets what it names and this machine has, as the command line would choose."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        agents: Agents | Sequence[Agent] | Agent,
        models: Models | None = None,
        tools: Tools = NO_TOOLS,
        place: Callable[[Agent], Place] = lambda agent: NOWHERE,
        settings: Settings = _DEFAULT,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings, self.clock = settings, clock
        self.store = FileStore(folder, address=settings.address)
        self.problems: dict[str, DuragentError] = {}
        self._agents = agents if callable(agents) else _listed([agents] if isinstance(agents, Agent) else agents)
        self._chosen = Chosen(os.environ) if models is None else None
        self._models: Models = self._chosen if self._chosen is not None else models or ()
        self._tools, self._place = tools, place
        self._given = NO_TOOLS if callable(tools) else build_toolbox(tools)
        for name, said in settings.prices.items():
            read_price(name, said)  # a price that is none is told now, not in the middle of a turn
        self._actors: dict[tuple[str, str], Actor] = {}
        self._opened: dict[int, Model] = {}  # also those of agents that have changed since: sessions may still use them
        self._lives = Lives(self.store, settings, clock, self._cast)
        self._worker = Worker(self._lives, clock)

    async def __aenter__(self) -> "Runtime":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # The verbs.

    async def open_session(
        self, agent: Agent, *, gateway: str | None = None, gateway_chat_id: str | None = None
    ) -> str:
        """Begin a session. Returns its id once its first entry is on disk."""
        start = ev.SessionStart(
            agent.name,
            agent.session.on_disconnect,
            agent.source.fingerprint,
            os.path.abspath(agent.source.path) if agent.source.path else "",
            gateway,
            gateway_chat_id,
            version=ev.LOG_VERSION,
        )
        return (await self._lives.create(await self._actor(agent), start)).id

    async def post(self, session_id: str, message: str | ev.UserMessage | ev.SilentMessage) -> int:
        """Say something. Returns its place in the log once it is on disk; 0 for a message that came before."""
        event = ev.UserMessage(message) if isinstance(message, str) else message
        live = await self._renewed(session_id)
        if isinstance(event, ev.UserMessage) and event.message_id and event.message_id in live.session.seen:
            await live.log.flush()  # the first one may still be on its way
            return 0
        if live.session.ended:
            where = f"fork it at entry {live.session.seq - 1}"
            raise Conflict(f"{session_id} has ended. Begin a new session, or go on from a copy: {where}.")
        return await self._worker.say(live, event)

    async def decide(
        self,
        session_id: str,
        call_id: str,
        decision: ev.Decision,
        *,
        digest: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> int:
        """Answer what a session asked. Only what really waits can be decided, and only once; about a call, only by
        whoever has seen what is asked, which the `digest` shows."""
        if decision not in get_args(ev.Decision):
            raise NotAllowed(f"{decision!r} is no decision; there are {', '.join(get_args(ev.Decision))}.")
        live = await self._renewed(session_id)
        if call_id not in live.session.waiting:
            raise Conflict(f"{session_id} does not wait for a decision about {call_id!r}: it was made, or never asked.")
        call = live.session.open_calls.get(call_id)
        if call is not None and (digest or "") != call.digest:
            what = "for other arguments than those that wait" if digest else "without the digest of what was asked"
            raise Conflict(f"The decision about {call_id!r} is {what}.")
        if not isinstance(live.work.next(), Wait):
            self._worker.wake(live)
            raise Conflict(f"Nobody answered {call_id!r} in time: it counts as refused.")
        if call is not None and decision == "allow_always":
            await self._always(live, call.call)
            if call_id not in live.session.waiting:  # somebody else was quicker
                raise Conflict(f"{session_id} no longer waits for a decision about {call_id!r}.")
        return await self._worker.say(live, ev.ApprovalDecision(call_id, decision, by, reason))

    async def _always(self, live: Live, call: ev.ToolCall) -> None:
        """Keep the rule that allows exactly this call, before anything counts as decided."""
        actor = live.work.actor
        spec, remember = actor.specs.get(call.tool_name), actor.place.remember
        if spec is None or remember is None:
            return
        rule = actor.judge.exact(spec, call)
        if actor.place.redact is not None and actor.place.redact(rule) != rule:
            raise NotAllowed("This call holds a secret, which no rule may: allow it once, or for this session.")
        origin = await asyncio.to_thread(remember, rule)
        newest = self._actors.get((actor.agent.name, actor.agent.source.path), actor)
        for each in {actor, newest}:  # its files may have been read again meanwhile
            each.judge.allow(rule, origin)

    async def cancel(self, session_id: str) -> bool:
        """Stop the turn that runs or waits. False where there is none."""
        live = await self._lives.open(session_id)
        if (task := live.task) is not None:
            live.cancelling, live.until = True, live.session.wanted_seq
            task.cancel()
            await self._worker.over(live, task)
            if not live.cancelling:
                return True
            live.cancelling = False  # it had not even begun, so it could not write anything down
        if not live.session.owes_answer:
            return False
        live.until = live.session.wanted_seq
        await self._worker.say(live, self._worker.cancelled(live))
        return True

    async def follow(self, session_id: str, after: int = 0) -> AsyncGenerator[Item, None]:
        """Stored entries after `after`, then live ones and what is being said.

        Ends with `Lagged`, or when the session is no longer here: it was deleted, or the runtime closes.
        """
        live = await self._lives.open(session_id)
        while live.held:  # what is held back now must not be heard twice
            await live.log.flush()
            live = await self._lives.open(session_id)
        follower = Follower(self.settings.follower_buffer)
        live.followers.append(follower)
        stored_until, last, spoken = live.published, after, live.spoken
        try:
            await self._attend(live)
            for entry in await self._stored(session_id, after, stored_until):
                if entry.seq > last + 1:
                    yield Gap(last, entry.seq)
                last = entry.seq
                yield entry
            if spoken:
                follower.lead(Delta(spoken))
            if live.task is None:
                follower.put(Settled(live.session.seq, live.session.waiting))
            while items := await follower.take():
                for item in items:
                    if isinstance(item, ev.Entry):
                        if item.seq <= last:
                            continue
                        last = item.seq
                    yield item
            if follower.lagged:
                yield Lagged(last)
            elif live.failure is not None:
                raise live.failure
        finally:
            self._leave(live, follower)

    async def recover(self, session_ids: Sequence[str] | None = None) -> list[str]:
        """Carry on what a process that ended has left undone; end what has been idle for too long.

        Gives the sessions that had something to do. One that cannot be opened is left alone and named in `problems`;
        one that was paused goes on only if it is named.
        """
        carried = []
        for session_id in self.store.ids() if session_ids is None else session_ids:
            self.problems.pop(session_id, None)
            try:
                if await self._carry_on(session_id, named=session_ids is not None):
                    carried.append(session_id)
            except DuragentError as error:
                self.problems[session_id] = error
            except Exception as error:  # noqa: BLE001 - one session's fate must not be that of all
                self.problems[session_id] = DuragentError(f"{session_id}: {type(error).__name__}: {error}")
        return carried

    # What doors ask beside the verbs.

    async def settled(self, session_id: str) -> Session:
        """Wait until nothing runs: the session rests, or waits for a person."""
        live = await self._lives.open(session_id)
        await self._worker.done(live)
        if live.failure is not None:
            raise live.failure
        return live.session

    async def session(self, session_id: str) -> Session:
        """The state of a session, without holding it if it is not held."""
        live = self._lives.get(session_id)
        return live.session if live else (await asyncio.to_thread(self.store.read, session_id)).session

    async def end(
        self, session_id: str, reason: Literal["completed", "terminated", "timeout", "error"] = "completed"
    ) -> None:
        """Close a session for good. Its files stay."""
        live = await self._lives.open(session_id)
        await self._worker.halt(live)
        if not live.session.ended:
            await self._worker.say(live, ev.SessionEnd(reason))

    async def fork(self, session_id: str, seq: int) -> str:
        """A new session that begins with the first `seq` entries of this one."""
        forked = new_id(self.clock())
        await asyncio.to_thread(self.store.fork, session_id, seq, forked)
        if self._expired((await asyncio.to_thread(self.store.read, forked)).session):
            await self._lives.renew(forked)
        return forked

    async def delete(self, session_id: str) -> None:
        """Take a session and its files away."""
        live = self._lives.get(session_id)
        if live is not None:
            await self._worker.halt(live)
            await self._lives.release(live, snapshot=False)
        await asyncio.to_thread(self.store.delete, session_id)

    async def sweep(self, idle_seconds: float = 0.0) -> None:
        """Let every session leave memory that nobody follows and that has rested for so long."""
        await self._lives.sweep(idle_seconds)

    async def close(self) -> None:
        """Let go of everything. Turns that run are left as they are: `recover` carries them on."""
        self._lives.stop_opening()
        for live in self._lives.all():
            await self._worker.halt(live)
        await self._lives.close()
        opened, self._opened = self._opened, {}
        self._actors.clear()
        if self._chosen is not None:
            await self._chosen.close()
        self.store.close()
        for model in opened.values():
            await model.close()

    # Who acts.

    async def _cast(self, session: Session) -> Actor:
        return await self._actor(self._agents(session.agent, session.source))

    async def _actor(self, agent: Agent) -> Actor:
        key = (agent.name, agent.source.path)
        actor = self._actors.get(key)
        tools = self._tools(agent) if callable(self._tools) else self._given
        if actor is None or actor.tools is not tools or (actor.agent is not agent and actor.agent != agent):
            models = await self._models(agent) if callable(self._models) else self._models
            self._opened |= {id(model): model for model in models}
            place = self._place(agent)
            actor = self._actors[key] = Actor(agent, tuple(models), tools, self._price, self.settings.known, place)
        return actor

    async def _renewed(self, session_id: str) -> Live:
        """The session, with its agent as its files say now: a rule that the owner has added holds from here on."""
        live = await self._lives.open(session_id)
        if not live.session.ended:
            live.work.actor = await self._cast(live.session)
        return live

    async def reload(self, agent: Agent) -> None:
        """Have every session of this agent act as its files say now."""
        key = (agent.name, agent.source.path)
        self._actors.pop(key, None)
        fresh = await self._actor(self._agents(agent.name, agent.source.path))
        for live in self._lives.all():
            if (live.work.actor.agent.name, live.work.actor.agent.source.path) == key:
                live.work.actor = fresh

    async def siblings(
        self, agent: str, gateway: str | None = None, chat_id: str | None = None, most: int = 10
    ) -> list[tuple[str, Session]]:
        """The newest sessions of an agent in one place (a chat, or none) that have not ended."""
        return await asyncio.to_thread(self._siblings, (agent, gateway, chat_id), most)

    def _siblings(self, place: tuple[str, str | None, str | None], most: int) -> list[tuple[str, Session]]:
        found: list[tuple[str, Session]] = []
        for session_id in reversed(self.store.ids()):
            live = self._lives.get(session_id)
            with suppress(DuragentError):
                session = live.session if live else self.store.read(session_id).session
                if (session.agent, session.gateway, session.gateway_chat_id) == place and not session.ended:
                    found.append((session_id, session))
            if len(found) == most:
                break
        return found

    def _price(self, model: str) -> Price | None:
        provider, _, name = model.partition("/")
        return find_price(provider, name, self.settings.prices)

    # Followers come and go.

    async def _stored(self, session_id: str, after: int, until: int) -> list[ev.Entry]:
        if after >= until:
            return []
        stored = await asyncio.to_thread(lambda: list(self.store.entries(session_id, after)))
        return [entry for entry in stored if entry.seq <= until]

    async def _attend(self, live: Live) -> None:
        """Somebody is there: what was paused goes on."""
        live.left_at = self.clock()
        if live.session.status == "paused":
            await self._worker.say(live, ev.StatusChange("paused", "active"))

    def _leave(self, live: Live, follower: Follower) -> None:
        live.followers.remove(follower)
        if live.followers:
            return
        live.left_at = self.clock()
        live.touched = asyncio.get_running_loop().time()
        if follower.lagged:
            return  # it was told to come back: being slow is not being gone
        pauses = live.work.actor.agent.session.on_disconnect == "pause"
        if pauses and live.task is not None and live.session.owes_answer and live.failure is None:
            with suppress(DuragentError):  # a disk that refuses stops the turn by itself
                live.work.record(ev.StatusChange("active", "paused"))
                live.log.kick()

    # Going on.

    async def _carry_on(self, session_id: str, *, named: bool) -> bool:
        if self._lives.get(session_id) is None:
            stored = (await asyncio.to_thread(self.store.read, session_id)).session
            undone = not stored.ended and (stored.owes_answer or bool(stored.open_calls))
            if not (undone and (named or stored.status != "paused")) and not self._expired(stored):
                return False
        live = await self._lives.open(session_id)
        if named:
            await self._attend(live)
        self._worker.wake(live)
        return live.task is not None

    def _expired(self, stored: Session) -> bool:
        """Whether an idle session is over. Its agent is looked for only when that can matter: an hour is the least."""
        if not self._lives.too_old(stored, 1):
            return False
        hours = None
        with suppress(DuragentError):
            hours = self._agents(stored.agent, stored.source).session.ttl_hours
        return self._lives.too_old(stored, hours)


def _listed(agents: Sequence[Agent]) -> Agents:
    by_name = {agent.name: agent for agent in agents}

    def find(name: str, source: str) -> Agent:
        if name not in by_name:
            raise NotFound(f"The agent {name!r} of this session is not here.")
        return by_name[name]

    return find
