"""The graph as it stands: for ``trace`` and ``check``, which watch nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from ..errors import GraphscopeError
from ..events import Backward, Event, OptimizerStep, Write
from ..graph import Graph, Root
from ..location import Location
from ..trace import OptimizerRef, Trace
from .frames import Frames
from .names import Names
from .sources import sources_of
from .tensors import Tensors
from .walk import Walk


class Snapshot:
    """One look at some losses, optimizers and modules; holds nothing of theirs once it is done."""

    def __init__(self, frame: FrameType) -> None:
        self.frames = Frames()
        self.stack = list(self.frames.stack(frame)) or [frame]
        self.here = self.frames.location(self.stack[0])
        self.tensors = Tensors(time_passes=False)
        self.names = Names(self.tensors)
        self.walk = Walk(self.tensors)
        self.optimizers: list[OptimizerRef] = []

    def root(self, loss: Tensor, position: int) -> Root:
        """The root of a loss, named after the caller's variable."""
        name = self.names.variable(loss, self.stack) or f"loss {position + 1}"
        root = self.walk.root(loss, name)
        self.tensors.rows[root.tensor].name = self.tensors.rows[root.tensor].name or name
        return root

    def optimizer(self, optimizer: Optimizer) -> OptimizerRef:
        """What an optimizer holds, its parameters located in memory."""
        groups = []
        for group in optimizer.param_groups:
            numbers = [self.tensors.number(parameter) for parameter in group["params"]]
            for number, parameter in zip(numbers, group["params"], strict=True):
                self.tensors.locate(number, parameter)
            groups.append(tuple(numbers))
        id = len(self.optimizers)
        name = self.names.of(optimizer) or f"optimizer {id + 1}"
        ref = OptimizerRef(id, name, type(optimizer).__name__, tuple(groups))
        self.optimizers.append(ref)
        return ref

    def graph(self, losses: Sequence[Tensor]) -> Graph:
        """The graph behind some losses."""
        roots = tuple(self.root(loss, position) for position, loss in enumerate(losses))
        self.names.look(self.stack)
        self.stack.clear()
        return self.walk.graph(roots)


def graph(losses: Sequence[Tensor], frame: FrameType) -> Graph:
    """The graph behind some losses, with the names of the caller's variables."""
    for loss in losses:
        if not isinstance(loss, Tensor):
            raise GraphscopeError(f"trace() takes tensors, such as trace(loss1, loss2); got {_described(loss)}")
    if not losses:
        raise GraphscopeError("trace() takes at least one tensor, such as trace(loss)")
    return Snapshot(frame).graph(losses)


def planned(objects: Sequence[Any], frame: FrameType, *, retain_graph: bool = False) -> Trace:
    """A trace of the graph behind some losses, with the plan that ``check`` assumes as its events.

    The losses are backpropagated in the order given, then every optimizer steps once. A pair
    ``(loss, optimizer)`` counts as its two members. Modules only lend their names.
    """
    flat = [member for each in objects for member in (each if isinstance(each, tuple | list) else (each,))]
    for each in flat:
        if not isinstance(each, Tensor | Optimizer | nn.Module):
            raise GraphscopeError(
                "check() takes losses, optimizers and modules, such as check(loss1, loss2, opt1, opt2); "
                f"got {_described(each)}"
            )
    losses = [each for each in flat if isinstance(each, Tensor)]
    if not losses:
        raise GraphscopeError("check() takes at least one loss, such as check(loss, optimizer)")
    shot = Snapshot(frame)
    roots = [shot.root(loss, position) for position, loss in enumerate(losses)]
    shot.names.look(shot.stack)
    for position, module in enumerate(each for each in flat if isinstance(each, nn.Module)):
        shot.names._name(f"module {position + 1}", module, depth=0)
    optimizers = [shot.optimizer(each) for each in flat if isinstance(each, Optimizer)]
    modules = shot.names.modules()
    shot.names.look(shot.stack)
    shot.stack.clear()
    seen = shot.walk.graph(tuple(roots))
    return Trace(
        graph=seen,
        events=_plan(roots, optimizers, seen, shot.here, retain_graph),
        optimizers=tuple(optimizers),
        modules=modules,
        root=shot.frames.root,
        sources=sources_of([shot.here], shot.frames.root),
    )


def _plan(
    roots: Sequence[Root], optimizers: Sequence[OptimizerRef], graph: Graph, here: Location, retain_graph: bool
) -> tuple[Event, ...]:
    events: list[Event] = [
        Backward(time, 0, here, (root,), retain_graph=retain_graph, ran=False) for time, root in enumerate(roots)
    ]
    reached = graph.reached_tensors(root.node for root in roots if root.node is not None)
    for step, optimizer in enumerate(optimizers):
        moved = (graph.tensor(id) for id in optimizer.parameters if id in reached)
        writes = tuple(Write(t.id, t.storage, t.counter, t.version, t.version + 1) for t in moved)
        graded = tuple(id for id in optimizer.parameters if id in reached)
        events.append(OptimizerStep(len(events), step, here, optimizer.id, writes, graded, ran=False))
    return tuple(events)


def _described(thing: Any) -> str:
    return f"{type(thing).__name__} {thing!r:.40}"
