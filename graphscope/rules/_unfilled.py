"""Why the grad of a leaf is None where it is read, and whether the program counts on that."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .._plain import dataclass
from ..events import Backward, GradRead, GradWrite, ZeroGrad
from ..findings import Fix, Place, Role
from ..location import Location
from ..trace import Trace
from ._lifetime import call_text
from ._parameters import cut_places, explaining_cuts
from ._source import parsed

_MEASURES = frozenset(("norm", "abs", "pow", "square", "mean", "std", "var", "max", "min", "sum", "item"))


@dataclass(frozen=True, slots=True)
class Reason:
    """Why it is None: ``kind`` is cleared, given, early, cut, returned or none."""

    kind: str
    text: str
    places: tuple[Place, ...]
    fix: Fix


def reason(trace: Trace, read: GradRead) -> Reason | None:
    """Why the grad of a leaf is None at this read; None where nothing that was seen tells."""
    if any(pause.time <= read.time for pause in trace.pauses):
        return None
    ran = [event for event in trace.backwards if event.error is None]
    filling = [event for event in ran if event.accumulates and read.tensor in trace.reached(event)]
    before = [event for event in filling if event.time < read.time]
    if before:
        return _cleared(trace, read, before[-1])
    earlier = [event for event in ran if event.time < read.time]
    given = next((event for event in earlier if read.tensor in event.vectors), None)
    if given is not None:
        return Reason(
            "given",
            f"it is only what {call_text(given)} was given as gradient=, and no gradient goes there",
            (Place(given.location, Role.CAUSE, "given as gradient= here"),),
            Fix("read the grad of what the output was computed from"),
        )
    if filling:
        first = filling[0]
        return Reason(
            "early",
            f"{call_text(first)}, which fills it, comes later",
            (Place(first.location, Role.RELATED, "it gets its gradient here"),),
            Fix(f"read it after {call_text(first)}", location=first.location),
        )
    if returned := next((e for e in earlier if not e.accumulates and read.tensor in trace.reached(e)), None):
        return Reason(
            "returned",
            "torch.autograd.grad returns the gradient, and fills no grad",
            (Place(returned.location, Role.CAUSE, "its gradient is returned here"),),
            Fix("use what torch.autograd.grad returned", location=returned.location),
        )
    if not any(event.accumulates for event in earlier):
        return Reason("none", "no backward has run by then", (), Fix("call backward() on the loss before it"))
    if found := cut_places(explaining_cuts(trace, (read.tensor,))):
        return Reason(
            "cut",
            "the way from it to the loss is cut, so no backward reaches it",
            tuple(found),
            Fix("compute the loss from this very tensor, not from a copy without its history"),
        )
    return None


def _cleared(trace: Trace, read: GradRead, backward: Backward) -> Reason | None:
    since = (event for event in trace.events if backward.time < event.time < read.time)
    zeros = (event for event in since if isinstance(event, ZeroGrad) and event.to_none)
    event = next((event for event in zeros if read.tensor in event.tensors), None)
    if event is None:
        return None
    by = "zero_grad()" if event.optimizer is None else f"{trace.optimizers[event.optimizer].name}.zero_grad()"
    return Reason(
        "cleared",
        f"{by} has cleared it since {call_text(backward)}",
        (
            Place(event.location, Role.CAUSE, "cleared here"),
            Place(backward.location, Role.RELATED, "it got its gradient here"),
        ),
        Fix("read it before the gradients are cleared", location=event.location),
    )


def is_meant(trace: Trace, reads: Sequence[GradRead], why: Reason) -> bool:
    """Whether the program may well expect None at these reads, which are all those of one statement."""
    tensors = {read.tensor for read in reads}
    for event in trace.events:
        if isinstance(event, GradRead) and event.present and event.tensor in tensors:
            return True
        if isinstance(event, GradWrite) and event.op == "grad =" and not tensors.isdisjoint(event.tensors):
            return True
    at = reads[0].location
    around = list(_around(parsed(trace.sources.get(at.file, "")), at))
    if any(isinstance(node, ast.Assert) for node in around):
        return True
    match why.kind:
        case "given" | "returned":
            return _asks_for_none(around)
        case "cut":
            return _asks_for_none(around) or any(trace.graph.tensor(id).is_parameter for id in tensors)
        case "cleared":
            return len({read.step for read in reads}) < 2 or (_asks_for_none(around) and not _measures(around))
        case _:
            return True


def _around(tree: ast.Module, at: Location) -> Iterator[ast.AST]:
    """The nodes that the first line of a location is in, the outer ones first."""
    yield tree
    for node in ast.walk(tree):
        first = getattr(node, "lineno", None)
        last = getattr(node, "end_lineno", None)
        if first is not None and last is not None and first <= at.line <= last:
            yield node


def _asks_for_none(around: list[ast.AST]) -> bool:
    """Whether something is compared with None in the function; in the whole file where it returns the grad."""
    scopes = [node for node in around if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)]
    returned = any(isinstance(node, ast.Return) for node in around)
    scope = scopes[0] if returned else scopes[-1]
    return any(
        isinstance(node, ast.Compare)
        and any(isinstance(each, ast.Constant) and each.value is None for each in node.comparators)
        for node in ast.walk(scope)
    )


def _measures(around: list[ast.AST]) -> bool:
    """Whether the innermost branch, loop or comprehension takes a number from a grad (``p.grad.norm()``).

    Not in a function that asserts or raises: it may check that nothing is there.
    """
    scope = [node for node in around if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef)][-1]
    kinds = ast.If | ast.For | ast.ListComp | ast.GeneratorExp
    inner = next((node for node in reversed(around) if isinstance(node, kinds)), None)
    if inner is None or any(isinstance(node, ast.Raise | ast.Assert) for node in ast.walk(scope)):
        return False
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in _MEASURES
        and any(isinstance(each, ast.Attribute) and each.attr == "grad" for each in ast.walk(node.value))
        for node in ast.walk(inner)
    )
