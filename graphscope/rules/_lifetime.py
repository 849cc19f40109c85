"""How to speak of backward calls and the nodes they share: for the rules about freed and overwritten buffers."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from weakref import WeakKeyDictionary

from ..engine import Culprit, Verdict, simulate
from ..events import Backward, InPlaceWrite, OptimizerStep
from ..findings import Place, Role
from ..location import Location
from ..trace import Trace
from ._source import keepers

_verdicts: WeakKeyDictionary[Trace, tuple[Verdict, ...]] = WeakKeyDictionary()


def verdicts(trace: Trace) -> tuple[Verdict, ...]:
    """What becomes of each call, simulated once for all the rules that ask."""
    if trace not in _verdicts:
        _verdicts[trace] = simulate(trace)
    return _verdicts[trace]


def failures(trace: Trace, kind: str) -> list[Verdict]:
    """The calls that fail in this way: those that raised, those that are predicted to; once for each statement."""
    found: dict[Location, Verdict] = {}
    for verdict in verdicts(trace):
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


def made_at(trace: Trace, event: Backward, nodes: Iterable[int], besides: Iterable[Location]) -> list[Place]:
    """The statements that made these nodes, other than ``besides``; those nearest to the loss first."""
    places: dict[Location, Place] = {}
    known = set(besides)
    for id in sorted(nodes, key=lambda id: -trace.graph.sequences[id]):
        node = trace.graph.node(id)
        module = f" (in {node.module})" if node.module else ""
        for location, role, label in _whence(trace, id, event, f"`{node.label}`{module} was made"):
            if location not in known:
                places.setdefault(location, Place(location, role, label))
    return list(places.values())


def _whence(trace: Trace, node: int, event: Backward, what: str) -> list[tuple[Location, Role, str]]:
    """Where a node was made: by which statement, and which one of the function that calls backward led there."""
    location = trace.graph.locations.get(node)
    if location is None:
        return []
    here = (event.location.file, event.location.function)
    callers = trace.graph.callers.get(node, ())
    outer = next((each for each in callers if (each.file, each.function) == here), callers[-1] if callers else None)
    if outer is None or (location.file, location.function) == here:
        return [(location, Role.CAUSE, f"{what} here")]
    return [(outer, Role.CAUSE, f"{what} in this call"), (location, Role.RELATED, f"{what} here")]


def joined_at(trace: Trace, event: Backward, culprits: Iterable[Culprit], besides: Iterable[Location]) -> list[Place]:
    """The statements that built on what the culprits had gone through: where a new graph was joined to the old one."""
    calls = [culprit.event for culprit in culprits if isinstance(culprit.event, Backward)]
    old = _behind(trace, *calls)
    new = _behind(trace, event)
    first = trace.graph.joints(new, old, since=max((call.time for call in calls), default=0))
    known = set(besides)
    places: dict[Location, Place] = {}
    for id in dict.fromkeys((*reversed(first), *reversed(trace.graph.joints(new, old, since=0)))):
        what = f"`{trace.graph.node(id).label}` joins {call_text(event)} to that graph"
        for location, role, label in _whence(trace, id, event, what):
            if location not in known:
                places.setdefault(location, Place(location, role, label))
    return list(places.values())


def kept_at(trace: Trace, made: Iterable[Place]) -> list[Place]:
    """The statements that put what was made at these places into an attribute which is read again later."""
    known = {place.location for place in made}
    places: dict[Location, Place] = {}
    for made_at in known:
        source = trace.sources.get(made_at.file, "")
        for attribute, line, end in keepers(source, made_at.line):
            location = Location(made_at.file, line, end, made_at.function)
            if location not in known:
                label = f"`{attribute}` keeps it from here on, with its history"
                places.setdefault(location, Place(location, Role.CAUSE, label))
    return sorted(places.values(), key=lambda place: (place.location.file, place.location.line))


def _behind(trace: Trace, *events: Backward) -> frozenset[int]:
    return trace.graph.reachable(root.node for event in events for root in event.roots if root.node is not None)
