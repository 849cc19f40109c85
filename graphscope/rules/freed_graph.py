"""GS101: backward through a graph whose buffers an earlier backward freed."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine import Culprit, Verdict
from ..events import Backward
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..location import Location
from ..remedies import remedies
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text, failures, joined_at, kept_at, made_at

_MOST_PLACES = 6


class FreedGraph(Rule):
    """Backward goes through a part of the graph that an earlier backward has freed.

    A backward releases the tensors that nodes saved as soon as they were used. A second one that reaches
    the same nodes raises "Trying to backward through the graph a second time". Nodes that saved nothing
    (additions, sums, views) never fail, so that sharing only those is fine.

    Bad::

        import torch, graphscope

        trunk = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        head1, head2 = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
        features = trunk(torch.ones(2, 4))
        loss1, loss2 = head1(features).sum(), head2(features).sum()
        graphscope.check(loss1, loss2)  # GS101

    Bad, as a clone keeps the history of the carried state::

        import torch, graphscope

        cell = torch.nn.GRUCell(4, 4)
        carried = torch.zeros(1, 4)
        with graphscope.watch() as report:
            for _ in range(2):
                state = carried.clone()  # GS101
                state = cell(torch.ones(1, 4), state)
                carried = 0.9 * state
                try:
                    state.pow(2).mean().backward()
                except RuntimeError:
                    break

    Bad, as an attribute keeps the state for the next step::

        import torch, graphscope

        class Net(torch.nn.Module):
            state = torch.zeros(1, 4)

            def __init__(self):
                super().__init__()
                self.cell = torch.nn.GRUCell(4, 4)

            def forward(self, x):
                state = self.cell(x, self.state)
                self.state = state  # GS101
                return state

        net = Net()
        with graphscope.watch() as report:
            for _ in range(2):
                try:
                    net(torch.ones(1, 4)).sum().backward()
                except RuntimeError:
                    break

    Good::

        import torch, graphscope

        trunk = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        head1, head2 = torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)
        features = trunk(torch.ones(2, 4))
        loss1, loss2 = head1(features).sum(), head2(features).sum()
        graphscope.check(loss1 + loss2)

    Good, as each loss has a graph of its own::

        import torch, graphscope

        net1, net2 = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        x = torch.ones(2, 4)
        graphscope.check(net1(x).sum(), net2(x).sum())
    """

    code = "GS101"
    severity = Severity.ERROR
    torch_messages = ("Trying to backward through the graph a second time",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each call that meets freed buffers, with the calls that freed them."""
        for verdict in failures(trace, "freed"):
            yield self._finding(trace, verdict)

    def _finding(self, trace: Trace, verdict: Verdict) -> Finding:
        event = verdict.event
        culprits = [culprit for culprit in verdict.culprits if culprit.kind == "freed"]
        shared = {id for culprit in culprits for id in culprit.nodes} or {verdict.node or 0}
        freed = {
            culprit.event.location: Place(culprit.event.location, Role.CAUSE, f"{_call(culprit)} frees them here")
            for culprit in culprits
        }
        failure = Place(event.location, Role.FAILURE, f"{call_text(event)} needs the freed buffers here")
        nodes = sorted(shared)
        made = made_at(trace, event, nodes, besides=freed)
        joined = joined_at(trace, event, culprits, besides=[*freed, *(place.location for place in made)])
        kept = kept_at(trace, [*freed.values(), *made, *joined])
        first = trace.graph.node(verdict.node) if verdict.node is not None else None
        return self.finding(
            f"Trying to backward through the graph a second time: {call_text(event)} "
            f"{'needs' if event.ran else 'would need'} {_buffers(len(shared))}"
            f"{f' (first {first.op})' if first else ''} that {_by(culprits)} freed",
            places=[failure, *freed.values(), *made[:_MOST_PLACES], *joined[:_MOST_PLACES], *kept[:_MOST_PLACES]],
            confidence=Confidence.CERTAIN if verdict.certain else Confidence.LIKELY,
            fixes=[*remedies(trace, verdict), *_emptied(trace, event, culprits)],
            nodes=nodes,
            call=call_text(event),
            freed_by=tuple(map(_call, culprits)),
            node=first.op if first else None,
            count=len(shared),
        )


def _emptied(trace: Trace, event: Backward, culprits: list[Culprit]) -> Iterator[Fix]:
    """What to do where a list keeps the results of a statement that ran many times before, and has run again since."""
    graph = trace.graph
    old = {id for culprit in culprits for id in culprit.nodes}
    roots = [root.node for root in event.roots if root.node is not None]
    taken = {id for node in graph.reachable(roots) - old for id, _ in graph.targets[node]} & old
    times: dict[Location, set[int]] = {}
    for id in taken & graph.times.keys() & graph.locations.keys():
        times.setdefault(graph.locations[id], set()).add(graph.times[id])
    last = max((culprit.event.time for culprit in culprits), default=event.time)
    again = {call.location for call in trace.calls if last < call.time < event.time}
    kept = [at for at in times if len(times[at]) > 1 and at in again]
    if kept and any(culprit.event.location == event.location for culprit in culprits):
        yield Fix(
            f"empty what keeps the earlier results of this statement, a list say, after each {call_text(event)}",
            max(kept, key=lambda at: max(times[at])),
            changes_gradients=True,
        )


def _call(culprit: Culprit) -> str:
    return call_text(culprit.event) if isinstance(culprit.event, Backward) else "a statement"


def _buffers(count: int) -> str:
    return "the buffers of one node" if count == 1 else f"the buffers of {count} nodes"


def _by(culprits: list[Culprit]) -> str:
    calls = list(dict.fromkeys(f"{_call(culprit)} at {culprit.event.location}" for culprit in culprits))
    return " and ".join(calls) or "an earlier backward, before the recording began,"
