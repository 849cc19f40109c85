"""GS209: the grad of a tensor is read that never gets one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..events import Backward, GradRead
from ..findings import Finding, Fix, Place, Role, Severity
from ..flow import Cut, cuts
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text
from ._parameters import cut_places, listed
from ._unfilled import Reason, is_meant, reason


class MissingGrad(Rule):
    """The ``grad`` of a tensor is read, or asked of ``torch.autograd.grad``, that cannot have one.

    Only leaves keep their gradient: for the result of an operation ``grad`` stays None unless ``retain_grad()``
    was called before the backward. And a tensor that the loss was not computed from (a slice or copy taken
    beside the forward) is not in its graph. A leaf has none before the first backward that reaches it, nor once
    ``zero_grad()`` has cleared it; and what ``backward`` was given as ``gradient=`` gets none.

    Bad::

        import torch, graphscope

        x = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x * 2
            y.sum().backward()
            print(y.grad)  # GS209

    Bad::

        import torch, graphscope

        x, v = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x * 2
            y.backward(gradient=v)
            print(v.grad)  # GS209

    Bad::

        import torch, graphscope

        x = torch.ones(3, requires_grad=True)
        weight = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x.detach() * weight
            y.sum().backward()
            print(x.grad)  # GS209

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        norms = []
        with graphscope.watch() as report:
            for _ in range(3):
                net(torch.ones(4, 2)).sum().backward()
                opt.step()
                opt.zero_grad()
                for p in net.parameters():
                    if p.grad is not None:  # GS209
                        norms.append(p.grad.norm())

    Bad, as the gradient of a gradient is asked for::

        import torch, graphscope

        net = torch.nn.Linear(3, 1)
        weights = torch.ones(4, requires_grad=True)
        with graphscope.watch() as report:
            inner = (weights * net(torch.ones(4, 3)).squeeze(1)).sum()
            gradients = torch.autograd.grad(inner, list(net.parameters()))  # GS209
            weight, bias = (p - 0.1 * g for p, g in zip(net.parameters(), gradients))
            outer = torch.nn.functional.linear(torch.ones(4, 3), weight, bias).pow(2).mean()
            try:
                torch.autograd.grad(outer, weights)
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        x = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x * 2
            y.retain_grad()
            y.sum().backward()
            print(x.grad, y.grad)

    Good::

        import torch, graphscope

        net = torch.nn.Linear(2, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        norms = []
        with graphscope.watch() as report:
            for _ in range(3):
                net(torch.ones(4, 2)).sum().backward()
                for p in net.parameters():
                    if p.grad is not None:
                        norms.append(p.grad.norm())
                opt.step()
                opt.zero_grad()
                for p in net.parameters():
                    if p.grad is not None:
                        p.grad.zero_()
    """

    code = "GS209"
    severity = Severity.ERROR
    torch_messages = ("appears to not have been used in the graph",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that reads such a gradient."""
        seen = set()
        for event in trace.events:
            if isinstance(event, GradRead) and not event.present and event.location not in seen:
                tensor = trace.graph.tensor(event.tensor)
                if tensor.requires_grad and not tensor.is_leaf:
                    seen.add(event.location)
                    yield self._of_result(trace, event)
            elif isinstance(event, Backward) and event.error and self.torch_messages[0] in event.error:
                yield self._unused(trace, event)
        yield from self._of_leaves(trace)

    def _of_leaves(self, trace: Trace) -> Iterator[Finding]:
        """The statements that found no grad in a leaf each time, or raised for it."""
        statements: dict[Location, list[GradRead]] = {}
        for event in trace.events:
            if isinstance(event, GradRead):
                statements.setdefault(event.location, []).append(event)
        for reads in statements.values():
            fatal = _is_fatal(trace, reads[-1])
            last = {read.tensor: read for read in (reads[-1:] if fatal else reads) if not read.present}
            refs = [trace.graph.tensor(tensor) for tensor in last]
            if not all(ref.is_leaf and ref.requires_grad for ref in refs):
                continue
            whys = {tensor: why for tensor, read in last.items() if (why := reason(trace, read)) is not None}
            for why in {why.text: why for why in whys.values()}.values():
                told = [read for read in reads if read.tensor in whys and whys[read.tensor].text == why.text]
                told_by_others = len(told) < len(reads) and why.kind != "given"
                if fatal or not (told_by_others or is_meant(trace, told, why)):
                    yield self._of_leaf(trace, told, why, fatal=fatal)

    def _of_leaf(self, trace: Trace, reads: Sequence[GradRead], why: Reason, *, fatal: bool) -> Finding:
        tensors = tuple(dict.fromkeys(read.tensor for read in reads))
        return self.finding(
            f"the grad of {listed(trace, tensors)} is read, and it is None: {why.text}",
            places=[Place(reads[-1].location, Role.FAILURE, "its grad is None here"), *why.places],
            fixes=[why.fix],
            severity=Severity.ERROR if fatal else Severity.WARNING,
            tensor=trace.graph.tensor(tensors[0]).name,
        )

    def _of_result(self, trace: Trace, event: GradRead) -> Finding:
        tensor = trace.graph.tensor(event.tensor)
        name = f"`{tensor.name}`" if tensor.name else f"a tensor of shape {tensor.shape}"
        places = [Place(event.location, Role.FAILURE, "its grad is None here")]
        if tensor.made_at is not None and tensor.made_at != event.location:
            places.append(Place(tensor.made_at, Role.CAUSE, "computed here, so it is no leaf"))
        behind = () if tensor.node is None else trace.graph.reached_tensors([tensor.node])
        trains = any(trace.graph.tensor(id).is_parameter for id in behind)  # a leaf would keep these from it
        leaf = Fix("make it a leaf: .detach().requires_grad_() after it is computed", location=tensor.made_at)
        retained = Fix("or call retain_grad() on it before the backward")
        return self.finding(
            f"the grad of {name} is read, but it is the result of an operation, not a leaf: it stays None",
            places=places,
            fixes=[Fix("call retain_grad() on it before the backward")] if trains else [leaf, retained],
            severity=Severity.ERROR if _is_fatal(trace, event) else Severity.WARNING,
            tensor=tensor.name,
        )

    def _unused(self, trace: Trace, event: Backward) -> Finding:
        graph = trace.graph
        reached = graph.reachable(root.node for root in event.roots if root.node is not None)
        unused = [node for node in event.inputs or () if node not in reached]
        places = [Place(event.location, Role.FAILURE, f"{call_text(event)} is asked for it here")]
        asked = [tensor.id for tensor in trace.tensors if tensor.node in unused]
        asked += [graph.leaf_tensors[node] for node in unused if node in graph.leaf_tensors]
        if found := [cut for cut in cuts(trace, asked, [root.tensor for root in event.roots]) if cut.reaches]:
            return self._cut_off(event, found, places, unused)
        for node in unused:
            location = graph.locations.get(node)
            if location is not None:
                places.append(Place(location, Role.CAUSE, "taken here, beside what the forward used"))
        return self.finding(
            f"{call_text(event)} is asked for the gradient of a tensor that appears to not have been used in the graph",
            places=places,
            fixes=[Fix("compute the output from this very tensor (make it first, then the network's input from it)")],
            nodes=unused,
        )

    def _cut_off(self, event: Backward, found: Sequence[Cut], places: list[Place], unused: Sequence[int]) -> Finding:
        """The output was computed from the tensor, but its history was dropped on the way."""
        call = found[0].call
        if call.op == "grad":
            why = "it is computed from gradients that torch.autograd.grad gave without a history"
            fix = Fix("pass create_graph=True to that call", call.location, changes_gradients=True)
        else:
            why = f"the history was dropped on the way, by `{call.op}`"
            fix = Fix("keep the history on the way from it to the output", call.location, changes_gradients=True)
        return self.finding(
            f"{call_text(event)} is asked for the gradient of a tensor that appears to not have been used in the "
            f"graph: {why}",
            places=[*places, *cut_places(found)],
            fixes=[fix],
            nodes=unused,
            op=call.op,
        )


def _is_fatal(trace: Trace, read: GradRead) -> bool:
    """Whether the program ended in the statement, for want of this grad."""
    at, error = trace.outcome.location, trace.outcome.exception or ""
    if at is None or read.present or "NoneType" not in error:
        return False
    return (at.file, at.line) == (read.location.file, read.location.line)
