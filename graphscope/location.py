"""Where in the user's source something happened."""

from __future__ import annotations

from ._plain import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A statement in the user's code.

    ``file`` is relative to the working directory of the traced program where that is possible, and
    ``line`` to ``end_line`` are its 1-based lines, both included. ``function`` is the qualified name
    of the function around it, ``<module>`` at the top level.
    """

    file: str
    line: int
    end_line: int
    function: str = "<module>"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
