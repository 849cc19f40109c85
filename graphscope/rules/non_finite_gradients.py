"""GS309: an optimizer steps on gradients that contain NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import Backward, NonFinite
from ..findings import Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Trace
from ._lifetime import call_text
from ._parameters import listed

_EPSILON = "keep its argument away from zero: clamp it, or add a small epsilon inside"
_CURES = {
    "Sqrt": _EPSILON,
    "Rsqrt": _EPSILON,
    "Pow": _EPSILON,
    "Log": _EPSILON,
    "Div": "keep the divisor away from zero: clamp it, or add a small epsilon",
    "Reciprocal": "keep the divisor away from zero: clamp it, or add a small epsilon",
    "Acos": "clamp its argument to within (-1, 1): torch.clamp(x, -1 + 1e-6, 1 - 1e-6)",
    "Asin": "clamp its argument to within (-1, 1): torch.clamp(x, -1 + 1e-6, 1 - 1e-6)",
    "Atan2": "add a small epsilon: the angle of (0, 0) has no derivative",
    "Std": "leave out batches of one sample, or pass correction=0; for equal samples use sqrt(var + eps)",
    "Var": "leave out batches of one sample, or pass correction=0",
    "Softmax": "leave at least one position of each row unmasked",
    "LogSoftmax": "leave at least one position of each row unmasked",
    "Exp": "subtract the largest value before, or clamp the argument: the result overflows",
}
_HALF = (
    "float16 ends at 65504: compute this in float32 (x.float()) or bfloat16, or scale what goes in; for gradients that "
    "overflow, a torch.amp.GradScaler leaves the step out and scales less"
)
_MASKED = (
    "; torch.where and a product with a mask do not help after it, as zero times infinity is NaN: "
    "put the safe value in before"
)

_HIDDEN = "; to leave its result out afterwards does not help, as zero times NaN is NaN: put a safe value in before"


class NonFiniteGradients(Rule):
    """An optimizer steps on gradients that contain NaN or infinity.

    One such number in ``grad`` makes the weight NaN, and with the next forward everything. Often the loss is finite:
    the value at a corner is fine, its derivative is not. ``sqrt`` and the norm written with it at zero, ``log(0)``,
    ``x / x`` at zero, ``acos(1)``, and all of these under a ``torch.where`` that takes the other branch. A step that a
    GradScaler leaves out, or that the program skips, is none.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.ones(2, 4)
        with graphscope.watch() as report:
            difference = net(x) - net(x.clone())
            distance = difference.pow(2).sum(1).sqrt()  # GS309
            distance.pow(2).mean().backward()
            opt.step()

    Bad: the standard deviation of one sample::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for batch in torch.randn(5, 4).split(2):
                spread = net(batch).std(0)  # GS309
                spread.mean().backward()
                opt.step()
                opt.zero_grad()

    Bad: float16 ends at 65504::

        import torch, graphscope

        query, key = torch.nn.Linear(4, 64), torch.nn.Linear(4, 64)
        opt = torch.optim.SGD([*query.parameters(), *key.parameters()], lr=0.1)
        x = 1000 * torch.ones(3, 4)
        with graphscope.watch() as report:
            with torch.autocast("cpu", dtype=torch.float16):
                scores = query(x) @ query(x).T  # GS309
                loss = (scores.softmax(1) @ key(x)).mean()
            loss.backward()
            opt.step()

    Bad: the data is not finite::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.tensor([[1.0, 2.0, float("nan"), 4.0]])
        with graphscope.watch() as report:
            prediction = net(x)  # GS309
            prediction.pow(2).mean().backward()
            opt.step()

    Bad: a row that is masked altogether, and left out of the loss afterwards::

        import torch, graphscope

        score, head = torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
        opt = torch.optim.SGD([*score.parameters(), *head.parameters()], lr=0.1)
        x = torch.ones(3, 5, 4)
        mask = torch.arange(5) < torch.tensor([[4], [0], [2]])
        with graphscope.watch() as report:
            scores = score(x).squeeze(2).masked_fill(~mask, float("-inf"))
            weights = scores.softmax(1)  # GS309
            out = head((weights.unsqueeze(2) * x).sum(1))
            losses = torch.nn.functional.cross_entropy(out, torch.tensor([0, 1, 1]), reduction="none")
            losses[mask.any(1)].mean().backward()
            opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x = torch.ones(2, 4)
        with graphscope.watch() as report:
            difference = net(x) - net(x.clone())
            distance = (difference.pow(2).sum(1) + 1e-12).sqrt()
            distance.pow(2).mean().backward()
            opt.step()
            opt.zero_grad()
            loss = net(x).log().mean()
            if torch.isfinite(loss):
                loss.backward()
                opt.step()

    Good, as its derivative is finite where its result is NaN::

        import torch, graphscope

        net = torch.nn.Linear(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            out = net(torch.ones(2, 4))
            loss = torch.where(out.detach() > 0, out.log(), out).mean()
            loss.backward()
            opt.step()
    """

    code = "GS309"
    severity = Severity.ERROR

    def check(self, trace: Trace) -> Iterator[Finding]:
        """An error for the first such step: what comes after it is NaN because of it."""
        events = [event for event in trace.events if isinstance(event, NonFinite)]
        if not events:
            return
        first = next((event for event in events if event.node is not None and event.step == events[0].step), events[0])
        backward = max(
            (e for e in trace.backwards if e.accumulates and e.time < first.time), key=lambda e: e.time, default=None
        )
        yield self._finding(trace, first, backward, len(events))

    def _finding(self, trace: Trace, event: NonFinite, backward: Backward | None, steps: int) -> Finding:
        name = trace.optimizers[event.optimizer].name
        numbers = "NaN" if event.has_nan else "infinity"
        places = [Place(event.location, Role.FAILURE, f"`{name}` steps on them here")]
        if backward is not None:
            places.insert(0, Place(backward.location, Role.RELATED, f"{call_text(backward)} gives {numbers}"))
        made, fix, at = "it was not seen which operation made them first", None, event.location
        op = None
        if event.node is not None:
            node = trace.graph.node(event.node)
            op = node.label
            module = f" in {node.module}" if node.module else ""
            if node.is_leaf:
                made, fix = _broken(trace, event, places)
            elif event.hidden:
                what = f"the data that `{op}`{module} is given" if event.given else f"the result of `{op}`{module}"
                made = f"{what} is NaN in the forward already; the loss leaves that out, its gradients do not"
            elif event.given:
                made = f"the loss is not finite either: the data that `{op}`{module} is given is not"
                fix = (
                    "look at the data: assert torch.isfinite(x).all() where it is loaded, and drop or fill what is not"
                )
            elif event.in_forward:
                made = f"the loss is not finite either: `{op}`{module} is the first operation whose result is not"
            else:
                made = f"`{op}`{module} is the first whose derivative is not finite, where its result may well be"
            if _is_half(trace, event.node):
                fix = fix or _HALF
            fix = fix or _cure(op, in_forward=event.in_forward)
            if event.hidden and fix is not None:
                fix += _HIDDEN
            if node.location is not None:
                at = node.location
                places.insert(0, Place(at, Role.CAUSE, f"`{op}` makes the first {numbers} here"))
        fix = fix or "look for the operation with torch.autograd.set_detect_anomaly(True)"
        return self.finding(
            f"`{name}` steps on gradients that contain {numbers}, first at step {event.step + 1}, in "
            f"{listed(trace, event.tensors)}: {made}",
            places=places,
            fixes=[Fix(fix, at, changes_gradients=True)],
            optimizer=name,
            op=op,
            step=event.step,
            steps=steps,
            nodes=() if event.node is None else (event.node,),
        )


def _broken(trace: Trace, event: NonFinite, places: list[Place]) -> tuple[str, str]:
    """How a parameter had become such a number before this backward, and what to do."""
    assert event.node is not None
    id = trace.graph.leaf_tensors[event.node]
    tensor = trace.graph.tensor(id)
    before = [step for step in trace.steps if step.time < event.time and id in step.graded]
    if not before:
        if tensor.made_at is not None:
            places.insert(0, Place(tensor.made_at, Role.CAUSE, "made here"))
        return f"`{tensor}` holds such a number itself, and no step has changed it yet", "give it initial values"
    optimizer = trace.optimizers[before[-1].optimizer]
    if optimizer.location is not None:
        places.insert(0, Place(optimizer.location, Role.CAUSE, f"`{optimizer.name}` is made here"))
    made = f"`{tensor}` holds such a number since the step before, whose gradients were finite"
    if _is_half(trace, event.node):
        cure = (
            "keep the weights in float32 and use torch.autocast: in float16 the eps of an optimizer like Adam (1e-8) "
            "is zero, and zero by zero is NaN"
        )
        return f"{made}: the update itself cannot be computed in float16", cure
    return f"{made}: the step was too long", "use a smaller learning rate, or clip the gradients"


def _is_half(trace: Trace, node: int) -> bool:
    """Whether an operation gives, or its backward gives on, float16 numbers, which end at 65504."""
    behind = [node, *(target for target, _ in trace.graph.targets[node] if target >= 0)]
    return any(meta.dtype == "float16" for each in behind for meta in trace.graph.outputs[each])


def _cure(op: str, *, in_forward: bool) -> str | None:
    kind = max((kind for kind in _CURES if op.startswith(kind)), key=len, default=None)
    if kind is None:
        return None
    return _CURES[kind] + ("" if in_forward else _MASKED)
