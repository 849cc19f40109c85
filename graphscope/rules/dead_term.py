"""GS202: a term of a loss has lost its history, so it trains nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward
from ..findings import Cleared, Confidence, Finding, Fix, Place, Role, Severity
from ..flow import Cut, follow
from ..rule import Rule
from ..terms import Term, wasted
from ..trace import Trace
from ._harmless import harmless
from ._parameters import cut_fact, cut_places, listed, ungraded
from ._regained import regained
from ._terms import DeadTerm as Dead
from ._terms import dead_terms, term_name, trained


class DeadTerm(Rule):
    """A term of a loss was computed from parameters that train, but has lost its history on the way.

    A constant added to a loss changes its value and no gradient. The rest of the sum trains, so the loss falls and
    nothing looks wrong; the term's weight has no influence. The same goes for a term that trains only what is not to
    be trained now: it was computed from detached values, and the gradients it gives another network are thrown away.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            penalty = out.abs().mean().item()  # GS202
            loss = out.pow(2).mean() + 0.1 * penalty
            loss.backward()
            opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            penalty = out.abs().mean()
            loss = out.pow(2).mean() + 0.1 * penalty
            loss.backward()
            opt.step()
            print(penalty.item() + 1)

    Good (a student's loss: the entropy of its teacher makes it a divergence, and trains nobody)::

        import torch, graphscope

        teacher, student = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        opt_t = torch.optim.SGD(teacher.parameters(), lr=0.1)
        opt_s = torch.optim.SGD(student.parameters(), lr=0.1)
        x, y = torch.rand(8, 4), torch.randint(3, (8,))
        with graphscope.watch() as report:
            for _ in range(3):
                answer = teacher(x)
                opt_t.zero_grad()
                torch.nn.functional.cross_entropy(answer, y).backward()
                opt_t.step()
                p = answer.detach().softmax(1)
                entropy = -(p * p.log()).sum(1).mean()
                loss = -(p * student(x).log_softmax(1)).sum(1).mean() - entropy
                opt_s.zero_grad()
                loss.backward()
                opt_s.step()

    Good (what a running total had before has trained already)::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            total = torch.zeros(())
            for _ in range(3):
                total = total.detach() + net(torch.ones(2, 4)).pow(2).mean()
                opt.zero_grad()
                total.backward()
                opt.step()
    """

    code = "GS202"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that adds a term which trains nothing."""
        for dead in dead_terms(trace):
            if not any(cut.is_operation for cut in dead.cuts):
                yield self._constant(trace, dead)
        yield from self._wasted(trace)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The places that drop a history, or switch gradients off, and keep nothing from training."""
        for cut, where, reason in harmless(trace):
            if not cut.call.leaves and not cut.is_operation:
                yield self.clear(reason, where)

    def _constant(self, trace: Trace, dead: Dead) -> Finding:
        where = dead.term.call.location
        places = cut_places(dead.cuts)
        if where is not None and where not in {place.location for place in places}:
            places.append(Place(where, Role.FAILURE, "added to the loss here, as a constant"))
        op = dead.cuts[0].call.op
        what = term_name(trace, dead.term)
        return self.finding(
            f"{what} of the loss trains nothing: {_how(dead.cuts[0])}, so that what it was computed from "
            f"({listed(trace, dead.sources)}) gets no gradient from it",
            places=places,
            confidence=dead.confidence,
            fixes=[Fix(_advice(dead.cuts[0]), changes_gradients=True)],
            op=op,
            term=what,
            cut=cut_fact(trace, dead.cuts),
        )

    def _wasted(self, trace: Trace) -> Iterator[Finding]:
        """The terms that were computed from detached values, and whose gradients are all thrown away."""
        following = follow(trace, trained(trace))
        lost = {id for optimizer in trace.optimizers for id in ungraded(trace, optimizer)}
        held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
        for term, event, leaves in wasted(trace):
            assert term.tensor is not None
            if held.isdisjoint(trace.reached(event)) and any(
                not reached.isdisjoint(leaves) and not reached.isdisjoint(held)
                for reached in map(trace.reached, trace.backwards)
            ):
                continue  # a loss for what someone forgot to give to an optimizer, as another loss trains through it
            before = [cut for cut in following.cuts_of(term.tensor) if cut.call.location is not None]
            if not before:
                before = [cut for leaf in leaves for cut in regained(trace, following, leaf, term.call.time)]
            before = [cut for cut in before if cut.from_tensors - lost.union(leaves)]
            if before:
                yield self._thrown_away(trace, term, event, leaves, before)

    def _thrown_away(
        self, trace: Trace, term: Term, event: Backward, leaves: tuple[int, ...], before: list[Cut]
    ) -> Finding:
        op = before[0].call.op
        meant = sorted(frozenset().union(*(cut.from_tensors for cut in before)) - frozenset(leaves))
        places = cut_places(before)
        tensors = [trace.graph.tensor(leaf) for leaf in leaves]
        made = [tensor.made_at for tensor in tensors if not tensor.is_parameter and tensor.made_at is not None]
        for at in made:
            if at not in {place.location for place in places}:
                places.append(Place(at, Role.CAUSE, "a new leaf, without a history, is made of it here"))
        if term.call.location is not None:
            places.append(Place(term.call.location, Role.RELATED, "added to the loss here"))
        places.append(Place(event.location, Role.FAILURE, "backpropagated here"))
        what = term_name(trace, term)
        ends = (
            "its gradient ends at a new leaf made of that value, which no optimizer holds"
            if made
            else f"the gradients that it gives {listed(trace, leaves)} are thrown away before a step uses them"
        )
        advice = ", and in torch: requires_grad=True on a new tensor brings no history back" if made else ""
        return self.finding(
            f"{what} of the loss trains nothing: it was computed from a value whose history `{op}` "
            f"drops, so {listed(trace, meant)} gets no gradient from it; {ends}",
            places=places,
            confidence=Confidence.CERTAIN if all(cut.certain for cut in before) else Confidence.LIKELY,
            fixes=[
                Fix(
                    f"compute this term from the value itself, without `{op}`{advice}",
                    location=before[0].call.location,
                    changes_gradients=True,
                )
            ],
            op=op,
            term=what,
            cut=cut_fact(trace, before),
        )


def _how(cut: Cut) -> str:
    call = cut.call
    if call.leaves or cut.exit is not None:
        return f"`{(cut.exit or call).op}` takes its value out of torch, and a number has no gradient"
    if call.op == "grad":
        return "it is made of gradients that torch.autograd.grad gave without a history"
    if call.grad_mode != "enabled":
        mode = "torch.inference_mode()" if call.grad_mode == "inference" else "torch.no_grad()"
        return f"it was computed under {mode}"
    return f"`{call.op}` drops its history"


def _advice(cut: Cut) -> str:
    call = cut.call
    if call.op == "grad":
        return "pass create_graph=True to torch.autograd.grad, so that its result has a history"
    if call.grad_mode != "enabled":
        return "compute the term outside of the block that switches gradients off"
    if call.op in ("detach", "detach_", "data") and cut.exit is None:
        return f"leave `{call.op}` out, or detach the target of the term only, and not what it is to train"
    return f"keep the tensor itself in the sum, and use `{(cut.exit or call).op}` under another name for logging"
