"""Which modules are made anew again and again, each time to train for a step or two and then be thrown away."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from .._plain import dataclass
from ..events import GradRead, GradWrite, InPlaceWrite
from ..graph import Birth
from ..location import Location
from ..trace import Trace
from ._between import behind, between
from ._source import parsed

FEW_STEPS = 2  # with more of them between, making something anew may be meant: a new phase, a client of its own
MIN_TIMES = 3
_known: WeakKeyDictionary[Trace, tuple[Rebuilt, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What one statement makes: the parameters that it made each time, and whether optimizers held those."""

    location: Location
    times: tuple[tuple[int, ...], ...]
    held: bool


def rebuilt(trace: Trace) -> tuple[Rebuilt, ...]:
    """The statements whose modules start from nothing each time, though they get gradients and are to train."""
    if trace not in _known:
        _known[trace] = tuple(_found(trace))
    return _known[trace]


def _found(trace: Trace) -> Iterator[Rebuilt]:
    lives = _Lives(trace)
    held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
    for location, times in lives.by_place().items():
        everyone = [id for ids in times for id in ids]
        if len(times) < MIN_TIMES or not lives.take_turns(times) or lives.typical_steps(times) > FEW_STEPS:
            continue
        if held.isdisjoint(everyone):
            trained = held & trace.ever_reached
            if [*between(trace, times[0], trained), *behind(trace, times[0], trained)]:
                yield Rebuilt(location, times, False)
        elif held.issuperset(everyone) and not any(lives.is_used_later(ids) for ids in times):
            yield Rebuilt(location, times, True)


class _Lives:
    """When parameters are made, reached, stepped on and used."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._backwards = [event for event in trace.backwards if event.accumulates and event.error is None]
        self._reached: dict[int, list[tuple[int, int]]] = {}  # by parameter: time and step of each backward
        for event in self._backwards:
            for id in trace.reached(event):
                self._reached.setdefault(id, []).append((event.time, event.step))
        self._known = {id for module in trace.modules for _, id in module.parameters}
        self._known.update(id for optimizer in trace.optimizers for id in optimizer.parameters)
        self._last_step = {id: step.time for step in trace.steps for id in step.graded}
        self._first_call = {id: call for call in reversed(trace.calls) for id in call.inputs}
        self._last_call = {id: call.time for call in trace.calls for id in call.inputs}

    def by_place(self) -> dict[Location, tuple[tuple[int, ...], ...]]:
        """What each statement made that gets gradients, by the times that it ran between two backwards."""
        begins = [event.time for event in self._backwards]
        aside = self._aside()
        found: dict[Location, dict[int, list[int]]] = {}
        for id in sorted(self._reached.keys() - aside):
            birth = self.birth(id)
            if birth is not None and self._trace.graph.tensor(id).requires_grad:
                times = found.setdefault(birth.location, {})
                times.setdefault(bisect_left(begins, birth.time), []).append(id)
        return {place: tuple(tuple(times[at]) for at in sorted(times)) for place, times in found.items()}

    def birth(self, id: int) -> Birth | None:
        """When and where it was made; one of no module and no optimizer where it was used first."""
        tensor = self._trace.graph.tensor(id)
        call = self._first_call.get(id)
        if tensor.birth is not None or not tensor.is_parameter or id in self._known or call is None:
            return tensor.birth
        return None if call.location is None else Birth(call.time, (_written(self._trace, call.location),))

    def _aside(self) -> set[int]:
        """Parameters that were given values, are in eval mode, or whose gradients the program itself uses."""
        trace = self._trace
        found = {id for module in trace.modules for id in module.evaluated}
        found.update(id for event in trace.backwards if event.inputs is not None for id in trace.reached(event))
        for event in trace.events:
            match event:
                case GradRead(present=True):
                    found.add(event.tensor)
                case GradWrite() if not event.clips:
                    found.update(event.tensors)
                case InPlaceWrite() if event.op == "copy_" or event.write.source is not None:
                    found.add(event.write.tensor)
                case _:
                    pass
        return found

    def take_turns(self, times: tuple[tuple[int, ...], ...]) -> bool:
        """Whether each of them is reached for the last time before the next one is made."""
        ends = [max(self._reached[id][-1][0] for id in ids) for ids in times]
        begins = [self.birth(ids[0]) for ids in times]
        return all(begin is not None and end < begin.time for end, begin in zip(ends, begins[1:], strict=False))

    def typical_steps(self, times: tuple[tuple[int, ...], ...]) -> int:
        """In how many steps they are reached, most of them."""
        often = sorted(max(len({step for _, step in self._reached[id]}) for id in ids) for ids in times)
        return often[len(often) // 2]

    def is_used_later(self, ids: tuple[int, ...]) -> bool:
        """Whether something was computed from them after they had been stepped on."""
        return any(self._last_call.get(id, -1) > self._last_step.get(id, -1) for id in ids)


def _written(trace: Trace, use: Location) -> Location:
    """The last ``nn.Parameter(...)`` that is written before a use, in the same function; the use itself if none is."""
    tree = parsed(trace.sources.get(use.file, ""))
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.lineno <= use.line]
    inner = max((each for each in functions if use.line <= (each.end_lineno or 0)), key=_line, default=tree)
    made = [
        each
        for each in ast.walk(inner)
        if isinstance(each, ast.Call) and ast.unparse(each.func).endswith("Parameter") and each.lineno <= use.line
    ]
    last = max(made, key=_line, default=None)
    return use if last is None else replace(use, line=last.lineno, end_line=last.end_lineno or last.lineno)


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)
