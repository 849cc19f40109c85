"""Blocks that repeat one after the other: found by their likeness, drawn once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any

from .._plain import dataclass
from ._scopes import Scope, dotted

_PERIOD = 64  # neighbours that may repeat together
_SMALL = 4  # boxes: less than that is drawn once only when it comes three times

Box = Any  # hashable; what it is does not matter here


@dataclass(frozen=True, slots=True)
class Frame:
    """How often a block comes, and the names of the module made first and of the one made last."""

    times: int
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()


@dataclass(slots=True)
class Repeats:
    """For each box that is not drawn the one that stands for it; how many a drawn one stands for, and where it lies.

    ``frames`` tells of the scopes that stand for several, ``alone`` of single boxes.
    """

    stands_for: dict[Box, Box] = field(default_factory=dict)
    times: dict[Box, int] = field(default_factory=dict)
    scopes: dict[Box, Scope] = field(default_factory=dict)
    frames: dict[Scope, Frame] = field(default_factory=dict)
    alone: dict[Box, Frame] = field(default_factory=dict)


@dataclass(slots=True)
class _Tree:
    """A module call: what was made in it, last made first."""

    scope: Scope
    items: list[_Tree | Box] = field(default_factory=list)


def repeated(
    scopes: Mapping[Box, Scope], leaves: Set[Box], traits: Mapping[Box, Hashable], edges: Sequence[tuple[Box, Box]]
) -> Repeats:
    """The repeats among some boxes, given last made first with the module calls around them."""
    return _Search(scopes, leaves, traits, edges).found


class _Search:
    """One search; modules inside of others come first."""

    def __init__(
        self,
        scopes: Mapping[Box, Scope],
        leaves: Set[Box],
        traits: Mapping[Box, Hashable],
        edges: Sequence[tuple[Box, Box]],
    ) -> None:
        self.found = Repeats()
        self._given = scopes
        self._traits = traits
        self._after: dict[Box, list[Box]] = {}
        self._read: dict[Box, list[Box]] = {}
        self._readers: dict[Box, set[Box]] = {}
        for here, there in edges:
            if there in leaves:
                self._read.setdefault(here, []).append(there)
                self._readers.setdefault(there, set()).add(here)
            else:
                self._after.setdefault(here, []).append(there)
        self._numbers: dict[Hashable, int] = {}
        top = _Tree(())
        trees: dict[Scope, _Tree] = {(): top}
        for box, scope in scopes.items():
            if box not in leaves:
                for depth in range(1, len(scope) + 1):
                    if scope[:depth] not in trees:
                        trees[scope[:depth]] = tree = _Tree(scope[:depth])
                        trees[scope[: depth - 1]].items.append(tree)
                trees[scope].items.append(box)
        for tree in sorted(trees.values(), key=lambda tree: -len(tree.scope)):
            self._fold(tree)
        stands_for = self.found.stands_for
        for box in stands_for:
            while stands_for[box] in stands_for:
                stands_for[box] = stands_for[stands_for[box]]

    def _fold(self, tree: _Tree) -> None:
        """Draw each run of like items of a module once."""
        signs = [self._sign(item) for item in tree.items]
        kept: list[_Tree | Box] = []
        at = 0
        while at < len(signs):
            period, times = _run(signs, at)
            windows = [tree.items[at + n * period : at + (n + 1) * period] for n in range(times)]
            same = self._alike([self._boxes(window) for window in windows]) if times > 1 else 1
            if same > 1:
                self._stand(tree.scope, windows[:same])
                kept += windows[0]
                at += period * same
            else:
                kept.append(tree.items[at])
                at += 1
        tree.items = kept

    def _boxes(self, items: Sequence[_Tree | Box]) -> list[Box]:
        found: list[Box] = []
        for item in items:
            found += self._boxes(item.items) if isinstance(item, _Tree) else [item]
        return found

    def _sign(self, item: _Tree | Box) -> int:
        """A number that like items have in common."""
        sign: Hashable
        if isinstance(item, _Tree):
            boxes = self._boxes([item])
            sign = (len(item.scope), tuple(map(self._sign, item.items)), self._inner(boxes))
        else:
            leaves = tuple(self._traits[leaf] for leaf in self._read.get(item, ()))
            sign = (self._traits[item], leaves, self.found.times.get(item, 1))
        return self._numbers.setdefault(sign, len(self._numbers))

    def _inner(self, boxes: list[Box]) -> frozenset[tuple[int, int]]:
        """The edges among some boxes, by position."""
        positions = {box: n for n, box in enumerate(boxes)}
        return frozenset(
            (n, positions[to]) for box, n in positions.items() for to in self._after.get(box, ()) if to in positions
        )

    def _alike(self, windows: list[list[Box]]) -> int:
        """How many of these windows have the edges of the first inside; 1 where drawing all costs little."""
        edges = self._inner(windows[0])
        same = 1
        while same < len(windows) and self._inner(windows[same]) == edges:
            same += 1
        return same if same > 2 or len(windows[0]) >= _SMALL else 1

    def _stand(self, around: Scope, windows: list[list[_Tree | Box]]) -> None:
        """Let the first of these windows stand for all."""
        boxes = [self._boxes(window) for window in windows]
        found, first = self.found, set(boxes[0])
        for window in boxes[1:]:
            own = set(window)
            for box, other in zip(boxes[0], window, strict=True):
                found.stands_for[other] = box
                for leaf, twin in zip(self._read.get(box, ()), self._read.get(other, ()), strict=True):
                    if leaf != twin and self._readers[twin] <= own and self._readers[leaf] <= first:
                        found.stands_for[twin] = leaf
                        found.times[leaf] = found.times.get(leaf, 1) + found.times.get(twin, 1)
        for box in boxes[0]:
            found.times[box] = found.times.get(box, 1) * len(windows)
            found.scopes.setdefault(box, self._given[box])
        self._frame(around, windows, boxes[0])

    def _frame(self, around: Scope, windows: list[list[_Tree | Box]], boxes: list[Box]) -> None:
        found = self.found
        names = [self._name(window[0]) if len(window) == 1 else () for window in windows]
        frame = Frame(len(windows), names[-1], names[0])
        (item, *others) = windows[0]
        if not others and isinstance(item, _Tree):
            found.frames[item.scope] = frame
        elif not others:
            found.alone[item] = frame
        else:
            inner = (*around, ("", len(found.frames)))
            for box in boxes:
                scope = found.scopes[box]
                for depth in range(len(around) + 1, len(scope) + 1):
                    if scope[:depth] in found.frames:
                        found.frames[inner + scope[len(around) : depth]] = found.frames.pop(scope[:depth])
                found.scopes[box] = inner + scope[len(around) :]
            found.frames[inner] = frame

    def _name(self, item: _Tree | Box) -> tuple[str, ...]:
        scope = item.scope if hasattr(item, "scope") else ()
        return dotted(scope)


def _run(signs: Sequence[int], at: int) -> tuple[int, int]:
    """The period and the number of repeats, from here on, that cover most."""
    best = (1, 1)
    for period in range(1, min(_PERIOD, (len(signs) - at) // 2) + 1):
        if signs[at] != signs[at + period]:
            continue
        times = 1
        while (
            signs[at + (times - 1) * period : at + times * period]
            == signs[at + times * period : at + (times + 1) * period]
        ):
            times += 1
        if times > 1 and period * times > best[0] * best[1]:
            best = (period, times)
    return best
