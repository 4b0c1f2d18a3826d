"""Where agents are, and how paths and tables look to a person. What several commands share, and nothing heavy."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from duragent.agentfiles import Examined, examine, find
from duragent.cli import clean


def examined(folder: Path) -> Iterator[Examined]:
    """Everything about every agent below a folder, sorted by path."""
    if not folder.is_dir():
        return
    for path in find(folder):
        if Path(path) != folder:
            yield examine(path)


def named_agents(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and path of every agent below a folder; one that cannot be read goes by the name of its file."""
    for found in examined(folder):
        yield (found.agent.name if found.agent else Path(found.path).name.split(".")[0]), found.path


def shown(path: Path | str) -> str:
    """A path as a person here would type it."""
    try:
        near = os.path.relpath(path)
    except ValueError:
        return clean(str(path))
    return clean(str(path) if near.startswith(os.pardir) else near)


def write_new(path: Path | str, data: bytes, mode: int = 0o666) -> None:
    """Write a file that is not there yet. One that could not be written whole is taken away again."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(path)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def aligned(rows: list[list[str]]) -> list[str]:
    """Rows as lines with their columns under each other."""
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[index]) for row in cleaned) for index in range(len(cleaned[0]))] if cleaned else []
    return ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in cleaned]
