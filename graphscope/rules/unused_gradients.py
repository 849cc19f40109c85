"""GS307: a backward writes gradients that are zeroed before any step, or anything else, has used them."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterator
from typing import Literal

from ..events import Backward, GradRead, GradWrite, ScalerCall, ZeroGrad
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import ledger
from ..location import Location
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text
from ._source import place_of, trees
from ._steps import how_often, instead, lost
from ._uncalled import uncalled

_MANY = 4


class UnusedGradients(Rule):
    """A backward writes gradients that are zeroed before any step, or anything else, has used them.

    The work is lost. Usually ``step()`` is missing, or stands outside of the loop, or gradients are zeroed before every
    micro-batch of an accumulation, so that each step knows the last one only. Reading ``grad`` counts as a use, and so
    does a step that a GradScaler leaves out.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for i in range(8):
                opt.zero_grad()
                (net(torch.ones(2, 4)).sum() / 4).backward()  # GS307
                if i % 4 == 3:
                    opt.step()

    Bad: the first of each four is lost::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for i in range(16):
                (net(torch.ones(2, 4)).sum() / 4).backward()  # GS307
                if i % 4 == 3:
                    opt.step()
                if i % 4 == 0:
                    opt.zero_grad()

    Bad: nothing steps::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()  # GS307

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.ones(2, 4, requires_grad=True)
        with graphscope.watch() as report:
            for _ in range(3):
                net(x).sum().backward()
                attacked = (x + 0.1 * x.grad.sign()).detach()
                opt.zero_grad()
                net(attacked).pow(2).sum().backward()
                opt.step()
                opt.zero_grad()

    Good: the scaler finds its scale::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)
        with graphscope.watch() as report:
            for _ in range(8):
                opt.zero_grad()
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = net(torch.ones(2, 4)).mean()
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
    """

    code = "GS307"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each statement most of whose gradients are lost; an error where nothing steps at all."""
        others_unseen = len(trace.unseen) - bool(trace.pauses)
        if trace.outcome.exception is not None or others_unseen:
            return
        runs: dict[Location, list[tuple[Backward, ZeroGrad | None]]] = {}
        left: dict[Location, list[Backward]] = {}
        for event, fate in _fates(trace):
            if fate == "left":
                left.setdefault(event.location, []).append(event)
            else:
                runs.setdefault(event.location, []).append((event, fate))
        for location, events in left.items():
            if location not in runs and len(events) >= _MANY:
                yield from self._never(trace, events)
        missed = {found[0].time for use in ledger(trace).uses if (found := lost(use))}  # by a step that came too late
        told = {backward.location for optimizer in trace.optimizers for backward, _ in instead(trace, optimizer)}
        for location, fates in runs.items():
            if location in told:  # the step of another optimizer in its place is the fault
                continue
            gone = [(event, zero) for event, zero in fates if zero is not None]
            many = 2 * len(gone) >= len(fates) or _are_lost_each_time(trace, fates)
            if any(_is_for_another(trace, event) for event, _ in gone):  # whose parameters it should have reached
                continue
            if len(gone) > 1 and many and not any(event.time in missed for event, _ in gone):
                yield self._finding(trace, *gone[-1], len(gone), len(fates))

    def _never(self, trace: Trace, events: list[Backward]) -> Iterator[Finding]:
        """An error for gradients that pile up as the step that is written for them never runs."""
        event = events[-1]
        for optimizer in trace.optimizers:
            written = [*_written(trace, optimizer), *uncalled(trace, "step")]
            if optimizer.id not in trace.stepped and written and set(optimizer.parameters) & trace.reached(event):
                yield self.finding(
                    f"{call_text(event)} runs {len(events)} times, and no step uses its gradients: "
                    f"`{optimizer.name}` never steps",
                    places=[Place(event.location, Role.CAUSE, f"{call_text(event)} makes them here"), *written],
                    fixes=[Fix(f"see that {optimizer.name}.step() runs", written[0].location, changes_gradients=True)],
                    severity=Severity.ERROR,
                    optimizer=optimizer.name,
                    count=len(events),
                    runs=len(events),
                )

    def _finding(self, trace: Trace, event: Backward, zero: ZeroGrad, count: int, of: int) -> Finding:
        owner = next(o for o in trace.optimizers if set(o.parameters) & trace.reached(event))
        never = owner.id not in trace.stepped
        all_lost = f"`{owner.name}` never steps" if never else "no step comes between the two"
        title = (
            f"call {owner.name}.step() after this backward"
            if never or zero.location == event.location
            else f"zero the gradients after {owner.name}.step() only"
        )
        return self.finding(
            f"the gradients of {call_text(event)} are zeroed before anything has used them, "
            f"{how_often(count, of, 'run')}: {all_lost}",
            places=[
                Place(event.location, Role.CAUSE, f"{call_text(event)} makes them here"),
                Place(zero.location, Role.CAUSE, "zeroed here, unused"),
                *([*_written(trace, owner), *uncalled(trace, "step")] if never else ()),
            ],
            fixes=[Fix(title, event.location if never else zero.location, changes_gradients=True)],
            severity=Severity.ERROR if never else Severity.WARNING,
            optimizer=owner.name,
            count=count,
            runs=of,
        )


def _is_for_another(trace: Trace, event: Backward) -> bool:
    """Whether the step right after it is of an optimizer that no backward reaches: another rule tells why."""
    step = next((step for step in trace.steps if step.time > event.time), None)
    return step is not None and trace.ever_reached.isdisjoint(trace.optimizers[step.optimizer].parameters)


def _are_lost_each_time(trace: Trace, fates: list[tuple[Backward, ZeroGrad | None]]) -> bool:
    """Whether each step that used gradients of this statement came after a zeroing that lost some of its others."""
    steps = [step.time for step in trace.steps]
    turns: dict[int, set[bool]] = {}
    for event, zero in fates:
        turns.setdefault(bisect.bisect(steps, event.time), set()).add(zero is not None)
    mixed = [fate for fate in turns.values() if False in fate]
    return len(mixed) > 1 and all(len(fate) > 1 for fate in mixed)


def _written(trace: Trace, optimizer: OptimizerRef) -> list[Place]:
    """The calls of its step in the source, none of which ran."""
    wanted = f"{optimizer.name}.step"
    return [
        Place(place_of(file, node), Role.CAUSE, "this step never runs")
        for file, tree in trees(trace)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(wanted)
    ]


def _fates(trace: Trace) -> Iterator[tuple[Backward, ZeroGrad | Literal["left"] | None]]:
    """The backwards that write to an optimizer's parameters, each with the zeroing that it was lost to.

    None for one whose gradients were used, "left" for those that are there in the end; what a pause came after is
    left out.
    """
    holders = frozenset(id for optimizer in trace.optimizers for id in optimizer.parameters)
    used = {change.time for use in ledger(trace).uses for holding, _ in use.parts for change in holding.fresh}
    spans = iter([(step.start, step.time) for step in trace.steps if step.start < step.time - 1])
    span = next(spans, (-1, -1))
    waiting: dict[int, Backward] = {}
    pauses = [pause.time for pause in reversed(trace.pauses)]
    for event in trace.events:
        if pauses and event.time >= pauses[-1]:
            waiting.clear()
            pauses.pop()
        match event:
            case Backward() if event.accumulates and event.ran and event.error is None:
                while span[1] >= 0 and span[1] < event.time:
                    span = next(spans, (-1, -1))
                wanted = trace.reached(event) & holders
                if not wanted:
                    continue
                if event.time in used or span[0] <= event.time < span[1]:
                    yield event, None
                else:
                    waiting[event.time] = event
            case GradRead() if event.present:
                yield from ((each, None) for each in waiting.values())
                waiting.clear()
            case GradWrite() if not event.clips:
                yield from ((each, None) for each in waiting.values())
                waiting.clear()
            case ScalerCall() if event.op in ("unscale_", "step"):
                yield from ((each, None) for each in waiting.values())
                waiting.clear()
            case ZeroGrad():
                gone = frozenset(event.tensors)
                for time, each in list(waiting.items()):
                    if trace.reached(each) & holders <= gone:
                        yield waiting.pop(time), event
            case _:
                pass
    if not pauses:
        yield from ((each, "left") for each in waiting.values())
