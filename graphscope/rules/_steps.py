"""What the steps of an optimizer used, and how to say how often: shared by the rules about the training step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..cycles import kin
from ..events import Backward, OptimizerStep, ScalerCall, ZeroGrad
from ..findings import Severity
from ..ledger import Holding, Use, ledger
from ..location import Location
from ..trace import OptimizerRef, Trace

Lost = tuple[Backward, ZeroGrad, OptimizerStep]  # what was written, what zeroed it, and who would have used it


def uses_of(trace: Trace, optimizer: OptimizerRef) -> tuple[Use, ...]:
    """What each of its steps used, those that are only planned left out."""
    return tuple(use for use in ledger(trace).of(optimizer.id) if use.step.ran)


def uses_by_statement(trace: Trace) -> dict[tuple[Location, int], list[Use]]:
    """What the steps used, by the statement that steps and the optimizer; one that is made anew counts as the first."""
    alike = kin(trace)
    found: dict[tuple[Location, int], list[Use]] = {}
    for use in ledger(trace).uses:
        if use.step.ran:
            found.setdefault((use.step.location, alike[use.step.optimizer]), []).append(use)
    return found


def backwards_in(holding: Holding) -> tuple[Backward, ...]:
    """The backwards that wrote into these gradients since they were last used or zeroed, in order."""
    return tuple(change for change in holding.fresh if isinstance(change, Backward))


def used_before(holding: Holding) -> Backward | None:
    """The last backward whose gradients a step has used and nothing has zeroed."""
    changes = iter(holding)
    for change in changes:
        if isinstance(change, OptimizerStep):
            break
    return next((change for change in changes if isinstance(change, Backward)), None)


def lost(use: Use) -> Lost | None:
    """The last backward before a step, if what it wrote was zeroed, as all that the step could have used was."""
    found: Lost | None = None
    for holding, parameters in use.parts:
        zero = holding.zero
        if zero is None:
            if holding.fresh:
                return None
            continue
        if zero.to_none and set(parameters) & set(use.step.graded):
            return None  # written by something that was not seen
        before: Holding | None = holding
        while before is not None and before.zero is not None:
            zero, before = before.zero, before.before
        backwards = backwards_in(before) if before is not None else ()
        if backwards and (found is None or backwards[-1].time > found[0].time):
            found = backwards[-1], zero, use.step
    return found


def how_often(count: int, of: int, what: str = "step") -> str:
    """``at each of 5 steps``, ``at 4 of 5 steps``."""
    if count == of:
        return f"at each of {of} {what}s" if of > 1 else f"at the only {what}"
    return f"at {count} of {of} {what}s"


def severity_of(count: int, of: int) -> Severity:
    """An error where it is the rule, a warning where it comes again, a note where it happened once."""
    if 2 * count >= of:
        return Severity.ERROR
    return Severity.WARNING if count > 1 else Severity.NOTE


def same_statement(backwards: Sequence[Backward]) -> bool:
    """Whether all of these calls are one statement's."""
    return len({event.location for event in backwards}) == 1


def scaled_backwards(trace: Trace) -> frozenset[int]:
    """The times of the backwards whose loss a GradScaler had scaled."""
    scaled = {id for event in trace.events if isinstance(event, ScalerCall) for id in event.tensors}
    if not scaled:
        return frozenset()
    nodes = {trace.graph.tensor(id).node for id in scaled} - {None}
    return frozenset(
        event.time
        for event in trace.backwards
        if any(root.tensor in scaled for root in event.roots)
        or not nodes.isdisjoint(trace.graph.reachable(root.node for root in event.roots if root.node is not None))
    )


def instead(trace: Trace, optimizer: OptimizerRef) -> list[tuple[Backward, OptimizerStep]]:
    """The steps of others in the place of those of an optimizer that never steps, with the backwards before them.

    Where the optimizer is not even zeroed, those that had no gradient at all, if it happens again and again.
    """
    if optimizer.id in trace.stepped:
        return []
    found = list(_beside(trace, optimizer))
    if any(isinstance(event, ZeroGrad) and event.optimizer == optimizer.id for event in trace.events):
        return found
    found = [(backward, step) for backward, step in found if not step.graded]
    return found if len(found) > 1 else []


def _beside(trace: Trace, optimizer: OptimizerRef) -> Iterator[tuple[Backward, OptimizerStep]]:
    """The steps of another optimizer right after a backward that reached this one's parameters only."""
    held = frozenset(optimizer.parameters)
    last: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.accumulates:
            last = event
        elif isinstance(event, OptimizerStep) and last is not None:
            reached = trace.reached(last)
            if reached & held and not reached & frozenset(trace.optimizers[event.optimizer].parameters):
                yield last, event
            last = None
