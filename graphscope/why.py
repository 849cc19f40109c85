"""Why a tensor gets a gradient from a loss, or gets none: the way, or the statement that cut it."""

from __future__ import annotations

from collections.abc import Iterator

from ._plain import dataclass
from .errors import GraphscopeError
from .events import Call, NonFinite
from .flow import HARD, WAYS_OUT
from .graph import Graph, Root
from .location import Location
from .trace import Fade, Trace

_MOST_TOLD = 6


_ZEROS = {  # by the beginning of the operator's name; "there" is wherever a gradient arrives
    "Relu": "its input is not above zero there",
    "Threshold": "its input is not above the threshold there",
    "Hardtanh": "its input is outside of the bounds there",
    "Hardsigmoid": "its input is outside of the bounds there",
    "Clamp": "its input is outside of the bounds there",
    "Sigmoid": "it is saturated there",
    "Tanh": "it is saturated there",
    "Mul": "the other factor is zero there",
    "MaskedFill": "the mask covers it there",
    "Where": "the condition chooses the other value there",
    "Softmax": "it is saturated there, or the gradient is the same for all of a row, which adds up to one anyway",
}
_POLES = {
    "Sqrt": "its derivative is infinite at zero",
    "Rsqrt": "its derivative is infinite at zero",
    "Log": "its derivative is infinite at zero",
    "Pow": "its derivative is infinite at zero for an exponent below one",
    "Div": "its derivative is infinite for a divisor of zero",
    "Reciprocal": "its derivative is infinite at zero",
    "Acos": "its derivative is infinite at 1 and -1",
    "Asin": "its derivative is infinite at 1 and -1",
    "Atan2": "it has no derivative at (0, 0)",
    "Std": "it has no derivative where all values are equal, or there is one alone",
}


@dataclass(frozen=True, slots=True)
class Why:
    """The answer for one tensor and one loss.

    ``connected`` tells whether backward on the loss reaches the tensor. ``path`` are the ids of the nodes from the
    loss to it; ``cuts`` the calls that cut the way, fewest possible: () where the loss was never computed from the
    tensor. ``before`` is the last call on the way that still has the history of the tensor, ``after`` the first one
    whose result the loss reaches. ``flat`` are the nodes on the path whose gradient is always zero, ``zero`` and
    ``not_finite`` those at which the gradient of this very loss became so, on all its ways to the tensor.
    """

    tensor: str
    loss: str
    connected: bool
    text: str
    path: tuple[int, ...] = ()
    flat: tuple[int, ...] = ()
    cuts: tuple[Call, ...] = ()
    before: Call | None = None
    after: Call | None = None
    zero: tuple[int, ...] = ()
    not_finite: tuple[int, ...] = ()

    @property
    def cut(self) -> Location | None:
        """Where the way is cut, if one statement does it."""
        return self.cuts[0].location if len({call.location for call in self.cuts}) == 1 else None

    def __str__(self) -> str:
        return self.text


def named(trace: Trace, name: str) -> tuple[int, ...]:
    """The tensors of this name: a parameter (``net1.0.weight``), a variable, or all parameters of a module (``net1``).

    Raises GraphscopeError where nothing has it.
    """
    exact = [tensor.id for tensor in trace.tensors if tensor.name == name]
    if exact:
        return (exact[-1],)
    inside = [tensor.id for tensor in trace.tensors if tensor.name and tensor.name.startswith(f"{name}.")]
    if not inside:
        close = sorted({t.name for t in trace.tensors if t.name and name.rpartition(".")[2] in t.name})[:3]
        raise GraphscopeError(
            f"no tensor or module is called {name!r}" + (f": did you mean {', '.join(close)}?" if close else "")
        )
    return tuple(inside)


def explain(trace: Trace, target: Root, root: Root) -> Why:
    """The answer for a tensor (its own root: its node, or its AccumulateGrad) and a loss."""
    graph = trace.graph
    if _is_reached(graph, target, root):
        assert root.node is not None and target.node is not None
        path = graph.path(root.node, target.node)
        stops = graph.reachable([root.node], stops=graph.flat)
        flat = () if target.node in stops else tuple(id for id in path if id in graph.flat)
        fades = faded(trace, target, root)
        remarks = [_always_zero(graph, flat[0])] if flat else []
        remarks += [_fading(graph, target, each) for each in fades if each.node not in flat]
        text = _way(graph, target, root, path, remarks)
        bad = tuple(each.node for each in fades if each.kind == "not finite")
        zero = tuple(each.node for each in fades if each.kind != "not finite")
        return Why(target.name, root.name, True, text, path, flat, zero=zero, not_finite=bad)
    way = _fewest_cuts(trace, target.tensor, root.tensor)
    cuts = tuple(call for call, cut in way if cut)
    first = next((n for n, (_, cut) in enumerate(way) if cut), len(way))
    last = max((n for n, (_, cut) in enumerate(way) if cut), default=-1)
    before = way[first - 1][0] if 0 < first < len(way) else None
    after = next((call for call, _ in way[last + 1 :] if any(call.gives_grad)), None) if cuts else None
    text = "\n".join(_told(trace, target, root, cuts, before, after))
    return Why(target.name, root.name, False, text, cuts=cuts, before=before, after=after)


def answers(trace: Trace, name: str) -> tuple[Why, ...]:
    """The answers for a name and every loss that was backpropagated; a loss in a loop is asked about once,
    for the first pass in which the gradient faded, if there is one."""
    losses: dict[tuple[str, Location], list[Root]] = {}
    for event in trace.backwards:
        for root in event.roots if event.accumulates else ():
            losses.setdefault((root.name, event.location), []).append(root)
    targets = [root_of(trace, id) for id in named(trace, name)]
    pairs = [(target, same) for target in targets for same in losses.values()]
    return tuple(explain(trace, target, _telling(trace, target, same)) for target, same in pairs)


def _telling(trace: Trace, target: Root, same: list[Root]) -> Root:
    """Of the passes of one loss, the first in which the gradient faded, if there is one, else the first."""
    return next((root for root in same if faded(trace, target, root)), same[0])


def root_of(trace: Trace, tensor: int) -> Root:
    """A tensor as a root: with its node, or that of its AccumulateGrad."""
    ref = trace.graph.tensor(tensor)
    leaf = next((id for id, number in trace.graph.leaf_tensors.items() if number == tensor), None)
    return Root(ref.name or str(ref), ref.node if leaf is None else leaf, tensor)


def _is_reached(graph: Graph, target: Root, root: Root) -> bool:
    if root.node is None or target.node is None:
        return False
    if root.node == target.node:
        return root.output == target.output
    if graph.ops[target.node] == "AccumulateGrad":
        return target.node in graph.reachable([root.node])
    edge = (target.node, target.output)
    return any(edge in graph.targets[id] for id in graph.reachable([root.node]))


_Way = tuple["_Way", Call, bool] | None  # what came before, a call, whether it cuts


def _fewest_cuts(trace: Trace, source: int, loss: int) -> list[tuple[Call, bool]]:
    """The calls from a tensor to a loss on a way with the fewest cuts, each with whether it is one; [] if none leads.

    A call on values that have no history any more would cut all the same if it has no gradient by its nature.
    """
    best: dict[int, tuple[int, _Way]] = {source: (0, None)}
    left: dict[int, tuple[int, _Way]] = {}
    for call in trace.calls:
        arriving = [best[id] for id in call.inputs if id in best] + [left[id] for id in call.returned if id in left]
        if not arriving:
            continue
        cost, way = min(arriving, key=lambda each: each[0])
        if call.leaves:
            for id in call.inputs:
                if id in best and (id not in left or best[id][0] < left[id][0]):
                    left[id] = _onward(best[id], call, cut=True)
        for output, gives in zip(call.outputs, call.gives_grad or (False,) * len(call.outputs), strict=True):
            cut = _cuts(call, gives, alive=cost == 0)
            onward = _onward((cost, way), call, cut=cut)
            if output not in best or onward[0] < best[output][0] or call.op == "detach_":
                best[output] = onward
    return list(_unwound(best[loss][1])) if loss in best else []


def _cuts(call: Call, gives: bool, *, alive: bool) -> bool:
    """Whether the history of an input is lost in this output; an array that comes back was cut when it left."""
    if call.grad_mode != "enabled":
        return True
    if gives or (call.enters and not call.inputs):
        return False
    return alive or call.op in HARD or call.op in WAYS_OUT


def _onward(from_: tuple[int, _Way], call: Call, *, cut: bool) -> tuple[int, _Way]:
    cost, way = from_
    before = next((each for each, was_cut in _unwound_back(way) if was_cut), None) if cut else None
    same = before is not None and before.location == call.location
    return cost + (cut and not same), (way, call, cut)


def _unwound_back(way: _Way) -> Iterator[tuple[Call, bool]]:
    while way is not None:
        way, call, cut = way
        yield call, cut


def _unwound(way: _Way) -> list[tuple[Call, bool]]:
    return list(_unwound_back(way))[::-1]


def faded(trace: Trace, target: Root, root: Root) -> tuple[Fade, ...]:
    """Where the gradient of a loss became zero, NaN or infinite on its way to a tensor, as far as that was asked.

    Where nobody asked before the backward, an optimizer's step on gradients that are not finite tells of those.
    """
    end = (root.node, target.node, target.output)
    found = tuple(each for each in trace.fades if (each.root, each.end, each.output) == end)
    if found or root.node is None or target.node is None:
        return found
    behind = trace.graph.reachable([root.node])
    steps = (e for e in trace.events if isinstance(e, NonFinite) and target.tensor in e.tensors and e.node in behind)
    made = {e.node for e in steps if e.node is not None and target.node in trace.graph.reachable([e.node])}
    return tuple(Fade(root.node, target.node, target.output, node, "not finite") for node in sorted(made))


def _way(graph: Graph, target: Root, root: Root, path: tuple[int, ...], remarks: list[str]) -> str:
    steps = [f"  {_node(graph, id)}" for id in path[:-1]]
    if len(steps) > 2 * _MOST_TOLD:
        left_out = len(steps) - 2 * _MOST_TOLD
        steps = [*steps[:_MOST_TOLD], f"  ... {left_out} more ...", *steps[-_MOST_TOLD:]]
    head = f"`{target.name}` gets a gradient from `{root.name}`"
    if not steps:
        return "\n".join([f"`{target.name}` is `{root.name}` itself, or its gradient comes at once", *remarks])
    return "\n".join([head, *remarks, "by way of", *steps] if remarks else [f"{head}, by way of", *steps])


def _always_zero(graph: Graph, node: int) -> str:
    return f"  but it is zero always: {_node(graph, node)} is flat between its jumps, and every way leads there"


def _fading(graph: Graph, target: Root, fade: Fade) -> str:
    node = f"`{target.name}`" if fade.node == target.node else _node(graph, fade.node)
    if fade.kind == "alone":
        return f"  but it is zero everywhere, from {node} on: it is taken over a single number, and is always the same"
    if fade.kind == "cancelled":
        return f"  but it is zero everywhere: what comes together at {node} adds up to zero"
    if fade.kind == "zero":
        return f"  but it is zero everywhere, from {node} on{_because(_ZEROS, graph, fade)}"
    return f"  but it is not finite, from {node} on{_because(_POLES, graph, fade)}"


def _because(reasons: dict[str, str], graph: Graph, fade: Fade) -> str:
    label = graph.node(fade.node).label
    kind = max((each for each in reasons if label.startswith(each)), key=len, default=None)
    return "" if kind is None else f": {reasons[kind]}"


def _node(graph: Graph, id: int) -> str:
    node = graph.node(id)
    where = f" ({node.location})" if node.location else ""
    return f"{node.op}{where}" + (f" in {node.module}" if node.module else "")


def _told(
    trace: Trace, target: Root, root: Root, cuts: tuple[Call, ...], before: Call | None, after: Call | None
) -> Iterator[str]:
    ref = trace.graph.tensor(target.tensor)
    if root.node is None:
        yield f"`{root.name}` has no graph: nothing gets a gradient from it"
    if not ref.requires_grad and ref.is_leaf:
        yield f"`{target.name}` does not require grad, so no loss gives it a gradient: it is frozen, or plain data"
        return
    if not cuts:
        yield from _unused(trace, target, root)
        return
    where = {call.location: None for call in cuts}
    many = f"; {len(where)} statements cut it, one after the other" if len(where) > 1 else ""
    yield f"`{target.name}` gets no gradient from `{root.name}`, although it was computed from it{many}"
    if before is not None and before not in cuts:
        yield f"  from `{target.name}` its history goes as far as `{before.op}`{_at(before)}"
    for call in cuts[:_MOST_TOLD]:
        yield f"  {what_cut(call)}{_at(call)}"
        if call.mode_at is not None:
            yield f"  gradients are switched off at {call.mode_at}"
    if after is not None:
        yield f"  from `{root.name}` the graph goes back as far as `{after.op}`{_at(after)}"


def _unused(trace: Trace, target: Root, root: Root) -> Iterator[str]:
    if not trace.calls:
        yield f"`{root.name}` does not reach `{target.name}`: the graph has no way from one to the other"
        yield "  which statement cut it, if any did, is known where the calls are watched: put the step into "
        yield "  `with graphscope.watch():`, or run the script under `graphscope inspect --why NAME`"
        return
    yield f"`{root.name}` never uses `{target.name}`: no call leads from it to this loss"
    users = [call for call in trace.calls if target.tensor in call.inputs and call.outputs]
    if users:
        yield f"  it is used by `{users[-1].op}`{_at(users[-1])} last, and that does not lead to `{root.name}`"
    else:
        yield "  nothing that was watched uses it"


def what_cut(call: Call) -> str:
    """How a call cuts the gradient, in words."""
    if call.leaves:
        return f"`{call.op}` takes the value out of torch here: no gradient comes back through it"
    if call.grad_mode != "enabled":
        mode = "torch.inference_mode()" if call.grad_mode == "inference" else "torch.no_grad()"
        return f"`{call.op}` runs under {mode} here: it records no history"
    if call.op == "grad":
        return "torch.autograd.grad gives gradients without a history here, as create_graph=True is missing"
    if call.op in WAYS_OUT:
        return f"`{call.op}` drops the history here"
    if call.is_frozen:
        return f"what `{call.op}` is given is frozen here: it records no history"
    return f"`{call.op}` has no gradient: the history ends here"


def _at(call: Call) -> str:
    return f", {call.location}" if call.location is not None else ""
