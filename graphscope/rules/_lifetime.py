"""How to speak of backward calls and the nodes they share: for the rules about freed and overwritten buffers."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from ..engine import Culprit, Verdict, simulate
from ..events import Backward, InPlaceWrite, OptimizerStep
from ..findings import Place, Role
from ..location import Location
from ..trace import Trace


def failures(trace: Trace, kind: str) -> list[Verdict]:
    """The calls that fail in this way: those that raised, those that are predicted to; once for each statement."""
    found: dict[Location, Verdict] = {}
    for verdict in simulate(trace):
        raised = verdict.event.error is not None or not verdict.event.ran
        if verdict.kind == kind and raised:
            found.setdefault(verdict.event.location, verdict)
    return list(found.values())


def call_text(event: Backward) -> str:
    """The call as the user wrote it, near enough: ``loss.backward()``."""
    names = ", ".join(root.name for root in event.roots)
    if not event.accumulates:
        return f"torch.autograd.grad({names}, ...)"
    return f"{names if _is_primary(names) else f'({names})'}.backward()"


def _is_primary(source: str) -> bool:
    """Whether a dot may follow this expression without parentheses around it."""
    try:
        parsed = ast.parse(source, mode="eval").body
    except SyntaxError:
        return True
    return isinstance(parsed, ast.Name | ast.Attribute | ast.Call | ast.Subscript)


def cause_text(trace: Trace, culprit: Culprit) -> str:
    """What a culprit is: the call, or the step, or the write."""
    match culprit.event:
        case Backward() as event:
            return call_text(event)
        case OptimizerStep(optimizer=optimizer):
            return f"{trace.optimizers[optimizer].name}.step()"
        case InPlaceWrite(op=op):
            return f"`{op}`"
        case _:
            return "a statement"


def made_at(trace: Trace, nodes: Iterable[int], besides: Iterable[Location]) -> list[Place]:
    """The statements that made these nodes, other than ``besides``; those nearest to the loss first."""
    places: dict[Location, Place] = {}
    known = set(besides)
    for id in sorted(nodes, key=lambda id: -trace.graph.sequences[id]):
        location = trace.graph.locations.get(id)
        if location is None or location in known or location in places:
            continue
        node = trace.graph.node(id)
        module = f" (in {node.module})" if node.module else ""
        places[location] = Place(location, Role.CAUSE, f"`{node.label}`{module} was made here")
    return list(places.values())


def joined_at(trace: Trace, event: Backward, culprits: Iterable[Culprit], besides: Iterable[Location]) -> list[Place]:
    """The statements that built on what the culprits had gone through: where a new graph was joined to the old one."""
    old = _behind(trace, *(culprit.event for culprit in culprits if isinstance(culprit.event, Backward)))
    known = set(besides)
    places: dict[Location, Place] = {}
    for id in sorted(_behind(trace, event) - old, reverse=True):
        location = trace.graph.locations.get(id)
        if location is None or location in known or location in places:
            continue
        if any(target in old and trace.graph.sequences[target] >= 0 for target, _ in trace.graph.targets[id]):
            label = f"`{trace.graph.node(id).label}` joins {call_text(event)} to that graph here"
            places[location] = Place(location, Role.CAUSE, label)
    return list(places.values())


def _behind(trace: Trace, *events: Backward) -> frozenset[int]:
    return trace.graph.reachable(root.node for event in events for root in event.roots if root.node is not None)
