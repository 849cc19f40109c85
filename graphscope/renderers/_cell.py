"""A report in a notebook's cell: a picture as wide as the cell, with styles that touch nothing else on the page."""

from __future__ import annotations

import hashlib
import re
from html import escape

from ..errors import GraphscopeError
from ..report import Report
from . import svg, text
from ._words import count


def bundle(report: Report) -> dict[str, str]:
    """The findings as text, and the picture."""
    said = text.render(report)
    parts = picture_bundle(report)
    return {**parts, "text/plain": said, "text/html": f"{_preformatted(said)}{parts['text/html']}"}


def picture_bundle(report: Report) -> dict[str, str]:
    """The picture alone; words where nothing is drawn."""
    said = f"graph of {count(len(report.trace.graph), 'node')}"
    if not report.trace.graph.roots:
        return {"text/plain": said, "text/html": ""}
    try:
        drawn = svg.render(report)
    except GraphscopeError as error:
        return {"text/plain": said, "text/html": _preformatted(str(error))}
    return {"text/plain": said, "text/html": inline(drawn), "image/svg+xml": drawn}


def inline(drawn: str) -> str:
    """An SVG to stand in a page among others: its ids and styles are its own, its width is at most that of the page."""
    own = "g" + hashlib.sha256(drawn.encode()).hexdigest()[:8]
    style = re.search(r"<style>(.*?)</style>", drawn)
    rules = style[1] if style else ""
    scoped = re.sub(r"(^|[{}])(?=\.|text\{)", rf"\1.{own} ", rules)
    inner = drawn.replace(rules, scoped, 1)
    inner = re.sub(r'(<[^<>]*? )id="(\w+)"', rf'\1id="{own}_\2"', inner)
    inner = re.sub(r"url\(#(\w+)\)", rf"url(#{own}_\1)", inner)
    inner = inner.replace('aria-labelledby="graphscope_title graphscope_desc"', _labels(own), 1)
    return inner.replace("<svg ", f'<svg class="{own}" style="max-width:100%;height:auto" ', 1)


def _labels(own: str) -> str:
    return f'aria-labelledby="{own}_graphscope_title {own}_graphscope_desc"'


def _preformatted(said: str) -> str:
    return f'<pre style="white-space:pre-wrap">{escape(said)}</pre>'
