"""Which parameters never learn, and how to say so: shared by the rules about unreached parameters."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from ..events import Backward, Call, InPlaceWrite, OptimizerStep, RequiresGradSet
from ..findings import Place, Role
from ..flow import Cut, cuts, follow
from ..location import Location
from ..trace import OptimizerRef, Trace
from ..why import what_cut
from ._aliases import Aliases
from ._second_order import second_cuts
from ._source import is_rebound, is_shown

CHECKPOINT_CUTS = (
    "; a reentrant checkpoint records no history where none of the tensors that it is given as arguments of their own "
    "requires grad",
    "pass use_reentrant=False to the checkpoint, which also follows what it reads in dicts, lists and modules",
)

_MOST_NAMES = 6
_CHECKPOINT = re.compile(r"\bcheckpoint(_sequential)?\(")


def ungraded(trace: Trace, optimizer: OptimizerRef) -> tuple[int, ...]:
    """The optimizer's trainable parameters that no backward reached, and that had no ``grad`` at any of its steps.

    () if it never stepped. One that was frozen at some step is left out: someone meant it not to train. So is one
    beside others that the program itself keeps up with what trains: the moving average of a target network. And one
    that a second derivative does not reach for the backward of a hand-written Function, which is told of by itself.
    """
    steps = [step for step in trace.steps if step.optimizer == optimizer.id]
    frozen = frozenset(id for step in steps for id in step.frozen)
    known = trace.ever_reached.union(frozen, *(step.graded for step in steps))
    trainable = [id for id in optimizer.parameters if steps and trace.graph.tensor(id).requires_grad]
    lost = tuple(id for id in trainable if id not in known)
    followers = _followers(trace, lost) if 0 < len(lost) < len(trainable) else frozenset()
    victims = {id for each in second_cuts(trace) for id in each.victims} if lost else frozenset()
    return tuple(id for id in lost if id not in followers and id not in victims)


def _followers(trace: Trace, parameters: Collection[int]) -> frozenset[int]:
    """Those of these parameters that are overwritten, once there are gradients, from ones that an optimizer trains."""
    first = min((event.time for event in trace.backwards if event.accumulates), default=None)
    if first is None:
        return frozenset()
    aliases = Aliases(trace)
    following = follow(trace, trace.ever_reached & _held(trace))
    writes = [(id, set(call.inputs) - {id}, call.time) for call in trace.calls for id in _overwritten(call)]
    writes += [
        (event.write.tensor, {event.write.source}, event.time)
        for event in trace.events
        if isinstance(event, InPlaceWrite) and event.write.source is not None
    ]
    return frozenset(
        root
        for id, sources, time in writes
        if time > first
        and (root := aliases.root(id)) in parameters
        and any(source in following.alive or source in following.dead for source in sources)
    )


def _overwritten(call: Call) -> set[int]:
    return set(call.outputs).intersection(call.inputs)


def _held(trace: Trace) -> frozenset[int]:
    return frozenset(id for optimizer in trace.optimizers for id in optimizer.parameters)


def is_all_frozen(trace: Trace, optimizer: OptimizerRef) -> bool:
    """Whether none of an optimizer's parameters required grad, or had one, at any of its steps."""
    steps = [step for step in trace.steps if step.optimizer == optimizer.id]
    held = frozenset(optimizer.parameters)
    return bool(steps) and all(step.ran and not step.graded and held <= frozenset(step.frozen) for step in steps)


def frozen_places(trace: Trace, parameters: Collection[int]) -> list[Place]:
    """The statements that froze some of these parameters last."""
    last: dict[int, RequiresGradSet] = {}
    for event in trace.events:
        if isinstance(event, RequiresGradSet):
            last.update((id, event) for id in event.tensors if id in parameters)
    frozen = {(event.location, event.callers[:1]): None for event in last.values() if not event.value}
    places = [Place(location, Role.CAUSE, "frozen here") for location, _ in frozen]
    places += [Place(each, Role.CAUSE, "frozen in what is called here") for _, callers in frozen for each in callers]
    first = {place.location: place for place in reversed(places)}  # one of a recursion comes once
    return [place for place in places if first[place.location] is place]


def losses(trace: Trace) -> frozenset[int]:
    """The tensors that were backpropagated."""
    return frozenset(root.tensor for event in trace.backwards if event.accumulates for root in event.roots)


def _own_losses(trace: Trace, optimizer: OptimizerRef) -> frozenset[int]:
    """What was backpropagated last before each step of an optimizer."""
    last: Backward | None = None
    found: set[int] = set()
    for event in trace.events:
        match event:
            case Backward(accumulates=True):
                last = event
            case OptimizerStep(optimizer=stepped) if stepped == optimizer.id and last is not None:
                found.update(root.tensor for root in last.roots)
            case _:
                pass
    return frozenset(found)


def explaining_cuts(
    trace: Trace, parameters: Collection[int], optimizer: OptimizerRef | None = None
) -> tuple[Cut, ...]:
    """Where the gradient of these parameters stops on its way from the losses, one for each statement.

    If it is on the way from those right before the steps of the optimizer, the losses of others are left aside: a
    critic's is kept from the generator on purpose.
    """
    found = cuts(trace, parameters, _own_losses(trace, optimizer)) if optimizer is not None else ()
    if not any(cut.reaches for cut in found):
        found = cuts(trace, parameters, losses(trace))
    first: dict[Location, Cut] = {}
    for cut in found:
        if cut.call.location is not None:
            first.setdefault(cut.call.location, cut)
    return tuple(first.values())


def left_out(trace: Trace, found: Iterable[Cut]) -> list[Place]:
    """Where what is only shown was computed, and the backwards that go without it; none where more is done with it."""
    makers = {id: call for call in trace.calls for id in call.outputs}
    made: dict[Location, Place] = {}
    for cut in found:
        if not _is_shown(trace, cut):
            return []
        maker = makers.get(cut.call.inputs[0]) if cut.call.inputs else None
        if maker is not None and maker.location is not None and maker.location != cut.call.location:
            made[maker.location] = Place(
                maker.location, Role.CAUSE, f"`{maker.op}` computes it here, and no loss has it"
            )
    if made:
        for event in trace.backwards:
            if event.accumulates:
                made.setdefault(event.location, Place(event.location, Role.CAUSE, "backpropagated without it"))
    return list(made.values())


def _is_shown(trace: Trace, cut: Cut) -> bool:
    at = cut.call.location
    shown = at is not None and is_shown(trace.sources.get(at.file, ""), at.line)
    return shown and cut.call.leaves and not cut.reaches


def only_shown(trace: Trace, found: Iterable[Cut]) -> bool:
    """Whether all that these cuts take out of torch is printed or logged there, and was computed for that.

    What shares activations with a loss was not: it is a term that the loss lacks.
    """
    return all(_is_shown(trace, cut) for cut in found) and _activations(trace, losses(trace)).isdisjoint(
        _activations(trace, {id for c in found for id in c.call.inputs})
    )


def _activations(trace: Trace, tensors: Collection[int]) -> frozenset[int]:
    """What was computed from parameters on the way to these tensors, themselves included."""
    behind: dict[int, set[int]] = {}
    for call in trace.calls:
        for id in call.outputs:
            behind.setdefault(id, set()).update(call.inputs)
    seen, waiting = set(tensors), list(tensors)
    while waiting:
        new = behind.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return frozenset(id for id in seen if (row := trace.graph.tensor(id)).requires_grad and not row.is_parameter)


def dead_ends(trace: Trace, parameters: Collection[int]) -> list[Place]:
    """The statements that computed something from these parameters which nothing then used: first, losses dropped."""
    calls = _unused(trace, parameters)
    numbers = [call for call in calls if any(trace.graph.tensor(id).shape == () for id in call.outputs)]
    what = "a number" if numbers else "something"
    found = {
        call.location: Place(
            call.location, Role.CAUSE, f"`{call.op}` computes {what} from them here, and nothing uses it"
        )
        for call in reversed(numbers or calls)
        if call.location is not None
    }
    return list(reversed(found.values()))[:_MOST_NAMES]


def _unused(trace: Trace, parameters: Collection[int]) -> list[Call]:
    """The calls that gave only values of these parameters that no other call, and no backward, then took."""
    alive = follow(trace, parameters).alive
    used = {id for call in trace.calls for id in call.inputs} | losses(trace)
    return [
        call
        for call in trace.calls
        if any(id in alive for id in call.outputs)
        and used.isdisjoint(call.outputs)
        and call.location is not None
        and call.inputs
        and not any(trace.graph.tensor(id).is_parameter for id in call.outputs)  # where they are made, or filled
    ]


def overwritten(trace: Trace, parameters: Collection[int]) -> bool:
    """Whether what was computed from these parameters is lost as a loop gives its name another value each turn."""
    ends = [event.location for event in trace.backwards] + [step.location for step in trace.steps]
    for call in _unused(trace, parameters):
        at = call.location
        if at is not None and any(trace.graph.tensor(id).shape == () for id in call.outputs):
            beside = frozenset(end.line for end in ends if end.file == at.file)
            if is_rebound(trace.sources.get(at.file, ""), at.line, beside):
                return True
    return False


def listed(trace: Trace, parameters: Iterable[int]) -> str:
    """The names of parameters, grouped by module: ``net1.0 (weight, bias), net1.2 (weight)``."""
    names = [trace.graph.tensor(id).name or f"a tensor of shape {trace.graph.tensor(id).shape}" for id in parameters]
    groups = [
        (module, [leaf for _, leaf in members])
        for module, members in groupby((_split(name) for name in names), key=lambda pair: pair[0])
    ]
    said = [f"{module} ({', '.join(leaves)})" if module else ", ".join(leaves) for module, leaves in groups]
    more = len(said) - _MOST_NAMES
    return ", ".join(said[:_MOST_NAMES]) + (f" and {more} more modules" if more > 0 else "")


def _split(name: str) -> tuple[str, str]:
    module, dot, leaf = name.rpartition(".")
    return (module, leaf) if dot else ("", name)


def cut_places(found: Iterable[Cut]) -> list[Place]:
    """The statements of cuts, and those that brought the value back."""
    places: dict[Location, Place] = {}
    for cut in found:
        labels = (
            (cut.call.mode_at, "gradients are switched off here"),
            (cut.call, what_cut(cut.call)),
            (cut.exit if cut.returns else None, "it leaves torch here"),
            (cut.returns, "it comes back here as a constant, without its history"),
        )
        for at, label in labels:
            location = at.location if isinstance(at, Call) else at
            if location is not None:
                places.setdefault(location, Place(location, Role.CAUSE, label))
    return list(places.values())


def in_checkpoint(trace: Trace, found: Iterable[Cut]) -> bool:
    """Whether the first of these cuts is the forward of a reentrant checkpoint, which recorded no history."""
    at = next((cut.call.mode_at for cut in found), None)
    lines = trace.sources.get(at.file, "").splitlines()[at.line - 1 : at.end_line] if at is not None else ()
    return any(_CHECKPOINT.search(line) for line in lines)


def cut_fact(trace: Trace, found: Sequence[Cut]) -> dict[str, object] | None:
    """The first cut, for pictures: its statement, and the node that the gradient would have gone on to."""
    if not found:
        return None
    call = found[0].call
    nodes = (trace.graph.tensor(id).node for id in call.inputs)
    return {"location": call.location, "op": call.op, "node": next((node for node in nodes if node is not None), None)}


def replacements(trace: Trace, lost: tuple[int, ...]) -> tuple[int, ...]:
    """Parameters that the loss reaches and no optimizer holds, where the lost ones belong to no module any more."""
    last = max((e for e in trace.backwards if e.accumulates), key=lambda event: event.time, default=None)
    in_modules = {id for module in trace.modules if not module.gone for _, id in module.parameters}
    if last is None or any(id in in_modules for id in lost):
        return ()
    held = _held(trace)
    return tuple(sorted(id for id in trace.reached(last) if id in in_modules and id not in held))


def made_places(trace: Trace, parameters: Iterable[int]) -> list[Place]:
    """Where parameters that no optimizer holds were made."""
    made_at = {trace.graph.tensor(id).made_at for id in parameters}
    return [Place(at, Role.CAUSE, "made here, and in no optimizer") for at in made_at if at is not None]
