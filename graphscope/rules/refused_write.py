"""GS107: an in-place write that autograd refuses."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Refused
from ..findings import Action, Edit, Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace

_LEAF, _MANY, _OVERLAP = (
    "leaf Variable that requires grad",
    "is a view and",
    "single memory location",
)


class RefusedWrite(Rule):
    """An in-place write that autograd cannot record, so that torch refuses it on the spot.

    A leaf that requires grad would become the result of an operation, and its gradient would have nowhere to go ("a
    leaf Variable that requires grad is being used in an in-place operation"). One of several views that a function
    gave together (``chunk``, ``unbind``), a view made under ``no_grad``, or an expanded tensor, whose elements share
    memory, cannot be written either. An update by hand belongs under ``torch.no_grad()``; a computation is
    written out of place.

    Bad::

        import torch, graphscope

        w = torch.zeros(3, requires_grad=True)
        with graphscope.watch() as report:
            w.sum().backward()
            try:
                w -= 0.1 * w.grad  # GS107
            except RuntimeError:
                pass

    Bad, on one of several views::

        import torch, graphscope

        net = torch.nn.Linear(4, 4)
        with graphscope.watch() as report:
            left, right = net(torch.ones(2, 4)).chunk(2, dim=1)
            try:
                left *= 2  # GS107
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        w = torch.zeros(3, requires_grad=True)
        with graphscope.watch() as report:
            w.sum().backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
    """

    code = "GS107"
    severity = Severity.ERROR
    torch_messages = (_LEAF, "is a view and is being modified inplace", _OVERLAP)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that torch refused for one of these reasons."""
        seen = set()
        for event in trace.events:
            if isinstance(event, Refused) and event.location not in seen:
                kind = next((text for text in (_LEAF, _MANY, _OVERLAP) if text in event.error), None)
                if kind is not None:
                    seen.add(event.location)
                    yield self._finding(trace, event, kind)

    def _finding(self, trace: Trace, event: Refused, kind: str) -> Finding:
        tensors = [trace.graph.tensor(id) for id in event.tensors]
        written = next((t for t in tensors if t.is_leaf and t.requires_grad), None) if kind == _LEAF else None
        written = written or next(iter(tensors), None)
        name = f"`{written.name}`" if written is not None and written.name else "a tensor"
        message, advice = {
            _LEAF: (
                f"{name}, a leaf Variable that requires grad, is being used in an in-place operation: `{event.op}`",
                "write the out-of-place form, if the result is meant to be part of the computation",
            ),
            _MANY: (
                f"{name} is a view that cannot be written in place while gradients are recorded: `{event.op}`",
                "write the out-of-place form, or clone() the view first",
            ),
            _OVERLAP: (
                f"several elements of {name} share a single memory location (it was expanded), "
                f"so it cannot be written in place: `{event.op}`",
                "clone() it before the write, or write the out-of-place form",
            ),
        }[kind]
        places = [Place(event.location, Role.FAILURE, "torch refuses this write")]
        if kind != _LEAF and written is not None and written.made_at not in (None, event.location):
            assert written.made_at is not None
            places.append(Place(written.made_at, Role.CAUSE, "the view was made here"))
        fixes = [Fix(advice, location=event.location, edits=(Edit(Action.OUT_OF_PLACE, event.location),))]
        if kind == _LEAF:
            under = (Edit(Action.NO_GRAD, event.location),)
            fixes.insert(0, Fix("do the update under `with torch.no_grad():`", location=event.location, edits=under))
        return self.finding(message, places=places, fixes=fixes, tensor=written and written.name, op=event.op)
