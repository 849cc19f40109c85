"""Watch a program: its torch calls, backwards, steps and writes become a Trace.

NOTE: how recording works. A TorchFunctionMode sees the calls that Python code makes on tensors; a
wrapper around the engine's single Python entry sees every backward; torch's global optimizer hooks
see the steps. The sequence number before and after a call tells which nodes it made, so that no node
is held. Tensors are known by weak references. Graphs are walked just before each backward, and the
walk stops at nodes that an earlier walk met. Saved-tensor hooks are never installed: even identity
hooks silence the engine's own check of in-place writes. All is undone when recording ends.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import optimizer as optim
from torch.overrides import TorchFunctionMode

from ..events import Backward, Call, Event, GradRead, InPlaceWrite, OptimizerStep, Refused, Write, ZeroGrad
from ..graph import Root
from ..location import Location
from ..trace import OptimizerRef, Outcome, Trace
from . import _torch
from .compiled import leave_alone
from .frames import Frames
from .functions import Kind, classify, name_of
from .names import Names, receiver
from .provenance import Provenance, TracedArray
from .sources import sources_of
from .tensors import Tensors
from .walk import Walk

_MOST_RECORDED = 2_000_000  # calls, events and nodes: about 1 GB; nothing is recorded beyond
_COPIES = {"clone", "to", "float", "double", "half", "bfloat16", "cpu", "cuda", "tensor", "as_tensor", "from_numpy"}
_FEW_LOOKS, _MOST_LOOKS = 8, 64  # how often the user's variables are searched for names
_OURS = str(Path(__file__).parent)
_CALL_IMPL = nn.Module._call_impl.__code__


class _Watched:
    """An optimizer that was met."""

    def __init__(self, id: int, optimizer: Any, location: Location | None) -> None:
        self.id, self.ref, self.location = id, weakref.ref(optimizer), location
        self.kind = type(optimizer).__name__
        self.name: str | None = None
        self.groups: tuple[tuple[int, ...], ...] = ()
        self.held: list[int] = []


@dataclass(slots=True)
class _OpenStep:
    """A step that has begun; ``left`` tells that the mode was taken off for it."""

    optimizer: Any
    versions: list[tuple[Tensor, int]]
    graded: tuple[int, ...]
    frozen: tuple[int, ...]
    left: bool = False


class Recorder:
    """A context manager that watches this process; ``trace()`` then gives what it saw."""

    def __init__(self, root: str | None = None) -> None:
        self.frames = Frames(root)
        self.tensors = Tensors()
        self.names = Names(self.tensors)
        self.walk = Walk(self.tensors, found=self._found)
        self.provenance = Provenance(self._array_written)
        self.events: list[Event] = []
        self.calls: list[Call] = []
        self.unseen: dict[str, None] = {}
        self.failure: str | None = None
        self._time = 0
        self._step = 0
        self._busy = 0  # inside library code whose calls are not the user's: an optimizer's step, a backward
        self._made: dict[int, tuple[Location, int, int, tuple[Location, ...]]] = {}
        self._places: dict[int, Location] = {}
        self._callers: dict[int, tuple[Location, ...]] = {}
        self._modules: dict[int, str] = {}
        self._times: dict[int, int] = {}
        self._optimizers: dict[int, _Watched] = {}
        self._memory: dict[
            int, tuple[int, int, int, int]
        ] = {}  # of tensors seen as arrays: start, size, storage, counter
        self._grads: dict[int, int] = {}  # by tensor that was read as a grad: whose it is
        self._zeroing = False
        self._looks = 0
        self._full = False
        self._open: list[_OpenStep] = []
        self._kinds: dict[Any, Kind] = {}
        self._mode = _Mode(self)
        self._undo = contextlib.ExitStack()
        self._patches: list[tuple[Any, str, Any, Any]] = []
        self._aside = False
        self._thread = threading.get_ident()
        self._process = os.getpid()

    # Installing and removing

    def __enter__(self) -> Recorder:
        undo = self._undo
        undo.callback(optim.register_optimizer_step_pre_hook(self._before_step).remove)
        undo.callback(optim.register_optimizer_step_post_hook(self._after_step).remove)
        self._patch(torch.autograd, "_engine_run_backward", self._run_backward)
        self._patch(torch.optim.Optimizer, "zero_grad", self._zero_grad)
        self._patch(nn.Module, "zero_grad", self._zero_grad)
        self._patch(torch.optim.Optimizer, "__init__", self._make_optimizer)
        self._patch(torch, "from_numpy", self._from_numpy)
        self._patch_apply()
        leave_alone(self._set_aside, undo)
        _torch.push_mode(self._mode)
        undo.callback(_torch.pop_mode_if_innermost, self._mode)
        return self

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def _patch(self, owner: Any, name: str, replacement: Callable[..., Any]) -> None:
        """Put ``replacement(original, *args, **kwargs)`` in the place of a function, until recording ends."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        self._install(owner, name, original, watched)

    def _install(self, owner: Any, name: str, original: Any, watched: Any) -> None:
        setattr(owner, name, watched)
        self._patches.append((owner, name, original, watched))
        self._undo.callback(setattr, owner, name, original)

    def _set_aside(self) -> Callable[[], None]:
        """Compiled code is about to run: take all off until the function that is returned is called."""
        if self._aside or self._off:
            return lambda: None
        self._aside = True
        self._busy += 1
        self.unseen["what runs inside torch.compile"] = None
        left = _torch.pop_mode_if_innermost(self._mode)
        for owner, name, original, _ in self._patches:
            setattr(owner, name, original)

        def back() -> None:
            for owner, name, _, watched in self._patches:
                setattr(owner, name, watched)
            if left:
                _torch.push_mode(self._mode)
            self._busy -= 1
            self._aside = False

        return back

    def _patch_apply(self) -> None:
        """Watch ``Function.apply``, which no mode sees: it is a class method, so that it is wrapped by class."""
        original = torch.autograd.Function.__dict__["apply"]
        recorder = self

        @functools.wraps(original.__get__(None, torch.autograd.Function))  # a C method since 2.14
        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            function = original.__get__(None, cls)
            return recorder._watch(function, Kind.CALL, cls.__name__, args, kwargs)

        self._install(torch.autograd.Function, "apply", original, classmethod(apply))

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Our own failures end the recording, never the user's program, whose modes and subclasses do not see us."""
        try:
            with _torch.without_modes():
                yield
        except Exception:
            if self.failure is None:
                self.failure = traceback.format_exc()
                self.unseen["what came after an internal error of graphscope"] = None

    @property
    def _off(self) -> bool:
        elsewhere = threading.get_ident() != self._thread or os.getpid() != self._process
        return elsewhere or self._full or self.failure is not None

    def _tick(self) -> int:
        self._time += 1
        if not self._time % 1024:
            self.tensors.prune()
            if self._time + len(self.walk.ops) > _MOST_RECORDED:
                self._full = True
                self.unseen[f"what came after step {self._step}: the recording had reached its limit"] = None
        return self._time - 1

    # Calls of torch functions

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A torch function is called: call it, and record what matters."""
        kind = self._kinds.get(function)
        if kind is None:
            kind = self._kinds[function] = classify(function)
        if kind is Kind.SKIP or self._busy or self._off:
            return function(*args, **kwargs)
        return self._watch(function, kind, name_of(function), args, kwargs)

    def _watch(self, function: Any, kind: Kind, op: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._busy or self._off:
            return function(*args, **kwargs)
        first = _torch.next_sequence()
        inputs: list[Tensor] = []
        with self._guard():
            _flatten(args, inputs)
            if kwargs:
                _flatten(kwargs.values(), inputs)
            needs = tuple([each.requires_grad for each in inputs])
            versions = [_torch.version(each) for each in inputs]
            if kind is Kind.SET_DATA and inputs and (moved := self.tensors.known(inputs[0])) is not None:
                self.tensors.locate(moved, inputs[0])  # what was saved of it stays behind, on the same counter
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            with self._guard():
                self._refused(op, inputs, error)
            raise
        with self._guard():
            frame = sys._getframe(1)
            location = self.frames.here(frame)
            if location is not None:
                last = self._note_nodes(first, location, frame)
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
            if self.frames.is_user(sys._getframe(4).f_code):
                number = self.tensors.number(inputs[0])
                self.events.append(GradRead(self._tick(), self._step, location, number, result is not None))
                if result is not None:
                    self._grads[self.tensors.number(result)] = number
            return result
        if kind is Kind.SET_GRAD:
            number = self.tensors.number(inputs[0])
            if len(args) < 2 or args[1] is None:
                self.events.append(ZeroGrad(self._tick(), self._step, location, (number,)))
            return result
        first_seen = location if op.endswith("_") else None  # where ``torch.nn.init`` fills it, a parameter is made
        known = tuple([self._input(each, location, first_seen) for each in inputs])
        certain = self.provenance.of_arrays((args, kwargs)) if kind is Kind.ENTER else frozenset()
        likely = self.provenance.of_numbers(args) - certain
        written = []
        for tensor, number, before in zip(inputs, known, versions, strict=True):
            if _torch.version(tensor) != before:
                written.append(tensor)
                self._wrote(
                    op, tensor, number, before, location, args[1] if op == "__setitem__" and tensor is args[0] else None
                )
        if kind is Kind.SET_DATA:
            row = self.tensors.locate(known[0], inputs[0], own_counter=True)  # it keeps the one it has
            if self._is_direct() or inputs[0].requires_grad:
                write = Write(known[0], row.storage, row.counter, row.version, row.version, hidden=True, moved=True)
                self.events.append(InPlaceWrite(self._tick(), self._step, location, f"{op} =", write))
            return result
        outputs: list[Tensor] = []
        if kind is Kind.LEAVE:
            result = self.provenance.left(result, known[0])
            if isinstance(result, TracedArray):
                row = self.tensors.locate(known[0], inputs[0])
                memory = (_torch.storage_start(inputs[0]), inputs[0].untyped_storage().nbytes())
                self._memory[known[0]] = (*memory, row.storage, row.counter)
        else:
            _flatten((result,), outputs)
            outputs += [each for each in written if not any(each is output for output in outputs)]
        made = tuple([self.tensors.number(each, location) for each in outputs])
        if kind is Kind.DATA and outputs:
            self.tensors.locate(known[0], inputs[0])
            self.tensors.locate(made[0], outputs[0], own_counter=True)
        elif certain and outputs:
            self.tensors.locate(made[0], outputs[0], own_counter=True)
        elif op == "detach" and outputs and self.tensors.rows[known[0]].counter >= 0:
            self.tensors.rows[made[0]].counter = self.tensors.rows[known[0]].counter
        if op in _COPIES and outputs and not outputs[0].requires_grad:
            self.tensors.made(made[0], outputs[0])
        for number, each in zip(made, outputs, strict=True):
            self.tensors.rows[number].requires_grad |= each.requires_grad
            if node is not None and each.requires_grad:
                self.tensors.rows[number].sequence = node
        if known or certain or likely:
            self.calls.append(
                Call(
                    self._tick(),
                    op,
                    location,
                    known,
                    made,
                    needs,
                    tuple([each.requires_grad for each in outputs]),
                    leaves=kind is Kind.LEAVE,
                    enters=kind is Kind.ENTER,
                    grad_mode=_grad_mode(),
                    returned=(*sorted(certain), *sorted(likely)),
                    likely=bool(likely),
                )
            )
        return result

    def _input(self, tensor: Tensor, location: Location, made_at: Location | None) -> int:
        """The number of a tensor that goes into a call; its origin is looked for if it was never seen before."""
        number = self.tensors.known(tensor)
        if number is not None:
            return number
        number = self._leaf(tensor, location, made_at)
        with _torch.without_modes():
            sources = self.provenance.of_values(tensor) if not tensor.requires_grad else frozenset()
        if sources:
            self._came_in("Tensor", location, number, sources, likely=True)
        return number

    def _leaf(self, tensor: Tensor, location: Location | None, made_at: Location | None = None) -> int:
        """The number of a tensor that no call gave. A new leaf is often a known tensor's memory under a new name.

        ``Parameter(t)``, ``copy.deepcopy(module)``: the values are those of ``t``, without its history.
        """
        number = self.tensors.known(tensor)
        if number is not None:
            return number
        maker = self.tensors.alias(tensor) if tensor.requires_grad and tensor.is_leaf else None
        if maker is None:
            return self.tensors.number(tensor, made_at)
        number = self.tensors.number(tensor, made_at or self.tensors.rows[maker].made_at)
        self.calls.append(Call(self._tick(), type(tensor).__name__, location, (maker,), (number,), (False,), (False,)))
        return number

    def _came_in(
        self, op: str, location: Location, number: int, sources: frozenset[int], *, likely: bool = False
    ) -> None:
        """A tensor was made of values that had left torch."""
        self.calls.append(
            Call(
                self._tick(),
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

    def _note_nodes(self, first: int, location: Location, frame: FrameType | None) -> int | None:
        """Remember where the nodes since ``first`` were made, and in the call of which module; the last of them."""
        last = _torch.next_sequence()
        if first == last:
            return None
        callers = tuple(map(self.frames.location, self.frames.stack(frame)))[1:]
        module = 0
        while frame is not None:
            if frame.f_code is _CALL_IMPL:
                module = id(frame.f_locals["self"])
                break
            frame = frame.f_back
        made = (location, module, self._time, callers)
        for sequence in range(first, last):
            self._made.setdefault(sequence, made)
        return last - 1

    def _found(self, node: int, sequence: int) -> None:
        """The walk met a node for the first time."""
        made = self._made.get(sequence)
        if made is not None:
            self._places[node], self._times[node] = made[0], made[2]
            if made[3]:
                self._callers[node] = made[3]
            path = self.names.path(made[1])
            if path is not None:
                self._modules[node] = path

    # Writes

    def _wrote(self, op: str, tensor: Tensor, number: int, before: int, location: Location, key: Any = None) -> None:
        """A tensor was written in place; ``key`` says where, for an item assignment."""
        if number in self._grads and op in ("zero_", "_foreach_zero_"):
            zeroed = (self._grads[number],)
            self.events.append(ZeroGrad(self._tick(), self._step, location, zeroed, to_none=False))
        row = self.tensors.locate(number, tensor)
        hidden = row.counter != self.tensors.place(tensor)[1]
        if hidden and not self._is_direct():  # a library's own doing, such as gradcheck's, which takes it back
            return
        part = tensor[key] if hidden and isinstance(key, int | slice | tuple) else tensor
        _, bytes, offset = _torch.extent(part)
        write = Write(number, row.storage, row.counter, before, row.version, hidden, offset, bytes)
        self.events.append(InPlaceWrite(self._tick(), self._step, location, op, write))

    def _is_direct(self) -> bool:
        """Whether the user's own code called the function that is being recorded."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith(_OURS):
            frame = frame.f_back
        return frame is not None and self.frames.is_user(frame.f_code)

    def _array_written(self, array: TracedArray) -> None:
        """An array on a tensor's memory, or a part of one, was written, which no version counter sees."""
        with self._guard():
            location = self.frames.here(sys._getframe(2))
            if location is None or self._off or self._busy:
                return
            at = array.__array_interface__["data"][0]
            for source in array.sources:
                start, size, storage, counter = self._memory.get(source, (0, 0, -1, -1))
                if start <= at < start + size:
                    write = Write(
                        source, storage, counter, 0, 0, hidden=True, offset=at - start, bytes=max(array.nbytes, 1)
                    )
                    self.events.append(InPlaceWrite(self._tick(), self._step, location, "numpy", write))
                    return

    # Backward

    def _run_backward(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != self._thread:
            self.unseen["the calls of threads other than the main one"] = None
        if self._off:
            return original(tensors, *args, **kwargs)
        event: Backward | None = None
        first = 0
        with self._guard(), _torch.without_modes():
            event = self._backward(tensors, args, kwargs)
            first = _torch.next_sequence()
        position = len(self.events)
        error: BaseException | None = None
        if event is not None:
            self.events.append(event)
        self._rejoin()
        self._busy += 1
        result: Any = None
        try:
            result = original(tensors, *args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._busy -= 1
            with self._guard():
                if event is not None:
                    if error is not None:
                        self.events[position] = _with_error(event, error)
                    last = self._note_nodes(first, event.location, None)
                    if not event.accumulates and isinstance(result, tuple):
                        self._derived(event, result, last)
                    self.tensors.prune()
            del error
        return result

    def _derived(self, event: Backward, result: tuple[Any, ...], node: int | None) -> None:
        """``autograd.grad`` gave tensors: they come from its outputs, with a history only under ``create_graph``."""
        outputs = [each for each in result if isinstance(each, Tensor)]
        inputs = tuple(root.tensor for root in event.roots if root.tensor >= 0)
        made = tuple(self.tensors.number(each, event.location) for each in outputs)
        gives = tuple(each.requires_grad for each in outputs)
        needs = (True,) * len(inputs)
        for number, has_history in zip(made, gives, strict=True):
            self.tensors.rows[number].sequence = node if has_history else None
        self.calls.append(Call(self._tick(), "grad", event.location, inputs, made, needs, gives))

    def _backward(self, tensors: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Backward | None:
        names = ("grad_tensors", "retain_graph", "create_graph", "inputs", "allow_unused")
        options = dict(zip(names, args, strict=False)) | kwargs
        frame = self.frames.user(sys._getframe(3))
        if frame is None:
            self.unseen["a backward called from a library"] = None
            return None
        stack = list(self.frames.stack(frame))
        location = self.frames.location(frame)
        accumulates = bool(options.get("accumulate_grad"))
        self._look(stack)
        roots = tuple(self._root(each, stack, accumulates) for each in _as_tuple(tensors))
        inputs = options.get("inputs")
        wanted = None if not inputs and accumulates else tuple(self._input_node(each) for each in _as_tuple(inputs))
        stack.clear()
        return Backward(
            self._tick(),
            self._step,
            location,
            roots,
            retain_graph=bool(options.get("retain_graph")),
            create_graph=bool(options.get("create_graph")),
            inputs=None if wanted is None else tuple(each for each in wanted if each is not None),
            accumulates=accumulates,
        )

    def _root(self, tensor: Any, stack: list[FrameType], accumulates: bool) -> Root:
        if not isinstance(tensor, Tensor):  # a GradientEdge
            return Root("a gradient edge", self.walk.walk(tensor.node), -1, tensor.output_nr)
        name = self.names.variable(tensor, stack) or receiver(stack[0], "backward" if accumulates else "grad") or "loss"
        root = self.walk.root(tensor, name)
        row = self.tensors.rows[root.tensor]
        row.name = row.name or name
        return root

    def _input_node(self, tensor: Any) -> int | None:
        if isinstance(tensor, Tensor):
            return self.walk.root(tensor, "").node
        return self.walk.walk(tensor.node)

    def _look(self, stack: list[FrameType]) -> None:
        """Look for names in the user's variables, as long as something has none."""
        unnamed = any(watched.name is None for watched in self._optimizers.values())
        if self._looks < _FEW_LOOKS or (unnamed and self._looks < _MOST_LOOKS):
            self._looks += 1
            self.names.look(stack)
            for watched in self._optimizers.values():
                watched.name = watched.name or self.names.of(watched.ref())

    # Optimizers

    def _make_optimizer(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(optimizer, *args, **kwargs)
        except Exception as error:
            with self._guard():
                inputs: list[Tensor] = []
                _flatten(args, inputs)
                self._refused(type(optimizer).__name__, inputs, error)
            raise
        with self._guard():
            location = self.frames.here(sys._getframe(2))
            self._optimizer(optimizer, location)
            self._look(list(self.frames.stack(sys._getframe(2))))

    def _optimizer(self, optimizer: Any, location: Location | None = None) -> _Watched:
        """What is known of an optimizer, its parameters as they are now."""
        watched = self._optimizers.get(id(optimizer))
        if watched is None or watched.ref() is not optimizer:
            watched = _Watched(len(self._optimizers), optimizer, location)
            self._optimizers[id(optimizer)] = watched
        groups = optimizer.param_groups
        held = [id(each) for group in groups for each in group["params"]]
        if held != watched.held:
            watched.held = held
            watched.groups = tuple(tuple(self._leaf(each, location) for each in group["params"]) for group in groups)
        return watched

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._off:
            return
        with self._guard():
            self._optimizer(optimizer)
            held = [each for group in optimizer.param_groups for each in group["params"]]
            self._open.append(
                _OpenStep(
                    optimizer,
                    [(each, _torch.version(each)) for each in held],
                    tuple(self.tensors.number(each) for each in held if each.grad is not None),
                    tuple(self.tensors.number(each) for each in held if not each.requires_grad),
                )
            )
        if len(args) + len(kwargs) == 1 and self._open:  # no closure: what runs until the step ends is torch's own
            self._open[-1].left = _torch.pop_mode_if_innermost(self._mode)

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._off:
            return
        opened = next((each for each in reversed(self._open) if each.optimizer is optimizer), None)
        if opened is None:
            return
        while self._open and self._open.pop() is not opened:  # steps inside this one that raised
            pass
        self._rejoin(opened)
        with self._guard():
            location = self.frames.here(sys._getframe(2))
            if location is None:
                self.unseen["an optimizer step called from a library"] = None
                return
            watched = self._optimizer(optimizer)
            writes = []
            for tensor, before in opened.versions:
                if _torch.version(tensor) != before:
                    row = self.tensors.locate(number := self.tensors.number(tensor), tensor)
                    writes.append(Write(number, row.storage, row.counter, before, row.version))
            self.events.append(
                OptimizerStep(
                    self._tick(), self._step, location, watched.id, tuple(writes), opened.graded, opened.frozen
                )
            )
            self._step += 1

    def _zero_grad(self, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
        if self._off or self._zeroing:
            return original(owner, *args, **kwargs)
        self._busy += 1
        self._zeroing = True
        try:
            result = original(owner, *args, **kwargs)
        finally:
            self._busy -= 1
            self._zeroing = False
        with self._guard():
            location = self.frames.here(sys._getframe(2))
            if location is not None:
                to_none = bool(args[0] if args else kwargs.get("set_to_none", True))
                is_module = isinstance(owner, nn.Module)
                watched = None if is_module else self._optimizer(owner)
                held = (
                    tuple(self.tensors.number(each) for each in owner.parameters())
                    if watched is None
                    else tuple(number for group in watched.groups for number in group)
                )
                optimizer = None if watched is None else watched.id
                self.events.append(ZeroGrad(self._tick(), self._step, location, held, optimizer, to_none))
        return result

    def _rejoin(self, *steps: _OpenStep) -> None:
        """Put the mode back that a step took off: when it ends, or when a backward shows that it raised."""
        for step in steps or self._open:
            if step.left:
                step.left = False
                _torch.push_mode(self._mode)

    # Numpy, refusals

    def _from_numpy(self, original: Any, array: Any) -> Any:
        result = original(array)
        if not self._off and not self._busy:
            with self._guard():
                location = self.frames.here(sys._getframe(2))
                sources = self.provenance.of_arrays(array)
                if location is not None and sources:
                    number = self.tensors.number(result, location)
                    self.tensors.locate(number, result, own_counter=True)  # the memory is shared, the counter is not
                    self._came_in("from_numpy", location, number, sources)
        return result

    def _refused(self, op: str, inputs: list[Tensor], error: Exception) -> None:
        location = self.frames.here(sys._getframe(3))
        if location is not None:
            numbers = tuple(self.tensors.number(each) for each in inputs)
            text = f"{type(error).__name__}: {error}"
            self.events.append(Refused(self._tick(), self._step, location, op, numbers, text))

    # The result

    def trace(self, *, script: str | None = None, outcome: Outcome | None = None, namespace: Any = None) -> Trace:
        """All that was seen, as plain data."""
        with self._guard(), _torch.without_modes():
            if namespace is not None:
                self.names.look_into(namespace)
        for watched in self._optimizers.values():
            watched.name = watched.name or self.names.of(watched.ref())
        optimizers = tuple(
            OptimizerRef(w.id, w.name or f"optimizer_{w.id + 1}", w.kind, w.groups, w.location)
            for w in self._optimizers.values()
        )
        with _torch.without_modes():
            modules = self.names.modules()
            roots = tuple({r: None for e in self.events if isinstance(e, Backward) for r in e.roots})
            graph = self.walk.graph(roots, self._places, self._modules, self._times, self._callers)
        events = tuple(_that_matter(self.events, self.walk))
        named = [event.location for event in events]
        named += [call.location for call in self.calls if call.location is not None]
        named += [optimizer.location for optimizer in optimizers if optimizer.location is not None]
        return Trace(
            graph=graph,
            events=events,
            calls=tuple(self.calls),
            optimizers=optimizers,
            modules=modules,
            script=script,
            outcome=outcome or Outcome(),
            unseen=tuple(self.unseen),
            root=self.frames.root,
            sources=sources_of(named, self.frames.root),
        )


class _Mode(TorchFunctionMode):
    """Hands each call to the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._recorder.call(func, args, kwargs or {})


def _flatten(values: Any, found: list[Tensor], depth: int = 3) -> None:
    """Append the tensors in these arguments, also those in lists and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif depth and isinstance(value, list | tuple):
            _flatten(value, found, depth - 1)


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list | tuple) and not hasattr(value, "node") else (value,)


def _grad_mode() -> str:
    if torch.is_inference_mode_enabled():
        return "inference"
    return "enabled" if torch.is_grad_enabled() else "no_grad"


def _with_error(event: Backward, error: BaseException) -> Backward:
    return replace(event, error=f"{type(error).__name__}: {error}")


def _that_matter(events: list[Event], walk: Walk) -> Iterator[Event]:
    """The events without the writes to memory that no node saved and no leaf lives in."""
    storages = {row[4] for saved in walk.saved.values() for row in saved}
    counters = {row[5] for saved in walk.saved.values() for row in saved}
    opaque = any(row[8] for saved in walk.saved.values() for row in saved)  # checkpoints do not show what they saved
    storages |= {walk.tensors.rows[number].storage for number in walk.leaf_tensors.values()}
    for event in events:
        if (
            not isinstance(event, InPlaceWrite)
            or opaque
            or event.write.storage in storages
            or event.write.counter in counters
        ):
            yield event
