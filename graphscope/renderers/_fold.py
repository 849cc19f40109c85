"""Making a large graph small enough to draw: which graph nodes share a box."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from ..graph import Graph
from ._words import count

LIMIT = 300  # boxes; beyond it, Graphviz takes its time and readers lose their way
_OPEN = 60  # operators that a finding names and that stay on their own inside a collapsed module


@dataclass(frozen=True, slots=True)
class Closed:
    """The box of a module drawn closed, or of that part of it whose nodes are in the same state."""

    path: tuple[str, ...]
    part: Hashable


Box = int | str | Closed  # the node it begins with, "rest", or a module


@dataclass(frozen=True, slots=True)
class View:
    """The part of a graph that is drawn, and what must stay apart in it.

    ``order`` holds node ids, consumers first; ``marks`` gives nodes that may share a box the same mark,
    ``parts`` those that may share a module's box the same part;
    ``pinned`` are the nodes that a loss or an edge of its own is attached to; ``touched`` those of findings.
    """

    graph: Graph
    order: Sequence[int]
    marks: Mapping[int, Hashable]
    parts: Mapping[int, Hashable]
    pinned: Set[int]
    touched: Set[int]


@dataclass(slots=True)
class Folding:
    """For each node its box; the transposes that joined a leaf; and what was folded, in words."""

    view: View
    box: dict[int, Box]
    joined: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def boxes(self) -> int:
        """How many boxes there are."""
        return len(set(self.box.values()))

    def reads(self, id: int) -> list[int]:
        """The distinct nodes that this one's gradient goes on to, past joined transposes."""
        targets, joined = self.view.graph.targets[id], self.joined
        if len(targets) == 1 and not joined:  # most nodes of a long chain
            return [targets[0][0]] if targets[0][0] >= 0 else []
        found = (joined.get(target, target) for target, _ in targets if target >= 0)
        return list(dict.fromkeys(found))

    @property
    def operators(self) -> list[int]:
        """The nodes that are neither leaves nor part of one."""
        leaves = self.view.graph.leaf_tensors
        return [id for id in self.view.order if id not in leaves and id not in self.joined]

    @property
    def readers(self) -> dict[int, dict[Box, None]]:
        """For each leaf the boxes that read it."""
        found: dict[int, dict[Box, None]] = {id: {} for id in self.view.order if id in self.view.graph.leaf_tensors}
        for id in self.operators:
            for target in self.reads(id):
                if target in found:
                    found[target][self.box[id]] = None
        return found

    @property
    def leaf_modules(self) -> dict[int, tuple[str, ...]]:
        """For each leaf with a box among leaves, the path of the module around all operators that read it."""
        found: dict[int, tuple[str, ...]] = {}
        for id in self.operators:
            path = tuple(self.view.graph.modules.get(id, "").split("."))
            for target in self.reads(id):
                if target in self.view.graph.leaf_tensors and isinstance(self.box[target], int):
                    found[target] = _common(found.get(target, path), path)
        return {leaf: path for leaf, path in found.items() if path != ("",)}


def _common(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    length = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def fold(view: View, limit: int = LIMIT) -> Folding:
    """Give each node its box, in as few steps away from the full graph as the limit allows."""
    folding = Folding(view, {id: id for id in view.order})
    _join_transposes(folding)
    _group_leaves(folding)
    for step in (_chains, _modules, _nearest):
        if folding.boxes <= limit:
            break
        step(folding, limit)
    folding.notes = _notes(folding)
    return folding


def _notes(folding: Folding) -> list[str]:
    """What was folded, in words."""
    operators = Counter(folding.box[id] for id in folding.operators)
    chains = [number for box, number in operators.items() if isinstance(box, int) and number > 1]
    closed = [number for box, number in operators.items() if isinstance(box, Closed)]
    far = operators["rest"]
    return [
        *([f"{count(sum(chains), 'operator')} drawn as {count(len(chains), 'row')} of operators"] if chains else []),
        *([f"{count(sum(closed), 'operator')} drawn inside {count(len(closed), 'closed module')}"] if closed else []),
        *([f"{count(far, 'operator')} further away drawn as one box"] if far else []),
    ]


def _join_transposes(folding: Folding) -> None:
    """``TBackward0`` right before a leaf says nothing that the leaf does not: it joins the leaf."""
    view = folding.view
    for id in view.order:
        if view.graph.ops[id] == "TBackward0" and id not in view.pinned and id not in view.touched:
            targets = folding.reads(id)
            if len(targets) == 1 and targets[0] in view.graph.leaf_tensors:
                folding.joined[id] = targets[0]
                folding.box[id] = targets[0]


def _group_leaves(folding: Folding) -> None:
    """Leaves of one kind that the same boxes read share a box, as a layer's weight and bias do."""
    groups: dict[Hashable, int] = {}
    for leaf, boxes in folding.readers.items():
        if isinstance(folding.box[leaf], int) and leaf not in folding.view.pinned:
            folding.box[leaf] = groups.setdefault((frozenset(boxes), folding.view.marks[leaf]), leaf)
    _follow_leaves(folding)


def _follow_leaves(folding: Folding) -> None:
    for id, leaf in folding.joined.items():
        folding.box[id] = folding.box[leaf]


def _chains(folding: Folding, limit: int) -> None:
    """Operators in a row, each read by the one before it alone, share a box."""
    view, operators = folding.view, folding.operators
    known = set(operators)
    following = {id: [target for target in folding.reads(id) if target in known] for id in operators}
    readers = Counter(target for targets in following.values() for target in targets)
    for id in operators:
        if len(following[id]) == 1:
            (target,) = following[id]
            if readers[target] == 1 and target not in view.pinned and view.marks[id] == view.marks[target]:
                folding.box[target] = folding.box[id]
    _group_leaves(folding)


def _modules(folding: Folding, limit: int) -> None:
    """Each module is one box, at the greatest depth that leaves few enough; what findings name stays open."""
    view, open_boxes = folding.view, folding.box
    paths = {id: tuple(name.split(".")) for id in view.order if (name := view.graph.modules.get(id))}
    kept = view.touched if len(view.touched) <= _OPEN else frozenset[int]()
    for depth in range(max(map(len, paths.values()), default=0), 0, -1):
        folding.box = {
            id: Closed(paths[id][:depth], view.parts[id]) if id not in kept and len(paths.get(id, ())) >= depth else box
            for id, box in open_boxes.items()
        }
        _enter_modules(folding)
        _group_leaves(folding)
        if folding.boxes <= limit:
            break


def _enter_modules(folding: Folding) -> None:
    """A leaf that one closed module alone reads is inside it."""
    for leaf, boxes in folding.readers.items():
        if len(boxes) == 1 and isinstance(box := next(iter(boxes)), Closed):
            folding.box[leaf] = box
    _follow_leaves(folding)


def _nearest(folding: Folding, limit: int) -> None:
    """What is nearest to the losses and the findings is drawn, the rest is one box."""
    view = folding.view
    neighbours: dict[Box, dict[Box, None]] = {}
    for id in view.order:
        for target in folding.reads(id):
            here, there = folding.box[id], folding.box[target]
            neighbours.setdefault(here, {})[there] = None
            neighbours.setdefault(there, {})[here] = None
    starts = dict.fromkeys(folding.box[id] for id in view.order if id in view.pinned or id in view.touched)
    queue = deque(list(starts)[: limit // 2])
    near = dict.fromkeys(queue)
    while queue and len(near) < limit - 1:
        for box in neighbours.get(queue.popleft(), ()):
            if box not in near and len(near) < limit - 1:
                near[box] = None
                queue.append(box)
    for id in view.order:
        if folding.box[id] not in near:
            folding.box[id] = "rest"
