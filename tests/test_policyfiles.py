"""The policy files around an agent: read, never ignored when broken, and added to without losing a word."""

from pathlib import Path

import pytest

from duragent.agent import Agent, Origin, PolicyTier, Source
from duragent.agentfiles import load
from duragent.errors import InvalidAgent, StorageFailed
from duragent.policyfiles import local_file, read_tier, remember, with_policies

RULE = "bash:git push origin main"


def kept(file: Path) -> PolicyTier:
    found, _ = read_tier(file)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"allow:\n  - '{RULE}'\n"),
        ("# mine\nmode: ask\n", f"# mine\nmode: ask\nallow:\n  - '{RULE}'\n"),
        ("mode: ask", f"mode: ask\nallow:\n  - '{RULE}'\n"),
        ("allow:\n  - bash:ls  # look\n", f"allow:\n  - bash:ls  # look\n  - '{RULE}'\n"),
        ("allow:\n- bash:ls\n\n# rest\ndeny: []\n", f"allow:\n- bash:ls\n- '{RULE}'\n\n# rest\ndeny: []\n"),
        ("allow:\n    - bash:ls\nmode: ask", f"allow:\n    - bash:ls\n    - '{RULE}'\nmode: ask"),
        ("allow: [bash:ls]  # c\n", f"allow: [bash:ls, '{RULE}']  # c\n"),
        ("allow: []\nmode: ask\n", f"allow: ['{RULE}']\nmode: ask\n"),
        ("allow: [\n  bash:ls,\n]\n", f"allow: [\n  bash:ls,\n '{RULE}']\n"),
        ("{mode: ask}\n", f"{{mode: ask, allow: ['{RULE}']}}\n"),
        (
            "allow:\n  - |-\n    bash:a\n    b\nmode: ask\n",
            f"allow:\n  - |-\n    bash:a\n    b\n  - '{RULE}'\nmode: ask\n",
        ),
        ("mode: ask\r\nallow:\r\n  - bash:ls\r\n", f"mode: ask\r\nallow:\r\n  - bash:ls\r\n  - '{RULE}'\r\n"),
        ("\ufeffmode: ask\n", f"\ufeffmode: ask\nallow:\n  - '{RULE}'\n"),
        ("deny:\n  - allow\nallow:\n  - bash:ls\n", f"deny:\n  - allow\nallow:\n  - bash:ls\n  - '{RULE}'\n"),
        ("mode: ask\nnotify:\n  enabled: true\n", f"mode: ask\nnotify:\n  enabled: true\nallow:\n  - '{RULE}'\n"),
    ],
)
def test_a_rule_is_added_and_every_other_letter_stays(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "policy.local.yaml"
    file.write_text(before, encoding="utf-8", newline="")
    remember(file, RULE)
    assert file.read_bytes().decode() == after
    assert RULE in kept(file).allow


@pytest.mark.parametrize(
    "rule",
    [
        "bash:echo 'it''s'",
        'bash:echo "a: b" # c',
        "bash:printf 'a\nb'",
        "bash:échø ☃",
        "bash:- x",
        "bash:echo \\* {a} [b] &c !d",
        "bash:echo \x7f",
    ],
)
def test_any_rule_comes_back_as_it_was(tmp_path: Path, rule: str) -> None:
    file = tmp_path / "policy.local.yaml"
    remember(file, rule)
    remember(file, RULE)
    assert kept(file).allow == (rule, RULE)


def test_a_rule_that_is_there_is_not_added_again_and_says_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "policy.local.yaml"
    file.write_text(f"allow:\n  - {RULE}\n")
    assert remember(file, RULE) == Origin(str(file), 2, 5)
    assert file.read_text() == f"allow:\n  - {RULE}\n"


@pytest.mark.parametrize("text", ["allow: nonsense: [", "allow: 5\n", "mode: ask\n...\n", "%YAML 9.9\n"])
def test_a_file_that_cannot_be_added_to_stays_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "policy.local.yaml"
    file.write_text(text)
    with pytest.raises((InvalidAgent, StorageFailed)):
        remember(file, RULE)
    assert file.read_text() == text
    assert list(tmp_path.iterdir()) == [file]


def test_the_workspace_has_a_policy_for_all_its_agents(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("mode: restrict\ndeny:\n  - bash:rm *\n")
    agent = with_policies(Agent(name="a", source=Source(format="agentspec", path=str(tmp_path / "a.agent"))), tmp_path)
    assert agent.policy.workspace == PolicyTier("restrict", deny=("bash:rm *",))
    assert agent.origins["policy.workspace.deny[0]"] == Origin(str(tmp_path / "policy.yaml"), 3, 5)


@pytest.mark.parametrize("name", ["policy.yaml", "policy.yml"])
def test_a_broken_or_misnamed_policy_of_the_workspace_stops_its_agents(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mode: everything\n")
    with pytest.raises(InvalidAgent):
        with_policies(Agent(name="a", source=Source(path=str(tmp_path))), tmp_path)


def test_a_duragent_agent_keeps_its_rules_beside_itself_and_others_in_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "agents" / "helper"
    folder.mkdir(parents=True)
    (folder / "agent.yaml").write_text(
        "apiVersion: duragent/v1alpha1\nkind: Agent\nmetadata: {name: helper}\nspec: {model: {provider: openai, name: x}}\n"
    )
    agent = load(str(folder))
    assert local_file(agent, tmp_path) == folder / "policy.local.yaml"
    remember(local_file(agent, tmp_path), RULE)
    assert with_policies(load(str(folder)), tmp_path).policy.local == PolicyTier(allow=(RULE,))

    other = Agent(name="Ada / B", source=Source(format="agentmd", path=str(tmp_path / "x.agent.md")))
    file = local_file(other, tmp_path)
    assert file.parent == tmp_path / "policies" and file.name.startswith("ada-b-")
    remember(file, RULE)
    assert with_policies(other, tmp_path).policy.local == PolicyTier(allow=(RULE,))
    twin = Agent(name="Ada / B", source=Source(format="agentmd", path=str(tmp_path / "y.agent.md")))
    assert with_policies(twin, tmp_path).policy.local is None
