"""GS219: the backward of a custom Function overwrites what others still need."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, BackwardWrite
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text


class WriteInBackward(Rule):
    """The ``backward`` of a custom Function writes in place to what other nodes still need.

    A tensor that it got from ``ctx.saved_tensors`` may be saved by other nodes too, which run later in the same
    backward; through ``.data`` nothing notices. And the gradient that it is given may be on its way to other nodes as
    well: where a value is used twice, both get the same tensor. The gradients behind are then those of no function.

    Bad::

        import torch, graphscope

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                x.data.mul_(2 * grad)  # GS219
                return x.detach().clone()

        with graphscope.watch() as report:
            w = torch.ones(3, requires_grad=True)
            Double.apply(w.exp()).sum().backward()

    Good::

        import torch, graphscope

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                result = grad.clone()
                result.mul_(2).mul_(x)
                return result

        with graphscope.watch() as report:
            w = torch.ones(3, requires_grad=True)
            Double.apply(w.exp()).sum().backward()
    """

    code = "GS219"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that wrote what a later node used, a warning where it is a gradient."""
        backward: Backward | None = None
        seen = set()
        for event in trace.events:
            if isinstance(event, Backward):
                backward = event
            elif isinstance(event, BackwardWrite) and backward is not None and event.location not in seen:
                finding = self._of_saved(trace, event, backward)
                if finding is None and event.is_grad:
                    finding = self._of_gradient(event, backward)
                if finding is not None:
                    seen.add(event.location)
                    yield finding

    def _of_saved(self, trace: Trace, event: BackwardWrite, backward: Backward) -> Finding | None:
        graph = trace.graph
        reached = graph.reachable(root.node for root in backward.roots if root.node is not None)
        writers = [node for node in reached if node in graph.custom and graph.ops[node] == event.function]
        below = graph.reachable(writers) - frozenset(writers)
        end = event.offset + event.bytes
        for id in sorted(below):
            for saved in graph.saved.get(id, ()):
                if saved.storage == event.storage and event.offset < saved.offset + saved.bytes and saved.offset < end:
                    node = graph.node(id)
                    places = [Place(event.location, Role.CAUSE, f"`{event.op}` overwrites it here")]
                    if node.location is not None:
                        places.append(
                            Place(node.location, Role.RELATED, f"`{node.label}` saved it here, and runs later")
                        )
                    places.append(Place(backward.location, Role.FAILURE, f"{call_text(backward)} goes wrong behind it"))
                    return self.finding(
                        f"{event.function} writes in place to what "
                        f"{node.op} saved as `{saved.name}` and reads later in this backward: its gradient is wrong",
                        places=places,
                        fixes=[Fix("compute the gradient into a new tensor", location=event.location)],
                        nodes=(id,),
                        op=event.op,
                        node=node.op,
                    )
        return None

    def _of_gradient(self, event: BackwardWrite, backward: Backward) -> Finding:
        return self.finding(
            f"the backward of {event.function.removesuffix('Backward')} changes the gradient it was given in place "
            f"(`{event.op}`): where others are given the same tensor, theirs is changed too",
            places=[
                Place(event.location, Role.CAUSE, f"`{event.op}` writes to the incoming gradient here"),
                Place(backward.location, Role.RELATED, f"{call_text(backward)} runs it"),
            ],
            fixes=[Fix("work on a copy: grad = grad.clone()", location=event.location)],
            severity=Severity.WARNING,
            op=event.op,
        )
