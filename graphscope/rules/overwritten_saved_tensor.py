"""GS102: a tensor saved for backward was modified in place."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine import Culprit, Verdict
from ..events import OptimizerStep
from ..findings import Confidence, Finding, Place, Role, Severity
from ..remedies import remedies
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text, cause_text, failures, joined_at, kept_at

_MOST_PLACES = 4


class OverwrittenSavedTensor(Rule):
    """A tensor that a node saved for its backward was modified in place before that backward ran.

    The engine compares the version of each saved tensor with the one it had when it was saved and raises
    "modified by an inplace operation", naming neither the statement that saved it nor the one that wrote.
    An optimizer's ``step()`` writes its parameters in place, so that a step between a forward and its
    backward is the commonest cause.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        with graphscope.watch() as report:
            h = torch.exp(net(torch.ones(2, 4)))
            h.add_(1)  # GS102
            try:
                h.sum().backward()
            except RuntimeError:
                pass

    Bad (a memory takes the graph of each step into the next, whose weights were updated)::

        import contextlib, torch, graphscope

        class Reader(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.write = torch.nn.Linear(4, 4)
                self.memory = torch.zeros(2, 4)

            def forward(self, x):
                read = self.memory + self.write(x)
                self.memory = torch.tanh(self.write(read))  # GS102
                return read

        net = Reader()
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report, contextlib.suppress(RuntimeError):
            for _ in range(2):
                opt.zero_grad()
                (net(torch.ones(2, 4)) - 1).pow(2).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        with graphscope.watch() as report:
            h = torch.exp(net(torch.ones(2, 4)))
            h = h + 1
            h.sum().backward()
    """

    code = "GS102"
    severity = Severity.ERROR
    torch_messages = ("has been modified by an inplace operation",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each call that meets a stale saved tensor, with the writes that made it so."""
        for verdict in failures(trace, "stale"):
            yield self._finding(trace, verdict)

    def _finding(self, trace: Trace, verdict: Verdict) -> Finding:
        event, saved = verdict.event, verdict.saved
        assert verdict.node is not None
        node = trace.graph.node(verdict.node)
        writers = [culprit for culprit in verdict.culprits if culprit.kind == "stale"]
        name = _tensor_name(trace, verdict)
        causes = {c.event.location: Place(c.event.location, Role.CAUSE, _wrote(trace, c)) for c in writers}
        failure = Place(event.location, Role.FAILURE, f"{call_text(event)} needs the old value here")
        places = [failure, *causes.values()]
        if node.location is not None and node.location not in causes:
            module = f" in {node.module}" if node.module else ""
            places.append(Place(node.location, Role.RELATED, f"`{node.label}`{module} saved it here"))
        carried = _carried(trace, verdict, places)
        again = ", in the graph of an earlier step that this one takes up" if carried else ""
        versions = (
            f" at version {saved.version}, is now at version {verdict.version}" if saved and verdict.version else ""
        )
        return self.finding(
            f"{name}, saved by {node.op}{versions}: it has been modified by an inplace operation, "
            f"{_by(trace, writers)}, and {call_text(event)} {'needs' if event.ran else 'would need'} the old value"
            f"{again}",
            places=[*places, *carried],
            confidence=Confidence.CERTAIN if verdict.certain else Confidence.LIKELY,
            fixes=remedies(trace, verdict),
            nodes=(verdict.node,),
            tensor=name,
            node=node.op,
            saved=saved.name if saved else None,
            written_by=tuple(cause_text(trace, c) for c in writers),
        )


def _carried(trace: Trace, verdict: Verdict, besides: list[Place]) -> list[Place]:
    """Where the graph of an earlier call is taken up: what it saved is not only overwritten, but freed, too."""
    freers = [culprit for culprit in verdict.culprits if culprit.kind == "freed"]
    if not freers:
        return []
    joined = joined_at(trace, verdict.event, freers, besides=[place.location for place in besides])[:_MOST_PLACES]
    return [*joined, *kept_at(trace, [*besides, *joined])[:_MOST_PLACES]]


def _tensor_name(trace: Trace, verdict: Verdict) -> str:
    saved = verdict.saved
    if saved is None:
        return "a saved tensor"
    same = [t for t in trace.tensors if t.name and t.counter == saved.counter and t.counter >= 0]
    exact = next((t.name for t in same if t.id == saved.tensor), None)
    name = exact or next((t.name for t in same if t.is_parameter), None) or next((t.name for t in same), None)
    return f"`{name}`" if name else f"`{saved.name}` of shape {saved.shape}"


def _wrote(trace: Trace, culprit: Culprit) -> str:
    if isinstance(culprit.event, OptimizerStep):
        return f"{cause_text(trace, culprit)} overwrites it here"
    return f"{cause_text(trace, culprit)} writes to it here"


def _by(trace: Trace, writers: list[Culprit]) -> str:
    said = dict.fromkeys(f"{cause_text(trace, culprit)} at {culprit.event.location}" for culprit in writers)
    return " and ".join(said) or "at a place that was not seen"
