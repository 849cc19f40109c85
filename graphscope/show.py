"""Which part of a graph a picture shows, and how closely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ._plain import dataclass

BOXES = 80  # what a reader takes in; beyond it, a picture is collapsed


@dataclass(frozen=True, slots=True)
class Show:
    """What a reader wants to see.

    ``boxes`` is about how many boxes there may be, 0 for as many as it takes. ``depth`` closes the modules at that
    depth of their dotted names, ``focus`` all but the module of that name. ``around`` shows the neighbourhood of a
    node or tensor: ``tensor:3``, ``node:17`` or a name. ``path`` marks the gradient's way to a parameter.
    ``beside`` is the directory of the picture, which links to source lines are relative to. ``changes`` says which
    nodes are ``new`` or ``gone``, where two traces are compared; ``details`` are more lines for the box of a node.
    """

    boxes: int = BOXES
    depth: int | None = None
    focus: str | None = None
    around: str | None = None
    path: str | None = None
    beside: str | None = None
    changes: Mapping[int, str] = field(default_factory=dict)
    details: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
