"""GS303: an optimizer steps again on gradients that a step has used already, with no backward in between."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, OptimizerStep
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._steps import how_often, uses_by_statement


class StaleStep(Rule):
    """An optimizer steps again on gradients that it has used already, with no backward in between.

    ``step()`` leaves ``grad`` as it is. A second step on the same gradients makes the first one twice as long (and
    counts twice for Adam's moments and for a scheduler); it is one too many, stands in the wrong loop, or the backward
    before it was skipped. Reported where it happens at half of the steps of a statement or more.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
                opt.step()  # GS303

    Bad: the step stands in the loop, the backward before it::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            net(torch.ones(2, 4)).sum().backward()
            for _ in range(3):
                opt.step()  # GS303

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        sgd = torch.optim.SGD(net.parameters(), lr=0.1)
        adam = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                net(torch.ones(2, 4)).sum().backward()
                sgd.step()
                adam.step()
                net.zero_grad()
            adam.step()
    """

    code = "GS303"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that mostly steps in vain, or twice."""
        yield from self._closures(trace)
        idle = {id for o in trace.optimizers if o.id not in trace.stepped for id in o.parameters}
        for uses in uses_by_statement(trace).values():
            stale = [(use, before) for use in uses if (before := _used_by(use))]
            if 2 * len(stale) >= len(uses) and stale and not _for_another(trace, idle, *stale[-1]):
                yield self._finding(trace, stale, len(uses))

    def _closures(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that gives LBFGS a closure which backpropagates nothing."""
        spans: dict[Location, list[OptimizerStep]] = {}
        for step in trace.steps:
            if trace.optimizers[step.optimizer].kind == "LBFGS" and step.ran and step.began >= 0:
                spans.setdefault(step.location, []).append(step)
        for location, steps in spans.items():
            if any(step.began <= event.time < step.time for step in steps for event in trace.backwards):
                continue
            name = trace.optimizers[steps[0].optimizer].name
            yield self.finding(
                f"`{name}` is given a closure that calls no backward(): the gradients stay those of before the step",
                places=[Place(location, Role.CAUSE, "the closure is evaluated here, several times")],
                fixes=[Fix("zero_grad(), the loss and its backward() all belong into the closure", location)],
                optimizer=name,
                count=len(steps),
                steps=len(steps),
            )

    def _finding(self, trace: Trace, stale: list[tuple[Use, OptimizerStep]], of: int) -> Finding:
        use, before = stale[-1]
        name = trace.optimizers[use.step.optimizer].name
        loop = before.location == use.step.location
        first = "by the same statement before" if loop else f"at {before.location}"
        places = [Place(use.step.location, Role.CAUSE, f"`{name}` steps on the same gradients again here")]
        if not loop:
            places.append(Place(before.location, Role.RELATED, "the step that used them first"))
        backward = next((c for holding, _ in use.parts for c in holding if isinstance(c, Backward)), None)
        if backward is not None:
            places.append(Place(backward.location, Role.RELATED, "the last backward before both was here"))
        title = "move the step behind the backward, into the same loop" if loop else "leave one of the two steps out"
        return self.finding(
            f"`{name}` steps on gradients that it has used already, {how_often(len(stale), of)} of this statement: "
            f"they were used {first}, and no backward has written new ones since",
            places=places,
            fixes=[Fix(title, use.step.location, changes_gradients=True)],
            optimizer=name,
            count=len(stale),
            steps=of,
        )


def _used_by(use: Use) -> OptimizerStep | None:
    """The step of the same optimizer that has used all there is, where nothing is new."""
    found = None
    for holding, _ in use.parts:
        for change in holding:
            if not isinstance(change, OptimizerStep):
                break
            if change.optimizer == use.step.optimizer:
                found = change
        if holding.fresh:
            return None
    return None if set(use.unknown) & set(use.step.graded) else found


def _for_another(trace: Trace, idle: set[int], use: Use, before: OptimizerStep) -> bool:
    """Whether a backward in between was for an optimizer that never steps: that is the fault then."""
    between = (event for event in trace.backwards if before.time < event.time < use.step.time)
    return any(trace.reached(event) & idle for event in between)
