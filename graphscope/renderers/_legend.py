"""The legend: what occurs in a picture, and nothing else."""

from __future__ import annotations

from .._plain import dataclass
from ._picture import Picture
from ._style import LOOKS, MARKS, PAPER, SHARED_FILL, STROKES, UNOWNED, Tone, band, outline

_MOST = 12  # optimizers


@dataclass(frozen=True, slots=True)
class Swatch:
    """An entry: a small box, or a piece of a line, and what it means; ``form`` as in the style's looks."""

    words: str
    fill: Tone
    line: Tone
    form: str = "square"
    width: float = 1.0
    dash: str = "solid"
    double: bool = False
    is_line: bool = False
    striped: bool = False


def legend(picture: Picture) -> list[Swatch]:
    """What occurs in a picture: kinds, states, lines, optimizers."""
    kinds = {shape.kind for shape in picture.shapes}
    shared = picture.tree.has_shared
    marks = {mark for shape in picture.shapes for mark in outline(shape, shared=False).marks}
    marks |= {"shared"} if shared else set()
    lines = {line.kind for line in picture.lines}
    found = [
        Swatch(look.legend, look.fill, look.line, look.form, look.width, "dashed" if look.dashed else "solid")
        for kind, look in LOOKS.items()
        if kind in kinds
    ]
    for name, mark in MARKS.items():
        if name in marks:
            width = 2.0 if mark.form == "thick" else 1.0
            dash = mark.form if mark.form in ("dashed", "dotted") else "solid"
            fill = mark.fill or (SHARED_FILL if name == "shared" else PAPER)
            found.append(Swatch(mark.legend, fill, mark.line, "rounded", width, dash, mark.form == "double"))
    for name, stroke in STROKES.items():
        if name in lines and stroke.legend:
            width, dash = stroke.width, stroke.dash
            found.append(Swatch(stroke.legend, stroke.tone, stroke.tone, "line", width, dash, is_line=True))
    held = sorted({holder for shape in picture.shapes for holder in shape.optimizers})
    found += [Swatch(f"held by {picture.optimizers[id]}", band(id), band(id)) for id in held[:_MOST]]
    if any(not shape.owned for shape in picture.shapes):
        found.append(Swatch("in no optimizer", PAPER, UNOWNED, striped=True))
    return found
