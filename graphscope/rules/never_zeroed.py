"""GS301: a step uses gradients that an earlier step has used already."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text
from ._steps import backwards_in, how_often, same_statement, severity_of, used_before, uses_of


class NeverZeroed(Rule):
    """A step uses gradients that an earlier step has used already, as nothing zeroed them between the two.

    Backward adds to ``grad``. Accumulating over several backwards before one step is fine; but once a step has used
    them, gradients that are not zeroed go into the next step again. An error where it happens at half of the steps
    after the first or more, a warning where it comes again, a note where it happened once.

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
        """One finding for each optimizer whose steps use old gradients again: an error where most of them do."""
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if again := [(use, *mixed) for use in uses if (mixed := _mixed(use))]:
                yield self._finding(optimizer, len(uses), again)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """Backwards that add up on purpose: all are used at once, and zeroed before the next one."""
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if any(_mixed(use) for use in uses):
                continue
            for use in uses:
                for holding, _ in use.parts:
                    backwards = backwards_in(holding)
                    if len(backwards) > 1 and same_statement(backwards) and use.step.start > backwards[-1].time:
                        yield self.clear(
                            f"{call_text(backwards[0])} runs {len(backwards)} times without zero_grad() in between, "
                            f"which is right: `{optimizer.name}` uses the sum once, and no step uses it again",
                            backwards[0].location,
                        )

    def _finding(self, optimizer: OptimizerRef, steps: int, again: list[tuple[Use, Backward, Backward]]) -> Finding:
        use, old, new = again[0]
        name, often = optimizer.name, how_often(len(again), steps)
        zeroed_late = "nothing zeroes them in time" if steps - 1 > len(again) else "nothing zeroes them after a step"
        return self.finding(
            f"`{name}` uses old gradients again, {often}: {zeroed_late}, so {call_text(new)} adds to what "
            f"{'the one before' if new.location == old.location else call_text(old)} left",
            places=[
                Place(new.location, Role.CAUSE, f"{call_text(new)} adds to gradients that a step has used already"),
                Place(use.step.location, Role.FAILURE, f"`{name}` steps on their sum here"),
            ],
            fixes=[Fix(f"call {name}.zero_grad() before this backward", new.location, changes_gradients=True)],
            severity=severity_of(len(again), steps - 1),
            optimizer=name,
            count=len(again),
            steps=steps,
        )


def _mixed(use: Use) -> tuple[Backward, Backward] | None:
    """An old backward and a new one that both are in the gradients of one parameter."""
    for holding, _ in use.parts:
        fresh, old = backwards_in(holding), used_before(holding)
        if fresh and old is not None:
            return old, fresh[-1]
    return None
