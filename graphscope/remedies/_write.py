"""Write to another tensor: the out-of-place form, or a clone made before."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from ..engine import Culprit
from ..events import Event, InPlaceWrite
from ..findings import Action, Edit, Fix
from ._case import Candidate, Case


def write_elsewhere(case: Case) -> Iterator[Candidate]:
    """Write to another tensor: the out-of-place form, or a clone made before."""
    writes = tuple(culprit for culprit in case.writers if isinstance(culprit.event, InPlaceWrite))
    if not writes or len(writes) < len(case.verdict.culprits):
        return
    removed = case.alike(writes)
    timeline = [each for each in case.timeline if each[0] not in removed]
    for culprit in writes[:1]:
        event = culprit.event
        assert isinstance(event, InPlaceWrite)
        for title, action in _other_forms(case, event):
            edits = [edit for each in writes for edit in _edits_of(case, each.event, action)]
            size = _size(case, culprit)
            fix = Fix(title, event.location, changes_gradients=False, bytes=size, edits=tuple(edits))
            yield Candidate(fix, timeline)


def _edits_of(case: Case, event: Event, action: Action | None) -> Iterator[Edit]:
    """What to change at a write."""
    if action is not None and isinstance(event, InPlaceWrite):
        tensors, number = case.trace.tensors, event.write.tensor
        name = _written_name(case, event) or (tensors[number].name if number < len(tensors) else None)
        yield from (replace(edit, name=name) for edit in case.edits(action, [event]))


def _written_name(case: Case, event: InPlaceWrite) -> str | None:
    """What the statement that writes calls the tensor: ``h`` for ``h += 1``, ``h[0] = 1`` and ``h.add_(1)``."""
    at = event.location
    try:
        tree = ast.parse(case.trace.sources.get(at.file, ""))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr) and (node.lineno, node.end_lineno) == (
            at.line,
            at.end_line,
        ):
            if isinstance(node, ast.Expr):
                written = node.value.func.value if _is_method(node.value, event.op) else None  # type: ignore[attr-defined]
            else:
                written = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(node, ast.Assign) and not isinstance(written, ast.Subscript):
                    written = None
            written = written.value if isinstance(written, ast.Subscript) else written
            return ast.unparse(written) if isinstance(written, ast.Name | ast.Attribute) else None
    return None


def _is_method(node: ast.expr, op: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == op


def _other_forms(case: Case, event: InPlaceWrite) -> Iterator[tuple[str, Action | None]]:
    """What to write instead, and the action that does it."""
    tensors = case.trace.tensors
    tensor = tensors[event.write.tensor] if event.write.tensor < len(tensors) else None
    name = _written_name(case, event) or (tensor and tensor.name) or "x"
    if tensor is not None and tensor.id in case.trace.graph.leaf_tensors.values():
        yield f"use {name}.clone() in the forward, so that the graph keeps the old values", None
        return
    saved_at = case.trace.graph.locations.get(-1 if case.verdict.node is None else case.verdict.node)
    if event.op == "__setitem__" and saved_at == event.location:  # a copy of the whole would be written just as well
        yield f"collect the values in a list, and torch.stack it, in place of writing into `{name}`", None
        return
    operator = _OPERATORS.get(event.op.strip("_").removeprefix("i"))
    if operator:
        yield f"write `{name} = {name} {operator} ...`, out of place", Action.OUT_OF_PLACE
    elif event.op.endswith("_") and not event.op.startswith("_"):
        yield f"write `{name} = {name}.{event.op.rstrip('_')}(...)`, out of place", Action.OUT_OF_PLACE
    elif not event.op.endswith("_"):  # a function's name
        yield "leave `inplace=True` out", Action.OUT_OF_PLACE
    yield f"write to a copy: `{name} = {name}.clone()` before it", Action.CLONE


_OPERATORS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "div": "/", "matmul": "@"}


def _size(case: Case, culprit: Culprit) -> int:
    """Bytes of the old values that the graph then keeps beside the new ones."""
    counters = {write.counter for write in culprit.writes}
    rows = (row for node in culprit.nodes for row in case.trace.graph.saved.get(node, ()) if row.counter in counters)
    return max((row.bytes for row in rows), default=0)
