"""The place of each agent on this machine: its folders, its box, its sandbox, its tools, and what it keeps to itself.

Puts settings, sandbox, policy files and tools together for whoever opens a runtime. Knows no command and no door.
`Hosts.ready` is where an agent meets the owner's files: an agent that may not run here does not get past it.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from duragent.agent import Agent, Origin
from duragent.config import Config
from duragent.engine import Place
from duragent.errors import DuragentError, NotAllowed, NotFound, StorageFailed
from duragent.policyfiles import local_file, remember, with_policies
from duragent.sandbox import Box, Choice, Limits, Sandbox, open_sandbox
from duragent.sandbox.boxes import STATE_FILES, STATE_FOLDERS, Places, box_of, demands
from duragent.secrets import Secrets, Stream
from duragent.skillfiles import resolve
from duragent.tools import Toolbox, recover_tools, runs_programs, stamp_of, tools_of
from duragent.tools.host import Door, Host

NOTIFICATIONS = "notifications.jsonl"


class Hosts:
    """Every agent's place in one workspace. `door` is set as soon as there is a runtime."""

    def __init__(self, config: Config, environ: Mapping[str, str]) -> None:
        self.config, self.environ = config, environ
        self.secrets = Secrets(environ, values=config.secrets)
        self.door: Door | None = None
        self._chosen: tuple[Sandbox | None, Choice] | None = None
        self._hosts: dict[tuple[str, str], Host] = {}
        self._built: dict[tuple[str, str], tuple[Agent, object, Toolbox, tuple[str, ...]]] = {}
        self._notifier: Any = None
        self._boxes: dict[tuple[str, str], tuple[object, Box]] = {}
        self._recovering: list[asyncio.Future[None]] = []

    def ready(self, agent: Agent) -> Agent:
        """The agent under the owner's policy and with the skills that he approved. Raises what forbids it to start."""
        agent = with_policies(agent, self.config.workspace)
        if any(skill.path.startswith("https:") for skill in agent.skills):
            agent = replace(agent, skills=resolve(agent, self.config.workspace)[0])
        if runs_programs(agent, str(self.config.workspace)):
            sandbox, choice = self.sandbox()
            if (why := demands(agent)) and (sandbox is None or choice.name == "none"):
                raise NotAllowed(
                    f"{agent.name} must be kept in a sandbox ({why}), and none is used here: {choice.why}. "
                    "See what this machine can do: duragent doctor --sandbox"
                )
            self._box(agent)  # a scope that may not be given is told now, not in the middle of a turn
        return agent

    def sandbox(self) -> tuple[Sandbox | None, Choice]:
        """What keeps commands in. Looked for once."""
        if self._chosen is None:
            self._chosen = open_sandbox(self.config.sandbox.mode)
        return self._chosen

    def toolbox(self, agent: Agent) -> Toolbox:
        """What the agent may do here; the same one until the agent or a file changes."""
        return self._tools(agent)[2]

    def notes(self, agent: Agent) -> tuple[str, ...]:
        """Why tools and skills that the agent names are not offered to it, and what else its owner should know."""
        notes = self._tools(agent)[3]
        remote = resolve(agent, self.config.workspace)[1] if agent.skills else ()
        return (*notes, *remote)

    def place(self, agent: Agent) -> Place:
        """What holds for the agent's sessions."""
        hours = self.config.approval_hours
        file = local_file(agent, self.config.workspace)
        tiers = (agent.policy.local, agent.policy.agent, agent.policy.workspace)
        told = any(tier is not None and tier.notify is not None and tier.notify.enabled for tier in tiers)

        def keep(rule: str) -> Origin:
            return remember(file, rule)

        return Place(
            workdir_of(self.config, agent, self.environ),
            timedelta(hours=hours) if hours else None,
            self.secrets.redact,
            partial(Stream, self.secrets),
            self._notify if told else None,
            keep,
        )

    async def close(self) -> None:
        """End what tools have left running."""
        if self._recovering:
            await asyncio.wait(self._recovering)
        for host in self._hosts.values():
            await host.close()
        if self._notifier is not None:
            await self._notifier.close()
        if self._chosen is not None and self._chosen[0] is not None:
            await self._chosen[0].close()

    def _tools(self, agent: Agent) -> tuple[Agent, object, Toolbox, tuple[str, ...]]:
        key = (agent.name, agent.source.path)
        host = self._host(agent)
        stamp, built = (id(host), stamp_of(host)), self._built.get(key)
        if built is None or built[0] != agent or built[1] != stamp:
            toolbox, notes = tools_of(agent, host)
            if built is None and "background_process" in toolbox and self.door is not None:
                self._recovering.append(asyncio.ensure_future(_recovered(host)))
            built = self._built[key] = (agent, stamp, toolbox, notes)
        return built

    def _host(self, agent: Agent) -> Host:
        key = (agent.name, agent.source.path)
        host = self._hosts.get(key)
        if host is None or host.agent != agent or host.box is not self._box(agent):
            programs = runs_programs(agent, str(self.config.workspace))
            fresh = self._make(agent, self.sandbox()[0] if programs else None)
            if programs:
                self._make_folders(fresh.workdir)
            host = self._hosts[key] = fresh if host is None else host.moved(fresh)
        host.door = self.door
        return host

    def _make_folders(self, workdir: str) -> None:
        """The folder for commands, and what they must not see: what is there can be hidden before it fills."""
        state = self.config.workspace
        try:
            for folder in (Path(workdir), *(state / name for name in STATE_FOLDERS)):
                os.makedirs(folder, exist_ok=True)
            for name in STATE_FILES:
                os.close(os.open(state / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise StorageFailed(f"{error.filename}: what commands need cannot be made: {error.strerror}") from None

    def _make(self, agent: Agent, sandbox: Sandbox | None) -> Host:
        config = self.config
        own, world, chats = self._memories(agent)
        return Host(
            agent,
            home=home_of(agent),
            workdir=workdir_of(self.config, agent, self.environ),
            workspace=str(config.workspace),
            memory_dir=own,
            world_dir=world,
            chats_dir=chats,
            box=self._box(agent),
            sandbox=sandbox,
            environ=self.environ,
            redact=self.secrets.redact,
            stream=partial(Stream, self.secrets),
            search_url=config.search_url,
            private_hosts=config.private_hosts,
        )

    def _memories(self, agent: Agent) -> tuple[str, str, str]:
        """Where it is remembered: by the agent itself, about the world by all agents, and in each of its chats.

        Beside an agent that has a folder of its own; one file among others has its memory in the workspace.
        """
        config, name = self.config, _plain(agent.name)
        shared = config.memory_dir or config.workspace / "memory"
        source = agent.source.path
        if config.memory_dir is not None:
            own = config.memory_dir / "agents" / name
        elif os.path.isdir(source) or os.path.basename(source) in ("agent.yaml", "agent.yml"):
            own = Path(home_of(agent)) / "memory"
        else:
            own = config.workspace / "agents" / name / "memory"
        world = config.world_dir or shared / "world"
        return str(own), str(world), str(shared / "chats" / name)

    def _box(self, agent: Agent) -> Box:
        """What its commands may touch. Worked out once: looking for repositories takes a while in a large folder."""
        key = (agent.name, agent.source.path)
        said = (agent, sorted(self.config.agents_dir.glob("*/memory")))  # of others: each of them must be hidden
        known = self._boxes.get(key)
        if known is None or known[0] != said:
            known = self._boxes[key] = (said, self._make_box(agent))
        return known[1]

    def _make_box(self, agent: Agent) -> Box:
        config, said = self.config, self.config.sandbox
        places = Places(
            workdir=workdir_of(self.config, agent, self.environ),
            home=home_of(agent),
            workspace=str(config.workspace),
            sessions_dir=str(config.sessions_dir),
            agents_dir=str(config.agents_dir),
            config_file=str(config.file) if config.file else None,
            person_home=self.environ.get("HOME", ""),
            memory_dirs=self._memories(agent),
            secret_files=(str(config.file),) if config.file and config.secrets else (),
        )
        box = box_of(
            agent,
            places,
            network=said.network,
            hosts=said.hosts,
            environ=self.environ,
            granted=said.environment,
            files=said.files,
        )
        limits = Limits(
            seconds=said.seconds,
            memory_bytes=said.memory_mb << 20,
            processes=said.processes,
            file_bytes=said.file_mb << 20,
        )
        return replace(box, limits=limits)

    def _notify(self, deliveries: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> None:
        if self._notifier is None:
            made: Callable[..., Any] = import_module("duragent.notifying").Notifier
            file, secret = str(self.config.workspace / NOTIFICATIONS), self.environ.get("DURAGENT_WEBHOOK_SECRET")
            self._notifier = made(file, secret, redact=self.secrets.redact)
        self._notifier.notify(deliveries, about)


async def _recovered(host: Host) -> None:
    """Tell of lost processes. Where that fails, the tool tries again when it is used, and says why."""
    with suppress(DuragentError, OSError):
        await recover_tools(host)


def stamp_of_files(agent: Agent, workspace: Path) -> tuple[object, ...]:
    """What an agent and the rules around it were read from: a different one means that they must be read again."""
    home = home_of(agent)
    read = [os.path.join(home, name) for name in (*agent.source.files, *agent.source.ancestors)]
    own = [workspace / "policy.yaml", workspace / "skills.lock", local_file(agent, workspace)]
    files = dict.fromkeys((*read, *map(str, own)))
    folders = dict.fromkeys((home, *map(os.path.dirname, files)))
    return tuple(_look(path) for path in (*files, *folders))


def _look(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def workdir_of(config: Config, agent: Agent, environ: Mapping[str, str]) -> str:
    """Where commands work: what the settings say, the folder of duragent.yaml, or a folder of the agent's own. Never a
    person's whole home."""
    said = config.sandbox.workdir
    if said is not None and not os.path.isdir(said):
        raise NotFound(f"{said}: sandbox.workdir in {config.file} names a folder that is not there")
    wanted = said or (config.file.parent if config.file else None)
    if wanted is not None and not _holds_home(wanted, environ):
        return os.path.realpath(wanted)
    return os.path.realpath(config.workspace / "work" / _plain(agent.name))


def home_of(agent: Agent) -> str:
    """The folder an agent was read from."""
    path = os.path.realpath(agent.source.path or ".")
    return path if os.path.isdir(path) else os.path.dirname(path)


def _holds_home(folder: Path, environ: Mapping[str, str]) -> bool:
    home = environ.get("HOME")
    if not home:
        return os.path.realpath(folder) == "/"
    real, whole = os.path.realpath(home), os.path.realpath(folder)
    return os.path.commonpath((real, whole)) == whole


def _plain(name: str) -> str:
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in name).strip(".") or "agent"
