"""The graph as DOT source, for Graphviz; svg, png and pdf are drawn from it."""

from __future__ import annotations

import graphviz

from ..report import Report
from ..show import Show
from . import _drawing
from ._clusters import Cluster
from ._layout import leaves_module, side_by_side
from ._picture import Picture, picture
from ._style import EDGE, INK, PAPER, QUIET


def render(report: Report, show: Show | None = None) -> str:
    """The report's graph as DOT source: losses on top, leaves at the bottom, findings in red."""
    return source(picture(report, show))


def source(drawn: Picture, dpi: int | None = None) -> str:
    """A picture as DOT source; ``dpi`` is the resolution for a bitmap."""
    return str(digraph(drawn, dpi).source)


def digraph(drawn: Picture, dpi: int | None = None) -> graphviz.Digraph:
    """A picture for the ``graphviz`` package."""
    tree = drawn.tree
    source = graphviz.Digraph("graphscope", graph_attr=_graph(drawn, tree), node_attr=_NODE, edge_attr=_EDGE)
    if dpi:
        source.graph_attr.update(dpi=str(dpi), size="60,100")  # inches: larger drawings shrink, bitmaps take memory
    with source.subgraph(name="cluster_picture", graph_attr=_frame(drawn)) as frame:
        _add(tree, drawn, frame, None)
        if len(row := side_by_side(drawn)) > 1:
            with frame.subgraph(graph_attr={"rank": "same"}) as same:
                for root in row:
                    same.node(root)
    kinds = {shape.id: shape.kind for shape in drawn.shapes}
    titles = {shape.id: shape.name for shape in drawn.shapes}
    home = tree.homes
    above_leaves = {line.source for line in drawn.lines if kinds[line.target] == "parameter"}
    for line in drawn.lines:
        words = _drawing.tooltip([f"{titles[line.source]} to {titles[line.target]}"])
        apart = {"minlen": "2"} if leaves_module(line, home, above_leaves) else {}
        source.edge(line.source, line.target, tooltip=words, labeltooltip=words, **apart, **_drawing.line(line))
    return source


_NODE = {"fontname": "Helvetica", "fontsize": "10.5", "fontcolor": INK.light}
_EDGE = {
    "fontname": "Helvetica",
    "fontsize": "9",
    "fontcolor": QUIET.light,
    "color": EDGE.light,
    "penwidth": "1.2",
    "arrowsize": "0.62",
}


def _graph(drawn: Picture, tree: Cluster) -> dict[str, str]:
    attributes = {
        "bgcolor": PAPER.light,
        "fontname": "Helvetica",
        "fontsize": "11",
        "fontcolor": INK.light,
        "nodesep": "0.34",
        "ranksep": "0.36",
        "pad": "0.3",
        "newrank": "true",
        "labelloc": "b",
        "tooltip": " ",
    }
    legend = _drawing.table(drawn)
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
        to.node(shape.id, **_drawing.node(shape, shared=shape.is_shared and within is None))
    for inner in cluster.inside:
        shared = within is None and inner.shared
        words = _drawing.sharers(inner, drawn.losses) if shared else None
        attributes = _drawing.cluster(inner, drawn.classes.get(".".join(inner.path)), words)
        attributes["id"] = inner.id
        with to.subgraph(name=inner.id, graph_attr=attributes) as subgraph:
            _add(inner, drawn, subgraph, words or within)
