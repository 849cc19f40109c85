"""GS208: parameters get gradients and are in no optimizer."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from ..events import GradRead, InPlaceWrite, RequiresGradSet
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._between import between
from ._parameters import listed
from ._rebuilt import rebuilt

_FEW = 8  # backwards that are looked at to tell a tensor that stays from one that is made anew each time

_CONTAINER = re.compile(r"\.(\w+)\[")


class UnownedParameter(Rule):
    """Trainable parameters get gradients at every step, and no optimizer holds them, while others train.

    A parameter group that was never appended, a loss module with weights of its own, a part that was unfrozen
    after the optimizer had been made, or layers in a plain Python list, which ``module.parameters()`` does not see.
    Otherwise only what lies between the loss and parameters that do train gives a warning: training a head on a
    backbone that is merely not frozen is worth a note, and a part in eval mode is left alone.

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

    Bad (a note: the backbone is neither trained nor frozen)::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            opt = torch.optim.SGD(head.parameters(), lr=0.1)  # GS208
            for _ in range(2):
                opt.zero_grad()
                head(body(torch.ones(2, 4))).sum().backward()
                opt.step()

    Bad (layers in a plain list)::

        import torch, graphscope

        class Stack(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = [torch.nn.Linear(4, 4) for _ in range(2)]  # GS208
                self.head = torch.nn.Linear(4, 1)

            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).relu()
                return self.head(x)

        with graphscope.watch() as report:
            net = Stack()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Bad (a cast gives a tensor, not a parameter)::

        import torch, graphscope

        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(4)).double()  # GS208
                self.head = torch.nn.Linear(4, 1).double()

            def forward(self, x):
                return self.head(x * self.scale)

        with graphscope.watch() as report:
            net = Scaled()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
                opt.step()

    Bad (so does a view)::

        import torch, graphscope

        class Placed(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.places = torch.nn.Parameter(torch.zeros(4)).unsqueeze(0)  # GS208
                self.head = torch.nn.Linear(4, 1)

            def forward(self, x):
                return self.head(x + self.places)

        with graphscope.watch() as report:
            net = Placed()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()

    Bad (a loss with weights of its own)::

        import torch, graphscope

        class Weighted(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.zeros(1))

            def forward(self, error):
                return (error * torch.exp(-self.scale)).sum() + self.scale.sum()

        net, criterion = torch.nn.Linear(4, 1), Weighted()
        with graphscope.watch() as report:
            opt = torch.optim.SGD(net.parameters(), lr=0.1)  # GS208
            for _ in range(2):
                opt.zero_grad()
                criterion(net(torch.ones(2, 4))).backward()
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

    Good (what is cast is no parameter yet, or another module's)::

        import torch, graphscope

        class Scaled(torch.nn.Module):
            def __init__(self, other):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(4).double())
                self.head = torch.nn.Linear(4, 1).double()
                self.tied = [other.weight.double()]

            def forward(self, x):
                return self.head(x * self.scale) + (x * self.tied[0]).sum()

        with graphscope.watch() as report:
            other = torch.nn.Linear(4, 1)
            net = Scaled(other)
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                x = torch.ones(2, 4, dtype=torch.float64)
                net(x).sum().backward()
                opt.step()

    Good (a cast of a parameter that trains is kept)::

        import torch, graphscope

        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.nn.Parameter(torch.ones(4))
                self.head = torch.nn.Linear(4, 1).double()

            def forward(self, x):
                self.cast = self.scale.double()
                return self.head(x * self.cast)

        with graphscope.watch() as report:
            net = Scaled()
            opt = torch.optim.SGD(net.parameters(), lr=0.1)
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4, dtype=torch.float64)).sum().backward()
                opt.step()
    """

    code = "GS208"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each module, and for the tensors beside them, of which someone forgot a part."""
        if not trace.stepped:
            return
        held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
        modules = [module for module in trace.modules if not module.gone]
        registered = {id for module in modules for _, id in module.parameters}
        members = registered.union(id for module in modules for _, id in module.hidden)
        free = _forgotten(trace, held).difference(*(ids for each in rebuilt(trace) for ids in each.times))
        middle = set(between(trace, free, held & trace.ever_reached))
        for module in modules:
            own = [id for _, id in module.parameters]
            hidden = [id for _, id in module.hidden if id in free and id not in held]
            derived = {id: kept for id, kept in module.derived if id in hidden}
            if held.intersection(own):
                if aside := [id for id in hidden if id not in derived]:
                    yield self._finding(trace, aside, held.intersection(own), hidden=True)
                if alone := {id: kept for id, kept in derived.items() if id not in registered}:
                    yield self._of_derived(trace, alone)
            lost = [id for id in own if id in free and id not in hidden]
            if held.intersection(own):
                late = [id for id in lost if _is_thawed(trace, id)]
                lost = late or [id for id in lost if id in middle]
            elif held.intersection(members):
                outer, lost = lost, [id for id in lost if id in middle and not _is_loaded(trace, id)]
                if outer and not lost:
                    yield self._note(trace, outer, held)
            else:  # an input is optimized, not a network
                lost = []
            if lost:
                yield self._finding(trace, lost, held.intersection(own) or held)
        if lone := [id for id in sorted(middle - members) if not trace.graph.tensor(id).is_parameter]:
            yield self._finding(trace, lone, held)

    def _finding(self, trace: Trace, unowned: list[int], owned: Collection[int], *, hidden: bool = False) -> Finding:
        optimizers = [o for o in trace.optimizers if frozenset(owned) & frozenset(o.parameters)]
        copy, original = next(_copies(optimizers), (None, None)) if _has_own_loss(trace, unowned) else (None, None)
        optimizers.sort(key=lambda optimizer: optimizer is not copy)
        made = {trace.graph.tensor(id).made_at for id in unowned}
        kept = _kept_places(trace, unowned) if hidden else []
        role = Role.RELATED if kept else Role.CAUSE
        late = not hidden and all(at is not None and at.function.endswith("forward") for at in made)
        places = [
            *kept,
            *(Place(at, role, "made here, where `parameters()` does not see it") for at in made if hidden and at),
            *(
                Place(
                    optimizer.location,
                    Role.CAUSE if copy in (None, optimizer) else Role.RELATED,
                    f"`{optimizer.name}` is made here, without them",
                )
                for optimizer in optimizers
                if optimizer.location is not None
            ),
            *(
                Place(at, Role.CAUSE if late else Role.RELATED, "made here")
                for at in made
                if at is not None and not hidden
            ),
        ]
        places += [
            Place(event.location, Role.CAUSE, "they begin to train here, in no optimizer")
            for event in trace.events
            if isinstance(event, RequiresGradSet) and event.value and set(unowned) & set(event.tensors)
        ]
        why = ": they are kept in a plain list, dict or attribute, which `parameters()` does not see" if hidden else ""
        if copy is not None and original is not None and not hidden:  # it was made for these
            why = f": `{copy.name}` holds what `{original.name}` holds, in their place"
        advice = (
            "keep modules in nn.ModuleList or nn.ModuleDict, tensors as nn.Parameter (or in nn.ParameterList)"
            if hidden
            else f"give them to `{copy.name}`"
            if copy is not None
            else "make them in the constructor (nn.LazyLinear, say, where a size is known later only), or run a "
            f"forward before `{optimizers[0].name}` is made"
            if late
            else f"add them to `{optimizers[0].name}`, or freeze them with requires_grad_(False)"
        )
        return self.finding(
            f"{listed(trace, unowned)} get gradients, and no optimizer holds them, so they never change{why}",
            places=places,
            fixes=[Fix(advice)],
            parameters=tuple(trace.graph.tensor(id).name for id in unowned),
            optimizers=tuple(optimizer.name for optimizer in optimizers),
        )

    def _note(self, trace: Trace, unowned: list[int], held: Collection[int]) -> Finding:
        """A network that nothing trains, such as the backbone below a head: that may be meant."""
        found = self._finding(trace, unowned, held)
        title = f"{found.fixes[0].title}, which also spares their backward"
        message = f"{found.message}: right if they are to stay as they are"
        return replace(found, severity=Severity.NOTE, message=message, fixes=(Fix(title),))

    def _of_derived(self, trace: Trace, kept: dict[int, int]) -> Finding:
        """A module keeps what a cast or a view gave of a parameter, not the parameter."""
        graph = trace.graph
        calls = {id: call for call in trace.calls for id in call.outputs if id in kept.values()}
        ops = dict.fromkeys(call.op for call in calls.values())
        made = [call.location for call in calls.values() if call.location is not None]
        made = made or [at for id in kept if (at := graph.tensor(id).made_at)]
        return self.finding(
            f"{listed(trace, kept)} get gradients, and no optimizer holds them, so they never change: the module keeps "
            f"what {' and '.join(f'`{op}`' for op in ops) or 'an operation'} made of an nn.Parameter, which is a "
            "tensor that `parameters()` does not see",
            places=[Place(at, Role.CAUSE, "this gives a tensor, not a parameter") for at in dict.fromkeys(made)],
            fixes=[
                Fix("make the parameter last: nn.Parameter(x.double()), nn.Parameter(x.view(...))", made[0])
                if made
                else Fix("make the parameter last")
            ],
            parameters=tuple(graph.tensor(id).name for id in kept),
        )


def _has_own_loss(trace: Trace, unowned: Collection[int]) -> bool:
    """Whether some loss reaches these, and nothing that an optimizer holds."""
    held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
    reached = (trace.reached(event) for event in trace.backwards if event.accumulates)
    return any(not each.isdisjoint(unowned) and each.isdisjoint(held) for each in reached)


def _copies(optimizers: Sequence[OptimizerRef]) -> Iterator[tuple[OptimizerRef, OptimizerRef]]:
    """The optimizers that hold the very parameters of one made earlier, each with that one."""
    for later in optimizers:
        for earlier in optimizers:
            if earlier.id < later.id and set(earlier.parameters) == set(later.parameters):
                yield later, earlier


def _forgotten(trace: Trace, held: Collection[int]) -> frozenset[int]:
    """The leaves that collect gradients of which nobody makes use: not an optimizer, and not the program itself."""
    backwards = [event for event in trace.backwards if event.accumulates and not event.error]
    if not backwards:
        return frozenset()
    first = backwards[0].time
    used = set(held).union(*(trace.reached(event) for event in trace.backwards if event.inputs is not None))
    used.update(id for module in trace.modules for id in module.evaluated)
    written = {-1}
    for event in trace.events:
        match event:
            case GradRead(present=True):
                used.add(event.tensor)
            case RequiresGradSet(value=False):
                used.update(id for id in event.tensors if not _is_thawed(trace, id))
            case InPlaceWrite() if event.time > first:
                written.add(event.write.storage)
            case _:
                pass
    return frozenset(
        id
        for id in trace.ever_reached - used
        if (tensor := trace.graph.tensor(id)).requires_grad
        and tensor.storage not in written
        and (tensor.is_parameter or sum(id in trace.reached(event) for event in backwards[:_FEW]) > 1)
    )


def _is_thawed(trace: Trace, id: int) -> bool:
    """Whether it was frozen at first, and set free once the program had begun to train."""
    switches = [event for event in trace.events if isinstance(event, RequiresGradSet) and id in event.tensors]
    return [event.value for event in switches] == [False, True] and switches[1].step > 0


def _is_loaded(trace: Trace, id: int) -> bool:
    """Whether its values were copied into it: it has been trained elsewhere."""
    return any(
        isinstance(event, InPlaceWrite) and event.op == "copy_" and event.write.tensor == id for event in trace.events
    )


def _kept_places(trace: Trace, hidden: list[int]) -> list[Place]:
    """The statements that put parameters into a plain list or dict: which made them, or names it in the constructor."""
    found: dict[Location, Place] = {}
    for id in hidden:
        tensor = trace.graph.tensor(id)
        attribute = _CONTAINER.search(tensor.name or "")
        if attribute is None or tensor.birth is None:
            continue
        written = re.compile(rf"\.{attribute[1]}\b")
        for at in tensor.birth.locations[1:]:
            lines = trace.sources.get(at.file, "").splitlines()[at.line - 1 : at.end_line]
            if any(written.search(line) for line in lines):
                label = f"kept in `{attribute[1]}` here, where `parameters()` does not see it"
                found.setdefault(at, Place(at, Role.CAUSE, label))
                break
    return list(found.values())
