"""The words of a box and of a module, row by row, and the room that they take."""

from __future__ import annotations

import unicodedata

from .._plain import dataclass
from ._shapes import Shape
from ._style import LOOKS, MARKS, RED, Tone
from ._words import clean, shorten

LARGE, SMALL = 10.5, 8.5  # points
_NAME, _LINE = 48, 72  # characters; the tooltip has all of them

# Widths of the printable ASCII characters in thousandths of the font's size: those of Helvetica and of the fonts made
# to take its place (Arial, Liberation Sans, Nimbus Sans), so that a layout does not hang on the fonts of a machine.
_PLAIN = (
    "278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 "
    "584 584 584 556 1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 "
    "667 667 611 278 278 278 469 556 333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 "
    "278 556 500 722 500 500 500 334 260 334 584"
)
_BOLD = (
    "278 333 474 556 556 889 722 238 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 333 333 "
    "584 584 584 611 975 722 722 722 722 667 611 778 722 278 556 722 611 833 722 778 667 778 722 667 611 722 667 944 "
    "667 667 611 333 278 333 584 556 333 556 611 556 611 556 333 611 611 278 278 556 278 889 611 611 611 611 389 556 "
    "333 611 556 778 556 556 500 389 280 389 584"
)
_WIDTHS = {bold: list(map(int, widths.split())) for bold, widths in ((False, _PLAIN), (True, _BOLD))}


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a row, in one colour and size."""

    text: str
    tone: Tone
    bold: bool = False
    small: bool = False

    @property
    def size(self) -> float:
        """Of the font, in points."""
        return SMALL if self.small else LARGE

    @property
    def width(self) -> float:
        """In points."""
        return text_width(self.text, self.size, self.bold)


Row = tuple[Span, ...]


def rows(shape: Shape) -> list[Row]:
    """What is written in a box."""
    look = LOOKS[shape.kind]
    found: list[Row] = []
    if shape.title:
        times = (Span(f"  x {shape.times}", look.title, small=True),) if shape.times > 1 else ()
        found.append((Span(shown(shape.title, _NAME), look.title, bold=True), *times))
    for name, dimensions in shape.rows:
        found.append((Span(shown(name, _NAME), look.title), Span(f"  {dimensions}", look.text, small=True)))
    if shape.rows and shape.times > 1:
        found.append((Span(f"and its like, x {shape.times}", look.text, small=True),))
    found += [(Span(shown(line, _LINE), look.text, small=True),) for line in shape.lines if line]
    found += [(Span(shown(words, _LINE), MARKS[mark].line, small=True),) for mark, words in shape.marks.items()]
    if shape.codes:
        place = [str(shape.location)] if shape.location and shape.kind not in ("cut", "loss") else []
        found.append((Span(shown(" | ".join([*shape.codes, *place]), _LINE), RED, small=True),))
    return found


def shown(text: str, width: int) -> str:
    """A text as it is drawn: on one line, its middle left out where it is too long."""
    return shorten(clean(text), width) or "unnamed"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """How wide a text is, in points."""
    widths = _WIDTHS[bold]
    total = 0
    for character in text:
        code = ord(character)
        if 32 <= code < 127:
            total += widths[code - 32]
        elif not unicodedata.combining(character):
            total += 1000 if unicodedata.east_asian_width(character) in "WFA" else 620
    return total * size / 1000


def row_width(row: Row) -> float:
    """How wide a row is, in points."""
    return sum(span.width for span in row)


def row_height(row: Row) -> float:
    """How high a row is, in points."""
    return 11.5 if all(span.small for span in row) else 13.5
