"""GS214: requires_grad is set where it switches nothing, or where torch refuses it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ..events import Refused, RequiresGradSet
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Flag, ModuleRef, Trace
from ._parameters import listed
from ._source import place_of, trees


class MisplacedRequiresGrad(Rule):
    """``requires_grad`` is set where it switches nothing: on a module, under a misspelt name, or on a result.

    Python lets a program set any attribute on a module or a tensor. ``net.requires_grad = False`` only makes a new
    attribute of the module, which nothing reads: the switch is an attribute of each parameter, and
    ``net.requires_grad_(False)`` sets it for all of them. ``weight.require_grad = False`` (without the s) is as idle.
    And only a leaf has the switch: the result of an operation requires grad because of what it was computed from, and
    torch refuses to change that. ``detach()`` gives the value without the history.

    Bad::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            body.requires_grad = False  # GS214
            opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
            head(body(torch.ones(2, 4))).sum().backward()
            opt.step()

    Bad, on the result of an operation::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            features = body(torch.ones(2, 4))
            try:
                features.requires_grad = False  # GS214
            except RuntimeError:
                pass

    Good::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            body.requires_grad_(False)
            opt = torch.optim.SGD(head.parameters(), lr=0.1)
            head(body(torch.ones(2, 4))).sum().backward()
            opt.step()
    """

    code = "GS214"
    severity = Severity.WARNING
    torch_messages = ("you can only change requires_grad flags of leaf variables",)

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each such attribute of a module whose parameters did what it was to prevent, or did not.

        An error for each statement that torch refused.
        """
        refused = {e.location: e for e in trace.events if isinstance(e, Refused) and self.torch_messages[0] in e.error}
        for event in refused.values():
            yield self._of_result(trace, event)
        groups: dict[tuple[object, ...], list[_Idle]] = {}  # a loop sets many with one statement
        for module in trace.modules:
            for flag in module.flags:
                affected = _affected(trace, module, flag)
                if affected and (owners := _statements(trace, module, flag)):
                    key = (flag.attribute, flag.value, *owners)
                    groups.setdefault(key, []).append(_Idle(module, flag, affected, owners))
        for group in groups.values():
            yield self._finding(trace, group)

    def _of_result(self, trace: Trace, event: Refused) -> Finding:
        """``requires_grad`` of the result of an operation."""
        tensor = trace.graph.tensor(event.tensors[0])
        name = f"`{tensor.name}`" if tensor.name else f"a tensor of shape {tensor.shape}"
        said = re.search(r"([\w.]+)\.requires_grad", trace.source_line(event.location) or "")
        advice = f"write `{said[1]} = {said[1]}.detach()`" if said else "go on with `.detach()` of it"
        places = [Place(event.location, Role.CAUSE, "torch refuses to set it here")]
        if tensor.made_at is not None and tensor.made_at != event.location:
            places.append(Place(tensor.made_at, Role.RELATED, "computed here, so it is no leaf"))
        return self.finding(
            f"you can only change requires_grad flags of leaf variables, and {name} is the result of an operation: it "
            "requires grad because of what it was computed from",
            places=places,
            fixes=[
                Fix(f"{advice}: the same values, without the history", event.location),
                Fix("or compute it under torch.no_grad(), which also saves the memory of its graph"),
            ],
            severity=Severity.ERROR,
            tensor=tensor.name,
        )

    def _finding(self, trace: Trace, group: list[_Idle]) -> Finding:
        module, flag, _, owners = group[0]
        affected = list(dict.fromkeys(id for idle in group for id in idle.affected))
        on_module = flag.path not in dict(module.parameters)
        name = f"{module.name}.{flag.path}" if flag.path else module.name
        if len(group) > 1 or not on_module:
            name = next(iter(owners.values()))
        instead = f"{name}.requires_grad_({flag.value})" if on_module else f"{name}.requires_grad = {flag.value}"
        effect = "still require grad, and get gradients" if not flag.value else "do not require grad, and do not train"
        what = "a plain attribute of the module" if on_module else "a plain attribute of the tensor"
        return self.finding(
            f"`{name}.{flag.attribute} = {flag.value}` switches nothing, it only makes {what}: "
            f"{listed(trace, affected)} {effect}",
            places=[
                Place(place, Role.CAUSE, f"`{flag.attribute}` is set here, and nothing reads it") for place in owners
            ],
            fixes=[Fix(f"write `{instead}`", location=next(iter(owners)))],
            name=name,
            attribute=flag.attribute,
            parameters=tuple(trace.graph.tensor(id).name for id in affected),
        )


class _Idle(NamedTuple):
    """An attribute that switches nothing, whom it was to switch, and the statements: with what they set it on."""

    module: ModuleRef
    flag: Flag
    affected: list[int]
    owners: dict[Location, str]


def _affected(trace: Trace, module: ModuleRef, flag: Flag) -> list[int]:
    """The parameters under the module, or the one, that has the attribute, and that are not as it says."""
    frozen = {id for step in trace.steps for id in step.frozen}
    under = [id for path, id in module.parameters if f"{path}.".startswith(f"{flag.path}." if flag.path else "")]
    if flag.value:
        return [id for id in under if not trace.graph.tensor(id).requires_grad]
    return [id for id in under if id in trace.ever_reached and id not in frozen]


def _statements(trace: Trace, module: ModuleRef, flag: Flag) -> dict[Location, str]:
    """Where the program sets such an attribute, and on what: that has this name, or else on anything but a tensor."""
    switching = {
        (event.location.file, event.location.line) for event in trace.events if isinstance(event, RequiresGradSet)
    }
    named: dict[Location, str] = {}
    others: dict[Location, str] = {}
    for file, tree in trees(trace):
        for node in ast.walk(tree):
            owner = _owner(node, flag)
            if isinstance(node, ast.stmt | ast.expr) and owner is not None and (file, node.lineno) not in switching:
                full = f"{module.name}.{flag.path}".rstrip(".")
                text = ast.unparse(owner)
                (named if text == full else others)[place_of(file, node)] = text
            if isinstance(node, ast.Attribute) and node.attr == flag.attribute and isinstance(node.ctx, ast.Load):
                is_tensors = flag.attribute == "requires_grad" and ast.unparse(node.value) != "self"
                if not is_tensors:  # the program has a use of its own for it
                    return {}
    return named or others


def _owner(node: ast.AST, flag: Flag) -> ast.expr | None:
    """What an assignment, or a ``setattr``, gives this attribute to."""
    match node:
        case ast.Assign(targets=[*targets]):
            for target in targets:
                if isinstance(target, ast.Attribute) and target.attr == flag.attribute:
                    return target.value
        case ast.Call(func=ast.Name(id="setattr"), args=[owner, ast.Constant(value=flag.attribute), _]):
            return owner
    return None
