"""What torch's autograd engine would do with a sequence of events: which call fails, where first, and who caused it.

The model knows what torch 2.13 does, and no more:

- A backward runs every node behind its roots; with ``inputs=`` only those on the way to an input. After a node
  ran, its buffers are released, unless the graph is retained: also when a later node of the same call fails.
- A node fails if a buffer it needs was released ("freed"), or if a tensor it saved has moved on to another
  version since ("stale"). All buffers of a node go together, so freed is always noticed before stale.
- Tensors packed by saved-tensor hooks (checkpoint, ``save_on_cpu``) are released too, but torch does not
  compare their versions. A non-reentrant checkpoint compares those of its arguments instead, which the tracer
  lists beside what is packed.
- A custom Function reads its buffers only through ``ctx.saved_tensors``. Reading that after release fails even
  if nothing was saved.
"""

from __future__ import annotations

from ..trace import Trace
from ._engine import Engine
from ._verdict import Change, Culprit, Kind, Verdict

__all__ = ["Change", "Culprit", "Engine", "Kind", "Verdict", "simulate"]


def simulate(trace: Trace) -> tuple[Verdict, ...]:
    """One verdict for each backward and grad call of the trace, in order."""
    return Engine(trace.graph, trace.events).run(trace.events)
