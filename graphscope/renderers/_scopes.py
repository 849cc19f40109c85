"""Module calls: which call of its module each node was made in.

A module that is used twice (one ReLU for all layers, a cell in a loop) is two scopes: around both calls as one
box, what lies between them would have to be inside and outside at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..graph import Graph

Scope = tuple[tuple[str, int], ...]  # for each module around a node, outermost first: its own name, which call of it


def dotted(scope: Scope) -> tuple[str, ...]:
    """The names alone."""
    return tuple(name for name, _ in scope)


def execution_order(graph: Graph, ids: Sequence[int]) -> list[int]:
    """These nodes, last made first: an order in which each comes before those that its gradient goes on to."""
    from heapq import heapify, heappop, heappush

    waiting = dict.fromkeys(ids, 0)
    for id in ids:
        for target, _ in graph.targets[id]:
            if target in waiting:
                waiting[target] += 1
    ready = [(-graph.sequences[id], id) for id, readers in waiting.items() if not readers]
    heapify(ready)
    found = []
    while ready:
        _, id = heappop(ready)
        found.append(id)
        for target, _ in graph.targets[id]:
            if target in waiting:
                waiting[target] -= 1
                if not waiting[target]:
                    heappush(ready, (-graph.sequences[target], target))
    return found


def scopes(graph: Graph, order: Sequence[int], modules: Mapping[int, str] | None = None) -> dict[int, Scope]:
    """For each node made in a module, the module calls around it; ``order`` is that of ``execution_order``.

    A call ends where a node outside of it was made. So no way of the gradient leaves a scope and comes back.
    """
    modules = graph.modules if modules is None else modules
    found: dict[int, Scope] = {}
    calls: dict[tuple[str, ...], int] = {}
    current: Scope = ()
    for id in reversed(order):
        if id in graph.leaf_tensors:
            continue
        path = tuple(modules[id].split(".")) if id in modules else ()
        kept = 0
        while kept < min(len(path), len(current)) and current[kept][0] == path[kept]:
            kept += 1
        scope = list(current[:kept])
        for depth in range(kept + 1, len(path) + 1):
            calls[path[:depth]] = calls.get(path[:depth], -1) + 1
            scope.append((path[depth - 1], calls[path[:depth]]))
        current = tuple(scope)
        if current:
            found[id] = current
    return found
