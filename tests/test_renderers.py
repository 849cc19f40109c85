from __future__ import annotations

import ast
import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from reports import HOSTILE, at, hostile, layers, planned, two_losses

from graphscope.discovery import names
from graphscope.errors import GraphscopeError
from graphscope.findings import Cleared
from graphscope.renderers import _engine, text
from graphscope.renderers._clusters import clusters
from graphscope.renderers._picture import picture
from graphscope.renderers._shapes import Shape
from graphscope.renderers._words import size
from graphscope.report import Report, render
from graphscope.show import BOXES, Show
from graphscope.trace import Trace

GOLDEN = Path(__file__).parent / "golden"
REPORTS = {"two_losses": two_losses, "planned": planned, "hostile": hostile, "empty": lambda: Report(Trace())}
SUFFIXES = {"text": "txt"} | {format: format for format in ("json", "dot", "svg", "mmd", "graphml", "tree")}
SVG = "{http://www.w3.org/2000/svg}"
SHOWN = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")


@pytest.fixture(params=REPORTS)
def report(request: pytest.FixtureRequest) -> Report:
    return REPORTS[request.param]()


@pytest.mark.parametrize("format", SUFFIXES)
@pytest.mark.parametrize("name", ["two_losses", "planned", "hostile"])
def test_text_formats_equal_their_golden_files(name: str, format: str, request: pytest.FixtureRequest) -> None:
    rendered = render(REPORTS[name](), format)
    golden = GOLDEN / f"{name}.{SUFFIXES[format]}"
    if request.config.getoption("--update-golden"):
        golden.write_text(str(rendered), encoding="utf-8")
    assert rendered == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("format", names("renderers"))
def test_every_format_renders_every_report_the_same_twice(report: Report, format: str) -> None:
    once, again = render(report, format), render(report, format)
    assert once == again
    assert isinstance(once, bytes if format in ("png", "pdf") else str)


def test_pictures_are_what_their_suffix_says() -> None:
    assert bytes(render(two_losses(), "png")).startswith(b"\x89PNG")  # type: ignore[arg-type]
    assert bytes(render(two_losses(), "pdf")).startswith(b"%PDF")  # type: ignore[arg-type]


def test_text_is_coloured_only_when_asked() -> None:
    plain, coloured = text.render(two_losses()), text.render(two_losses(), color=True)
    assert "\x1b" not in plain
    assert "\x1b[1;31merror GS101" in coloured


def test_text_stays_within_a_hundred_columns() -> None:
    assert max(map(len, text.render(two_losses()).splitlines())) <= 100


def test_text_tells_what_was_cleared_only_when_asked() -> None:
    cleared = Cleared("GS202", "`detach` feeds the loss of another network", at(12))
    report = replace(planned(), cleared=(cleared,))
    assert cleared.message not in text.render(report)
    assert f"  train.py:12: {cleared.message} (GS202)\n" in text.render(report, cleared=True)
    assert "nothing looked suspicious" in text.render(planned(), cleared=True)


def test_text_escapes_codes_too_which_a_saved_trace_may_have_from_anywhere() -> None:
    code = HOSTILE + "\udc80"
    (finding,) = hostile().findings
    report = replace(hostile(), findings=(replace(finding, code=code),), cleared=(Cleared(code, "right", at(1)),))
    told = text.render(report, cleared=True)
    told.encode()
    assert told.count("%\\x1b[31m") > 2 and "\x1b" not in told and told.count("\\udc80") >= 2


def test_text_tells_on_demand_what_graphs_keep() -> None:
    report = two_losses()
    assert "graphs keep" not in text.render(report)
    told = text.render(report, memory=True)
    largest = report.memory.largest[0]
    line = (
        f"  {largest.dtype} {largest.shape} {size(largest.bytes)} "
        f"saved by {report.trace.graph.ops[largest.node]} as {largest.name}"
    )
    assert line in told
    assert all(title in told for title in ("\nby line\n", "\nby module\n", "\nby loss\n", "\nby backward\n"))
    assert "no graph keeps anything" in text.render(Report(Trace()), memory=True)


def test_json_has_the_documented_keys() -> None:
    document = json.loads(str(render(two_losses(), "json")))
    assert document["schema_version"] == 1
    assert {
        "tool",
        "script",
        "outcome",
        "losses",
        "optimizers",
        "events",
        "findings",
        "suppressed",
        "cleared",
        "memory",
        "unseen",
    } < set(document)
    finding = document["findings"][0]
    assert set(finding) == {"code", "name", "severity", "confidence", "message", "locations", "fixes"}
    assert [place["role"] for place in finding["locations"]] == ["failure", "cause", "related"]


def test_svg_is_told_to_screen_readers_and_fetches_nothing() -> None:
    drawn = str(render(two_losses(), "svg"))
    root = ElementTree.fromstring(drawn)
    assert [child.tag for child in root[:2]] == [f"{SVG}title", f"{SVG}desc"]
    assert "GS101" in (root[1].text or "")
    assert root.get("role") == "img"
    assert drawn.replace("http://www.w3.org/2000/svg", "").count("http") == 0


def test_svg_links_go_to_source_lines_and_nowhere_else() -> None:
    report = two_losses()
    links = [link.get("href") for link in ElementTree.fromstring(str(render(report, "svg"))).iter(f"{SVG}a")]
    assert {"./train.py#L11", "./train.py#L13", "./train.py#L16"} <= set(links)
    assert all(str(link).startswith("./train.py#L") for link in links)
    moved = Report(replace(report.trace, root="/home/me/project"), report.findings)
    drawn = str(render(moved, "svg", Show(beside="/home/me/pictures")))
    assert 'href="./../project/train.py#L11"' in drawn


def test_svg_tooltips_tell_what_a_node_saves() -> None:
    titles = [
        title.text or "" for title in ElementTree.fromstring(str(render(two_losses(), "svg"))).iter(f"{SVG}title")
    ]
    assert any("TanhBackward0" in title and "saves result: (32, 16) float32, 2.0 KiB" in title for title in titles)


def test_hostile_names_are_shown_as_they_are() -> None:
    root = ElementTree.fromstring(str(render(hostile(), "svg")))
    words = ["".join(text.itertext()) for text in root.iter(f"{SVG}text")]
    assert SHOWN in words
    for format in ("text", "json", "dot", "svg", "mmd", "graphml", "tree"):
        str(render(hostile(), format)).encode()
    assert "\x1b" not in str(render(hostile(), "text"))


def test_picture_marks_what_is_freed_shared_cut_and_blamed() -> None:
    drawn = picture(two_losses())
    freed = [shape for shape in drawn.shapes if "freed" in shape.marks]
    assert [shape.title for shape in freed] == ["Addmm", "Relu", "Addmm"]
    assert {shape.marks["freed"] for shape in freed} == {"freed by loss_a.backward()"}
    assert [shape.title for shape in drawn.shapes if shape.kind == "cut"] == ["numpy hop"]
    blamed = [line for line in drawn.lines if line.kind == "blamed"]
    assert [line.label for line in blamed if line.label] == ["reaches freed buffers"]
    assert "loss_1" in {line.source for line in blamed}
    assert {line.source for line in drawn.lines if line.kind == "severed"} == {"loss_1"}


def test_each_call_of_a_module_is_a_box_of_its_own() -> None:
    net = (("net", 0),)
    first, second = (*net, ("cell", 0)), (*net, ("cell", 1))
    shapes = [Shape(name, "operator", name, scope=first if name in "ab" else second) for name in "abcd"]
    shapes.append(Shape("e", "operator", "e", scope=net))
    (box,) = clusters(shapes, {}).inside
    assert [inner.title for inner in box.inside] == [".cell", ".cell (call 2)"]
    assert [[shape.id for shape in inner.shapes] for inner in box.inside] == [["a", "b"], ["c", "d"]]


def test_one_cut_that_two_findings_name_is_drawn_once() -> None:
    report = two_losses()
    again = replace(report.findings[1], code="GS203")
    drawn = picture(Report(report.trace, (*report.findings, again)))
    assert [shape.codes for shape in drawn.shapes if shape.kind == "cut"] == [("GS201", "GS203")]


def test_transpose_before_a_leaf_is_part_of_the_leaf() -> None:
    assert "T" not in {shape.title for shape in picture(two_losses()).shapes}


@pytest.mark.parametrize(
    "deep",
    [layers(334), layers(334, modules=False), layers(500, modules=False, chain=True)],
    ids=["modules", "plain", "chain"],
)
def test_thousand_nodes_are_folded_and_drawn_in_time(deep: Report) -> None:
    drawn = picture(deep)
    assert len(deep.trace.graph) > 1000
    assert len(drawn.shapes) <= BOXES + len(drawn.losses)
    assert drawn.notes
    started = time.monotonic()
    render(deep, "svg")
    assert time.monotonic() - started < _engine.SECONDS


def test_without_an_engine_svg_is_laid_out_by_ourselves(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = set(re.findall(r'<g id="(\w+)"', str(render(two_losses(), "svg"))))
    monkeypatch.setattr(_engine, "engines", list)
    ours = set(re.findall(r'<g id="(\w+)"', str(render(two_losses(), "svg"))))
    assert ours == {id for id in drawn if not id.startswith("cluster")}


def test_without_an_engine_other_pictures_are_refused_and_the_dot_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_engine, "engines", list)
    with pytest.raises(GraphscopeError, match=r"no layout engine found.*graph\.dot"):
        two_losses().save(tmp_path / "graph.png")
    assert [path.name for path in tmp_path.iterdir()] == ["graph.dot"]


@pytest.mark.parametrize(
    "code, said",
    [
        ("import sys; sys.exit('out of paint')", "failed: out of paint"),
        ("import time; time.sleep(9)", "did not finish in 0.3 s"),
        ("pass", "failed"),
        ("import os; os.kill(os.getpid(), 9)", "crashed with signal 9"),
    ],
)
def test_failing_engine_is_one_line(code: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _engine.Engine("painter", (sys.executable, "-c", code))
    monkeypatch.setattr(_engine, "engines", lambda: [engine])
    with pytest.raises(GraphscopeError, match=said) as raised:
        _engine.draw("digraph {}", "svg", seconds=0.3)
    assert "\n" not in str(raised.value)


def test_next_engine_draws_where_the_first_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = _engine.Engine("broken", ("/does/not/exist",))
    found = [broken, *_engine.engines()]
    monkeypatch.setattr(_engine, "engines", lambda: found)
    assert b"<svg" in _engine.draw("digraph {a}", "svg")


def test_renderers_do_not_import_torch() -> None:
    for path in (Path(_engine.__file__).parent).glob("*.py"):
        imported = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
        ]
        assert not any("torch" in ast.unparse(node) for node in imported)
