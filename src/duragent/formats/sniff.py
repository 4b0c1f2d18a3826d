"""A first look at a YAML or JSON manifest: its top-level keys, to tell which format it may be of."""

import re

from duragent.formats.yaml import Fault, parse_yaml

_LINE = re.compile(
    r"^(?P<quote>[\"']?)(?P<key>[A-Za-z_]\w*)(?P=quote)[ \t]*:(?:[ \t]+(?P<value>.*?))?[ \t]*$", re.MULTILINE
)
_COMMENT = re.compile(r"\s*#[^\n]*\n|\s+|---[^\S\n]*\n|%[^\n]*\n")


def top(text: str) -> dict[str, str]:
    """The keys at the top and the text of their values. Quick for ordinary YAML; JSON and the like are parsed."""
    start = 0
    while found := _COMMENT.match(text, start):
        start = found.end()
    if text[start : start + 1] not in ("{", "?", '"', "'", "&", "!"):
        return {found["key"]: (found["value"] or "").strip("\"'") for found in _LINE.finditer(text)}
    try:
        node, _ = parse_yaml(text, "1.2")
    except Fault:
        return {found["key"]: (found["value"] or "").strip("\"',") for found in _LINE.finditer(text.lstrip("{ "))}
    if node is None or type(node.value) is not dict:
        return {}
    return {str(key): child.text or "" for key, child in node.value.items()}
