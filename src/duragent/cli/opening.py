"""Where the program is put together: settings, agents, models and tools become one runtime.

Every command that lets an agent speak opens it here and nowhere else. Knows which agent a person means and which
loop runs; knows nothing of what is printed. A new kind of tool or model needs nothing here.
"""

import asyncio
import getpass
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from duragent.agent import Agent
from duragent.agentfiles import load
from duragent.cli.places import named_agents, shown
from duragent.config import Config
from duragent.errors import NotAllowed, NotFound
from duragent.hosting import Hosts, stamp_of_files
from duragent.models.chosen import Chosen
from duragent.runtime import Runtime, Settings
from duragent.tools import Toolbox

try:
    import uvloop
except ImportError:  # not on every system; the standard loop does the same, slower
    uvloop = None  # type: ignore[assignment]

Result = TypeVar("Result")
Tell = Callable[[str], None]


def in_loop(main: Coroutine[Any, Any, Result], *, keyboard: bool = False) -> Result:
    """Run to the end, in the fastest loop there is. Whoever presses Ctrl-C again and again need not wait for it.

    `keyboard`: standard input is watched. uvloop makes what it watches non-blocking, and on a terminal that is
    standard output too: a long answer would be cut off where the terminal is slower than we are.
    """
    try:
        return asyncio.run(main) if keyboard or uvloop is None else uvloop.run(main)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def find_agent(config: Config, wanted: str) -> Agent:
    """The agent a person means, ready to run: under the owner's policy, and not one that may not run here."""
    return _usable(Hosts(config, os.environ), locate_agent(config, wanted))


def locate_agent(config: Config, wanted: str) -> Agent:
    """The agent a person means: a name in the workspace, or a path to any format. Its path is made whole."""
    as_path = os.sep in wanted or os.path.isfile(wanted)
    path = None if as_path else _named(config, wanted)
    if path is None:
        if not os.path.lexists(wanted):
            raise NotFound(_unknown(config, wanted))
        path = wanted
    return _whole(load(path))


def reopen_agent(config: Config, hosts: Hosts | None = None) -> Callable[[str, str], Agent]:
    """How a session finds its agent again: where it was, else by its name in the workspace. It is read again when one
    of its files, or a policy around it, has changed."""
    known: dict[tuple[str, str], tuple[object, Agent]] = {}
    places = hosts or Hosts(config, os.environ)

    def reopen(name: str, source: str) -> Agent:
        found = known.get((name, source))
        if found is not None and found[0] == stamp_of_files(found[1], config.workspace):
            return found[1]
        agent = _usable(places, _whole(load(whereabouts(name, source))))
        known[name, source] = (stamp_of_files(agent, config.workspace), agent)
        return agent

    def whereabouts(name: str, source: str) -> str:
        path = source if source and os.path.lexists(source) else _named(config, name)
        if path is None:
            place = f"{shown(source)} is gone and " if source else ""
            raise NotFound(f"{place}no agent in {shown(config.agents_dir)} is called {name!r}; bring it back to go on")
        return path

    return reopen


def _named(config: Config, name: str) -> str | None:
    """The path of the agent of this name. The usual places first, so that most agents need not be read."""
    for place in (config.agents_dir / name, config.agents_dir / f"{name}.agent"):
        if name not in (os.curdir, os.pardir) and place.exists():
            return str(place)
    return next((path for each, path in named_agents(config.agents_dir) if each == name), None)


def _unknown(config: Config, wanted: str) -> str:
    names = [name for name, _ in named_agents(config.agents_dir)]
    close = get_close_matches(wanted, names, 3)
    if close:
        hint = f"Did you mean {' or '.join(close)}?"
    elif names:
        hint = f"There are: {', '.join(sorted(names)[:10])}."
    else:
        hint = f"There are none in {shown(config.agents_dir)} yet. Try: duragent agent create {wanted}"
    return f"no agent is called {wanted!r}, and there is no such path. {hint}"


def _usable(hosts: Hosts, agent: Agent) -> Agent:
    if agent.status == "disabled":
        raise NotAllowed(f"{agent.name} is disabled ({shown(agent.source.path)}: status); change that to talk with it")
    unset = [name for name in agent.startup.env if not os.environ.get(name)]
    if unset:
        raise NotAllowed(f"{agent.name} needs variables that are not set: {', '.join(unset)}. Set them and try again")
    if agent.startup.tool is not None:
        raise NotAllowed(f"{agent.name} must pass its startup check {agent.startup.tool!r} first: not in this version")
    return hosts.ready(agent)


def _whole(agent: Agent) -> Agent:
    return replace(agent, source=replace(agent.source, path=os.path.abspath(agent.source.path)))


def toolbox(hosts: Hosts, agent: Agent) -> Toolbox:
    """What the agent may do here."""
    return hosts.toolbox(agent)


def missing_tools(hosts: Hosts, agent: Agent) -> tuple[str, ...]:
    """Why tools that the agent names are not offered to it, and what else of it does not hold here."""
    notes = hosts.notes(agent)
    if agent.status == "deprecated":
        notes = (*notes, f"{agent.name} is deprecated.")
    if agent.templates == "hbs":
        notes = (*notes, "Its templates are shown as they are written: this version does not fill them in.")
    return notes


def person() -> str | None:
    """Who sits here, as the log and the prompts shall say it."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return None


def _known(config: Config) -> dict[str, str]:
    """What prompts may ask about the person and the place."""
    said = {"duragent.data_dir": str(config.workspace), "user.timezone": os.environ.get("TZ") or time.strftime("%Z")}
    return said | ({"user.name": name} if (name := person()) else {})


@asynccontextmanager
async def open_runtime(
    config: Config, *, override: str | None = None, embedded: bool = False, tell: Tell
) -> AsyncIterator[tuple[Runtime, Chosen, Hosts]]:
    """The runtime of this workspace, how it chooses models, and the places of its agents. Ask for the models of an
    agent before you open a session, and a missing key is told before anything is written."""
    hosts = Hosts(config, os.environ)
    models = Chosen(os.environ, override, embedded, tell)
    settings = Settings(
        ttl_hours=config.ttl_hours, compaction=config.compaction, prices=config.prices, known=_known(config)
    )
    try:
        async with Runtime(
            config.sessions_dir,
            agents=reopen_agent(config, hosts),
            models=models,
            tools=partial(toolbox, hosts),
            place=hosts.place,
            settings=settings,
        ) as runtime:
            hosts.door = runtime
            yield runtime, models, hosts
    finally:
        await hosts.close()
        await models.close()
