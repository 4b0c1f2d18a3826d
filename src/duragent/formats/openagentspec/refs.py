"""References inside an Open Agent Specification file: `$component_ref` and `$referenced_components`.

Puts the components that `openagentspec` reads where they are referred to, and refuses references that lead
nowhere, in a circle, or to more values than a file may hold. Does not know what the components mean.
"""

from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from duragent.formats.reader import Reader, describe
from duragent.formats.yaml import MAX_NODES, Node


def _walk(node: Node) -> Iterator[tuple[str, Node]]:
    """Everything below, with the key it stands under."""
    stack = [("", node)]
    while stack:
        key, node = stack.pop()
        yield key, node
        if type(node.value) is dict:
            stack.extend(node.value.items())
        elif type(node.value) is list:
            stack.extend((key, item) for item in node.value)


def _uses(node: Node) -> Iterator[tuple[str, str, Node]]:
    """Each `$component_ref` below: its text, the key its map stands under, and its place."""
    for key, each in _walk(node):
        if type(each.value) is dict and "$component_ref" in each.value:
            ref = each.value["$component_ref"]
            yield ref.text or describe(ref), key, ref


def inline(root: Node, reader: Reader) -> Node | None:
    """The file with the components we read put where they are referred to. None if that cannot be done."""
    known: dict[str, Node] = {}
    for key, node in _walk(root):
        if key == "$referenced_components" and type(node.value) is dict:
            known = node.value | known
    for ref, key, node in _uses(root):
        if ref not in known and not ref.endswith(f".{key}"):  # `<id>.api_key`: a secret that is given on loading
            hint = "define it below `$referenced_components`"
            reader.error(node, "$component_ref", f"$component_ref {ref!r} refers to nothing", hint)
    edges = {name: {ref for ref, _, _ in _uses(node) if ref in known} for name, node in known.items()}
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        circle = error.args[1]
        text = f"components that contain themselves: {' → '.join(circle)}"
        reader.error(known[circle[0]], "$referenced_components", text, "break the circle")
        return None
    tree = _expand(root, known, reader)
    rest = Node({key: node for key, node in tree.value.items() if key != "$referenced_components"}, 1, 1)
    needed, waiting = set(), {ref for ref, _, _ in _uses(rest)}
    while waiting:
        needed |= waiting
        waiting = {ref for name in waiting for ref in edges.get(name, ())} - needed
    if shared := root.value.get("$referenced_components"):
        kept = {name: node for name, node in known.items() if name in needed and name in (shared.value or ())}
        tree.value["$referenced_components"] = Node(kept, shared.line, shared.column)
    return tree


def _expand(root: Node, known: Mapping[str, Node], reader: Reader) -> Node:
    sizes = {name: sum(1 for _ in _walk(node)) for name, node in known.items()}
    spent = 0

    def follow(node: Node) -> Node:
        nonlocal spent
        while type(node.value) is dict and (ref := node.value.get("$component_ref")) and (ref.text or "") in known:
            spent += sizes[(ref.text or "")]
            if spent > MAX_NODES:  # otherwise a short file could fill the memory
                reader.error(ref, "$component_ref", f"the references expand to more than {MAX_NODES:,} values")
                return Node({}, ref.line, ref.column)
            node = known[(ref.text or "")]
        if type(node.value) is not dict or "client_transport" not in node.value:
            return node
        return _with(node, node.value | {"client_transport": follow(node.value["client_transport"])})

    parts = {}
    for key in {"llm_config", "tools", "toolboxes"} & root.value.keys():
        node = root.value[key]
        parts[key] = _with(node, [follow(item) for item in node.value]) if type(node.value) is list else follow(node)
    return _with(root, root.value | parts)


def _with(node: Node, value: Any) -> Node:
    copy = Node(value, node.line, node.column, node.text)
    copy.keys = node.keys
    return copy
