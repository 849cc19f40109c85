"""The whole graph as GraphML, for yEd, Gephi, Cytoscape and networkx; nothing is collapsed."""

from __future__ import annotations

from ..report import Report
from ._words import clean


def render(report: Report) -> str:
    """The nodes, with operator, module, source line, shapes and saved bytes, and the steps of the gradient."""
    import networkx

    graph = report.trace.graph
    codes: dict[int, list[str]] = {}
    for finding in report.findings:
        for id in finding.nodes:
            codes.setdefault(id, []).append(finding.code)
    found = networkx.MultiDiGraph(script=clean(report.trace.script or ""))
    for node in graph.nodes:
        found.add_node(
            node.id,
            op=clean(node.op),
            sequence=node.sequence,
            module=clean(node.module or ""),
            location=clean(str(node.location or "")),
            tensor=clean(str(graph.tensor(node.tensor)) if node.tensor is not None else ""),
            shapes=" ".join(str(output.shape) for output in node.outputs),
            device=clean(" ".join(dict.fromkeys(output.device for output in node.outputs))),
            saved_bytes=sum(saved.bytes for saved in node.saved),
            freed=node.is_freed,
            findings=clean(" ".join(codes.get(node.id, ()))),
            loss=clean(", ".join(root.name for root in graph.roots if root.node == node.id)),
        )
    for edge in graph.edges:
        found.add_edge(edge.source, edge.target, edge.input, input=edge.input, output=edge.output)
    return "\n".join(networkx.generate_graphml(found)) + "\n"
