"""GS302: gradients are zeroed between the backward that made them and the step that needs them."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Action, Edit, Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text


class ZeroedBeforeStep(Rule):
    """Gradients are zeroed between the backward that made them and the step, so that the step sees none.

    With ``set_to_none`` (the default) the optimizer passes over every parameter, and nothing ever moves; with zeros
    only momentum and weight decay still act. Reported where it happens at every step of the optimizer.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                net(torch.ones(2, 4)).sum().backward()
                opt.zero_grad()  # GS302
                opt.step()

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
        """An error for each optimizer none of whose steps ever had a fresh gradient for this reason."""
        for optimizer in trace.optimizers:
            found = _steps_after_zero(trace, optimizer)
            steps = [step for step in trace.steps if step.optimizer == optimizer.id]
            if steps and len(found) == len(steps):
                yield self._finding(optimizer, found)

    def _finding(self, optimizer: OptimizerRef, found: list[tuple[Backward, ZeroGrad, OptimizerStep]]) -> Finding:
        backward, zero, step = found[-1]
        return self.finding(
            f"the gradients of `{optimizer.name}` are zeroed after {call_text(backward)} and before the step, "
            f"at each of {len(found)} steps: the step has nothing to use",
            places=[
                Place(zero.location, Role.CAUSE, "the gradients are zeroed here"),
                Place(backward.location, Role.RELATED, f"{call_text(backward)} made them here"),
                Place(step.location, Role.FAILURE, f"`{optimizer.name}` steps without them here"),
            ],
            fixes=[
                Fix(
                    "zero the gradients after the step, or before the backward",
                    location=zero.location,
                    changes_gradients=True,
                    edits=(Edit(Action.MOVE_AFTER, zero.location, step.location),),
                )
            ],
            optimizer=optimizer.name,
            steps=len(found),
        )


def _steps_after_zero(trace: Trace, optimizer: OptimizerRef) -> list[tuple[Backward, ZeroGrad, OptimizerStep]]:
    """The steps whose gradients had all been zeroed since the backward that made them."""
    held = frozenset(optimizer.parameters)
    found = []
    backward: Backward | None = None
    zero: ZeroGrad | None = None
    for event in trace.events:
        match event:
            case Backward() if event.accumulates and not event.error and trace.reached(event) & held:
                backward, zero = event, None
            case ZeroGrad() if backward is not None and held <= frozenset(event.tensors):
                zero = event
            case OptimizerStep() if event.optimizer == optimizer.id:
                if backward is not None and zero is not None and not (zero.to_none and held & set(event.graded)):
                    found.append((backward, zero, event))
                backward, zero = None, None
            case _:
                pass
    return found
