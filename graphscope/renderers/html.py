"""The report as one page that needs nothing else: findings, source, graph, timeline, memory, and a table of reach.

The page is put together from the files in ``report/``. What the program supplied travels as JSON and is only ever
shown as text; a content security policy lets no other script or style run, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib.resources import files

from ..report import Report
from ._contents import contents
from ._style import BANDS, BROWN, EDGE, FRAME, INK, LOOKS, MARKS, PAPER, QUIET, RED, STROKES, TEAL, Tone
from ._words import clean

_SCRIPTS = [
    *("dom", "data", "layout", "scene", "canvas", "map"),
    *("findings", "source", "details", "outline", "search", "views", "main"),
]


def render(report: Report) -> str:
    """The report as an HTML page."""
    folder = files(__package__) / "report"
    style = _colors() + (folder / "page.css").read_text(encoding="utf-8")
    parts = [(folder / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    page = (folder / "page.html").read_text(encoding="utf-8")
    allowed = f"script-src {_hash(script)}; style-src {_hash(style)}"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    data = json.dumps(contents(report), separators=(",", ":")).replace("<", "\\u003c")
    title = html.escape(clean(f"graphscope: {report.trace.script or 'a program'}"))
    texts = {"title": title, "policy": policy, "style": style, "data": data, "script": script}
    return re.sub(r"\{\{(\w+)\}\}", lambda match: texts[match[1]], page)


_TONES = {
    "bg": PAPER,
    "panel": Tone("#f7f8fb", "#1a1f28"),
    "border": Tone("#d5dbe5", "#333d4c"),
    "ink": INK,
    "muted": QUIET,
    "line": EDGE,
    "op": LOOKS["operator"].fill,
    "op-line": LOOKS["operator"].line,
    "parameter": LOOKS["parameter"].fill,
    "parameter-line": LOOKS["parameter"].line,
    "input": LOOKS["input"].fill,
    "input-line": LOOKS["input"].line,
    "loss": LOOKS["loss"].fill,
    "loss-ink": LOOKS["loss"].title,
    "cut": LOOKS["cut"].fill,
    "module": LOOKS["module"].fill,
    "module-line": FRAME,
    "freed": MARKS["freed"].fill or PAPER,
    "freed-line": MARKS["freed"].line,
    "stale": MARKS["stale"].line,
    "shared": MARKS["shared"].line,
    "severed": STROKES["severed"].tone,
    "path": STROKES["path"].tone,
    "alive": TEAL,
    "error": RED,
    "warning": BROWN,
    "note": LOOKS["input"].line,
    **{f"optimizer-{number}": tone for number, tone in enumerate(BANDS, 1)},
}


def _colors() -> str:
    """The tones as CSS variables: as the system prefers, unless the page was told otherwise."""
    light, dark = (
        "".join(f"--{name}:{getattr(tone, theme)};" for name, tone in _TONES.items()) for theme in ("light", "dark")
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
