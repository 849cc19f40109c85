"""The graph as SVG: light and dark, with tooltips, links to source lines, a title and a description."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from ..location import Location
from ..report import Report
from ..show import Show
from . import _svg
from ._clusters import Cluster
from ._drawing import cluster_words, sharers
from ._label import Row, Span, row_width, rows
from ._layout import Layout, Point, box_sizes, cluster_label, layout
from ._legend import Swatch, legend
from ._picture import Picture, picture, script_name
from ._shapes import Shape
from ._style import FRAME, INK, LOOKS, PAPER, QUIET, SHARED_FILL, STROKES, VIOLET, Outline, band, outline
from ._svg import Palette, number
from ._words import clean, count, shorten

_MARGIN = 18.0
_TIPS = 12  # lines of a tooltip
_MANY = 500  # boxes: with more of them, what is said of each is kept short, as is the file
_TOP, _NOTE = 20.0, 13.0
_ARIA = 'role="img" aria-labelledby="graphscope_title graphscope_desc"'


def render(report: Report, show: Show | None = None) -> str:
    """The report's graph as SVG."""
    return draw(picture(report, show), report, (show or Show()).beside)


def draw(drawn: Picture, report: Report, beside: str | None = None) -> str:
    """A picture as SVG; links go to source files, named from the directory ``beside``."""
    palette = Palette(fits=len(drawn.shapes) <= _MANY)
    shared = dict(_sharing(drawn.tree, drawn.losses))
    words = {
        cluster.id: cluster_words(drawn.classes.get(".".join(cluster.path)), shared.get(cluster.id))
        for cluster in _all(drawn.tree)
    }
    sizes = box_sizes(drawn)
    placed = layout(
        drawn, sizes, {cluster.id: cluster_label(cluster, words[cluster.id]) for cluster in _all(drawn.tree)}
    )
    modules = [cluster for cluster in _all(drawn.tree) if cluster.id in placed.clusters]
    title = (Span(clean(shorten(drawn.title, 100)), INK, bold=True),)
    notes = [(Span(shorten(clean(note), 150), QUIET, small=True),) for note in drawn.notes]
    width = max([placed.width, *(row_width(row) for row in [title, *notes])])
    key, key_height = _legend(legend(drawn), max(width, 360), palette)
    width = max(width, 360) + 2 * _MARGIN
    top = _MARGIN + _TOP + _NOTE * len(notes) + 8
    height = top + placed.height + key_height + 2 * _MARGIN
    body = [
        f'<g transform="translate({number((width - placed.width) / 2 if drawn.shapes else _MARGIN)} {number(top)})">',
        *(_cluster(cluster, placed, words[cluster.id], cluster.id in shared, palette) for cluster in modules),
        *_lines(drawn, placed, palette),
        *(_cluster_label(cluster, placed, words[cluster.id], cluster.id in shared, palette) for cluster in modules),
        *_boxes(drawn, placed, sizes, report, beside, palette),
        *_line_labels(drawn, placed, palette),
        "</g>",
        f'<g transform="translate({number(_MARGIN)} {number(top + placed.height + _MARGIN)})">{key}</g>',
    ]
    head = [_svg.written(title, _MARGIN, _MARGIN + 12, palette, anchor="start")]
    head += [
        _svg.written(note, _MARGIN, _MARGIN + _TOP + _NOTE * (n + 1) - 4, palette, anchor="start")
        for n, note in enumerate(notes)
    ]
    kinds = [kind for kind in STROKES if any(line.kind == kind for line in drawn.lines)]
    definitions = _svg.markers(kinds, palette)
    if any(not shape.owned for shape in drawn.shapes):
        definitions += _svg.stripes(palette)
    paper = _svg.rect(0, 0, width, height, 0, f'class="{palette.fill(PAPER)}"')
    size = f'width="{number(width)}pt" height="{number(height)}pt" viewBox="0 0 {number(width)} {number(height)}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {_ARIA}>',
            *_description(report),
            f"<style>{_svg.TEXT_SHEET}{_svg.strokes(kinds)}{palette.sheet}</style>",
            f"<defs>{definitions}</defs>",
            paper,
            *head,
            *body,
            "</svg>\n",
        ]
    )


def _description(report: Report) -> list[str]:
    """Tell a screen reader what the picture is of and what was found."""
    names = ", ".join(dict.fromkeys(root.name for root in report.trace.graph.roots))
    found = [f"{finding.code}: {finding.message}" for finding in report.findings]
    parts = [f"{count(len(report.trace.graph), 'node')} behind {names or 'no loss'}", *(found or ["no findings"])]
    words = ". ".join(part.rstrip(".") for part in parts) + "."
    title = f"Autograd graph of {script_name(report) or 'a program'}"
    return [
        f'<title id="graphscope_title">{_svg.text(title)}</title>',
        f'<desc id="graphscope_desc">{_svg.text(words)}</desc>',
    ]


def _all(cluster: Cluster) -> list[Cluster]:
    """The boxes of modules, outer ones first."""
    return [each for inner in cluster.inside for each in (inner, *_all(inner))]


def _sharing(cluster: Cluster, losses: list[str]) -> list[tuple[str, str]]:
    """The outermost modules that several losses share, and the names of these losses."""
    found = []
    for inner in cluster.inside:
        if inner.shared:
            found.append((inner.id, sharers(inner, losses)))
        else:
            found += _sharing(inner, losses)
    return found


def _cluster(cluster: Cluster, placed: Layout, words: str, shared: bool, palette: Palette) -> str:
    (left, top), (right, low) = placed.clusters[cluster.id]
    fill = SHARED_FILL if shared else LOOKS["module"].fill
    line = VIOLET if shared else FRAME
    style = f'class="{palette.fill(fill)} {palette.line(line)}"{_svg.pen(1.8 if shared else 1)}'
    out = ""
    if cluster.frame:
        outer = f'class="e {palette.line(line)}"'
        out += _svg.rect(left + 4, top - 4, right - left, low - top, 9, outer)
    out += _svg.rect(left, top, right - left, low - top, 9, style)
    tip = _svg.text(cluster.title + (f", {words}" if words else ""))
    return f'<g id="{cluster.id}" class="module"><title>{tip}</title>{out}</g>'


def _cluster_label(cluster: Cluster, placed: Layout, words: str, shared: bool, palette: Palette) -> str:
    """The name of a module, written over the lines that cross it."""
    (left, top), _ = placed.clusters[cluster.id]
    fill, tone = (SHARED_FILL, VIOLET) if shared else (LOOKS["module"].fill, QUIET)
    label: Row = (Span(clean(cluster.title), tone, bold=True),)
    if words:
        label = (*label, Span(f"  {words}", tone, small=True))
    return _svg.written(label, left + 9, top + 14, palette, anchor="start", halo=fill)


def _lines(drawn: Picture, placed: Layout, palette: Palette) -> list[str]:
    names = {shape.id: shape.name for shape in drawn.shapes}
    few = len(drawn.shapes) <= _MANY
    out = []
    for position, line in enumerate(drawn.lines):
        if position in placed.routes:
            path = _svg.line(line.kind, placed.routes[position], palette)
            tip = f"<title>{_svg.text(f'{names[line.source]} to {names[line.target]}')}</title>" if few else ""
            out.append(f'<g class="{line.kind}">{tip}{path}</g>' if few else path)
    return out


def _line_labels(drawn: Picture, placed: Layout, palette: Palette) -> list[str]:
    out = []
    for position, line in enumerate(drawn.lines):
        at = placed.routes[position].label if position in placed.routes else None
        if line.words and at:
            row = (Span(shorten(clean(line.words), 72), STROKES[line.kind].tone, small=True),)
            out.append(_svg.written(row, at[0], at[1] + 3, palette, halo=PAPER))
    return out


def _boxes(
    drawn: Picture, placed: Layout, sizes: dict[str, Point], report: Report, beside: str | None, palette: Palette
) -> list[str]:
    inside = {shape.id for cluster in _all(drawn.tree) if cluster.shared for shape in cluster.all_shapes}
    tips = _TIPS if len(drawn.shapes) <= _MANY else 1
    out = []
    for shape in drawn.shapes:
        look = outline(shape, shape.is_shared and shape.kind != "chip" and shape.id not in inside)
        link = _link(shape.location, report.trace.root, beside)
        out.append(_box(shape, look, placed.boxes[shape.id], sizes[shape.id], link, tips, palette))
    return out


def _box(shape: Shape, look: Outline, at: Point, size: Point, link: str | None, tips: int, palette: Palette) -> str:
    (x, y), (width, height) = at, size
    form = LOOKS[shape.kind].form
    inner = _svg.box(form, x, y, width, height, look, palette)
    shift = 0.0
    if shape.kind == "parameter" and (shape.optimizers or not shape.owned):
        tones = [band(holder) for holder in shape.optimizers[:4]]
        inner += _svg.bands(tones, x - width / 2, y - height / 2, height, palette)
        shift = 4.0 * max(len(tones), 1)
    found = rows(shape)
    top = y - height / 2 + (2.5 if form == "chip" else 6)
    inner += _svg.paragraph(found, x + shift - (4 if form == "chip" else 0), top, palette)
    lines = [*([" ".join(shape.codes)] if shape.codes else []), *(shape.tooltip or [shape.name])]
    if tips > 1 and len(lines) > tips + 1:
        lines[tips:] = [f"and {len(lines) - tips} more"]
    shown = lines if tips > 1 else lines[:1]
    tip = "\n".join(map(_svg.text, shown))
    if link:
        inner = f'<a href="{_svg.attribute(link)}">{inner}</a>'
    return f'<g id="{shape.id}" class="{" ".join([shape.kind, *look.marks])}"><title>{tip}</title>{inner}</g>'


def _link(location: Location | None, root: str, beside: str | None) -> str | None:
    """The address of a source line, as a path from the directory of the picture."""
    if location is None or location.file.startswith("<"):
        return None
    path = Path(root, location.file)
    if beside is not None and path.is_absolute():
        path = Path(os.path.relpath(path, beside))
    elif not Path(location.file).is_absolute():
        path = Path(location.file)
    address = quote(path.as_posix(), errors="replace")
    return f"{address if path.is_absolute() else './' + address}#L{location.line}"


def _legend(entries: list[Swatch], width: float, palette: Palette) -> tuple[str, float]:
    """The legend in as many rows as it takes, and its height."""
    out, x, y = [], 0.0, 0.0
    for entry in entries:
        row = (Span(clean(shorten(entry.words, 60)), QUIET, small=True),)
        room = 26 + row_width(row) + 18
        if x and x + room > width:
            x, y = 0.0, y + 17
        if entry.is_line:
            pen = _svg.pen(entry.width, entry.dash)
            out.append(f'<path class="{palette.line(entry.line)}"{pen} d="M{number(x)} {number(y + 6)}h19"/>')
        else:
            look = Outline(entry.fill, entry.line, entry.width, entry.dash, False, ())
            if entry.double:
                out.append(_svg.rect(x - 2, y - 1, 22, 14, 4, f'class="e {palette.line(entry.line)}"'))
            out.append(_svg.box(entry.form, x + 9, y + 6, 18, 10, look, palette))
            if entry.striped:
                out.append(_svg.bands([], x + 5, y + 1, 10, palette))
        out.append(_svg.written(row, x + 26, y + 9, palette, anchor="start"))
        x += room
    return "".join(out), y + 17 if entries else 0.0
