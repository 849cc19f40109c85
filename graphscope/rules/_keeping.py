"""Which statements put a value into what holds it, found in the source: for the rule about growing graphs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .._plain import dataclass
from ..location import Location
from ..trace import Holder, Trace
from ._source import parsed

_FILLING = {"append", "appendleft", "add", "extend", "insert", "push", "put", "update", "setdefault", "store", "record"}


@dataclass(frozen=True, slots=True)
class Put:
    """A statement that keeps something: where, its text, and the names of the tensors it keeps, as far as known."""

    location: Location
    text: str
    names: tuple[str, ...]


def puts(trace: Trace, holder: Holder) -> tuple[Put, ...]:
    """The statements that fill a container; those of the file that made its last tensor come first."""
    made = holder.location
    files = sorted(trace.sources, key=lambda file: (made is None or file != made.file, file))
    found: list[Put] = []
    for file in files:
        tree = parsed(trace.sources[file])
        given = _assigned(tree, made.line) if made is not None and made.file == file else frozenset()
        for function, statement in _statements(tree, "<module>"):
            if any(_fills(node, holder.name) for node in _own(statement)):
                found.append(_put(file, function, statement, given))
                found += _callers(tree, file, function, given)
    return tuple(dict.fromkeys(found))


def kept(trace: Trace, location: Location) -> tuple[str, str] | None:
    """What a statement like ``total += loss`` keeps: its target and the value, as written."""
    for _, statement in _statements(parsed(trace.sources.get(location.file, "")), ""):
        if statement.lineno <= location.line <= (statement.end_lineno or statement.lineno):
            if isinstance(statement, ast.AugAssign):
                return ast.unparse(statement.target), ast.unparse(statement.value)
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                return ast.unparse(statement.targets[0]), ast.unparse(statement.value)
    return None


def _statements(tree: ast.AST, function: str) -> Iterator[tuple[str, ast.stmt]]:
    """The statements of a file, each with the function around it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(node, node.name)
        else:
            if isinstance(node, ast.stmt):
                yield function, node
            yield from _statements(node, function)


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """The nodes of a statement, without those of the statements in it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]


def _fills(node: ast.AST, holder: str) -> bool:
    """Whether it puts something into the container of this name: ``h.append(x)``, ``h[k] = x``, ``h += [x]``."""
    match node:
        case ast.Call(func=ast.Attribute(value=owner, attr=method)) if method in _FILLING:
            return _is_same(owner, holder)
        case ast.Assign(targets=targets):
            stored = [each for each in targets if isinstance(each, ast.Subscript)]
            return any(_is_same(each.value, holder) or _is_same(each, holder) for each in stored)
        case ast.AugAssign(target=target):
            return _is_same(target, holder) or (isinstance(target, ast.Subscript) and _is_same(target.value, holder))
        case _:
            return False


def _is_same(expression: ast.expr, holder: str) -> bool:
    """Whether an expression may be what was found under a name.

    ``self.items`` is the ``memory.items`` of others, ``seen[key]`` may be any element of ``seen``.
    """
    text = ast.unparse(expression)
    first, dot, rest = holder.partition(".")
    if text == holder:
        return True
    if isinstance(expression, ast.Subscript) and not isinstance(expression.slice, ast.Constant) and holder[-1] == "]":
        return _is_same(expression.value, holder[: holder.rindex("[")])
    return (
        bool(dot)
        and (text.partition(".")[2] == rest or text == rest.rpartition(".")[2] or text == rest)
        and bool(first)
    )


def _assigned(tree: ast.Module, line: int) -> frozenset[str]:
    """The names that the statement on a line gives a value."""
    for _, statement in _statements(tree, ""):
        if isinstance(statement, ast.Assign) and statement.lineno <= line <= (statement.end_lineno or statement.lineno):
            names = (node for target in statement.targets for node in ast.walk(target))
            return frozenset(node.id for node in names if isinstance(node, ast.Name))
    return frozenset()


def _put(file: str, function: str, statement: ast.stmt, given: frozenset[str]) -> Put:
    read = {node.id for node in _own(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    end = statement.end_lineno or statement.lineno
    location = Location(file, statement.lineno, end, function)
    return Put(location, ast.unparse(statement), tuple(sorted(read & given)))


def _callers(tree: ast.Module, file: str, function: str, given: frozenset[str]) -> Iterator[Put]:
    """The statements that hand one of these names to a function that fills the container."""
    for outer, statement in _statements(tree, "<module>"):
        for node in _own(statement):
            if isinstance(node, ast.Call):
                called = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
                handed = {
                    each.id
                    for part in (*node.args, *node.keywords)
                    for each in ast.walk(part)
                    if isinstance(each, ast.Name)
                }
                if called == function and handed & given:
                    yield _put(file, outer, statement, given)
