"""Which statements belong to an evaluation, as the source tells: after ``net.eval()``, or in ``def validate``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from ..location import Location
from ..trace import Trace
from ._source import parsed

_NAMED = re.compile(r"(^|_)(val|valid|validate|validation|eval|evaluate|evaluation|test)(_|$)")


def is_evaluation(trace: Trace, location: Location, parameters: Iterable[int]) -> bool:
    """Whether a statement that works on these parameters comes after their module's ``eval()`` in its function."""
    if _NAMED.search(location.function.rpartition(".")[2]):
        return True
    parts = {part for id in parameters for part in (trace.graph.tensor(id).name or "").split(".")}
    switches = [
        (node.lineno, node.func.attr)
        for node in ast.walk(_function(parsed(trace.sources.get(location.file, "")), location.line))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("eval", "train")
        and ast.unparse(node.func.value).rpartition(".")[2] in parts
        and node.lineno < location.line
    ]
    return max(switches, default=(0, ""))[1] == "eval"


def _function(tree: ast.Module, line: int) -> ast.AST:
    """The innermost function around a line, or the whole file."""
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    return max(around, key=lambda node: node.lineno, default=tree)
