"""Source lines that take part in a finding, underlined and labelled."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator
from itertools import groupby

from ..findings import Finding, Place
from ..trace import Trace
from ._words import clean

WIDTH = 100
COLORS = {"error": "red", "warning": "yellow", "note": "cyan"}
_CODES = {"bold": "1", "red": "1;31", "yellow": "1;33", "cyan": "1;36", "green": "1;32", "blue": "34"}
_LINES = 4  # of one statement; the rest of a longer one is left out


class Paint:
    """Wraps text in a terminal colour, or leaves it as it is."""

    def __init__(self, on: bool) -> None:
        self._on = on

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self._on and text else text


def excerpt(finding: Finding, trace: Trace, paint: Paint) -> Iterator[str]:
    """The lines of all places of a finding, file by file, the file it is reported in first."""
    if not finding.places:
        return
    first = finding.places[0]
    gutter = max(len(str(place.location.end_line)) for place in finding.places) + 2
    ordered = sorted(finding.places, key=lambda p: (p.location.file != first.location.file, p.location))
    for file, group in groupby(ordered, key=lambda place: place.location.file):
        if file != first.location.file:
            yield paint(f"{' ' * gutter}--> ", "blue") + clean(file)
        yield paint(f"{' ' * gutter}|", "blue")
        yield from _file(list(group), first, finding, trace, gutter, paint)
    yield paint(f"{' ' * gutter}|", "blue")


def _file(
    places: list[Place], first: Place, finding: Finding, trace: Trace, gutter: int, paint: Paint
) -> Iterator[str]:
    """The places of one file, by line; statements at the same lines share their excerpt."""
    lines = trace.sources.get(places[0].location.file, "").splitlines()
    shown = 0
    for (start, end), group in groupby(places, key=lambda place: (place.location.line, place.location.end_line)):
        if shown and start > shown + 1:
            yield paint("...".rjust(gutter + 1), "blue")
        last = min(end, start + _LINES - 1)
        text = lines[start - 1 : last] or [""]
        for number, line in enumerate(text, start):
            yield (paint(f"{number:>{gutter - 1}} |", "blue") + " " + _source(line)).rstrip()
        for place in group:
            style = COLORS[finding.severity.value] if place is first else "blue"
            yield from _label(place, text[-1], "^" if place is first else "-", style, gutter, paint)
        shown = end


def _label(place: Place, line: str, mark: str, style: str, gutter: int, paint: Paint) -> Iterator[str]:
    """The underline beneath a source line, and the label beside it, or below where it would not fit."""
    shown = re.sub(r"  #.*$", "", _source(line))  # a comment is not underlined
    indent = len(shown) - len(shown.lstrip())
    under = mark * max(_columns(shown.strip()), 1)
    label = clean(place.label)
    bar = paint(f"{' ' * gutter}|", "blue")
    room = WIDTH - gutter - indent - len(under) - 3
    if len(label) <= room:
        yield f"{bar} {' ' * indent}{paint(f'{under} {label}'.rstrip(), style)}"
        return
    yield f"{bar} {' ' * indent}{paint(under, style)}"
    for part in textwrap.wrap(label, max(WIDTH - gutter - indent - 2, 40)):
        yield f"{bar} {' ' * indent}{paint(part, style)}"


def _source(line: str) -> str:
    """A source line as it is shown: tabs widened, an overlong tail left out."""
    line = clean(line.expandtabs(4).rstrip())
    return line if len(line) <= WIDTH - 10 else line[: WIDTH - 14] + " ..."


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)
