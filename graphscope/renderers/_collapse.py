"""Making a large graph small enough to read: which graph nodes share a box.

Every node has one box, and every step of the gradient between two boxes stays: what could be reached can still be
reached. Nodes that other losses reach, and those that a loss or a finding is attached to, keep apart.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field, replace

from .._plain import dataclass
from ..graph import Graph
from ..show import Show
from ._repeats import Frame, repeated
from ._scopes import Scope, dotted
from ._words import count

_OPEN = 60  # operators that a finding names and that stay on their own inside a closed module
_UNREPEATED = 20_000  # boxes: among more of them no repeats are looked for
_WORTH = 0.7  # of the boxes left: then repeats are drawn once even where all might be drawn
_MOST = 1_000  # boxes of a picture whose depth or focus was asked for


@dataclass(frozen=True, slots=True)
class Closed:
    """The box of a module call, or of a stretch of it; ``part`` is what its nodes have in common."""

    scope: Scope
    part: Hashable
    stretch: int


@dataclass(frozen=True, slots=True)
class Rest:
    """Nodes further away from what is shown: ``above`` it, ``below`` it or ``between`` parts of it."""

    side: str
    number: int


Box = int | Closed | Rest  # an int is the node that a box begins with


@dataclass(frozen=True, slots=True)
class Subject:
    """The part of a graph that is drawn, and what must stay apart in it.

    ``order`` holds node ids, last made first; ``marks`` gives nodes that may share a box the same mark, ``parts`` those
    that may share a module's box the same part; ``pinned`` are the nodes that a loss or an edge of its own is
    attached to; ``touched`` those of findings.
    """

    graph: Graph
    order: Sequence[int]
    scopes: Mapping[int, Scope]
    marks: Mapping[int, Hashable]
    parts: Mapping[int, Hashable]
    pinned: Set[int]
    touched: Set[int]


@dataclass(slots=True)
class Collapse:
    """For each node its box; the transposes that joined a leaf; the repeats; and what was folded, in words.

    ``following`` holds, for all nodes that are neither leaves nor part of one, those that the gradient goes on to.
    ``times`` tells of how many like it a box is, ``scopes`` the module calls around it where repeats moved it, and
    ``frames`` which of these stand for several (``alone``: which single boxes); ``single``
    gives the box of each node before repeats were drawn once.
    """

    subject: Subject
    box: dict[int, Box]
    joined: dict[int, int]
    following: dict[int, list[int]]
    times: dict[Box, int] = field(default_factory=dict)
    scopes: dict[Box, Scope] = field(default_factory=dict)
    frames: dict[Scope, Frame] = field(default_factory=dict)
    alone: dict[Box, Frame] = field(default_factory=dict)
    single: Mapping[int, Box] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def boxes(self) -> int:
        """How many boxes there are."""
        return len(set(self.box.values()))

    @property
    def operators(self) -> Iterable[int]:
        """The nodes that are neither leaves nor part of one."""
        return self.following

    @property
    def edges(self) -> dict[tuple[Box, Box], list[tuple[int, int]]]:
        """The steps of the gradient between two boxes, each with the pairs of nodes behind it."""
        found: dict[tuple[Box, Box], list[tuple[int, int]]] = {}
        box, targets = self.box, self.subject.graph.targets
        for id in self.operators:
            for target, _ in targets[id]:
                if target >= 0 and box[id] != box[target]:
                    found.setdefault((box[id], box[target]), []).append((id, target))
        return found

    @property
    def readers(self) -> dict[int, dict[Box, None]]:
        """For each leaf the boxes that read it."""
        leaves = self.subject.graph.leaf_tensors
        found: dict[int, dict[Box, None]] = {id: {} for id in self.subject.order if id in leaves}
        for id, targets in self.following.items():
            for target in targets:
                if target in found:
                    found[target][self.box[id]] = None
        return found

    def scope(self, box: Box, nodes: Sequence[int]) -> Scope:
        """The module calls around a box."""
        if box in self.scopes:
            return self.scopes[box]
        if isinstance(box, Closed):
            return box.scope[:-1]
        return self.subject.scopes.get(nodes[0], ()) if isinstance(box, int) else ()

    @property
    def leaf_scopes(self) -> dict[int, Scope]:
        """For each leaf with a box among leaves, the innermost module call around all operators that read it."""
        found: dict[int, Scope] = {}
        for id, targets in self.following.items():
            box = self.box[id]
            scope = self.scopes.get(box) or self.subject.scopes.get(id, ())
            if isinstance(box, Closed):
                scope = self.scope(box, [id])
            for target in targets:
                if target in self.subject.graph.leaf_tensors and isinstance(self.box[target], int):
                    found[target] = _common(found.get(target, scope), scope)
        return found


def _common(a: Scope, b: Scope) -> Scope:
    length = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]


def collapse(subject: Subject, show: Show, near: Sequence[int] = ()) -> Collapse:
    """Give each node its box, in as few steps away from the full graph as ``show`` allows.

    ``near`` are the nodes that ``show.around`` names.
    """
    joined = _joined(subject)
    whole = Collapse(subject, {id: joined.get(id, id) for id in subject.order}, joined, _following(subject, joined))
    _group_leaves(whole)
    limit = show.boxes or len(subject.order) + 1
    found = whole
    if near:
        found = _nearest(_chains(whole), min(limit, 40) if show.boxes else limit, near)
    else:
        for found in _levels(whole, show):
            if found.boxes <= limit:
                break
        if show.boxes and limit / 2 < found.boxes <= limit and not found.times:
            shorter = _repeated(found)
            found = shorter if shorter.boxes < _WORTH * found.boxes else found
        asked = show.depth is not None or show.focus is not None
        if found.boxes > (max(limit, _MOST) if asked else limit):
            found = _nearest(found, limit, ())
    found.notes = _notes(found)
    return found


def _levels(whole: Collapse, show: Show) -> Iterator[Collapse]:
    """Ever smaller collapses."""
    deepest = max(map(len, whole.subject.scopes.values()), default=0)
    if show.focus is not None:
        focus = tuple(show.focus.split("."))
        opened = _closed(whole, lambda scope: _outside(scope, focus, deepest + 1))
        yield from _closings(opened, deepest, lambda depth: lambda scope: _outside(scope, focus, depth))
    elif show.depth is not None:
        opened = _closed(whole, lambda scope: show.depth)
        yield opened
        yield _repeated(opened)
        yield _repeated(_chains(opened))
    else:
        yield from _closings(whole, deepest, lambda depth: lambda scope: depth)


def _closings(
    opened: Collapse, deepest: int, closing: Callable[[int], Callable[[Scope], int | None]]
) -> Iterator[Collapse]:
    """With all modules open that may be, then with repeats and rows folded, then closed at ever lesser depth."""
    yield opened
    yield _repeated(opened)
    yield _repeated(chained := _chains(opened))
    for depth in range(deepest, 0, -1):
        yield _repeated(_closed(chained, closing(depth)))


def _outside(scope: Scope, focus: tuple[str, ...], depth: int) -> int | None:
    """The depth at which a module that is not the focus is closed: where its name and that of the focus part."""
    path = dotted(scope)
    common = 0
    while common < min(len(path), len(focus)) and path[common] == focus[common]:
        common += 1
    return max(depth, common + 1) if common == len(focus) else common + 1


def _notes(folding: Collapse) -> list[str]:
    """What was folded, in words."""
    operators = Counter(folding.box[id] for id in folding.operators)
    chains = [n for box, n in operators.items() if isinstance(box, int) and n > 1 and box not in folding.times]
    closed = [n for box, n in operators.items() if isinstance(box, Closed) and n > 1]
    repeated = [n for box, n in operators.items() if box in folding.times]
    far = [n for box, n in operators.items() if isinstance(box, Rest)]
    return [
        *([f"{count(sum(chains), 'operator')} drawn as {count(len(chains), 'row')} of operators"] if chains else []),
        *([f"{count(sum(repeated), 'operator')} drawn once for all repeats"] if repeated else []),
        *([f"{count(sum(closed), 'operator')} drawn inside {count(len(closed), 'closed module')}"] if closed else []),
        *([f"{count(sum(far), 'operator')} further away left out"] if far else []),
    ]


def _joined(subject: Subject) -> dict[int, int]:
    """``TBackward0`` right before a leaf says nothing that the leaf does not: it joins the leaf."""
    graph, found = subject.graph, {}
    for id in subject.order:
        if graph.ops[id] == "TBackward0" and id not in subject.pinned and id not in subject.touched:
            targets = [target for target, _ in graph.targets[id] if target >= 0]
            if len(targets) == 1 and targets[0] in graph.leaf_tensors:
                found[id] = targets[0]
    return found


def _following(subject: Subject, joined: Mapping[int, int]) -> dict[int, list[int]]:
    """For each operator the distinct nodes that its gradient goes on to, past joined transposes."""
    leaves, targets = subject.graph.leaf_tensors, subject.graph.targets
    found: dict[int, list[int]] = {}
    for id in subject.order:
        if id not in leaves and id not in joined:
            goals = [joined.get(target, target) for target, _ in targets[id] if target >= 0]
            found[id] = goals if len(goals) < 2 else list(dict.fromkeys(goals))
    return found


def _group_leaves(folding: Collapse) -> None:
    """Leaves of one kind that the same boxes read share a box, as a layer's weight and bias do."""
    groups: dict[Hashable, int] = {}
    for leaf, boxes in folding.readers.items():
        if isinstance(folding.box[leaf], int) and leaf not in folding.subject.pinned:
            folding.box[leaf] = groups.setdefault((frozenset(boxes), folding.subject.marks[leaf]), leaf)
    _follow_leaves(folding)


def _follow_leaves(folding: Collapse) -> None:
    for id, leaf in folding.joined.items():
        folding.box[id] = folding.box[leaf]


def _chains(opened: Collapse) -> Collapse:
    """Operators in a row, each read by the one before it alone, share a box."""
    folding = replace(opened, box=dict(opened.box))
    subject, leaves = folding.subject, folding.subject.graph.leaf_tensors
    known = {id for id in folding.operators if folding.box[id] == id}
    readers = Counter(target for targets in folding.following.values() for target in targets)
    for id, targets in folding.following.items():
        onward = [target for target in targets if target not in leaves]
        if id in known and len(onward) == 1:
            (target,) = onward
            alone = readers[target] == 1 and target not in subject.pinned
            if alone and target in known and subject.marks[id] == subject.marks[target]:
                folding.box[target] = folding.box[id]
    _group_leaves(folding)
    return folding


def _closed(opened: Collapse, depth: Callable[[Scope], int | None]) -> Collapse:
    """Each module call at the depth that its scope is given is one box; what findings name stays open."""
    folding = replace(opened, box=dict(opened.box))
    subject = folding.subject
    kept = {id for id in subject.touched if len(subject.touched) <= _OPEN} | set(subject.pinned)
    depths: dict[Scope, int | None] = {}
    stretches: Counter[Scope] = Counter()
    for id in folding.operators:
        scope = subject.scopes.get(id, ())
        if scope not in depths:
            depths[scope] = depth(scope)
        at = depths[scope]
        if at is None or len(scope) < at:
            continue
        if id in kept:  # what was made before it is another stretch, lest a way leave the box and come back
            stretches[scope[:at]] += 1
        else:
            folding.box[id] = Closed(scope[:at], subject.parts[id], stretches[scope[:at]])
    _enter_modules(folding)
    _group_leaves(folding)
    return folding


def _enter_modules(folding: Collapse) -> None:
    """A leaf that one closed module alone reads is inside it, unless a finding or a path is about it."""
    for leaf, boxes in folding.readers.items():
        apart = leaf in folding.subject.pinned or leaf in folding.subject.touched
        if not apart and len(boxes) == 1 and isinstance(box := next(iter(boxes)), Closed):
            folding.box[leaf] = box
    _follow_leaves(folding)


def _repeated(opened: Collapse) -> Collapse:
    """Modules, or operators, that repeat one after the other are drawn once."""
    if opened.boxes > _UNREPEATED:
        return opened
    subject = opened.subject
    members: dict[Box, list[int]] = {}
    for id in subject.order:
        members.setdefault(opened.box[id], []).append(id)
    scopes = {box: opened.scope(box, nodes) for box, nodes in members.items()}
    leaves = {box for box, nodes in members.items() if isinstance(box, int) and nodes[0] in subject.graph.leaf_tensors}
    traits: dict[Box, Hashable] = {}
    for box, nodes in members.items():
        own = any(id in subject.pinned or id in subject.touched for id in nodes)
        traits[box] = box if own else _trait(box, nodes, subject)
    found = repeated(scopes, leaves, traits, list(opened.edges))
    folding = replace(
        opened,
        box={id: found.stands_for.get(box, box) for id, box in opened.box.items()},
        times=found.times,
        scopes={**opened.scopes, **found.scopes},
        frames=found.frames,
        alone=found.alone,
        single=opened.box,
    )
    return folding


def _trait(box: Box, nodes: list[int], subject: Subject) -> Hashable:
    """What must be the same of two boxes that one box may stand for."""
    graph = subject.graph
    ops = tuple(sorted(Counter((graph.ops[id], graph.outputs[id]) for id in nodes).items(), key=str))
    if nodes[0] in graph.leaf_tensors and isinstance(box, int):
        shapes = tuple(sorted(graph.tensor(graph.leaf_tensors[id]).shape for id in nodes if id in graph.leaf_tensors))
        return "leaf", shapes, subject.marks[nodes[0]]
    return isinstance(box, Closed), ops, subject.parts[nodes[0]]


def _nearest(opened: Collapse, limit: int, starts: Sequence[int]) -> Collapse:
    """What is nearest to some nodes, or else to the losses and the findings, is drawn; the rest is a few boxes."""
    folding = replace(opened, box=dict(opened.box))
    subject, box = folding.subject, folding.box
    edges = list(folding.edges)
    neighbours: dict[Box, dict[Box, None]] = {}
    for here, there in edges:
        neighbours.setdefault(here, {})[there] = None
        neighbours.setdefault(there, {})[here] = None
    first = starts or [id for id in subject.order if id in subject.pinned or id in subject.touched]
    queue = deque(list(dict.fromkeys(box[id] for id in first))[: max(limit // 2, 1)])
    near = dict.fromkeys(queue)
    leaves = {box[id] for id in subject.graph.leaf_tensors if id in box}
    while queue and len(near) < 0.6 * limit:
        for other in neighbours.get(queue.popleft(), ()):
            if other not in near and len(near) < 0.6 * limit:
                near[other] = None
                queue.append(other)
    for here, there in edges:  # what the boxes shown read says more than a count of it
        if here in near and there in leaves and len(near) < limit - 2:
            near[there] = None
    rest = _sides(near, edges, leaves)
    for id in subject.order:
        if box[id] not in near:
            box[id] = rest.get(box[id], Rest("below", -1))
    return folding


def _sides(near: Mapping[Box, None], edges: Sequence[tuple[Box, Box]], leaves: Set[Box]) -> dict[Box, Rest]:
    """Which side of the boxes that are drawn each other box is on; what is connected there is one box.

    A leaf that one side alone reads is there too.
    """
    after: dict[Box, list[Box]] = {}
    before: dict[Box, list[Box]] = {}
    for here, there in edges:
        after.setdefault(here, []).append(there)
        before.setdefault(there, []).append(here)
    above, below = _reached(near, before), _reached(near, after)
    side: dict[Box, str] = {}
    for found in {**before, **after}:
        if found not in near:
            side[found] = "between" if found in above and found in below else "above" if found in above else "below"
    for leaf in leaves & side.keys():
        read_from = {side.get(reader, "near") for reader in before.get(leaf, ())}
        if len(read_from) == 1 and "near" not in read_from:
            side[leaf] = read_from.pop()
    rest: dict[Box, Rest] = {}
    for number, start in enumerate(side):
        if start in rest:
            continue
        rest[start] = Rest(side[start], number)
        stack = [start]
        while stack:
            box = stack.pop()
            for other in (*after.get(box, ()), *before.get(box, ())):
                if side.get(other) == side[start] and other not in rest:
                    rest[other] = rest[start]
                    stack.append(other)
    return rest


def _reached(starts: Mapping[Box, None], edges: Mapping[Box, list[Box]]) -> set[Box]:
    stack, seen = list(starts), set(starts)
    while stack:
        for other in edges.get(stack.pop(), ()):
            if other not in seen:
                seen.add(other)
                stack.append(other)
    return seen
