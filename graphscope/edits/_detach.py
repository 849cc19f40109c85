"""Detach what a statement takes from an earlier graph."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..findings import Edit
from ._source import Refused, Source, Splice, bound, descendants, dotted, only

_WITH_PAIRS = ("LSTM", "LSTMCell")


def detach(source: Source, edit: Edit) -> Iterator[Splice]:
    """Rewrite each use of a tensor in the statement; without a name, of the one that the statement carries over."""
    statement = _statement(source, edit.location.line)
    name = edit.name or _carried(source, statement)
    uses = [each for each in _uses(source, statement) if source.text(each.with_changes(lpar=(), rpar=())) == name]
    if not uses:
        raise Refused("not used there")
    pair = _is_pair(source, statement, name)
    for use in uses:
        text = source.between(source.start(use), source.end(use))
        if pair:
            item = next(each for each in ("s", "state", "each", "item") if each != name)
            text = f"tuple({item}.detach() for {item} in {text})"
        else:
            text = f"{text if isinstance(use, _PRIMARY) else f'({text})'}.detach()"
        yield Splice(source.start(use), source.end(use), text)


_PRIMARY = (cst.Name, cst.Attribute, cst.Subscript, cst.Call)


def _statement(source: Source, line: int) -> cst.CSTNode:
    """The simple statement on a line, or the expression at the head of a compound one."""
    statements = source.at(line, cst.BaseSmallStatement)
    if statements:
        return only(statements)
    heads = [
        head
        for kind, part in ((cst.For, "iter"), (cst.If, "test"), (cst.While, "test"))
        for each in source.at(line, kind)
        if line in source.lines(head := getattr(each, part))
    ]
    return only(heads)


def _uses(source: Source, statement: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """The expressions in a statement whose value it reads, and that are tensors' names or parts of them."""
    for each in descendants(statement):
        if isinstance(each, cst.Name | cst.Attribute | cst.Subscript) and not _is_written(source, each):
            yield each


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


def _carried(source: Source, statement: cst.CSTNode) -> str:
    """The one name that a statement reads and then gives a new value: ``h`` in ``out, h = rnn(x, h)``."""
    used = {name for each in _uses(source, statement) if (name := dotted(each))}
    carried = bound(statement) & used
    dots = {name for name in carried if not any(other.startswith(f"{name}.") for other in carried)}
    if len(dots) != 1:
        raise Refused("not one that is carried over")
    return dots.pop()


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
