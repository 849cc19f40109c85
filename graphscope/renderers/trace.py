"""The report with all of its trace, for ``graphscope render``, ``graphscope compare`` and ``graphscope.load``."""

from __future__ import annotations

from ..archive import dumps
from ..report import Report


def render(report: Report) -> str:
    """The report as JSON text that can be read back."""
    return dumps(report)
