"""duragent.yaml: what it may say, and how ${NAME} is filled in."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from duragent.config import Config, check_config, interpolate, load_config
from duragent.errors import InvalidAgent
from duragent.formats.fields import Reader
from duragent.formats.shape import Problem

FULL = """\
workspace: .duragent
agents_dir: ./agents
services:
  session: {backend: postgres, url: "${DATABASE_URL}"}
  memory: {backend: postgres, url: "${DATABASE_URL}"}
  artifacts: {backend: s3, bucket: my-artifacts, region: us-east-1}
world_memory: {path: ./world}
server:
  host: 127.0.0.1
  port: 8080
  request_timeout_seconds: 300
  idle_timeout_seconds: 60
  keep_alive_interval_seconds: 15
  max_connections: 1024
  admin_token: ${ADMIN_TOKEN:-none}
  api_token: ${API_TOKEN:-none}
sessions: {ttl_hours: 168, compaction: discard}
sandbox: {mode: trust}
gateways:
  telegram: {enabled: true, bot_token: "${TELEGRAM}"}
  discord: {bot_token: "${DISCORD}"}
  external:
    - {name: irc, command: ./irc, args: [-v], env: {A: b}, restart: on_failure}
routes:
  - match: {gateway: telegram, chat_type: group, chat_id: "1", sender_id: "2"}
    agent: helper
  - agent: other
"""
ENVIRONMENT = {"DATABASE_URL": "postgres://x", "TELEGRAM": "t:1", "DISCORD": "d"}


def filled(text: str, environment: Mapping[str, str]) -> tuple[str, list[Problem]]:
    reader = Reader("duragent.yaml")
    return interpolate(text, environment, reader), reader.problems


def told(text: str, environment: Mapping[str, str] | None = None) -> list[tuple[str, int, int, str, str]]:
    found = check_config("duragent.yaml", text, environment or {})
    return [(problem.level, problem.line, problem.column, problem.path, problem.text) for problem in found]


def test_every_setting_is_known() -> None:
    assert told(FULL, ENVIRONMENT) == []


@pytest.mark.parametrize("text", ["", "# nothing set\n", "server: {}\nsessions: {}\ngateways: {}\nroutes: []\n"])
def test_everything_may_be_left_out(text: str) -> None:
    assert told(text) == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a: ${X}", "a: one"),
        ("a: ${X}${X}-${X}", "a: oneone-one"),
        ("a: ${X:-two}", "a: one"),
        ("a: ${GONE:-two}", "a: two"),
        ("a: ${GONE:-}", "a: "),
        ("a: ${EMPTY:-two}", "a: "),
        ("a: ${EMPTY}", "a: "),
        ("a: $$", "a: $"),
        ("a: $${X}", "a: ${X}"),
        ("a: $$$${X}", "a: $${X}"),
        ("a: $X", "a: $X"),
        ("a: 5$", "a: 5$"),
        ("a: $ {X}", "a: $ {X}"),
        ("a: ${GONE:-a:-b}", "a: a:-b"),
        ("# ${GONE}", "# ${GONE}"),
        ("  # ${GONE}\na: ${X}", "  # ${GONE}\na: one"),
        ("a: ${NESTED}", "a: ${X}"),
        ("", ""),
    ],
)
def test_how_variables_are_filled_in(text: str, wanted: str) -> None:
    assert filled(text, {"X": "one", "EMPTY": "", "NESTED": "${X}"}) == (wanted, [])


def test_a_variable_that_is_not_set_is_an_error_that_names_it() -> None:
    (problem,) = check_config("duragent.yaml", "server:\n  host: a${GONE}\n", {})
    assert problem == Problem(
        "error",
        "duragent.yaml",
        2,
        10,
        "",
        "the environment variable GONE is not set",
        "set it, or write ${GONE:-default}",
    )


@pytest.mark.parametrize("text", ["workspace: a${X", "workspace: a${X:-y", "workspace: a${", "workspace: a${X\n}"])
def test_a_variable_that_is_never_closed_is_an_error(text: str) -> None:
    level, line, column, _path, said = told(text, {"X": "one"})[0]
    assert (level, line, column) == ("error", 1, 13)
    assert said.endswith("is never closed")


def test_every_variable_that_is_missing_is_told_at_once() -> None:
    found = told("workspace: ${A}/${B}\nagents_dir: ${C}/x\n")
    assert [(line, column, said) for _level, line, column, _path, said in found] == [
        (1, 12, "the environment variable A is not set"),
        (1, 17, "the environment variable B is not set"),
        (2, 13, "the environment variable C is not set"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "column", "path"),
    [
        ("workspace: ''\n", 1, 12, "workspace"),
        ("workspaces: x\n", 1, 1, "workspaces"),
        ("server: {port: 70000}\n", 1, 16, "server.port"),
        ("server: {port: '80'}\n", 1, 16, "server.port"),
        ("server: {max_connections: 0}\n", 1, 27, "server.max_connections"),
        ("server: {request_timeout_seconds: 1.5}\n", 1, 35, "server.request_timeout_seconds"),
        ("sessions: {ttl_hours: -1}\n", 1, 23, "sessions.ttl_hours"),
        ("sessions: {compaction: zip}\n", 1, 24, "sessions.compaction"),
        ("sandbox: {mode: docker}\n", 1, 17, "sandbox.mode"),
        ("services: {session: {backend: redis}}\n", 1, 31, "services.session.backend"),
        ("gateways: {telegram: {enabled: yes, bot_token: x}}\n", 1, 32, "gateways.telegram.enabled"),
        ("gateways: {telegram: {}}\n", 1, 22, "gateways.telegram.bot_token"),
        ("gateways: {external: [{name: x}]}\n", 1, 23, "gateways.external[0].command"),
        ("routes: [{match: {}}]\n", 1, 10, "routes[0].agent"),
        ("routes: {agent: x}\n", 1, 9, "routes"),
        ("- a\n", 1, 1, ""),
        ("a: [\n", 2, 1, ""),
        ("workspace: a\nworkspace: b\n", 2, 1, ""),
        ("workspace: a\n---\nworkspace: b\n", 2, 1, ""),
        ("workspace: !mine a\n", 1, 12, ""),
    ],
)
def test_a_wrong_setting_is_an_error_where_it_stands(text: str, line: int, column: int, path: str) -> None:
    assert [each[:4] for each in told(text)] == [("error", line, column, path)]


def test_a_misspelt_setting_gets_a_suggestion() -> None:
    (problem,) = check_config("duragent.yaml", "server:\n  prot: 80\n", {})
    assert (problem.text, problem.hint) == ("unknown field `server.prot`", "did you mean `port`?")


# --- settings that act -----------------------------------------------------------------------------------


def test_without_a_file_the_defaults_hold_for_the_folder(tmp_path: Path) -> None:
    assert load_config(tmp_path, {"HOME": str(tmp_path)}) == Config(
        workspace=tmp_path / ".duragent",
        agents_dir=tmp_path / ".duragent/agents",
        sessions_dir=tmp_path / ".duragent/sessions",
        file=None,
        ttl_hours=168,
        compaction="discard",
        prices={},
    )


def test_what_the_file_says_holds_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text(
        "workspace: ./state\nagents_dir: ../people\n"
        "services: {session: {backend: files, path: '${WHERE}/logs'}}\n"
        "sessions: {ttl_hours: 0, compaction: archive}\n"
        "prices: {openai/gpt-4o: {input: 1, output: 2.5}, mine: [1, 2, 0.5]}\n"
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load_config(below, {"HOME": "/nowhere", "WHERE": "/var"}) == Config(
        workspace=tmp_path / "state",
        agents_dir=tmp_path.parent / "people",
        sessions_dir=Path("/var/logs"),
        file=tmp_path / "duragent.yaml",
        ttl_hours=0,
        compaction="archive",
        prices={"openai/gpt-4o": {"input": 1.0, "output": 2.5}, "mine": [1.0, 2.0, 0.5]},
    )


def test_sessions_and_agents_are_in_the_workspace_unless_said_otherwise(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("workspace: state\n")
    found = load_config(tmp_path, {})
    assert (found.agents_dir, found.sessions_dir) == (tmp_path / "state/agents", tmp_path / "state/sessions")


def test_the_nearest_file_above_holds(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("workspace: far\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/duragent.yaml").write_text("workspace: near\n")
    (tmp_path / "a/b").mkdir()
    assert load_config(tmp_path / "a/b", {}).workspace == tmp_path / "a/near"


def test_nothing_is_looked_for_above_the_home_folder(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("workspace: far\n")
    home = tmp_path / "home"
    (home / "x").mkdir(parents=True)
    assert load_config(home / "x", {"HOME": str(home)}).file is None
    (home / "duragent.yaml").write_text("")
    assert load_config(home / "x", {"HOME": str(home)}).file == home / "duragent.yaml"


def test_every_problem_of_the_file_stops_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("sessions: {ttl_hours: -1}\nworkspce: x\n")
    with pytest.raises(InvalidAgent) as error:
        load_config(tmp_path, {})
    assert str(error.value).splitlines() == [
        "duragent.yaml cannot be used:",
        "  duragent.yaml:1:23  error  sessions.ttl_hours must be a whole number, at least 0, not the number -1",
        "  duragent.yaml:2:1  error  unknown field `workspce` (did you mean `workspace`?)",
    ]


def test_a_file_above_is_named_with_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("x: [\n")
    (tmp_path / "a").mkdir()
    with pytest.raises(InvalidAgent) as error:
        load_config(tmp_path / "a", {})
    assert error.value.path == str(tmp_path / "duragent.yaml")


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").mkdir()
    with pytest.raises(InvalidAgent, match=r"duragent\.yaml:1:1  error"):
        load_config(tmp_path, {})


def test_sessions_in_postgres_are_for_a_later_version(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("services: {session: {backend: postgres, url: 'postgres://x'}}\n")
    with pytest.raises(InvalidAgent, match="this build keeps sessions in files"):
        load_config(tmp_path, {})


def test_a_warning_does_not_stop_anything(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("workspace:\nsessions: {ttl_hours: 5}\n")
    assert load_config(tmp_path, {}).ttl_hours == 5


@pytest.mark.parametrize(
    ("said", "path", "column"),
    [
        ("{m: 1}", "prices.m", 13),
        ("{m: {input: 1}}", "prices.m.output", 13),
        ("{m: {input: -1, output: 1}}", "prices.m.input", 21),
        ("{m: [1]}", "prices.m", 13),
        ("{m: [1, 2, 3, 4]}", "prices.m", 13),
        ("{m: {input: 1, output: 1, outptu: 2}}", "prices.m.outptu", 35),
    ],
)
def test_a_price_that_is_none_is_an_error_where_it_stands(said: str, path: str, column: int) -> None:
    assert [each[:4] for each in told(f"prices: {said}\n")] == [("error", 1, column, path)]
