"""The place of the mode that watches among the modes of the program: it leaves and comes back unnoticed."""

from __future__ import annotations

from typing import Any

from . import _torch


class Seat:
    """A mode's place on the stack. A ``with`` block of the program takes the innermost mode off when it ends.

    So the mode comes back only where those below it are the ones that were there when it left, or none.
    """

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self._below: list[Any] | None = None

    def leave(self) -> bool:
        """Take the mode off if it is the innermost one; whether it was."""
        if not _torch.pop_mode_if_innermost(self.mode):
            return False
        self._below = _torch.modes()
        return True

    def take(self) -> bool:
        """Put the mode back; whether it is on the stack now."""
        if self._below is None:
            return True
        now = _torch.modes()
        if now and list(map(id, now)) != list(map(id, self._below)):
            return False
        self._below = None
        _torch.push_mode(self.mode)
        return True
