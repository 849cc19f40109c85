"""Where the gradient of a loss becomes zero or stops being finite: followed from node to node, outside of the engine.

A node that is called applies its formula to what it is given and does nothing else: no hook fires, no buffer is freed,
no ``grad`` is written. Nodes whose formula would run code of the program are not called (custom Functions, saved-tensor
hooks, the slices of in-place writes), nor are those behind them: what becomes of the gradient there is unknown. What
the hooks of tensors do to a gradient is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from ..trace import Fade
from . import _torch

_Edge = tuple[Any, int]
_ZERO, _LIVE, _BAD, _UNKNOWN = "zero", "live", "not finite", "unknown"


def fades(loss: Tensor, ids: Callable[[Any], int], end: tuple[int, int] | None = None) -> Iterator[Fade]:
    """Where the gradient of this loss, one number, fades on its way to an end, or to each of the leaves.

    ``ids`` gives the id of a node; an end is such an id, and which output of that node it is.
    """
    if loss.numel() != 1 or not loss.requires_grad or _torch.is_dispatched_in_python(loss):
        return
    if _torch.is_profiling() or _torch.is_symbolic() or _torch.is_in_backward():
        return
    start = get_gradient_edge(loss)
    with torch.no_grad(), _torch.without_autocast():
        flow = _Flow((start.node, start.output_nr), loss)
    for edge in flow.state:
        is_wanted = edge[0].name() == _LEAF if end is None else edge[1] == end[1] and ids(edge[0]) == end[0]
        for node, kind in flow.faded(edge) if is_wanted else ():
            alone = kind == _ZERO and _torch.is_softmax_of_one(node)
            yield Fade(ids(start.node), ids(edge[0]), edge[1], ids(node), "alone" if alone else kind)


_LEAF = "torch::autograd::AccumulateGrad"


class _Flow:
    """What became of the gradient on each edge behind a loss; no gradient is kept."""

    def __init__(self, start: _Edge, loss: Tensor) -> None:
        self.order = _in_order(start[0])
        self.into: dict[Any, list[tuple[_Edge, Any, str]]] = {}  # by node: edge, where it comes from, what is on it
        self.state: dict[_Edge, str] = {start: _LIVE}
        grads: dict[_Edge, Tensor | None] = {start: torch.ones_like(loss)}
        for node in self.order:
            came = [grads.pop((node, output), None) for output in range(len(node._input_metadata))]
            states = [self.state.setdefault((node, output), _ZERO) for output in range(len(came))]
            given = None if _UNKNOWN in states else _called(node, came)
            for position, edge in enumerate(node.next_functions):
                if edge[0] is not None:
                    self._arrive(node, edge, None if given is None else _fitted(given[position], edge), grads)

    def _arrive(self, source: Any, edge: _Edge, grad: Tensor | None, grads: dict[_Edge, Tensor | None]) -> None:
        state = _UNKNOWN if grad is None else _state(grad)
        self.into.setdefault(edge[0], []).append((edge, source, state))
        if edge not in self.state:
            self.state[edge], grads[edge] = state, grad
        elif _UNKNOWN in (state, self.state[edge]):
            self.state[edge], grads[edge] = _UNKNOWN, None
        else:
            grads[edge] = total = _sum(grads[edge], grad)
            self.state[edge] = _UNKNOWN if total is None else _state(total)

    def faded(self, end: _Edge) -> Iterator[tuple[Any, str]]:
        """The nodes at which the gradient on its way to this end fades, and how; none where it arrives in good health.

        Where it is zero because its parts cancel, that is the node at which they meet.
        """
        if self.state[end] == _BAD:
            yield from self._turning(end, _BAD)
        elif self.state[end] != _LIVE and not self._reached_lively(end):
            yield from self._turning(end, _ZERO)

    def _turning(self, end: _Edge, state: str) -> Iterator[tuple[Any, str]]:
        found: dict[Any, str] = {}
        for edge, sources in self._ways(end):
            for source, on_it in sources:
                if on_it == state and self._health(source) != state:
                    found.setdefault(source, state)
            if state == _ZERO == self.state[edge] and any(on_it != _ZERO for _, on_it in sources):
                found.setdefault(edge[0], "cancelled")
        for node in self.order:
            if node in found:
                yield node, found[node]

    def _ways(self, end: _Edge) -> Iterator[tuple[_Edge, list[tuple[Any, str]]]]:
        """The edges on all ways from the loss to an end, with the nodes that lead to each and what they give."""
        seen, waiting = {end}, [end]
        while waiting:
            edge = waiting.pop()
            sources = [(source, state) for into, source, state in self.into.get(edge[0], ()) if into == edge]
            yield edge, sources
            for source, _ in sources:
                for output in range(len(source._input_metadata)):
                    if (source, output) in self.state and (source, output) not in seen:
                        seen.add((source, output))
                        waiting.append((source, output))

    def _reached_lively(self, end: _Edge) -> bool:
        """Whether some way leads to an end on which the gradient is nowhere known to be zero."""
        seen, waiting = {end}, [end]
        while waiting:
            edge = waiting.pop()
            if self.state[edge] == _ZERO:
                continue
            if edge[0] is self.order[0]:
                return True
            for into, source, state in self.into.get(edge[0], ()):
                if into == edge and state != _ZERO:
                    more = [(source, output) for output in range(len(source._input_metadata))]
                    waiting += [each for each in more if each not in seen and each in self.state]
                    seen.update(more)
        return False

    def _health(self, node: Any) -> str:
        states = {self.state.get((node, output), _ZERO) for output in range(len(node._input_metadata))}
        return next(state for state in (_BAD, _UNKNOWN, _LIVE, _ZERO) if state in states)


def _in_order(start: Any) -> list[Any]:
    """The nodes behind a node, each after all that lead to it."""
    waiting_for: dict[Any, int] = {start: 0}
    stack = [start]
    while stack:
        for target, _ in stack.pop().next_functions:
            if target is not None:
                if target not in waiting_for:
                    waiting_for[target] = 0
                    stack.append(target)
                waiting_for[target] += 1
    order = [start]
    for node in order:
        for target, _ in node.next_functions:
            if target is not None:
                waiting_for[target] -= 1
                if not waiting_for[target]:
                    order.append(target)
    return order


def _called(node: Any, grads: list[Tensor | None]) -> tuple[Tensor | None, ...] | None:
    """What a node makes of these gradients, None where it is not to be called, or refuses (its buffers are freed)."""
    if node.name() == _LEAF or not _torch.is_plain_formula(node):
        return None
    try:
        given = node(*grads)
    except (RuntimeError, NotImplementedError):
        return None
    return given if isinstance(given, tuple) else (given,)


def _fitted(grad: Tensor | None, edge: _Edge) -> Tensor | None:
    """A gradient as the engine passes it on: in the shape, dtype and place of the tensor that it is for."""
    meta = edge[0]._input_metadata[edge[1]]
    try:
        shape = tuple(meta.shape)
        if grad is None:
            return torch.zeros(shape, dtype=meta.dtype, device=meta.device)
        if tuple(grad.shape) != shape:
            grad = grad.sum_to_size(shape)
        return grad.to(device=meta.device, dtype=meta.dtype)
    except (RuntimeError, NotImplementedError):  # nested tensors have no sizes
        return None


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    try:
        return None if one is None or other is None else one + other
    except (RuntimeError, NotImplementedError, TypeError):  # a sparse one and another
        return None


def _state(grad: Tensor) -> str:
    if grad.layout != torch.strided:
        return _UNKNOWN
    try:
        largest = grad.abs().amax().item() if grad.numel() else 0.0
    except (RuntimeError, NotImplementedError):  # as for dtypes of eight bits
        return _UNKNOWN
    if largest == 0:
        return _ZERO
    return _LIVE if largest < float("inf") else _BAD
