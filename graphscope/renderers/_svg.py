"""Writing SVG: elements, colours as classes of a style sheet with a dark side, shapes of boxes and lines."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from ._label import Row, row_height, row_width
from ._layout import Point, Route
from ._style import PAPER, STROKES, UNOWNED, Outline, Stroke, Tone
from ._words import clean

_HEAD = 7.0  # points: the length of an arrow's head
_DASHES = {"dashed": "5 3", "dotted": "1.5 3"}


class Palette:
    """The colours that a drawing uses, each a class, so that light and dark are two halves of one style sheet.

    ``fits`` tells to give the width of each text, so that it keeps to its room whatever font there is.
    """

    def __init__(self, *, fits: bool = True) -> None:
        self.fits = fits
        self._classes: dict[Tone, str] = {}
        self._used: dict[tuple[str, Tone], None] = {}

    def fill(self, tone: Tone) -> str:
        """The class that fills with a colour."""
        self._used["fill", tone] = None
        return "f" + self._class(tone)

    def line(self, tone: Tone) -> str:
        """The class that outlines in a colour."""
        self._used["stroke", tone] = None
        return "l" + self._class(tone)

    def _class(self, tone: Tone) -> str:
        return self._classes.setdefault(tone, str(len(self._classes)))

    @property
    def sheet(self) -> str:
        """The rules for all colours: light, and dark where the reader prefers that and does not print."""
        rules = [(f".{what[0].replace('s', 'l')}{self._class(tone)}{{{what}:", tone) for what, tone in self._used]
        light = "".join(f"{rule}{tone.light}}}" for rule, tone in rules)
        dark = "".join(f"{rule}{tone.dark}}}" for rule, tone in rules)
        return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def text(value: str) -> str:
    """A text as XML holds it."""
    return escape(clean(value), quote=False)


def attribute(value: str) -> str:
    """A text as an attribute holds it."""
    return escape(clean(value), quote=True)


def number(value: float) -> str:
    """A coordinate, to a tenth of a point."""
    return f"{round(value, 1):g}"


def written(row: Row, x: float, y: float, palette: Palette, *, anchor: str = "middle", halo: Tone | None = None) -> str:
    """A row of text."""
    width = f' textLength="{number(row_width(row))}" lengthAdjust="spacingAndGlyphs"' if palette.fits else ""
    around = f" {palette.line(halo)} h" if halo is not None else ""
    start = " a" if anchor == "start" else ""
    classes = f'class="{_text_class(row[0].bold, row[0].small)} {palette.fill(row[0].tone)}{around}{start}"'
    place = f'x="{number(x)}" y="{number(y)}"'
    head, *rest = row
    inner = text(head.text)
    for span in rest:
        inner += (
            f'<tspan class="{_text_class(span.bold, span.small)} {palette.fill(span.tone)}">{text(span.text)}</tspan>'
        )
    return f"<text {classes} {place}{width}>{inner}</text>"


def _text_class(bold: bool, small: bool) -> str:
    return ("s" if small else "n") + (" b" if bold else "")


TEXT_SHEET = (
    "text{font-family:Helvetica,Arial,'Liberation Sans','Nimbus Sans',sans-serif;text-anchor:middle;white-space:pre}"
    ".n{font-size:10.5px;font-weight:normal}.s{font-size:8.5px;font-weight:normal}.h{paint-order:stroke;stroke-width:3px}"
    ".b{font-weight:bold}.a{text-anchor:start}.e{fill:none}"
)


def paragraph(rows: Iterable[Row], x: float, top: float, palette: Palette) -> str:
    """Rows of text around a vertical line, from a height on."""
    out = []
    for row in rows:
        height = row_height(row)
        out.append(written(row, x, top + height - 3.2, palette))
        top += height
    return "".join(out)


def box(form: str, x: float, y: float, width: float, height: float, look: Outline, palette: Palette) -> str:
    """A box around a point, in one of the forms of the visual language."""
    left, top, right, low = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    style = f'class="{palette.fill(look.fill)} {palette.line(look.line)}"{pen(look.width, look.dash)}'
    out = ""
    if look.double:
        radius = 9 if form == "rounded" else 2
        out += _rect(left - 3, top - 3, width + 6, height + 6, radius, f'class="e {palette.line(look.line)}"')
    match form:
        case "rounded":
            return out + _rect(left, top, width, height, min(7, height / 3), style)
        case "square":
            return out + _rect(left, top, width, height, 0, style)
        case "octagon":
            c = min(8.0, height / 3)
            corners = [(left + c, top), (right - c, top), (right, top + c), (right, low - c)]
            corners += [(right - c, low), (left + c, low), (left, low - c), (left, top + c)]
            return out + _polygon(corners, style)
        case "folder":
            tab = min(34.0, width / 2)
            corners = [(left, top), (left, top - tab / 7), (left + tab, top - tab / 7), (left + tab * 8 / 7, top)]
            return out + _polygon([*corners, (right, top), (right, low), (left, low)], style)
        case "stack":
            behind = _polygon(
                [(left + 4, top), (left + 4, top - 4), (right + 4, top - 4), (right + 4, low - 4), (right, low - 4)],
                style,
            )
            return out + behind + _rect(left, top, width, height, 3, style)
        case "note":
            corners = [(left, top), (right - 8, top), (right, top + 8), (right, low), (left, low)]
            crease = f"M{_xy((right - 8, top))}V{number(top + 8)}H{number(right)}"
            fold = f'<path class="e {palette.line(look.line)}" d="{crease}"/>'
            return out + _polygon(corners, style) + fold
        case _:
            corners = [(left, top), (right - 8, top), (right, y), (right - 8, low), (left, low)]
            return out + _polygon(corners, style)


def bands(tones: list[Tone], left: float, top: float, height: float, palette: Palette) -> str:
    """Bands side by side at the left edge of a parameter; stripes where there is none."""
    if not tones:
        return _rect(left + 0.5, top + 0.5, 8, height - 1, 0, 'fill="url(#stripes)"')
    at = [left + 0.5 + 8 * n for n in range(len(tones))]
    return "".join(
        _rect(x, top + 0.5, 8, height - 1, 0, f'class="{palette.fill(tone)}"')
        for x, tone in zip(at, tones, strict=True)
    )


def stripes(palette: Palette) -> str:
    """The pattern that says: in no optimizer."""
    ground = f'<rect width="4" height="4" class="{palette.fill(PAPER)}"/>'
    lines = f'<path class="{palette.line(UNOWNED)}" stroke-width="1.6" d="M-1 1L1 -1M0 4L4 0M3 5L5 3"/>'
    return f'<pattern id="stripes" width="4" height="4" patternUnits="userSpaceOnUse">{ground}{lines}</pattern>'


def pen(width: float, dash: str = "solid") -> str:
    """The attributes of a line that differ from a thin solid one."""
    thick = f' stroke-width="{width:g}"' if width != 1 else ""
    return thick + (f' stroke-dasharray="{_DASHES[dash]}"' if dash in _DASHES else "")


def line(kind: str, route: Route, palette: Palette) -> str:
    """A line along its route."""
    stroke = STROKES[kind]
    first, *others = route.points
    curve = f"M{_xy(first)}C{' '.join(map(_xy, others))}"
    return f'<path class="e {palette.line(stroke.tone)} {kind}_line" d="{curve}"/>'


def strokes(kinds: Iterable[str]) -> str:
    """The style rules of these kinds of lines: width, dash and ends."""
    rules = []
    for kind in kinds:
        stroke = STROKES[kind]
        dash = f";stroke-dasharray:{_DASHES[stroke.dash]}" if stroke.dash in _DASHES else ""
        head = f";marker-end:url(#{kind}_head)" if stroke.head != "none" else ""
        tail = f";marker-start:url(#{kind}_tail)" if stroke.tail != "none" else ""
        rules.append(f".{kind}_line{{stroke-width:{stroke.width:g}{dash}{head}{tail}}}")
    return "".join(rules)


def markers(kinds: Iterable[str], palette: Palette) -> str:
    """The ends of these kinds of lines."""
    out = []
    for kind in kinds:
        stroke = STROKES[kind]
        for end, form in (("head", stroke.head), ("tail", stroke.tail)):
            if form != "none":
                turn = "auto" if end == "head" else "auto-start-reverse"
                size = 'markerUnits="userSpaceOnUse" markerWidth="9" markerHeight="12" refX="0" refY="0"'
                view = 'viewBox="0 -6 9 12"'
                out.append(
                    f'<marker id="{kind}_{end}" {size} {view} orient="{turn}">{_end(form, stroke, palette)}</marker>'
                )
    return "".join(out)


def _end(form: str, stroke: Stroke, palette: Palette) -> str:
    filled = f'class="{palette.fill(stroke.tone)}"'
    outlined = f'class="{palette.fill(PAPER)} {palette.line(stroke.tone)}"'
    wide = 2.6 + stroke.width / 3
    match form:
        case "tee":
            return f'<path class="{palette.line(stroke.tone)}" stroke-width="2.4" d="M4 -5V5M0 0H4"/>'
        case "diamond":
            return f'<path {filled} d="M0 0L{_HEAD / 2} {-wide}L{_HEAD} 0L{_HEAD / 2} {wide}z"/>'
        case "open":
            return f'<path {outlined} d="M0.5 {-wide}L{_HEAD - 0.5} 0L0.5 {wide}z"/>'
        case _:
            return f'<path {filled} d="M0 {-wide:g}L{_HEAD:g} 0L0 {wide:g}z"/>'


def _rect(x: float, y: float, width: float, height: float, radius: float, style: str) -> str:
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    rounding = f' rx="{radius:g}"' if radius else ""
    return f"<rect {place}{rounding} {style}/>"


def _polygon(corners: Iterable[Point], style: str) -> str:
    return f'<path {style} d="M{"L".join(map(_xy, corners))}z"/>'


def _xy(point: Point) -> str:
    return f"{number(point[0])} {number(point[1])}"


def rect(x: float, y: float, width: float, height: float, radius: float, style: str) -> str:
    """A rectangle from its top left corner."""
    return _rect(x, y, width, height, radius, style)
