"""GS205: backward is called on a tensor that has no graph."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward
from ..findings import Finding, Fix, Place, Role, Severity
from ..flow import Cut, cuts
from ..graph import Root
from ..rule import Rule
from ..trace import Trace
from ._parameters import cut_fact, cut_places
from ._soft import soft_form


class BackwardWithoutGraph(Rule):
    """Backward is called on a tensor that has no graph: nothing that it was computed from requires grad.

    torch raises "element 0 of tensors does not require grad and does not have a grad_fn". The history was
    lost on the way (a comparison, ``argmax``, ``item()``, a block under ``no_grad``), or everything is frozen.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with torch.no_grad():
            out = net(torch.ones(2, 4))
        graphscope.check(out.sum())  # GS205

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        out = net(torch.ones(2, 4))
        graphscope.check(out.sum())
    """

    code = "GS205"
    severity = Severity.ERROR
    torch_messages = ("does not require grad and does not have a grad_fn",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each root without a node, with where its history ended."""
        seen = set()
        for event in trace.backwards:
            for root in event.roots:
                if root.node is None and (event.location, root.name) not in seen and (event.error or not event.ran):
                    seen.add((event.location, root.name))
                    yield self._finding(trace, event, root)

    def _finding(self, trace: Trace, event: Backward, root: Root) -> Finding:
        leaves = [t.id for t in trace.tensors if t.requires_grad and t.is_leaf]
        found = [cut for cut in cuts(trace, leaves, (root.tensor,)) if cut.call.location is not None and cut.reaches]
        verb = "backward" if event.accumulates else "torch.autograd.grad"
        where = Place(event.location, Role.FAILURE, f"`{root.name}` has no graph here")
        return self.finding(
            f"`{root.name}` does not require grad and does not have a grad_fn, so {verb} "
            f"{'fails' if event.ran else 'would fail'}: {_reason(found)}",
            places=[where, *cut_places(found)],
            fixes=[Fix(_advice(found))],
            loss=root.name,
            cut=cut_fact(trace, found),
            cuts=tuple(cut.call.op for cut in found),
        )


def _reason(found: list[Cut]) -> str:
    if not found:
        return "nothing that it was computed from requires grad"
    cut = found[0].call
    if cut.grad_mode != "enabled":
        mode = "torch.inference_mode()" if cut.grad_mode == "inference" else "torch.no_grad()"
        return f"it was computed under {mode} at {cut.location}"
    return f"its history ends at `{cut.op}` ({cut.location})"


def _advice(found: list[Cut]) -> str:
    if not found:
        return "compute it from tensors that require grad (requires_grad_(True) on those that are to be trained)"
    cut = found[0].call
    if cut.grad_mode != "enabled":
        return "run the forward of the network that is trained outside of the no_grad or inference_mode block"
    if cut.leaves or cut.op in ("detach", "data", "detach_"):
        return f"keep the tensor itself on the way to the loss, and use `{cut.op}` only for logging"
    return soft_form(cut.op)
