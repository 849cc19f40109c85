"""GS306: gradients are clipped where it has no effect, or another one than meant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .._plain import dataclass
from ..events import Backward, GradWrite, OptimizerStep, Refused, ScalerCall
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import Holding, Parts, ledger
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text
from ._parameters import listed
from ._source import parsed
from ._steps import backwards_in, how_often, scaled_backwards


class MisplacedClip(Rule):
    """Gradients are clipped where it has no effect, or another one than meant.

    Clipping belongs between the last ``backward()`` and the step, on the parameters that are stepped, after
    ``scaler.unscale_``. After the step it changes what is thrown away; before unscaling it compares gradients that are
    some thousand times too large with the limit; after every micro-batch it shrinks the sum so far again and again, so
    that later batches count more.

    Bad: after the step::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # GS306

    Bad: before the backward::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                loss = net(torch.ones(2, 4)).sum()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # GS306
                loss.backward()
                opt.step()

    Bad: before the gradients are unscaled::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(net(torch.ones(2, 4)).sum()).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # GS306
                scaler.step(opt)
                scaler.update()

    Bad: after every micro-batch::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for i in range(6):
                (net(torch.ones(2, 4)).sum() / 2).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)  # GS306
                if i % 2:
                    opt.step()
                    opt.zero_grad()

    Bad: the gradients of another network::

        import torch, graphscope

        one, two = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(one.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                one(torch.ones(2, 4)).sum().backward()
                torch.nn.utils.clip_grad_norm_(two.parameters(), 1.0)  # GS306
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with graphscope.watch() as report:
            for i in range(6):
                scaler.scale(net(torch.ones(2, 4)).sum() / 2).backward()
                if i % 2:
                    scaler.unscale_(opt)
                    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    scaler.step(opt)
                    scaler.update()
                    opt.zero_grad()

    Good: the bound is multiplied by the loss scale::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu")
        with graphscope.watch() as report:
            for _ in range(3):
                opt.zero_grad()
                scaler.scale(net(torch.ones(2, 4)).sum()).backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0 * scaler.get_scale())
                scaler.step(opt)
                scaler.update()
    """

    code = "GS306"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each statement that clips in the wrong place at half of its runs or more."""
        yield from self._refused(trace)
        clips: dict[Location, list[tuple[GradWrite, Parts]]] = {}
        for write, parts in ledger(trace).writes:
            if write.clips:
                clips.setdefault(write.location, []).append((write, parts))
        if not clips:
            return
        judge = _Judge(trace)
        for runs in clips.values():
            faults = [fault for write, parts in runs if (fault := judge.fault(write, parts))]
            if faults and 2 * len(faults) >= len(runs):
                yield self._finding(faults, len(runs))

    def _refused(self, trace: Trace) -> Iterator[Finding]:
        for event in trace.events:
            if isinstance(event, Refused) and event.op == "clip_grad_value_" and "nested_tensorlist" in event.error:
                yield self.finding(
                    "`clip_grad_value_` finds no gradients: no backward has written any yet, or they were set to None",
                    places=[Place(event.location, Role.CAUSE, "there is nothing to clip here")],
                    fixes=[Fix("move it between the backward and the step", event.location, changes_gradients=True)],
                    kind="before-backward",
                )

    def _finding(self, faults: list[_Fault], of: int) -> Finding:
        fault = faults[-1]
        op = fault.clip.op.removeprefix("_foreach_")
        return self.finding(
            f"`{op}` {fault.what}, {how_often(len(faults), of, 'run')}",
            places=[Place(fault.clip.location, Role.CAUSE, "clipped here"), *fault.places],
            fixes=[Fix(fault.fix, fault.clip.location, changes_gradients=True)],
            kind=fault.kind,
            count=len(faults),
            runs=of,
        )


@dataclass(frozen=True, slots=True)
class _Fault:
    clip: GradWrite
    kind: str
    what: str
    fix: str
    places: tuple[Place, ...]


class _Judge:
    """Looks at one clip at a time: what it clips, and what comes before and after."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._scaled = scaled_backwards(trace)
        self._again = _later_backwards(trace)
        self._uses = {use.step.time: use for use in ledger(trace).uses}
        self._backward_before: dict[int, Backward | None] = {}
        self._step_after: dict[int, OptimizerStep | None] = {}
        last: Backward | None = None
        waiting: list[int] = []
        for event in trace.events:
            match event:
                case Backward() if event.accumulates:
                    last = event
                case GradWrite():
                    self._backward_before[event.time] = last
                    waiting.append(event.time)
                case OptimizerStep():
                    self._step_after.update(dict.fromkeys(waiting, event))
                    waiting.clear()
                case _:
                    pass

    def fault(self, clip: GradWrite, parts: Parts) -> _Fault | None:
        """What is wrong with a clip, None if nothing is."""
        fresh = [holding for holding, _ in parts if holding.fresh]
        if not fresh:
            return self._too_late(clip, parts) or self._before_backward(clip) or self._another(clip)
        return self._scaled_still(clip, fresh) or self._too_early(clip, fresh)

    def _too_late(self, clip: GradWrite, parts: Parts) -> _Fault | None:
        step = next((holding.used for holding, _ in parts if holding.used), None)
        backward = self._backward_before[clip.time]
        if step is None or (backward is not None and backward.time > step.time):
            return None
        name = self._trace.optimizers[step.optimizer].name
        place = Place(step.location, Role.RELATED, f"`{name}` has stepped on the unclipped gradients here")
        what = f"runs after `{name}` has stepped: it clips gradients that were used already, with no effect on the step"
        return _Fault(clip, "after-step", what, "move it before the step", (place,))

    def _before_backward(self, clip: GradWrite) -> _Fault | None:
        """It clips where nothing is yet; the backward comes after it, and the step uses what that made unclipped."""
        step, before = self._step_after.get(clip.time), self._backward_before[clip.time]
        use = None if step is None else self._uses.get(step.time)
        if step is None or use is None or not set(clip.tensors) & set(step.graded):
            return None
        made = [change for change in use.fresh if isinstance(change, Backward)]
        clipped = any(isinstance(change, GradWrite) for change in use.fresh)
        if not made or clipped or made[0].time < clip.time or (before is not None and before.time >= made[0].time):
            return None
        name, call = self._trace.optimizers[step.optimizer].name, call_text(made[0])
        places = (
            Place(made[0].location, Role.RELATED, f"{call} makes the gradients here"),
            Place(step.location, Role.FAILURE, f"`{name}` steps unclipped here"),
        )
        what = f"runs before {call}: there is nothing to clip yet, and `{name}` steps on unclipped gradients"
        return _Fault(clip, "before-backward", what, "move it between the backward and the step", places)

    def _another(self, clip: GradWrite) -> _Fault | None:
        step, backward = self._step_after.get(clip.time), self._backward_before[clip.time]
        if step is None or backward is None:
            return None
        optimizer = self._trace.optimizers[step.optimizer]
        reached = self._trace.reached(backward) & set(optimizer.parameters)
        if not reached or reached & set(clip.tensors):
            return None
        whose = f"gradients of {listed(self._trace, clip.tensors)}" if clip.tensors else "no gradients at all"
        what = (
            f"clips {whose}, which {call_text(backward)} has not written to; "
            f"`{optimizer.name}` then steps on unclipped ones"
        )
        places = (
            Place(backward.location, Role.RELATED, f"{call_text(backward)} made the gradients that are stepped on"),
            Place(step.location, Role.FAILURE, f"`{optimizer.name}` steps unclipped here"),
        )
        return _Fault(clip, "another", what, f"clip the parameters that `{optimizer.name}` holds", places)

    def _scaled_still(self, clip: GradWrite, fresh: list[Holding]) -> _Fault | None:
        step = self._step_after.get(clip.time)
        if _knows_scale(self._trace, clip):
            return None
        for holding in fresh:
            last = holding.fresh[-1]
            if step is not None and isinstance(last, Backward) and last.time in self._scaled:
                name = self._trace.optimizers[step.optimizer].name
                what = (
                    "clips gradients that are still multiplied by the loss scale: what is left of them after unscaling "
                    "is almost nothing"
                )
                places = (
                    Place(last.location, Role.RELATED, f"{call_text(last)} made scaled gradients here"),
                    Place(step.location, Role.FAILURE, "unscaled here, after clipping"),
                )
                return _Fault(clip, "before-unscale", what, f"call scaler.unscale_({name}) before clipping", places)
        return None

    def _too_early(self, clip: GradWrite, fresh: list[Holding]) -> _Fault | None:
        for holding in fresh:
            backward = next(iter(reversed(backwards_in(holding))), None)
            again = backward and self._again.get((clip.time, backward.location))
            if backward is not None and again:
                what = (
                    f"runs between the backwards that add up to one step: {call_text(backward)} adds to clipped "
                    "gradients, which are then clipped once more, so that later batches count more"
                )
                place = Place(backward.location, Role.RELATED, f"{call_text(backward)} adds to them again")
                return _Fault(clip, "between-backwards", what, "clip once, right before the step", (place,))
        return None


def _knows_scale(trace: Trace, clip: GradWrite) -> bool:
    """Whether the bound is written in terms of the loss scale: ``max_norm * scaler.get_scale()``, also by a name."""
    tree = parsed(trace.sources.get(clip.location.file, ""))
    named = {"get_scale"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and "get_scale" in _words(node.value):
            named |= {word for target in node.targets for word in _words(target)}
    return any(
        isinstance(node, ast.Call)
        and clip.location.line <= node.lineno <= clip.location.end_line
        and not named.isdisjoint(_words(node))
        for node in ast.walk(tree)
    )


def _words(node: ast.AST) -> set[str]:
    """The names and attributes in it."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _later_backwards(trace: Trace) -> dict[tuple[int, Location], bool]:
    """By time of a clip and statement: whether that backward wrote again before the step used what was clipped."""
    found: dict[tuple[int, Location], bool] = {}
    for use in ledger(trace).uses:
        for holding, _ in use.parts:
            clips: list[int] = []
            for change in holding.fresh:
                match change:
                    case GradWrite() if change.clips:
                        clips.append(change.time)
                    case Backward():
                        found.update({(time, change.location): True for time in clips})
                        clips.clear()
                    case ScalerCall() | GradWrite():
                        pass
    return found
