"""The command line as a person and as a program use it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from duragent.cli import clean
from duragent.schemas import NAMES, schema

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
GOOD = (
    "apiVersion: duragent/v1alpha1\nkind: Agent\nmetadata: {name: bot}\nspec:\n  model: {provider: openai, name: m}\n"
)


def duragent(
    *args: object, cwd: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "duragent", *map(str, args)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        timeout=60,
    )


@pytest.fixture
def bot(tmp_path: Path) -> Path:
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "agent.yaml").write_text(GOOD)
    return tmp_path / "bot"


def test_a_valid_agent_is_named_with_its_format_and_why(bot: Path) -> None:
    done = duragent("validate", "bot", cwd=bot.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout == "bot  ok  duragent bot  (apiVersion duragent/… in agent.yaml)\n1 agent, 0 errors, 0 warnings\n"
    )


def test_every_problem_is_printed_at_once_with_place_level_and_hint(bot: Path) -> None:
    (bot / "agent.yaml").write_text(GOOD.replace("name: m}", "name: m, temprature: 1}") + "  soul: ./S.md\n")
    done = duragent("validate", "bot", cwd=bot.parent)
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "bot/agent.yaml:5:38  error  unknown field `spec.model.temprature` (did you mean `temperature`?)",
        "bot/agent.yaml:6:9  error  S.md is not there (create it, or correct the path)",
        "bot  invalid  duragent  (apiVersion duragent/… in agent.yaml)",
        "1 agent, 2 errors, 0 warnings",
    ]


def test_warnings_count_only_when_strict(bot: Path) -> None:
    (bot / "agent.yaml").write_text(GOOD.replace("{name: bot}", "{name: bot, version: 1.0}"))
    assert duragent("validate", bot).returncode == 0
    assert duragent("validate", bot, "--strict").returncode == 1


def test_json_says_everything_a_program_needs(bot: Path) -> None:
    (bot / "agent.yaml").write_text(GOOD.replace("kind: Agent", "kind: Agnt"))
    done = duragent("validate", "bot", "--format", "json", cwd=bot.parent)
    assert done.returncode == 1
    assert json.loads(done.stdout) == {
        "ok": False,
        "agents": [
            {
                "path": "bot",
                "format": "duragent",
                "name": None,
                "fingerprint": None,
                "problems": [
                    {
                        "level": "error",
                        "file": "bot/agent.yaml",
                        "line": 2,
                        "column": 7,
                        "path": "kind",
                        "text": "kind must be the word Agent, not the text 'Agnt'",
                        "hint": "did you mean `Agent`?",
                    }
                ],
            }
        ],
    }


def test_a_valid_agent_has_its_fingerprint_in_json(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\n")
    found = json.loads(duragent("validate", tmp_path / "x.agent", "--format", "json").stdout)
    assert found["ok"] is True
    assert found["agents"][0]["fingerprint"] == "ag1:58d7fcdef041"


def test_a_folder_of_agents_is_searched(bot: Path) -> None:
    (bot.parent / "x.agent").write_text("name: x\n")
    done = duragent("validate", bot.parent)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "2 agents, 0 errors, 0 warnings"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["validate"], "Missing argument"),
        (["validate", "nowhere"], "nowhere: there is nothing here."),
        (["validate", ".", "--format", "xml"], "'xml' is not one of"),
        (["vlidate", "."], "Did you mean `validate`?"),
        (["convert", "x", "--to", "word", "--output", "y"], "'word' is not one of"),
        (["schema", "nothing"], "'nothing' is not one of"),
    ],
)
def test_wrong_usage_exits_with_2_and_says_why(args: list[str], said: str, tmp_path: Path) -> None:
    done = duragent(*args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize("command", [["show"], ["hash"], ["convert", "--to", "agentmd", "--output", "out"]])
def test_a_missing_or_broken_agent_is_one_line_and_no_traceback(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "bad.agent").write_text("name: [\n")
    for path, code, said in (("gone.agent", 2, "there is nothing here"), ("bad.agent", 1, "bad.agent:2:1")):
        done = duragent(command[0], path, *command[1:], cwd=tmp_path)
        assert done.returncode == code
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_piped_output_has_no_colour(bot: Path) -> None:
    (bot / "agent.yaml").write_text(GOOD.replace("kind: Agent", "kind: Agnt"))
    assert "\x1b[" not in duragent("validate", bot).stdout


def test_a_closed_pipe_is_no_accident(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / f"{number}.agent").write_text("name: x\n")
    done = subprocess.run(
        f"{sys.executable} -m duragent validate {tmp_path} | head -1", shell=True, capture_output=True, text=True
    )
    assert done.stderr == ""


def test_show_prints_the_agent_after_inheritance_and_defaults(tmp_path: Path) -> None:
    (tmp_path / "p.agent").write_text("name: p\nbehavior: {temperature: 0.1}\ntrust: {network: allowed}\n")
    (tmp_path / "c.agent").write_text("name: c\nbase: ./p.agent\nobservability: {cost_limit: 2}\n")
    shown = json.loads(duragent("show", "c.agent", "--format", "json", cwd=tmp_path).stdout)
    assert shown["name"] == "c"
    assert shown["model"]["temperature"] == 0.1
    assert shown["trust"] == {"filesystem": "none", "network": "allowed", "exec": "none"}
    assert shown["limits"]["cost_usd"] == 2.0


def test_origins_say_where_each_value_was_written(tmp_path: Path) -> None:
    (tmp_path / "p.agent").write_text("name: p\nbehavior: {temperature: 0.1}\n")
    (tmp_path / "c.agent").write_text("name: c\nbase: ./p.agent\n")
    lines = duragent("show", "c.agent", "--origins", cwd=tmp_path).stdout.splitlines()
    assert "name: c  c.agent:1:7" in lines
    assert "model.temperature: 0.1  p.agent:2:25" in lines
    assert "limits.session_steps: 50  default" in lines
    found = json.loads(duragent("show", "c.agent", "--origins", "--format", "json", cwd=tmp_path).stdout)
    assert found["model.temperature"] == {"value": 0.1, "origin": "p.agent:2:25"}


def test_the_prompt_is_shown_with_its_parts_marked(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text(
        "name: x\nbehavior: {persona: sailor, traits: [be-concise]}\nrules: Never sink.\n"
    )
    assert duragent("show", "x.agent", "--prompt", cwd=tmp_path).stdout.splitlines() == [
        "--- persona",
        "You are a sailor.",
        "--- trait",
        "Keep answers as short as the matter allows.",
        "--- rules  x.agent",
        "## Hard rules",
        "Never sink.",
    ]


def test_hash_prints_ag1_for_agentspec_and_sha256_for_all(bot: Path) -> None:
    (bot.parent / "x.agent").write_text("name: x\n")
    ag1, full = duragent("hash", bot.parent / "x.agent").stdout.splitlines()
    assert ag1 == "ag1:58d7fcdef041"
    assert len(full) == len("sha256:") + 64
    assert duragent("hash", bot).stdout.startswith("sha256:")


def test_hash_prints_ag1_also_where_the_base_is_missing_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\nbase: parent.agent\n")
    done = duragent("hash", "x.agent", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ag1:56279a549f8e\n")
    assert "x.agent:2:7  error  parent.agent is not there" in done.stderr


def test_a_conversion_that_would_lose_protection_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\ntrust: {network: allowed}\n")
    done = duragent("convert", "x.agent", "--to", "duragent", "--output", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "! lost     trust" in done.stdout
    assert "--accept-loss" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.agent"]


def test_an_accepted_loss_is_written_and_reported(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\ntrust: {network: allowed}\n")
    args = ["convert", "x.agent", "--to", "duragent", "--output", "out", "--accept-loss", "--format", "json"]
    report = json.loads(duragent(*args, cwd=tmp_path).stdout)
    assert (report["ok"], report["output"], report["files"]) == (True, "out", ["agent.yaml"])
    assert {
        key: value
        for loss in report["losses"]
        for key, value in loss.items()
        if loss["path"] == "trust" and key in ("path", "kind", "protected")
    } == {"path": "trust", "kind": "lost", "protected": True}
    assert duragent("validate", "out", cwd=tmp_path).returncode == 0


def test_a_conversion_does_not_overwrite(bot: Path) -> None:
    done = duragent("convert", bot, "--to", "duragent", "--output", bot)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert (bot / "agent.yaml").read_text() == GOOD


@pytest.mark.parametrize("name", NAMES)
def test_the_committed_schema_is_current_and_a_schema(name: str) -> None:
    committed = json.loads((ROOT / "schemas" / f"{name}.schema.json").read_text())
    assert committed == json.loads(json.dumps(schema(name))), "run `make schemas`"
    jsonschema.Draft202012Validator.check_schema(committed)


@pytest.mark.parametrize("command", ["validate", "show", "hash", "convert", "schema"])
def test_the_help_of_every_command_has_an_example(command: str) -> None:
    done = duragent(command, "--help")
    assert done.returncode == 0
    assert f"duragent {command} " in done.stdout.split("Options:")[0].split("\n", 1)[1]


def test_keys_that_stand_in_a_file_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text(
        "name: x\ntools:\n  mcp:\n"
        "    - {name: a, command: b, env: {GITHUB_TOKEN: s3cret-1, LEVEL: s3cret-2, HOME: '${HOME}'}}\n"
        "    - {name: c, url: 'https://example.com', headers: {X-Api-Key: s3cret-3}}\n"
        "    - db: {connection: 'postgres://me:s3cret-4@example.com/db', apiKey: s3cret-5}\n"
        "auth: {providers: {openai: {from: s3cret-6}, google: {from: env.GOOGLE_KEY}}}\n"
    )
    convert = ["convert", "x.agent", "--to", "duragent", "--output", "out", "--accept-loss", "--format", "json"]
    refused = ["convert", "x.agent", "--to", "agentmd", "--output", "other"]
    show = ["show", "x.agent"]
    for args in (show, [*show, "--origins"], [*show, "--format", "json"], convert, refused):
        printed = duragent(*args, cwd=tmp_path).stdout
        assert "s3cret" not in printed, args
        assert "(hidden)" in printed
    shown = duragent("show", "x.agent", cwd=tmp_path).stdout
    assert "env.GOOGLE_KEY" in shown
    assert "${HOME}" in shown


def test_json_stays_json_where_a_number_is_not_finite(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\nbehavior: {temperature: .nan}\nobservability: {cost_limit: .inf}\n")
    shown = json.loads(duragent("show", "x.agent", "--format", "json", cwd=tmp_path).stdout)
    assert (shown["model"]["temperature"], shown["limits"]["cost_usd"]) == ("nan", "inf")


def test_a_key_cannot_forge_a_line_or_colour_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text('name: "\\e[31mred"\n"a\\nb.agent:1:1  error  forged": 1\n')
    lines = duragent("validate", "x.agent", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("x.agent:2:1  warning  unknown field `a\\nb.agent:1:1  error  forged`")
    assert "\x1b" not in "".join(lines)


def test_the_settings_of_a_workspace_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "duragent.yaml").write_text("server: {prot: 8080}\nsessions: {ttl_hours: ${HOURS}}\n")
    (tmp_path / "x.agent").write_text("name: x\n")
    done = duragent("validate", tmp_path.name, cwd=tmp_path.parent, env={"HOURS": "24"})
    assert done.returncode == 1
    assert "duragent.yaml:1:10  error  unknown field `server.prot` (did you mean `port`?)" in done.stdout
    assert done.stdout.splitlines()[-1] == "1 agent, 1 error, 0 warnings"
    (tmp_path / "duragent.yaml").write_text("server: {port: 8080}\n")
    assert duragent("validate", tmp_path / "duragent.yaml").returncode == 0


def test_origins_and_prompt_are_not_shown_at_once(tmp_path: Path) -> None:
    (tmp_path / "x.agent").write_text("name: x\n")
    assert duragent("show", "x.agent", "--origins", "--prompt", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("hidden", ["\u200b", "\u2028", "\u2029", "\u202e", "\u2066", "\U000e0041", "\x1b", "\x9b"])
def test_nothing_invisible_is_printed(hidden: str) -> None:
    assert clean(f"a{hidden}b") == f"a\\x{ord(hidden):02x}b"
