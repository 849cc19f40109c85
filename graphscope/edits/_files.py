"""The files that edits change: read as they are on disk, compared, shown as a diff."""

from __future__ import annotations

import difflib
import io
import os
import tokenize
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from .._plain import dataclass
from ..findings import Edit


@dataclass(frozen=True)
class Changed:
    """A file, by its path as locations name it, before and after some edits."""

    file: str
    before: bytes
    after: bytes

    @property
    def diff(self) -> bytes:
        """A unified diff that ``patch -p1`` and ``git apply`` take where the program was started."""
        name = Path(self.file).as_posix() + ("\t" if " " in self.file else "")
        lines = difflib.diff_bytes(
            difflib.unified_diff, _lines(self.before), _lines(self.after), f"a/{name}".encode(), f"b/{name}".encode()
        )
        return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)

    def line_before(self, line: int) -> int:
        """The line before the edits that became this line."""
        matcher = difflib.SequenceMatcher(None, _lines(self.before), _lines(self.after), autojunk=False)
        for _, start, stop, begin, end in matcher.get_opcodes():
            if begin < line <= end:
                return start + max(min(line - begin, stop - start), 1)
        return line


def changed(
    root: str, edits: Sequence[Edit], apply: Callable[[str, Sequence[Edit]], str | None]
) -> tuple[Changed, ...] | None:
    """The files that these edits change, below ``root``; None where one of them cannot be made."""
    found = []
    for file, group in groupby(sorted(edits, key=lambda edit: edit.location), key=lambda edit: edit.location.file):
        mine = tuple(group)
        if any(edit.other is not None and edit.other.file != file for edit in mine):
            return None
        try:
            before = Path(root, file).read_bytes()
            encoding, _ = tokenize.detect_encoding(io.BytesIO(before).readline)
            text = before.decode(encoding)
            after = apply(text, mine)
            found.append(Changed(file, before, after.encode(encoding)) if after is not None else None)
        except (OSError, SyntaxError, UnicodeError):
            return None
    if not found or None in found:
        return None
    return tuple(each for each in found if each is not None)


def is_below(files: Iterable[Changed]) -> bool:
    """Whether all files are below the directory that the program was started in: a diff can name them."""
    return not any(os.path.isabs(each.file) or each.file.startswith("..") for each in files)


def _lines(data: bytes) -> list[bytes]:
    return io.BytesIO(data).readlines()
