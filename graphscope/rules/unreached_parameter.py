"""GS204: an optimizer holds some parameters that no loss reaches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..reach import frozen
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._parameters import (
    CHECKPOINT_CUTS,
    cut_fact,
    cut_places,
    dead_ends,
    explaining_cuts,
    in_checkpoint,
    left_out,
    listed,
    made_places,
    only_shown,
    overwritten,
    replacements,
    ungraded,
)

_LEFT_OUT = (
    "; what is computed from them is only shown",
    "add it to the loss that is backpropagated, or leave these parameters out of the optimizer",
)
_REBOUND = (
    "; each turn of the loop overwrites what was computed from them",
    "add the terms up in the loop (`total = total + term`), or leave these parameters out of the optimizer",
)


class UnreachedParameter(Rule):
    """An optimizer holds parameters that no loss reaches, beside others that train.

    Their ``grad`` stays ``None`` at every step, so ``step()`` passes them over. Usually the gradient is
    cut on the way (``detach()``, ``item()``, ``argmax``, ``no_grad``), the module has been replaced since the
    optimizer was made, or a branch of the network is not used.

    Bad::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
        features = encoder(torch.ones(2, 4)).detach()
        graphscope.check(head(features).sum(), optimizer)  # GS204

    Good::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
        features = encoder(torch.ones(2, 4))
        graphscope.check(head(features).sum(), optimizer)
    """

    code = "GS204"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for each optimizer that trains only some of what it holds; a warning if nothing tells why."""
        for optimizer in trace.optimizers:
            lost = ungraded(trace, optimizer)
            trainable = [id for id in optimizer.parameters if trace.graph.tensor(id).requires_grad]
            if lost and len(lost) < len(trainable):
                yield self._finding(trace, optimizer, lost, len(trainable))

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The modules that are frozen, at the line that uses them first."""
        used = frozen(trace) if any(trace.backwards) else {}
        for module in trace.modules:
            at = [used[id] for _, id in module.parameters if id in used]
            if at:
                said = "is frozen" if len(at) == len(module.parameters) else "is frozen in part"
                yield self.clear(
                    f"`{module.name}` {said}: {len(at)} of its {len(module.parameters)} parameters did not require "
                    "grad when they were used, so no loss is to train them",
                    min(at),
                )

    def _finding(self, trace: Trace, optimizer: OptimizerRef, lost: tuple[int, ...], held: int) -> Finding:
        steps = [step for step in trace.steps if step.optimizer == optimizer.id]
        found = explaining_cuts(trace, lost, optimizer)
        has_twins = all(_has_reached_twin(trace, id, optimizer) for id in lost)  # experts that were not picked
        if has_twins and only_shown(trace, found):
            found = ()
        forgotten = left_out(trace, found)
        places = [*forgotten, *cut_places(found)]
        replaced = () if found else replacements(trace, lost)
        places += made_places(trace, replaced)
        places += [] if found or replaced else dead_ends(trace, lost)
        if optimizer.location is not None:
            places.append(Place(optimizer.location, Role.RELATED, f"`{optimizer.name}` is made here"))
        places.append(Place(steps[0].location, Role.FAILURE, "these parameters are passed over here"))
        rebound = not found and not replaced and overwritten(trace, lost)
        checkpointed = in_checkpoint(trace, found)
        why, advice = _words(trace, bool(found), replaced, optimizer)
        if forgotten:
            why, advice = _LEFT_OUT
        elif checkpointed or rebound:
            why, advice = CHECKPOINT_CUTS if checkpointed else _REBOUND
        unexplained = Severity.NOTE if has_twins and not rebound else Severity.WARNING
        return self.finding(
            f"`{optimizer.name}` ({optimizer.kind}) holds {held} parameters, and no loss reaches {len(lost)} of them: "
            f"{listed(trace, lost)}{why}",
            places=places,
            fixes=[Fix(advice)],
            severity=Severity.ERROR if found or replaced else unexplained,
            optimizer=optimizer.name,
            parameters=tuple(trace.graph.tensor(id).name for id in lost),
            count=len(lost),
            cut=cut_fact(trace, found),
            replaced_by=tuple(trace.graph.tensor(id).name for id in replaced),
        )


def _has_reached_twin(trace: Trace, lost: int, optimizer: OptimizerRef) -> bool:
    """Whether one that differs only in a number in its name is reached: ``experts.0.weight``, ``experts.3.weight``."""
    kind = _numberless(trace.graph.tensor(lost).name)
    others = (trace.graph.tensor(id).name for id in optimizer.parameters if id in trace.ever_reached)
    return kind is not None and any(_numberless(name) == kind for name in others)


def _numberless(name: str | None) -> str | None:
    kind = re.sub(r"(?<=[.\[])\d+(?=[.\]])", "*", name) if name else None
    return kind if kind != name else None


def _words(trace: Trace, cut: bool, replaced: tuple[int, ...], optimizer: OptimizerRef) -> tuple[str, str]:
    if replaced:
        return (
            f"; they belong to no module any more: {listed(trace, replaced)} took their place and is in no optimizer",
            f"make `{optimizer.name}` after the module is replaced, or add the new one with add_param_group",
        )
    if cut:
        return "", "keep the path from the loss to these parameters, or leave them out of the optimizer"
    return "; the loss does not use them", "use them on the way to the loss, or leave them out of the optimizer"
