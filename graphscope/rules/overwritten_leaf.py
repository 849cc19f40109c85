"""GS107: a leaf that requires grad is written in place while gradients are recorded."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Refused
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace


class OverwrittenLeaf(Rule):
    """A leaf that requires grad, or a view of it, is modified in place while gradients are recorded.

    The leaf would become the result of an operation, and its gradient would have nowhere to go, so torch
    refuses: "a leaf Variable that requires grad is being used in an in-place operation". An update by hand
    is no part of the computation and belongs under ``torch.no_grad()``.

    Bad::

        import torch, graphscope

        w = torch.zeros(3, requires_grad=True)
        with graphscope.watch() as report:
            w.sum().backward()
            try:
                w -= 0.1 * w.grad  # GS107
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        w = torch.zeros(3, requires_grad=True)
        with graphscope.watch() as report:
            w.sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
    """

    code = "GS107"
    severity = Severity.ERROR
    torch_messages = ("a leaf Variable that requires grad",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that torch refused for this reason."""
        seen = set()
        for event in trace.events:
            if isinstance(event, Refused) and self.torch_messages[0] in event.error and event.location not in seen:
                seen.add(event.location)
                names = [trace.graph.tensor(id) for id in event.tensors]
                leaf = next((t.name for t in names if t.is_leaf and t.requires_grad and t.name), None)
                yield self.finding(
                    f"{f'`{leaf}`' if leaf else 'a tensor'}, a leaf Variable that requires grad, is being used in an "
                    f"in-place operation: `{event.op}`",
                    places=[Place(event.location, Role.CAUSE, "written in place while gradients are recorded")],
                    fixes=[
                        Fix("do the update under `with torch.no_grad():`", location=event.location),
                        Fix("or write the out-of-place form, if the result is meant to be part of the computation"),
                    ],
                    tensor=leaf,
                    op=event.op,
                )
