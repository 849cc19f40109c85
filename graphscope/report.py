"""The result of an analysis: the trace, and what the rules found in it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from ._collector import paused_gc
from ._plain import dataclass
from .discovery import higher, module, names
from .errors import GraphscopeError
from .findings import Cleared, Finding, Severity
from .graph import Graph
from .show import Show
from .trace import Trace

if TYPE_CHECKING:
    from .cycles import Loop
    from .memory import Memory
    from .reach import Table


@dataclass(frozen=True)
class Report:
    """Findings over one trace, ordered by severity, then by place.

    ``suppressed`` are the findings that a ``# graphscope: ignore`` comment silenced, ``cleared`` is what
    looked suspicious and was judged right.
    """

    trace: Trace
    findings: tuple[Finding, ...] = ()
    suppressed: tuple[Finding, ...] = ()
    cleared: tuple[Cleared, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing of severity error or warning was found."""
        return not self.at_least(Severity.WARNING)

    def at_least(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of this severity or above."""
        return tuple(finding for finding in self.findings if finding.severity.rank >= severity.rank)

    @cached_property
    def memory(self) -> Memory:
        """What the graphs keep for their backwards: by tensor, line, module, loss and over time."""
        found: Memory = higher("memory").memory(self.trace)
        return found

    @property
    def reach(self) -> tuple[Table, ...]:
        """Which loss reaches which parameters, for each time round a training loop."""
        found: tuple[Table, ...] = higher("reach").reach(self.trace)
        return found

    @property
    def cycles(self) -> tuple[Loop, ...]:
        """The training loops: which backwards, zeroings and steps make one time round, and how often they did."""
        found: tuple[Loop, ...] = higher("cycles").loops(self.trace)
        return found

    def save(self, path: str | Path, show: Show | None = None) -> None:
        """Write the report to a file, in the format that its suffix names (``.svg``, ``.png``, ``.json`` ...).

        ``show`` says which part of the graph a picture shows. Raises GraphscopeError for a suffix that no format
        has, and where the drawing fails.
        """
        save(self, path, show)

    def to_json(self) -> str:
        """The report as JSON text; the README documents the schema."""
        return str(render(self, "json"))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """How a notebook shows it: the findings, and a picture of the graph."""
        return notebook(self)

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_svg_(self) -> str | None:
        return self._repr_mimebundle_().get("image/svg+xml")

    def __str__(self) -> str:
        return str(render(self, "text"))


def render(report: Report, format: str, show: Show | None = None) -> str | bytes:
    """The report in one of the formats, by name; bytes for png and pdf. ``show`` is for pictures alone."""
    if format not in names("renderers"):
        raise GraphscopeError(f"unknown format {format!r}: choose one of {', '.join(names('renderers'))}")
    with paused_gc():
        renderer = module("renderers", format).render
        rendered: str | bytes = renderer(report) if show is None else renderer(report, show)
    return rendered


def is_picture(format: str) -> bool:
    """Whether a format shows the graph, so that it can show a part of it."""
    return "show" in signature(module("renderers", format).render).parameters


def save(report: Report, path: str | Path, show: Show | None = None) -> None:
    """Write a report to a file, in the format that its suffix names."""
    path = Path(path)
    format = {"txt": "text"}.get(path.suffix.lower().lstrip("."), path.suffix.lower().lstrip("."))
    if format not in names("renderers"):
        known = ", ".join(f".{name}" for name in names("renderers"))
        raise GraphscopeError(f"cannot tell a format from {path.name!r}: give a name that ends in one of {known}")
    try:
        if is_picture(format):
            show = replace(show or Show(), beside=str(path.absolute().parent))
        rendered = render(report, format, show)
    except GraphscopeError as error:
        if not str(error).startswith("cannot draw"):
            raise
        save(report, dot := path.with_suffix(".dot"), show)
        raise GraphscopeError(f"{error}; its DOT source is in {dot}, for another engine") from None
    _write(path, rendered.encode() if isinstance(rendered, str) else rendered)


def notebook(report: Report) -> dict[str, str]:
    """A report for a notebook's cell, by MIME type."""
    bundle: dict[str, str] = higher("renderers._cell").bundle(report)
    return bundle


def notebook_graph(graph: Graph) -> dict[str, str]:
    """A graph alone for a notebook's cell, by MIME type."""
    bundle: dict[str, str] = higher("renderers._cell").picture_bundle(Report(Trace(graph=graph)))
    return bundle


def save_graph(graph: Graph, path: Path) -> None:
    """Write a graph alone: its nodes and edges as JSON, or a picture of it."""
    if path.suffix.lower() == ".json":
        _write(path, graph.to_json().encode())
    else:
        save(Report(Trace(graph=graph)), path)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise GraphscopeError(f"cannot write {path}: {error.strerror or error}") from None
