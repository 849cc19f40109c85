"""Where parameters stand to others on the way of the gradient: between them and the loss, or behind them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from ..graph import Graph
from ..trace import Trace


def between(trace: Trace, leaves: Collection[int], owned: Collection[int]) -> Iterator[int]:
    """Those leaves whose operator works on something that was computed from parameters that train."""
    graph = trace.graph
    users = _users(graph)
    node_of = {tensor: node for node, tensor in graph.leaf_tensors.items()}
    _, computed = _computed(graph, users, (node_of[id] for id in owned if id in node_of))
    for id in sorted(leaves):
        if id in node_of and any(_meets(graph, node, computed) for node in _first_users(graph, users, node_of[id])):
            yield id


def behind(trace: Trace, leaves: Collection[int], owned: Collection[int]) -> Iterator[int]:
    """Those leaves that something was computed from which then meets parameters that train: an encoder of theirs."""
    graph = trace.graph
    users = _users(graph)
    node_of = {tensor: node for node, tensor in graph.leaf_tensors.items()}
    bare, _ = _computed(graph, users, (node_of[id] for id in owned if id in node_of))
    for id in sorted(leaves):
        _, computed = _computed(graph, users, [node_of[id]] if id in node_of else ())
        if any(target in bare for node in computed for target, _ in graph.targets[node]):
            yield id


def _users(graph: Graph) -> dict[int, list[int]]:
    """By node: the nodes that work on its result."""
    users: dict[int, list[int]] = {}
    for source, targets in enumerate(graph.targets):
        for target, _ in targets:
            users.setdefault(target, []).append(source)
    return users


def _computed(graph: Graph, users: dict[int, list[int]], leaves: Iterable[int]) -> tuple[set[int], set[int]]:
    """Leaves and what is computed from one of them alone (``w.t()``), and what is computed from them and others."""
    bare: set[int] = set()
    computed: set[int] = set()
    stack = [(node, True) for node in leaves]
    while stack:
        node, alone = stack.pop()
        known = bare if alone else computed
        if node not in known:
            known.add(node)
            stack += [(user, alone and len(graph.targets[user]) == 1) for user in users.get(node, ())]
    return bare, computed


def _first_users(graph: Graph, users: dict[int, list[int]], leaf: int) -> Iterator[tuple[int, int]]:
    """The operators with other inputs that a leaf goes into, directly or by way of operators with none."""
    stack = [leaf]
    while stack:
        node = stack.pop()
        for user in users.get(node, ()):
            if len(graph.targets[user]) == 1:
                stack.append(user)
            else:
                yield user, node


def _meets(graph: Graph, use: tuple[int, int], computed: set[int]) -> bool:
    user, node = use
    is_sum_of_losses = graph.ops[user] in ("AddBackward0", "SubBackward0") and not any(
        size > 1 for meta in graph.outputs[user] for size in meta.shape
    )
    return not is_sum_of_losses and any(target in computed for target, _ in graph.targets[user] if target != node)
