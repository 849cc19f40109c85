"""Where a gradient was cut, as findings tell it: drawn once, however many findings name it."""

from __future__ import annotations

import re

from .._plain import dataclass
from ..findings import Finding, Role
from ..location import Location
from ._scene import Scene
from ._shapes import Shape, source
from ._words import shorten


@dataclass(frozen=True, slots=True)
class Severed:
    """A cut, the findings that name it, and the graph node that the gradient would have gone on to."""

    location: Location | None
    op: str
    node: int | None
    findings: tuple[Finding, ...]


def severed(scene: Scene) -> list[Severed]:
    """The cuts that findings name in their fact ``cut``: a location, or ``{"location", "op", "node"}``."""
    found: dict[tuple[Location | None, str], Severed] = {}
    for finding in scene.findings:
        cut = finding.facts.get("cut")
        told = cut if isinstance(cut, dict) else {"location": cut}
        location = told.get("location")
        if not isinstance(location, Location) and not told.get("op"):
            continue
        where = location if isinstance(location, Location) else None
        seen, upstream = _seen(where, scene)
        op, node = str(told.get("op") or seen), told.get("node", upstream)
        known = found.get((where, op))
        findings = (*known.findings, finding) if known else (finding,)
        found[where, op] = Severed(where, op, node if isinstance(node, int) else None, findings)
    return list(found.values())


def _seen(location: Location | None, scene: Scene) -> tuple[str, int | None]:
    """The call at a location that cut a gradient, and the node that it cut off."""
    for call in scene.trace.calls:
        if location is not None and call.location == location and (call.leaves or call.cuts):
            nodes = (scene.graph.tensor(id).node for id in call.inputs)
            return call.op, next((node for node in nodes if node is not None), None)
    return "cut", None


def cut_shape(position: int, cut: Severed, scene: Scene) -> Shape:
    """The box of a cut."""
    line = scene.trace.source_line(cut.location) if cut.location else None
    statement = re.sub(r"\s+#.*$", "", line).strip() if line else ""
    lines = [shorten(statement, 60)] if statement else []
    lines.append(f"{cut.location} | no history beyond here" if cut.location else "no history beyond here")
    codes = tuple(sorted({finding.code for finding in cut.findings}))
    tooltip = [finding.message for finding in cut.findings]
    tooltip += source(cut.location, scene)
    return Shape(f"cut_{position}", "cut", cut.op, lines=lines, tooltip=tooltip, codes=codes, location=cut.location)


def concerned(cut: Severed, scene: Scene) -> list[int]:
    """The losses a cut matters to: those that fail, or reach what was computed at the other places named."""
    failing = sorted({position for finding in cut.findings for position in scene.failing(finding)})
    if failing:
        return failing
    named = [place for finding in cut.findings for place in finding.places if place.location != cut.location]
    places = {place.location for place in named if place.role is not Role.FAILURE}
    masks = {scene.masks.get(id, 0) for id, location in scene.graph.locations.items() if location in places}
    reached = [n for n in range(len(scene.losses)) if any(mask >> n & 1 for mask in masks)]
    return reached or list(range(len(scene.losses)))[:1]
