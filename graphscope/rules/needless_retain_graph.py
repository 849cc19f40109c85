"""GS103: a graph is retained that no later backward needs."""

from __future__ import annotations

from collections.abc import Iterator

from ..engine import Engine
from ..events import Backward
from ..findings import Cleared, Finding, Fix, Place, Role, Severity, size
from ..location import Location
from ..memory import memory
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text


class NeedlessRetainGraph(Rule):
    """``retain_graph=True`` keeps a graph's buffers alive, and no later backward goes through them.

    The results are right, but the memory of one whole forward stays in use until the loss is overwritten. Usually it
    was passed to quiet an error that had another cause. Reported where it is true of every run of the statement.

    Bad::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        with graphscope.watch() as report:
            for _ in range(2):
                loss = net(torch.ones(2, 4)).sum()
                loss.backward(retain_graph=True)  # GS103

    Good::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh())
        with graphscope.watch() as report:
            for _ in range(2):
                out = net(torch.ones(2, 4))
                out.sum().backward(retain_graph=True)
                out.pow(2).sum().backward()
    """

    code = "GS103"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each statement that retains a graph in vain, each time."""
        if trace.outcome.exception is not None or len(trace.unseen) > bool(trace.pauses):
            return  # what would have needed it may not have come, or not been seen; pauses only repeat what was
        if not _retained(trace):
            return
        engine = Engine(trace.graph, trace.events)
        useful, vain = _retaining(trace, engine)
        for location, event in vain.items():
            if location not in useful:
                yield self._finding(trace, event)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The statements that retain a graph which a later backward needs."""
        if not _retained(trace):
            return
        useful, _ = _retaining(trace, Engine(trace.graph, trace.events))
        for location, (event, later) in useful.items():
            yield self.clear(
                f"{call_text(event)} retains its graph: {call_text(later)} ({later.location}) goes through it again",
                location,
            )

    def _finding(self, trace: Trace, event: Backward) -> Finding:
        kept = memory(trace)
        run = next(each for each in kept.passes if each.event is event)
        end = kept.end(run)
        until = "to the end" if run.until is None else "until its loss goes away"
        until += f", after {end}" if isinstance(end, Location) else ""
        return self.finding(
            f"{call_text(event)} retains its graph, and no later backward goes through it: {size(run.retained)} of "
            f"activations stay in use for nothing {until}",
            places=[Place(event.location, Role.CAUSE, "retained here")],
            fixes=[Fix("leave retain_graph=True out", location=event.location, changes_gradients=False)],
            call=call_text(event),
            bytes=run.retained,
            until=run.until,
        )


def _retained(trace: Trace) -> bool:
    return any(event.retain_graph and not event.create_graph for event in _runs(trace))


def _runs(trace: Trace) -> list[Backward]:
    return [event for event in trace.backwards if event.ran and event.error is None]


def _retaining(
    trace: Trace, engine: Engine
) -> tuple[dict[Location, tuple[Backward, Backward]], dict[Location, Backward]]:
    """The statements that retain a graph: those that a later backward needed, with it, and those that did in vain."""
    useful: dict[Location, tuple[Backward, Backward]] = {}
    vain: dict[Location, Backward] = {}
    needed: dict[int, Backward] = {}  # by node: the next backward that goes through it
    for event in reversed(_runs(trace)):
        nodes = engine.runs(event) & engine.buffers.needed
        if event.retain_graph and not event.create_graph:
            later = min((needed[node] for node in nodes if node in needed), key=lambda e: e.time, default=None)
            if later is not None:
                useful[event.location] = (event, later)
            elif nodes:
                vain[event.location] = event
        needed.update(dict.fromkeys(nodes, event))
    return useful, vain
