"""GS110: a compiled function whose backward uses its buffers up is asked to keep its graph."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text

_MESSAGE = "compiled with non-empty donated buffers"


class DonatedBuffers(Rule):
    """``torch.compile`` made a backward for one use, and a later call wants to keep its graph.

    The backward of compiled code is itself compiled when it first runs. If that call does not retain the graph, it
    may put its results into the buffers of the forward ("donated buffers"), and torch refuses every later call with
    ``retain_graph=True`` or ``create_graph=True`` through the same function. The call that refuses is right; the
    earlier one decided it.

    Bad::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Sigmoid())
        with graphscope.watch() as report:
            compiled = torch.compile(net, backend="aot_eager")
            compiled(torch.ones(3, 4)).sum().backward()
            hidden = compiled(torch.ones(3, 4))
            try:
                hidden.sum().backward(retain_graph=True)  # GS110
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Sigmoid(), torch.nn.Linear(8, 8), torch.nn.Tanh())
        with graphscope.watch() as report:
            compiled = torch.compile(net, backend="aot_eager")
            hidden = compiled(torch.ones(3, 4))
            hidden.sum().backward(retain_graph=True)
            hidden.square().sum().backward()
    """

    code = "GS110"
    severity = Severity.ERROR
    torch_messages = (_MESSAGE,)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that torch refused for this reason."""
        seen = set()
        for event in trace.backwards:
            if event.error is not None and _MESSAGE in event.error and event.location not in seen:
                seen.add(event.location)
                yield self._finding(trace, event)

    def _finding(self, trace: Trace, event: Backward) -> Finding:
        compiled = trace.graph.compiled
        nodes = sorted(compiled & trace.graph.reachable(root.node for root in event.roots if root.node is not None))
        keyword = "retain_graph=True" if event.retain_graph else "create_graph=True"
        first = next((each for each in trace.backwards if _uses_up(trace, each) and each.time < event.time), None)
        causes = (
            []
            if first is None
            else [Place(first.location, Role.CAUSE, f"{call_text(first)} compiles a backward for one use here")]
        )
        by = "" if first is None else f", as {call_text(first)} at {first.location} did not"
        return self.finding(
            f"{call_text(event)} asks compiled code to keep its graph, but that was compiled for a backward which uses "
            f"its buffers up{by}",
            places=[Place(event.location, Role.FAILURE, f"{keyword} is refused here"), *causes],
            fixes=[
                Fix("call backward once, on the sum of the losses, and leave retain_graph=True out", event.location),
                Fix(
                    f"pass {keyword} from the first backward through it on",
                    None if first is None else first.location,
                ),
                Fix(
                    "import torch._functorch.config and set its donated_buffer = False before the compiled code is "
                    "first called; it then needs more memory"
                ),
            ],
            nodes=nodes,
            call=call_text(event),
        )


def _uses_up(trace: Trace, event: Backward) -> bool:
    if event.retain_graph or event.create_graph:
        return False
    reached = trace.graph.reachable(root.node for root in event.roots if root.node is not None)
    return not trace.graph.compiled.isdisjoint(reached)
