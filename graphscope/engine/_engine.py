"""The lifetime rules of one graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from ..events import Backward, Event
from ..graph import Graph
from ._buffers import Buffers, written
from ._reach import Reach, edges_into, execution_order
from ._state import State
from ._verdict import Change, Verdict


class Engine:
    """The lifetime rules of one graph; ``run`` may be called for many sequences over the same roots."""

    def __init__(self, graph: Graph, events: Iterable[Event]) -> None:
        events = tuple(events)
        self.graph = graph
        roots = {root.node for event in events if isinstance(event, Backward) for root in event.roots}
        self.reach = Reach(graph.targets, sorted(node for node in roots if node is not None))
        self.buffers = Buffers(graph, written(graph, events))
        self._incoming: tuple[frozenset[int], dict[int, int]] | None = None  # of the nodes asked for last
        self.reentrant = frozenset(node for node in graph.custom if graph.ops[node] == "CheckpointFunctionBackward")

    def run(self, events: Sequence[Event]) -> tuple[Verdict, ...]:
        """One verdict for each backward and grad call of the sequence, in order."""
        state = State(self, events)
        verdicts = (state.follow(position, event) for position, event in enumerate(events))
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def changes(self, events: Sequence[Event]) -> Iterator[Change]:
        """What each event of the sequence did to the buffers, in order."""
        state = State(self, events)
        known: set[int] = set()
        for position, event in enumerate(events):
            state.released, state.outdated = set(), set()
            state.follow(position, event)
            yield Change(frozenset(state.released), frozenset(state.outdated - known))
            known |= state.outdated

    def runs(self, event: Backward) -> frozenset[int]:
        """The nodes that a call sets out to execute."""
        if any(root.node is None for root in event.roots):
            return frozenset()
        roots = tuple(root.node for root in event.roots if root.node is not None)
        return self.reach.runs(roots, event.inputs, stops=not event.accumulates)

    def completes(self, event: Backward) -> frozenset[int]:
        """The nodes that a call executes if no earlier event gets in its way."""
        runs = self.runs(event)
        refused = self.refused(event, runs)
        if not refused:
            return runs
        return frozenset(takewhile(lambda node: node not in refused, self.order(event, runs)))

    def order(self, event: Backward, runs: frozenset[int]) -> Iterator[int]:
        """The nodes of a call in the order in which torch runs them."""
        if self._incoming is None or self._incoming[0] is not runs:
            self._incoming = (runs, edges_into(self.graph, runs))
        return execution_order(self.graph, runs, event, dict(self._incoming[1]))

    def refused(self, event: Backward, runs: frozenset[int]) -> frozenset[int]:
        """Reentrant checkpoints, which torch refuses to run under ``inputs=`` and ``autograd.grad``."""
        return frozenset() if event.inputs is None else self.reentrant & runs
