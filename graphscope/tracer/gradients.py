"""Watch what is done to gradients by hand: zeroed, set, scaled, clipped."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from ..events import GradRead, GradWrite, ZeroGrad
from ..location import Location
from .recording import Recording

_ZEROS = {"zero_", "_foreach_zero_"}
_SETS = {"copy_", "_foreach_copy_", "fill_", "__setitem__"}
_TIMES = {"mul_", "fill_", "_foreach_mul_", "__imul__"}
_ALIASES = {"data", "detach", "view", "view_as", "flatten", "reshape", "ravel"}


class GradientWatch:
    """Turns reads and writes of ``grad`` into events."""

    def __init__(self, recording: Recording) -> None:
        self._seen = recording
        self._owners: dict[int, int] = {}  # by tensor that was read as a grad: whose it is
        self.quiet = 0  # while torch itself clips or unscales them

    def read(self, tensor: Tensor, grad: Tensor | None, location: Location, *, told: bool) -> None:
        """``tensor.grad`` was read; ``told`` tells that this is an event: it was not torch that read it."""
        number = self._seen.tensors.number(tensor)
        own = None if grad is None else self._seen.tensors.number(grad)
        if told:
            time, step = self._seen.tick(), self._seen.step
            self._seen.events.append(GradRead(time, step, location, number, own is not None, grad=own))
        if own is not None:
            self._owners[own] = number

    def set(self, tensor: Tensor, grad: Tensor | None, location: Location) -> None:
        """``tensor.grad = grad``."""
        number = self._seen.tensors.number(tensor)
        if grad is None:
            self._seen.events.append(ZeroGrad(self._seen.tick(), self._seen.step, location, (number,)))
            return
        own = self._seen.tensors.number(grad)
        if self._owners.get(own) != number:  # `p.grad *= 2` writes and then sets what is there already
            self._owners[own] = number
            self._append("grad =", location, (number,), (number,), replaces=True)

    def called(self, op: str, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """A call was made; what it gave may be a gradient under another name."""
        owner = self._owners.get(inputs[0])
        if owner is not None and outputs and op in _ALIASES:
            self._owners[outputs[0]] = owner

    def wrote(self, op: str, args: Sequence[Any], written: Sequence[int], location: Location) -> None:
        """A call wrote these tensors in place."""
        owners = tuple([self._owners[each] for each in written if each in self._owners])
        if not owners:
            return
        if op in _ZEROS or (op in _TIMES and len(args) > 1 and _is_zero(args[1])):
            zero = ZeroGrad(self._seen.tick(), self._seen.step, location, owners, to_none=False)
            self._seen.events.append(zero)
        elif not self.quiet:
            self._append(op, location, owners, owners, replaces=op in _SETS)

    def clip_norm(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """What ``clip_grad_norm_`` calls with the norm, also where the program imported that before."""
        if len(args) > 1 and args[1] == math.inf:  # a way to ask for the norm
            return original(*args, **kwargs)
        return self._clip("clip_grad_norm_", original, *args, **kwargs)

    def clip_value(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``clip_grad_value_``."""
        return self._clip("clip_grad_value_", original, *args, **kwargs)

    def _clip(self, op: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self._seen.off or self._seen.busy or not (args or "parameters" in kwargs):
            return original(*args, **kwargs)
        parameters, *rest = args or (kwargs.pop("parameters"),)
        if isinstance(parameters, Iterator):
            parameters = list(parameters)
        self.quiet += 1
        try:
            result = original(parameters, *rest, **kwargs)
        except Exception as error:
            with self._seen.guard():
                tensors = [each for each in _as_list(parameters) if isinstance(each, Tensor)]
                self._seen.refused(op, tensors, error, sys._getframe(1))
            raise
        finally:
            self.quiet -= 1
        with self._seen.guard():
            location = self._seen.frames.here(sys._getframe(1))
            if location is not None:
                clipped = [each for each in _as_list(parameters) if isinstance(each, Tensor)]
                numbers = tuple([self._seen.tensors.number(each) for each in clipped])
                graded = tuple([n for n, each in zip(numbers, clipped, strict=True) if each.grad is not None])
                self._append(op, location, numbers, graded)
        return result

    def _append(
        self, op: str, location: Location, tensors: tuple[int, ...], graded: tuple[int, ...], *, replaces: bool = False
    ) -> None:
        self._seen.events.append(GradWrite(self._seen.tick(), self._seen.step, location, op, tensors, graded, replaces))


def _is_zero(value: Any) -> bool:
    return isinstance(value, int | float) and value == 0


def _as_list(parameters: Any) -> list[Any] | Iterator[Any]:
    return [parameters] if isinstance(parameters, Tensor) else list(parameters)
