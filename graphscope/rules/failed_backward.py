"""GS109: a backward raised for a reason that the engine model does not explain."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, InPlaceWrite
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text, verdicts
from ._source import draws

_KNOWN = ("second time", "modified by an inplace operation", "Checkpoint", "checkpoint")
_DIFFERS = ("A different number of tensors was saved", "Recomputed values for the following tensors have different")
_AGAIN = (
    "let what the checkpoint computes do the same when it runs again: only torch's generators are set back, so draw "
    "what Python's or numpy's give outside of it, and pass it in; and change no state in it that it reads"
)
_UNCHANGED = (
    "leave what a checkpoint was given unchanged until its backward, hand it all that it reads as arguments, and pass "
    "use_reentrant=False"
)
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

    Bad (Python's own generator is not set back when a checkpoint is computed again)::

        import contextlib, random, torch, graphscope
        from torch.utils.checkpoint import checkpoint

        net = torch.nn.Linear(4, 4)
        random.seed(0)

        def sometimes(x):
            return torch.tanh(net(x)) if random.random() < 0.5 else net(x)  # GS109

        with graphscope.watch() as report, contextlib.suppress(RuntimeError):
            for _ in range(8):
                checkpoint(sometimes, torch.ones(2, 4), use_reentrant=False).sum().backward()

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
            fixes=[Fix(_AGAIN if any(text in error for text in _DIFFERS) else _UNCHANGED)] if hidden else (),
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
        called = next((each for each in around if each and _is_checkpoint(trace, each)), at)
        if called is not None:
            label = "saves its tensors out of sight here" if called is at else "computed again in backward, from here"
            causes.setdefault(called, Place(called, Role.CAUSE, label))
    if any(text in (event.error or "") for text in _DIFFERS):
        inside = {each for id in hidden if (each := graph.locations.get(id)) is not None}
        for at in draws(trace, inside):
            causes.setdefault(at, Place(at, Role.CAUSE, "draws another number when it is computed again"))
    return hidden, causes


def _is_checkpoint(trace: Trace, at: Location) -> bool:
    lines = trace.sources.get(at.file, "").splitlines()[at.line - 1 : at.end_line]
    return any("checkpoint" in line for line in lines)
