"""What users call: each joins the stages in a line or two."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from .analyzer import analyze
from .errors import GraphscopeWarning
from .graph import Graph
from .report import Report
from .show import BOXES, Show
from .trace import Trace
from .tracer import asking, details, planning, script, snapshot
from .tracer.planning import Plan
from .tracer.watching import Watching
from .why import Why, explain

if TYPE_CHECKING:
    import graphviz
    from torch import Tensor


def check(*objects: Any, retain_graph: bool = False) -> Report:
    """Examine the graph behind some losses, and the optimizers that will step on it; nothing is changed.

    Takes any mix of losses, optimizers and modules, or pairs ``(loss, optimizer)``. Assumes that the
    losses are backpropagated in the order given, each without ``retain_graph`` unless it is True here,
    and that the optimizers step after the last. Each finding is also emitted as a GraphscopeWarning.
    Raises GraphscopeError when given something else, or no loss.
    """
    return _warned(analyze(planning.assumed(objects, sys._getframe(1), retain_graph=retain_graph)))


def plan() -> Plan:
    """An empty plan of a training step, to be filled and checked: see ``Plan``."""
    return Plan(lambda trace: _warned(analyze(trace)))


def _warned(report: Report) -> Report:
    """Emit what was found as Python warnings, at the line that asked for it."""
    for finding in report.findings:
        warnings.warn(f"{finding.code}: {finding.message}", GraphscopeWarning, stacklevel=3)
    return report


def trace(*losses: Tensor, facts: bool = True) -> Graph:
    """The autograd graph behind one or more tensors, as plain data that keeps nothing of theirs alive.

    Without ``facts`` it has operators, edges and leaves alone, no shapes and no saved tensors, which is faster.
    Raises GraphscopeError for anything but tensors. A tensor that does not require grad is a root without a node.
    """
    return snapshot.graph(losses, sys._getframe(1), facts=facts)


def make_dot(
    var: Tensor | Sequence[Tensor],
    params: Mapping[str, Tensor] | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
    show: Show | None = None,
) -> graphviz.Digraph:
    """The graph behind a tensor, or several, as a ``graphviz.Digraph``: takes what ``torchviz.make_dot`` takes.

    ``params`` names tensors, ``show_attrs`` adds what nodes saved besides tensors, ``show_saved`` the tensors that they
    saved. A large graph is collapsed, unless one of these is set; ``show`` says how.
    """
    from .renderers import dot  # the drawing is the largest part of us, and most runs end in a text
    from .renderers._picture import picture

    losses: list[Any] = list(var) if isinstance(var, list | tuple) else [var]
    graph = snapshot.graph(losses, sys._getframe(1))
    names = details.renamed(graph, losses, params or {})
    tensors = tuple(replace(each, name=names.get(each.id, each.name)) for each in graph.tensors)
    graph = replace(graph, tensors=tensors)
    lines = details.attributes(graph, losses, max_attr_chars) if show_attrs else {}
    if show_saved:
        for id, saved in graph.saved.items():
            told = tuple(f"saves {each.name} {each.shape} {each.dtype}" for each in saved)
            lines[id] = lines.get(id, ()) + told
    wanted = show or Show(boxes=0 if show_attrs or show_saved else BOXES)
    report = Report(Trace(graph=graph))
    drawn: graphviz.Digraph = dot.digraph(picture(report, replace(wanted, details=lines)))
    return drawn


def why(tensor: Tensor | str, loss: Tensor) -> Why:
    """Why a tensor gets a gradient from a loss, or gets none: the way, or the statement that cut it.

    ``tensor`` may be a name as well: ``why("net1.0.weight", loss)``. Inside ``watch()``, or in a script that is
    inspected, the answer rests on all calls so far, elsewhere on the graph alone, which has no trace of what was cut.
    Where there is a way, it is told where on it the gradient becomes zero everywhere, NaN or infinite. For that the
    formulas of the nodes are applied one by one, outside of the engine: no hook fires, nothing is written or freed. The
    loss must be one number whose graph is not freed yet; custom Functions are not run, and what lies behind them and
    what hooks do to gradients stays unknown.
    Raises GraphscopeError when given something else, or a name that nothing has.
    """
    return explain(*asking.question(tensor, loss, sys._getframe(1)))


def watch(*, arrays: bool = True, select: Collection[str] = (), ignore: Collection[str] = ()) -> Watching:
    """Record what happens inside a ``with`` block: ``with graphscope.watch() as report: ...``.

    The report is filled when the block ends; it has the attributes of a Report. Arrays that come out of tensors are of
    a subclass of ``numpy.ndarray`` that remembers which; without ``arrays`` they are numpy's own, and what comes back
    to torch is recognised by its values only.
    """
    return Watching(lambda trace: analyze(trace, select=select, ignore=ignore), arrays=arrays)


def inspect(
    target: str | PathLike[str],
    *,
    args: Sequence[str] = (),
    module: bool = False,
    every_step: bool = False,
    steps: int | None = None,
    arrays: bool = True,
    fades: bool = False,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
) -> Report:
    """Run a script (or, with ``module``, a module) as ``__main__``, watched, and report on it.

    A long run is recorded until it repeats itself, then sampled, unless ``every_step`` is set. With ``steps`` it is
    ended once each line that calls ``step()`` ran that often, or one of them tenfold. Its exceptions are shown as
    Python shows them; ``report.trace.outcome`` has its exit status. ``arrays`` is as for ``watch``.
    With ``fades``, every gradient is followed on its way, so that the trace tells where it becomes zero or not finite.
    Raises GraphscopeError if there is no such script.
    """
    trace = script.run(
        str(target), list(args), module=module, every_step=every_step, steps=steps, arrays=arrays, fades=fades
    )
    return analyze(trace, select=select, ignore=ignore)
