"""The out-of-place form of a write."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from .._plain import dataclass
from ..findings import Edit
from ._source import Refused, Source, Splice, bound, descendants, dotted, names

_NO_OTHER_FORM = {
    *("copy_", "fill_", "zero_", "set_", "resize_", "resize_as_", "requires_grad_", "detach_", "share_memory_"),
    *("normal_", "uniform_", "random_", "bernoulli_", "exponential_", "geometric_", "cauchy_", "log_normal_"),
    *("apply_", "map_", "map2_", "retain_grad_"),
}
_FUNCTIONAL = ("torch", "F", "functional", "nn.functional", "torch.nn.functional")
_FLAG_FIRST = ("ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid")  # nn.ReLU(True)
_VIEWS = {
    *("view", "view_as", "reshape", "t", "transpose", "permute", "squeeze", "unsqueeze", "narrow", "select"),
    *("expand", "flatten", "unflatten", "detach", "movedim", "diagonal", "unfold"),
}


def out_of_place(source: Source, edit: Edit) -> Iterator[Splice]:
    """Write ``x = x + y`` for ``x += y``, ``x = x.add(y)`` for ``x.add_(y)``, and leave ``inplace=True`` out."""
    statements = source.statements(edit.location.line)
    found = [(each, write) for each in statements for write in _writes(source, each)]
    if edit.name is not None and len({write.name for _, write in found}) > 1:
        found = [(each, write) for each, write in found if write.name == edit.name]
    if not found:
        yield from _modules(source, edit.location.line)
        return
    if len({write.name for _, write in found}) != 1:
        raise Refused("several writes")
    for statement, write in found:
        if write.name is not None:
            check_own(source, statement, write.name)
        if isinstance(write.node, cst.AugAssign):
            yield from _assignment(source, write.node)
        else:
            yield from _call(source, write.node)
    yield from _binding(source, *found[-1])


def written(source: Source, statement: cst.BaseSmallStatement) -> str | None:
    """The name of the one tensor that a statement writes to in place."""
    if isinstance(statement, cst.Assign):
        targets = [each.target for each in statement.targets if isinstance(each.target, cst.Subscript)]
        return dotted(targets[0].value) if len(targets) == len(statement.targets) == 1 else None
    if isinstance(statement, cst.AugAssign) and isinstance(statement.target, cst.Subscript):
        return dotted(statement.target.value)
    found = {write.name for write in _writes(source, statement)}
    return found.pop() if len(found) == 1 else None


def check_own(source: Source, statement: cst.CSTNode, name: str) -> None:
    """Refuse where another reference to the tensor was meant to see the write: a caller's, a list's, a base's."""
    if isinstance(statement, cst.Return):
        return
    scope, again, given = _surroundings(source, statement)
    used = {text for each in descendants(scope) if (text := dotted(each)) and _is_after(source, each, statement)}
    if name in given and name not in used | again:
        raise Refused("what it was taken from was to change")
    for node in descendants(scope):
        if isinstance(node, cst.Assign) and any(dotted(each.target) == name for each in node.targets):
            base = _base(node.value)
            if base is not None and base != name and base in used:
                raise Refused("what it is a view of was to change")


def _is_after(source: Source, node: cst.CSTNode, statement: cst.CSTNode) -> bool:
    return isinstance(node, cst.Name | cst.Attribute) and source.start(node) >= source.end(statement)


def _surroundings(source: Source, statement: cst.CSTNode) -> tuple[cst.CSTNode, set[str], set[str]]:
    """The function or module around a statement, the names that a loop reads again, the names that are given values.

    Parameters and the targets of loops are given theirs by what others hold as well.
    """
    around, again, given = source.parent(statement), set[str](), set[str]()
    while around is not None and not isinstance(around, cst.FunctionDef | cst.Module):
        if isinstance(around, cst.For | cst.While):
            target = names(around.target) if isinstance(around, cst.For) else set()
            rest = (each for each in around.body.body if statement not in descendants(each))
            again |= set[str]().union(*map(names, rest)) - target
            given |= target
        around = source.parent(around)
    if isinstance(around, cst.FunctionDef):
        given |= names(around.params) - {"self"}
    return around or source.module, again, given


def _base(value: cst.BaseExpression) -> str | None:
    """The name of the tensor that an expression is a view of."""
    match value:
        case cst.Subscript(value=owner):
            return dotted(owner)
        case cst.Attribute(value=owner, attr=cst.Name(value="T" | "mT" | "H" | "mH" | "data" | "real" | "imag")):
            return dotted(owner)
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value=method))) if method in _VIEWS:
            return dotted(owner)
    return None


@dataclass(frozen=True)
class _Write:
    """A node that writes in place, the name of what it writes to, and whether that is a value without a name."""

    node: cst.AugAssign | cst.Call
    name: str | None
    fresh: bool = False


def _writes(source: Source, statement: cst.BaseSmallStatement) -> Iterator[_Write]:
    if isinstance(statement, cst.AugAssign):
        yield _Write(statement, dotted(statement.target))
    for node in source.inside(statement, cst.Call):
        if (target := _target(node)) is not None:
            yield _Write(node, dotted(target), fresh=_is_fresh(target))


def _target(call: cst.Call) -> cst.BaseExpression | None:
    """What a call writes to in place; None if it does not, or makes a module that will."""
    if _is_method(call):
        assert isinstance(call.func, cst.Attribute)
        return _root(call.func.value)
    if (out := _out(call)) is not None:
        return _root(out.value)
    if _is_function(call) and call.args and call.args[0].keyword is None:
        return _root(call.args[0].value)
    return None


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    """What a chain of writes begins with: ``x`` in ``x.data.add_(y).mul_(z)``."""
    while True:
        if isinstance(node, cst.Call) and (inner := _target(node)) is not None:
            return inner
        if isinstance(node, cst.Attribute) and node.attr.value == "data":
            node = node.value
        else:
            return node


def _is_method(call: cst.Call) -> bool:
    """``x.add_(y)``, but not ``torch.relu_(x)`` nor ``nn.init.normal_(x)``."""
    func = call.func
    if not isinstance(func, cst.Attribute) or not func.attr.value.endswith("_") or func.attr.value.endswith("__"):
        return False
    owner = dotted(func.value)
    return owner not in _FUNCTIONAL and (owner or "").rpartition(".")[2] != "init"


def _is_function(call: cst.Call) -> bool:
    """``torch.relu_(x)``, or ``F.relu(x, inplace=True)`` (the function's name alone counts if it is lower-case)."""
    if isinstance(call.func, cst.Attribute) and dotted(call.func.value) in _FUNCTIONAL:
        name = call.func.attr.value
        return (name.endswith("_") and not name.endswith("__")) or _flag(call) is not None
    return isinstance(call.func, cst.Name) and call.func.value.islower() and _flag(call) is not None


def _out(call: cst.Call) -> cst.Arg | None:
    """The argument ``out=x`` of a function of torch."""
    if (dotted(call.func) or "").startswith("torch."):
        return next((arg for arg in call.args if arg.keyword and arg.keyword.value == "out"), None)
    return None


def _flag(call: cst.Call) -> cst.Arg | None:
    """The argument that says ``inplace=True``."""
    for arg in call.args:
        if arg.keyword and arg.keyword.value == "inplace" and dotted(arg.value) == "True":
            return arg
    kind = (dotted(call.func) or "").rpartition(".")[2]
    if kind in _FLAG_FIRST and len(call.args) == 1 and not call.args[0].keyword:
        return call.args[0] if dotted(call.args[0].value) == "True" else None
    return None


def _is_fresh(node: cst.BaseExpression) -> bool:
    """Whether an expression makes a tensor that nothing else refers to, rather than a view."""
    if isinstance(node, cst.Call):
        return not (isinstance(node.func, cst.Attribute) and node.func.attr.value in _VIEWS)
    return isinstance(node, cst.BinaryOperation | cst.UnaryOperation)


def _assignment(source: Source, node: cst.AugAssign) -> Iterator[Splice]:
    """``x += y`` becomes ``x = x + y``."""
    name = dotted(node.target)
    if name is None:
        raise Refused("writes to a part")
    operator = source.text(node.operator).removesuffix("=")
    start = source.start(node.operator)
    yield Splice(start, start + len(source.text(node.operator).encode()), f"= {name} {operator}")
    if not node.value.lpar and not _binds_tighter(node):
        yield Splice(source.start(node.value), source.start(node.value), "(")
        yield Splice(source.end(node), source.end(node), ")")


def _binds_tighter(node: cst.AugAssign) -> bool:
    value = node.value
    if isinstance(value, cst.BinaryOperation):
        products = cst.Multiply | cst.Divide | cst.MatrixMultiply | cst.Power
        return isinstance(node.operator, cst.AddAssign | cst.SubtractAssign) and isinstance(value.operator, products)
    return isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript | cst.BaseNumber)


def _call(source: Source, call: cst.Call) -> Iterator[Splice]:
    """Take the underscore off a call, and its ``inplace=True`` or ``out=``, and ``.data`` off what it is called on."""
    if (spare := _flag(call) or _out(call)) is not None:
        yield _without(source, call, spare)
    func = call.func
    if not isinstance(func, cst.Attribute):
        return
    if func.attr.value.endswith("_"):
        if func.attr.value in _NO_OTHER_FORM:
            raise Refused("has no out-of-place form")
        yield Splice(source.end(func.attr) - 1, source.end(func.attr))
    if _is_method(call) and isinstance(func.value, cst.Attribute) and func.value.attr.value == "data":
        if func.value.lpar:
            raise Refused("in parentheses")
        yield Splice(source.end(func.value.value), source.end(func.value))


def _without(source: Source, call: cst.Call, arg: cst.Arg) -> Splice:
    """Take an argument out of a call."""
    index = next(index for index, each in enumerate(call.args) if each is arg)
    if index:
        return Splice(source.end(call.args[index - 1]), source.end(arg))
    if len(call.args) > 1:
        return Splice(source.start(arg), source.start(call.args[1]))
    comma = arg.comma
    return Splice(source.start(arg), source.end(comma) if isinstance(comma, cst.Comma) else source.end(arg))


def _binding(source: Source, statement: cst.BaseSmallStatement, write: _Write) -> Iterator[Splice]:
    """Let the name that was written to stand for the new tensor."""
    if isinstance(write.node, cst.AugAssign):
        return
    if write.name is None:
        if not write.fresh or isinstance(statement, cst.Expr):
            raise Refused("writes to what has no name")
        return
    if isinstance(statement, cst.Return) or write.name in bound(statement):
        return
    value = statement.value if isinstance(statement, cst.Expr | cst.Assign) else None
    if isinstance(value, cst.Call) and _target(value) is not None and dotted(_root(value)) == write.name:
        start = source.start(value) - sum(len(source.text(each).encode()) for each in value.lpar)
        yield Splice(start, start, f"{write.name} = ")
        return
    raise Refused("the old name may be used again")


def _modules(source: Source, line: int) -> Iterator[Splice]:
    """``nn.ReLU(inplace=True)``: made on this line, or called on it by its name."""
    made = [call for call in source.at(line, cst.Call) if _flag(call) is not None]
    if not made:
        called = {dotted(call.func) for call in source.at(line, cst.Call)} - {None}
        made = [
            call
            for node in source.nodes
            if isinstance(node, cst.Assign) and called & {dotted(each.target) for each in node.targets}
            for call in descendants(node.value)
            if isinstance(call, cst.Call) and _flag(call) is not None
        ]
    if not made:
        raise Refused("no write there")
    for call in made:
        flag = _flag(call)
        assert flag is not None
        yield _without(source, call, flag)
