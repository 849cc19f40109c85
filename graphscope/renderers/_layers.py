"""A layout of our own, for what no engine lays out in its time: rows by rank, in linear time, without module boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ._layout import Layout, Point, Route
from ._picture import Picture

_SWEEPS = 8
_APART, _BELOW = 22.0, 34.0  # points between boxes, and between rows
_WIDEST = 4000.0  # points: a longer row is broken into several


def layered(drawn: Picture, sizes: Mapping[str, Point]) -> Layout:
    """Boxes in rows: each below all those whose gradient goes on to it, and near them."""
    after: dict[str, list[str]] = {shape.id: [] for shape in drawn.shapes}
    before: dict[str, list[str]] = {shape.id: [] for shape in drawn.shapes}
    for line in drawn.lines:
        if line.pulls:
            after[line.source].append(line.target)
            before[line.target].append(line.source)
    rows = _rows(list(after), after, sizes)
    middles = {id: 0.0 for id in after}
    for row in rows:
        _place(row, {id: float(n) for n, id in enumerate(row)}, sizes, middles)
    for sweep in range(_SWEEPS):
        neighbours, ordered = (before, rows) if sweep % 2 == 0 else (after, rows[::-1])
        for row in ordered:
            wish = {id: _mean([middles[other] for other in neighbours[id]], middles[id]) for id in row}
            _place(sorted(row, key=lambda id: wish[id]), wish, sizes, middles)
    return _finished(drawn, rows, sizes, middles)


def _rows(ids: Sequence[str], after: Mapping[str, list[str]], sizes: Mapping[str, Point]) -> list[list[str]]:
    """The boxes by rank, which is the longest way from the top; very wide rows are broken."""
    waiting = dict.fromkeys(ids, 0)
    for targets in after.values():
        for target in targets:
            waiting[target] += 1
    ranks = dict.fromkeys(ids, 0)
    ready = [id for id in ids if not waiting[id]]
    for id in ready:
        for target in after[id]:
            ranks[target] = max(ranks[target], ranks[id] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    by_rank: dict[int, list[str]] = {}
    for id in ids:
        by_rank.setdefault(ranks[id], []).append(id)
    rows: list[list[str]] = []
    for rank in sorted(by_rank):
        row: list[str] = []
        width = 0.0
        for id in by_rank[rank]:
            width += sizes[id][0] + _APART
            if row and width > _WIDEST:
                rows.append(row)
                row, width = [], sizes[id][0] + _APART
            row.append(id)
        rows.append(row)
    return rows


def _place(
    row: Sequence[str], wish: Mapping[str, float], sizes: Mapping[str, Point], middles: dict[str, float]
) -> None:
    """Put a row's boxes as near to where they wish to be as their order allows (pool adjacent violators)."""
    offsets, offset = [], 0.0
    for n, id in enumerate(row):
        half = sizes[id][0] / 2
        offset += half + (sizes[row[n - 1]][0] / 2 + _APART if n else 0)
        offsets.append(offset)
    pools: list[list[float]] = []  # the sum of the wishes and the number of boxes in each
    for id, at in zip(row, offsets, strict=True):
        pools.append([wish[id] - at, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, number = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += number
    starts = [total / number for total, number in pools for _ in range(int(number))]
    for id, at, start in zip(row, offsets, starts, strict=True):
        middles[id] = start + at


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _finished(
    drawn: Picture, rows: Sequence[Sequence[str]], sizes: Mapping[str, Point], middles: Mapping[str, float]
) -> Layout:
    left = min((middles[id] - sizes[id][0] / 2 for id in middles), default=0.0)
    boxes: dict[str, Point] = {}
    y = 0.0
    for row in rows:
        height = max(sizes[id][1] for id in row)
        boxes |= {id: (round(middles[id] - left, 1), round(y + height / 2, 1)) for id in row}
        y += height + _BELOW
    routes = {n: _route(boxes, sizes, line.source, line.target) for n, line in enumerate(drawn.lines)}
    width = max((x + sizes[id][0] / 2 for id, (x, _) in boxes.items()), default=0.0)
    return Layout(boxes, routes, {}, width, max(y - _BELOW, 0.0))


def _route(boxes: Mapping[str, Point], sizes: Mapping[str, Point], source: str, target: str) -> Route:
    """A curve from the edge of one box to that of another, with room for its head."""
    (x, y), (to_x, to_y) = boxes[source], boxes[target]
    way = 1 if to_y >= y else -1
    start = (x, y + way * sizes[source][1] / 2)
    end = (to_x, to_y - way * sizes[target][1] / 2)
    neck = (to_x, end[1] - way * 7)
    bend = (neck[1] - start[1]) / 2
    points = (start, (x, start[1] + bend), (to_x, neck[1] - bend), neck)
    middle = ((x + to_x) / 2, (start[1] + neck[1]) / 2)
    return Route(tuple((round(a, 1), round(b, 1)) for a, b in points), end, start, middle)
