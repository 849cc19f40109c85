"""The step, or the write, after the call that needs the old values, or that call before it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from ..events import Backward, Event, InPlaceWrite, OptimizerStep, ZeroGrad
from ..findings import Action, Edit, Fix
from ..trace import Trace
from ._case import Candidate, Case, Timeline, call_text, inserted, writer_text


def write_later(case: Case) -> Iterator[Candidate]:
    """Move the step, or the write, after the call that needs the old values."""
    if not case.writers or case.is_carried or case.freers or any(map(case.is_part, case.writers)) or is_foreign(case):
        return
    what = " and ".join(dict.fromkeys(writer_text(case, culprit.event) for culprit in case.writers))
    fix = Fix(
        f"move {what} after {call_text(case.verdict.event)}",
        case.writers[0].event.location,
        changes_gradients=step_sees_more(case),
        bytes=0,
        edits=move_edits(case),
    )
    timeline = postponed(case, case.timeline)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        yield Candidate(fix, timeline)
    else:
        yield from _with_zeroing(case, fix)


def call_earlier(case: Case) -> Iterator[Candidate]:
    """Call it before the step, or the write."""
    if not case.writers or case.freers or case.is_carried:
        return
    first = case.writers[0]
    if first.position == case.position - 1 or not case.existed(first.event.time) or is_foreign(case):
        return
    rest = [each for each in case.timeline if each[0] != case.position]
    timeline = inserted(rest, [(case.position, case.verdict.event)], after=min(displaced(case)) - 1)
    title = f"call {call_text(case.verdict.event)} before {writer_text(case, first.event)}"
    where = case.verdict.event.location
    edits = case.edits(Action.MOVE_BEFORE, [case.verdict.event], first.event.location)
    fix = Fix(title, where, changes_gradients=step_sees_more(case), bytes=0, edits=edits)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        yield Candidate(fix, timeline)


def _with_zeroing(case: Case, fix: Fix) -> Iterator[Candidate]:
    """Move what clears gradients between the two calls before the first of them, lest it clear what a step needs."""
    zeros = {position for position in displaced(case) if isinstance(case.trace.events[position], ZeroGrad)}
    moved = [each for each in case.timeline if each[0] in zeros]
    stays = [each for each in case.timeline if each[0] not in zeros]
    first = min((call for call, zero in _wipes(case.trace, postponed(case, case.timeline, zeros))), default=None)
    if first is None or not moved or not isinstance(call := case.trace.events[first], Backward):
        return
    timeline = postponed(case, inserted(stays, moved, after=first - 1), zeros)
    if _wipes(case.trace, timeline) <= _wipes(case.trace, case.timeline):
        names = " and ".join(dict.fromkeys(_zeroing(case, event) for _, event in moved))
        steps = [event for position, event in case.timeline if position in displaced(case) - zeros]
        edits = case.edits(Action.MOVE_AFTER, steps, case.verdict.event.location)
        edits += case.edits(Action.MOVE_BEFORE, [event for _, event in moved], call.location)
        title = f"{fix.title}, and {names} before {call_text(call)}"
        yield Candidate(replace(fix, title=title, edits=edits), timeline)


def _zeroing(case: Case, event: Event) -> str:
    if isinstance(event, ZeroGrad) and event.optimizer is not None:
        return f"{case.trace.optimizers[event.optimizer].name}.zero_grad()"
    return "the zeroing"


def _wipes(trace: Trace, timeline: Timeline) -> frozenset[tuple[int, int]]:
    """The positions of each backward, and of the clearing of gradients that throws away what it made, unused."""
    fresh: dict[int, set[int]] = {}
    found: set[tuple[int, int]] = set()
    for position, event in timeline:
        match event:
            case Backward(accumulates=True):
                for id in trace.reached(event):
                    fresh.setdefault(id, set()).add(position)
            case OptimizerStep(optimizer=optimizer):
                for id in trace.optimizers[optimizer].parameters:
                    fresh.pop(id, None)
            case ZeroGrad(tensors=zeroed):
                found |= {(each, position) for id in zeroed for each in fresh.pop(id, ())}
            case _:
                pass
    return frozenset(found)


def is_foreign(case: Case) -> bool:
    """Whether a step moved behind the failing call would use its gradients, though another optimizer is there for it.

    The loss of a critic reaches the generator as well, which is not to follow it. Where that other optimizer holds
    the same parameters, both losses train them.
    """
    reached = case.trace.reached(case.verdict.event)
    for culprit in case.writers:
        if isinstance(culprit.event, OptimizerStep):
            held = reached & set(case.trace.optimizers[culprit.event.optimizer].parameters)
            others = [set(o.parameters) & reached for o in case.trace.optimizers if o.id != culprit.event.optimizer]
            if held and any(others) and not held <= set[int]().union(*others):
                return True
    return False


def displaced(case: Case) -> frozenset[int]:
    """The positions of the steps and writes, and of the clearing of gradients that follows a step."""
    steps = {culprit.event.location for culprit in case.writers if isinstance(culprit.event, OptimizerStep)}
    moved = {culprit.position for culprit in case.writers}
    moved |= {
        position
        for position, event in case.timeline[: case.position]
        if isinstance(event, InPlaceWrite) and event.location in steps  # LBFGS writes several times in a step
    }
    moved |= {
        position
        for position, event in case.timeline[min(moved) : case.position]
        if isinstance(event, ZeroGrad) and any(isinstance(each.event, OptimizerStep) for each in case.writers)
    }
    return frozenset(moved)


def move_edits(case: Case) -> tuple[Edit, ...]:
    """The edits that move them after the failing call."""
    moved = [event for position, event in case.timeline if position in displaced(case)]
    return case.edits(Action.MOVE_AFTER, moved, case.verdict.event.location)


def postponed(case: Case, timeline: Timeline, stays: Collection[int] = ()) -> Timeline:
    """The steps and writes moved after the failing call, with the clearing of gradients that follows, if it may."""
    moved = displaced(case).difference(stays)
    index = next(index for index, (position, _) in enumerate(timeline) if position == case.position)
    start, end = timeline[: index + 1], timeline[index + 1 :]
    return [each for each in start if each[0] not in moved] + [each for each in start if each[0] in moved] + end


def step_sees_more(case: Case) -> bool:
    """Whether a step moved after the failing call would also use the gradients of that call."""
    reached = case.trace.reached(case.verdict.event)
    steps = (each.event for each in case.writers if isinstance(each.event, OptimizerStep))
    return any(reached & set(case.trace.optimizers[step.optimizer].parameters) for step in steps)
