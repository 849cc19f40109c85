"""GS310: a GradScaler scales gradients that it does not unscale, or the other way round."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ..events import Backward, GradWrite, OptimizerStep, Refused, ScalerCall
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text
from ._steps import how_often, scaled_backwards, uses_by_statement

_ADVICE = {
    "step() has already been called": "call scaler.update() once after the steps, in each iteration",
    "unscale_() has already been called": "call unscale_ once for each optimizer, and scaler.update() after the step",
    "unscale_() is being called after step()": "call unscale_ before the step, and scaler.update() after it",
    "_scale is None": "call backward on scaler.scale(loss), not on the loss itself",
    "No inf checks were recorded": "step only after a backward of a scaled loss that reaches this optimizer",
}


class ScalerMisuse(Rule):
    """A GradScaler scales gradients that it does not unscale, or unscales some that were not scaled.

    ``scaler.scale(loss).backward()`` makes gradients some thousand times too large; ``scaler.step(opt)`` divides them
    again, and leaves the step out where they overflowed. ``opt.step()`` in its place uses them as they are. The other
    way round, a loss that was not scaled gives gradients that are divided to nothing. And ``unscale_`` comes after
    the last backward: what a later one adds is scaled still.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(net(torch.ones(2, 4)).sum()).backward()
                opt.step()  # GS310

    Bad: one of two losses is not scaled::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(net(torch.ones(2, 4)).sum()).backward()
                net(torch.ones(3, 4)).pow(2).sum().backward()  # GS310
                scaler.step(opt)
                scaler.update()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(net(torch.ones(2, 4)).sum()).backward()
                scaler.scale(net(torch.ones(3, 4)).pow(2).sum()).backward()
                scaler.step(opt)
                scaler.update()
    """

    code = "GS310"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that mostly steps on wrongly scaled gradients, and for calls that are refused."""
        yield from self._refused(trace)
        if not any(isinstance(event, ScalerCall) for event in trace.events):
            return
        scaled = scaled_backwards(trace)
        spans = [(e.began, e.time) for e in trace.events if isinstance(e, ScalerCall) and e.op == "step"]
        by_scaler = {
            step.time
            for step in trace.steps
            if any(began <= step.start and step.time < time for began, time in _around(spans, step))
        }
        for uses in uses_by_statement(trace).values():
            wrong = [
                (use, *found) for use in uses if (found := _wrong(use, scaled, use.step.time in by_scaler)) is not None
            ]
            if wrong and 2 * len(wrong) >= len(uses):
                yield self._finding(trace, wrong, len(uses))

    def _finding(self, trace: Trace, wrong: list[tuple[Use, Backward, str]], of: int) -> Finding:
        use, backward, kind = wrong[-1]
        name, call = trace.optimizers[use.step.optimizer].name, call_text(backward)
        often = how_often(len(wrong), of)
        what, fix, at = {
            "scaled": (
                f"`{name}` steps on gradients that are still multiplied by the loss scale, {often}: {call} made them "
                "and nothing has unscaled them",
                f"scaler.step({name}) in place of {name}.step(), then scaler.update()",
                use.step.location,
            ),
            "not-scaled": (
                f"the scaler divides gradients by the loss scale that were never multiplied with it, {often}: "
                f"{call} was called on a loss that is not scaled",
                "call backward on scaler.scale(...) of this loss",
                backward.location,
            ),
            "after-unscale": (
                f"{call} adds scaled gradients to unscaled ones, {often}: unscale_ was called before it",
                "call unscale_ after the last backward, right before clipping and the step",
                backward.location,
            ),
        }[kind]
        return self.finding(
            what,
            places=[
                Place(at, Role.CAUSE, "here"),
                Place(backward.location, Role.CAUSE, f"{call} made the gradients here"),
                Place(use.step.location, Role.FAILURE, f"`{name}` steps on them here"),
            ],
            fixes=[Fix(fix, at, changes_gradients=True)],
            kind=kind,
            optimizer=name,
            count=len(wrong),
            steps=of,
        )

    def _refused(self, trace: Trace) -> Iterator[Finding]:
        for event in trace.events:
            advice = isinstance(event, Refused) and next(
                (a for text, a in _ADVICE.items() if text in event.error), None
            )
            if isinstance(event, Refused) and advice:
                yield self.finding(
                    f"the GradScaler refuses `{event.op}`: {event.error.partition(': ')[2]}",
                    places=[Place(event.location, Role.FAILURE, "refused here")],
                    fixes=[Fix(advice, event.location, changes_gradients=True)],
                    kind="refused",
                )


def _around(spans: list[tuple[int, int]], step: OptimizerStep) -> list[tuple[int, int]]:
    """The scaler's step that ends next after an optimizer's."""
    position = bisect_left(spans, step.time, key=lambda span: span[1])
    return spans[position : position + 1]


def _wrong(use: Use, scaled: frozenset[int], by_scaler: bool) -> tuple[Backward, str] | None:
    """The backward whose gradients are wrongly scaled when they are used, and in which way."""
    for holding, _ in use.parts:
        unscaled, pending = None, None
        for change in holding.fresh:
            match change:
                case ScalerCall():
                    unscaled, pending = change, None
                case GradWrite():
                    if not change.clips:
                        return None  # scaled or set by hand
                case Backward() if change.time in scaled:
                    if unscaled is not None:
                        return change, "after-unscale"
                    pending = change
                case Backward():
                    if by_scaler and unscaled is None:
                        return change, "not-scaled"
        if pending is not None and not by_scaler:
            return pending, "scaled"
    return None
