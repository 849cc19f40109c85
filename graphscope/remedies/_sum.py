"""All the losses in one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..events import Backward, GradRead, OptimizerStep, ZeroGrad
from ..findings import Action, Fix
from ._case import Candidate, Case, inserted


def add_up(case: Case) -> Iterator[Candidate]:
    """Backpropagate all the losses in one call."""
    event = case.verdict.event
    calls = [each.event for each in case.freers if isinstance(each.event, Backward)]
    if not calls or any(call.inputs != event.inputs or not call.accumulates for call in [*calls, event]):
        return
    roots = tuple(dict.fromkeys(root for call in [*calls, event] for root in call.roots))
    merged = replace(event, roots=roots)
    names = " + ".join(dict.fromkeys(root.name for root in roots))
    first = case.freers[0].position
    between = case.trace.events[first : case.position]
    others = {culprit.position for culprit in case.freers}
    rest = [
        (position, each) for position, each in case.timeline if position not in others and position != case.position
    ]
    if not any(isinstance(each, OptimizerStep | ZeroGrad | GradRead) for each in between):
        what = f"({names})" if len(roots) > 1 else names
        title = f"call {what}.backward() once" if not case.is_carried else "add up the losses and call backward once"
        fewer = len(roots) < sum(len(call.roots) for call in [*calls, event])  # what was counted twice counts once
        edits = case.edits(Action.SUM, calls, event.location)
        fix = Fix(title, event.location, changes_gradients=fewer, bytes=case.held(case.freers), edits=edits)
        yield Candidate(fix, inserted(rest, [(case.position, merged)], after=case.position))
    elif case.existed(case.freers[0].event.time):
        title = f"call ({names}).backward() once, before the steps"
        where = case.freers[0].event.location
        edits = case.edits(Action.SUM, [*calls[1:], event], where)
        fix = Fix(title, where, changes_gradients=True, bytes=0, edits=edits)
        yield Candidate(fix, inserted(rest, [(case.position, merged)], after=first))
