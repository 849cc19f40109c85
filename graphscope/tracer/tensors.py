"""Which tensor is which: small numbers for tensors and storages, without keeping either alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..graph import TensorRef
from ..location import Location
from . import _torch

_DTYPES: dict[torch.dtype, str] = {}
_DEVICES: dict[torch.device, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return _DTYPES.get(dtype) or _DTYPES.setdefault(dtype, str(dtype).removeprefix("torch."))


def device_name(device: torch.device) -> str:
    """``"cuda:0"`` for ``torch.device("cuda", 0)``."""
    return _DEVICES.get(device) or _DEVICES.setdefault(device, str(device))


class Storages:
    """Numbers for storages. An address is reused once its storage dies, so each is watched if time ``passes``."""

    def __init__(self, *, time_passes: bool) -> None:
        self._by_start: dict[int, tuple[int, Callable[[], bool]]] = {}
        self._count = 0
        self._watch = _torch.storage_watch if time_passes else _never_gone

    def id(self, tensor: Tensor) -> int:
        """The number of the storage that the tensor lives in."""
        start = _torch.storage_start(tensor)
        known = self._by_start.get(start)
        if known is not None and not known[1]():
            return known[0]
        self._count += 1
        if start:
            self._by_start[start] = (self._count, self._watch(tensor))
        return self._count

    def prune(self) -> None:
        """Forget the storages that are gone."""
        self._by_start = {start: known for start, known in self._by_start.items() if not known[1]()}


def _never_gone(tensor: Tensor) -> Callable[[], bool]:
    return bool


@dataclass(slots=True)
class _Row:
    """What is known of one value; the fields of TensorRef that are not read from the tensor later."""

    ref: Callable[[], Any]
    kind: str
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool
    is_parameter: bool
    made_at: Location | None
    storage: int = -1
    counter: int = -1
    version: int = 0
    name: str | None = None
    sequence: int | None = None


class Tensors:
    """Numbers for the tensors (and arrays) met, in the order they were met.

    Tensors are held by weak references only. ``id()`` of a dead object is reused at once, so a
    number found by ``id()`` is trusted only while its weak reference still gives the same object.
    ``time_passes`` is False for a snapshot, during which nothing that it sees can die.
    """

    def __init__(self, *, time_passes: bool = True) -> None:
        self.rows: list[_Row] = []
        self.storages = Storages(time_passes=time_passes)
        self._numbers: dict[int, int] = {}
        self._counters: dict[tuple[int, int], int] = {}

    def known(self, value: Any) -> int | None:
        """The number of a value met before."""
        number = self._numbers.get(id(value))
        return number if number is not None and self.rows[number].ref() is value else None

    def number(self, tensor: Tensor, made_at: Location | None = None) -> int:
        """The number of a tensor, a new one if it was not met before."""
        number = self._numbers.get(id(tensor))
        if number is not None and self.rows[number].ref() is tensor:
            return number
        number = self._numbers[id(tensor)] = len(self.rows)
        self.rows.append(
            _Row(
                weakref.ref(tensor),
                "tensor",
                tuple(tensor.shape),
                dtype_name(tensor.dtype),
                device_name(tensor.device),
                tensor.requires_grad,
                tensor.is_leaf,
                isinstance(tensor, torch.nn.Parameter),
                made_at,
            )
        )
        return number

    def number_array(self, array: Any, made_at: Location | None = None) -> int:
        """A number for a numpy array."""
        number = self._numbers[id(array)] = len(self.rows)
        shape, dtype = tuple(array.shape), str(array.dtype)
        self.rows.append(_Row(weakref.ref(array), "array", shape, dtype, "cpu", False, True, False, made_at))
        return number

    def number_scalar(self, value: float, made_at: Location | None = None) -> int:
        """A number for a Python number that came out of a tensor."""
        self.rows.append(_Row(lambda: None, "number", (), type(value).__name__, "cpu", False, True, False, made_at))
        return len(self.rows) - 1

    def locate(self, number: int, tensor: Tensor, *, family: int | None = None) -> _Row:
        """The tensor's row with storage, version counter and version filled in as they are now.

        ``family`` names the version counter on that storage: 0 is the first one, that views and ``detach()``
        share; each ``.data`` makes another.
        """
        row = self.rows[number]
        row.storage = self.storages.id(tensor)
        if family is not None or row.counter < 0:
            row.counter = self.counter(row.storage, family or 0)
        row.version = _torch.version(tensor)
        return row

    def counter(self, storage: int, family: int = 0) -> int:
        """A number for a version counter: one for each family of aliases on a storage."""
        return self._counters.setdefault((storage, family), len(self._counters))

    def refs(self, nodes: Mapping[int, int]) -> tuple[TensorRef, ...]:
        """All of them as plain data; ``nodes`` are ids of nodes by sequence number."""
        return tuple(
            TensorRef(
                id=number,
                name=row.name,
                shape=row.shape,
                dtype=row.dtype,
                device=row.device,
                requires_grad=row.requires_grad,
                is_leaf=row.is_leaf,
                storage=row.storage,
                counter=row.counter,
                version=row.version,
                kind=row.kind,
                is_parameter=row.is_parameter,
                node=None if row.sequence is None else nodes.get(row.sequence),
                made_at=row.made_at,
            )
            for number, row in enumerate(self.rows)
        )
