"""Boxes and backends for tests. A backend that does not work here is skipped loudly: what it promises is unproven."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from duragent.sandbox import BACKENDS, Box, Ended, Sandbox, make, probe

ALL = ("none", *BACKENDS)
PYTHON = os.path.realpath(sys.executable)


def require(name: str, unproven: str) -> None:
    if name in BACKENDS and not (tried := probe(name)).works:
        pytest.skip(f"NOT PROVEN for {name} on this machine: {unproven}. It does not work here: {tried.reason}")


@asynccontextmanager
async def opened(name: str) -> AsyncIterator[Sandbox]:
    sandbox = make(name)
    try:
        yield sandbox
    finally:
        await sandbox.close()


def box_at(folder: Path, **more: Any) -> Box:
    """A box around a folder, in which this interpreter can run."""
    prefix = os.path.realpath(sys.base_prefix)
    box = Box(
        cwd=str(folder),
        readable=(prefix,) if prefix != "/usr" else (),
        writable=(str(folder),),
        environment={"PATH": os.defpath, "TMPDIR": "/tmp", "HOME": "/tmp/home"},
    )
    return replace(box, **more)


async def sh(sandbox: Sandbox, line: str, box: Box, **more: Any) -> Ended:
    return await sandbox.run(["bash", "-c", line], box, **more)


def told(ended: Ended) -> tuple[str, int, str]:
    return ended.ending, ended.code, ended.output.decode()
