"""The graph as DOT source, for Graphviz; svg, png and pdf are drawn from it."""

from __future__ import annotations

import graphviz

from ..report import Report
from . import _drawing
from ._clusters import Cluster, clusters
from ._picture import Line, Picture, picture
from ._words import listed


def render(report: Report, *, dpi: int | None = None) -> str:
    """The report's graph as DOT source: losses on top, leaves at the bottom, findings in red.

    ``dpi`` is the resolution for a bitmap.
    """
    drawn = picture(report)
    tree = clusters(drawn.shapes, [(line.source, line.target) for line in drawn.lines])
    source = graphviz.Digraph("graphscope", graph_attr=_graph(drawn, tree), node_attr=_NODE, edge_attr=_EDGE)
    if dpi:
        source.graph_attr.update(dpi=str(dpi), size="60,100")  # inches: larger drawings shrink, bitmaps take memory
    with source.subgraph(name="cluster_picture", graph_attr=_frame(drawn)) as frame:
        _add(tree, drawn, frame, None)
        roots = [shape.id for shape in drawn.shapes if shape.kind == "loss"]
        if 1 < len(roots) <= _SIDE_BY_SIDE:
            with frame.subgraph(graph_attr={"rank": "same"}) as row:
                for root in roots:
                    row.node(root)
    kinds = {shape.id: shape.kind for shape in drawn.shapes}
    titles = {shape.id: shape.title or shape.rows[0][0] for shape in drawn.shapes}
    home = tree.homes
    above_leaves = {line.source for line in drawn.lines if kinds[line.target] == "parameter"}
    for line in drawn.lines:
        words = _drawing.tooltip([f"{titles[line.source]} to {titles[line.target]}"])
        apart = {"minlen": "2"} if _leaves_module(line, home, above_leaves) else {}
        source.edge(line.source, line.target, tooltip=words, labeltooltip=words, **apart, **_drawing.line(line))
    return str(source.source)


def _leaves_module(line: Line, home: dict[str, tuple[str, ...]], above_leaves: set[str]) -> bool:
    """Whether the next module must start below the parameters of this one, so that both can stand in one column."""
    return line.kind != "lost" and line.source in above_leaves and home[line.source] != home[line.target]


_SIDE_BY_SIDE = 4  # losses at the same height; more of them would make the picture too wide
_NODE = {"fontname": "Helvetica", "fontsize": "10.5", "fontcolor": _drawing.INK}
_EDGE = {
    "fontname": "Helvetica",
    "fontsize": "9",
    "fontcolor": _drawing.QUIET,
    "color": _drawing.EDGE,
    "penwidth": "1.2",
    "arrowsize": "0.62",
}


def _graph(drawn: Picture, tree: Cluster) -> dict[str, str]:
    attributes = {
        "bgcolor": _drawing.PAPER,
        "fontname": "Helvetica",
        "fontsize": "11",
        "fontcolor": _drawing.INK,
        "nodesep": "0.34",
        "ranksep": "0.36",
        "pad": "0.3",
        "newrank": "true",
        "labelloc": "b",
        "tooltip": " ",
    }
    legend = _drawing.legend(drawn, tree.has_shared)
    return {**attributes, "label": legend} if legend else attributes


def _frame(drawn: Picture) -> dict[str, str]:
    """The title stands on an unseen box around everything, since a graph has one label and the legend takes it."""
    return {
        "label": _drawing.heading(drawn),
        "labelloc": "t",
        "labeljust": "l",
        "peripheries": "0",
        "margin": "8",
        "tooltip": " ",
    }


def _add(cluster: Cluster, drawn: Picture, to: graphviz.Digraph, within: str | None) -> None:
    """Add a cluster's boxes, then the clusters inside it."""
    for shape in cluster.shapes:
        several = bool(shape.losses & (shape.losses - 1))
        to.node(shape.id, **_drawing.node(shape, shared=several and within is None))
    for number, inner in enumerate(cluster.inside):
        shared = within is None and inner.shared
        names = [name for position, name in enumerate(drawn.losses) if inner.losses >> position & 1]
        words = (listed(names) if len(names) < 4 else f"{len(names)} losses") if shared else None
        attributes = _drawing.cluster(inner.path, drawn.classes.get(".".join(inner.path)), words)
        attributes["id"] = f"{cluster.id}_{number}"
        inner.id = f"{cluster.id}_{number}"
        with to.subgraph(name=inner.id, graph_attr=attributes) as subgraph:
            _add(inner, drawn, subgraph, words or within)
