"""The visual language: what each kind of thing looks like, in Graphviz attributes.

State gets the colour, not the kind of operator, and never colour alone: freed is dashed and says so, shared
has a double outline or a thick box, a cut is a note, findings carry their code.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

import graphviz

from ._picture import Line, Picture
from ._shapes import Shape
from ._words import clean, shorten

INK, QUIET, EDGE, PAPER = "#1b2430", "#56616f", "#7a8798", "#ffffff"
BLUE, RED, BROWN, VIOLET, GREEN = "#1d55c9", "#c0271d", "#6b5200", "#5b2d9e", "#00543c"
FREED_FILL, SHARED_FILL, MODULE_FILL, MODULE_LINE = "#f6efe4", "#f5f2fc", "#f5f7fb", "#a7b2c4"
FILLS = {
    "loss": (BLUE, BLUE),
    "operator": ("#e9eef7", "#52627a"),
    "chain": ("#e9eef7", "#52627a"),
    "module": (MODULE_FILL, "#52627a"),
    "rest": (PAPER, MODULE_LINE),
    "parameter": ("#dcf1e6", GREEN),
    "input": ("#e3f0fb", "#2b6ca3"),
    "cut": ("#fff4f3", RED),
}
BANDS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
OTHER_BAND = "#9aa5b1"  # the seventh optimizer and those after it: their names tell them apart
_SPACED = '<FONT POINT-SIZE="10.5"> </FONT>{}<FONT POINT-SIZE="10.5"> </FONT>'  # lines of small text, a little apart
_BREAK = '<BR ALIGN="LEFT"/>'
_NAME, _LINE = 48, 72  # characters; the tooltip has all of them
_TIPS = 20  # lines of a tooltip


def band(optimizer: int) -> str:
    """The colour of an optimizer's parameters."""
    return BANDS[optimizer] if optimizer < len(BANDS) else OTHER_BAND


def node(shape: Shape, shared: bool) -> dict[str, str]:
    """The attributes of a box."""
    fill, line = FILLS[shape.kind]
    style = ["filled", "dashed"] if shape.kind == "cut" else ["filled", "rounded"]
    attributes = {"shape": "note" if shape.kind == "cut" else "box", "margin": "0.16,0.07"}
    classes = [shape.kind]
    if shape.freed:
        fill, line = FREED_FILL, BROWN
        style.append("dashed")
        classes.append("freed")
    if shared:
        line = line if shape.freed else VIOLET
        attributes["peripheries"] = "2"
        classes.append("shared")
    if shape.failing or (shape.codes and shape.kind != "cut"):
        line = RED
        attributes["penwidth"] = "2.4"
        classes.append("finding")
    if shape.optimizers:
        fill = f"{band(shape.optimizers[0])};{_band_share(shape):.3f}:{fill}"
        attributes["margin"] = "0.22,0.07"
    return {
        **attributes,
        "style": ",".join(style),
        "fillcolor": fill,
        "color": line,
        "label": _label(shape),
        "tooltip": tooltip([*([" ".join(shape.codes)] if shape.codes else []), *(shape.tooltip or [shape.title])]),
        "id": shape.id,
        "class": " ".join(classes),
    }


def _label(shape: Shape) -> str:
    title, quiet = {"loss": ("#ffffff", "#e6efff"), "cut": (RED, QUIET)}.get(shape.kind, (INK, QUIET))
    parts = [f'<FONT COLOR="{title}"><B>{_text(shape.title, _NAME)}</B></FONT>'] if shape.title else []
    parts += [f"{_text(name, _NAME)}  {small(dimensions, quiet)}" for name, dimensions in shape.rows]
    lower = [small(line, quiet) for line in shape.lines if line]
    if shape.state:
        lower.append(small(shape.state, BROWN))
    if shape.codes:
        lower.append(small(" | ".join([*shape.codes, *([shape.place] if shape.place else [])]), RED))
    return f"<{'<BR/>'.join(parts + [_SPACED.format(line) for line in lower])}>"


def _band_share(shape: Shape) -> float:
    """A band of about eight points, as a share of the width that the label will likely take."""
    rows = [len(name) * 1.25 + len(dimensions) for name, dimensions in shape.rows] or [len(shape.title) * 1.4]
    longest = max(*rows, *map(len, shape.lines), 1)
    return 8 / (longest * 5.2 + 32)


def small(text: str, color: str) -> str:
    """Text in the second size, for an HTML-like label."""
    return f'<FONT POINT-SIZE="8.5" COLOR="{color}">{_text(text, _LINE)}</FONT>'


def _text(text: str, width: int) -> str:
    """Text for an HTML-like label, where a backslash before a letter would call for the name of the node."""
    return (
        escape(shorten(clean(text), width), quote=False).replace("\\", "<FONT>&#92;</FONT>").replace("  ", " &#160;")
        or "unnamed"
    )


def tooltip(lines: Iterable[str]) -> str:
    """Lines as a plain Graphviz string, in which a name's markup, entities and backslashes mean nothing."""
    lines = list(lines)
    lines = lines[:_TIPS] + ([f"and {len(lines) - _TIPS} more"] if len(lines) > _TIPS else [])
    safe = (clean(line).replace("\\", "\\\\").replace("&", "&amp;") for line in lines)
    quoted: str = graphviz.nohtml("\\n".join(safe) or " ")
    return quoted


def line(line: Line) -> dict[str, str]:
    """The attributes of a line."""
    styles = {
        "plain": {},
        "loss": {"color": BLUE, "penwidth": "1.6"},
        "freed": {"color": BROWN, "style": "dashed"},
        "blamed": {"color": RED, "penwidth": "2.4"},
        "severed": {"color": RED, "penwidth": "1.6", "style": "dotted", "arrowhead": "tee"},
        "lost": {"color": RED, "style": "dotted", "arrowhead": "onormal", "constraint": "false"},
    }
    label = line.label or (f"x{line.times}" if line.times > 1 else "")
    attributes = dict(styles[line.kind], **{"class": line.kind})
    if label:
        color = RED if line.kind in ("blamed", "severed", "lost") else QUIET
        attributes["label"] = f"<{small(' ' + label, color)}>"
    return attributes


def cluster(path: tuple[str, ...], kind: str | None, shared_by: str | None) -> dict[str, str]:
    """The attributes of the box around a module."""
    color = VIOLET if shared_by else QUIET
    words = ", ".join(filter(None, [kind, f"shared by {shared_by}" if shared_by else None]))
    rest = f" &#160;{small(words, color)}" if words else ""
    return {
        "label": f'<<FONT COLOR="{color}"><B>{_text(".".join(path), _NAME)}</B></FONT>{rest}>',
        "labeljust": "l",
        "style": "rounded,filled",
        "fillcolor": SHARED_FILL if shared_by else MODULE_FILL,
        "color": VIOLET if shared_by else MODULE_LINE,
        "peripheries": "1",
        "penwidth": "1.8" if shared_by else "1",
        "margin": "14",
        "tooltip": tooltip([".".join(path) + (f", {words}" if words else "")]),
        "class": "module shared" if shared_by else "module",
    }


def heading(picture: Picture) -> str:
    """The label above the picture: what it is of, and what was left out of it."""
    title = f'<FONT POINT-SIZE="13"><B>{_text(picture.title, 100)}</B></FONT>'
    lines = [title, *(_SPACED.format(small(note, QUIET)) for note in picture.notes)]
    return f"<{''.join(line + _BREAK for line in lines)}>"


def legend(picture: Picture, shared: bool) -> str:
    """One table with the kinds that occur, six to a row."""
    kinds = {shape.kind for shape in picture.shapes}
    lines = {line.kind for line in picture.lines}
    held = sorted({holder for shape in picture.shapes for holder in shape.optimizers})
    names = {"loss": "loss", "operator": "operator", "chain": "operators in a row", "module": "closed module"}
    names |= {"parameter": "parameter", "input": "input", "cut": "gradient stops here"}
    entries = [(*FILLS[kind], name, kind == "cut") for kind, name in names.items() if kind in kinds]
    if any(shape.freed for shape in picture.shapes):
        entries.append((FREED_FILL, BROWN, "buffers freed", True))
    if shared:
        entries.append((SHARED_FILL, VIOLET, "shared by several losses", False))
    if "blamed" in lines or any(shape.codes for shape in picture.shapes):
        entries.append((PAPER, RED, "named by a finding", False))
    entries += [(band(id), band(id), f"held by {picture.optimizers[id]}", False) for id in held[:12]]
    rows = [entries[start : start + 6] for start in range(0, len(entries), 6)]
    cells = "".join(f"<TR>{''.join(_swatch(*entry) for entry in row)}</TR>" for row in rows)
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="4" CELLPADDING="2">{cells}</TABLE>>' if cells else ""


def _swatch(fill: str, outline: str, name: str, dashed: bool) -> str:
    style = ' STYLE="DASHED"' if dashed else ""
    swatch = f'<TD BGCOLOR="{fill}" COLOR="{outline}" BORDER="1"{style} WIDTH="16" HEIGHT="10"></TD>'
    return f'{swatch}<TD ALIGN="LEFT">{small(name, QUIET)}</TD>'
