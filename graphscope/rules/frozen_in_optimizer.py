"""GS221: an optimizer holds parameters that are frozen throughout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..events import OptimizerStep, RequiresGradSet
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import frozen_places, listed


class FrozenInOptimizer(Rule):
    """An optimizer holds parameters that did not require grad at any of its steps, beside others that train.

    It passes them over, so nothing is wrong as long as they have no ``grad``. But it is worth knowing: if they are
    meant to train, something froze them, and if not, leaving them out says so. Parameters that are frozen at some of
    the steps only, or unfrozen later, are none.

    Bad::

        import torch, graphscope

        backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        backbone.requires_grad_(False)
        with graphscope.watch() as report:
            opt = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)  # GS221
            for _ in range(2):
                opt.zero_grad()
                head(backbone(torch.ones(2, 4))).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        backbone.requires_grad_(False)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(head.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                head(backbone(torch.ones(2, 4))).sum().backward()
                opt.step()

    Good: unfrozen after a while::

        import torch, graphscope

        backbone, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=0.1)
        with graphscope.watch() as report:
            for step in range(4):
                backbone.requires_grad_(step >= 2)
                opt.zero_grad()
                head(backbone(torch.ones(2, 4))).sum().backward()
                opt.step()
    """

    code = "GS221"
    severity = Severity.NOTE

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A note for each optimizer that trains only some of what it holds, as the others are frozen."""
        for optimizer in trace.optimizers:
            always, _ = _frozen(trace, optimizer)
            if always and len(always) < len(optimizer.parameters):
                yield self._finding(trace, optimizer, always)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The optimizers that hold what is frozen for a while."""
        for optimizer in trace.optimizers:
            _, sometimes = _frozen(trace, optimizer)
            if sometimes and optimizer.location is not None:
                yield self.clear(
                    f"`{optimizer.name}` holds parameters that are frozen for a part of the run only, and passes them "
                    f"over as long: {listed(trace, sometimes)}",
                    optimizer.location,
                )

    def _finding(self, trace: Trace, optimizer: OptimizerRef, frozen: list[int]) -> Finding:
        first = next(step for step in trace.steps if step.optimizer == optimizer.id)
        places = [Place(first.location, Role.FAILURE, "they are passed over here")]
        if optimizer.location is not None:
            places.insert(0, Place(optimizer.location, Role.CAUSE, f"`{optimizer.name}` is given them here"))
        places += frozen_places(trace, frozen)
        return self.finding(
            f"`{optimizer.name}` ({optimizer.kind}) holds {len(optimizer.parameters)} parameters, and {len(frozen)} of "
            f"them are frozen throughout: {listed(trace, frozen)}",
            places=places,
            fixes=[
                Fix("if they are to train, take back what froze them"),
                Fix("if not, give it the others only: [p for p in net.parameters() if p.requires_grad]"),
            ],
            optimizer=optimizer.name,
            parameters=tuple(trace.graph.tensor(id).name for id in frozen),
            count=len(frozen),
        )


def _frozen(trace: Trace, optimizer: OptimizerRef) -> tuple[list[int], list[int]]:
    """What an optimizer holds that never required grad, and what did so for a part of the run only."""
    steps = [step for step in trace.steps if step.optimizer == optimizer.id and step.ran]
    unfrozen = _unfrozen(trace, steps)
    times_frozen = Counter(id for step in steps for id in step.frozen)
    always, sometimes = [], []
    for id in optimizer.parameters if steps else ():
        times = times_frozen[id]
        if times == len(steps) and id not in unfrozen:
            always.append(id)
        elif times:
            sometimes.append(id)
    return always, sometimes


def _unfrozen(trace: Trace, steps: list[OptimizerStep]) -> frozenset[int]:
    """The parameters that were switched on at some time, had a gradient at a step, or were changed by one."""
    on = {id for e in trace.events if isinstance(e, RequiresGradSet) and e.value for id in e.tensors}
    return frozenset(on.union(trace.ever_reached, *(step.graded for step in steps), *(step.moved for step in steps)))
