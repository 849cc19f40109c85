"""Which variable, parameter or module of the user's a tensor is."""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import weakref
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from . import _torch
from .tensors import Tensors

_REFERENCES_OF_OURS = 3  # to ``frame.f_locals``: the frame's, our variable's, and the one that getrefcount is given
_LONGEST = 64  # elements of a list, or attributes of an object, that are looked at for names
_LIBRARY_OBJECTS = ("torch", "numpy", "builtins", "collections", "typing", "types", "functools", "itertools", "abc")


class _Sort(Enum):
    """What a value is to somebody who looks for names."""

    MODULE = "module"
    OPTIMIZER = "optimizer"
    TENSOR = "tensor"
    LIST = "list"
    DICT = "dict"
    OBJECT = "object"
    OTHER = "other"


_KINDS = {_Sort.MODULE: nn.Module, _Sort.OPTIMIZER: torch.optim.Optimizer, _Sort.TENSOR: Tensor}


class Names:
    """Names found in the user's variables, so far. Modules and optimizers are remembered by weak reference only."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._paths: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._tops: list[tuple[weakref.ref[nn.Module], str]] = []
        self._sorts: dict[int, tuple[_Sort, type]] = {}  # by the address of a type, which is kept with it

    def look(self, frames: list[FrameType]) -> None:
        """Name what these frames (innermost first) hold: outer ones first, as ``net`` says more than ``self``."""
        seen: set[int] = set()
        for frame in reversed(frames):
            for variables in namespaces(frame):
                if id(variables) not in seen:
                    seen.add(id(variables))
                    self.look_into(variables)

    def look_into(self, variables: Mapping[str, Any]) -> None:
        """Name what a namespace holds."""
        for name, value in list(variables.items()):
            sort = self._sort(value)
            if sort is not _Sort.OTHER and not name.startswith("__"):
                self._name(name, value, sort, depth=2)

    def path(self, module: int) -> str | None:
        """The dotted name of the module with this ``id()``."""
        known = self._paths.get(module)
        return known[1] if known is not None else None

    def __len__(self) -> int:
        return len(self._paths)

    def of(self, thing: Any) -> str | None:
        """The name of a module or an optimizer, None if it was not found."""
        known = self._paths.get(id(thing))
        return known[1] if known is not None and known[0]() is thing else None

    def variable(self, tensor: Tensor, frames: list[FrameType]) -> str | None:
        """The innermost variable that is this very tensor."""
        for frame in frames:
            for variables in namespaces(frame):
                for name, value in list(variables.items()):
                    if value is tensor and not name.startswith("_"):
                        return name
        return None

    def tops(self) -> Iterator[tuple[nn.Module | None, str]]:
        """The top-level modules in the order they were met, None for those that are gone."""
        return ((ref(), name) for ref, name in self._tops)

    def optimizers(self) -> Iterator[torch.optim.Optimizer]:
        """The optimizers that were met and are still there."""
        return (thing for ref, _ in self._paths.values() if isinstance(thing := ref(), torch.optim.Optimizer))

    def _sort(self, value: Any) -> _Sort:
        kind = type(value)
        known = self._sorts.get(id(kind))
        if known is None:
            known = self._sorts[id(kind)] = (_sort_of(value), kind)
        return known[0]

    def _name(self, name: str, value: Any, sort: _Sort, depth: int) -> None:
        if sort is _Sort.MODULE:
            self.name_module(name, value)
        elif sort is _Sort.OPTIMIZER:
            self._remember(value, name)
        elif sort is _Sort.TENSOR:
            self.name_tensor(name, value)
        elif depth:
            for inner, element in _elements(name, value, sort):
                kind = self._sort(element)
                if kind is not _Sort.OTHER:
                    self._name(inner, element, kind, depth - 1)

    def name_module(self, name: str, module: nn.Module) -> None:
        """Name a module, unless it has a name already, and what it holds."""
        if self.of(module) is None:
            self._tops.append((weakref.ref(module), name))
        top = self.of(module) or name
        for path, child in module.named_modules():
            inner = f"{top}.{path}" if path else top
            self._remember(child, inner)
            for members in (child._parameters, child._buffers):
                for key, tensor in members.items():
                    if tensor is not None:
                        self.name_tensor(f"{inner}.{key}", tensor)

    def name_tensor(self, name: str, tensor: Tensor) -> None:
        """Name a tensor that is a leaf or was met before, unless it has a name."""
        number = self._tensors.known(tensor)
        if number is None and (isinstance(tensor, nn.Parameter) or (tensor.requires_grad and _torch.is_leaf(tensor))):
            number = self._tensors.number(tensor)
        if number is not None and self._tensors.rows[number].name is None:
            self._tensors.rows[number].name = name

    def _remember(self, thing: Any, name: str) -> None:
        if self.of(thing) is None:
            self._paths[id(thing)] = (weakref.ref(thing), name)


def _sort_of(value: Any) -> _Sort:
    """What there is to name in a value: its type alone tells."""
    for sort, kind in _KINDS.items():
        if isinstance(value, kind):
            return sort
    if type(value) in (list, tuple):
        return _Sort.LIST
    if type(value) is dict:
        return _Sort.DICT
    return _Sort.OBJECT if is_users_object(value) else _Sort.OTHER


def _elements(name: str, value: Any, sort: _Sort) -> Iterator[tuple[str, Any]]:
    """What a list, a dict or an object holds, each with the text that gives it."""
    if sort is _Sort.OBJECT:
        yield from ((f"{name}.{key}", each) for key, each in list(vars(value).items())[:_LONGEST])
    elif len(value) > _LONGEST:
        return
    elif sort is _Sort.LIST:
        yield from ((f"{name}[{position}]", each) for position, each in enumerate(value))
    else:
        for key, each in list(value.items()):
            if isinstance(key, str | int):  # others would be written by a __repr__ of the user's
                yield f"{name}[{key!r}]", each


def is_users_object(value: Any) -> bool:
    """Whether a value is an object with attributes that the program may have set."""
    return (
        hasattr(value, "__dict__")
        and not isinstance(value, type)
        and not inspect.ismodule(value)
        and not inspect.isroutine(value)
        and type(value).__module__.partition(".")[0] not in _LIBRARY_OBJECTS
    )


def namespaces(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """A frame's local variables, then its global ones.

    Up to Python 3.12 ``f_locals`` of a function fills a dict that the frame keeps, and with it every
    value, until the function returns: it is emptied again, so that nothing lives longer than it would.
    Unless somebody else has it: the program's own ``locals()`` is this very dict.
    """
    if frame.f_locals is not frame.f_globals:
        variables = frame.f_locals
        optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        copied = dict(variables)
        if optimized and type(variables) is dict and sys.getrefcount(variables) <= _REFERENCES_OF_OURS:
            variables.clear()
        yield copied
        copied.clear()
    yield frame.f_globals


@lru_cache(maxsize=64)
def _calls(file: str) -> tuple[ast.Call, ...]:
    source = "".join(linecache.getlines(file))
    try:
        return tuple(node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    except SyntaxError:
        return ()


def receiver(frame: FrameType, method: str) -> str | None:
    """The source text of what ``method`` is called on, or of its first argument, where the frame is now."""
    line = frame.f_lineno
    for call in _calls(frame.f_code.co_filename):
        if call.lineno <= line <= (call.end_lineno or line) and isinstance(call.func, ast.Attribute):
            if call.func.attr != method:
                continue
            module = ast.unparse(call.func.value) in ("torch.autograd", "autograd")
            what = call.args[0] if module and call.args else call.func.value
            text = ast.unparse(what)
            return text if len(text) <= 40 else text[:37] + "..."
    return None
