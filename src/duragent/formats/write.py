"""Writes YAML for people: keys in their order, long texts as blocks, numbers and words quoted when they must be.

Both dialects read back what is written here as the same values.
"""

import re
from collections.abc import Mapping
from typing import Any

import yaml

from duragent.agent import Json

# Plain words that one of the two dialects would take for something else.
_AMBIGUOUS = re.compile(
    r"^(?:y|n|yes|no|on|off|true|false|null|~|=|<<|[-+]?[0-9._]+(?:e[-+]?[0-9]+)?|0[ox][0-9a-f]+|[-+]?[0-9][0-9:._]*|[-+]?\.(?:inf|nan)|\d{4}-\d\d?-\d\d?.*)$",
    re.IGNORECASE,
)
# Line ends of YAML 1.1 other than LF: only double quotes keep them.
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)  # lists are indented under their key


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    style = None
    if "\n" in value and not re.search(
        r"[ \t]\n|^[ \t\n]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff\ud800-\udfff\u2028\u2029]", value
    ):
        style = "|"
    elif _AMBIGUOUS.match(value) or _LINE_ENDS.search(value):
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style)


def _float(dumper: _Dumper, value: float) -> yaml.ScalarNode:
    text = repr(value)
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    special = {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}
    return dumper.represent_scalar("tag:yaml.org,2002:float", special.get(text, text))


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _float)
_Dumper.add_representer(tuple, lambda dumper, value: dumper.represent_list(value))


def said(values: Mapping[str, Json]) -> dict[str, Json]:
    """Only what says something: no nothing, no empty list or map."""
    return {name: value for name, value in values.items() if value is not None and value not in ([], {}, ())}


def laid_over(ours: Mapping[str, Json], kept: Mapping[str, Json]) -> dict[str, Json]:
    """What we write, with what was kept from the file laid over it, map by map; what was kept wins."""
    found = dict(ours)
    for name, value in kept.items():
        below = found.get(name)
        found[name] = laid_over(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return found


def file_name(name: str) -> str:
    """A name that is safe as the name of a file on any disk."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:100] or "agent"


def dump_yaml(value: Json) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)
