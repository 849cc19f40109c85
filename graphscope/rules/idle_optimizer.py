"""GS210: gradients are made for an optimizer that never steps, while another one steps instead."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, Call, OptimizerStep
from ..findings import Finding, Fix, Place, Role, Severity
from ..ledger import Use
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._lifetime import call_text
from ._steps import instead, uses_of


class IdleOptimizer(Rule):
    """An optimizer's gradients are zeroed and made anew, but it never steps; another one steps in its place.

    Usually a copied line: after the backward of one network's loss the other network's optimizer is stepped. The
    network behind the idle optimizer keeps its first weights. Or an optimizer steps on what another one's loss left in
    its parameters, and nothing else: its own loss was computed under ``no_grad``.

    Bad::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                opt_g.zero_grad()
                d(g(torch.ones(2, 4))).sum().backward()
                opt_g.step()
                opt_d.zero_grad()
                d(g(torch.ones(2, 4)).detach()).sum().backward()
                opt_g.step()  # GS210

    Bad (the gradients pile up)::

        import torch, graphscope

        a, b = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
            opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
            for _ in range(3):
                a(torch.ones(2, 4)).sum().backward()
                opt_a.step()
                opt_a.zero_grad()
                b(torch.ones(2, 4)).sum().backward()
                opt_a.step()  # GS210
                opt_a.zero_grad()

    Bad (the judge learns from the loss of the generator only)::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_g.zero_grad()
                opt_d.zero_grad()
                fake = g(torch.ones(2, 4))
                (-d(fake).mean()).backward()
                opt_g.step()
                with torch.no_grad():  # GS210
                    d_loss = d(fake).mean() - d(torch.zeros(2, 4)).mean()
                opt_d.step()

    Good (two optimizers for one loss, and a validation)::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_e = torch.optim.SGD(encoder.parameters(), lr=0.1)
        opt_h = torch.optim.SGD(head.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_e.zero_grad()
                opt_h.zero_grad()
                head(encoder(torch.ones(2, 4))).mean().backward()
                opt_e.step()
                opt_h.step()
                with torch.no_grad():
                    held_out = head(encoder(torch.zeros(2, 4))).mean().item()

    Good (one accumulates for longer than the other)::

        import torch, graphscope

        a, b = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt_a = torch.optim.SGD(a.parameters(), lr=0.1)
            opt_b = torch.optim.SGD(b.parameters(), lr=0.1)
            for i in range(4):
                a(torch.ones(2, 4)).sum().backward()
                b(torch.ones(2, 4)).sum().backward()
                opt_a.step()
                opt_a.zero_grad()
                if i == 3:
                    opt_b.step()

    Good::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(2):
                opt_g.zero_grad()
                d(g(torch.ones(2, 4))).sum().backward()
                opt_g.step()
                opt_d.zero_grad()
                d(g(torch.ones(2, 4)).detach()).sum().backward()
                opt_d.step()
    """

    code = "GS210"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that gets gradients and never steps, or steps on another one's only."""
        if trace.outcome.exception is not None:
            return
        for optimizer in trace.optimizers:
            if optimizer.id in trace.stepped:
                yield from self._of_another(trace, optimizer)
            elif found := instead(trace, optimizer):
                yield self._finding(trace, optimizer, *found[0])

    def _of_another(self, trace: Trace, optimizer: OptimizerRef) -> Iterator[Finding]:
        """It always steps on what the loss of another one left, and its own loss was computed without gradients."""
        found = [_without_own(trace, optimizer, use) for use in uses_of(trace, optimizer) if use.step.graded]
        if len(found) < 2 or None in found:
            return
        call, backward, step = next(each for each in found if each is not None)
        places = [Place(step.location, Role.CAUSE, f"`{optimizer.name}` steps on what {call_text(backward)} left")]
        if call.location is not None:
            places.insert(0, Place(call.location, Role.CAUSE, "computed without gradients, and not backpropagated"))
        if call.mode_at is not None:
            places.insert(0, Place(call.mode_at, Role.CAUSE, "gradients are switched off here"))
        places.append(Place(backward.location, Role.RELATED, f"{call_text(backward)} is for another optimizer"))
        yield self.finding(
            f"`{optimizer.name}` has gradients from {call_text(backward)} only, which another optimizer steps on: "
            "the loss that is computed in between has none, as gradients are switched off",
            places=places,
            fixes=[
                Fix("compute that loss with gradients, and call its backward() before the step", changes_gradients=True)
            ],
            optimizer=optimizer.name,
        )

    def _finding(self, trace: Trace, optimizer: OptimizerRef, backward: Backward, step: OptimizerStep) -> Finding:
        other = trace.optimizers[step.optimizer]
        return self.finding(
            f"{call_text(backward)} makes gradients for `{optimizer.name}`, which never steps: `{other.name}` steps "
            "after it, and has no gradient from it",
            places=[
                Place(step.location, Role.CAUSE, f"`{other.name}` steps here"),
                Place(backward.location, Role.RELATED, f"{call_text(backward)} is for `{optimizer.name}`"),
            ],
            fixes=[Fix(f"call {optimizer.name}.step() there", location=step.location, changes_gradients=True)],
            optimizer=optimizer.name,
            stepped=other.name,
        )


def _without_own(trace: Trace, optimizer: OptimizerRef, use: Use) -> tuple[Call, Backward, OptimizerStep] | None:
    """A number that was computed of its parameters without gradients, between another's step and this one.

    With the only backward that this step uses, which that other step used too.
    """
    fresh, step = use.fresh, use.step
    if len(fresh) != 1 or not isinstance(fresh[0], Backward):
        return None
    backward = fresh[0]
    others = [each for each in trace.steps if backward.time < each.time < step.start and each.optimizer != optimizer.id]
    others = [each for each in others if trace.reached(backward) & set(trace.optimizers[each.optimizer].parameters)]
    if not others:
        return None
    after = [call for call in trace.calls if others[-1].time < call.time < step.start]
    behind = set(optimizer.parameters)
    last: Call | None = None
    for call in after:
        if call.grad_mode != "enabled" and not behind.isdisjoint(call.inputs):
            behind.update(call.outputs)
            if call.outputs and not call.leaves and all(trace.graph.tensor(id).shape == () for id in call.outputs):
                last = call
    return None if last is None else (last, backward, step)
