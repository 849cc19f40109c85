"""Which values that left torch came back in a tensor, where only the source tells: through loops, arrays, lists."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache
from weakref import WeakKeyDictionary

from ..events import Call
from ..flow import Cut, Following
from ..trace import Trace
from ._source import parsed

_FORM = {"shape", "ndim", "size", "dtype", "device", "itemsize", "nbytes"}  # what tells of a value, and is not it
_COUNTS = {"len", "range", "type", "isinstance", "id", "shape", "zeros_like", "ones_like", "full_like", "empty_like"}
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


_exits: WeakKeyDictionary[Trace, dict[tuple[str, str], list[Call]]] = WeakKeyDictionary()


def regained(trace: Trace, following: Following, tensor: int, time: int) -> list[Cut]:
    """The cuts before the values that this tensor was made of at some time outside of torch, in the same function."""
    made = trace.graph.tensor(tensor).made_at
    if made is None:
        return []
    tree = parsed(trace.sources.get(made.file, ""))
    last = {
        call.location: call for call in _exits_in(trace).get((made.file, made.function), ()) if call.time < time
    }  # by statement
    return [
        cut
        for at, call in last.items()
        if at is not None and at != made and _leads(tree, at.line, made.line)
        for cut in following.cuts_at(call)
    ]


def _exits_in(trace: Trace) -> dict[tuple[str, str], list[Call]]:
    """The calls by which values left torch, by file and function."""
    if trace not in _exits:
        found = _exits[trace] = defaultdict(list)
        for call in trace.calls:
            if call.leaves and call.location is not None:
                found[call.location.file, call.location.function].append(call)
    return _exits[trace]


@lru_cache(maxsize=256)
def _leads(tree: ast.Module, start: int, end: int) -> bool:
    """Whether what the statement at one line computes goes, by names, into the one at another line of its function."""
    function = _around(tree, start)
    statements = list(_statements(function))
    first, last = _at(statements, start), _at(statements, end)
    if first is None or last is None:
        return False
    names = set(_given(first))
    while True:
        more = {name for each in statements if _reads(each, names) for name in _given(each)} - names
        if not more:
            return _reads(last, names)
        names |= more


def _around(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or the whole file."""
    around = [each for each in ast.walk(tree) if isinstance(each, _FUNCTIONS) and _covers(each, line)]
    return max(around, key=lambda each: each.lineno, default=tree)


def _statements(function: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function, without those of functions in it."""
    for child in ast.iter_child_nodes(function):
        if isinstance(child, ast.stmt) and not isinstance(child, _FUNCTIONS | ast.ClassDef):
            yield child
            yield from _statements(child)


def _at(statements: Iterable[ast.stmt], line: int) -> ast.stmt | None:
    return max((each for each in statements if _covers(each, line)), key=lambda each: each.lineno, default=None)


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _given(statement: ast.stmt) -> Iterator[str]:
    """The variables that a statement gives a value, or puts one into."""
    match statement:
        case ast.Assign(targets=targets):
            yield from (_variable(part) for target in targets for part in _parts(target))
        case ast.AugAssign(target=target) | ast.AnnAssign(target=target) | ast.For(target=target):
            yield from map(_variable, _parts(target))
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=owner, attr="append" | "extend" | "insert" | "fill"))):
            yield _variable(owner)
        case _:
            pass


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for each in target.elts:
            yield from _parts(each)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _variable(target: ast.expr) -> str:
    while isinstance(target, ast.Subscript):
        target = target.value
    return ast.unparse(target)


def _reads(statement: ast.stmt, names: set[str]) -> bool:
    """Whether the value of one of these variables goes into what a statement computes, not only its shape."""
    match statement:
        case ast.Assign(value=value) | ast.AugAssign(value=value) | ast.Return(value=value) | ast.Expr(value=value):
            expression = value
        case ast.AnnAssign(value=value):
            expression = value
        case ast.For(iter=expression):
            pass
        case _:
            return False
    return expression is not None and any(
        isinstance(each, ast.Name | ast.Attribute) and ast.unparse(each) in names for each in _values(expression)
    )


def _values(expression: ast.AST) -> Iterator[ast.AST]:
    """The parts of an expression, without what only tells of the form of a value, and without indices."""
    yield expression
    match expression:
        case ast.Attribute(attr=name) if name in _FORM:
            return
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in _COUNTS:
            return
        case ast.Subscript(value=value):
            yield from _values(value)
        case ast.IfExp(body=body, orelse=other):
            yield from _values(body)
            yield from _values(other)
        case ast.Compare():
            return
        case _:
            for child in ast.iter_child_nodes(expression):
                yield from _values(child)
