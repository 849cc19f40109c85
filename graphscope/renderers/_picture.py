"""What a picture of a report shows: boxes, lines and clusters, before any thought of colour."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

from ..findings import Finding, Severity
from ..report import Report
from ._cuts import Severed, concerned, cut_shape, severed
from ._fold import LIMIT, Box, Folding, fold
from ._scene import FREED, Scene
from ._shapes import Shape, loss_shapes, shape
from ._words import count


@dataclass(slots=True)
class Line:
    """A step of the gradient between two boxes; ``kind`` is plain, loss, freed, blamed, severed or lost."""

    source: str
    target: str
    kind: str = "plain"
    label: str = ""
    times: int = 1


@dataclass(slots=True)
class Picture:
    """All that is drawn, and the words above it."""

    title: str
    notes: list[str]
    shapes: list[Shape]
    lines: list[Line]
    optimizers: list[str]
    classes: dict[str, str]
    losses: list[str]


def picture(report: Report, limit: int = LIMIT) -> Picture:
    """The picture of a report, folded to at most about ``limit`` boxes."""
    scene = Scene(report)
    folding = fold(scene.view, limit)
    shapes = {box: shape(box, nodes, scene) for box, nodes in _members(folding).items()}
    for leaf, module in folding.leaf_modules.items():
        if shapes[folding.box[leaf]].kind == "parameter":
            shapes[folding.box[leaf]].module = module
    lines = _lines(folding, shapes)
    drawn = [*loss_shapes(scene), *shapes.values()]
    for position, loss in enumerate(scene.losses):
        if loss.root.node is not None:
            lines.append(Line(f"loss_{position}", shapes[folding.box[loss.root.node]].id, "loss"))
    for finding in report.findings:
        _blame(finding, scene, shapes, lines)
    for position, cut in enumerate(severed(scene)):
        drawn.append(cut_shape(position, cut, scene))
        lines += _cut_lines(drawn[-1].id, cut, scene, folding, shapes)
    names = [optimizer.name for optimizer in report.trace.optimizers]
    classes = {module.name: module.kind for module in report.trace.modules}
    title = f"{report.trace.script or 'graph'}: {_numbers(report)}"
    return Picture(
        title, _notes(scene, folding), drawn, lines, names, classes, [loss.root.name for loss in scene.losses]
    )


def _numbers(report: Report) -> str:
    numbers = Counter(finding.severity for finding in report.findings)
    parts = [count(numbers[level], level.value) for level in reversed(Severity) if numbers[level]]
    return ", ".join(parts) or "no findings"


def _notes(scene: Scene, folding: Folding) -> list[str]:
    shown = len(scene.losses)
    some = [f"{shown} of {count(scene.losses_in_all, 'backward root')} drawn"] if shown < scene.losses_in_all else []
    return some + folding.notes


def _members(folding: Folding) -> dict[Box, list[int]]:
    members: dict[Box, list[int]] = {}
    for id in folding.view.order:
        members.setdefault(folding.box[id], []).append(id)
    return members


def _lines(folding: Folding, shapes: dict[Box, Shape]) -> list[Line]:
    """One line per pair of boxes; parallel edges between two nodes are counted on it."""
    found: dict[tuple[Box, Box], list[tuple[int, int]]] = {}
    graph = folding.view.graph
    for id in folding.operators:
        for target, _ in graph.targets[id]:
            if target >= 0:
                found.setdefault((folding.box[id], folding.box[target]), []).append((id, target))
    return [
        Line(
            shapes[source].id,
            shapes[target].id,
            "freed" if shapes[source].freed else "plain",
            times=len(edges) if len(set(edges)) == 1 else 1,
        )
        for (source, target), edges in found.items()
        if source != target
    ]


def _blame(finding: Finding, scene: Scene, shapes: dict[Box, Shape], lines: list[Line]) -> None:
    """Mark the way from the loss that fails to the nearest node that an error names."""
    if finding.severity is not Severity.ERROR or not finding.nodes:
        return
    goals = {shape.id for shape in shapes.values() if finding.code in shape.codes}
    after: dict[str, list[Line]] = {}
    for line in lines:
        after.setdefault(line.source, []).append(line)
    for position in scene.failing(finding):
        came: dict[str, Line | None] = {f"loss_{position}": None}
        queue = deque(came)
        while queue and queue[0] not in goals:
            for line in after.get(queue.popleft(), ()):
                if line.target not in came:
                    came[line.target] = line
                    queue.append(line.target)
        step = came[queue[0]] if queue else None
        if step and finding.code == FREED:
            step.label = "reaches freed buffers"
        while step:
            step.kind = "blamed"
            step = came[step.source]


def _cut_lines(id: str, cut: Severed, scene: Scene, folding: Folding, shapes: dict[Box, Shape]) -> list[Line]:
    """From the losses a cut concerns to the cut, and on to where the gradient would have gone."""
    found = [Line(f"loss_{position}", id, "severed") for position in concerned(cut, scene)]
    if cut.node is not None and cut.node in folding.box:
        beyond = shapes[folding.box[cut.node]]
        name = ".".join(beyond.module[:1]) or beyond.title or beyond.rows[0][0]
        found.append(Line(id, beyond.id, "lost", f"would have gone on to {name}"))
    return found
