"""The visual language in Graphviz's words."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import graphviz

from ._clusters import Cluster
from ._label import Row, Span, rows, shown
from ._legend import Swatch, legend
from ._picture import Line, Picture
from ._shapes import Shape
from ._style import FRAME, LOOKS, PAPER, QUIET, SHARED_FILL, STROKES, UNOWNED, VIOLET, Tone, band, outline
from ._words import clean, listed

_FORMS = {
    "rounded": {"shape": "box", "style": "filled,rounded"},
    "square": {"shape": "box", "style": "filled"},
    "octagon": {"shape": "octagon", "style": "filled"},
    "folder": {"shape": "folder", "style": "filled"},
    "stack": {"shape": "box3d", "style": "filled"},
    "note": {"shape": "note", "style": "filled"},
    "chip": {"shape": "cds", "style": "filled", "height": "0.2"},
}
_ENDS = {"arrow": "normal", "open": "onormal", "tee": "tee", "diamond": "diamond", "none": "none"}
_SPACED = '<FONT POINT-SIZE="10.5"> </FONT>{}<FONT POINT-SIZE="10.5"> </FONT>'  # lines of small text, a little apart
_BREAK = '<BR ALIGN="LEFT"/>'
_TIPS = 20  # lines of a tooltip


def node(shape: Shape, shared: bool) -> dict[str, str]:
    """The attributes of a box; ``shared`` where no box around it says so."""
    look = LOOKS[shape.kind]
    drawn = outline(shape, shared)
    form = dict(_FORMS[look.form])
    dash = [drawn.dash] if drawn.dash != "solid" else []
    fill = drawn.fill.light
    margin = "0.16,0.07"
    if shape.kind == "parameter":
        form["style"], fill = "striped", _stripes(shape, fill)
        margin = "0.22,0.07"
    return {
        **form,
        "style": ",".join([form["style"], *dash]),
        "margin": "0.06,0.02" if shape.kind == "chip" else margin,
        "fillcolor": fill,
        "color": drawn.line.light,
        **({"penwidth": f"{drawn.width:g}"} if drawn.width != 1 else {}),
        **({"peripheries": "2"} if drawn.double else {}),
        "label": _label(shape),
        "tooltip": tooltip([*([" ".join(shape.codes)] if shape.codes else []), *(shape.tooltip or [shape.name])]),
        "id": shape.id,
        "class": " ".join([shape.kind, *drawn.marks]),
    }


def _label(shape: Shape) -> str:
    return f"<{'<BR/>'.join(map(_row, rows(shape)))}>"


def _row(row: Row) -> str:
    written = "".join(_span(span) for span in row)
    return _SPACED.format(written) if all(span.small for span in row) else written


def _span(span: Span) -> str:
    text = f"<B>{_escaped(span.text)}</B>" if span.bold else _escaped(span.text)
    size = ' POINT-SIZE="8.5"' if span.small else ""
    return f'<FONT{size} COLOR="{span.tone.light}">{text}</FONT>'


def _stripes(shape: Shape, fill: str) -> str:
    """A band for each optimizer that holds the parameter, thin stripes for none."""
    rows = [len(name) * 1.25 + len(dimensions) for name, dimensions in shape.rows] or [len(shape.title) * 1.4]
    width = max(*rows, *map(len, shape.lines), 1) * 5.2 + 32  # that the label will likely take
    bands: list[tuple[str, float]] = [(band(holder).light, 8) for holder in shape.optimizers[:4]]
    if not shape.owned:
        bands = [(UNOWNED.light, 1.5), (PAPER.light, 2)] * 3
    return ":".join([*(f"{color};{share / width:.3f}" for color, share in bands), fill])


def small(text: str, tone: Tone) -> str:
    """Text in the second size, for an HTML-like label."""
    return _span(Span(shown(text, 140), tone, small=True))


def _escaped(text: str) -> str:
    """Text for an HTML-like label, where a backslash before a letter would call for the name of the node."""
    return escape(text, quote=False).replace("\\", "<FONT>&#92;</FONT>").replace("  ", " &#160;")


def tooltip(lines: Iterable[str]) -> str:
    """Lines as a plain Graphviz string, in which a name's markup, entities and backslashes mean nothing."""
    lines = list(lines)
    lines = lines[:_TIPS] + ([f"and {len(lines) - _TIPS} more"] if len(lines) > _TIPS else [])
    safe = (clean(line).replace("\\", "\\\\").replace("&", "&amp;") for line in lines)
    quoted: str = graphviz.nohtml("\\n".join(safe) or " ")
    return quoted


def line(line: Line) -> dict[str, str]:
    """The attributes of a line."""
    stroke = STROKES[line.kind]
    attributes = {
        "color": stroke.tone.light,
        "penwidth": f"{stroke.width:g}",
        "class": line.kind,
        **({"style": stroke.dash} if stroke.dash != "solid" else {}),
        **({"arrowhead": _ENDS[stroke.head]} if stroke.head != "arrow" else {}),
        **({"arrowtail": _ENDS[stroke.tail], "dir": "both"} if stroke.tail != "none" else {}),
        **({} if line.pulls else {"constraint": "false"}),
    }
    if line.words:
        attributes["label"] = f"<{small(' ' + line.words, stroke.tone)}>"
    return attributes


def cluster(cluster: Cluster, kind: str | None, shared_by: str | None) -> dict[str, str]:
    """The attributes of the box around a module call."""
    tone = VIOLET if shared_by else QUIET
    words = cluster_words(kind, shared_by)
    rest = f" &#160;{small(words, tone)}" if words else ""
    line = VIOLET if shared_by else FRAME
    fill = SHARED_FILL if shared_by else LOOKS["module"].fill
    return {
        "label": f'<<FONT COLOR="{tone.light}"><B>{_escaped(shown(cluster.title, 72))}</B></FONT>{rest}>',
        "labeljust": "l",
        "style": "rounded,filled",
        "fillcolor": fill.light,
        "color": line.light,
        "peripheries": "2" if cluster.frame else "1",
        "penwidth": "1.8" if shared_by else "1",
        "margin": "14",
        "tooltip": tooltip([cluster.title + (f", {words}" if words else "")]),
        "class": "module shared" if shared_by else "module",
    }


def cluster_words(kind: str | None, shared_by: str | None) -> str:
    """What stands beside a module's name."""
    return ", ".join(filter(None, [kind, f"shared by {shared_by}" if shared_by else None]))


def sharers(cluster: Cluster, losses: list[str]) -> str:
    """The losses that share a module call."""
    names = [name for position, name in enumerate(losses) if cluster.losses >> position & 1]
    return listed(names) if len(names) < 4 else f"{len(names)} losses"


def heading(picture: Picture) -> str:
    """The label above the picture: what it is of, and what was left out of it."""
    title = f'<FONT POINT-SIZE="13"><B>{_escaped(shown(picture.title, 100))}</B></FONT>'
    lines = [title, *(_SPACED.format(small(note, QUIET)) for note in picture.notes)]
    return f"<{''.join(line + _BREAK for line in lines)}>"


def table(picture: Picture) -> str:
    """The legend, six entries to a row."""
    entries = legend(picture)
    rows = [entries[start : start + 6] for start in range(0, len(entries), 6)]
    cells = "".join(f"<TR>{''.join(map(_swatch, row))}</TR>" for row in rows)
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="2">{cells}</TABLE>>' if cells else ""


def _swatch(entry: Swatch) -> str:
    words = f'<TD ALIGN="LEFT">{small(entry.words, QUIET)}</TD>'
    if entry.is_line:
        return f'<TD ALIGN="RIGHT">{_span(Span(_DASHES[entry.dash], entry.line, bold=True))}</TD>{words}'
    style = f' STYLE="{entry.dash.upper()}"' if entry.dash != "solid" else ""
    fill = f"{UNOWNED.light}:{PAPER.light}" if entry.striped else entry.fill.light
    colors = f'BGCOLOR="{fill}" COLOR="{entry.line.light}" BORDER="{round(entry.width) or 1}"'
    return f'<TD {colors}{style} WIDTH="16" HEIGHT="10"></TD>{words}'


_DASHES = {"solid": "---", "dashed": "- -", "dotted": ". . ."}
