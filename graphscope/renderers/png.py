"""The graph as a PNG picture."""

from __future__ import annotations

from ..report import Report
from . import dot
from ._engine import draw


def render(report: Report) -> bytes:
    """The report's graph as PNG, for screens of high resolution."""
    return draw(dot.render(report, dpi=144), "png")
