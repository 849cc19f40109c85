"""Where everything goes: boxes and lines placed by a layout engine, in points, from the top left corner."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import ceil
from typing import Any

from .._plain import dataclass
from ..errors import GraphscopeError
from ._clusters import Cluster
from ._engine import draw
from ._label import SMALL, row_height, row_width, rows, text_width
from ._picture import Line, Picture
from ._style import LOOKS, STROKES

Point = tuple[float, float]
_SIDE_BY_SIDE = 4
_FEW = 400  # boxes: beyond it, the engine is told to take fewer rounds


@dataclass(frozen=True, slots=True)
class Route:
    """The way of a line: the points of a Bezier curve, the tips of its ends, and the middle of its label."""

    points: tuple[Point, ...]
    head: Point | None
    tail: Point | None = None
    label: Point | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The middle of each box, the route of each line by its position, the corners of each cluster; the size of all."""

    boxes: Mapping[str, Point]
    routes: Mapping[int, Route]
    clusters: Mapping[str, tuple[Point, Point]]
    width: float
    height: float


def box_sizes(drawn: Picture) -> dict[str, Point]:
    """The width and height of each box, in points."""
    sizes: dict[str, Point] = {}
    for shape in drawn.shapes:
        found = rows(shape)
        width, height = max(map(row_width, found), default=20), sum(map(row_height, found))
        form = LOOKS[shape.kind].form
        bands = 8 * min(len(shape.optimizers), 4) if shape.kind == "parameter" and shape.owned else 9
        margin = {"octagon": 34, "chip": 22}.get(form, 24) + (bands if shape.kind == "parameter" else 0)
        sizes[shape.id] = (2 * ceil((width + margin) / 2), 2 * ceil((height + (5 if form == "chip" else 12)) / 2))
    return sizes


def cluster_label(cluster: Cluster, words: str) -> float:
    """How wide the label of a module's box is."""
    return text_width(cluster.title, 10.5, bold=True) + (text_width(words, SMALL) + 8 if words else 0)


def layout(drawn: Picture, sizes: Mapping[str, Point], labels: Mapping[str, float]) -> Layout:
    """Place boxes of these sizes; ``labels`` are the widths of the clusters' labels."""
    try:
        return _placed(json.loads(draw(_source(drawn, sizes, labels), "json0")))
    except GraphscopeError:
        from ._layers import layered

        return layered(drawn, sizes)


def _source(drawn: Picture, sizes: Mapping[str, Point], labels: Mapping[str, float]) -> str:
    """The picture as DOT source in which every text is a space of its size, so that no font has a say."""
    many = len(drawn.shapes) > _FEW
    quick = ' nslimit="1" nslimit1="1" mclimit="0.1"' if many else ""
    out = [f'digraph g {{graph [newrank="true" nodesep="0.3" ranksep="0.34"{quick}]']
    out += ['node [shape="box" fixedsize="true" label=""] edge [arrowsize="0.7"]']
    _add(drawn.tree, sizes, labels, out)
    if row := side_by_side(drawn):
        out.append(f"{{rank=same {' '.join(row)}}}")
    kinds = {shape.id: shape.kind for shape in drawn.shapes}
    home = drawn.tree.homes
    above_leaves = {line.source for line in drawn.lines if kinds[line.target] == "parameter"}
    for number, line in enumerate(drawn.lines):
        apart = leaves_module(line, home, above_leaves)
        out.append(f"{line.source}->{line.target} [{_edge(number, line, apart)}]")
    return "\n".join([*out, "}"])


def side_by_side(drawn: Picture) -> list[str]:
    """The losses, where they may stand at the same height; more of them would make the picture too wide."""
    roots = [shape.id for shape in drawn.shapes if shape.kind == "loss"]
    return roots if len(roots) <= _SIDE_BY_SIDE else []


def leaves_module(line: Line, home: Mapping[str, object], above_leaves: set[str]) -> bool:
    """Whether the next module must start below the parameters of this one, so that both can stand in one column."""
    apart = home[line.source] != home[line.target]
    return apart and line.pulls and line.source in above_leaves


def _edge(number: int, line: Line, apart: bool) -> str:
    words = [f'n="{number}"', *(['minlen="2"'] if apart else [])]
    words += ['constraint="false"'] if not line.pulls else []
    words += ['dir="both"'] if STROKES[line.kind].tail != "none" else []
    words += [f"label={_space(text_width(line.words, SMALL) + 8, 12)}"] if line.words else []
    return " ".join(words)


def _space(width: float, height: float) -> str:
    size = f'FIXEDSIZE="TRUE" WIDTH="{width:.0f}" HEIGHT="{height:.0f}"'
    return f'<<TABLE BORDER="0" {size}><TR><TD></TD></TR></TABLE>>'


def _add(cluster: Cluster, sizes: Mapping[str, Point], labels: Mapping[str, float], out: list[str]) -> None:
    for shape in cluster.shapes:
        width, height = sizes[shape.id]
        out.append(f'{shape.id} [width="{width / 72:.4f}" height="{height / 72:.4f}"]')
    for inner in cluster.inside:
        out.append(f'subgraph cluster_{inner.id} {{graph [k="{inner.id}" margin="12" labeljust="l"')
        out.append(f"label={_space(labels[inner.id], 16)}]")
        _add(inner, sizes, labels, out)
        out.append("}")


def _placed(data: dict[str, Any]) -> Layout:
    """The layout in what Graphviz writes, whose origin is at the bottom left."""
    _, _, width, height = map(float, data["bb"].split(","))
    digits = 1 if len(data.get("objects", ())) <= _FEW else None  # none: a large file is better a little smaller

    def point(text: str) -> Point:
        x, y = map(float, text.split(","))
        return round(x, digits), round(height - y, digits)

    boxes, clusters, routes = {}, {}, {}
    for thing in data.get("objects", ()):
        if "k" in thing:
            left, low, right, high = map(float, thing["bb"].split(","))
            clusters[thing["k"]] = ((left, round(height - high, 1)), (right, round(height - low, 1)))
        elif "pos" in thing:
            boxes[thing["name"]] = point(thing["pos"])
    for edge in data.get("edges", ()):
        parts = edge["pos"].split()
        tips = {part[0]: point(part[2:]) for part in parts if part[0] in "es"}
        points = tuple(point(part) for part in parts if part[0] not in "es")
        label = point(edge["lp"]) if "lp" in edge else None
        routes[int(edge["n"])] = Route(points, tips.get("e"), tips.get("s"), label)
    return Layout(boxes, routes, clusters, width, height)
