"""GS304: a step uses gradients that the loss of another optimizer left in its parameters."""

from __future__ import annotations

from collections.abc import Iterator

from .._plain import dataclass
from ..events import Backward, OptimizerStep, ZeroGrad
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..ledger import Holding, Use
from ..rule import Rule
from ..trace import OptimizerRef, Trace
from ._evaluation import is_evaluation
from ._lifetime import call_text
from ._parameters import listed
from ._roles import Role as Part
from ._roles import loss_role, parameter_role
from ._steps import backwards_in, how_often, severity_of, used_before, uses_of


class ForeignGradients(Rule):
    """A step uses gradients that the loss of another optimizer left in its parameters, on top of its own.

    A generator's loss goes through the discriminator, an actor's through the critic: ``backward()`` writes into the
    ``grad`` of both. The other optimizer takes its part; the rest stays where it is, and unless it is zeroed, the judge
    is trained to please the one it judges. So is the loss of an evaluation that calls ``backward()``.

    Bad::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_g.zero_grad()
                opt_d.zero_grad()
                g_loss = -d(g(torch.ones(2, 4))).mean()
                g_loss.backward()
                opt_g.step()
                d_loss = d(g(torch.ones(2, 4)).detach()).mean()
                d_loss.backward()  # GS304
                opt_d.step()

    Bad: both backwards come before the steps::

        import torch, graphscope

        actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(6, 1)
        opt_a = torch.optim.SGD(actor.parameters(), lr=0.1)
        opt_c = torch.optim.SGD(critic.parameters(), lr=0.1)
        state = torch.ones(3, 4)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_a.zero_grad()
                opt_c.zero_grad()
                critic_loss = critic(torch.ones(3, 6)).pow(2).mean()
                critic_loss.backward()
                actor_loss = -critic(torch.cat([state, actor(state)], 1)).mean()
                actor_loss.backward()  # GS304
                opt_c.step()
                opt_a.step()

    Bad: an evaluation calls backward::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                net.train()
                for _ in range(4):
                    net(torch.ones(2, 4)).sum().backward()
                    opt.step()
                    opt.zero_grad()
                net.eval()
                loss = net(torch.zeros(2, 4)).pow(2).sum()
                loss.backward()  # GS304

    Good: two losses train the encoder::

        import torch, graphscope

        encoder, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_e = torch.optim.SGD(encoder.parameters(), lr=0.1)
        opt_h = torch.optim.SGD(head.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_e.zero_grad()
                opt_h.zero_grad()
                head(encoder(torch.ones(2, 4))).mean().backward()
                opt_h.step()
                encoder(torch.ones(2, 4)).pow(2).mean().backward()
                opt_e.step()

    Good::

        import torch, graphscope

        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g = torch.optim.SGD(g.parameters(), lr=0.1)
        opt_d = torch.optim.SGD(d.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                opt_g.zero_grad()
                g_loss = -d(g(torch.ones(2, 4))).mean()
                g_loss.backward()
                opt_g.step()
                opt_d.zero_grad()
                d_loss = d(g(torch.ones(2, 4)).detach()).mean()
                d_loss.backward()
                opt_d.step()
    """

    code = "GS304"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each optimizer whose steps use another one's gradients beside its own."""
        owners = _Owners(trace)
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if any(used_before(holding) and holding.fresh for use in uses for holding, _ in use.parts):
                continue  # it is never zeroed at all
            if found := [leak for use in uses if (leak := owners.leak(use))]:
                yield self._finding(trace, optimizer, found, len(uses))
            elif (left := [each for use in uses if (each := _of_evaluation(trace, use))]) and 2 * len(left) < len(uses):
                yield self._of_evaluation(optimizer, left, len(uses))

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """Backwards that leave gradients in another optimizer's parameters, which are zeroed in time."""
        owners = _Owners(trace)
        for optimizer in trace.optimizers:
            uses = uses_of(trace, optimizer)
            if not uses or any(owners.leak(use) for use in uses):
                continue
            for backward, owner in owners.foreign(optimizer):
                yield self.clear(
                    f"{call_text(backward)} leaves gradients in the parameters of `{optimizer.name}` too, and that is "
                    f"right: `{trace.optimizers[owner].name}` uses its own, the others are zeroed before "
                    f"`{optimizer.name}` steps",
                    backward.location,
                )

    def _of_evaluation(self, optimizer: OptimizerRef, left: list[_Leak], of: int) -> Finding:
        leak, name = left[-1], optimizer.name
        own, foreign = call_text(leak.own), call_text(leak.foreign)
        return self.finding(
            f"`{name}` steps on gradients of an evaluation, {how_often(len(left), of)}: beside those of {own} it uses "
            f"what {foreign} left there, which runs in eval mode",
            places=[
                Place(leak.foreign.location, Role.CAUSE, f"{foreign} leaves gradients here, and nothing zeroes them"),
                Place(leak.own.location, Role.RELATED, f"{own} adds its own to one sum with them"),
                Place(leak.step.location, Role.FAILURE, f"`{name}` steps on both here"),
            ],
            fixes=[
                Fix(
                    "leave this backward out, and evaluate under torch.no_grad()",
                    leak.foreign.location,
                    changes_gradients=True,
                )
            ],
            severity=Severity.WARNING,
            optimizer=name,
            count=len(left),
            steps=of,
        )

    def _finding(self, trace: Trace, optimizer: OptimizerRef, found: list[_Leak], of: int) -> Finding:
        leak, name = found[-1], optimizer.name
        owner = trace.optimizers[leak.owner].name
        own, foreign = call_text(leak.own), call_text(leak.foreign)
        if leak.foreign.time < leak.own.time:
            fix = Fix(f"call {name}.zero_grad() before {own}", leak.own.location, changes_gradients=True)
        else:
            title = f"call {name}.step() before {foreign}, or freeze its parameters for that: requires_grad_(False)"
            fix = Fix(title, leak.foreign.location, changes_gradients=True)
        return self.finding(
            f"`{name}` steps on gradients of two losses, {how_often(len(found), of)}: beside those of {own} it uses "
            f"what {foreign} left in {listed(trace, leak.parameters)} on the way to the parameters of `{owner}`",
            places=[
                Place(leak.foreign.location, Role.CAUSE, f"{foreign}, which is for `{owner}`, leaves gradients here"),
                Place(
                    leak.own.location, Role.CAUSE, f"{own}, which is for `{name}`, adds its own to one sum with them"
                ),
                Place(leak.step.location, Role.FAILURE, f"`{name}` steps on both here"),
            ],
            fixes=[fix],
            severity=severity_of(len(found), of - 1),
            optimizer=name,
            owner=owner,
            count=len(found),
            steps=of,
        )


@dataclass(frozen=True, slots=True)
class _Leak:
    """A step that used its own loss's gradients and those of another one, which was for the optimizer ``owner``."""

    step: OptimizerStep
    own: Backward
    foreign: Backward
    owner: int
    parameters: tuple[int, ...]


def _of_evaluation(trace: Trace, use: Use) -> _Leak | None:
    """A step that uses what a backward in an evaluation left, with a backward of the training after it."""
    for holding, parameters in use.parts:
        backwards = backwards_in(holding)
        own = next((each for each in backwards if each.location != backwards[0].location), None)
        if own is None or not is_evaluation(trace, backwards[0].location, parameters):
            continue
        if not is_evaluation(trace, own.location, parameters):
            return _Leak(use.step, own, backwards[0], use.step.optimizer, parameters)
    return None


class _Owners:
    """Whom a backward is for: the optimizer that steps on it before the next backward, or was zeroed just before it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._held = {o.id: frozenset(o.parameters) for o in trace.optimizers if o.id in trace.stepped}
        self._by_step: dict[int, set[int]] = {}  # by time of a backward
        self._by_zero: dict[int, set[int]] = {}
        zeroed: set[int] = set()
        last: Backward | None = None
        for event in trace.events:
            match event:
                case Backward() if event.accumulates and event.error is None:
                    self._by_zero[event.time], zeroed = zeroed, set()
                    last = event
                case ZeroGrad():
                    zeroed |= {id for id, held in self._held.items() if held and held <= set(event.tensors)}
                case OptimizerStep() if last is not None and self._touches(last, event.optimizer):
                    self._by_step.setdefault(last.time, set()).add(event.optimizer)
                case _:
                    pass

    def _touches(self, backward: Backward, optimizer: int) -> bool:
        return not self._held[optimizer].isdisjoint(self._trace.reached(backward))

    def leak(self, use: Use) -> _Leak | None:
        """What is wrong with a step, if it uses another one's gradients beside its own."""
        me = use.step.optimizer
        for holding, parameters in use.parts:
            backwards = backwards_in(holding)
            own = next((each for each in reversed(backwards) if self._only_reaches(each, me)), None)
            if own is None or len(backwards) < 2:
                continue
            for foreign in backwards:
                owner = self._owner(foreign, own, me)
                if owner is not None:
                    return _Leak(use.step, own, foreign, owner, parameters)
        return next((leak for holding, ids in use.parts if (leak := self._opposed(use, holding, ids))), None)

    def _opposed(self, use: Use, holding: Holding, parameters: tuple[int, ...]) -> _Leak | None:
        """An actor that steps on its critic's loss beside its own, or the other way round, as their names tell."""
        backwards, me = backwards_in(holding), use.step.optimizer
        mine = parameter_role(self._trace, parameters) if len(backwards) > 1 else None
        if mine is None:
            return None
        roles = {each.time: self._role(each) for each in backwards}
        own = next((each for each in reversed(backwards) if roles[each.time] == mine), None)
        foreign = next((each for each in backwards if roles[each.time] not in (None, mine)), None)
        if own is None or foreign is None:
            return None
        reached = self._trace.reached(foreign)
        for other, held in self._held.items():
            theirs = (held & reached) - self._held[me]
            if other != me and theirs and parameter_role(self._trace, theirs) == roles[foreign.time]:
                return _Leak(use.step, own, foreign, other, parameters)
        return None

    def _role(self, backward: Backward) -> Part | None:
        """Whom a backward is for: by its name, or as it reaches the one that judges and nobody else."""
        if (named := loss_role(backward)) is not None:
            return named
        touched = [held for held in self._held.values() if held & self._trace.reached(backward)]
        return "judges" if len(touched) == 1 and parameter_role(self._trace, touched[0]) == "judges" else None

    def _owner(self, foreign: Backward, own: Backward, me: int) -> int | None:
        """The optimizer that a backward is for, and not this one, which has another backward of its own."""
        for other in sorted(self._by_step.get(foreign.time, ())):
            if other == me or self._touches(own, other):
                continue
            if foreign.time < own.time:
                is_others = me not in self._by_step[foreign.time]
            else:
                zeroed = self._by_zero[foreign.time]
                is_others = foreign.time > own.time and other in zeroed and me not in zeroed
            if is_others and self._goes_through(foreign, me, other):
                return other
        return None

    def _only_reaches(self, backward: Backward, optimizer: int) -> bool:
        touched = [other for other in self._held if self._touches(backward, other)]
        return touched == [optimizer]

    def _goes_through(self, backward: Backward, me: int, other: int) -> bool:
        """Whether the gradient passes operations with this optimizer's parameters on its way to the other one's."""
        graph = self._trace.graph
        leaves = graph.leaf_tensors
        behind = graph.reachable(root.node for root in backward.roots if root.node is not None)
        mine: set[int] = set()  # its parameters, and views of them
        leads: set[int] = set()  # what leads to the other's
        for id in sorted(behind, key=lambda id: graph.sequences[id]):
            targets = [target for target, _ in graph.targets[id] if target >= 0]
            if leaves.get(id) in self._held[me] or (len(targets) == 1 and targets[0] in mine):
                mine.add(id)
            if leaves.get(id) in self._held[other] or not leads.isdisjoint(targets):
                leads.add(id)
        return any(
            not mine.isdisjoint(targets := [target for target, _ in graph.targets[id]])
            and not leads.isdisjoint(targets)
            for id in behind
        )

    def foreign(self, optimizer: OptimizerRef) -> Iterator[tuple[Backward, int]]:
        """The backwards that write into its parameters and are for another one, with that one."""
        for event in self._trace.backwards:
            by = self._by_step.get(event.time, set())
            if by and optimizer.id not in by and self._touches(event, optimizer.id):
                yield event, min(by)
