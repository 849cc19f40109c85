"""What users call: each joins the stages in a line or two."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from .analyzer import analyze
from .errors import GraphscopeWarning
from .graph import Graph
from .report import Report
from .tracer import planning, script, snapshot
from .tracer.planning import Plan
from .tracer.watching import Watching

if TYPE_CHECKING:
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


def trace(*losses: Tensor) -> Graph:
    """The autograd graph behind one or more tensors, as plain data that keeps nothing of theirs alive.

    Raises GraphscopeError for anything but tensors. A tensor that does not require grad is a root without a node.
    """
    return snapshot.graph(losses, sys._getframe(1))


def watch(*, select: Collection[str] = (), ignore: Collection[str] = ()) -> Watching:
    """Record what happens inside a ``with`` block: ``with graphscope.watch() as report: ...``.

    The report is filled when the block ends; it has the attributes of a Report.
    """
    return Watching(lambda trace: analyze(trace, select=select, ignore=ignore))


def inspect(
    target: str | PathLike[str],
    *,
    args: Sequence[str] = (),
    module: bool = False,
    every_step: bool = False,
    steps: int | None = None,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
) -> Report:
    """Run a script (or, with ``module``, a module) as ``__main__``, watched, and report on it.

    A long run is recorded until it repeats itself, then sampled, unless ``every_step`` is set. With ``steps`` it is
    ended once each line that calls ``step()`` ran that often, or one of them tenfold. Its exceptions are shown as
    Python shows them; ``report.trace.outcome`` has its exit status.
    Raises GraphscopeError if there is no such script.
    """
    trace = script.run(str(target), list(args), module=module, every_step=every_step, steps=steps)
    return analyze(trace, select=select, ignore=ignore)
