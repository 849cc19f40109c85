from __future__ import annotations

import itertools

import pytest

from graphscope.renderers._style import BANDS, BROWN, INK, LOOKS, MARKS, PAPER, QUIET, RED, STROKES, Tone

TEXT, GRAPHIC = 4.5, 3.0  # WCAG 2.2 AA: contrast of small text (1.4.3), and of what one must see to understand (1.4.11)


def luminance(color: str) -> float:
    channels = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: Tone, b: Tone, theme: str) -> float:
    low, high = sorted((luminance(getattr(a, theme)), luminance(getattr(b, theme))))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_measured_as_wcag_does() -> None:
    assert contrast(Tone("#000000", "#000000"), Tone("#ffffff", "#ffffff"), "light") == pytest.approx(21)
    assert contrast(Tone("#777777", "#777777"), Tone("#ffffff", "#ffffff"), "light") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_box(theme: str) -> None:
    for kind, look in LOOKS.items():
        fills = [look.fill] if kind in ("loss", "cut") else [look.fill, *(m.fill for m in MARKS.values() if m.fill)]
        texts = [look.title, look.text] + ([] if kind == "loss" else [RED])
        for text, fill in itertools.product(texts, fills):
            assert contrast(text, fill, theme) >= TEXT, (kind, text, fill)
    for mark in MARKS.values():
        assert contrast(mark.line, mark.fill or PAPER, theme) >= TEXT, mark
    for text in (INK, QUIET, RED, BROWN):
        assert contrast(text, PAPER, theme) >= TEXT


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_outlines_and_lines_stand_out_from_the_paper(theme: str) -> None:
    for thing in (*LOOKS.values(), *MARKS.values()):
        assert contrast(thing.line, PAPER, theme) >= GRAPHIC, thing
    for stroke in STROKES.values():
        assert contrast(stroke.tone, PAPER, theme) >= GRAPHIC, stroke


def test_no_two_things_differ_by_colour_alone() -> None:
    forms = {kind: (look.form, look.dashed, kind == "parameter") for kind, look in LOOKS.items()}
    told = [kind for kind in forms if kind not in ("loss", "input", "chain", "repeat")]  # these say what they are
    assert len({forms[kind] for kind in told}) == len(told)
    lines = {kind: (s.dash, s.head, s.tail, s.width) for kind, s in STROKES.items() if kind not in ("new", "gone")}
    told = [kind for kind in lines if kind != "loss"]
    assert len({lines[kind] for kind in told}) == len(told)
    assert len(set(BANDS)) == len(BANDS)
