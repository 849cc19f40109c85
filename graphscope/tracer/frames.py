"""Which frames are the user's, and where in their source they are."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType, FrameType

import torch

from ..location import Location

_CALL_IMPL = torch.nn.Module._call_impl.__code__
_SWITCHES = {module.__file__ for module in (torch.autograd.grad_mode, torch.utils._contextlib, torch.overrides)}
_UTILITIES = str(Path(torch.nn.utils.__file__).parent) + os.sep
_LIBRARIES = tuple(
    {
        str(Path(folder).resolve()) + os.sep
        for folder in (
            *(sysconfig.get_path(name) or "" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
            str(Path(torch.__file__).parent),
            str(Path(__file__).parent.parent),
        )
        if folder
    }
)


class Frames:
    """Finds the user's frames in a stack: user code is in no installed package and not in the standard library."""

    def __init__(self, root: str | None = None) -> None:
        self.root = root or os.getcwd()
        self.edge: CodeType | None = None  # the frame that runs the program: those outside it are not the program's
        # Keyed by id(): hashing a code object is slow. The value keeps the object, so that the id stays its own.
        self._user: dict[int, tuple[bool, CodeType]] = {}
        self._locations: dict[tuple[int, int], Location] = {}

    def is_user(self, code: CodeType) -> bool:
        """Whether this code was written by the user."""
        known = self._user.get(id(code))
        if known is None:
            known = self._user[id(code)] = (is_users_file(code.co_filename), code)
        return known[0]

    def user(self, frame: FrameType | None) -> FrameType | None:
        """The innermost frame of the user's, this one or one that called it."""
        known = self._user
        while frame is not None and frame.f_code is not self.edge:
            entry = known.get(id(frame.f_code))
            if entry[0] if entry is not None else self.is_user(frame.f_code):
                return frame
            frame = frame.f_back
        return None

    def stack(self, frame: FrameType | None) -> Iterator[FrameType]:
        """The user's frames, innermost first."""
        while (frame := self.user(frame)) is not None:
            yield frame
            frame = frame.f_back

    def trail(self, frame: FrameType | None) -> tuple[list[Location], FrameType | None]:
        """Where the user's frames are, innermost first, and the innermost call of a module."""
        known, found, call = self._user, [], None
        while frame is not None and (code := frame.f_code) is not self.edge:
            entry = known.get(id(code))
            if entry[0] if entry is not None else self.is_user(code):
                found.append(self.location(frame))
            elif call is None and code is _CALL_IMPL:
                call = frame
            frame = frame.f_back
        return found, call

    def location(self, frame: FrameType) -> Location:
        """Where a frame is now."""
        key = (id(frame.f_code), frame.f_lasti)
        known = self._locations.get(key)
        if known is None:
            self._user.setdefault(id(frame.f_code), (self.is_user(frame.f_code), frame.f_code))
            known = self._locations[key] = self._locate(frame)
        return known

    def here(self, frame: FrameType | None) -> Location | None:
        """Where the user's code is, seen from a frame inside a library."""
        user = self.user(frame)
        return None if user is None else self.location(user)

    def switch(self, frame: FrameType | None) -> Location | None:
        """Where gradients are being switched off: the statement, or the function that is decorated to do so.

        None where they are only switched back to off, at the end of a block that had them on.
        """
        while frame is not None and frame.f_code is not self.edge and not self.is_user(frame.f_code):
            if frame.f_code.co_name == "__exit__":
                return None
            if frame.f_code.co_name == "decorate_context" and (function := frame.f_locals.get("func")) is not None:
                code = getattr(function, "__code__", None)
                if code is not None and self.is_user(code):
                    line = code.co_firstlineno
                    return Location(self.relative(code.co_filename), line, line, code.co_name)
            frame = frame.f_back
        return None if frame is None or frame.f_code is self.edge else self.location(frame)

    def is_switched_by_torch(self, frame: FrameType | None) -> bool:
        """Whether ``torch.nn.utils`` switches gradients off, for its own ends: a spectral norm updates its vectors."""
        while frame is not None and frame.f_code.co_filename in _SWITCHES:
            frame = frame.f_back
        return frame is not None and frame.f_code.co_filename.startswith(_UTILITIES)

    def _locate(self, frame: FrameType) -> Location:
        code, line = frame.f_code, frame.f_lineno
        end = line
        if sys.version_info >= (3, 11):
            position = next(islice(code.co_positions(), frame.f_lasti // 2, None), None)
            end = max(line, (position[1] or line)) if position else line
        name = code.co_qualname if sys.version_info >= (3, 11) else code.co_name
        return Location(self.relative(code.co_filename), line, end, name)

    def relative(self, file: str) -> str:
        """The path as reports show it: relative to the root where it lies under it."""
        if file.startswith("<"):
            return file
        path = os.path.abspath(os.path.join(self.root, file))
        inside = os.path.relpath(path, self.root)
        return path if inside.startswith("..") else inside


def is_users_file(file: str) -> bool:
    """Whether a source file is the user's: in no installed package and not in the standard library."""
    if file.startswith("<"):
        return file.startswith(("<ipython-input", "<stdin>"))
    path = os.path.realpath(file)
    if os.sep + "site-packages" + os.sep in path or os.sep + "dist-packages" + os.sep in path:
        return False
    return not path.startswith(_LIBRARIES)
