"""The collapsed graph as text for a terminal: boxes from the losses down, indented by module."""

from __future__ import annotations

from collections.abc import Iterator

from ..report import Report
from ..show import Show
from ._clusters import Cluster
from ._label import rows
from ._picture import Line, Picture, picture
from ._shapes import Shape
from ._words import clean, listed, packed

_WIDTH = 100
_SIGNS = {"blamed": "!", "severed": "x", "lost": "?", "path": "*", "freed": "~", "repeat": "again "}
_MEANINGS = {
    "blamed": "![n]: on the way to what a finding names",
    "severed": "x[n]: no gradient flows",
    "lost": "?[n]: where it would have gone on",
    "path": "*[n]: the gradient's path",
    "freed": "~[n]: from freed buffers",
}
_LEAVES = ("parameter", "input")


def render(report: Report, show: Show | None = None) -> str:
    """The report's graph as an outline; each box says where the gradient goes on if not to the next line."""
    drawn = picture(report, show, chips=False)
    lines = list(_Outline(drawn).lines(drawn.tree, ""))
    kinds = {line.kind for line in drawn.lines}
    lines += ["", *packed([words for kind, words in _MEANINGS.items() if kind in kinds], _WIDTH)]
    return "\n".join([clean(drawn.title), *map(clean, drawn.notes), "", *lines]).rstrip() + "\n"


class _Outline:
    """The lines of one picture, its boxes numbered from the top."""

    def __init__(self, drawn: Picture) -> None:
        self._losses = drawn.losses
        self._classes = drawn.classes
        self._after: dict[str, list[Line]] = {}
        for line in drawn.lines:
            self._after.setdefault(line.source, []).append(line)
        self._leaves = {shape.id: shape for shape in drawn.shapes if shape.kind in _LEAVES}
        read = {line.target for line in drawn.lines if line.kind not in ("lost", "severed")}
        shown = [shape for shape in _ordered(drawn.tree) if shape.id not in self._leaves or shape.id not in read]
        self._numbers = {shape.id: number for number, shape in enumerate(shown, 1)}
        self._order = [shape.id for shape in shown]
        self._told: set[str] = set()

    def lines(self, cluster: Cluster, indent: str) -> Iterator[str]:
        for thing in _things(cluster):
            if isinstance(thing, Cluster):
                kind = self._classes.get(".".join(thing.path))
                shared = [name for n, name in enumerate(self._losses) if thing.losses >> n & 1] if thing.shared else []
                words = [*([kind] if kind else []), *([f"shared by {listed(shared)}"] if shared else [])]
                yield f"{indent}{clean(thing.title)}/  {clean(', '.join(words))}".rstrip()
                yield from self.lines(thing, indent + "|   ")
            elif thing.id in self._numbers:
                yield from self._box(thing, indent)

    def _box(self, shape: Shape, indent: str) -> Iterator[str]:
        number = self._numbers[shape.id]
        first, *others = (" ".join(span.text.strip() for span in row) for row in rows(shape))
        words = [first, *others]
        lines = self._after.get(shape.id, [])
        going = [line for line in lines if line.target in self._numbers]
        after = self._order[number] if number < len(self._order) else None
        if [(line.target, line.kind) for line in going] not in ([(after, "plain")], [(after, "loss")], []):
            goals = [f"{_SIGNS.get(line.kind, '')}[{self._numbers[line.target]}]" for line in going]
            words.append(f"-> {' '.join(goals)}")
        head = f"{indent}[{number}] "
        for at, part in enumerate(packed(words, _WIDTH - len(head))):
            yield (head if not at else indent + " " * (len(head) - len(indent))) + part.replace(" | -> ", " -> ")
        for line in lines:
            leaf = self._leaves.get(line.target) if line.kind not in ("lost", "severed") else None
            if leaf is not None:
                again = leaf.id in self._told
                self._told.add(leaf.id)
                yield f"{indent}     {_leaf(leaf, again)}"


def _leaf(leaf: Shape, again: bool) -> str:
    names = ", ".join(f"{clean(name)} {dimensions}" for name, dimensions in leaf.rows)
    if again:
        return f"- {clean(leaf.name)}, as above"
    words = [*leaf.lines, *leaf.marks.values(), *leaf.codes]
    return f"- {names}" + (f"  {' | '.join(map(clean, words))}" if words else "")


def _things(cluster: Cluster) -> list[Shape | Cluster]:
    """What lies in a module, in the order in which the gradient meets it."""
    found: list[tuple[float, Shape | Cluster]] = [(shape.position, shape) for shape in cluster.shapes]
    found += [(min(shape.position for shape in inner.all_shapes), inner) for inner in cluster.inside]
    return [thing for _, thing in sorted(found, key=lambda pair: pair[0])]


def _ordered(cluster: Cluster) -> Iterator[Shape]:
    for thing in _things(cluster):
        if isinstance(thing, Cluster):
            yield from _ordered(thing)
        else:
            yield thing
