"""Which nodes a call executes, and in which order."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from ..events import Backward
from ..graph import Graph

_FEW_ROOTS = 64  # up to here one pass over the edges serves all roots; beyond, most roots share only leaves


class Reach:
    """Which nodes lie behind which roots: for a few roots by one pass over the edges, for all of them together."""

    def __init__(self, targets: Sequence[tuple[tuple[int, int], ...]], roots: Sequence[int]) -> None:
        self._targets = targets
        self._bits = {root: 1 << position for position, root in enumerate(roots)}
        self._order = _topological(targets)
        self._regions = self._divide() if len(roots) <= _FEW_ROOTS else None
        self._known: dict[object, frozenset[int]] = {}
        self._ranks: dict[int, int] = {}

    def _divide(self) -> dict[int, list[int]]:
        """Nodes by the set of roots that reach them, written as bits."""
        masks = [0] * len(self._targets)
        for root, bit in self._bits.items():
            masks[root] |= bit
        regions = defaultdict(list)
        for node in self._order:
            mask = masks[node]
            regions[mask].append(node)
            for target, _ in self._targets[node]:
                if target >= 0 and masks[target] != mask:
                    masks[target] = masks[target] | mask if masks[target] else mask
        return regions

    def behind(self, roots: Iterable[int]) -> frozenset[int]:
        """All nodes that lie behind any of the roots, and the roots."""
        key = frozenset(roots)
        if key not in self._known:
            self._known[key] = self._walk(key) if self._regions is None else self._gather(self._regions, key)
        return self._known[key]

    def _gather(self, regions: dict[int, list[int]], roots: frozenset[int]) -> frozenset[int]:
        bits = 0
        for root in roots:
            bits |= self._bits[root]
        return frozenset().union(*(nodes for mask, nodes in regions.items() if mask & bits))

    def _walk(self, roots: frozenset[int]) -> frozenset[int]:
        seen, stack = set(roots), list(roots)
        while stack:
            for target, _ in self._targets[stack.pop()]:
                if target >= 0 and target not in seen:
                    seen.add(target)
                    stack.append(target)
        return frozenset(seen)

    def runs(self, roots: tuple[int, ...], inputs: tuple[int, ...] | None, *, stops: bool) -> frozenset[int]:
        """The nodes that a call executes.

        ``backward(inputs=...)`` also runs the node of an input that is no leaf; ``autograd.grad`` takes the
        gradient that arrives there and ``stops``, unless another input lies behind it.
        """
        if inputs is None:
            return self.behind(roots)
        key = (roots, inputs, stops)
        if key not in self._known:
            self._known[key] = self._towards(self.behind(roots), frozenset(inputs), stops)
        return self._known[key]

    def _towards(self, behind: frozenset[int], inputs: frozenset[int], stops: bool) -> frozenset[int]:
        if not self._ranks:
            self._ranks = {node: rank for rank, node in enumerate(reversed(self._order))}
        wanted = set(inputs & behind)
        runs = set() if stops else set(wanted)
        for node in sorted(behind, key=self._ranks.__getitem__):
            if any(target in wanted for target, _ in self._targets[node]):
                wanted.add(node)
                runs.add(node)
        return frozenset(runs)


def _topological(targets: Sequence[tuple[tuple[int, int], ...]]) -> list[int]:
    """All nodes, each before those its edges lead to."""
    waiting = [0] * len(targets)
    for edges in targets:
        for target, _ in edges:
            if target >= 0:
                waiting[target] += 1
    order = [node for node, count in enumerate(waiting) if not count]
    for node in order:
        for target, _ in targets[node]:
            if target >= 0:
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
    return order


def execution_order(graph: Graph, runs: frozenset[int], event: Backward, waiting: dict[int, int]) -> Iterator[int]:
    """The nodes of a call in the order in which torch runs them; ``waiting`` counts the edges to each, and is used up.

    A node is ready once every node that leads to it has run; of the ready ones the highest sequence number
    goes first. AccumulateGrad has the highest of all, and saves nothing.
    """
    roots = {root.node for root in event.roots if root.node in runs}
    ready = [(-graph.sequences[node], node) for node in roots if not waiting.get(node)]
    heapq.heapify(ready)
    while ready:
        _, node = heapq.heappop(ready)
        yield node
        for target, _ in graph.targets[node]:
            waiting[target] -= 1
            if target in runs and not waiting[target]:
                heapq.heappush(ready, (-graph.sequences[target], target))


def edges_into(graph: Graph, runs: frozenset[int]) -> dict[int, int]:
    """How many edges lead to a node from those that run."""
    counts: dict[int, int] = {}
    for node in runs:
        for target, _ in graph.targets[node]:
            counts[target] = counts.get(target, 0) + 1
    return counts
