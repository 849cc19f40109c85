"""Values that leave torch and come back: numpy arrays that remember which tensors they came from."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from torch import Tensor

from . import _torch

_NONE: frozenset[int] = frozenset()
_WRITERS = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"}
_MOST_NUMBERS = 4096
_MOST_ELEMENTS = 256
_TELLING = 8  # elements of a tensor of unknown origin that are compared with numbers that left torch


class TracedArray(np.ndarray):
    """An array that came out of a tensor, or was computed from one; ``sources`` are the tensors' numbers.

    It calls itself ``numpy.ndarray``, prints, pickles and copies as one.
    """

    sources: frozenset[int] = _NONE
    written: Callable[[TracedArray], None] | None = None

    def __array_finalize__(self, parent: Any) -> None:
        self.sources = getattr(parent, "sources", _NONE)
        self.written = getattr(parent, "written", None)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        sources, written = _origins((inputs, out))
        if out is not None:
            options["out"] = tuple(_plain(each) for each in out)
        result = getattr(ufunc, method)(*_plain(inputs), **_plain(options))
        if out is not None:
            for each in out:
                if isinstance(each, TracedArray):
                    each.sources = sources
                    each._was_written()
            return out[0] if len(out) == 1 else out
        if method == "at":
            for each in inputs[:1]:
                if isinstance(each, TracedArray):
                    each._was_written()
            return None
        return _traced(result, sources, written)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        sources, written = _origins((args, kwargs))
        result = function(*_plain(args), **_plain(kwargs))
        if function.__name__ in _WRITERS and args and isinstance(args[0], TracedArray):
            args[0]._was_written()
        if isinstance(kwargs.get("out"), TracedArray):
            kwargs["out"]._was_written()
            return kwargs["out"]
        return _traced(result, sources, written)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_plain(key), _plain(value))
        self.sources = self.sources | _origins(value)[0]
        self._was_written(key)

    def fill(self, *args: Any) -> None:  # noqa: D102  # as numpy's
        super().fill(*args)
        self._was_written()

    def sort(self, *args: Any, **options: Any) -> None:  # noqa: D102  # as numpy's
        super().sort(*args, **options)
        self._was_written()

    def partition(self, *args: Any, **options: Any) -> None:  # noqa: D102  # as numpy's
        super().partition(*args, **options)
        self._was_written()

    def put(self, *args: Any, **options: Any) -> None:  # noqa: D102  # as numpy's
        super().put(*args, **options)
        self._was_written()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain(self).__reduce_ex__(protocol)

    def __reduce__(self) -> Any:
        return _plain(self).__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return _traced(_plain(self).__deepcopy__(memo), self.sources, self.written)

    def __repr__(self) -> str:
        return repr(_plain(self))

    def __str__(self) -> str:
        return str(_plain(self))

    def __format__(self, spec: str) -> str:
        return format(_plain(self), spec)

    def _was_written(self, key: Any = ...) -> None:
        if self.written is not None:
            basic = isinstance(key, int | slice) or (isinstance(key, tuple) and ... not in key)
            where = (*key, ...) if isinstance(key, tuple) else (key, ...)
            self.written(super().__getitem__(where) if basic else self)


TracedArray.__name__ = TracedArray.__qualname__ = "ndarray"
TracedArray.__module__ = "numpy"


def _plain(value: Any) -> Any:
    """The value with every traced array in it as an ordinary one."""
    if isinstance(value, TracedArray):
        return value.view(np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(_plain(each) for each in value)
    if type(value) is dict:
        return {key: _plain(each) for key, each in value.items()}
    return value


def _origins(value: Any) -> tuple[frozenset[int], Callable[[TracedArray], None] | None]:
    sources, written = _NONE, None
    for array in _arrays(value):
        sources, written = sources | array.sources, array.written or written
    return sources, written


def _arrays(value: Any) -> Iterator[TracedArray]:
    if isinstance(value, TracedArray):
        yield value
    elif isinstance(value, np.ndarray):
        base = value.base
        while isinstance(base, np.ndarray):
            if isinstance(base, TracedArray):
                yield base
                return
            base = base.base
    elif type(value) in (list, tuple):
        for each in value[:_MOST_ELEMENTS]:
            yield from _arrays(each)
    elif type(value) is dict:
        yield from _arrays(list(value.values()))


def _traced(result: Any, sources: frozenset[int], written: Any) -> Any:
    if not sources:
        return result
    if type(result) is np.ndarray:
        # Twice: numpy skips a base whose own base is of the class wanted, so that asarray() would lose the trace.
        traced = result.view(TracedArray).view(TracedArray)
        traced.sources, traced.written = sources, written
        return traced
    if type(result) in (list, tuple):
        return type(result)(_traced(each, sources, written) for each in result)
    return result


class Provenance:
    """Which tensors the arrays and numbers of the program came from."""

    def __init__(self, written: Callable[[TracedArray], None], *, arrays: bool = True) -> None:
        self._written = written
        self._arrays = arrays
        self._numbers: OrderedDict[float, int] = OrderedDict()

    def left(self, result: Any, source: int) -> Any:
        """What a tensor became outside torch, marked with where it came from."""
        if isinstance(result, np.ndarray) and result.dtype != object:
            self._remember(_first(result), source)
            if not self._arrays:
                return result
            return _traced(
                result if type(result) is np.ndarray else _plain(result), frozenset((source,)), self._written
            )
        self._remember(_numbers(result), source)
        return result

    def exported(self, tensor: Tensor, source: int) -> None:
        """A tensor is written to a file, or given to another library: it may come back."""
        self._remember(_numbers(_torch.first_numbers(tensor, _TELLING)), source)

    def _remember(self, numbers: Iterable[float], source: int) -> None:
        for number in numbers:
            self._numbers[number] = source
            if len(self._numbers) > _MOST_NUMBERS:
                self._numbers.popitem(last=False)

    def of_arrays(self, data: Any) -> frozenset[int]:
        """The tensors that arrays in this argument came from: certain."""
        return _origins(data)[0]

    def of_numbers(self, data: Any) -> frozenset[int]:
        """The tensors that gave numbers equal to those in this argument: likely."""
        if not self._numbers:
            return _NONE
        return frozenset(self._numbers[number] for number in _numbers(data) if number in self._numbers)

    def of_values(self, tensor: Tensor) -> frozenset[int]:
        """The tensors that gave all the first numbers of a tensor whose making was not seen: likely."""
        if not self._numbers or not 0 < tensor.numel() <= _MOST_NUMBERS:
            return _NONE
        found = [self._numbers.get(value) for value in _torch.first_numbers(tensor, _TELLING)]
        return frozenset(each for each in found if each is not None) if None not in found else _NONE


def _first(array: Any) -> Iterator[float]:
    """The first telling numbers of an array."""
    if array.dtype.kind == "f":
        yield from _numbers([float(each) for each in _plain(array).flat[:_TELLING]])


def _numbers(value: Any) -> Iterator[float]:
    """The telling numbers in a value: fractions, since whole numbers are equal by chance too often."""
    if isinstance(value, float | np.floating):
        number = float(value)
        if number * 8 != int(number * 8) if number - number == 0 else False:
            yield number
    elif type(value) in (list, tuple):
        for each in value[:_MOST_ELEMENTS]:
            yield from _numbers(each)
