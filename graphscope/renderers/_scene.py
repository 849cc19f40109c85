"""What a picture needs to know of a trace: the part that is drawn, and the state of its nodes."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property

from ..findings import Finding, Role
from ..report import Report
from ._fold import View
from ._losses import losses
from ._words import listed

FREED = "GS101"  # the finding whose nodes hold freed buffers


class Scene:
    """A report, limited to the nodes behind the losses that are drawn."""

    def __init__(self, report: Report) -> None:
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

    @cached_property
    def order(self) -> list[int]:
        """The drawn nodes, each before those its gradient goes on to."""
        waiting = dict.fromkeys(self.masks, 0)
        for id in self.masks:
            for target, _ in self.graph.targets[id]:
                if target >= 0:
                    waiting[target] += 1
        ready = [id for id in sorted(waiting, reverse=True) if not waiting[id]]
        found = []
        while ready:
            found.append(id := ready.pop())
            for target, _ in reversed(self.graph.targets[id]):
                if target >= 0:
                    waiting[target] -= 1
                    if not waiting[target]:
                        ready.append(target)
        return found

    @property
    def view(self) -> View:
        """The part that is drawn, as folding wants it."""
        pinned = {loss.root.node for loss in self.losses if loss.root.node is not None}
        marks = {id: self._mark(id) for id in self.order}
        parts = {id: (id in self.freed, mask) for id, mask in self.masks.items()}
        return View(self.graph, self.order, marks, parts, pinned, self._codes.keys())

    def _mark(self, id: int) -> Hashable:
        if id in self.graph.leaf_tensors:
            return self.is_parameter(id), self.holders_of([id]), self.codes_of([id])
        return self.graph.modules.get(id), self.freed.get(id), self._codes.get(id), self.masks[id]

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
