"""GS213: the result of detach() is thrown away."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._source import parsed


class DroppedDetach(Rule):
    """``x.detach()`` stands as a statement of its own: its result is thrown away, and ``x`` keeps its history.

    ``detach`` gives a new tensor and leaves the old one as it was; only ``detach_()`` works in place. What was to be
    cut off, a target network for instance, goes on to get gradients.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            target = net(torch.ones(2, 4))
            target.detach()  # GS213

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            target = net(torch.ones(2, 4))
            target = target.detach()
    """

    code = "GS213"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each such statement that ran on a tensor with a history."""
        calls = [call for call in trace.calls if call.op == "detach" and any(call.needs_grad)]
        for location in dict.fromkeys(call.location for call in calls if call.location is not None):
            text = _dropped(trace.sources.get(location.file, "")).get(location.line)
            if text is not None:
                yield self.finding(
                    f"the result of `{text}.detach()` is thrown away, and `{text}` keeps its history",
                    places=[Place(location, Role.CAUSE, "detach() gives a new tensor, which nothing keeps")],
                    fixes=[Fix(f"write `{text} = {text}.detach()`", location=location, changes_gradients=True)],
                    tensor=text,
                )


@lru_cache(maxsize=64)
def _dropped(source: str) -> dict[int, str]:
    """The lines, and the tensors, of statements that are nothing but a call of detach."""
    return {
        node.lineno: ast.unparse(node.value.func.value)
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "detach"
    }
