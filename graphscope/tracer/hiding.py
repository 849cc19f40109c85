"""Tracebacks and warnings that a watched program shows, without graphscope's frames in them."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

from torch.overrides import handle_torch_function

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep
_OF_EXECUTE = 3 if sys.version_info < (3, 12) else 1  # a call of it; until 3.11 calls of C functions count, too
# The generators that all of `traceback` (and so `logging`) goes through, the second since Python 3.11.
_WALKERS = ("walk_tb", "_walk_tb_with_full_positions")


def execute(code: Any, namespace: dict[str, Any]) -> None:
    """Run a program; as far as the program can see, no frame is outside this one."""
    exec(code, namespace)


@contextlib.contextmanager
def hidden_frames() -> Iterator[None]:
    """As long as this lasts, what the program prints of its stack, and where it is warned, is as unwatched."""
    with contextlib.ExitStack() as undo:
        for name in _WALKERS:
            if hasattr(traceback, name):
                _replace(undo, traceback, name, _walk(getattr(traceback, name)))
        _replace(undo, traceback, "walk_stack", _walk_stack(traceback.walk_stack))
        _replace(undo, threading, "excepthook", _excepthook(threading.excepthook))
        _replace(undo, warnings, "warn", _warn(warnings.warn))
        _replace(undo, warnings, "_showwarnmsg", _show(warnings._showwarnmsg))  # type: ignore[attr-defined]
        _make_room(undo)
        yield


def _make_room(undo: contextlib.ExitStack) -> None:
    """Let the program recurse as deep as unwatched: the frames around it do not count."""
    get, set = sys.getrecursionlimit, sys.setrecursionlimit
    before, around, frame = get(), _OF_EXECUTE, sys._getframe(3)
    while frame is not None:
        around, frame = around + 1, frame.f_back  # type: ignore[assignment]
    _replace(undo, sys, "getrecursionlimit", functools.wraps(get)(lambda: get() - around))
    _replace(undo, sys, "setrecursionlimit", functools.wraps(set)(lambda limit, /: set(limit + around)))
    set(before + around)
    undo.callback(set, before)


def drop_our_frames(error: BaseException | None) -> None:
    """Take graphscope's frames out of the traceback of an exception, and of those it was raised from."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = without_ours(each.__traceback__)
            waiting += [each.__cause__, each.__context__, *getattr(each, "exceptions", ())]


def without_ours(first: TracebackType | None) -> TracebackType | None:
    """The traceback with graphscope's frames unlinked from it."""
    kept: list[TracebackType] = []
    for each in chain(first):
        if not _is_ours(each.tb_frame.f_code):
            kept.append(each)
        elif kept and _is_detour(kept[-1].tb_frame.f_code):
            del kept[-2:]  # the detour of a torch function written in Python to our mode, and back
    following: TracebackType | None = None
    for each in reversed(kept):
        if each.tb_next is not following:
            each.tb_next = following
        following = each
    return following


def chain(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """The entries of a traceback, outermost first."""
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, replacement: Any) -> None:
    """Put something in the place of a function; if the program replaced it as well, that stays."""
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    undo.callback(lambda: setattr(owner, name, original) if getattr(owner, name) is replacement else None)


def _visible(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of a stack, innermost first, without ours and those that led to them."""
    after_ours = False
    while frame is not None and frame.f_code is not execute.__code__:
        if _is_ours(frame.f_code):
            after_ours = True
        elif after_ours and _is_detour(frame.f_code):
            frame, after_ours = frame.f_back, False  # and the torch function that took the detour
            assert frame is not None
        else:
            after_ours = False
            yield frame
        frame = frame.f_back


@lru_cache(maxsize=4096)
def _is_our_file(file: str) -> bool:
    return file.startswith(_OURS) or os.path.realpath(file).startswith(_OURS)


def _is_ours(code: CodeType) -> bool:
    return _is_our_file(code.co_filename)


def _is_detour(code: CodeType) -> bool:
    return code is handle_torch_function.__code__


def _walk(original: Any) -> Any:
    return lambda tb: original(without_ours(tb))


def _walk_stack(original: Any) -> Any:
    def walk_stack(frame: FrameType | None) -> Any:
        return original(frame) if frame is None else ((each, each.f_lineno) for each in _visible(frame))

    return walk_stack


def _excepthook(original: Any) -> Any:
    """For exceptions that end a thread: they are shown without the module ``traceback``."""

    def excepthook(args: Any) -> None:
        drop_our_frames(args.exc_value)
        original(
            threading.ExceptHookArgs((args.exc_type, args.exc_value, without_ours(args.exc_traceback), args.thread))
        )

    return excepthook


def _warn(original: Any) -> Any:
    """Count the levels up to the frame that is warned over the frames that would be there unwatched."""

    def warn(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **options: Any) -> Any:
        frame = sys._getframe(1)
        wanted = next((each for n, each in enumerate(_visible(frame), 1) if n == stacklevel), None)
        level = 2
        while wanted is not None and frame is not wanted:
            level += not ("importlib" in (file := frame.f_code.co_filename) and "_bootstrap" in file)
            frame = frame.f_back  # type: ignore[assignment]
        return original(message, category, level if wanted is not None else stacklevel + 1, source, **options)

    return warn


def _show(original: Any) -> Any:
    """For warnings given in C, which are about the innermost Python frame, be it ours."""

    def show(message: Any) -> Any:
        frame: FrameType | None = sys._getframe(1)
        while _is_our_file(message.filename) and frame is not None and not _is_ours(frame.f_code):
            frame = frame.f_back
        user = next(_visible(frame), None) if _is_our_file(message.filename) else None
        if frame is None or user is None:
            return original(message)
        text, kind = str(message.message), message.category
        ours = frame.f_globals.get("__warningregistry__", {})
        if ours.pop((text, kind, message.lineno), None):  # to be shown once for each line: the user's, not ours
            shown = user.f_globals.setdefault("__warningregistry__", {})
            if shown.get("version") != ours.get("version"):
                shown.clear()
                shown["version"] = ours.get("version")
            if shown.get((text, kind, user.f_lineno)):
                return None
            shown[text, kind, user.f_lineno] = True
        place = user.f_code.co_filename, user.f_lineno
        return original(warnings.WarningMessage(message.message, kind, *place, message.file, None, message.source))

    return show
