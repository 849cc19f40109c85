"""Watch the forward of custom Functions: what it keeps on ``ctx``, and what it overwrites."""

from __future__ import annotations

import sys
import weakref
from itertools import takewhile
from typing import Any

from torch import Tensor

from ..events import InPlaceWrite, OutOfSight
from ..location import Location
from . import _torch
from .recording import Recording, flatten


class ContextWatch:
    """Turns what autograd does not know of such a forward into events."""

    def __init__(self, recording: Recording) -> None:
        self._seen = recording
        self._kept: dict[tuple[str, str], list[tuple[int, weakref.ref[Tensor]]]] = {}  # results, with their steps

    def versions(self, args: tuple[Any, ...]) -> list[tuple[Tensor, int]]:
        """The tensors that a Function is given, with their versions."""
        given: list[Tensor] = []
        with self._seen.guard():
            flatten(args, given)
        return [(each, _torch.version(each)) for each in given]

    def applied(self, function: type, given: list[tuple[Tensor, int]], result: Any, since: int) -> None:
        """A Function of the user's has been applied; ``since`` is the time before that."""
        with self._seen.guard():
            results: list[Tensor] = []
            flatten((result,), results)
            context = next((each.grad_fn for each in results if each.grad_fn is not None), None)
            forward = getattr(function.forward, "__code__", None)  # type: ignore[attr-defined]
            location = self._seen.frames.here(sys._getframe(2))
            if context is None or forward is None or location is None or not self._seen.frames.is_user(forward):
                return
            end = next(each for each in results if each.grad_fn is context)
            number = self._seen.tensors.number(end)
            name = function.__name__
            for attribute, kept in vars(context).items():
                if isinstance(kept, Tensor) and kept.is_floating_point():
                    self._keeps(name, location, attribute, kept, number, results, [each for each, _ in given])
            for tensor, before in given:
                unmarked = tensor.requires_grad and not any(tensor is each for each in results)
                if unmarked and _torch.version(tensor) != before:
                    at = self._written_at(tensor, since) or location
                    self._note(at, name, tensor, number)

    def _keeps(
        self,
        name: str,
        location: Location,
        attribute: str,
        kept: Tensor,
        number: int,
        results: list[Tensor],
        given: list[Tensor],
    ) -> None:
        """An attribute of ``ctx`` is a tensor: one that it was given, or one that it returns, which holds ``ctx``?"""
        start = _torch.storage_start(kept)
        if any(kept is each for each in results):
            older = self._kept.setdefault((name, attribute), [])
            outlives = any(step < self._seen.step - 1 and held() is not None for step, held in older)
            older[:] = [*[each for each in older if each[1]() is not None][-3:], (self._seen.step, weakref.ref(kept))]
            self._note(location, name, kept, number, attribute, is_result=True, outlives=outlives)
        elif start and any(start == _torch.storage_start(each) for each in given):
            self._note(location, name, kept, number, attribute)

    def _note(
        self,
        location: Location,
        name: str,
        tensor: Tensor,
        result: int,
        attribute: str | None = None,
        *,
        is_result: bool = False,
        outlives: bool = False,
    ) -> None:
        number = self._seen.tensors.number(tensor)
        row = self._seen.tensors.locate(number, tensor)
        _, bytes, offset = _torch.extent(tensor)
        time, step = self._seen.tick(), self._seen.step
        memory = (row.storage, offset, bytes)
        event = OutOfSight(time, step, location, name, number, result, *memory, attribute, is_result, outlives)
        self._seen.events.append(event)

    def _written_at(self, tensor: Tensor, since: int) -> Location | None:
        """Where the forward wrote to a tensor."""
        storage, _ = self._seen.tensors.place(tensor)
        late = takewhile(lambda event: event.time >= since, reversed(self._seen.events))
        written = [event for event in late if isinstance(event, InPlaceWrite) and event.write.storage == storage]
        return written[-1].location if written else None
