"""A failure inside graphscope is told in a line, and costs neither the program nor the rest of the report."""

from __future__ import annotations

import sys
from xml.etree import ElementTree

import pytest
import torch
from click.testing import CliRunner

import graphscope
from graphscope import cli, report
from graphscope.analyzer import analyze
from graphscope.cli import _inspect
from graphscope.rules.freed_graph import FreedGraph
from graphscope.trace import Trace

SCRIPT = (
    "import torch\n"
    "loss = torch.ones(2, requires_grad=True).exp().sum()\n"
    "loss.backward()\n"
    "try:\n    loss.backward()\nexcept RuntimeError:\n    print('refused')\n"
)


def broken(*_, **__):
    raise KeyError("ours")


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    monkeypatch.delenv("GRAPHSCOPE_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)


def inspected(*options: str):
    return CliRunner().invoke(cli.main, ["inspect", *options, "train.py"])


def test_a_rule_that_fails_costs_its_own_findings_only(monkeypatch):
    monkeypatch.setattr(FreedGraph, "check", broken)
    found = analyze(Trace())
    (unseen,) = found.trace.unseen
    assert unseen.startswith("what GS101 looks for: this rule failed with an internal error of graphscope: KeyError")
    assert "test_failures.py" in unseen and graphscope.__version__ in unseen


def test_a_rule_that_fails_is_raised_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(FreedGraph, "check", broken)
    monkeypatch.setenv("GRAPHSCOPE_DEBUG", "1")
    with pytest.raises(KeyError):
        analyze(Trace())


def test_a_format_that_fails_leaves_the_findings(monkeypatch):
    monkeypatch.setattr(_inspect, "rendered_as", broken)
    result = inspected("--format", "json")
    assert result.exit_code == 1 and "refused" in result.output
    assert "Error: the json report failed with an internal error of graphscope: KeyError" in result.output
    assert "train.py:5: GS101: " in result.output


def test_a_picture_that_fails_leaves_the_report(monkeypatch):
    monkeypatch.setattr(_inspect, "save", broken)
    result = inspected("--graph", "a.svg")
    assert result.exit_code == 1 and "1 error" in result.output
    assert "Error: drawing a.svg failed with an internal error of graphscope: KeyError" in result.output


def test_nothing_is_written_or_connected_that_was_not_asked_for(tmp_path):
    written = []

    def watch(event, arguments):
        if event == "socket.connect" or (event == "open" and isinstance(arguments[1], str) and arguments[1] != "r"):
            written.append((event, str(arguments[0])))

    sys.addaudithook(watch)  # for good: there is no way to remove one
    result = inspected("-o", "report.html", "--graph", "graph.svg")
    assert result.exit_code == 1, result.output
    names = {name for _, name in written if "__pycache__" not in name and name != "/dev/null" and not name.isdigit()}
    assert {name.removeprefix(f"{tmp_path}/") for name in names} == {"report.html", "graph.svg"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph.svg", "report.html", "train.py"]


NAMES = [
    "<script>alert(1)</script>",
    "a\x00\x1b[31mb\x07\r\n",
    '"]; c -> d //\\',
    "]]>&amp;<!--",
    "x" * 20_000,
    "\u202e",
]


@pytest.mark.parametrize("name", NAMES, ids=["markup", "control", "dot", "xml", "long", "unicode"])
def test_names_from_the_program_are_escaped_in_every_format(name):
    weight = torch.ones(2, requires_grad=True)
    module = torch.nn.Module()
    made = type(name.replace("\x00", "?"), (torch.nn.Linear,), {})(2, 1)
    module.add_module(name.replace(".", ""), made)
    loss = made(weight).sum() * 1
    found = graphscope.check(loss, torch.optim.SGD(module.parameters()))
    for form in ("text", "json", "html", "svg", "dot", "mmd", "graphml", "tree"):
        text = report.render(found, form)
        text.encode()
        assert form not in ("html", "svg", "graphml") or "<script>alert" not in text
        assert "\x1b[31m" not in text and "\x07" not in text
        if form in ("svg", "graphml"):
            ElementTree.fromstring(text)
