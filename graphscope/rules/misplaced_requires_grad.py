"""GS214: requires_grad is set where it switches nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ..events import RequiresGradSet
from ..findings import Finding, Fix, Place, Role, Severity
from ..location import Location
from ..rule import Rule
from ..trace import Flag, ModuleRef, Trace
from ._parameters import listed
from ._source import place_of, trees


class MisplacedRequiresGrad(Rule):
    """``requires_grad`` is set where it switches nothing: on a module, or under a misspelt name.

    Python lets a program set any attribute on a module or a tensor. ``net.requires_grad = False`` only makes a new
    attribute of the module, which nothing reads: the switch is an attribute of each parameter, and
    ``net.requires_grad_(False)`` sets it for all of them. ``weight.require_grad = False`` (without the s) is as idle.

    Bad::

        import torch, graphscope

        body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        with graphscope.watch() as report:
            body.requires_grad = False  # GS214
            opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
            head(body(torch.ones(2, 4))).sum().backward()
            opt.step()

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

    def check(self, trace: Trace) -> Iterator[Finding]:
        """A warning for each such attribute of a module whose parameters did what it was to prevent, or did not."""
        seen: set[tuple[str, Flag]] = set()
        for module in trace.modules:
            for flag in module.flags:
                affected = _affected(trace, module, flag)
                places = _statements(trace, module, flag) if affected else []
                key = (module.name, Flag(flag.path.rpartition(".")[0], flag.attribute, flag.value))
                if places and key not in seen:
                    seen.add(key)
                    yield self._finding(trace, module, flag, affected, places)

    def _finding(
        self, trace: Trace, module: ModuleRef, flag: Flag, affected: list[int], places: list[Location]
    ) -> Finding:
        name = f"{module.name}.{flag.path}" if flag.path else module.name
        on_module = flag.path not in dict(module.parameters)
        instead = f"{name}.requires_grad_({flag.value})" if on_module else f"{name}.requires_grad = {flag.value}"
        effect = "still require grad, and get gradients" if not flag.value else "do not require grad, and do not train"
        what = "a plain attribute of the module" if on_module else "a plain attribute of the tensor"
        return self.finding(
            f"`{name}.{flag.attribute} = {flag.value}` switches nothing, it only makes {what}: "
            f"{listed(trace, affected)} {effect}",
            places=[
                Place(place, Role.CAUSE, f"`{flag.attribute}` is set here, and nothing reads it") for place in places
            ],
            fixes=[Fix(f"write `{instead}`", location=places[0])],
            name=name,
            attribute=flag.attribute,
            parameters=tuple(trace.graph.tensor(id).name for id in affected),
        )


def _affected(trace: Trace, module: ModuleRef, flag: Flag) -> list[int]:
    """The parameters under the module, or the one, that has the attribute, and that are not as it says."""
    frozen = {id for step in trace.steps for id in step.frozen}
    under = [id for path, id in module.parameters if f"{path}.".startswith(f"{flag.path}." if flag.path else "")]
    if flag.value:
        return [id for id in under if not trace.graph.tensor(id).requires_grad]
    return [id for id in under if id in trace.ever_reached and id not in frozen]


def _statements(trace: Trace, module: ModuleRef, flag: Flag) -> list[Location]:
    """Where the program sets such an attribute: on what has this name, or else on anything but a tensor."""
    switching = {
        (event.location.file, event.location.line) for event in trace.events if isinstance(event, RequiresGradSet)
    }
    named: list[Location] = []
    others: list[Location] = []
    for file, tree in trees(trace):
        for node in ast.walk(tree):
            owner = _owner(node, flag)
            if isinstance(node, ast.stmt | ast.expr) and owner is not None and (file, node.lineno) not in switching:
                full = f"{module.name}.{flag.path}".rstrip(".")
                (named if ast.unparse(owner) == full else others).append(place_of(file, node))
            if isinstance(node, ast.Attribute) and node.attr == flag.attribute and isinstance(node.ctx, ast.Load):
                is_tensors = flag.attribute == "requires_grad" and ast.unparse(node.value) != "self"
                if not is_tensors:  # the program has a use of its own for it
                    return []
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
