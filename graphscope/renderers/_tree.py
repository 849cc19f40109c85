"""Boxes to open and close: the passes of a loop, the calls of modules, and stretches of what is still too many.

No gradient leaves a box and comes back to it: nothing joins two passes, and a module's call and a stretch are made of
nodes that were made one after the other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from .._plain import dataclass
from ..graph import Graph
from ._scopes import Scope, scopes

MOST = 120  # children of one box; with more, neighbours are put together
_STRETCH = 40  # the least that is put together
_FEW_PASSES = 3  # unrelated graphs that are shown side by side, without a box around each


@dataclass(slots=True)
class Box:
    """``call`` counts the calls of a module, within its pass if that has a box of its own.

    ``children`` are boxes and nodes, in the order made.
    """

    kind: Literal["all", "pass", "module", "run"]
    name: str
    path: str = ""
    call: int = 0
    children: list[Box | int] = field(default_factory=list)


def tree(graph: Graph, modules: Mapping[int, str]) -> Box:
    """All nodes but the leaves, each in its innermost box."""
    top = Box("all", "")
    passes = _passes(graph)
    if len(passes) <= _FEW_PASSES:
        calls: Counter[str] = Counter()
        for nodes in passes:
            _enter_modules(top, nodes, graph, modules, calls)
    else:
        seen = set()
        again = Box("run", "")
        for number, nodes in enumerate(passes, 1):
            each = Box("pass", f"pass {number}")
            _enter_modules(each, nodes, graph, modules, Counter())
            form = tuple((graph.ops[id], modules.get(id)) for id in nodes)
            (again if form in seen else top).children.append(each)
            seen.add(form)
        if again.children:
            again.name = f"{len(again.children):,} more, alike"
            top.children.append(again)
    _simplify(top, graph)
    _divide(top)
    return top


def _passes(graph: Graph) -> list[list[int]]:
    """The parts of the graph that no edge joins but those to leaves, each in the order in which it was made."""
    part = list(range(len(graph)))

    def find(id: int) -> int:
        while part[id] != id:
            part[id] = part[part[id]]
            id = part[id]
        return id

    leaves = graph.leaf_tensors
    for source, targets in enumerate(graph.targets):
        for target, _ in targets:
            if target >= 0 and target not in leaves:
                part[find(target)] = find(source)
    members: dict[int, list[int]] = {}
    for id in sorted(
        (id for id in range(len(graph)) if id not in leaves),
        key=lambda id: (graph.times.get(id, -1), graph.sequences[id], -id),
    ):
        members.setdefault(find(id), []).append(id)
    return list(members.values())


def _enter_modules(
    around: Box, nodes: list[int], graph: Graph, modules: Mapping[int, str], calls: Counter[str]
) -> None:
    boxes: dict[Scope, Box] = {(): around}
    around_each = scopes(graph, nodes[::-1], modules)
    for id in nodes:
        scope = around_each.get(id, ())
        for depth in range(1, len(scope) + 1):
            if scope[:depth] not in boxes:
                path = ".".join(name for name, _ in scope[:depth])
                calls[path] += 1
                boxes[scope[:depth]] = Box("module", scope[depth - 1][0], path, calls[path])
                boxes[scope[: depth - 1]].children.append(boxes[scope[:depth]])
        boxes[scope].children.append(id)


def _simplify(box: Box, graph: Graph) -> None:
    """A module with one operator needs no box, nor one with nothing but a single module inside."""
    children: list[Box | int] = []
    for child in box.children:
        if isinstance(child, Box):
            _simplify(child, graph)
            drawn = [each for each in child.children if isinstance(each, Box) or not _joins_leaf(each, graph)]
            if child.kind == "module" and len(drawn) <= 1:
                if drawn and isinstance(drawn[0], Box):
                    drawn[0].name = f"{child.name}.{drawn[0].name}"
                children += child.children
                continue
        children.append(child)
    box.children = children


def _joins_leaf(id: int, graph: Graph) -> bool:
    """Whether the page draws a node as a part of the leaf behind it: a transpose says nothing more."""
    return graph.ops[id] == "TBackward0" and any(target in graph.leaf_tensors for target, _ in graph.targets[id])


def _divide(box: Box) -> None:
    """Where a box has too many children, put neighbours together, level by level."""
    total = len(box.children)
    if total > MOST:
        size = max(_STRETCH, -(-total // MOST))
        parts = [box.children[start : start + size] for start in range(0, total, size)]
        box.children = [
            Box("run", f"{n * size + 1:,} to {n * size + len(part):,} of {total:,}", children=part)
            for n, part in enumerate(parts)
        ]
    for child in box.children:
        if isinstance(child, Box):
            _divide(child)
