"""GS202: a term of a loss has lost its history, so it trains nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Call
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..flow import Cut, Following
from ..rule import Rule
from ..trace import Trace
from ._parameters import cut_fact, cut_places, listed, losses

_SUMS = {"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "rsub", "__sub__", "__rsub__"}


class DeadTerm(Rule):
    """A term of a loss was computed from parameters that train, but has lost its history on the way.

    A constant added to a loss changes its value and no gradient. The rest of the sum trains, so the loss falls and
    nothing looks wrong; the term's weight has no influence. Reported for scalars only, as a term of a loss is one.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            penalty = out.argmax(1).float().mean()  # GS202
            loss = out.pow(2).mean() + 0.1 * penalty
            loss.backward()
            opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            penalty = out.softmax(1).max(1).values.mean()
            loss = out.pow(2).mean() + 0.1 * penalty
            loss.backward()
            opt.step()
            print(out.argmax(1).float().mean() + 1)
    """

    code = "GS202"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each scalar that is added to a loss after a cut."""
        trained = {id for optimizer in trace.optimizers if optimizer.id in trace.stepped for id in optimizer.parameters}
        following = Following(frozenset(trained))
        for call in trace.calls:
            following.follow(call)
        wanted = _leading_to(trace, losses(trace))
        seen = set()
        for call in trace.calls:
            if not _adds(trace, call) or not set(call.outputs) & wanted:
                continue
            for position, id in enumerate(call.inputs):
                found = [following.cut(cut, reaches=True) for cut in following.dead.get(id, ())]
                found = [cut for cut in found if cut.call.location is not None and cut.call.time < call.time]
                dead = not call.needs_grad[position] and trace.graph.tensor(id).shape == ()
                if dead and found and call.location not in seen:
                    seen.add(call.location)
                    yield self._finding(trace, call, found)

    def _finding(self, trace: Trace, call: Call, found: list[Cut]) -> Finding:
        assert call.location is not None
        behind = sorted(frozenset().union(*(cut.from_tensors for cut in found)))
        places = cut_places(found)
        if call.location not in {place.location for place in places}:
            places.append(Place(call.location, Role.FAILURE, "added to the loss here, as a constant"))
        how = "has no gradient" if found[0].call.op not in ("detach", "data", "grad") else "drops the history"
        return self.finding(
            f"a term of the loss trains nothing: `{found[0].call.op}` {how}, so that what it was computed from "
            f"({listed(trace, behind)}) gets no gradient from this term",
            places=places,
            confidence=Confidence.CERTAIN if all(cut.certain for cut in found) else Confidence.LIKELY,
            fixes=[Fix(_advice(found[0].call), changes_gradients=True)],
            op=found[0].call.op,
            cut=cut_fact(trace, found),
        )


def _adds(trace: Trace, call: Call) -> bool:
    """Whether the call adds something to a scalar that has a history."""
    alive = any(needs for needs in call.needs_grad)
    return call.op in _SUMS and alive and any(call.gives_grad) and len(call.inputs) > 1


def _leading_to(trace: Trace, wanted: frozenset[int]) -> set[int]:
    """The scalars that losses were summed up from: a term need not be added last."""
    found = set(wanted)
    for call in reversed(trace.calls):
        if found.intersection(call.outputs) and (call.op in _SUMS or call.op in ("mul", "div", "clone", "__mul__")):
            found.update(id for id in call.inputs if trace.graph.tensor(id).shape == ())
    return found


def _advice(call: Call) -> str:
    if call.op == "grad":
        return "pass create_graph=True to torch.autograd.grad, so that its result has a history"
    if call.leaves or call.op in ("detach", "data"):
        return f"keep the tensor itself in the sum, and use `{call.op}` under another name for logging"
    return f"build the term from soft values in place of `{call.op}`"
