"""GS308: an optimizer is made anew for every step or two, so that its state is lost each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..cycles import kin
from ..events import InPlaceWrite
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace

_FEW_STEPS = 2  # with more of them between, making it anew may be meant: a new phase, a client of its own
_MIN_TIMES = 3


class RebuiltOptimizer(Rule):
    """An optimizer is made anew for every step or two, so that its state is lost each time.

    Adam's moments and SGD's momentum live in the optimizer. One that is made inside of the training step begins with
    none at every step: Adam then takes a first step again and again, whose length does not depend on the gradient, and
    momentum never builds up. Not reported for optimizers without state, nor where the weights are reset in between.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            for _ in range(4):
                opt = torch.optim.Adam(net.parameters(), lr=0.1)  # GS308
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
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
            for _ in range(3):
                fast = torch.nn.Linear(4, 1)
                inner = torch.optim.Adam(fast.parameters(), lr=0.1)
                fast(torch.ones(2, 4)).sum().backward()
                inner.step()
    """

    code = "GS308"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that makes an optimizer of the same parameters again and again."""
        steps = Counter(step.optimizer for step in trace.steps if step.ran)
        families: dict[tuple[int, frozenset[int]], list[OptimizerRef]] = {}
        for optimizer, first in zip(trace.optimizers, kin(trace), strict=True):
            if steps[optimizer.id] and optimizer.keeps_state and optimizer.location is not None:
                families.setdefault((first, frozenset(optimizer.parameters)), []).append(optimizer)
        for members in families.values():
            often = sorted(steps[member.id] for member in members)
            if len(members) >= _MIN_TIMES and often[len(often) // 2] <= _FEW_STEPS and not _reset(trace, members):
                yield self._finding(members, sum(often))

    def _finding(self, members: list[OptimizerRef], steps: int) -> Finding:
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


def _reset(trace: Trace, members: list[OptimizerRef]) -> bool:
    """Whether the program overwrites the parameters in between: it starts again on purpose."""
    held, ids = set(members[0].parameters), {member.id for member in members}
    first = min(step.time for step in trace.steps if step.optimizer in ids)
    return any(
        isinstance(event, InPlaceWrite) and event.time > first and event.write.tensor in held for event in trace.events
    )
