"""Run a script or module as ``__main__`` under a recorder, as Python would run it."""

from __future__ import annotations

import builtins
import contextlib
import linecache
import os
import sys
import threading
import types
from collections.abc import Iterator
from dataclasses import replace
from importlib.machinery import BuiltinImporter, SourceFileLoader
from pathlib import Path
from typing import Any

from ..errors import GraphscopeError
from ..location import Location
from ..trace import Outcome, Trace
from .hiding import chain, drop_our_frames, execute, hidden_frames
from .optimizers import EnoughSteps
from .recorder import Recorder

kept: list[types.ModuleType] | None = None
"""Where the command line keeps the program's globals until its exit handlers have run; a caller lets them go."""


def run(
    target: str,
    args: list[str],
    *,
    module: bool = False,
    every_step: bool = False,
    steps: int | None = None,
    arrays: bool = True,
    fades: bool = False,
) -> Trace:
    """Run it with its own ``sys.argv`` and ``sys.path[0]``; its exceptions are shown as Python shows them.

    With ``steps``, it is ended once each line that calls ``step()`` ran that often, or one of them tenfold.
    Raises GraphscopeError where there is no such script. A SyntaxError is shown, not raised: the
    outcome then has status 1.
    """
    if not module:
        _refuse_what_is_no_script(target)
    recorder = Recorder(os.getcwd(), every_step=every_step, steps=steps, arrays=arrays, fades=fades)
    recorder.frames.edge = execute.__code__
    saved = sys.argv[:], sys.path[:], sys.modules["__main__"]
    given = sys.stdin.buffer.read() if target == "-" and not module else None
    threads = _thread_numbers()
    process, others = os.getpid(), set(threading.enumerate())
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    outcome = Outcome()
    try:
        with hidden_frames():
            try:
                if given is not None:
                    code = _load_given(given, main)
                else:
                    code = _load_module(target, main) if module else _load_script(target, main)
                sys.modules["__main__"] = main
                sys.argv = [main.__dict__["__file__"] if module else target, *args]
                with recorder:
                    execute(code, main.__dict__)
            except BaseException as error:
                outcome = _outcome(error, recorder)
            if os.getpid() != process:  # a fork of the program's came to the script's end: the report is its parent's
                raise SystemExit(outcome.status)
            _wait_for_threads(others)
        _flush()
        if given is not None:  # only now, as tracebacks of the program do not show its lines
            linecache.cache["<stdin>"] = (len(given), None, given.decode(errors="replace").splitlines(True), "<stdin>")
        trace = recorder.trace(script=target, outcome=outcome, namespace=main.__dict__)
        return replace(trace, unseen=(*trace.unseen, *_too_late(threads)))
    finally:
        if kept is not None:
            kept.append(main)
        sys.argv, sys.path[:], sys.modules["__main__"] = saved


def _thread_numbers() -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


def _too_late(before: dict[str, str | None]) -> Iterator[str]:
    """What the program set in the environment for torch to read at its import, which was before."""
    for name, value in _thread_numbers().items():
        if value != before[name]:
            yield f"what {name}={value} would do: the program sets it when torch has been imported; set it outside"


def _wait_for_threads(others: set[threading.Thread]) -> None:
    """Wait for the program's threads, as Python does before it exits."""
    for thread in set(threading.enumerate()) - others:
        if not thread.daemon:
            thread.join()


def _refuse_what_is_no_script(target: str) -> None:
    path = Path(target)
    if target == "-":
        return
    if path.is_dir():
        raise GraphscopeError(f"{target} is a directory: name a script, or `-m {path.name}` for a package")
    if not path.exists():
        raise GraphscopeError(f"no such script: {target}")
    if path.suffix == ".ipynb":
        raise GraphscopeError(f"{target} is a notebook: `jupyter nbconvert --to script {target}` makes a script of it")


def _load_script(target: str, main: types.ModuleType) -> Any:
    file = os.path.join(os.getcwd(), target)  # as Python names it: absolute, but with its `..` and links as given
    loader = SourceFileLoader("__main__", file)
    main.__dict__.update(__file__=file, __loader__=loader, __spec__=None, __package__=None, __cached__=None)
    sys.path[0] = os.path.dirname(os.path.realpath(file))
    try:
        return compile(loader.get_data(file), file, "exec", dont_inherit=True)
    except OSError as error:
        raise GraphscopeError(f"cannot read {target}: {error.strerror or error}") from None
    except ValueError as error:  # a null byte: no Python source
        raise GraphscopeError(f"{target} is not a Python script: {error}") from None


def _load_given(source: bytes, main: types.ModuleType) -> Any:
    """A program that came through stdin."""
    names = {"__file__": "<stdin>", "__loader__": BuiltinImporter, "__spec__": None, "__package__": None}
    main.__dict__.update(names, __cached__=None)
    sys.path[0] = ""
    try:
        return compile(source, "<stdin>", "exec", dont_inherit=True)
    except ValueError as error:  # a null byte
        raise GraphscopeError(f"what came through stdin is not a Python script: {error}") from None


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
    if isinstance(error, EnoughSteps):
        return Outcome()
    if isinstance(error, SystemExit):
        code = error.code
        if code is not None and not isinstance(code, int):
            _flush()
            print(code, file=sys.stderr)
        return Outcome(status=0 if code is None else code if isinstance(code, int) else 1)
    drop_our_frames(error)
    location = None
    for entry in chain(error.__traceback__):
        if recorder.frames.is_user(entry.tb_frame.f_code):
            code_object = entry.tb_frame.f_code
            location = Location(
                recorder.frames.relative(code_object.co_filename),
                entry.tb_lineno,
                entry.tb_lineno,
                code_object.co_name,
            )
    _flush()
    sys.excepthook(type(error), error, error.__traceback__)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    interrupted = isinstance(error, KeyboardInterrupt)
    return Outcome(130 if interrupted else 1, text, location, interrupted)


def _reached_user(error: BaseException, recorder: Recorder) -> bool:
    return any(recorder.frames.is_user(each.tb_frame.f_code) for each in chain(error.__traceback__))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # closed, or replaced by the program
            stream.flush()
