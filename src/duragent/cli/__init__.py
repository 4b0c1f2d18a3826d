"""The command line. One module per group of commands, loaded when one of them is called.

Prints what a person wants to read; `--format json` what a program does. Exit codes: 0 fine, 1 problems,
2 wrong usage, 3 a person must decide first, 130 stopped. No traceback ever reaches a person.

Adding a command: a function `<name>_command` in a module here (`<group>_<name>_command` inside a group), and a
line in `COMMANDS` or `GROUPS`.
"""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, TextIO, TypeVar

import click

from duragent import __version__
from duragent.errors import DuragentError

Table = Mapping[str, tuple[str, str]]

COMMANDS: Table = {
    "init": ("duragent.cli.agents", "Make this folder a workspace with a first agent."),
    "agent": ("", "Create and list the agents of the workspace."),
    "run": ("duragent.cli.running", "Let an agent answer one prompt, without a terminal."),
    "chat": ("duragent.cli.chatting", "Talk with an agent."),
    "attach": ("duragent.cli.chatting", "Come back to a session."),
    "session": ("", "List, read, resume, fork, export and delete sessions."),
    "policy": ("", "Try rules, and see what a changed policy would have decided."),
    "skill": ("", "List an agent's skills; fetch, approve and remove those from elsewhere."),
    "doctor": ("duragent.cli.doctoring", "Say what this machine can do, and try the sandbox."),
    "validate": ("duragent.cli.checking", "Say everything that is wrong with agent files."),
    "show": ("duragent.cli.showing", "Print the effective agent, or its prompt."),
    "hash": ("duragent.cli.hashing", "Print an agent's fingerprints."),
    "convert": ("duragent.cli.converting", "Write an agent in another format."),
    "schema": ("duragent.cli.schemas", "Print a JSON Schema for editors."),
}
GROUPS: Mapping[str, Table] = {
    "agent": {
        "create": ("duragent.cli.agents", "Write a new agent from a template."),
        "list": ("duragent.cli.agents", "List the agents of the workspace."),
    },
    "policy": {
        "test": ("duragent.cli.policies", "Say the verdict about a call, and the rule that decides."),
        "replay": ("duragent.cli.policies", "Judge the calls of past sessions by a changed policy."),
    },
    "skill": {
        "list": ("duragent.cli.skills", "List the skills of an agent and how each stands."),
        "add": ("duragent.cli.skills", "Fetch skills behind addresses into quarantine."),
        "approve": ("duragent.cli.skills", "Let agents use a fetched skill."),
        "remove": ("duragent.cli.skills", "Forget a fetched skill."),
    },
    "session": {
        "list": ("duragent.cli.sessions", "List sessions, the newest first."),
        "show": ("duragent.cli.sessions", "Say how a session stands."),
        "log": ("duragent.cli.sessions", "Print what happened, event by event."),
        "resume": ("duragent.cli.resuming", "Carry interrupted turns to their end."),
        "approve": ("duragent.cli.resuming", "Decide what a session asks."),
        "fork": ("duragent.cli.keeping", "Start a new session from the beginning of another."),
        "export": ("duragent.cli.keeping", "Write a session as Markdown or JSON."),
        "delete": ("duragent.cli.keeping", "Delete a session and its files."),
    },
}
_EXAMPLES = {
    "agent": """\b
duragent agent create reviewer --provider anthropic
duragent agent create helper --format agentmd
duragent agent list""",
    "policy": """\b
duragent policy test assistant 'bash:git push'
duragent policy replay assistant --policy new.yaml""",
    "skill": """\b
duragent skill list assistant
duragent skill add assistant
duragent skill approve https://example.com/skills/weekly-review/SKILL.md""",
    "session": """\b
duragent session list
duragent session log 01JABC
duragent session resume --all""",
}


Command = TypeVar("Command", bound=Callable[..., object])


class Lazy(click.Group):
    """Knows the commands of its table by name and imports only the one that is called."""

    def __init__(self, *args: Any, table: Table = COMMANDS, prefix: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        self.table, self.prefix = table, prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.table:
            return None
        module, about = self.table[name]
        if not module:
            return Lazy(name, table=GROUPS[name], prefix=f"{name}_", help=f"{about}\n\n{_EXAMPLES[name]}")
        command: click.Command = getattr(import_module(module), f"{self.prefix}{name}_command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = get_close_matches(args[0], self.table, 1)
            hint = f" Did you mean `{close[0]}`?" if close else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx) from error


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="duragent %(version)s")
def main() -> None:
    """Agents are files: check them, talk with them, and lose nothing that was said.

    \b
    duragent init                         a workspace with a first agent
    duragent chat --agent assistant       talk with it; Ctrl-D leaves, `duragent attach` comes back
    duragent run assistant "Say hello."   one answer, for scripts
    duragent validate examples            every problem of every agent below
    duragent convert researcher.agent --to duragent --output out
    """


def run() -> None:
    """The whole program: what goes wrong becomes one line on stderr and an exit code."""
    sys.excepthook = _unexpected
    try:
        code = main.main(standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except DuragentError as error:
        say(f"{click.style('error', fg='red', bold=True)}  {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads; be silent about it
        sys.exit(1)
    except OSError as error:
        say(f"{click.style('error', fg='red', bold=True)}  {_os_error(error)}", err=True)
        sys.exit(1)


def _unexpected(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """The last word about a mistake of ours. Whoever mends it asks for the trace."""
    if os.environ.get("DURAGENT_DEBUG"):
        sys.__excepthook__(kind, error, trace)
        return
    what = clean(f"{kind.__name__}: {error}")
    hint = "Nothing that was acknowledged is lost. DURAGENT_DEBUG=1 shows where it happened."
    say(f"{click.style('error', fg='red', bold=True)}  this is a mistake in duragent itself: {what}. {hint}", err=True)


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def echo_json(value: Any) -> None:
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str)
    click.echo(text.encode("utf-8", "backslashreplace").decode())  # a lone surrogate becomes JSON's own escape


def _finite(value: Any) -> Any:
    """JSON knows no infinity; it is written as a text."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print what may hold a stranger's text; only our own colours get through, and none where nobody sees them."""
    click.echo(_UNPRINTABLE.sub(_escaped, text), err=err, nl=nl, color=False if plain() else None)


def plain() -> bool:
    """Whether colours, spinners and questions are unwelcome wherever the output goes."""
    return any(os.environ.get(name) for name in ("CI", "NO_COLOR")) or os.environ.get("TERM") == "dumb"


def on_terminal(stream: TextIO | None = None) -> bool:
    """Whether a person looks at this stream (standard output, if none is named)."""
    return not os.environ.get("CI") and is_terminal(stream)


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether this stream (standard output, if none is named) is a terminal, whoever looks at it."""
    stream = stream or sys.stdout
    return stream is not None and not stream.closed and stream.isatty()


def put(text: str) -> None:
    """Print an answer: harmless on a terminal; in a pipe or a file as it was given, and only its last line ended."""
    if is_terminal():
        say(clean(text.strip(), lines=True))
    else:
        click.echo(text.encode("utf-8", "backslashreplace"), nl=not text.endswith("\n"))


def clean(text: str, *, lines: bool = False) -> str:
    """A stranger's text, without anything that could move the cursor, colour or turn the writing around.

    Unless `lines`, it stays on one line, so that it cannot pass for a second message.
    """
    text = text.replace("\x1b", "\\x1b")
    return _UNPRINTABLE.sub(_escaped, text if lines else text.replace("\n", "\\n"))


def _escaped(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]):02x}"


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    "\U000e0000-\U000e007f]|\x1b(?!\\[[0-9;]*m)"
)


def output_format(first: str) -> Callable[[Command], Command]:
    """The option `--format`, for people by default."""
    return click.option(
        "--format",
        "form",
        type=click.Choice([first, "json"]),
        default=first,
        show_default=True,
        help="For people, or for programs.",
    )


def existing(path: str) -> str:
    """A path that a person named, or wrong usage."""
    if not os.path.lexists(path):
        raise click.UsageError(f"{path}: there is nothing here.")
    return path


def config_problems(path: str) -> Any:
    """What is wrong with a workspace's settings. Their table is loaded only where there are some."""
    return import_module("duragent.config").examine_config(path, os.environ)


_SECRET = re.compile(r"(?:token|key|secret|passw(?:or)?d|cookie|authorization|credential)s?", re.IGNORECASE)
_POINTER = re.compile(r"(?:\$\{\w+\}|env\.\w+|env\(.*\))?")


def masked(value: Any, name: str = "") -> Any:
    """Keys and tokens that somebody wrote into a file are not shown; where they come from is."""
    if isinstance(value, dict):
        inside = name in ("env", "headers")
        return {key: masked(each, "secret" if inside else str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked(each, name) for each in value]
    words = re.split(r"[_\-. ]|(?<=[a-z])(?=[A-Z])", name)
    if isinstance(value, str) and "://" in value:
        value = re.sub(r"(://[^/@\s:]*:)[^/@\s]+@", r"\1(hidden)@", value)
    if isinstance(value, str) and any(_SECRET.fullmatch(word) for word in words) and not _POINTER.fullmatch(value):
        return "(hidden)"
    return value


def count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
