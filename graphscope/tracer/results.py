"""What the result of a node was, from what nodes saved: kept, or computed again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from . import _torch

_RESULTS = ("result", "output", "log_sum_exp", "logsumexp")
_SAME = (
    "ToCopyBackward",
    "ViewBackward",
    "UnsafeViewBackward",
    "ReshapeAliasBackward",
    "TBackward",
    "TransposeBackward",
)
_AGAIN: dict[str, Callable[[Any, dict[str, Tensor]], Tensor]] = {
    "MmBackward": lambda _, saved: saved["self"] @ saved["mat2"],
    "AddmmBackward": lambda _, saved: saved["mat1"] @ saved["mat2"],
    "BmmBackward": lambda _, saved: saved["self"] @ saved["mat2"],
    "MulBackward": lambda _, saved: saved["self"] * saved["other"],
    "DivBackward": lambda _, saved: saved["self"] / saved["other"],
    "PowBackward": lambda node, saved: saved["self"] ** node._saved_exponent,
    "MseLossBackward": lambda node, saved: torch.nn.functional.mse_loss(
        saved["self"], saved["target"], reduction="none"
    ),
}
_POSITIONS = {"self": 0, "input": 0, "mat1": 0, "other": 1, "mat2": 1}  # which argument it is; addmm has one before
_FARTHEST = 4  # nodes of the same values in a row


def is_result(name: str) -> bool:
    """Whether a node saves its own result under this name."""
    return name.startswith(_RESULTS)


def saved_by(node: Any) -> list[tuple[str, Tensor]]:
    """The tensors that a node saved, with their names, as far as they can be read without running hooks."""
    found = []
    for name in _torch.raw_saved_names(type(node)):  # type: ignore[arg-type]  # types are hashable
        try:
            raw = getattr(node, name)
        except RuntimeError:  # freed
            continue
        for each in raw if isinstance(raw, tuple) else (raw,):
            if isinstance(each.data, Tensor) and each.unpack_hook is None:
                found.append((name.removeprefix("_raw_saved_"), each.data))
    return found


def source_of(node: Any, name: str, shape: tuple[int, ...]) -> Any:
    """The node that gave what this one saved under a name, None where that was data without a history."""
    sources = [target for target, _ in node.next_functions]
    position = _POSITIONS.get(name, 0) + (node.name().startswith("Add") and name.startswith("mat"))
    if name in _POSITIONS and position < len(sources):
        return sources[position]
    fitting = (t for t, output in node.next_functions if t and tuple(t._input_metadata[output].shape) == shape)
    return next(fitting, None)


def result(node: Any, far: int = _FARTHEST) -> Tensor | None:
    """What a node gave, None where it cannot be told."""
    saved = saved_by(node)
    kept = next((tensor for name, tensor in saved if is_result(name)), None)
    if kept is not None:
        return kept
    kind = node.name().rstrip("0123456789")
    if kind in _SAME and far and len(node.next_functions) == 1 and node.next_functions[0][0] is not None:
        source = node.next_functions[0][0]
        value = source.variable if hasattr(source, "variable") else result(source, far - 1)
        return None if value is None else value.to(node._input_metadata[0].dtype)
    if kind not in _AGAIN:
        return None
    try:
        with torch.autocast(node._input_metadata[0].device.type, enabled=False):
            return _AGAIN[kind](node, dict(saved))
    except (KeyError, RuntimeError, TypeError):  # not all of it was saved
        return None
