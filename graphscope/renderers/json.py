"""The report as JSON, for other programs; the schema is below.

``schema_version`` is raised when a key changes its meaning or goes away; new keys may come at any time.
A *location* is ``{file, line, end_line, function}``, with ``file`` relative to the working directory where
that is possible, or null where it is unknown. All keys are always there.

- ``schema_version``: 1
- ``tool``: ``{name, version}``
- ``script``: the file or module that was run, null for a check from within a program
- ``outcome``: ``{status, exception, location, interrupted}``; ``exception`` is the last line of the traceback or null
- ``losses``: ``[{name, shape, dtype, has_graph, nodes, leaves, passes}]``: the tensors that backward starts from, how
  many graph nodes lie behind each, and the names of the leaves it reaches; a loss of the same name at the same line
  is listed for its first pass only, ``passes`` saying how many there were
- ``optimizers``: ``[{name, kind, location, groups}]``, each group a list of parameter names
- ``events``: ``[{kind, time, step, location, thread, ...}]`` in order, ``kind`` being ``backward`` (``losses``,
  ``retain_graph``, ``create_graph``, ``limited``, ``accumulates``, ``error``, ``ran``), ``in_place_write`` (``op``,
  ``tensor``, ``before``, ``after``, ``hidden``), ``optimizer_step`` (``optimizer``, ``ran``), ``zero_grad``
  (``optimizer``, ``tensors``, ``to_none``), ``grad_write`` (``op``, ``tensors``, ``replaces``), ``scaler_call``
  (``op``, ``scaler``, ``optimizer``, ``skipped``, ``tensors``), ``non_finite`` (``optimizer``,
  ``tensors``, ``in_forward``, ``node``), ``grad_read`` (``tensor``, ``present``) or
  ``refused`` (``op``, ``tensors``, ``error``)
- ``findings``: ``[{code, name, severity, confidence, message, locations, fixes}]``; ``severity`` is ``error``,
  ``warning`` or ``note``, ``confidence`` is ``certain`` or ``likely``; each of ``locations`` has a location's keys,
  ``role`` (``cause``, ``failure``, ``related``) and ``label``, the first being where it is reported; each of ``fixes``
  is ``{title, changes_gradients, checked, works, verified, agrees, reason, bytes, until, location}``, ``until`` being
  the location of the call up to which it keeps the bytes
- ``suppressed``: the findings that a comment silenced, in the same form
- ``cleared``: ``[{code, message, location}]``: what looked like the fault of a rule and was judged right, and why
- ``steps``: ``{run, pauses}``: how many optimizer steps were made, and ``[{time, step, steps}]``: how many from which
  step on were not recorded, since they repeated the others, and the time of the next event
- ``cycles``: ``[{turns, regular, parts}]``, one for each training loop; ``regular`` turns look like ``parts``,
  ``[{times, marks}]`` in order, each up to a step; a mark is ``{kind, location, optimizer, times}``, its kind
  ``"backward"``, ``"zero"`` or ``"step"``, ``optimizer`` the name of the one that steps.
- ``reach``: ``[{turns, modules, losses, unused}]``, one for each run of turns of a training loop that are alike;
  ``modules`` is ``[{name, parameters}]``, ``losses`` is ``[{name, location, reached}]`` with one number of parameters
  for each module, ``unused`` names the trainable parameters of modules that take part which no loss of a turn reaches:
  DistributedDataParallel would call them unused
- ``memory``: what graphs keep for their backwards, in bytes, each storage once: ``{peak, nodes, kinds, by_line,
  by_module, by_loss, plans, saved, passes, levels, hooked}``. ``peak`` is ``{bytes, time, step, location}`` or null:
  when activations take the most, just before ``time``. ``kinds`` is what activations, data and parameters take then;
  ``by_line``, ``by_module`` and ``by_loss`` share out the activations, ``[{line|module|loss, bytes, storages}]``;
  ``saved`` has the largest storages, 100 at most, ``[{name, op, node, dtype, shape, bytes, kind, nodes, since, until,
  location, module}]``. ``nodes`` is ``{saving, all}`` of that step, ``plans`` what the step would take, by how its
  losses are backpropagated. ``passes`` has every backward, ``[{time, before, freed, released, retained, until}]``,
  ``levels`` the activations kept from a time on, ``[[time, bytes]]``. ``hooked`` counts saved tensors that hooks packed
  away, whose bytes are not known
- ``unseen``: what could not be examined, in words
"""

from __future__ import annotations

import json
from typing import Any, get_args

from .. import __version__
from ..cycles import Loop, Mark
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
from ..findings import Finding, Fix
from ..graph import Root
from ..location import Location
from ..memory import Held, Kind, Memory
from ..reach import Table
from ..report import Report
from ..trace import OptimizerRef, Trace

SCHEMA_VERSION = 1
_MOST_SAVED = 100


def render(report: Report) -> str:
    """The report as JSON text, strict and the same on every run."""
    text = json.dumps(_report(report), indent=2, ensure_ascii=False, allow_nan=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text) + "\n"


def _report(report: Report) -> dict[str, Any]:
    trace = report.trace
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "graphscope", "version": __version__},
        "script": trace.script,
        "outcome": {
            "status": trace.outcome.status,
            "exception": trace.outcome.exception,
            "location": _location(trace.outcome.location),
            "interrupted": trace.outcome.interrupted,
        },
        "losses": _losses(trace),
        "optimizers": [_optimizer(optimizer, trace) for optimizer in trace.optimizers],
        "events": [_event(event, trace) for event in trace.events],
        "findings": [_finding(finding) for finding in report.findings],
        "suppressed": [_finding(finding) for finding in report.suppressed],
        "cleared": [
            {"code": each.code, "message": each.message, "location": _located(each.location)} for each in report.cleared
        ],
        "steps": {
            "run": trace.steps_run,
            "pauses": [{"time": each.time, "step": each.step, "steps": each.steps} for each in trace.pauses],
        },
        "memory": _memory(report.memory),
        "cycles": [_cycle(loop, trace) for loop in report.cycles],
        "reach": [_table(table) for table in report.reach],
        "unseen": list(trace.unseen),
    }


def _cycle(loop: Loop, trace: Trace) -> dict[str, Any]:
    return {
        "turns": len(loop.turns),
        "regular": loop.regular,
        "parts": [{"times": often, "marks": [_mark(*each, trace) for each in part]} for part, often in loop.steady],
    }


def _mark(mark: Mark, times: int, trace: Trace) -> dict[str, Any]:
    name = None if mark.optimizer is None else trace.optimizers[mark.optimizer].name
    return {"kind": mark.kind, "location": _located(mark.location), "optimizer": name, "times": times}


def _table(table: Table) -> dict[str, Any]:
    return {
        "turns": table.turns,
        "modules": [{"name": name, "parameters": parameters} for name, parameters in table.modules],
        "losses": [
            {"name": row.loss, "location": _located(row.location), "reached": list(row.reached)} for row in table.rows
        ],
        "unused": list(table.unused),
    }


def _memory(memory: Memory) -> dict[str, Any]:
    peak = memory.peak
    saving, nodes = memory.nodes
    return {
        "peak": None
        if peak is None
        else {"bytes": peak.bytes, "time": peak.time, "step": peak.step, "location": _location(peak.location)},
        "nodes": {"saving": saving, "all": nodes},
        "kinds": {kind: memory.total(kind) for kind in get_args(Kind)},
        "by_line": [
            {"line": _location(each.what), "bytes": each.bytes, "storages": each.storages}
            for each in memory.lines
            if isinstance(each.what, Location)
        ],
        "by_module": [{"module": each.what, "bytes": each.bytes, "storages": each.storages} for each in memory.modules],
        "by_loss": [{"loss": each.what, "bytes": each.bytes, "storages": each.storages} for each in memory.losses],
        "plans": dict(memory.plans),
        "saved": [_held(each, memory.trace) for each in memory.largest[:_MOST_SAVED]],
        "passes": [
            {
                "time": each.event.time,
                "before": each.before,
                "freed": each.freed,
                "released": each.released,
                "retained": each.retained,
                "until": each.until,
            }
            for each in memory.passes
        ],
        "levels": [list(each) for each in memory.levels],
        "hooked": memory.hooked,
    }


def _held(held: Held, trace: Trace) -> dict[str, Any]:
    return {
        "name": held.name,
        "op": trace.graph.ops[held.node],
        "node": held.node,
        "dtype": held.dtype,
        "shape": list(held.shape),
        "bytes": held.bytes,
        "kind": held.kind,
        "nodes": held.nodes,
        "since": held.since,
        "until": held.until,
        "location": _location(trace.graph.locations.get(held.node)),
        "module": trace.graph.modules.get(held.node),
    }


def _losses(trace: Trace) -> list[dict[str, Any]]:
    """The losses, one for all passes of a loop."""
    where = {(root.name, root.node): call.location for call in trace.backwards for root in call.roots}
    passes: dict[tuple[str, object], list[Root]] = {}
    for position, root in enumerate(trace.graph.roots):
        passes.setdefault((root.name, where.get((root.name, root.node), position)), []).append(root)
    return [{**_loss(roots[0], trace), "passes": len(roots)} for roots in passes.values()]


def _loss(root: Root, trace: Trace) -> dict[str, Any]:
    tensor = trace.graph.tensor(root.tensor)
    behind = trace.graph.reachable((root.node,)) if root.node is not None else frozenset()
    leaves = sorted(trace.graph.leaf_tensors[id] for id in behind if id in trace.graph.leaf_tensors)
    return {
        "name": root.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype,
        "has_graph": root.node is not None,
        "nodes": len(behind),
        "leaves": _names(leaves, trace),
    }


def _optimizer(optimizer: OptimizerRef, trace: Trace) -> dict[str, Any]:
    return {
        "name": optimizer.name,
        "kind": optimizer.kind,
        "location": _location(optimizer.location),
        "groups": [_names(group, trace) for group in optimizer.groups],
    }


def _event(event: Event, trace: Trace) -> dict[str, Any]:
    where = {
        "time": event.time,
        "step": event.step,
        "location": _location(event.location),
        "thread": event.thread,
    }
    details = _details(event, trace)
    return {"kind": details.pop("kind"), **where, **details}


def _details(event: Event, trace: Trace) -> dict[str, Any]:
    match event:
        case Backward():
            return {
                "kind": "backward",
                "losses": [root.name for root in event.roots],
                "retain_graph": event.retain_graph,
                "create_graph": event.create_graph,
                "limited": event.inputs is not None,
                "accumulates": event.accumulates,
                "error": event.error,
                "ran": event.ran,
            }
        case InPlaceWrite(write=write):
            return {
                "kind": "in_place_write",
                "op": event.op,
                "tensor": _name(write.tensor, trace),
                "before": write.before,
                "after": write.after,
                "hidden": write.hidden,
            }
        case OptimizerStep():
            return {"kind": "optimizer_step", "optimizer": trace.optimizers[event.optimizer].name, "ran": event.ran}
        case ZeroGrad():
            owner = None if event.optimizer is None else trace.optimizers[event.optimizer].name
            names = _names(event.tensors, trace)
            return {"kind": "zero_grad", "optimizer": owner, "tensors": names, "to_none": event.to_none}
        case GradWrite():
            names = _names(event.tensors, trace)
            return {"kind": "grad_write", "op": event.op, "tensors": names, "replaces": event.replaces}
        case ScalerCall():
            owner = None if event.optimizer is None else trace.optimizers[event.optimizer].name
            call = {"op": event.op, "scaler": event.scaler, "optimizer": owner, "skipped": event.skipped}
            return {"kind": "scaler_call", **call, "tensors": _names(event.tensors, trace)}
        case ScheduleStep():
            owner = trace.optimizers[event.optimizer].name
            return {"kind": "schedule_step", "scheduler": event.kind, "optimizer": owner, "early": event.early}
        case NonFinite():
            bad = {"tensors": _names(event.tensors, trace), "in_forward": event.in_forward, "node": event.node}
            return {"kind": "non_finite", "optimizer": trace.optimizers[event.optimizer].name, **bad}
        case GradRead():
            return {"kind": "grad_read", "tensor": _name(event.tensor, trace), "present": event.present}
        case RequiresGradSet():
            return {"kind": "requires_grad_set", "value": event.value, "tensors": _names(event.tensors, trace)}
        case BackwardWrite():
            return {"kind": "backward_write", "op": event.op, "function": event.function, "is_grad": event.is_grad}
        case BackwardCut():
            where = {"function": trace.graph.ops[event.node], "tensor": _name(event.tensor, trace)}
            return {"kind": "backward_cut", "op": event.op, **where, "source": event.source}
        case OutOfSight():
            did = {"attribute": event.attribute, "is_result": event.is_result, "outlives": event.outlives}
            return {
                "kind": "out_of_sight",
                "function": event.function,
                "tensor": _name(event.tensor, trace),
                **did,
            }
        case Refused():
            names = _names(event.tensors, trace)
            return {"kind": "refused", "op": event.op, "tensors": names, "error": event.error}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "severity": finding.severity.value,
        "confidence": finding.confidence.value,
        "message": finding.message,
        "locations": [
            {**_located(place.location), "role": place.role.value, "label": place.label} for place in finding.places
        ],
        "fixes": [_fix(fix) for fix in finding.fixes],
    }


def _fix(fix: Fix) -> dict[str, Any]:
    return {
        "title": fix.title,
        "changes_gradients": fix.changes_gradients,
        "checked": fix.checked,
        "works": fix.works,
        "verified": fix.verified,
        "agrees": fix.agrees,
        "reason": fix.reason,
        "bytes": fix.bytes,
        "until": _location(fix.until),
        "location": _location(fix.location),
    }


def _location(location: Location | None) -> dict[str, Any] | None:
    return None if location is None else _located(location)


def _located(location: Location) -> dict[str, Any]:
    return {
        "file": location.file,
        "line": location.line,
        "end_line": location.end_line,
        "function": location.function,
    }


def _names(tensors: tuple[int, ...] | list[int], trace: Trace) -> list[str]:
    return [_name(id, trace) for id in tensors]


def _name(tensor: int, trace: Trace) -> str:
    return str(trace.graph.tensor(tensor))
