"""From roots to the graph behind them, over ``grad_fn.next_functions``."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from .._collector import paused_gc
from ..graph import Graph, Root, SavedColumn, TensorMeta
from ..location import Location
from . import _torch
from .saved import Names, Row, saved_names, saved_rows
from .tensors import Tensors, device_name, dtype_name

# Operators whose derivative is infinite, or undefined, somewhere.
_RISKY = (
    *("Sqrt", "Rsqrt", "Pow", "Log", "Div", "Reciprocal", "Norm", "Linalg", "Acos", "Asin", "Atanh", "Acosh", "Std"),
    *("Var", "Atan2", "Xlogy", "Softmax", "Exp", "Prod", "Cumprod", "Tan", "Cdist", "Pdist", "Binary", "Logit"),
    *("Erfinv", "Lgamma", "Digamma", "EuclideanDist", "Svd", "Renorm", "Cosine", "ForeachNorm", "Hypot"),
)
_CASTS = ("ToCopyBackward0",)
_DIVISION = "DivBackward2"  # of two tensors, with a rounding mode
_UNSEEN: tuple[tuple[int, int], ...] = ((-2, -2),)


class Walk:
    """Columns of the nodes met so far, over one walk or several.

    A node is known again by its sequence number: its wrapper is never kept, since that would keep the
    buffers it saved. All that lies behind a known node is known too, so a later walk visits only what is new.
    ``found`` is called with the id and sequence number of each new node. Without ``facts`` only operators, edges
    and leaves are looked at, no shapes and no saved tensors.
    """

    def __init__(
        self, tensors: Tensors, *, facts: bool = True, found: Callable[[int, int], None] | None = None
    ) -> None:
        self.tensors = tensors
        self.ops: list[str] = []
        self.sequences: list[int] = []
        self.outputs: list[tuple[TensorMeta, ...]] = []
        self.targets: list[tuple[tuple[int, int], ...]] = []
        self.saved: dict[int, tuple[Row, ...]] = {}
        self.leaf_tensors: dict[int, int] = {}
        self.custom: dict[int, bool | None] = {}
        self.rounded: set[int] = set()  # divisions that were told to round
        self.risky: list[tuple[int, Any]] | None = None  # new nodes whose backward may divide by zero, if wanted
        self.narrow: list[tuple[int, Any]] = []  # with them, those whose gradients may be too large for a float16
        self._facts = facts
        self._found = found
        self._begun = 0
        self._known: dict[int, int] = {}
        self._twins: dict[tuple[int, str], int] = {}
        self._leaves: dict[int, int] = {}
        self._metas: dict[Any, tuple[TensorMeta, ...]] = {}

    def root(self, tensor: Tensor, name: str) -> Root:
        """The root of this tensor, with its graph walked; its node is None where it has no graph."""
        number = self.tensors.number(tensor)
        if not tensor.requires_grad:
            return Root(name, None, number)
        with _torch.without_modes(), paused_gc():
            try:
                edge = get_gradient_edge(tensor)
            except AttributeError:  # a leaf of torch.func seen from outside its level
                return Root(name, None, number)
            except RuntimeError:  # a nested leaf, which has no sizes to be viewed in
                return Root(name, self.walk(_torch.accumulator(tensor)), number)
            return Root(name, self.walk(edge.node), number, edge.output_nr)

    def walk(self, start: Any) -> int:
        """Visit what is new behind a node, with an explicit stack; the node's id."""
        enter, targets = self._enter, self.targets
        self._begun = len(self.ops)
        first = enter(start)
        met: dict[Any, int] = {start: first}  # the wrappers as keys: no second lookup, and alive until we are done
        waiting = [(start, first)] if targets[first] is _UNSEEN else []
        while waiting:
            node, id = waiting.pop()
            edges = []
            for target, output in node.next_functions:
                if target is None:
                    edges.append((-1, 0))
                    continue
                number = met.get(target)
                if number is None:
                    number = met[target] = enter(target)
                    if targets[number] is _UNSEEN:
                        waiting.append((target, number))
                edges.append((number, output))
            targets[id] = tuple(edges)
        _torch.survive_deep_graph(len(met))
        return first

    def _enter(self, node: Any) -> int:
        """The id of a node: a new row in every column if it was not met in an earlier walk."""
        kind = type(node)
        op, is_leaf, is_custom, is_risky, names = _describe(kind)  # type: ignore[arg-type]  # types are hashable
        ops = self.ops
        id = len(ops)
        if is_leaf:
            number = self.tensors.number(node.variable)
            if number in self._leaves:
                return self._leaves[number]
            self._leaves[number] = id
            self.leaf_tensors[id] = number
            self.tensors.locate(number, node.variable)
            sequence = -1
        else:
            sequence = node._sequence_nr()
            other = self._known.setdefault(sequence, id)
            if other != id:
                # Numbers are counted per thread: two threads may have made a node each with the same one.
                if ops[other] != (op or node.name()):
                    other = self._twins.setdefault((sequence, op or node.name()), id)
                if other < self._begun:  # one of this walk would have been known by its wrapper
                    return other
            if is_custom:
                self.custom[id] = _reads_saved(kind)
            elif op == _DIVISION and node._saved_rounding_mode is not None:
                self.rounded.add(id)
        ops.append(op or node.name())
        self.sequences.append(sequence)
        self.targets.append(_UNSEEN)
        if self._facts:
            self._look_at(node, id, names)
        else:
            self.outputs.append(())
        if self._found is not None:
            self._found(id, sequence)
        if self.risky is not None:
            if is_risky:
                self.risky.append((id, node))
            elif self._facts and not is_leaf and (op in _CASTS or any(m.dtype == "float16" for m in self.outputs[id])):
                self.narrow.append((id, node))
        return id

    def _look_at(self, node: Any, id: int, names: Names) -> None:
        """The shapes of a node's outputs, and what it saved."""
        metas = node._input_metadata
        try:
            if len(metas) == 1:
                meta = metas[0]
                key = (*meta.shape, meta.dtype, meta.device)
            else:
                key = tuple((*each.shape, each.dtype, each.device) for each in metas)
            self.outputs.append(self._metas.get(key) or self._metas_of(key, metas))
        except RuntimeError:  # nested tensors have no sizes
            self.outputs.append(
                tuple(TensorMeta((-1,), dtype_name(each.dtype), device_name(each.device)) for each in metas)
            )
        if names and (saved := saved_rows(node, names, self.tensors)):
            self.saved[id] = saved

    def _metas_of(self, key: Any, metas: Any) -> tuple[TensorMeta, ...]:
        """The outputs of a node; remembered, since most nodes of a graph are alike and share one object."""
        known = self._metas[key] = tuple(
            TensorMeta(
                tuple(size if isinstance(size, int) else -1 for size in meta.shape),  # nested: sizes that vary
                dtype_name(meta.dtype),
                device_name(meta.device),
            )
            for meta in metas
        )
        return known

    def graph(
        self,
        roots: tuple[Root, ...] = (),
        locations: Mapping[int, Location] | None = None,
        modules: Mapping[int, str] | None = None,
        times: Mapping[int, int] | None = None,
        callers: Mapping[int, tuple[Location, ...]] | None = None,
    ) -> Graph:
        """What was walked so far, as plain data."""
        return Graph(
            ops=tuple(self.ops),
            sequences=tuple(self.sequences),
            outputs=tuple(self.outputs),
            targets=tuple(self.targets),
            saved=SavedColumn(self.saved),
            leaf_tensors=dict(self.leaf_tensors),
            locations=dict(locations or {}),
            modules=dict(modules or {}),
            custom=dict(self.custom),
            rounded=frozenset(self.rounded),
            times=dict(times or {}),
            callers=dict(callers or {}),
            versions=dict(self.tensors.versions),
            storages=dict(self.tensors.sizes),
            roots=roots,
            tensors=self.tensors.refs(self._known),
        )


@functools.lru_cache(maxsize=512)
def _describe(kind: type) -> tuple[str, bool, bool, bool, Names]:
    """The operator's name ("" where each node has its own), whether it is a leaf, custom, or risky, what it saves."""
    name, custom = kind.__name__, _torch.is_python_function(kind)
    is_risky = name.startswith(_RISKY) and not custom
    return "" if name == "CppFunction" else name, name == "AccumulateGrad", custom, is_risky, saved_names(kind)


def _reads_saved(kind: type) -> bool | None:
    """Whether the backward of a custom Function reads ``ctx.saved_tensors``; None where its code does not tell."""
    backward = getattr(getattr(kind, "_forward_cls", None), "backward", None)
    code = getattr(backward, "__code__", None)
    if code is None:
        return None
    if "saved_tensors" in code.co_names:
        return True
    return None if _passes_context(code) else False


def _passes_context(code: Any) -> bool:
    """Whether the first argument (``ctx``) is used other than for its attributes, so that others may read from it."""
    import dis

    context = code.co_varnames[0]
    instructions = list(dis.get_instructions(code))
    return any(
        load.opname.startswith("LOAD_FAST")
        and context in str(load.argval)
        and following.opname not in ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR")
        for load, following in itertools.pairwise(instructions)
    )
