"""The training loops of a program: which steps take turns, and what one time round looks like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from ._plain import dataclass
from .events import Backward, Event, OptimizerStep, ZeroGrad
from .location import Location
from .trace import Trace


class Mark(NamedTuple):
    """What an event is to a cycle: ``"backward"``, ``"zero"`` or ``"step"``, its statement, and whose it is."""

    kind: str
    location: Location
    optimizer: int | None = None


Part = tuple[tuple[Mark, int], ...]  # marks in order, each with how often it came in a row; a step is the last one
Shape = tuple[tuple[Part, int], ...]  # parts in order, each with how often it came in a row


@dataclass(frozen=True, slots=True)
class Turn:
    """One time round a loop: the events ``first`` to ``last`` of the timeline, both included."""

    first: int
    last: int
    shape: Shape

    @property
    def backwards(self) -> int:
        """How many backwards it has."""
        return sum(count * often for part, often in self.shape for (kind, _, _), count in part if kind == "backward")


@dataclass(frozen=True, slots=True)
class Loop:
    """Steps that take turns: ``sites`` are their statements, ``end`` is the one that ends a turn."""

    sites: tuple[Mark, ...]
    end: Mark
    turns: tuple[Turn, ...]

    @property
    def steady(self) -> Shape:
        """What most of its turns look like, the later one where two are as frequent."""
        counts = Counter(turn.shape for turn in self.turns)
        return max(reversed(counts), key=lambda shape: counts[shape])

    @property
    def regular(self) -> int:
        """How many turns look like that."""
        return sum(turn.shape == self.steady for turn in self.turns)


_Item = TypeVar("_Item")
_loops: WeakKeyDictionary[Trace, tuple[Loop, ...]] = WeakKeyDictionary()


def loops(trace: Trace) -> tuple[Loop, ...]:
    """The training loops, in the order they begin.

    Steps at different statements belong to one loop if they take turns. The one that comes least often ends a turn:
    with five discriminator steps to one generator step that is the generator's. A program that never steps an
    optimizer is cut at its backwards.
    """
    if trace not in _loops:
        _loops[trace] = _find(trace)
    return _loops[trace]


def mark(event: Event, kin: Sequence[int] | None = None) -> Mark | None:
    """The mark of an event, None for one that is no part of a cycle; ``kin`` gives what an optimizer is to count as."""
    match event:
        case Backward() if event.accumulates:
            return Mark("backward", event.location)
        case ZeroGrad():
            return Mark("zero", event.location)
        case OptimizerStep():
            return Mark("step", event.location, event.optimizer if kin is None else kin[event.optimizer])
        case _:
            return None


def kin(trace: Trace) -> tuple[int, ...]:
    """For each optimizer the first one that was made at the same statement under the same name."""
    first: dict[object, int] = {}
    return tuple(
        first.setdefault((o.location, o.name) if o.location is not None else o.id, o.id) for o in trace.optimizers
    )


def _find(trace: Trace) -> tuple[Loop, ...]:
    alike = kin(trace)
    marks = [(index, each) for index, event in enumerate(trace.events) if (each := mark(event, alike))]
    wanted = "step" if any(each.kind == "step" for _, each in marks) else "backward"
    places: dict[Mark, list[int]] = {}
    for index, each in marks:
        if each.kind == wanted:
            places.setdefault(each, []).append(index)
    found: list[Loop] = []
    position = 0
    for sites in _taking_turns(places):
        end = _rarest({site: places[site] for site in sites})
        last = max(places[site][-1] for site in sites)
        turns: list[Turn] = []
        begun = position
        while position < len(marks) and marks[position][0] <= last:
            index, each = marks[position]
            position += 1
            if each == end or index == last:
                turns.append(_turn(trace.events, marks[begun:position], wanted))
                begun = position
        found.append(Loop(tuple(sites), end, tuple(turns)))
    return tuple(found)


def _taking_turns(places: dict[Mark, list[int]]) -> list[list[Mark]]:
    """The steps, grouped by whether they come between one another."""
    groups: list[list[Mark]] = []
    until = -1
    for site, indices in sorted(places.items(), key=lambda item: item[1][0]):
        if indices[0] > until:
            groups.append([])
        groups[-1].append(site)
        until = max(until, indices[-1])
    return groups


def _rarest(places: dict[Mark, list[int]]) -> Mark:
    """The step that comes least often, but more than once if any does; the last one if several do."""
    often = {site: indices for site, indices in places.items() if len(indices) > 1} or places
    return min(often, key=lambda site: (len(often[site]), -often[site][-1]))


def _turn(events: Sequence[Event], marks: list[tuple[int, Mark]], wanted: str) -> Turn:
    parts: list[Part] = []
    begun = 0
    for position, (_, each) in enumerate(marks, start=1):
        if each.kind == wanted or position == len(marks):
            parts.append(_part(events, marks[begun:position]))
            begun = position
    return Turn(marks[0][0], marks[-1][0], tuple(_runs(parts)))


def _part(events: Sequence[Event], marks: list[tuple[int, Mark]]) -> Part:
    """Marks up to a step. What its closure did counts once, as line searches vary; so does zeroing one by one."""
    step = events[marks[-1][0]]
    began = step.start if isinstance(step, OptimizerStep) else step.time + 1
    before = [each for index, each in marks if events[index].time < began]
    inside = dict.fromkeys(each for index, each in marks if events[index].time >= began)
    return tuple((each, 1 if each.kind == "zero" else count) for each, count in _runs([*before, *inside]))


def _runs(items: Iterable[_Item]) -> list[tuple[_Item, int]]:
    return [(item, len(list(same))) for item, same in groupby(items)]
