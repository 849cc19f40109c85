"""The graph as a PNG picture."""

from __future__ import annotations

from ..report import Report
from ..show import Show
from . import dot
from ._engine import draw
from ._picture import picture


def render(report: Report, show: Show | None = None) -> bytes:
    """The report's graph as PNG, for screens of high resolution."""
    return draw(dot.source(picture(report, show), dpi=144), "png")
