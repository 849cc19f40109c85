"""GS213: the result of detach() is thrown away."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace


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
        statements: dict[tuple[str, int], str] = {}
        for file, source in trace.sources.items():
            statements.update(((file, line), text) for line, text in _dropped(source))
        seen = set()
        for call in trace.calls:
            if call.op != "detach" or call.location is None or not any(call.needs_grad) or call.location in seen:
                continue
            text = statements.get((call.location.file, call.location.line))
            if text is not None:
                seen.add(call.location)
                yield self.finding(
                    f"the result of `{text}.detach()` is thrown away, and `{text}` keeps its history",
                    places=[Place(call.location, Role.CAUSE, "detach() gives a new tensor, which nothing keeps")],
                    fixes=[Fix(f"write `{text} = {text}.detach()`", location=call.location, changes_gradients=True)],
                    tensor=text,
                )


def _dropped(source: str) -> Iterator[tuple[int, str]]:
    """The lines, and the tensors, of statements that are nothing but a call of detach."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            function = node.value.func
            if isinstance(function, ast.Attribute) and function.attr == "detach":
                yield node.lineno, ast.unparse(function.value)
