"""Run a script or module as ``__main__`` under a recorder, as Python would run it."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.overrides import handle_torch_function

from ..errors import GraphscopeError
from ..location import Location
from ..trace import Outcome, Trace
from .recorder import Recorder

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep


def run(target: str, args: list[str], *, module: bool = False) -> Trace:
    """Run it with its own ``sys.argv`` and ``sys.path[0]``; its exceptions are shown as Python shows them.

    Raises GraphscopeError where there is no such script, and SyntaxError is shown, not raised: the
    outcome then has status 1.
    """
    if not module:
        _refuse_what_is_no_script(target)
    recorder = Recorder(os.getcwd())
    saved = sys.argv[:], sys.path[:], sys.modules["__main__"]
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = __builtins__
    outcome = Outcome()
    try:
        try:
            code = _load_module(target, main) if module else _load_script(target, main)
            sys.modules["__main__"] = main
            sys.argv = [main.__dict__["__file__"] if module else target, *args]
            with recorder:
                exec(code, main.__dict__)
        except BaseException as error:
            outcome = _outcome(error, recorder)
        _flush()
        return recorder.trace(script=target, outcome=outcome, namespace=main.__dict__)
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = saved


def _refuse_what_is_no_script(target: str) -> None:
    path = Path(target)
    if path.is_dir():
        raise GraphscopeError(f"{target} is a directory: name a script, or `-m {path.name}` for a package")
    if not path.exists():
        raise GraphscopeError(f"no such script: {target}")
    if path.suffix == ".ipynb":
        raise GraphscopeError(f"{target} is a notebook: `jupyter nbconvert --to script {target}` makes a script of it")


def _load_script(target: str, main: types.ModuleType) -> Any:
    path = Path(target)
    main.__dict__.update(__file__=target, __spec__=None, __package__=None, __cached__=None)
    sys.path[0] = str(path.resolve().parent)
    try:
        return compile(path.read_bytes(), target, "exec")
    except OSError as error:
        raise GraphscopeError(f"cannot read {target}: {error.strerror or error}") from None
    except ValueError as error:  # a null byte: no Python source
        raise GraphscopeError(f"{target} is not a Python script: {error}") from None


def _load_module(target: str, main: types.ModuleType) -> Any:
    import runpy

    sys.path[0] = os.getcwd()
    try:
        _, spec, code = runpy._get_module_details(target)  # type: ignore[attr-defined]
    except ImportError as error:
        raise GraphscopeError(f"no such module: {target} ({error})") from None
    main.__dict__.update(
        __file__=spec.origin, __spec__=spec, __loader__=spec.loader, __package__=spec.parent, __cached__=spec.cached
    )
    return code


def _outcome(error: BaseException, recorder: Recorder) -> Outcome:
    """How the program ended, with its traceback shown as Python would have, without our frames."""
    if isinstance(error, GraphscopeError) and error.__traceback__ and not _reached_user(error, recorder):
        raise error
    if isinstance(error, SystemExit):
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
        return Outcome(status=0 if code is None else code if isinstance(code, int) else 1)
    _drop_our_frames(error, set())
    location = None
    for traceback in _chain(error.__traceback__):
        if recorder.frames.is_user(traceback.tb_frame.f_code):
            code_object = traceback.tb_frame.f_code
            location = Location(
                recorder.frames.relative(code_object.co_filename),
                traceback.tb_lineno,
                traceback.tb_lineno,
                code_object.co_name,
            )
    _flush()
    sys.excepthook(type(error), error, error.__traceback__)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    interrupted = isinstance(error, KeyboardInterrupt)
    return Outcome(130 if interrupted else 1, text, location, interrupted)


def _reached_user(error: BaseException, recorder: Recorder) -> bool:
    return any(recorder.frames.is_user(each.tb_frame.f_code) for each in _chain(error.__traceback__))


def _drop_our_frames(error: BaseException | None, seen: set[int]) -> None:
    """Take graphscope's frames out of a traceback, and out of those it was raised from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    kept: list[TracebackType] = []
    for each in _chain(error.__traceback__):
        if not _is_ours(each):
            kept.append(each)
        elif kept and kept[-1].tb_frame.f_code is handle_torch_function.__code__:
            del kept[-2:]  # the detour of a torch function written in Python to our mode, and back
    following: TracebackType | None = None
    for each in reversed(kept):
        each.tb_next = following
        following = each
    error.__traceback__ = following
    _drop_our_frames(error.__cause__, seen)
    _drop_our_frames(error.__context__, seen)


def _is_ours(traceback: TracebackType) -> bool:
    file = traceback.tb_frame.f_code.co_filename
    return file.startswith(_OURS) or os.path.realpath(file).startswith(_OURS)


def _chain(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        following = traceback.tb_next
        yield traceback
        traceback = following


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
