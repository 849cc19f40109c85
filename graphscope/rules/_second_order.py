"""Which second derivatives stop in the backward of a hand-written Function, and whom they fail."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from .._plain import dataclass
from ..events import Backward, BackwardCut, Call
from ..flow import HARD
from ..location import Location
from ..trace import Trace
from ._source import methods

_FLAT = frozenset({"sign", "sgn", "round", "floor", "ceil", "trunc", "zeros_like", "ones_like"})
_SHAPE = frozenset({"shape", "size", "dim", "ndim", "dtype", "device", "numel", "needs_input_grad"})
_ONCE = "once_differentiable"
_MOST_TRIED = 8  # passes over one statement

_found: WeakKeyDictionary[Trace, tuple[SecondCut, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class SecondCut:
    """A ``cut`` whose value went into a gradient that the ``first`` backward made and the ``second`` differentiated.

    ``victims`` are the trained leaves that the value depends on, by which the second backward does not differentiate
    it. ``marked`` are the lines of ``@once_differentiable``, ``returns`` the statements that return the value, and
    ``kept`` is where the forward made a value that never had a history.
    """

    cut: BackwardCut
    first: Backward
    second: Backward
    victims: frozenset[int]
    returns: tuple[Location, ...]
    marked: tuple[Location, ...] = ()
    kept: Location | None = None


def second_cuts(trace: Trace) -> tuple[SecondCut, ...]:
    """Where second derivatives that a program needs are cut: one for each operation of a statement."""
    if trace not in _found:
        _found[trace] = tuple(_search(trace))
    return _found[trace]


def _search(trace: Trace) -> Iterator[SecondCut]:
    tried: dict[tuple[Location, str], int] = {}
    found: dict[tuple[Location, str], SecondCut] = {}
    first: Backward | None = None
    for event in trace.events:
        if isinstance(event, Backward):
            first = event
        elif isinstance(event, BackwardCut) and first is not None:
            key = (event.location, event.op)
            tried[key] = tried.get(key, 0) + 1
            if key in found and found[key].first is not first:
                continue
            if tried[key] <= _MOST_TRIED and (cut := _judged(trace, event, first)) is not None:
                found[key] = replace(cut, victims=cut.victims | (found[key].victims if key in found else frozenset()))
    yield from found.values()


def _judged(trace: Trace, cut: BackwardCut, first: Backward) -> SecondCut | None:
    name = trace.graph.ops[cut.node].removesuffix("Backward")
    marked = tuple(_marked(trace, name))
    returns = _returns(trace, name, cut, whole=bool(marked))
    lost = _leaves_behind(trace, cut) if returns and _is_wanted(trace, cut, first) else frozenset()
    for second in _after(trace, first) if lost else ():
        wanted = trace.reached(second) if second.inputs is not None else frozenset()
        stepped = trace.stepped if second.error is None else {optimizer.id for optimizer in trace.optimizers}
        held = {id for optimizer in trace.optimizers if optimizer.id in stepped for id in optimizer.parameters}
        if victims := lost & (held | wanted):
            made = None if cut.source is not None else _makers(trace, cut)[cut.tensor].location
            return SecondCut(cut, first, second, victims, returns, marked, made)
    return None


def _is_wanted(trace: Trace, cut: BackwardCut, first: Backward) -> bool:
    """Whether the gradients of this node go on to what the backward was asked for."""
    return first.inputs is None or not trace.graph.reachable([cut.node]).isdisjoint(first.inputs)


def _leaves_behind(trace: Trace, cut: BackwardCut) -> frozenset[int]:
    """The leaves that the value depends on, whose history it has lost."""
    graph = trace.graph
    nodes = [cut.source] if cut.source is not None else list(_sources(trace, cut))
    leaves = graph.leaf_tensors
    return frozenset(leaves[id] for id in graph.reachable(nodes) if id in leaves)


def _sources(trace: Trace, cut: BackwardCut) -> Iterator[int]:
    """The nodes behind what the forward, which records no history, computed this value from."""
    graph, makers = trace.graph, _makers(trace, cut)
    leaf = {tensor: node for node, tensor in graph.leaf_tensors.items()}
    waiting, seen = [cut.tensor], {cut.tensor}
    forward = list(methods(trace, graph.ops[cut.node].removesuffix("Backward"), "forward"))
    while waiting:
        call = makers.get(waiting.pop())
        if call is None or call.op in HARD | _FLAT or not _is_in(forward, call.location):
            continue
        for id, needs in zip(call.inputs, call.needs_grad, strict=False):
            node = leaf.get(id, graph.tensor(id).node)
            if needs and node is not None:
                yield node
            elif id not in seen:
                seen.add(id)
                waiting.append(id)


def _makers(trace: Trace, cut: BackwardCut) -> dict[int, Call]:
    """The calls that gave the tensors that had no history by then."""
    calls = (call for call in trace.calls if call.time < cut.time and not any(call.gives_grad))
    return {id: call for call in calls for id in call.outputs}


def _is_in(functions: list[tuple[str, ast.FunctionDef]], location: Location | None) -> bool:
    return location is not None and any(
        file == location.file and function.lineno <= location.line <= (function.end_lineno or 0)
        for file, function in functions
    )


def _after(trace: Trace, first: Backward) -> Iterator[Backward]:
    """The backwards that go through what another one computed."""
    graph = trace.graph
    later = [event for event in trace.backwards if event.time > first.time]
    end = later[0].time if later else first.time
    made = {
        id for id, time in graph.times.items() if first.time < time <= end and graph.locations[id] == first.location
    }
    derived: set[int] = set()
    for call in trace.calls:
        gave = call.op == "grad" and first.time < call.time <= end and call.location == first.location
        if gave or not derived.isdisjoint(call.inputs):
            derived.update(call.outputs)
    for event in later:
        nodes = graph.reachable(root.node for root in event.roots if root.node is not None)
        if not made.isdisjoint(nodes) or any(root.tensor in derived for root in event.roots):
            yield event


def _marked(trace: Trace, name: str) -> Iterator[Location]:
    for file, method in methods(trace, name, "backward"):
        for mark in method.decorator_list:
            if ast.unparse(mark).endswith(_ONCE):
                yield Location(file, mark.lineno, mark.end_lineno or mark.lineno, f"{name}.backward")


def _returns(trace: Trace, name: str, cut: BackwardCut, *, whole: bool) -> tuple[Location, ...]:
    """The statements of the backward that return what this cut gives, or something that is computed from it."""
    found = []
    for file, method in methods(trace, name, "backward"):
        if not _is_in([(file, method)], cut.location):
            continue
        flow = _Flow(cut)
        flow.follow(method.body)
        flow.follow(method.body)  # what a loop carries on
        for each in ast.walk(method):
            if isinstance(each, ast.Return) and each.value is not None and (whole or flow.reaches(each.value)):
                found.append(Location(file, each.lineno, each.end_lineno or each.lineno, f"{name}.backward"))
    return tuple(found)


class _Flow:
    """Follows a value through the statements of one function, by the names that it is given."""

    def __init__(self, cut: BackwardCut) -> None:
        self._cut = cut
        self._names: set[str] = set()

    def follow(self, body: list[ast.stmt]) -> None:
        """Take these statements into account, and those in them, in their order."""
        for statement in body:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    self._assign(targets, value)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    self._assign([target], value)
                case ast.AugAssign(target=target, value=value):
                    self._assign([target], value)
                case ast.For(target=target, iter=value):
                    self._assign([target], value)
                case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner)) as call) if self.reaches(call):
                    self._names.update(_named(owner))  # `parts.append(x)`, `out.mul_(x)`
                case _:
                    pass
            for part in ("body", "orelse", "finalbody"):
                self.follow(getattr(statement, part, []))

    def _assign(self, targets: list[ast.expr], value: ast.expr) -> None:
        if self.reaches(value):
            self._names.update(name for target in targets for name in _named(target))

    def reaches(self, value: ast.expr) -> bool:
        """Whether the value of this expression depends on the one that is followed, by more than a comparison."""
        if isinstance(value, ast.Compare) or _is_shape(value):
            return False
        if isinstance(value, ast.Name):
            return value.id in self._names
        if self._is_cut(value):
            return True
        return any(self.reaches(each) for each in _parts(value))

    def _is_cut(self, value: ast.expr) -> bool:
        at, op = self._cut.location, self._cut.op
        if not (at.line <= value.lineno and (value.end_lineno or value.lineno) <= at.end_line):
            return False
        match value:
            case ast.Attribute(attr=attr):
                return attr == op
            case ast.Call(func=ast.Name(id=called)) | ast.Call(func=ast.Attribute(attr=called)):
                return called == op or called == op.strip("_") or (op == "__array__" and "array" in called)
            case ast.BinOp() | ast.UnaryOp():
                return op not in _NAMED_AS_WRITTEN
            case _:
                return False


_NAMED_AS_WRITTEN = frozenset({"data", "detach", "item", "tolist", "numpy", "__float__", "__array__", "__dlpack__"})


def _parts(value: ast.AST) -> Iterator[ast.expr]:
    for child in ast.iter_child_nodes(value):
        if isinstance(child, ast.expr):
            yield child
        elif isinstance(child, ast.comprehension):
            yield child.iter
        elif isinstance(child, ast.keyword):
            yield child.value


def _is_shape(value: ast.expr) -> bool:
    match value:
        case ast.Attribute(attr=attr) | ast.Call(func=ast.Attribute(attr=attr)):
            return attr in _SHAPE or attr in HARD or attr in _FLAT
        case _:
            return False


def _named(target: ast.expr) -> Iterator[str]:
    for each in ast.walk(target):
        if isinstance(each, ast.Name):
            yield each.id
