"""Which losses a picture shows: a loop's first pass, and every pass that a finding is about."""

from __future__ import annotations

from .._plain import dataclass
from ..events import Backward
from ..findings import Finding, Role, Severity
from ..graph import Root
from ..location import Location
from ..report import Report

MOST = 12
_SEARCHED = 200  # passes of a loop looked through for the nodes of findings


@dataclass(frozen=True, slots=True)
class Loss:
    """A root in the picture, with the backward call that starts there, if one is known."""

    root: Root
    call: Backward | None
    failing: bool

    @property
    def location(self) -> Location | None:
        """Where backward is called on it."""
        return self.call.location if self.call else None

    @property
    def state(self) -> str | None:
        """What became, or would become, of its backward, in words."""
        if self.call is None:
            return None
        word = "backward()" if self.call.accumulates else "grad()"
        if self.call.error or (self.failing and self.call.ran):
            return f"{word} raised"
        if self.failing:
            return f"{word} would raise"
        return f"{word} ran" if self.call.ran else None


def losses(report: Report) -> tuple[list[Loss], int]:
    """The losses to draw, in order, and how many there are in all."""
    calls = _calls(report)
    raising = {call.location for _, call in calls if call and call.error}
    blamed = [_failure(finding) for finding in report.findings if finding.severity is Severity.ERROR]
    places = {(place.file, place.line) for place in blamed if place}
    every = [Loss(root, call, call is not None and _fails(call, raising, places)) for root, call in calls]
    missing = {id for finding in report.findings for id in finding.nodes}
    kept: list[Loss] = []
    seen: set[tuple[str, Location | None]] = set()
    for loss in every[:_SEARCHED]:
        key = (loss.root.name, loss.location)
        first = (key not in seen or loss.location is None) and len(kept) < MOST
        raised = loss.call is not None and loss.call.error is not None and len(kept) < 2 * MOST
        reached = (
            report.trace.graph.reachable([loss.root.node]) & missing
            if missing and loss.root.node is not None
            else set()
        )
        if first or raised or reached:
            kept.append(loss)
            seen.add(key)
            missing -= reached
    return kept, len(every)


def _calls(report: Report) -> list[tuple[Root, Backward | None]]:
    """Each root once, with the call on it that failed, or the first one."""
    found: dict[tuple[str, int | None, int], tuple[Root, Backward | None]] = {}
    for call in report.trace.backwards:
        for root in call.roots:
            key = (root.name, root.node, root.output)
            if key not in found or call.error:
                found[key] = (root, call)
    for root in report.trace.graph.roots:
        found.setdefault((root.name, root.node, root.output), (root, None))
    return list(found.values())


def _failure(finding: Finding) -> Location | None:
    return next((place.location for place in finding.places if place.role is Role.FAILURE), None)


def _fails(call: Backward, raising: set[Location], places: set[tuple[str, int]]) -> bool:
    """Whether a finding says that this call fails; of many calls on one line, those that did are meant."""
    if call.error or not call.ran:
        return bool(call.error) or (call.location.file, call.location.line) in places
    return call.location not in raising and (call.location.file, call.location.line) in places
