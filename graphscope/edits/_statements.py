"""Edits of whole statements: wrap one, put a copy before it."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from ..findings import Edit
from ._source import Refused, Source, Splice, descendants, dotted, names
from ._writes import check_own, written


def clone(source: Source, edit: Edit) -> Iterator[Splice]:
    """Put ``x = x.clone()`` before the statement that writes to ``x``."""
    line = source.alone(source.statement(edit.location.line))
    name = edit.name or written(source, line.body[0])
    if name is None or not _is_dotted(name) or name not in names(line):
        raise Refused("a copy of what?")
    check_own(source, line.body[0], name)
    start = source.line_start(source.start(line))
    yield Splice(start, start, f"{source.indent(line)}{name} = {name}.clone(){source.module.default_newline}")


def _is_dotted(name: str) -> bool:
    try:
        return dotted(cst.parse_expression(name)) is not None
    except cst.ParserSyntaxError:
        return False


def no_grad(source: Source, edit: Edit) -> Iterator[Splice]:
    """Put a statement under ``torch.no_grad()``."""
    line = source.alone(source.statement(edit.location.line))
    torch = _torch(source)
    start, end = source.line_start(source.start(line)), source.line_end(source.end(line))
    indent, step, newline = source.indent(line), source.module.default_indent, source.module.default_newline
    text = source.between(start, end)
    strings = (each for each in descendants(line) if isinstance(each, cst.BaseString | cst.FormattedStringText))
    if any(len(source.lines(each)) > 1 for each in strings):  # what is inside a string stays as it is
        text = step + text
    else:
        text = "".join(step + each if each.strip() else each for each in text.splitlines(keepends=True))
    yield Splice(start, end, f"{indent}with {torch}.no_grad():{newline}{text}")


def _torch(source: Source) -> str:
    """What the program calls torch."""
    for node in source.nodes:
        if isinstance(node, cst.Import):
            for alias in node.names:
                name = source.text(alias.name)
                if alias.asname is None and name.split(".")[0] == "torch":
                    return "torch"
                if alias.asname is not None and name == "torch":
                    return source.text(alias.asname.name)
    raise Refused("torch is not imported by name")
