"""Watch the torch functions that the program calls: what went in, what came out, what left torch and returned."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointFunction

from ..events import Call, InPlaceWrite, RequiresGradSet, Write
from ..location import Location
from . import _torch
from .contexts import ContextWatch
from .functions import Kind, classify, name_of
from .gradients import GradientWatch
from .provenance import Provenance, TracedArray
from .recording import Recording, flatten
from .second import SecondOrder
from .writes import WriteWatch

_FLOATS = (float, np.floating)  # a tuple, which isinstance takes in half the time of a union
_COPIES = {"clone", "to", "float", "double", "half", "bfloat16", "cpu", "cuda", "tensor", "as_tensor", "from_numpy"}


class CallWatch(TorchFunctionMode):
    """A mode that sees each torch function called from Python code."""

    def __init__(
        self, recording: Recording, writes: WriteWatch, gradients: GradientWatch, *, arrays: bool = True
    ) -> None:
        super().__init__()
        self._seen = recording
        self._writes = writes
        self._gradients = gradients
        self._second = SecondOrder(recording)
        self._provenance = Provenance(writes.array_written, arrays=arrays)
        self._buffers: set[int] = set()  # tensors on the memory of arrays that the program may fill at any time
        self._kinds: dict[Any, Kind] = {}
        self._mode_at: Location | None = None  # where gradients were last switched off
        self._is_aside = False  # whether torch did that, to update buffers of its own, which carry no history on

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._seen.asleep:
            return func(*args, **kwargs)
        kind = self._kinds.get(func)
        if kind is None:
            kind = self._kinds[func] = classify(func)
        if kind is Kind.SKIP or self._seen.off:
            return func(*args, **kwargs)
        if self._seen.busy:
            return (
                self._in_backward(func, kind, args, kwargs) if self._seen.in_custom_backward else func(*args, **kwargs)
            )
        if kind is Kind.SET_MODE:
            return self._set_mode(func, *args)
        if kind is Kind.SET_REQUIRES_GRAD:
            return self._switch(func, args, kwargs)
        return self._watch(func, kind, name_of(func), args, kwargs)

    def _in_backward(self, function: Any, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The Python code of a custom Function's backward calls this.

        Of its calls, only writes are recorded, and under ``create_graph`` what has no history.
        """
        before = _torch.version(args[0]) if args and isinstance(args[0], Tensor) else None
        result = function(*args, **kwargs)
        if self._seen.creates_graph:
            with self._seen.guard():
                self._second.called(name_of(function), kind, args, kwargs, result)
        if before is not None and _torch.version(args[0]) != before:
            with self._seen.guard():
                self._writes.wrote_in_backward(name_of(function), args[0])
        return result

    def _set_mode(self, function: Any, enabled: bool) -> None:
        with self._seen.guard():
            if torch.is_grad_enabled() and not enabled:
                self._mode_at = self._seen.frames.switch(sys._getframe(1)) or self._mode_at
                self._is_aside = self._seen.frames.is_switched_by_torch(sys._getframe(2))
        function(enabled)

    def watched_apply(self) -> Any:
        """``Function.apply``, which no mode sees: it is a class method, so that it is wrapped by class."""
        original = torch.autograd.Function.__dict__["apply"]
        watch, contexts = self._watch, ContextWatch(self._seen)

        @functools.wraps(original.__get__(None, torch.autograd.Function))  # a C method since 2.14
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            if self._seen.busy or self._seen.off:
                return original.__get__(None, cls)(*args, **kwargs)
            given, since = contexts.versions(args), self._seen.now
            mode_at = self._mode_at
            if cls is CheckpointFunction and torch.is_grad_enabled():
                # torch switches gradients off for every forward: what that one runs is the program's own network
                with self._seen.guard():
                    self._mode_at = self._seen.frames.here(sys._getframe(1))
            try:
                result = watch(original.__get__(None, cls), Kind.CALL, cls.__name__, args, kwargs)
            finally:
                self._mode_at = mode_at
            if given:
                contexts.applied(cls, given, result, since)
            return result

        return classmethod(apply)

    def _switch(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """``requires_grad`` is set; a loop over parameters is one event."""
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            with self._seen.guard():
                self._seen.refused("requires_grad", args[:1], error, sys._getframe(2))
            raise
        with self._seen.guard():
            locations, _ = self._seen.frames.trail(sys._getframe(2))
            if locations:
                location, *callers = locations
                number, value = self._seen.tensors.number(args[0], location), args[0].requires_grad
                self._seen.tensors.rows[number].requires_grad |= value
                last = self._seen.events[-1] if self._seen.events else None
                if not isinstance(last, RequiresGradSet) or not _is_same_loop(last, location, callers, value):
                    time, step = self._seen.tick(), self._seen.step
                    last = RequiresGradSet(time, step, location, value, (), callers=tuple(callers))
                    self._seen.events.append(last)
                self._seen.switched.setdefault(last.time, []).append(number)
        return result

    def _watch(self, function: Any, kind: Kind, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if _torch.is_symbolic():
            return function(*args, **kwargs)
        first = _torch.next_sequence()
        inputs: list[Tensor] = []
        versions: list[int] | None = None
        with self._seen.guard():
            flatten(args, inputs)
            if kwargs:
                flatten(kwargs.values(), inputs)
            needs = tuple([each.requires_grad for each in inputs])
            versions = [_torch.version(each) for each in inputs]
            if kind is Kind.SET_DATA and inputs and (moved := self._seen.tensors.known(inputs[0])) is not None:
                self._seen.tensors.locate(moved, inputs[0])  # what was saved of it stays behind, on the same counter
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            with self._seen.guard():
                self._seen.refused(op, inputs, error, sys._getframe(1))
            raise
        with self._seen.guard():
            last = None
            if first == _torch.next_sequence():
                location = self._seen.frames.here(sys._getframe(1))
            else:
                locations, call = self._seen.frames.trail(sys._getframe(1))
                location = locations[0] if locations else None
                if location is not None:
                    last = self._seen.note_nodes(first, locations, call)
            if location is not None and versions is not None:
                result = self._record(kind, op, args, kwargs, inputs, needs, versions, result, location, last)
        return result

    def _record(
        self,
        kind: Kind,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        inputs: list[Tensor],
        needs: tuple[bool, ...],
        versions: list[int],
        result: Any,
        location: Location,
        node: int | None,
    ) -> Any:
        if kind is Kind.READ_GRAD:
            told = self._writes.is_direct() or (result is not None and not self._writes.is_of_torch())
            self._gradients.read(inputs[0], result, location, told=told)
            return result
        if kind is Kind.SET_GRAD:
            self._gradients.set(inputs[0], args[1] if len(args) > 1 else None, location)
            return result
        first_seen = location if op.endswith("_") else None  # where ``torch.nn.init`` fills it, a parameter is made
        known = tuple([self._input(each, location, first_seen) for each in inputs])
        certain = self._provenance.of_arrays((args, kwargs)) if kind is Kind.ENTER else frozenset()
        likely = self._provenance.of_numbers(args) - certain
        written, numbers = [], []
        for tensor, number, before in zip(inputs, known, versions, strict=True):
            if _torch.version(tensor) != before:
                written.append(tensor)
                numbers.append(number)
                self._writes.wrote(
                    op, tensor, number, before, location, args[1] if op == "__setitem__" and tensor is args[0] else None
                )
        if written:
            self._gradients.wrote(op, args, numbers, location)
        if kind is Kind.BATCH_NORM:
            self._writes.normalized(args, kwargs, location, saves=node is not None)
        if kind is Kind.SET_DATA:
            row = self._seen.tensors.locate(known[0], inputs[0], own_counter=True)  # it keeps the one it has
            if self._writes.is_direct() or inputs[0].requires_grad:
                write = Write(known[0], row.storage, row.counter, row.version, row.version, hidden=True, moved=True)
                write = replace(write, source=known[1] if len(known) > 1 else None)
                self._seen.events.append(InPlaceWrite(self._seen.tick(), self._seen.step, location, f"{op} =", write))
            return result
        outputs: list[Tensor] = []
        if op == "__dlpack__":
            self._provenance.exported(inputs[0], known[0])
        elif kind is Kind.LEAVE:
            result = self._provenance.left(result, known[0])
            if isinstance(result, TracedArray):
                row = self._seen.tensors.locate(known[0], inputs[0])
                memory = (_torch.storage_start(inputs[0]), inputs[0].untyped_storage().nbytes())
                self._writes.memory[known[0]] = (*memory, row.storage, row.counter)
        elif op == "__iter__":
            outputs += (rows := tuple(result))
            result = iter(rows)
        else:
            flatten((result,), outputs)
            outputs += [each for each in written if not any(each is output for output in outputs)]
        made = tuple([self._seen.tensors.number(each, location) for each in outputs])
        if known:
            self._gradients.called(op, known, made)
        if kind is Kind.DATA and outputs:
            self._seen.tensors.locate(known[0], inputs[0])
            self._seen.tensors.locate(made[0], outputs[0], own_counter=True)
        elif certain and outputs:
            self._seen.tensors.locate(made[0], outputs[0], own_counter=True)
        elif op == "detach" and outputs and self._seen.tensors.rows[known[0]].counter >= 0:
            self._seen.tensors.rows[made[0]].counter = self._seen.tensors.rows[known[0]].counter
        if op == "empty" and outputs and not outputs[0].numel():  # `torch.load` puts what it has read into such
            self._buffers.add(made[0])
        if op in _COPIES and outputs and not outputs[0].requires_grad:
            self._seen.tensors.made(made[0], outputs[0])
        entered = kind is Kind.ENTER
        gives = []
        for number, each in zip(made, outputs, strict=True):
            if requires_grad := each.requires_grad:
                row = self._seen.tensors.rows[number]
                row.requires_grad = True
                if node is not None:
                    row.sequence = node
            gives.append(requires_grad and (not entered or each.grad_fn is not None))
        mode = _grad_mode()
        if (known or certain or likely) and not (self._is_aside and mode == "no_grad"):
            self._seen.calls.append(
                Call(
                    self._seen.tick(),
                    op,
                    location,
                    known,
                    made,
                    needs,
                    tuple(gives),
                    leaves=kind is Kind.LEAVE,
                    enters=entered,
                    grad_mode=mode,
                    returned=(*sorted(certain), *sorted(likely)),
                    likely=bool(likely),
                    numbers=_floats((result,) if kind is Kind.LEAVE else args),
                    mode_at=self._mode_at if mode == "no_grad" else None,
                )
            )
        return result

    def _input(self, tensor: Tensor, location: Location, made_at: Location | None) -> int:
        """The number of a tensor that goes into a call; its origin is looked for if it was never seen before."""
        number = self._seen.tensors.known(tensor)
        if number is not None and number not in self._buffers:
            return number
        number = self._seen.number(tensor, location, made_at)
        fresh = _torch.is_leaf(tensor) and not isinstance(tensor, torch.nn.Parameter)
        with _torch.without_modes():
            sources = self._provenance.of_values(tensor) if fresh else frozenset()
        if sources:
            self._came_in("Tensor", location, number, sources, likely=True)
        return number

    def _came_in(
        self, op: str, location: Location, number: int, sources: frozenset[int], *, likely: bool = False
    ) -> None:
        """A tensor was made of values that had left torch."""
        self._seen.calls.append(
            Call(
                self._seen.tick(),
                op,
                location,
                inputs=(),
                outputs=(number,),
                gives_grad=(False,),
                enters=True,
                returned=tuple(sorted(sources)),
                likely=likely,
            )
        )

    def pickled(self, original: Any, tensor: Tensor, *args: Any) -> Any:
        """``torch.save`` and ``pickle``, which no mode sees for a plain tensor: it may be read again."""
        result = original(tensor, *args)
        if not self._seen.off and not self._seen.busy and not isinstance(tensor, torch.nn.Parameter):
            with self._seen.guard():
                location = self._seen.frames.here(sys._getframe(2))
                number = self._seen.tensors.known(tensor)
                if location is not None and number is not None:
                    self._provenance.exported(tensor, number)
                    needs = (tensor.requires_grad,)
                    self._seen.calls.append(
                        Call(self._seen.tick(), "save", location, (number,), (), needs, leaves=True)
                    )
        return result

    def from_numpy(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.from_numpy``, which no mode sees."""
        result = original(*args, **kwargs)
        if not self._seen.off and not self._seen.busy:
            with self._seen.guard():
                location = self._seen.frames.here(sys._getframe(2))
                sources = self._provenance.of_arrays(args)
                if location is not None and sources:
                    number = self._seen.tensors.number(result, location)
                    self._seen.tensors.locate(
                        number, result, own_counter=True
                    )  # the memory is shared, the counter is not
                    self._came_in("from_numpy", location, number, sources)
                elif location is not None:
                    self._buffers.add(self._seen.tensors.number(result, location))
        return result


def _grad_mode() -> str:
    if torch.is_inference_mode_enabled():
        return "inference"
    return "enabled" if torch.is_grad_enabled() else "no_grad"


def _floats(args: tuple[Any, ...]) -> tuple[float, ...]:
    return tuple([float(each) for each in args if isinstance(each, _FLOATS)])


def _is_same_loop(last: RequiresGradSet, location: Location, callers: list[Location], value: bool) -> bool:
    """Whether this is one more turn of the loop over parameters that the last event is about."""
    return (last.location, last.value, last.callers) == (location, value, tuple(callers))
