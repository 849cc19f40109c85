"""GS210: gradients are made for an optimizer that never steps, while another one steps instead."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text


class IdleOptimizer(Rule):
    """An optimizer's gradients are zeroed and made anew, but it never steps; another one steps in its place.

    Usually a copied line: after the backward of one network's loss the other network's optimizer is stepped. The
    network behind the idle optimizer keeps its first weights.

    Bad::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                opt_g.zero_grad()
                d(g(torch.ones(2, 4))).sum().backward()
                opt_g.step()
                opt_d.zero_grad()
                d(g(torch.ones(2, 4)).detach()).sum().backward()
                opt_g.step()  # GS210

    Good::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                opt_g.zero_grad()
                d(g(torch.ones(2, 4))).sum().backward()
                opt_g.step()
                opt_d.zero_grad()
                d(g(torch.ones(2, 4)).detach()).sum().backward()
                opt_d.step()
    """

    code = "GS210"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that is zeroed, gets gradients, and never steps."""
        if trace.outcome.exception is not None:
            return
        for optimizer in trace.optimizers:
            zeroed = any(isinstance(e, ZeroGrad) and e.optimizer == optimizer.id for e in trace.events)
            if optimizer.id not in trace.stepped and zeroed:
                for backward, step in _instead(trace, optimizer):
                    yield self._finding(trace, optimizer, backward, step)

    def _finding(self, trace: Trace, optimizer: OptimizerRef, backward: Backward, step: OptimizerStep) -> Finding:
        other = trace.optimizers[step.optimizer]
        return self.finding(
            f"{call_text(backward)} makes gradients for `{optimizer.name}`, which never steps: `{other.name}` steps "
            "after it, and has no gradient from it",
            places=[
                Place(step.location, Role.CAUSE, f"`{other.name}` steps here"),
                Place(backward.location, Role.RELATED, f"{call_text(backward)} is for `{optimizer.name}`"),
            ],
            fixes=[Fix(f"call {optimizer.name}.step() there", location=step.location, changes_gradients=True)],
            optimizer=optimizer.name,
            stepped=other.name,
        )


def _instead(trace: Trace, optimizer: OptimizerRef) -> Iterator[tuple[Backward, OptimizerStep]]:
    """The first step of another optimizer right after a backward that reached this one's parameters only."""
    held = frozenset(optimizer.parameters)
    last: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward) and event.accumulates:
            last = event
        elif isinstance(event, OptimizerStep) and last is not None:
            reached = trace.reached(last)
            if reached & held and not reached & frozenset(trace.optimizers[event.optimizer].parameters):
                yield last, event
                return
            last = None
