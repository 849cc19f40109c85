"""Findings as text, in the manner of a compiler: the message, the source lines that take part, what to type."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator

from ..findings import Confidence, Finding, Fix, Severity
from ..reach import Table
from ..report import Report
from ..trace import Trace
from ._cycles import told
from ._excerpt import COLORS, WIDTH, Paint, excerpt
from ._memory import tables
from ._words import clean, count, size

_MOST_COLUMNS, _MOST_UNUSED = 6, 8


def render(
    report: Report, *, color: bool = False, cleared: bool = False, memory: bool = False, reach: bool = False
) -> str:
    """The report as text; ``cleared`` adds what is right, ``memory`` what graphs keep, ``reach`` loops and tables."""
    paint = Paint(color)
    blocks = ["\n".join(_finding(finding, report.trace, paint)) for finding in report.findings]
    if table := list(_reached(report.trace)):
        blocks.append("\n".join(table))
    if cleared:
        blocks.append("\n".join(_cleared(report, paint)))
    if reach:
        blocks += ["\n".join(told(loop, report.trace, paint)) for loop in report.cycles]
        blocks += ["\n".join(_table(table, paint)) for table in report.reach]
    if memory:
        blocks += ["\n".join(table) for table in tables(report.memory, paint)]
    blocks.append("\n".join(_summary(report, paint)))
    return "\n\n".join(blocks) + "\n"


def _finding(finding: Finding, trace: Trace, paint: Paint) -> Iterator[str]:
    where = f"{clean(str(finding.location))}: " if finding.location else ""
    severity = finding.severity.value
    likely = " (likely)" if finding.confidence is Confidence.LIKELY else ""
    head = f"{where}{severity} {clean(finding.code)}{likely}: "
    first, *rest = _wrapped(head + clean(finding.message), "    ")
    yield (
        paint(where, "bold")
        + paint(first[len(where) : len(head)], COLORS[severity])
        + paint(first[len(head) :], "bold")
    )
    yield from (paint(line, "bold") for line in rest)
    yield from excerpt(finding, trace, paint)
    for fix in finding.fixes:
        yield from _fix(fix, paint)


def _fix(fix: Fix, paint: Paint) -> Iterator[str]:
    word = verdict(fix)
    at = f" ({clean(str(fix.location))})" if fix.location else ""
    because = f", because {clean(fix.reason)}" if not fix.works and fix.verified is None and fix.reason else ""
    facts = known(fix)
    text = f"  {word}: {clean(fix.title)}{at}{because}{f' [{facts}]' if facts else ''}"
    first, *rest = _wrapped(text, "       ")
    head = f"  {word}:"[: len(first)]
    yield "  " + paint(head[2:], "green" if fix.works else "yellow") + first[len(head) :]
    yield from rest


def verdict(fix: Fix) -> str:
    """``fix``, or ``not`` for a remedy that would not help; and what came of it where the program was run with it."""
    if fix.verified is None:
        return "fix" if fix.works else "not"
    return "fix (verified)" if fix.verified else f"fix (fails: {clean(fix.reason or 'it does not help')})"


def known(fix: Fix) -> str:
    """What is known about a fix, in a few words."""
    facts = []
    if fix.works and fix.changes_gradients is not None:
        facts.append("changes gradients" if fix.changes_gradients else "same gradients")
    if fix.bytes:
        facts.append(f"keeps {size(fix.bytes)}" + (f" until {clean(str(fix.until))}" if fix.until else ""))
    if fix.verified and fix.agrees is not None:
        facts.append(
            f"the first step's gradients {'equal those' if fix.agrees else 'differ from those'} of other fixes"
        )
    elif fix.works and fix.checked and fix.verified is None:
        facts.append("checked")
    return ", ".join(facts)


def _reached(trace: Trace) -> Iterator[str]:
    """For a check: which of each optimizer's parameters each loss reaches."""
    planned = [event for event in trace.backwards if not event.ran]
    if not planned or not trace.optimizers:
        return
    rows = [["parameters reached", *(clean(optimizer.name) for optimizer in trace.optimizers)]]
    for event in planned:
        reached = trace.reached(event)
        loss = "  " + clean(" + ".join(root.name for root in event.roots))
        rows.append([loss, *(_cell(trace, optimizer.parameters, reached) for optimizer in trace.optimizers)])
    yield from _aligned(rows)


def _aligned(rows: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _table(table: Table, paint: Paint) -> Iterator[str]:
    """Which loss reaches how many parameters of which module."""
    yield paint(f"parameters reached, in {count(table.turns, 'turn')} of the training loop:", "bold")
    shown = [at for at in range(len(table.modules)) if any(row.reached[at] for row in table.rows)]
    rows = [["", *(clean(table.modules[at][0]) for at in shown[:_MOST_COLUMNS])]]
    for row in table.rows:
        cells = (_share(row.reached[at], table.modules[at][1]) for at in shown[:_MOST_COLUMNS])
        rows.append([f"  {clean(row.loss)} ({clean(str(row.location))})", *cells])
    yield from _aligned(rows)
    if len(shown) > _MOST_COLUMNS:
        yield f"  and {count(len(shown) - _MOST_COLUMNS, 'module')} more: see --format json"
    if others := [name for at, (name, _) in enumerate(table.modules) if at not in shown]:
        yield from _wrapped(f"  reached by none: {clean(', '.join(others))}", "    ")
    if table.unused:
        names = ", ".join(table.unused[:_MOST_UNUSED])
        more = len(table.unused) - _MOST_UNUSED
        told = f"  unused in a turn, as DistributedDataParallel would say: {clean(names)}"
        yield from _wrapped(told + (f" and {more} more" if more > 0 else ""), "    ")


def _share(reached: int, parameters: int) -> str:
    return "-" if not reached else f"all {parameters}" if reached == parameters else f"{reached} of {parameters}"


def _cell(trace: Trace, parameters: tuple[int, ...], reached: frozenset[int]) -> str:
    there = [id for id in parameters if id in reached]
    if not there:
        return f"none of {len(parameters)}"
    if len(there) == len(parameters):
        return f"all {len(parameters)}"
    return f"{clean(str(trace.graph.tensor(there[0])))} ... {len(there)} of {len(parameters)}"


def _cleared(report: Report, paint: Paint) -> Iterator[str]:
    """What looked suspicious and was judged right, by line."""
    yield paint("looked suspicious and is right:" if report.cleared else "nothing looked suspicious", "bold")
    for each in report.cleared:
        where = f"  {clean(str(each.location))}: "
        first, *rest = _wrapped(f"{where}{clean(each.message)} ({clean(each.code)})", "      ")
        yield paint(where, "green") + first[len(where) :]
        yield from rest


def _summary(report: Report, paint: Paint) -> Iterator[str]:
    numbers = Counter(finding.severity for finding in report.findings)
    parts = [count(numbers[level], level.value) for level in sorted(Severity, key=lambda s: -s.rank) if numbers[level]]
    suppressed = f" ({len(report.suppressed)} suppressed)" if report.suppressed else ""
    yield paint((", ".join(parts) or "no findings") + suppressed, "bold")
    for unseen in report.trace.unseen:
        yield from _wrapped(f"not examined: {clean(unseen)}", "    ")


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
