"""What an agent's trust, its abilities and its owner's settings come to."""

import os
from pathlib import Path
from typing import Any

import pytest

from duragent.agent import Abilities, Agent, Auth, Provider, Source, Startup, Trust
from duragent.core import resolve
from duragent.errors import NotAllowed
from duragent.sandbox import Box
from duragent.sandbox.boxes import Places, box_of, demands
from duragent.sandbox.environment import PROVIDER_KEYS

ENVIRON = {
    "PATH": "/usr/bin:relative:/bin",
    "HOME": "/home/p",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "TERM": "xterm",
    "USER": "p",
    "OPENAI_API_KEY": "key",
    "MY_KEY": "mine",
    "WEATHER_TOKEN": "weather",
    "LD_PRELOAD": "/evil.so",
    "SSH_AUTH_SOCK": "/run/agent",
}
PLAIN = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_TIME": "C", "TERM": "xterm", "USER": "p"}
OWN = {**PLAIN, "HOME": "/tmp/home", "TMPDIR": "/tmp"}
STEERING = ("duragent.yaml", "policy.yaml", "policy.local.yaml", ".envrc", ".mcp.json", ".vscode", ".idea", ".claude")


class Here:
    """A workspace beside the folder an agent works in."""

    def __init__(self, root: Path) -> None:
        self.root, self.work = root, root / "work"
        self.state, self.home = root / "state", root / "state/agents/a"
        for folder in (self.work, self.home, root / "person/.ssh"):
            folder.mkdir(parents=True)
        (self.home / "agent.yaml").write_text("")
        self.places = Places(
            workdir=str(self.work),
            home=str(self.home),
            workspace=str(self.state),
            sessions_dir=str(self.state / "sessions"),
            agents_dir=str(self.state / "agents"),
            person_home=str(root / "person"),
        )

    def box(self, agent: Agent | None = None, **more: Any) -> Box:
        return box_of(agent or self.agent(), self.places, environ=ENVIRON, **more)

    def agent(self, **more: Any) -> Agent:
        return Agent(name="a", source=Source(path=str(self.home), files=("agent.yaml",)), **more)

    def veiled(self) -> tuple[str, ...]:
        return tuple(str(each) for each in (self.home / "memory", self.state / "memory", self.state / "sessions"))


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_an_agent_that_says_nothing_writes_where_it_works_and_reaches_nobody(here: Here) -> None:
    assert here.box() == Box(
        cwd=str(here.work),
        readable=(str(here.home),),
        writable=(str(here.work),),
        hidden=here.veiled(),
        protected=(*(str(here.work / name) for name in STEERING), str(here.work / ".git")),
        network="none",
        environment=OWN,
    )


@pytest.mark.parametrize(
    ("trust", "cwd", "readable", "writable", "hidden", "whole"),
    [
        (Trust(filesystem="none"), "/tmp", (), (), ("",), False),
        (Trust(filesystem="read-only"), "", ("",), (), (), False),
        (Trust(filesystem="scoped"), "/tmp", (), (), ("",), False),
        (Trust(filesystem="scoped", scope=("src", "./docs")), "", (), ("src", "docs"), ("",), False),
        (Trust(filesystem="read-only", scope=("src/",)), "", ("src",), (), ("",), False),
        (Trust(filesystem="scoped", scope=("src", ".")), "", (), ("",), (), False),
        (Trust(filesystem="full"), "", (), (), (), True),
    ],
)
def test_trust_decides_which_files(
    here: Here, trust: Trust, cwd: str, readable: tuple[str], writable: tuple[str], hidden: tuple[str], whole: bool
) -> None:
    def inside(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(os.path.normpath(here.work / name) for name in names)

    box = here.box(here.agent(trust=trust))
    shown = () if whole else (str(here.home),)
    assert (box.cwd, box.readable, box.writable, box.hidden, box.whole_disk) == (
        cwd or str(here.work),
        (*shown, *inside(readable)),
        inside(writable),
        (*inside(hidden), *(() if whole else here.veiled())),
        whole,
    )


def test_a_whole_path_may_be_a_scope_where_nothing_is_at_stake(here: Here) -> None:
    (here.root / "data").mkdir()
    box = here.box(here.agent(trust=Trust(filesystem="scoped", scope=(str(here.root / "data"),))))
    assert (box.writable, box.hidden[0]) == ((str(here.root / "data"),), str(here.work))


@pytest.mark.parametrize(
    ("scope", "why"),
    [
        ("../data", "it leads out of the folder the agent works in"),
        ("/", "it belongs to this machine"),
        ("/etc/cron.d", "it belongs to this machine"),
        ("link", "a symbolic link leads from there"),
        ("~/notes", "only plain paths are understood"),
        ("$HOME/notes", "only plain paths are understood"),
        ("{root}", "it holds"),
        ("{root}/person", "it holds"),
        ("{root}/person/.ssh", "people keep their keys and settings there"),
        ("{root}/state", "it holds"),
        ("{root}/state/agents/a", "it holds"),
        ("{root}/state/sessions/x", "the agent is steered from there"),
    ],
)
def test_a_scope_that_nobody_may_have_is_refused(here: Here, scope: str, why: str) -> None:
    (here.work / "link").symlink_to(here.root / "person")
    agent = here.agent(trust=Trust(filesystem="scoped", scope=(scope.format(root=here.root),)))
    with pytest.raises(NotAllowed, match=why):
        here.box(agent)


@pytest.mark.parametrize(
    ("trust", "owner", "hosts", "expected"),
    [
        (None, "trust", (), ("none", ())),
        (None, "none", (), ("none", ())),
        (None, "scoped", ("a.org",), ("hosts", ("a.org",))),
        (None, "allowed", (), ("all", ())),
        (Trust(network="none"), "allowed", (), ("none", ())),
        (Trust(network="allowed"), "trust", (), ("all", ())),
        (Trust(network="allowed"), "none", (), ("none", ())),
        (Trust(network="allowed"), "scoped", ("a.org",), ("hosts", ("a.org",))),
        (Trust(network="scoped"), "trust", (), ("hosts", ())),
        (
            Trust(network="scoped", scope=("b.org", "*.c.org", "src")),
            "trust",
            ("a.org",),
            ("hosts", ("b.org", "*.c.org", "a.org")),
        ),
        (Trust(network="scoped", scope=("https://B.org/x",)), "trust", (), ("hosts", ("b.org",))),
        (Trust(network="scoped", scope=("b.org",)), "allowed", (), ("hosts", ("b.org",))),
        (Trust(network="scoped", scope=("b.org", "x.a.org")), "scoped", ("*.a.org",), ("hosts", ("x.a.org",))),
        (Trust(network="scoped", scope=("b.org",)), "scoped", (), ("hosts", ())),
    ],
)
def test_trust_and_the_owner_decide_about_the_network(
    here: Here, trust: Trust | None, owner: Any, hosts: tuple[str, ...], expected: tuple[str, tuple[str, ...]]
) -> None:
    box = here.box(here.agent(trust=trust), network=owner, hosts=hosts)
    assert (box.network, box.hosts) == expected


@pytest.mark.parametrize(
    ("abilities", "expected"),
    [
        (Abilities(), (True, "all")),
        (Abilities(allow=("fs", "sh")), (True, "none")),
        (Abilities(allow=("sh", "network")), (False, "all")),
        (Abilities(deny=("network", "fs")), (False, "none")),
    ],
)
def test_abilities_decide_about_files_and_network(here: Here, abilities: Abilities, expected: tuple[bool, str]) -> None:
    box = here.box(here.agent(abilities=abilities))
    assert (box.writable == (str(here.work),), box.network) == expected


def test_what_steers_the_agent_is_protected_when_it_lies_where_it_works(tmp_path: Path) -> None:
    """A project with its settings, its workspace and an agent's single file in the folder itself."""
    agent = Agent(name="a", source=Source(path=str(tmp_path / "a.agent.md"), files=("a.agent.md",)))
    for name in (".duragent/agents", ".duragent/tools", ".git/hooks", ".git/modules/m", "lib/one/.git", "tree"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a.agent.md", "duragent.yaml", "tree/.git"):
        (tmp_path / name).write_text("")
    state = tmp_path / ".duragent"
    places = Places(
        workdir=str(tmp_path),
        home=str(tmp_path),
        workspace=str(state),
        sessions_dir=str(state / "sessions"),
        agents_dir=str(state / "agents"),
        config_file=str(tmp_path / "duragent.yaml"),
    )
    box = box_of(agent, places, environ={})
    git = ("hooks", "config", "config.worktree", "commondir")
    assert sorted(os.path.relpath(path, tmp_path) for path in box.protected) == sorted(
        (
            *(".duragent", ".duragent/agents", ".duragent/sessions", "a.agent.md", "tree/.git", *STEERING),
            *(f"{place}/{name}" for place in (".git", ".git/modules/m", "lib/one/.git") for name in git),
        )
    )
    assert (box.writable, box.hidden) == (
        (str(tmp_path),),
        (str(tmp_path / "memory"), str(state / "memory"), str(state / "sessions")),
    )


def test_a_folder_inside_the_workspace_stays_writable(here: Here) -> None:
    work = here.state / "work/a"
    work.mkdir(parents=True)
    places = Places(
        str(work), str(here.home), str(here.state), str(here.state / "sessions"), str(here.state / "agents")
    )
    box = box_of(here.agent(), places, environ={})
    assert box.writable == (str(work),)
    assert [path for path in box.protected if not path.startswith(str(work))] == []


def test_a_variable_that_the_agent_names_is_handed_on_unless_it_is_a_provider_s_key(here: Here) -> None:
    startup = Startup(env=("WEATHER_TOKEN", "OPENAI_API_KEY", "MY_KEY", "LD_PRELOAD", "PATH", "DURAGENT_DEBUG", "GONE"))
    auth = Auth(providers={"openai": Provider(key_from="env.MY_KEY")})
    assert here.box(here.agent(startup=startup, auth=auth)).environment == {**OWN, "WEATHER_TOKEN": "weather"}


def test_without_the_ability_env_nothing_is_handed_on(here: Here) -> None:
    startup, abilities = Startup(env=("WEATHER_TOKEN",)), Abilities(allow=("sh", "fs"))
    assert here.box(here.agent(startup=startup, abilities=abilities)).environment == OWN


def test_with_the_whole_disk_home_is_the_person_s(here: Here) -> None:
    box = here.box(here.agent(trust=Trust("full", "allowed", "full")))
    assert box.environment == {**PLAIN, "HOME": str(here.root / "person"), "TMPDIR": "/tmp"}


def test_every_key_that_a_model_is_asked_with_counts_as_a_provider_s() -> None:
    assert set(resolve._KEYS.values()) <= PROVIDER_KEYS


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"trust": Trust("full", "allowed", "full")}, ""),
        ({"trust": Trust("full", "allowed", "sandboxed")}, "trust.exec: sandboxed"),
        ({"trust": Trust("full", "scoped", "full")}, "trust.network: scoped"),
        ({"trust": Trust("read-only", "allowed", "full")}, "trust.filesystem: read-only"),
        ({"abilities": Abilities()}, ""),
        ({"abilities": Abilities(allow=("sh", "fs"))}, "its abilities do not allow network"),
        ({"abilities": Abilities(deny=("fs",))}, "its abilities do not allow fs"),
    ],
)
def test_an_agent_demands_to_be_kept_in_unless_it_may_do_everything(more: dict[str, Any], why: str) -> None:
    assert demands(Agent(name="a", **more)) == why
