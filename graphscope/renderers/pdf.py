"""The graph as a PDF page."""

from __future__ import annotations

import re

from ..report import Report
from ..show import Show
from . import dot
from ._engine import draw
from ._picture import picture


def render(report: Report, show: Show | None = None) -> bytes:
    """The report's graph as PDF, without the date, so that equal reports give equal files."""
    drawn = draw(dot.source(picture(report, show)), "pdf")
    return re.sub(rb"(?<=/CreationDate \(D:)\d{14}", b"20000101000000", drawn)  # as long as before: offsets stay right
