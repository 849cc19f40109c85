"""How a report and a graph show themselves in a notebook, and ``make_dot``."""

from __future__ import annotations

import inspect
import re
from xml.etree import ElementTree

import graphviz
import torch
from reports import HOSTILE, hostile, two_losses

import graphscope
from graphscope.renderers import _engine

SVG = "{http://www.w3.org/2000/svg}"


def net_and_loss() -> tuple[torch.nn.Module, torch.Tensor]:
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    return net, net(torch.ones(2, 4)).mean()


def test_a_report_shows_its_findings_and_its_picture() -> None:
    shown = two_losses()._repr_mimebundle_()
    assert set(shown) == {"text/plain", "text/html", "image/svg+xml"}
    assert "GS101" in shown["text/plain"] and "<svg" in shown["text/html"] and "GS101" in shown["text/html"]
    assert two_losses()._repr_html_() == shown["text/html"]
    assert two_losses()._repr_svg_() == shown["image/svg+xml"]


def test_a_trace_shows_its_picture() -> None:
    graph = graphscope.trace(net_and_loss()[1])
    assert ElementTree.fromstring(str(graph._repr_svg_())).tag == f"{SVG}svg"
    assert graph._repr_mimebundle_()["text/plain"] == f"graph of {len(graph)} nodes"


def test_a_picture_in_a_page_is_as_wide_as_the_page_and_keeps_its_styles_to_itself() -> None:
    html = graphscope.trace(net_and_loss()[1])._repr_html_()
    root = ElementTree.fromstring(html)
    own = str(root.get("class"))
    assert root.get("style") == "max-width:100%;height:auto"
    rules = "".join(str(style.text) for style in root.iter(f"{SVG}style"))
    selectors = re.findall(r"([^{}]+)\{(?!\.)", rules)
    assert selectors and all(selector.startswith(f".{own} ") for selector in selectors)
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert ids and all(str(id).startswith(f"{own}_") for id in ids)
    assert set(re.findall(r"url\(#(\w+)\)", html)) <= set(ids)
    assert set(str(root.get("aria-labelledby")).split()) <= set(ids)


def test_two_pictures_in_a_page_share_no_id() -> None:
    first, second = (graphscope.trace(net_and_loss()[1] * factor)._repr_html_() for factor in (1, 2))
    assert not set(re.findall(r' id="(\w+)"', first)) & set(re.findall(r' id="(\w+)"', second))


def test_hostile_names_are_text_in_a_notebook() -> None:
    html = hostile()._repr_html_()
    assert "<b>" not in html
    assert HOSTILE not in html


def test_without_an_engine_a_notebook_shows_our_own_layout(monkeypatch) -> None:
    monkeypatch.setattr(_engine, "engines", list)
    assert "<svg" in two_losses()._repr_html_()


def test_a_graph_without_roots_is_told_in_words() -> None:
    assert graphscope.Graph()._repr_mimebundle_() == {"text/plain": "graph of 0 nodes", "text/html": ""}


def test_make_dot_takes_what_torchviz_takes() -> None:
    assert list(inspect.signature(graphscope.make_dot).parameters)[:5] == [
        "var",
        "params",
        "show_attrs",
        "show_saved",
        "max_attr_chars",
    ]
    net, loss = net_and_loss()
    drawn = graphscope.make_dot(loss, params=dict(net.named_parameters()))
    assert isinstance(drawn, graphviz.Digraph)
    assert "2.weight" in drawn.source and "Addmm" in drawn.source
    drawn.attr(rankdir="LR")
    assert "rankdir=LR" in drawn.source


def test_make_dot_names_what_the_caller_names() -> None:
    _, loss = net_and_loss()
    leaf = torch.ones(3, requires_grad=True)
    assert "my leaf" in graphscope.make_dot(leaf.sum(), params={"my leaf": leaf}).source
    assert "my leaf" not in graphscope.make_dot(loss).source


def test_make_dot_shows_attributes_and_saved_tensors() -> None:
    leaf = torch.ones(3, 5, requires_grad=True)
    loss = leaf.exp().sum(dim=1).mean()
    plain = graphscope.make_dot(loss).source
    assert "keepdim: False" not in plain
    assert "keepdim: False" in graphscope.make_dot(loss, show_attrs=True).source
    assert "keepdim: Fa<" in graphscope.make_dot(loss, show_attrs=True, max_attr_chars=2).source
    assert "saves result (3, 5) float32" in graphscope.make_dot(loss, show_saved=True).source


def test_make_dot_draws_several_losses_and_freed_graphs() -> None:
    leaf = torch.ones(3, requires_grad=True)
    hidden = leaf.exp()
    first, second = hidden.sum(), hidden.prod()
    first.backward()
    source = graphscope.make_dot((first, second), show_attrs=True, show_saved=True).source
    assert "first" in source and "second" in source and "freed" in source
