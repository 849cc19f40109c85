"""Which tensor is which: small numbers for tensors and storages, without keeping either alive."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from .._plain import dataclass
from ..graph import Birth, TensorRef
from ..location import Location
from . import _torch

_LATELY = 256  # tensors that are looked at
DTYPES: dict[torch.dtype, str] = {}
_DEVICES: dict[torch.device, str] = {}


def dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return DTYPES.get(dtype) or DTYPES.setdefault(dtype, str(dtype).removeprefix("torch."))


def device_name(device: torch.device) -> str:
    """``"cuda:0"`` for ``torch.device("cuda", 0)``."""
    return _DEVICES.get(device) or _DEVICES.setdefault(device, str(device))


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
    birth: Birth | None = None
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
        self._watch = time_passes
        self._places: dict[int, tuple[int, int, Callable[[], bool] | None]] = {}
        self._storages = 0
        self._makers: dict[int, int] = {}
        self._own: dict[int, list[tuple[int, Callable[[], Any]]]] = {}  # by storage: tensors with their own counter
        self.versions: dict[int, int] = {}  # of version counters, where a saved tensor showed it
        self.sizes: dict[int, int] = {}  # of storages, in bytes
        self.released: dict[int, int] = {}  # by storage: the time of the backward after which it was gone
        self.numbers: dict[int, int] = {}
        self._counters = 0
        self._births: dict[int, tuple[Callable[[], Any], Birth]] = {}  # by ``id()``, until it has a number

    def born(self, parameter: Tensor, birth: Birth) -> None:
        """A module was given this parameter."""
        if self.known(parameter) is None and id(parameter) not in self._births:
            address = id(parameter)
            gone = weakref.ref(parameter, lambda _: self._births.pop(address, None))
            self._births[address] = gone, birth

    def known(self, value: Any) -> int | None:
        """The number of a value met before."""
        number = self.numbers.get(id(value))
        return number if number is not None and self.rows[number].ref() is value else None

    def number(self, tensor: Tensor, made_at: Location | None = None) -> int:
        """The number of a tensor, a new one if it was not met before."""
        number = self.numbers.get(id(tensor))
        if number is not None and self.rows[number].ref() is tensor:
            return number
        number = len(self.rows)
        birth = self._births.pop(id(tensor))[1] if id(tensor) in self._births else None
        self.rows.append(
            _Row(
                weakref.ref(tensor),
                "tensor",
                _torch.shape(tensor),
                dtype_name(tensor.dtype),
                device_name(tensor.device),
                tensor.requires_grad,
                _torch.is_leaf(tensor),
                type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter),
                made_at if birth is None else birth.locations[0],
                birth,
            )
        )
        self.numbers[id(tensor)] = number
        return number

    def number_array(self, array: Any, made_at: Location | None = None) -> int:
        """A number for a numpy array."""
        number = self.numbers[id(array)] = len(self.rows)
        shape, dtype = tuple(array.shape), str(array.dtype)
        self.rows.append(_Row(weakref.ref(array), "array", shape, dtype, "cpu", False, True, False, made_at))
        return number

    def number_scalar(self, value: float, made_at: Location | None = None) -> int:
        """A number for a Python number that came out of a tensor."""
        self.rows.append(_Row(lambda: None, "number", (), type(value).__name__, "cpu", False, True, False, made_at))
        return len(self.rows) - 1

    def locate(self, number: int, tensor: Tensor, *, own_counter: bool = False) -> _Row:
        """The tensor's row with storage, version counter and version filled in as they are now.

        Aliases on a storage share its first version counter, unless one has its ``own_counter``: a ``.data``.
        """
        row = self.rows[number]
        row.storage, first = self.place(tensor)
        if own_counter:
            if row.counter < 0:
                self._counters += 1
                row.counter = self._counters
            others = [each for each in self._own.get(row.storage, ()) if each[1]() is not None]
            self._own[row.storage] = [*others, (row.counter, row.ref)]
        elif row.counter < 0:
            row.counter = self.counter(tensor, row.storage, first)
        row.version = _torch.version(tensor)
        return row

    def counter(self, tensor: Tensor, storage: int, first: int) -> int:
        """The version counter of a tensor: the storage's first one, or that of an alias with its own."""
        for own, ref in self._own.get(storage, ()):
            alias = ref()
            if alias is not None and _torch.share_counter(alias, tensor):
                return own
        return first

    def alias(self, tensor: Tensor) -> int | None:
        """The number of a tensor that was seen to be made on this tensor's storage, if that is still there."""
        known = self._places.get(_torch.storage_start(tensor))
        if known is None or (known[2] is not None and known[2]()):
            return None
        return self._makers.get(known[0])

    def result_below(self, tensor: Tensor) -> int | None:
        """The number of a tensor with a history, made lately, whose memory this one lives in: ``Parameter(t)``."""
        start = _torch.storage_start(tensor)
        for number in range(len(self.rows) - 1, max(-1, len(self.rows) - 1 - _LATELY), -1):
            made = self.rows[number].ref() if self.rows[number].sequence is not None and start else None
            if made is not None and _torch.storage_start(made) == start:
                return number
        return None

    def made(self, number: int, tensor: Tensor) -> None:
        """Remember that this tensor's storage was filled by the call that gave it: what a new Parameter is made of."""
        row = self.rows[number]
        row.storage, counter = self.place(tensor)
        row.counter = counter if row.counter < 0 else row.counter
        self._makers[row.storage] = number

    def prune(self, backward: int | None = None) -> None:
        """Forget the storages that are gone: a watched one leaves a small block behind that fragments the heap.

        Remember those that went with the backward of this time.
        """
        gone = [start for start, (_, _, expired) in self._places.items() if expired is not None and expired()]
        for start in gone:
            storage, _, _ = self._places.pop(start)
            self._makers.pop(storage, None)
            if backward is not None:
                self.released[storage] = backward

    def place(self, tensor: Tensor) -> tuple[int, int]:
        """The numbers of the tensor's storage, and of the version counter that its first aliases share.

        A storage is known by its address, which is reused once it dies: so each is watched while time passes.
        """
        start = _torch.storage_start(tensor)
        known = self._places.get(start)
        if known is not None and (known[2] is None or not known[2]()):
            return known[0], known[1]
        self._storages += 1
        self._counters += 1
        if start:
            self.sizes[self._storages] = _torch.storage_bytes(tensor)
            watch = _torch.storage_watch(tensor) if self._watch else None
            self._places[start] = (self._storages, self._counters, watch)
        return self._storages, self._counters

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
                birth=row.birth,
            )
            for number, row in enumerate(self.rows)
        )
