"""Saved traces: they come back as they were, and what is no trace is refused in words."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from reports import at, hostile, planned, two_losses

import graphscope
from graphscope import archive
from graphscope.errors import GraphscopeError
from graphscope.events import GradRead, InPlaceWrite, Refused, Write
from graphscope.report import Report, render
from graphscope.trace import Trace


def eventful() -> Report:
    """A report with events of every kind that a hand-written one has not."""
    report = two_losses()
    more = (
        InPlaceWrite(6, 1, at(3), "add_", Write(0, 0, 0, 0, 1, hidden=True, bytes=8)),
        GradRead(7, 1, at(3), 0, present=False),
        Refused(8, 1, at(3), "backward", (0, 1), "RuntimeError: no"),
    )
    return replace(report, trace=replace(report.trace, events=report.trace.events + more))


@pytest.mark.parametrize("made", [two_losses, planned, hostile, eventful, lambda: Report(Trace())])
def test_a_report_comes_back_as_it_was(made) -> None:
    report = made()
    again = archive.loads(archive.dumps(report))
    assert again.findings == report.findings and again.suppressed == report.suppressed
    assert [finding.facts for finding in again.findings] == [finding.facts for finding in report.findings]
    assert again.trace.events == report.trace.events
    assert archive.dumps(again) == archive.dumps(report)
    for format in ("text", "json", "svg", "tree"):
        assert render(again, format) == render(report, format)


def test_a_report_is_loaded_from_the_file_it_was_saved_in(tmp_path: Path) -> None:
    two_losses().save(tmp_path / "run.trace")
    assert str(graphscope.load(tmp_path / "run.trace")) == str(two_losses())


def test_a_field_that_a_file_lacks_takes_its_default_and_an_unknown_one_is_passed_over() -> None:
    top = json.loads(archive.dumps(planned()))
    trace = top["fields"]["Trace"]
    values = top["report"]["Report"][top["fields"]["Report"].index("trace")]["Trace"]
    del values[trace.index("unseen")], trace[trace.index("unseen")]
    trace.append("of a later version")
    values.append(3)
    assert archive.loads(json.dumps(top)).trace.unseen == ()


def changed(path: str, value: Any) -> str:
    """A saved trace with something else in one field of its graph, its trace or its report."""
    top = json.loads(archive.dumps(two_losses()))
    kind, _, name = path.partition(".")
    found = top["report"]
    for inner, field in (("Report", "trace"), ("Trace", "graph"), ("Graph", None)):
        values = found[inner]
        if inner == kind:
            values[top["fields"][inner].index(name)] = value
            break
        found = values[top["fields"][inner].index(field)]
    return json.dumps(top)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "graphscope inspect -o run.trace"),
        ('{"schema_version": 1}', "a JSON report has no graph in it"),
        ('{"graphscope": "trace", "version": 99}', "its version is 99"),
        ('{"graphscope": "trace", "version": 1}', "its `fields` or its `report` is missing"),
        ('{"graphscope": "trace", "version": 1, "fields": {}, "report": 3}', "it holds no report"),
        (changed("Report.findings", {"os.system": ["rm"]}), "a 'os.system', which is nothing that a trace is made of"),
        (changed("Report.findings", {"Severity": "awful"}), "a Severity whose fields do not fit"),
        (changed("Report.findings", {"Location": [1]}), "a Location whose fields do not fit"),
        (changed("Report.findings", 3), "report.findings is of kind int"),
        (changed("Trace.script", ["a"]), "report.trace.script is of kind tuple"),
        (changed("Trace.events", [{"Location": ["a", 1, 1, "f"]}]), r"report.trace.events\[0\] is of kind Location"),
        (changed("Graph.ops", ["Add", 3]), r"report.trace.graph.ops\[1\] is of kind int"),
        (changed("Graph.ops", ["Add"]), "the columns of its graph differ in length"),
        (changed("Graph.leaf_tensors", {"map": [[99, 0]]}), "a leaf refers to number 99, and there are"),
        (changed("Graph.leaf_tensors", {"map": [[[], 0, 1]]}), "a map of what cannot be in one"),
        (changed("Graph.leaf_tensors", {"map": 1}), "a map that is no list"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.trace").write_text(text)
    with pytest.raises(GraphscopeError, match=said) as raised:
        graphscope.load(tmp_path / "bad.trace")
    assert "bad.trace is not a saved trace: " in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_graph_with_a_cycle_is_refused() -> None:
    report = planned()
    targets = [*report.trace.graph.targets]
    targets[0] = ((len(targets) - 1, 0),)
    graph = replace(report.trace.graph, targets=tuple(targets))
    with pytest.raises(GraphscopeError, match="cycle"):
        archive.loads(archive.dumps(Report(replace(report.trace, graph=graph))))


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(GraphscopeError, match=r"cannot read .*No such file"):
        graphscope.load(tmp_path / "none.trace")
    (tmp_path / "binary.trace").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GraphscopeError, match="not a text file"):
        graphscope.load(tmp_path / "binary.trace")


SCRAPS = st.sampled_from(
    [None, -1, 10**9, "", "x", [], [1], {}, {"map": []}, {"Location": ["a", 1, 1, "f"]}, True, 0.5]
)


@settings(max_examples=200, deadline=None, phases=(Phase.generate,), database=None)
@given(st.data())
def test_whatever_is_changed_in_a_file_it_is_read_or_refused(data: st.DataObject) -> None:
    top = json.loads(archive.dumps(two_losses()))
    thing: Any = top
    while True:
        keys = list(thing) if isinstance(thing, dict) else list(range(len(thing)))
        key = data.draw(st.sampled_from(keys))
        inner = thing[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.integers(0, 9)) == 0:
            break
        thing = inner
    thing[key] = data.draw(SCRAPS)
    with contextlib.suppress(GraphscopeError):
        assert isinstance(archive.loads(json.dumps(top)), Report)
