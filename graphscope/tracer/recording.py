"""What has been recorded so far, and the clock: what all the watches of a recorder share."""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from types import FrameType
from typing import Any

from torch import Tensor

from ..errors import internal_error
from ..events import Call, Event, Refused
from ..graph import Birth
from ..location import Location
from ..trace import Pause
from . import _torch
from .frames import Frames
from .hiding import chain
from .modules import Modules
from .names import Names
from .pattern import Pattern
from .tensors import Tensors
from .walk import Walk

_MOST_RECORDED = 2_000_000  # calls, events and nodes: about 1 GB; nothing is recorded beyond
_MOST_BACKWARDS = 1000  # that one step is thought to need


class Recording:
    """The events, calls and nodes seen so far; ``busy`` while library code runs whose calls are not the user's."""

    def __init__(self, root: str | None = None, *, every_step: bool = False) -> None:
        self.frames = Frames(root)
        self.pattern = Pattern(every_step=every_step)
        self.asleep = False  # while steps are only counted, as they repeat the pattern
        self.switch: Callable[[bool], bool] = lambda asleep: True
        self.tensors = Tensors()
        self.names = Names(self.tensors)
        self.modules_seen = Modules(self.names, self.tensors)
        self.walk = Walk(self.tensors, found=self._found)
        self.events: list[Event] = []
        self.calls: list[Call] = []
        self.switched: dict[int, list[int]] = {}  # by the time of a RequiresGradSet: its tensors
        self.unseen: dict[str, None] = {}
        self.failure: str | None = None
        self.step = 0
        self.busy = 0
        self.in_custom_backward = False
        self.creates_graph = False  # whether that backward is to be differentiated again
        self.scales = False  # whether a GradScaler has scaled a loss
        self.places: dict[int, Location] = {}
        self.callers: dict[int, tuple[Location, ...]] = {}
        self.modules: dict[int, str] = {}
        self.times: dict[int, int] = {}
        self.gone: dict[int, int] = {}
        self._alive: dict[int, weakref.ref[Tensor]] = {}
        self._made: dict[int, tuple[Location, int, int, tuple[Location, ...]]] = {}
        self._time = 0
        self._full = False
        self._pauses: list[Pause] = []
        self._slept_at = 0
        self._backwards = 0
        self._thread = threading.get_ident()
        self._process = os.getpid()

    def guard(self) -> _Guard:
        """Our own failures end the recording, never the user's program, whose modes and subclasses do not see us."""
        return _Guard(self)

    def failed(self, error: Exception) -> None:
        """There was an exception of our own: nothing is recorded from now on."""
        if self.failure is None:
            self.failure = internal_error(error)
            self.unseen[f"what came after {self.failure}"] = None

    @property
    def off(self) -> bool:
        """Whether nothing is recorded now: elsewhere than in the thread that began, or not any more."""
        return self.asleep or self._full or self.failure is not None or not self.is_here

    @property
    def is_here(self) -> bool:
        """Whether this is the thread, and the process, that is watched."""
        return threading.get_ident() == self._thread and os.getpid() == self._process

    def backward_comes(self, event: Hashable) -> None:
        """A backward is about to run. Where no optimizer steps, it ends a step of the program itself."""
        self.pattern.saw(event)
        self._backwards += 1
        if self._backwards > _MOST_BACKWARDS:
            self._turn()

    def next_step(self) -> None:
        """An optimizer has stepped."""
        self.step += 1
        self._backwards = 0
        self._turn()

    def _turn(self) -> None:
        """A step of the program has ended: fall asleep, or wake up, as the pattern says."""
        asleep = not self.pattern.next_step()
        if asleep != self.asleep and not self._full and self.failure is None and self.switch(asleep):
            self.asleep = asleep
            if asleep:
                self._slept_at = self.step
            else:
                self._pauses.append(Pause(self._time, self._slept_at, self.step - self._slept_at))

    @property
    def pauses(self) -> tuple[Pause, ...]:
        """When nothing was recorded, as the program repeated itself."""
        if not self.asleep or self.step == self._slept_at:
            return tuple(self._pauses)
        return (*self._pauses, Pause(self._time, self._slept_at, self.step - self._slept_at))

    @property
    def now(self) -> int:
        """The time that the next event or call will have."""
        return self._time

    def tick(self) -> int:
        """The time now; it is later afterwards."""
        self._time += 1
        if not self._time % 1024:
            self.tensors.prune()
            if self._time + len(self.walk.ops) > _MOST_RECORDED:
                self._full = True
                self.unseen[f"what came after step {self.step}: the recording had reached its limit"] = None
        return self._time - 1

    def number(self, tensor: Tensor, location: Location | None, made_at: Location | None = None) -> int:
        """The number of a tensor that no call gave. A new leaf is often a known tensor's memory under a new name.

        ``Parameter(t)``, ``copy.deepcopy(module)``: the values are those of ``t``, without its history.
        """
        number = self.tensors.known(tensor)
        if number is not None:
            return number
        if not (tensor.requires_grad and _torch.is_leaf(tensor)):
            return self.tensors.number(tensor, made_at)
        result, maker = self.tensors.result_below(tensor), self.tensors.alias(tensor)
        maker = maker if result is None else result
        if maker is None:
            return self.tensors.number(tensor, made_at)
        number = self.tensors.number(tensor, made_at or self.tensors.rows[maker].made_at)
        needs = (result is not None,)
        self.calls.append(Call(self.tick(), type(tensor).__name__, location, (maker,), (number,), needs, (False,)))
        return number

    def parameter_made(self, module: Any, name: str, parameter: Tensor | None) -> None:
        """The hook for each parameter that a module is given."""
        if parameter is not None and not self.off and not self.busy:
            with self.guard():
                locations, _ = self.frames.trail(sys._getframe(1))
                if locations:
                    self.tensors.born(parameter, Birth(self._time, tuple(locations)))
                    if self.tensors.known(parameter) is None and self.tensors.result_below(parameter) is not None:
                        self.number(parameter, locations[0])  # by its first use, what it was made of may be gone

    def refused(self, op: str, inputs: Iterable[Tensor], error: Exception, frame: FrameType) -> None:
        """Torch refused a call."""
        location = self.frames.here(frame)
        if location is not None:
            numbers = tuple(self.tensors.number(each) for each in inputs)
            text = f"{type(error).__name__}: {error}"
            self.events.append(Refused(self.tick(), self.step, location, op, numbers, text))

    def note_nodes(self, first: int, locations: Sequence[Location], call: FrameType | None = None) -> int | None:
        """Remember by which statement and its callers, in which module, the nodes since ``first`` were made.

        Gives the last of them, None if there are none.
        """
        last = _torch.next_sequence()
        if first == last:
            return None
        module = 0 if call is None else id(call.f_locals["self"])
        made = (locations[0], module, self._time, tuple(locations[1:]))
        for sequence in range(first, last):
            self._made.setdefault(sequence, made)
        return last - 1

    def made(self, node: Any) -> tuple[Location, int, int, tuple[Location, ...]] | None:
        """Where a node was made, by which module, when, and from where that was called."""
        return self._made.get(node._sequence_nr())

    def note_ends(self, losses: Iterable[Any]) -> None:
        """Note when these losses go away, whose graphs are retained."""
        for loss in losses:
            number = self.tensors.known(loss)
            if number is not None and number not in self._alive:

                def ended(_: Any, number: int = number) -> None:
                    self._alive.pop(number, None)
                    self.gone[number] = self._time

                self._alive[number] = weakref.ref(loss, ended)

    def _found(self, node: int, sequence: int) -> None:
        """The walk met a node for the first time."""
        made = self._made.get(sequence)
        if made is not None:
            self.places[node], self.times[node] = made[0], made[2]
            if made[3]:
                self.callers[node] = made[3]
            path = self.names.path(made[1])
            if path is not None:
                self.modules[node] = path


class _Guard:
    """A context manager written out, as one of contextlib's takes several times as long."""

    __slots__ = ("_modes", "_recording")

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def __enter__(self) -> None:
        self._modes = _torch.without_modes()
        self._modes.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> bool:
        self._modes.__exit__(None, None, None)
        if not isinstance(error, Exception) or _is_the_programs(error):
            return False
        if isinstance(error, RecursionError):
            self._recording.unseen["calls as deep as the recursion limit allows"] = None
        else:
            self._recording.failed(error)
        return True


def _is_the_programs(error: Exception) -> bool:
    """Whether it was raised by a signal handler of the program, which ran while we were at work."""
    handlers = {getattr(signal.getsignal(each), "__code__", None) for each in signal.valid_signals()}
    return any(entry.tb_frame.f_code in handlers for entry in chain(error.__traceback__))


def flatten(values: Any, found: list[Tensor], depth: int = 3) -> None:
    """Append the tensors in these arguments, also those in lists and tuples."""
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif depth and isinstance(value, list | tuple):
            flatten(value, found, depth - 1)
