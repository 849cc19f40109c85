"""GS106: a gradient with a graph that nothing differentiates, or one without where the loss needs it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from ..engine import Engine
from ..events import Backward, Call, GradRead
from ..findings import Cleared, Finding, Fix, Place, Role, Severity
from ..flow import Following
from ..location import Location
from ..memory import memory
from ..rule import Rule
from ..trace import Trace
from ._keeping import kept
from ._lifetime import call_text
from ._second_order import second_cuts

_POINTWISE = frozenset(
    (
        "__getitem__",
        "abs",
        "add",
        "cat",
        "clamp",
        "clone",
        "cos",
        "div",
        "exp",
        "flatten",
        "l1_loss",
        "log",
        "mean",
        "mse_loss",
        "mul",
        "neg",
        "norm",
        "pow",
        "relu",
        "reshape",
        "rsub",
        "select",
        "sin",
        "smooth_l1_loss",
        "sqrt",
        "square",
        "squeeze",
        "stack",
        "sub",
        "sum",
        "tanh",
        "unsqueeze",
        "vector_norm",
        "view",
    )
)
_PRODUCTS = frozenset(("mul", "div"))


class UnusedCreateGraph(Rule):
    """``create_graph=True`` makes a graph for a gradient, and no backward differentiates it; or it is missing.

    A gradient penalty or the derivative in a physical residual trains a network only if the gradient keeps its own
    graph *and* a later backward goes through it. A penalty that was computed and never added to the loss trains
    nothing; a derivative taken without ``create_graph=True`` enters the loss as a constant. After
    ``backward(create_graph=True)``, ``grad`` and its graph hold each other, so that neither is freed until ``grad`` is
    set to None. Reported as a note where nothing is trained afterwards: it then only costs memory.

    Bad::

        import torch, graphscope

        critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        with graphscope.watch() as report:
            x = torch.ones(4, 3, requires_grad=True)
            (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            penalty = (gradient.norm(dim=1) - 1).pow(2).mean()  # GS106
            loss = critic(torch.zeros(4, 3)).mean()
            loss.backward()
            opt.step()

    Bad, where the derivative is a constant::

        import torch, graphscope

        u = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(u.parameters(), lr=0.1)
        with graphscope.watch() as report:
            x = torch.ones(4, 1, requires_grad=True)
            y = u(x)
            (slope,) = torch.autograd.grad(y.sum(), x, retain_graph=True)  # GS106
            loss = (slope - x.cos()).pow(2).mean() + y.pow(2).mean()
            loss.backward()
            opt.step()

    Bad, where it is taken from ``.grad``::

        import torch, graphscope

        critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        with graphscope.watch() as report:
            x = torch.ones(4, 3, requires_grad=True)
            critic(x).sum().backward()
            penalty = x.grad.pow(2).mean()  # GS106
            opt.zero_grad()
            loss = critic(torch.zeros(4, 3)).mean() + penalty
            loss.backward()
            opt.step()

    Bad, as the second derivative is a constant beside what trains::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        viscosity = torch.nn.Parameter(torch.tensor(-1.0))
        opt = torch.optim.SGD([*net.parameters(), viscosity], lr=0.1)
        with graphscope.watch() as report:
            for _ in range(3):
                x = torch.rand(16, 1, requires_grad=True)
                u = net(x)
                (u_x,) = torch.autograd.grad(u.sum(), x, create_graph=True)
                (u_xx,) = torch.autograd.grad(u_x.sum(), x, retain_graph=True)  # GS106
                loss = (u_x - viscosity.exp() * u_xx).pow(2).mean() + u.pow(2).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()

    Good::

        import torch, graphscope

        critic = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(critic.parameters(), lr=0.1)
        with graphscope.watch() as report:
            x = torch.ones(4, 3, requires_grad=True)
            (gradient,) = torch.autograd.grad(critic(x).sum(), x, create_graph=True)
            penalty = (gradient.norm(dim=1) - 1).pow(2).mean()
            loss = critic(torch.zeros(4, 3)).mean() + 10 * penalty
            loss.backward()
            opt.step()

    Good, as the gradient is meant to be a constant: it makes an adversarial example::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            x = torch.ones(4, 3, requires_grad=True)
            (gradient,) = torch.autograd.grad(net(x).sum(), x)
            loss = net((x + 0.1 * gradient.sign()).detach()).pow(2).mean()
            loss.backward()
            opt.step()
    """

    code = "GS106"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each statement whose gradients have a graph in vain, and for each that lacks one."""
        if trace.outcome.exception is None:
            for event in _unused(trace).values():
                yield self._in_vain(trace, event)
        yield from self._missing(trace)

    def cleared(self, trace: Trace) -> Iterator[Cleared]:
        """The statements whose gradient a later backward differentiates."""
        for location, (event, later) in _used(trace).items():
            yield self.clear(
                f"{call_text(event)} needs create_graph=True: {call_text(later)} ({later.location}) goes through the "
                "gradient that it gives",
                location,
            )

    def _in_vain(self, trace: Trace, event: Backward) -> Finding:
        dead = _dead_end(trace, event)
        held = next((each.retained for each in memory(trace).passes if each.event is event), 0)
        trains = any(later.time > event.time and later.accumulates for later in trace.backwards)
        here = Place(event.location, Role.CAUSE, "made with a graph of its own here")
        fixes = [Fix("leave create_graph=True out", location=event.location, changes_gradients=False, bytes=held)]
        cycle = ""
        if event.accumulates:
            cycle = "; the gradients in `.grad` and their graph hold each other until `.grad` is set to None"
            fixes.append(Fix("or take the gradients with torch.autograd.grad, which leaves `.grad` alone"))
        if dead is not None and dead.location is not None and trains:
            assigned = kept(trace, dead.location)
            name = f"`{assigned[0]}`" if assigned else "what is computed from it"
            return self.finding(
                f"the gradient of {call_text(event)} has a graph, but no backward goes through {name}: it trains "
                f"nothing{cycle}",
                places=[Place(dead.location, Role.CAUSE, "computed here, and part of no loss"), here],
                fixes=[Fix("add it to the loss that is backpropagated", changes_gradients=True), *fixes],
                call=call_text(event),
                dead=dead.op,
            )
        return self.finding(
            f"{call_text(event)} makes a graph for its gradients, and nothing differentiates them{cycle}",
            places=[here],
            fixes=fixes,
            severity=Severity.WARNING if event.accumulates or trains else Severity.NOTE,
            call=call_text(event),
        )

    def _missing(self, trace: Trace) -> Iterator[Finding]:
        seen: set[Location] = set()
        for location, end in _constants(trace):
            if location not in seen:
                seen.add(location)
                places = [Place(location, Role.CAUSE, "a constant for the parameters: create_graph is missing")]
                if end.location is not None and end.location != location:
                    places.append(Place(end.location, Role.FAILURE, "part of the loss from here on"))
                yield self.finding(
                    "the derivative that is taken here has no history, as create_graph=True is missing: the term of "
                    "the loss that is computed from it does not train what was differentiated",
                    places=places,
                    fixes=[
                        Fix(
                            "take it with torch.autograd.grad(..., create_graph=True)", location, changes_gradients=True
                        )
                    ],
                    severity=Severity.ERROR,
                )


def _creating(trace: Trace) -> Iterator[Backward]:
    """The calls that ask for a graph in so many words; functions of torch that do so inside are their own affair."""
    for event in trace.backwards:
        lines = trace.sources.get(event.location.file, "").splitlines()
        text = "\n".join(lines[event.location.line - 1 : event.location.end_line])
        if event.create_graph and event.ran and event.error is None and "create_graph" in text:
            yield event


def _used(trace: Trace) -> dict[Location, tuple[Backward, Backward]]:
    """The statements that make a graph which a later backward goes through, with that one."""
    creating = list(_creating(trace))
    found: dict[Location, tuple[Backward, Backward]] = {}
    if not creating:
        return found
    graph, engine = trace.graph, Engine(trace.graph, trace.events)
    for event in creating:
        made = {n for n, at in graph.locations.items() if at == event.location and _is_made_by(trace, n, event)}
        for later in trace.backwards:
            if made and later.time > event.time and not made.isdisjoint(engine.runs(later)):
                found.setdefault(event.location, (event, later))
                break
    return found


def _is_made_by(trace: Trace, node: int, event: Backward) -> bool:
    """Whether a node was made while this call ran: just after its time, before that of any other."""
    made = trace.graph.times.get(node)
    return made is not None and event.time < made <= event.time + 1


def _unused(trace: Trace) -> dict[Location, Backward]:
    """The statements none of whose gradients is differentiated."""
    events = list(_creating(trace))
    used = {*_used(trace), *(cut.first.location for cut in second_cuts(trace))} if events else set()
    return {event.location: event for event in events if event.location not in used}


def _dead_end(trace: Trace, event: Backward) -> Call | None:
    """The last call of what is computed from the gradient, if that is a number that nothing takes on."""
    reached = {id for call in trace.calls if call.op == "grad" and call.time == event.time + 1 for id in call.outputs}
    last = None
    for call in trace.calls:
        if call.time > event.time and reached.intersection(call.inputs) and any(call.gives_grad):
            reached.update(call.outputs)
            last = call
    scalar = last is not None and all(trace.graph.tensor(id).shape == () for id in last.outputs)
    return last if scalar else None


def _constants(trace: Trace) -> Iterator[tuple[Location, Call]]:
    """Where derivatives by data are taken that enter a loss as a constant, and the calls by which they do.

    What a network is then applied to (an adversarial example), what weighs a loss, and a number without any history,
    of which another rule tells, is not meant.
    """
    held = {id for optimizer in trace.optimizers if optimizer.id in trace.stepped for id in optimizer.parameters}
    losses = {root.tensor for event in trace.backwards if event.accumulates for root in event.roots}
    by_data = {event.time + 1 for event in trace.backwards if not event.accumulates and _is_by_data(trace, event)}
    reads = deque(_reads(trace, held))
    if not by_data and not reads:
        return
    following = Following(frozenset(held))
    derived: dict[int, Location] = {}
    numbers: set[int] = set()  # of those that came out of ``grad``: without a history they are told by another rule
    for call in trace.calls:
        following.follow(call)
        while reads and reads[0].time < call.time:
            read = reads.popleft()
            if read.grad is not None:
                derived[read.grad] = read.location
        if call.op == "grad":
            if call.time in by_data and call.cuts and call.location and following.alive.keys() & set(call.inputs):
                derived.update(dict.fromkeys(call.outputs, call.location))
                numbers.update(call.outputs)
            continue
        taken = [
            id
            for id, needs in zip(call.inputs, call.needs_grad, strict=False)
            if id in derived and (needs or id not in numbers or trace.graph.tensor(id).shape != ())
        ]
        others = [id for id in call.inputs if id in following.alive and id not in derived]
        weighs = call.op in _PRODUCTS and others and not _is_scaled(trace, taken, others)
        if taken and call.op in _POINTWISE and not weighs:
            derived.update(dict.fromkeys(call.outputs, derived[taken[0]]))
            if taken[0] in numbers:
                numbers.update(call.outputs)
            if losses.intersection(call.outputs) and any(call.gives_grad):
                yield derived[taken[0]], call


def _is_scaled(trace: Trace, derived: list[int], factors: list[int]) -> bool:
    """Whether a field of derivatives is multiplied by a coefficient, one trained number: no weight of a loss."""
    numbers = ((), (1,))
    return all(trace.graph.tensor(id).shape in numbers for id in factors) and any(
        trace.graph.tensor(id).shape not in numbers for id in derived
    )


def _reads(trace: Trace, trained: set[int]) -> Iterator[GradRead]:
    """Where the ``grad`` of data is read, which a backward without ``create_graph`` through trained parameters left."""
    backwards = [event for event in trace.backwards if event.accumulates and event.error is None]
    for read in trace.events:
        if isinstance(read, GradRead) and read.present and not trace.graph.tensor(read.tensor).is_parameter:
            filled = [each for each in backwards if each.time < read.time and read.tensor in trace.reached(each)]
            if filled and not filled[-1].create_graph and not trained.isdisjoint(trace.reached(filled[-1])):
                yield read


def _is_by_data(trace: Trace, event: Backward) -> bool:
    """Whether it is the derivative by something that is no parameter."""
    leaves = trace.graph.leaf_tensors
    return not any(trace.graph.tensor(leaves[n]).is_parameter for n in event.inputs or () if n in leaves)
