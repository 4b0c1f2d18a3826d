"""Every exception this package raises on purpose, grouped by who must act.

* DuragentError          base; the message is written for a person
  the author of an agent
  x InvalidAgent         an agent definition cannot be used; carries every Problem
  the caller
  x NotFound             nothing is there: a path, an agent, a registry entry
  x LossRefused          a conversion would lose what protects the owner
  x NotAllowed           the owner's settings forbid it
  x Conflict             it does not fit the state of things: another process holds the session, nothing waits
  the operator
  x CorruptLog           a session's files are damaged in a way no crash explains
  x StorageFailed        the disk refused: full, read-only, broken
  the world
  x FetchFailed          a URL could not be read, or must not be
  x ModelFailed          a model gave no answer; says whether trying again can help
"""

from collections.abc import Sequence


class DuragentError(Exception):
    """Base of everything raised on purpose."""


class InvalidAgent(DuragentError):
    """An agent definition cannot be used. `problems` lists everything that is wrong with it."""

    def __init__(self, path: object, problems: Sequence[object]) -> None:
        self.path = str(path)
        self.problems = tuple(problems)
        listed = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{self.path} cannot be used:\n{listed}")


class NotFound(DuragentError):
    """Nothing is there."""


class LossRefused(DuragentError):
    """A conversion would lose trust, policy, access or limits. `losses` is the whole report."""

    def __init__(self, message: str, losses: Sequence[object]) -> None:
        self.losses = tuple(losses)
        super().__init__(message)


class FetchFailed(DuragentError):
    """A URL could not be read, or must not be."""


class NotAllowed(DuragentError):
    """The owner's settings forbid it."""


class Conflict(DuragentError):
    """It does not fit the state of things."""


class CorruptLog(DuragentError):
    """A session's files are damaged in a way no crash explains. The message names the file and the line."""


class StorageFailed(DuragentError):
    """The disk refused. Nothing that was being written counts as written."""


class ModelFailed(DuragentError):
    """A model gave no answer. `lasting` ones would fail again; `billed` ones may have cost money."""

    def __init__(self, message: str, *, lasting: bool = False, billed: bool = True, status: int | None = None) -> None:
        self.lasting, self.billed, self.status = lasting, billed, status
        super().__init__(message)
