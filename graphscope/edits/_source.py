"""A parsed file: its nodes by line, their text, and changes of that text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider, PositionProvider

from .._plain import dataclass

Found = TypeVar("Found", bound=cst.CSTNode)
One = TypeVar("One")


class Refused(Exception):
    """An edit cannot be made safely."""


@dataclass(frozen=True, order=True)
class Splice:
    """Text to put in the place of the bytes from ``start`` to ``end``."""

    start: int
    end: int
    text: str = ""


class Source:
    """Python source and its syntax tree. Positions are bytes of the text in UTF-8."""

    def __init__(self, text: str) -> None:
        wrapper = MetadataWrapper(cst.parse_module(text.removeprefix("\ufeff")), unsafe_skip_copy=True)
        self.module = wrapper.module
        self._mark = text[: text.startswith("\ufeff")]
        self._bytes = text.removeprefix("\ufeff").encode()
        self._spans = wrapper.resolve(ByteSpanPositionProvider)
        self._positions = wrapper.resolve(PositionProvider)
        self._parents = wrapper.resolve(ParentNodeProvider)
        self.nodes: tuple[cst.CSTNode, ...] = (self.module, *self._parents)

    # Nodes

    def start(self, node: cst.CSTNode) -> int:
        """Where a node begins; the parentheses around an expression are not part of it."""
        return self._spans[node].start

    def end(self, node: cst.CSTNode) -> int:
        """Where a node ends."""
        span = self._spans[node]
        return span.start + span.length

    def lines(self, node: cst.CSTNode) -> range:
        """The lines that a node is on."""
        position = self._positions[node]
        return range(position.start.line, position.end.line + 1)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """What a node is part of."""
        return self._parents.get(node)

    def at(self, line: int, kind: type[Found], accept: Callable[[Found], bool] = lambda node: True) -> list[Found]:
        """The nodes of a kind that are on a line, in order."""
        there = [node for node in self.nodes if isinstance(node, kind) and line in self.lines(node) and accept(node)]
        return sorted(there, key=self.start)

    def inside(self, node: cst.CSTNode, kind: type[Found]) -> list[Found]:
        """The nodes of a kind in a node, itself included, in order."""
        return sorted((each for each in descendants(node) if isinstance(each, kind)), key=self.start)

    def statements(self, line: int) -> list[cst.BaseSmallStatement]:
        """The simple statements on a line."""
        there = (node for node in self.nodes if isinstance(node, cst.BaseSmallStatement) and line in self.lines(node))
        return sorted(there, key=self.start)

    def statement(self, line: int) -> cst.BaseSmallStatement:
        """The one simple statement on a line."""
        return only(self.statements(line))

    def alone(self, statement: cst.CSTNode) -> cst.SimpleStatementLine:
        """The line of a simple statement that shares it with no other."""
        line = self.parent(statement)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
            raise Refused("not alone on its line")
        return line

    def block(self, line: cst.CSTNode) -> cst.CSTNode | None:
        """The block that a statement is in."""
        return self.parent(line)

    # Text

    def text(self, node: cst.CSTNode) -> str:
        """The source of a node, with its parentheses."""
        return self.module.code_for_node(node).strip()

    def between(self, start: int, end: int) -> str:
        """The source of a part of the file."""
        return self._bytes[start:end].decode()

    def line_start(self, position: int) -> int:
        """Where the line of a position begins."""
        return self._bytes.rfind(b"\n", 0, position) + 1

    def line_end(self, position: int) -> int:
        """Where the line after that of a position begins."""
        return self._bytes.find(b"\n", position) + 1 or len(self._bytes)

    def indent(self, node: cst.CSTNode) -> str:
        """The white space in front of a statement that begins a line."""
        return self.between(self.line_start(self.start(node)), self.start(node))

    def spliced(self, splices: Sequence[Splice]) -> str:
        """The text with these changes, which must not touch one another."""
        parts, last = [self._mark.encode()], 0
        for splice in sorted(dict.fromkeys(splices), key=lambda splice: (splice.start, splice.end)):
            if splice.start < last:
                raise Refused("two edits meet")
            parts += [self._bytes[last : splice.start], splice.text.encode()]
            last = splice.end
        return b"".join([*parts, self._bytes[last:]]).decode()


def only(found: Sequence[One]) -> One:
    """The one that was found; refused if there is none, or a choice."""
    if len(found) != 1:
        raise Refused(f"{len(found)} candidates")
    return found[0]


def descendants(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """A node and all that it is made of."""
    yield node
    for child in node.children:
        yield from descendants(child)


def dotted(node: cst.CSTNode) -> str | None:
    """The text of a name, or of names with dots between them; None for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        owner = dotted(node.value)
        return owner and f"{owner}.{node.attr.value}"
    return None


def names(node: cst.CSTNode) -> set[str]:
    """The names, plain or dotted, that stand anywhere in a node."""
    return {name for each in descendants(node) if (name := dotted(each))}


def bound(node: cst.CSTNode) -> set[str]:
    """The names, plain or dotted, that a statement gives a value."""
    found: set[str] = set()
    for each in descendants(node):
        match each:
            case cst.AssignTarget(target=target) | cst.AugAssign(target=target) | cst.AnnAssign(target=target):
                found |= names(target)
            case cst.For(target=target) | cst.CompFor(target=target) | cst.NamedExpr(target=target):
                found |= names(target)
            case cst.AsName(name=name) | cst.FunctionDef(name=name) | cst.ClassDef(name=name):
                found |= names(name)
            case cst.Del(target=target):
                found |= names(target)
            case cst.ImportAlias():
                found |= names(each.name)
    return found
