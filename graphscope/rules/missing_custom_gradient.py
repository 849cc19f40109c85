"""GS211: a hand-written Function gives no gradient for an input that needs one."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import listed


class MissingCustomGradient(Rule):
    """A hand-written ``autograd.Function`` returns None for an input that leads to a parameter.

    The parameter is in the graph and the backward reaches the Function, but ``None`` from its ``backward`` ends the
    gradient there: ``grad`` stays None and the optimizer passes the parameter over.

    Bad::

        import torch, graphscope

        class Shift(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, offset):
                return x + offset

            @staticmethod
            def backward(ctx, grad):
                return grad, None  # GS211

        w, offset = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        opt = torch.optim.SGD([w, offset], lr=0.1)
        with graphscope.watch() as report:
            Shift.apply(w, offset).sum().backward()
            opt.step()

    Good::

        import torch, graphscope

        class Shift(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, offset):
                return x + offset

            @staticmethod
            def backward(ctx, grad):
                return grad, grad

        w, offset = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        opt = torch.optim.SGD([w, offset], lr=0.1)
        with graphscope.watch() as report:
            Shift.apply(w, offset).sum().backward()
            opt.step()
    """

    code = "GS211"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer with parameters behind a Function that gave them nothing, at any step."""
        for optimizer in trace.optimizers:
            steps = [step for step in trace.steps if step.optimizer == optimizer.id and step.ran]
            graded = {id for step in steps for id in step.graded}
            zeroed = any(step.graded for step in steps)
            lost = [id for id in optimizer.parameters if id in trace.ever_reached and id not in graded]
            for node in _custom_before(trace, lost) if zeroed else ():
                yield self._finding(trace, optimizer, node, lost)

    def _finding(self, trace: Trace, optimizer: OptimizerRef, node: int, lost: list[int]) -> Finding:
        name = trace.graph.ops[node].removesuffix("Backward")
        places = [Place(at, Role.CAUSE, "None for an input that needs a gradient") for at in _returns(trace, name)]
        made = trace.graph.locations.get(node)
        if made is not None:
            places.append(Place(made, Role.RELATED, f"`{name}` was applied here"))
        return self.finding(
            f"the backward of `{name}` gives no gradient for an input that leads to {listed(trace, lost)}, "
            f"held by `{optimizer.name}`: they never change",
            places=places,
            fixes=[
                Fix(f"return the derivative with respect to that input from {name}.backward", changes_gradients=True)
            ],
            nodes=(node,),
            function=name,
            parameters=tuple(trace.graph.tensor(id).name for id in lost),
        )


def _custom_before(trace: Trace, lost: list[int]) -> list[int]:
    """The custom Functions through which every gradient of these parameters would have come, one for each class."""
    graph = trace.graph
    leaves = {node for node, tensor in graph.leaf_tensors.items() if tensor in set(lost)}
    found: dict[str, int] = {}
    for node in graph.custom if leaves else ():
        if graph.reachable([node]) & leaves:
            found.setdefault(graph.ops[node], node)
    return list(found.values())


def _returns(trace: Trace, name: str) -> list[Location]:
    """Where ``backward`` of this class returns None for some input, or all its returns if none says so outright."""
    found: list[Location] = []
    others: list[Location] = []
    for file, source in trace.sources.items():
        for node in ast.walk(_parsed(source)):
            if isinstance(node, ast.ClassDef) and node.name == name:
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "backward"]
                for each in (each for method in methods for each in ast.walk(method)):
                    if isinstance(each, ast.Return) and each.value is not None:
                        at = Location(file, each.lineno, each.end_lineno or each.lineno, f"{name}.backward")
                        (found if _has_none(each.value) else others).append(at)
    return found or others


def _has_none(value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(part, ast.Constant) and part.value is None for part in parts)


def _parsed(source: str) -> ast.AST:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])
