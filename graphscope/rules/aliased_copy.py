"""GS217: what was meant as a copy of parameters is the parameters themselves."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from ..events import Call
from ..findings import Confidence, Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Trace
from ._aliases import Aliases
from ._source import place_of, trees

_COPYING = frozenset({"copy_", "lerp_"})
_COMPARING = frozenset({"sub", "__sub__", "rsub", "__rsub__", "mse_loss", "l1_loss", "smooth_l1_loss"})
_COPIES = frozenset(
    {
        "target",
        "tgt",
        "teacher",
        "ema",
        "old",
        "prev",
        "previous",
        "reference",
        "frozen",
        "anchor",
        "snapshot",
        "backup",
    }
)  # what a name says that is given to a copy


class AliasedCopy(Rule):
    """What was meant as a copy of parameters is the parameters themselves, under another name.

    ``target = net`` gives a second name to one module, and ``net.state_dict()`` holds the very memory of the
    parameters: both follow every step. A target network is then no fixed target, weights that were kept as the best are
    the last ones, and the distance to the old weights is always zero.

    Bad::

        import torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            best = net.state_dict()  # GS217
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
            net.load_state_dict(best)  # GS217

    Good::

        import copy, torch, graphscope

        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        with graphscope.watch() as report:
            best = copy.deepcopy(net.state_dict())
            for _ in range(2):
                opt.zero_grad()
                net(torch.ones(2, 4)).sum().backward()
                opt.step()
            net.load_state_dict(best)
    """

    code = "GS217"
    severity = Severity.WARNING

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each statement that copies parameters onto themselves, or compares them with themselves."""
        aliases = Aliases(trace)
        trained = {write.tensor for step in trace.steps for write in step.writes}
        seen: set[Location] = set()
        named: set[Location] = set()
        for call in trace.calls:
            if call.location is None or call.location in seen or len(call.inputs) < 2:
                continue
            one, other = call.inputs[:2]
            if aliases.root(one) != aliases.root(other) or aliases.root(one) not in trained:
                continue
            kept = _is_kept(trace, aliases, call)
            if call.op in _COPYING or (call.op in _COMPARING and kept):
                seen.add(call.location)
                finding = self._of_call(trace, aliases, call, kept)
                named.update(place.location for place in finding.places)
                yield finding
        for location, name, original in _second_names(trace, trained):
            if all((place.file, place.line) != (location.file, location.line) for place in named):
                yield self._of_name(location, name, original)

    def _of_call(self, trace: Trace, aliases: Aliases, call: Call, kept: bool) -> Finding:
        assert call.location is not None
        parameter = trace.graph.tensor(aliases.root(call.inputs[0]))
        places = [] if kept else [Place(at, Role.CAUSE, said) for at, said in _renamed(trace, parameter.name or "")]
        made = aliases.made(call.inputs[1]) or aliases.made(call.inputs[0])
        if made is not None and made.location not in (None, call.location):
            places.append(Place(made.location, Role.CAUSE, "this gives the memory of the parameters, not a copy of it"))
        verb = "copies" if call.op in _COPYING else "compares"
        places.append(
            Place(
                call.location,
                Role.CAUSE,
                f"`{call.op}` {verb} it to itself" if verb == "copies" else f"`{call.op}` {verb} it with itself",
            )
        )
        effect = "changes nothing" if verb == "copies" else "is always zero"
        return self.finding(
            f"`{call.op}` {verb} {parameter} {'to' if verb == 'copies' else 'with'} its own memory, which every step "
            f"changes, so this {effect}: what was meant as a copy is the same tensor under another name",
            places=places,
            fixes=[
                Fix("copy it when it is taken: copy.deepcopy(module), copy.deepcopy(state_dict), or .detach().clone()")
            ],
            tensor=parameter.name,
        )

    def _of_name(self, location: Location, name: str, original: str) -> Finding:
        return self.finding(
            f"`{name}` is a second name of `{original}`, not a copy: each step that trains `{original}` changes it too",
            places=[Place(location, Role.CAUSE, f"`{name}` is the same module from here on")],
            fixes=[Fix(f"write `{name} = copy.deepcopy({original})`", location=location)],
            confidence=Confidence.LIKELY,
            name=name,
        )


def _is_kept(trace: Trace, aliases: Aliases, call: Call) -> bool:
    """Whether one of the two aliases was taken before a step that changed the parameter, and is used after it."""
    root = aliases.root(call.inputs[0])
    taken = [made.time for made in map(aliases.made, call.inputs[:2]) if made is not None]
    return any(
        min(taken) < step.time < call.time and any(write.tensor == root for write in step.writes)
        for step in (trace.steps if taken else ())
    )


def _renamed(trace: Trace, parameter: str) -> Iterator[tuple[Location, str]]:
    """The statements that give a second name to the module that a parameter is in."""
    module = next((m.name for m in trace.modules if parameter.startswith(f"{m.name}.")), None)
    for file, statement, name, original in _assignments(trace):
        if module is not None and _last(module) in (_last(name), _last(original)):
            yield place_of(file, statement), f"`{name}` is the same module as `{original}` from here on"


def _second_names(trace: Trace, trained: set[int]) -> Iterator[tuple[Location, str, str]]:
    """The statements that give a module that trains a second name, one that speaks of a copy."""
    modules = {_last(m.name) for m in trace.modules if trained.intersection(id for _, id in m.parameters)}
    candidates = []
    for file, statement, name, original in _assignments(trace):
        words, others = (set(re.split(r"[_\d]+", _last(each))) for each in (name, original))
        if words & _COPIES and not others & _COPIES and modules & {_last(name), _last(original)}:
            candidates.append((file, statement, name, original))
    if candidates:
        taken = Counter(name for _, _, name, _ in _assignments(trace, plain=False))
        given = {id(node) for _, tree in trees(trace) for node in _of_arguments(tree)}
        for file, statement, name, original in candidates:
            if id(statement) not in given and taken[name] == 1 and taken[original] <= 1:
                yield place_of(file, statement), name, original


def _of_arguments(tree: ast.Module) -> Iterator[ast.Assign]:
    """The assignments of what a function was given, which may well be a copy that its caller made."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            arguments = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)} - {"self"}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in arguments:
                    yield node


def _assignments(trace: Trace, *, plain: bool = True) -> Iterator[tuple[str, ast.Assign, str, str]]:
    """Assignments to a name or an attribute; ``plain``: of another name or attribute."""
    return ((file, *each) for file, tree in trees(trace) for each in _of_names(tree, plain))


@lru_cache(maxsize=64)
def _of_names(tree: ast.Module, plain: bool) -> tuple[tuple[ast.Assign, str, str], ...]:
    return tuple(
        (node, ast.unparse(target), ast.unparse(node.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and (not plain or isinstance(node.value, ast.Name | ast.Attribute))
        for target in node.targets
        if isinstance(target, ast.Name | ast.Attribute)
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2]
