"""GS205: backward is called on a tensor that has no graph."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..events import Backward, RequiresGradSet
from ..findings import Finding, Fix, Place, Role, Severity
from ..flow import Cut, cuts
from ..graph import Root
from ..rule import Rule
from ..trace import Trace
from ._parameters import cut_fact, cut_places, frozen_places, listed
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

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            for name, parameter in net.named_parameters():
                parameter.requires_grad = "head" in name  # no name has it
            try:
                net(torch.ones(2, 4)).sum().backward()  # GS205
            except RuntimeError:
                pass

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
        frozen = _frozen(trace, event.time)
        leaves = [t.id for t in trace.tensors if t.requires_grad and t.is_leaf and t.id not in frozen]
        found = _cuts(trace, leaves, root)
        if frozen and all(cut.call.op == "detach" for cut in found):
            used = frozenset[int]().union(*(cut.from_tensors for cut in _cuts(trace, frozen, root)))
            if used:
                return self._frozen_finding(trace, event, root, used, cut_places(found))
        verb = "backward" if event.accumulates else "torch.autograd.grad"
        reason, advice = _reason(found), _advice(found)
        if _is_in_custom_backward(trace, event):
            reason = "gradients are off in the backward of a custom Function, where it was computed"
            advice = "compute it under `with torch.enable_grad():`"
        where = Place(event.location, Role.FAILURE, f"`{root.name}` has no graph here")
        return self.finding(
            f"`{root.name}` does not require grad and does not have a grad_fn, so {verb} "
            f"{'fails' if event.ran else 'would fail'}: {reason}",
            places=[where, *cut_places(found)],
            fixes=[Fix(advice)],
            loss=root.name,
            cut=cut_fact(trace, found),
            cuts=tuple(cut.call.op for cut in found),
        )

    def _frozen_finding(
        self, trace: Trace, event: Backward, root: Root, frozen: frozenset[int], others: list[Place]
    ) -> Finding:
        verb = "backward" if event.accumulates else "torch.autograd.grad"
        names = listed(trace, sorted(frozen))
        places = [*frozen_places(trace, frozen), *others]
        return self.finding(
            f"`{root.name}` does not require grad and does not have a grad_fn, so {verb} "
            f"{'fails' if event.ran else 'would fail'}: {names} were frozen before the forward",
            places=[Place(event.location, Role.FAILURE, f"`{root.name}` has no graph here"), *places],
            fixes=[Fix("leave trainable, or unfreeze before the forward, what this loss is to train")],
            loss=root.name,
            parameters=tuple(trace.graph.tensor(id).name for id in sorted(frozen)),
        )


def _is_in_custom_backward(trace: Trace, event: Backward) -> bool:
    """Whether another backward, without ``create_graph``, was under way, in which the code of a Function calls this."""
    around = (each for each in trace.backwards if each.time < event.time and each.error == event.error)
    inside = event.location.function.rpartition(".")[2] == "backward" and bool(trace.graph.custom)
    return inside and event.error is not None and any(not each.create_graph for each in around)


def _frozen(trace: Trace, time: int) -> frozenset[int]:
    """The tensors that were frozen by then."""
    last: dict[int, bool] = {}
    for event in trace.events:
        if isinstance(event, RequiresGradSet) and event.time < time:
            last.update(dict.fromkeys(event.tensors, event.value))
    return frozenset(id for id, value in last.items() if not value)


def _cuts(trace: Trace, sources: Collection[int], root: Root) -> list[Cut]:
    return [cut for cut in cuts(trace, sources, (root.tensor,)) if cut.call.location is not None and cut.reaches]


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
