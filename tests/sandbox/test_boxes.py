"""What an agent's trust, its abilities and its owner's settings come to."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duragent.agent import Abilities, Agent, Auth, Provider, Source, Startup, Trust
from duragent.core import resolve
from duragent.errors import NotAllowed
from duragent.sandbox import Box
from duragent.sandbox.boxes import STATE_FILES, STATE_FOLDERS, Places, box_of, demands
from duragent.sandbox.environment import PROVIDER_KEYS, looks_secret

ENVIRON = {
    "PATH": "/usr/bin:relative:/bin",
    "HOME": "/home/p",
    "LANG": "C.UTF-8",
    "LC_TIME": "C",
    "TERM": "xterm",
    "USER": "p",
    "OPENAI_API_KEY": "key",
    "MY_KEY": "mine",
    "CITY": "Berlin",
    "WEATHER_TOKEN": "weather",
    "LD_PRELOAD": "/evil.so",
    "SSH_AUTH_SOCK": "/run/agent",
}
PLAIN = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "LC_TIME": "C", "USER": "p", "TERM": "dumb"}
PLAIN |= dict.fromkeys(("GIT_EDITOR", "GIT_SEQUENCE_EDITOR", "EDITOR", "VISUAL"), "false")
PLAIN |= {"GIT_PAGER": "cat", "PAGER": "cat", "GIT_TERMINAL_PROMPT": "0"}
OWN = {**PLAIN, "HOME": "/tmp/home", "TMPDIR": "/tmp"}
STEERING = ("duragent.yaml", ".envrc", ".mcp.json", ".vscode", ".claude")


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
        names = ("", "sessions", "memory", "skills/quarantine", "agents/a/memory", "agents")
        return tuple(os.path.normpath(self.state / name) for name in names)


@pytest.fixture
def here(tmp_path: Path) -> Here:
    return Here(tmp_path)


def test_an_agent_that_says_nothing_writes_where_it_works_and_reaches_nobody(here: Here) -> None:
    assert here.box() == Box(
        cwd=str(here.work),
        readable=(str(here.home),),
        writable=(str(here.work),),
        hidden=here.veiled(),
        protected=(*(str(here.work / name) for name in STEERING), str(here.work / ".git"), str(here.work / "HEAD")),
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

    box = here.box(here.agent(trust=trust), files="full")
    shown = () if whole else (str(here.home),)
    assert (box.cwd, box.readable, box.writable, box.hidden, box.whole_disk) == (
        cwd or str(here.work),
        (*shown, *inside(readable)),
        inside(writable),
        (*inside(hidden), *(() if whole else here.veiled())),
        whole,
    )


def test_the_whole_disk_is_the_owner_s_to_give_and_otherwise_means_the_folder(here: Here) -> None:
    agent = here.agent(trust=Trust("full", "none", "sandboxed"))
    assert (here.box(agent), here.box(agent, files="full").whole_disk) == (here.box(), True)


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


_PORTS = ("hosts", ("b.org:8443", "c.org:444"))


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
        (Trust(network="scoped", scope=("B.org:8443", "https://c.org:444/x")), "trust", (), _PORTS),
        (
            Trust(network="scoped", scope=("b.org", "c.org:22")),
            "scoped",
            ("b.org:443", "c.org"),
            ("hosts", ("b.org:443",)),
        ),
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
    for name in (".duragent/agents", ".duragent/tools", ".git/hooks", ".git/modules/m/n", "lib/one/.git", "tree"):
        (tmp_path / name).mkdir(parents=True)
    heads = (".git/HEAD", ".git/modules/m/n/HEAD", "lib/one/.git/HEAD")
    for name in ("a.agent.md", "duragent.yaml", ".idea", "tree/.git", *heads):
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
    git, policies = ("hooks", "config", "commondir"), ("policy.yaml", "policy.local.yaml")
    assert sorted(os.path.relpath(path, tmp_path) for path in box.protected) == sorted(
        (
            *(".duragent", ".duragent/agents", "a.agent.md", ".idea"),
            *(f".duragent/{each}" for each in (*STATE_FOLDERS, *STATE_FILES)),
            *(*STEERING, *policies),
            *(f"{place}/{name}" for place in (".git", ".git/modules/m/n") for name in git),
        )
    )
    names = (*STATE_FOLDERS, *STATE_FILES, "skills/quarantine", "../memory")
    assert (box.readable, box.writable, box.hidden) == (
        (str(tmp_path), str(state / "tools")),
        (str(tmp_path),),
        tuple(os.path.normpath(state / name) for name in names),
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


def test_where_commands_work_in_the_workspace_itself_what_is_kept_in_it_is_hidden_and_protected(here: Here) -> None:
    box = box_of(here.agent(), replace(here.places, workdir=str(here.state)), environ={})
    kept = (*STATE_FOLDERS, *STATE_FILES)
    named = (*kept, "skills/quarantine", "agents/a/memory")
    assert box.hidden == tuple(str(here.state / name) for name in named)
    assert {str(here.state / name) for name in (*kept, "agents", "tools", "skills")} <= set(box.protected)


def test_one_file_among_those_of_other_agents_is_all_of_that_folder_that_is_shown(here: Here) -> None:
    agents = here.state / "agents"
    (agents / "b.agent.md").write_text("")
    agent = Agent(name="b", source=Source(path=str(agents / "b.agent.md"), files=("b.agent.md", "../../person/.ssh")))
    box = box_of(agent, replace(here.places, home=str(agents)), environ={})
    assert (box.readable, str(agents) in box.hidden) == ((str(agents / "b.agent.md"),), True)


def test_other_agents_memory_is_hidden_where_commands_work_in_the_folder_of_the_agents(here: Here) -> None:
    agents = here.state / "agents"
    (agents / "b/memory").mkdir(parents=True)
    box = box_of(here.agent(), replace(here.places, workdir=str(agents)), environ={})
    assert (str(agents / "b/memory") in box.hidden, str(agents) in box.hidden) == (True, False)


@pytest.mark.parametrize("whole", [False, True])
def test_memory_is_protected_wherever_it_is_and_tokens_are_hidden_even_with_the_whole_disk(
    here: Here, whole: bool
) -> None:
    memory, file = str(here.work / "notes/memory"), str(here.work / "duragent.yaml")
    places = replace(here.places, memory_dirs=(memory,), secret_files=(file,), config_file=file)
    agent = here.agent(trust=Trust("full", "allowed", "full")) if whole else here.agent()
    box = box_of(agent, places, environ={}, files="full")
    assert {memory, file} <= set(box.protected)
    assert (memory in box.hidden, file in box.hidden) == (not whole, True)


@pytest.mark.parametrize("scope", ["notes/memory", "notes/memory/today", "duragent.yaml"])
def test_a_scope_does_not_lead_into_what_is_remembered_or_kept_secret(here: Here, scope: str) -> None:
    places = replace(
        here.places, memory_dirs=(str(here.work / "notes/memory"),), secret_files=(str(here.work / "duragent.yaml"),)
    )
    agent = here.agent(trust=Trust(filesystem="scoped", scope=(scope,)))
    with pytest.raises(NotAllowed, match="the agent is steered from there"):
        box_of(agent, places, environ={})


@pytest.mark.parametrize("kind", ["scoped", "read-only"])
@pytest.mark.parametrize(
    ("scope", "why"),
    [
        *((name, "the agent is steered from there") for name in (".duragent", ".duragent/sessions/1", "kept/agents")),
        ("kept", "it holds"),
    ],
)
def test_a_scope_inside_the_folder_does_not_lead_to_what_steers_agents(
    here: Here, kind: Any, scope: str, why: str
) -> None:
    state = here.work / ".duragent"
    places = Places(str(here.work), str(here.home), str(state), str(state / "sessions"), str(here.work / "kept/agents"))
    with pytest.raises(NotAllowed, match=why):
        box_of(here.agent(trust=Trust(filesystem=kind, scope=("src", scope))), places, environ={})


@pytest.mark.parametrize("scope", [".git", ".git/hooks", "lib/.git/modules", ".vscode", "sub/.claude"])
def test_a_scope_does_not_make_writable_what_other_programs_take_commands_from(here: Here, scope: str) -> None:
    (here.work / scope).mkdir(parents=True)
    with pytest.raises(NotAllowed, match="other programs take commands from"):
        here.box(here.agent(trust=Trust(filesystem="scoped", scope=(scope,))))
    assert here.box(here.agent(trust=Trust(filesystem="read-only", scope=(scope,)))).writable == ()


def test_what_is_protected_stays_so_where_a_scope_is_that_very_folder(here: Here) -> None:
    programs = here.work / "bin"
    programs.mkdir()
    agent = here.agent(trust=Trust(filesystem="scoped", scope=("bin",)))
    box = box_of(agent, here.places, environ={"PATH": f"{programs}:/usr/bin"})
    assert (box.writable, box.protected) == ((str(programs),), (str(programs),))


def test_what_this_program_is_made_of_and_where_a_person_s_programs_are_is_protected(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (".venv/bin", "node_modules/.bin", "py/bin"):
        (here.work / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(here.work / ".venv"))
    monkeypatch.setattr(sys, "exec_prefix", str(here.work / ".venv"))
    monkeypatch.setattr(sys, "base_prefix", str(here.work / "py"))
    path = f"{here.work}/node_modules/.bin:{here.work}/missing:{here.work}:/usr/bin"
    box = box_of(here.agent(), here.places, environ={"PATH": path})
    steering = {str(here.work / name) for name in (*STEERING, ".git", "HEAD")}
    assert sorted({*box.protected} - steering) == [str(here.work / n) for n in (".venv", "node_modules/.bin", "py")]


NAMED = ("CITY", "WEATHER_TOKEN", "OPENAI_API_KEY", "MY_KEY", "LD_PRELOAD", "PATH", "DURAGENT_DEBUG", "GONE")


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        ((), {"CITY": "Berlin"}),
        (("WEATHER_TOKEN", "SSH_AUTH_SOCK"), {"CITY": "Berlin", "WEATHER_TOKEN": "weather"}),
        (NAMED, {"CITY": "Berlin", "WEATHER_TOKEN": "weather"}),
    ],
)
def test_a_variable_that_the_agent_names_is_handed_on_and_a_key_only_where_the_owner_grants_it(
    here: Here, granted: tuple[str, ...], expected: dict[str, str]
) -> None:
    auth = Auth(providers={"openai": Provider(key_from="env.MY_KEY")})
    agent = here.agent(startup=Startup(env=NAMED), auth=auth)
    assert here.box(agent, granted=granted).environment == {**OWN, **expected}


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        *((name, True) for name in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "X_API_KEY", "db_password", "TOKEN")),
        *((name, True) for name in ("GOOGLE_APPLICATION_CREDENTIALS", "NPM_AUTH", "CREDENTIAL_FILE", "PGPASSWORD")),
        *((name, False) for name in ("CITY", "TOKENIZERS_PARALLELISM", "KEYBOARD", "EDITOR", "AUTHOR")),
    ],
)
def test_a_name_tells_whether_a_variable_is_probably_a_key(name: str, secret: bool) -> None:
    assert looks_secret(name) is secret


def test_without_the_ability_env_nothing_is_handed_on(here: Here) -> None:
    startup, abilities = Startup(env=("CITY",)), Abilities(allow=("sh", "fs"))
    assert here.box(here.agent(startup=startup, abilities=abilities)).environment == OWN


def test_with_the_whole_disk_home_is_the_person_s(here: Here) -> None:
    box = here.box(here.agent(trust=Trust("full", "allowed", "full")), files="full")
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
