"""What each ``grad`` holds when an optimizer steps: which backwards wrote into it, since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

from ._plain import dataclass
from .events import Backward, GradWrite, OptimizerStep, ScalerCall, ZeroGrad
from .trace import Trace

Written = Backward | GradWrite | ScalerCall
Change = Written | OptimizerStep | ZeroGrad
Parts = tuple[tuple["Holding", tuple[int, ...]], ...]  # different holdings, each with the tensors that have it

_ledgers: WeakKeyDictionary[Trace, Ledger] = WeakKeyDictionary()


def ledger(trace: Trace) -> Ledger:
    """The ledger of a trace, made once for all that ask."""
    if trace not in _ledgers:
        _ledgers[trace] = Ledger(trace)
    return _ledgers[trace]


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What a ``grad`` holds: its last change, and what was there ``before``.

    All tensors whose ``grad`` went through the same changes share one. A step changes nothing, but from then on the
    gradients before it are used ones.
    """

    change: Change
    before: Holding | None = None

    def __iter__(self) -> Iterator[Change]:
        """The changes, last first, back to where the ``grad`` was zeroed or set, that included."""
        at: Holding | None = self
        while at is not None:
            yield at.change
            if isinstance(at.change, ZeroGrad) or (isinstance(at.change, GradWrite) and at.change.replaces):
                return
            at = at.before

    @property
    def fresh(self) -> tuple[Written, ...]:
        """What was written since the last step or zeroing, in order."""
        found: list[Written] = []
        for change in self:
            if isinstance(change, OptimizerStep | ZeroGrad):
                break
            found.append(change)
        return tuple(reversed(found))

    @property
    def used(self) -> OptimizerStep | None:
        """The last step that has used a part of what is there."""
        return next((change for change in self if isinstance(change, OptimizerStep)), None)

    @property
    def zero(self) -> ZeroGrad | None:
        """The zeroing after which nothing was written."""
        return self.change if isinstance(self.change, ZeroGrad) else None


@dataclass(frozen=True, slots=True)
class Use:
    """What one step used: the different holdings, with the parameters that have each.

    ``unknown`` are its parameters whose ``grad`` nothing was seen to write.
    """

    step: OptimizerStep
    parts: Parts
    unknown: tuple[int, ...] = ()

    @property
    def fresh(self) -> tuple[Written, ...]:
        """What was written into any of its gradients since they were last used or zeroed, in order."""
        found = {change.time: change for holding, _ in self.parts for change in holding.fresh}
        return tuple(found[time] for time in sorted(found))


class Ledger:
    """The gradients of all leaves, followed through the timeline, anew after a pause; linear in events and parameters.

    ``uses`` are the steps, in order, without those that only wrap a step on the same parameters; ``writes`` the
    changes by hand, with what they were made to; ``left`` is what every ``grad`` holds in the end.
    """

    def __init__(self, trace: Trace) -> None:
        self.left: dict[int, Holding] = {}
        self.writes: list[tuple[GradWrite, Parts]] = []
        self.uses = tuple(self._replay(trace))

    def of(self, optimizer: int) -> tuple[Use, ...]:
        """The uses of one optimizer."""
        return tuple(use for use in self.uses if use.step.optimizer == optimizer)

    def _replay(self, trace: Trace) -> Iterator[Use]:
        stepped: dict[int, int] = {}
        pauses = [pause.time for pause in reversed(trace.pauses)]
        for event in trace.events:
            if pauses and event.time >= pauses[-1]:
                self.left.clear()
                pauses.pop()
            match event:
                case Backward() if event.accumulates and event.error is None:
                    self._change(event, trace.reached(event))
                case ZeroGrad():
                    self._change(event, event.tensors)
                case GradWrite():
                    self.writes.append((event, self._parts(event.tensors)))
                    self._change(event, event.graded)
                case ScalerCall(op="unscale_", optimizer=int(unscaled)):
                    held = trace.optimizers[unscaled].parameters
                    self._change(event, [id for id in held if id in self.left])
                case OptimizerStep():
                    held = trace.optimizers[event.optimizer].parameters
                    if not any(stepped.get(id, -1) > event.start for id in held):
                        yield self._use(event, held)
                        self._change(event, [id for id in held if id in self.left])
                    stepped.update(dict.fromkeys(held, event.time))
                case _:
                    pass

    def _change(self, change: Change, tensors: Iterable[int]) -> None:
        shared: dict[Holding | None, Holding] = {}
        for id in tensors:
            before = self.left.get(id)
            after = shared.get(before)
            if after is None:
                after = shared[before] = Holding(change, before)
            self.left[id] = after

    def _use(self, step: OptimizerStep, held: tuple[int, ...]) -> Use:
        return Use(step, self._parts(held), tuple(id for id in held if id not in self.left))

    def _parts(self, tensors: Iterable[int]) -> Parts:
        parts: dict[Holding, list[int]] = {}
        for id in tensors:
            if id in self.left:
                parts.setdefault(self.left[id], []).append(id)
        return tuple((holding, tuple(ids)) for holding, ids in parts.items())
