"""GS208: parameters get gradients and are in no optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._parameters import listed


class UnownedParameter(Rule):
    """Trainable parameters get gradients at every step, and no optimizer holds them, while others before them train.

    A parameter group that was never appended, or layers kept in a plain Python list, which
    ``module.parameters()`` does not see. Only what lies between the loss and parameters that do train is reported:
    training a head on a backbone that is merely not frozen is left alone.

    Bad::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        net = torch.nn.Sequential(body, head)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(body.parameters(), lr=0.1)  # GS208
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Good::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        net = torch.nn.Sequential(body, head)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(head.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
    """

    code = "GS208"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for the parameters of one module of which some train and others, nearer to the loss, do not."""
        held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
        for module in trace.modules:
            members = [id for _, id in module.parameters]
            reached = [id for id in members if id in trace.ever_reached and trace.graph.tensor(id).requires_grad]
            owned = {id for id in reached if id in held}
            unowned = [id for id in reached if id not in held]
            if owned and unowned and trace.stepped:
                between = _before(trace, unowned, owned)
                if between:
                    yield self._finding(trace, between, owned)

    def _finding(self, trace: Trace, unowned: list[int], owned: set[int]) -> Finding:
        optimizers = [o for o in trace.optimizers if owned & set(o.parameters)]
        places = [
            Place(optimizer.location, Role.CAUSE, f"`{optimizer.name}` is made here, without them")
            for optimizer in optimizers
            if optimizer.location is not None
        ]
        made = {trace.graph.tensor(id).made_at for id in unowned}
        places += [Place(at, Role.RELATED, "made here") for at in made if at is not None]
        return self.finding(
            f"{listed(trace, unowned)} get gradients, and no optimizer holds them, so they never change",
            places=places,
            fixes=[Fix(f"add them to `{optimizers[0].name}`, or freeze them with requires_grad_(False)")],
            parameters=tuple(trace.graph.tensor(id).name for id in unowned),
            optimizers=tuple(optimizer.name for optimizer in optimizers),
        )


def _before(trace: Trace, unowned: list[int], owned: set[int]) -> list[int]:
    """Those whose operator hands the gradient on to parameters that train."""
    graph = trace.graph
    leaf_of = {tensor: node for node, tensor in graph.leaf_tensors.items()}
    wanted = {leaf_of[id]: id for id in unowned if id in leaf_of}
    found: dict[int, None] = {}
    for source, targets in enumerate(graph.targets):
        users = [wanted[target] for target, _ in targets if target in wanted]
        if users and graph.reached_tensors([source]) & owned:
            found.update(dict.fromkeys(users))
    # A weight is used through its transpose, which leads nowhere else: its bias tells.
    modules = {(graph.tensor(id).name or "").rpartition(".")[0] for id in found}
    return [id for id in unowned if id in found or (graph.tensor(id).name or "").rpartition(".")[0] in modules - {""}]
