"""What happened while the program ran, in order: a closed set of events for ``match``.

Every event has a ``time``, counted up from zero over calls and events together, so that what
happened before what can be told; ``step`` counts the optimizer steps before it.
"""

from __future__ import annotations

from ._plain import dataclass
from .graph import NodeId, OptimizerId, Root, TensorId
from .location import Location


@dataclass(frozen=True, slots=True)
class Write:
    """A tensor's memory was overwritten: its counter went from ``before`` to ``after``.

    ``hidden`` is a write that the counter of other tensors on the same ``storage`` does not see
    (through ``.data``, a numpy array on the same memory). It covers ``bytes`` bytes of the storage from ``offset`` on.
    ``moved`` means that no memory was written: the tensor was given another storage (``x.data = y``), ``source``'s.
    """

    tensor: TensorId
    storage: int
    counter: int
    before: int
    after: int
    hidden: bool = False
    offset: int = 0
    bytes: int = 0
    moved: bool = False
    source: TensorId | None = None


@dataclass(frozen=True, slots=True)
class Backward:
    """``backward()``, or ``autograd.grad()`` where ``accumulates`` is False.

    ``inputs`` are the nodes the call was limited to (``inputs=``, or what ``grad`` differentiates by),
    None for all leaves. ``error`` is torch's message if the call raised. ``ran`` is False for a call
    that is assumed (``check``, a plan), not seen. ``vectors`` are the tensors that require grad among those that it
    was given to multiply by (``gradient=``).
    """

    time: int
    step: int
    location: Location
    roots: tuple[Root, ...]
    retain_graph: bool = False
    create_graph: bool = False
    inputs: tuple[NodeId, ...] | None = None
    accumulates: bool = True
    error: str | None = None
    ran: bool = True
    thread: int = 0
    vectors: tuple[TensorId, ...] = ()


@dataclass(frozen=True, slots=True)
class InPlaceWrite:
    """A statement overwrote a tensor: ``op`` is the function (``add_``, ``__setitem__``, ``copy_`` ...)."""

    time: int
    step: int
    location: Location
    op: str
    write: Write
    thread: int = 0


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """``optimizer.step()``, with the parameters it overwrote.

    ``graded`` are those that had a ``grad``, ``frozen`` those that did not require grad by then, ``moved`` the
    frozen ones whose values it changed all the same. ``began`` is the
    time when it began, -1 where that was not seen: what came between then and ``time`` ran inside of it. ``ran``
    is False if it is assumed. ``zero`` tells that every one of the gradients was zero everywhere.
    """

    time: int
    step: int
    location: Location
    optimizer: OptimizerId
    writes: tuple[Write, ...] = ()
    graded: tuple[TensorId, ...] = ()
    frozen: tuple[TensorId, ...] = ()
    moved: tuple[TensorId, ...] = ()
    ran: bool = True
    thread: int = 0
    began: int = -1
    zero: bool = False

    @property
    def start(self) -> int:
        """When it began, as far as that was seen."""
        return self.time if self.began < 0 else self.began


@dataclass(frozen=True, slots=True)
class ZeroGrad:
    """Gradients were cleared (``to_none``) or zeroed: of which tensors, and by which optimizer if any."""

    time: int
    step: int
    location: Location
    tensors: tuple[TensorId, ...]
    optimizer: OptimizerId | None = None
    to_none: bool = True
    thread: int = 0


@dataclass(frozen=True, slots=True)
class GradWrite:
    """The gradients of ``tensors`` were changed other than by a backward: ``op`` is the function (``clip_grad_norm_``).

    ``replaces`` is True where nothing is left of what was in them (``p.grad = g``, ``copy_``). ``graded`` are those
    of the tensors that had a ``grad``.
    """

    time: int
    step: int
    location: Location
    op: str
    tensors: tuple[TensorId, ...]
    graded: tuple[TensorId, ...] = ()
    replaces: bool = False
    thread: int = 0

    @property
    def clips(self) -> bool:
        """Whether it bounds the gradients: clips their norm or their values."""
        return self.op in _CLIPS


@dataclass(frozen=True, slots=True)
class ScalerCall:
    """A call of a GradScaler that is enabled: ``op`` is ``"scale"``, ``"unscale_"``, ``"step"`` or ``"update"``.

    ``tensors`` are the scaled results of ``scale``, ``optimizer`` what is unscaled or stepped. ``skipped`` is True for
    a step that was left out because of gradients that were not finite. ``began`` is as in OptimizerStep.
    """

    time: int
    step: int
    location: Location
    op: str
    scaler: int
    tensors: tuple[TensorId, ...] = ()
    optimizer: OptimizerId | None = None
    skipped: bool = False
    thread: int = 0
    began: int = -1


@dataclass(frozen=True, slots=True)
class ScheduleStep:
    """A learning rate scheduler, of class ``kind``, sets the rates of ``optimizer`` for what comes next.

    ``early`` tells that this optimizer has never stepped, so that the first rates of the schedule are skipped, and
    ``given`` that the program says which epoch they are for. ``uses`` counts the steps so far of the optimizers whose
    rates are set: this one, and those that have the same groups, as one that wraps another.
    """

    time: int
    step: int
    location: Location
    kind: str
    optimizer: OptimizerId
    early: bool = False
    given: bool = False
    uses: int = 0
    thread: int = 0


@dataclass(frozen=True, slots=True)
class NonFinite:
    """An optimizer is about to step on gradients of ``tensors`` that are not finite.

    ``node`` is the operation that first made such a number: in its backward, or ``in_forward`` already; None where it
    was not seen. ``has_nan`` is False if they are infinite only. ``given`` tells that data which is not finite
    itself went into that operation, ``hidden`` that the loss is finite all the same.
    """

    time: int
    step: int
    location: Location
    optimizer: OptimizerId
    tensors: tuple[TensorId, ...]
    node: NodeId | None
    in_forward: bool = False
    has_nan: bool = True
    thread: int = 0
    given: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True)
class GradRead:
    """``tensor.grad`` was read; ``present`` is False where it was None. ``grad`` is its TensorRef id."""

    time: int
    step: int
    location: Location
    tensor: TensorId
    present: bool
    thread: int = 0
    grad: TensorId | None = None


@dataclass(frozen=True, slots=True)
class RequiresGradSet:
    """A statement set ``requires_grad`` of leaves to ``value``; it may have been that already.

    ``callers`` are the statements that called the function in which it stands, innermost first.
    """

    time: int
    step: int
    location: Location
    value: bool
    tensors: tuple[TensorId, ...]
    thread: int = 0
    callers: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class BackwardWrite:
    """While a backward ran, the Python code of a custom Function (its node is a ``function``) wrote in place.

    It wrote ``bytes`` bytes of the ``storage`` from ``offset`` on, ``is_grad`` if that is a gradient it was given.
    """

    time: int
    step: int
    location: Location
    op: str
    function: str
    storage: int
    offset: int
    bytes: int
    is_grad: bool
    thread: int = 0


@dataclass(frozen=True, slots=True)
class BackwardCut:
    """While a backward with ``create_graph`` ran, the Python code of a custom Function computed without a history.

    ``op`` was given ``tensor``, in the backward of the ``node``. Either it dropped the history of the tensor, which
    comes from the node ``source``; or that had none, and ``source`` is None: a result of the forward that was kept.
    ``time`` is the backward's.
    """

    time: int
    step: int
    location: Location
    op: str
    node: NodeId
    tensor: TensorId
    source: NodeId | None = None
    thread: int = 0


@dataclass(frozen=True, slots=True)
class OutOfSight:
    """The forward of a custom ``function``, which gave ``result``, did something with ``tensor`` unknown to autograd.

    It kept it as an ``attribute`` of ``ctx``, an input or, with ``is_result``, an output, which then holds itself; a
    result of an earlier step was still alive by then if it ``outlives`` its step. Or it wrote to that input, at the
    ``location``, without ``mark_dirty``, and ``attribute`` is None. Its memory is ``bytes`` bytes of the ``storage``
    from ``offset`` on.
    """

    time: int
    step: int
    location: Location
    function: str
    tensor: TensorId
    result: TensorId
    storage: int
    offset: int
    bytes: int
    attribute: str | None = None
    is_result: bool = False
    outlives: bool = False
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that torch refused: the exception, and where in the user's code it was raised."""

    time: int
    step: int
    location: Location
    op: str
    tensors: tuple[TensorId, ...]
    error: str
    thread: int = 0


Event = (
    Backward
    | InPlaceWrite
    | OptimizerStep
    | ZeroGrad
    | GradWrite
    | ScalerCall
    | ScheduleStep
    | NonFinite
    | GradRead
    | RequiresGradSet
    | BackwardWrite
    | BackwardCut
    | OutOfSight
    | Refused
)

_CLIPS = frozenset(
    f"{prefix}{name}_"
    for prefix in ("", "_foreach_")
    for name in ("clip_grad_norm", "clip_grad_value", "clamp", "clamp_min", "clamp_max", "clip", "minimum", "maximum")
)


@dataclass(frozen=True, slots=True)
class Call:
    """A torch function that the program called: which tensors went in and which came out.

    Calls are the data flow, also where the autograd graph has none. ``inputs`` and ``outputs`` are
    TensorRef ids; a tensor in both was changed in place. ``needs_grad`` tells which inputs required
    grad when the call was made, and ``gives_grad`` which outputs had a history after it. ``leaves`` and
    ``enters`` mark a value that left torch (``numpy``, ``item`` ...) or came in (``from_numpy``, ``tensor`` ...).
    ``returned`` are the tensors whose value came back with an argument that is no tensor; ``likely``
    means that they were recognised by their numbers only. ``numbers`` are the Python floats that went in, or the
    one that left. ``grad_mode`` is ``"enabled"``, ``"no_grad"`` or ``"inference"``, and ``mode_at`` where gradients
    were switched off.
    """

    time: int
    op: str
    location: Location | None
    inputs: tuple[TensorId, ...]
    outputs: tuple[TensorId, ...]
    needs_grad: tuple[bool, ...] = ()
    gives_grad: tuple[bool, ...] = ()
    leaves: bool = False
    enters: bool = False
    grad_mode: str = "enabled"
    returned: tuple[TensorId, ...] = ()
    likely: bool = False
    numbers: tuple[float, ...] = ()
    mode_at: Location | None = None

    @property
    def is_frozen(self) -> bool:
        """Whether nothing that went in required grad."""
        return bool(self.needs_grad) and not any(self.needs_grad)

    @property
    def cuts(self) -> bool:
        """Whether a history went in and none came out: the gradient stops at this call."""
        return any(self.needs_grad) and not any(self.gives_grad)
