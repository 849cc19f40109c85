"""GS308: an optimizer, or a module that trains, is made anew for every step or two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..cycles import kin
from ..events import InPlaceWrite
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import listed
from ._rebuilt import FEW_STEPS, MIN_TIMES, Rebuilt, rebuilt

_MOST_CALLERS = 3


class RebuiltInLoop(Rule):
    """An optimizer, or a module that trains, is made anew for every step or two, so that what it has learnt is lost.

    Adam's moments and SGD's momentum live in the optimizer. One that is made inside of the training step begins with
    none at every step: Adam then takes a first step again and again, whose length does not depend on the gradient, and
    momentum never builds up. A layer that is made in ``forward``, or in the step, has random weights again each time,
    and trains never. Not reported for optimizers without state, nor where the weights are reset or loaded in between.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            for _ in range(4):
                opt = torch.optim.Adam(net.parameters(), lr=0.1)  # GS308
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Bad: a layer is made in ``forward``::

        import torch, graphscope

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(4, 8)

            def forward(self, x):
                last = torch.nn.Linear(8, 1)  # GS308
                return last(self.first(x).relu())

        with graphscope.watch() as report:
            net = Net()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(4):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.Adam(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(4):
                opt.zero_grad()
                criterion = torch.nn.MSELoss()
                criterion(net(torch.ones(2, 4)), torch.ones(2, 1)).backward()
                opt.step()
            for _ in range(3):
                fast = torch.nn.Linear(4, 1)
                inner = torch.optim.Adam(fast.parameters(), lr=0.1)
                fast(torch.ones(2, 4)).sum().backward()
                inner.step()
                print(fast(torch.ones(2, 4)).mean().item())
    """

    code = "GS308"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that makes an optimizer of the same parameters, or a module, again and again."""
        yield from (self._module(trace, each) for each in rebuilt(trace))
        steps = Counter(step.optimizer for step in trace.steps if step.ran)
        families: dict[tuple[int, frozenset[int]], list[OptimizerRef]] = {}
        for optimizer, first in zip(trace.optimizers, kin(trace), strict=True):
            if steps[optimizer.id] and optimizer.keeps_state and optimizer.location is not None:
                families.setdefault((first, frozenset(optimizer.parameters)), []).append(optimizer)
        for members in families.values():
            often = sorted(steps[member.id] for member in members)
            if len(members) >= MIN_TIMES and often[len(often) // 2] <= FEW_STEPS and not _reset(trace, members):
                yield self._optimizer(members, sum(often))

    def _optimizer(self, members: list[OptimizerRef], steps: int) -> Finding:
        last = members[-1]
        assert last.location is not None
        return self.finding(
            f"`{last.name}` ({last.kind}) is made anew {len(members)} times, for {steps} steps in all: its state "
            "(moments, momentum) is thrown away each time",
            places=[Place(last.location, Role.CAUSE, f"a new {last.kind} for the same parameters is made here")],
            fixes=[Fix(f"make `{last.name}` once, before the loop", last.location, changes_gradients=True)],
            optimizer=last.name,
            kind=last.kind,
            times=len(members),
            steps=steps,
        )

    def _module(self, trace: Trace, found: Rebuilt) -> Finding:
        times, first = len(found.times), found.times[0]
        birth = trace.graph.tensor(first[0]).birth
        what = "a parameter" if birth is None else "a module"
        stack = () if birth is None else birth.locations
        callers = stack[stack.index(found.location) + 1 :] if found.location in stack else ()
        fate = (
            "each time they train for a step or two, are thrown away, and start at random again"
            if found.held
            else "no optimizer holds them, and they start at random again each time"
        )
        return self.finding(
            f"{what} is made anew {times} times while the program trains ({listed(trace, first)}): {fate}",
            places=[
                Place(found.location, Role.CAUSE, "made here, again and again"),
                *(Place(each, Role.RELATED, "called from here") for each in callers[:_MOST_CALLERS]),
            ],
            fixes=[
                Fix("make it once, in __init__ or before the loop, and give it to the optimizer", found.location),
            ],
            times=times,
            parameters=tuple(trace.graph.tensor(id).name for id in first),
        )


def _reset(trace: Trace, members: list[OptimizerRef]) -> bool:
    """Whether the program overwrites the parameters in between: it starts again on purpose."""
    held, ids = set(members[0].parameters), {member.id for member in members}
    first = min(step.time for step in trace.steps if step.optimizer in ids)
    return any(
        isinstance(event, InPlaceWrite) and event.time > first and event.write.tensor in held for event in trace.events
    )
