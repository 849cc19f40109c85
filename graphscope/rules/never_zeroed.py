"""GS301: a step uses gradients that an earlier step has used already."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text


class NeverZeroed(Rule):
    """A step uses gradients that an earlier step has used already, as nothing zeroed them between the two.

    Backward adds to ``grad``. Accumulating over several backwards before one step is fine; but once a step has used
    them, gradients that are not zeroed go into the next step again. Reported where it happens at more than half
    of the optimizer's steps after the first.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                loss = net(torch.ones(2, 4)).sum()
                loss.backward()  # GS301
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                for _ in range(2):
                    (net(torch.ones(2, 4)).sum() / 2).backward()
                opt.step()
                opt.zero_grad()
    """

    code = "GS301"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer whose steps use old gradients again."""
        for optimizer in trace.optimizers:
            steps, again = _reusing(trace, optimizer)
            if again and 2 * len(again) > steps - 1:
                yield self._finding(optimizer, steps, again)

    def _finding(
        self, optimizer: OptimizerRef, steps: int, again: list[tuple[OptimizerStep, Backward, Backward]]
    ) -> Finding:
        step, old, new = again[0]
        return self.finding(
            f"`{optimizer.name}` uses old gradients again, at {len(again)} of {steps} steps: nothing zeroes them after "
            f"a step, so {call_text(new)} adds to what {call_text(old)} left",
            places=[
                Place(new.location, Role.CAUSE, f"{call_text(new)} adds to gradients that a step has used already"),
                Place(step.location, Role.FAILURE, f"`{optimizer.name}` steps on their sum here"),
            ],
            fixes=[
                Fix(
                    f"call {optimizer.name}.zero_grad() before this backward",
                    location=new.location,
                    changes_gradients=True,
                )
            ],
            optimizer=optimizer.name,
            count=len(again),
            steps=steps,
        )


def _reusing(trace: Trace, optimizer: OptimizerRef) -> tuple[int, list[tuple[OptimizerStep, Backward, Backward]]]:
    """How often it stepped, and each step that used a gradient which an earlier step had used."""
    held = frozenset(optimizer.parameters)
    fresh: list[Backward] = []
    used: list[Backward] = []
    steps, again = 0, []
    for event in trace.events:
        match event:
            case Backward() if event.accumulates and not event.error and event.ran and trace.reached(event) & held:
                fresh.append(event)
            case ZeroGrad() if frozenset(event.tensors) & held:
                fresh, used = [], []
            case OptimizerStep() if event.optimizer == optimizer.id and event.ran:
                steps += 1
                if used and fresh:
                    again.append((event, used[-1], fresh[-1]))
                used, fresh = used + fresh, []
            case _:
                pass
    return steps, again
