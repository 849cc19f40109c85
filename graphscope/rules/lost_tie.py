"""GS218: two parameters were tied through .data, and do not share their memory any more."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import InPlaceWrite
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._aliases import Aliases


class LostTie(Rule):
    """Two weights were tied through ``.data``, and the tie was lost when the module was cast or moved.

    ``decoder.weight.data = encoder.weight.data`` makes two Parameters share one memory, and no more: they keep a
    gradient each, and ``.to()``, ``.double()``, ``.cuda()`` give each a memory of its own. From then on the two weights
    go their own ways. Sharing the Parameter itself survives all of these.

    Bad::

        import torch, graphscope

        a, b = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        with graphscope.watch() as report:
            b.weight.data = a.weight.data  # GS218
            net = torch.nn.Sequential(a, b).double()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(2, 4).double()).sum().backward()
            opt.step()

    Good::

        import torch, graphscope

        a, b = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        with graphscope.watch() as report:
            b.weight = a.weight
            net = torch.nn.Sequential(a, b).double()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            net(torch.ones(2, 4).double()).sum().backward()
            opt.step()
    """

    code = "GS218"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each tie that was undone, where both weights are trained."""
        moves = [
            e for e in trace.events if isinstance(e, InPlaceWrite) and e.write.moved and e.write.source is not None
        ]
        aliases = Aliases(trace) if moves else None
        trained = {id for step in trace.steps for id in step.graded}
        for tie in moves:
            assert aliases is not None and tie.write.source is not None
            one, other = tie.write.tensor, aliases.root(tie.write.source)
            if one == other or not {one, other} <= trained:
                continue
            later = [e for e in moves if e.time > tie.time and e.write.tensor in (one, other)]
            tensors = trace.graph.tensor(one), trace.graph.tensor(other)
            if not later or tensors[0].storage == tensors[1].storage:
                continue
            names = [str(tensor) for tensor in tensors]
            yield self.finding(
                f"`{names[0]}` was tied to `{names[1]}` through .data only, and each has a memory of its own since "
                f"line {later[0].location.line}: they are trained apart",
                places=[
                    Place(tie.location, Role.CAUSE, "this shares the memory, not the Parameter"),
                    Place(later[0].location, Role.FAILURE, "each gets a memory of its own here"),
                ],
                fixes=[Fix(f"share the Parameter itself: `{names[0]} = {names[1]}`", location=tie.location)],
                parameters=tuple(names),
            )
