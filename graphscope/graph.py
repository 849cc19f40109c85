"""The autograd graph as plain data, and the questions that rules ask of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

from ._collector import paused_gc
from ._plain import dataclass
from .discovery import higher
from .location import Location

if TYPE_CHECKING:
    import networkx


NodeId: TypeAlias = Annotated[int, "node"]
"""The position of a node in the columns of a Graph."""
TensorId: TypeAlias = Annotated[int, "tensor"]
"""The position of a TensorRef in ``graph.tensors``."""
OptimizerId: TypeAlias = Annotated[int, "optimizer"]
"""The position of an OptimizerRef in ``trace.optimizers``."""

_FLAT = frozenset({"Round", "Floor", "Ceil", "Trunc", "Sign", "Sgn", "Bernoulli", "Poisson", "Normal", "Nextafter"})


@dataclass(frozen=True, slots=True)
class TensorMeta:
    """Shape, dtype (``"float32"``) and device (``"cpu"``, ``"cuda:0"``) of one output of a node."""

    shape: tuple[int, ...]
    dtype: str
    device: str


@dataclass(frozen=True, slots=True)
class Birth:
    """When a module was given a parameter that it had made, and by which statements, innermost first."""

    time: int
    locations: tuple[Location, ...]

    @property
    def location(self) -> Location:
        """The statement that made the module, outside of the constructors."""
        outside = (each for each in self.locations if not each.function.endswith("__init__"))
        return next(outside, self.locations[-1])


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A tensor, array or number that the tracer met; equality is by ``id``.

    ``storage`` names the memory it lives in: two refs with the same storage alias each other.
    ``counter`` names its version counter: views and ``detach()`` share it, ``.data`` does not.
    ``version`` is the counter's value when the trace was taken. ``made_at`` is where it was first
    seen in the user's code. ``node`` is the graph node that computed it, where it has one, and
    ``kind`` is ``"tensor"``, ``"array"`` (numpy) or ``"number"`` (a Python or numpy scalar).
    ``birth`` is that of a parameter whose module was made while it was watched.
    """

    id: TensorId
    name: str | None
    shape: tuple[int, ...]
    dtype: str
    device: str
    requires_grad: bool
    is_leaf: bool
    storage: int
    counter: int
    version: int
    kind: str = "tensor"
    is_parameter: bool = False
    node: NodeId | None = None
    made_at: Location | None = None
    birth: Birth | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorRef) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __str__(self) -> str:
        return self.name or f"a {self.kind} of shape {self.shape}"


class SavedTensor(NamedTuple):
    """A tensor that a node keeps for its backward formula.

    ``name`` is the argument in the formula (``result``, ``self``, ``mat2``): torch's ``_saved_<name>``.
    ``bytes`` counts the elements of this tensor, not the whole storage. ``version`` is its version
    when it was saved, None where torch does not tell. ``freed`` is whether the buffer was already
    released when the tracer first met the node. ``hooked`` means that saved-tensor hooks packed it
    (checkpoint, ``save_on_cpu``): its contents are then elsewhere and were not looked at, and its
    shape is empty. ``tensor`` is the TensorRef it aliases, where that is known. ``offset`` is where in its
    storage it begins, in bytes.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    storage: int
    counter: int
    version: int | None
    freed: bool = False
    hooked: bool = False
    tensor: TensorId | None = None
    offset: int = 0


_made = tuple.__new__  # with all fields given: a third of the time of the class itself


class SavedColumn(Mapping[int, tuple[SavedTensor, ...]]):
    """Saved tensors by node id, made from ``rows`` of their fields when they are asked for."""

    def __init__(self, rows: Mapping[int, tuple[tuple[Any, ...], ...]]) -> None:
        self.rows = rows

    def __getitem__(self, node: int) -> tuple[SavedTensor, ...]:
        return tuple([_made(SavedTensor, row) for row in self.rows[node]])

    def __contains__(self, node: object) -> bool:  # the inherited one would make what is there
        return node in self.rows

    def __iter__(self) -> Iterator[int]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, slots=True)
class Edge:
    """A step that a gradient takes: from ``source`` to ``target``.

    ``input`` is the position among the inputs of the operator that ``source`` differentiates;
    ``output`` says which output of ``target`` that input was (torch's ``input_nr``).
    """

    source: NodeId
    target: NodeId
    input: int
    output: int


@dataclass(frozen=True, slots=True)
class Node:
    """One ``grad_fn`` of the autograd graph.

    ``op`` is torch's name (``AddmmBackward0``, ``AccumulateGrad``, the class of a custom Function).
    ``sequence`` is the order of creation, -1 for AccumulateGrad. ``outputs`` describe the results of
    the operator that made the node. ``tensor`` is the id of the leaf's TensorRef for AccumulateGrad.
    ``reads_saved`` is False for a custom Function whose backward never reads ``ctx.saved_tensors``
    (it cannot fail for lack of them), None where that could not be told, else True.
    """

    id: NodeId
    op: str
    sequence: int
    outputs: tuple[TensorMeta, ...]
    saved: tuple[SavedTensor, ...]
    tensor: TensorId | None = None
    location: Location | None = None
    module: str | None = None
    custom: bool = False
    reads_saved: bool | None = True

    @property
    def is_leaf(self) -> bool:
        """Whether gradients end here, in a leaf's ``grad``."""
        return self.op == "AccumulateGrad"

    @property
    def is_freed(self) -> bool:
        """Whether a buffer of this node was already released when the tracer met it."""
        return any(saved.freed for saved in self.saved)

    @property
    def label(self) -> str:
        """The operator's short name: ``Addmm`` for ``AddmmBackward0``."""
        return self.op.partition("Backward")[0] or self.op


@dataclass(frozen=True, slots=True)
class Root:
    """A tensor that backward starts from: usually a loss.

    ``node`` is its ``grad_fn`` (AccumulateGrad for a leaf), None for a tensor without a graph.
    ``output`` is which output of that node it is, ``tensor`` the id of its TensorRef, -1 for a gradient edge.
    """

    name: str
    node: NodeId | None
    tensor: Annotated[int, "tensor", -1]
    output: int = 0


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes behind some roots, as columns indexed by node id.

    Edges go the way gradients flow, as in ``grad_fn.next_functions``: from a root towards the leaves.
    ``targets[i]`` holds one ``(target, output)`` pair for each input of node ``i``; the target is -1
    where that input needs no gradient. Nodes are built on demand, so that a graph of a million nodes
    costs little more than its columns. ``times`` tells when a node was made, on the timeline of a
    recording, and ``callers`` from where, innermost first, beyond its own location. ``versions`` has the
    version of each counter when the graph was last walked, and ``storages`` the size of each storage in bytes.
    ``rounded`` are the divisions that were told to round (``rounding_mode``).
    """

    ops: Sequence[str] = ()
    sequences: Sequence[int] = ()
    outputs: Sequence[tuple[TensorMeta, ...]] = ()
    targets: Sequence[tuple[tuple[Annotated[int, "node", -1], int], ...]] = ()
    saved: Mapping[NodeId, tuple[SavedTensor, ...]] = field(default_factory=dict)
    leaf_tensors: Mapping[NodeId, TensorId] = field(default_factory=dict)
    locations: Mapping[NodeId, Location] = field(default_factory=dict)
    modules: Mapping[NodeId, str] = field(default_factory=dict)
    custom: Mapping[NodeId, bool | None] = field(default_factory=dict)
    rounded: frozenset[NodeId] = frozenset()
    times: Mapping[NodeId, int] = field(default_factory=dict)
    callers: Mapping[NodeId, tuple[Location, ...]] = field(default_factory=dict)
    versions: Mapping[int, int] = field(default_factory=dict)
    storages: Mapping[int, int] = field(default_factory=dict)
    roots: tuple[Root, ...] = ()
    tensors: tuple[TensorRef, ...] = ()

    def __len__(self) -> int:
        return len(self.ops)

    def node(self, id: int) -> Node:
        """The node with this id."""
        return Node(
            id=id,
            op=self.ops[id],
            sequence=self.sequences[id],
            outputs=self.outputs[id],
            saved=self.saved.get(id, ()),
            tensor=self.leaf_tensors.get(id),
            location=self.locations.get(id),
            module=self.modules.get(id),
            custom=id in self.custom,
            reads_saved=self.custom.get(id, True),
        )

    @property
    def nodes(self) -> Iterator[Node]:
        """All nodes, by id."""
        return map(self.node, range(len(self.ops)))

    @property
    def edges(self) -> Iterator[Edge]:
        """All edges, parallel ones too (``x * x`` has two)."""
        for source, targets in enumerate(self.targets):
            for input, (target, output) in enumerate(targets):
                if target >= 0:
                    yield Edge(source, target, input, output)

    @property
    def leaves(self) -> tuple[Node, ...]:
        """The AccumulateGrad nodes, by id."""
        return tuple(self.node(id) for id in sorted(self.leaf_tensors))

    def tensor(self, id: int) -> TensorRef:
        """The tensor with this id."""
        return self.tensors[id]

    def reachable(self, roots: Iterable[int], *, stops: Collection[int] = ()) -> frozenset[int]:
        """The ids of the nodes that a backward from these nodes visits, the nodes themselves included.

        Nothing is visited by way of the nodes at which it ``stops``, nor they themselves.
        """
        stack = [root for root in roots if root not in stops]
        seen = {*stack, *stops}
        targets = self.targets
        while stack:
            for target, _ in targets[stack.pop()]:
                if target >= 0 and target not in seen:
                    seen.add(target)
                    stack.append(target)
        return frozenset(seen.difference(stops))

    @cached_property
    def flat(self) -> frozenset[int]:
        """The ids of the nodes that pass on a gradient of zero whatever they get: their operator is a staircase."""
        return self.rounded | {id for id, op in enumerate(self.ops) if op.partition("Backward")[0] in _FLAT}

    @cached_property
    def compiled(self) -> frozenset[int]:
        """The ids of the nodes that stand for what ``torch.compile`` compiled (torch 2.13's name for them)."""
        return frozenset(id for id in self.custom if self.ops[id] == "CompiledFunctionBackward")

    def reached_tensors(self, roots: Iterable[int]) -> frozenset[int]:
        """The ids of the leaf tensors whose ``grad`` a backward from these nodes fills."""
        return frozenset(self.leaf_tensors[id] for id in self.reachable(roots) if id in self.leaf_tensors)

    def joints(self, nodes: Collection[int], old: Collection[int], since: int) -> tuple[int, ...]:
        """The nodes that join others of these to ``old`` ones: of each way there, the first made ``since`` if any was.

        A value may have gone on from the old graph before that time, as a carried state does: what matters is where
        it was taken up again.
        """
        after: dict[int, list[int]] = {}
        direct = []
        for id in nodes:
            if id not in old:
                behind = [target for target, _ in self.targets[id]]
                if any(target in old and target not in self.leaf_tensors for target in behind):
                    direct.append(id)
                for target in behind:
                    after.setdefault(target, []).append(id)
        waiting, seen = list(direct), set(direct)
        found = []
        while waiting:
            id = waiting.pop()
            if self.times.get(id, since) >= since:
                found.append(id)
            else:
                waiting += [each for each in after.get(id, ()) if each not in seen]
                seen.update(after.get(id, ()))
        return tuple(sorted(found or direct))

    @cached_property
    def reached_by(self) -> tuple[frozenset[int], ...]:
        """For every node, the positions (in ``roots``) of the roots that reach it."""
        masks: list[frozenset[int]] = [frozenset()] * len(self.ops)
        single = [frozenset((position,)) for position in range(len(self.roots))]
        unions: dict[tuple[frozenset[int], int], frozenset[int]] = {}
        for position, root in enumerate(self.roots):
            if root.node is None:
                continue
            for id in self.reachable((root.node,)):
                known = masks[id]
                union = unions.get((known, position))
                if union is None:
                    union = unions[known, position] = known | single[position]
                masks[id] = union
        return tuple(masks)

    @property
    def shared(self) -> tuple[int, ...]:
        """The ids of the nodes that more than one root reaches."""
        return tuple(id for id, roots in enumerate(self.reached_by) if len(roots) > 1)

    @property
    def freed(self) -> tuple[int, ...]:
        """The ids of the nodes whose buffers were already released when the graph was traced."""
        return tuple(sorted(id for id, saved in self.saved.items() if any(each.freed for each in saved)))

    @property
    def saved_bytes(self) -> int:
        """Bytes kept for backward, each saved tensor of each storage counted once."""
        seen = {(s.storage, s.bytes) for saved in self.saved.values() for s in saved if not s.freed}
        return sum(bytes for _, bytes in seen)

    def path(self, source: int, target: int) -> tuple[int, ...]:
        """A shortest way of the gradient from one node to another, both included; () if there is none."""
        import networkx

        try:
            return tuple(networkx.shortest_path(self.to_networkx(), source, target))
        except networkx.NetworkXNoPath:
            return ()

    def save(self, path: str | Path) -> None:
        """Write the graph to a file: ``.svg``, ``.png``, ``.pdf``, ``.dot`` draw it, ``.json`` holds nodes and edges.

        Raises GraphscopeError for another suffix, and where the drawing fails.
        """
        higher("report").save_graph(self, Path(path))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """How a notebook shows it: as a picture."""
        bundle: dict[str, str] = higher("report").notebook_graph(self)
        return bundle

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]

    def _repr_svg_(self) -> str | None:
        return self._repr_mimebundle_().get("image/svg+xml")

    def to_json(self) -> str:
        """The graph as JSON text: networkx's node-link form, with the attributes of ``to_networkx``."""
        import networkx

        data = networkx.node_link_data(self.to_networkx(), edges="edges")
        for node in data["nodes"]:
            node["saved"] = [saved._asdict() for saved in node["saved"]]
        data["graph"] = {"roots": [{"name": root.name, "node": root.node} for root in self.roots]}
        return json.dumps(data, default=_fields) + "\n"

    def to_networkx(self) -> networkx.MultiDiGraph:
        """The graph as a ``networkx.MultiDiGraph``, made once and cached.

        Nodes are ids with the attributes ``op``, ``sequence``, ``outputs`` (TensorMeta), ``saved``
        (SavedTensor), ``tensor`` (the name of the leaf's tensor), ``location`` (``"train.py:14"``) and
        ``module``; edges have the key and attribute ``input`` and the attribute ``output``, as in ``Edge``.
        """
        return self._networkx

    @cached_property
    def _networkx(self) -> networkx.MultiDiGraph:
        import networkx

        graph = networkx.MultiDiGraph()
        with paused_gc():
            graph.add_nodes_from(enumerate(self._attributes()))
            add = graph.add_edge  # one by one: ``add_edges_from`` does the same, and then looks up each edge again
            for source, targets in enumerate(self.targets):
                for input, (target, output) in enumerate(targets):
                    if target >= 0:
                        add(source, target, input, input=input, output=output)
        return graph

    def _attributes(self) -> Iterator[dict[str, object]]:
        """Those of each node, from the columns: a Node apiece would take longer than all that networkx does."""
        saved, leaves, locations, modules = self.saved, self.leaf_tensors, self.locations, self.modules
        for id, (op, sequence, outputs) in enumerate(zip(self.ops, self.sequences, self.outputs, strict=True)):
            yield {
                "op": op,
                "sequence": sequence,
                "outputs": outputs,
                "saved": saved[id] if id in saved else (),  # noqa: SIM401  # the inherited `get` raises where there is none
                "tensor": self.tensors[leaves[id]].name if id in leaves else None,
                "location": str(locations[id]) if id in locations else None,
                "module": modules.get(id),
            }


def _fields(value: object) -> object:
    return asdict(value)  # type: ignore[call-overload]
