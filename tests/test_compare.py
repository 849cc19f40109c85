"""What changed between two reports."""

from __future__ import annotations

from dataclasses import replace

import networkx
from reports import layers, planned, two_losses

from graphscope.renderers import _comparison
from graphscope.renderers._comparison import compare, merged
from graphscope.renderers._picture import picture
from graphscope.report import Report, render


def test_nothing_changed_between_a_report_and_itself() -> None:
    found = compare(two_losses(), two_losses())
    assert not found.fixed and not found.new and len(found.still) == 2
    assert "no finding is fixed, and none is new" in _comparison.text(found)
    assert not merged(found)[1].changes


def test_findings_that_went_away_and_came_are_told() -> None:
    before, after = two_losses(), planned()
    there = compare(before, after)
    assert [finding.code for finding in there.fixed] == ["GS101", "GS201"] and not there.new
    back = compare(after, before)
    assert [finding.code for finding in back.new] == ["GS101", "GS201"] and not back.fixed
    assert "fixed:\n  train.py:17: error GS101" in _comparison.text(there)
    assert "new:\n  train.py:17: error GS101" in _comparison.text(back)


def test_a_finding_whose_line_moved_is_the_same() -> None:
    report = two_losses()
    first, *others = report.findings
    place = replace(first.places[0], location=replace(first.places[0].location, line=40, end_line=42))
    moved = replace(first, places=(place, *first.places[1:]))
    assert not compare(report, Report(report.trace, (moved, *others))).new


def test_nodes_parameters_and_bytes_are_counted_over_the_first_pass_of_each_loss() -> None:
    found = compare(layers(2), layers(3))
    said = _comparison.text(found)
    assert [len(side.nodes) for side in found.sides] == [10, 14]
    assert [side.bytes for side in found.sides] == [256, 384]
    assert "reached by loss" in said and "+ net.blocks.2.weight" in said
    assert "operators: + AddBackward0, MmBackward0, ReluBackward0" in said


def test_a_picture_of_both_marks_what_only_one_of_them_has() -> None:
    for before, after, mark in ((2, 3, "new"), (3, 2, "gone")):
        report, show = merged(compare(layers(before), layers(after)))
        graph = report.trace.graph
        changed = {graph.modules.get(id) or str(graph.tensor(graph.leaf_tensors[id])) for id in show.changes}
        assert set(show.changes.values()) == {mark}
        assert changed == {f"net.blocks.2{part}" for part in ("", ".linear", ".act", ".weight")}
        assert networkx.is_directed_acyclic_graph(graph.to_networkx())
        drawn = picture(report, show)
        assert sum(len(shape.nodes) for shape in drawn.shapes if mark in shape.marks) == len(show.changes)
        assert "<svg" in str(render(report, "svg", show))


def test_a_picture_of_two_programs_that_share_nothing_has_both() -> None:
    report, show = merged(compare(two_losses(), layers(2)))
    assert set(show.changes.values()) == {"new", "gone"}
    assert {root.name for root in report.trace.graph.roots} == {"loss", "loss_a", "loss_b"}
    assert "<svg" in str(render(report, "svg", show))
