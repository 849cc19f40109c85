"""Watch for graphs that outlive their step: which are still alive when later steps have ended, and what holds them."""

from __future__ import annotations

import bisect
import functools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import field
from types import FrameType
from typing import Any

from torch import Tensor

from .._collector import paused_gc
from .._plain import dataclass
from ..location import Location
from ..trace import Holder, Survey
from . import _torch
from .holders import search
from .recording import Recording
from .saved import saved_names, saved_rows

_EARLY = (3, 4, 5, 6, 8, 10)  # the steps after which is looked; then each time twice as late
_MOST_NODES = 100_000  # alive ones; where there are more, no more is looked
_SUSPICIOUS = 3  # earlier steps whose graphs are alive: then it is searched who holds them

Site = tuple[Location, tuple[Location, ...]]
"""Where a node was made, and from where that was called."""


@dataclass(slots=True)
class _Alive:
    """Nodes of earlier steps over one leaf that were made at one site."""

    steps: set[int] = field(default_factory=set)
    times: set[int] = field(default_factory=set)


class GrowthWatch:
    """Looks, after some steps, at what is alive of earlier ones; keeps numbers only."""

    def __init__(self, recording: Recording) -> None:
        self._seen = recording
        self._surveys: list[Survey] = []
        self._ends: list[int] = []  # when each step ended
        self._next = list(_EARLY)
        self._stepped = False
        self._searched = 0

    @property
    def surveys(self) -> tuple[Survey, ...]:
        """What was alive, one survey for each site and time that it was looked for."""
        return tuple(self._surveys)

    def backward_ended(self, frame: FrameType) -> None:
        """A backward ended; where no optimizer steps, that ends a step of the program."""
        if not self._stepped:
            self._ended(frame)

    def step_ended(self, frame: FrameType) -> None:
        """An optimizer stepped."""
        if not self._stepped:
            self._stepped = True
            self._ends.clear()
            self._surveys.clear()
            self._next = list(_EARLY)
        self._ended(frame)

    def _ended(self, frame: FrameType) -> None:
        self._ends.append(self._seen.now)
        if self._next and len(self._ends) == self._next[0]:
            self._next.pop(0)
            if not self._next:
                self._next.append(2 * len(self._ends))
            with paused_gc():
                self._look(frame)

    def _look(self, frame: FrameType) -> None:
        last = len(self._ends) - 1  # what the step that has just ended made may well be alive
        found: dict[tuple[Site, int], _Alive] = defaultdict(_Alive)
        nodes: list[Any] = []
        met: set[Any] = set()
        for node in self._nodes_behind(self._tensors(), met):
            made = self._seen.made(node)
            step = -1 if made is None else self._step(made[2])
            if made is None or not 0 <= step < last:
                continue
            nodes.append((step, node))
            for target, _ in node.next_functions:
                if type(target).__name__ == "AccumulateGrad":
                    leaf = self._seen.tensors.number(target.variable)
                    alive = found[(made[0], made[3]), leaf]
                    alive.steps.add(step)
                    alive.times.add(made[2])
        if len(met) >= _MOST_NODES:
            self._next.clear()
        best: dict[Site, tuple[int, _Alive]] = {}
        for (site, leaf), alive in found.items():
            if site not in best or len(alive.steps) > len(best[site][1].steps):
                best[site] = leaf, alive
        most = max((len(alive.steps) for _, alive in best.values()), default=0)
        holder = None
        if most >= _SUSPICIOUS and most >= 2 * self._searched:
            self._searched = most
            holder = self._holder(frame)
        size = self._size(nodes, max((step for step, _ in nodes), default=0)) if most >= _SUSPICIOUS else (0, 0)
        for site, (leaf, alive) in best.items():
            if len(alive.steps) == most:
                now, ended = self._seen.now, len(self._ends)
                steps = tuple(sorted(alive.steps))
                self._surveys.append(Survey(now, ended, site[0], leaf, steps, len(alive.times), *size, holder))
        nodes.clear()
        _torch.survive_deep_graph(len(met))

    def _tensors(self) -> Iterator[Tensor]:
        """The tensors with a history that are alive."""
        for row in self._seen.tensors.rows:
            if row.sequence is not None:
                tensor = row.ref()
                if tensor is not None:
                    yield tensor

    def _nodes_behind(self, tensors: Iterable[Tensor], met: set[Any]) -> Iterator[Any]:
        """The nodes behind some tensors that are not in ``met`` yet."""
        waiting: list[Any] = []
        for tensor in tensors:
            if (root := history(tensor)) is not None and root not in met:
                met.add(root)
                waiting.append(root)
            while waiting and len(met) < _MOST_NODES:
                node = waiting.pop()
                yield node
                for target, _ in node.next_functions:
                    if target is not None and target not in met:
                        met.add(target)
                        waiting.append(target)

    def _step(self, time: int) -> int:
        """In which step something happened, counted from 0."""
        return bisect.bisect_right(self._ends, time)

    def _holder(self, frame: FrameType) -> Holder | None:
        """What in the program's variables leads to graphs of the most steps."""
        met: set[Any] = set()

        def steps(tensor: Tensor) -> frozenset[int]:
            made = (self._seen.made(node) for node in self._nodes_behind((tensor,), met))
            found = {self._step(each[2]) for each in made if each is not None}
            return frozenset(step for step in found if step < len(self._ends) - 1)

        held = search(list(self._seen.frames.stack(frame)), history, steps, self._seen.frames)
        if held is None:
            return None
        made = self._seen.made(history(held.tensor))
        return Holder(
            name=held.path,
            kind=held.kind,
            tensors=held.count,
            limit=held.limit,
            tensor=self._seen.tensors.known(held.tensor),
            location=None if made is None else made[0],
            callers=() if made is None else made[3],
        )

    def _size(self, nodes: list[tuple[int, Any]], step: int) -> tuple[int, int]:
        """How many nodes of one step are alive, and the bytes that they keep besides parameters."""
        leaves = {self._seen.tensors.rows[number].storage for number in self._seen.walk.leaf_tensors.values()}
        storages = set()
        count = 0
        for made, node in nodes:
            if made == step:
                count += 1
                rows = saved_rows(node, _names(type(node)), self._seen.tensors)  # type: ignore[arg-type]
                storages |= {row[4] for row in rows if row[4] >= 0}
        return count, sum(self._seen.tensors.sizes.get(each, 0) for each in storages - leaves)


@functools.lru_cache(maxsize=512)
def _names(kind: type) -> Any:
    return saved_names(kind)


def history(tensor: Tensor) -> Any:
    """The node of a tensor; None for a leaf, and where asking for it would make a new one."""
    if not tensor.requires_grad or (tensor._is_view() and _torch.version(tensor)) or tensor.is_leaf:
        return None
    return tensor.grad_fn
