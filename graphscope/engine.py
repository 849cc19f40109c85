"""What torch's autograd engine would do with a sequence of events: which call fails, where first, and who caused it.

The model knows what torch 2.13 does, and no more:

- A backward runs every node behind its roots; with ``inputs=`` only those on the way to an input. After a node
  ran, its buffers are released, unless the graph is retained: also when a later node of the same call fails.
- A node fails if a buffer it needs was released ("freed"), or if a tensor it saved has moved on to another
  version since ("stale"). All buffers of a node go together, so freed is always noticed before stale.
- Tensors packed by saved-tensor hooks (checkpoint, ``save_on_cpu``) are released too, but torch does not
  compare their versions. A non-reentrant checkpoint compares those of its arguments instead, which the tracer
  lists beside what is packed.
- A custom Function reads its buffers only through ``ctx.saved_tensors``. Reading that after release fails even
  if nothing was saved.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from itertools import takewhile
from typing import Literal

from ._plain import dataclass
from .events import Backward, Event, InPlaceWrite, OptimizerStep, Write
from .graph import Graph, SavedColumn, SavedTensor
from .trace import Trace

Kind = Literal["freed", "stale", "no graph", "checkpoint"]
"""Why a call fails: a released buffer, a moved version, a root that needs no gradient, or a reentrant
checkpoint under ``inputs=`` or ``autograd.grad``, which torch refuses."""

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


@dataclass(frozen=True, slots=True)
class Culprit:
    """An earlier event that alone would make the call fail.

    ``position`` is its index in ``trace.events``. ``nodes`` are those that it freed, or whose saved tensors
    it overwrote with ``writes``, and that the failing call needs.
    """

    event: Event
    position: int
    kind: Kind
    nodes: tuple[int, ...]
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one ``backward()`` or ``autograd.grad()``.

    If it fails: ``kind`` says why, ``node`` where first, ``saved`` for which tensor (None for a custom
    Function that saved none) and ``version`` what the version of that tensor is by then. ``certain`` is
    False where it only may fail. ``culprits`` are all earlier events that alone would make it fail, by
    position, of either kind. ``unseen`` tells that something before the trace caused it.
    """

    event: Backward
    position: int
    kind: Kind | None = None
    certain: bool = True
    node: int | None = None
    saved: SavedTensor | None = None
    version: int | None = None
    culprits: tuple[Culprit, ...] = ()
    unseen: bool = False

    @property
    def succeeds(self) -> bool:
        """Whether the call runs to its end, as far as can be told."""
        return self.kind is None

    @property
    def fails(self) -> bool:
        """Whether the call certainly raises."""
        return self.kind is not None and self.certain


@dataclass(frozen=True, slots=True)
class Change:
    """What one event did to buffers: the nodes it made release theirs, and those whose saved tensors it made stale."""

    freed: frozenset[int] = frozenset()
    stale: frozenset[int] = frozenset()


def simulate(trace: Trace) -> tuple[Verdict, ...]:
    """One verdict for each backward and grad call of the trace, in order."""
    return Engine(trace.graph, trace.events).run(trace.events)


class Engine:
    """The lifetime rules of one graph; ``run`` may be called for many sequences over the same roots."""

    def __init__(self, graph: Graph, events: Iterable[Event]) -> None:
        events = tuple(events)
        self.graph = graph
        roots = {root.node for event in events if isinstance(event, Backward) for root in event.roots}
        self.reach = Reach(graph.targets, sorted(node for node in roots if node is not None))
        self.buffers = Buffers(graph, _written(graph, events))
        self._incoming: tuple[frozenset[int], dict[int, int]] | None = None  # of the nodes asked for last
        self.reentrant = frozenset(node for node in graph.custom if graph.ops[node] == "CheckpointFunctionBackward")

    def run(self, events: Sequence[Event]) -> tuple[Verdict, ...]:
        """One verdict for each backward and grad call of the sequence, in order."""
        state = _State(self, events)
        verdicts = (state.follow(position, event) for position, event in enumerate(events))
        return tuple(verdict for verdict in verdicts if verdict is not None)

    def changes(self, events: Sequence[Event]) -> Iterator[Change]:
        """What each event of the sequence did to the buffers, in order."""
        state = _State(self, events)
        known: set[int] = set()
        for position, event in enumerate(events):
            state.released, state.outdated = set(), set()
            state.follow(position, event)
            yield Change(frozenset(state.released), frozenset(state.outdated - known))
            known |= state.outdated

    def runs(self, event: Backward) -> frozenset[int]:
        """The nodes that a call sets out to execute."""
        if any(root.node is None for root in event.roots):
            return frozenset()
        roots = tuple(root.node for root in event.roots if root.node is not None)
        return self.reach.runs(roots, event.inputs, stops=not event.accumulates)

    def completes(self, event: Backward) -> frozenset[int]:
        """The nodes that a call executes if no earlier event gets in its way."""
        runs = self.runs(event)
        refused = self.refused(event, runs)
        if not refused:
            return runs
        return frozenset(takewhile(lambda node: node not in refused, self.order(event, runs)))

    def order(self, event: Backward, runs: frozenset[int]) -> Iterator[int]:
        """The nodes of a call in the order in which torch runs them."""
        if self._incoming is None or self._incoming[0] is not runs:
            self._incoming = (runs, _incoming(self.graph, runs))
        return execution_order(self.graph, runs, event, dict(self._incoming[1]))

    def refused(self, event: Backward, runs: frozenset[int]) -> frozenset[int]:
        """Reentrant checkpoints, which torch refuses to run under ``inputs=`` and ``autograd.grad``."""
        return frozenset() if event.inputs is None else self.reentrant & runs


_FEW_ROOTS = 64  # up to here one pass over the edges serves all roots; beyond, most roots share only leaves


class Reach:
    """Which nodes lie behind which roots: for a few roots by one pass over the edges, for all of them together."""

    def __init__(self, targets: Sequence[tuple[tuple[int, int], ...]], roots: Sequence[int]) -> None:
        self._targets = targets
        self._bits = {root: 1 << position for position, root in enumerate(roots)}
        self._order = _topological(targets)
        self._regions = self._divide() if len(roots) <= _FEW_ROOTS else None
        self._known: dict[object, frozenset[int]] = {}
        self._ranks: dict[int, int] = {}

    def _divide(self) -> dict[int, list[int]]:
        """Nodes by the set of roots that reach them, written as bits."""
        masks = [0] * len(self._targets)
        for root, bit in self._bits.items():
            masks[root] |= bit
        regions = defaultdict(list)
        for node in self._order:
            mask = masks[node]
            regions[mask].append(node)
            for target, _ in self._targets[node]:
                if target >= 0 and masks[target] != mask:
                    masks[target] = masks[target] | mask if masks[target] else mask
        return regions

    def behind(self, roots: Iterable[int]) -> frozenset[int]:
        """All nodes that lie behind any of the roots, and the roots."""
        key = frozenset(roots)
        if key not in self._known:
            self._known[key] = self._walk(key) if self._regions is None else self._gather(self._regions, key)
        return self._known[key]

    def _gather(self, regions: dict[int, list[int]], roots: frozenset[int]) -> frozenset[int]:
        bits = 0
        for root in roots:
            bits |= self._bits[root]
        return frozenset().union(*(nodes for mask, nodes in regions.items() if mask & bits))

    def _walk(self, roots: frozenset[int]) -> frozenset[int]:
        seen, stack = set(roots), list(roots)
        while stack:
            for target, _ in self._targets[stack.pop()]:
                if target >= 0 and target not in seen:
                    seen.add(target)
                    stack.append(target)
        return frozenset(seen)

    def runs(self, roots: tuple[int, ...], inputs: tuple[int, ...] | None, *, stops: bool) -> frozenset[int]:
        """The nodes that a call executes.

        ``backward(inputs=...)`` also runs the node of an input that is no leaf; ``autograd.grad`` takes the
        gradient that arrives there and ``stops``, unless another input lies behind it.
        """
        if inputs is None:
            return self.behind(roots)
        key = (roots, inputs, stops)
        if key not in self._known:
            self._known[key] = self._towards(self.behind(roots), frozenset(inputs), stops)
        return self._known[key]

    def _towards(self, behind: frozenset[int], inputs: frozenset[int], stops: bool) -> frozenset[int]:
        if not self._ranks:
            self._ranks = {node: rank for rank, node in enumerate(reversed(self._order))}
        wanted = set(inputs & behind)
        runs = set() if stops else set(wanted)
        for node in sorted(behind, key=self._ranks.__getitem__):
            if any(target in wanted for target, _ in self._targets[node]):
                wanted.add(node)
                runs.add(node)
        return frozenset(runs)


def _topological(targets: Sequence[tuple[tuple[int, int], ...]]) -> list[int]:
    """All nodes, each before those its edges lead to."""
    waiting = [0] * len(targets)
    for edges in targets:
        for target, _ in edges:
            if target >= 0:
                waiting[target] += 1
    order = [node for node, count in enumerate(waiting) if not count]
    for node in order:
        for target, _ in targets[node]:
            if target >= 0:
                waiting[target] -= 1
                if not waiting[target]:
                    order.append(target)
    return order


class Buffers:
    """What the nodes of a graph hold: which fail without their buffers, and which are ``written``, by counter."""

    def __init__(self, graph: Graph, written: set[int]) -> None:
        self._graph = graph
        self.needed: set[int] = {node for node, reads in graph.custom.items() if reads is not False}
        self.unsure = frozenset(node for node, reads in graph.custom.items() if reads is None)
        self.gone: set[int] = set()
        self.undated: dict[int, list[int]] = defaultdict(list)
        self.dated: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for node, counter, version, freed, hooked in _watched(graph):
            if graph.custom.get(node, True) is not False:
                self.needed.add(node)
                if freed:
                    self.gone.add(node)
                elif counter in written and not hooked:
                    if version is None:
                        self.undated[node].append(counter)
                    else:
                        self.dated[counter].append((version, node))
        for pairs in self.dated.values():
            if len(pairs) > 1:
                pairs.sort()

    @cached_property
    def undated_by_counter(self) -> dict[int, list[int]]:
        """The nodes that saved a tensor of unknown version, by the counter of that tensor."""
        found: dict[int, list[int]] = defaultdict(list)
        for node, counters in self.undated.items():
            for counter in counters:
                found[counter].append(node)
        return found

    def of(self, node: int) -> list[SavedTensor]:
        """What a node saved, in the order in which torch unpacks it: inputs of the operator before its results."""
        return sorted(self._graph.saved.get(node, ()), key=lambda saved: saved.name.startswith("result"))


def _written(graph: Graph, events: Iterable[Event]) -> set[int]:
    """The version counters that moved, or will: those that no write touches need no watching."""
    found = {counter for counter, version in graph.versions.items() if version}
    found |= {tensor.counter for tensor in graph.tensors if tensor.version}
    for event in events:
        if isinstance(event, InPlaceWrite):
            found.add(event.write.counter)
        elif isinstance(event, OptimizerStep):
            found.update(write.counter for write in event.writes)
    return found - {-1}


def _watched(graph: Graph) -> Iterator[tuple[int, int, int | None, bool, bool]]:
    """Node, counter, version, freed and hooked of every saved tensor; making the objects took most of the time."""
    if isinstance(graph.saved, SavedColumn):
        for node, rows in graph.saved.rows.items():
            for row in rows:
                yield node, row[5], row[6], row[7], row[8]
    else:
        for node, saved in graph.saved.items():
            for each in saved:
                yield node, each.counter, each.version, each.freed, each.hooked


@dataclass(slots=True)
class _State:
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


def _incoming(graph: Graph, runs: frozenset[int]) -> dict[int, int]:
    """How many edges lead to a node from those that run."""
    counts: dict[int, int] = {}
    for node in runs:
        for target, _ in graph.targets[node]:
            counts[target] = counts.get(target, 0) + 1
    return counts


def execution_order(graph: Graph, runs: frozenset[int], event: Backward, waiting: dict[int, int]) -> Iterator[int]:
    """The nodes of a call in the order in which torch runs them; ``waiting`` counts the edges to each, and is used up.

    A node is ready once every node that leads to it has run; of the ready ones the highest sequence number
    goes first. AccumulateGrad has the highest of all, and saves nothing.
    """
    roots = {root.node for root in event.roots if root.node in runs}
    ready = [(-graph.sequences[node], node) for node in roots if not waiting.get(node)]
    heapq.heapify(ready)
    while ready:
        _, node = heapq.heappop(ready)
        yield node
        for target, _ in graph.targets[node]:
            waiting[target] -= 1
            if target in runs and not waiting[target]:
                heapq.heappush(ready, (-graph.sequences[target], target))
