"""What a training step is going to do, as a plan over the graph as it stands; nothing is run, nothing changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from .._plain import dataclass
from ..errors import GraphscopeError
from ..events import Backward, Event, InPlaceWrite, OptimizerStep, Write
from ..graph import Root
from ..location import Location
from ..report import Report
from ..trace import OptimizerRef, Trace
from .modules import Modules
from .snapshot import Snapshot, described
from .sources import sources_of


class Plan:
    """What a training step is going to do, in order; ``check`` says what torch would make of it, and runs nothing.

    Each method adds a step and gives the plan back::

        graphscope.plan().backward(l2, retain_graph=True).step(opt2).backward(l1).step(opt1).check()
    """

    def __init__(self, analyze: Callable[[Trace], Report]) -> None:
        self._analyze = analyze
        self._steps: list[Planned] = []

    def backward(
        self,
        *losses: Tensor,
        retain_graph: bool = False,
        create_graph: bool = False,
        inputs: Sequence[Tensor] | None = None,
    ) -> Plan:
        """Plan ``torch.autograd.backward(losses, ...)``; raises GraphscopeError for anything but tensors."""
        wanted = None if inputs is None else _tensors(inputs)
        return self._add(Planned(_tensors(losses), retain_graph, create_graph, wanted))

    def grad(
        self,
        outputs: Tensor | Sequence[Tensor],
        inputs: Tensor | Sequence[Tensor],
        *,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> Plan:
        """Plan ``torch.autograd.grad(outputs, inputs, ...)``, which fills no ``grad``."""
        losses, wanted = (each if isinstance(each, list | tuple) else (each,) for each in (outputs, inputs))
        return self._add(Planned(_tensors(losses), retain_graph, create_graph, _tensors(wanted), accumulates=False))

    def step(self, optimizer: Optimizer) -> Plan:
        """Plan ``optimizer.step()``: it writes the parameters that have a gradient by then."""
        if not isinstance(optimizer, Optimizer):
            raise GraphscopeError(f"plan().step() takes an optimizer, got {type(optimizer).__name__}")
        return self._add(Planned(optimizer=optimizer))

    def write(self, tensor: Tensor) -> Plan:
        """Plan an in-place write to a tensor, or to a view or ``detach()`` of it."""
        if not isinstance(tensor, Tensor):
            raise GraphscopeError(f"plan().write() takes a tensor, got {type(tensor).__name__}")
        return self._add(Planned(tensor=tensor))

    def check(self) -> Report:
        """What torch would do; each finding is also emitted as a GraphscopeWarning."""
        if not any(step.losses for step in self._steps):
            raise GraphscopeError("a plan needs a backward, such as plan().backward(loss).step(optimizer).check()")
        return self._analyze(planned(self._steps, sys._getframe(1)))

    def _add(self, step: Planned) -> Plan:
        self._steps.append(step)
        return self


def _tensors(given: Sequence[Any]) -> tuple[Tensor, ...]:
    for each in given:
        if not isinstance(each, Tensor):
            raise GraphscopeError(f"a plan takes tensors, such as plan().backward(loss); got {described(each)}")
    if not given:
        raise GraphscopeError("a backward takes at least one tensor, such as plan().backward(loss)")
    return tuple(given)


@dataclass(frozen=True, slots=True)
class Planned:
    """One step of a plan: a backward over ``losses``, a step of ``optimizer``, or a write to ``tensor``."""

    losses: tuple[Tensor, ...] = ()
    retain_graph: bool = False
    create_graph: bool = False
    inputs: tuple[Tensor, ...] | None = None
    accumulates: bool = True
    optimizer: Optimizer | None = None
    tensor: Tensor | None = None
    location: Location | None = None


def assumed(objects: Sequence[Any], frame: FrameType, *, retain_graph: bool = False) -> Trace:
    """A trace of what ``check`` assumes: the losses are backpropagated in the order given, then each optimizer steps.

    A pair ``(loss, optimizer)`` counts as its two members. Raises GraphscopeError for anything else, or no loss.
    """
    flat = [member for each in objects for member in (each if isinstance(each, tuple | list) else (each,))]
    for each in flat:
        if not isinstance(each, Tensor | Optimizer | nn.Module):
            raise GraphscopeError(
                "check() takes losses, optimizers and modules, such as check(loss1, loss2, opt1, opt2); "
                f"got {described(each)}"
            )
    backwards = [Planned(losses=(each,), retain_graph=retain_graph) for each in flat if isinstance(each, Tensor)]
    if not backwards:
        raise GraphscopeError("check() takes at least one loss, such as check(loss, optimizer)")
    steps = [*backwards, *(Planned(optimizer=each) for each in flat if isinstance(each, Optimizer))]
    return planned(steps, frame, [each for each in flat if isinstance(each, nn.Module)])


def planned(steps: Sequence[Planned], frame: FrameType, modules: Sequence[nn.Module] = ()) -> Trace:
    """A trace of the graph as it stands, with a plan as its events; nothing is run, and nothing changed."""
    shot = Snapshot(frame)
    losses = list({id(loss): loss for step in steps for loss in step.losses}.values())
    roots = {id(loss): shot.root(loss, position) for position, loss in enumerate(losses)}
    shot.names.look(shot.stack)
    for position, module in enumerate(modules):
        shot.names.name_module(f"module {position + 1}", module)
    stepped = [step.optimizer for step in steps if step.optimizer is not None]
    optimizers = {id(each): each for each in (*stepped, *(shot.names.optimizers() if stepped else ()))}
    refs = {key: shot.optimizer(each) for key, each in optimizers.items()}
    timeline = _Timeline(shot, roots, refs)
    for step in steps:
        timeline.add(step)
    seen = shot.walk.graph(tuple(roots.values()))
    trace = Trace(
        graph=seen,
        events=tuple(timeline.events),
        optimizers=tuple(refs.values()),
        modules=Modules(shot.names, shot.tensors).refs(),
        root=shot.frames.root,
        sources=sources_of([event.location for event in timeline.events], shot.frames.root),
    )
    shot.stack.clear()
    return trace


class _Timeline:
    """The events of a plan, and which gradients there would be."""

    def __init__(self, shot: Snapshot, roots: dict[int, Root], optimizers: dict[int, OptimizerRef]) -> None:
        self.events: list[Event] = []
        self._shot, self._roots, self._optimizers = shot, roots, optimizers
        self._graded: set[int] = set()
        self._steps = 0

    def add(self, planned: Planned) -> None:
        """Append what one step of the plan does."""
        time, here = len(self.events), planned.location or self._shot.here
        if planned.losses:
            self.events.append(self._backward(planned, time, here))
        elif planned.optimizer is not None:
            self.events.append(self._step(self._optimizers[id(planned.optimizer)], time, here))
        elif planned.tensor is not None:
            write = self._write(planned.tensor)
            self.events.append(InPlaceWrite(time, self._steps, here, "a planned write", write))

    def _backward(self, planned: Planned, time: int, here: Location) -> Backward:
        roots = tuple(self._roots[id(loss)] for loss in planned.losses)
        inputs = None
        if planned.inputs is not None:
            nodes = [self._shot.walk.root(each, "").node for each in planned.inputs]
            inputs = tuple(node for node in nodes if node is not None)
        event = Backward(
            time,
            self._steps,
            here,
            roots,
            retain_graph=planned.retain_graph,
            create_graph=planned.create_graph,
            inputs=inputs,
            accumulates=planned.accumulates,
            ran=False,
        )
        if planned.accumulates:
            self._graded |= Trace(graph=self._shot.walk.graph()).reached(event)
        return event

    def _step(self, optimizer: OptimizerRef, time: int, here: Location) -> OptimizerStep:
        graded = tuple(number for number in optimizer.parameters if number in self._graded)
        rows = [(number, self._shot.tensors.rows[number]) for number in graded]
        writes = tuple(Write(number, row.storage, row.counter, row.version, row.version + 1) for number, row in rows)
        self._steps += 1
        return OptimizerStep(time, self._steps - 1, here, optimizer.id, writes, graded, ran=False)

    def _write(self, tensor: Tensor) -> Write:
        number = self._shot.tensors.number(tensor)
        row = self._shot.tensors.locate(number, tensor)
        return Write(number, row.storage, row.counter, row.version, row.version + 1)
