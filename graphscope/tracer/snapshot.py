"""The graph as it stands: for ``trace``, ``check`` and plans, which watch nothing."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from ..errors import GraphscopeError
from ..graph import Graph, Root
from ..trace import OptimizerRef
from .frames import Frames
from .names import Names
from .tensors import Tensors
from .walk import Walk


class Snapshot:
    """One look at some losses, optimizers and modules; holds nothing of theirs once it is done."""

    def __init__(self, frame: FrameType, *, facts: bool = True) -> None:
        self.frames = Frames()
        self.stack = list(self.frames.stack(frame)) or [frame]
        self.here = self.frames.location(self.stack[0])
        self.tensors = Tensors(time_passes=False)
        self.names = Names(self.tensors)
        self.walk = Walk(self.tensors, facts=facts)
        self.optimizers: list[OptimizerRef] = []

    def root(self, loss: Tensor, position: int) -> Root:
        """The root of a loss, named after the caller's variable."""
        name = self.names.variable(loss, self.stack) or f"loss_{position + 1}"
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
        name = self.names.of(optimizer) or f"optimizer_{id + 1}"
        ref = OptimizerRef(id, name, type(optimizer).__name__, tuple(groups))
        self.optimizers.append(ref)
        return ref

    def graph(self, losses: Sequence[Tensor]) -> Graph:
        """The graph behind some losses."""
        roots = tuple(self.root(loss, position) for position, loss in enumerate(losses))
        self.names.look(self.stack)
        self.stack.clear()
        return self.walk.graph(roots)


def graph(losses: Sequence[Tensor], frame: FrameType, *, facts: bool = True) -> Graph:
    """The graph behind some losses, with the names of the caller's variables."""
    for loss in losses:
        if not isinstance(loss, Tensor):
            raise GraphscopeError(f"trace() takes tensors, such as trace(loss1, loss2); got {described(loss)}")
    if not losses:
        raise GraphscopeError("trace() takes at least one tensor, such as trace(loss)")
    return Snapshot(frame, facts=facts).graph(losses)


def described(thing: Any) -> str:
    """A wrong argument, for an error message."""
    return f"{type(thing).__name__} {thing!r:.40}"
