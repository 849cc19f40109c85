"""One failing call in its trace, and a fix to be tried for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from .._plain import dataclass
from ..engine import Culprit, Engine, Verdict
from ..events import Backward, Event, InPlaceWrite, OptimizerStep
from ..findings import Action, Edit, Fix
from ..graph import Graph
from ..location import Location
from ..trace import Trace

Timeline = list[tuple[int, Event]]
"""Events with the positions that they have in the trace."""


@dataclass(frozen=True)
class Candidate:
    """A fix, and the sequence (and graph, where it cuts edges) that the program would have with it."""

    fix: Fix
    timeline: Timeline
    graph: Graph | None = None
    popular: bool = False


@dataclass(frozen=True)
class Case:
    """One failing call in its trace."""

    trace: Trace
    verdict: Verdict

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.trace.graph, self.trace.events)

    @cached_property
    def timeline(self) -> Timeline:
        return list(enumerate(self.trace.events))

    @cached_property
    def failing(self) -> frozenset[int]:
        """The positions of the calls that fail as things are."""
        return frozenset(verdict.position for verdict in self.engine.run(self.trace.events) if verdict.fails)

    @property
    def position(self) -> int:
        return self.verdict.position

    @cached_property
    def freers(self) -> tuple[Culprit, ...]:
        return tuple(culprit for culprit in self.verdict.culprits if culprit.kind == "freed")

    @cached_property
    def writers(self) -> tuple[Culprit, ...]:
        return tuple(culprit for culprit in self.verdict.culprits if culprit.kind == "stale")

    @cached_property
    def is_carried(self) -> bool:
        """Whether the statement that fails ran before: something was carried over from an earlier turn of a loop."""
        return any(_same_statement(event, self.verdict.event) for event in self.trace.events[: self.position])

    def alike(self, culprits: tuple[Culprit, ...]) -> frozenset[int]:
        """The positions of all runs of the culprits' statements: to edit a line is to edit each of them."""
        return frozenset(
            position
            for position, event in self.timeline
            if any(_same_statement(event, culprit.event) for culprit in culprits)
        )

    def edits(self, action: Action, events: Iterable[Event], other: Location | None = None) -> tuple[Edit, ...]:
        """The edits of these statements; none for a plan, whose statements are not at the lines it names."""
        locations = dict.fromkeys(event.location for event in events) if self.verdict.event.ran else ()
        return tuple(Edit(action, location, other) for location in locations)

    def is_part(self, culprit: Culprit) -> bool:
        """Whether a write is part of the computation that the failing call goes through."""
        if isinstance(culprit.event, OptimizerStep):
            return False
        made = self.trace.graph.locations
        return any(made.get(node) == culprit.event.location for node in self.engine.runs(self.verdict.event))

    def existed(self, time: int) -> bool:
        """Whether the roots of the failing call had been computed by then."""
        nodes = (root.node for root in self.verdict.event.roots)
        if not self.verdict.event.ran:
            return True
        made = [self.trace.graph.times.get(node) for node in nodes if node is not None]
        return all(each is not None and each <= time for each in made)

    def tried(self, candidate: Candidate) -> Fix:
        """The fix with the model's answer: the call must run, and no other may begin to fail."""
        events = tuple(event for _, event in candidate.timeline)
        engine = self.engine if candidate.graph is None else Engine(candidate.graph, events)
        for verdict in engine.run(events):
            position = candidate.timeline[verdict.position][0]
            if not verdict.succeeds and (position == self.position or position not in self.failing):
                return replace(candidate.fix, checked=True, works=False, reason=self.objection(verdict))
        return replace(candidate.fix, checked=True, until=self.verdict.event.location if candidate.fix.bytes else None)

    def objection(self, verdict: Verdict) -> str:
        """Why a call still fails."""
        op = self.trace.graph.ops[verdict.node] if verdict.node is not None else "a node"
        by = ", ".join(
            dict.fromkeys(str(each.event.location) for each in verdict.culprits if each.kind == verdict.kind)
        )
        if verdict.kind == "freed":
            return f"the buffers of {op} would still have been freed" + (f" at {by}" if by else "")
        name = f"`{verdict.saved.name}`, " if verdict.saved else "a tensor "
        return f"{name}saved by {op}, would have been modified by an inplace operation" + (f" at {by}" if by else "")

    def held(self, culprits: tuple[Culprit, ...]) -> int:
        """Bytes that the graphs of these calls keep alive; leaves and parameters live on without them."""
        nodes = frozenset().union(
            *(self.engine.runs(each.event) for each in culprits if isinstance(each.event, Backward))
        )
        tensors, saved = self.trace.tensors, self.trace.graph.saved
        rows = (row for node in nodes & self.engine.buffers.needed for row in saved.get(node, ()) if not row.freed)
        kept = {(row.storage, row.bytes) for row in rows if row.tensor is None or not tensors[row.tensor].is_leaf}
        return sum(bytes for _, bytes in kept)

    def names(self, tensors: frozenset[int]) -> str:
        return ", ".join(f"`{self.trace.tensors[id]}`" for id in sorted(tensors))


def _same_statement(one: Event, other: Event) -> bool:
    """Whether both are runs of one statement. All of an assumed plan is written at one place."""
    if isinstance(other, Backward | OptimizerStep) and not other.ran:
        return one is other
    return type(one) is type(other) and one.location == other.location


def call_text(event: Event) -> str:
    """What a fix calls the failing call."""
    if not isinstance(event, Backward):
        return "the call"
    names = ", ".join(root.name for root in event.roots)
    return f"{names}.backward()" if event.accumulates and len(event.roots) == 1 else f"the backward of {names}"


def writer_text(case: Case, event: Event) -> str:
    """What a fix calls the step or the write."""
    if isinstance(event, OptimizerStep):
        return f"{case.trace.optimizers[event.optimizer].name}.step()"
    return f"`{event.op}`" if isinstance(event, InPlaceWrite) else "the write"


def places_text(culprits: tuple[Culprit, ...]) -> str:
    """Where the culprits are."""
    return " and ".join(dict.fromkeys(str(culprit.event.location) for culprit in culprits))


def inserted(timeline: Timeline, entries: Timeline, *, after: int) -> Timeline:
    """The timeline with these entries behind what has this position."""
    index = next((index for index, (position, _) in enumerate(timeline) if position > after), len(timeline))
    return [*timeline[:index], *entries, *timeline[index:]]
