"""A plain tracer for the random programs: keeps everything alive, and asks torch for exact versions and counters."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from graphscope.events import Backward, Event, InPlaceWrite, Write
from graphscope.graph import Graph, Root, SavedTensor
from graphscope.location import Location
from graphscope.trace import Trace

from .programs import Call
from .world import READS_SAVED

EXPECTED = re.compile(r"is at version (\d+); expected version (\d+)")
MULTIPLE = "its base or another view of its base has been modified inplace"
"""How torch refuses a view made by ``chunk`` or ``unbind`` once its base moved on, before it compares versions."""
FAR = 1_000_000
"""A version that no program reaches."""


def set_version(tensor: Tensor, version: int) -> None:
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))  # type: ignore[attr-defined]


class Counters:
    """Numbers for version counters. Two tensors share one if moving it moves both."""

    def __init__(self) -> None:
        self._known: list[Tensor] = []

    def number(self, tensor: Tensor) -> int:
        version = tensor._version
        set_version(tensor, version + FAR)
        try:
            for number, known in enumerate(self._known):
                if known._version == version + FAR:
                    return number
        finally:
            set_version(tensor, version)
        self._known.append(tensor.detach())
        return len(self._known) - 1


class Tracer:
    """An observer that turns a run into a Trace; statement ``i`` is line ``i``."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.ids: dict[Any, int] = {}
        self.nodes: list[Any] = []
        self.targets: list[tuple[tuple[int, int], ...]] = []
        self.saved: dict[int, tuple[SavedTensor, ...]] = {}
        self.custom: dict[int, bool | None] = {}
        self.events: list[Event] = []
        self.keep: list[Tensor] = []

    def before(self, position: int, call: Call, names: dict[str, Any]) -> None:
        roots = tuple(Root(name, self.node(names[name]), 0, names[name].output_nr) for name in call.roots)
        inputs = None if call.inputs is None else tuple(self.node(names[name]) for name in call.inputs)
        where = Location("program.py", position, position)
        self.events.append(
            Backward(
                len(self.events),
                0,
                where,
                roots,
                retain_graph=call.retain_graph,
                create_graph=call.create_graph,
                inputs=inputs and tuple(node for node in inputs if node is not None),
                accumulates=call.target is None,
            )
        )

    def refused(self, position: int) -> None:
        if self.events and isinstance(self.events[-1], Backward) and self.events[-1].location.line == position:
            self.events.pop()

    def after(self, position: int, names: dict[str, Any], moved: list[tuple[Tensor, int]]) -> None:
        where = Location("program.py", position, position)
        for number, (tensor, before) in {self.counters.number(each): (each, was) for each, was in moved}.items():
            write = Write(0, number, number, before, tensor._version)
            self.events.append(InPlaceWrite(len(self.events), 0, where, "write", write))
        self.keep += [value for value in names.values() if isinstance(value, Tensor)]

    def node(self, tensor: Tensor) -> int | None:
        if not tensor.requires_grad:
            return None
        start = get_gradient_edge(tensor).node
        waiting = [] if start in self.ids else [self.enter(start)]
        while waiting:
            node = waiting.pop()
            for target, _ in node.next_functions:
                if target is not None and target not in self.ids:
                    waiting.append(self.enter(target))
            edges = ((-1 if target is None else self.ids[target], output) for target, output in node.next_functions)
            self.targets[self.ids[node]] = tuple(edges)
        return self.ids[start]

    def enter(self, node: Any) -> Any:
        id = self.ids[node] = len(self.nodes)
        self.nodes.append(node)
        self.targets.append(())
        kind = type(node)
        if issubclass(kind, torch._C._FunctionBase):  # type: ignore[attr-defined]
            self.custom[id] = READS_SAVED[kind.__name__.removesuffix("Backward")]
        if saved := self.saved_by(node):
            self.saved[id] = saved
        return node

    def saved_by(self, node: Any) -> tuple[SavedTensor, ...]:
        saved: list[SavedTensor] = []
        if type(node).__name__ == "CopySlices":
            saved.append(SavedTensor("fn", (), "", 0, -1, -1, None))
        for name in dir(type(node)):
            if name.startswith("_raw_saved_"):
                raw = getattr(node, name)
                saved += self.rows(node, name, raw if isinstance(raw, tuple) else (raw,))
        return tuple(saved)

    def rows(self, node: Any, name: str, raws: tuple[Any, ...]) -> list[SavedTensor]:
        label = name.removeprefix("_raw_saved_")
        rows = []
        datas = [raw.data for raw in raws if raw is not None and raw.unpack_hook is None]
        versions = iter(self.versions(node, name, [data for data in datas if data is not None]))
        for raw in raws:
            if raw is None:
                continue
            if raw.unpack_hook is not None:
                rows.append(SavedTensor(label, (), "", 0, -1, -1, None, hooked=True))
                rows += self.arguments(raw.unpack_hook)
            elif raw.data is not None:
                self.keep.append(raw.data)
                number = self.counters.number(raw.data)
                rows.append(SavedTensor(label, tuple(raw.data.shape), "float32", 0, number, number, next(versions)))
        return rows

    def arguments(self, hook: Any) -> list[SavedTensor]:
        """What a non-reentrant checkpoint was called with: it compares versions before it computes again."""
        rows = []
        for cell in getattr(hook, "__closure__", None) or ():
            for saved in getattr(cell.cell_contents, "saved_args", ()):
                if isinstance(saved, torch._C._autograd.SavedTensor):  # type: ignore[attr-defined]
                    self.keep.append(saved.data)
                    number = self.counters.number(saved.data)
                    version = self.expected(saved)
                    rows.append(SavedTensor("argument", tuple(saved.data.shape), "float32", 0, number, number, version))
        return rows

    def expected(self, saved: Any) -> int:
        try:
            saved.unpack()
        except RuntimeError as error:
            match = EXPECTED.search(str(error))
            assert match, error
            return int(match[2])
        return int(saved.data._version)

    def versions(self, node: Any, name: str, datas: list[Tensor]) -> list[int]:
        """The versions at which tensors were saved: turn each counter to what torch says that it expects."""
        now = [data._version for data in datas]
        found = list(now)
        attribute = "saved_tensors" if name == "_raw_saved_tensors" else name.replace("_raw_saved_", "_saved_", 1)
        said = self.refusal(node, attribute)
        if not said:
            return now  # views would make a new grad_fn, were they unpacked at another version
        if MULTIPLE in said:
            return [self.tried(node, attribute, data) for data in datas]
        if len(datas) == 1 and (match := EXPECTED.search(said)):
            return [int(match[2])]
        for position, data in enumerate(datas):
            set_version(data, FAR * (position + 1))
        try:
            for _ in datas:
                position, found[position] = self.complaint(node, attribute)
                set_version(datas[position], found[position])
        finally:
            self.restore(datas, now)
        return found

    def restore(self, datas: list[Tensor], versions: list[int]) -> None:
        for data, version in zip(datas, versions, strict=True):
            set_version(data, version)

    def refusal(self, node: Any, attribute: str) -> str:
        try:
            getattr(node, attribute)
        except RuntimeError as error:
            return str(error)
        return ""

    def tried(self, node: Any, attribute: str, data: Tensor) -> int:
        """The version at which torch gives the tensor: some views notice any other before it is compared."""
        now = data._version
        try:
            for version in range(now + 1):
                set_version(data, version)
                if not self.refusal(node, attribute):
                    return version
        finally:
            set_version(data, now)
        raise AssertionError(f"{node} gives {attribute} at no version")

    def complaint(self, node: Any, attribute: str) -> tuple[int, int]:
        """The position and expected version of the first saved tensor that torch finds at a wrong version."""
        try:
            getattr(node, attribute)
        except RuntimeError as error:
            match = EXPECTED.search(str(error))
            assert match, error
            return int(match[1]) // FAR - 1, int(match[2])
        raise AssertionError(f"{node} did not notice a version that is far off")

    def trace(self) -> Trace:
        leaf = [node.name().endswith("AccumulateGrad") for node in self.nodes]
        graph = Graph(
            ops=[type(node).__name__ for node in self.nodes],
            sequences=[-1 if is_leaf else node._sequence_nr() for node, is_leaf in zip(self.nodes, leaf, strict=True)],
            outputs=[() for _ in self.nodes],
            targets=self.targets,
            saved=self.saved,
            custom=self.custom,
        )
        return Trace(graph, tuple(self.events))
