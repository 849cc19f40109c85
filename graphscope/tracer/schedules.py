"""Watch learning rate schedulers: which optimizer each of them sets the rates of, and when."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from ..events import ScheduleStep
from . import _torch
from .optimizers import OptimizerWatch
from .recording import Recording

_ENOUGH = 3  # calls of one statement that are recorded while the program repeats itself


class ScheduleWatch:
    """Turns the steps of schedulers into events: also those of an epoch's end, when its steps are recorded no more."""

    def __init__(self, recording: Recording, optimizers: OptimizerWatch) -> None:
        self._seen = recording
        self._optimizers = optimizers
        self._asleep: Counter[tuple[int, int]] = Counter()  # by call site, and how many optimizers there were

    def update(self, original: Any, scheduler: Any, *args: Any, **kwargs: Any) -> Any:
        """What ``scheduler.step()`` calls to set the rates, as does the constructor, for the first time."""
        result = original(scheduler, *args, **kwargs)
        seen = self._seen
        if (seen.off and not (seen.asleep and seen.is_here)) or _torch.is_being_made(scheduler):
            return result
        with seen.guard():
            location = seen.frames.here(sys._getframe(2))
            site = id(location), len(self._optimizers)
            if location is None or (seen.asleep and self._asleep[site] == _ENOUGH):
                return result
            self._asleep[site] += seen.asleep
            optimizer = scheduler.optimizer
            early = _torch.skips_first_rates(scheduler)
            given = bool([each for each in (*args, *kwargs.values()) if each is not None])
            known = self._optimizers.known(optimizer).id
            kind = type(scheduler).__name__
            uses = self._optimizers.uses(optimizer)
            seen.events.append(ScheduleStep(seen.tick(), seen.step, location, kind, known, early, given, uses))
        return result
