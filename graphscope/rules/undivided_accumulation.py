"""GS305: several backwards of one statement add up to a step, and the loss is not divided by their number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..events import Backward, GradWrite
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text
from ._steps import scaled_backwards, uses_by_statement

_RESCALES = ("Div", "Mul", "Sum", "Addcdiv", "Addcmul", "Lerp")
_LONGEST = 16  # nodes that are looked at behind a loss


class UndividedAccumulation(Rule):
    """Several backwards of one statement add up to a step, and the loss is not divided by their number.

    ``backward()`` adds. With losses that are means over a batch, N micro-batches give a gradient N times as large as
    one batch of the same samples would, as if the learning rate were N times as high. It may be meant: this is a note.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for i in range(8):
                net(torch.ones(2, 4)).pow(2).mean().backward()  # GS305
                if i % 4 == 3:
                    opt.step()
                    opt.zero_grad()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for i in range(8):
                (net(torch.ones(2, 4)).pow(2).mean() / 4).backward()
                if i % 4 == 3:
                    opt.step()
                    opt.zero_grad()
    """

    code = "GS305"
    severity = Severity.NOTE

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A note for each statement that steps on the sum of several means."""
        for uses in uses_by_statement(trace).values():
            found = [repeated for use in uses if (repeated := _repeated(trace, use))]
            if 2 * len(found) < len(uses) or not found:
                continue
            times = Counter(len(backwards) for backwards in found).most_common(1)[0][0]
            last = found[-1][-1]
            if not _is_rescaled(trace, last):
                yield self._finding(trace, last, uses[-1], times)

    def _finding(self, trace: Trace, event: Backward, use: Use, times: int) -> Finding:
        name = trace.optimizers[use.step.optimizer].name
        return self.finding(
            f"{call_text(event)} runs {times} times before each step of `{name}`, and the loss is divided by nothing: "
            f"the step uses the sum, {times} times the mean of these batches",
            places=[
                Place(event.location, Role.CAUSE, f"runs {times} times for one step"),
                Place(use.step.location, Role.RELATED, f"`{name}` steps on the sum here"),
            ],
            fixes=[Fix(f"divide the loss by {times} before backward()", event.location, changes_gradients=True)],
            optimizer=name,
            times=times,
        )


def _repeated(trace: Trace, use: Use) -> tuple[Backward, ...]:
    """The backwards of one statement that a step uses the sum of; () where it uses one, or something else was done."""
    for holding, _ in use.parts:
        backwards = [c for c in holding.fresh if isinstance(c, Backward) and c.time < use.step.start]
        if any(isinstance(change, GradWrite) and not change.clips for change in holding.fresh):
            return ()
        alike = [
            each
            for each in backwards
            if each.location == backwards[-1].location and trace.reached(each) == trace.reached(backwards[-1])
        ]
        if len(alike) > 1:
            return tuple(alike)
    return ()


def _is_rescaled(trace: Trace, event: Backward) -> bool:
    """Whether a factor, or a sum over the batch, is among the last operations that made the loss."""
    graph = trace.graph
    skip = event.time in scaled_backwards(trace)
    waiting = [root.node for root in event.roots if root.node is not None]
    seen = 0
    while waiting and seen < _LONGEST:
        node, seen = waiting.pop(0), seen + 1
        label = graph.ops[node].partition("Backward")[0]
        if label.startswith(_RESCALES) and not skip:
            return True
        skip = False
        if all(not meta.shape for meta in graph.outputs[node]):
            waiting += [target for target, _ in graph.targets[node] if target >= 0]
    return False
