"""GS302: gradients are zeroed between the backward that made them and the step that needs them."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Action, Edit, Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text
from ._steps import Lost, how_often, lost, uses_by_statement


class ZeroedBeforeStep(Rule):
    """Gradients are zeroed between the backward that made them and the step, so that the step sees none.

    With ``set_to_none`` (the default) the optimizer passes over every parameter, and nothing ever moves; with zeros
    only momentum and weight decay still act. Reported where it happens at more than half of the steps of a statement:
    dropping the gradients of one bad batch that way is fine.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                net(torch.ones(2, 4)).sum().backward()
                opt.zero_grad()  # GS302
                opt.step()

    Bad, as the step comes before the backward::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                loss = net(torch.ones(2, 4)).sum()
                opt.zero_grad()
                opt.step()  # GS302
                loss.backward()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
    """

    code = "GS302"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement most of whose steps have nothing to use for this reason."""
        for uses in uses_by_statement(trace).values():
            if (all_lost := [each for use in uses if (each := lost(use))]) and 2 * len(all_lost) > len(uses):
                yield self._finding(trace, trace.optimizers[uses[0].step.optimizer], all_lost, len(uses))

    def _finding(self, trace: Trace, optimizer: OptimizerRef, found: list[Lost], of: int) -> Finding:
        backward, zero, step = found[-1]
        fix = Fix(
            "zero the gradients after the step, or before the backward",
            location=zero.location,
            changes_gradients=True,
            edits=(Edit(Action.MOVE_AFTER, zero.location, step.location),),
        )
        if _comes_late(trace, found):
            fix = Fix(
                f"move {optimizer.name}.step() behind {call_text(backward)}",
                location=step.location,
                changes_gradients=True,
                edits=(Edit(Action.MOVE_AFTER, step.location, backward.location),),
            )
        return self.finding(
            f"the gradients of `{optimizer.name}` are zeroed after {call_text(backward)} and before the step, "
            f"{how_often(len(found), of)}: the step has nothing to use",
            places=[
                Place(zero.location, Role.CAUSE, "the gradients are zeroed here"),
                Place(backward.location, Role.RELATED, f"{call_text(backward)} made them here"),
                Place(step.location, Role.FAILURE, f"`{optimizer.name}` steps without them here"),
            ],
            fixes=[fix],
            optimizer=optimizer.name,
            count=len(found),
            steps=of,
        )


def _comes_late(trace: Trace, found: list[Lost]) -> bool:
    """Whether nothing comes between zeroing and step, and the backward right after the two: the step is too early."""
    for backward, zero, step in found:
        around = [
            event
            for event in trace.events
            if isinstance(event, Backward | ZeroGrad | OptimizerStep) and event.time >= zero.time
        ][:3]
        if len(around) < 3 or around[1] is not step or not isinstance(after := around[2], Backward):
            return False
        if after.location != backward.location:
            return False
    return True
