"""Compute the forward anew."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import InPlaceWrite, OptimizerStep
from ..findings import Action, Edit, Fix
from ..location import Location
from ._case import Candidate, Case, call_text, places_text


def recompute(case: Case) -> Iterator[Candidate]:
    """Compute the forward anew: nothing that came before has touched the nodes it makes."""
    culprits, event = case.verdict.culprits, case.verdict.event
    if not culprits or any(map(case.is_part, case.writers)) or case.engine.buffers.gone & case.engine.runs(event):
        return
    last = culprits[-1]
    if case.existed(last.event.time):
        what = ", ".join(root.name for root in event.roots)
        edits = _computed_again(case)
    elif (once := made_once(case)) is not None:
        what, edits = f"what {once} gives", ()
    else:
        return
    between = case.trace.events[last.position : case.position]
    wrote = bool(case.writers) or any(isinstance(each, OptimizerStep | InPlaceWrite) for each in between)
    title = f"compute {what} again after {places_text(culprits)}"
    if case.is_carried and what.startswith("what "):
        title = f"compute {what} anew for each {call_text(event)}"
    fix = Fix(title, event.location, changes_gradients=wrote, bytes=0, edits=edits)
    yield Candidate(fix, [each for each in case.timeline if each[0] >= case.position])


def _computed_again(case: Case) -> tuple[Edit, ...]:
    """The edits that repeat, before the failing call, the statements of its function that computed its roots."""
    graph, here = case.trace.graph, case.verdict.event.location
    locations: dict[Location, None] = {}
    for node in case.engine.runs(case.verdict.event) - graph.leaf_tensors.keys():
        places = (graph.locations.get(node), *graph.callers.get(node, ()))
        mine = (each for each in places if each and (each.file, each.function) == (here.file, here.function))
        location = next(mine, None)
        if location is None or location >= here or not case.verdict.event.ran:
            return ()
        locations[location] = None
    return tuple(Edit(Action.COMPUTE_AGAIN, location, here) for location in sorted(locations))


def made_once(case: Case) -> Location | None:
    """The statement that gave all of what the failing call shares with its culprits, if that ran only once."""
    graph = case.trace.graph
    shared = {node for culprit in case.verdict.culprits for node in culprit.nodes}
    if {graph.locations.get(node) for node in shared} != {place := graph.locations.get(min(shared, default=-1))}:
        place = _only([_called(case, node) for node in shared])
    if place is None:
        return None
    again = (node for node, at in graph.locations.items() if place in (at, *graph.callers.get(node, ())))
    return place if max(graph.times[node] for node in again) < case.verdict.culprits[0].event.time else None


def _called(case: Case, node: int) -> Location | None:
    """The statement that made a node, of those in the function of the failing call."""
    here = case.verdict.event.location
    around = (case.trace.graph.locations.get(node), *case.trace.graph.callers.get(node, ()))
    return next((each for each in around if each and (each.file, each.function) == (here.file, here.function)), None)


def _only(places: list[Location | None]) -> Location | None:
    """The place that all of these are."""
    return places[0] if len(set(places)) == 1 else None
