"""What a node saved for its backward formula, and whether it was freed, without running hooks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import _torch
from .tensors import DTYPES, Tensors, dtype_name

Row = tuple[str, tuple[int, ...], str, int, int, int, int | None, bool, bool, int | None, int]
"""The fields of SavedTensor, in order."""

Names = tuple[tuple[str, str], ...]
"""What nodes of one type save: torch's attribute, and the name in the formula."""


def saved_names(kind: type) -> Names:
    """What nodes of this type save; () for those that save only sizes, or nothing."""
    names = tuple((name, name[len("_raw_saved_") :]) for name in _torch.raw_saved_names(kind))
    if kind.__name__ == "CopySlices":  # holds the function of the in-place write, which torch shows nowhere
        names += (("", "fn"),)
    return names


def saved_rows(node: Any, names: Names, tensors: Tensors) -> tuple[Row, ...]:
    """One row for each tensor that the node saved, and for what a checkpoint will need to compute them again."""
    rows: list[Row] = []
    arguments: dict[int, Row] = {}
    for name, label in names:
        try:
            raw = getattr(node, name) if name else _UNSHOWN
        except RuntimeError:  # a list of saved tensors raises once it was freed
            rows.append(_empty(label, freed=True))
            continue
        for saved in raw if type(raw) is tuple else (raw,):
            data = saved.data
            if not isinstance(data, Tensor) or saved.unpack_hook is not None:
                if (row := _row_of_absent(node, name, label, saved)) is not None:
                    rows.append(row)
                if saved.unpack_hook is not None:
                    for tensor, version in _torch.checkpoint_arguments(saved.unpack_hook):
                        arguments.setdefault(id(tensor), _row("argument", tensor, version, tensors))
                continue
            current = data._version
            one_of_many = saved if type(raw) is tuple else None
            expected = _torch.expected_version(node, name, data, one_of_many) if current else 0
            rows.append(_row(label, data, expected, tensors))
    return (*rows, *arguments.values())


def _row(label: str, data: Tensor, version: int | None, tensors: Tensors) -> Row:
    """The row of a tensor that was saved at this version."""
    storage, first = tensors.place(data)
    known = tensors.numbers.get(id(data))
    if known is not None and (known := tensors.known(data)) is not None and tensors.rows[known].counter >= 0:
        counter = tensors.rows[known].counter
    else:
        counter = tensors.counter(data, storage, first)
    if current := _torch.version(data):
        tensors.versions[counter] = current
    dtype = DTYPES.get(data.dtype) or dtype_name(data.dtype)
    shape, size, offset = _torch.extent(data)
    return (label, tuple(shape), dtype, size, storage, counter, version, False, False, known, offset)


class _Unshown:
    """Stands for what a node is known to hold and torch shows nowhere."""

    data, unpack_hook = None, None


_UNSHOWN = _Unshown()


def _row_of_absent(node: Any, name: str, label: str, saved: Any) -> Row | None:
    """The row of a saved tensor that was packed by hooks, or freed; None for one that was never needed."""
    if saved is _UNSHOWN:
        return _empty(label)
    if saved.unpack_hook is not None or saved.data is not None:
        return _empty(label, hooked=True)
    if name != "_raw_saved_tensors" and _torch.was_freed(node, name):
        return _empty(label, freed=True)
    return None


def _empty(label: str, *, freed: bool = False, hooked: bool = False) -> Row:
    return (label, (), "", 0, -1, -1, None, freed, hooked, None, 0)
