"""Words that every format uses: safe names, sizes, counts."""

from __future__ import annotations

from ..findings import size as size
from ..graph import TensorMeta


def clean(text: str) -> str:
    """The text on one line, with what a terminal or an XML reader would trip over spelled out (``\\x1b``)."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _spelled(c) for c in text)


def _spelled(character: str) -> str:
    return " " if character.isspace() else ascii(character)[1:-1]


def shorten(text: str, width: int) -> str:
    """The text, its middle left out where it is longer than ``width``."""
    if len(text) <= width:
        return text
    tail = (width - 3) // 2
    return f"{text[: width - 3 - tail]}...{text[-tail:]}"


def clip(text: str, width: int) -> str:
    """The text, its end left out where it is longer than ``width``."""
    return text if len(text) <= width else f"{text[: max(0, width - 3)]}..."


def count(number: int, noun: str) -> str:
    """A number with its noun: ``1 error``, ``1,200 operators``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: list[str]) -> str:
    """Words joined as a sentence does: ``a, b and c``."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def meta(output: TensorMeta) -> str:
    """A tensor's shape and dtype: ``(32, 4) float32``."""
    return f"{output.shape} {output.dtype}"


def packed(words: list[str], width: int = 46) -> list[str]:
    """Words side by side, on as few lines of about this width as they take."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) + 3 <= width:
            lines[-1] += f" | {word}"
        else:
            lines.append(word)
    return lines
