"""GS209: the grad of a tensor is read that never gets one."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, GradRead
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text


class MissingGrad(Rule):
    """The ``grad`` of a tensor is read, or asked of ``torch.autograd.grad``, that cannot have one.

    Only leaves keep their gradient: for the result of an operation ``grad`` stays None unless ``retain_grad()``
    was called before the backward. And a tensor that the loss was not computed from (a slice or copy taken
    beside the forward) is not in its graph.

    Bad::

        import torch, graphscope

        x = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x * 2
            y.sum().backward()
            print(y.grad)  # GS209

    Good::

        import torch, graphscope

        x = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            y = x * 2
            y.retain_grad()
            y.sum().backward()
            print(x.grad, y.grad)
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

    def _of_result(self, trace: Trace, event: GradRead) -> Finding:
        tensor = trace.graph.tensor(event.tensor)
        name = f"`{tensor.name}`" if tensor.name else f"a tensor of shape {tensor.shape}"
        places = [Place(event.location, Role.FAILURE, "its grad is None here")]
        if tensor.made_at is not None and tensor.made_at != event.location:
            places.append(Place(tensor.made_at, Role.CAUSE, "computed here, so it is no leaf"))
        fatal = trace.outcome.location is not None and trace.outcome.location.line == event.location.line
        return self.finding(
            f"the grad of {name} is read, but it is the result of an operation, not a leaf: it stays None",
            places=places,
            fixes=[
                Fix("make it a leaf: .detach().requires_grad_() after it is computed", location=tensor.made_at),
                Fix("or call retain_grad() on it before the backward"),
            ],
            severity=Severity.ERROR if fatal else Severity.WARNING,
            tensor=tensor.name,
        )

    def _unused(self, trace: Trace, event: Backward) -> Finding:
        graph = trace.graph
        reached = graph.reachable(root.node for root in event.roots if root.node is not None)
        unused = [node for node in event.inputs or () if node not in reached]
        places = [Place(event.location, Role.FAILURE, f"{call_text(event)} is asked for it here")]
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
