"""All that the page shows, as compact tables: lists whose rows refer to each other by position.

The keys are read by ``report/data.js``. Every text is made fit to be shown; -1 stands for what is not known.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any, Generic, TypeVar

from .. import __version__
from ..engine import Engine
from ..events import (
    Backward,
    BackwardCut,
    BackwardWrite,
    Event,
    GradRead,
    GradWrite,
    InPlaceWrite,
    NonFinite,
    OptimizerStep,
    OutOfSight,
    Refused,
    RequiresGradSet,
    ScalerCall,
    ScheduleStep,
    ZeroGrad,
)
from ..findings import Confidence, Finding, Fix, Role
from ..flow import Following
from ..location import Location
from ..report import Report
from ..show import Show
from ..trace import Trace
from ._cuts import Severed, concerned, severed
from ._losses import losses
from ._scene import Scene
from ._tree import Box, tree
from ._words import clean, listed
from .text import known, verdict

Row = list[Any]
_FEW = 3  # tensors that are called by name
_T = TypeVar("_T", bound=Hashable)


class Table(Generic[_T]):
    """Distinct values, numbered in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.numbers: dict[_T, int] = {}

    def __call__(self, value: _T | None) -> int:
        """The value's number, -1 for None."""
        return -1 if value is None else self.numbers.setdefault(value, len(self.numbers))


def contents(report: Report) -> dict[str, Any]:
    """The tables of one report."""
    return _Contents(report).tables()


class _Contents:
    def __init__(self, report: Report) -> None:
        self.report = report
        self.trace = report.trace
        self.graph = report.trace.graph
        self.files: Table[str] = Table()
        self.places: Table[Location] = Table()
        self.metas: Table[tuple[str, str, str]] = Table()
        self.words: Table[str] = Table()
        held = {id for optimizer in self.trace.optimizers for id in optimizer.parameters}
        lost = sorted(held - set(self.graph.leaf_tensors.values()))
        self.lost = dict(enumerate(lost, len(self.graph)))  # parameters in no graph, drawn as leaves that nothing reads
        self.engine = Engine(self.graph, self.trace.events)
        verdicts = self.engine.run(self.trace.events)
        self.failing = {each.position for each in verdicts if each.event.error or not each.succeeds}
        self.times = [event.time for event in self.trace.events]

    def tables(self) -> dict[str, Any]:
        trace, scene = self.trace, Scene(self.report, Show())
        nodes = self.nodes(scene.modules)
        tables: dict[str, Any] = {
            "version": __version__,
            "script": clean(trace.script or ""),
            "outcome": clean(trace.outcome.exception or ""),
            "ran": any(event.ran for event in trace.events if isinstance(event, Backward | OptimizerStep)),
            "findings": [self.finding(finding) for finding in self.report.findings],
            "suppressed": [self.finding(finding) for finding in self.report.suppressed],
            "cleared": [[each.code, clean(each.message), self.places(each.location)] for each in self.report.cleared],
            "unseen": [clean(words) for words in trace.unseen],
            "optimizers": [
                [clean(optimizer.name), clean(optimizer.kind), self.places(optimizer.location)]
                for optimizer in trace.optimizers
            ],
            "classes": {clean(module.name): clean(module.kind) for module in trace.modules},
            "nodes": nodes,
            "scopes": self.scopes(nodes, scene.modules),
            "custom": sorted(self.graph.custom),
            "targets": [
                *([target for target, _ in targets if target >= 0] for targets in self.graph.targets),
                *([] for _ in self.lost),
            ],
            "saved": list(self.saved()),
            "kept": list(self.kept()),
            "leaves": list(self.leaves()),
            "losses": list(self.losses()),
            "severed": [self.severed(cut, scene) for cut in severed(scene)],
            "stops": list(self.stops()),
            "events": [self.event(event) for event in trace.events],
            "changes": [[sorted(change.freed), sorted(change.stale)] for change in self.engine.changes(trace.events)],
        }
        tables["places"] = [
            [self.files(place.file), place.line, place.end_line, clean(place.function)] for place in self.places.numbers
        ]
        tables["files"] = [[clean(file), _lines(trace.sources.get(file, ""))] for file in self.files.numbers]
        tables["metas"] = [list(meta) for meta in self.metas.numbers]
        tables["words"] = [clean(word) for word in self.words.numbers]
        return tables

    def nodes(self, modules: Mapping[int, str]) -> dict[str, list[int]]:
        """One column per property; ``made`` counts the events before a node was made."""
        graph, ids = self.graph, range(len(self.graph))
        metas = (self.meta(out[0].shape, out[0].dtype, out[0].device) if out else -1 for out in graph.outputs)
        columns = {
            "op": [self.words(op) for op in graph.ops],
            "place": [self.places(graph.locations.get(id)) for id in ids],
            "module": [self.words(modules.get(id)) for id in ids],
            "meta": list(metas),
            "made": [bisect_left(self.times, graph.times[id]) if id in graph.times else 0 for id in ids],
            "scope": [0] * len(graph),
        }
        return {name: column + [0] * len(self.lost) for name, column in columns.items()}

    def meta(self, shape: tuple[int, ...], dtype: str, device: str) -> int:
        return self.metas((str(shape), clean(dtype), clean(device)))

    def saved(self) -> Iterator[Row]:
        """Node, name, meta, bytes, version, and 1 for freed from the start or 2 for packed by hooks."""
        for node, tensors in self.graph.saved.items():
            for each in tensors:
                yield [
                    node,
                    self.words(each.name),
                    self.meta(each.shape, each.dtype, ""),
                    each.bytes,
                    -1 if each.version is None else each.version,
                    each.freed + 2 * each.hooked,
                ]

    def kept(self) -> Iterator[Row]:
        """Node, bytes, whether it is data, and how many events came before it was kept, and before it was let go of."""
        for held in self.report.memory.held:
            if held.kind != "parameter":
                since = bisect_left(self.times, held.since)
                until = len(self.times) + 1 if held.until is None else bisect_left(self.times, held.until)
                yield [held.node, held.bytes, int(held.kind == "data"), since, until]

    def leaves(self) -> Iterator[Row]:
        """Node, name, meta, whether it is meant to be trained, and the optimizers that hold it."""
        holders: dict[int, list[int]] = {}
        for optimizer in self.trace.optimizers:
            for id in optimizer.parameters:
                holders.setdefault(id, []).append(optimizer.id)
        for node, id in sorted({**self.graph.leaf_tensors, **self.lost}.items(), key=itemgetter(1)):
            tensor = self.graph.tensor(id)
            meta = self.meta(tensor.shape, tensor.dtype, tensor.device)
            held = sorted(set(holders.get(id, ())))
            yield [node, clean(tensor.name or "unnamed"), meta, int(tensor.is_parameter or bool(held)), held]

    def losses(self) -> Iterator[Row]:
        """Name, node, meta, place, what became of its backward, whether it fails, and its position among the events."""
        positions = {id(event): position for position, event in enumerate(self.trace.events)}
        for loss in losses(self.report)[0]:
            tensor = self.graph.tensor(loss.root.tensor)
            position = positions.get(id(loss.call), -1)
            if loss.call is not None:  # several calls may share a line; the engine knows which of them fails
                loss = replace(loss, failing=position in self.failing)
            yield [
                clean(loss.root.name),
                -1 if loss.root.node is None else loss.root.node,
                self.meta(tensor.shape, tensor.dtype, tensor.device),
                self.places(loss.location),
                loss.state or "",
                int(loss.failing),
                position,
            ]

    def severed(self, cut: Severed, scene: Scene) -> Row:
        """What cut a gradient, where, the node it would have gone on to, the losses concerned, and the findings."""
        findings = [self.report.findings.index(finding) for finding in cut.findings]
        place = self.places(cut.location)
        return [clean(cut.op), place, -1 if cut.node is None else cut.node, concerned(cut, scene), findings]

    def stops(self) -> Iterator[Row]:
        """Calls at which the gradient of a loss stops: function, place, the losses, and the leaves it is kept from."""
        leaves = {tensor: node for node, tensor in {**self.graph.leaf_tensors, **self.lost}.items()}
        following = Following(frozenset(leaves))
        for call in self.trace.calls:
            following.follow(call)
        behind: dict[int, list[int]] = {}
        for position, loss in enumerate(losses(self.report)[0]):
            for id in following.dead.get(loss.root.tensor, ()):
                behind.setdefault(id, []).append(position)
        for id, positions in sorted(behind.items()):
            cut = following.cut(id, reaches=True)
            nodes = sorted(leaves[tensor] for tensor in cut.from_tensors)
            yield [clean(cut.call.op), self.places(cut.call.location), positions, nodes]

    def event(self, event: Event) -> Row:
        """Kind, step, place, what happened in words, and torch's error."""
        kind, words, error = _told(event, self.trace)
        return [kind, event.step, self.places(event.location), clean(words), clean(error or "")]

    def finding(self, finding: Finding) -> dict[str, Any]:
        likely = finding.confidence is Confidence.LIKELY
        return {
            "code": finding.code,
            "name": finding.name,
            "severity": finding.severity.value,
            "likely": likely,
            "message": clean(finding.message),
            "places": [[self.places(place.location), place.role.value, clean(place.label)] for place in finding.places],
            "fixes": [self.fix(fix) for fix in finding.fixes],
            "nodes": sorted(finding.nodes),
            "event": self.failure(finding),
        }

    def fix(self, fix: Fix) -> Row:
        """What to type, where, whether it works, why not, and what else is known about it."""
        return [clean(fix.title), self.places(fix.location), verdict(fix), clean(fix.reason or ""), known(fix)]

    def failure(self, finding: Finding) -> int:
        """The position of the call that fails, or that runs with what should not be there, where nodes are named."""
        places = {place.location for place in finding.places if place.role is Role.FAILURE}
        calls = [
            position
            for position, event in enumerate(self.trace.events)
            if isinstance(event, Backward) and event.location in places and finding.nodes
        ]
        return next((position for position in calls if position in self.failing), calls[0] if calls else -1)

    def scopes(self, nodes: dict[str, list[int]], modules: Mapping[int, str]) -> list[Row]:
        """Parent, kind, name, path and call number of each scope; a node's scope goes into its column."""
        rows: list[Row] = []
        stack: list[tuple[Box, int]] = [(tree(self.graph, modules), -1)]
        while stack:
            box, parent = stack.pop()
            row = len(rows)
            rows.append([parent, box.kind, clean(box.name), clean(box.path), box.call])
            for child in reversed(box.children):
                if isinstance(child, Box):
                    stack.append((child, row))
                else:
                    nodes["scope"][child] = row
        return rows


def _told(event: Event, trace: Trace) -> tuple[str, str, str | None]:
    """An event's kind, what happened in words, and torch's error if it raised."""
    names = trace.graph.tensors
    match event:
        case Backward():
            losses = listed([root.name for root in event.roots])
            options = [name for name in ("retain_graph", "create_graph") if getattr(event, name)]
            inside = ", ".join(f"{name}=True" for name in options)
            call = f"{losses}.backward({inside})" if event.accumulates else f"autograd.grad({losses})"
            return "backward", call, event.error
        case InPlaceWrite(write=write):
            version = f"version {write.before} to {write.after}" if write.after > write.before else "not counted"
            return "write", f"{event.op} on {names[write.tensor]} ({version})", None
        case OptimizerStep():
            return "step", f"{trace.optimizers[event.optimizer].name}.step()", None
        case ZeroGrad():
            owner = "" if event.optimizer is None else f"{trace.optimizers[event.optimizer].name}."
            return "zero", f"{owner}zero_grad()", None
        case GradWrite():
            return "grad", f"{event.op} on the gradients of {_some([str(names[id]) for id in event.tensors])}", None
        case ScalerCall():
            what = "" if event.optimizer is None else trace.optimizers[event.optimizer].name
            return "scaler", f"GradScaler.{event.op}({what}){' skipped' if event.skipped else ''}", None
        case ScheduleStep():
            return "step", f"{event.kind} sets the rates of {trace.optimizers[event.optimizer].name}", None
        case NonFinite():
            what = _some([str(names[id]) for id in event.tensors])
            return "grad", f"the gradients of {what} are not finite", None
        case GradRead():
            return "read", f"{names[event.tensor]}.grad is read{'' if event.present else ': it is None'}", None
        case RequiresGradSet():
            what = _some([str(names[id]) for id in event.tensors])
            return "grad", f"requires_grad = {event.value} for {what}", None
        case BackwardWrite():
            return "write", f"{event.op} in the backward of {event.function}", None
        case BackwardCut():
            return "grad", f"{event.op} without a history in the backward of {trace.graph.ops[event.node]}", None
        case OutOfSight():
            did = "writes to an input" if event.attribute is None else f"keeps ctx.{event.attribute}"
            return "read", f"the forward of {event.function} {did}", None
        case Refused():
            return "refused", event.op, event.error


def _some(names: list[str]) -> str:
    return listed(names) if len(names) <= _FEW else f"{len(names)} tensors"


def _lines(source: str) -> list[str]:
    return [clean(line.expandtabs(4).rstrip()) for line in source.splitlines()]
