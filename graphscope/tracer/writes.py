"""Watch what is written in place: by torch functions, and through arrays on a tensor's memory."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from ..events import BackwardWrite, InPlaceWrite, Write
from ..location import Location
from . import _torch
from .provenance import TracedArray
from .recording import Recording

_OURS = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)


class WriteWatch:
    """Turns writes into events."""

    def __init__(self, recording: Recording) -> None:
        self._seen = recording
        self.memory: dict[
            int, tuple[int, int, int, int]
        ] = {}  # of tensors seen as arrays: start, size, storage, counter
        self._kept: set[int] = set()  # running statistics that a graph was given

    def wrote(self, op: str, tensor: Tensor, number: int, before: int, location: Location, key: Any = None) -> None:
        """A tensor was written in place; ``key`` says where, for an item assignment."""
        row = self._seen.tensors.locate(number, tensor)
        hidden = row.counter != self._seen.tensors.place(tensor)[1]
        if hidden and not self.is_direct():  # a library's own doing, such as gradcheck's, which takes it back
            return
        indexed = hidden and isinstance(key, int | slice | tuple) and not _torch.is_dispatched_in_python(tensor)
        part = tensor[key] if indexed else tensor
        _, bytes, offset = _torch.extent(part)
        write = Write(number, row.storage, row.counter, before, row.version, hidden, offset, bytes)
        self._seen.events.append(InPlaceWrite(self._seen.tick(), self._seen.step, location, op, write))

    def normalized(self, args: tuple[Any, ...], kwargs: dict[str, Any], location: Location, *, saves: bool) -> None:
        """``batch_norm`` ran: in evaluation a graph saves its running statistics, in training it overwrites them.

        torch does not count that write. It is recorded only where a graph was given them.
        """
        given = dict(zip(("input", "mean", "var", "weight", "bias", "training", "momentum"), args, strict=False))
        statistics = (given.get("mean", kwargs.get("running_mean")), given.get("var", kwargs.get("running_var")))
        training = given.get("training", kwargs.get("training", False))
        for tensor in statistics:
            if not isinstance(tensor, Tensor):
                continue
            number = self._seen.tensors.number(tensor)
            if not training:
                self._kept |= {number} if saves else set()
            elif number in self._kept and given.get("momentum", kwargs.get("momentum", 0.1)) != 0:
                row = self._seen.tensors.locate(number, tensor)
                _, bytes, offset = _torch.extent(tensor)
                write = Write(number, row.storage, row.counter, row.version, row.version, True, offset, bytes)
                event = InPlaceWrite(self._seen.tick(), self._seen.step, location, "batch_norm", write)
                self._seen.events.append(event)

    def wrote_in_backward(self, op: str, tensor: Tensor) -> None:
        """The backward of a custom Function has written a tensor in place."""
        location = self._seen.frames.here(sys._getframe(2))
        called = _torch.custom_backward(sys._getframe(2))
        if location is None or called is None:
            return
        node, grads = called
        storage, _ = self._seen.tensors.place(tensor)
        _, bytes, offset = _torch.extent(tensor)
        is_grad = any(
            isinstance(grad, Tensor) and _torch.storage_start(grad) == _torch.storage_start(tensor) for grad in grads
        )
        function = type(node).__name__
        self._seen.events.append(
            BackwardWrite(self._seen.tick(), self._seen.step, location, op, function, storage, offset, bytes, is_grad)
        )

    def is_direct(self) -> bool:
        """Whether the user's own code called the function that is being recorded."""
        frame = self._caller()
        return frame is not None and self._seen.frames.is_user(frame.f_code)

    def is_of_torch(self) -> bool:
        """Whether torch itself did."""
        frame = self._caller()
        return frame is not None and frame.f_code.co_filename.startswith(_TORCH)

    def _caller(self) -> FrameType | None:
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_OURS):
            frame = frame.f_back
        return frame

    def array_written(self, array: TracedArray) -> None:
        """An array on a tensor's memory, or a part of one, was written, which no version counter sees."""
        with self._seen.guard():
            location = self._seen.frames.here(sys._getframe(2))
            if location is None or self._seen.off or self._seen.busy:
                return
            at = array.__array_interface__["data"][0]
            for source in array.sources:
                start, size, storage, counter = self.memory.get(source, (0, 0, -1, -1))
                if start <= at < start + size:
                    write = Write(
                        source, storage, counter, 0, 0, hidden=True, offset=at - start, bytes=max(array.nbytes, 1)
                    )
                    self._seen.events.append(InPlaceWrite(self._seen.tick(), self._seen.step, location, "numpy", write))
                    return
