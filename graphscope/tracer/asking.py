"""Questions that a program asks about its own graph while it runs: ``graphscope.why(tensor, loss)``."""

from __future__ import annotations

from dataclasses import replace
from types import FrameType
from typing import Any

from torch import Tensor

from ..errors import GraphscopeError
from ..graph import Root
from ..trace import Trace
from ..why import named, root_of
from . import _torch
from .fading import fades
from .recorder import Recorder
from .snapshot import Snapshot, described


def question(asked: Any, loss: Any, frame: FrameType) -> tuple[Trace, Root, Root]:
    """What was seen so far, with the tensor that is asked about and the loss as roots.

    Under a recorder that is all calls so far; elsewhere the graph alone.
    """
    if not isinstance(loss, Tensor):
        raise GraphscopeError(
            f"why() takes a tensor or its name, and a loss: why('net.weight', loss); got {described(loss)}"
        )
    if not isinstance(asked, Tensor | str):
        raise GraphscopeError(f"why() takes a tensor, or a name such as 'net.0.weight'; got {described(asked)}")
    recorder = Recorder.active
    seen: Any = Snapshot(frame) if recorder is None else recorder.look(frame)
    stack = seen.stack
    root = seen.walk.root(loss, seen.names.variable(loss, stack) or "the loss")
    seen.names.look(stack)
    target = None
    if isinstance(asked, Tensor):
        name = seen.names.variable(asked, stack)
        target = seen.walk.root(asked, seen.tensors.rows[seen.tensors.number(asked)].name or name or "the tensor")
    stack.clear()
    trace = Trace(graph=seen.walk.graph((root,))) if recorder is None else recorder.trace()
    if target is None:
        ids = named(trace, str(asked))
        if len(ids) > 1:
            raise GraphscopeError(
                f"{asked!r} has {len(ids)} parameters: name one, such as {trace.tensors[ids[0]].name!r}"
            )
        target = root_of(trace, ids[0])
    if root.node is not None and target.node is not None:
        with _torch.without_modes():
            trace = replace(trace, fades=tuple(fades(loss, seen.walk.walk, (target.node, target.output))))
    return trace, target, root
