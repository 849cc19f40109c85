"""The options that say which part of the graph a picture shows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ..show import BOXES, Show


def shows(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which part of the graph a picture shows; the command gets them as ``show``."""
    options = [
        click.option(
            "--depth",
            type=click.IntRange(min=1),
            metavar="N",
            help="Draw each module N names deep as one box: 2 closes net.layer3, with all that is inside of it.",
        ),
        click.option("--focus", metavar="MODULE", help="Open this module alone, net.layer3 say, and close the others."),
        click.option(
            "--around", metavar="WHAT", help="Draw what is next to a tensor or node only: a name, tensor:3 or node:17."
        ),
        click.option("--path", metavar="PARAMETER", help="Mark the gradient's way from the losses to a parameter."),
        click.option(
            "--full", is_flag=True, help=f"Draw every operator.  [default: as much as goes into some {BOXES} boxes]"
        ),
    ]

    @functools.wraps(command)
    def shown(
        *args: Any, depth: int | None, focus: str | None, around: str | None, path: str | None, full: bool, **rest: Any
    ) -> None:
        show = Show(boxes=0 if full else BOXES, depth=depth, focus=focus, around=around, path=path)
        command(*args, show=None if show == Show() else show, **rest)

    return functools.reduce(lambda decorated, option: option(decorated), reversed(options), shown)
