"""What a picture of a report shows: boxes, lines and clusters, before any thought of colour."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .._plain import dataclass
from ..findings import Finding, Severity
from ..report import Report
from ..show import Show
from ._clusters import Cluster, clusters
from ._collapse import Box, Collapse, collapse
from ._cuts import Severed, concerned, cut_shape, severed
from ._scene import FREED, Scene
from ._shapes import Shape, loss_shapes, shape, unreached_shapes
from ._words import count, packed

_SPAN = 24  # ranks: a longer line is cut to a chip that names its end
_SMALL = 40  # boxes: a picture of fewer has no chips


@dataclass(slots=True)
class Line:
    """A step of the gradient between two boxes; ``kind`` is a key of the style's strokes."""

    source: str
    target: str
    kind: str = "plain"
    label: str = ""
    times: int = 1
    pulls: bool = True  # whether its target lies below its source

    @property
    def words(self) -> str:
        """What stands beside it."""
        return self.label or (f"x{self.times}" if self.times > 1 else "")


@dataclass(slots=True)
class Picture:
    """All that is drawn, and the words above it."""

    title: str
    notes: list[str]
    shapes: list[Shape]
    lines: list[Line]
    tree: Cluster
    optimizers: list[str]
    classes: Mapping[str, str]
    losses: list[str]


def picture(report: Report, show: Show | None = None, *, chips: bool = True) -> Picture:
    """The picture of a report; ``chips`` is False where long lines do no harm."""
    scene = Scene(report, show or Show())
    folding = collapse(scene.subject, scene.show, scene.near)
    shapes = {box: shape(box, nodes, scene, folding) for box, nodes in _members(folding).items()}
    for leaf, around in folding.leaf_scopes.items():
        if shapes[folding.box[leaf]].kind == "parameter":
            shapes[folding.box[leaf]].scope = around
    lines = _lines(scene, folding, shapes)
    drawn = [*loss_shapes(scene), *shapes.values(), *(lost := unreached_shapes(scene))]
    for position, loss in enumerate(scene.losses):
        if loss.root.node is not None:
            kind = "path" if loss.root.node in scene.way else "loss"
            lines.append(Line(f"loss_{position}", shapes[folding.box[loss.root.node]].id, kind))
    for finding in report.findings:
        _blame(finding, scene, shapes, lines)
    for position, cut in enumerate(severed(scene)):
        drawn.append(cut_shape(position, cut, scene))
        lines += _cut_lines(drawn[-1].id, cut, scene, folding, shapes, lost)
    _put_in_order(drawn, lines)
    if chips:
        drawn, lines = _chips(drawn, lines)
    tree = clusters(drawn, folding.frames)
    _say_modules(tree)
    return Picture(
        f"{script_name(report) or 'graph'}: {_numbers(report)}",
        _notes(report, scene, folding),
        drawn,
        lines,
        tree,
        [optimizer.name for optimizer in report.trace.optimizers],
        scene.classes,
        [loss.root.name for loss in scene.losses],
    )


def script_name(report: Report) -> str | None:
    """The script, as a path from the directory that locations are relative to, where it lies inside."""
    script, root = report.trace.script, report.trace.root
    inside = script and root and Path(script).is_absolute() and Path(script).is_relative_to(root)
    return str(Path(script).relative_to(root)) if script and inside else script


def _numbers(report: Report) -> str:
    numbers = Counter(finding.severity for finding in report.findings)
    parts = [count(numbers[level], level.value) for level in reversed(Severity) if numbers[level]]
    return ", ".join(parts) or "no findings"


def _notes(report: Report, scene: Scene, folding: Collapse) -> list[str]:
    """Losses and findings, what was left out, and how to see it."""
    shown = len(scene.losses)
    named = [f"{finding.code} {finding.name}" for finding in report.findings]
    notes = [f"{name}  x{number}" if number > 1 else name for name, number in Counter(named).items()]
    notes = [", ".join(notes)] if notes else []
    notes += [f"{shown} of {count(scene.losses_in_all, 'backward root')} drawn"] if shown < scene.losses_in_all else []
    if folding.notes:
        notes.append("; ".join(folding.notes) + " (--depth, --focus and --full show more)")
    if scene.show.path is not None and not scene.way:
        notes.append(f"no loss that is drawn reaches {scene.show.path}")
    return notes


def _members(folding: Collapse) -> dict[Box, list[int]]:
    members: dict[Box, list[int]] = {}
    for id in folding.subject.order:
        members.setdefault(folding.box[id], []).append(id)
    return members


def _lines(scene: Scene, folding: Collapse, shapes: dict[Box, Shape]) -> list[Line]:
    """One line per pair of boxes; parallel edges between two nodes are counted on it."""
    positions = {box: position for position, box in enumerate(shapes)}
    lines = []
    for (source, target), edges in folding.edges.items():
        kind, label = "plain", ""
        again = source in folding.times and target in folding.times and positions[source] >= positions[target]
        if again:
            kind = "repeat"
        elif any(id in scene.way and to in scene.way for id, to in edges):
            kind = "path"
        elif across := scene.devices(*edges[0]):
            kind, label = "device", across
        elif any(scene.changes.get(id) or scene.changes.get(to) for id, to in edges):
            kind = scene.changes.get(edges[0][0]) or scene.changes[edges[0][1]]
        elif "freed" in shapes[source].marks:
            kind = "freed"
        times = len(edges) if len(set(edges)) == 1 else 1
        lines.append(Line(shapes[source].id, shapes[target].id, kind, label, times, pulls=not again))
    return lines


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


def _cut_lines(
    id: str, cut: Severed, scene: Scene, folding: Collapse, shapes: dict[Box, Shape], lost: list[Shape]
) -> list[Line]:
    """From the losses a cut concerns to the cut, and on to where the gradient would have gone."""
    found = [Line(f"loss_{position}", id, "severed") for position in concerned(cut, scene)]
    if cut.node is not None and cut.node in folding.box:
        beyond = shapes[folding.box[cut.node]]
        name = beyond.scope[0][0] if beyond.scope else beyond.name
        return [*found, Line(id, beyond.id, "lost", f"would have gone on to {name}", pulls=False)]
    codes = {finding.code for finding in cut.findings}
    return found + [Line(id, shape.id, "lost", "would have gone on") for shape in lost if codes & set(shape.codes)]


def _put_in_order(shapes: list[Shape], lines: list[Line]) -> None:
    """Give each box its position: losses stand right before what they begin at, cuts right after their loss."""
    known = {shape.id: shape for shape in shapes}
    for position, each in enumerate(shapes):
        each.position = position
    for line in lines:
        if known[line.source].kind == "loss" and known[line.target].kind != "cut":
            known[line.source].position = known[line.target].position - 0.5
    for line in lines:
        if known[line.target].kind == "cut":
            known[line.target].position = known[line.source].position + 0.25


def _chips(shapes: list[Shape], lines: list[Line]) -> tuple[list[Shape], list[Line]]:
    """Long lines end at a chip that names their goal: nobody could follow them, nor any engine lay them out."""
    if len(shapes) < _SMALL:
        return shapes, lines
    ranks = _ranks(shapes, lines)
    known = {shape.id: shape for shape in shapes}
    found, kept = list(shapes), []
    for line in lines:
        if line.kind in ("plain", "freed", "loss", "repeat") and abs(ranks[line.target] - ranks[line.source]) > _SPAN:
            goal, start = known[line.target], known[line.source]
            chip = Shape(f"chip_{len(found)}", "chip", "", [f"to {goal.name}"], scope=start.scope, losses=start.losses)
            chip.tooltip = [f"{start.name} to {goal.name}"]
            found.append(chip)
            line = replace(line, target=chip.id)
        kept.append(line)
    return found, kept


def _ranks(shapes: list[Shape], lines: list[Line]) -> dict[str, int]:
    """How many steps from the top each box is, as the longest way says; steps back to a repeat do not count."""
    after: dict[str, list[str]] = {}
    waiting = dict.fromkeys((shape.id for shape in shapes), 0)
    for line in lines:
        if line.pulls:
            after.setdefault(line.source, []).append(line.target)
            waiting[line.target] += 1
    ready = [id for id, number in waiting.items() if not number]
    ranks = dict.fromkeys(waiting, 0)
    while ready:
        id = ready.pop()
        for other in after.get(id, ()):
            ranks[other] = max(ranks[other], ranks[id] + 1)
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return ranks


def _say_modules(cluster: Cluster) -> None:
    """Tell the module of an operator as far as the box around it does not."""
    for box in cluster.shapes:
        rest = _beyond(box.module, cluster.path) if box.module else ""
        words = [*box.words[:1], rest, *box.words[1:]] if rest else box.words
        box.lines, box.words = packed(words) + box.lines, []
    for inner in cluster.inside:
        _say_modules(inner)


def _beyond(module: str, around: tuple[str, ...]) -> str:
    """The module's name where it is short or lies elsewhere, else what the name of the module around it lacks."""
    path = module.split(".")
    inside = tuple(path[: len(around)]) == around
    if not inside or (len(path) < 3 and len(path) > len(around)):
        return module
    return "".join(f".{part}" for part in path[len(around) :])
