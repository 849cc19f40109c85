"""The visual language: how each kind of thing, each state and each line looks, in light and in dark.

State gets the colour, not the kind of operator, and never colour alone: every look has a form (a shape, a dash, a
second outline, a band) and words of its own. Print uses the light colours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._plain import dataclass

if TYPE_CHECKING:
    from ._shapes import Shape


@dataclass(frozen=True, slots=True)
class Tone:
    """A colour on light paper, and its counterpart on dark."""

    light: str
    dark: str


PAPER = Tone("#ffffff", "#12161c")
INK = Tone("#1b2430", "#e7ecf3")  # text that is read first
QUIET = Tone("#56616f", "#a3afbf")  # text that is read second
WHITE = Tone("#ffffff", "#ffffff")  # text on a loss
PALE = Tone("#e6efff", "#f0f5ff")
EDGE = Tone("#6b7889", "#8290a5")
BLUE = Tone("#1d55c9", "#2f66c4")
RED = Tone("#c0271d", "#ff7669")
BROWN = Tone("#6b5200", "#e0b252")
VIOLET = Tone("#5b2d9e", "#a98bff")
GREEN = Tone("#00543c", "#3fd6a0")
MAGENTA = Tone("#a62f8a", "#ff9ad5")
ORANGE = Tone("#b04f00", "#ff9a3d")
TEAL = Tone("#0f6b7d", "#5cc8dc")
SLATE = Tone("#52627a", "#8496b0")
FRAME = Tone("#a7b2c4", "#46546a")


@dataclass(frozen=True, slots=True)
class Look:
    """A box: its colours, its form, and what the legend says of it.

    ``form`` is ``rounded``, ``square``, ``octagon``, ``folder``, ``stack``, ``note`` or ``chip``; ``dashed`` and
    ``width`` are those of its outline.
    """

    fill: Tone
    line: Tone
    form: str
    legend: str
    title: Tone = INK
    text: Tone = QUIET
    dashed: bool = False
    width: float = 1.0


_OPERATOR = Tone("#e9eef7", "#263040")
LOOKS = {
    "loss": Look(BLUE, BLUE, "rounded", "loss", WHITE, PALE),
    "operator": Look(_OPERATOR, SLATE, "rounded", "operator"),
    "function": Look(_OPERATOR, SLATE, "octagon", "custom Function"),
    "chain": Look(_OPERATOR, SLATE, "stack", "operators in a row"),
    "module": Look(Tone("#f5f7fb", "#191f28"), SLATE, "folder", "closed module"),
    "repeat": Look(Tone("#f5f7fb", "#191f28"), SLATE, "stack", "repeated modules"),
    "rest": Look(PAPER, SLATE, "square", "further away", dashed=True),
    "parameter": Look(Tone("#dcf1e6", "#173a2c"), GREEN, "square", "parameter"),
    "input": Look(Tone("#e3f0fb", "#1a2f48"), Tone("#2b6ca3", "#6db1ea"), "rounded", "input"),
    "cut": Look(Tone("#fff4f3", "#2b1a1a"), RED, "note", "gradient stops here", RED, dashed=True),
    "chip": Look(PAPER, EDGE, "chip", "goes on at the box of that name"),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A state that changes the look of a box: its colours where they are given, and its form.

    ``form`` is ``dashed``, ``thick``, ``double`` or ``dotted``.
    """

    line: Tone
    form: str
    legend: str
    fill: Tone | None = None


MARKS = {
    "freed": Mark(BROWN, "dashed", "buffers freed", Tone("#f6efe4", "#2d261b")),
    "shared": Mark(VIOLET, "double", "shared by several losses"),
    "stale": Mark(MAGENTA, "thick", "saved tensor overwritten", Tone("#fdf1f9", "#2c1a28")),
    "finding": Mark(RED, "thick", "named by a finding"),
    "new": Mark(GREEN, "thick", "only in the second", Tone("#e9f7ef", "#142c22")),
    "gone": Mark(ORANGE, "dotted", "only in the first", Tone("#fdf3ea", "#2c2013")),
}


SHARED_FILL = Tone("#f5f2fc", "#1e1a2b")  # of the box around a module that several losses share


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line: colour, width, dash (``solid``, ``dashed``, ``dotted``), its ends, and what the legend says of it.

    ``head`` and ``tail`` are ``arrow``, ``open``, ``tee``, ``diamond`` or ``none``.
    """

    tone: Tone
    width: float = 1.2
    dash: str = "solid"
    head: str = "arrow"
    tail: str = "none"
    legend: str = ""


STROKES = {
    "plain": Stroke(EDGE),
    "loss": Stroke(SLATE, 1.8),
    "freed": Stroke(BROWN, 1.2, "dashed"),
    "blamed": Stroke(RED, 2.4, legend="the way to what a finding names"),
    "severed": Stroke(RED, 1.6, "dotted", "tee", legend="no gradient flows"),
    "lost": Stroke(RED, 1.4, "dotted", "open", "tee", legend="where it would have gone on"),
    "path": Stroke(ORANGE, 2.8, "solid", "diamond", legend="the gradient's path"),
    "device": Stroke(TEAL, 1.8, "dashed", "diamond", legend="goes to another device"),
    "repeat": Stroke(EDGE, 1.2, "dashed", "open", legend="and again, the next one"),
    "new": Stroke(GREEN, 1.8),
    "gone": Stroke(ORANGE, 1.2, "dotted"),
}

# Okabe and Ito's colours, which people with any colour vision tell apart; beyond six, the optimizer's name does.
BANDS = (
    Tone("#0072b2", "#56b4e9"),
    Tone("#e69f00", "#e69f00"),
    Tone("#009e73", "#009e73"),
    Tone("#cc79a7", "#cc79a7"),
    Tone("#56b4e9", "#0072b2"),
    Tone("#d55e00", "#d55e00"),
)
OTHER_BAND = Tone("#9aa5b1", "#9aa5b1")
UNOWNED = Tone("#56616f", "#a3afbf")  # the stripes on a parameter that no optimizer holds


def band(optimizer: int) -> Tone:
    """The colour of an optimizer's parameters."""
    return BANDS[optimizer] if optimizer < len(BANDS) else OTHER_BAND


@dataclass(frozen=True, slots=True)
class Outline:
    """How one box is drawn, its states considered; ``marks`` are the keys of these."""

    fill: Tone
    line: Tone
    width: float
    dash: str
    double: bool
    marks: tuple[str, ...]


def outline(shape: Shape, shared: bool) -> Outline:
    """The outline of a box; ``shared`` where it is, and no box around it says so."""
    look = LOOKS[shape.kind]
    found = [mark for mark in MARKS if mark in shape.marks or (mark == "shared" and shared)]
    if shape.failing or (shape.codes and shape.kind != "cut"):
        found.append("finding")
    marks = tuple(dict.fromkeys(found))
    fill, line, width, dash = look.fill, look.line, look.width, "dashed" if look.dashed else "solid"
    for mark in (MARKS[name] for name in reversed(marks)):
        fill, line = mark.fill or fill, mark.line
        width = 2.4 if mark.form == "thick" else width
        dash = mark.form if mark.form in ("dashed", "dotted") else dash
    if "finding" in marks:
        line = RED
    return Outline(fill, line, width, dash, "shared" in marks, marks)
