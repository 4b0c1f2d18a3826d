"""Well-formed agents of every format, as texts: what the workspace is built from and the fuzzer starts with."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parents[1] / "examples"


@dataclass(frozen=True)
class Sample:
    """`entry` is the file to point at, or "" for the folder; `manifest` what may not be missing."""

    format: str
    entry: str
    manifest: str
    files: Mapping[str, str]


def _below(root: Path) -> dict[str, str]:
    found = sorted(path for path in root.rglob("*") if path.is_file())
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found}


_SEED = {name: (DATA / name).read_text(encoding="utf-8") for name in ("seed.agent", "parent.agent")}
_PAGE = "writing_policy-writer.agent.md"

SAMPLES = (
    Sample("duragent", "", "agent.yaml", _below(DATA / "duragent")),
    Sample("agentspec", "seed.agent", "seed.agent", _SEED),
    Sample("agentspec", "", "agent.yaml", _below(DATA / "agentspec-folder")),
    Sample("agentdir", "", "instructions.md", _below(EXAMPLES / "release-agent")),
    Sample("agentmd", _PAGE, _PAGE, _below(EXAMPLES / "policy-writer")),
    Sample("openagentspec", "", "agent.yaml", _below(DATA / "openagentspec")),
    Sample("openagentspec", "agent.json", "agent.json", _below(DATA / "openagentspec-json")),
)
FORMATS = tuple(dict.fromkeys(sample.format for sample in SAMPLES))
