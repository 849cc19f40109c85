"""Saved traces: they come back as they were, and what is no trace is refused in words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, Phase, given, settings
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
        ("9" * 5000, "a number of 5000 digits"),
        ("[]", "graphscope inspect -o run.trace"),
        ('{"schema_version": 1}', "a JSON report has no graph in it"),
        ('{"graphscope": "trace", "version": 99}', "its version is 99"),
        (json.dumps({"graphscope": "trace", "version": "x" * 9999}), "its version is 'xxx"),
        ('{"graphscope": "trace", "version": 1}', "its `fields` or its `report` is missing"),
        ('{"graphscope": "trace", "version": 1, "fields": {}, "report": 3}', "it holds no report"),
        (changed("Report.findings", {"os.system": ["rm"]}), "a 'os.system', which is nothing that a trace is made of"),
        (changed("Report.findings", {"Severity": "awful"}), "a Severity whose fields do not fit"),
        (changed("Report.findings", {"Location": [1]}), "a Location whose fields do not fit"),
        (changed("Report.findings", 3), "report.findings is of kind int"),
        (changed("Trace.script", ["a"]), "report.trace.script is of kind tuple"),
        (changed("Trace.events", [{"Location": ["a", 1, 1, "f"]}]), r"report.trace.events\[0\] is of kind Location"),
        (changed("Graph.ops", ["Add", 3]), r"report.trace.graph.ops\[1\] is of kind int"),
        (changed("Graph.sequences", [1]), "the columns of its graph differ in length"),
        (
            changed("Graph.leaf_tensors", {"map": [[99, 0]]}),
            "a key of report.trace.graph.leaf_tensors refers to node 99, and there are 23",
        ),
        (changed("Graph.leaf_tensors", {"map": [[[], 0, 1]]}), "a map of what cannot be in one"),
        (changed("Graph.leaf_tensors", {"map": 1}), "a map that is no list"),
    ],
)
def test_what_is_no_trace_is_refused_in_words(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "bad.trace").write_text(text)
    with pytest.raises(GraphscopeError, match=said) as raised:
        graphscope.load(tmp_path / "bad.trace")
    assert "bad.trace is not a saved trace: " in str(raised.value)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 500


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


HOSTILE = "</script><script>alert(1)</script>\"'&]]>-->\x1b[31m\x00\u202e\ud800\r\n;{}\\"
SCRAPS = [
    None,
    -1,
    -2,
    10**9,
    10**40,
    "",
    [],
    [1],
    {},
    {"map": []},
    {"Location": ["a", {"map": []}, 1, "f"]},
    True,
    0.5,
]
SCRAPS += [float("nan"), HOSTILE, "long " * 10_000]
SAVED = [archive.dumps(made()) for made in (two_losses, planned, hostile, eventful)]


def spots(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON text: what holds it, and its key there."""
    for key in thing if isinstance(thing, dict) else range(len(thing)):
        yield thing, key
        if isinstance(thing[key], dict | list):
            yield from spots(thing[key])


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A saved trace with up to three values replaced, more often than not by one of the same type, or cut short."""
    text = draw(st.sampled_from(SAVED))
    top = json.loads(text)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(spots(top))))
        alike = [each for each in SCRAPS if type(each) is type(holder[key])]
        holder[key] = draw(st.sampled_from(alike if alike and draw(st.integers(0, 3)) else SCRAPS))
    text = json.dumps(top)
    return text if draw(st.integers(0, 9)) else text[: draw(st.integers(0, len(text)))]


@settings(max_examples=500, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck))
@given(mutated())
def test_a_mutated_trace_is_refused_in_words_or_drawn_escaped(text: str) -> None:
    try:
        report = archive.loads(text)
    except GraphscopeError as error:
        assert len(str(error)) < 500
        return
    for format in ("text", "json", "tree", "dot", "mmd", "graphml", "svg", "html"):
        drawn = render(report, format)
        assert isinstance(drawn, str)
        drawn.encode()
        if format in ("html", "svg", "graphml"):
            assert "<script>alert" not in drawn
        if format in ("text", "tree"):
            assert not {"\x1b", "\x00", "\u202e"} & set(drawn)
        if format in ("svg", "graphml"):
            ElementTree.fromstring(drawn)
