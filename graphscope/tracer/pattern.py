"""Programs repeat themselves: what the pattern of a program's events is, and when a step need not be recorded."""

from __future__ import annotations

from collections.abc import Hashable

_STEADY = 10  # steps in which nothing new is met, after which a program is taken to repeat itself
_AGAIN = 5  # the same, once it did
_GLANCE = 3  # steps recorded now and then, each time twice as late
_MOST_KINDS = 4096  # a program with more kinds of events has no pattern


class Pattern:
    """Which event follows which, an event being told by its kind and its call site.

    What follows suffices: accumulation, nested loops and epochs are loops among a few events. A step is recorded
    while something new was met shortly before it, and now and then, as what a step computes may change.
    """

    def __init__(self, *, every_step: bool = False) -> None:
        self.steps = 0
        self._every_step = every_step
        self._known: set[tuple[Hashable, Hashable]] = set()
        self._last: Hashable = None
        self._news = True
        self._needed = _STEADY
        self._until = 0
        self._glance = 0

    def saw(self, event: Hashable) -> None:
        """An event took place."""
        pair = self._last, event
        self._last = event
        if pair not in self._known and len(self._known) < _MOST_KINDS:
            self._known.add(pair)
            self._news = True

    def next_step(self) -> bool:
        """A step has ended; whether the next one is to be recorded."""
        self.steps += 1
        if self._news:
            self._news = False
            self._until = self.steps + self._needed
        elif self.steps == self._glance:
            self._until = self.steps + _GLANCE
        if self._every_step or self.steps < self._until:
            return True
        if self.steps == self._until:
            self._needed = _AGAIN
            self._glance = 2 * self.steps
        return False
