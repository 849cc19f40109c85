"""GS215: an iterator over parameters is used a second time, when nothing is left in it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from .._plain import dataclass
from ..events import Refused
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._source import place_of, ran, trees

_SOURCES = {"parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers"}
_LAZY = {"filter", "map", "zip", "chain", "from_iterable", "iter", "enumerate", "reversed", "islice", "starmap"}
_EAGER = {"list", "tuple", "set", "dict", "sum", "any", "all", "sorted", "max", "min", "len"}
_TORCHS = {"clip_grad_norm_", "clip_grad_value_", "parameters_to_vector", "get_total_norm", "add_param_group"}


class ExhaustedIterator(Rule):
    """An iterator over parameters is used a second time, when nothing is left in it.

    ``net.parameters()``, ``filter``, ``map`` and ``itertools.chain`` give iterators, which can be gone through
    once. An optimizer goes through the one it is given; a loop over the same iterator afterwards (to freeze, to clip,
    to count) runs not a single time, and Python says nothing.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            params = net.parameters()  # GS215
            opt = torch.optim.SGD(params, lr=0.1)
            net(torch.ones(2, 4)).sum().backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)  # GS215
            opt.step()

    Good::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            params = list(net.parameters())
            opt = torch.optim.SGD(params, lr=0.1)
            net(torch.ones(2, 4)).sum().backward()
            torch.nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
    """

    code = "GS215"
    severity = Severity.WARNING
    torch_messages = ("optimizer got an empty parameter list",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each iterator that is gone through twice; an error where an optimizer refuses what is left."""
        lines = ran(trace)
        for file, tree in trees(trace):
            makers = {optimizer.location.line for optimizer in trace.optimizers if optimizer.location is not None}
            refused = {event.location.line for event in trace.events if isinstance(event, Refused)}
            ran_here = frozenset(line for each, line in lines if each == file)
            consumers = _Consumers(_functions(tree), makers | refused)
            for scope in _scopes(tree):
                for use in scope.twice(consumers, ran_here):
                    yield self._finding(trace, file, use)

    def _finding(self, trace: Trace, file: str, use: _Twice) -> Finding:
        second, first = place_of(file, use.second), place_of(file, use.first)
        is_refused = any(
            isinstance(event, Refused) and event.location.line == second.line and self.torch_messages[0] in event.error
            for event in trace.events
        )
        again = "it is empty here from the second time on" if first == second else "nothing is left in it here"
        places = [
            Place(place_of(file, use.made), Role.CAUSE, f"`{use.name}` is an iterator: it can be gone through once"),
            Place(second, Role.FAILURE if is_refused else Role.CAUSE, again),
        ]
        if first != second:
            places.append(Place(first, Role.RELATED, "it is gone through here"))
        before = "an earlier round of the loop" if first == second else f"line {first.line}"
        return self.finding(
            f"`{use.name}` is an iterator that {before} has used up, so the use on line {second.line} gets no "
            "parameter at all" + (": optimizer got an empty parameter list" if is_refused else ""),
            places=places,
            fixes=[Fix(f"keep them in a list: `{use.name} = list(...)`", location=Location(*_at(file, use.made)))],
            severity=Severity.ERROR if is_refused else Severity.WARNING,
            iterator=use.name,
        )


def _at(file: str, node: ast.stmt) -> tuple[str, int, int]:
    return file, node.lineno, node.end_lineno or node.lineno


@dataclass(frozen=True, slots=True)
class _Twice:
    """A name, the statement that makes the iterator, and two statements that go through it."""

    name: str
    made: ast.stmt
    first: ast.stmt
    second: ast.stmt


class _Consumers:
    """Which calls go through an iterator that they are given."""

    def __init__(self, functions: dict[str, ast.FunctionDef], optimizers: set[int]) -> None:
        self._functions = functions
        self._optimizers = optimizers

    def of(self, expression: ast.AST, name: str) -> bool:
        """Whether evaluating this goes through the iterator."""
        for node in ast.walk(expression):
            match node:
                case ast.ListComp() | ast.SetComp() | ast.DictComp():
                    if any(self._hands_on(each.iter, name) for each in node.generators):
                        return True
                case ast.Call():
                    if any(self._hands_on(each, name) for each in self._consumed(node)):
                        return True
                case _:
                    pass
        return False

    def loops_over(self, iterated: ast.expr, name: str) -> bool:
        """Whether a loop over this goes through the iterator."""
        return self._hands_on(iterated, name)

    def _consumed(self, call: ast.Call) -> list[ast.expr]:
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        function = _name(call.func)
        if function in _EAGER | _TORCHS:
            return arguments
        if call.lineno in self._optimizers and function[:1].isupper():
            return arguments
        known = self._functions.get(function)
        if known is not None:
            parameters = [each.arg for each in known.args.args][isinstance(call.func, ast.Attribute) :]
            loops = {ast.unparse(each.iter) for each in ast.walk(known) if isinstance(each, ast.For)}
            return [value for name, value in zip(parameters, call.args, strict=False) if name in loops]
        return []

    def _hands_on(self, expression: ast.expr, name: str) -> bool:
        """Whether this is the iterator, or a lazy view, or a literal of things, that it is in."""
        match expression:
            case ast.Name() | ast.Attribute():
                return ast.unparse(expression) == name
            case ast.Call() if _name(expression.func) in _LAZY:
                return any(self._hands_on(each, name) for each in expression.args)
            case ast.GeneratorExp():
                return any(self._hands_on(each.iter, name) for each in expression.generators)
            case ast.List() | ast.Tuple():
                return any(self._hands_on(each, name) for each in expression.elts if not isinstance(each, ast.Name))
            case ast.Dict():
                return any(self._hands_on(each, name) for each in expression.values)
            case ast.Starred():
                return self._hands_on(expression.value, name)
            case _:
                return False


@dataclass(frozen=True, slots=True)
class _Site:
    """A statement with the blocks around it, innermost last."""

    statement: ast.stmt
    blocks: tuple[tuple[ast.AST, str, tuple[ast.stmt, ...]], ...]

    @property
    def loops(self) -> frozenset[ast.AST]:
        """The loops around it."""
        return frozenset(
            owner for owner, part, _ in self.blocks if isinstance(owner, ast.For | ast.While) and part == "body"
        )

    def excludes(self, other: _Site) -> bool:
        """Whether the two stand in different branches of one ``if``."""
        parts: dict[ast.AST, str] = {owner: part for owner, part, _ in self.blocks if isinstance(owner, ast.If)}
        return any(parts.get(owner, part) != part for owner, part, _ in other.blocks)

    def did_run(self, lines: frozenset[int]) -> bool:
        """Whether something in the block around it is known to have run, other than inside itself."""
        *_, (_, _, block) = self.blocks
        own = range(self.statement.lineno + 1, (self.statement.end_lineno or 0) + 1)
        return any(
            line not in own
            for each in block
            for line in range(each.lineno, (each.end_lineno or 0) + 1)
            if line in lines
        )


class _Scope:
    """The statements among which a name means one thing."""

    def __init__(self, sites: list[_Site]) -> None:
        self._sites = sites

    def twice(self, consumers: _Consumers, lines: frozenset[int]) -> Iterator[_Twice]:
        """The iterators over parameters that are gone through twice."""
        made: dict[str, list[_Site]] = {}
        for site in self._sites:
            for target in _targets(site.statement):
                made.setdefault(ast.unparse(target), []).append(site)
        for name, makers in made.items():
            statement = makers[0].statement
            if len(makers) > 1 or not isinstance(statement, ast.Assign) or not _is_iterator(statement.value):
                continue
            uses = [site for site in self._sites if _goes_through(site.statement, name, consumers)]
            uses = [site for site in uses if site.statement is not statement and site.did_run(lines)]
            for first in uses:
                if first.loops - makers[0].loops:
                    yield _Twice(name, statement, first.statement, first.statement)
                    break
                later = [site for site in uses if site is not first and not site.excludes(first)]
                if later:
                    yield _Twice(name, statement, first.statement, later[0].statement)
                    break


@lru_cache(maxsize=64)
def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@lru_cache(maxsize=64)
def _scopes(tree: ast.Module) -> list[_Scope]:
    scopes = [_Scope(list(_sites(tree, ())))]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            scopes.append(_Scope(list(_sites(node, ()))))
        elif isinstance(node, ast.ClassDef):  # what is kept on ``self`` is shared by the methods
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            scopes.append(_OfClass([site for method in methods for site in _sites(method, ())]))
    return scopes


class _OfClass(_Scope):
    """The methods of a class, for what they keep on ``self``."""

    def twice(self, consumers: _Consumers, lines: frozenset[int]) -> Iterator[_Twice]:
        """The iterators kept on ``self`` that are gone through twice."""
        return (each for each in super().twice(consumers, lines) if each.name.startswith("self."))


def _sites(owner: ast.AST, outside: tuple[tuple[ast.AST, str, tuple[ast.stmt, ...]], ...]) -> Iterator[_Site]:
    """The statements of a scope in order, without those of functions and classes in it."""
    for part in ("body", "orelse", "finalbody"):
        block = getattr(owner, part, None)
        if not isinstance(block, list):
            continue
        blocks = (*outside, (owner, part, tuple(block)))
        for statement in block:
            yield _Site(statement, blocks)
            if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from _sites(statement, blocks)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign():
            return [each for each in statement.targets if isinstance(each, ast.Name | ast.Attribute)]
        case ast.AugAssign() | ast.AnnAssign() | ast.For():
            return [statement.target]
        case _:
            return []


def _goes_through(statement: ast.stmt, name: str, consumers: _Consumers) -> bool:
    match statement:
        case ast.For():
            stops = any(isinstance(each, ast.Break | ast.Return) for each in ast.walk(statement))
            return consumers.of(statement.iter, name) or (not stops and consumers.loops_over(statement.iter, name))
        case ast.If() | ast.While():
            return consumers.of(statement.test, name)
        case ast.With():
            return any(consumers.of(item.context_expr, name) for item in statement.items)
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() | ast.Try():
            return False
        case _:
            return consumers.of(statement, name)


def _is_iterator(value: ast.expr) -> bool:
    """Whether this gives an iterator over parameters or modules, which can be gone through once."""
    match value:
        case ast.Call(func=ast.Attribute(attr=attribute)) if attribute in _SOURCES:
            return True
        case ast.Call() if _name(value.func) in _LAZY:
            return any(_mentions_parameters(each) for each in value.args)
        case ast.GeneratorExp():
            return any(_mentions_parameters(each.iter) for each in value.generators)
        case _:
            return False


def _mentions_parameters(value: ast.expr) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _SOURCES for node in ast.walk(value))


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
