"""Keeps the documentation true: fields, commands, errors, links, examples and printed output.

Compares the pages with the tables and names of the code. Says nothing about how well they are written.
"""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import pytest
from click.testing import CliRunner

import duragent
from duragent import cli, errors, formats
from duragent.agentfiles import examine, find
from duragent.cli import COMMANDS
from duragent.config import CONFIG
from duragent.formats.agentspec.manifest import MANIFEST as AGENTSPEC
from duragent.formats.duragent.fields import MANIFEST as DURAGENT
from duragent.formats.duragent.fields import POLICY
from duragent.formats.fields import Section
from duragent.formats.skills import HEADER as SKILL

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = ROOT / "examples"
PAGES = sorted(DOCS.rglob("*.md"))
TOP = [path for path in (ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")) if path.exists()]

_FENCE = re.compile(r"^(`{3,}).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CONSOLE = re.compile(r"```console\n\$ ([^\n]+)\n(.*?)```", re.DOTALL)


def in_backticks(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {word.replace("\\|", "|") for word in re.findall(r"`([^`\n]+)`", text)}


def undocumented(page: str, *tables: Section) -> list[str]:
    known = in_backticks(DOCS / page)
    return [path for table in tables for path in table.paths() if path not in known]


def tables_of(*modules: str) -> Iterator[Section]:
    """Every field table that the modules of a format define, also those that are part of another."""
    for name in modules:
        module = import_module(f"{formats.__name__}.{name}")
        yield from (value for value in vars(module).values() if isinstance(value, Section))


def undocumented_below(page: str, *modules: str) -> list[str]:
    """Like `undocumented`; the field of an inner table may be documented under its whole path."""
    known = in_backticks(DOCS / page)
    paths = dict.fromkeys(path for table in tables_of(*modules) for path in table.paths())
    return [path for path in paths if not any(each == path or each.endswith(f".{path}") for each in known)]


def modules_of(*names: str) -> list[str]:
    """The modules and packages of a format: `agentmd`, and all below it."""
    found = (
        module.name.removeprefix(f"{formats.__name__}.")
        for module in walk_packages(formats.__path__, f"{formats.__name__}.")
    )
    return [name for name in found if re.split(r"[._]", name)[0] in names]


# --- fields ----------------------------------------------------------------------------------------------


def test_every_field_of_the_duragent_format_is_documented() -> None:
    assert undocumented("formats/duragent.md", DURAGENT, POLICY) == []


def test_every_field_of_the_agentspec_format_is_documented() -> None:
    assert undocumented("formats/agentspec.md", AGENTSPEC) == []


def test_every_field_of_a_skill_header_is_documented() -> None:
    assert undocumented("formats/skills.md", SKILL) == []


def test_every_setting_of_a_workspace_is_documented() -> None:
    assert undocumented("configuration.md", CONFIG) == []


def test_every_field_of_an_agent_directory_is_documented() -> None:
    assert list(tables_of(*modules_of("agentdir"))) != []
    assert undocumented_below("formats/agentdir.md", *modules_of("agentdir")) == []


def test_every_field_of_an_agent_md_file_is_documented() -> None:
    assert list(tables_of(*modules_of("agentmd"))) != []
    assert undocumented_below("formats/agentmd.md", *modules_of("agentmd", "commands")) == []


def test_every_format_has_a_page() -> None:
    assert [name for name in formats.FORMATS if not (DOCS / "formats" / f"{name}.md").exists()] == []


# --- names -----------------------------------------------------------------------------------------------


def everywhere() -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in [*PAGES, *TOP])


def test_every_command_is_documented() -> None:
    text = everywhere()
    assert [name for name in COMMANDS if f"duragent {name}" not in text] == []


def test_every_option_of_every_command_is_documented() -> None:
    text = (DOCS / "commands.md").read_text(encoding="utf-8")
    missing = []
    for name in COMMANDS:
        command = cli.main.get_command(cli.main.make_context("duragent", [name], resilient_parsing=True), name)
        assert command is not None
        options = [each for option in command.params for each in option.opts if each.startswith("--")]
        missing += [f"{name} {option}" for option in options if option not in text]
    assert missing == []


def test_every_exception_is_documented() -> None:
    text = everywhere()
    raised = [
        name for name, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__
    ]
    assert [name for name in raised if f"`{name}`" not in text] == []


def test_every_public_name_is_documented() -> None:
    text = everywhere()
    assert [name for name in duragent.__all__ if not re.search(rf"`{name}[`(]", text)] == []


# --- links and examples ----------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*PAGES, *TOP], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_points_to_a_file(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in _LINK.findall(text)]
    local = [target for target in targets if target and not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_is_on_the_map() -> None:
    shown = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(DOCS)) for page in PAGES} - {"README.md"}
    assert sorted(page for page in pages if page not in shown and f"{page.split('/')[0]}/" not in shown) == []


@pytest.mark.parametrize("path", list(find(EXAMPLES)), ids=lambda path: Path(path).name)
def test_every_example_is_without_any_problem(path: str) -> None:
    found = examine(path)
    assert found.problems == ()
    assert found.ok


def test_every_manifest_among_the_examples_names_its_schema() -> None:
    manifests = [path for path in EXAMPLES.rglob("*") if path.name in ("agent.yaml", "policy.yaml")]
    for path in [*manifests, *EXAMPLES.rglob("*.agent")]:
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
        assert match, f"{path} begins with {first!r}"
        assert (path.parent / match[1]).is_file(), f"{path}: there is no {match[1]}"


def console_blocks() -> Iterator[tuple[str, str]]:
    """What the pages say a command prints. Commands with a pipe or without output are not repeated here."""
    for page in (DOCS / "commands.md", DOCS / "conversion.md"):
        for command, printed in _CONSOLE.findall(page.read_text(encoding="utf-8")):
            if "|" not in command and printed:
                yield command, printed


@pytest.mark.parametrize(("command", "printed"), list(console_blocks()), ids=lambda text: text.partition("\n")[0][:60])
def test_commands_print_what_the_pages_show(
    command: str, printed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    bad = re.search(r"`bad/agent.yaml` being\n\n```yaml\n(.*?)```", page, re.DOTALL)
    assert bad
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "agent.yaml").write_text(bad[1], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli.main, shlex.split(command)[1:]).output
    if printed.endswith("…\n"):
        assert found.startswith(printed.removesuffix("…\n"))
    else:
        assert found == printed


# --- the first page --------------------------------------------------------------------------------------

REVIEWER = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: reviewer
  description: Reviews a git change.
  version: 1.0.0
  labels:
    domain: engineering

spec:
  model:
    provider: openai
    temprature: 0.2
    name: gpt-4o
    max_output_tokens: 4096

  instructions: ./SOUL.md
"""


def blocks(language: str) -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_first_page_shows_what_the_command_really_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reviewer").mkdir()
    (tmp_path / "reviewer" / "agent.yaml").write_text(REVIEWER, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("console")
    command, _, printed = block.removeprefix("$ ").partition("\n")
    assert CliRunner().invoke(cli.main, shlex.split(command)[1:]).output == printed


def test_the_python_of_the_first_page_runs() -> None:
    (block,) = blocks("python")
    done = subprocess.run([sys.executable, "-W", "error", "-c", block], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"web-researcher ag1:[0-9a-f]{12}\n\(\)\n", done.stdout)


def test_every_command_of_make_on_the_first_page_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    shown = set(re.findall(r"^make ([a-z]+)", "".join(blocks("sh")), re.MULTILINE))
    assert shown
    assert shown <= targets


def test_the_program_in_the_page_about_sessions_runs(tmp_path: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / "sessions.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "examples").symlink_to(EXAMPLES)
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("('call_2_1',)\n", "")
