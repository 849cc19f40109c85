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
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import BuiltinFunctionType, FrameType
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.nn.utils import clip_grad
from torch.optim import optimizer as optim

from .._plain import dataclass
from ..errors import internal_error
from ..events import Backward, Event, InPlaceWrite, OutOfSight, RequiresGradSet
from ..trace import Outcome, Trace
from . import _torch
from .backwards import BackwardWatch
from .calls import CallWatch
from .compiled import leave_alone
from .finite import FiniteWatch
from .gradients import GradientWatch
from .growth import GrowthWatch
from .names import Names
from .optimizers import OptimizerWatch
from .recording import Recording
from .scalers import ScalerWatch
from .schedules import ScheduleWatch
from .seat import Seat
from .sources import sources_of
from .tensors import Tensors
from .walk import Walk
from .writes import WriteWatch


class Recorder:
    """A context manager that watches this process; ``trace()`` then gives what it saw.

    ``active`` is the one that watches now, the innermost of several. Without ``arrays``, those that come out of
    tensors are numpy's own, and what comes back is known by its values only. With ``fades``, each gradient is followed
    beforehand, to see where it becomes zero or not finite, which takes about as long as the backward.
    """

    active: ClassVar[Recorder | None] = None

    def __init__(
        self,
        root: str | None = None,
        *,
        every_step: bool = False,
        steps: int | None = None,
        arrays: bool = True,
        fades: bool = False,
    ) -> None:
        self._seen = Recording(root, every_step=every_step)
        self._seen.switch = self._switch
        self.frames = self._seen.frames
        self._gradients = GradientWatch(self._seen)
        self._calls = CallWatch(self._seen, WriteWatch(self._seen), self._gradients, arrays=arrays)
        self._growth = GrowthWatch(self._seen)
        self._finite = FiniteWatch(self._seen)
        self._seat = Seat(self._calls)
        self._optimizers = OptimizerWatch(self._seen, self._seat, self._growth, self._finite, steps)
        self._scalers = ScalerWatch(self._seen, self._optimizers, self._gradients)
        self._schedules = ScheduleWatch(self._seen, self._optimizers)
        self._backwards = BackwardWatch(self._seen, self._optimizers, self._growth, self._finite, fades=fades)
        self._undo = contextlib.ExitStack()
        self._patches: list[tuple[Any, str, Any, Any]] = []
        self._aside = False

    def __enter__(self) -> Recorder:
        undo, optimizers = self._undo, self._optimizers
        undo.callback(setattr, Recorder, "active", Recorder.active)
        Recorder.active = self
        undo.callback(optim.register_optimizer_step_pre_hook(optimizers.before_step).remove)
        undo.callback(optim.register_optimizer_step_post_hook(optimizers.after_step).remove)
        undo.callback(register_module_parameter_registration_hook(self._seen.parameter_made).remove)
        self._patch(torch.autograd, "_engine_run_backward", self._backwards.run)
        self._patch(torch.optim.Optimizer, "zero_grad", optimizers.zero_grad)
        self._patch(nn.Module, "zero_grad", optimizers.zero_grad)
        self._patch(torch.optim.Optimizer, "__init__", optimizers.make)
        self._patch(clip_grad, "_clip_grads_with_norm_", self._gradients.clip_norm)
        self._patch(clip_grad, "clip_grad_value_", self._gradients.clip_value, nn.utils)
        self._patch(torch.amp.GradScaler, "scale", self._scalers.scale)
        self._patch(torch.amp.GradScaler, "unscale_", self._scalers.unscale)
        self._patch(torch.amp.GradScaler, "step", self._scalers.step)
        self._patch(torch.amp.GradScaler, "update", self._scalers.update)
        self._patch(torch.optim.lr_scheduler.LRScheduler, "_update_lr", self._schedules.update)
        self._patch(torch, "from_numpy", self._calls.from_numpy)
        self._patch(torch.Tensor, "_reduce_ex_internal", self._calls.pickled)
        apply = torch.autograd.Function.__dict__["apply"]
        self._install(torch.autograd.Function, "apply", apply, self._calls.watched_apply())
        leave_alone(self._set_aside, undo)
        _torch.push_mode(self._calls)
        undo.callback(_torch.pop_mode_if_innermost, self._calls)
        return self

    @property
    def failure(self) -> str | None:
        """The internal error that ended the recording, None if there was none."""
        return self._seen.failure

    def __exit__(self, *exception: object) -> None:
        self._undo.close()

    def _patch(self, owner: Any, name: str, replacement: Callable[..., Any], *others: Any) -> None:
        """Put ``replacement(original, *args, **kwargs)`` in the place of a function, until recording ends.

        ``others`` hold the same function under the same name.
        """
        original = getattr(owner, name)

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            return replacement(original, *args, **kwargs)

        if isinstance(original, BuiltinFunctionType):
            watched.__qualname__ = name  # by which a function in Python is pickled
        for each in (owner, *others):
            self._install(each, name, original, watched)

    def _install(self, owner: Any, name: str, original: Any, watched: Any) -> None:
        setattr(owner, name, watched)
        self._patches.append((owner, name, original, watched))
        self._undo.callback(setattr, owner, name, original)

    def _set_aside(self) -> Callable[[], None]:
        """Compiled code is about to run: take all off until the function that is returned is called."""
        if self._aside or not self._seen.is_here or (self._seen.off and not self._seen.asleep):
            return lambda: None
        self._aside = True
        self._seen.busy += 1
        self._seen.unseen["what runs inside torch.compile"] = None
        left = self._seat.leave()
        for owner, name, original, _ in self._patches:
            setattr(owner, name, original)

        def back() -> None:
            for owner, name, _, watched in self._patches:
                setattr(owner, name, watched)
            if left:
                self._seat.take()
            self._seen.busy -= 1
            self._aside = False

        return back

    def _switch(self, asleep: bool) -> bool:
        """Take the mode off the stack if it can be, or put it back; whether that can be done now."""
        if not asleep:
            return self._seat.take()
        self._seat.leave()
        return True

    def look(self, frame: FrameType) -> Look:
        """What a question asked in this frame needs."""
        return Look(self._seen.walk, self._seen.names, self._seen.tensors, list(self.frames.stack(frame)))

    def trace(self, *, script: str | None = None, outcome: Outcome | None = None, namespace: Any = None) -> Trace:
        """All that was seen, as plain data; a failure of our own must not hide how the program ended."""
        try:
            return self._trace(script, outcome, namespace)
        except Exception as error:
            unseen = f"anything, for {internal_error(error)}"
            return Trace(script=script, outcome=outcome or Outcome(), unseen=(unseen,), root=self.frames.root)

    def _trace(self, script: str | None, outcome: Outcome | None, namespace: Any) -> Trace:
        seen = self._seen
        with seen.guard():
            if namespace is not None:
                seen.names.look_into(namespace)
        optimizers = self._optimizers.refs()
        with _torch.without_modes():
            modules = seen.modules_seen.refs()
            roots = tuple({r: None for e in seen.events if isinstance(e, Backward) for r in e.roots})
            graph = seen.walk.graph(roots, seen.places, seen.modules, seen.times, seen.callers)
        events = tuple(
            replace(event, tensors=tuple(seen.switched[event.time])) if isinstance(event, RequiresGradSet) else event
            for event in _that_matter(seen.events, seen.walk)
        )
        named = [event.location for event in events]
        named += [call.location for call in seen.calls if call.location is not None]
        named += [optimizer.location for optimizer in optimizers if optimizer.location is not None]
        return Trace(
            graph=graph,
            events=events,
            calls=tuple(seen.calls),
            optimizers=optimizers,
            modules=modules,
            script=script,
            outcome=outcome or Outcome(),
            unseen=(*seen.unseen, *_pauses_said(seen, outcome)),
            steps_run=seen.step,
            pauses=seen.pauses,
            root=seen.frames.root,
            sources=sources_of(named, seen.frames.root),
            gone=dict(seen.gone),
            released=dict(seen.tensors.released),
            surveys=self._growth.surveys,
            fades=tuple(self._backwards.fades),
        )


def _pauses_said(seen: Recording, outcome: Outcome | None) -> Iterator[str]:
    skipped = sum(pause.steps for pause in seen.pauses)
    if skipped:
        yield (
            f"{skipped} of {seen.step} steps, which repeated what the others did; `inspect --every-step` records all"
        )
        if outcome is not None and outcome.exception is not None and seen.asleep:
            yield "the step that failed: it is one of these"


@dataclass(frozen=True, slots=True)
class Look:
    """The walk, the names and the tensors so far, and the user's frames."""

    walk: Walk
    names: Names
    tensors: Tensors
    stack: list[FrameType]


def _that_matter(events: list[Event], walk: Walk) -> Iterator[Event]:
    """The events without the writes to memory that no node saved and no leaf lives in; ``x.data = y`` always counts."""
    storages = {row[4] for saved in walk.saved.values() for row in saved}
    counters = {row[5] for saved in walk.saved.values() for row in saved}
    opaque = any(row[8] for saved in walk.saved.values() for row in saved)  # checkpoints do not show what they saved
    storages |= {walk.tensors.rows[number].storage for number in walk.leaf_tensors.values()}
    storages |= {event.storage for event in events if isinstance(event, OutOfSight)}
    for event in events:
        if (
            not isinstance(event, InPlaceWrite)
            or opaque
            or event.write.source is not None
            or event.write.storage in storages
            or event.write.counter in counters
        ):
            yield event
