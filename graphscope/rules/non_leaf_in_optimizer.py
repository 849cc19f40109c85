"""GS207: an optimizer is given a tensor that is the result of an operation."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Refused
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace


class NonLeafInOptimizer(Rule):
    """An optimizer is given a tensor that is the result of an operation, and refuses it.

    Gradients collect in leaves only. ``torch.randn(3, requires_grad=True) * 0.01`` and ``w.to(device)`` are results:
    their leaf is the tensor they were computed from, which nobody can reach any more.

    Bad::

        import torch, graphscope

        with graphscope.watch() as report:
            w = torch.randn(3, requires_grad=True) * 0.01
            try:
                opt = torch.optim.SGD([w], lr=0.1)  # GS207
            except ValueError:
                pass

    Good::

        import torch, graphscope

        with graphscope.watch() as report:
            w = (torch.randn(3) * 0.01).requires_grad_()
            opt = torch.optim.SGD([w], lr=0.1)
    """

    code = "GS207"
    severity = Severity.ERROR
    torch_messages = ("can't optimize a non-leaf Tensor",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that was refused for this reason."""
        for event in trace.events:
            if not isinstance(event, Refused) or self.torch_messages[0] not in event.error:
                continue
            results = [t for t in map(trace.graph.tensor, event.tensors) if not t.is_leaf]
            places = [Place(event.location, Role.FAILURE, f"{event.op} is given a result of an operation here")]
            for tensor in results:
                if tensor.made_at is not None and tensor.made_at != event.location:
                    label = f"{f'`{tensor.name}`' if tensor.name else 'it'} is computed here, so it is no leaf"
                    places.append(Place(tensor.made_at, Role.CAUSE, label))
            yield self.finding(
                f"{event.op} can't optimize a non-leaf Tensor: {len(results)} of its tensors are results of operations",
                places=places,
                fixes=[Fix("compute the values first, then call .detach().requires_grad_() on the result")],
                count=len(results),
            )
