"""The program's source as syntax trees: for the rules that look for a statement."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from functools import lru_cache

from ..location import Location
from ..trace import Trace

_RANDOM = re.compile(r"(self\.)?(random|(np|numpy)\.random|rng|_?random_state)\.\w+$")
_LOGGERS = {"print", "log", "debug", "info", "warning", "write", "set_postfix", "set_description"}
_LOGGERS |= {"add_scalar", "add_scalars", "add_histogram", "log_metric", "log_metrics", "track"}
_WITHOUT_HISTORY = {"item", "tolist", "detach", "data", "numpy", "shape"}


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    """The tree of a source text; an empty one where it does not parse."""
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError):
        return ast.Module(body=[], type_ignores=[])


def trees(trace: Trace) -> Iterator[tuple[str, ast.Module]]:
    """The files of a program and their trees."""
    return ((file, parsed(source)) for file, source in trace.sources.items())


def methods(trace: Trace, name: str, method: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """The methods of this name in the classes of a name, each with its file."""
    for file, tree in trees(trace):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == name:
                for each in node.body:
                    if isinstance(each, ast.FunctionDef) and each.name == method:
                        yield file, each


@lru_cache(maxsize=256)
def keepers(source: str, line: int) -> tuple[tuple[str, int, int], ...]:
    """The attributes that are given, in the same function, what the assignment at this line names: with their lines.

    Only those that the program reads, under ``self`` or another name, and not for their number alone.
    """
    tree = parsed(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _covers(node, line)]
    if not functions:
        return ()
    assigns = [node for node in ast.walk(max(functions, key=lambda node: node.lineno)) if isinstance(node, ast.Assign)]
    made = {
        name.id
        for node in assigns
        if _covers(node, line)
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
    left = {id(node.value) for node in attributes if node.attr in _WITHOUT_HISTORY}
    read = {node.attr for node in attributes if id(node) not in left}
    return tuple(
        (ast.unparse(target), node.lineno, node.end_lineno or node.lineno)
        for node in assigns
        if node.lineno > line and (kept := _kept(node.value)) and kept <= made
        for target in node.targets
        if isinstance(target, ast.Attribute) and target.attr in read
    )


def _kept(value: ast.expr) -> set[str]:
    """The names of a value that is only named, or a tuple or list of names."""
    parts = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return names if all(isinstance(part, ast.Name) for part in parts) else set()


@lru_cache(maxsize=256)
def is_rebound(source: str, line: int, beside: frozenset[int]) -> bool:
    """Whether the statement at this line gives a value to a name, in a loop that reads this name nowhere.

    Loops around the lines ``beside`` do not count.
    """
    loops = [node for node in ast.walk(parsed(source)) if isinstance(node, ast.For | ast.While) and _covers(node, line)]
    loop = max(loops, key=lambda node: node.lineno, default=None)
    if loop is None or any(_covers(loop, each) for each in beside):
        return False
    names = {
        target.id
        for node in loop.body
        if isinstance(node, ast.Assign) and _covers(node, line)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    read = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    leaves = any(isinstance(node, ast.Break | ast.Return | ast.Yield | ast.Continue) for node in ast.walk(loop))
    return bool(names - read) and not leaves


@lru_cache(maxsize=256)
def is_shown(source: str, line: int) -> bool:
    """Whether the statement at this line only prints or logs, or names what its scope only prints, logs and appends."""
    tree = parsed(source)
    statement = _innermost(tree, line)
    if not isinstance(statement, ast.Assign | ast.AugAssign):
        return _shows(statement)
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    if not (len(targets) == 1 and isinstance(name := targets[0], ast.Name)):
        return False
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _covers(node, line))
    scope = max(functions, key=lambda node: node.lineno, default=tree)
    reads = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name.id]
    reads = [node for node in reads if isinstance(node.ctx, ast.Load)]
    uses = [_innermost(tree, node.lineno) for node in reads]
    return any(map(_shows, uses)) and all(_shows(use, {*_LOGGERS, "append"}) for use in uses)


def _innermost(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement at a line."""
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and _covers(node, line)]
    return max(statements, key=lambda node: (node.lineno, -(node.end_lineno or 0)), default=None)


def _shows(statement: ast.stmt | None, calls: Collection[str] = _LOGGERS) -> bool:
    """Whether a statement does nothing but call one of these, a logger."""
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    return ast.unparse(statement.value.func).rpartition(".")[2] in calls


def _covers(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def place_of(file: str, node: ast.expr | ast.stmt) -> Location:
    """Where a node of a tree is."""
    return Location(file, node.lineno, node.end_lineno or node.lineno, "")


def ran(trace: Trace) -> frozenset[tuple[str, int]]:
    """The lines that are known to have run: those where something was recorded."""
    found = {(event.location.file, event.location.line) for event in trace.events}
    places = [call.location for call in trace.calls] + [optimizer.location for optimizer in trace.optimizers]
    places += [tensor.made_at for tensor in trace.tensors]
    found.update((place.file, place.line) for place in places if place is not None)
    found.update((place.file, place.line) for place in trace.graph.locations.values())
    return frozenset(found)


def draws(trace: Trace, inside: Collection[Location]) -> list[Location]:
    """Where the functions that these places are in ask for random numbers that are not torch's: Python's, numpy's."""
    found = set()
    for at in inside:
        functions = (
            node
            for node in ast.walk(parsed(trace.sources.get(at.file, "")))
            if isinstance(node, ast.FunctionDef | ast.Lambda) and node.lineno <= at.line <= (node.end_lineno or 0)
        )
        for function in functions:
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and _RANDOM.match(ast.unparse(node.func)):
                    found.add(Location(at.file, node.lineno, node.end_lineno or node.lineno, at.function))
    return sorted(found)
