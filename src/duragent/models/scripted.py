"""A model that speaks from a script: for tests, for demos, and for trying an agent where no model is.

Keeps no state at all. Which line comes next is worked out from the request alone, so that a session that was
killed and opened again goes on where it was. It never passes for a real model: its name is `scripted/<file>`, and
what it says first in a session begins with a marker.

A new thing a line can do: a field of `Line`, handled in `ScriptedModel.answer`, documented in docs/models.md.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import yaml
from msgspec import Struct, ValidationError, convert

from duragent.agent import Json
from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage
from duragent.core.session import Message
from duragent.errors import ModelFailed
from duragent.models import Answer, Listener

MARKER = "[script]\n"
_PIECE = re.compile(r"\S+\s*|\s+")
_SLOT = re.compile(r"\{(result|results|message)\}")
_STEP = re.compile(r"\[(\d+|\.\.\.)\]|\.?([^.\[\]]+)")
_WHERE = re.compile(r" - at `(?:key in )?\$?(.*)`$")


class Call(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call. `malformed` is a text in the place of arguments, as a real model sometimes writes it."""

    tool: str
    arguments: Mapping[str, Json] = {}
    id: str = ""
    malformed: str | None = None


class Tokens(Struct, frozen=True, forbid_unknown_fields=True):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


class Failure(Struct, frozen=True, forbid_unknown_fields=True):
    """What a provider would say. A failure that is not `lasting` may be tried again by whoever asked."""

    message: str = "the script says that the model fails here"
    status: int | None = None
    lasting: bool = True
    billed: bool = False


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """One answer. An error comes after the text, as a stream that breaks does."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    error: Failure | None = None
    delay_seconds: float = 0.0  # before the first word
    piece_seconds: float = 0.0  # between two words
    restart_after: int | None = None  # after so many words the stream breaks once and begins again
    usage: Tokens | None = None
    cost_usd: float = 0.0


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered to a message that matches the glob `when`, whatever its case, one line after another."""

    when: str
    answers: tuple[Line, ...]
    repeat: bool = False


class Script(Struct, frozen=True, forbid_unknown_fields=True):
    """`rules` are looked at first. Messages that no rule takes get `answers`, one after another through the whole
    session, from the start again with `repeat`; and `default` where nothing is left to say."""

    answers: tuple[Line, ...] = ()
    rules: tuple[Rule, ...] = ()
    default: Line | None = None
    repeat: bool = False


class ScriptedModel:
    """Plays the script in the file `path`, or the `answers` and `rules` it is given. `marker` is "" only in tests."""

    def __init__(
        self,
        path: str | Path = "",
        *,
        answers: Sequence[Line] = (),
        rules: Sequence[Rule] = (),
        default: Line | None = None,
        repeat: bool = False,
        marker: str = MARKER,
    ) -> None:
        self.name = f"scripted/{Path(path).name or 'answers'}"
        self._script = load(path) if path else Script(tuple(answers), tuple(rules), default, repeat)
        self._marker = marker

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        line = self._next(request)
        text = _filled(line.text, request)
        if text and not any(each.role == "assistant" and each.content for each in request.messages):
            text = self._marker + text
        try:
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(line.delay_seconds)
                await _speak(text, line, listener)
        except TimeoutError:
            raise ModelFailed(f"{self.name}: no answer within {timeout_seconds:g} seconds", billed=False) from None
        if line.error is not None:
            failure = line.error
            raise ModelFailed(
                f"{self.name}: {failure.message}",
                lasting=failure.lasting,
                billed=failure.billed,
                status=failure.status,
            )
        return Answer(text, tuple(_calls(line, request)), _usage(line.usage), line.cost_usd)

    async def close(self) -> None:
        """Nothing is open."""

    def _next(self, request: Request) -> Line:
        asked = _newest(request)
        given = (
            len(request.messages)
            - 1
            - max((index for index, each in enumerate(request.messages) if each.role == "user"), default=-1)
        )
        rule = _rule_for(self._script, asked)
        lines, index = (rule.answers, given) if rule else (self._script.answers, _position(self._script, request))
        if lines and (rule.repeat if rule else self._script.repeat):
            index %= len(lines)
        if index < len(lines):
            return lines[index]
        if self._script.default is not None:
            return self._script.default
        place = f"the rule for {rule.when!r}" if rule else "`answers`"
        raise ModelFailed(
            f"{self.name}: nothing is left in {place} to say to {asked[:60]!r} (answer {index + 1} of {len(lines)}). "
            "Add a line, a `default`, or `repeat: true`",
            lasting=True,
            billed=False,
        )


def _newest(request: Request) -> str:
    return next((each.content for each in reversed(request.messages) if each.role == "user"), "")


def _rule_for(script: Script, asked: str) -> Rule | None:
    return next((rule for rule in script.rules if fnmatchcase(asked.lower(), rule.when.lower())), None)


def _position(script: Script, request: Request) -> int:
    """How many of the script's own `answers` the session has heard. An error leaves no answer behind, only a message
    that another message follows; where the script says one there, it counts as said."""
    position, ours = 0, True
    for index, message in enumerate(request.messages):
        if message.role == "user":
            ours = _rule_for(script, message.content) is None
            follower = request.messages[index + 1] if index + 1 < len(request.messages) else None
            unanswered = follower is not None and follower.role == "user"
            position += ours and unanswered and position < len(script.answers) and bool(script.answers[position].error)
        else:
            position += ours
    return position


async def _speak(text: str, line: Line, listener: Listener) -> None:
    pieces = _PIECE.findall(text)
    if line.restart_after is not None:
        await _say(pieces[: line.restart_after], line, listener)
        listener.restart("the script breaks its stream here")
    await _say(pieces, line, listener)


async def _say(pieces: list[str], line: Line, listener: Listener) -> None:
    for piece in pieces:
        listener.delta(piece)
        await asyncio.sleep(line.piece_seconds)  # also with 0: who listens must have a chance to stop it


def _calls(line: Line, request: Request) -> Iterator[ToolCall]:
    """The ids are made from the newest thing that was said: the same after a restart, new for every answer."""
    newest = max((message.seq for message in request.messages), default=0)
    for index, call in enumerate(line.calls, start=1):
        call_id = call.id or f"call_{newest}_{index}"
        if call.malformed is not None:
            yield ToolCall(call_id, call.tool, None, call.malformed)
        else:
            yield ToolCall(call_id, call.tool, _filled_in(dict(call.arguments), request))


def _usage(tokens: Tokens | None) -> Usage | None:
    if tokens is None:
        return None
    total = tokens.prompt_tokens + tokens.completion_tokens
    return Usage(tokens.prompt_tokens, tokens.completion_tokens, total, tokens.cached_tokens)


def _filled_in(value: Json, request: Request) -> Json:
    if isinstance(value, str):
        return _filled(value, request)
    if isinstance(value, dict):
        return {key: _filled_in(each, request) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled_in(each, request) for each in value]
    return value


def _filled(text: str, request: Request) -> str:
    """The text with what the tools gave back (`{result}` the last, `{results}` all) and the `{message}` answered."""
    if "{" not in text:
        return text
    results = _results(request.messages)
    values = {
        "result": results[-1] if results else "",
        "results": "\n".join(results),
        "message": _newest(request),
    }
    return _SLOT.sub(lambda found: values[found[1]], text)


def _results(messages: Sequence[Message]) -> list[str]:
    last = next((each for each in reversed(messages) if each.role == "assistant"), None)
    return [call.content for call in last.calls] if last is not None else []


def load(path: str | Path) -> Script:
    """The script in a file, or a ModelFailed that names the line and what to do."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise _bad(f"scripted/{path}: the script cannot be read: {reason}. Give the path of a YAML file") from None
    return parse(text, str(path))


def parse(text: str, path: str) -> Script:
    """The script that a YAML text says."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        what = getattr(error, "problem", None) or "it cannot be read"
        raise _bad(
            f"{path}:{mark.line + 1 if mark else 1}: this is not YAML: {what}. Check indents and quotes"
        ) from None
    try:
        return convert(raw, Script)
    except ValidationError as error:
        found = _WHERE.search(str(error))
        where = found[1].lstrip(".") if found else ""
        line = _line(tree, where, str(error))
        said = str(error)[: found.start()] if found else str(error)
        raise _bad(f"{path}:{line}: {where or 'the script'}: {said}. {_hint(where)}") from None


def _bad(text: str) -> ModelFailed:
    return ModelFailed(text, lasting=True, billed=False)


def _line(node: yaml.Node | None, where: str, said: str) -> int:
    """The line of the place that msgspec names; of the very key where it speaks of a field."""
    for index, key in _STEP.findall(where):
        if isinstance(node, yaml.SequenceNode) and index.isdigit() and int(index) < len(node.value):
            node = node.value[int(index)]
        elif isinstance(node, yaml.MappingNode) and key:
            node = next((value for name, value in node.value if name.value == key), node)
    if isinstance(node, yaml.MappingNode):
        named = (name for name, _ in node.value if f"`{name.value}`" in said)
        node = next(named, node)
    return int(node.start_mark.line) + 1 if node is not None else 1


def _hint(where: str) -> str:
    kinds: tuple[tuple[str, type[Struct]], ...] = (
        ("calls", Call),
        ("error", Failure),
        ("usage", Tokens),
        ("answers", Line),
        ("default", Line),
        ("rules", Rule),
    )
    kind = next((kind for word, kind in kinds if word in where), Script)
    return f"There can be: {', '.join(kind.__struct_fields__)}"
