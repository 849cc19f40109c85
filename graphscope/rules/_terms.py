"""The terms of losses that train nothing, and how they lost their history: shared by the rules about them."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import lru_cache
from math import isfinite
from weakref import WeakKeyDictionary

from .._plain import dataclass
from ..events import Call
from ..findings import Confidence
from ..flow import Cut, Following, follow
from ..location import Location
from ..terms import Fate, Term, terms
from ..trace import Trace
from ._parameters import ungraded
from ._regained import regained
from ._source import parsed

_FEW = 16
_COMPREHENSION = re.compile(r"(\.<locals>\.)?<(list|dict|set)comp>|(\.<locals>\.)?<genexpr>")
_MOST_NUMBERS = 256  # that left torch last, of which one may have come back as a term
_dead: WeakKeyDictionary[Trace, tuple[DeadTerm, ...]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class DeadTerm:
    """A term that is a constant to its loss, though it was computed from what trains; the cuts before it."""

    term: Term
    cuts: tuple[Cut, ...]
    confidence: Confidence

    @property
    def sources(self) -> list[int]:
        """The parameters that it would train."""
        return sorted(frozenset().union(*(cut.from_tensors for cut in self.cuts)))


def trained(trace: Trace) -> frozenset[int]:
    """The parameters of the optimizers that stepped."""
    return frozenset(
        id for optimizer in trace.optimizers if optimizer.id in trace.stepped for id in optimizer.parameters
    )


def dead_terms(trace: Trace) -> tuple[DeadTerm, ...]:
    """Each statement that adds such a term, once for each statement that cut it off."""
    if trace not in _dead:
        found: list[DeadTerm] = []
        told: set[tuple[Location, Location | None]] = set()
        for each in _missed(trace):
            where = each.term.call.location
            if where is not None and not told & (here := {(where, cut.call.location) for cut in each.cuts}):
                found.append(each)
                told |= here
        _dead[trace] = tuple(found)
    return _dead[trace]


def _missed(trace: Trace) -> Iterator[DeadTerm]:
    """Those whose gradient would be used. A constant for the optimizer of this loss may come from another's parameters.

    Networks that teach each other show each the entropy of the other's answer; a teacher may have been trained before.
    """
    found = list(_found(trace))
    fate = Fate(trace)
    ends = {root.tensor: event.time for event in trace.backwards if event.accumulates for root in event.roots}
    fates: dict[Location | None, set[str]] = {}
    for each in found:
        of = {fate.of(id, ends[each.term.loss]) for id in each.sources}
        fates.setdefault(each.term.call.location, set()).update(of)
    steps = [step.time for step in trace.steps]
    for each in found:
        of = fates[each.term.call.location]
        is_over = steps and steps[-1] > ends[each.term.loss]  # and it is not merely the end of the recording
        if "used" in of or not ("discarded" in of or (of == {"late"} and is_over)):
            yield each


def _found(trace: Trace) -> Iterator[DeadTerm]:
    """Those behind which something trains otherwise: what never trains is told of as such."""
    lost = {id for optimizer in trace.optimizers for id in ungraded(trace, optimizer)}
    for dead in _constants_added(trace):
        first = [cut for cut in dead.cuts if cut.from_tensors & lost] or list(dead.cuts)
        if not lost.issuperset(dead.sources):
            yield replace(dead, cuts=tuple(first))


def _constants_added(trace: Trace) -> Iterator[DeadTerm]:
    following = follow(trace, trained(trace))
    beside: dict[int, set[int | None]] = {}
    for term in terms(trace):
        beside.setdefault(term.loss, set()).update([term.tensor] if term.alive else [])
    every = [term for term in terms(trace) if not term.alive]
    makers = _Makers(trace)
    numbers = _Numbers(trace, following) if any(term.tensor is None for term in every) else None
    for term in every:
        if term.tensor is None:
            if numbers is not None and (dead := numbers.dead(term)) is not None:
                yield dead
            continue
        before = [cut for cut in following.cuts_of(term.tensor) if cut.call.location is not None]
        before = [cut for cut in before if cut.call.time < term.call.time]
        if before and all(cut.is_frozen for cut in before):  # somebody meant it to be a constant here
            continue
        if before and all(_was_backpropagated(trace, cut) for cut in before):  # a running total: it has trained
            continue
        if not before:
            origins = makers.origins(term.tensor)
            before = [cut for origin in origins for cut in regained(trace, following, origin, term.call.time)]
        if before and not makers.lead_to(term.tensor, beside[term.loss]):
            sure = all(cut.certain for cut in before)
            yield DeadTerm(term, tuple(before), Confidence.CERTAIN if sure else Confidence.LIKELY)


def _was_backpropagated(trace: Trace, cut: Cut) -> bool:
    """Whether what is cut off is a loss that was backpropagated before."""
    before = (event for event in trace.backwards if event.accumulates and event.time < cut.call.time)
    return any(root.tensor in cut.call.inputs for event in before for root in event.roots)


class _Makers:
    """Which call gave each tensor last: to look back from a term."""

    def __init__(self, trace: Trace) -> None:
        self._made = {output: call for call in trace.calls for output in call.outputs}

    def lead_to(self, tensor: int, wanted: Collection[int | None]) -> bool:
        """Whether it was computed from one of these, a few calls ago, as in ``a + (b - a).detach()``."""
        return any(id in wanted for call in self._before(tensor) for id in call.inputs)

    def origins(self, tensor: int) -> list[int]:
        """What it was computed from, a few calls ago, that no call gave: made of numbers, or data."""
        inputs = [tensor, *(id for call in self._before(tensor) for id in call.inputs)]
        return [id for id in dict.fromkeys(inputs) if id not in self._made or not self._made[id].inputs]

    def _before(self, tensor: int) -> Iterator[Call]:
        waiting, seen = [tensor], {tensor}
        while waiting and len(seen) < _FEW:
            call = self._made.get(waiting.pop())
            if call is not None:
                yield call
                waiting += [id for id in call.inputs if id not in seen]
                seen.update(call.inputs)


class _Numbers:
    """Python numbers that left torch: which of them became a term of a loss.

    The call that adds one shows its value only. It is known again by a number of this value that left torch, also
    times or by a constant of the source; or by a name in the sum that a statement gave to what it took out of torch.
    """

    def __init__(self, trace: Trace, following: Following) -> None:
        self._sources = trace.sources
        self._following = following
        self._left = [
            call for call in trace.calls if call.leaves and call.location is not None and call.op != "__bool__"
        ]
        self._times = [call.time for call in self._left]

    def dead(self, term: Term) -> DeadTerm | None:
        """The term, if its number was computed from what trains."""
        where, number = term.call.location, term.number
        if where is None or number is None or not isfinite(number):
            return None
        source = self._sources.get(where.file, "")
        constants = _constants(source)
        before = self._left[: bisect_left(self._times, term.call.time)][-_MOST_NUMBERS:]
        by_value = [call for call in reversed(before) if _is_made_of(number, call.numbers, constants)]
        told = number not in constants and abs(number) not in (0, 1)
        named = [call for call in reversed(before) if told and _is_named(source, call, where)]
        both = [call for call in by_value if call in named]
        for call in (both or by_value or named)[:1]:
            cuts = self._following.cuts_at(call)
            if cuts:
                return DeadTerm(term, tuple(cuts), Confidence.CERTAIN if both else Confidence.LIKELY)
        return None


def _is_made_of(number: float, left: Collection[float], constants: Collection[float]) -> bool:
    """Whether it is one of the numbers that left, itself or scaled; whole numbers are equal by chance too often."""
    if number == int(number):
        return False
    size = abs(number)
    return any(size == abs(x) or any(size in (abs(x * c), abs(x / c)) for c in constants) for x in left)


@lru_cache(maxsize=64)
def _constants(source: str) -> frozenset[float]:
    """The numbers written in a source, other than 0 and 1."""
    values = [node.value for node in _nodes(source) if isinstance(node, ast.Constant)]
    numbers = [float(value) for value in values if type(value) in (int, float) and -1e18 < value < 1e18]  # type: ignore[arg-type,operator]
    return frozenset(value for value in numbers if value not in (0, 1))


def _is_named(source: str, left: Call, sum: Location) -> bool:
    """Whether the sum uses, by name, what the statement of this call took out of torch, or has that call in itself."""
    at = left.location
    if at is None or at.file != sum.file:
        return False
    if at == sum:
        return True
    used = _used(source, sum.line, sum.end_line)
    if _function(at) == _function(sum):
        return bool(used & _targets(source, at.line, at.end_line))
    name = at.function.rpartition(".")[2]
    return f"{name}()" in used and _returns(source, at.line, at.end_line)


def _function(location: Location) -> str:
    """The function around a location; a comprehension belongs to the one it stands in."""
    return _COMPREHENSION.sub("", location.function) or "<module>"


@lru_cache(maxsize=256)
def _used(source: str, line: int, end: int) -> frozenset[str]:
    """The names, attributes and elements that the statement at these lines reads, and what it calls: ``name()``."""
    found = set()
    for node in _nodes(source):
        if isinstance(node, ast.expr) and line <= node.lineno <= end:
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
                found.add(ast.unparse(node))
            elif isinstance(node, ast.Call):
                found.add(f"{ast.unparse(node.func).rpartition('.')[2]}()")
    return frozenset(found)


@lru_cache(maxsize=256)
def _targets(source: str, line: int, end: int) -> frozenset[str]:
    """What the assignments at these lines are to."""
    return frozenset(
        ast.unparse(target)
        for node in _statements(source, line, end)
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )


def _returns(source: str, line: int, end: int) -> bool:
    return any(isinstance(node, ast.Return) for node in _statements(source, line, end))


def _statements(source: str, line: int, end: int) -> list[ast.stmt]:
    """The simple statements that cover these lines."""
    return [
        node
        for node in _nodes(source)
        if isinstance(node, ast.stmt)
        and not hasattr(node, "body")
        and node.lineno <= line
        and end <= (node.end_lineno or node.lineno)
    ]


@lru_cache(maxsize=64)
def _nodes(source: str) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(parsed(source)))


def term_name(trace: Trace, term: Term) -> str:
    """The term as the program calls it: ``the term `lat```."""
    name = None if term.tensor is None else trace.graph.tensor(term.tensor).name
    return f"the term `{name}`" if name else "a term"
