"""Watch the engine's entry: each backward and grad call, just before it runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from torch import Tensor

from ..events import Backward, Call
from ..graph import Root
from ..trace import Fade
from . import _torch
from .fading import fades
from .finite import FiniteWatch
from .growth import GrowthWatch
from .names import receiver
from .optimizers import OptimizerWatch
from .recording import Recording


class BackwardWatch:
    """Turns backwards into events."""

    def __init__(
        self,
        recording: Recording,
        optimizers: OptimizerWatch,
        growth: GrowthWatch,
        finite: FiniteWatch,
        *,
        fades: bool = False,
    ) -> None:
        self.fades: list[Fade] = []
        self._follows = fades
        self._seen = recording
        self._finite = finite
        self._optimizers = optimizers
        self._growth = growth

    def run(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.autograd``'s one way into the engine."""
        if not self._seen.is_here:
            self._seen.unseen["the calls of threads other than the main one"] = None
            return original(tensors, *args, **kwargs)
        if self._seen.asleep or self._seen.off:
            self._note(args, kwargs)
            return original(tensors, *args, **kwargs)
        event: Backward | None = None
        first = 0
        self._note(args, kwargs)
        with self._seen.guard():
            self._finite.before_walk()
            event = self._backward(tensors, args, kwargs)
            self._finite.before_backward(_as_tuple(tensors), create_graph=event is None or event.create_graph)
            if event is not None and (self._follows or self._optimizers.is_fading()):
                for tensor in _as_tuple(tensors):
                    self.fades += fades(tensor, self._seen.walk.walk) if isinstance(tensor, Tensor) else ()
            first = _torch.next_sequence()
        position = len(self._seen.events)
        error: BaseException | None = None
        if event is not None:
            self._seen.events.append(event)
        self._optimizers.rejoin()
        self._seen.busy += 1
        result: Any = None
        try:
            with self._custom_code_watched(creates_graph=event is not None and event.create_graph):
                result = original(tensors, *args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._seen.busy -= 1
            with self._seen.guard():
                self._finite.after_backward()
                if event is not None:
                    if error is not None:
                        self._seen.events[position] = _with_error(event, error)
                    last = self._seen.note_nodes(first, (event.location,))
                    if not event.accumulates and isinstance(result, tuple):
                        self._derived(event, result, last)
                    if error is None and (event.retain_graph or event.create_graph):
                        self._seen.note_ends(_as_tuple(tensors))
                    self._seen.tensors.prune(None if event is None else event.time)
                    if event is not None and event.accumulates and error is None:
                        self._growth.backward_ended(sys._getframe(1))
            del error
        return result

    @contextlib.contextmanager
    def _custom_code_watched(self, *, creates_graph: bool) -> Iterator[None]:
        """``Tensor.backward`` runs outside of our mode: the backward of custom Functions is to write inside of it."""
        if not self._seen.walk.custom:
            yield
            return
        mode = self._optimizers.seat.mode
        inner = _torch.pop_mode_if_innermost(mode)
        _torch.push_mode(mode)
        self._seen.in_custom_backward = True
        self._seen.creates_graph = creates_graph
        try:
            yield
        finally:
            self._seen.in_custom_backward = self._seen.creates_graph = False
            if not inner:
                _torch.pop_mode_if_innermost(mode)

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Tell the pattern, before the backward, as the next step may begin with it."""
        with self._seen.guard():
            where = self._seen.frames.here(sys._getframe(3))
            self._seen.backward_comes(("backward", id(where), args[1:3], kwargs.get("accumulate_grad")))

    def _derived(self, event: Backward, result: tuple[Any, ...], node: int | None) -> None:
        """``autograd.grad`` gave tensors: they come from its outputs, with a history only under ``create_graph``."""
        outputs = [each for each in result if isinstance(each, Tensor)]
        inputs = tuple(root.tensor for root in event.roots if root.tensor >= 0)
        made = tuple(self._seen.tensors.number(each, event.location) for each in outputs)
        gives = tuple(each.requires_grad for each in outputs)
        needs = (True,) * len(inputs)
        for number, has_history in zip(made, gives, strict=True):
            self._seen.tensors.rows[number].sequence = node if has_history else None
        self._seen.calls.append(Call(self._seen.tick(), "grad", event.location, inputs, made, needs, gives))

    def _backward(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Backward | None:
        names = ("grad_tensors", "retain_graph", "create_graph", "inputs", "allow_unused")
        options = dict(zip(names, args, strict=False)) | kwargs
        frame = self._seen.frames.user(sys._getframe(3))
        if frame is None:
            self._seen.unseen["a backward called from a library"] = None
            return None
        stack = list(self._seen.frames.stack(frame))
        location = self._seen.frames.location(frame)
        accumulates = bool(options.get("accumulate_grad"))
        self._optimizers.look(stack)
        roots = tuple(self._root(each, stack, accumulates) for each in _as_tuple(tensors))
        inputs = options.get("inputs")
        wanted = None if not inputs and accumulates else tuple(self._input_node(each) for each in _as_tuple(inputs))
        given = [each for each in _as_tuple(options.get("grad_tensors")) if isinstance(each, Tensor)]
        vectors = tuple(self._named(each, stack) for each in given if each.requires_grad)
        stack.clear()
        return Backward(
            self._seen.tick(),
            self._seen.step,
            location,
            roots,
            retain_graph=bool(options.get("retain_graph")),
            create_graph=bool(options.get("create_graph")),
            inputs=None if wanted is None else tuple(each for each in wanted if each is not None),
            accumulates=accumulates,
            vectors=vectors,
        )

    def _named(self, tensor: Tensor, stack: list[FrameType]) -> int:
        number = self._seen.tensors.number(tensor)
        row = self._seen.tensors.rows[number]
        row.name = row.name or self._seen.names.variable(tensor, stack)
        return number

    def _root(self, tensor: Any, stack: list[FrameType], accumulates: bool) -> Root:
        if not isinstance(tensor, Tensor):  # a GradientEdge
            return Root("a gradient edge", self._seen.walk.walk(tensor.node), -1, tensor.output_nr)
        name = (
            self._seen.names.variable(tensor, stack)
            or receiver(stack[0], "backward" if accumulates else "grad")
            or "loss"
        )
        root = self._seen.walk.root(tensor, name)
        row = self._seen.tensors.rows[root.tensor]
        row.name = row.name or name
        return root

    def _input_node(self, tensor: Any) -> int | None:
        if isinstance(tensor, Tensor):
            return self._seen.walk.root(tensor, "").node
        return self._seen.walk.walk(tensor.node)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) and not hasattr(value, "node") else (value,)


def _with_error(event: Backward, error: BaseException) -> Backward:
    return replace(event, error=f"{type(error).__name__}: {error}")
