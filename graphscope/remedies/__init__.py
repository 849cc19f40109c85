"""What would mend a failing call: edits of the sequence of events, each tried on the engine model first.

A remedy is one file: a function that proposes candidates for one failing call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..engine import Verdict
from ..findings import Fix
from ..trace import Trace
from ._case import Candidate, Case
from ._detach import detach, detach_others
from ._move import call_earlier, write_later
from ._recompute import recompute
from ._retain import retain
from ._sum import add_up
from ._write import write_elsewhere

__all__ = ["remedies"]

_PROPOSALS: tuple[Callable[[Case], Iterator[Candidate]], ...] = (
    add_up,
    retain,
    write_later,
    call_earlier,
    write_elsewhere,
    detach_others,
    recompute,
    detach,
)


def remedies(trace: Trace, verdict: Verdict) -> tuple[Fix, ...]:
    """Fixes for a failing call: those that keep all gradients and hold the least memory first, those that fail last.

    A fix that would not help is kept only if people usually try it.
    """
    if verdict.kind not in ("freed", "stale"):
        return ()
    case = Case(trace, verdict)
    candidates = [candidate for propose in _PROPOSALS for candidate in propose(case)]
    fixes = [case.tried(candidate) for candidate in candidates]
    shown = [fix for fix, candidate in zip(fixes, candidates, strict=True) if fix.works or candidate.popular]
    return tuple(sorted(dict.fromkeys(shown), key=_rank))


def _rank(fix: Fix) -> tuple[bool, bool, int]:
    return not fix.works, fix.changes_gradients is not False, fix.bytes or 0
