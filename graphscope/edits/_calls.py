"""Edits of backward calls: retain the graph, backpropagate a sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import libcst as cst

from ..findings import Edit
from ._source import Refused, Source, Splice, bound, descendants, dotted, names, only

_GRAD = ("grad", "autograd.grad", "torch.autograd.grad")
_FUNCTION = ("autograd.backward", "torch.autograd.backward")


def retain(source: Source, edit: Edit) -> Iterator[Splice]:
    """Pass ``retain_graph=True``."""
    line = edit.location.line
    calls = source.at(line, cst.Call, lambda call: _position(call) is not None)
    if len(calls) > 1:  # a call that begins before the line contains those on it
        calls = [call for call in calls if line in source.lines(_last(call.func))]
    call = only(calls)
    at = _position(call)
    assert at is not None
    given = [arg for arg in call.args if arg.keyword and arg.keyword.value == "retain_graph"]
    if not given and any(arg.star for arg in call.args):
        raise Refused("retain_graph may be among the starred arguments")
    plain = [arg for arg in call.args if not arg.keyword]
    given = given or plain[at : at + 1]
    if given:  # what it is given ends where the argument ends
        yield Splice(source.end(given[0]) - len(source.text(given[0].value).encode()), source.end(given[0]), "True")
    else:
        at = source.end(call.args[-1]) if call.args else source.end(call) - 1
        yield Splice(at, at, ", retain_graph=True" if call.args else "retain_graph=True")


def _position(call: cst.Call) -> int | None:
    """At which place ``retain_graph`` may be given without its name; None if this is no call of the engine."""
    name = dotted(call.func)
    if name in _GRAD:
        return 3
    if name in _FUNCTION:
        return 2
    return 1 if isinstance(call.func, cst.Attribute) and call.func.attr.value == "backward" else None


def _last(function: cst.BaseExpression) -> cst.CSTNode:
    return function.attr if isinstance(function, cst.Attribute) else function


def add_up(source: Source, edits: Sequence[Edit]) -> Iterator[Splice]:
    """Drop backward statements, and call ``backward`` on the sum at the statements that stay."""
    for other in dict.fromkeys(edit.other for edit in edits):
        if other is None:
            raise Refused("a sum needs two statements")
        stays = _statement(source, other.line)
        dropped = [_statement(source, edit.location.line) for edit in edits if edit.other == other]
        if stays in dropped:
            yield from _add_up_in_loop(source, only(dropped))
            continue
        for each in dropped:
            _check_same_value(source, each, stays)
            yield _without(source, each)
        calls = sorted((_backward(each) for each in (*dropped, stays)), key=source.start)
        terms = " + ".join(_terms(source, call) for call in calls)
        call = _backward(stays)
        assert isinstance(call.func, cst.Attribute)
        yield Splice(source.start(call), source.start(call.func.attr), f"({terms}).")


def _statement(source: Source, line: int) -> cst.BaseSmallStatement:
    """The one statement on a line that is a plain backward."""
    return only([each for each in source.statements(line) if _plain_backward(each)])


def _plain_backward(statement: cst.BaseSmallStatement) -> cst.Call | None:
    """The call of a statement that is ``loss.backward()``, the loss made of names alone."""
    match statement:
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=loss, attr=cst.Name(value="backward"))) as call):
            plain = all(
                isinstance(each, cst.BinaryOperation | cst.Name | cst.Attribute | cst.BaseNumber)
                for each in descendants(loss)
                if isinstance(each, cst.BaseExpression)
            )
            allowed = all(arg.keyword and arg.keyword.value in ("retain_graph", "inputs") for arg in call.args)
            if plain and allowed:
                return call
    return None


def _backward(statement: cst.BaseSmallStatement) -> cst.Call:
    call = _plain_backward(statement)
    if call is None:
        raise Refused("no plain backward")
    return call


def _terms(source: Source, call: cst.Call) -> str:
    assert isinstance(call.func, cst.Attribute)
    loss = call.func.value
    if isinstance(loss, cst.BinaryOperation) and isinstance(loss.operator, cst.Add):
        return source.text(loss.with_changes(lpar=(), rpar=()))
    return source.text(loss)


def _check_same_value(source: Source, dropped: cst.BaseSmallStatement, stays: cst.BaseSmallStatement) -> None:
    """Refuse where the loss is not, at the other statement, what it is at its own; or the options differ."""
    one, other = source.parent(dropped), source.parent(stays)
    assert one is not None and other is not None
    if one is not other and source.block(one) is not source.block(other):
        raise Refused("not in one block")
    inputs = [
        [source.text(arg.value) for arg in _backward(each).args if arg.keyword and arg.keyword.value == "inputs"]
        for each in (dropped, stays)
    ]
    if inputs[0] != inputs[1]:
        raise Refused("for different inputs")
    first, last = sorted((dropped, stays), key=source.start)
    used = names(_backward(dropped).func)
    for each in source.nodes:
        if isinstance(each, cst.BaseSmallStatement | cst.BaseCompoundStatement) and (
            source.end(first) <= source.start(each) < source.start(last) and used & bound(each)
        ):
            raise Refused("the loss changes in between")


def _without(source: Source, statement: cst.BaseSmallStatement) -> Splice:
    """Take a statement out, with its line if nothing else is on it."""
    line = source.parent(statement)
    assert isinstance(line, cst.SimpleStatementLine | cst.SimpleStatementSuite)
    if len(line.body) == 1:
        if isinstance(line, cst.SimpleStatementSuite):
            raise Refused("nothing would be left")
        return Splice(source.line_start(source.start(statement)), source.line_end(source.end(statement)))
    index = next(index for index, each in enumerate(line.body) if each is statement)
    if index + 1 < len(line.body):
        return Splice(source.start(statement), source.start(line.body[index + 1]))
    return Splice(source.end(line.body[index - 1]), source.end(statement))


def _add_up_in_loop(source: Source, statement: cst.BaseSmallStatement) -> Iterator[Splice]:
    """Collect the losses of a loop, and call ``backward`` on their sum after it."""
    line = source.alone(statement)
    loop = source.parent(line) and source.parent(source.parent(line))  # type: ignore[arg-type]
    call = _backward(statement)
    if not isinstance(loop, cst.For) or loop.orelse or loop.asynchronous or line not in loop.body.body:
        raise Refused("not in a loop")
    assert isinstance(call.func, cst.Attribute)
    taken = names(source.module)
    if "sum" in bound(source.module):
        raise Refused("sum is a name of the program's")
    name = next(name for n in range(1, 100) if (name := "losses" if n == 1 else f"losses{n}") not in taken)
    loss, rest = call.func.value, source.between(source.start(call.func.attr), source.end(call))
    value = source.text(loss.with_changes(lpar=(), rpar=()))
    indent, end = source.indent(loop), source.line_end(source.end(loop))
    newline = source.module.default_newline
    start = source.line_start(source.start(loop))
    before_end = source.between(end - 1, end)
    yield Splice(start, start, f"{indent}{name} = []{newline}")
    yield Splice(source.start(call), source.end(call), f"{name}.append({value})")
    yield Splice(end, end, f"{newline if before_end != chr(10) else ''}{indent}sum({name}).{rest}{newline}")
