"""Detach what a statement takes from an earlier graph."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..findings import Edit
from ._source import Source, Splice, bound, descendants, dotted, only

_WITH_PAIRS = ("LSTM", "LSTMCell")


def detach(source: Source, edit: Edit) -> Iterator[Splice]:
    """Rewrite each use of a tensor in the statement; without a name, of the one that the statement carries over."""
    found = [(each, uses) for each in _places(source, edit.location.line) if (uses := _uses(source, each, edit.name))]
    statement, uses = only(found)
    name = source.text(uses[0].with_changes(lpar=(), rpar=()))
    text = f"{name}.detach()"
    if _is_pair(source, statement, name):
        item = next(each for each in ("s", "state", "each", "item") if each != name)
        text = f"tuple({item}.detach() for {item} in {name})"
    if (first := _first_value(source, name)) is not None:
        text = f"{name} if {first} else {text}"
    for use in uses:
        bare = isinstance(source.parent(use), cst.Arg | cst.Assign) or use.lpar or " if " not in text
        yield Splice(source.start(use), source.end(use), text if bare else f"({text})")


def _places(source: Source, line: int) -> Iterator[cst.CSTNode]:
    """The simple statements on a line, and the expressions at the head of compound ones."""
    yield from source.statements(line)
    for node in source.nodes:
        head = node.iter if isinstance(node, cst.For) else node.test if isinstance(node, cst.If | cst.While) else None
        if head is not None and line in source.lines(head):
            yield head


def _uses(source: Source, statement: cst.CSTNode, name: str | None) -> list[cst.BaseExpression]:
    """Where a statement reads the value of a name, or a part of it: without a name, of the one it carries over."""
    read = [
        each
        for each in descendants(statement)
        if isinstance(each, cst.Name | cst.Attribute | cst.Subscript) and not _is_written(source, each)
    ]
    name = name or _carried(statement, {text for each in read if (text := dotted(each))})
    return [each for each in read if source.text(each.with_changes(lpar=(), rpar=())) == name]


def _is_written(source: Source, node: cst.CSTNode) -> bool:
    """Whether it is a target, or no expression of its own: an attribute's or a keyword's name, something called."""
    parent = source.parent(node)
    match parent:
        case cst.Attribute():
            return parent.attr is node or parent.attr.value in ("detach", "detach_", "item")
        case cst.Arg():
            return parent.keyword is node
        case cst.Call():
            return parent.func is node
        case cst.Param() | cst.AsName() | cst.NameItem() | cst.Annotation():
            return True
    while isinstance(parent, cst.Element | cst.StarredElement | cst.Tuple | cst.List):
        node, parent = parent, source.parent(parent)
    targets = cst.AssignTarget | cst.AugAssign | cst.AnnAssign | cst.NamedExpr | cst.CompFor
    return isinstance(parent, targets) and getattr(parent, "target", None) is node


def _carried(statement: cst.CSTNode, used: set[str]) -> str | None:
    """The one name that a statement reads and then gives a new value: ``h`` in ``out, h = rnn(x, h)``."""
    carried = bound(statement) & used
    longest = [name for name in carried if not any(other.startswith(f"{name}.") for other in carried)]
    return longest[0] if len(longest) == 1 else None


def _first_value(source: Source, name: str) -> str | None:
    """What holds for a name that is no tensor at some place: the state before the first turn of a loop."""
    for node in source.nodes:
        match node:
            case cst.Assign(targets=targets, value=cst.Name(value="None")):
                if any(dotted(each.target) == name for each in targets):
                    return f"{name} is None"
            case cst.Assign(targets=targets, value=cst.Integer() | cst.Float() as number):
                if any(dotted(each.target) == name for each in targets):
                    return f"isinstance({name}, {'int' if isinstance(number, cst.Integer) else 'float'})"
            case cst.Param(name=cst.Name(value=parameter), default=cst.Name(value="None")):
                if parameter == name:
                    return f"{name} is None"
    return None


def _is_pair(source: Source, statement: cst.CSTNode, name: str) -> bool:
    """Whether a name stands for a tuple of tensors, like the state of an LSTM."""
    for node in source.nodes:
        match node:
            case cst.Assign(targets=targets, value=value):
                given = [each.target for each in targets if dotted(each.target) == name]
                if given and isinstance(value, cst.Tuple):
                    return True
                if dotted(value) == name and any(isinstance(each.target, cst.Tuple) for each in targets):
                    return True
    made = _constructors(source)
    for call in descendants(statement):
        if isinstance(call, cst.Call) and made.get(dotted(call.func) or "") in _WITH_PAIRS:
            return any(dotted(arg.value) == name for arg in call.args[1:])
    return False


def _constructors(source: Source) -> dict[str, str]:
    """By name: the class that a variable or attribute was made of."""
    found = {}
    for node in source.nodes:
        if isinstance(node, cst.Assign) and isinstance(node.value, cst.Call):
            kind = (dotted(node.value.func) or "").rpartition(".")[2]
            found.update({name: kind for each in node.targets if (name := dotted(each.target))})
    return found
