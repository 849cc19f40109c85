"""The terms that a loss is the sum of: one that trains nothing hides behind those that do."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ._plain import dataclass
from .events import Backward, Call, GradRead, OptimizerStep, ZeroGrad
from .trace import Trace

_SUMS = frozenset(
    {"add", "add_", "__add__", "__radd__", "__iadd__", "sub", "sub_", "rsub", "__sub__", "__rsub__", "__isub__"}
)
_LISTS = frozenset({"stack", "cat", "hstack", "concat"})
_REDUCTIONS = frozenset({"sum", "mean", "nansum", "nanmean"})
_SCALINGS = frozenset(
    {"mul", "mul_", "__mul__", "__rmul__", "__imul__", "div", "div_", "__truediv__", "__itruediv__", "true_divide"}
    | {"neg", "negative", "__neg__", "clone", "contiguous", "squeeze", "to", "float", "double", "view", "reshape"}
)


@dataclass(frozen=True, slots=True)
class Term:
    """A scalar that is added to what becomes a loss: which tensor, by which call, and whether it has a history.

    ``tensor`` is None for a Python number, which is then ``number``. ``loss`` is the tensor that is backpropagated.
    """

    tensor: int | None
    call: Call
    loss: int
    alive: bool
    number: float | None = None


def terms(trace: Trace) -> tuple[Term, ...]:
    """The terms of all losses, in order of time: what is added, also from lists, and also after a scaling."""
    wanted = {
        root.tensor: root.tensor
        for event in trace.backwards
        if event.accumulates
        for root in event.roots
        if root.node is not None  # a loss that trains nothing at all is refused as a whole
    }
    found: list[Term] = []
    for call in reversed(trace.calls):
        for output in call.outputs:
            if output in wanted:
                found += _behind(trace, call, output, wanted)
    return tuple(reversed(found))


def _behind(trace: Trace, call: Call, output: int, wanted: dict[int, int]) -> Iterator[Term]:
    """The terms that this call adds up, if it does; what has terms of its own is wanted next."""
    loss = wanted[output]
    is_list = call.op in _LISTS and all(trace.graph.tensor(id).shape in ((), (1,)) for id in call.inputs)
    alive = dict(zip(call.inputs, call.needs_grad, strict=False))
    if output not in call.inputs:
        del wanted[output]
    if is_list or (call.op in _SUMS and _is_scalar(trace, output)):
        for id, needs in alive.items():
            if id != output:
                yield Term(id, call, loss, needs)
            if needs:
                wanted[id] = loss
        if any(alive.values()) and not is_list:
            yield from (Term(None, call, loss, False, number) for number in call.numbers[:1])
    elif call.op in _REDUCTIONS or (call.op in _SCALINGS and _is_scalar(trace, output)):
        through = [id for id, needs in alive.items() if needs]
        if len(through) == 1 and len(trace.graph.tensor(through[0]).shape) <= 1:
            wanted[through[0]] = loss


def _is_scalar(trace: Trace, tensor: int) -> bool:
    return trace.graph.tensor(tensor).shape in ((), (1,))


def wasted(trace: Trace) -> Iterator[tuple[Term, Backward, tuple[int, ...]]]:
    """The terms of which every gradient was thrown away each time, with the first backward and the leaves they reach.

    A gradient is thrown away if its leaf is in no optimizer and nobody reads it, or is zeroed before the step.
    """
    backwards = {root.tensor: event for event in trace.backwards if event.accumulates for root in event.roots}
    lost: dict[object, tuple[Term, Backward, tuple[int, ...]]] = {}
    useful: set[object] = set()
    fate = Fate(trace)
    for term in terms(trace):
        event = backwards[term.loss]
        if not term.alive or term.tensor is None or not event.ran or event.error or event.inputs is not None:
            continue
        tensor = trace.graph.tensor(term.tensor)
        node = tensor.node
        if node is None and not tensor.is_leaf:
            continue
        leaves = frozenset((tensor.id,)) if node is None else trace.graph.reached_tensors([node])
        made = tensor.made_at if node is None else (trace.graph.locations.get(node), trace.graph.ops[node])
        key = (term.call.location, made)
        if leaves and all(fate.of(leaf, event.time) == "discarded" for leaf in leaves):
            lost.setdefault(key, (term, event, tuple(sorted(leaves))))
        else:
            useful.add(key)
    yield from (each for key, each in lost.items() if key not in useful)


class Fate:
    """What becomes of the gradients of each leaf."""

    def __init__(self, trace: Trace) -> None:
        self._held = {id for optimizer in trace.optimizers for id in optimizer.parameters}
        self._read = {event.tensor for event in trace.events if isinstance(event, GradRead) and event.present}
        self._tensors = trace.tensors
        self._next: dict[int, list[tuple[int, bool]]] = {}  # by leaf: when it was zeroed, or (True) stepped on
        for event in trace.events:
            match event:
                case ZeroGrad(tensors=tensors):
                    self._note(tensors, event.time, used=False)
                case OptimizerStep(optimizer=optimizer):
                    self._note(trace.optimizers[optimizer].parameters, event.time, used=True)
                case _:
                    pass

    def _note(self, tensors: Collection[int], time: int, *, used: bool) -> None:
        for id in tensors:
            self._next.setdefault(id, []).append((time, used))

    def of(self, leaf: int, time: int) -> str:
        """Whether a gradient that arrives at this time is ``"used"`` or ``"discarded"``.

        ``"unknown"`` where the recording ends before; ``"late"`` if the optimizer of the leaf has made all its steps.
        """
        if leaf not in self._held:
            tensor = self._tensors[leaf]
            is_nobodys = (tensor.is_parameter or tensor.made_at is not None) and leaf not in self._read
            return "discarded" if is_nobodys else "unknown"
        noted = self._next.get(leaf, [])
        after = next((used for at, used in noted if at > time), None)
        if after is None:
            return "late" if any(used for _, used in noted) else "unknown"
        return "used" if after else "discarded"
