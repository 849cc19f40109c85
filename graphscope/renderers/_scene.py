"""What a picture needs to know of a trace: the part that is drawn, and the state of its nodes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping
from functools import cached_property

from ..errors import GraphscopeError
from ..findings import Finding, Role
from ..graph import Graph
from ..report import Report
from ..show import Show
from ._collapse import Subject
from ._losses import losses
from ._scopes import Scope, execution_order, scopes
from ._words import listed

FREED = "GS101"  # the finding whose nodes hold freed buffers
STALE = ("GS102", "GS105", "GS108")  # those whose nodes saved what was overwritten since


class Scene:
    """A report, limited to the nodes behind the losses that are drawn."""

    def __init__(self, report: Report, show: Show) -> None:
        self.show = show
        self.changes = show.changes
        self.classes = {module.name: module.kind for module in report.trace.modules}
        self.trace = report.trace
        self.graph = report.trace.graph
        self.findings = report.findings
        self.losses, self.losses_in_all = losses(report)
        self.masks = self._masks()
        self.freed = self._freed()
        self._codes = self._finding_codes()
        self._holders = {
            tensor: tuple(optimizer.id for optimizer in self.trace.optimizers if tensor in held[optimizer.id])
            for held in [{optimizer.id: set(optimizer.parameters) for optimizer in self.trace.optimizers}]
            for tensor in set().union(*held.values())
        }

    def codes_of(self, nodes: list[int]) -> tuple[str, ...]:
        """The codes of the findings that name one of these nodes."""
        return tuple(sorted({code for id in nodes for code in self._codes.get(id, ())}))

    def holders_of(self, leaves: list[int]) -> tuple[int, ...]:
        """The optimizers that hold one of these leaves."""
        tensors = (self.graph.leaf_tensors[id] for id in leaves)
        return tuple(sorted({holder for tensor in tensors for holder in self._holders.get(tensor, ())}))

    def is_parameter(self, leaf: int) -> bool:
        """Whether a leaf is meant to be trained."""
        tensor = self.graph.leaf_tensors[leaf]
        return self.graph.tensor(tensor).is_parameter or tensor in self._holders

    def failing(self, finding: Finding) -> list[int]:
        """The positions of the drawn losses whose backward a finding is about."""
        places = {(p.location.file, p.location.line) for p in finding.places if p.role is Role.FAILURE}
        located = [(n, loss.location) for n, loss in enumerate(self.losses) if loss.location]
        found = [n for n, location in located if (location.file, location.line) in places]
        return [n for n in found if self.losses[n].failing] or found

    def devices(self, source: int, target: int) -> str:
        """Between which devices the gradient goes on this step, "" where it stays."""
        here, there = self._device(source), self._device(target)
        return f"from {here} to {there}" if here and there and here != there else ""

    def _device(self, id: int) -> str | None:
        if id in self.graph.leaf_tensors:
            return self.graph.tensor(self.graph.leaf_tensors[id]).device
        outputs = self.graph.outputs[id]
        return outputs[0].device if outputs else None

    @cached_property
    def order(self) -> list[int]:
        """The drawn nodes, last made first."""
        return execution_order(self.graph, list(self.masks))

    @cached_property
    def modules(self) -> Mapping[int, str]:
        """The module that each node was made in: as recorded, or else as the names of the parameters tell."""
        return self.graph.modules or _told_by_parameters(self.graph, self.order)

    @cached_property
    def scopes(self) -> Mapping[int, Scope]:
        """The module calls around each node."""
        return scopes(self.graph, self.order, self.modules)

    @cached_property
    def near(self) -> list[int]:
        """The nodes that the picture is to be drawn around."""
        around = self.show.around
        return self._named(around) if around is not None else []

    @cached_property
    def way(self) -> frozenset[int]:
        """The nodes on the gradient's way from the losses to the parameter that was asked for."""
        if self.show.path is None:
            return frozenset()
        goals = {id for id in self._leaves_named(self.show.path) if id in self.masks}
        return frozenset(goals).union(*(self._reaching(goals),)) if goals else frozenset()

    def _reaching(self, goals: set[int]) -> set[int]:
        found = set(goals)
        for id in reversed(self.order):
            if any(target in found for target, _ in self.graph.targets[id]):
                found.add(id)
        return found

    def _leaves_named(self, name: str) -> list[int]:
        known = {str(self.graph.tensor(tensor)): id for id, tensor in sorted(self.graph.leaf_tensors.items())}
        if name in known:
            return [known[name]]
        if any(tensor.name == name for tensor in self.graph.tensors):
            return []  # it exists, and no loss reaches it: the picture says so
        raise GraphscopeError(f"no parameter is called {name!r}{_nearby(name, known)}")

    def _named(self, around: str) -> list[int]:
        """The nodes that ``tensor:3``, ``node:17`` or a name stands for."""
        if match := re.fullmatch(r"(tensor|node):(\d+)", around):
            kind, id = match[1], int(match[2])
            if kind == "node":
                found = [id] if id in self.masks else []
            else:
                found = self._nodes_of({id}) if id < len(self.graph.tensors) else []
        else:
            named = {tensor.id for tensor in self.graph.tensors if tensor.name == around}
            found = self._nodes_of(named)
        if not found:
            names = dict.fromkeys(tensor.name for tensor in self.graph.tensors if tensor.name)
            raise GraphscopeError(
                f"nothing that is drawn is called {around!r}: give tensor:ID, node:ID or a name{_nearby(around, names)}"
            )
        return found

    def _nodes_of(self, tensors: set[int]) -> list[int]:
        """The nodes that made these tensors, that gather their gradients, or that saved them."""
        made = [self.graph.tensor(id).node for id in tensors]
        leaves = [node for node, tensor in self.graph.leaf_tensors.items() if tensor in tensors]
        found = [node for node in (*made, *leaves) if node in self.masks]
        return found or [
            node
            for node, saved in self.graph.saved.items()
            if node in self.masks and any(each.tensor in tensors for each in saved)
        ]

    @property
    def subject(self) -> Subject:
        """The part that is drawn, as collapsing wants it."""
        pinned = {loss.root.node for loss in self.losses if loss.root.node is not None}
        pinned |= {leaf for leaf in self.way if leaf in self.graph.leaf_tensors}
        pinned |= set(self.near)
        marks = {id: self._mark(id) for id in self.order}
        if self.show.focus is not None:
            self._check_focus(self.show.focus)
        parts = {id: (mask, self.changes.get(id)) for id, mask in self.masks.items()}
        return Subject(self.graph, self.order, self.scopes, marks, parts, pinned, self._codes.keys())

    def _check_focus(self, focus: str) -> None:
        known = {path[:end] for path in self.modules.values() for end in _ends(path)}
        if focus not in known:
            raise GraphscopeError(f"nothing was computed in a module called {focus!r}{_nearby(focus, known)}")

    def _mark(self, id: int) -> Hashable:
        if id in self.graph.leaf_tensors:
            return self.is_parameter(id), self.holders_of([id]), self.codes_of([id]), self.changes.get(id)
        return self.scopes.get(id), self.freed.get(id), self._codes.get(id), self.masks[id], self.changes.get(id)

    def _masks(self) -> dict[int, int]:
        """For each drawn node, one bit per loss that reaches it."""
        masks: dict[int, int] = {}
        for position, loss in enumerate(self.losses):
            if loss.root.node is not None:
                for id in self.graph.reachable([loss.root.node]):
                    masks[id] = masks.get(id, 0) | 1 << position
        return masks

    def _freed(self) -> dict[int, str]:
        """The nodes with freed buffers, and by what they were freed as far as is known."""
        freed = dict.fromkeys((id for id in self.graph.freed if id in self.masks), "freed")
        for finding in self.findings:
            if finding.code == FREED:
                by = finding.facts.get("freed_by")
                cause = next((place.location for place in finding.places if place.role is Role.CAUSE), None)
                names = [by] if isinstance(by, str) else list(map(str, by)) if isinstance(by, tuple) else []
                words = f"freed by {listed(names)}" if names else f"freed at {cause}" if cause else "freed"
                freed.update(dict.fromkeys((id for id in finding.nodes if id in self.masks), words))
        return freed

    def _finding_codes(self) -> dict[int, tuple[str, ...]]:
        codes: dict[int, tuple[str, ...]] = {}
        for finding in self.findings:
            for id in finding.nodes:
                if id in self.masks and finding.code not in codes.get(id, ()):
                    codes[id] = (*codes.get(id, ()), finding.code)
        return codes


def _ends(path: str) -> list[int]:
    return [at for at, character in enumerate(path) if character == "."] + [len(path)]


def _nearby(name: str, known: Mapping[str, object] | set[str] | dict[str, None]) -> str:
    close = difflib.get_close_matches(name, list(map(str, known)), 3, 0.5)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""


def _told_by_parameters(graph: Graph, order: list[int]) -> dict[int, str]:
    """What lies between two operators that read the parameters of a module was made in that module, most likely."""
    own: dict[int, tuple[str, ...]] = {}
    for id in order:
        for target, _ in graph.targets[id]:
            leaf = _past_transpose(graph, target)
            name = graph.tensor(graph.leaf_tensors[leaf]).name if leaf in graph.leaf_tensors else None
            if name and "." in name and id not in graph.leaf_tensors and graph.ops[id] != "TBackward0":
                own.setdefault(id, tuple(name.split(".")[:-1]))
    found: dict[int, tuple[str, ...]] = {}
    operators = [id for id in order if id not in graph.leaf_tensors]
    before: tuple[str, ...] = ()
    for id in operators:
        before = own.get(id, before)
        found[id] = before
    after: tuple[str, ...] = ()
    for id in reversed(operators):
        after = own.get(id, after)
        if id not in own:
            found[id] = _start(found[id], after)
    return {id: ".".join(path) for id, path in found.items() if path}


def _past_transpose(graph: Graph, id: int) -> int:
    targets = graph.targets[id] if id >= 0 else ()
    return targets[0][0] if id >= 0 and graph.ops[id] == "TBackward0" and len(targets) == 1 else id


def _start(a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    length = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    return a[:length]
