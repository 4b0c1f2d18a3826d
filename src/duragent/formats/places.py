"""Where the parts of a value stand that a format keeps without a place for it in the model."""

from collections.abc import Iterator, Mapping

from duragent.agent import Json, Origin
from duragent.formats.reader import join
from duragent.formats.yaml import Node


def places(kept: Json, node: Node, path: str, file: str) -> dict[str, Origin]:
    """The positions of what was kept of `node`, by its path in the model; `path` is that of the whole.

    Paths are compared as texts, so it does not matter that a key `a.b` may be kept as `b` below `a`.
    """
    there = set(_paths(kept, path))
    return {where: Origin(file, each.line, each.column) for where, each in _nodes(node, path) if where in there}


def _paths(kept: Json, path: str) -> Iterator[str]:
    waiting = [(path, kept)]
    while waiting:
        path, kept = waiting.pop()
        yield path
        if isinstance(kept, Mapping):
            waiting += [(join(path, name), each) for name, each in kept.items()]
        elif isinstance(kept, list):
            waiting += [(f"{path}[{index}]", each) for index, each in enumerate(kept)]


def _nodes(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    waiting = [(path, node)]
    while waiting:
        path, node = waiting.pop()
        yield path, node
        if type(node.value) is dict:
            waiting += [(join(path, name), each) for name, each in node.value.items()]
        elif type(node.value) is list:
            waiting += [(f"{path}[{index}]", each) for index, each in enumerate(node.value)]
