"""GS222: an optimizer steps on gradients that are exactly zero, as they vanish on their way."""

from __future__ import annotations

from collections.abc import Iterator

from ..events import OptimizerStep
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..rule import Rule
from ..trace import Fade, OptimizerRef, Trace

_FEWEST = 3  # steps in a row, up to the last one recorded
_ACTIVATIONS = ("Relu", "Threshold", "Hardtanh", "Hardsigmoid", "Hardswish", "Clamp", "Sigmoid", "Tanh", "Elu", "Gelu")
# Between a hinge and its loss there is nothing but sums and weights: what one of these follows is an activation.
_LAYERS = ("Addmm", "Mm", "Mv", "Bmm", "Baddbmm", "Dot", "Convolution", "NativeLayerNorm", "NativeBatchNorm")
_LOSSES = ("MseLoss", "SmoothL1Loss", "HuberLoss", "BinaryCrossEntropy", "NllLoss", "LogSoftmax", "Softmax")
_BOUNDED = ("Hardtanh", "Hardsigmoid", "Clamp", "Sigmoid", "Tanh")


class VanishedGradient(Rule):
    """An optimizer steps on gradients that are exactly zero, at each of its last steps: nothing learns.

    The graph is whole, every parameter has a ``grad``, and all its numbers are zero. A softmax over a dimension of size
    one gives 1 whatever it is given (``CrossEntropyLoss`` on a network with one output, attention over one key); a
    ReLU none of whose inputs is above zero, or a tanh far from zero, passes nothing on. It is a note where it may be
    meant: a hinge that is satisfied, a term whose weight is zero.

    Bad::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.rand(16, 4), torch.zeros(16, dtype=torch.long)
        with graphscope.watch() as report:
            for _ in range(5):
                loss = torch.nn.functional.cross_entropy(net(x), y)  # GS222
                opt.zero_grad()
                loss.backward()
                opt.step()

    Bad: what comes out is to be negative, and a ReLU ends the network::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        torch.nn.init.constant_(net.bias, -5.0)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.rand(16, 4), -torch.ones(16, 1)
        with graphscope.watch() as report:
            for _ in range(5):
                out = torch.relu(net(x))  # GS222
                loss = torch.nn.functional.mse_loss(out, y)
                opt.zero_grad()
                loss.backward()
                opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        x, y = torch.rand(16, 4), torch.zeros(16, 1)
        with graphscope.watch() as report:
            for _ in range(5):
                loss = torch.nn.functional.binary_cross_entropy_with_logits(net(x), y)
                opt.zero_grad()
                loss.backward()
                opt.step()

    Good, as this margin is kept already::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        torch.nn.init.constant_(net.bias, 9.0)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            for _ in range(5):
                opt.zero_grad()
                torch.relu(1 - net(torch.rand(16, 4))).mean().backward()
                opt.step()
    """

    code = "GS222"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A finding for each optimizer whose last steps were on zeros, with the operation that made them so."""
        for optimizer in trace.optimizers:
            steps = [step for step in trace.steps if step.optimizer == optimizer.id and step.ran]
            count = next((n for n, step in enumerate(reversed(steps)) if not step.zero), len(steps))
            if count >= _FEWEST and (fades := _fades(trace, steps[-1])):
                yield self._finding(trace, optimizer, steps[-count:], fades)

    def _finding(self, trace: Trace, optimizer: OptimizerRef, steps: list[OptimizerStep], fades: list[Fade]) -> Finding:
        last = {fade.node: fade for fade in fades}
        kinds = {id: _kind(trace, fade) for id, fade in last.items()}
        is_fault = all(kinds.values())
        places = []
        for id in last:
            node = trace.graph.node(id)
            if node.location is not None:
                places.append(Place(node.location, Role.CAUSE, f"zero from `{node.label}` on"))
            if kinds[id] == "alone" and (made := _made_before(trace, id)) is not None:
                places.append(made)
        places.append(Place(steps[-1].location, Role.FAILURE, f"`{optimizer.name}` steps on zeros here"))
        ops = " and ".join(dict.fromkeys(f"`{trace.graph.node(id).label}`" for id in last))
        alone = "alone" in kinds.values()
        if alone:
            why = "it is taken over a dimension of size one, where it is constant"
            fix = (
                "for a single output take binary_cross_entropy_with_logits; for cross_entropy give the last layer one "
                "output for each class; or name the dimension (dim) that has more than one entry"
            )
        elif is_fault and all(kind == "bounded" for kind in kinds.values()):
            why = "all that goes in is where it is flat"
            fix = (
                "scale down what goes in (initial values, normalised data, a smaller learning rate), or compute the "
                "loss from what goes in, and bound that afterwards"
            )
        elif is_fault:
            why = "nothing that goes in is above zero"
            fix = (
                "leave it out after the last layer; between layers use LeakyReLU, a smaller learning rate or other "
                "initial values"
            )
        else:
            why = "right where this is a margin that is kept, or a weight of zero"
            fix = "ask graphscope.why(parameter, loss), or inspect --why, for the way of the gradient"
        return self.finding(
            f"all gradients that `{optimizer.name}` steps on are exactly zero, at each of its last {len(steps)} "
            f"recorded steps: they vanish at {ops}; {why}",
            places=places,
            fixes=[Fix(fix, location=places[0].location, changes_gradients=is_fault)],
            severity=Severity.WARNING if is_fault else Severity.NOTE,
            confidence=Confidence.CERTAIN if alone or not is_fault else Confidence.LIKELY,
            nodes=tuple(last),
            optimizer=optimizer.name,
            steps=len(steps),
        )


def _fades(trace: Trace, step: OptimizerStep) -> list[Fade]:
    """Where the gradients of this step vanished, if that is known of each parameter; none where a staircase did it."""
    leaves = trace.graph.leaf_tensors
    found = [fade for fade in trace.fades if fade.kind != "not finite" and leaves.get(fade.end) in step.graded]
    explained = {leaves[fade.end] for fade in found}
    if explained != set(step.graded) or any(fade.node in trace.graph.flat for fade in found):
        return []
    return found


def _kind(trace: Trace, fade: Fade) -> str | None:
    """``"alone"``, ``"bounded"`` or ``"relu"`` where no gradient was to vanish; None where that may be meant."""
    if fade.kind != "zero":
        return "alone" if fade.kind == "alone" else None
    if not trace.graph.node(fade.node).label.startswith(_ACTIVATIONS):
        return None
    between = [trace.graph.node(id).label for id in trace.graph.path(fade.root, fade.node)[:-1]]
    if not any(label.startswith((*_LAYERS, *_LOSSES)) for label in between):
        return None
    return "bounded" if trace.graph.node(fade.node).label.startswith(_BOUNDED) else "relu"


def _made_before(trace: Trace, node: int) -> Place | None:
    """Where the layer was made whose result a node is given."""
    graph, seen = trace.graph, [node]
    for each in seen:
        if each in graph.leaf_tensors:
            birth = graph.tensor(graph.leaf_tensors[each]).birth
            return None if birth is None else Place(birth.location, Role.RELATED, "the layer before it is made here")
        seen += [target for target, _ in graph.targets[each] if target >= 0 and target not in seen]
    return None
