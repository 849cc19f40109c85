"""Run the rules over a trace and put their findings in order."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from ._collector import paused_gc
from .errors import GraphscopeError, internal_error, is_debugged
from .findings import Cleared, Finding
from .location import Location
from .report import Report
from .rule import Rule, all_rules
from .trace import Trace

_IGNORE = re.compile(r"#\s*graphscope:\s*ignore(?:\[([^\]]*)\])?")


def analyze(trace: Trace, *, select: Collection[str] = (), ignore: Collection[str] = ()) -> Report:
    """The report on a trace: what the selected rules find, most severe first, then by place.

    ``select`` and ``ignore`` are codes or their beginnings (``GS2``); a code that no rule has raises GraphscopeError.
    """
    rules = [rule() for rule in _chosen(select, ignore)]
    found: list[Finding] = []
    cleared: list[Cleared] = []
    failed = []
    with paused_gc():
        for rule in rules:
            try:
                found += rule.check(trace)
                cleared += rule.cleared(trace)
            except Exception as error:  # the other rules' findings are not lost by it
                if is_debugged():
                    raise
                failed.append(f"what {rule.code} looks for: this rule failed with {internal_error(error)}")
    kept = [finding for finding in found if not _is_ignored(finding, trace)]
    return Report(
        replace(trace, unseen=(*trace.unseen, *failed)) if failed else trace,
        findings=tuple(sorted(kept, key=_order)),
        suppressed=tuple(sorted((f for f in found if f not in kept), key=_order)),
        cleared=tuple(_in_order(cleared, found)),
    )


def _in_order(cleared: Iterable[Cleared], found: Iterable[Finding]) -> Iterator[Cleared]:
    """What the rules judged right, by place: once for each line and code, and nothing that a finding points at."""
    told = {(finding.code, *_line(place.location)) for finding in found for place in finding.places}
    clear: dict[tuple[str, str, int], Cleared] = {}
    for each in cleared:
        clear.setdefault((each.code, *_line(each.location)), each)
    yield from sorted((clear[key] for key in clear if key not in told), key=lambda each: (each.location, each.code))


def _line(location: Location) -> tuple[str, int]:
    return location.file, location.line


def _chosen(select: Collection[str], ignore: Collection[str]) -> Iterable[type[Rule]]:
    rules = all_rules()
    for code in (*select, *ignore):
        if not code or not any(rule.code.startswith(code) for rule in rules):
            raise GraphscopeError(f"no rule has the code {code!r}: `graphscope rules` lists them")
    for rule in rules:
        chosen = not select or any(rule.code.startswith(code) for code in select)
        if chosen and not any(rule.code.startswith(code) for code in ignore):
            yield rule


def _is_ignored(finding: Finding, trace: Trace) -> bool:
    """Whether a comment ``# graphscope: ignore[CODE]`` stands on a line that the finding points at."""
    for place in finding.places:
        comment = _IGNORE.search(trace.source_line(place.location) or "")
        if comment and (comment[1] is None or finding.code in re.split(r"[,\s]+", comment[1])):
            return True
    return False


def _order(finding: Finding) -> tuple[object, ...]:
    location = finding.location
    where = (location.file, location.line) if location else ("", 0)
    return (-finding.severity.rank, *where, finding.code, finding.message)
