"""What the nodes of a graph hold for their backward."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from ..events import Event, InPlaceWrite, OptimizerStep
from ..graph import Graph, SavedColumn, SavedTensor


class Buffers:
    """What the nodes of a graph hold: which fail without their buffers, and which are ``written``, by counter."""

    def __init__(self, graph: Graph, written: set[int]) -> None:
        self._graph = graph
        self.needed: set[int] = {node for node, reads in graph.custom.items() if reads is not False}
        self.unsure = frozenset(node for node, reads in graph.custom.items() if reads is None)
        self.gone: set[int] = set()
        self.undated: dict[int, list[int]] = defaultdict(list)
        self.dated: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for node, counter, version, freed, hooked in _watched(graph):
            if graph.custom.get(node, True) is not False:
                self.needed.add(node)
                if freed:
                    self.gone.add(node)
                elif counter in written and not hooked:
                    if version is None:
                        self.undated[node].append(counter)
                    else:
                        self.dated[counter].append((version, node))
        for pairs in self.dated.values():
            if len(pairs) > 1:
                pairs.sort()

    @cached_property
    def undated_by_counter(self) -> dict[int, list[int]]:
        """The nodes that saved a tensor of unknown version, by the counter of that tensor."""
        found: dict[int, list[int]] = defaultdict(list)
        for node, counters in self.undated.items():
            for counter in counters:
                found[counter].append(node)
        return found

    def of(self, node: int) -> list[SavedTensor]:
        """What a node saved, in the order in which torch unpacks it: inputs of the operator before its results."""
        return sorted(self._graph.saved.get(node, ()), key=lambda saved: saved.name.startswith("result"))


def written(graph: Graph, events: Iterable[Event]) -> set[int]:
    """The version counters that moved, or will: those that no write touches need no watching."""
    found = {counter for counter, version in graph.versions.items() if version}
    found |= {tensor.counter for tensor in graph.tensors if tensor.version}
    for event in events:
        if isinstance(event, InPlaceWrite):
            found.add(event.write.counter)
        elif isinstance(event, OptimizerStep):
            found.update(write.counter for write in event.writes)
    return found - {-1}


def _watched(graph: Graph) -> Iterator[tuple[int, int, int | None, bool, bool]]:
    """Node, counter, version, freed and hooked of every saved tensor; making the objects took most of the time."""
    if isinstance(graph.saved, SavedColumn):
        for node, rows in graph.saved.rows.items():
            for row in rows:
                yield node, row[5], row[6], row[7], row[8]
    else:
        for node, saved in graph.saved.items():
            for each in saved:
                yield node, each.counter, each.version, each.freed, each.hooked
