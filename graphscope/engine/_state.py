"""Where things stand after some of the events, and what the next call makes of it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from .._plain import dataclass
from ..events import Backward, Event, InPlaceWrite, OptimizerStep, Write
from ..graph import SavedTensor
from ._verdict import Culprit, Kind, Verdict

if TYPE_CHECKING:
    from ._engine import Engine

_NEVER_BEGAN = (
    "One of the differentiated Tensors does not require grad",
    "can't retain_grad on Tensor that has requires_grad=False",
    "RuntimeError: invalid gradient at index",  # that of a node begins with "Function"
)
"""How torch refuses, before any node runs, an input that has no graph or a root that has another shape by now."""
_RAN_TO_ITS_END = "appears to not have been used in the graph"
"""How torch refuses, once all nodes ran, to have no gradient for an input."""

Bad = dict[int, tuple[Kind, bool]]
"""Nodes that would fail: how, and whether that is certain."""


@dataclass(slots=True)
class State:
    """Where things stand after some of the events."""

    engine: Engine
    events: Sequence[Event]
    spent: set[int] = field(default_factory=set)
    doubtful: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    released: set[int] = field(default_factory=set)  # by the event last followed
    outdated: set[int] = field(default_factory=set)  # since these were last looked at
    met: dict[int, int] = field(default_factory=dict)
    releases: list[tuple[int, Backward]] = field(default_factory=list)
    versions: dict[int, int] = field(default_factory=dict)
    writes: dict[int, list[tuple[int, int, Write]]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.spent |= self.engine.buffers.gone
        if not any(event.ran for event in self.events if isinstance(event, Backward | OptimizerStep)):
            self._start_from_snapshot()

    def _start_from_snapshot(self) -> None:
        """A plan starts at the versions that the tracer saw; a recording cannot tell when they came about."""
        for counter, version in self.engine.graph.versions.items():
            self._advance(counter, version)
        for tensor in self.engine.graph.tensors:
            if tensor.counter >= 0 and tensor.version:
                self._advance(tensor.counter, tensor.version)
        self.met = dict.fromkeys(self.engine.buffers.undated, -1)

    def follow(self, position: int, event: Event) -> Verdict | None:
        """Take the next event into account; a verdict for a backward or grad call."""
        match event:
            case Backward():
                return self.backward(position, event)
            case InPlaceWrite(write=write):
                self.write(position, write)
            case OptimizerStep(writes=writes, ran=ran):
                for write in writes:
                    self.write(position, write, assumed=not ran)
        return None

    def write(self, position: int, write: Write, *, assumed: bool = False) -> None:
        """Move a version counter on; an assumed write only knows by how much."""
        current = self.versions.get(write.counter, write.before)
        after = max(current, write.before) + write.after - write.before if assumed else write.after
        if after > write.before:
            self._advance(write.counter, after)
            self.writes[write.counter].append((position, after, write))
            undated = self.engine.buffers.undated_by_counter.get(write.counter, ())
            self.outdated.update(node for node in undated if self._follows(position, node))

    def _advance(self, counter: int, version: int) -> None:
        pairs = self.engine.buffers.dated.get(counter, ())
        first = bisect_left(pairs, (self.versions.get(counter, 0), -1)) if counter in self.versions else 0
        for saved_at, node in pairs[first:]:
            if saved_at >= version:
                break
            self.stale.add(node)
            self.outdated.add(node)
        self.versions[counter] = max(version, self.versions.get(counter, 0))

    def backward(self, position: int, event: Backward) -> Verdict:
        """What the call does, and what it leaves behind."""
        if any(root.node is None for root in event.roots):
            return Verdict(event, position, "no graph")
        runs = self.engine.runs(event)
        for node in self.engine.buffers.undated.keys() & runs:
            self.met.setdefault(node, position)
        verdict = Verdict(event, position)
        if event.error is not None and any(words in event.error for words in _NEVER_BEGAN):
            return verdict
        bad = self._bad(event, runs)
        ran: frozenset[int] | set[int] = runs
        if bad:
            node, ran, certain = self._first(event, runs, bad)
            verdict = self._explain(position, event, runs, node, bad[node][0], certain)
        self._release(event, verdict, runs, ran)
        if not (event.retain_graph or event.create_graph):
            self.releases.append((position, event))
        return verdict

    def _bad(self, event: Backward, runs: frozenset[int]) -> Bad:
        """The nodes that would fail, how, and whether that is certain."""
        buffers = self.engine.buffers
        bad: Bad = {}
        for node in (buffers.undated.keys() & runs) - self.stale:
            late = [
                position
                for counter in buffers.undated[node]
                for position, _, _ in self.writes.get(counter, ())
                if self._follows(position, node)
            ]
            if late:
                bad[node] = ("stale", node in self.engine.graph.times or max(late) > self.met[node])
        bad.update(dict.fromkeys(self.stale & runs, ("stale", True)))
        bad.update(dict.fromkeys(self.doubtful & runs, ("freed", False)))
        bad.update(dict.fromkeys(self.spent & runs, ("freed", True)))
        for node in buffers.unsure & bad.keys():
            bad[node] = (bad[node][0], False)
        bad.update(dict.fromkeys(self.engine.refused(event, runs), ("checkpoint", True)))
        return bad

    def _first(self, event: Backward, runs: frozenset[int], bad: Bad) -> tuple[int, set[int], bool]:
        """The node that fails first, the nodes that run before it, and whether it certainly fails."""
        doubt = None
        ran: set[int] = set()
        for node in self.engine.order(event, runs):
            if node in bad:
                if bad[node][1]:
                    return node, ran, True
                doubt = node if doubt is None else doubt
            ran.add(node)
        assert doubt is not None
        return doubt, ran, False

    def _release(self, event: Backward, verdict: Verdict, runs: frozenset[int], ran: Iterable[int]) -> None:
        """Free what ran. Where it is unknown whether the call failed, what it was seen to do decides."""
        if event.retain_graph or event.create_graph:
            return
        freed = self.engine.buffers.needed & frozenset(ran)
        surprising = event.error is not None and not verdict.fails and _RAN_TO_ITS_END not in event.error
        if surprising or (not verdict.certain and not event.ran):
            self.doubtful |= freed - self.spent
        else:
            self.released = set(freed - self.spent)
            self.spent |= freed

    def _explain(
        self, position: int, event: Backward, runs: frozenset[int], node: int, kind: Kind, certain: bool
    ) -> Verdict:
        buffers = self.engine.buffers
        saved = next((each for each in buffers.of(node) if kind == "freed" or self._is_stale(each)), None)
        culprits: tuple[Culprit, ...] = ()
        unseen = False
        if kind in ("freed", "stale"):
            relevant = (runs & buffers.needed) - (buffers.unsure if certain else frozenset())
            found = [*self._freers(relevant - buffers.gone), *_as_steps(self._writers(relevant))]
            culprits = tuple(sorted(found, key=lambda culprit: culprit.position))
            unseen = not any(culprit.kind == kind and node in culprit.nodes for culprit in culprits)
        version = None if saved is None else self.versions.get(saved.counter)
        return Verdict(event, position, kind, certain, node, saved, version, culprits, unseen)

    def _is_stale(self, saved: SavedTensor) -> bool:
        if saved.hooked or saved.counter < 0 or saved.counter not in self.versions:
            return False
        return saved.version is None or saved.version < self.versions[saved.counter]

    def _follows(self, position: int, node: int) -> bool:
        """Whether a write came after a node saved at an unknown version: by time, else that cannot be ruled out."""
        made = self.engine.graph.times.get(node)
        return made is None or self.events[position].time > made

    def _freers(self, relevant: frozenset[int]) -> Iterator[Culprit]:
        """The earlier calls that release, if they run to their end, something that is needed."""
        for position, event in self.releases:
            if shared := self.engine.completes(event) & relevant:
                yield Culprit(event, position, "freed", tuple(sorted(shared)))

    def _writers(self, relevant: frozenset[int]) -> Iterator[Culprit]:
        """The earlier events that wrote to a tensor after it was saved."""
        nodes: dict[int, set[int]] = defaultdict(set)
        writes: dict[int, dict[int, Write]] = defaultdict(dict)
        buffers = self.engine.buffers
        for counter, written in self.writes.items():
            dated = [pair for pair in buffers.dated.get(counter, ()) if pair[1] in relevant]
            undated = relevant.intersection(buffers.undated_by_counter.get(counter, ()))
            for position, after, write in written if dated or undated else ():
                met = {node for _, node in dated[: bisect_left(dated, (after, -1))]}
                met.update(node for node in undated if self._follows(position, node))
                if met:
                    nodes[position] |= met
                    writes[position][id(write)] = write
        for position, found in nodes.items():
            yield Culprit(
                self.events[position], position, "stale", tuple(sorted(found)), tuple(writes[position].values())
            )


def _as_steps(writers: Iterable[Culprit]) -> Iterator[Culprit]:
    """The writers, without those that a step made one by one (LBFGS): they are told as the step."""
    found = list(writers)
    steps = {each.event.location for each in found if isinstance(each.event, OptimizerStep) and each.event.ran}
    for each in found:
        if not isinstance(each.event, InPlaceWrite) or each.event.location not in steps:
            yield each
