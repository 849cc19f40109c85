from __future__ import annotations

import networkx
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reports import Sketch

from graphscope.findings import Finding, Severity
from graphscope.graph import Root
from graphscope.renderers._collapse import Collapse, Rest, collapse
from graphscope.renderers._picture import picture
from graphscope.renderers._scene import Scene
from graphscope.report import Report
from graphscope.show import Show
from graphscope.trace import Trace

PATHS = (None, "net", "net.a", "net.a.b", "net.c", "net.blocks.0", "net.blocks.1", "net.blocks.2", "head")


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """A program with modules, several losses, freed buffers and a finding, made op by op."""
    sketch = Sketch()
    made = [sketch.leaf(f"net.p{n}", (2, n + 1)) for n in range(draw(st.integers(1, 4)))]
    path = None
    for _ in range(draw(st.integers(1, 40))):
        path = draw(st.sampled_from(PATHS)) if draw(st.booleans()) else path
        targets = draw(st.lists(st.sampled_from(made[-6:] + made[:2]), min_size=1, max_size=2))
        name = draw(st.sampled_from(["MulBackward0", "AddBackward0", "TBackward0"]))
        freed = draw(st.booleans())
        made.append(sketch.op(name, (2,), *targets, module=path, keeps=draw(st.sampled_from([0, 8])), freed=freed))
    ends = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3, unique=True))
    roots = tuple(Root(f"loss_{n}", node, sketch.tensor(f"loss_{n}")) for n, node in enumerate(ends))
    named = draw(st.lists(st.sampled_from(made), max_size=3, unique=True))
    finding = Finding("GS999", "found", Severity.ERROR, "something", nodes=tuple(named))
    return Report(Trace(graph=sketch.graph(*roots)), (finding,))


LAWS = settings(max_examples=100, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate), database=None)
SHOWS = st.builds(
    Show,
    boxes=st.sampled_from([0, 1, 3, 6, 80]),
    depth=st.sampled_from([None, None, 1, 2]),
)


def collapsed(report: Report, show: Show) -> tuple[Scene, Collapse]:
    scene = Scene(report, show)
    return scene, collapse(scene.subject, show)


@LAWS
@given(reports(), SHOWS)
def test_what_can_be_reached_can_still_be_reached(report: Report, show: Show) -> None:
    scene, folding = collapsed(report, show)
    boxes = networkx.DiGraph(list(folding.edges))
    boxes.add_nodes_from(folding.box.values())
    reach = {box: networkx.descendants(boxes, box) | {box} for box in boxes}
    for id in scene.order:
        for other in scene.graph.reachable([id]):
            assert folding.box[other] in reach[folding.box[id]]


@LAWS
@given(reports(), SHOWS)
def test_no_box_reaches_itself_where_nothing_is_left_out_or_repeated(report: Report, show: Show) -> None:
    _, folding = collapsed(report, show)
    if not folding.times and not any(isinstance(box, Rest) for box in folding.box.values()):
        assert networkx.is_directed_acyclic_graph(networkx.DiGraph(list(folding.edges)))


@LAWS
@given(reports(), SHOWS)
def test_what_several_losses_share_keeps_apart_from_what_they_do_not(report: Report, show: Show) -> None:
    scene, folding = collapsed(report, show)
    for box in set(folding.box.values()):
        members = [id for id in scene.order if folding.box[id] == box]
        operators = [id for id in members if id not in scene.graph.leaf_tensors and id not in folding.joined]
        if not isinstance(box, Rest):
            assert len({scene.masks[id] for id in operators}) <= 1


@LAWS
@given(reports(), SHOWS)
def test_what_findings_name_shares_a_box_with_nothing_else(report: Report, show: Show) -> None:
    scene, folding = collapsed(report, show)
    for id in scene.subject.touched:
        if not isinstance(folding.box[id], Rest):
            assert folding.box[id] not in folding.times
            mates = {other for other in scene.order if folding.box[other] == folding.box[id]} - set(folding.joined)
            assert mates <= set(scene.subject.touched)


@LAWS
@given(reports(), SHOWS)
def test_totals_of_nodes_and_bytes_and_freed_marks_stay(report: Report, show: Show) -> None:
    scene = Scene(report, show)
    drawn = picture(report, show)
    nodes = [id for shape in drawn.shapes for id in shape.nodes]
    assert sorted(nodes) == sorted(scene.masks)
    for shape in drawn.shapes:
        freed = [id for id in shape.nodes if id in scene.freed and id not in scene.graph.leaf_tensors]
        if shape.kind not in ("rest", "parameter", "input"):
            assert ("freed" in shape.marks) == bool(freed)


@LAWS
@given(reports(), SHOWS)
def test_collapsing_is_the_same_every_time(report: Report, show: Show) -> None:
    assert collapsed(report, show)[1].box == collapsed(report, show)[1].box
