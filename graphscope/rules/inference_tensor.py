"""GS212: a tensor made under inference_mode is used where autograd would have to save it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..events import Refused
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._source import parsed, place_of


class InferenceTensor(Rule):
    """A tensor made under ``torch.inference_mode()`` is used where autograd would have to save it.

    Inference tensors have no version counter and can never be part of a graph. Under ``torch.no_grad()`` the same
    values come as normal tensors, which may be saved.

    Bad::

        import torch, graphscope

        net, ref = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        with graphscope.watch() as report:
            with torch.inference_mode():  # GS212
                target = ref(torch.ones(2, 4))  # GS212
            try:
                loss = (net(torch.ones(2, 4)) * target).sum()  # GS212
            except RuntimeError:
                pass

    Bad, where a decorator switches it on::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)

        @torch.inference_mode()  # GS212
        def features():
            return torch.ones(2, 4) * 2

        with graphscope.watch() as report:
            x = features()
            try:
                net(x).sum().backward()  # GS212
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        net, ref = torch.nn.Linear(4, 3), torch.nn.Linear(4, 3)
        with graphscope.watch() as report:
            with torch.no_grad():
                target = ref(torch.ones(2, 4))
            (net(torch.ones(2, 4)) * target).sum().backward()
    """

    code = "GS212"
    severity = Severity.ERROR
    torch_messages = ("Inference tensors cannot be saved for backward", "Inplace update to inference tensor")

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each operation that was refused for this reason."""
        made: dict[int, Location] = {}
        for call in trace.calls:
            if call.grad_mode == "inference" and call.location is not None:
                made.update(dict.fromkeys(call.outputs, call.location))
        seen = set()
        for event in trace.events:
            if not isinstance(event, Refused) or not any(text in event.error for text in self.torch_messages):
                continue
            if event.location not in seen:
                seen.add(event.location)
                origins = {made[id]: None for id in event.tensors if id in made}
                label = "made under torch.inference_mode() here"
                yield self.finding(
                    f"`{event.op}` would have to save an inference tensor for backward, which cannot be saved",
                    places=[
                        Place(event.location, Role.FAILURE, "autograd would have to save it here"),
                        *(Place(at, Role.CAUSE, label) for at in origins),
                        *(
                            Place(at, Role.CAUSE, "inference mode is switched on here")
                            for at in _switches(trace, origins)
                        ),
                    ],
                    fixes=[
                        Fix("produce it under torch.no_grad() instead of torch.inference_mode()"),
                        Fix("or clone() it outside of the inference_mode block"),
                    ],
                    op=event.op,
                )


def _switches(trace: Trace, origins: Iterable[Location]) -> list[Location]:
    """The blocks and decorators that switch inference mode on around these statements."""
    found: dict[Location, None] = {}
    for at in origins:
        for node in ast.walk(parsed(trace.sources.get(at.file, ""))):
            if isinstance(node, ast.With):
                switches = [item.context_expr for item in node.items]
            elif isinstance(node, ast.FunctionDef):
                switches = node.decorator_list
            else:
                continue
            if node.lineno <= at.line <= (node.end_lineno or node.lineno):
                found.update(
                    dict.fromkeys(
                        replace(place_of(at.file, switch), function=at.function)
                        for switch in switches
                        if "inference_mode" in (text := ast.unparse(switch)) and "False" not in text
                    )
                )
    return list(found)
