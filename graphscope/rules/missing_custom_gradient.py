"""GS211: a hand-written Function gives no gradient for an input that needs one, a wrong one, or not one for each."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from ..events import Backward, OptimizerStep, OutOfSight
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._contexts import is_dropped, kept_at, overwritten, reads, used_again
from ._lifetime import call_text
from ._parameters import listed
from ._second_order import SecondCut, second_cuts
from ._source import methods

_UNIT = ("Sum", "Add", "View", "Reshape", "Squeeze", "Unsqueeze", "Expand", "Stack", "Cat", "ToCopy")  # pass on a one
_UNIT_OF_ONE = (*_UNIT, "Mean", "Select", "Slice")  # so do these of a single number
_MOST_TRIED = 64  # passes through one Function
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

    Under ``create_graph=True`` the backward is differentiated itself (a gradient penalty, MAML, a Hessian-vector
    product). What it computes with has to have a history then: ``x.data``, ``detach()``, numbers, numpy, ``no_grad``,
    ``@once_differentiable`` and a result that the forward kept are constants, and the second derivative lacks them.

    What it returns is the gradient of the loss, so the gradient that it is given goes in, as a factor as a rule: a
    backward that leaves that out is right only where it is one, and weights, a mean or a GradScaler have no effect.

    Its inputs and outputs belong into ``ctx.save_for_backward``: kept as ``ctx.x``, nothing notices when they are
    overwritten before the backward, and an output and ``ctx`` keep each other alive. An input that ``forward``
    overwrites has to be given to ``ctx.mark_dirty``.

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

    Bad (a gradient penalty goes through it)::

        import torch, graphscope

        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                slope = 3 * x.detach() ** 2  # GS211
                return grad * slope

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.rand(4, 3, requires_grad=True)
        with graphscope.watch() as report:
            (slope,) = torch.autograd.grad(Cube.apply(net(x)).sum(), x, create_graph=True)
            (slope.norm(dim=1) - 1).pow(2).mean().backward()
            opt.step()

    Bad (so does a Hessian-vector product)::

        import torch, graphscope

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * x

            @staticmethod
            @torch.autograd.function.once_differentiable  # GS211
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 2 * x

        w = torch.ones(3, requires_grad=True)
        with graphscope.watch() as report:
            (slope,) = torch.autograd.grad(Square.apply(w.exp()).sum(), w, create_graph=True)
            torch.autograd.grad(slope.sum(), w)

    Bad (the forward keeps what it computed)::

        import torch, graphscope

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                t = x.tanh()
                ctx.save_for_backward(t)
                return t * t

            @staticmethod
            def backward(ctx, grad):
                (t,) = ctx.saved_tensors
                return grad * 2 * t * (1 - t * t)  # GS211

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.rand(4, 3, requires_grad=True)
        with graphscope.watch() as report:
            y = Square.apply(net(x))
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            (y.mean() + (slope.norm(dim=1) - 1).pow(2).mean()).backward()
            opt.step()

    Bad (``ctx`` keeps an input out of sight of the check for writes in place)::

        import torch, graphscope

        class Scale(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, w):
                ctx.x, ctx.w = x, w  # GS211
                return x * w

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.w, (grad * ctx.x).sum(0)

        net, w = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.ones(3))
        opt = torch.optim.SGD([*net.parameters(), w], lr=0.1)
        with graphscope.watch() as report:
            h = net(torch.ones(2, 3))
            y = Scale.apply(h, w)
            h += 1
            y.sum().backward()
            opt.step()

    Bad (``ctx`` keeps its output, which keeps ``ctx``)::

        import gc, torch, graphscope

        class Exp(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.y = x.exp()  # GS211
                return ctx.y

            @staticmethod
            def backward(ctx, grad):
                return grad * ctx.y

        net = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        gc.disable()
        with graphscope.watch() as report:
            for _ in range(4):
                opt.zero_grad()
                Exp.apply(net(torch.ones(2, 3))).sum().backward()
                opt.step()
        gc.enable()

    Bad (it overwrites an input unmarked)::

        import torch, graphscope

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.mul_(2).clone()  # GS211

            @staticmethod
            def backward(ctx, grad):
                return grad * 2

        net = torch.nn.Linear(3, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            h = net(torch.ones(2, 3))
            (Double.apply(h) + h).sum().backward()
            opt.step()

    Good (sizes and constants may be kept there, and a marked input be overwritten)::

        import torch, graphscope

        class Double(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, count):
                ctx.shape, ctx.factor = x.shape, 2.0
                count += 1
                ctx.mark_dirty(x)
                return x.mul_(ctx.factor)

            @staticmethod
            def backward(ctx, grad):
                return grad.reshape(ctx.shape) * ctx.factor, None

        net, count = torch.nn.Linear(3, 3), torch.zeros(1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            h = net(torch.ones(2, 3))
            (Double.apply(h, count) + h).sum().backward()
            opt.step()

    Good (what it compares and logs needs no history)::

        import torch, graphscope

        seen = []

        class Hinge(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.clamp(min=0) ** 2

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                seen.append(x.detach().mean().item())
                return grad * 2 * x * (x.data > 0)

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.rand(4, 3, requires_grad=True)
        with graphscope.watch() as report:
            y = Hinge.apply(net(x))
            (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            (y.mean() + (slope.norm(dim=1) - 1).pow(2).mean()).backward()
            opt.step()

    Good (nothing differentiates it again)::

        import torch, graphscope

        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            @torch.autograd.function.once_differentiable
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return grad * 3 * x.detach() ** 2

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            Cube.apply(net(torch.rand(4, 3))).sum().backward()
            opt.step()

    Bad, as the weight of this loss has no effect::

        import torch, graphscope

        class Energy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.pow(2).sum()

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return 2 * x  # GS211

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            loss = 0.01 * Energy.apply(net(torch.rand(4, 3)))
            loss.backward()
            opt.step()

    Good, as it is the whole loss::

        import torch, graphscope

        class Energy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x.pow(2).sum()

            @staticmethod
            def backward(ctx, grad):
                (x,) = ctx.saved_tensors
                return 2 * x

        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            Energy.apply(net(torch.rand(4, 3))).backward()
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
    torch_messages = (
        "returned an incorrect number of gradients",
        "returned an invalid gradient at index",
        "marked with @once_differentiable",
    )

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer with parameters that get nothing at any step, and for each backward that raised.

        The parameters are those behind such a Function. A warning for each Function that leaves out what it is given.
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
        yield from self._second(trace)
        yield from self._deaf(trace)
        yield from self._out_of_sight(trace)

    def _deaf(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each Function whose backward never uses the gradient it is given, where that is not one."""
        for name, (node, between) in _given_factors(trace).items():
            for file, method in methods(trace, name, "backward"):
                returned = [at for value, at in _values(file, method, name) if not _is_nothing(value)]
                if returned and (grads := _unused_gradients(method)):
                    of = f" (`{', '.join(grads)}`)"
                    made = trace.graph.locations.get(node)
                    places = [Place(at, Role.CAUSE, "returned without the gradient it is given") for at in returned]
                    places += [] if made is None else [Place(made, Role.RELATED, f"`{name}` was applied here")]
                    yield self.finding(
                        f"the backward of `{name}` leaves out the gradient it is given{of}: what stands between its "
                        f"result and the loss, as `{between}`, has no effect on what it returns",
                        places=places,
                        fixes=[Fix(f"multiply what it returns by `{grads[0]}`", returned[0], changes_gradients=True)],
                        severity=Severity.WARNING,
                        nodes=(node,),
                        function=name,
                    )

    def _out_of_sight(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each tensor that a forward keeps on ``ctx``, or overwrites unmarked, and one note at most."""
        found: dict[tuple[str, str | None, Location | None], Finding] = {}
        tried: Counter[tuple[str, str | None, Location | None]] = Counter()
        for event in trace.events:
            if isinstance(event, OutOfSight):
                key = (event.function, event.attribute, event.location if event.attribute is None else None)
                known = found.get(key)
                tried[key] += 1
                if tried[key] <= _MOST_TRIED and (known is None or known.severity is not Severity.ERROR):
                    finding = self._unmarked(trace, event) if event.attribute is None else self._kept(trace, event)
                    if finding is not None and (known is None or finding.severity.rank > known.severity.rank):
                        found[key] = finding
        told = set()
        for (function, _, _), finding in sorted(found.items(), key=lambda pair: -pair[1].severity.rank):
            if finding.severity is not Severity.NOTE or function not in told:
                yield finding
            told.add(function)

    def _unmarked(self, trace: Trace, event: OutOfSight) -> Finding:
        name, tensor = event.function, trace.graph.tensor(event.tensor)
        again = used_again(trace, event)
        places = [Place(event.location, Role.CAUSE, "written here")]
        if again is not None:
            places.append(Place(again, Role.FAILURE, "its new value is used here, and its history is that of the old"))
        return self.finding(
            f"the forward of `{name}` writes in place to its input `{tensor}` without ctx.mark_dirty: autograd does "
            "not know that it changed" + (", and the gradient by way of it is wrong" if again else ""),
            places=places,
            fixes=[
                Fix("compute a new tensor, or call ctx.mark_dirty on the input and return it", changes_gradients=True)
            ],
            severity=Severity.ERROR if again else Severity.NOTE,
            function=name,
            tensor=tensor.name,
        )

    def _kept(self, trace: Trace, event: OutOfSight) -> Finding | None:
        name, attribute = event.function, event.attribute
        at = kept_at(trace, event)
        needs = trace.graph.tensor(event.tensor).requires_grad
        if not at:
            return None
        places = [Place(where, Role.CAUSE, f"kept as `ctx.{attribute}`") for where in at]
        which = "its output" if event.is_result else "an input"
        said = f"the forward of `{name}` keeps {which} as `ctx.{attribute}` in place of ctx.save_for_backward"
        severity = Severity.NOTE
        if (found := overwritten(trace, event)) is not None:
            wrote = "the step" if isinstance(found.write, OptimizerStep) else f"`{found.write.op}`"
            said += f", where nothing checks it: {wrote} overwrites it before the backward, whose gradient is wrong"
            places += [
                Place(found.write.location, Role.CAUSE, f"{wrote} overwrites it here"),
                Place(found.backward.location, Role.FAILURE, f"{call_text(found.backward)} reads the new value"),
            ]
            severity = Severity.ERROR if needs else Severity.WARNING
        elif event.is_result and not is_dropped(trace, event):
            said += ": the two hold each other, and the graph with them, until the garbage collector comes by"
            severity = Severity.WARNING if event.outlives else Severity.NOTE
        elif needs and reads(trace, event):
            said += ", where nothing checks that it is left unchanged, and nothing frees it after the backward"
        else:
            return None
        return self.finding(
            said,
            places=places,
            fixes=[Fix("save it with ctx.save_for_backward, and read it from ctx.saved_tensors", at[0])],
            severity=severity,
            function=name,
            attribute=attribute,
        )

    def _second(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each Function whose backward is differentiated, and has dropped a history."""
        cuts: dict[str, list[SecondCut]] = {}
        for each in second_cuts(trace):
            cuts.setdefault(trace.graph.ops[each.cut.node].removesuffix("Backward"), []).append(each)
        for name, found in cuts.items():
            dropped = [each for each in found if each.cut.source is not None]
            yield self._of_second(trace, name, dropped or found)

    def _of_second(self, trace: Trace, name: str, found: list[SecondCut]) -> Finding:
        first, second = found[0].first, found[0].second
        victims = sorted({id for each in found for id in each.victims})
        missed = [id for id in victims if id not in trace.reached(second)]
        lost = missed or victims
        raised = second.error is not None
        how, fix = _second_words(name, found)
        causes = [Place(at, Role.CAUSE, "marked here") for each in found for at in each.marked]
        causes += [
            Place(each.cut.location, Role.CAUSE, f"`{each.cut.op}` works without a history here") for each in found
        ]
        causes += [
            Place(each.kept, Role.CAUSE, "made here, where no history is recorded") for each in found if each.kept
        ]
        causes += [Place(at, Role.CAUSE, "returned as the gradient here") for each in found for at in each.returns]
        seen: dict[Location, Place] = {}
        for place in causes:
            seen.setdefault(place.location, place)
        return self.finding(
            f"the backward of `{name}` is differentiated again, and {how}: the gradient that {call_text(second)} gives "
            f"{listed(trace, lost)} by way of {call_text(first)} is {'missing' if missed or raised else 'wrong'}",
            places=[
                *seen.values(),
                Place(first.location, Role.RELATED, f"{call_text(first)} keeps the graph of the gradient here"),
                Place(second.location, Role.FAILURE, f"{call_text(second)} differentiates it here"),
            ],
            fixes=[Fix(fix, changes_gradients=True)],
            severity=Severity.ERROR if missed or raised else Severity.WARNING,
            nodes=(found[0].cut.node,),
            function=name,
            parameters=tuple(trace.graph.tensor(id).name for id in lost),
        )

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


def _second_words(name: str, found: list[SecondCut]) -> tuple[str, str]:
    """What it does wrong, and what to do instead."""
    if found[0].marked:
        return (
            "`@once_differentiable` makes constants of what it returns (torch raises 'trying to differentiate twice a "
            "function that was marked with @once_differentiable' where it notices)",
            f"compute {name}.backward with differentiable operations on ctx.saved_tensors, without the mark",
        )
    if found[0].cut.source is None:
        return (
            "it computes with a result of the forward, which has no history",
            "save the input, and compute this from ctx.saved_tensors in the backward; or return it as another output",
        )
    ops = " and ".join(dict.fromkeys(f"`{each.cut.op}`" for each in found))
    return (
        f"it drops the history of what it computes with ({ops})",
        f"compute {name}.backward with differentiable operations on ctx.saved_tensors and the gradient it is given",
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


def _given_factors(trace: Trace) -> dict[str, tuple[int, str]]:
    """By custom Function, a node of it that is given another gradient than one, and an operator that makes it so."""
    graph = trace.graph
    found: dict[str, tuple[int, str]] = {}
    for root in {root.node for event in trace.backwards for root in event.roots if root.node is not None}:
        for node in graph.custom.keys() & graph.reachable([root]):
            name = graph.ops[node].removesuffix("Backward")
            if name not in found:
                above = (graph.node(id).label for id in graph.path(root, node)[:-1])
                is_one = all(meta.shape.count(1) == len(meta.shape) for meta in graph.outputs[node])
                factors = [op for op in above if not op.startswith(_UNIT_OF_ONE if is_one else _UNIT)]
                if factors:
                    found[name] = (node, factors[0])
    return found


def _unused_gradients(method: ast.FunctionDef) -> list[str]:
    """The gradients that a backward is given, by name; none if it uses one of them."""
    names = [each.arg for each in (*method.args.posonlyargs, *method.args.args)][1:]
    names += [] if method.args.vararg is None else [method.args.vararg.arg]
    used = {n.id for n in ast.walk(method) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return [] if used.intersection(names) else names


def _is_nothing(value: ast.expr) -> bool:
    """Whether no gradient is returned: None, or zeros."""
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(
        isinstance(each, ast.Constant) or (isinstance(each, ast.Call) and "zeros" in ast.unparse(each.func))
        for each in parts
    )


def _returns(trace: Trace, name: str) -> list[Location]:
    """Where ``backward`` of this class returns None for some input, or all its returns if none says so outright."""
    found: list[Location] = []
    others: list[Location] = []
    for file, method in methods(trace, name, "backward"):
        for value, at in _values(file, method, name):
            (found if _has_none(value) else others).append(at)
    return found or others


def _all_returns(trace: Trace, name: str) -> list[tuple[Location, int | None]]:
    """Where ``backward`` of this class returns, and how many gradients, None where that does not show."""
    return [
        (at, _length(value))
        for file, method in methods(trace, name, "backward")
        for value, at in _values(file, method, name)
    ]


def _length(value: ast.expr) -> int | None:
    if isinstance(value, ast.Tuple):
        return None if any(isinstance(each, ast.Starred) for each in value.elts) else len(value.elts)
    return 1 if isinstance(value, ast.BinOp) else None


def _inputs(trace: Trace, name: str) -> list[str]:
    """The names of what ``forward`` of this class takes; none where they do not show."""
    has_setup = any(methods(trace, name, "setup_context"))
    for _, method in methods(trace, name, "forward"):
        if method.args.vararg is None:
            return [each.arg for each in (*method.args.posonlyargs, *method.args.args)][0 if has_setup else 1 :]
    return []


def _values(file: str, method: ast.FunctionDef, name: str) -> Iterator[tuple[ast.expr, Location]]:
    for each in ast.walk(method):
        if isinstance(each, ast.Return) and each.value is not None:
            yield each.value, Location(file, each.lineno, each.end_lineno or each.lineno, f"{name}.{method.name}")


def _has_none(value: ast.expr) -> bool:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return any(isinstance(part, ast.Constant) and part.value is None for part in parts)
