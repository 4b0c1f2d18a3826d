"""policy test, replay: what an agent's rules say about one call, and what a changed policy would say about past ones.

Reads agents, policy files and session logs; runs nothing and changes nothing. Both answer a question, so whatever the
verdict is, the exit code is 0; 1 means that the agent or a policy file cannot be used, 2 wrong usage.
"""

import json
import os
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from duragent.agent import Agent, CliTool, DiscoveredTool, McpServer, Origin, ScriptTool
from duragent.cli import clean, count, echo_json, existing, output_format, say
from duragent.cli.opening import locate_agent
from duragent.cli.places import shown
from duragent.config import load_config
from duragent.core import events as ev
from duragent.core.policy import Judge, ToolSpec, Verdict, command
from duragent.errors import DuragentError, InvalidAgent
from duragent.hosting import workdir_of
from duragent.policyfiles import read_tier, with_policies
from duragent.store.files import FileStore
from duragent.tools.cli import discover

_COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_SUBJECTS = (
    "bash:LINE, builtin:NAME[:ACTION] [DETAIL], cli:NAME [ARGUMENTS], mcp:SERVER:TOOL [JSON] or script:NAME [JSON]"
)
BUILTINS = {
    spec.name: spec
    for spec in (
        ToolSpec("bash", line="command", needs=("sh",)),
        ToolSpec(
            "background_process",
            line="command",
            detail=("keys", "input", "handle"),
            quiet=("list", "status", "log", "capture", "watch", "unwatch"),
            needs=("sh",),
        ),
        ToolSpec("web", detail=("url", "query"), needs=("network",)),
        ToolSpec("schedule", detail=("message", "task", "schedule_id"), quiet=("list",)),
        ToolSpec("session", detail=("session_id",), quiet=("*",)),
        ToolSpec("memory", detail=("topic", "query"), quiet=("*",)),
        ToolSpec("skill", detail=("script", "name"), quiet=("load", "read", "unload")),
        ToolSpec("tool_help", quiet=("*",)),
        ToolSpec("reload_tools"),
    )
}


class Change(Struct, frozen=True):
    """One call of a log about which the changed policy says something else."""

    session_id: str
    seq: int
    call_id: str
    command: str
    before: Verdict
    after: Verdict


@click.command("test")
@click.argument("agent")
@click.argument("subject")
@output_format("text")
def policy_test_command(agent: str, subject: str, form: str) -> None:
    """Say what the policy of AGENT decides about SUBJECT, and which rule decides it.

    SUBJECT is bash:LINE, builtin:NAME[:ACTION] [DETAIL], cli:NAME [ARGUMENTS], mcp:SERVER:TOOL [JSON] or
    script:NAME [JSON]. Nothing is run.

    \b
    duragent policy test assistant 'bash:git push'
    duragent policy test assistant 'builtin:web:fetch https://example.com' --format json
    duragent policy test assistant 'cli:ledger add 5'
    """
    config = load_config()
    found = with_policies(locate_agent(config, agent), config.workspace)
    spec, call = parse_subject(subject)
    verdict = Judge(found, workdir=workdir_of(config, found, os.environ)).verdict(spec, call)
    if form == "json":
        file, line = _place(verdict.origin)
        echo_json({"verdict": verdict.verdict, "rule": verdict.rule, "file": file, "line": line})
        return
    said = click.style(verdict.verdict, fg=_COLOURS[verdict.verdict], bold=True)
    say(f"{said}  {clean(verdict.rule)}{_where(verdict.origin)}")
    if verdict.why:
        say(f"      {clean(verdict.why)}")


@click.command("replay")
@click.argument("agent")
@click.option("--policy", "file", required=True, type=click.Path(), help="What would stand in place of policy.yaml.")
@output_format("text")
def policy_replay_command(agent: str, file: str, form: str) -> None:
    """Judge every call in the past sessions of AGENT once more, with another policy.yaml.

    Lists the calls about which the verdict would change. Nothing is run, and no file is changed.

    \b
    duragent policy replay assistant --policy new.yaml
    duragent policy replay assistant --policy new.yaml --format json
    """
    config = load_config()
    now = with_policies(locate_agent(config, agent), config.workspace)
    then = _with_tier(now, Path(os.path.abspath(existing(file))))
    workdir = workdir_of(config, now, os.environ)
    judges = Judge(now, workdir=workdir), Judge(then, workdir=workdir)
    shared = discover(str(config.workspace / "tools"))
    calls, changes = 0, list[Change]()
    for session_id, seq, call in _past_calls(FileStore(config.sessions_dir), now.name):
        calls += 1
        spec = spec_of(now, call.tool_name, shared)
        before, after = (judge.verdict(spec, call) for judge in judges)
        if before.verdict != after.verdict:
            changes.append(Change(session_id, seq, call.call_id, command(spec, call), before, after))
    if form == "json":
        echo_json({"calls": calls, "changes": [_as_json(change) for change in changes]})
        return
    for change in changes:
        verdicts = f"{change.before.verdict} → {click.style(change.after.verdict, fg=_COLOURS[change.after.verdict])}"
        say(f"{clean(change.session_id)}  {change.seq}  {verdicts}  {clean(change.command)}")
        say(f"    {clean(change.after.rule)}{_where(change.after.origin)}")
    say(f"{count(len(changes), 'verdict')} of {count(calls, 'call')} would change.")


def parse_subject(subject: str) -> tuple[ToolSpec, ev.ToolCall]:
    """The tool and the call that a subject speaks of."""
    kind, colon, rest = subject.partition(":")
    if not colon or not rest.strip() or kind not in ("bash", "builtin", "cli", "mcp", "script"):
        raise click.UsageError(f"{subject!r} says no call. Write {_SUBJECTS}.")
    if kind == "bash":
        return BUILTINS["bash"], ev.ToolCall("", "bash", {"command": rest})
    name, _, said = rest.partition(" ")
    if kind == "builtin":
        return _builtin(name, said)
    if kind == "cli":
        return ToolSpec(name, kind="cli", needs=("tool",)), ev.ToolCall("", name, {"args": _split(said)})
    if kind == "mcp":
        tool = f"mcp__{name.replace(':', '__')}"
        return ToolSpec(tool, kind="mcp", subject=f"mcp:{name}"), ev.ToolCall("", tool, _object(said))
    return ToolSpec(name, kind="script"), ev.ToolCall("", name, _object(said))


def _builtin(name: str, said: str) -> tuple[ToolSpec, ev.ToolCall]:
    name, _, action = name.partition(":")
    spec = BUILTINS.get(name) or ToolSpec(name, kind="function")
    arguments: dict[str, object] = {"action": action} if action else {}
    if said.lstrip().startswith("{"):
        arguments |= _object(said)
    elif said and spec.line and action in ("", "spawn"):
        arguments[spec.line] = said
    elif said and spec.detail:
        arguments[spec.detail[0]] = said
    elif said:
        raise click.UsageError(f"rules cannot speak of {said!r} for {name}; write its arguments as a JSON object.")
    return spec, ev.ToolCall("", name, arguments)


def _object(said: str) -> dict[str, object]:
    if not said.strip():
        return {}
    try:
        found = json.loads(said)
    except ValueError as error:
        raise click.UsageError(f"{said!r} is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{said!r} is no JSON object.")
    return found


def _split(said: str) -> list[str]:
    try:
        return shlex.split(said)
    except ValueError as error:
        raise click.UsageError(f"the arguments {said!r} cannot be read: {error}.") from None


def spec_of(agent: Agent, name: str, shared: Sequence[DiscoveredTool] = ()) -> ToolSpec:
    """What a tool that a log names is, as far as rules can speak of it. `shared` are programs of the workspace."""
    if name in BUILTINS:
        return BUILTINS[name]
    for tool in (*agent.tools, *shared):
        if isinstance(tool, CliTool | DiscoveredTool) and tool.name == name:
            return ToolSpec(name, kind="cli", needs=("tool",))
        if isinstance(tool, ScriptTool) and tool.name == name:
            return ToolSpec(name, kind="script")
        if isinstance(tool, McpServer) and name.startswith(prefix := f"mcp__{tool.name}__"):
            return ToolSpec(name, kind="mcp", subject=f"mcp:{tool.name}:{name[len(prefix) :]}")
    return ToolSpec(name, kind="function")


def _with_tier(agent: Agent, file: Path) -> Agent:
    """The agent as it would be with this file as its policy.yaml."""
    tier, reader = read_tier(file)
    if tier is None:
        raise InvalidAgent(file, [problem for problem in reader.problems if problem.level == "error"])
    kept = {path: origin for path, origin in agent.origins.items() if not path.startswith("policy.agent.")}
    origins = kept | {f"policy.agent.{path}": origin for path, origin in reader.at.items()}
    return replace(agent, policy=replace(agent.policy, agent=tier), origins=origins)


def _past_calls(store: FileStore, agent: str) -> Iterator[tuple[str, int, ev.ToolCall]]:
    """Every call in the sessions of an agent. A session that cannot be read is told and hinders no other."""
    for session_id in store.ids():
        try:
            if store.read(session_id).session.agent == agent:
                yield from _calls(store, session_id)
        except DuragentError as error:
            say(f"{click.style('warning', fg='yellow', bold=True)}  {clean(str(error))}", err=True)


def _calls(store: FileStore, session_id: str) -> Iterator[tuple[str, int, ev.ToolCall]]:
    for entry in store.entries(session_id):
        match entry.event:
            case ev.AssistantResponse(tool_calls=calls):
                yield from ((session_id, entry.seq, call) for call in calls)
            case ev.ToolCalled(call_id=call_id, tool_name=name, arguments=arguments):
                yield session_id, entry.seq, ev.ToolCall(call_id, name, arguments)


def _as_json(change: Change) -> dict[str, object]:
    file, line = _place(change.after.origin)
    return {
        "session_id": change.session_id,
        "seq": change.seq,
        "call_id": change.call_id,
        "command": change.command,
        "before": change.before.verdict,
        "after": change.after.verdict,
        "rule": change.after.rule,
        "file": file,
        "line": line,
    }


def _place(origin: Origin | None) -> tuple[str | None, int | None]:
    """Where a rule stands: a path that can be opened from anywhere, and the line. Origins are as seen from here."""
    return (None, None) if origin is None else (os.path.abspath(origin.file), origin.line)


def _where(origin: Origin | None) -> str:
    file, line = _place(origin)
    return f"  ({clean(shown(file))}:{line})" if file else ""
