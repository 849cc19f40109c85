"""Where values went, call by call: also where the autograd graph has no edge, because the gradient was cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from weakref import WeakKeyDictionary

from ._plain import dataclass
from .events import Call
from .trace import Trace

_MOST_CUTS = 8  # a value that this many cuts lie before is not explained better by more
WAYS_OUT = frozenset(  # these give the value without its history, and do nothing else
    {"detach", "detach_", "data", "tensor", "as_tensor", "asarray", "Parameter", "Tensor", "deepcopy", "grad"}
)
HARD = frozenset(  # operations that have no gradient
    {"argmax", "argmin", "argsort", "one_hot", "unique", "nonzero", "bucketize", "searchsorted", "histc", "bincount"}
    | {"gt", "lt", "ge", "le", "eq", "ne", "greater", "less", "greater_equal", "less_equal", "isclose", "isnan"}
    | {f"__{name}__" for name in ("gt", "lt", "ge", "le", "eq", "ne", "and", "or", "invert")}
    | {"logical_and", "logical_or", "logical_not", "logical_xor", "bool", "long", "int", "short", "byte", "char"}
    | {"multinomial", "signbit", "isfinite", "isin", "any", "all"}
)
_SHAPED = frozenset(
    {"view_as", "expand_as", "reshape_as", "type_as", "to"}
)  # take only its shape or type of the second

_followings: WeakKeyDictionary[Trace, dict[frozenset[int], Following]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Cut:
    """A call at which a gradient stops.

    ``exit`` is the call by which the value then left torch, if it did, and ``returns`` the one that
    brought it back. ``from_tensors`` are the parameters whose gradient it stops, ``certain`` is False where the
    value was recognised by its numbers only, and ``reaches`` is False where it is not known to feed the loss.
    """

    call: Call
    exit: Call | None
    returns: Call | None
    from_tensors: frozenset[int]
    certain: bool = True
    reaches: bool = True

    @property
    def is_operation(self) -> bool:
        """Whether an operation that has no gradient made it, such as ``argmax``: not a way of dropping the history."""
        return self._computes and not self.call.is_frozen

    @property
    def is_frozen(self) -> bool:
        """Whether nothing stopped the gradient but that what went in was frozen."""
        return self._computes and self.call.is_frozen

    @property
    def _computes(self) -> bool:
        call = self.call
        return not (call.leaves or call.enters or call.op in WAYS_OUT) and call.grad_mode == "enabled"


def cuts(trace: Trace, sources: Collection[int], losses: Collection[int]) -> tuple[Cut, ...]:
    """The calls between some parameters and some losses at which the gradient stops, in order of time.

    First come those whose value is known to feed a loss. Only if there is none, those whose value was
    lost from sight (a number that Python went on computing with), with ``reaches`` False.
    """
    following = follow(trace, sources)
    wanted = {id for loss in losses for id in following.dead.get(loss, ())}
    found = [following.cut(id, reaches=True) for id in sorted(wanted)]
    if not found:
        found = [following.cut(id, reaches=False) for id in sorted(following.ends)]
    return tuple(found)


def follow(trace: Trace, sources: Collection[int]) -> Following:
    """These parameters, followed through all calls; once for all that ask."""
    known = _followings.setdefault(trace, {})
    key = frozenset(sources)
    if key not in known:
        known[key] = Following(key)
        for call in trace.calls:
            known[key].follow(call)
    return known[key]


class Following:
    """Follows parameters forward through the calls: alive while a gradient could come back, then dead."""

    def __init__(self, sources: frozenset[int]) -> None:
        self.alive: dict[int, frozenset[int]] = {id: frozenset((id,)) for id in sources}
        self.dead: dict[int, tuple[int, ...]] = {}  # by value: the indices of the cuts before it
        self.ends: set[int] = set()  # cuts whose value left torch
        self._cuts: list[tuple[Call, frozenset[int]]] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._left: dict[int, set[int]] = {}  # by tensor that left torch: the cuts before it
        self._exits: dict[int, Call] = {}
        self._returns: dict[int, Call] = {}
        self._likely: set[int] = set()

    def cut(self, id: int, *, reaches: bool) -> Cut:
        """One of the cuts that were met, by its index."""
        call, sources = self._cuts[id]
        return Cut(call, self._exits.get(id), self._returns.get(id), sources, id not in self._likely, reaches)

    def cuts_of(self, tensor: int) -> list[Cut]:
        """The cuts before a value, in order of time."""
        return [self.cut(id, reaches=True) for id in self.dead.get(tensor, ())]

    def cuts_at(self, call: Call) -> list[Cut]:
        """The cuts before a value that this call took out of torch, the call itself among them."""
        indices = {id for tensor in call.inputs for id in self._left.get(tensor, ())}
        return [self.cut(id, reaches=True) for id in sorted(indices) if self._cuts[id][0].time <= call.time]

    @property
    def all_cuts(self) -> Iterable[tuple[int, Cut]]:
        """Every cut that was met, with its index."""
        return ((id, self.cut(id, reaches=False)) for id in range(len(self._cuts)))

    def follow(self, call: Call) -> None:
        """Take the next call into account."""
        behind: frozenset[int] = frozenset()
        before: set[int] = set()
        for id in call.inputs[:1] if call.op in _SHAPED else call.inputs:
            behind |= self.alive.get(id, frozenset())
            before.update(self.dead.get(id, ()))
        before |= self._came_back(call)
        pairs = call.op == "broadcast_tensors" and len(call.inputs) == len(call.outputs)
        own = dict(zip(call.outputs, call.inputs, strict=True)) if pairs else {}
        cut: set[int] = set()
        for output, gives in zip(call.outputs, call.gives_grad or (False,) * len(call.outputs), strict=True):
            if pairs:
                behind = self.alive.get(own[output], frozenset())
            if gives and call.grad_mode != "enabled" and output in call.inputs:
                continue  # a leaf written under no_grad stays what it was: a step by hand, a moving average
            if gives:
                if behind:
                    self.alive[output] = self.alive.get(output, frozenset()) | behind
            elif behind:
                self.alive.pop(output, None)
                cut = self._cut_here(call, behind, before)
            self._bury(output, before if gives or not behind else cut)
        if call.leaves:
            if behind:
                before = self._cut_here(call, behind, before)
            if before:
                self._leave(call, before)

    def _cut_here(self, call: Call, behind: frozenset[int], before: set[int]) -> set[int]:
        """The cuts before what this call gives: itself, and those earlier ones that stopped what was not alive here."""
        return {self._cut(call, behind), *(id for id in before if not self._cuts[id][1] <= behind)}

    def _cut(self, call: Call, behind: frozenset[int]) -> int:
        """The index of this cut; a loop meets the same one again and again."""
        key = (call.location, call.op, behind, call.leaves, None if call.location else call.time)
        if key not in self._known:
            self._known[key] = len(self._cuts)
            self._cuts.append((call, behind))
        return self._known[key]

    def _bury(self, output: int, cuts: set[int]) -> None:
        if cuts:
            self.dead[output] = tuple(sorted({*self.dead.get(output, ()), *cuts}))[:_MOST_CUTS]

    def _leave(self, call: Call, before: set[int]) -> None:
        self.ends |= before
        for id in before:
            self._exits.setdefault(id, call)
        for each in call.inputs:
            self._left.setdefault(each, set()).update(before)

    def _came_back(self, call: Call) -> set[int]:
        found = {cut for id in call.returned for cut in self._left.get(id, ())}
        for id in found:
            self._returns.setdefault(id, call)
            if call.likely:
                self._likely.add(id)
        return found
