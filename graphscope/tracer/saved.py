"""What a node saved for its backward formula, and whether it was freed, without running hooks."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from . import _torch
from .tensors import Tensors, dtype_name

Row = tuple[str, tuple[int, ...], str, int, int, int, int | None, bool, bool, int | None]
"""The fields of SavedTensor, in order."""

_NAMES: dict[type, tuple[str, ...]] = {}


def saved_rows(node: Any, kind: type, tensors: Tensors) -> tuple[Row, ...]:
    """One row for each tensor that the node saved; () for nodes that save only sizes, or nothing."""
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = _torch.raw_saved_names(kind)
    rows: list[Row] = []
    for name in names:
        label = name[11:]
        try:
            raw = getattr(node, name)
        except RuntimeError:  # a list of saved tensors raises once it was freed
            rows.append(_empty(label, freed=True))
            continue
        if raw is None:
            continue
        for saved in raw if isinstance(raw, tuple) else (raw,):
            row = _row(node, name, label, saved, tensors)
            if row is not None:
                rows.append(row)
    if kind.__name__ == "CopySlices":  # holds the function of the in-place write, which torch shows nowhere
        rows.append(_empty("fn"))
    return tuple(rows)


def _row(node: Any, name: str, label: str, saved: Any, tensors: Tensors) -> Row | None:
    data = saved.data
    if data is None:
        if saved.unpack_hook is not None:
            return _empty(label, hooked=True)
        if name != "_raw_saved_tensors" and _torch.was_freed(node, name):
            return _empty(label, freed=True)
        return None
    if saved.unpack_hook is not None or not isinstance(data, Tensor):
        return _empty(label, hooked=True)
    storage = tensors.storages.id(data)
    known = tensors.known(data)
    counter = tensors.rows[known].counter if known is not None else -1
    version = _torch.version(data)
    version_saved = _torch.expected_version(node, name, version) if version else 0
    return (
        label,
        data.shape,
        dtype_name(data.dtype),
        data.nbytes,
        storage,
        counter if counter >= 0 else tensors.counter(storage),
        version_saved,
        False,
        False,
        known,
    )


def _empty(label: str, *, freed: bool = False, hooked: bool = False) -> Row:
    return (label, (), "", 0, -1, -1, None, freed, hooked, None)
