"""GS108: a backward goes through a forward that used weights which have been updated since."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from ..events import Backward, InPlaceWrite, OptimizerStep
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text, verdicts
from ._parameters import listed


class OutdatedWeights(Rule):
    """A backward goes through a forward that was made with weights which an optimizer has updated since.

    Where the old weights were saved, torch raises (GS102). Where they were not (the first layer on a plain input, an
    addition), nothing raises: the gradient is that of the old weights, and the next step applies it to the new ones.
    Either the step comes too early, or a part of the graph is carried over from one step to the next.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            out.sum().backward(retain_graph=True)
            opt.step()  # GS108
            out.pow(2).sum().backward()
            opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            out.sum().backward(retain_graph=True)
            out.pow(2).sum().backward()
            opt.step()
    """

    code = "GS108"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each backward whose gradient belongs to weights of an earlier step."""
        uses, writes = _uses(trace), _writes(trace)
        raising = {verdict.event.time for verdict in verdicts(trace) if not verdict.succeeds}
        seen = set()
        for event in trace.backwards:
            if event.time in raising or event.error is not None or event.location in seen or not event.accumulates:
                continue
            old = _outdated(trace, event, uses, writes)
            if old:
                seen.add(event.location)
                yield self._finding(trace, event, old)

    def _finding(self, trace: Trace, event: Backward, old: dict[int, tuple[int, int]]) -> Finding:
        """``old``: by parameter, the node that used it and the time of the first write after that."""
        writes = {time: _event_at(trace, time) for _, time in old.values()}
        places = []
        for write in writes.values():
            if isinstance(write, OptimizerStep):
                label = f"{trace.optimizers[write.optimizer].name}.step() updates them here"
            else:
                label = "updated here"
            places.append(Place(write.location, Role.CAUSE, label))
        known = {place.location for place in places}
        for node, _ in old.values():
            at = trace.graph.locations.get(node)
            if at is not None and at not in known:
                known.add(at)
                places.append(Place(at, Role.CAUSE, "used here before the update, and not computed again"))
        places.append(Place(event.location, Role.FAILURE, f"{call_text(event)} still goes through the old values"))
        return self.finding(
            f"{call_text(event)} goes through a forward that used {listed(trace, old)} before the update at "
            f"{places[0].location}: torch raises nothing, and the gradient belongs to the old weights",
            places=places,
            fixes=[
                Fix("step once, after all backwards of this forward", changes_gradients=True),
                Fix("run the forward again before this loss, or detach() what is carried over", changes_gradients=True),
            ],
            nodes=[node for node, _ in old.values()],
            parameters=tuple(trace.graph.tensor(id).name for id in old),
            call=call_text(event),
        )


def _uses(trace: Trace) -> dict[int, list[int]]:
    """By node: the parameters of optimizers that it hands a gradient."""
    planned = not any(event.ran for event in trace.backwards)  # then all nodes are older than the plan
    owned = {id for optimizer in trace.optimizers for id in optimizer.parameters}
    leaves = {node: id for node, id in trace.graph.leaf_tensors.items() if id in owned}
    found: dict[int, list[int]] = {}
    for node, targets in enumerate(trace.graph.targets):
        for target, _ in targets:
            if target in leaves and (node in trace.graph.times or planned):
                found.setdefault(node, []).append(leaves[target])
    return found


def _outdated(
    trace: Trace, event: Backward, uses: dict[int, list[int]], writes: dict[int, list[int]]
) -> dict[int, tuple[int, int]]:
    """By parameter: a node behind the backward that used it, and when it was first overwritten after that."""
    reached = trace.graph.reachable(root.node for root in event.roots if root.node is not None)
    found: dict[int, tuple[int, int]] = {}
    for node in sorted(reached & uses.keys()):
        made = trace.graph.times.get(node, -1)
        for parameter in uses[node]:
            times = writes.get(parameter, [])
            following = bisect_right(times, made)
            if parameter not in found and following < len(times) and times[following] < event.time:
                found[parameter] = (node, times[following])
    return found


def _writes(trace: Trace) -> dict[int, list[int]]:
    """By parameter: the times at which it was written."""
    found: dict[int, list[int]] = {}
    for event in trace.events:
        if isinstance(event, OptimizerStep):
            for write in event.writes:
                found.setdefault(write.tensor, []).append(event.time)
        elif isinstance(event, InPlaceWrite) and (
            event.op.endswith("_") or event.write.moved
        ):  # by hand; an embedding renorms its own table
            found.setdefault(event.write.tensor, []).append(event.time)
    return found


def _event_at(trace: Trace, time: int) -> OptimizerStep | InPlaceWrite:
    return next(e for e in trace.events if e.time == time and isinstance(e, OptimizerStep | InPlaceWrite))
