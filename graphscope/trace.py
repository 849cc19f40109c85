"""All that was seen of one program: its graph, its calls, its timeline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from functools import cached_property

from ._plain import dataclass
from .events import Backward, Call, Event, OptimizerStep
from .graph import Graph, NodeId, OptimizerId, TensorId, TensorRef
from .location import Location


@dataclass(frozen=True, slots=True)
class OptimizerRef:
    """An optimizer: its variable's name, class, where it was made, and the TensorRef ids it holds, by group.

    ``keeps_state`` tells that a step left something in its ``state`` (moments, momentum).
    """

    id: OptimizerId
    name: str
    kind: str
    groups: tuple[tuple[TensorId, ...], ...]
    location: Location | None = None
    keeps_state: bool = False

    @property
    def parameters(self) -> tuple[int, ...]:
        """The ids of all tensors it holds."""
        return tuple(id for group in self.groups for id in group)


@dataclass(frozen=True, slots=True)
class Flag:
    """A plain attribute of a module, or of a parameter in it, that looks like ``requires_grad`` and does nothing."""

    path: str
    attribute: str
    value: bool


@dataclass(frozen=True, slots=True)
class ModuleRef:
    """A top-level module: its variable's name, class, and the TensorRef ids of its parameters by dotted name.

    ``storages`` are those of its parameters and buffers.
    It is as it was at one of its last steps. ``hidden`` are trainable leaves in its plain lists, dicts and attributes,
    which ``parameters()`` does not give, ``derived`` those of which it keeps only what was computed from them, with
    that; ``evaluated`` the parameters of parts in eval mode. ``gone`` tells that it
    had ceased to exist while the program still trained.
    """

    name: str
    kind: str
    parameters: tuple[tuple[str, TensorId], ...]
    storages: frozenset[int] = frozenset()
    hidden: tuple[tuple[str, TensorId], ...] = ()
    evaluated: tuple[TensorId, ...] = ()
    flags: tuple[Flag, ...] = ()
    gone: bool = False
    derived: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps graphs alive: a variable, an attribute or a container, by the way that leads to it.

    ``kind`` is its class, ``tensors`` how many with a history it has, ``limit`` how many it may have, None where
    there is no limit. ``tensor`` is the TensorRef id of the last of them, ``location`` where that got its history and
    ``callers`` from where that was called.
    """

    name: str
    kind: str
    tensors: int
    limit: int | None = None
    tensor: TensorId | None = None
    location: Location | None = None
    callers: tuple[Location, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """Graphs of earlier steps that were still alive when so many steps had ``ended``: those made at one location.

    ``steps`` are those in which they were made, counted from 0, and ``passes`` the number of times. All of them lead
    to the ``leaf``. ``nodes`` and ``bytes`` are what one of the steps left behind.
    """

    time: int
    ended: int
    location: Location
    leaf: TensorId
    steps: tuple[int, ...]
    passes: int
    nodes: int
    bytes: int
    holder: Holder | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ended.

    ``status`` is its exit status; ``exception`` the last line of its traceback, None if there was none;
    ``location`` where in the user's code that was raised; ``interrupted`` tells Ctrl-C.
    """

    status: int = 0
    exception: str | None = None
    location: Location | None = None
    interrupted: bool = False


@dataclass(frozen=True, slots=True)
class Fade:
    """A ``node`` at which the gradient fades that goes from a ``root`` to an ``end``, a node and an ``output`` of it.

    ``kind`` is ``"zero"`` (from there on it is zero everywhere), ``"alone"`` (so it is, behind a softmax over a single
    number), ``"cancelled"`` (so are the sums of what meets there) or ``"not finite"``.
    """

    root: NodeId
    end: NodeId
    output: int
    node: NodeId
    kind: str


@dataclass(frozen=True, slots=True)
class Pause:
    """``steps`` optimizer steps from ``step`` on, before ``time``, repeated what was known and were not recorded."""

    time: int
    step: int
    steps: int


@dataclass(frozen=True, eq=False)
class Trace:
    """What the tracer saw of one program; everything right of it works from this alone.

    ``events`` is the timeline, ordered by time; for ``check`` it is the plan that was assumed.
    ``root`` is the directory that locations are relative to, ``sources`` the text of the files they
    name. ``unseen`` says in words what could not be examined. ``steps_run`` counts the optimizer steps, those in
    ``pauses`` too. ``gone`` tells when the loss of a backward that retained its graph went away, by TensorRef id, and
    ``released`` the time of the backward after which a storage was gone. ``surveys`` tell which graphs outlive steps,
    ``fades`` where gradients became zero or not finite, if that was asked, or an optimizer stepped on zeros again.
    """

    graph: Graph = field(default_factory=Graph)
    events: tuple[Event, ...] = ()
    calls: tuple[Call, ...] = ()
    optimizers: tuple[OptimizerRef, ...] = ()
    modules: tuple[ModuleRef, ...] = ()
    script: str | None = None
    outcome: Outcome = Outcome()
    unseen: tuple[str, ...] = ()
    steps_run: int = 0
    pauses: tuple[Pause, ...] = ()
    root: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    gone: dict[TensorId, int] = field(default_factory=dict)
    released: dict[int, int] = field(default_factory=dict)
    surveys: tuple[Survey, ...] = ()
    fades: tuple[Fade, ...] = ()

    @property
    def tensors(self) -> tuple[TensorRef, ...]:
        """All tensors that graph, events and calls refer to, by id."""
        return self.graph.tensors

    @property
    def backwards(self) -> Iterator[Backward]:
        """The backward and grad calls, in order."""
        return (event for event in self.events if isinstance(event, Backward))

    @property
    def steps(self) -> Iterator[OptimizerStep]:
        """The optimizer steps, in order."""
        return (event for event in self.events if isinstance(event, OptimizerStep))

    @cached_property
    def stepped(self) -> frozenset[int]:
        """The ids of the optimizers that stepped."""
        return frozenset(event.optimizer for event in self.steps)

    def reached(self, backward: Backward) -> frozenset[int]:
        """The TensorRef ids of the leaves that this backward, or grad, reaches."""
        if backward.time not in self._reached:
            self._reached[backward.time] = self._leaves_behind(backward)
        return self._reached[backward.time]

    @cached_property
    def _reached(self) -> dict[int, frozenset[int]]:
        return {}

    def _leaves_behind(self, backward: Backward) -> frozenset[int]:
        reached = self.graph.reachable(root.node for root in backward.roots if root.node is not None)
        if backward.inputs is not None:
            reached &= frozenset(backward.inputs)
        leaf = self.graph.leaf_tensors
        return frozenset(leaf[id] for id in reached if id in leaf)

    @cached_property
    def ever_reached(self) -> frozenset[int]:
        """The TensorRef ids of the leaves that some backward reached, whether a gradient arrived there or not."""
        roots = {root.node for event in self.backwards if event.inputs is None for root in event.roots}
        behind = self.graph.reached_tensors(node for node in roots if node is not None)
        limited = (self.reached(event) for event in self.backwards if event.inputs is not None)
        return behind.union(*limited)

    def source_line(self, location: Location) -> str | None:
        """The text of the first line at a location, None where the source is unknown."""
        lines = self.sources.get(location.file, "").splitlines()
        return lines[location.line - 1] if 0 < location.line <= len(lines) else None
