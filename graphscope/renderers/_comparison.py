"""What changed between two reports: nodes, parameters reached, saved bytes, findings; in words and as a picture."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from .._plain import dataclass
from ..findings import Finding
from ..graph import Graph, Root, TensorRef
from ..report import Report
from ..show import Show
from ._scopes import execution_order
from ._words import clean, count, shorten, size

_NAMED = 6  # parameters


@dataclass(frozen=True, slots=True)
class Side:
    """What one report says, over the first pass of each loss."""

    nodes: tuple[int, ...]
    bytes: int
    reached: Mapping[str, tuple[str, ...]]
    operators: Counter[str]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side; findings are the same where code, file, function and words are, whatever the lines."""

    names: tuple[str, str]
    reports: tuple[Report, Report]
    sides: tuple[Side, Side]
    fixed: tuple[Finding, ...]
    new: tuple[Finding, ...]
    still: tuple[Finding, ...]


def compare(before: Report, after: Report, names: tuple[str, str] = ("before", "after")) -> Comparison:
    """What changed from one report to another."""
    known, now = (Counter(map(_identity, report.findings)) for report in (before, after))
    return Comparison(
        names,
        (before, after),
        (_side(before), _side(after)),
        tuple(_beyond(before.findings, now)),
        tuple(_beyond(after.findings, known)),
        tuple(finding for finding in after.findings if _identity(finding) in known),
    )


def _identity(finding: Finding) -> tuple[object, ...]:
    where = finding.location
    return finding.code, where and where.file, where and where.function, re.sub(r"\d+", "#", finding.message)


def _beyond(findings: Iterable[Finding], others: Counter[tuple[object, ...]]) -> Iterable[Finding]:
    left = Counter(others)
    for finding in findings:
        if left[_identity(finding)]:
            left[_identity(finding)] -= 1
        else:
            yield finding


def _roots(graph: Graph) -> dict[str, Root]:
    """The first root of each name."""
    found: dict[str, Root] = {}
    for root in graph.roots:
        found.setdefault(root.name, root)
    return found


def _side(report: Report) -> Side:
    graph = report.trace.graph
    roots = _roots(graph)
    behind = {name: graph.reachable([root.node] if root.node is not None else []) for name, root in roots.items()}
    nodes = frozenset().union(*behind.values())
    saved = {(each.storage, each.offset, each.bytes) for id in nodes for each in graph.saved.get(id, ())}
    reached = {
        name: tuple(sorted(str(graph.tensor(graph.leaf_tensors[id])) for id in ids if id in graph.leaf_tensors))
        for name, ids in behind.items()
    }
    operators = Counter(graph.ops[id] for id in nodes if id not in graph.leaf_tensors)
    return Side(tuple(execution_order(graph, sorted(nodes))), sum(each[-1] for each in saved), reached, operators)


def text(found: Comparison) -> str:
    """The comparison in words."""
    before, after = found.sides
    rows = [["", *found.names, ""]]
    rows.append(["nodes", *_numbers(len(before.nodes), len(after.nodes))])
    rows.append(
        ["saved for backward", size(before.bytes), size(after.bytes), _changed(before.bytes, after.bytes, size)]
    )
    for loss in dict.fromkeys([*before.reached, *after.reached]):
        here, there = before.reached.get(loss), after.reached.get(loss)
        cells = ["no loss" if leaves is None else count(len(leaves), "leaf tensor") for leaves in (here, there)]
        rows.append([f"reached by {loss}", *cells, _told(Counter(there), Counter(here))])
    ends = [report.trace.outcome.exception or f"status {report.trace.outcome.status}" for report in found.reports]
    if ends[0] != ends[1]:
        rows.append(["ends with", *(shorten(end, 40) for end in ends), ""])
    rows.append(["findings", *_numbers(*(len(report.findings) for report in found.reports))])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    out = [
        "  ".join(clean(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    if words := _told(after.operators, before.operators):
        out += ["", f"operators: {words}"]
    for title, findings in (("fixed", found.fixed), ("new", found.new), ("still there", found.still)):
        if findings:
            out += ["", f"{title}:", *(f"  {_finding(finding)}" for finding in findings)]
    if not found.fixed and not found.new:
        out += ["", "no finding is fixed, and none is new"]
    return "\n".join(out) + "\n"


def _numbers(before: int, after: int) -> list[str]:
    return [f"{before:,}", f"{after:,}", _changed(before, after, "{:,}".format)]


def _changed(before: int, after: int, shown: object) -> str:
    assert callable(shown)
    return "" if before == after else f"{'+' if after > before else '-'}{shown(abs(after - before))}"


def _told(after: Mapping[str, int], before: Mapping[str, int]) -> str:
    """What there is more of, and less of."""
    words = []
    for sign, there, here in (("+", after, before), ("-", before, after)):
        names = [(name, number - here.get(name, 0)) for name, number in there.items() if number > here.get(name, 0)]
        told = [f"{clean(name)} x{more}" if more > 1 else clean(name) for name, more in sorted(names)]
        if told:
            rest = [f"and {len(told) - _NAMED} more"] if len(told) > _NAMED else []
            words.append(f"{sign} {', '.join(told[:_NAMED] + rest)}")
    return "; ".join(words)


def _finding(finding: Finding) -> str:
    where = f"{finding.location}: " if finding.location else ""
    return clean(f"{where}{finding.severity.value} {finding.code}: {finding.message}")


def merged(found: Comparison) -> tuple[Report, Show]:
    """Both graphs in one, for a picture, with what is only in the first and only in the second marked."""
    before, after = found.reports
    union = _Union(found.sides, (before.trace.graph, after.trace.graph))
    findings = tuple(
        replace(finding, nodes=tuple(union.of[1][id] for id in finding.nodes if id in union.of[1]), facts={})
        for finding in after.findings
    )
    numbers = f"{count(len(found.fixed), 'finding')} fixed, {len(found.new)} new"
    trace = replace(
        after.trace,
        graph=union.graph,
        events=(),
        calls=(),
        script=f"{found.names[0]} and {found.names[1]} ({numbers})",
    )
    return Report(trace, findings), Show(changes=union.changes)


class _Union:
    """The nodes of two graphs, those that stand for the same joined: of equal operator, module and leaf, in order."""

    def __init__(self, sides: tuple[Side, Side], graphs: tuple[Graph, Graph]) -> None:
        self._graphs = graphs
        self.of: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.changes: dict[int, str] = {}
        after = {key: id for id, key in _keys(graphs[1], sides[1].nodes).items()}
        self._whence: list[tuple[int, int]] = []
        for id in sides[1].nodes:
            self._add(1, id)
        for id, key in _keys(graphs[0], sides[0].nodes).items():
            if key in after:
                self.of[0][id] = self.of[1][after.pop(key)]
            else:
                self.changes[self._add(0, id)] = "gone"
        self.changes |= {self.of[1][id]: "new" for id in after.values()}
        self.graph = self._joined()

    def _add(self, side: int, id: int) -> int:
        self.of[side][id] = number = len(self._whence)
        self._whence.append((side, id))
        return number

    def _joined(self) -> Graph:
        offset = len(self._graphs[1].tensors)
        targets = [self._targets(side, id) for side, id in self._whence]
        for id, number in self.of[0].items():  # from what both have to what is gone
            if self._whence[number][0]:
                gone = [(to, out) for to, out in self._targets(0, id) if to >= 0 and self._whence[to][0] == 0]
                targets[number] = (*targets[number], *gone)
        columns: dict[str, dict[int, object]] = {name: {} for name in ("saved", "locations", "modules", "custom")}
        leaves = {}
        rounded = frozenset(
            number for number, (side, id) in enumerate(self._whence) if id in self._graphs[side].rounded
        )
        for number, (side, id) in enumerate(self._whence):
            graph = self._graphs[side]
            for name, column in columns.items():
                values = getattr(graph, name)
                if id in values:
                    column[number] = values[id]
            if id in graph.leaf_tensors:
                leaves[number] = graph.leaf_tensors[id] + (0 if side else offset)
        pick = [(self._graphs[side], id) for side, id in self._whence]
        return Graph(
            ops=tuple(graph.ops[id] for graph, id in pick),
            sequences=tuple(graph.sequences[id] for graph, id in pick),
            outputs=tuple(graph.outputs[id] for graph, id in pick),
            targets=tuple(targets),
            leaf_tensors=leaves,
            rounded=rounded,
            roots=tuple(self._roots(offset)),
            tensors=(*self._graphs[1].tensors, *(_moved(each, offset) for each in self._graphs[0].tensors)),
            **columns,  # type: ignore[arg-type]
        )

    def _targets(self, side: int, id: int) -> tuple[tuple[int, int], ...]:
        """Where a node's gradient goes on; from what is gone only to what is gone, lest there be a ring."""
        found = []
        for target, output in self._graphs[side].targets[id]:
            number = self.of[side].get(target, -1)
            leads_back = side == 0 and number >= 0 and self._whence[number][0] == 1
            leaf = number >= 0 and target in self._graphs[side].leaf_tensors
            if not leads_back or self._whence[self.of[side][id]][0] == 1 or leaf:
                found.append((number, output))
        return tuple(found)

    def _roots(self, offset: int) -> Iterable[Root]:
        known, now = _roots(self._graphs[0]), _roots(self._graphs[1])
        for name, root in now.items():
            yield Root(name, None if root.node is None else self.of[1][root.node], root.tensor, root.output)
        for name, root in known.items():
            node = None if root.node is None else self.of[0][root.node]
            if name not in now or (node is not None and self.changes.get(node) == "gone"):
                yield Root(name, node, root.tensor + offset, root.output)


def _moved(tensor: TensorRef, offset: int) -> TensorRef:
    return replace(tensor, id=tensor.id + offset, node=None)


def _keys(graph: Graph, order: Iterable[int]) -> dict[int, tuple[object, ...]]:
    """What the same node of another graph has in common with each of these."""
    seen: Counter[tuple[object, ...]] = Counter()
    found: dict[int, tuple[object, ...]] = {}
    for id in order:
        leaf = str(graph.tensor(graph.leaf_tensors[id])) if id in graph.leaf_tensors else None
        key = (graph.ops[id], graph.modules.get(id), leaf)
        seen[key] += 1
        found[id] = (*key, seen[key])
    return found
