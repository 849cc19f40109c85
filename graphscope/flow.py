"""Where values went, call by call: also where the autograd graph has no edge, because the gradient was cut."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from .events import Call
from .trace import Trace

_MOST_CUTS = 8  # a value that this many cuts lie before is not explained better by more


@dataclass(frozen=True, slots=True)
class Cut:
    """A call at which a gradient stops.

    ``exit`` is the call by which the value then left torch, if it did, and ``returns`` the one that
    brought it back. ``from_tensors`` are the parameters whose gradient it stops, ``certain`` is False where the
    value was recognised by its numbers only, and ``reaches`` is False where it is not known to feed the loss.
    """

    call: Call
    exit: Call | None
    returns: Call | None
    from_tensors: frozenset[int]
    certain: bool = True
    reaches: bool = True


def cuts(trace: Trace, sources: Collection[int], losses: Collection[int]) -> tuple[Cut, ...]:
    """The calls between some parameters and some losses at which the gradient stops, in order of time.

    First come those whose value is known to feed a loss. Only if there is none, those whose value was
    lost from sight (a number that Python went on computing with), with ``reaches`` False.
    """
    following = Following(frozenset(sources))
    for call in trace.calls:
        following.follow(call)
    wanted = {id for loss in losses for id in following.dead.get(loss, ())}
    found = [following.cut(id, reaches=True) for id in sorted(wanted)]
    if not found:
        found = [following.cut(id, reaches=False) for id in sorted(following.ends)]
    return tuple(found)


class Following:
    """Follows parameters forward through the calls: alive while a gradient could come back, then dead."""

    def __init__(self, sources: frozenset[int]) -> None:
        self.alive: dict[int, frozenset[int]] = {id: frozenset((id,)) for id in sources}
        self.dead: dict[int, tuple[int, ...]] = {}  # by value: the indices of the cuts before it
        self.ends: set[int] = set()  # cuts whose value left torch
        self._cuts: list[tuple[Call, frozenset[int]]] = []
        self._left: dict[int, set[int]] = {}  # by tensor that left torch: the cuts before it
        self._exits: dict[int, Call] = {}
        self._returns: dict[int, Call] = {}
        self._likely: set[int] = set()

    def cut(self, id: int, *, reaches: bool) -> Cut:
        """One of the cuts that were met, by its index."""
        call, sources = self._cuts[id]
        return Cut(call, self._exits.get(id), self._returns.get(id), sources, id not in self._likely, reaches)

    def follow(self, call: Call) -> None:
        """Take the next call into account."""
        behind: frozenset[int] = frozenset()
        for id in call.inputs:
            behind |= self.alive.get(id, frozenset())
        before = {cut for id in call.inputs for cut in self.dead.get(id, ())}
        before |= self._came_back(call)
        if behind and any(call.gives_grad):
            for output in call.outputs:
                self.alive[output] = self.alive.get(output, frozenset()) | behind
        elif behind and (call.leaves or call.outputs):
            before.add(len(self._cuts))
            self._cuts.append((call, behind))
        if before and call.leaves:
            self._leave(call, before)
        if before:
            for output in call.outputs:
                self.dead[output] = tuple(sorted({*self.dead.get(output, ()), *before}))[:_MOST_CUTS]

    def _leave(self, call: Call, before: set[int]) -> None:
        self.ends |= before
        for id in before:
            self._exits.setdefault(id, call)
        for each in call.inputs:
            self._left.setdefault(each, set()).update(before)

    def _came_back(self, call: Call) -> set[int]:
        found = {cut for id in call.returned for cut in self._left.get(id, ())}
        for id in found:
            self._returns.setdefault(id, call)
            if call.likely:
                self._likely.add(id)
        return found
