"""The program's source as syntax trees: for the rules that look for a statement."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from ..location import Location
from ..trace import Trace


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
