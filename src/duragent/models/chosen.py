"""The models of agents, chosen and opened once: what a runtime asks when it needs those of an agent.

Puts `choosing.py` (which) and `open_model` (how) together; the connections that all of them share are its own.
"""

from collections.abc import Callable, Mapping, Sequence

from duragent.agent import Agent
from duragent.core.resolve import KNOWN_LOCAL, Candidate
from duragent.errors import ModelFailed
from duragent.models import Closing, Model, open_model, open_transport
from duragent.models.choosing import choose

_INSIDE = ("scripted", "local")  # models that need no connection


class Chosen:
    """Chooses the models of each agent once, and again when what the agent says about them has changed. `tell` hears
    what a person should know about the choice."""

    def __init__(
        self,
        environ: Mapping[str, str],
        override: str | None = None,
        embedded: bool = False,
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.environ, self.override, self.embedded, self.tell = environ, override, embedded, tell
        self._chosen: dict[str, Sequence[Model]] = {}
        self._transport: Closing | None = None

    async def __call__(self, agent: Agent) -> Sequence[Model]:
        key = f"{agent.name} {agent.source.path} {agent.model} {agent.auth}"
        if key not in self._chosen:
            embedded = self.embedded or not agent.model.candidates
            plan = await choose(agent, self.environ, override=self.override, embedded_ok=embedded)
            small = [str(each) for each in plan.candidates] == [f"local/{KNOWN_LOCAL[0]}"]
            for text in plan.notes[-1:] if small else plan.notes:
                self.tell(text)
            self._chosen[key] = self._opened(plan.candidates)
        return self._chosen[key]

    def _opened(self, candidates: Sequence[Candidate]) -> list[Model]:
        """Those that can be opened, in their order. One that cannot is told, and the next takes its place."""
        models: list[Model] = []
        failures: list[ModelFailed] = []
        for each in candidates:
            try:
                models.append(self._open(each))
            except ModelFailed as failure:
                failures.append(failure)
        if not models and failures:
            raise failures[0]
        for told in failures:
            self.tell(str(told))
        return models

    def _open(self, candidate: Candidate) -> Model:
        if candidate.provider not in _INSIDE and self._transport is None:
            self._transport = open_transport()
        return open_model(candidate, environ=self.environ, transport=self._transport)

    async def close(self) -> None:
        if self._transport is not None:
            await self._transport.close()
