"""GS201: a value leaves torch and comes back, and the gradient with it is lost."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..flow import Cut, cuts
from ..rule import Rule
from ..trace import Trace
from ._parameters import listed, losses, ungraded


class NumpyHop(Rule):
    """A tensor leaves torch as a numpy array (or list, or number), and what comes back feeds a loss without its history.

    numpy records no history: the tensor that ``from_numpy`` makes is a constant to autograd. The parameters
    before the hop get no gradient from the loss behind it; if no other loss reaches them, they never learn.
    Where another loss trains them the hop may be meant, and is only noted.

    Bad::

        import torch, graphscope

        net1, net2 = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD([*net1.parameters(), *net2.parameters()], lr=0.1)
        with graphscope.watch() as report:
            h = net1(torch.ones(2, 4))
            scaled = h.detach().numpy() * 0.5  # GS201
            net2(torch.from_numpy(scaled)).sum().backward()
            opt.step()

    Good::

        import torch, graphscope

        net1, net2 = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD([*net1.parameters(), *net2.parameters()], lr=0.1)
        with graphscope.watch() as report:
            h = net1(torch.ones(2, 4))
            net2(h * 0.5).sum().backward()
            opt.step()
            print(h.detach().numpy().mean())
    """

    code = "GS201"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error where parameters before the hop never get a gradient, a note where another loss trains them."""
        owned = {id for optimizer in trace.optimizers if optimizer.id in trace.stepped for id in optimizer.parameters}
        lost = {id for optimizer in trace.optimizers for id in ungraded(trace, optimizer)}
        seen = set()
        for cut in cuts(trace, owned, losses(trace)):
            if cut.returns is None or cut.call.location is None or cut.returns.location is None:
                continue
            hop = (cut.call.location, cut.returns.location)
            if hop in seen or not any(_is_number_or_array(trace, cut)):
                continue
            seen.add(hop)
            yield self._finding(trace, cut, sorted(cut.from_tensors), sorted(cut.from_tensors & lost))

    def _finding(self, trace: Trace, cut: Cut, behind: list[int], lost: list[int]) -> Finding:
        left, back = cut.call, cut.returns
        assert back is not None and left.location is not None and back.location is not None
        told = lost or behind
        consequence = (
            f"no loss reaches {listed(trace, told)} in any other way, so they never learn"
            if lost
            else f"this loss does not train {listed(trace, told)}; another one does"
        )
        return self.finding(
            f"`{left.op}` takes a tensor out of torch and `{back.op}` brings it back without its history: {consequence}",
            places=[
                Place(left.location, Role.CAUSE, "leaves torch here"),
                Place(back.location, Role.CAUSE, "comes back here as a constant"),
            ],
            severity=Severity.ERROR if lost else Severity.NOTE,
            confidence=Confidence.CERTAIN if cut.certain else Confidence.LIKELY,
            fixes=[Fix("compute this step with torch operations on the tensor itself", changes_gradients=True)],
            parameters=tuple(trace.graph.tensor(id).name for id in told),
            left=left.op,
            back=back.op,
        )


def _is_number_or_array(trace: Trace, cut: Cut) -> Iterator[bool]:
    yield cut.call.leaves
    yield cut.call.op in ("detach", "data") and cut.returns is not None and cut.returns.enters
