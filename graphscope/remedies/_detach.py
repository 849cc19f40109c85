"""Cut the edges to what was made before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..events import Backward
from ..findings import Action, Edit, Fix
from ..graph import Graph
from ..location import Location
from ._case import Candidate, Case, call_text
from ._recompute import made_once


def detach(case: Case) -> Iterator[Candidate]:
    """Cut the edges from what was made after the culprits' graphs to what was made before."""
    calls = [each.event for each in case.freers if isinstance(each.event, Backward)]
    if not calls or _trains_once(case):
        return
    graph = case.trace.graph
    old = frozenset().union(*(case.engine.completes(call) for call in calls))
    new = case.engine.runs(case.verdict.event) - old
    since = max(call.time for call in calls)
    first = graph.joints(new, old, since)
    if not first:
        return
    shared = frozenset(old - graph.leaf_tensors.keys())
    if graph.times.get(first[0], since) < since:
        since = 0  # all was made before the call that frees it
    joins = shared | {
        target
        for node in first
        for target, _ in graph.targets[node]
        if target >= 0 and graph.times.get(target, since) < since and graph.reachable([target]) & shared
    }
    cut = {
        node: tuple((-1, 0) if target in joins else (target, output) for target, output in graph.targets[node])
        for node in first
    }
    detached = replace(graph, targets=[cut.get(node, edges) for node, edges in enumerate(graph.targets)])
    roots = [root.node for root in case.verdict.event.roots if root.node is not None]
    if not all(detached.reached_tensors([root]) for root in roots):
        return  # a loss would be left without a graph
    lost = graph.reached_tensors(roots) - detached.reached_tensors(roots)
    reason = f"no gradient from {call_text(case.verdict.event)} to {case.names(lost)}" if lost else None
    where = _first_location(graph, cut)
    if where and all(graph.ops[node].startswith("Clone") for node in cut):
        title = "write detach() in place of clone(), which keeps the history"
    elif where:
        others = sorted({at for node in cut if (at := graph.locations.get(node)) is not None and at != where})
        told = [f"line {at.line}" if at.file == where.file else str(at) for at in others]
        more = f", and {' and '.join(dict.fromkeys(told))}, take" if told else " takes"
        title = f"detach() what this statement{more} from the earlier graph"
    else:
        title = "detach() what the earlier graph gives"
    edits = _detachments(case, cut, joins)
    fix = Fix(title, where, changes_gradients=True, reason=reason, bytes=0, edits=edits)
    yield Candidate(fix, case.timeline, graph=detached)


def detach_others(case: Case) -> Iterator[Candidate]:
    """The same, where it keeps the loss from nothing but what another optimizer is there for: a critic's."""
    for candidate in detach(case):
        roots = [root.node for root in case.verdict.event.roots if root.node is not None]
        kept = candidate.graph.reached_tensors(roots) if candidate.graph is not None else frozenset()
        lost = case.trace.graph.reached_tensors(roots) - kept
        held = [frozenset(optimizer.parameters) for optimizer in case.trace.optimizers]
        if any(lost & each for each in held) and all(not (lost & each and kept & each) for each in held):
            yield candidate


def _trains_once(case: Case) -> bool:
    """Whether what was computed once, for all turns of a loop, is to train what an optimizer holds: in each of them."""
    if not case.is_carried or made_once(case) is None:
        return False
    graph = case.trace.graph
    shared = graph.reached_tensors(node for culprit in case.verdict.culprits for node in culprit.nodes)
    return any(not shared.isdisjoint(optimizer.parameters) for optimizer in case.trace.optimizers)


def _detachments(case: Case, cut: Iterable[int], joins: frozenset[int]) -> tuple[Edit, ...]:
    """The edits that detach, in each statement that made a cut node, the tensors it took from the earlier graph."""
    graph = case.trace.graph
    edits: dict[Edit, None] = {}
    names = {tensor.node: tensor.name for tensor in case.trace.tensors if tensor.name and tensor.node in joins}
    for node in cut:
        location = graph.locations.get(node)
        if location is None or not case.verdict.event.ran:
            return ()
        for target, _ in graph.targets[node]:
            if target in joins:
                edits[Edit(Action.DETACH, location, name=names.get(target))] = None
    return tuple(edits)


def _first_location(graph: Graph, nodes: dict[int, tuple[tuple[int, int], ...]]) -> Location | None:
    located = (node for node in sorted(nodes, key=graph.sequences.__getitem__) if node in graph.locations)
    return next((graph.locations[node] for node in located), None)
