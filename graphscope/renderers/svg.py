"""The graph as SVG, with tooltips, a title and a description, and nothing fetched from elsewhere."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from ..report import Report
from . import dot
from ._engine import draw
from ._words import clean, count

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"


def render(report: Report) -> str:
    """The report's graph as SVG."""
    drawn = draw(dot.render(report), "svg").decode()
    root = ElementTree.fromstring(re.sub(r"<!DOCTYPE.*?>", "", drawn, count=1, flags=re.DOTALL))
    for group in root.iter(f"{{{_SVG}}}g"):
        _move_tooltip(group)
    _describe(root, report)
    ElementTree.register_namespace("", _SVG)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _move_tooltip(group: ElementTree.Element) -> None:
    """Graphviz writes a link without a target around what has a tooltip; browsers show the title instead."""
    title = group.find(f"{{{_SVG}}}title")
    if title is None:
        return
    links = [link for link in group.iter(f"{{{_SVG}}}a") if link.get(f"{{{_XLINK}}}title")]
    text = links[0].get(f"{{{_XLINK}}}title", "") if links else ""
    for child in group.findall(f"{{{_SVG}}}g"):
        for link in child.findall(f"{{{_SVG}}}a"):
            place = list(group).index(child)
            group[place : place + 1] = list(link)
    if text.strip():
        title.text = text
    else:
        group.remove(title)


def _describe(root: ElementTree.Element, report: Report) -> None:
    """Tell a screen reader what the picture is of and what was found."""
    title = ElementTree.Element(f"{{{_SVG}}}title", id="graphscope_title")
    title.text = f"Autograd graph of {clean(report.trace.script or 'a program')}"
    description = ElementTree.Element(f"{{{_SVG}}}desc", id="graphscope_desc")
    names = ", ".join(dict.fromkeys(clean(root.name) for root in report.trace.graph.roots))
    found = [f"{finding.code}: {clean(finding.message)}" for finding in report.findings]
    parts = [f"{count(len(report.trace.graph), 'node')} behind {names or 'no loss'}", *(found or ["no findings"])]
    description.text = ". ".join(part.rstrip(".") for part in parts) + "."
    root.set("role", "img")
    root.set("aria-labelledby", "graphscope_title graphscope_desc")
    root[:0] = [title, description]
