"""Where output goes: files, streams and terminals, which the program may have closed or replaced by then."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from .. import discovery
from ..errors import GraphscopeError, internal_error, is_debugged
from ..report import Report, is_picture, render
from ..show import Show
from ._problem import Problem

_LONG = 2.0  # seconds that pass before stderr tells what takes them


@contextlib.contextmanager
def apart(what: str) -> Iterator[None]:
    """A failure of our own in one part of the output costs no other part: it is told in a line."""
    try:
        yield
    except (GraphscopeError, click.ClickException, click.exceptions.Exit):
        raise
    except Exception as error:
        if is_debugged():
            raise
        click.echo(f"Error: {what} failed with {internal_error(error)}", err=True)


@contextlib.contextmanager
def patience(what: str) -> Iterator[None]:
    """Say on a terminal what is going on, if it takes long."""
    timer = threading.Timer(_LONG, lambda: click.echo(f"graphscope: {what} ...", err=True))
    timer.daemon = True
    if is_terminal(sys.stderr):
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def still_open(stream: TextIO, number: int) -> TextIO:
    """The stream, or where it led to, if the program has closed it."""
    return open(number, "w", closefd=False) if stream.closed else stream


def rendered_as(report: Report, form: str, show: Show | None) -> str | bytes:
    return render(report, form, show if is_picture(form) else None)


def check_picture(path: Path) -> None:
    if format_of(path) is None:
        known = ", ".join(f".{name}" for name in discovery.names("renderers"))
        raise Problem(f"cannot tell a format from {path.name!r}: give a name that ends in one of {known}")


def format_of(path: Path | None) -> str | None:
    suffix = path.suffix.lower().lstrip(".") if path is not None else ""
    format = {"txt": "text"}.get(suffix, suffix)
    return format if format in discovery.names("renderers") else None


def writable(path: Path) -> Path:
    """The absolute path, once it is known that it can be written; its contents stay as they are."""
    try:
        existed = os.path.lexists(path)
        if not existed or path.is_file() or path.is_dir():  # opening a pipe or a device would be noticed
            path.open("ab").close()
        if not existed:
            path.unlink()
    except OSError as error:
        raise Problem(f"cannot write {path}: {error.strerror}") from None
    return path.absolute()


def is_colored(choice: str, stream: TextIO | None) -> bool:
    if choice != "auto":
        return choice == "always"
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream is not None and stream.isatty() and not plain


def is_terminal(stream: TextIO) -> bool:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
        return stream.isatty()
    return False


def flush_stdout() -> None:
    """Let what the program printed come before the report where both go to the same place."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
        sys.stdout.flush()
