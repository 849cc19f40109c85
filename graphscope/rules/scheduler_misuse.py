"""GS312: a learning rate scheduler steps too early, or sets the rates of an optimizer that is not in use."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from ..events import ScalerCall, ScheduleStep
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace


class SchedulerMisuse(Rule):
    """A learning rate scheduler steps before its optimizer, or sets the rates of one that is not in use.

    A scheduler sets the first rates when it is made, and the next ones at each ``step()``. Where that comes before
    the optimizer's, the first rates are never used, and each later one comes a step (or an epoch) early. And it knows
    the optimizer that it was made for: one that is made later, as after a layer was unfrozen, keeps its first rates.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        with graphscope.watch() as report:
            for epoch in range(2):
                schedule.step()  # GS312
                for batch in range(3):
                    opt.zero_grad()
                    net(torch.ones(2, 4)).sum().backward()
                    opt.step()

    Bad: the optimizer was made anew::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
            opt = torch.optim.Adam(net.parameters(), lr=0.1)
            for _ in range(3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
                schedule.step()  # GS312

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        with graphscope.watch() as report:
            for epoch in range(2):
                for batch in range(3):
                    opt.zero_grad()
                    net(torch.ones(2, 4)).sum().backward()
                    opt.step()
                schedule.step()

    Good: the schedule is taken up where an earlier run has left it::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        with graphscope.watch() as report:
            schedule.step()
            for epoch in range(1, 3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
                schedule.step()

    Good: a scaler leaves out the first step, as it finds a good scale::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**120)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(1e6 * net(torch.ones(2, 4)).sum()).backward()
                scaler.step(opt)
                scaler.update()
                schedule.step()

    Good: one optimizer wraps another, and has its groups::

        import torch, graphscope

        class Wrapper(torch.optim.Optimizer):
            def __init__(self, base):
                super().__init__(base.param_groups, {})
                self.base, self.param_groups = base, base.param_groups

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt = Wrapper(torch.optim.SGD(net.parameters(), lr=0.1))
            schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
            for _ in range(3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.base.step()
                schedule.step()
    """

    code = "GS312"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each statement that steps a scheduler so."""
        sites: dict[tuple[Location, int], list[ScheduleStep]] = {}
        for event in trace.events:
            if isinstance(event, ScheduleStep):
                sites.setdefault((event.location, event.optimizer), []).append(event)
        for steps in sites.values():
            yield from self._too_early(trace, steps)
            yield from self._of_another(trace, steps)

    def _too_early(self, trace: Trace, schedule: list[ScheduleStep]) -> Iterator[Finding]:
        first = schedule[0]
        own = [step for step in trace.steps if step.optimizer == first.optimizer]
        if not first.early or first.given or not own or own[0].start < first.time:
            return
        if not any(own[0].time < each.time for each in schedule):  # it takes up where an earlier run has left off
            return
        if any(isinstance(e, ScalerCall) and e.op == "step" and e.time < first.time for e in trace.events):
            return  # the scaler left out a step
        name = trace.optimizers[first.optimizer].name
        yield self.finding(
            f"the {first.kind} steps before `{name}` does: the rate that the schedule begins with is never used, and "
            "all later ones come too early",
            places=[
                Place(first.location, Role.CAUSE, f"sets the next rate before `{name}` has used the first"),
                Place(own[0].location, Role.RELATED, f"`{name}` steps here, after it"),
            ],
            fixes=[
                Fix(
                    f"move it behind the steps of `{name}`, to the end of its loop",
                    first.location,
                    changes_gradients=True,
                )
            ],
            kind="too-early",
            scheduler=first.kind,
            optimizer=name,
        )

    def _of_another(self, trace: Trace, schedule: list[ScheduleStep]) -> Iterator[Finding]:
        """Its optimizer steps no more, or never did, and one with the same parameters does."""
        own = trace.optimizers[schedule[0].optimizer]
        runs = [list(run) for _, run in groupby(schedule, key=lambda each: each.uses)]  # with no step in between
        *earlier, late = ({each.step: each for each in run} for run in runs)
        if len(late) < 2 or any(len(run) >= len(late) for run in earlier):
            return
        last = max((step.time for step in trace.steps if step.optimizer == own.id), default=-1)
        used = [
            step
            for step in trace.steps
            if step.time > last
            and step.optimizer != own.id
            and not set(own.parameters).isdisjoint(trace.optimizers[step.optimizer].parameters)
        ]
        if not used:
            return
        other = trace.optimizers[used[-1].optimizer]
        places = [Place(schedule[-1].location, Role.CAUSE, f"sets the rates of `{own.name}`")]
        if own.name == other.name:
            places[0] = Place(schedule[-1].location, Role.CAUSE, "sets the rates of the optimizer that it was made for")
        if other.location is not None:
            places.append(Place(other.location, Role.CAUSE, "the optimizer that steps is made here"))
        places.append(Place(used[-1].location, Role.RELATED, f"`{other.name}` steps here, its rate unchanged"))
        whose = f"`{own.name}`" if own.name != other.name else f"the {own.kind} that it was made for"
        what = f"`{other.name}`" if own.name != other.name else f"the {other.kind} made later"
        when = "never steps" if not schedule[-1].uses else "does not step any more"
        yield self.finding(
            f"the {schedule[-1].kind} sets the rates of {whose}, which {when}: {what} steps on the same parameters, "
            "and keeps its own rates",
            places=places,
            fixes=[
                Fix(
                    f"make the scheduler for `{other.name}`, after it: {schedule[-1].kind}({other.name}, ...)",
                    changes_gradients=True,
                )
            ],
            kind="of-another",
            scheduler=schedule[-1].kind,
            optimizer=own.name,
            stepped=other.name,
        )
