"""What the forward of a hand-written Function does that autograd does not know of, and what comes of it."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Iterator

from .._plain import dataclass
from ..events import Backward, InPlaceWrite, OptimizerStep, OutOfSight
from ..location import Location
from ..trace import Trace
from ._source import methods

_SHAPE = frozenset({"shape", "size", "dim", "ndim", "dtype", "device", "numel", "new_zeros", "new_empty", "new_ones"})
_ALIKE = frozenset({"zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like"})


@dataclass(frozen=True, slots=True)
class Overwritten:
    """What was kept on ``ctx`` was written before the backward that reads it."""

    kept: OutOfSight
    write: InPlaceWrite | OptimizerStep
    backward: Backward


def overwritten(trace: Trace, kept: OutOfSight) -> Overwritten | None:
    """The first write to what is kept on ``ctx``, if a backward then reads it."""
    node = trace.graph.tensor(kept.result).node
    if kept.attribute is None or node is None or not reads(trace, kept):
        return None
    write: InPlaceWrite | OptimizerStep | None = None
    for event in trace.events[bisect_right(trace.events, kept.time, key=lambda event: event.time) :]:
        if isinstance(event, InPlaceWrite | OptimizerStep) and write is None and _hits(event, kept):
            write = event
        elif isinstance(event, Backward) and _runs(trace, event, node):
            if write is not None:
                return Overwritten(kept, write, event)
            if not event.retain_graph:
                return None
    return None


def _runs(trace: Trace, backward: Backward, node: int) -> bool:
    roots = [root.node for root in backward.roots if root.node is not None]
    return backward.error is None and backward.ran and node in trace.graph.reachable(roots)


def _hits(event: InPlaceWrite | OptimizerStep, kept: OutOfSight) -> bool:
    writes = (event.write,) if isinstance(event, InPlaceWrite) else event.writes
    end = kept.offset + kept.bytes
    return any(
        each.storage == kept.storage
        and not each.moved
        and (not each.bytes or (each.offset < end and kept.offset < each.offset + each.bytes))
        for each in writes
    )


def reads(trace: Trace, kept: OutOfSight) -> bool:
    """Whether the backward computes with this attribute, of which it takes more than the shape, and keeps it."""
    for _, method in methods(trace, kept.function, "backward"):
        parents = {id(child): parent for parent in ast.walk(method) for child in ast.iter_child_nodes(parent)}
        for each in _attributes(method, kept):
            parent = parents[id(each)]
            is_shape = isinstance(parent, ast.Attribute) and parent.attr in _SHAPE
            is_alike = isinstance(parent, ast.Call) and ast.unparse(parent.func).rpartition(".")[2] in _ALIKE
            if isinstance(each.ctx, ast.Load) and not is_shape and not is_alike:
                return True
    return False


def is_dropped(trace: Trace, kept: OutOfSight) -> bool:
    """Whether the backward takes it off ``ctx`` again."""
    return any(
        not isinstance(each.ctx, ast.Load)
        for _, method in methods(trace, kept.function, "backward")
        for each in _attributes(method, kept)
    )


def kept_at(trace: Trace, kept: OutOfSight) -> list[Location]:
    """The statements that put it on ``ctx``."""
    return [
        Location(file, each.lineno, each.end_lineno or each.lineno, f"{kept.function}.{name}")
        for name in ("forward", "setup_context")
        for file, method in methods(trace, kept.function, name)
        for each in _attributes(method, kept)
        if isinstance(each.ctx, ast.Store)
    ]


def _attributes(method: ast.FunctionDef, kept: OutOfSight) -> Iterator[ast.Attribute]:
    context = method.args.args[0].arg if method.args.args else ""
    for each in ast.walk(method):
        match each:
            case ast.Attribute(value=ast.Name(id=owner), attr=attr) if owner == context and attr == kept.attribute:
                yield each
            case _:
                pass


def used_again(trace: Trace, written: OutOfSight) -> Location | None:
    """Where what an unmarked write changed is used afterwards, in a loss that is backpropagated."""
    if any("inplace operation" in (event.error or "") for event in trace.backwards):
        return None  # torch noticed
    graph = trace.graph
    users = [
        call
        for call in trace.calls
        if call.time > written.time and written.tensor in call.inputs and any(call.gives_grad)
    ]
    for call in users:
        nodes = {graph.tensor(id).node for id in call.outputs} - {None}
        for event in trace.backwards:
            behind = graph.reachable(root.node for root in event.roots if root.node is not None)
            if event.time > call.time and event.accumulates and nodes & behind:
                return call.location
    return None
