"""Watch a custom Function's backward that is to be differentiated again: what it computes without a history."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from ..events import BackwardCut
from ..flow import HARD
from . import _torch
from .functions import Kind
from .recording import Recording, flatten


class SecondOrder:
    """Turns calls in the backward of custom Functions, under ``create_graph``, into events."""

    def __init__(self, recording: Recording) -> None:
        self._seen = recording

    def called(self, op: str, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """An operation was called there: does the gradient of this gradient stop at it?"""
        if op in HARD:
            return
        inputs: list[Tensor] = []
        flatten((*args, *kwargs.values()), inputs)
        outputs: list[Tensor] = []
        flatten((result,), outputs)
        drops = kind in (Kind.DATA, Kind.LEAVE) or op in ("detach", "detach_") or not torch.is_grad_enabled()
        if kind is not Kind.LEAVE and not any(each.is_floating_point() for each in outputs):
            return
        for tensor in inputs:
            lost = drops if tensor.requires_grad else self._seen.tensors.known(tensor) is not None
            if lost and tensor.is_floating_point():
                self._cut(op, tensor)

    def _cut(self, op: str, tensor: Tensor) -> None:
        frame = sys._getframe(3)
        location, called = self._seen.frames.here(frame), _torch.custom_backward(frame)
        if location is None or called is None:
            return
        number = self._seen.tensors.number(tensor)
        source = self._seen.walk.root(tensor, "").node
        node = self._seen.walk.walk(called[0])
        time = self._seen.now - 1  # that of the backward
        self._seen.events.append(BackwardCut(time, self._seen.step, location, op, node, number, source))
