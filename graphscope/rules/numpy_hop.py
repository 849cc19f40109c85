"""GS201: a value leaves torch and comes back, and the gradient with it is lost."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..findings import Cleared, Confidence, Finding, Fix, Severity
from ..flow import Cut, cuts
from ..rule import Rule
from ..trace import Trace
from ._harmless import harmless
from ._parameters import cut_fact, cut_places, listed, losses, ungraded


class NumpyHop(Rule):
    """A tensor leaves torch as a numpy array (or list, or number) and comes back to a loss without its history.

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
            if cut.exit is None or cut.returns is None or not cut.reaches:
                continue
            if not cut.returns.enters and not cut.from_tensors & lost:
                continue  # a number that arithmetic used: as a term of a loss, GS202 tells of it
            hop = (cut.call.location, cut.exit.location, cut.returns.location)
            if hop not in seen:
                seen.add(hop)
                yield self._finding(trace, cut, cut.exit, cut.returns, lost)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The values that leave torch and keep nothing from training."""
        for cut, where, reason in harmless(trace):
            if cut.call.leaves:
                yield self.clear(reason, where)

    def _finding(self, trace: Trace, cut: Cut, left: Call, back: Call, lost: set[int]) -> Finding:
        never = sorted(cut.from_tensors & lost)
        told = never or sorted(cut.from_tensors)
        consequence = (
            f"no loss reaches {listed(trace, told)} in any other way, so they never learn"
            if never
            else f"this loss does not train {listed(trace, told)}; another one does"
        )
        return self.finding(
            f"`{left.op}` takes a tensor out of torch and `{back.op}` brings it back without its history: "
            f"{consequence}",
            places=cut_places([cut]),
            severity=Severity.ERROR if never else Severity.NOTE,
            confidence=Confidence.CERTAIN if cut.certain else Confidence.LIKELY,
            fixes=[Fix("compute this step with torch operations on the tensor itself", changes_gradients=True)],
            parameters=tuple(trace.graph.tensor(id).name for id in told),
            cut=cut_fact(trace, [cut]),
            left=left.op,
            back=back.op,
        )
