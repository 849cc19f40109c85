"""The training loops of a program in words: what one time round looks like, and how many were like that."""

from __future__ import annotations

from collections.abc import Iterator

from ..cycles import Loop, Mark, Part
from ..trace import Trace
from ._excerpt import Paint
from ._words import clean, count


def told(loop: Loop, trace: Trace, paint: Paint) -> Iterator[str]:
    """A head, and a line for each step of a turn, with what leads to it."""
    turns = len(loop.turns)
    alike = "" if turns == 1 else f", {'all' if loop.regular == turns else loop.regular} of them like this"
    yield paint(f"training loop, {count(turns, 'turn')}{alike}:", "bold")
    for part, often in loop.steady:
        times = f"{often} times: " if often > 1 else ""
        yield f"  {times}{', '.join(_marks(part, trace))}"


def _marks(part: Part, trace: Trace) -> Iterator[str]:
    """What a part does, each statement once; zeroing of several optimizers in a row is one thing."""
    for position, (mark, often) in enumerate(part):
        if mark.kind != "zero" or not position or part[position - 1][0].kind != "zero":
            yield _said(mark, trace) + (f" {often} times" if often > 1 else "")


def _said(mark: Mark, trace: Trace) -> str:
    name = "" if mark.optimizer is None else f"`{clean(trace.optimizers[mark.optimizer].name)}` "
    what = {"zero": "gradients zeroed", "backward": "backward", "step": f"{name}steps"}[mark.kind]
    return f"{what} ({clean(mark.location.file)}:{mark.location.line})"
