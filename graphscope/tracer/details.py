"""What else a node can tell: the numbers and flags, and the tensors, that it saved; for ``make_dot``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from ..graph import Graph


def pairs(graph: Graph, losses: Sequence[Tensor]) -> Iterator[tuple[int, Any]]:
    """Each node of a graph that was just made of these losses, by id, with torch's own."""
    found: dict[int, Any] = {}
    for root, loss in zip(graph.roots, losses, strict=True):
        if root.node is not None and loss.grad_fn is not None:
            stack = [(root.node, loss.grad_fn)]
            while stack:
                id, node = stack.pop()
                if id not in found:
                    found[id] = node
                    for (target, _), (fn, _) in zip(graph.targets[id], node.next_functions, strict=True):
                        if fn is not None:
                            stack.append((target, fn))
    yield from found.items()


def renamed(graph: Graph, losses: Sequence[Tensor], names: Mapping[str, Tensor]) -> dict[int, str]:
    """The names of leaf tensors, by their ids, where ``names`` has any."""
    known = {id(tensor): name for name, tensor in names.items()}
    found = {}
    for node, fn in pairs(graph, losses):
        if node in graph.leaf_tensors and (name := known.get(id(getattr(fn, "variable", None)))):
            found[graph.leaf_tensors[node]] = name
    return found


def attributes(graph: Graph, losses: Sequence[Tensor], width: int) -> dict[int, tuple[str, ...]]:
    """What nodes saved besides tensors (``dim: 1``), at most ``width`` characters of each value."""
    found = {}
    for node, fn in pairs(graph, losses):
        lines = tuple(_attributes(fn, width))
        if lines:
            found[node] = lines
    return found


def _attributes(fn: Any, width: int) -> Iterator[str]:
    for name in dir(fn):
        if name.startswith("_saved_"):
            try:
                value = getattr(fn, name)
            except RuntimeError:  # its buffers were freed
                continue
            if not isinstance(value, Tensor) and not (isinstance(value, tuple) and any(map(_is_tensor, value))):
                yield f"{name.removeprefix('_saved_')}: {str(value)[:width]}"


def _is_tensor(value: object) -> bool:
    return isinstance(value, Tensor)
