"""GS211: a hand-written Function gives no gradient for an input that needs one, or not one for each input."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ..events import Backward
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import listed
from ._source import trees

_COUNT = re.compile(
    r"unction (\w+?)(?:Backward)? returned an incorrect number of gradients \(expected (\d+), got (\d+)\)"
)
_INVALID = re.compile(r"unction (\w+?)(?:Backward)? returned an invalid gradient at index (\d+) - (.+)")


class MissingCustomGradient(Rule):
    """A hand-written ``autograd.Function`` returns None for an input that leads to a parameter.

    The parameter is in the graph and the backward reaches the Function, but ``None`` from its ``backward`` ends the
    gradient there: ``grad`` stays None and the optimizer passes the parameter over. ``backward`` has to return one
    gradient for each argument that ``apply`` was given, in their order and of their shapes (None for what is no
    tensor): torch raises where it returns more or fewer, or one that does not fit.

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

    Bad::

        import torch, graphscope

        class Shift(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, offset):
                return x + offset

            @staticmethod
            def backward(ctx, grad):
                return grad.clone()  # GS211

        w, offset = torch.ones(3, requires_grad=True), torch.zeros(3, requires_grad=True)
        with graphscope.watch() as report:
            try:
                Shift.apply(w, offset).sum().backward()
            except RuntimeError:
                pass

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
    torch_messages = ("returned an incorrect number of gradients", "returned an invalid gradient at index")

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer with parameters that get nothing at any step, and for each backward that raised.

        The parameters are those behind such a Function.
        """
        for backward in trace.backwards:
            yield from self._misfits(trace, backward)
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

    def _misfits(self, trace: Trace, backward: Backward) -> Iterator[Finding]:
        """What torch refused of the gradients that a Function of the program returned."""
        error = backward.error or ""
        if count := _COUNT.search(error):
            name, expected, got = count[1], int(count[2]), int(count[3])
            inputs = _inputs(trace, name)
            all_named = f" ({', '.join(inputs)})" if len(inputs) == expected else ""
            said = (
                f"the backward of `{name}` returned an incorrect number of gradients: {got}, and its forward takes "
                f"{expected} inputs{all_named}"
            )
            fix = f"return {expected} gradients, in the order of forward's inputs; None for one that needs none"
        elif invalid := _INVALID.search(error):
            name, index = invalid[1], int(invalid[2])
            inputs = _inputs(trace, name)
            which = f" (`{inputs[index]}`)" if index < len(inputs) else ""
            said = f"the backward of `{name}` returned an invalid gradient at index {index}{which}: {invalid[3]}"
            fix = "return the gradients in the order of forward's inputs, each in the shape of its input"
        else:
            return
        wrong = [at for at, gives in _all_returns(trace, name) if not count or gives in (None, int(count[3]))]
        if wrong:
            yield self.finding(
                said,
                places=[
                    *[Place(at, Role.CAUSE, "these are the gradients it returned") for at in wrong],
                    Place(backward.location, Role.FAILURE, "the backward that calls it raised here"),
                ],
                fixes=[Fix(fix, location=wrong[0], changes_gradients=True)],
                function=name,
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
    for file, method in _methods(trace, name, "backward"):
        for value, at in _values(file, method, name):
            (found if _has_none(value) else others).append(at)
    return found or others


def _all_returns(trace: Trace, name: str) -> list[tuple[Location, int | None]]:
    """Where ``backward`` of this class returns, and how many gradients, None where that does not show."""
    return [
        (at, _length(value))
        for file, method in _methods(trace, name, "backward")
        for value, at in _values(file, method, name)
    ]


def _length(value: ast.expr) -> int | None:
    if isinstance(value, ast.Tuple):
        return None if any(isinstance(each, ast.Starred) for each in value.elts) else len(value.elts)
    return 1 if isinstance(value, ast.BinOp) else None


def _inputs(trace: Trace, name: str) -> list[str]:
    """The names of what ``forward`` of this class takes; none where they do not show."""
    has_setup = any(_methods(trace, name, "setup_context"))
    for _, method in _methods(trace, name, "forward"):
        if method.args.vararg is None:
            return [each.arg for each in (*method.args.posonlyargs, *method.args.args)][0 if has_setup else 1 :]
    return []


def _values(file: str, method: ast.FunctionDef, name: str) -> Iterator[tuple[ast.expr, Location]]:
    for each in ast.walk(method):
        if isinstance(each, ast.Return) and each.value is not None:
            yield each.value, Location(file, each.lineno, each.end_lineno or each.lineno, f"{name}.{method.name}")


def _methods(trace: Trace, name: str, method: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for file, tree in trees(trace):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for each in node.body:
                    if isinstance(each, ast.FunctionDef) and each.name == method:
                        yield file, each


def _has_none(value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(part, ast.Constant) and part.value is None for part in parts)
