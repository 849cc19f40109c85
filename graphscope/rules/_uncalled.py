"""Methods that a program names and does not call: ``opt.step`` as a statement of its own."""

from __future__ import annotations

import ast

from ..findings import Place, Role
from ..trace import Trace
from ._source import place_of, trees


def uncalled(trace: Trace, method: str) -> list[Place]:
    """The statements that name this method without parentheses, and so do nothing."""
    return [
        Place(place_of(file, node), Role.CAUSE, f"this calls nothing: write `{ast.unparse(node.value)}()`")
        for file, tree in trees(trace)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Attribute) and node.value.attr == method
    ]
