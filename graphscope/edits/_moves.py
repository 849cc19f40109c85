"""Edits that change the order of statements: move one after or before another, repeat some before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from ..findings import Edit
from ._source import Refused, Source, Splice, bound, descendants, dotted, names

_KEEPING = ("append", "add", "extend", "insert", "appendleft", "update", "setdefault", "put")
_CONSUMING = ("next", "pop", "popleft", "popitem", "get", "recv", "read", "readline", "input", "step", "sample")


def move_after(source: Source, edit: Edit) -> Iterator[Splice]:
    """Move a statement, with the comment on its line, behind another one of the same block."""
    moved, other = _pair(source, edit)
    if moved is other or source.start(moved) > source.start(other):
        raise Refused("not before it")
    _check_free(source, moved, source.end(moved), source.start(other))
    start, end = source.line_start(source.start(moved)), source.line_end(source.end(moved))
    at = source.line_end(source.end(other))
    text = source.between(start, end)
    if source.between(at - 1, at) != "\n":
        text = source.module.default_newline + text.rstrip("\r\n")
    yield Splice(start, end)
    yield Splice(at, at, text)


def move_before(source: Source, edit: Edit) -> Iterator[Splice]:
    """Move a statement, with the comment on its line, in front of another one of the same block."""
    moved, other = _pair(source, edit)
    if source.start(moved) <= source.start(other):
        raise Refused("not after it")
    _check_free(source, moved, source.start(other), source.start(moved) - 1)
    start, end = source.line_start(source.start(moved)), source.line_end(source.end(moved))
    at = source.line_start(source.start(other))
    yield Splice(at, at, source.between(start, end).rstrip("\r\n") + source.module.default_newline)
    yield Splice(start, end)


def compute_again(source: Source, edits: Sequence[Edit]) -> Iterator[Splice]:
    """Repeat statements, each of which gives names a value, in front of a later one of the same block."""
    for place in dict.fromkeys(edit.other for edit in edits):
        pairs = [_pair(source, edit) for edit in edits if edit.other == place]
        lines, other = [line for line, _ in pairs], pairs[0][1]
        at = source.line_start(source.start(other))
        for line in lines:
            _check_repeatable(source, line, lines, other)
            start, end = source.line_start(source.start(line)), source.line_end(source.end(line))
            yield Splice(at, at, source.between(start, end))


def _pair(source: Source, edit: Edit) -> tuple[cst.SimpleStatementLine, cst.SimpleStatementLine]:
    """The lines of the two statements of an edit."""
    if edit.other is None:
        raise Refused("to where?")
    moved = source.alone(source.statement(edit.location.line))
    other = source.alone(source.statement(edit.other.line))
    if source.block(moved) is not source.block(other):
        raise Refused("not in the same block")
    if not isinstance(moved.body[0], cst.Expr | cst.Assign | cst.AugAssign):
        raise Refused("not a statement to move")
    return moved, other


def _between(source: Source, start: int, end: int) -> Iterator[cst.CSTNode]:
    """The statements that begin from ``start`` to ``end``."""
    for each in source.nodes:
        if isinstance(each, cst.BaseSmallStatement | cst.BaseCompoundStatement) and (
            start <= source.start(each) <= end
        ):
            yield each


def _check_free(source: Source, moved: cst.CSTNode, start: int, end: int) -> None:
    """Refuse where a name ties the statement to one that it would pass."""
    gives, takes = bound(moved), names(moved)
    for each in _between(source, start, end):
        if isinstance(each, cst.Return | cst.Raise | cst.Break | cst.Continue):
            raise Refused("it would not always be reached")
        if gives & names(each) or takes & bound(each):
            raise Refused("a name is needed in between")


def _check_repeatable(
    source: Source, line: cst.SimpleStatementLine, lines: Sequence[cst.SimpleStatementLine], other: cst.CSTNode
) -> None:
    """Refuse where the statement, repeated, would read another value than it did, or leave the old one somewhere."""
    statement = line.body[0]
    if not isinstance(statement, cst.Assign) or not all(_is_plain(each.target) for each in statement.targets):
        raise Refused("not a statement to repeat")
    if _called(statement.value) & {*_CONSUMING}:
        raise Refused("it would take something else")
    repeated = {each.body[0] for each in lines}
    for name in names(statement.value):
        givers = [each for each in lines if source.start(each) < source.start(line) and name in bound(each)]
        start, end = (source.end(givers[-1]), source.start(line) - 1) if givers else (source.start(line), None)
        for each in _between(source, start, source.start(other) - 1 if end is None else end):
            if name in bound(each):
                raise Refused("a name has another value by then")
    gives = bound(statement)
    for each in _between(source, source.end(line), source.start(other) - 1):
        if each not in repeated and gives & bound(each):
            raise Refused("the name stands for something else by then")
        if gives & names(each) and _called(each) & {*_KEEPING}:
            raise Refused("the old value is kept elsewhere")


def _is_plain(target: cst.BaseExpression) -> bool:
    """``x``, or ``x, y``."""
    if isinstance(target, cst.Tuple):
        return all(isinstance(each, cst.Element) and _is_plain(each.value) for each in target.elements)
    return isinstance(target, cst.Name)


def _called(node: cst.CSTNode) -> set[str]:
    """The last names of the functions that a node calls."""
    calls = (each for each in descendants(node) if isinstance(each, cst.Call))
    found = set()
    for call in calls:
        found.add(call.func.attr.value if isinstance(call.func, cst.Attribute) else dotted(call.func) or "")
    return found
