"""Module calls as nested boxes around what was computed in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import field

from .._plain import dataclass
from ._repeats import Frame
from ._scopes import Scope, dotted
from ._shapes import Shape, repeat_name

_LEAVES = ("parameter", "input", "chip")


@dataclass(slots=True)
class Cluster:
    """A module call's box: what lies in it directly, and the boxes inside it; ``frame`` where it stands for several.

    ``around`` is the path of the module around it.
    """

    id: str
    scope: Scope = ()
    frame: Frame | None = None
    around: tuple[str, ...] = ()
    shapes: list[Shape] = field(default_factory=list)
    inside: list[Cluster] = field(default_factory=list)

    @property
    def all_shapes(self) -> list[Shape]:
        """Everything in it, at any depth."""
        return self.shapes + [shape for cluster in self.inside for shape in cluster.all_shapes]

    @property
    def homes(self) -> dict[str, Scope]:
        """For each box the innermost module call drawn around it."""
        homes = {shape.id: self.scope for shape in self.shapes}
        for cluster in self.inside:
            homes |= cluster.homes
        return homes

    @property
    def losses(self) -> int:
        """One bit for each loss that reaches all of its operators."""
        masks = {shape.losses for shape in self.all_shapes if shape.kind not in _LEAVES}
        return masks.pop() if len(masks) == 1 else 0

    @property
    def shared(self) -> bool:
        """Whether the same losses, more than one, reach all of it."""
        return bool(self.losses & (self.losses - 1))

    @property
    def has_shared(self) -> bool:
        """Whether more than one loss reaches something in it."""
        return any(shape.is_shared for shape in self.all_shapes)

    @property
    def path(self) -> tuple[str, ...]:
        """The name of the module, without the frames around it."""
        return tuple(name for name in dotted(self.scope) if name)

    @property
    def title(self) -> str:
        """What its box is called."""
        rest = self.path[len(self.around) :]
        name = "".join(f".{part}" for part in rest) if self.around and rest else ".".join(self.path)
        if self.frame:
            return f"{repeat_name(self.frame) or name or 'repeats'}  x {self.frame.times}"
        call = self.scope[-1][1]
        return f"{name} (call {call + 1})" if call else name


def clusters(shapes: Iterable[Shape], frames: Mapping[Scope, Frame]) -> Cluster:
    """The boxes nested by module call; one with a single operator, or with all that its only child has, needs none."""
    shapes = list(shapes)
    kept = _kept(shapes, frames)
    top = Cluster("cluster")
    known: dict[Scope, Cluster] = {(): top}
    for shape in shapes:
        around = top
        for depth in range(1, len(shape.scope) + 1):
            scope = shape.scope[:depth]
            if scope in kept:
                if scope not in known:
                    known[scope] = Cluster(f"{around.id}_{len(around.inside)}", scope, frames.get(scope), around.path)
                    around.inside.append(known[scope])
                around = known[scope]
        around.shapes.append(shape)
    return top


def _kept(shapes: list[Shape], frames: Mapping[Scope, Frame]) -> set[Scope]:
    operators: Counter[Scope] = Counter()
    everything: Counter[Scope] = Counter()
    for shape in shapes:
        for depth in range(1, len(shape.scope) + 1):
            everything[shape.scope[:depth]] += 1
            operators[shape.scope[:depth]] += shape.kind not in _LEAVES
    kept = {scope for scope, number in operators.items() if number > 1}
    repeated = {scope[:-1] for scope in kept if everything[scope[:-1]] == everything[scope]}
    return (kept - repeated) | {scope for scope in frames if everything[scope]}
