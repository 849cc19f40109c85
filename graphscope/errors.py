"""What graphscope raises and warns with, and what it says where it fails itself."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from . import __version__

_HERE = str(Path(__file__).parent) + os.sep
_FRAMES = 3


class GraphscopeError(Exception):
    """graphscope was asked for something it cannot do; the message names the call that works."""


class GraphscopeWarning(UserWarning):
    """A finding of ``graphscope.check``, also emitted as a Python warning so that filters apply to it."""


def internal_error(error: BaseException) -> str:
    """One line on a failure of graphscope's own: what it was and where, with which versions, and how to see more."""
    places = []
    entry = error.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        places.append(f"{code.co_filename.removeprefix(_HERE)}:{entry.tb_lineno} in {code.co_name}")
        entry = entry.tb_next
    torch = getattr(sys.modules.get("torch"), "__version__", "none")
    versions = f"graphscope {__version__}, torch {torch}, Python {platform.python_version()}"
    said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if is_debugged():
        print(f"graphscope: {versions}: {said}", *reversed(places), sep="\n  ", file=sys.stderr)
    at = ", ".join(reversed(places[-_FRAMES:]))
    return (
        f"an internal error of graphscope: {said} (at {at}; {versions}); "
        "run it again with GRAPHSCOPE_DEBUG=1 to see all of it, which makes a bug report"
    )


def is_debugged() -> bool:
    """Whether failures of graphscope's own are shown as they happen: GRAPHSCOPE_DEBUG is set."""
    return bool(os.environ.get("GRAPHSCOPE_DEBUG"))
