"""``with graphscope.watch() as report``: a recorder around a block of the user's program."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ..errors import GraphscopeError
from ..report import Report
from ..trace import Outcome, Trace
from .recorder import Recorder


class Watching:
    """A report that is filled when its ``with`` block ends; until then it has none of a Report's attributes."""

    def __init__(self, analyze: Callable[[Trace], Report], *, arrays: bool = True) -> None:
        self._analyze = analyze
        self._recorder = Recorder(arrays=arrays)
        self._report: Report | None = None

    def __enter__(self) -> Watching:
        self._recorder.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        self._recorder.__exit__()
        exception = None if error is None else f"{kind.__name__}: {error}"
        frame = sys._getframe(1)
        self._report = self._analyze(
            self._recorder.trace(outcome=Outcome(exception=exception), namespace=dict(frame.f_globals | frame.f_locals))
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or self._report is None:
            raise GraphscopeError(
                "the report is filled when the block ends: read it after `with graphscope.watch() as report:`"
            )
        return getattr(self._report, name)

    def __str__(self) -> str:
        return str(self._report)
