"""GS216: an optimizer changes parameters that are frozen."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import frozen_places, listed


class MovedWhileFrozen(Rule):
    """A step changes parameters that were frozen, as they still have a ``grad``.

    ``requires_grad = False`` keeps backward from making new gradients, and no more. An optimizer skips a parameter only
    if its ``grad`` is None: with an old gradient, or with one full of zeros, momentum, the running averages of Adam and
    weight decay go on changing it.

    Bad::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for step in range(4):
                if step == 2:
                    net[0].requires_grad_(False)  # GS216
                opt.zero_grad(set_to_none=False)
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for step in range(4):
                if step == 2:
                    net[0].requires_grad_(False)
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
    """

    code = "GS216"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that moves what is frozen, at the first step that does."""
        for optimizer in trace.optimizers:
            found = _first(trace, optimizer)
            if found is not None:
                yield self._finding(trace, optimizer, *found)

    def _finding(
        self, trace: Trace, optimizer: OptimizerRef, step: OptimizerStep, moved: list[int], zeroed: ZeroGrad | None
    ) -> Finding:
        places = frozen_places(trace, moved)
        if zeroed is not None:
            places.append(
                Place(zeroed.location, Role.CAUSE, "fills their gradients with zeros, and does not drop them")
            )
        places.append(Place(step.location, Role.FAILURE, f"`{optimizer.name}` changes them here all the same"))
        state = "a gradient of zeros" if zeroed is not None else "the gradient of an earlier backward"
        return self.finding(
            f"`{optimizer.name}` ({optimizer.kind}) changes {listed(trace, moved)}, which are frozen: they still have "
            f"{state}, and an optimizer passes over a parameter only if its grad is None",
            places=places,
            fixes=[
                Fix("drop the gradients when freezing: zero_grad(set_to_none=True), or p.grad = None for each of them"),
                Fix(f"or take the parameters out of `{optimizer.name}`"),
            ],
            optimizer=optimizer.name,
            parameters=tuple(trace.graph.tensor(id).name for id in moved),
        )


def _first(trace: Trace, optimizer: OptimizerRef) -> tuple[OptimizerStep, list[int], ZeroGrad | None] | None:
    """The first step that moved frozen parameters without a new gradient, and what zeroed the old one last."""
    fresh: set[int] = set()
    zeroed: ZeroGrad | None = None
    held = frozenset(optimizer.parameters)
    for event in trace.events:
        match event:
            case Backward() if event.accumulates:
                fresh |= trace.reached(event) & held
            case ZeroGrad() if held.intersection(event.tensors):
                zeroed = event
                fresh.difference_update(event.tensors)
            case OptimizerStep() if event.optimizer == optimizer.id:
                moved = [id for id in event.moved if id not in fresh]
                if moved:
                    return event, moved, zeroed if zeroed is not None and not zeroed.to_none else None
                fresh.clear()
            case _:
                pass
    return None
