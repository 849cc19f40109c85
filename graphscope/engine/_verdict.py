"""What becomes of a call, and which earlier events are to blame."""

from __future__ import annotations

from typing import Literal

from .._plain import dataclass
from ..events import Backward, Event, Write
from ..graph import SavedTensor

Kind = Literal["freed", "stale", "no graph", "checkpoint"]
"""Why a call fails: a released buffer, a moved version, a root that needs no gradient, or a reentrant
checkpoint under ``inputs=`` or ``autograd.grad``, which torch refuses."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """An earlier event that alone would make the call fail.

    ``position`` is its index in ``trace.events``. ``nodes`` are those that it freed, or whose saved tensors
    it overwrote with ``writes``, and that the failing call needs.
    """

    event: Event
    position: int
    kind: Kind
    nodes: tuple[int, ...]
    writes: tuple[Write, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one ``backward()`` or ``autograd.grad()``.

    If it fails: ``kind`` says why, ``node`` where first, ``saved`` for which tensor (None for a custom
    Function that saved none) and ``version`` what the version of that tensor is by then. ``certain`` is
    False where it only may fail. ``culprits`` are all earlier events that alone would make it fail, by
    position, of either kind. ``unseen`` tells that something before the trace caused it.
    """

    event: Backward
    position: int
    kind: Kind | None = None
    certain: bool = True
    node: int | None = None
    saved: SavedTensor | None = None
    version: int | None = None
    culprits: tuple[Culprit, ...] = ()
    unseen: bool = False

    @property
    def succeeds(self) -> bool:
        """Whether the call runs to its end, as far as can be told."""
        return self.kind is None

    @property
    def fails(self) -> bool:
        """Whether the call certainly raises."""
        return self.kind is not None and self.certain


@dataclass(frozen=True, slots=True)
class Change:
    """What one event did to buffers: the nodes it made release theirs, and those whose saved tensors it made stale."""

    freed: frozenset[int] = frozenset()
    stale: frozenset[int] = frozenset()
