"""Edits of Python source that fixes ask for; all that is not edited stays as it is, to the byte."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator, Sequence

import libcst

from ..findings import Action, Edit
from . import _files
from ._calls import add_up, retain
from ._detach import detach
from ._files import Changed
from ._moves import compute_again, move_after, move_before
from ._source import Refused, Source, Splice
from ._statements import clone, no_grad
from ._writes import out_of_place

__all__ = ["Changed", "apply", "changed", "diff"]


def apply(source: str, edits: Sequence[Edit]) -> str | None:
    """The source with all of these edits made, None where one of them cannot be made safely.

    The lines of all edits are those of ``source``; their files are not looked at.
    """
    try:
        parsed = Source(source)
        text = parsed.spliced(list(_splices(parsed, edits)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text.removeprefix("\ufeff"))
    except (Refused, libcst.ParserSyntaxError, SyntaxError, ValueError):
        return None
    return text if text != source else None


def changed(root: str, edits: Sequence[Edit]) -> tuple[Changed, ...] | None:
    """The files that these edits change, by the paths that locations have below ``root``; None if one is refused."""
    return _files.changed(root, edits, apply)


def diff(root: str, wanted: Sequence[Sequence[Edit]]) -> tuple[bytes, int]:
    """One unified diff of several fixes, each a tuple of edits, and how many of them it could not take in."""
    taken: tuple[Edit, ...] = ()
    files: tuple[Changed, ...] = ()
    left_out = 0
    for edits in dict.fromkeys(tuple(each) for each in wanted):
        together = changed(root, (*taken, *edits))
        if together is None or not _files.is_below(together):
            left_out += 1
        else:
            taken, files = (*taken, *edits), together
    return b"".join(each.diff for each in files), left_out


def _splices(source: Source, edits: Sequence[Edit]) -> Iterator[Splice]:
    edits = sorted(dict.fromkeys(edits), key=lambda edit: edit.location)
    for action, change in _TOGETHER.items():
        yield from change(source, [edit for edit in edits if edit.action is action])
    for edit in edits:
        if edit.action not in _TOGETHER:
            yield from _ACTIONS[edit.action](source, edit)


_TOGETHER: dict[Action, Callable[[Source, Sequence[Edit]], Iterator[Splice]]] = {
    Action.SUM: add_up,
    Action.COMPUTE_AGAIN: compute_again,
}
_ACTIONS: dict[Action, Callable[[Source, Edit], Iterator[Splice]]] = {
    Action.RETAIN_GRAPH: retain,
    Action.MOVE_AFTER: move_after,
    Action.MOVE_BEFORE: move_before,
    Action.DETACH: detach,
    Action.CLONE: clone,
    Action.OUT_OF_PLACE: out_of_place,
    Action.NO_GRAD: no_grad,
}
