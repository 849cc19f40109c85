"""The text of the source files that a trace names."""

from __future__ import annotations

import linecache
import os
from collections.abc import Iterable

from ..location import Location


def sources_of(locations: Iterable[Location], root: str) -> dict[str, str]:
    """The source of each file that a location names, by the name it has there; what cannot be read is left out."""
    found = {}
    for file in sorted({location.file for location in locations}):
        lines = linecache.getlines(file if file.startswith("<") else os.path.join(root, file))
        if lines:
            found[file] = "".join(lines)
    return found
