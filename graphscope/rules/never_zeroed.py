"""GS301: a step uses gradients that an earlier step has used already."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..events import Backward, GradRead, GradWrite, InPlaceWrite, Write, ZeroGrad
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text
from ._parameters import listed
from ._steps import backwards_in, how_often, same_statement, severity_of, used_before, uses_of
from ._uncalled import uncalled


class NeverZeroed(Rule):
    """A step uses gradients that an earlier step has used already, as nothing zeroed them between the two.

    Backward adds to ``grad``. Accumulating over several backwards before one step is fine; but once a step has used
    them, gradients that are not zeroed go into the next step again. An error where it happens at half of the steps
    after the first or more, a warning where it comes again, a note where it happened once.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                loss = net(torch.ones(2, 4)).sum()
                loss.backward()  # GS301
                opt.step()

    Bad: an update by hand::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            for _ in range(4):
                net(torch.ones(2, 4)).sum().backward()  # GS301
                with torch.no_grad():
                    for p in net.parameters():
                        p -= 0.1 * p.grad

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                for _ in range(2):
                    (net(torch.ones(2, 4)).sum() / 2).backward()
                opt.step()
                opt.zero_grad()
    """

    code = "GS301"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """One finding for each optimizer whose steps use old gradients again: an error where most of them do."""
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if again := [(use, *mixed) for use in uses if (mixed := _mixed(use))]:
                yield self._finding(optimizer, len(uses), again, uncalled(trace, "zero_grad"))
        yield from self._by_hand(trace)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """Backwards that add up on purpose: all are used at once, and zeroed before the next one."""
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if any(_mixed(use) for use in uses):
                continue
            for use in uses:
                for holding, _ in use.parts:
                    backwards = backwards_in(holding)
                    if len(backwards) > 1 and same_statement(backwards) and use.step.start > backwards[-1].time:
                        yield self.clear(
                            f"{call_text(backwards[0])} runs {len(backwards)} times without zero_grad() in between, "
                            f"which is right: `{optimizer.name}` uses the sum once, and no step uses it again",
                            backwards[0].location,
                        )

    def _by_hand(self, trace: Trace) -> Iterator[Finding]:
        """An error for gradients that are used again where the program itself updates what no optimizer holds."""
        updates = _updates(trace)
        again = {id: mixed for id, (_, mixed) in updates.items() if mixed}
        if not again:
            return
        id, mixed = max(again.items(), key=lambda item: len(item[1]))
        steps = updates[id][0]
        if len(mixed) < 2 or 2 * len(mixed) < steps - 1:
            return
        backward, write = mixed[0]
        yield self.finding(
            f"{call_text(backward)} adds to gradients that an update has used already, {how_often(len(mixed), steps)}: "
            f"nothing zeroes the grad of {listed(trace, again)} after it",
            places=[
                Place(backward.location, Role.CAUSE, f"{call_text(backward)} adds to what is there"),
                Place(write.location, Role.FAILURE, "the update uses their sum here"),
            ],
            fixes=[Fix("set each p.grad to None before this backward", backward.location, changes_gradients=True)],
            count=len(mixed),
            steps=steps,
        )

    def _finding(
        self,
        optimizer: OptimizerRef,
        steps: int,
        again: list[tuple[Use, Backward, Backward]],
        uncalled: list[Place],
    ) -> Finding:
        use, old, new = again[0]
        name, often = optimizer.name, how_often(len(again), steps)
        zeroed_late = "nothing zeroes them in time" if steps - 1 > len(again) else "nothing zeroes them after a step"
        return self.finding(
            f"`{name}` uses old gradients again, {often}: {zeroed_late}, so {call_text(new)} adds to what "
            f"{'the one before' if new.location == old.location else call_text(old)} left",
            places=[
                Place(new.location, Role.CAUSE, f"{call_text(new)} adds to gradients that a step has used already"),
                *uncalled,
                Place(use.step.location, Role.FAILURE, f"`{name}` steps on their sum here"),
            ],
            fixes=[Fix(f"call {name}.zero_grad() before this backward", new.location, changes_gradients=True)],
            severity=severity_of(len(again), steps - 1),
            optimizer=name,
            count=len(again),
            steps=steps,
        )


def _mixed(use: Use) -> tuple[Backward, Backward] | None:
    """An old backward and a new one that both are in the gradients of one parameter."""
    for holding, _ in use.parts:
        fresh, old = backwards_in(holding), used_before(holding)
        if fresh and old is not None:
            return old, fresh[-1]
    return None


def _updates(trace: Trace) -> dict[int, tuple[int, list[tuple[Backward, InPlaceWrite]]]]:
    """For each leaf that the program itself updates by its grad: how often, and when that held an old gradient too."""
    held = {id for optimizer in trace.optimizers if optimizer.id in trace.stepped for id in optimizer.parameters}
    own = {id for id in trace.graph.leaf_tensors.values() if id not in held}
    leaves = {trace.graph.tensor(id).storage: id for id in own}
    fresh: dict[int, Backward] = {}
    used: set[int] = set()
    read: set[int] = set()
    found: dict[int, tuple[int, list[tuple[Backward, InPlaceWrite]]]] = {}
    for event in trace.events:
        match event:
            case Backward() if event.accumulates and event.error is None:
                fresh.update(dict.fromkeys(trace.reached(event) - held, event))
                read.clear()
            case GradRead() if event.tensor in fresh and event.present:
                read.add(event.tensor)
            case ZeroGrad() | GradWrite():
                for id in event.tensors:
                    fresh.pop(id, None)
                    used.discard(id)
            case InPlaceWrite() if (id := _leaf(event.write, own, leaves)) in read and id in fresh:
                count, mixed = found.get(id, (0, []))
                if id in used:
                    mixed.append((fresh[id], event))
                found[id] = (count + 1, mixed)
                del fresh[id]
                used.add(id)
            case _:
                pass
    return found


def _leaf(write: Write, own: Collection[int], by_storage: Mapping[int, int]) -> int:
    """The leaf that was written, also through an alias, or given another memory; -1 if it is none."""
    return write.tensor if write.tensor in own else by_storage.get(write.storage, -1)
