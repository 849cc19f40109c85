"""GS203: an optimizer steps, and no loss reaches any of its parameters."""

from __future__ import annotations

from collections.abc import Iterator

from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import (
    CHECKPOINT_CUTS,
    cut_fact,
    cut_places,
    explaining_cuts,
    frozen_places,
    in_checkpoint,
    is_all_frozen,
    listed,
    made_places,
    replacements,
    ungraded,
)
from ._soft import soft_form
from ._uncalled import uncalled


class UnreachedOptimizer(Rule):
    """An optimizer steps, but no loss that was backpropagated reaches any of its parameters.

    Backward never arrives at the parameters' AccumulateGrad nodes, so every ``grad`` stays ``None`` and
    ``step()`` changes nothing; torch says nothing. Either the loss was computed from values that had
    lost their history (a numpy hop, ``detach()``, ``no_grad``), or the loss does not use this network, or all that
    the optimizer holds is frozen.

    Bad::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_encoder = torch.optim.SGD(encoder.parameters(), lr=0.1)
        opt_head = torch.optim.SGD(head.parameters(), lr=0.1)
        features = encoder(torch.ones(2, 4)).detach()
        graphscope.check(head(features).sum(), opt_encoder, opt_head)  # GS203

    Bad (adapters that came after the optimizer)::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
        with graphscope.watch() as report:
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            net.requires_grad_(False)
            net[1] = torch.nn.Linear(4, 1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()  # GS203

    Good::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_encoder = torch.optim.SGD(encoder.parameters(), lr=0.1)
        opt_head = torch.optim.SGD(head.parameters(), lr=0.1)
        graphscope.check(head(encoder(torch.ones(2, 4))).sum(), opt_encoder, opt_head)
    """

    code = "GS203"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that stepped and never had a gradient to use."""
        for optimizer in trace.optimizers:
            if is_all_frozen(trace, optimizer):
                yield self._of_frozen(trace, optimizer)
            lost = ungraded(trace, optimizer)
            trainable = [id for id in optimizer.parameters if trace.graph.tensor(id).requires_grad]
            if not lost or len(lost) < len(trainable):
                continue
            steps = [step for step in trace.steps if step.optimizer == optimizer.id]
            found = explaining_cuts(trace, lost, optimizer)
            replaced = () if found else replacements(trace, lost)
            places = [*cut_places(found), *made_places(trace, replaced)] or uncalled(trace, "backward")
            places.append(Place(steps[0].location, Role.FAILURE, f"`{optimizer.name}` steps without any gradient"))
            if optimizer.location is not None:
                places.append(Place(optimizer.location, Role.RELATED, f"`{optimizer.name}` is made here"))
            instead = (
                f"; they belong to no module any more, and no optimizer holds {listed(trace, replaced)}, which got some"
                if replaced
                else ""
            )
            checkpointed = in_checkpoint(trace, found)
            why, advice = (
                CHECKPOINT_CUTS if checkpointed else (instead, _advice(bool(found), bool(replaced), optimizer.name))
            )
            if found and found[0].is_operation and not checkpointed:
                advice = soft_form(found[0].call.op)
            yield self.finding(
                f"none of the {len(lost)} parameters of `{optimizer.name}` ({optimizer.kind}) is reached by a loss: "
                f"{listed(trace, lost)} keep grad = None, and the step changes nothing{why}",
                places=places,
                fixes=[Fix(advice)],
                optimizer=optimizer.name,
                parameters=tuple(trace.graph.tensor(id).name for id in lost),
                count=len(lost),
                cut=cut_fact(trace, found),
            )

    def _of_frozen(self, trace: Trace, optimizer: OptimizerRef) -> Finding:
        step = next(step for step in trace.steps if step.optimizer == optimizer.id)
        held = {id for each in trace.optimizers for id in each.parameters}
        members = {id for module in trace.modules if not module.gone for _, id in module.parameters}
        free = sorted((trace.ever_reached & members) - held)
        places = [*frozen_places(trace, optimizer.parameters), *made_places(trace, free)]
        if optimizer.location is not None:
            places.append(Place(optimizer.location, Role.CAUSE, f"`{optimizer.name}` is made here"))
        places.append(Place(step.location, Role.FAILURE, f"`{optimizer.name}` steps, and changes nothing"))
        return self.finding(
            f"all {len(optimizer.parameters)} parameters of `{optimizer.name}` ({optimizer.kind}) are frozen whenever "
            "it steps, so it changes nothing" + (f"; {listed(trace, free)} got gradients instead" if free else ""),
            places=places,
            fixes=[
                Fix(
                    f"make `{optimizer.name}` of the parameters that require grad, after all is frozen and replaced"
                    if free
                    else "unfreeze what it is to train with requires_grad_(True) before the forward"
                )
            ],
            optimizer=optimizer.name,
            parameters=tuple(trace.graph.tensor(id).name for id in optimizer.parameters),
        )


def _advice(cut: bool, replaced: bool, optimizer: str) -> str:
    if replaced:
        return f"make `{optimizer}` after the module is replaced, copied or moved"
    if cut:
        return "keep the tensor, with its history, on the way from these parameters to the loss"
    return f"backpropagate a loss that uses these parameters before the step, or drop `{optimizer}`"
