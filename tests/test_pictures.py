"""What a reader sees: pictures of every size in which nothing overlaps, and names that are text wherever they stand."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from reports import HOSTILE, Sketch, hostile, layers, planned, two_losses

from graphscope.discovery import names
from graphscope.errors import GraphscopeError
from graphscope.graph import Root
from graphscope.renderers import _engine
from graphscope.renderers._clusters import Cluster
from graphscope.renderers._label import row_width, rows
from graphscope.renderers._layout import box_sizes, layout
from graphscope.renderers._picture import picture
from graphscope.report import Report, is_picture, render
from graphscope.show import BOXES, Show
from graphscope.trace import Trace

SVG = "{http://www.w3.org/2000/svg}"
FULL = Show(boxes=0)


def _ids(cluster: Cluster) -> list[str]:
    return [id for inner in cluster.inside for id in (inner.id, *_ids(inner))]


def strings(data: object) -> list[str]:
    if isinstance(data, dict):
        return [text for pair in data.items() for each in pair for text in strings(each)]
    if isinstance(data, list):
        return [text for each in data for text in strings(each)]
    return [data] if isinstance(data, str) else []


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.get(name, "nan")) for name in names]


@pytest.mark.parametrize("engine", ["graphviz", "ours"])
@pytest.mark.parametrize("blocks", [2, 20, 75], ids=["10 nodes", "80 nodes", "300 nodes"])
def test_no_boxes_or_labels_overlap_and_no_text_is_cut(blocks: int, engine: str, monkeypatch) -> None:
    if engine == "ours":
        monkeypatch.setattr(_engine, "engines", list)
    report = two_losses() if blocks == 2 else layers(blocks)
    drawn = picture(report, FULL)
    sizes = box_sizes(drawn)
    placed = layout(drawn, sizes, dict.fromkeys(_ids(drawn.tree), 60.0))
    found = []
    for shape in drawn.shapes:
        (x, y), (width, height) = placed.boxes[shape.id], sizes[shape.id]
        found.append((shape.id, x - width / 2, y - height / 2, x + width / 2, y + height / 2))
        assert max(row_width(row) for row in rows(shape)) + 8 <= width
        assert x - width / 2 >= 0 and x + width / 2 <= placed.width + 0.2
        assert y - height / 2 >= 0 and y + height / 2 <= placed.height + 0.2
    labels = [route.label for route in placed.routes.values() if route.label]
    if engine == "graphviz":
        found += [(f"label {n}", x - 4, y - 4, x + 4, y + 4) for n, (x, y) in enumerate(labels)]
    for position, (a, left, top, right, low) in enumerate(found):
        for b, other_left, other_top, other_right, other_low in found[position + 1 :]:
            apart = right <= other_left or other_right <= left or low <= other_top or other_low <= top
            assert apart, (a, b)


def test_text_keeps_to_its_room_whatever_font_there_is() -> None:
    root = ElementTree.fromstring(str(render(two_losses(), "svg")))
    texts = list(root.iter(f"{SVG}text"))
    assert texts and all(text.get("lengthAdjust") == "spacingAndGlyphs" and text.get("textLength") for text in texts)
    box = next(group for group in root.iter(f"{SVG}g") if group.get("id") == "n14")
    (left, width), middles = numbers(next(box.iter(f"{SVG}rect")), "x", "width"), []
    for text in box.iter(f"{SVG}text"):
        x, length = numbers(text, "x", "textLength")
        assert left < x - length / 2 and x + length / 2 < left + width
        middles.append(x)
    assert middles


def test_svg_of_two_thousand_nodes_is_under_a_megabyte() -> None:
    report = layers(500)
    assert len(report.trace.graph) > 2_000
    drawn = str(render(report, "svg", FULL))
    assert drawn.count('class="parameter') == 500
    assert len(drawn.encode()) < 1_000_000


def test_svg_has_a_dark_side_and_prints_on_white() -> None:
    drawn = str(render(two_losses(), "svg"))
    sheet = re.search(r"<style>(.*?)</style>", drawn)
    assert sheet is not None
    light, dark = sheet[1].split("@media screen and (prefers-color-scheme:dark)")
    assert set(re.findall(r"\.[fl]\d+(?=\{)", light)) == set(re.findall(r"\.[fl]\d+(?=\{)", dark))
    assert not re.findall(r'(?:fill|stroke)="#', drawn)


def test_default_view_has_at_most_about_eighty_boxes_and_says_what_it_folded() -> None:
    for report in (layers(40), layers(334), layers(334, modules=False), layers(500, modules=False, chain=True)):
        drawn = picture(report)
        assert len(drawn.shapes) <= BOXES + len(drawn.losses)
        assert any("--full" in note for note in drawn.notes)


def test_blocks_that_repeat_are_drawn_once_and_counted() -> None:
    drawn = picture(layers(40))
    (net,) = drawn.tree.inside
    block, first = net.inside
    assert block.title == "net.blocks.1 to .39  x 39"
    assert {shape.times for shape in block.all_shapes} == {39}
    assert first.title == ".0"  # it alone reads the input
    assert [line.kind for line in drawn.lines if not line.pulls] == ["repeat"]


def test_long_lines_end_at_chips_that_name_their_goal() -> None:
    sketch = Sketch()
    weight = sketch.leaf("w", (4, 4))
    hidden = sketch.leaf("h", (4, 4), parameter=False)
    for n in range(60):
        hidden = sketch.op(f"Op{n}Backward0", (4, 4), hidden, weight)
    loss = Root("loss", hidden, sketch.tensor("loss"))
    drawn = picture(Report(Trace(graph=sketch.graph(loss))))
    chips = [shape for shape in drawn.shapes if shape.kind == "chip"]
    assert len(chips) > 20 and {chip.lines[0] for chip in chips} == {"to w"}
    near = [line for line in drawn.lines if line.target == f"n{weight}"]
    assert len(chips) + len(near) == 60


def test_a_module_in_focus_is_open_and_the_others_are_closed() -> None:
    drawn = picture(two_losses(), Show(focus="net2"))
    assert {shape.title for shape in drawn.shapes if shape.scope and shape.scope[0][0] == "net2"} >= {"Addmm", "Tanh"}
    drawn = picture(planned(), Show(focus="net2"))
    assert [shape.title for shape in drawn.shapes if shape.kind == "module"] == ["net1"]


def test_a_path_is_marked_from_the_loss_to_the_parameter() -> None:
    drawn = picture(two_losses(), Show(path="net2.2.weight"))
    way = [(line.source, line.target) for line in drawn.lines if line.kind == "path"]
    names = {shape.id: shape.name for shape in drawn.shapes}
    assert [names[target] for _, target in way][-1] == "net2.2.weight" or "net2.2.weight" in {names[t] for _, t in way}
    assert "net2.0.weight" not in {names[target] for _, target in way}
    assert "no loss that is drawn reaches target" in picture(_with_tensor("target"), Show(path="target")).notes


def _with_tensor(name: str) -> Report:
    sketch = Sketch()
    leaf = sketch.leaf("w", (2,))
    sketch.tensor(name, (2,))
    root = Root("loss", sketch.op("SumBackward0", (), leaf), sketch.tensor("loss"))
    return Report(Trace(graph=sketch.graph(root)))


@pytest.mark.parametrize("around", ["node:100", "tensor:30", "net.blocks.30.weight"])
def test_around_shows_the_neighbours_and_keeps_the_rest_in_few_boxes(around: str) -> None:
    report = layers(60)
    drawn = picture(report, Show(around=around))
    assert len(drawn.shapes) <= 45
    assert sum(len(shape.nodes) for shape in drawn.shapes) == len(report.trace.graph)
    assert {shape.kind for shape in drawn.shapes} >= {"rest", "operator"}


def test_a_step_to_another_device_is_marked_with_both() -> None:
    sketch = Sketch()
    inner = sketch.op("MulBackward0", (2,), sketch.leaf("w", (2,)))
    outer = sketch.op("ToCopyBackward0", (2,), inner)
    graph = sketch.graph(Root("loss", outer, sketch.tensor("loss")))
    graph.outputs[outer] = tuple(type(each)(each.shape, each.dtype, "cuda:0") for each in graph.outputs[outer])  # type: ignore[index]
    (line,) = [line for line in picture(Report(Trace(graph=graph))).lines if line.kind == "device"]
    assert line.label == "from cuda:0 to cpu"


def test_legend_shows_what_occurs_and_nothing_else() -> None:
    words = {
        " ".join(text.itertext()) for text in ElementTree.fromstring(str(render(layers(2), "svg"))).iter(f"{SVG}text")
    }
    assert {"loss", "operator", "parameter", "input"} <= words
    assert not {"buffers freed", "gradient stops here", "custom Function", "closed module", "in no optimizer"} & words


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)


@pytest.mark.parametrize("format", names("renderers"))
def test_markup_in_names_paths_and_source_is_text_in_every_format(format: str) -> None:
    rendered = render(hostile(), format)
    if isinstance(rendered, bytes):
        assert rendered
        return
    rendered.encode()
    assert "\x1b" not in rendered and "\u202e" not in rendered
    if format in ("svg", "graphml"):
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(rendered).iter()}
        assert "b" not in tags and len(tags) > 3
        assert HOSTILE[:8] in "".join(ElementTree.fromstring(rendered).itertext())
    elif format in ("json", "trace"):
        assert HOSTILE in strings(json.loads(rendered))
    elif format == "html":
        parser = Tags()
        parser.feed(rendered)
        assert "b" not in parser.found
    elif format == "mmd":
        assert not re.findall(r'"[^"]*<b>[^"]*"', rendered.split("flowchart")[1])


def test_every_drawn_format_shows_parts() -> None:
    drawn = {format for format in names("renderers") if is_picture(format)}
    assert drawn >= {"svg", "png", "pdf", "dot", "mmd", "tree"}
    for format in drawn:
        assert render(two_losses(), format, Show(depth=1)) != render(two_losses(), format)
        with pytest.raises(GraphscopeError, match="no parameter is called"):
            render(two_losses(), format, Show(path="nothing"))
