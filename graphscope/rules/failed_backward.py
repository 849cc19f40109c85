"""GS109: a backward raised for a reason that the engine model does not explain."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, InPlaceWrite
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text, verdicts

_KNOWN = ("second time", "modified by an inplace operation", "Checkpoint", "checkpoint")
_ELSEWHERE = ("does not require grad and does not have a grad_fn",)


class FailedBackward(Rule):
    """A backward raised inside a region whose saved tensors are packed away, so that only candidates can be named.

    ``torch.utils.checkpoint`` and other saved-tensor hooks keep their tensors out of sight: torch checks the inputs of
    a checkpoint again when it recomputes, and a reentrant checkpoint runs a backward of its own. What was written
    since the forward, and the calls that made such regions, are the candidates.

    Bad::

        import torch, graphscope
        from torch.utils.checkpoint import checkpoint

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        with graphscope.watch() as report:
            x = torch.ones(2, 4, requires_grad=True)
            y = checkpoint(net, x, use_reentrant=True)
            try:
                torch.autograd.grad(y.sum(), x)  # GS109
            except RuntimeError:
                pass

    Good::

        import torch, graphscope
        from torch.utils.checkpoint import checkpoint

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
        with graphscope.watch() as report:
            x = torch.ones(2, 4, requires_grad=True)
            torch.autograd.grad(checkpoint(net, x, use_reentrant=False).sum(), x)
    """

    code = "GS109"
    severity = Severity.ERROR
    torch_messages = ("CheckpointError", "Checkpointing is not compatible with")

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each call that raised while the model expected it to succeed."""
        seen = set()
        for verdict in verdicts(trace):
            error = verdict.event.error
            explained = verdict.kind in ("freed", "stale") or error is None or any(text in error for text in _ELSEWHERE)
            if explained or error is None or not any(text in error for text in _KNOWN):
                continue
            if verdict.event.location not in seen:
                seen.add(verdict.event.location)
                yield self._finding(trace, verdict.event, error)

    def _finding(self, trace: Trace, event: Backward, error: str) -> Finding:
        hidden, causes = _candidates(trace, event)
        failure = Place(event.location, Role.FAILURE, f"{call_text(event)} raises here")
        first = error.partition("\n")[0]
        return self.finding(
            f"{call_text(event)} raised {first if len(first) <= 200 else first[:197] + '...'}",
            places=[failure, *causes.values()],
            confidence=Confidence.LIKELY,
            fixes=[
                Fix(
                    "leave what a checkpoint was given unchanged until its backward, hand it all that it reads as "
                    "arguments, and pass use_reentrant=False"
                )
            ]
            if hidden
            else (),
            nodes=hidden,
            call=call_text(event),
            error=error,
        )


def _candidates(trace: Trace, event: Backward) -> tuple[list[int], dict[Location, Place]]:
    """The nodes whose saved tensors are out of sight, and the statements that may have to do with the failure."""
    graph = trace.graph
    reached = sorted(graph.reachable(root.node for root in event.roots if root.node is not None))
    hidden = [
        id
        for id in reached
        if graph.ops[id] == "CheckpointFunctionBackward" or any(each.hooked for each in graph.saved.get(id, ()))
    ]
    made = [graph.times[id] for id in reached if id in graph.times]
    causes: dict[Location, Place] = {}
    for write in trace.events:
        if isinstance(write, InPlaceWrite) and made and min(made) < write.time < event.time:
            causes.setdefault(write.location, Place(write.location, Role.CAUSE, f"`{write.op}` writes in place here"))
    here = (event.location.file, event.location.function)
    for id in hidden:
        around = (graph.locations.get(id), *graph.callers.get(id, ()))
        at = next((each for each in around if each and (each.file, each.function) == here), around[0])
        if at is not None:
            causes.setdefault(at, Place(at, Role.CAUSE, "saves its tensors out of sight here"))
    return hidden, causes
