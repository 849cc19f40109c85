"""Modules as nested boxes around what was computed in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ._shapes import Shape

_OPERATORS = ("operator", "chain", "module")


@dataclass(slots=True)
class Cluster:
    """A module's box: what lies in it directly, and the boxes inside it."""

    id: str
    path: tuple[str, ...] = ()
    shapes: list[Shape] = field(default_factory=list)
    inside: list[Cluster] = field(default_factory=list)

    @property
    def all_shapes(self) -> list[Shape]:
        """Everything in it, at any depth."""
        return self.shapes + [shape for cluster in self.inside for shape in cluster.all_shapes]

    @property
    def homes(self) -> dict[str, tuple[str, ...]]:
        """For each box the path of the innermost module drawn around it."""
        homes = {shape.id: self.path for shape in self.shapes}
        for cluster in self.inside:
            homes |= cluster.homes
        return homes

    @property
    def losses(self) -> int:
        """One bit for each loss that reaches all of its operators."""
        masks = {shape.losses for shape in self.all_shapes if shape.kind in _OPERATORS}
        return masks.pop() if len(masks) == 1 else 0

    @property
    def shared(self) -> bool:
        """Whether the same losses, more than one, reach all of it."""
        return bool(self.losses & (self.losses - 1))

    @property
    def has_shared(self) -> bool:
        """Whether more than one loss reaches something in it."""
        return any(shape.losses & (shape.losses - 1) for shape in self.all_shapes)


def clusters(shapes: Iterable[Shape], lines: Iterable[tuple[str, str]]) -> Cluster:
    """The boxes nested by module.

    A module with one operator, or with all that its only child has, needs no box; and one that is called in
    several unrelated places (a reused ReLU) gets none, since a box around them would cover what lies between.
    """
    shapes = list(shapes)
    kept = _kept(shapes, list(lines))
    top = Cluster("cluster")
    known: dict[tuple[str, ...], Cluster] = {(): top}
    for shape in shapes:
        around = top
        for depth in range(1, len(shape.module) + 1):
            path = shape.module[:depth]
            if path in kept:
                if path not in known:
                    known[path] = Cluster("", path)
                    around.inside.append(known[path])
                around = known[path]
        around.shapes.append(shape)
    return top


def _kept(shapes: list[Shape], lines: list[tuple[str, str]]) -> set[tuple[str, ...]]:
    operators: Counter[tuple[str, ...]] = Counter()
    everything: Counter[tuple[str, ...]] = Counter()
    for shape in shapes:
        for depth in range(1, len(shape.module) + 1):
            everything[shape.module[:depth]] += 1
            operators[shape.module[:depth]] += shape.kind in _OPERATORS
    kept = {path for path, number in operators.items() if number > 1 and _connected(path, shapes, lines)}
    repeated = {path[:-1] for path in kept if everything[path[:-1]] == everything[path]}
    return kept - repeated


def _connected(path: tuple[str, ...], shapes: list[Shape], lines: list[tuple[str, str]]) -> bool:
    inside = {shape.id for shape in shapes if shape.module[: len(path)] == path}
    near: dict[str, list[str]] = {id: [] for id in inside}
    for source, target in lines:
        if source in inside and target in inside:
            near[source].append(target)
            near[target].append(source)
    stack = [next(iter(inside))]
    seen = set(stack)
    while stack:
        new = set(near[stack.pop()]) - seen
        seen |= new
        stack += new
    return seen == inside
