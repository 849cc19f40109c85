"""The graph as a PDF page."""

from __future__ import annotations

from ..report import Report
from . import dot
from ._engine import draw


def render(report: Report) -> bytes:
    """The report's graph as PDF."""
    return draw(dot.render(report), "pdf")
