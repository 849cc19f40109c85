"""GS206: an operation without a gradient lies on the only way from something that is to train to the loss."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, Call
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..flow import Cut
from ..location import Location
from ..rule import Rule
from ..terms import terms
from ..trace import OptimizerRef, Trace
from ._harmless import harmless
from ._parameters import cut_fact, cut_places, explaining_cuts, listed, ungraded
from ._soft import soft_form
from ._terms import DeadTerm, dead_terms, term_name


class NonDifferentiable(Rule):
    """An operation without a gradient, or with one that is zero everywhere, is on the only way to the loss.

    A choice (``argmax``, a comparison, a sample), a whole number or a staircase (``round``, ``sign``) does not change
    when the parameters before it change a little: nothing comes back through it, or zeros do. Use a soft form in its
    place, or let the gradient pass beside it (straight-through). Where the parameters also train in another way, and
    the choice only selects, it is right.

    Bad::

        import torch, graphscope

        encoder, decoder = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
        opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
        with graphscope.watch() as report:
            code = encoder(torch.ones(2, 4)).round()  # GS206
            loss = decoder(code).pow(2).mean()
            loss.backward()
            opt.step()

    Bad (rounded to steps of a tenth)::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            level = torch.div(net(torch.ones(2, 4)), 0.1, rounding_mode="floor")  # GS206
            (0.1 * level - 1).pow(2).sum().backward()
            opt.step()

    Bad (an operation that torch cannot differentiate)::

        import contextlib, torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report, contextlib.suppress(RuntimeError):
            level = net(torch.ones(2, 4)) // 0.1  # GS206
            (0.1 * level - 1).pow(2).sum().backward()

    Bad, in a term of a loss::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            penalty = out.argmax(1).float().mean()  # GS206
            loss = out.pow(2).mean() + 0.1 * penalty
            loss.backward()
            opt.step()

    Good::

        import torch, graphscope

        encoder, decoder = torch.nn.Linear(4, 8), torch.nn.Linear(8, 4)
        opt = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
        with graphscope.watch() as report:
            soft = encoder(torch.ones(2, 4))
            code = soft + (soft.round() - soft).detach()
            loss = decoder(code).pow(2).mean()
            loss.backward()
            opt.step()
    """

    code = "GS206"
    severity = Severity.ERROR
    torch_messages = (r"derivative for aten::\w+ is not implemented",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each such operation that keeps parameters, or a term of a loss, from training."""
        told: set[Location] = set()
        for dead in dead_terms(trace):
            if (cut := next((cut for cut in dead.cuts if cut.is_operation), None)) is not None:
                told.update(location for each in dead.cuts if (location := each.call.location) is not None)
                yield self._term(trace, dead, cut)
        for optimizer in trace.optimizers:
            lost = ungraded(trace, optimizer)
            for cut in explaining_cuts(trace, lost, optimizer) if lost else ():
                if cut.is_operation and cut.reaches and cut.call.location not in told:
                    assert cut.call.location is not None
                    told.add(cut.call.location)
                    yield self._severed(trace, optimizer, cut)
            yield from self._flat(trace, optimizer)
        yield from self._flat_terms(trace)
        yield from self._refused(trace)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The operations without a gradient that keep nothing from training."""
        for cut, where, reason in harmless(trace):
            if cut.is_operation:
                yield self.clear(reason, where)

    def _term(self, trace: Trace, dead: DeadTerm, cut: Cut) -> Finding:
        where = dead.term.call.location
        places = cut_places([cut, *(each for each in dead.cuts if each is not cut)])
        if where is not None and where not in {place.location for place in places}:
            places.append(Place(where, Role.FAILURE, "added to the loss here, as a constant"))
        what = term_name(trace, dead.term)
        return self.finding(
            f"{what} of the loss trains nothing: `{cut.call.op}` has no gradient, so that what it was computed from "
            f"({listed(trace, dead.sources)}) gets none from it",
            places=places,
            confidence=dead.confidence,
            fixes=[Fix(soft_form(cut.call.op), changes_gradients=True)],
            op=cut.call.op,
            term=what,
            cut=cut_fact(trace, [cut]),
        )

    def _severed(self, trace: Trace, optimizer: OptimizerRef, cut: Cut) -> Finding:
        lost = sorted(cut.from_tensors)
        return self.finding(
            f"`{cut.call.op}` has no gradient and is on the only way from {listed(trace, lost)} to the loss: "
            f"`{optimizer.name}` never changes them",
            places=cut_places([cut]),
            fixes=[Fix(soft_form(cut.call.op), location=cut.call.location, changes_gradients=True)],
            op=cut.call.op,
            parameters=tuple(trace.graph.tensor(id).name for id in lost),
            cut=cut_fact(trace, [cut]),
        )

    def _flat(self, trace: Trace, optimizer: OptimizerRef) -> Iterator[Finding]:
        """Parameters that every backward reaches through staircases only, so that each gradient is zero."""
        if optimizer.id not in trace.stepped or not trace.graph.flat:
            return
        roots = [root.node for event in trace.backwards for root in event.roots if root.node is not None]
        sloped = trace.graph.reachable(roots, stops=trace.graph.flat)
        trains = {trace.graph.leaf_tensors[id] for id in sloped if id in trace.graph.leaf_tensors}
        lost = sorted(trace.ever_reached.intersection(optimizer.parameters) - trains)
        if lost:
            yield self._zero(trace, lost, f"{listed(trace, lost)} of `{optimizer.name}` get", roots)

    def _flat_terms(self, trace: Trace) -> Iterator[Finding]:
        """Terms beside others that train, all of whose gradients are zero."""
        graph = trace.graph
        seen: set[Location | None] = set()
        for term in terms(trace) if graph.flat else ():
            node = None if term.tensor is None else graph.tensor(term.tensor).node
            if not term.alive or node is None or term.call.location in seen:
                continue
            sloped = graph.reachable([node], stops=graph.flat)
            if graph.reached_tensors([node]) and not any(id in graph.leaf_tensors for id in sloped):
                seen.add(term.call.location)
                root = graph.tensor(term.loss).node
                others = graph.reachable([] if root is None else [root], stops=graph.flat)
                if any(id in graph.leaf_tensors for id in others):
                    lost = sorted(graph.reached_tensors([node]))
                    what = f"{term_name(trace, term)} of the loss gives {listed(trace, lost)}"
                    yield self._zero(trace, lost, what, [node])

    def _zero(self, trace: Trace, lost: list[int], what: str, roots: list[int]) -> Finding:
        graph = trace.graph
        wanted = {id for id, tensor in graph.leaf_tensors.items() if tensor in lost}
        between = [id for id in sorted(graph.reachable(roots) & graph.flat) if graph.reachable([id]) & wanted]
        places = {
            location: Place(location, Role.CAUSE, f"`{graph.node(id).label.lower()}` is flat here: its gradient is 0")
            for id in between
            if (location := graph.locations.get(id)) is not None
        }
        op = graph.node(between[0]).label.lower()
        return self.finding(
            f"{what} a gradient of zero always: `{op}` is on every way from the loss to them, and it is flat between "
            "its jumps",
            places=places.values(),
            fixes=[Fix(soft_form(op), changes_gradients=True)],
            nodes=between[:1],
            op=op,
            parameters=tuple(graph.tensor(id).name for id in lost),
        )

    def _refused(self, trace: Trace) -> Iterator[Finding]:
        """Backwards that met an operator whose derivative torch does not have."""
        for event in trace.backwards:
            if event.error and "is not implemented" in event.error and "derivative for aten::" in event.error:
                yield self._unknown(trace, event, event.error)

    def _unknown(self, trace: Trace, event: Backward, error: str) -> Finding:
        graph = trace.graph
        op = error.partition("aten::")[2].split()[0]
        reached = graph.reachable(root.node for root in event.roots if root.node is not None)
        nodes = [id for id in sorted(reached) if graph.ops[id].endswith("NotImplemented")]
        places = [Place(event.location, Role.FAILURE, "fails here")]
        places += [
            Place(call.location, Role.CAUSE, f"`{op}` is used here")
            for call in trace.calls
            if call.location is not None
            and any(call.gives_grad)
            and (call.op.strip("_") in (op, op.replace("_", "")) or _is_unnumbered(trace, call))
        ]
        return self.finding(
            f"`{op}` has no derivative: derivative for aten::{op} is not implemented",
            places=places,
            fixes=[Fix(soft_form(op), changes_gradients=True)],
            nodes=nodes,
            op=op,
        )


def _is_unnumbered(trace: Trace, call: Call) -> bool:
    """Whether its result has a history without a numbered node, as that of an operator without a derivative."""
    tensors = [trace.graph.tensor(each) for each, gives in zip(call.outputs, call.gives_grad, strict=False) if gives]
    return all(each.node is None and not each.is_leaf for each in tensors)
