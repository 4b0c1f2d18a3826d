"""What a person waits for who asks one thing: `duragent run` as a whole process, and a script that does only the call.

The script (`data/first_call.py`) imports aiohttp, asks the same fake model once and appends two lines to a file.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import chdir
from pathlib import Path
from unittest.mock import patch

from bench.fake_model import serving
from bench.measure import PROMPT, scratch
from bench.startup import compare, compile_all, medians, script
from bench.table import Row

CALL = Path(__file__).parent / "data" / "first_call.py"
LIMIT = 3.0
AGENT = """\
apiVersion: duragent/v1alpha1
kind: Agent
metadata:
  name: first
spec:
  model:
    provider: openai
    name: fake
    base_url: {url}/plain/v1
  system_prompt: ./SYSTEM_PROMPT.md
"""


def build(folder: Path, url: str) -> None:
    (folder / "agent.yaml").write_text(AGENT.format(url=url), encoding="utf-8")
    (folder / "SYSTEM_PROMPT.md").write_text("You are brief.\n", encoding="utf-8")


def run(quick: bool) -> Iterator[Row]:
    ours = script("duragent")
    if ours is None:
        yield Row("first turn", "the duragent command is not installed beside this interpreter", ok=False)
        return
    compile_all()
    with (
        serving() as url,
        tempfile.TemporaryDirectory(prefix="bench-", dir=scratch()) as folder,
        chdir(folder),
        patch.dict(os.environ, {"OPENAI_API_KEY": "key"}),
    ):
        build(Path(folder), url)
        commands: dict[str, Sequence[str]] = {
            "floor": (sys.executable, str(CALL), url, "floor.jsonl"),
            "ours": (ours, "run", ".", PROMPT),
        }
        found = medians(commands, 5 if quick else 21)
    yield from compare("process start to first turn done", found, "ours", "floor", "bare script", LIMIT)
