"""Keep the graphs that were freed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..events import Backward, OptimizerStep
from ..findings import Action, Fix
from ._case import Candidate, Case, Timeline, call_text, inserted, places_text, writer_text
from ._move import is_foreign, move_edits, postponed, step_sees_more


def retain(case: Case) -> Iterator[Candidate]:
    """Keep the graphs of the calls that freed it."""
    if case.freers:
        title = "pass retain_graph=True" + (f" at {places_text(case.freers)}" if len(case.freers) > 1 else "")
        edits = case.edits(Action.RETAIN_GRAPH, [each.event for each in case.freers])
        if _uses_up(case):
            title += ", with torch._functorch.config.donated_buffer = False before the compiled code is first called"
            edits = ()
        where, held = case.freers[0].event.location, case.held(case.freers)
        fix = Fix(title, where, changes_gradients=False, bytes=held, edits=edits)
        timeline = inserted(_retained(case, case.timeline), _next_turn(case), after=case.position)
        yield Candidate(fix, timeline, case.trace.graph, popular=True)
        if case.writers and not case.is_carried and not is_foreign(case):
            timeline = postponed(case, _retained(case, case.timeline))
            what = writer_text(case, case.writers[0].event)
            both = replace(fix, title=f"{title}, and move {what} after {call_text(case.verdict.event)}")
            edits += move_edits(case)
            yield Candidate(replace(both, changes_gradients=step_sees_more(case), edits=edits), timeline)


def _uses_up(case: Case) -> bool:
    """Whether compiled code that is to keep its graph ran backward before, and may be made for one use."""
    compiled = case.trace.graph.compiled
    earlier = (event for event in case.trace.events[: case.freers[0].position] if isinstance(event, Backward))
    spent = (event for event in earlier if not (event.retain_graph or event.create_graph))
    return any(not compiled.isdisjoint(each.nodes) for each in case.freers) and any(
        not compiled.isdisjoint(case.engine.runs(event)) for event in spent
    )


def _retained(case: Case, timeline: Timeline) -> Timeline:
    positions = case.alike(case.freers)
    return [
        (
            position,
            replace(event, retain_graph=True) if position in positions and isinstance(event, Backward) else event,
        )
        for position, event in timeline
    ]


def _next_turn(case: Case) -> Timeline:
    """What the next turn of the loop does to what it will carry over from this one, if it will."""
    graph, event = case.trace.graph, case.verdict.event
    old = frozenset().union(*(case.engine.runs(each.event) for each in case.freers if isinstance(each.event, Backward)))
    new = case.engine.runs(event) - old
    joins = {target for node in new for target, _ in graph.targets[node] if target in old} - graph.leaf_tensors.keys()
    carried = {(graph.locations[node], graph.ops[node]) for node in joins if node in graph.locations}
    again = [node for node in new if (graph.locations.get(node), graph.ops[node]) in carried]
    if not case.is_carried or not again or not event.ran:
        return []
    between = case.timeline[case.freers[-1].position : case.position]
    steps = [(position, replace(each, ran=False)) for position, each in between if isinstance(each, OptimizerStep)]
    roots = tuple(replace(event.roots[0], node=node) for node in again)
    return [*steps, (case.position, replace(event, roots=roots, retain_graph=True))]
