"""Compiled code runs unwatched: ``torch.compile`` would compile what watches it into the program."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import torch


def leave_alone(aside: Callable[[], Callable[[], None]], undo: contextlib.ExitStack) -> None:
    """Call ``aside`` before any call of compiled code, and what it returns after that call.

    Code that was compiled before is not reached. The compiler takes seconds to import, and so is
    looked at only once the program uses it.
    """
    original = torch.compile
    hooked = False

    def hook() -> None:
        nonlocal hooked
        if not hooked:
            hooked = True
            _torch_hook(aside, undo)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        hook()
        return original(*args, **kwargs)

    if "torch._dynamo.eval_frame" in sys.modules:
        hook()
    torch.compile = compile
    undo.callback(setattr, torch, "compile", original)


def _torch_hook(aside: Callable[[], Callable[[], None]], undo: contextlib.ExitStack) -> None:
    """Each compiled function has a context with hooks that run around its calls (torch 2.13)."""
    from torch._dynamo.eval_frame import OptimizeContext

    original = OptimizeContext.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.enter_exit_hooks.append(aside)

    OptimizeContext.__init__ = __init__  # type: ignore[method-assign]
    undo.callback(setattr, OptimizeContext, "__init__", original)
