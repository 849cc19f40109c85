"""GS105: a write that torch's version counter does not see changed a saved tensor."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, InPlaceWrite, Write
from ..findings import Action, Edit, Finding, Fix, Place, Role, Severity
from ..graph import SavedTensor
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text


class HiddenWrite(Rule):
    """A saved tensor was overwritten in a way that autograd does not notice, and a backward then used it.

    Writes through ``.data``, through a numpy array on the same memory, or ``set_()`` do not move the version
    counter of the tensor that was saved; nor does batch norm, in training, when it updates its running statistics.
    Nothing raises: the backward formula works with the new values, and the gradient is that of no function. Told
    from the storage and the order of save, write and backward.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        with graphscope.watch() as report:
            p = torch.sigmoid(net(torch.ones(2, 4)))
            p.data.clamp_(0.4, 0.6)  # GS105
            p.sum().backward()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        with graphscope.watch() as report:
            net.weight.data.normal_()
            p = torch.sigmoid(net(torch.ones(2, 4))).clamp(0.4, 0.6)
            p.sum().backward()
    """

    code = "GS105"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that secretly changed what a later backward used."""
        hidden = [event for event in trace.events if isinstance(event, InPlaceWrite) and event.write.hidden]
        storages = {event.write.storage for event in hidden}
        savers = [
            (node, each)
            for node, saved in (trace.graph.saved.items() if hidden else ())
            for each in saved
            if each.storage in storages and not each.freed and not each.hooked and _is_read(trace, node, each)
        ]
        seen = set()
        for event in hidden:
            if event.location not in seen:
                finding = self._finding(trace, event, [saver for saver in savers if _touches(event.write, saver[1])])
                if finding is not None:
                    seen.add(event.location)
                    yield finding

    def _finding(self, trace: Trace, event: InPlaceWrite, savers: list[tuple[int, SavedTensor]]) -> Finding | None:
        before = [node for node, _ in savers if trace.graph.times.get(node, event.time) < event.time]
        used = _first_use(trace, event, before)
        if used is None:
            return None
        backward, node = used[0], trace.graph.node(used[1])
        saved = next(each for id, each in savers if id == node.id)
        places = [Place(event.location, Role.CAUSE, f"`{event.op}` writes to its memory here, unseen by autograd")]
        if node.location is not None:
            places.append(Place(node.location, Role.RELATED, f"`{node.label}` saved it here"))
        places.append(Place(backward.location, Role.FAILURE, f"{call_text(backward)} uses the overwritten value here"))
        return self.finding(
            f"`{saved.name}` of shape {saved.shape}, saved by {node.op}, was overwritten by `{event.op}`, unseen by "
            f"its version counter; {call_text(backward)} computes wrong gradients from it, and nothing raises",
            places=places,
            fixes=[_fix(event, backward)],
            nodes=(node.id,),
            op=event.op,
            node=node.op,
            saved=saved.name,
        )


def _fix(event: InPlaceWrite, backward: Backward) -> Fix:
    if event.op == "batch_norm":
        return Fix(f"call {call_text(backward)} before the module updates its running statistics", event.location)
    title = "use the out-of-place operation on the tensor itself, not on its .data"
    return Fix(title, event.location, edits=(Edit(Action.OUT_OF_PLACE, event.location),))


def _is_read(trace: Trace, node: int, saved: SavedTensor) -> bool:
    """Whether a backward formula works with what it saved: in training, batch norm does with the batch's statistics."""
    if not saved.name.startswith("running_"):
        return True
    own = next((each for each in trace.graph.saved[node] if each.name in ("result1", "save_mean")), None)
    return own is None or own.shape == (0,)


def _touches(write: Write, saved: SavedTensor) -> bool:
    """Whether a write changed what was saved: other rows of the same memory do not count."""
    if write.moved:
        return write.tensor == saved.tensor
    begin, end = write.offset, write.offset + write.bytes
    return write.storage == saved.storage and begin < saved.offset + saved.bytes and saved.offset < end


def _first_use(trace: Trace, event: InPlaceWrite, savers: list[int]) -> tuple[Backward, int] | None:
    """The first backward after a write that runs one of the nodes which had saved the memory before."""
    for backward in trace.backwards if savers else ():
        if backward.time > event.time and backward.error is None:
            reached = trace.graph.reachable(root.node for root in backward.roots if root.node is not None)
            for node in savers:
                if node in reached:
                    return backward, node
    return None
