"""Which sandbox works on the machine that runs the tests. Where none does, tests of it are skipped, and say so."""

import pytest

from duragent.sandbox import open_sandbox


def needs_a_sandbox() -> None:
    sandbox, choice = open_sandbox("auto")
    if sandbox is None:
        pytest.skip(f"NOT PROVEN HERE: {choice.why}")
