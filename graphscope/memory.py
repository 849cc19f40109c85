"""How much memory graphs keep for their backwards: what holds it, from when until when.

A storage is counted once, however many nodes saved it or views of it. A node keeps what it saved from the call that
made it until a backward that does not retain the graph has run it, or the graph goes away.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from functools import cached_property
from typing import Literal

from ._plain import dataclass
from .engine import Engine
from .events import Backward
from .graph import SavedTensor
from .location import Location
from .trace import Trace

Kind = Literal["activation", "data", "parameter"]
"""What a storage is: the result of an operation, which the graph alone may keep; data without a history that went in
(a batch, a target, a mask), which the program often holds too; a parameter or a buffer, which stays anyway."""

Plan = Literal["sum then one backward", "backward per loss", "accumulation in two halves"]
"""How the losses of one step could be backpropagated: all forwards first, then one backward of the sum; each loss as
soon as it is there; or half of the batch at a time."""


@dataclass(frozen=True, slots=True)
class Held:
    """One storage that graphs keep, whole, as the first node that saved it tells of it.

    ``name`` is the argument in that node's formula. ``nodes`` counts all that saved it. It is kept from
    the time ``since`` to the time ``until``, None where nothing that was seen ended it.
    """

    storage: int
    bytes: int
    kind: Kind
    node: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    nodes: int
    since: int
    until: int | None = None

    def at(self, time: int) -> bool:
        """Whether it is kept just before this time."""
        return self.since < time and (self.until is None or time <= self.until)


@dataclass(frozen=True, slots=True)
class Pass:
    """What one backward does to memory.

    In bytes of activations: ``before`` is what all graphs keep when it begins, ``freed`` what they then let go of, and
    ``retained`` what it leaves behind in the nodes it ran, until the time ``until``, when a later backward frees it or
    its loss goes away; None where that was not seen. ``released`` is what was seen to be gone afterwards, of all kinds:
    less than ``freed`` where variables hold activations, more where the graph alone held data.
    """

    event: Backward
    before: int
    freed: int
    released: int
    retained: int
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Peak:
    """When graphs keep the most activations: just before ``time``, in this optimizer step.

    ``location`` is the statement that made the last of them.
    """

    bytes: int
    time: int
    step: int
    location: Location | None


@dataclass(frozen=True, slots=True)
class Share:
    """A part of what is kept: ``bytes`` of activations, in ``storages``, by ``what`` (a module, a line, a loss)."""

    what: str | Location
    bytes: int
    storages: int


@dataclass(frozen=True, eq=False)
class Memory:
    """What the graphs of a trace keep over time.

    ``held`` has every storage, in the order in which the graphs came to keep them, and ``passes`` every backward that
    ran. ``levels`` has the bytes of activations that are kept from a time on, for each time at which they change.
    ``hooked`` counts saved tensors that hooks packed away (checkpoint, ``save_on_cpu``), whose bytes are not known.
    """

    trace: Trace
    held: tuple[Held, ...] = ()
    passes: tuple[Pass, ...] = ()
    levels: tuple[tuple[int, int], ...] = ()
    hooked: int = 0
    _behind: dict[int, frozenset[int]] = field(default_factory=dict, repr=False)
    _holders: dict[int, set[int]] = field(default_factory=dict, repr=False)

    @cached_property
    def peak(self) -> Peak | None:
        """When graphs keep the most for the first time, None where they keep nothing."""
        if not self.levels:
            return None
        position, (begun, bytes) = max(enumerate(self.levels), key=lambda pair: pair[1][1])
        time = self.levels[position + 1][0] if position + 1 < len(self.levels) else begun + 1
        latest = max((each for each in self.held if each.since == begun), key=lambda each: each.node, default=None)
        location = None if latest is None else self.trace.graph.locations.get(latest.node)
        return Peak(bytes, time, sum(step.time < time for step in self.trace.steps if step.ran), location)

    def at(self, time: int) -> tuple[Held, ...]:
        """What is kept just before this time, the largest first."""
        return tuple(sorted((each for each in self.held if each.at(time)), key=lambda each: (-each.bytes, each.node)))

    @property
    def largest(self) -> tuple[Held, ...]:
        """What is kept at the peak, the largest first."""
        return self.at(self.peak.time) if self.peak else ()

    def total(self, kind: Kind) -> int:
        """Bytes of one kind that are kept at the peak."""
        return sum(each.bytes for each in self.largest if each.kind == kind)

    @property
    def modules(self) -> tuple[Share, ...]:
        """Activations at the peak by the module whose call made the node, ``""`` outside of modules."""
        return _shares((self.trace.graph.modules.get(each.node, ""), each) for each in self.largest)

    @property
    def lines(self) -> tuple[Share, ...]:
        """Activations at the peak by the statement that made the node."""
        known = ((self.trace.graph.locations.get(each.node), each) for each in self.largest)
        return _shares((location, each) for location, each in known if location is not None)

    @property
    def losses(self) -> tuple[Share, ...]:
        """Activations at the peak by the losses of that step; one that several losses need counts for each of them."""
        found: list[Share] = []
        for event in self._step():
            runs = self._behind[event.time]
            behind = (each for each in self.largest if not self._holders[each.storage].isdisjoint(runs))
            found += _shares((_name(event), each) for each in behind)
        return tuple(sorted(found, key=lambda share: -share.bytes))

    @property
    def nodes(self) -> tuple[int, int]:
        """Of the graph that the step at the peak runs: how many nodes save tensors, and how many there are."""
        behind = frozenset[int]().union(*(self._behind[event.time] for event in self._step()))
        return len(behind & self.trace.graph.saved.keys()), len(behind)

    @property
    def plans(self) -> dict[Plan, int]:
        """The most bytes of activations that the step at the peak needs, by how its losses are backpropagated.

        Half of the batch is taken to need half of the activations.
        """
        behind = [self._behind[event.time] for event in self._step()]
        if not behind:
            return {}
        together = self._bytes(frozenset[int]().union(*behind))
        begun = [frozenset().union(*behind[: position + 1]) for position in range(len(behind))]
        ahead = [frozenset().union(*behind[position:]) for position in range(len(behind))]
        per_loss = max(self._bytes(before & after) for before, after in zip(begun, ahead, strict=True))
        return {
            "sum then one backward": together,
            "backward per loss": per_loss,
            "accumulation in two halves": together // 2,
        }

    def end(self, held: Pass) -> Backward | Location | None:
        """What ends that it is retained: the backward that frees it, or the statement before its loss went away."""
        if held.until is None:
            return None
        runs = self._behind[held.event.time]
        for each in self.passes:
            frees = not retains(each.event) and not runs.isdisjoint(self._behind[each.event.time])
            if each.event.time == held.until and frees:
                return each.event
        before = [call for call in self.trace.calls if call.time < held.until and call.location is not None]
        return before[-1].location if before else None

    def _step(self) -> list[Backward]:
        """The backwards of the optimizer step in which the peak is."""
        step = self.peak.step if self.peak else None
        return [each.event for each in self.passes if each.event.step == step and each.event.accumulates]

    def _bytes(self, nodes: Collection[int]) -> int:
        return sum(
            each.bytes
            for each in self.held
            if each.kind == "activation" and not self._holders[each.storage].isdisjoint(nodes)
        )


def memory(trace: Trace) -> Memory:
    """What the graphs of a trace keep for their backwards."""
    engine = Engine(trace.graph, trace.events)
    backwards = [event for event in trace.backwards if event.error is None]
    behind = {event.time: engine.runs(event) for event in backwards}
    ends = _ends(trace, backwards, behind)
    saved = {node: tuple(filter(_is_kept, rows)) for node, rows in trace.graph.saved.items()}
    holders = _holders(saved)
    held = tuple(sorted(_held(trace, saved, holders, ends), key=lambda each: (each.since, each.node)))
    levels = tuple(_levels(held))
    passes = tuple(_passes(held, levels, holders, backwards, behind, trace.released))
    hooked = sum(each.hooked for rows in trace.graph.saved.values() for each in rows)
    return Memory(trace, held, passes, levels, hooked, behind, holders)


def _ends(trace: Trace, backwards: list[Backward], behind: dict[int, frozenset[int]]) -> dict[int, int]:
    """When each node's buffers went: freed by a backward, or with the last loss that led to them."""
    ends: dict[int, int] = {}
    last: dict[int, int | None] = {}
    for event in backwards:
        if not retains(event):
            for node in behind[event.time]:
                ends.setdefault(node, event.time)
        else:
            gone = [trace.gone.get(root.tensor) for root in event.roots]
            until = _latest(gone)
            for node in behind[event.time]:
                before = last.get(node, 0)
                last[node] = None if until is None or before is None else max(before, until)
    for node, time in last.items():
        if time is not None:
            ends.setdefault(node, time)
    return ends


def _latest(times: Iterable[int | None]) -> int | None:
    """The latest of some times, None where one of them has not come."""
    known = list(times)
    return None if None in known else max((time for time in known if time is not None), default=None)


def retains(event: Backward) -> bool:
    """Whether a backward leaves the buffers of the nodes it runs alone."""
    return event.retain_graph or event.create_graph


def _is_kept(saved: SavedTensor) -> bool:
    return saved.storage >= 0 and not saved.freed and not saved.hooked


def _holders(saved: dict[int, tuple[SavedTensor, ...]]) -> dict[int, set[int]]:
    """The nodes that keep each storage."""
    holders: dict[int, set[int]] = defaultdict(set)
    for node, rows in saved.items():
        for each in rows:
            holders[each.storage].add(node)
    return holders


def _held(
    trace: Trace, saved: dict[int, tuple[SavedTensor, ...]], holders: dict[int, set[int]], ends: dict[int, int]
) -> Iterator[Held]:
    graph = trace.graph
    fixed = _fixed(trace)
    first: dict[int, tuple[int, SavedTensor]] = {}
    for node in sorted(saved, key=lambda id: graph.sequences[id]):
        for each in saved[node]:
            first.setdefault(each.storage, (node, each))
    for storage, nodes in holders.items():
        node, each = first[storage]
        until = [ends.get(id) for id in nodes]
        yield Held(
            storage=storage,
            bytes=graph.storages.get(storage, each.bytes),
            kind="parameter" if storage in fixed else _kind(trace, each),
            node=node,
            name=each.name,
            shape=each.shape,
            dtype=each.dtype,
            nodes=len(nodes),
            since=min(graph.times.get(id, -1) for id in nodes),
            until=_latest(until),
        )


def _fixed(trace: Trace) -> set[int]:
    """The storages of parameters and buffers, and of other leaves."""
    fixed = {trace.graph.tensor(id).storage for id in trace.graph.leaf_tensors.values()}
    return fixed.union(*(module.storages for module in trace.modules))


def _kind(trace: Trace, saved: SavedTensor) -> Kind:
    tensor = None if saved.tensor is None else trace.graph.tensor(saved.tensor)
    return "activation" if tensor is None or (tensor.requires_grad and not tensor.is_leaf) else "data"


def _levels(held: tuple[Held, ...]) -> Iterator[tuple[int, int]]:
    change: dict[int, int] = defaultdict(int)
    for each in held:
        if each.kind == "activation":
            change[each.since] += each.bytes
            if each.until is not None:
                change[each.until] -= each.bytes
    level = 0
    for time in sorted(change):
        level += change[time]
        yield time, level


def _passes(
    held: tuple[Held, ...],
    levels: tuple[tuple[int, int], ...],
    holders: dict[int, set[int]],
    backwards: list[Backward],
    behind: dict[int, frozenset[int]],
    gone: Mapping[int, int],
) -> Iterator[Pass]:
    activations = [each for each in held if each.kind == "activation"]
    freed: dict[int, int] = defaultdict(int)
    released: dict[int, int] = defaultdict(int)
    for each in held:
        if each.until is not None and each.kind == "activation":
            freed[each.until] += each.bytes
        if each.until is not None and each.until == gone.get(each.storage):
            released[each.until] += each.bytes
    for event in backwards:
        position = bisect_left(levels, (event.time, 0))
        before = levels[position - 1][1] if position else 0
        if not retains(event):
            yield Pass(event, before, freed[event.time], released[event.time], 0)
        else:
            runs = behind[event.time]
            left = [each for each in activations if each.at(event.time) and not holders[each.storage].isdisjoint(runs)]
            until = (
                None if any(each.until is None for each in left) else max((e.until or 0 for e in left), default=None)
            )
            yield Pass(event, before, 0, 0, sum(each.bytes for each in left), until)


def _shares(pairs: Iterable[tuple[str | Location, Held]]) -> tuple[Share, ...]:
    """The activations by a key, the largest share first."""
    found: dict[str | Location, list[Held]] = defaultdict(list)
    for what, held in pairs:
        if held.kind == "activation":
            found[what].append(held)
    shares = (Share(what, sum(each.bytes for each in all), len(all)) for what, all in found.items())
    return tuple(sorted(shares, key=lambda share: (-share.bytes, str(share.what))))


def _name(event: Backward) -> str:
    return " + ".join(root.name for root in event.roots)
