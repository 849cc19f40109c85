"""Watch the optimizers: what they hold, when they step, and when gradients are zeroed."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from types import FrameType
from typing import Any

from torch import Tensor, nn

from .._plain import dataclass
from ..events import OptimizerStep, Write, ZeroGrad
from ..location import Location
from ..trace import OptimizerRef
from . import _torch
from .finite import FiniteWatch
from .growth import GrowthWatch
from .recording import Recording, flatten
from .seat import Seat

_SAMPLE = 256  # values of a frozen parameter that are compared before and after a step
_FEW_ZEROS = 2  # steps in a row on zeros, after which gradients are followed
_MOST_FOLLOWED = 8  # backwards, for each optimizer
_FEW_LOOKS, _MOST_LOOKS = 8, 64  # how often the user's variables are searched for names


class EnoughSteps(BaseException):
    """Ends the program once it made the steps that were asked for; no ``except Exception`` stops it."""


class _Watched:
    """An optimizer that was met."""

    def __init__(self, id: int, optimizer: Any, location: Location | None) -> None:
        self.id, self.ref, self.location = id, weakref.ref(optimizer), location
        self.kind = type(optimizer).__name__
        self.name: str | None = None
        self.groups: tuple[tuple[int, ...], ...] = ()
        self.held: list[int] = []
        self.keeps_state = False
        self.steps = 0
        self.zeros = 0  # steps in a row, up to now, whose gradients were zero everywhere
        self.followed = 0


@dataclass(slots=True)
class _OpenStep:
    """A step that has begun.

    ``samples`` are values of the frozen parameters that have a grad; ``left`` tells that the mode was taken off for it,
    ``zero`` that all its gradients are zero everywhere.
    """

    optimizer: Any
    began: int
    versions: list[tuple[Tensor, int]]
    graded: tuple[int, ...]
    frozen: tuple[int, ...]
    samples: list[tuple[int, Tensor, str]]
    left: bool = False
    zero: bool = False


class OptimizerWatch:
    """Turns steps and zeroings into events; the mode that watches leaves its ``seat`` while a step runs.

    With ``steps``, EnoughSteps is raised once each line that calls ``step()`` ran that often, or one of them tenfold.
    """

    def __init__(
        self, recording: Recording, seat: Seat, growth: GrowthWatch, finite: FiniteWatch, steps: int | None = None
    ) -> None:
        self._seen = recording
        self.seat = seat
        self._growth = growth
        self._finite = finite
        self._wanted = steps
        self._stepped: Counter[int] = Counter()  # by call site
        self._met: list[_Watched] = []
        self._by_address: dict[int, _Watched] = {}
        self._idle: set[int] = set()  # those that have not stepped yet
        self._open: list[_OpenStep] = []
        self._zeroing = False
        self._looks = 0

    def refs(self) -> tuple[OptimizerRef, ...]:
        """The optimizers that were met, as plain data."""
        self._name()
        names = {w.location: w.name for w in self._met if w.name is not None}
        return tuple(
            OptimizerRef(
                w.id,
                w.name or names.get(w.location) or f"optimizer_{w.id + 1}",
                w.kind,
                w.groups,
                w.location,
                w.keeps_state,
            )
            for w in self._met
        )

    def _name(self) -> None:
        for watched in self._met:
            watched.name = watched.name or self._seen.names.of(watched.ref())

    def look(self, stack: list[FrameType]) -> None:
        """Look for names in the user's variables, as long as something has none."""
        unnamed = any(watched.name is None for watched in self._met)
        if self._looks < _FEW_LOOKS or (unnamed and self._looks < _MOST_LOOKS):
            self._looks += 1
            self._seen.names.look(stack)
            self._name()

    def make(self, original: Any, optimizer: Any, *args: Any, **kwargs: Any) -> None:
        """``Optimizer.__init__``."""
        if self._seen.off:
            original(optimizer, *args, **kwargs)
            if self._seen.asleep and self._seen.is_here:
                with self._seen.guard():
                    location = self._seen.frames.here(sys._getframe(2))
                    self._seen.pattern.saw(("make", id(location)))
                    self.known(optimizer, location)
            return
        try:
            original(optimizer, *args, **kwargs)
        except Exception as error:
            with self._seen.guard():
                inputs: list[Tensor] = []
                flatten(args, inputs)
                self._seen.refused(type(optimizer).__name__, inputs, error, sys._getframe(1))
            raise
        with self._seen.guard():
            location = self._seen.frames.here(sys._getframe(2))
            self._seen.pattern.saw(("make", id(location)))
            self.known(optimizer, location)
            self.look(list(self._seen.frames.stack(sys._getframe(2))))

    def known(self, optimizer: Any, location: Location | None = None) -> _Watched:
        """What is known of an optimizer, its parameters as they are now."""
        watched = self._by_address.get(id(optimizer))
        if watched is None or watched.ref() is not optimizer:
            watched = self._by_address[id(optimizer)] = _Watched(len(self._met), optimizer, location)
            self._met.append(watched)
            self._idle.add(id(optimizer))
        groups = optimizer.param_groups
        held = [id(each) for group in groups for each in group["params"]]
        if held != watched.held:
            watched.held = held
            watched.groups = tuple(
                tuple(self._seen.number(each, location) for each in group["params"]) for group in groups
            )
        return watched

    def __len__(self) -> int:
        return len(self._met)

    def uses(self, optimizer: Any) -> int:
        """How often this optimizer has stepped, or another that has a group in common with it, as one that wraps it."""
        groups = {id(group) for group in optimizer.param_groups}
        met = [(each.ref(), each.steps) for each in self._met]
        return sum(
            steps
            for other, steps in met
            if other is not None and any(id(group) in groups for group in other.param_groups)
        )

    def before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook before each step."""
        if self._seen.off:
            return
        with self._seen.guard():
            watched = self.known(optimizer)
            if not self._seen.step & (self._seen.step - 1):  # 0, 1, 2, 4, 8 ...
                self._seen.names.look(list(self._seen.frames.stack(sys._getframe(2))))
                self._seen.modules_seen.look()
            held = [each for group in optimizer.param_groups for each in group["params"]]
            zero = False
            if len(args) + len(kwargs) == 1:  # without a closure, which would make the gradients yet
                zero = self._finite.before_step(optimizer, watched.id, held, self._seen.frames.here(sys._getframe(2)))
            watched.zeros = watched.zeros + 1 if zero else 0
            self._open.append(
                _OpenStep(
                    optimizer,
                    self._seen.now,
                    [(each, _torch.version(each)) for each in held],
                    tuple(self._seen.tensors.number(each) for each in held if each.grad is not None),
                    tuple(self._seen.tensors.number(each) for each in held if not each.requires_grad),
                    [
                        (self._seen.tensors.number(each), each, _sample(each))
                        for each in held
                        if not each.requires_grad and each.grad is not None
                    ],
                    zero=zero,
                )
            )
        if len(args) + len(kwargs) == 1 and self._open:  # no closure: what runs until the step ends is torch's own
            self._open[-1].left = self.seat.leave()

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook after each step that did not raise."""
        if not self._seen.is_here:
            return
        with self._seen.guard():
            if not self._seen.off:
                self._record_step(optimizer)
                self._growth.step_ended(sys._getframe(1))
            graded = frozen = 0
            for group in optimizer.param_groups:
                for each in group["params"]:
                    graded += each.grad is not None
                    frozen += not each.requires_grad
            site = id(self._seen.frames.here(sys._getframe(2)))
            self._seen.pattern.saw(("step", site, graded, frozen))
            self._seen.next_step()
            self._stepped[site] += 1
            self._idle.discard(id(optimizer))
            if (watched := self._by_address.get(id(optimizer))) is not None:
                watched.steps += 1
        if self._wanted is not None and self._is_enough(self._wanted):
            raise EnoughSteps

    def _is_enough(self, steps: int) -> bool:
        counts = self._stepped.values()
        return (not self._idle and min(counts) >= steps) or max(counts) >= 10 * steps

    def _record_step(self, optimizer: Any) -> None:
        opened = next((each for each in reversed(self._open) if each.optimizer is optimizer), None)
        if opened is None:
            return
        while self._open and self._open.pop() is not opened:  # steps inside this one that raised
            pass
        if opened.left:
            self.seat.take()
        location = self._seen.frames.here(sys._getframe(3))
        if location is None:
            self._seen.unseen["an optimizer step called from a library"] = None
            return
        watched = self.known(optimizer)
        watched.keeps_state = watched.keeps_state or any(optimizer.state.values())
        writes = []
        for tensor, before in opened.versions:
            if _torch.version(tensor) != before:
                row = self._seen.tensors.locate(number := self._seen.tensors.number(tensor), tensor)
                writes.append(Write(number, row.storage, row.counter, before, row.version))
        self._seen.events.append(
            OptimizerStep(
                self._seen.tick(),
                self._seen.step,
                location,
                watched.id,
                tuple(writes),
                opened.graded,
                opened.frozen,
                tuple(number for number, each, old in opened.samples if old != _sample(each)),
                began=opened.began,
                zero=opened.zero,
            )
        )

    def is_fading(self) -> bool:
        """Whether some optimizer stepped on nothing but zeros, more than once, so that one may ask where from."""
        found = [each for each in self._met if each.zeros >= _FEW_ZEROS and each.followed < _MOST_FOLLOWED]
        for each in found:
            each.followed += 1
        return bool(found)

    def zero_grad(self, original: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
        """``Optimizer.zero_grad`` and ``Module.zero_grad``."""
        if self._seen.off or self._zeroing:
            if self._seen.asleep and self._seen.is_here:
                with self._seen.guard():
                    self._seen.pattern.saw(("zero", id(self._seen.frames.here(sys._getframe(2)))))
            return original(owner, *args, **kwargs)
        self._seen.busy += 1
        self._zeroing = True
        left = self.seat.leave()  # each `grad` that is read would go through the mode
        try:
            result = original(owner, *args, **kwargs)
        finally:
            if left:
                self.seat.take()
            self._seen.busy -= 1
            self._zeroing = False
        with self._seen.guard():
            location = self._seen.frames.here(sys._getframe(2))
            self._seen.pattern.saw(("zero", id(location)))
            if location is not None:
                to_none = bool(args[0] if args else kwargs.get("set_to_none", True))
                is_module = isinstance(owner, nn.Module)
                watched = None if is_module else self.known(owner)
                held = (
                    tuple(self._seen.tensors.number(each) for each in owner.parameters())
                    if watched is None
                    else tuple(number for group in watched.groups for number in group)
                )
                optimizer = None if watched is None else watched.id
                self._seen.events.append(
                    ZeroGrad(self._seen.tick(), self._seen.step, location, held, optimizer, to_none)
                )
        return result

    def rejoin(self) -> None:
        """Put the mode back that a step took off which raised, as a backward shows."""
        self.seat.take()


def _sample(tensor: Tensor) -> str:
    """Some values of a tensor, as text: NaN is NaN, and no tensor is made that the program could count."""
    return str(tensor.detach().flatten()[:_SAMPLE].tolist())
