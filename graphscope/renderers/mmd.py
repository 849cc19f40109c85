"""The graph as a Mermaid flowchart, for Markdown that draws it (GitHub, GitLab, notebooks)."""

from __future__ import annotations

import json

from ..report import Report
from ..show import Show
from ._clusters import Cluster
from ._label import rows
from ._picture import Line, Picture, picture
from ._shapes import Shape
from ._style import LOOKS, STROKES, band, outline
from ._words import clean

_FORMS = {
    "rounded": ('("', '")'),
    "square": ('["', '"]'),
    "octagon": ('{{"', '"}}'),
    "folder": ('[["', '"]]'),
    "stack": ('[["', '"]]'),
    "note": ('>"', '"]'),
    "chip": ('(["', '"])'),
}
_MARKUP = frozenset('&<>"#;`\\{}[]|')


def render(report: Report, show: Show | None = None) -> str:
    """The report's graph as Mermaid source."""
    drawn = picture(report, show)
    out = ["---", f"title: {json.dumps(clean(drawn.title))}", "---", "flowchart TD"]
    out += [f"  %% {_text(note)}" for note in drawn.notes]
    _add(drawn.tree, out, "  ")
    out += [f"  {_line(line)}" for line in drawn.lines]
    out += [f"  {style}" for style in _styles(drawn)]
    return "\n".join(out) + "\n"


def _add(cluster: Cluster, out: list[str], indent: str) -> None:
    for shape in cluster.shapes:
        opening, closing = _FORMS[LOOKS[shape.kind].form]
        lines = ["".join(_text(span.text) for span in row) for row in rows(shape)]
        out.append(f"{indent}{shape.id}{opening}{'<br/>'.join(lines)}{closing}")
    for inner in cluster.inside:
        out.append(f'{indent}subgraph {inner.id}["{_text(inner.title)}"]')
        _add(inner, out, indent + "  ")
        out.append(f"{indent}end")


def _line(line: Line) -> str:
    stroke = STROKES[line.kind]
    head = "x" if stroke.head == "tee" else ">"
    arrow = f"-.-{head}" if stroke.dash != "solid" else "==>" if stroke.width > 2 else "-->"
    words = f'|"{_text(line.words)}"|' if line.words else ""
    return f"{line.source} {arrow}{words} {line.target}"


def _styles(drawn: Picture) -> list[str]:
    """The colours of boxes and lines that are not plain."""
    found = [_style(shape) for shape in drawn.shapes]
    for kind in dict.fromkeys(line.kind for line in drawn.lines):
        numbers = ",".join(str(n) for n, line in enumerate(drawn.lines) if line.kind == kind)
        found.append(f"linkStyle {numbers} stroke:{STROKES[kind].tone.light},stroke-width:{STROKES[kind].width:g}px")
    return found


def _style(shape: Shape) -> str:
    look = outline(shape, shape.is_shared)
    dash = {"dashed": ",stroke-dasharray:5 3", "dotted": ",stroke-dasharray:2 3"}.get(look.dash, "")
    line = band(shape.optimizers[0]) if shape.optimizers and not look.marks else look.line
    width = 3 if shape.optimizers and not look.marks else look.width
    ink = LOOKS[shape.kind].title.light
    return f"style {shape.id} fill:{look.fill.light},stroke:{line.light},stroke-width:{width:g}px,color:{ink}{dash}"


def _text(value: str) -> str:
    """Text in which nothing is markup: Mermaid's character codes for all that could be."""
    return "".join(f"#{ord(c)};" if c in _MARKUP or not c.isascii() else c for c in clean(value))
