"""GS220: a parameter of a module was replaced while it trained, and the optimizer still holds the old one."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import listed


class ReplacedParameter(Rule):
    """A module was given a new parameter in place of one that trained, and the optimizer keeps stepping on the old one.

    Pruning, growing a layer or loading weights by ``layer.weight = nn.Parameter(...)`` makes a new tensor. An optimizer
    holds tensors, not names: the new one gets gradients, which no step uses.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(net.parameters(), lr=0.1)  # GS220
            for epoch in range(4):
                if epoch == 1:
                    net.weight = torch.nn.Parameter(net.weight.detach() * 0.5)
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for epoch in range(4):
                if epoch == 1:
                    with torch.no_grad():
                        net.weight.mul_(0.5)
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Good: the optimizer is made anew::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for epoch in range(4):
                if epoch == 1:
                    net.weight = torch.nn.Parameter(net.weight.detach() * 0.5)
                    opt = torch.optim.SGD(net.parameters(), lr=0.1)
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
    """

    code = "GS220"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that stepped on after a parameter of it had been replaced."""
        new = _unheld(trace)
        if not new:
            return
        last = {id: event.time for event in trace.backwards if event.accumulates for id in trace.reached(event)}
        for optimizer in trace.optimizers:
            final = max((step.time for step in trace.steps if step.optimizer == optimizer.id), default=-1)
            pairs = {
                id: new[name]
                for id in optimizer.parameters
                if (name := trace.graph.tensor(id).name) in new
                and id in last
                and last[id] < last.get(new[name], -1) < final
            }
            if pairs:
                yield self._finding(trace, optimizer, pairs)

    def _finding(self, trace: Trace, optimizer: OptimizerRef, pairs: dict[int, int]) -> Finding:
        """``pairs``: by the parameter that the optimizer holds, the one that took its place."""
        made = {trace.graph.tensor(id).made_at for id in pairs.values()}
        step = next(step for step in reversed(tuple(trace.steps)) if step.optimizer == optimizer.id)
        places = [Place(at, Role.CAUSE, "what took its place is made here") for at in made if at is not None]
        if optimizer.location is not None:
            places.append(Place(optimizer.location, Role.CAUSE, f"`{optimizer.name}` is made here, with the old ones"))
        places.append(Place(step.location, Role.FAILURE, "this step passes over the new ones"))
        return self.finding(
            f"{listed(trace, pairs)} got replaced in the module while `{optimizer.name}` ({optimizer.kind}) trained: "
            "it still holds the old tensor, and the new one gets gradients that no step uses",
            places=places,
            fixes=[
                Fix("write the new values into the old parameter: with torch.no_grad(): p.copy_(new)"),
                Fix(f"or make `{optimizer.name}` anew after it"),
            ],
            optimizer=optimizer.name,
            parameters=tuple(trace.graph.tensor(id).name for id in pairs),
        )


def _unheld(trace: Trace) -> dict[str, int]:
    """By name: the parameters of modules that get gradients and that no optimizer holds."""
    held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
    return {
        name: id
        for module in trace.modules
        if not module.gone
        for _, id in module.parameters
        if id not in held and id in trace.ever_reached and (name := trace.graph.tensor(id).name)
    }
