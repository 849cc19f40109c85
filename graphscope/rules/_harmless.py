"""The cuts that cost nothing, and why: what rules about cuts judged right."""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from ..flow import HARD, Cut, Following, follow
from ..location import Location
from ..trace import Trace
from ._parameters import ungraded
from ._terms import trained

_MOST_NAMES = 3
_MEASURES = HARD - {"__eq__", "eq", "__ne__", "ne", "isnan", "isfinite", "any", "all"}  # which libraries ask for checks
_known: WeakKeyDictionary[Trace, tuple[tuple[Cut, Location, str], ...]] = WeakKeyDictionary()


def harmless(trace: Trace) -> tuple[tuple[Cut, Location, str], ...]:
    """Each cut that keeps nothing from training that is to train, with its line and the reason."""
    if trace not in _known:
        _known[trace] = tuple(_judged(trace))
    return _known[trace]


def _judged(trace: Trace) -> Iterator[tuple[Cut, Location, str]]:
    owned = trained(trace) if trace.stepped else _by_hand(trace)
    if not owned or not any(event.accumulates for event in trace.backwards):
        return
    others = {id for module in trace.modules for _, id in module.parameters if trace.graph.tensor(id).requires_grad}
    following = follow(trace, owned | others)
    lost = {id for optimizer in trace.optimizers for id in ungraded(trace, optimizer)}
    fed = _fed(trace, following)
    training = _training(trace)
    for index, cut in following.all_cuts:
        where = cut.call.mode_at or cut.call.location
        if where is None or cut.from_tensors & lost:
            continue
        if (cut.is_operation or cut.is_frozen) and index not in fed and cut.call.op not in _MEASURES:
            continue
        yield cut, where, _reason(trace, cut, fed.get(index, {}), cut.from_tensors & owned, training)


def _by_hand(trace: Trace) -> frozenset[int]:
    """The parameters that get gradients, where no optimizer steps."""
    return frozenset(id for id in trace.ever_reached if trace.graph.tensor(id).is_parameter)


def _fed(trace: Trace, following: Following) -> dict[int, dict[str, None]]:
    """By cut: the names of the losses that its value feeds."""
    found: dict[int, dict[str, None]] = {}
    for event in trace.backwards:
        for root in event.roots if event.accumulates else ():
            for index in following.dead.get(root.tensor, ()):
                found.setdefault(index, {})[root.name] = None
    return found


def _training(trace: Trace) -> dict[int, dict[str, None]]:
    """By parameter: the names of the losses that reach it."""
    found: dict[int, dict[str, None]] = {}
    for event in trace.backwards:
        for id in trace.reached(event) if event.accumulates else ():
            found.setdefault(id, {}).update(dict.fromkeys(root.name for root in event.roots))
    return found


def _reason(
    trace: Trace, cut: Cut, losses: dict[str, None], owned: frozenset[int], training: dict[int, dict[str, None]]
) -> str:
    what = f"`{cut.call.op}`"
    if not losses:
        if cut.call.mode_at is not None:
            return "gradients are off here, and what is computed then feeds no loss: it is only looked at, or kept"
        if cut.call.leaves:
            return f"what {what} takes out of torch comes back to no loss: it is only looked at"
        if cut.is_operation or cut.is_frozen:
            return f"what {what} gives feeds no loss: it measures, and is not to train"
        return f"what {what} gives feeds no loss: a value to look at, or to keep"
    fed = _listed(losses)
    if cut.call.mode_at is not None:
        what = "switching gradients off"
    elif cut.is_frozen:
        what = "freezing"
    if not owned:
        kept = _modules(trace, cut.from_tensors)
        return f"{what} keeps {fed} from {kept}, which no optimizer holds: a target, not to be trained"
    trains = {name: None for id in sorted(owned) for name in training.get(id, {})}
    others = {name: None for name in trains if name not in losses}
    train = "trains" if len(others or losses) == 1 else "train"
    by = f"{_listed(others)} {train} it" if others else f"{fed} {train} it by another way"
    return f"{what} keeps {fed} from {_modules(trace, owned)} here, and {by}"


def _listed(names: dict[str, None]) -> str:
    said = [f"`{name}`" for name in list(names)[:_MOST_NAMES]]
    more = len(names) - len(said)
    return ", ".join(said) + (f" and {more} more" if more > 0 else "")


def _modules(trace: Trace, parameters: frozenset[int]) -> str:
    names = [trace.graph.tensor(id).name or "an unnamed tensor" for id in sorted(parameters)]
    own = (name.removeprefix("self.").partition(".")[0] for name in names)
    return _listed(
        dict.fromkeys(
            f"self.{part}" if name.startswith("self.") else part for name, part in zip(names, own, strict=True)
        )
    )
